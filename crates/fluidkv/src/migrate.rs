//! Adaptive migration (FluidKV, VLDB 2024): which thread flushes and compacts, when, and how
//! writers are throttled.
//!
//! Rule: a frozen memtable is flushed before anything is compacted. A range is compacted when its
//! buffered bytes reach `buffer-percent` of its stable bytes, or when it has `runs-max` runs. Of
//! several such ranges, the one furthest beyond its trigger is compacted first.
//!
//! `adapt.rs` decides from measurements how many workers may do this, and how early a range is
//! compacted.
//!
//! While there are no writes, migration serves reads (the paper's read-optimised and read-only
//! modes). A memtable that is worth a flush is frozen, and ranges are compacted at an eighth of
//! their trigger. After a long time without writes, everything is flushed and compacted: reads find
//! all data in one place, and DRAM is freed. An occasional write thus causes no rewrite of ranges.
//!
//! Garbage of the value log is collected (`collect.rs`) when its share exceeds
//! `value-garbage`. The collection has priority if it is further beyond its trigger than any range.
//! A segment without live bytes is freed at once.
//!
//! Further tasks, by priority:
//! * If nothing else is due, a range without runs is compacted if it has many small tables
//!   (`compact.rs`).
//! * If that is not due either, two neighbouring ranges with little data are joined (`view.rs` has
//!   the limits).
//! * If the reserve lacks free space, the largest range is halved, if the split costs less space
//!   than it saves (`compact.rs`).
//!
//! `task.rs` chooses by these rules and runs the task. `settle.rs` runs everything that is due at
//! once (`settle`: flush and compact).
//!
//! If a task lacks space while others run, it is retried *alone*, and so are all later tasks, until
//! the reserve is whole. The reserve holds the space of one task (`reserve.rs`).
//!
//! Writers are throttled to the speed of flushes once one memtable waits in addition to the one
//! that is being flushed (`pace.rs`). Writers are stalled when the memtables have used up their
//! share of the DRAM budget, until one is flushed. `stats` reports how often and how long.
//!
//! A failed task waits until it may succeed (`failures.rs`), and `settle` reports the failure.
//!
//! Invariants
//! 1. One thread flushes at a time, the oldest memtable first. One thread at a time compacts or
//!    joins a range. One thread collects. A flush that finds other ranges at its end than at its
//!    beginning is built again. A thread that works on a range holds it (`busy.ranges`). A range is
//!    split by its holder alone. A thread that splits a range that has waited for its split holds
//!    the range until the view shows its halves.
//! 2. No thread waits here while it holds a stripe or the publisher's lock. The lock of `busy` is
//!    acquired after the publisher's lock, never before it.
//! 3. The count of waiting memtables, and whether writers are stalled, are read and changed under
//!    the publisher's lock. The count never exceeds its maximum, and the last count recorded is the
//!    last one published. A count that came late would stall writers for a flush that no thread has
//!    to make.

mod refusal;
mod settle;
mod task;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};

use crate::adapt::{Governor, Sample};
use crate::failures::{Failure, Failures};
use crate::inner::{Inner, Rotation};
use crate::locks::lock;
use crate::pace::Pace;
use crate::sizes::MEMTABLES_MAX;
use refusal::Refusal;

pub(crate) use settle::RECLAIM_TIMEOUT;

/// How long a worker sleeps if no task is due.
const IDLE_PAUSE: Duration = Duration::from_millis(50);
/// Time without writes after which migration serves reads.
const READ_MODE_DELAY: Duration = Duration::from_millis(200);
/// Time without writes after which everything is flushed and compacted.
const FULL_FLUSH_DELAY: Duration = Duration::from_secs(10);
/// Divisor: while there are no writes, a memtable with this share of a full log is worth a flush.
const IDLE_FLUSH_DIVISOR: u64 = 16;
/// Longest time that a writer waits before it checks again.
const WRITER_WAIT_TIMEOUT: Duration = Duration::from_millis(20);
/// Frozen memtables at which writers are throttled.
const THROTTLE_MEMTABLES_MIN: usize = 2;

#[derive(Default)]
struct Busy {
    flushing: bool,
    ranges: HashSet<u64>,
    collecting: bool,
    failures: Failures,
    /// Space is scarce: one task runs at a time.
    serial: bool,
    /// The task that was started last has been the only one since.
    is_only: bool,
    /// The task that ended last succeeded.
    has_succeeded: bool,
    /// Grows with each event that may make a task due.
    changes: u64,
}

