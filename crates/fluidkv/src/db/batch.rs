//! Writing batches, with or without conditions.
//!
//! Persist order of a batch:
//! 1. The stripes of all keys are locked, those of the conditions too, in ascending order. If a
//!    condition is on a range, all stripes are locked.
//! 2. The conditions are checked. Where writes wait for a group (`tree/group_commit.rs`), all
//!    writes of the conditions' stripes are published first, so that the conditions see durable
//!    data only.
//! 3. Large values are written to the value log.
//! 4. One record with all operations is appended to the log.
//! 5. Without group commit: **fence: the batch is durable**; its entries go into the index while
//!    `batches` makes readers wait; the stripes are unlocked. With group commit: the stripes are
//!    unlocked; the leader **fences** for the group, then publishes; the call returns after that.
//!
//! A batch whose conditions are not met stores nothing. The record needs one extent. If no free
//! extent is long enough, values of at least 32 bytes go to the value log, in pieces, and the
//! record has pointers.

use std::collections::HashMap;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use lodestore_contract::{Batch, BatchOp, Commit, Error, Expiry, RangeCondition, Result, Visit};

use crate::db::open_store::Inner;
use crate::db::scan::scan;
use crate::db::write::Retries;
use crate::options::THRESHOLD_MIN;
use crate::planted;
use crate::sst::{Slot, hash};
use crate::tree::budget::BATCH_OPERATION_BYTES;
use crate::version::view::View;
use crate::wal::entry::batch::only_deletes;
use crate::wal::entry::{Op, Payload};

/// Returns whether the present value and expiry of the key with this index satisfy its condition.
pub type IsMet<'m> = dyn FnMut(usize, Option<&[u8]>, Option<Expiry>) -> Result<bool> + 'm;
/// Returns whether a key of a range is present, given what is stored for it and its expiry.
pub type IsPresent<'m> = dyn FnMut(&[u8], &[u8], Option<Expiry>) -> Result<bool> + 'm;

/// The conditions of a batch. The closures run under the locks of the keys: they must be short and
/// must not write to the store. If the write has to start over, they run again.
pub struct Conditions<'c, 'm> {
    /// The key of each condition on a key.
    pub keys: &'c [&'c [u8]],
    /// Judges the conditions on keys.
    pub is_met: &'c mut IsMet<'m>,
    /// The conditions on ranges.
    pub ranges: &'c [RangeCondition],
    /// Judges each key of a range.
    pub is_present: &'c mut IsPresent<'m>,
}

impl Conditions<'_, '_> {
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty()
    }
}

impl Inner {
    /// Writes a batch if its conditions are met: one record, one number for all of it.
    pub(crate) fn write_batch(&self, batch: &Batch, conditions: &mut Conditions<'_, '_>) -> Result<Commit> {
        self.check_batch(batch)?;
        let _guard = self.enter_write()?;
        let ops = drop_overwritten_ops(batch);
        if ops.is_empty() {
            return self.check_alone(conditions);
        }
        self.check_batch_dram(ops.len())?;
        self.freeze_before_batch(ops.len());
        let bytes: u64 = ops.iter().map(|op| self.logged_len(op) as u64).sum();
        let mut retries = Retries::default();
        loop {
            let attempt = self.throttle(bytes).and_then(|()| self.attempt_batch(&ops, bytes, conditions));
            match attempt {
                Ok(commit) => {
                    self.freeze_if_full();
                    return Ok(commit);
                }
                Err(error) => self.prepare_retry(&mut retries, error)?,
            }
        }
    }

