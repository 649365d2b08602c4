//! Writing batches, with or without conditions.
//!
//! Persist order of a batch:
//! 1. The stripes of all keys are locked, those of the conditions too, in ascending order.
//! 2. The conditions are checked. Where writes wait for a group (`commit.rs`), all writes of the
//!    conditions' stripes are published first: what a condition sees is durable.
//! 3. Large values are written to the value log.
//! 4. One record with all operations is appended to the log.
//! 5. Without group commit: **fence: the batch is durable**; its entries go into the index while
//!    `batches` tells readers to wait; the stripes are unlocked. With group commit: the stripes are
//!    unlocked; the leader **fences** for the group, then publishes; the call returns after that.
//!
//! A batch whose conditions are not met stores nothing. The record needs one extent. If no free
//! extent is as long, values of at least 32 bytes go to the value log, in pieces, and the record
//! has pointers.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use lodestore_contract::{Batch, BatchOp, Commit, Error, Expiry, Result};
use lodestore_media::Mutant;

use crate::commit::SharedLog;
use crate::entry::{Op, Payload};
use crate::inner::Inner;
use crate::options::THRESHOLD_MIN;
use crate::table::{Slot, hash};
use crate::view::View;

/// Returns whether the present value and expiry of the key with this index satisfy its condition.
pub type IsMet<'m> = dyn FnMut(usize, Option<&[u8]>, Option<Expiry>) -> Result<bool> + 'm;

/// The conditions of a batch.
pub(crate) struct Conditions<'c, 'm> {
    /// The key of each condition.
    pub(crate) keys: &'c [&'c [u8]],
    pub(crate) is_met: &'c mut IsMet<'m>,
}

/// The outcome of an attempt at a batch.
struct Attempt {
    /// The memtable's generation.
    generation: u64,
    is_full: bool,
    outcome: Result<Commit>,
}

impl Attempt {
    fn of(view: &View, outcome: Result<Commit>) -> Self {
        Self { generation: view.active.generation, is_full: view.active.is_full(), outcome }
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
        self.make_way(ops.len());
        let bytes: u64 = ops.iter().map(|op| self.logged_len(op) as u64).sum();
        self.until_there_is_room(bytes, || {
            let mut attempt = self.try_batch(&ops, self.sizes.value_threshold, conditions);
            // One record needs one extent: with separated values it is smaller.
            if matches!(attempt.outcome, Err(Error::Full { .. }))
                && bytes > self.sizes.segment
                && self.can_separate_values()
            {
                attempt = self.try_batch(&ops, THRESHOLD_MIN as usize, conditions);
            }
            (attempt.generation, attempt.is_full, attempt.outcome)
        })
    }

    fn can_separate_values(&self) -> bool {
        self.sizes.value_threshold != usize::MAX
    }

    /// Checks conditions without a write.
    fn check_alone(&self, conditions: &mut Conditions<'_, '_>) -> Result<Commit> {
        if conditions.keys.is_empty() {
            return Ok(Commit::Done);
        }
        let _writing = self.order.writing();
        let _stripes = self.order.lock_all(conditions.keys.iter().map(|key| hash(key)));
        self.check_conditions(conditions)
    }

    /// Checks conditions whose stripes are locked.
    fn check_conditions(&self, conditions: &mut Conditions<'_, '_>) -> Result<Commit> {
        if conditions.keys.is_empty() {
            return Ok(Commit::Done);
        }
        if let Some(log) = self.group_log() {
            self.wait_published(log, conditions.keys.iter().map(|key| hash(key)))?;
        }
        let view = self.view.load();
        for (index, key) in conditions.keys.iter().enumerate() {
            let slot = Slot::new();
            let (value, expiry) = self.live(&view, key, hash(key), &slot)?;
            if !(conditions.is_met)(index, value, expiry)? {
                return Ok(Commit::Unmet(index));
            }
        }
        Ok(Commit::Done)
    }

    /// Attempts a batch, whose values of `from` bytes or more go to the value log.
    fn try_batch(&self, ops: &[Op<'_>], from: usize, conditions: &mut Conditions<'_, '_>) -> Attempt {
        if ops.iter().any(|op| op.payload != Payload::Tombstone)
            && let Err(error) = self.check_dram()
        {
            return Attempt { generation: 0, is_full: false, outcome: Err(error) };
        }
        let writing = self.order.writing();
        let hashes = ops.iter().map(|op| op.key).chain(conditions.keys.iter().copied()).map(hash);
        let stripes = self.order.lock_all(hashes);
        match self.check_conditions(conditions) {
            Ok(Commit::Done) => {}
            Ok(Commit::Unmet(_)) if self.pool.mutant(Mutant::ConditionIgnored) => {}
            unmet_or_error => {
                if self.pool.mutant(Mutant::UnmetBatchLogged) && unmet_or_error.is_ok() {
                    let _ = self.view.load().active.append_batch(ops, self.order.next(), &self.reserve, false);
                }
                return Attempt::of(&self.view.load(), unmet_or_error);
            }
        }
        if let Some(log) = self.group_log() {
            let stored = self.with_small(ops, from, |ops| self.apply_batch_shared(log, ops, false));
            drop((stripes, writing));
            let view = self.view.load();
            let committed = stored.and_then(|number| self.wait_committed(log, number));
            return Attempt::of(&view, committed.map(|()| Commit::Done));
        }
        let view = self.view.load();
        let outcome = match &self.log {
            Some(log) => self.append_batch_shared(log, ops, from),
            None => self.append_batch(&view, ops, from),
        };
        Attempt::of(&view, outcome.map(|()| Commit::Done))
    }

    /// Appends a batch to the log of all threads, where writes do not wait for their group.
    fn append_batch_shared(&self, log: &SharedLog, ops: &[Op<'_>], from: usize) -> Result<()> {
        self.with_small(ops, from, |ops| self.apply_batch_shared(log, ops, false)).map(|_| ())
    }

    /// Appends a batch to the log of this thread, and publishes it.
    fn append_batch(&self, view: &View, ops: &[Op<'_>], from: usize) -> Result<()> {
        let memtable = &view.active;
        // Deletes of absent keys need no record, but they do no harm in one.
        let number = self.order.next();
        let places = self.with_small(ops, from, |ops| memtable.append_batch(ops, number, &self.reserve, false))?;
        let keep = self.order.has_snapshots();
        self.batches.fetch_add(1, Ordering::SeqCst);
        for (op, at) in ops.iter().zip(places) {
            let old = memtable.publish(op.key, hash(op.key), at, keep);
            self.note_replaced(memtable, old);
        }
        self.batches.fetch_sub(1, Ordering::SeqCst);
        memtable.look();
        Ok(())
    }
}

/// The operations of a batch without those that a later one of the same key undoes.
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