impl Busy {
    /// Returns the number of running tasks.
    fn working(&self) -> usize {
        self.ranges.len() + usize::from(self.flushing) + usize::from(self.collecting)
    }

    /// Returns whether a range may be compacted or joined: no thread works on it, and it has no
    /// failure.
    fn can_start(&self, range: u64) -> bool {
        !self.ranges.contains(&range) && !self.failures.has_range(range)
    }

    /// Returns the outcome of a task, to be recorded. Returns `None` if the task lacked space while
    /// others ran: it is retried alone.
    fn record_outcome(&mut self, outcome: Result<()>) -> Option<Result<()>> {
        let was_only = std::mem::take(&mut self.is_only);
        self.has_succeeded = outcome.is_ok();
        if !was_only && matches!(outcome, Err(Error::Full { .. })) {
            self.serial = true;
            return None;
        }
        Some(outcome)
    }
}

/// The state of background work.
pub(crate) struct Migration {
    busy: Mutex<Busy>,
    changed: Condvar,
    pub(crate) pace: Pace,
    /// The last sequence number that workers saw, and since when.
    seen: Mutex<Option<(u64, Instant)>>,
    pub(crate) governor: Governor,
    /// A merge of small tables left more than half as many: the store's items are too large for
    /// fewer tables, or space is scarce. No such merge runs until the next open.
    pub(crate) small_merges_stopped: AtomicBool,
    /// The last attempt to free space, if it freed none.
    refusal: Mutex<Option<Arc<Refusal>>>,
}

/// How much background work is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// Tasks that writers need.
    Needed,
    /// Also tasks that make reads faster, if they are worth it.
    Worthwhile,
    /// All tasks.
    All,
    /// Also tasks that free space, at any cost.
    Scarce,
}

impl Migration {
    /// Creates the state for a store with this many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            busy: Mutex::default(),
            changed: Condvar::new(),
            pace: Pace::new(),
            seen: Mutex::new(None),
            governor: Governor::new(workers),
            small_merges_stopped: AtomicBool::new(false),
            refusal: Mutex::new(None),
        }
    }

    /// Records how many memtables wait. The caller holds the publisher's lock (Invariant 3).
    pub(crate) fn set_frozen(&self, count: usize) {
        // One memtable waits: as fast as flushes. Two: half as fast, so that no third one waits,
        // which stalls writers.
        let slow = (count >= THROTTLE_MEMTABLES_MIN)
            .then(|| self.governor.flush_bandwidth() / (1 << (count - THROTTLE_MEMTABLES_MIN).min(8)) as f64);
        // A stall lasts until one more memtable may wait.
        if (count as u64) < MEMTABLES_MAX - 1 || !self.pace.is_stalled() {
            self.pace.limit(slow);
        }
        self.wake();
    }

    /// Returns how much is due after the time without writes. `last`: the last sequence number.
    fn due(&self, last: u64) -> Due {
        let mut seen = lock(&self.seen);
        match *seen {
            Some((number, since)) if number == last => match since.elapsed() {
                quiet if quiet >= FULL_FLUSH_DELAY => Due::All,
                quiet if quiet >= READ_MODE_DELAY => Due::Worthwhile,
                _ => Due::Needed,
            },
            _ => {
                *seen = Some((last, Instant::now()));
                Due::Needed
            }
        }
    }

    /// Returns whether space is scarce, so that one task runs at a time.
    pub(crate) fn is_serial(&self) -> bool {
        lock(&self.busy).serial
    }

    /// Returns the number of ranges that threads work on.
    pub(crate) fn compacting(&self) -> usize {
        lock(&self.busy).ranges.len()
    }

    /// Waits until a memtable has been flushed.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`]; [`Error::Full`] if the flush lacked space,
    /// [`Error::Corrupt`] if it met damage, [`Error::Io`] if the operating system refused an
    /// operation.
    pub(crate) fn wait_for_flush(&self, inner: &Inner) -> Result<()> {
        loop {
            let mut busy = lock(&self.busy);
            if !self.pace.is_stalled() {
                return Ok(());
            }
            inner.open.check()?;
            inner.pool.check()?;
            if !busy.flushing
                && let Some(error) = busy.failures.take_flush_error()
            {
                return Err(flush_error(error));
            }
            let seen = busy.changes;
            drop(busy);
            if inner.options.workers == 0 {
                // The store has no workers: this thread does it, unless another writer does so now.
                inner.run_due_tasks(Due::Needed);
            }
            self.wait_for_change(seen, WRITER_WAIT_TIMEOUT);
        }
    }

    /// Returns why the oldest memtable cannot be flushed, unless a flush is running.
    fn flush_failure(&self) -> Option<Failure> {
        let busy = lock(&self.busy);
        busy.failures.flush().filter(|_| !busy.flushing).cloned()
    }

    /// Returns whether a flush is running.
    pub(crate) fn is_flushing(&self) -> bool {
        lock(&self.busy).flushing
    }

    /// Holds the given ranges that no thread works on, until [`Self::release_ranges`]. Returns
    /// their ids. The caller holds the publisher's lock.
    pub(crate) fn hold_idle_ranges(&self, ids: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut busy = lock(&self.busy);
        ids.filter(|id| busy.ranges.insert(*id)).collect()
    }

    /// Releases ranges once the view shows their changes.
    pub(crate) fn release_ranges(&self, ids: &[u64]) {
        let mut busy = lock(&self.busy);
        ids.iter().for_each(|id| {
            busy.ranges.remove(id);
        });
        drop(busy);
        self.wake();
    }

    /// Allows retries of failed tasks; of tasks that met damage only if `all`.
    fn retry(&self, all: bool) {
        let failures = &mut lock(&self.busy).failures;
        if all {
            failures.clear();
        } else {
            failures.clear_transient();
        }
    }

    /// Wakes workers, to work or to end.
    pub(crate) fn wake(&self) {
        lock(&self.busy).changes += 1;
        self.changed.notify_all();
    }

    /// Returns the number of changes so far.
    fn changes(&self) -> u64 {
        lock(&self.busy).changes
    }

    /// Waits, at most for `most`, until a change after the `seen`-th. A change during the caller's
    /// search for work is not missed.
    fn wait_for_change(&self, seen: u64, most: Duration) {
        let busy = lock(&self.busy);
        drop(self.changed.wait_timeout_while(busy, most, |busy| busy.changes == seen));
    }
}

