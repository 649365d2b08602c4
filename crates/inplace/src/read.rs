//! Reads of single keys, and pipelined reads of many. A reader acquires no lock and writes no
//! shared memory, except its epoch, and except the key's stripe during a batch.
//!
//! Durable linearizability: an entry may be visible before it is durable. After reading an entry
//! (or finding none), a reader therefore checks whether the key's stripe is held. If so, it flushes
//! the data that it read, and fences before it returns. If the stripe is free, the data is durable
//! already (`stripe.rs`, invariant 3). The exception is data of a killed process
//! (`Base::unsettled`), which is also made durable first.
//!
//! A batch is one step to readers. A reader that has read an entry, or found none, checks for a
//! running batch. If one runs and the key's stripe is held, the reader reads again under the
//! stripe.

use std::sync::atomic::Ordering;

use lodestore_contract::limits::check_key;
use lodestore_contract::{Expiry, Result};

use crate::index::{FoundIn, Index, unvouched};
use crate::record::Record;
use crate::stripe::StripeIndex;

/// Keys per step of a pipelined read. Measured: consecutive prefetches seem to overlap better; the
/// cause is unknown.
const STEP_KEYS: usize = 4;
/// Keys read under one guard.
const ROUND_KEYS: usize = 256;

/// An engine's reads. The errors of all methods are the contract's.
pub trait Reads: Index {
    /// A key of a pipelined read.
    type PendingRead: Copy;
    /// Keys of a pipelined read for which the index is being loaded.
    const INDEX_AHEAD_KEYS: usize;
    /// Keys, before these, whose records are being loaded before the first is read.
    const RECORD_AHEAD_KEYS: usize;

    /// Returns the live record of `key`. All that it depends on is durable. The caller holds a
    /// guard and no stripe.
    fn lookup(&self, key: &[u8]) -> Result<Option<Record<'_, Self::Own>>>;

    /// Counts a get, and times it until the result is dropped.
    #[inline]
    fn time_get(&self) -> impl Sized {}

    /// Counts gets that are not timed.
    #[inline]
    fn count_gets(&self, _count: u64) {}

    /// Returns space for the keys of a pipelined read in progress, a power of two.
    fn empty_ring(&self) -> impl AsMut<[Self::PendingRead]>;

    /// Begins a read: starts to load the key's place in the index.
    fn begin_read(&self, key: &[u8]) -> Self::PendingRead;

    /// Finds a candidate for the key, and starts to load its record.
    fn prefetch_record(&self, pending: &mut Self::PendingRead);

    /// Returns the live record of `key`. The caller has held a guard since the read began.
    fn finish_read(&self, pending: Self::PendingRead, key: &[u8]) -> Result<Option<Record<'_, Self::Own>>>;

    /// Returns whether a batch that publishes now may hold the stripe of a key. Must be called
    /// after the key's entry was read: a batch counts itself before it publishes.
    #[inline]
    fn may_be_in_batch(&self, stripe: impl FnOnce() -> StripeIndex) -> bool {
        self.batches.load(Ordering::Acquire) != 0 && self.stripes().is_locked(stripe())
    }

    /// Returns whether the data that was read must be made durable (see the module docs).
    #[inline]
    fn must_persist_read(&self, stripe: impl FnOnce() -> StripeIndex) -> bool {
        if !self.pool.persists() {
            return false;
        }
        self.stripes().is_locked(stripe()) || self.is_unsettled()
    }

    /// Returns the record of an entry, if the entry vouches for it, its checksum is right and it
    /// has not expired. Reports damage.
    #[inline]
    fn check_found<'a>(&'a self, found: &FoundIn<'a, Self>) -> Result<Option<Record<'a, Self::Own>>> {
        if !found.is_bound {
            return Err(unvouched(found.record_at)).inspect_err(|error| self.report_corruption(error));
        }
        if self.verifies_reads() {
            found.record.check(found.record_at).inspect_err(|error| self.report_corruption(error))?;
        }
        let is_expired = found.record.expiry().is_some_and(Expiry::is_past);
        Ok((!is_expired).then_some(found.record))
    }
}

/// Reads keys in a pipeline of three steps, some keys apart: prefetch of the place in the index,
/// prefetch of the record, read. The cache misses of several keys overlap with each other and with
/// the checks.
#[inline]
pub(crate) fn multi_get<E: Reads>(
    engine: &E,
    keys: &[&[u8]],
    each: &mut dyn FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    let all_ahead = E::INDEX_AHEAD_KEYS + E::RECORD_AHEAD_KEYS;
    keys.iter().try_for_each(|key| check_key(key))?;
    for (round, keys) in keys.chunks(ROUND_KEYS).enumerate() {
        engine.count_gets(keys.len() as u64);
        let _guard = engine.enter()?;
        let mut ring = engine.empty_ring();
        let ring = ring.as_mut();
        let slots = ring.len();
        assert!(slots.is_power_of_two() && slots >= all_ahead + STEP_KEYS, "the ring has a slot for each read");
        for start in (0..keys.len() + all_ahead).step_by(STEP_KEYS) {
            let step = |ahead| start.saturating_sub(ahead)..(start + STEP_KEYS).saturating_sub(ahead).min(keys.len());
            for index in step(0) {
                ring[index % slots] = engine.begin_read(keys[index]);
            }
            for index in step(E::INDEX_AHEAD_KEYS) {
                engine.prefetch_record(&mut ring[index % slots]);
            }
            for index in step(all_ahead) {
                let record = engine.finish_read(ring[index % slots], keys[index])?;
                each(round * ROUND_KEYS + index, record.as_ref().map(Record::value));
            }
        }
    }
    Ok(())
}
