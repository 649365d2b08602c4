//! Updating queues (the work queues of the tree) and their consumers: the asynchronous half of HiKV
//! (ATC 2017, sections 3.3 and 3.4).
//!
//! A writer pushes each change of the ordered index to a queue, chosen by the key's hash, while it
//! holds the key's stripe lock. Backend threads ([`worker`](super::worker)) apply the changes. Any
//! other thread may apply them too. A writer that finds its queue full, and a scan that must see
//! earlier writes, apply operations themselves instead of waiting.
//!
//! # Invariants
//! * **Order of a key.** Each key belongs to one queue. Its operations are pushed under its stripe
//!   lock, in the order in which they were published in the hash index. A queue has one consumer at
//!   a time, which applies in the order of the queue. The tree therefore reaches the state of the
//!   hash index.
//! * **Readable positions.** Only the thread that applied the replacing operation retires a
//!   position in the tree or in a pending operation. Appliers are pinned ([`Retire::pinned`]):
//!   another thread may retire a position that the tree just returned.
//! * **Tickets.** [`Backend::drain`] reads each queue's tail and waits until as many operations are
//!   completed: applied, not only popped. Writers never stop for it, and it waits only for
//!   operations pushed before it began.
//! * **Bounded waits.** Every waiting thread helps, or sleeps. A panic in an application poisons,
//!   and waiting threads get the error.
//!
//! # Threads and locks
//! Any thread may call everything. [`Backend::enqueue`] needs the key's stripe lock. Applying
//! acquires no stripe lock; [`Retire`] and the resolver must not acquire one either.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lodestore_contract::Result;
use lodestore_index::queue::Ring;
use lodestore_index::{Direction, KeyResolver};
use lodestore_inplace::lock;
use lodestore_media::NvPtr;

use crate::rebuild::{Gate, OVERFLOW_MAX};
use crate::sampler::Sampler;
use crate::tree_op::{Change, TreeOp};
use crate::trees::{TREES_MAX, Trees, share_of};
use crate::worker::{Backoff, WorkerCount, WorkerPool};

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
    depth_max: AtomicU64,
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
    surprises: AtomicU64,
    /// The tree has a damaged record in the place of another key, or has lost the record.
    has_misplaced: AtomicBool,
}

/// The ordered index and its updates; see the module. Dropping it ends its threads without
/// draining; [`Backend::stop`] drains.
pub struct Backend<R: KeyResolver + Retire + Send + Sync + 'static> {
    core: Arc<Core<R>>,
}

