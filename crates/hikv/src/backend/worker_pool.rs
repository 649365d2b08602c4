//! The state of the backend threads: what each does, how many are active, and their statistics.
//! `worker.rs` runs the threads.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use lodestore_contract::threads::lock;

use crate::adapt::Controller;
use crate::sampler::Totals;

/// Maximum backend threads.
pub const THREADS_MAX: usize = 128;

/// The number of backend threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerCount {
    /// The number given by the paper's equations.
    Auto {
        /// Serving and backend threads together.
        threads: usize,
    },
    /// This number.
    Fixed(usize),
}

/// States of a thread ([`WorkerState::state`]).
pub(crate) const RUNNING_ID: u8 = 0;
pub(crate) const NAPPING_ID: u8 = 1;
pub(crate) const ASLEEP_ID: u8 = 2;

/// Escalating wait of a thread that cannot help: spins, yields, then sleeps.
#[derive(Default)]
pub(crate) struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Rounds that spin.
    const SPIN_ROUNDS_MAX: u32 = 6;
    /// Rounds after which the thread sleeps instead of yielding.
    const YIELD_ROUNDS_MAX: u32 = 24;

    pub(crate) fn pause(&mut self) {
        if self.rounds < Self::SPIN_ROUNDS_MAX {
            (0..1 << self.rounds).for_each(|_| std::hint::spin_loop());
        } else if self.rounds < Self::YIELD_ROUNDS_MAX {
            thread::yield_now();
        } else {
            let doublings = (self.rounds - Self::YIELD_ROUNDS_MAX).min(4);
            thread::sleep(Duration::from_micros(20 << doublings));
        }
        self.rounds = self.rounds.saturating_add(1);
    }
}

/// State of one thread.
#[repr(align(128))]
#[derive(Default)]
pub(crate) struct WorkerState {
    pub(crate) state: AtomicU8,
    pub(crate) thread: OnceLock<Thread>,
}

#[repr(align(128))]
#[derive(Default)]
pub(crate) struct Padded<T>(pub(crate) T);

/// All backend threads.
pub(crate) struct WorkerPool {
    pub(crate) states: Box<[WorkerState]>,
    pub(crate) handles: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) active: AtomicUsize,
    stopping: AtomicBool,
    /// The first thread sleeps until a push. Read at every push, rarely written.
    pub(crate) asleep: Padded<AtomicBool>,
    counts: Padded<Counts>,
    pub(crate) control: Option<Mutex<Control>>,
}

#[derive(Default)]
struct Counts {
    wakes: AtomicU64,
    naps: AtomicU64,
}

/// The adaption of the number of active threads, and the counts at the start of its window.
pub(crate) struct Control {
    pub(crate) controller: Controller,
    pub(crate) since: Instant,
    pub(crate) totals: Totals,
    pub(crate) full: u64,
    pub(crate) changes: u64,
}

/// Statistics of the backend threads.
#[derive(Default)]
pub(crate) struct WorkerStats {
    pub(crate) backends: u64,
    pub(crate) serving: u64,
    pub(crate) formula: u64,
    pub(crate) wakes: u64,
    pub(crate) naps: u64,
    pub(crate) windows: u64,
    pub(crate) changes: u64,
}

impl WorkerPool {
    pub(crate) fn new(backends: WorkerCount) -> Self {
        let (states, active, control) = match backends {
            WorkerCount::Fixed(count) => (count.min(THREADS_MAX), count.min(THREADS_MAX), None),
            WorkerCount::Auto { threads } => {
                let controller = Controller::new(threads.min(THREADS_MAX));
                let (max, active) = (threads.saturating_sub(1).min(THREADS_MAX), controller.current());
                let control =
                    Control { controller, since: Instant::now(), totals: Totals::default(), full: 0, changes: 0 };
                (max, active, Some(Mutex::new(control)))
            }
        };
        Self {
            states: (0..states).map(|_| WorkerState::default()).collect(),
            handles: Mutex::default(),
            active: AtomicUsize::new(active),
            stopping: AtomicBool::new(false),
            asleep: Padded::default(),
            counts: Padded::default(),
            control,
        }
    }

    #[inline]
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    pub(crate) fn stats(&self) -> WorkerStats {
        let mut stats = WorkerStats {
            backends: self.active() as u64,
            wakes: self.counts.0.wakes.load(Ordering::Relaxed),
            naps: self.counts.0.naps.load(Ordering::Relaxed),
            ..WorkerStats::default()
        };
        if let Some(control) = &self.control {
            let control = lock(control);
            stats.serving = (control.controller.total() as u64).saturating_sub(stats.backends);
            stats.formula = control.controller.formula() as u64;
            stats.windows = control.controller.windows();
            stats.changes = control.changes;
        }
        stats
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Wakes the first thread after a push, if it sleeps until one.
    #[inline]
    pub(crate) fn wake_if_asleep(&self) {
        if self.asleep.0.load(Ordering::SeqCst) && self.asleep.0.swap(false, Ordering::SeqCst) {
            self.wake(0);
        }
    }

    /// Wakes the thread that owns a queue.
    #[inline]
    pub(crate) fn wake_owner(&self, queue: usize) {
        let active = self.active();
        if active > 0 {
            self.wake(queue % active);
        }
    }

    /// Returns whether the first thread sleeps until a push.
    #[cfg(test)]
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.0.load(Ordering::SeqCst)
    }

    pub(crate) fn wake(&self, number: usize) {
        let Some(worker) = self.states.get(number) else { return };
        if worker.state.load(Ordering::SeqCst) == RUNNING_ID {
            return;
        }
        // A single waker is enough.
        if worker.state.swap(RUNNING_ID, Ordering::SeqCst) != RUNNING_ID
            && let Some(thread) = worker.thread.get()
        {
            self.counts.0.wakes.fetch_add(1, Ordering::Relaxed);
            thread.unpark();
        }
    }

    /// Ends all threads and waits for them. Later calls have no effect.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let handles = std::mem::take(&mut *lock(&self.handles));
        for handle in &handles {
            handle.thread().unpark();
        }
        for handle in handles {
            // A panic has poisoned the backend already, or was in the adaption and is harmless.
            let _ = handle.join();
        }
    }

    /// Sleeps in `state` for at most `timeout`, unless `ready` returns true. Returns whether it
    /// slept.
    pub(crate) fn sleep(
        &self,
        number: usize,
        state: u8,
        timeout: Option<Duration>,
        ready: impl FnOnce() -> bool,
    ) -> bool {
        let worker = &self.states[number];
        worker.state.store(state, Ordering::SeqCst);
        let sleeps = !self.stopping.load(Ordering::SeqCst) && !ready();
        if sleeps {
            self.counts.0.naps.fetch_add(1, Ordering::Relaxed);
            match timeout {
                Some(timeout) => thread::park_timeout(timeout),
                None => thread::park(),
            }
        }
        worker.state.store(RUNNING_ID, Ordering::SeqCst);
        sleeps
    }
}