/// Returns the error of a failed flush for a writer. Damage is that of another key.
fn flush_error(error: Error) -> Error {
    match error {
        Error::Corrupt { place, what, .. } => {
            Error::corrupt(place, format!("no more is written, since what is there cannot be flushed: {what}"))
        }
        other => other,
    }
}

impl Inner {
    /// Freezes a memtable that is full. If too many wait already, stalls writers.
    pub(crate) fn freeze(&self, generation: u64) {
        let rotation = self.rotate_or(generation, || self.migration.pace.stall());
        if self.options.workers == 0 && rotation == Rotation::Done {
            self.run_due_tasks(Due::Needed);
        }
    }

    /// Runs a worker until the store is closed.
    pub(crate) fn run_worker(&self) {
        while self.open.is_open() {
            let seen = self.migration.changes();
            let due = self.migration.due(self.order.last());
            self.freeze_if_due(due);
            self.migration.governor.tick(Instant::now(), || self.sample());
            if let Some(task) = self.next_task(due) {
                self.run(task);
                continue;
            }
            if self.open.is_open() {
                self.migration.wait_for_change(seen, IDLE_PAUSE);
            }
        }
    }

    /// Returns a sample for the governor.
    fn sample(&self) -> Sample {
        let view = self.view.load();
        let active = view.active.log_bytes();
        let retired = self.counts.logged_bytes.load(Ordering::Relaxed);
        Sample {
            logged: retired + active,
            writes: self.order.last(),
            reads: self.counts.reads.load(Ordering::Relaxed),
            frozen: view.frozen.len(),
        }
    }

    /// Freezes the active memtable while there are no writes, if it is worth it.
    fn freeze_if_due(&self, due: Due) {
        let (generation, bytes) = {
            let view = self.view.load();
            (view.active.generation, if view.active.is_empty() { 0 } else { view.active.log_bytes() })
        };
        let least = match due {
            Due::Needed => return,
            Due::Worthwhile => self.sizes.memtable / IDLE_FLUSH_DIVISOR,
            Due::All | Due::Scarce => 1,
        };
        if bytes >= least && self.pool.check().is_ok() {
            self.rotate_or(generation, || ());
        }
    }
}

#[cfg(test)]
mod tests;
