//! The updating queues, and the application of their operations to the trees. The module
//! `backend` states the invariants.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lodestore_contract::Result;
use lodestore_contract::threads::lock;
use lodestore_index::KeyResolver;
use lodestore_index::queue::Ring;
use lodestore_media::NvPtr;

use super::gate::Gate;
use super::worker_pool::{Backoff, WorkerCount, WorkerPool};
use crate::sampler::Sampler;
use crate::tree_op::{Change, TreeOp};
use crate::trees::{TREES_MAX, Trees, share_of};

/// Maximum operations popped from a queue at once.
pub const BATCH_OPS_MAX: usize = 256;
/// Operations whose paths down the tree are prefetched together, before the first is applied.
const GROUP_OPS: usize = 16;
/// Pushes to a queue between two checks of its depth.
const DEPTH_CHECK_PERIOD_OPS: u64 = 64;
/// Maximum queues.
pub const QUEUES_MAX: usize = 64;
/// Batches of at least this many operations are timed, for the adaption.
const TIMED_BATCH_OPS_MIN: usize = 8;

/// Maximum operations that may wait for a rebuild, over all queues (64 MiB). Above it writers wait
/// too.
pub const OVERFLOW_MAX: u64 = 1 << 20;

/// The backend's operations on positions, besides finding their keys.
pub trait Retire {
    /// Retires a position that nothing new can reach: its space is reused when no thread pinned now
    /// is left.
    fn retire(&self, position: NvPtr);
    /// Returns whether the position represents a record whose position was damaged. The tree may
    /// then have another position.
    fn is_cleared(&self, _position: NvPtr) -> bool {
        false
    }
    /// Returns whether the record at this position is damaged: its key may then differ.
    fn is_damaged(&self, _position: NvPtr) -> bool {
        false
    }
    /// Runs `work` pinned: no position that it reads is reused meanwhile. Reentrant.
    fn pinned<T>(&self, work: impl FnOnce() -> T) -> T;
}

/// Setup of a backend.
#[derive(Clone, Debug)]
pub struct Config {
    /// Writers update the tree themselves, at once (the paper's HiKV_sync).
    pub sync_update: bool,
    /// Trees, 1 to [`TREES_MAX`]: 1, or the number of partitions (the paper's HiKV_par).
    pub trees: usize,
    /// Queues, 1 to [`QUEUES_MAX`].
    pub queues: usize,
    /// Capacity of a queue in operations; the paper's 4096.
    pub queue_len: usize,
    /// Threads.
    pub backends: WorkerCount,
    /// Without threads: operations that accumulate in a queue before a writer applies them
    /// together. 1: none.
    pub caller_batch: usize,
    /// Maximum operations that may wait for a rebuild.
    pub overflow_max: u64,
    /// Length of a window of the adaption.
    pub window: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sync_update: false,
            trees: 1,
            queues: 8,
            queue_len: 4096,
            backends: WorkerCount::Fixed(1),
            caller_batch: 1,
            overflow_max: OVERFLOW_MAX,
            window: Duration::from_millis(100),
        }
    }
}

/// A queue and its consumer's state.
pub(crate) struct Queue {
    pub(crate) ring: Ring<TreeOp>,
    /// As `QueueState::rebuilding`, readable without the lock.
    pub(crate) rebuilding: AtomicBool,
    pub(crate) state: Mutex<QueueState>,
    pub(crate) depth_max: AtomicU64,
}

/// Held by the consumer, and by a writer that applies directly during a rebuild.
#[derive(Default)]
pub(crate) struct QueueState {
    batch: Vec<TreeOp>,
    pub(crate) overflow: Vec<TreeOp>,
    pub(crate) rebuilding: bool,
}

/// Result of an attempt to process a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkOutcome {
    /// This many operations, possibly none.
    Done(usize),
    /// Another thread is the consumer.
    Busy,
    /// The overflow is full until the rebuild ends.
    OverflowFull,
}

/// State shared by all threads.
pub(crate) struct Core<R> {
    pub(crate) records: R,
    pub(crate) trees: Trees,
    pub(crate) queues: Box<[Queue]>,
    pub(crate) workers: WorkerPool,
    pub(crate) gate: Gate,
    pub(crate) sampler: Arc<Sampler>,
    pub(crate) config: Config,
    applies_directly: bool,
    /// Batch size of a writer without threads, if above 1; otherwise 0.
    caller_batch: u64,
    pub(crate) helped: AtomicU64,
    pub(crate) full: AtomicU64,
    pub(crate) surprises: AtomicU64,
    /// The tree has a damaged record in the place of another key, or has lost the record.
    pub(crate) has_misplaced: AtomicBool,
}

