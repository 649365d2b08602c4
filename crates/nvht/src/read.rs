//! Reads of single keys. A reader acquires no lock and writes no shared memory, except its epoch.
//!
//! Durable linearizability: a slot may be visible before it is durable. After reading a slot (or
//! finding none), a reader therefore checks whether the key's stripe is held. If so, it flushes the
//! data that it read, and fences before it returns. If the stripe is free, the data is durable
//! already (`stripe.rs`, invariant 3). The exception is data of a killed process
//! (`Base::unsettled`), which is also made durable first.
//!
//! A miss counts only if the key still belongs to the table that was read: the key may have moved
//! meanwhile (`partition.rs`). A batch becomes visible at once: while one publishes, a reader that
//! finds the stripe held acquires it, and reads again.

use std::sync::atomic::Ordering;

use lodestore_contract::limits::check_key;
use lodestore_contract::{Expiry, Result};
use lodestore_media::{Mutant, NvPtr};

use crate::hash::Hashed;
use crate::inner::Inner;
use crate::record::Record;
use crate::search::unvouched;
use crate::slot::Slot;
use crate::table::{Hit, Table};

/// Keys of a batched read whose lines are being loaded before the first is examined.
const LINE_PREFETCH_KEYS: usize = 8;
/// Keys, before these, whose records are being loaded.
const RECORD_PREFETCH_KEYS: usize = 8;
/// Keys per step.
const STEP_KEYS: usize = 4;
/// Keys in progress at once, rounded up.
const RING_SLOTS: usize = (LINE_PREFETCH_KEYS + RECORD_PREFETCH_KEYS + STEP_KEYS).next_power_of_two();
/// Keys read under one guard.
const ROUND_KEYS: usize = 256;

/// A key of a batched read in progress.
#[derive(Clone, Copy)]
struct PendingRead {
    hashed: Hashed,
    table: Table,
    /// The slot that was seen, and its position.
    seen: Option<(NvPtr, Slot)>,
}

