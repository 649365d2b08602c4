//! Writing single keys (HiKV, ATC 2017, Algorithms 1 to 3).
//!
//! Persist order, under the key's stripe:
//! * put, update: the record; **fence 1**; the entry by one 16-byte swap; flush; **fence 2**.
//! * delete: the entry to zero by one 16-byte swap; flush; **fence 1**.
//!
//! Then the tree's change is queued, still under the stripe, so that the queue has the order of the entries, and the
//! stripe is freed. What a replaced or deleted record took is given back by whoever applies the change to the
//! tree: by then its unlinking has long been durable, and after that no reader can find it.
//!
//! A crash before the swap leaves a record that nothing names: its space is free again after recovery. A crash between
//! swap and fence 2 leaves the entry old or new, or half of it: a half is free (`table.rs`, invariant 1).

use std::sync::atomic::Ordering;

use lodestore_contract::limits::{check_key, check_value};
use lodestore_contract::{Change, Error, Event, Expiry, Result, Swap};
use lodestore_media::{Mutant, NvPtr};

use crate::hash::Signature;
use crate::inner::Inner;
use crate::record::{Head, Record, TAG_EXPIRY, record_len};
use crate::split::split;
use crate::stripe::Held;
use crate::table::{Hit, Probe, Segment};
use crate::tree_op::TreeOp;

/// When a write takes place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Absent,
    Present,
}

/// A key to be written, with the place where it belongs.
pub(crate) struct Target<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) sig: Signature,
    pub(crate) partition: usize,
    pub(crate) home: usize,
}

/// A key's stripe and what stands in its buckets.
struct Spot<'a> {
    held: Held<'a>,
    segment: Segment,
    probe: Probe,
}

/// A record that is stored and not yet named by an entry; not yet fenced.
pub(crate) struct Stored {
    at: NvPtr,
    len: usize,
    pub(crate) expires: bool,
}

impl Stored {
    /// What an entry that names it holds.
    #[inline]
    pub(crate) fn position(&self) -> NvPtr {
        self.at.with_tag(if self.expires { TAG_EXPIRY } else { 0 })
    }
}

/// What to do with a key whose present value was seen.
enum Step {
    Keep,
    Put(Vec<u8>, Option<Expiry>),
    Delete,
}

/// Why a stored record was not published; it is the caller's again.
enum Lost {
    /// Both buckets are full.
    Room(Stored),
    /// The store takes no new key.
    Refused(Stored, Error),
}

/// Whether the key of this entry is absent to every reader already. A record counts as expired only if it is whole: the damage may be in
/// its expiry.
///
/// # Errors
/// [`Error::Corrupt`].
#[inline]
fn is_expired(hit: &Hit<'_>) -> Result<bool> {
    if !hit.record.expiry().is_some_and(Expiry::is_past) {
        return Ok(false);
    }
    hit.record.check(hit.position).map(|()| true)
}

/// Whether a reader finds the key of this entry.
///
/// # Errors
/// [`Error::Corrupt`].
#[inline]
fn is_live(old: Option<&Hit<'_>>) -> Result<bool> {
    old.map_or(Ok(false), |hit| is_expired(hit).map(|expired| !expired))
}