impl<R: KeyResolver + Retire + Send + Sync + 'static> Core<R> {
    pub(crate) fn new(config: Config, records: R, sampler: Arc<Sampler>) -> Self {
        let queue = || Queue {
            ring: Ring::with_capacity(config.queue_len),
            rebuilding: AtomicBool::new(false),
            state: Mutex::default(),
            depth_max: AtomicU64::new(0),
        };
        let threads = match config.backends {
            _ if config.sync_update => WorkerCount::Fixed(0),
            backends => backends,
        };
        let has_no_threads = matches!(threads, WorkerCount::Fixed(0) | WorkerCount::Auto { threads: 0..2 });
        let applies_directly = config.sync_update || has_no_threads && config.caller_batch <= 1;
        Self {
            records,
            trees: Trees::new(config.trees.min(TREES_MAX)),
            queues: (0..config.queues.clamp(1, QUEUES_MAX)).map(|_| queue()).collect(),
            workers: WorkerPool::new(threads),
            gate: Gate::default(),
            sampler,
            applies_directly,
            caller_batch: if has_no_threads && !applies_directly {
                config.caller_batch.min(config.queue_len) as u64
            } else {
                0
            },
            config,
            helped: AtomicU64::new(0),
            full: AtomicU64::new(0),
            surprises: AtomicU64::new(0),
            has_misplaced: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn enqueue(&self, hash: u64, op: TreeOp) {
        let op = op.for_tree(self.trees.number_of(hash) as u8);
        let number = share_of(hash, self.queues.len());
        if self.applies_directly {
            return self.apply_directly(number, &op);
        }
        match self.queues[number].ring.try_push(op) {
            Ok(ticket) => {
                if ticket % DEPTH_CHECK_PERIOD_OPS == 0 {
                    self.check_depth(number);
                }
                self.workers.wake_if_asleep();
                if self.caller_batch != 0 && ticket % self.caller_batch == 0 {
                    self.process_queue(number, BATCH_OPS_MAX);
                }
            }
            Err(op) => self.push_to_full(number, op),
        }
    }

    /// Records the depth of a queue, and wakes its thread if the queue is a quarter full.
    fn check_depth(&self, number: usize) {
        let queue = &self.queues[number];
        let depth = queue.ring.len();
        if depth as u64 > queue.depth_max.load(Ordering::Relaxed) {
            queue.depth_max.store(depth as u64, Ordering::Relaxed);
        }
        if depth >= queue.ring.capacity() / 4 {
            self.workers.wake_owner(number);
        }
    }

    /// Pushes to a full queue: this thread helps until the operation fits.
    #[cold]
    fn push_to_full(&self, number: usize, mut op: TreeOp) {
        let queue = &self.queues[number];
        self.full.fetch_add(1, Ordering::Relaxed);
        queue.depth_max.store(queue.ring.capacity() as u64, Ordering::Relaxed);
        self.workers.wake_owner(number);
        let mut backoff = Backoff::default();
        loop {
            if self.gate.is_poisoned() {
                // The tree is lost, and every scan reports so; the hash index has the write.
                return;
            }
            match self.process_queue(number, BATCH_OPS_MAX) {
                WorkOutcome::Done(0) | WorkOutcome::Busy => backoff.pause(),
                WorkOutcome::Done(count) => {
                    self.helped.fetch_add(count as u64, Ordering::Relaxed);
                }
                WorkOutcome::OverflowFull => self.gate.wait_briefly(),
            }
            match queue.ring.try_push(op) {
                Ok(_) => return,
                Err(back) => op = back,
            }
        }
    }

    /// Pops up to `max` operations, at most a batch, from a queue and applies them. During a
    /// rebuild moves them to the overflow instead.
    pub(crate) fn process_queue(&self, number: usize, max: usize) -> WorkOutcome {
        let queue = &self.queues[number];
        if self.gate.is_poisoned() {
            return WorkOutcome::Done(0);
        }
        let Some(mut consumer) = queue.ring.try_consume() else { return WorkOutcome::Busy };
        let mut state = lock(&queue.state);
        let state = &mut *state;
        if state.rebuilding {
            let waiting = self.gate.waiting.load(Ordering::Relaxed);
            let free = self.config.overflow_max.saturating_sub(waiting) as usize;
            if free == 0 {
                return WorkOutcome::OverflowFull;
            }
            let count = consumer.pop_batch(&mut state.overflow, max.min(BATCH_OPS_MAX).min(free));
            self.gate.waiting.fetch_add(count as u64, Ordering::Relaxed);
            consumer.complete(count);
            return WorkOutcome::Done(count);
        }
        state.batch.clear();
        let count = consumer.pop_batch(&mut state.batch, max.min(BATCH_OPS_MAX));
        if count == 0 || !self.apply_timed(&state.batch) {
            return WorkOutcome::Done(0);
        }
        consumer.complete(count);
        WorkOutcome::Done(count)
    }

    /// Applies a batch. Returns false if that panicked, and poisons everything.
    fn apply_timed(&self, ops: &[TreeOp]) -> bool {
        let start = (self.sampler.enabled() && ops.len() >= TIMED_BATCH_OPS_MIN).then(Instant::now);
        let applied = catch_unwind(AssertUnwindSafe(|| self.records.pinned(|| self.apply_all(ops, false))));
        if applied.is_err() {
            self.gate.poison("a change of the ordered index panicked");
            return false;
        }
        if let Some(start) = start {
            self.sampler.backend(ops.len() as u64, start.elapsed().as_nanos() as u64);
        }
        true
    }

    /// Applies operations in their order, pinned. With `upsert`, the tree may be newer than the
    /// operations.
    pub(crate) fn apply_all(&self, ops: &[TreeOp], upsert: bool) {
        for group in ops.chunks(GROUP_OPS) {
            lodestore_index::pinned(|| self.apply_group(group, upsert));
        }
    }

    fn apply_group(&self, group: &[TreeOp], upsert: bool) {
        self.trees.prefetch(group);
        for op in group {
            if op.inline_key().is_none() {
                self.records.prefetch(op.record().raw());
            }
            if !op.old().is_null() {
                // The header is read when the record is retired.
                self.records.prefetch(op.old().raw());
            }
        }
        for op in group {
            self.apply(op, upsert);
        }
    }

    fn apply(&self, op: &TreeOp, upsert: bool) {
        let tree = self.trees.get(op.tree());
        let records = &self.records;
        let expected = op.with_key(records, |key| match op.change() {
            Change::Insert(new) => {
                let displaced = tree.insert(records, key, new.raw());
                if displaced.is_some_and(|position| records.is_damaged(NvPtr::from_raw(position))) {
                    self.has_misplaced.store(true, Ordering::Release);
                }
                displaced.is_none()
            }
            Change::Replace(_, new) if upsert => tree.insert(records, key, new.raw()).is_some(),
            Change::Replace(old, new) => {
                let found = tree.replace(records, key, old.raw(), new.raw());
                if !found {
                    tree.insert(records, key, new.raw());
                }
                found
            }
            Change::Delete(_) if upsert => tree.remove(records, key, None).is_some(),
            Change::Delete(old) if records.is_cleared(old) => {
                // Either a walk that found the damage left the key out, or the tree has the record
                // under the key that the record reads as.
                if tree.remove(records, key, None).is_none() {
                    self.has_misplaced.store(true, Ordering::Release);
                }
                true
            }
            Change::Delete(old) => tree.remove(records, key, Some(old.raw())).is_some(),
        });
        if !expected && !upsert {
            self.surprises.fetch_add(1, Ordering::Relaxed);
        }
        if !op.old().is_null() {
            records.retire(op.old());
        }
    }

    /// Applies an operation in the writer, or appends it to the overflow during a rebuild.
    fn apply_directly(&self, number: usize, op: &TreeOp) {
        let queue = &self.queues[number];
        while queue.rebuilding.load(Ordering::Acquire) {
            let mut state = lock(&queue.state);
            if !state.rebuilding {
                break;
            }
            if self.gate.is_poisoned() {
                return;
            }
            if self.gate.waiting.load(Ordering::Relaxed) < self.config.overflow_max {
                state.overflow.push(*op);
                self.gate.waiting.fetch_add(1, Ordering::Relaxed);
                return;
            }
            drop(state);
            self.gate.wait_briefly();
        }
        if !self.gate.is_poisoned() {
            self.apply_timed(std::slice::from_ref(op));
        }
    }

    /// Waits until every operation pushed before the call is applied, and helps.
    pub(crate) fn drain(&self) -> Result<()> {
        let mut tails = [0; QUEUES_MAX];
        for (tail, queue) in tails.iter_mut().zip(&self.queues) {
            *tail = queue.ring.tail();
        }
        self.gate.wait()?;
        let mut backoff = Backoff::default();
        loop {
            let mut is_pending = false;
            let mut worked = false;
            for (number, queue) in self.queues.iter().enumerate() {
                let missing = tails[number].saturating_sub(queue.ring.completed());
                if missing == 0 {
                    continue;
                }
                is_pending = true;
                if missing as usize > BATCH_OPS_MAX {
                    self.workers.wake_owner(number);
                }
                if let WorkOutcome::Done(count @ 1..) = self.process_queue(number, missing as usize) {
                    self.helped.fetch_add(count as u64, Ordering::Relaxed);
                    worked = true;
                }
            }
            if !is_pending {
                return self.gate.check();
            }
            self.gate.check()?;
            if !worked {
                backoff.pause();
            }
        }
    }

    /// Returns the used share of the fullest queue.
    pub(crate) fn depth(&self) -> f64 {
        let share = |queue: &Queue| queue.ring.len() as f64 / queue.ring.capacity() as f64;
        self.queues.iter().map(share).fold(0.0, f64::max)
    }
}
