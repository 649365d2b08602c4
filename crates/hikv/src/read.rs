//! Reads of single keys. A reader acquires no lock and writes no shared memory, except its epoch,
//! and except the key's stripe during a batch.
//!
//! Durable linearizability: an entry may be visible before it is durable. After reading an entry
//! (or finding none), a reader therefore checks whether the key's stripe is held. If so, it flushes
//! the data that it read, and fences before it returns. If the stripe is free, the data is durable
//! already (`stripe.rs`, invariant 3). The exception is data of a killed process
//! (`Base::unsettled`), which is also made durable first.
//!
//! A batch is one step to readers. A reader that has read an entry, or found none, checks for a
//! running batch. If one runs and the key's stripe is held, it reads again under the stripe
//! (`batch.rs`).
//!
//! A miss counts only if the directory still names the same segment: a split may have moved the key
//! meanwhile. In careful mode (`damage.rs`) it counts only if no slot of the key's buckets is
//! damaged.

use std::sync::atomic::Ordering;

use lodestore_contract::limits::check_key;
use lodestore_contract::{Expiry, Result};
use lodestore_media::{Mutant, NvPtr};

use crate::entry::Entry;
use crate::hash::Signature;
use crate::inner::Inner;
use crate::layout::BUCKET_BYTES;
use crate::record::Record;
use crate::table::{Hit, PREFETCH_BYTES, Segment, Table};

/// Keys of a batched read whose buckets are being loaded before the first is examined.
const BUCKET_PREFETCH_KEYS: usize = 8;
/// Keys, before these, whose records are being loaded before the first is read.
const RECORD_PREFETCH_KEYS: usize = 4;
/// Keys per step. Measured: consecutive prefetches seem to overlap better; the cause is
/// unknown.
const STEP_KEYS: usize = 4;
/// Keys in progress at once, rounded up.
const RING_SLOTS: usize = (BUCKET_PREFETCH_KEYS + RECORD_PREFETCH_KEYS + STEP_KEYS).next_power_of_two();
/// Keys read under one guard.
const ROUND_KEYS: usize = 256;

/// A key of a batched read in progress.
#[derive(Clone, Copy)]
struct PendingRead {
    sig: Signature,
    segment: Segment,
    /// The entry that was seen, and its slot.
    entry: Option<(NvPtr, Entry)>,
}