impl Inner {
    pub(crate) fn target<'k>(&self, key: &'k [u8]) -> Target<'k> {
        let sig = self.table.place.sign(key);
        let (home, _) = self.table.place.buckets(sig);
        Target { key, sig, partition: self.table.place.partition(sig), home }
    }

    /// Takes the key's stripe. The caller holds a guard and no stripe.
    #[inline]
    fn hold(&self, target: &Target<'_>) -> (Held<'_>, Segment) {
        let segment = self.table.segment(&self.pool, target.sig);
        self.table.prefetch(&self.pool, segment, target.sig);
        let held = self.stripes.lock(target.partition, target.home);
        let segment = self.table.segment(&self.pool, target.sig);
        if self.is_unsettled() {
            let (home, other) = self.table.place.buckets(target.sig);
            self.persist_buckets(segment, home, other);
        }
        (held, segment)
    }

    /// Puts, inserts or updates; whether it did.
    pub(crate) fn write(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>, when: When) -> Result<bool> {
        match self.try_write(key, value, expiry, when) {
            Err(Error::Full { .. }) if self.reclaim() => self.tell_full(self.try_write(key, value, expiry, when)),
            done => done,
        }
    }

    pub(crate) fn tell_full<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(Error::Full { needed, .. }) = &done {
            self.tell(&Event::Full { needed: *needed });
        }
        done
    }

    /// Frees what only waits: for recovery's sweep, for its change of the tree to be applied, for readers to be gone. Whether
    /// a second try may do better. The caller holds no stripe and no guard.
    #[cold]
    pub(crate) fn reclaim(&self) -> bool {
        if self.recovery.wait_done().is_err() || self.backend.drain().is_err() {
            return false;
        }
        self.pool.epochs().synchronize();
        self.pool.epochs().collect(&self.pool);
        true
    }

    fn try_write(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>, when: When) -> Result<bool> {
        check_key(key)?;
        check_value(value)?;
        let _timer = self.sampler.write();
        let _guard = self.enter_write()?;
        let target = self.target(key);
        loop {
            let (mut held, segment) = self.hold(&target);
            // What is written for sure is on its way while the buckets are loaded, what is likely while the old record is.
            let mut stored = None;
            if when == When::Always {
                stored = Some(self.store_record(&mut held, key, value, expiry)?);
            }
            let probe = self.table.probe(&self.pool, segment, target.sig);
            let mut spot = Spot { held, segment, probe };
            if when == When::Present && spot.probe.has_candidates() {
                spot.probe.prefetch(&self.pool);
                stored = Some(self.store_record(&mut spot.held, key, value, expiry)?);
            }
            let old = match self.find_old(&spot, key) {
                Ok(old) => old,
                Err(_) if when == When::Always => {
                    self.discard_unreadable(&target, &spot);
                    self.free_stored(stored);
                    continue;
                }
                Err(error) => return Err(self.give_back(stored, error)),
            };
            let present = match is_live(old.as_ref()) {
                Ok(present) => present,
                // A put replaces it whatever it is.
                Err(_) if when == When::Always => true,
                Err(error) => return Err(self.give_back(stored, error)),
            };
            if when == When::Absent && present || when == When::Present && !present {
                self.free_stored(stored);
                return Ok(false);
            }
            let record = match stored {
                Some(record) => record,
                None => self.store_record(&mut spot.held, key, value, expiry)?,
            };
            match self.publish(&target, &spot, old, record) {
                Ok(()) => break,
                Err(Lost::Room(record)) => {
                    self.free_stored(Some(record));
                    drop(spot);
                    self.make_room(&target)?;
                }
                Err(Lost::Refused(record, error)) => return Err(self.give_back(Some(record), error)),
            }
        }
        self.pool.check()?;
        Ok(true)
    }

    /// Changes a key by what `decide` says of its present value. `decide` runs again if the write must start over.
    fn modify(&self, key: &[u8], decide: &mut dyn FnMut(Option<&[u8]>) -> Step) -> Result<()> {
        match self.try_modify(key, decide) {
            Err(Error::Full { .. }) if self.reclaim() => self.tell_full(self.try_modify(key, decide)),
            done => done,
        }
    }

    fn try_modify(&self, key: &[u8], decide: &mut dyn FnMut(Option<&[u8]>) -> Step) -> Result<()> {
        check_key(key)?;
        let _timer = self.sampler.write();
        let _guard = self.enter_write()?;
        let target = self.target(key);
        loop {
            let (held, segment) = self.hold(&target);
            let probe = self.table.probe(&self.pool, segment, target.sig);
            let mut spot = Spot { held, segment, probe };
            let old = self.find_old(&spot, key)?;
            if old.is_none() && spot.probe.free.is_none() {
                drop(spot);
                self.make_room(&target)?;
                continue;
            }
            let live = if is_live(old.as_ref())? { old.as_ref() } else { None };
            if let Some(hit) = live
                && self.options.verify_reads
            {
                hit.record.check(hit.position).inspect_err(|error| self.corrupt(error))?;
            }
            let (value, expiry) = match decide(live.map(|hit| hit.record.value())) {
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
            let record = self.store_record(&mut spot.held, key, &value, expiry)?;
            match self.publish(&target, &spot, old, record) {
                Ok(()) => break,
                Err(Lost::Room(record)) => {
                    self.free_stored(Some(record));
                    drop(spot);
                    self.make_room(&target)?;
                }
                Err(Lost::Refused(record, error)) => return Err(self.give_back(Some(record), error)),
            }
        }
        self.pool.check()
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let _timer = self.sampler.write();
        let _guard = self.enter_write()?;
        let target = self.target(key);
        let (held, segment) = self.hold(&target);
        let probe = self.table.probe(&self.pool, segment, target.sig);
        let spot = Spot { held, segment, probe };
        let deleted = match self.find_old(&spot, key) {
            // What is damaged goes as well.
            Ok(Some(hit)) if !is_expired(&hit).unwrap_or(false) => {
                self.unlink(&target, &hit, Mutant::DeleteNotFlushed);
                true
            }
            Ok(_) => false,
            Err(_) => {
                self.discard_unreadable(&target, &spot);
                true
            }
        };
        self.pool.check()?;
        Ok(deleted)
    }

    /// Clears entries that carry the held key's signature and name no readable record, or one whose key is damaged: what a put or a delete of
    /// a key does whose old record is corrupt. The record's space is free again after the next recovery.
    #[cold]
    fn discard_unreadable(&self, target: &Target<'_>, spot: &Spot<'_>) {
        for (slot, position) in spot.probe.candidates() {
            // A whole record of another key shares the signature.
            if Record::read(&self.pool, position).is_ok_and(|record| record.check(position).is_ok()) {
                continue;
            }
            let swapped = self.pool.cas_u128(slot, (target.sig.0, position.raw()), (0, 0));
            assert!(swapped.is_ok(), "a live entry changes only under its stripe");
            self.persist_entry(slot, Mutant::DeleteNotFlushed);
            self.records.lost.note(position, target.key);
            self.follow(target.sig.0, TreeOp::new(target.key, position, NvPtr::NULL));
        }
    }

    pub(crate) fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        if let Some(new) = new {
            check_value(new)?;
        }
        let mut outcome = Swap::Done;
        self.modify(key, &mut |now| {
            if now != expected {
                outcome = Swap::Differs(now.map(<[u8]>::to_vec));
                return Step::Keep;
            }
            outcome = Swap::Done;
            new.map_or(Step::Delete, |new| Step::Put(new.to_vec(), None))
        })?;
        Ok(outcome)
    }

    pub(crate) fn update_with(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        self.modify(key, &mut |now| match change(now) {
            Change::Keep => Step::Keep,
            Change::Put(value, expiry) => Step::Put(value, expiry),
            Change::Delete => Step::Delete,
        })
    }

    /// Removes the key of `sig` if its record is the one at `position` and has expired; whether it did.
    pub(crate) fn remove_expired(&self, position: NvPtr) -> Result<bool> {
        let _guard = self.enter_write()?;
        let record = Record::read(&self.pool, position)?;
        let target = self.target(record.key());
        let (held, segment) = self.hold(&target);
        let probe = self.table.probe(&self.pool, segment, target.sig);
        let spot = Spot { held, segment, probe };
        match self.find_old(&spot, target.key)? {
            Some(hit) if hit.position == position && is_expired(&hit)? => {
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
        let swapped = self.pool.cas_u128(hit.slot, (target.sig.0, hit.position.raw()), (0, 0));
        assert!(swapped.is_ok(), "a live entry changes only under its stripe");
        self.persist_entry(hit.slot, not_flushed);
        self.follow(target.sig.0, TreeOp::new(target.key, hit.position, NvPtr::NULL));
    }

    /// Splits the key's segment until one of its buckets has a free entry. The caller holds a guard and no stripe.
    #[cold]
    fn make_room(&self, target: &Target<'_>) -> Result<()> {
        let _held = self.stripes.lock_partition(target.partition);
        let segment = self.table.segment(&self.pool, target.sig);
        if self.table.probe(&self.pool, segment, target.sig).free.is_none() {
            split(&self.table, &self.pool, target.sig)?;
        }
        Ok(())
    }

    /// Refuses a new key over the DRAM budget.
    #[inline]
    pub(crate) fn check_budget(&self) -> Result<()> {
        let budget = self.options.dram_budget;
        if budget == 0 {
            return Ok(());
        }
        let (used, _) = self.dram();
        if used <= budget { Ok(()) } else { Err(Error::DramBudget { used, budget }) }
    }

    /// The old record of the key, expired or not. Errors and candidates are rare, so the way without them is short.
    #[inline]
    fn find_old<'a>(&'a self, spot: &Spot<'_>, key: &[u8]) -> Result<Option<Hit<'a>>> {
        if !spot.probe.has_candidates() {
            return Ok(None);
        }
        spot.probe.prefetch(&self.pool);
        spot.probe.find(&self.pool, key).inspect_err(|error| self.corrupt(error))
    }

    /// Frees a record that will not be published, and passes the error on.
    #[cold]
    fn give_back(&self, stored: Option<Stored>, error: Error) -> Error {
        self.free_stored(stored);
        error
    }

    /// Frees a record that will not be published.
    #[cold]
    pub(crate) fn free_stored(&self, stored: Option<Stored>) {
        if let Some(stored) = stored {
            self.pool.allocator().free(&self.pool, stored.at, stored.len);
        }
    }

    /// Stores a record out of place. It is durable after the next fence.
    #[inline(always)]
    fn store_record(&self, held: &mut Held<'_>, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<Stored> {
        self.store_sequenced(held.next_sequence(), key, value, expiry)
    }

    /// The same with a sequence that was given under the key's stripe.
    #[inline(always)]
    pub(crate) fn store_sequenced(
        &self,
        sequence: u64,
        key: &[u8],
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<Stored> {
        let expires = expiry.is_some();
        let len = record_len(key.len(), value.len(), expires);
        let at = self.pool.allocator().alloc(&self.pool, len)?;
        assert!(at.tag() == 0 && !at.is_null(), "the allocator hands out aligned places");
        let head = Head::new(key, value, sequence, expiry);
        if self.pool.mutant(Mutant::RecordNotFlushed) || self.pool.mutant(Mutant::PublishBeforeRecord) {
            self.pool.store(at, &[head.as_bytes(), key, value].concat());
        } else {
            self.pool.store_durable(at, &[head.as_bytes(), key, value]);
        }
        Ok(Stored { at, len, expires })
    }

    /// Makes a stored record the value of its key, and queues the change of the tree. The stripe is held.
    #[inline]
    fn publish(&self, target: &Target<'_>, spot: &Spot<'_>, old: Option<Hit<'_>>, new: Stored) -> Result<(), Lost> {
        if let Some(hit) = &old {
            if hit.position.untagged() == new.at {
                // A damaged entry whose place could not be kept: its record is the one just stored.
                let error = Error::corrupt(format!("entry of record {:?}", new.at), "it names a place that was free");
                return Err(Lost::Refused(new, error));
            }
        } else {
            if spot.probe.free.is_none() {
                return Err(Lost::Room(new));
            }
            if let Err(error) = self.check_budget() {
                return Err(Lost::Refused(new, error));
            }
        }
        if !self.pool.mutant(Mutant::NoFenceBeforePublish) {
            self.pool.fence();
        }
        let position = new.position();
        if let Some(wal) = &self.wal {
            wal.log(&self.pool, target.sig, position);
        }
        let Some(slot) = self.swap_entry(target, spot, old.as_ref(), (target.sig.0, position.raw())) else {
            return Err(Lost::Room(new));
        };
        let mut replaced = old.as_ref().map_or(NvPtr::NULL, |hit| hit.position);
        if self.pool.mutant(Mutant::ReuseBeforeDurable)
            && let Some(hit) = &old
        {
            self.pool.allocator().free(&self.pool, hit.position.untagged(), hit.record.len());
            replaced = NvPtr::NULL;
        }
        self.persist_entry(slot, Mutant::EntryNotFlushed);
        if self.pool.mutant(Mutant::PublishBeforeRecord) {
            self.pool.flush(new.at, new.len);
            self.pool.fence();
        }
        if new.expires {
            self.expiring.store(true, Ordering::Relaxed);
        }
        self.follow(target.sig.0, TreeOp::new(target.key, replaced, position));
        Ok(())
    }

    /// Swaps the entry of a held key: the old one, or else a free one. A free slot may be taken by a writer of
    /// another stripe that shares the bucket; then another is tried, until there is none.
    #[inline]
    fn swap_entry(
        &self,
        target: &Target<'_>,
        spot: &Spot<'_>,
        old: Option<&Hit<'_>>,
        new: (u64, u64),
    ) -> Option<NvPtr> {
        if let Some(hit) = old {
            if self.pool.mutant(Mutant::EntryInHalves) {
                self.pool.publish_u64(hit.slot, 0);
                self.persist_entry(hit.slot, Mutant::EntryNotFlushed);
                self.pool.publish_u64(hit.slot.add(8), new.1);
                self.pool.publish_u64(hit.slot, new.0);
                return Some(hit.slot);
            }
            self.pool.allocator().keep(hit.position.untagged(), hit.record.len());
            let swapped = self.pool.cas_u128(hit.slot, (target.sig.0, hit.position.raw()), new);
            assert!(swapped.is_ok(), "a live entry changes only under its stripe");
            return Some(hit.slot);
        }
        let mut free = spot.probe.free;
        loop {
            let (slot, mut found) = free?;
            // What a split left behind, or half of a swap that a crash tore, goes first: a swap over it that tears would join
            // this key to that record. Both stores are in one line, so no crash sees the second without the first.
            let left_behind = found != (0, 0) && !self.pool.mutant(Mutant::TornEntryAccepted);
            if left_behind && self.pool.cas_u128(slot, found, (0, 0)).is_ok() {
                found = (0, 0);
            }
            if self.pool.cas_u128(slot, found, new).is_ok() {
                return Some(slot);
            }
            free = self.table.probe(&self.pool, spot.segment, target.sig).free;
        }
    }

    /// Flushes an entry and fences.
    #[inline]
    fn persist_entry(&self, slot: NvPtr, not_flushed: Mutant) {
        if !self.pool.mutant(not_flushed) {
            self.pool.flush(slot, 16);
        }
        if !self.pool.mutant(Mutant::NoFenceAfterEntry) {
            self.pool.fence();
        }
    }
}