    /// Attempts a batch that adds this many bytes to a log.
    fn attempt_batch(&self, ops: &[Op<'_>], bytes: u64, conditions: &mut Conditions<'_, '_>) -> Result<Commit> {
        match self.try_batch(ops, self.sizes.value_threshold, conditions) {
            // One record needs one extent: with separated values it is smaller.
            Err(Error::Full { .. }) if bytes > self.sizes.segment && self.can_separate_values() => {
                self.try_batch(ops, THRESHOLD_MIN as usize, conditions)
            }
            other => other,
        }
    }

    /// Freezes the active memtable if a batch would exceed its limit. The caller holds no lock.
    pub(crate) fn freeze_before_batch(&self, ops: usize) {
        let (generation, over) = {
            let active = &self.view.load().active;
            (active.generation, !active.is_empty() && !active.has_dram(ops as u64 * BATCH_OPERATION_BYTES))
        };
        if over {
            self.freeze(generation);
        }
    }

    fn can_separate_values(&self) -> bool {
        self.sizes.value_threshold != usize::MAX
    }

    /// Checks conditions without a write.
    fn check_alone(&self, conditions: &mut Conditions<'_, '_>) -> Result<Commit> {
        if conditions.is_empty() {
            return Ok(Commit::Done);
        }
        let _writing = self.order.writing();
        let _stripes = self.lock_stripes(&[], conditions);
        self.check_conditions(conditions)
    }

    /// Locks the stripes of all operations and conditions. A condition on a range locks all
    /// stripes, so that no key can be added to the range.
    fn lock_stripes(&self, ops: &[Op<'_>], conditions: &Conditions<'_, '_>) -> Vec<MutexGuard<'_, ()>> {
        if !conditions.ranges.is_empty() && !self.pool.has_fault(planted::RANGE_NOT_LOCKED) {
            return self.order.lock_all_stripes();
        }
        self.order.lock_all(ops.iter().map(|op| op.key).chain(conditions.keys.iter().copied()).map(hash))
    }

    /// Checks conditions whose stripes are locked.
    fn check_conditions(&self, conditions: &mut Conditions<'_, '_>) -> Result<Commit> {
        if conditions.is_empty() {
            return Ok(Commit::Done);
        }
        if let Some(log) = self.group_log() {
            match conditions.ranges {
                [] => self.wait_published(log, conditions.keys.iter().map(|key| hash(key)))?,
                _ => self.wait_all_published(log)?,
            }
        }
        let view = self.view.load();
        // The ranges are read first, because a key may expire between two checks. A key that is
        // absent from a range stays absent. A key that is present later was present at the first
        // check too.
        let mut unmet_range = None;
        for (index, range) in conditions.ranges.iter().enumerate() {
            if !self.has_exactly(&view, range, conditions.is_present)? {
                unmet_range = Some(conditions.keys.len() + index);
                break;
            }
        }
        // An unmet condition on a key is reported before one on a range.
        for (index, key) in conditions.keys.iter().enumerate() {
            let slot = Slot::new();
            let (value, expiry) = self.live(&view, key, hash(key), &slot)?;
            if !(conditions.is_met)(index, value, expiry)? {
                return Ok(Commit::Unmet(index));
            }
        }
        if let Some(index) = unmet_range {
            return Ok(Commit::Unmet(index));
        }
        Ok(Commit::Done)
    }

    /// Returns whether exactly the keys of a condition are present in its range. All stripes are
    /// held: every write has ended, and is in a memtable or a table of the view.
    fn has_exactly(&self, view: &View, range: &RangeCondition, is_present: &mut IsPresent<'_>) -> Result<bool> {
        let mut expected = range.keys.iter();
        let mut outcome = Ok(true);
        scan(self, view, u64::MAX, &range.scan_range(), &mut Err, &mut |pair| {
            outcome = match is_present(pair.key, pair.value, pair.expiry) {
                Ok(true) => Ok(expected.next().is_some_and(|expected| expected == pair.key)),
                Ok(false) => Ok(true),
                Err(error) => Err(error),
            };
            if matches!(outcome, Ok(true)) { Visit::More } else { Visit::Stop }
        })?;
        Ok(outcome? && expected.next().is_none())
    }

    /// Attempts a batch. Values of `from` bytes or more go to the value log.
    fn try_batch(&self, ops: &[Op<'_>], from: usize, conditions: &mut Conditions<'_, '_>) -> Result<Commit> {
        if !only_deletes(ops) {
            self.check_dram()?;
        }
        let writing = self.order.writing();
        let stripes = self.lock_stripes(ops, conditions);
        match self.check_conditions(conditions)? {
            Commit::Unmet(_) if self.pool.has_fault(planted::CONDITION_IGNORED) => {}
            Commit::Unmet(index) => {
                if self.pool.has_fault(planted::UNMET_BATCH_LOGGED) {
                    let _ = self.log_batch(&self.view.load().active, ops, self.order.next(), false);
                }
                return Ok(Commit::Unmet(index));
            }
            Commit::Done => {}
        }
        let Some(log) = &self.log else {
            self.append_batch(&self.view.load(), ops, from)?;
            return Ok(Commit::Done);
        };
        let number = self.with_small(ops, from, |ops| self.apply_batch_shared(log, ops, false))?;
        drop(stripes);
        drop(writing);
        if log.waits_for_sync() {
            self.wait_committed(log, number)?;
        }
        Ok(Commit::Done)
    }

    /// Appends a batch to the log of this thread, and publishes it. The caller holds the stripes.
    fn append_batch(&self, view: &View, ops: &[Op<'_>], from: usize) -> Result<()> {
        let memtable = &view.active;
        // Deletes of absent keys need no record, but a record of them is harmless.
        let number = self.order.next();
        let positions = self.with_small(ops, from, |ops| self.log_batch(memtable, ops, number, false))?;
        self.batches.fetch_add(1, Ordering::SeqCst);
        self.publish_batch(memtable, ops, &positions);
        self.batches.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Returns the operations of a batch, without operations that a later one on the same key
/// overwrites.
fn drop_overwritten_ops(batch: &Batch) -> Vec<Op<'_>> {
    let mut last: HashMap<&[u8], usize> = HashMap::with_capacity(batch.ops.len());
    for (index, op) in batch.ops.iter().enumerate() {
        let (BatchOp::Put { key, .. } | BatchOp::Delete { key }) = op;
        last.insert(key, index);
    }
    let mut ops = Vec::with_capacity(last.len());
    for (index, op) in batch.ops.iter().enumerate() {
        let (BatchOp::Put { key, .. } | BatchOp::Delete { key }) = op;
        if last.get(key.as_slice()) != Some(&index) {
            continue;
        }
        ops.push(match op {
            BatchOp::Put { key, value, expiry } => Op { key, payload: Payload::Value(value), expiry: *expiry },
            BatchOp::Delete { key } => Op { key, payload: Payload::Tombstone, expiry: None },
        });
    }
    ops
}
