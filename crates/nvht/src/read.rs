//! Lookups of readers (`lodestore_inplace::Reads`).
//!
//! A miss counts only if the key still belongs to the table that was read: the key may have moved
//! meanwhile (`partition.rs`).

use lodestore_contract::Result;
use lodestore_inplace::Reads;
use lodestore_media::NvPtr;

use crate::hash::Hashed;
use crate::open_store::Inner;
use crate::record::Record;
use crate::slot::Slot;
use crate::table::{Hit, Table};

/// Keys of a batched read in progress at once, rounded up.
const RING_SLOTS: usize = 32;

/// A key of a batched read in progress.
#[derive(Clone, Copy)]
pub struct PendingRead {
    hashed: Hashed,
    table: Table,
    /// The slot that was seen, and its position.
    seen: Option<(NvPtr, Slot)>,
}

impl Inner {
    /// Returns the live record of `key`. The caller holds a guard.
    #[inline]
    fn lookup_hashed(&self, hashed: Hashed, key: &[u8]) -> Result<Option<Record<'_>>> {
        let part = self.partition(hashed);
        loop {
            let table = part.table_for(hashed.fraction);
            let hit = self.find(table, hashed, key);
            if !matches!(hit, Ok(Some(_))) && part.table_for(hashed.fraction) != table {
                continue;
            }
            if self.may_be_in_batch(|| hashed.stripe()) {
                return self.lookup_locked(hashed, key);
            }
            let hit = hit.inspect_err(|error| self.report_corruption(error))?;
            self.persist_read(table, hashed, hit.as_ref().map(|hit| hit.at));
            return hit.map_or(Ok(None), |hit| self.check_found(&hit));
        }
    }

    /// As [`Self::lookup_hashed`], under the stripe. While it is held, no batch changes this key,
    /// and all data read is durable, or made durable here.
    #[cold]
    fn lookup_locked(&self, hashed: Hashed, key: &[u8]) -> Result<Option<Record<'_>>> {
        let held = self.stripes.lock(hashed.stripe());
        let table = self.partition(hashed).table_for(hashed.fraction);
        let hit = self.find(table, hashed, key);
        if self.is_unsettled() {
            table.flush_window(&self.pool, hashed.fraction);
            self.pool.fence();
        }
        drop(held);
        let hit = hit.inspect_err(|error| self.report_corruption(error))?;
        hit.map_or(Ok(None), |hit| self.check_found(&hit))
    }

    /// Makes the data that was read durable if necessary.
    #[inline]
    fn persist_read(&self, table: Table, hashed: Hashed, slot: Option<NvPtr>) {
        if !self.must_persist_read(|| hashed.stripe()) {
            return;
        }
        // The reach that led to the slot must be durable too.
        table.flush_window(&self.pool, hashed.fraction);
        if let Some(slot) = slot {
            self.pool.flush(slot, 8);
        }
        self.pool.fence();
    }
}

impl Reads for Inner {
    type PendingRead = PendingRead;
    const INDEX_AHEAD_KEYS: usize = 8;
    const RECORD_AHEAD_KEYS: usize = 8;

    #[inline]
    fn lookup(&self, key: &[u8]) -> Result<Option<Record<'_>>> {
        self.lookup_hashed(self.hasher.hash(key), key)
    }

    fn empty_ring(&self) -> impl AsMut<[PendingRead]> {
        let hashed = Hashed { partition: 0, fraction: 0, tag: 0 };
        [PendingRead { hashed, table: self.partitions[0].table_for(0), seen: None }; RING_SLOTS]
    }

    #[inline]
    fn begin_read(&self, key: &[u8]) -> PendingRead {
        let hashed = self.hasher.hash(key);
        let table = self.partition(hashed).table_for(hashed.fraction);
        table.prefetch(&self.pool, hashed.fraction);
        PendingRead { hashed, table, seen: None }
    }

    #[inline]
    fn prefetch_record(&self, pending: &mut PendingRead) {
        pending.seen = pending.table.candidate(&self.pool, self.form, pending.hashed);
        if let Some((_, slot)) = pending.seen {
            self.pool.prefetch(self.form.record(slot), self.prefetch_length.bytes());
        }
    }

    /// Returns the live record of `key`, by the seen slot if it is unchanged. Its table was the
    /// key's when the read began. The record was therefore the key's at some moment since.
    /// Otherwise, and in careful mode, looks the key up again. The caller has held a guard since.
    #[inline]
    fn finish_read(&self, pending: PendingRead, key: &[u8]) -> Result<Option<Record<'_>>> {
        let PendingRead { hashed, table, seen } = pending;
        if let Some((at, slot)) = seen
            && self.pool.load_u64(at) == slot.0
            && !self.is_careful()
        {
            let record_at = self.form.record(slot);
            if let Ok(record) = Record::read(&self.pool, record_at)
                && record.key() == key
                && self.form.is_bound(slot, record.binding())
                && !self.may_be_in_batch(|| hashed.stripe())
            {
                self.persist_read(table, hashed, Some(at));
                return self.check_found(&Hit { at, entry: slot, record_at, record, is_bound: true });
            }
        }
        self.lookup_hashed(hashed, key)
    }
}
