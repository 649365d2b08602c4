//! Writes of single keys. Batches are in `db/batch.rs`.
//!
//! Steps of a write: wait if flushes lag (`background/mod.rs`); acquire the thread slot and the
//! stripe of the key; load the view and draw the sequence number; append the record durably to the
//! thread's log (`memtable/log.rs`); add the entry to the index; release stripe and slot. Every
//! write costs one fence, and a large value one more (`tree/placement.rs`).
//!
//! If all threads share one log (`tree/commit.rs`), the append draws the number. With `power`, a
//! write then waits for its group after it releases its stripe and slot.
//!
//! A write that finds its memtable full freezes it after the write has ended.

use std::time::Instant;

use lodestore_contract::limits::{BATCH_OPS_MAX, check_batch, check_value};
use lodestore_contract::{Batch, BatchOp, Change, ChangeFn, Error, Event, Expiry, Lifetime, Result, Swap};

use crate::db::inner::Inner;
use crate::db::read::check_key;
use crate::layout::STORED_MAX;
use crate::memtable::Memtable;
use crate::sst::{Slot, hash};
use crate::tree::counts::Counts;
use crate::tree::placement::Appender;
use crate::version::view::{Known, View};
use crate::wal::entry::{Op, Payload};

/// Which keys a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Absent,
    Present,
}

/// The change that the closure of an `update_with` returned for a value and its expiry.
struct KeptChange {
    value: Option<Vec<u8>>,
    expiry: Option<Expiry>,
    change: Change,
}

/// Approximate bytes of an entry in addition to key and value.
const ENTRY_OVERHEAD_BYTES: usize = 24;
const EXPIRY_BYTES: usize = 8;
/// Assumed bytes of a value that is not known yet.
const UNKNOWN_VALUE_BYTES: usize = 256;
/// Maximum number of retries of a write that did not fit, after a reclaim whose space other writers
/// may have used.
const WRITE_RETRIES_MAX: usize = 8;

impl Inner {
    /// Rejects a value that is too long. With a separator the limit is slightly above the
    /// contract's, since the owner marks stored values.
    pub(crate) fn check_value(&self, value: &[u8]) -> Result<()> {
        if self.separator.is_none() {
            return check_value(value);
        }
        if value.len() <= STORED_MAX { Ok(()) } else { Err(Error::ValueLength { len: value.len() }) }
    }

    pub(crate) fn check_batch(&self, batch: &Batch) -> Result<()> {
        if self.separator.is_none() {
            return check_batch(batch);
        }
        if batch.ops.len() > BATCH_OPS_MAX {
            return Err(Error::BatchLength { ops: batch.ops.len() });
        }
        batch.ops.iter().try_for_each(|op| match op {
            BatchOp::Put { key, value, .. } => check_key(key).and_then(|()| self.check_value(value)),
            BatchOp::Delete { key } => check_key(key),
        })
    }

    /// Appends and publishes one operation. The caller holds the stripe of the key's hash.
    fn apply(&self, memtable: &Memtable, op: &Op<'_>, hash: u64) -> Result<()> {
        if op.payload != Payload::Tombstone {
            self.check_dram()?;
        }
        if self.is_large(op) { self.apply_large(memtable, op, hash) } else { self.apply_small(memtable, op, hash) }
    }

    /// Like [`Self::apply`], if the value is in the entry or already stored elsewhere.
    #[inline]
    fn apply_small(&self, memtable: &Memtable, op: &Op<'_>, hash: u64) -> Result<()> {
        if let Some(log) = &self.log {
            return self.apply_shared(log, op, hash);
        }
        memtable.prefetch(hash);
        let number = self.order.next();
        let keep = self.order.has_snapshots();
        // Pinned before the record is stored: pinning waits for all stores.
        let old = lodestore_index::pinned(|| memtable.append(op, hash, (number, keep), &self.reserve))?;
        self.note_replaced(memtable, old);
        Ok(())
    }

    /// Like `apply`, for an operation with a large value: stores the value first, then the entry
    /// that points to it. The caller holds the stripe.
    ///
    /// Where writers wait for groups, the value is synced by itself before its entry is stored. A
    /// page of the log may become durable at any time, and a replay uses each whole entry, whether
    /// or not its value is durable. With only the group's sync, the replay would have to read every
    /// value that the last group may have written.
    #[cold]
    fn apply_large(&self, memtable: &Memtable, op: &Op<'_>, hash: u64) -> Result<()> {
        let pointer = self.append_values(&[(op.key, op.payload.bytes())], Appender::Writer)?[0];
        let small = Op { payload: Payload::Pointer(&pointer), ..*op };
        self.apply_small(memtable, &small, hash).inspect_err(|_| self.forget_value(op.key, &pointer))
    }

