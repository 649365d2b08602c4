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

use std::sync::atomic::Ordering;

use lodestore_contract::limits::{check_key, check_value};
use lodestore_contract::{Error, Expiry, Result};
use lodestore_inplace::{Decide, Engine, Quick, Step, Stored, StripeIndex, When};
use lodestore_media::{Mutant, NvPtr, Pool};

use crate::damage::Reuse;
use crate::entry::Entry;
use crate::hash::Signature;
use crate::inner::Inner;
use crate::layout::ENTRY_BYTES;
use crate::probe::Probe;
use crate::record::{EXPIRY_TAG_FLAG, Record};
use crate::split::split;
use crate::stripe::Held;
use crate::table::{Hit, Segment};
use crate::tree_op::TreeOp;

/// A key to be written, with its location.
pub(crate) struct Target<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) sig: Signature,
    pub(crate) stripe: StripeIndex,
}

/// A key's stripe and the content of its buckets.
struct LockedKey<'a> {
    held: Held<'a>,
    segment: Segment,
    probe: Probe,
}

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

/// Returns whether a reader finds the key of this entry.
///
/// # Errors
/// [`Error::Corrupt`].
#[inline]
pub(crate) fn is_live(old: Option<&Hit<'_>>) -> Result<bool> {
    old.map_or(Ok(false), |hit| hit.record.is_expired(hit.position).map(|expired| !expired))
}

