//! Writes of single keys (HiKV, ATC 2017, Algorithms 1 to 3).
//!
//! Persist order, under the key's stripe:
//! * put, update: the record; **fence 1**; the entry by one 16-byte swap; flush; **fence 2**.
//! * delete: the entry to its free mark by one 16-byte swap; flush; **fence 1**.
//!
//! Then the tree's change is queued, still under the stripe, which gives the queue the order of the
//! entries. The stripe is freed. The thread that applies the change to the tree retires the space
//! of the replaced or deleted record. By then the record's removal has long been durable, and no
//! reader can find it afterwards.
//!
//! A crash before the swap leaves a record that no entry names: its space is free after recovery. A
//! crash between swap and fence 2 leaves the entry old or new, or half of it: a half counts as free
//! (`entry.rs`, invariant 3).
//!
//! `put`, `change` and `delete` of `crates/inplace/src/write.rs` call these functions. The fences
//! are in `crates/inplace/src/base.rs`.

use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Expiry, Result};
use lodestore_inplace::{BoxedResult, Engine, Stored, Writes};
use lodestore_media::{NvPtr, Pool};

use crate::careful_lookup::Reuse;
use crate::entry::Entry;
use crate::hash::{Hashed, Target};
use crate::layout::ENTRY_BYTES;
use crate::open_store::Inner;
use crate::planted;
use crate::probe::Probe;
use crate::record::{EXPIRY_TAG_FLAG, Record};
use crate::split::split;
use crate::stripe::next_sequence;
use crate::table::{Hit, Segment};
use crate::tree_op::TreeOp;

/// A key whose stripe a writer holds.
type Locked<'a> = lodestore_inplace::Locked<'a, Inner>;

/// Returns the position of a stored record, with its expiry bit as the tag.
#[inline]
pub(crate) fn position_of(stored: &Stored) -> NvPtr {
    stored.at.with_tag(if stored.expires { EXPIRY_TAG_FLAG } else { 0 })
}

/// The reason why a stored record was not published. The record belongs to the caller again.
enum NotPublished {
    /// Both buckets are full.
    NoFreeSlot(Stored),
    /// The store accepts no new key.
    Refused(Stored, Box<Error>),
}

impl Writes for Inner {
    type Table = Segment;
    type Probe = Probe;

    #[inline]
    fn time_write(&self) -> impl Sized {
        self.sampler.write()
    }

    #[inline]
    fn prefetch_index(&self, hash: Hashed) {
        self.table.prefetch(&self.pool, self.table.likely_segment(&self.pool, hash.sig), hash.sig);
    }

    #[inline]
    fn durable_table(&self, hash: Hashed) -> BoxedResult<Segment> {
        let segment = self.segment(hash.sig)?;
        if self.is_unsettled() {
            self.persist_buckets(segment, hash.sig);
            self.pool.check()?;
        }
        Ok(segment)
    }

    /// Reads both buckets of the key.
    #[inline]
    fn probe(&self, locked: &Locked<'_>) -> Probe {
        self.probe_buckets(locked.table, locked.target.hash.sig)
    }

    #[inline]
    fn prefetch_old(&self, _locked: &Locked<'_>, probe: &Probe) -> bool {
        let has_candidates = probe.has_candidates();
        if has_candidates {
            probe.prefetch(&self.pool);
        }
        has_candidates
    }

    #[inline(always)]
    fn store_held(&self, locked: &mut Locked<'_>, value: &[u8], expiry: Option<Expiry>) -> Result<Stored> {
        self.store_record(next_sequence(&mut locked.held), locked.target.key, value, expiry)
    }

    /// The path without candidates is short: errors and candidates are rare.
    #[inline]
    fn find_old(&self, locked: &Locked<'_>, probe: &Probe) -> Result<Option<Hit<'_>>> {
        if !probe.has_candidates() {
            return Ok(None);
        }
        probe.prefetch(&self.pool);
        probe.find(&self.pool, locked.target.key)
    }

    #[inline]
    fn check_miss(&self, locked: &Locked<'_>) -> Result<()> {
        self.check_absent(locked.table, locked.target.hash.sig)
    }

    /// Clears entries with the held key's signature that name no record of their own, no readable
    /// record, or one with a damaged key. The record's space is free after the next recovery.
    #[cold]
    fn clear_damage(&self, locked: &Locked<'_>, probe: &Probe, error: &Error, _is_put: bool) -> bool {
        self.report_corruption(error);
        let Target { hash, key } = locked.target;
        for (slot, entry) in probe.candidates(&self.pool) {
            if is_of_another_key(&self.pool, slot, entry) {
                continue;
            }
            let swapped = self.pool.cas_u128(slot, entry.pair(), Entry::free(&self.pool, slot).pair());
            assert!(swapped.is_ok(), "a live entry changes only under its stripe");
            self.persist(slot, ENTRY_BYTES as usize);
            self.records.cleared.insert(slot, key);
            self.enqueue_tree_change(hash.sig.0, TreeOp::new(key, slot, NvPtr::NULL));
        }
        true
    }

    #[inline]
    fn publish(&self, locked: Locked<'_>, probe: Probe, old: Option<Hit<'_>>, new: Stored) -> BoxedResult<bool> {
        match self.publish_entry(&locked, &probe, old, new) {
            Ok(()) => Ok(true),
            Err(NotPublished::NoFreeSlot(record)) => {
                self.free_stored(Some(record));
                let hash = locked.target.hash;
                drop(locked);
                self.split_if_full(hash)?;
                Ok(false)
            }
            Err(NotPublished::Refused(record, error)) => Err(self.discard_stored(Some(record), *error)),
        }
    }

    /// Clears the entry of a held key, and queues the change of the tree.
    #[inline]
    fn unlink(&self, locked: &mut Locked<'_>, found: &Hit<'_>) {
        let Target { hash, key } = locked.target;
        #[cfg(feature = "lab")]
        if let Some(wal) = &self.wal {
            wal.log(&self.pool, hash.sig, NvPtr::NULL);
        }
        self.pool.allocator().exclude_from_sweep(found.record_at.untagged(), found.record.len());
        let swapped = self.pool.cas_u128(found.at, found.entry.pair(), Entry::free(&self.pool, found.at).pair());
        assert!(swapped.is_ok(), "a live entry changes only under its stripe");
        self.persist(found.at, ENTRY_BYTES as usize);
        self.enqueue_tree_change(hash.sig.0, TreeOp::new(key, found.record_at, NvPtr::NULL));
    }
}

impl Inner {
    /// Splits the key's segment until one of its buckets has a free entry. The caller holds a guard
    /// and no stripe.
    #[cold]
    fn split_if_full(&self, hash: Hashed) -> Result<()> {
        let _held = self.stripes.lock_partition(hash.stripe.partition);
        let segment = self.segment(hash.sig)?;
        if self.probe_buckets(segment, hash.sig).free.is_none() {
            split(&self.table, &self.pool, hash.sig, self.is_careful())
                .inspect_err(|error| self.report_corruption(error))?;
        }
        Ok(())
    }