    /// Runs a write until it fits or no space can be freed. The closure gets the view, runs with
    /// the stripe of `hash` held, and returns the result of the write. `blind`: it reads nothing
    /// first; `bytes`: approximate bytes that it writes.
    fn with_stripe<T>(
        &self,
        hash: u64,
        (blind, bytes): (bool, usize),
        mut work: impl FnMut(&View) -> Result<T>,
    ) -> Result<T> {
        let _guard = self.enter_write()?;
        if let Some(log) = self.group_log() {
            return self.retry_while_full(bytes as u64, || {
                let mut memtable = (0, false);
                let outcome = self.with_group(log, (hash, blind), || {
                    let view = self.view.load();
                    let outcome = work(&view);
                    memtable = (view.active.generation, view.active.is_full());
                    outcome
                });
                (memtable.0, memtable.1, outcome)
            });
        }
        self.retry_while_full(bytes as u64, || {
            let writing = self.order.writing();
            let stripe = self.order.lock(hash);
            let view = self.view.load();
            let outcome = work(&view);
            drop(stripe);
            drop(writing);
            (view.active.generation, view.active.is_full(), outcome)
        })
    }

    /// Attempts a write until it fits or no space can be freed. An attempt returns the memtable's
    /// generation, whether that memtable is full, and its result; it holds nothing on return.
    /// `bytes`: approximate bytes that it writes.
    #[inline]
    pub(crate) fn retry_while_full<T>(
        &self,
        bytes: u64,
        mut attempt: impl FnMut() -> (u64, bool, Result<T>),
    ) -> Result<T> {
        let (mut tries, mut made) = (0, None);
        loop {
            let outcome = self.throttle(bytes).and_then(|()| {
                let (generation, over, outcome) = attempt();
                if over {
                    self.freeze(generation);
                }
                outcome
            });
            match outcome {
                Err(Error::Full { .. }) if tries < WRITE_RETRIES_MAX && self.reclaim(&mut made)? => tries += 1,
                // Compactions into fewer tables need less DRAM.
                Err(Error::DramBudget { .. }) if tries == 0 => {
                    self.reclaim(&mut made)?;
                    self.note_dram();
                    tries = WRITE_RETRIES_MAX;
                }
                Err(error) => {
                    if let Error::Full { needed, .. } = error {
                        self.report(&Event::Full { needed });
                    }
                    return Err(error);
                }
                Ok(done) => return Ok(done),
            }
        }
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>, when: When) -> Result<bool> {
        check_key(key)?;
        self.check_value(value)?;
        let hash = hash(key);
        let op = Op { key, payload: Payload::Value(value), expiry };
        self.with_stripe(hash, (when == When::Always, self.logged_len(&op)), |view| {
            if when != When::Always {
                let present = self.is_live(view, key, hash)?;
                if present != (when == When::Present) {
                    return Ok(false);
                }
            }
            self.apply(&view.active, &op, hash)?;
            Ok(true)
        })
    }

    /// Replaces the value of a key that is present. Returns whether it was.
    #[inline]
    pub(crate) fn update(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        match lifetime {
            Lifetime::Keep => self.update_keeping(key, value),
            Lifetime::Forever | Lifetime::Until(_) => self.put(key, value, lifetime.resolve(None), When::Present),
        }
    }

    /// Updates a key that keeps its expiry. Not inlined, so that the other lifetimes need no more
    /// instructions.
    #[inline(never)]
    fn update_keeping(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        check_key(key)?;
        self.check_value(value)?;
        let hash = hash(key);
        let op = Op { key, payload: Payload::Value(value), expiry: None };
        self.with_stripe(hash, (false, self.logged_len(&op) + EXPIRY_BYTES), |view| {
            let slot = Slot::new();
            let known = view
                .find(key, hash, u64::MAX, self.lookup_options(), &slot)
                .inspect_err(|error| self.corrupt(error))?;
            let Some(known) = known.filter(|known| known.is_live()) else { return Ok(false) };
            self.apply(&view.active, &Op { expiry: known.expiry().map(Expiry::at_millis), ..op }, hash)?;
            Ok(true)
        })
    }

