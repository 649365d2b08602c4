//! The state of background work: what runs, what has failed, and how writers are slowed.
//! `background/mod.rs` has the rules and the invariants.

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Result};

use crate::background::failures::{Failure, Failures};
use crate::background::governor::Governor;
use crate::background::throttle::Throttle;
use crate::space::sizes::MEMTABLES_MAX;
use crate::tree::Tree;
use crate::version::view::View;

/// Frozen memtables at which writers are throttled.
const THROTTLE_MEMTABLES_MIN: usize = 2;
/// Time without writes after which migration serves reads.
const READ_MODE_DELAY: Duration = Duration::from_millis(200);
/// Time without writes after which everything is flushed and compacted.
const FULL_FLUSH_DELAY: Duration = Duration::from_secs(10);

/// The running tasks and the failures of ended ones.
#[derive(Default)]
pub(crate) struct Busy {
    pub(crate) flushing: bool,
    pub(crate) ranges: HashSet<u64>,
    pub(crate) collecting: bool,
    pub(crate) failures: Failures,
    /// Space is scarce: one task runs at a time.
    pub(crate) serial: bool,
    /// The task that was started last has been the only one since.
    pub(crate) is_only: bool,
    /// The task that ended last succeeded.
    pub(crate) has_succeeded: bool,
    /// Grows with each event that may make a task due.
    pub(crate) changes: u64,
}

impl Busy {
    /// Returns the number of running tasks.
    pub(crate) fn running_tasks(&self) -> usize {
        self.ranges.len() + usize::from(self.flushing) + usize::from(self.collecting)
    }

    /// Returns whether a range may be compacted or joined: no thread works on it, and it has no
    /// failure.
    pub(crate) fn can_start(&self, range: u64) -> bool {
        !self.ranges.contains(&range) && !self.failures.has_range(range)
    }

    /// Returns the outcome of a task, to be recorded. Returns `None` if the task lacked space while
    /// others ran: it is retried alone.
    pub(crate) fn record_outcome(&mut self, outcome: Result<()>) -> Option<Result<()>> {
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
pub(crate) struct Scheduler {
    pub(crate) busy: Mutex<Busy>,
    changed: Condvar,
    pub(crate) throttle: Throttle,
    /// The last sequence number that workers saw, and since when.
    seen: Mutex<Option<(u64, Instant)>>,
    pub(crate) governor: Governor,
    /// A merge of small tables left more than half as many: the store's items are too large for
    /// fewer tables, or space is scarce. No such merge runs until the next open.
    pub(crate) small_merges_stopped: AtomicBool,
    /// The last attempt to free space, if it freed none.
    pub(crate) failed_reclaim: Mutex<Option<Arc<FailedReclaim>>>,
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

impl Scheduler {
    /// Creates the state for a store with this many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            busy: Mutex::default(),
            changed: Condvar::new(),
            throttle: Throttle::new(),
            seen: Mutex::new(None),
            governor: Governor::new(workers),
            small_merges_stopped: AtomicBool::new(false),
            failed_reclaim: Mutex::new(None),
        }
    }

    /// Records how many memtables wait. The caller holds the publisher's lock (Invariant 3).
    pub(crate) fn set_frozen(&self, count: usize) {
        // With one waiting memtable, writers are as fast as flushes; with two, half as fast. A
        // third one stalls writers.
        let slow = (count >= THROTTLE_MEMTABLES_MIN)
            .then(|| self.governor.flush_bandwidth() / (1 << (count - THROTTLE_MEMTABLES_MIN).min(8)) as f64);
        // A stall lasts until one more memtable may wait.
        if (count as u64) < MEMTABLES_MAX - 1 || !self.throttle.is_stalled() {
            self.throttle.limit(slow);
        }
        self.wake();
    }

    /// Returns how much is due after the time without writes. `last`: the last sequence number.
    pub(crate) fn due(&self, last: u64) -> Due {
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

    /// Returns why the oldest memtable cannot be flushed, unless a flush is running.
    pub(crate) fn flush_failure(&self) -> Option<Failure> {
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
    pub(crate) fn retry(&self, all: bool) {
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
    pub(crate) fn changes(&self) -> u64 {
        lock(&self.busy).changes
    }

    /// Waits, at most for `most`, until a change after the `seen`-th. A change during the caller's
    /// search for work is not missed.
    pub(crate) fn wait_for_change(&self, seen: u64, most: Duration) {
        let busy = lock(&self.busy);
        drop(self.changed.wait_timeout_while(busy, most, |busy| busy.changes == seen));
    }
}

/// A tree with the state of its background work.
pub(crate) struct Background {
    pub(crate) tree: Tree,
    pub(crate) scheduler: Scheduler,
}

impl Deref for Background {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.tree
    }
}

/// Values that change if space may have been freed.
pub(crate) struct Stamp {
    pub(crate) free_bytes: u64,
    pub(crate) tasks_done: u64,
    pub(crate) generation: u64,
    pub(crate) keys: usize,
    pub(crate) snapshots: usize,
}

/// An attempt to free space that freed none.
pub(crate) struct FailedReclaim {
    pub(crate) stamp: Stamp,
    /// Past views that readers held at the end of the attempt.
    pub(crate) views: Vec<Weak<View>>,
    /// When the attempt ended and when the next is due, in milliseconds since 1970.
    pub(crate) ended_at: u64,
    pub(crate) retry_at: u64,
}