    /// Makes a stored record the value of its key, and queues the change of the tree. The caller
    /// holds the stripe.
    #[inline]
    fn publish_entry(
        &self,
        locked: &Locked<'_>,
        probe: &Probe,
        old: Option<Hit<'_>>,
        new: Stored,
    ) -> Result<(), NotPublished> {
        let Target { hash, key } = locked.target;
        if let Some(hit) = &old {
            if hit.record_at.untagged() == new.at {
                // A damaged entry names the space of the record that was just stored: its old space
                // was not kept.
                let error = Error::corrupt(
                    format!("entry of record {:?}", new.at),
                    "the entry names a record whose place was free",
                );
                return Err(NotPublished::Refused(new, error.into()));
            }
        } else {
            if probe.free.is_none() {
                return Err(NotPublished::NoFreeSlot(new));
            }
            if let Err(error) = self.check_budget() {
                return Err(NotPublished::Refused(new, error.into()));
            }
        }
        if let Err(error) = self.fence_before_publish() {
            return Err(NotPublished::Refused(new, error));
        }
        let position = position_of(&new);
        #[cfg(feature = "lab")]
        if let Some(wal) = &self.wal {
            wal.log(&self.pool, hash.sig, position);
        }
        let Some(slot) = self.swap_entry(locked, probe, old.as_ref(), &new) else {
            return Err(NotPublished::NoFreeSlot(new));
        };
        let mut replaced = old.as_ref().map_or(NvPtr::NULL, |hit| hit.record_at);
        if self.pool.has_fault(planted::REUSE_BEFORE_DURABLE)
            && let Some(hit) = &old
        {
            self.pool.allocator().free(&self.pool, hit.record_at.untagged(), hit.record.len());
            replaced = NvPtr::NULL;
        }
        self.persist(slot, ENTRY_BYTES as usize);
        if new.expires {
            self.expiring.store(true, Ordering::Relaxed);
        }
        self.enqueue_tree_change(hash.sig.0, TreeOp::new(key, replaced, position));
        Ok(())
    }

    /// Swaps the entry of a held key: the old one, or else a free one. A writer of another stripe
    /// that shares the bucket may claim the free slot; then another is tried. Returns `None` if
    /// there is none, or if a damaged slot turned careful mode on: the write then restarts.
    #[inline]
    fn swap_entry(&self, locked: &Locked<'_>, probe: &Probe, old: Option<&Hit<'_>>, new: &Stored) -> Option<NvPtr> {
        let hash = locked.target.hash;
        let naming = |slot| Entry::naming(slot, hash.sig.0, position_of(new), new.binding).pair();
        if let Some(hit) = old {
            let new = naming(hit.at);
            self.pool.allocator().exclude_from_sweep(hit.record_at.untagged(), hit.record.len());
            let swapped = self.pool.cas_u128(hit.at, hit.entry.pair(), new);
            assert!(swapped.is_ok(), "a live entry changes only under its stripe");
            return Some(hit.at);
        }
        let mut free = probe.free;
        loop {
            let (slot, mut found) = free?;
            let cleared = Entry::free(&self.pool, slot);
            if found != cleared && !self.pool.has_fault(planted::TORN_ENTRY_ACCEPTED) {
                match self.judge_reuse(locked.table, hash.sig, (slot, found)) {
                    Reuse::Damaged => return None,
                    // First clear entries left by a crashed split or a torn swap: a torn swap over
                    // them would join this key to that record. Both stores are in one line, so no
                    // crash sees the second without the first.
                    Reuse::Free if self.pool.cas_u128(slot, found.pair(), cleared.pair()).is_ok() => found = cleared,
                    // Another writer changed the slot.
                    Reuse::Free | Reuse::Taken => {
                        free = self.probe(locked).free;
                        continue;
                    }
                }
            }
            if self.pool.cas_u128(slot, found.pair(), naming(slot)).is_ok() {
                return Some(slot);
            }
            free = self.probe(locked).free;
        }
    }
}

/// Returns whether an entry names a whole record of its own with another key of the same signature.
pub(crate) fn is_of_another_key(pool: &Pool, slot: NvPtr, entry: Entry) -> bool {
    let record = Record::read(pool, entry.position());
    record.is_ok_and(|record| record.check(entry.position()).is_ok() && entry.is_bound(slot, record.binding()))
}