impl Inner {
    /// Returns the live record of `key`. The caller holds a guard and no stripe.
    #[inline]
    pub(crate) fn lookup(&self, sig: Signature, key: &[u8]) -> Result<Option<Record<'_>>> {
        let found = self.lookup_unlocked(sig, key);
        if self.is_in_batch(sig) { self.lookup_locked(sig, key) } else { found }
    }

    /// Returns whether the entry of this key may belong to a batch that has not stored all of its
    /// entries yet.
    #[inline]
    fn is_in_batch(&self, sig: Signature) -> bool {
        self.batches.load(Ordering::Acquire) != 0 && self.is_stripe_held(sig)
    }

    #[cold]
    fn is_stripe_held(&self, sig: Signature) -> bool {
        self.stripes.is_locked(self.table.placement.stripe(sig))
    }

    #[cold]
    fn lookup_locked(&self, sig: Signature, key: &[u8]) -> Result<Option<Record<'_>>> {
        let _held = self.stripes.lock(self.table.placement.stripe(sig));
        self.lookup_unlocked(sig, key)
    }

    #[inline]
    fn lookup_unlocked(&self, sig: Signature, key: &[u8]) -> Result<Option<Record<'_>>> {
        loop {
            let segment = self.table.segment(&self.pool, sig);
            self.table.prefetch(&self.pool, segment, sig);
            match self.table.find(&self.pool, segment, sig, key).inspect_err(|error| self.corrupt(error))? {
                Some(hit) => {
                    self.persist_read(sig, segment, Some(hit.slot));
                    return self.check_hit(hit);
                }
                None if self.table.segment(&self.pool, sig).at == segment.at => {
                    self.persist_read(sig, segment, None);
                    self.check_miss(segment, sig)?;
                    return Ok(None);
                }
                None => {}
            }
        }
    }

    /// Returns the record of a hit, if it has not expired and its checksum is right.
    #[inline]
    fn check_hit<'a>(&'a self, hit: Hit<'a>) -> Result<Option<Record<'a>>> {
        if self.options.verify_reads
            && let Err(error) = hit.record.check(hit.position)
        {
            self.corrupt(&error);
            return Err(error);
        }
        if hit.record.expiry().is_some_and(Expiry::is_past) {
            return Ok(None);
        }
        Ok(Some(hit.record))
    }

    /// Makes the data that was read durable if a writer holds the stripe (see the module docs).
    #[inline]
    fn persist_read(&self, sig: Signature, segment: Segment, slot: Option<NvPtr>) {
        if !self.pool.persists() {
            return;
        }
        let is_locked = self.stripes.is_locked(self.table.placement.stripe(sig));
        if !is_locked && !self.is_unsettled() || is_locked && self.pool.mutant(Mutant::ReadUnpersisted) {
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
    pub(crate) fn persist_buckets(&self, segment: Segment, sig: Signature) {
        let (home, other) = self.table.placement.buckets(sig);
        self.pool.flush(Table::bucket(segment, home), BUCKET_BYTES as usize);
        self.pool.flush(Table::bucket(segment, other), BUCKET_BYTES as usize);
        self.pool.fence();
    }

    pub(crate) fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        check_key(key)?;
        let _timer = self.sampler.get();
        let _guard = self.enter()?;
        match self.lookup(self.table.placement.sign(key), key)? {
            Some(record) => {
                value.extend_from_slice(record.value());
                Ok(true)
            }
            None => Ok(false),
        }
    }

    pub(crate) fn get_with(&self, key: &[u8], with: &mut dyn FnMut(&[u8])) -> Result<bool> {
        check_key(key)?;
        let _timer = self.sampler.get();
        let _guard = self.enter()?;
        let found = self.lookup(self.table.placement.sign(key), key)?;
        Ok(found.is_some_and(|record| {
            with(record.value());
            true
        }))
    }

    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let _guard = self.enter()?;
        Ok(self.lookup(self.table.placement.sign(key), key)?.is_some())
    }

    pub(crate) fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        check_key(key)?;
        let _guard = self.enter()?;
        Ok(self.lookup(self.table.placement.sign(key), key)?.map(|record| record.expiry()))
    }

    /// Reads keys in a pipeline of three steps, some keys apart: prefetch of the buckets, prefetch
    /// of the record, read. The cache misses of several keys overlap with each other and with the
    /// checks.
    pub(crate) fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        for key in keys {
            check_key(key)?;
        }
        for (round, keys) in keys.chunks(ROUND_KEYS).enumerate() {
            self.sampler.gets(keys.len() as u64);
            let _guard = self.enter()?;
            let nothing =
                PendingRead { sig: Signature(1), segment: Segment { at: NvPtr::NULL, depth: 0 }, entry: None };
            let mut ring = [nothing; RING_SLOTS];
            let from = |step: usize, distance: usize| step.saturating_sub(distance);
            for start in (0..keys.len() + BUCKET_PREFETCH_KEYS + RECORD_PREFETCH_KEYS).step_by(STEP_KEYS) {
                for index in from(start, 0)..from(start + STEP_KEYS, 0).min(keys.len()) {
                    let sig = self.table.placement.sign(keys[index]);
                    let segment = self.table.segment(&self.pool, sig);
                    self.table.prefetch(&self.pool, segment, sig);
                    ring[index % RING_SLOTS] = PendingRead { sig, segment, entry: None };
                }
                for index in
                    from(start, BUCKET_PREFETCH_KEYS)..from(start + STEP_KEYS, BUCKET_PREFETCH_KEYS).min(keys.len())
                {
                    let pending = &mut ring[index % RING_SLOTS];
                    pending.entry = self.table.candidate(&self.pool, pending.segment, pending.sig);
                    if let Some((_, entry)) = pending.entry {
                        self.pool.prefetch(entry.position().untagged(), PREFETCH_BYTES);
                    }
                }
                let distance = BUCKET_PREFETCH_KEYS + RECORD_PREFETCH_KEYS;
                for index in from(start, distance)..from(start + STEP_KEYS, distance).min(keys.len()) {
                    let record = self.finish_read(ring[index % RING_SLOTS], keys[index])?;
                    each(round * ROUND_KEYS + index, record.as_ref().map(Record::value));
                }
            }
        }
        Ok(())
    }

    /// Returns the live record of `key`, by the seen entry if it is unchanged. Its segment was in
    /// the directory when the read began. The record was therefore the key's at some moment since.
    /// Otherwise looks the key up again. The caller has held a guard since.
    #[inline]
    fn finish_read(&self, pending: PendingRead, key: &[u8]) -> Result<Option<Record<'_>>> {
        let PendingRead { sig, segment, entry } = pending;
        if let Some((slot, entry)) = entry
            && Entry::load(&self.pool, slot) == entry
        {
            let position = entry.position();
            let record = Record::read(&self.pool, position)?;
            if record.key() == key && entry.is_bound(slot, record.binding()) && !self.is_in_batch(sig) {
                self.persist_read(sig, segment, Some(slot));
                return self.check_hit(Hit { slot, entry, position, record });
            }
        }
        self.lookup(sig, key)
    }
}