impl Inner {
    /// Returns the live record of `key`. The caller holds a guard.
    #[inline]
    pub(crate) fn lookup(&self, hashed: Hashed, key: &[u8]) -> Result<Option<Record<'_>>> {
        let part = self.partition(hashed);
        loop {
            let table = part.table_for(hashed.fraction);
            let hit = self.find(table, hashed, key);
            if !matches!(hit, Ok(Some(_))) && part.table_for(hashed.fraction) != table {
                continue;
            }
            if self.may_be_in_batch(hashed) {
                return self.lookup_locked(hashed, key);
            }
            let hit = hit.inspect_err(|error| self.corrupt(error))?;
            self.persist_read(table, hashed, hit.as_ref().map(|hit| hit.at));
            return hit.map_or(Ok(None), |hit| self.check_hit(&hit));
        }
    }

    /// As [`Self::lookup`], under the stripe. While it is held, no batch changes this key, and all
    /// data read is durable, or made durable here.
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
        let hit = hit.inspect_err(|error| self.corrupt(error))?;
        hit.map_or(Ok(None), |hit| self.check_hit(&hit))
    }

    /// Returns whether a batch may hold the key's stripe. Must be called after the read of the
    /// slot: a batch counts itself before it publishes.
    #[inline]
    fn may_be_in_batch(&self, hashed: Hashed) -> bool {
        self.batches.load(Ordering::Acquire) != 0 && self.stripes.is_locked(hashed.stripe())
    }

    /// Returns the record of a hit, if it has not expired, its slot vouches for it and its checksum
    /// is right.
    #[inline]
    fn check_hit<'a>(&'a self, hit: &Hit<'a>) -> Result<Option<Record<'a>>> {
        if !hit.is_bound {
            return Err(unvouched(hit.record_at)).inspect_err(|error| self.corrupt(error));
        }
        if self.options.verify_reads {
            hit.record.check(hit.record_at).inspect_err(|error| self.corrupt(error))?;
        }
        if hit.record.expiry().is_some_and(Expiry::is_past) {
            return Ok(None);
        }
        Ok(Some(hit.record))
    }

    /// Makes the data that was read durable if a writer holds the stripe (see the module docs).
    #[inline]
    fn persist_read(&self, table: Table, hashed: Hashed, slot: Option<NvPtr>) {
        if !self.pool.persists() {
            return;
        }
        let is_locked = self.stripes.is_locked(hashed.stripe());
        if !is_locked && !self.is_unsettled() || is_locked && self.pool.mutant(Mutant::ReadUnpersisted) {
            return;
        }
        // The reach that led to the slot must be durable too.
        table.flush_window(&self.pool, hashed.fraction);
        if let Some(slot) = slot {
            self.pool.flush(slot, 8);
        }
        self.pool.fence();
    }

    pub(crate) fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        check_key(key)?;
        let _guard = self.enter()?;
        match self.lookup(self.hasher.hash(key), key)? {
            Some(record) => {
                value.extend_from_slice(record.value());
                Ok(true)
            }
            None => Ok(false),
        }
    }

    pub(crate) fn get_with(&self, key: &[u8], with: &mut dyn FnMut(&[u8])) -> Result<bool> {
        check_key(key)?;
        let _guard = self.enter()?;
        let found = self.lookup(self.hasher.hash(key), key)?;
        Ok(found.is_some_and(|record| {
            with(record.value());
            true
        }))
    }

    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let _guard = self.enter()?;
        Ok(self.lookup(self.hasher.hash(key), key)?.is_some())
    }

    pub(crate) fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        check_key(key)?;
        let _guard = self.enter()?;
        Ok(self.lookup(self.hasher.hash(key), key)?.map(|record| record.expiry()))
    }

    /// Reads keys in a pipeline of three steps, some keys apart: prefetch of the line, prefetch of
    /// the record, read. The cache misses of several keys overlap.
    pub(crate) fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        keys.iter().try_for_each(|key| check_key(key))?;
        for (round, keys) in keys.chunks(ROUND_KEYS).enumerate() {
            let _guard = self.enter()?;
            let nothing = Hashed { partition: 0, fraction: 0, tag: 0 };
            let mut ring =
                [PendingRead { hashed: nothing, table: self.partitions[0].table_for(0), seen: None }; RING_SLOTS];
            let from = |step: usize, distance: usize| step.saturating_sub(distance);
            for start in (0..keys.len() + LINE_PREFETCH_KEYS + RECORD_PREFETCH_KEYS).step_by(STEP_KEYS) {
                for index in start..(start + STEP_KEYS).min(keys.len()) {
                    let hashed = self.hasher.hash(keys[index]);
                    let table = self.partition(hashed).table_for(hashed.fraction);
                    table.prefetch(&self.pool, hashed.fraction);
                    ring[index % RING_SLOTS] = PendingRead { hashed, table, seen: None };
                }
                for index in
                    from(start, LINE_PREFETCH_KEYS)..from(start + STEP_KEYS, LINE_PREFETCH_KEYS).min(keys.len())
                {
                    let pending = &mut ring[index % RING_SLOTS];
                    pending.seen = pending.table.candidate(&self.pool, self.form, pending.hashed);
                    if let Some((_, slot)) = pending.seen {
                        self.pool.prefetch(self.form.record(slot), self.prefetch_length.bytes());
                    }
                }
                let distance = LINE_PREFETCH_KEYS + RECORD_PREFETCH_KEYS;
                for index in from(start, distance)..from(start + STEP_KEYS, distance).min(keys.len()) {
                    let record = self.finish_read(ring[index % RING_SLOTS], keys[index])?;
                    each(round * ROUND_KEYS + index, record.as_ref().map(Record::value));
                }
            }
        }
        Ok(())
    }

    /// Returns the live record of `key`, by the seen slot if it is unchanged. Its table was the
    /// key's when the read began. The record was therefore the key's at some moment since.
    /// Otherwise looks the key up again. The caller has held a guard since.
    #[inline]
    fn finish_read(&self, pending: PendingRead, key: &[u8]) -> Result<Option<Record<'_>>> {
        let PendingRead { hashed, table, seen } = pending;
        if let Some((at, slot)) = seen
            && self.pool.load_u64(at) == slot.0
        {
            let record_at = self.form.record(slot);
            if let Ok(record) = Record::read(&self.pool, record_at)
                && record.key() == key
                && self.form.is_bound(slot, record.binding())
                && !self.may_be_in_batch(hashed)
            {
                self.persist_read(table, hashed, Some(at));
                return self.check_hit(&Hit { at, slot, record_at, record, is_bound: true });
            }
        }
        self.lookup(hashed, key)
    }
}
