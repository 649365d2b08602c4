//! Lookups of readers (`lodestore_inplace::Reads`).
//!
//! A miss counts only if the directory still names the same segment, by a word whose check bits are
//! right. A split may have moved the key meanwhile, or the word may be damaged. In careful mode
//! (`careful_lookup.rs`) a miss counts only if no slot of the key's buckets is damaged.

use lodestore_contract::Result;
use lodestore_inplace::Reads;
use lodestore_media::NvPtr;

use crate::entry::Entry;
use crate::hash::Signature;
use crate::layout::BUCKET_BYTES;
use crate::open_store::Inner;
use crate::record::Record;
use crate::table::{Hit, PREFETCH_BYTES, Segment, Table};

/// Keys of a batched read in progress at once, rounded up.
const RING_SLOTS: usize = 16;

/// A key of a batched read in progress.
#[derive(Clone, Copy)]
pub struct PendingRead {
    sig: Signature,
    segment: Segment,
    /// The entry that was seen, and its slot.
    entry: Option<(NvPtr, Entry)>,
}

impl Inner {
    /// Returns the live record of `key`. The caller holds a guard and no stripe.
    #[inline]
    fn lookup_signed(&self, sig: Signature, key: &[u8]) -> Result<Option<Record<'_>>> {
        let found = self.lookup_unlocked(sig, key);
        if self.may_be_in_batch(|| self.table.placement.stripe(sig)) { self.lookup_locked(sig, key) } else { found }
    }

    #[cold]
    fn lookup_locked(&self, sig: Signature, key: &[u8]) -> Result<Option<Record<'_>>> {
        let _held = self.stripes.lock(self.table.placement.stripe(sig));
        self.lookup_unlocked(sig, key)
    }

    #[inline]
    fn lookup_unlocked(&self, sig: Signature, key: &[u8]) -> Result<Option<Record<'_>>> {
        loop {
            let segment = self.table.likely_segment(&self.pool, sig);
            self.table.prefetch(&self.pool, segment, sig);
            match self.table.find(&self.pool, segment, sig, key).inspect_err(|error| self.report_corruption(error))? {
                Some(hit) => {
                    self.persist_read(sig, segment, Some(hit.at));
                    return self.check_found(&hit);
                }
                None => match self.table.named_segment(&self.pool, sig) {
                    Some(now) if now.at == segment.at => {
                        self.persist_read(sig, now, None);
                        self.check_absent(now, sig)?;
                        return Ok(None);
                    }
                    Some(_) => {}
                    None => return Err(self.report_damaged_word(sig)),
                },
            }
        }
    }

    /// Makes the data that was read durable if necessary.
    #[inline]
    fn persist_read(&self, sig: Signature, segment: Segment, slot: Option<NvPtr>) {
        if !self.must_persist_read(|| self.table.placement.stripe(sig)) {
            return;
        }
        match slot {
            Some(slot) => {
                self.pool.flush(slot, 16);
                self.pool.fence();
            }
            None => self.persist_buckets(segment, sig),
        }
    }

    /// Makes the buckets of a key durable.
    #[track_caller]
    pub(crate) fn persist_buckets(&self, segment: Segment, sig: Signature) {
        let (home, other) = self.table.placement.buckets(sig);
        self.pool.flush(Table::bucket(segment, home), BUCKET_BYTES as usize);
        self.pool.flush(Table::bucket(segment, other), BUCKET_BYTES as usize);
        self.pool.fence();
    }
}

impl Reads for Inner {
    type PendingRead = PendingRead;
    const INDEX_AHEAD_KEYS: usize = 8;
    const RECORD_AHEAD_KEYS: usize = 4;

    #[inline]
    fn lookup(&self, key: &[u8]) -> Result<Option<Record<'_>>> {
        self.lookup_signed(self.table.placement.sign(key), key)
    }

    #[inline]
    fn time_get(&self) -> impl Sized {
        self.sampler.get()
    }

    #[inline]
    fn count_gets(&self, count: u64) {
        self.sampler.gets(count);
    }

    fn empty_ring(&self) -> impl AsMut<[PendingRead]> {
        let segment = Segment { at: NvPtr::NULL, depth: 0 };
        [PendingRead { sig: Signature(1), segment, entry: None }; RING_SLOTS]
    }

    #[inline]
    fn begin_read(&self, key: &[u8]) -> PendingRead {
        let sig = self.table.placement.sign(key);
        let segment = self.table.likely_segment(&self.pool, sig);
        self.table.prefetch(&self.pool, segment, sig);
        PendingRead { sig, segment, entry: None }
    }

    #[inline]
    fn prefetch_record(&self, pending: &mut PendingRead) {
        pending.entry = self.table.candidate(&self.pool, pending.segment, pending.sig);
        if let Some((_, entry)) = pending.entry {
            self.pool.prefetch(entry.position().untagged(), PREFETCH_BYTES);
        }
    }

    /// Returns the live record of `key`, by the seen entry if it is unchanged. Its segment was in
    /// the directory when the read began. The record was therefore the key's at some moment since.
    /// Otherwise looks the key up again. The caller has held a guard since.
    #[inline]
    fn finish_read(&self, pending: PendingRead, key: &[u8]) -> Result<Option<Record<'_>>> {
        let PendingRead { sig, segment, entry } = pending;
        if let Some((slot, entry)) = entry
            && Entry::load(&self.pool, slot) == entry
            && let Ok(record) = Record::read(&self.pool, entry.position())
            && record.key() == key
            && entry.is_bound(slot, record.binding())
            && !self.may_be_in_batch(|| self.table.placement.stripe(sig))
        {
            self.persist_read(sig, segment, Some(slot));
            let record_at = entry.position();
            return self.check_found(&Hit { at: slot, entry, record_at, record, is_bound: true });
        }
        self.lookup_signed(sig, key)
    }
}
