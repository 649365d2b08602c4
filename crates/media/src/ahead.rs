//! Work done before it is needed, by one background thread a pool: the next region is made and touched, the mapping of
//! an opened store is filled, small pages are joined to huge ones.
//!
//! Invariants
//! * The thread never reads or writes a byte of a region; it makes mappings and advises the kernel about them.
//! * At most one region is being made or kept as spare; it is unfinished (`files.rs`) until a grower takes it.
//! * The thread holds no reference to the pool; the pool joins it before it goes (`Ahead::stop`).
//! * Joining pages makes whoever touches them wait for milliseconds, so the thread rests three times as long after each.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use lodestore_contract::Result;

use crate::files::{Made, RegionMaker};
use crate::mutex::lock;
use crate::pace::Pace;
use crate::region::{Advice, HUGE_BYTES, Mapping};

/// Bytes filled between two looks at what else there is to do.
const FILL_BYTES: u64 = 32 << 20;

#[derive(Default)]
struct Work {
    /// The region to make next: index and length.
    wanted: Option<(u16, u64)>,
    /// The one being made.
    making: Option<(u16, u64)>,
    /// The one that is ready.
    spare: Option<(u16, Made)>,
    /// Mappings to be filled by reading, with how far each is.
    fill: VecDeque<(Arc<Mapping>, u64)>,
    /// Mappings whose pages are to be joined, with how far each is.
    join: VecDeque<(Arc<Mapping>, u64)>,
}

struct Shared {
    maker: RegionMaker,
    work: Mutex<Work>,
    changed: Condvar,
    stop: AtomicBool,
    pace: Pace,
}

/// The background thread, started with its first work.
pub(crate) struct Ahead {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// A spare is wanted or there: spares the hot path the lock.
    asked: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Work> {
        lock(&self.work)
    }
}

impl Ahead {
    /// For a pool whose regions have `region_bytes` bytes.
    pub(crate) fn new(maker: RegionMaker, region_bytes: u64) -> Self {
        let shared = Shared {
            maker,
            work: Mutex::new(Work::default()),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            pace: Pace::new(region_bytes),
        };
        Self { shared: Arc::new(shared), thread: Mutex::new(None), asked: AtomicBool::new(false) }
    }

    pub(crate) fn maker(&self) -> &RegionMaker {
        &self.shared.maker
    }

    /// How fast the pool fills.
    #[inline]
    pub(crate) fn pace(&self) -> &Pace {
        &self.shared.pace
    }

    fn give(&self, change: impl FnOnce(&mut Work)) {
        change(&mut self.shared.lock());
        self.shared.changed.notify_all();
        let mut thread = lock(&self.thread);
        if thread.is_none() && !self.shared.stop.load(Ordering::Acquire) {
            let shared = Arc::clone(&self.shared);
            // Without the thread everything works, only later; so a refusal to start it is no error.
            *thread = std::thread::Builder::new().name("lodestore-ahead".into()).spawn(move || run(&shared)).ok();
        }
    }

    /// Asks for a spare region; cheap when it was asked for already.
    pub(crate) fn want(&self, index: u16, len: u64) {
        if !self.asked.swap(true, Ordering::Relaxed) {
            self.give(|work| work.wanted = Some((index, len)));
        }
    }

    /// Whether a spare was asked for and not taken yet.
    #[inline]
    pub(crate) fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Fills this mapping's page table behind the caller.
    pub(crate) fn fill(&self, mapping: Arc<Mapping>) {
        self.give(|work| work.fill.push_back((mapping, 0)));
    }

    /// Joins this mapping's small pages to huge ones behind the caller.
    pub(crate) fn join(&self, mapping: Arc<Mapping>) {
        if mapping.len() >= HUGE_BYTES {
            self.give(|work| work.join.push_back((mapping, 0)));
        }
    }

    /// Region `index` of `len` bytes: the spare, if it is that one (waiting for it where it is being made), or a new one.
    ///
    /// # Errors
    /// As [`RegionMaker::make`].
    pub(crate) fn take_or_make(&self, index: u16, len: u64) -> Result<Made> {
        let mut work = self.shared.lock();
        while work.making.is_some() {
            work = self.shared.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
        work.wanted = None;
        let spare = work.spare.take();
        drop(work);
        self.asked.store(false, Ordering::Relaxed);
        if let Some((found, made)) = spare
            && found == index
            && made.mapping.len() == len
        {
            return Ok(made);
        }
        let never = AtomicBool::new(false);
        self.shared.maker.make(index, len, &never)?.ok_or(lodestore_contract::Error::Closed)
    }

    /// Ends the thread and removes an unused spare. Idempotent.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        drop(self.shared.lock());
        self.shared.changed.notify_all();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // A panic there is a bug of ours; the store does not depend on the thread.
            let _ = thread.join();
        }
        let mut work = self.shared.lock();
        if let Some((index, _)) = work.spare.take() {
            let _ = std::fs::remove_file(crate::files::unfinished_path(&self.shared.maker.dir, index));
        }
        *work = Work::default();
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The thread.
fn run(shared: &Shared) {
    let mut work = shared.lock();
    while !shared.stop.load(Ordering::Acquire) {
        if let Some((index, len)) = work.wanted.take() {
            work.making = Some((index, len));
            drop(work);
            let start = Instant::now();
            let made = shared.maker.make(index, len, &shared.stop);
            shared.pace.made(start.elapsed());
            work = shared.lock();
            work.making = None;
            // A medium that is full now may have room when the region is needed: then it is tried again, and told.
            work.spare = made.ok().flatten().map(|made| (index, made));
            shared.changed.notify_all();
        } else if let Some((mapping, at)) = work.fill.pop_front() {
            drop(work);
            let slice = FILL_BYTES.min(mapping.len() - at);
            let done = mapping.advise(at, slice, Advice::PopulateRead).is_err() || at + slice == mapping.len();
            work = shared.lock();
            if !done {
                work.fill.push_front((mapping, at + slice));
            }
        } else if let Some((mapping, at)) = work.join.pop_front() {
            drop(work);
            let start = Instant::now();
            // Busy pages stay small; a kernel or file system that joins none says so at once.
            let joined = match mapping.advise(at, HUGE_BYTES, Advice::Collapse) {
                Ok(()) => true,
                Err(refused) => refused.raw_os_error() != Some(libc::EINVAL),
            };
            let spent = start.elapsed();
            work = shared.lock();
            if joined && at + 2 * HUGE_BYTES <= mapping.len() {
                work.join.push_front((mapping, at + HUGE_BYTES));
            }
            if !shared.stop.load(Ordering::Acquire) && work.wanted.is_none() {
                work = shared.changed.wait_timeout(work, 3 * spent).unwrap_or_else(PoisonError::into_inner).0;
            }
        } else {
            work = shared.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
