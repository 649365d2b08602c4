//! The write path of single keys. `db/key_ops.rs` has the operations, `db/batch.rs` the batches.
//!
//! [`Inner::try_write`] has the steps of a write in their order. Every write costs one fence, and a
//! large value one more (`values/writer.rs`). If all threads share one log
//! (`tree/group_commit.rs`), the steps are those of [`Inner::try_write_shared`]: the record is
//! durable with its group, and a write waits for the group after it releases its stripe and slot.
//!
//! A write that finds its memtable full freezes it after the write has ended.

use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use arc_swap::Guard;
use lodestore_contract::limits::{BATCH_OPS_MAX, check_batch, check_value};
use lodestore_contract::{Batch, BatchOp, Error, Event, Expiry, Result};
use lodestore_index::Pin;

use crate::db::open_store::Inner;
use crate::db::read::check_key;
use crate::layout::STORED_MAX;
use crate::planted;
use crate::sst::Slot;
use crate::tree::counts::Counts;
use crate::tree::group_commit::SharedLog;
use crate::tree::sequence::{Order, Writing};
use crate::values::ValueLog;
use crate::values::writer::Appender;
use crate::version::known::Known;
use crate::version::view::View;
use crate::wal::entry::{Op, POINTER_BYTES, Payload};

/// Maximum number of retries of a write that did not fit, after a reclaim whose space other writers
/// may have used.
const WRITE_RETRIES_MAX: usize = 8;

/// A write of one key. What it stores is decided while the stripe of the key is held.
pub(crate) trait KeyWrite {
    /// Returns the operation to store, if any. Called again if the write has to start over.
    ///
    /// # Errors
    /// Any error ends the write.
    fn decide(&mut self, inner: &Inner, view: &View) -> Result<Option<Op<'_>>>;
}

/// How a key is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WritePlan {
    /// The hash of the key.
    pub(crate) hash: u64,
    /// Approximate bytes of the write.
    pub(crate) bytes: usize,
    /// Whether the write reads nothing first.
    pub(crate) is_blind: bool,
}

/// The retries of a write that did not fit.
#[derive(Default)]
pub(crate) struct Retries {
    count: usize,
    /// The work of other threads that freed space, as of the last attempt.
    tasks_done: Option<u64>,
}

/// A value in the value log that no entry names yet. Counted dead if it is dropped.
struct UnnamedValue<'t> {
    values: &'t ValueLog,
    key: &'t [u8],
    pointer: [u8; POINTER_BYTES],
}

impl Drop for UnnamedValue<'_> {
    fn drop(&mut self) {
        self.values.forget(self.key, &self.pointer);
    }
}

/// Releases the stripe, the slot and the view of a write. Returns the generation of the memtable if
/// it is full: the caller freezes it.
#[inline(always)]
fn end_write(stripe: MutexGuard<'_, ()>, writing: Writing<'_>, view: Guard<Arc<View>>) -> Option<u64> {
    let full = view.full_generation();
    drop(stripe);
    drop(writing);
    // The last holder of a view frees its memtable and tables, without a lock.
    drop(view);
    full
}

impl Inner {
    /// Writes one key: retries until the write fits or no space can be freed.
    pub(crate) fn write_key<W: KeyWrite>(&self, plan: WritePlan, write: &mut W) -> Result<()> {
        let _guard = self.enter_write()?;
        let mut retries = Retries::default();
        loop {
            let attempt = match &self.log {
                None => self.try_write(plan, write),
                Some(log) => self.try_write_shared(log, plan, write),
            };
            match attempt {
                Ok(()) => return Ok(()),
                Err(error) => self.prepare_retry(&mut retries, error)?,
            }
        }
    }

    /// Attempts a write to the log of this thread. Durable on return.
    fn try_write<W: KeyWrite>(&self, plan: WritePlan, write: &mut W) -> Result<()> {
        self.throttle(plan.bytes as u64)?;
        let writing = self.order.writing();
        let stripe = self.order.lock(plan.hash);
        let view = self.view.load();
        let memtable = &view.active;
        self.apply_decided(&view, write, |op| {
            memtable.prefetch(plan.hash);
            let number = self.order.next();
            let keep = self.order.has_snapshots();
            // Pinned before the record is stored: pinning waits for all stores.
            let pin = Pin::new();
            let mut log = memtable.log.lock();
            let record = log.reserve(op.entry_len(), op.is_delete(), &self.reserve)?;
            log.store_entry(&record, number, op)?;
            // The leaf of the index is fetched while the record is written back.
            let sought = memtable.seek(op.key, &pin);
            // The write is durable after this fence. Readers see it after that.
            self.pool.fence_checked()?;
            log.advance(&record);
            let replaced = memtable.publish_sought(sought, plan.hash, record.position(), keep);
            let is_dram_check_due = log.end_record(&record);
            drop(log);
            drop(pin);
            if is_dram_check_due {
                memtable.mark_full_over_dram_limit();
            }
            self.note_replaced(memtable, replaced);
            Ok(())
        })?;
        let full = end_write(stripe, writing, view);
        if let Some(generation) = full {
            self.freeze(generation);
        }
        Ok(())
    }