impl Inner {
    pub(crate) fn target<'k>(&self, key: &'k [u8]) -> Target<'k> {
        let sig = self.table.placement.sign(key);
        Target { key, sig, stripe: self.table.placement.stripe(sig) }
    }

    /// Acquires the key's stripe. The caller holds a guard and no stripe.
    #[inline]
    fn lock_key(&self, target: &Target<'_>) -> Quick<(Held<'_>, Segment)> {
        let segment = self.table.segment(&self.pool, target.sig);
        self.table.prefetch(&self.pool, segment, target.sig);
        let mut held = self.stripes.lock(target.stripe);
        if self.changes.is_active() {
            held = self.record_change(target, held);
        }
        let segment = self.table.segment(&self.pool, target.sig);
        if self.is_unsettled() {
            self.persist_buckets(segment, target.sig);
            self.pool.check()?;
        }
        Ok((held, segment))
    }

    /// Records a key that is about to be written, for a copy of the store in progress. May wait for
    /// the copier, and then acquires the stripe again.
    #[cold]
    fn record_change<'a>(&'a self, target: &Target<'_>, mut held: Held<'a>) -> Held<'a> {
        if self.changes.is_crowded() {
            drop(held);
            self.changes.wait_for_copier();
            held = self.stripes.lock(target.stripe);
        }
        self.changes.record(target.key);
        held
    }

    pub(crate) fn try_put(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>, when: When) -> Quick<bool> {
        let _timer = self.sampler.write();
        let _guard = self.enter_write()?;
        let target = self.target(key);
        loop {
            let (mut held, segment) = self.lock_key(&target)?;
            // A record that is certainly needed is stored while the buckets are loaded. A record
            // that is probably needed is stored while the old record is loaded.
            let mut stored = None;
            if when == When::Always {
                stored = Some(self.store_with_next_sequence(&mut held, key, value, expiry)?);
            }
            let probe = self.probe(segment, target.sig);
            let mut locked = LockedKey { held, segment, probe };
            if when == When::Present && locked.probe.has_candidates() {
                locked.probe.prefetch(&self.pool);
                stored = Some(self.store_with_next_sequence(&mut locked.held, key, value, expiry)?);
            }
            let old = match self.find_old(&locked, key) {
                Ok(old) => old,
                Err(_) if when == When::Always => {
                    self.clear_unreadable(&target, &locked);
                    self.free_stored(stored);
                    continue;
                }
                Err(error) => return Err(self.give_back(stored, error)),
            };
            // A put replaces any old record.
            let present = match when {
                When::Always => true,
                When::Absent | When::Present => match is_live(old.as_ref()) {
                    Ok(present) => present,
                    Err(error) => return Err(self.give_back(stored, error)),
                },
            };
            if old.is_none()
                && when != When::Always
                && let Err(error) = self.check_miss(locked.segment, target.sig)
            {
                return Err(self.give_back(stored, error));
            }
            if when == When::Absent && present || when == When::Present && !present {
                self.free_stored(stored);
                return Ok(false);
            }
            let record = match stored {
                Some(record) => record,
                None => self.store_with_next_sequence(&mut locked.held, key, value, expiry)?,
            };
            match self.publish(&target, &locked, old, record) {
                Ok(()) => break,
                Err(NotPublished::NoFreeSlot(record)) => {
                    self.free_stored(Some(record));
                    drop(locked);
                    self.split_if_full(&target)?;
                }
                Err(NotPublished::Refused(record, error)) => return Err(self.give_back(Some(record), *error)),
            }
        }
        self.pool.check()?;
        Ok(true)
    }

    pub(crate) fn try_change(&self, key: &[u8], decide: &mut Decide<'_, '_>) -> Quick<()> {
        let _timer = self.sampler.write();
        let _guard = self.enter_write()?;
        let target = self.target(key);
        loop {
            let (held, segment) = self.lock_key(&target)?;
            let probe = self.probe(segment, target.sig);
            let mut locked = LockedKey { held, segment, probe };
            let old = self.find_old(&locked, key)?;
            if old.is_none() {
                self.check_miss(locked.segment, target.sig)?;
            }
            if old.is_none() && locked.probe.free.is_none() {
                drop(locked);
                self.split_if_full(&target)?;
                continue;
            }
            let live = if is_live(old.as_ref())? { old.as_ref() } else { None };
            if let Some(hit) = live
                && self.options.verify_reads
            {
                hit.record.check(hit.position).inspect_err(|error| self.corrupt(error))?;
            }
            let (value, expiry) =
                match decide(live.map(|hit| hit.record.value()), live.and_then(|hit| hit.record.expiry())) {
                    Step::Keep => return Ok(()),
                    Step::Delete => {
                        if let Some(hit) = live {
                            self.unlink(&target, hit, Mutant::DeleteNotFlushed);
                        }
                        break;
                    }
                    Step::Put(value, expiry) => (value, expiry),
                };
            check_value(&value)?;
            let record = self.store_with_next_sequence(&mut locked.held, key, &value, expiry)?;
            match self.publish(&target, &locked, old, record) {
                Ok(()) => break,
                Err(NotPublished::NoFreeSlot(record)) => {
                    self.free_stored(Some(record));
                    drop(locked);
                    self.split_if_full(&target)?;
                }
                Err(NotPublished::Refused(record, error)) => return Err(self.give_back(Some(record), *error)),
            }
        }
        self.pool.check()?;
        Ok(())
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Quick<bool> {
        check_key(key)?;
        let _timer = self.sampler.write();
        let _guard = self.enter_write()?;
        let target = self.target(key);
        let (held, segment) = self.lock_key(&target)?;
        let probe = self.probe(segment, target.sig);
        let locked = LockedKey { held, segment, probe };
        let deleted = match self.find_old(&locked, key) {
            // A damaged record is removed as well.
            Ok(Some(hit)) if !hit.record.is_expired(hit.position).unwrap_or(false) => {
                self.unlink(&target, &hit, Mutant::DeleteNotFlushed);
                true
            }
            Ok(Some(_)) => false,
            Ok(None) => {
                self.check_miss(locked.segment, target.sig)?;
                false
            }
            Err(_) => {
                self.clear_unreadable(&target, &locked);
                true
            }
        };
        self.pool.check()?;
        Ok(deleted)
    }

    /// Clears entries with the held key's signature that name no record of their own, no readable
    /// record, or one with a damaged key. Called by a put or a delete of a key whose old record is
    /// corrupt. The record's space is free after the next recovery.
    #[cold]
    fn clear_unreadable(&self, target: &Target<'_>, locked: &LockedKey<'_>) {
        for (slot, entry) in locked.probe.candidates(&self.pool) {
            if is_of_another_key(&self.pool, slot, entry) {
                continue;
            }
            let swapped = self.pool.cas_u128(slot, entry.pair(), Entry::free(&self.pool, slot).pair());
            assert!(swapped.is_ok(), "a live entry changes only under its stripe");
            self.persist(slot, ENTRY_BYTES as usize, Mutant::DeleteNotFlushed);
            self.records.cleared.insert(slot, target.key);
            self.enqueue_tree_change(target.sig.0, TreeOp::new(target.key, slot, NvPtr::NULL));
        }
    }

    /// Removes the key of the record at `position` if the key still has that record and the record
    /// has expired. Returns whether it did.
    pub(crate) fn remove_expired(&self, position: NvPtr) -> Result<bool> {
        let _guard = self.enter_write()?;
        let record = Record::read(&self.pool, position)?;
        let target = self.target(record.key());
        let (held, segment) = self.lock_key(&target).map_err(|error| *error)?;
        let probe = self.probe(segment, target.sig);
        let locked = LockedKey { held, segment, probe };
        match self.find_old(&locked, target.key)? {
            Some(hit) if hit.position == position && hit.record.is_expired(hit.position)? => {
                self.unlink(&target, &hit, Mutant::SweepBeforeDurable);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Clears the entry of a held key, and queues the change of the tree.
    fn unlink(&self, target: &Target<'_>, hit: &Hit<'_>, not_flushed: Mutant) {
        if let Some(wal) = &self.wal {
            wal.log(&self.pool, target.sig, NvPtr::NULL);
        }
        self.pool.allocator().keep(hit.position.untagged(), hit.record.len());
        let swapped = self.pool.cas_u128(hit.slot, hit.entry.pair(), Entry::free(&self.pool, hit.slot).pair());
        assert!(swapped.is_ok(), "a live entry changes only under its stripe");
        self.persist(hit.slot, ENTRY_BYTES as usize, not_flushed);
        self.enqueue_tree_change(target.sig.0, TreeOp::new(target.key, hit.position, NvPtr::NULL));
    }

    /// Splits the key's segment until one of its buckets has a free entry. The caller holds a guard
    /// and no stripe.
    #[cold]
    fn split_if_full(&self, target: &Target<'_>) -> Result<()> {
        let _held = self.stripes.lock_partition(target.stripe.partition);
        let segment = self.table.segment(&self.pool, target.sig);
        if self.probe(segment, target.sig).free.is_none() {
            split(&self.table, &self.pool, target.sig, self.is_careful())?;
        }
        Ok(())
    }

    /// Returns the old record of the key, expired or not. The path without candidates is short:
    /// errors and candidates are rare.
    #[inline]
    fn find_old<'a>(&'a self, locked: &LockedKey<'_>, key: &[u8]) -> Result<Option<Hit<'a>>> {
        if !locked.probe.has_candidates() {
            return Ok(None);
        }
        locked.probe.prefetch(&self.pool);
        locked.probe.find(&self.pool, key).inspect_err(|error| self.corrupt(error))
    }

    /// Stores a record out of place. The record is durable after the next fence.
    #[inline(always)]
    fn store_with_next_sequence(
        &self,
        held: &mut Held<'_>,
        key: &[u8],
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<Stored> {
        self.store_record(held.next_sequence(), key, value, expiry)
    }

    /// Makes a stored record the value of its key, and queues the change of the tree. The caller
    /// holds the stripe.
    #[inline]
    fn publish(
        &self,
        target: &Target<'_>,
        locked: &LockedKey<'_>,
        old: Option<Hit<'_>>,
        new: Stored,
    ) -> Result<(), NotPublished> {
        if let Some(hit) = &old {
            if hit.position.untagged() == new.at {
                // A damaged entry names the space of the record that was just stored: its old space
                // was not kept.
                let error = Error::corrupt(format!("entry of record {:?}", new.at), "it names a place that was free");
                return Err(NotPublished::Refused(new, error.into()));
            }
        } else {
            if locked.probe.free.is_none() {
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
        if let Some(wal) = &self.wal {
            wal.log(&self.pool, target.sig, position);
        }
        let Some(slot) = self.swap_entry(target, locked, old.as_ref(), &new) else {
            return Err(NotPublished::NoFreeSlot(new));
        };
        let mut replaced = old.as_ref().map_or(NvPtr::NULL, |hit| hit.position);
        if self.pool.mutant(Mutant::ReuseBeforeDurable)
            && let Some(hit) = &old
        {
            self.pool.allocator().free(&self.pool, hit.position.untagged(), hit.record.len());
            replaced = NvPtr::NULL;
        }
        self.persist_published(slot, ENTRY_BYTES as usize, &new);
        if new.expires {
            self.expiring.store(true, Ordering::Relaxed);
        }
        self.enqueue_tree_change(target.sig.0, TreeOp::new(target.key, replaced, position));
        Ok(())
    }

    /// Swaps the entry of a held key: the old one, or else a free one. A writer of another stripe
    /// that shares the bucket may claim the free slot; then another is tried. Returns `None` if
    /// there is none, or if a damaged slot turned careful mode on: the write then restarts.
    #[inline]
    fn swap_entry(
        &self,
        target: &Target<'_>,
        locked: &LockedKey<'_>,
        old: Option<&Hit<'_>>,
        new: &Stored,
    ) -> Option<NvPtr> {
        let naming = |slot| Entry::naming(slot, target.sig.0, position_of(new), new.binding).pair();
        if let Some(hit) = old {
            let new = naming(hit.slot);
            if self.pool.mutant(Mutant::EntryInHalves) {
                self.pool.publish_u64(hit.slot, 0);
                self.persist(hit.slot, ENTRY_BYTES as usize, Mutant::EntryNotFlushed);
                self.pool.publish_u64(hit.slot.add(8), new.1);
                self.pool.publish_u64(hit.slot, new.0);
                return Some(hit.slot);
            }
            self.pool.allocator().keep(hit.position.untagged(), hit.record.len());
            let swapped = self.pool.cas_u128(hit.slot, hit.entry.pair(), new);
            assert!(swapped.is_ok(), "a live entry changes only under its stripe");
            return Some(hit.slot);
        }
        let mut free = locked.probe.free;
        loop {
            let (slot, mut found) = free?;
            let cleared = Entry::free(&self.pool, slot);
            if found != cleared && !self.pool.mutant(Mutant::TornEntryAccepted) {
                match self.judge_reuse(locked.segment, target.sig, (slot, found)) {
                    Reuse::Damaged => return None,
                    // First clear entries left by a crashed split or a torn swap: a torn swap over
                    // them would join this key to that record. Both stores are in one line, so no
                    // crash sees the second without the first.
                    Reuse::Free if self.pool.cas_u128(slot, found.pair(), cleared.pair()).is_ok() => found = cleared,
                    // Another writer changed the slot.
                    Reuse::Free | Reuse::Taken => {
                        free = self.probe(locked.segment, target.sig).free;
                        continue;
                    }
                }
            }
            if self.pool.cas_u128(slot, found.pair(), naming(slot)).is_ok() {
                return Some(slot);
            }
            free = self.probe(locked.segment, target.sig).free;
        }
    }
}

/// Returns whether an entry names a whole record of its own with another key of the same signature.
pub(crate) fn is_of_another_key(pool: &Pool, slot: NvPtr, entry: Entry) -> bool {
    let record = Record::read(pool, entry.position());
    record.is_ok_and(|record| record.check(entry.position()).is_ok() && entry.is_bound(slot, record.binding()))
}
