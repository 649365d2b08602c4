//! The backend threads: their assignment to queues, their sleep, and the adaption of their number
//! to the load.
//!
//! Thread `t` of `n` active ones owns the queues `q` with `q mod n == t`, and processes leftover
//! operations of other queues. The thread that consumes a queue does not affect the order of its
//! operations: a queue has one consumer at a time. Threads may therefore start and stop freely.
//!
//! # Sleep
//! The paper's threads poll. Here a thread that found few operations naps for [`NAP_TIME`], to save
//! the core. The next time it finds a batch, and the writers' cache lines move once instead of once
//! per operation. A thread is woken early if a queue is a quarter full, which writers check at
//! every 64th push. A drain with many operations left also wakes it. The first thread, after
//! [`EMPTY_NAPS_MAX`] empty naps, sleeps until a push. Other threads sleep until one of their
//! queues is a quarter full or they become active.
//!
//! # Invariants
//! * **No push is missed during sleep.** The first thread stores `asleep`, then reads all tails. A
//!   writer claims a tail, then reads `asleep`. All are sequentially consistent: one of the two
//!   sees the other.
//! * **No wake-up is lost.** A wake-up is an unpark, which also affects a later park. State is read
//!   again after every park.
//! * Threads end when `stopping` is set, which is never cleared. No thread is started afterwards.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use lodestore_contract::Result;
use lodestore_contract::threads::lock;
use lodestore_contract::threads::start_thread;
use lodestore_index::KeyResolver;
use lodestore_media::own_work;

use super::queues::{BATCH_OPS_MAX, Core, Retire, WorkOutcome};
use super::worker_pool::{ASLEEP_ID, NAPPING_ID, RUNNING_ID};

/// Length of a nap: the maximum delay of a push while its queue is less than a quarter full.
const NAP_TIME: Duration = Duration::from_millis(1);
/// Consecutive empty naps after which the first thread sleeps until a push.
const EMPTY_NAPS_MAX: u32 = 32;
/// Minimum operations of a round, or of a queue, that keep a thread busy. After fewer it pauses.
const BUSY_OPS_MIN: usize = 64;
/// Maximum spin before a nap, in steps of 32 pauses (about half a microsecond each).
const SPINS_MAX: u32 = 8;

impl<R: KeyResolver + Retire + Send + Sync + 'static> Core<R> {
    /// Starts threads until the system refuses one, and continues with fewer. Without any, writers
    /// with a full queue and readers of the tree do the work.
    pub(crate) fn start_threads_or_fewer(core: &Arc<Self>, count: usize) {
        if Self::start_threads(core, count).is_err() {
            core.workers.active.store(lock(&core.workers.handles).len(), Ordering::SeqCst);
        }
    }

    /// Starts threads until `count` have been started.
    pub(crate) fn start_threads(core: &Arc<Self>, count: usize) -> Result<()> {
        let workers = &core.workers;
        let mut handles = lock(&workers.handles);
        if workers.is_stopping() {
            return Ok(());
        }
        while handles.len() < count.min(workers.states.len()) {
            let number = handles.len();
            let shared = Arc::clone(core);
            let handle = start_thread(format!("hikv-backend-{number}"), move || own_work(|| run(&shared, number)))?;
            // Set by the new thread or here, whichever is first.
            let _ = workers.states[number].thread.set(handle.thread().clone());
            handles.push(handle);
        }
        Ok(())
    }

    /// Processes each queue once. Returns the number of operations.
    fn process_queues(&self, number: usize, active: usize) -> usize {
        let mut sum = 0;
        for queue in (number..self.queues.len()).step_by(active) {
            if let WorkOutcome::Done(count) = self.process_queue(queue, BATCH_OPS_MAX) {
                sum += count;
            }
        }
        if sum > 0 || active == 1 {
            return sum;
        }
        for (queue, other) in self.queues.iter().enumerate() {
            let owner = &self.workers.states[queue % active];
            if queue % active != number
                && !other.ring.is_empty()
                && (owner.state.load(Ordering::Relaxed) != RUNNING_ID || other.ring.len() >= BUSY_OPS_MIN)
                && let WorkOutcome::Done(count) = self.process_queue(queue, BATCH_OPS_MAX)
            {
                sum += count;
            }
        }
        sum
    }

    fn is_idle(&self) -> bool {
        self.gate.is_poisoned() || self.queues.iter().all(|queue| queue.ring.tail() == queue.ring.popped())
    }

    /// At the end of a window, reads its counts and follows the controller. Called by the first
    /// thread.
    fn adapt(core: &Arc<Self>) {
        let Some(control) = &core.workers.control else { return };
        let mut control = lock(control);
        if control.since.elapsed() < core.config.window {
            return;
        }
        let (totals, full) = (core.sampler.totals(), core.full.load(Ordering::Relaxed));
        let depth = if full == control.full { core.depth() } else { 1.0 };
        let window = totals.since(control.totals);
        let before = core.workers.active();
        let target = control.controller.step(&window, depth);
        (control.since, control.totals, control.full) = (Instant::now(), totals, full);
        if target == before {
            return;
        }
        control.changes += 1;
        drop(control);
        // If no thread can be started, the running threads process all queues; the next window
        // tries again.
        if Self::start_threads(core, target).is_ok() {
            core.workers.active.store(target, Ordering::SeqCst);
            core.workers.wake(target - 1);
        }
    }
}

/// The main loop of a backend thread.
fn run<R: KeyResolver + Retire + Send + Sync + 'static>(core: &Arc<Core<R>>, number: usize) {
    let workers = &core.workers;
    let _ = workers.states[number].thread.set(thread::current());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let spins_max = if cores > 1 { SPINS_MAX } else { 0 };
    let mut spins = spins_max;
    let mut empty = 0;
    let mut spun = false;
    while !workers.is_stopping() {
        let active = workers.active();
        if number >= active {
            workers.sleep(number, ASLEEP_ID, None, || number < workers.active.load(Ordering::SeqCst));
            continue;
        }
        let count = core.process_queues(number, active);
        if number == 0 {
            Core::adapt(core);
        }
        if count >= BUSY_OPS_MIN {
            // Spin longer while spinning ends in large batches.
            spins = if spun { (spins + 1).min(spins_max) } else { spins };
            (empty, spun) = (0, false);
        } else if !spun && spins > 0 {
            (0..spins * 32).for_each(|_| std::hint::spin_loop());
            spun = true;
        } else {
            spins = if spun { spins - 1 } else { u32::from(empty == 0 && spins_max > 0) };
            spun = false;
            empty = if count == 0 { empty + 1 } else { 0 };
            if !nap_or_sleep(core, number, empty) {
                // The queues hold operations that cannot be applied now: continue with naps.
                empty = 0;
            }
        }
    }
}

/// Naps, or sleeps if the last naps were empty. Returns false if it could not sleep.
fn nap_or_sleep<R: KeyResolver + Retire + Send + Sync + 'static>(core: &Core<R>, number: usize, empty: u32) -> bool {
    let workers = &core.workers;
    if empty < EMPTY_NAPS_MAX {
        return workers.sleep(number, NAPPING_ID, Some(NAP_TIME), || false);
    }
    if number > 0 {
        return workers.sleep(number, ASLEEP_ID, None, || false);
    }
    let slept = workers.sleep(0, ASLEEP_ID, None, || {
        workers.asleep.0.store(true, Ordering::SeqCst);
        !core.is_idle()
    });
    workers.asleep.0.store(false, Ordering::SeqCst);
    slept
}