impl<R: KeyResolver + Retire + Send + Sync + 'static> Core<R> {
    fn new(config: Config, records: R, sampler: Arc<Sampler>) -> Self {
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
    fn enqueue(&self, hash: u64, op: TreeOp) {
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
        let mut wait = Backoff::default();
        loop {
            if self.gate.is_poisoned() {
                // The tree is lost, and every scan reports so; the hash index has the write.
                return;
            }
            match self.process_queue(number, BATCH_OPS_MAX) {
                WorkOutcome::Done(0) | WorkOutcome::Busy => wait.pause(),
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
    fn drain(&self) -> Result<()> {
        let mut tails = [0; QUEUES_MAX];
        for (tail, queue) in tails.iter_mut().zip(&self.queues) {
            *tail = queue.ring.tail();
        }
        self.gate.wait()?;
        let mut wait = Backoff::default();
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
                wait.pause();
            }
        }
    }

    /// Returns the used share of the fullest queue.
    pub(crate) fn depth(&self) -> f64 {
        let share = |queue: &Queue| queue.ring.len() as f64 / queue.ring.capacity() as f64;
        self.queues.iter().map(share).fold(0.0, f64::max)
    }
}

impl<R: KeyResolver + Retire + Send + Sync + 'static> Backend<R> {
    /// Creates an empty index, its queues, and as many of its threads as the system allows.
    pub fn start(config: Config, records: R, sampler: Arc<Sampler>) -> Self {
        let backend = Self { core: Arc::new(Core::new(config, records, sampler)) };
        Core::start_threads_or_fewer(&backend.core, backend.core.workers.active());
        backend
    }

    /// Enqueues one change of the key with this hash. The caller holds the key's stripe lock and
    /// has published the change. After a failure ([`Backend::check`]) the change is dropped.
    #[inline]
    pub fn enqueue(&self, hash: u64, op: TreeOp) {
        self.core.enqueue(hash, op);
    }

    /// Waits until every change whose [`Backend::enqueue`] returned before the call is in the tree,
    /// and helps. Waits for the end of a rebuild first.
    ///
    /// # Errors
    /// [`Error::Poisoned`](lodestore_contract::Error::Poisoned) if the tree was lost to a panic or
    /// a failed rebuild.
    #[inline]
    pub fn drain(&self) -> Result<()> {
        self.core.drain()
    }

    /// As [`Trees::collect`]. The caller has drained, and is pinned.
    pub fn collect<K: KeyResolver>(
        &self,
        records: &K,
        from: Bound<&[u8]>,
        direction: Direction,
        max: usize,
        out: &mut Vec<u64>,
    ) -> bool {
        self.core.trees.collect(records, from, direction, max, out)
    }

    /// Returns the trees.
    pub fn trees(&self) -> &Trees {
        &self.core.trees
    }

    /// Makes changes and scans wait until [`Backend::finish_rebuild`] or
    /// [`Backend::abandon_rebuild`]. Must be called before the first change.
    pub fn begin_rebuild(&self) {
        self.core.begin_rebuild();
    }

    /// Loads the trees by `install` (see [`Trees::load`]), applies the changes that waited, and
    /// lets scans continue.
    ///
    /// # Errors
    /// The error of `install`, or `Poisoned` if it panicked; the backend is then poisoned.
    pub fn finish_rebuild(&self, install: impl FnOnce(&Trees) -> Result<()>) -> Result<()> {
        self.core.finish_rebuild(install)
    }

    /// Poisons the backend after a failed rebuild: waiting threads get the error.
    pub fn abandon_rebuild(&self, cause: &str) {
        self.core.gate.poison(cause);
    }

    /// Checks that the tree is sound.
    ///
    /// # Errors
    /// [`Error::Poisoned`](lodestore_contract::Error::Poisoned) with the first cause.
    pub fn check(&self) -> Result<()> {
        self.core.gate.check()
    }

    /// Drains, and ends the threads. Later changes are applied by drains and by writers that find a
    /// queue full.
    ///
    /// # Errors
    /// As [`Backend::drain`]; the threads end in any case.
    pub fn stop(&self) -> Result<()> {
        let drained = self.core.drain();
        self.core.workers.stop();
        drained.and_then(|()| self.core.drain())
    }

    /// Returns the DRAM bytes of the queues.
    pub fn fixed_dram_bytes(&self) -> u64 {
        self.core.queues.iter().map(|queue| queue.ring.dram_bytes() as u64).sum()
    }

    /// Returns the DRAM bytes of the trees and of operations that wait for a rebuild.
    pub fn dram_bytes(&self) -> u64 {
        let waiting = self.core.gate.waiting.load(Ordering::Relaxed) * size_of::<TreeOp>() as u64;
        self.core.trees.dram_bytes() as u64 + waiting
    }

    /// Returns the number of operations ever enqueued, without operations that a writer applied
    /// itself.
    pub fn enqueued(&self) -> u64 {
        self.core.queues.iter().map(|queue| queue.ring.tail()).sum()
    }

    /// Returns whether the tree has a damaged record in the place of another key, or has lost the
    /// record.
    pub(crate) fn has_misplaced(&self) -> bool {
        self.core.has_misplaced.load(Ordering::Acquire)
    }

    /// Returns the backend's statistics.
    pub fn stats(&self) -> BackendStats {
        let core = &*self.core;
        let depth = |queue: &Queue| queue.ring.len() as u64;
        let workers = core.workers.stats();
        BackendStats {
            depth: core.queues.iter().map(depth).max().unwrap_or(0),
            depth_max: core.queues.iter().map(|queue| queue.depth_max.load(Ordering::Relaxed)).max().unwrap_or(0),
            pending: core.queues.iter().map(|queue| queue.ring.tail().saturating_sub(queue.ring.completed())).sum(),
            applied: core.queues.iter().map(|queue| queue.ring.completed()).sum(),
            helped: core.helped.load(Ordering::Relaxed),
            full: core.full.load(Ordering::Relaxed),
            surprises: core.surprises.load(Ordering::Relaxed),
            rebuild_waiting: core.gate.waiting.load(Ordering::Relaxed),
            backends: workers.backends,
            serving: workers.serving,
            formula: workers.formula,
            wakes: workers.wakes,
            naps: workers.naps,
            windows: workers.windows,
            changes: workers.changes,
        }
    }
}

impl<R: KeyResolver + Retire + Send + Sync + 'static> Drop for Backend<R> {
    fn drop(&mut self) {
        self.core.workers.stop();
    }
}

/// The backend's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendStats {
    /// Operations in the fullest queue now.
    pub depth: u64,
    /// Maximum operations that were seen in a queue.
    pub depth_max: u64,
    /// Operations pushed and not completed, in all queues.
    pub pending: u64,
    /// Operations completed through queues.
    pub applied: u64,
    /// Operations of `applied` by helping writers and scans.
    pub helped: u64,
    /// Times that a writer found its queue full.
    pub full: u64,
    /// Operations that found an unexpected state of the tree.
    pub surprises: u64,
    /// Operations that wait for the rebuild.
    pub rebuild_waiting: u64,
    /// Backend threads that are active.
    pub backends: u64,
    /// Threads left for serving, of the total of the adaption; 0 if the number is fixed.
    pub serving: u64,
    /// Backend threads by the paper's formula alone; 0 if the number is fixed, or nothing was
    /// measured yet.
    pub formula: u64,
    /// Times that a sleeping backend thread was woken.
    pub wakes: u64,
    /// Times that a backend thread went to sleep.
    pub naps: u64,
    /// Windows of the adaption.
    pub windows: u64,
    /// Windows that changed the number of active threads.
    pub changes: u64,
}

#[cfg(test)]
#[path = "backend_tests.rs"]
mod tests;