    /// Returns the live value of a key whose stripe is held, and its expiry; `slot` belongs to this
    /// lookup.
    pub(crate) fn live<'v>(
        &'v self,
        view: &'v View,
        key: &[u8],
        hash: u64,
        slot: &'v Slot,
    ) -> Result<(Option<&'v [u8]>, Option<Expiry>)> {
        let live = self.live_until(view, key, hash, slot).inspect_err(|error| self.corrupt(error))?;
        Ok(live.map_or((None, None), |(value, expiry)| (Some(value), expiry.map(Expiry::at_millis))))
    }

    /// Like [`Self::live`], with the expiry in milliseconds. Damage is not reported.
    pub(crate) fn live_until<'v>(
        &'v self,
        view: &'v View,
        key: &[u8],
        hash: u64,
        slot: &'v Slot,
    ) -> Result<Option<(&'v [u8], Option<u64>)>> {
        let known = view.find(key, hash, u64::MAX, self.lookup_options(), slot)?;
        known.map_or(Ok(None), |known| self.value_of(key, known))
    }

    /// Returns whether a key whose stripe is held has a live value, which need not be whole.
    fn is_live(&self, view: &View, key: &[u8], hash: u64) -> Result<bool> {
        let slot = Slot::new();
        let known =
            view.find(key, hash, u64::MAX, self.lookup_options(), &slot).inspect_err(|error| self.corrupt(error))?;
        Ok(known.is_some_and(Known::is_live))
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let hash = hash(key);
        self.with_stripe(hash, (false, key.len() + ENTRY_OVERHEAD_BYTES), |view| {
            if !self.is_live(view, key, hash)? {
                return Ok(false);
            }
            self.apply(&view.active, &Op { key, payload: Payload::Tombstone, expiry: None }, hash)?;
            Ok(true)
        })
    }

    /// Replaces the value `expected` by `new`, which gets `lifetime`.
    pub(crate) fn compare_and_swap(
        &self,
        key: &[u8],
        (expected, new): (Option<&[u8]>, Option<&[u8]>),
        lifetime: Lifetime,
    ) -> Result<Swap> {
        check_key(key)?;
        new.map_or(Ok(()), |value| self.check_value(value))?;
        let hash = hash(key);
        self.with_stripe(hash, (false, key.len() + new.map_or(0, <[u8]>::len) + ENTRY_OVERHEAD_BYTES), |view| {
            let slot = Slot::new();
            let (now, expiry) = self.live(view, key, hash, &slot)?;
            if now != expected {
                return Ok(Swap::Differs(now.map(<[u8]>::to_vec)));
            }
            let op = match (new, now) {
                (Some(value), _) => Op { key, payload: Payload::Value(value), expiry: lifetime.resolve(expiry) },
                (None, Some(_)) => Op { key, payload: Payload::Tombstone, expiry: None },
                (None, None) => return Ok(Swap::Done),
            };
            self.apply(&view.active, &op, hash)?;
            Ok(Swap::Done)
        })
    }

    pub(crate) fn update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()> {
        check_key(key)?;
        let hash = hash(key);
        // The closure is called once: its answer is kept for a second attempt at the write, unless
        // the value or the expiry changed.
        let mut kept: Option<KeptChange> = None;
        self.with_stripe(hash, (false, key.len() + UNKNOWN_VALUE_BYTES), |view| {
            let slot = Slot::new();
            let (now, expiry) = self.live(view, key, hash, &slot)?;
            let known = kept.take().filter(|kept| kept.value.as_deref() == now && kept.expiry == expiry);
            let wants = known.map_or_else(|| change(now, expiry), |kept| kept.change);
            let outcome = match &wants {
                Change::Keep => Ok(()),
                Change::Put(value, lifetime) => self.check_value(value).and_then(|()| {
                    let op = Op { key, payload: Payload::Value(value), expiry: lifetime.resolve(expiry) };
                    self.apply(&view.active, &op, hash)
                }),
                Change::Delete if now.is_none() => Ok(()),
                Change::Delete => {
                    self.apply(&view.active, &Op { key, payload: Payload::Tombstone, expiry: None }, hash)
                }
            };
            kept = Some(KeptChange { value: now.map(<[u8]>::to_vec), expiry, change: wants });
            outcome
        })
    }

    /// Delays a write of this many bytes if flushes lag: throttles first, and stalls at the limit.
    #[inline]
    fn throttle(&self, bytes: u64) -> Result<()> {
        if self.scheduler.pace.is_unlimited() { Ok(()) } else { self.wait_for_flushes(bytes) }
    }

    #[cold]
    fn wait_for_flushes(&self, bytes: u64) -> Result<()> {
        if self.pool.is_telling() {
            // A write by the owner's sink: the thread that reports may be the one that flushes.
            return Ok(());
        }
        if !self.scheduler.pace.is_stalled() {
            let waited = self.scheduler.pace.wait(bytes);
            Counts::add(&self.counts.throttled, 1);
            Counts::add(&self.counts.throttled_ns, waited.as_nanos() as u64);
            return Ok(());
        }
        let began = Instant::now();
        self.wait_until_flushed()?;
        Counts::add(&self.counts.stalled, 1);
        Counts::add(&self.counts.stalled_ns, began.elapsed().as_nanos() as u64);
        Ok(())
    }
}
