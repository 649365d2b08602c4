//! Progress of the background recovery, shared with waiting threads.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use lodestore_contract::threads::{lock, start_helpers};
use lodestore_contract::{Error, RecoveryState, Result};
use lodestore_media::own_work;

/// Progress of recovery.
pub struct Recovery {
    opened: Instant,
    ready_after: Mutex<Duration>,
    phase: Mutex<Phase>,
    changed: Condvar,
    parts: AtomicU64,
    parts_done: AtomicU64,
    keys: AtomicU64,
    corrupt: AtomicU64,
    left_out: AtomicU64,
    cancelled: AtomicBool,
    unsure: AtomicBool,
}

#[derive(Debug, Clone)]
enum Phase {
    Running,
    Ordered,
    Done(Duration),
    Failed(String),
}

impl Recovery {
    /// Creates the progress of a store whose open began at `opened`.
    pub fn new(opened: Instant) -> Self {
        Self {
            opened,
            ready_after: Mutex::new(Duration::ZERO),
            phase: Mutex::new(Phase::Running),
            changed: Condvar::new(),
            parts: AtomicU64::new(1),
            parts_done: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            unsure: AtomicBool::new(false),
        }
    }

    /// Sets the number of parts to walk.
    pub fn expect_parts(&self, parts: u64) {
        self.parts.store(parts.max(1), Ordering::Relaxed);
    }

    /// Counts a part that was walked.
    pub fn count_part(&self) {
        self.parts_done.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a key that was found.
    pub fn count_key(&self) {
        self.keys.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the number of keys.
    pub fn set_keys(&self, keys: u64) {
        self.keys.store(keys, Ordering::Relaxed);
    }

    /// Counts a damage on the medium.
    pub fn count_corrupt(&self) {
        self.corrupt.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts damage that the open of the pool found.
    pub fn count_corrupt_places(&self, places: u64) {
        self.corrupt.fetch_add(places, Ordering::Relaxed);
    }

    /// Counts places whose records are missing from every walk.
    pub(crate) fn count_left_out(&self, places: u64) {
        self.left_out.fetch_add(places, Ordering::Relaxed);
    }

    /// Returns the number of places whose records are missing from every walk.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Notes that some extent of the index could not be marked: space that seems free may be in
    /// use.
    pub fn set_unsure(&self) {
        self.unsure.store(true, Ordering::Release);
    }

    /// Returns whether space that seems free may be in use.
    pub fn is_unsure(&self) -> bool {
        self.unsure.load(Ordering::Acquire)
    }

    /// Notes that operations are served.
    pub(crate) fn ready(&self) -> Duration {
        let ready = self.opened.elapsed();
        *lock(&self.ready_after) = ready;
        ready
    }

    /// Ends the walk early: the store is being closed.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Fails if the store is being closed.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn check_wanted(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    fn enter(&self, phase: Phase) {
        *lock(&self.phase) = phase;
        self.changed.notify_all();
    }

    /// Notes that everything is rebuilt. Returns the time since the open began.
    pub(crate) fn set_done(&self) -> Duration {
        let took = self.opened.elapsed();
        self.enter(Phase::Done(took));
        took
    }

    /// Notes that recovery has failed, or will not begin: no thread must wait for it.
    pub(crate) fn set_failed(&self, cause: &str) {
        self.enter(Phase::Failed(cause.into()));
    }

    /// Notes that the order of the keys is known, while recovery continues.
    pub fn set_ordered(&self) {
        self.enter(Phase::Ordered);
    }

    /// Waits until the order of the keys is known.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if recovery has failed.
    pub fn wait_ordered(&self) -> Result<()> {
        self.wait(|phase| !matches!(phase, Phase::Running))
    }

    /// Waits until everything is rebuilt.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if recovery has failed.
    pub fn wait_done(&self) -> Result<()> {
        self.wait(|phase| matches!(phase, Phase::Done(_)))
    }

    fn wait(&self, reached: impl Fn(&Phase) -> bool) -> Result<()> {
        let mut phase = lock(&self.phase);
        loop {
            match &*phase {
                Phase::Failed(cause) => return Err(Error::Poisoned { cause: cause.clone() }),
                phase if reached(phase) => return Ok(()),
                _ => {}
            }
            phase = self.changed.wait(phase).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns whether everything is rebuilt.
    pub fn is_done(&self) -> bool {
        matches!(*lock(&self.phase), Phase::Done(_))
    }

    /// Returns the state for statistics.
    pub fn state(&self) -> RecoveryState {
        let phase = lock(&self.phase).clone();
        let walked = self.parts_done.load(Ordering::Relaxed) as f64 / self.parts.load(Ordering::Relaxed) as f64;
        RecoveryState {
            done: matches!(phase, Phase::Done(_)),
            share: if matches!(phase, Phase::Done(_)) { 1.0 } else { walked.min(0.99) },
            keys: self.keys.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
            left_out: self.left_out(),
            ready_after: *lock(&self.ready_after),
            took: if let Phase::Done(took) = phase { took } else { Duration::ZERO },
        }
    }
}

/// Processes `count` parts with up to `threads` threads, including the caller's. Returns each
/// thread's share of the results.
///
/// # Errors
/// The first error of `work`.
///
/// # Panics
/// If `work` panics, in any thread.
pub fn share_out<T: Default + Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize, &mut T) -> Result<()> + Sync,
    finish: impl Fn(&mut T) + Sync,
) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let worker = || -> Result<T> {
        let mut share = T::default();
        loop {
            let part = next.fetch_add(1, Ordering::Relaxed);
            if part >= count {
                finish(&mut share);
                return Ok(share);
            }
            work(part, &mut share)?;
        }
    };
    let threads = threads.clamp(1, count);
    if threads == 1 {
        return Ok(vec![worker()?]);
    }
    std::thread::scope(|scope| {
        let workers = start_helpers(scope, "lodestore-rebuild", threads - 1, || own_work(worker));
        let own = worker();
        let join =
            |worker: ScopedJoinHandle<'_, Result<T>>| worker.join().unwrap_or_else(|panicked| resume_unwind(panicked));
        std::iter::once(own).chain(workers.into_iter().map(join)).collect()
    })
}