    /// Attempts a write to the log that all threads share. Waits for the write's group, unless the
    /// durability is `interval`.
    fn try_write_shared<W: KeyWrite>(&self, log: &SharedLog, plan: WritePlan, write: &mut W) -> Result<()> {
        self.throttle(plan.bytes as u64)?;
        let waits = log.waits_for_sync();
        let writing = self.order.writing();
        let stripe =
            if waits && !plan.is_blind { self.lock_published(log, plan.hash)? } else { self.order.lock(plan.hash) };
        let view = self.view.load();
        self.apply_decided(&view, write, |op| self.apply_shared(log, op, plan.hash))?;
        // The number of this write, or, if it stored nothing, of an earlier one.
        let number = log.last_of(Order::stripe_of(plan.hash));
        let full = end_write(stripe, writing, view);
        if waits && !self.pool.has_fault(planted::ANSWERED_BEFORE_SYNC) {
            // The write is durable after the sync of its group.
            self.wait_committed(log, number)?;
        }
        if let Some(generation) = full {
            self.freeze(generation);
        }
        Ok(())
    }

    /// Lets `write` decide what to store, stores a large value, and calls `apply` with the
    /// operation for the log. Does nothing else if there is nothing to store. The caller holds the
    /// stripe of the key.
    #[inline(always)]
    fn apply_decided<W: KeyWrite>(
        &self,
        view: &View,
        write: &mut W,
        apply: impl FnOnce(&Op<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(op) = write.decide(self, view)? else { return Ok(()) };
        self.check_op_dram(&op)?;
        let (pointer, large);
        let op = if self.is_large(&op) {
            (pointer, large) = self.store_large(&op)?;
            Op { payload: Payload::Pointer(&pointer), ..op }
        } else {
            large = None;
            op
        };
        apply(&op)?;
        // An entry names the value now.
        std::mem::forget(large);
        Ok(())
    }

    /// Rejects an operation that is not a delete if too little DRAM is left for it.
    #[inline]
    fn check_op_dram(&self, op: &Op<'_>) -> Result<()> {
        if op.is_delete() { Ok(()) } else { self.check_dram() }
    }

    /// Stores a large value durably, before the entry that points to it. The caller holds the
    /// stripe.
    ///
    /// Where writers wait for groups, the value is synced by itself before its entry is stored. A
    /// page of the log may become durable at any time, and a replay uses each whole entry, whether
    /// or not its value is durable. With only the group's sync, the replay would have to read every
    /// value that the last group may have written.
    #[cold]
    fn store_large<'t>(&'t self, op: &Op<'t>) -> Result<([u8; POINTER_BYTES], Option<UnnamedValue<'t>>)> {
        let pointer = self.append_values(&[(op.key, op.payload.bytes())], Appender::Writer)?[0];
        Ok((pointer, Some(UnnamedValue { values: &self.values, key: op.key, pointer })))
    }

    /// Frees space for a write that failed for lack of space or DRAM. Returns if another attempt is
    /// worthwhile. The caller holds no lock.
    ///
    /// # Errors
    /// The error of the write, or the errors of the flushes and compactions.
    #[cold]
    pub(crate) fn prepare_retry(&self, retries: &mut Retries, error: Error) -> Result<()> {
        self.freeze_if_full();
        match error {
            Error::Full { .. } if retries.count < WRITE_RETRIES_MAX && self.reclaim(&mut retries.tasks_done)? => {
                retries.count += 1;
                Ok(())
            }
            // Compactions into fewer tables need less DRAM.
            Error::DramBudget { .. } if retries.count == 0 => {
                self.reclaim(&mut retries.tasks_done)?;
                self.note_dram();
                retries.count = WRITE_RETRIES_MAX;
                Ok(())
            }
            error => {
                if let Error::Full { needed, .. } = error {
                    self.report(&Event::Full { needed });
                }
                Err(error)
            }
        }
    }

    /// Freezes the active memtable if it is full. The caller holds no lock.
    pub(crate) fn freeze_if_full(&self) {
        let full = self.view.load().full_generation();
        if let Some(generation) = full {
            self.freeze(generation);
        }
    }

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

    /// Returns the live value of a key whose stripe is held, and its expiry; `slot` belongs to this
    /// lookup.
    pub(crate) fn live<'v>(
        &'v self,
        view: &'v View,
        key: &[u8],
        hash: u64,
        slot: &'v Slot,
    ) -> Result<(Option<&'v [u8]>, Option<Expiry>)> {
        let live = self.live_until(view, key, hash, slot).inspect_err(|error| self.report_corruption(error))?;
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

    /// Returns the newest version of a key whose stripe is held. Its value need not be whole.
    pub(crate) fn newest<'v>(
        &self,
        view: &'v View,
        key: &[u8],
        hash: u64,
        slot: &'v Slot,
    ) -> Result<Option<Known<'v>>> {
        view.find(key, hash, u64::MAX, self.lookup_options(), slot).inspect_err(|error| self.report_corruption(error))
    }

    /// Returns whether a key whose stripe is held has a live value, which need not be whole.
    pub(crate) fn is_live(&self, view: &View, key: &[u8], hash: u64) -> Result<bool> {
        let slot = Slot::new();
        Ok(self.newest(view, key, hash, &slot)?.is_some_and(Known::is_live))
    }

    /// Delays a write of this many bytes if flushes lag: throttles first, and stalls at the limit.
    #[inline]
    pub(crate) fn throttle(&self, bytes: u64) -> Result<()> {
        if self.scheduler.throttle.is_unlimited() { Ok(()) } else { self.wait_for_flushes(bytes) }
    }

    #[cold]
    fn wait_for_flushes(&self, bytes: u64) -> Result<()> {
        if self.pool.is_reporting() {
            // A write by the owner's sink: the thread that reports may be the one that flushes.
            return Ok(());
        }
        if !self.scheduler.throttle.is_stalled() {
            let waited = self.scheduler.throttle.wait(bytes);
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
