//! Updating queues (the work queues of the tree) and their consumers: the asynchronous half of HiKV
//! (ATC 2017, sections 3.3 and 3.4).
//!
//! A writer pushes each change of the ordered index to a queue, chosen by the key's hash, while it
//! holds the key's stripe lock. Backend threads (`worker.rs`) apply the changes. Any other thread
//! may apply them too. A writer that finds its queue full, and a scan that must see earlier writes,
//! apply operations themselves instead of waiting.
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
//!
//! # Modules
//! `gate` is the lowest: scans wait there for a rebuild. `worker_pool` has the state of the
//! threads. `queues` has the queues and applies their operations. `worker` runs the threads on the
//! queues, and `rebuild` the rebuild. [`Backend`] is their interface to the store.

mod gate;
mod queues;
mod rebuild;
#[cfg(test)]
mod tests;
mod worker;
mod worker_pool;

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestore_contract::Result;
use lodestore_index::{Direction, KeyResolver};

use self::queues::{Core, Queue};
use crate::sampler::Sampler;
use crate::tree_op::TreeOp;
use crate::trees::Trees;

pub use self::queues::{Config, QUEUES_MAX, Retire};
pub use self::worker_pool::{THREADS_MAX, WorkerCount};

/// The ordered index and its updates; see the module. Dropping it ends its threads without
/// draining; [`Backend::stop`] drains.
pub struct Backend<R: KeyResolver + Retire + Send + Sync + 'static> {
    core: Arc<Core<R>>,
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

    /// As [`Trees::read_range`]. The caller has drained, and is pinned.
    pub fn read_range<K: KeyResolver>(
        &self,
        records: &K,
        from: Bound<&[u8]>,
        direction: Direction,
        max: usize,
        out: &mut Vec<u64>,
    ) -> bool {
        self.core.trees.read_range(records, from, direction, max, out)
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
