//! Adaptive migration (FluidKV, VLDB 2024): who flushes and compacts, when, and how writers are held back.
//!
//! The rule. A frozen memtable is flushed before anything is compacted. A range is compacted when its buffered bytes have reached
//! `buffer-percent` of its stable ones, or it has `runs-max` runs; of several the one that is furthest beyond.
//!
//! How many workers may do so, and how soon a range is compacted, follow what is measured: `adapt.rs` has that rule.
//!
//! While nobody writes, reads are what matters (the paper's read-optimised and read-only modes): a memtable that is worth a flush is frozen,
//! and ranges are compacted at an eighth of their threshold. Once nobody has written for long, everything goes to where reads find it in one
//! place, and DRAM is given back. So a write now and then costs no rewriting of ranges.
//!
//! The value log is collected (`value_log/collect.rs`) when more of it is garbage than `value-garbage` allows, if that is further beyond than any range is;
//! a segment with nothing live is freed at once.
//!
//! A range without runs is compacted where small tables crowd it (`compact.rs`), if nothing else is due.
//! Where nothing of that is due, two neighbouring ranges of which little is left are joined (`view.rs` says how little).
//! Where there is no room for what the reserve needs, the largest range is halved, if that takes less than it frees of the need (`compact.rs`).
//! `task.rs` chooses by it and does what was chosen; `settle.rs` has all of it done at once.
//!
//! Where one of these finds no room while others work it is tried again *alone*, and all behind it, until the reserve is whole: it holds what one of them takes
//! (`reserve.rs`).
//!
//! Writers are slowed to the speed of flushes once one memtable waits behind the one that is being flushed (`pace.rs`). They are
//! stopped when the memtables have used up their part of the DRAM budget, until one is flushed. `stats` says how often and how long.
//!
//! What failed waits until it may go better (`failures.rs`), and a settle tells of it.
//!
//! Invariants
//! 1. One thread flushes at a time, the oldest memtable first; a range is compacted, or joined, by one thread at a time; one thread collects. A flush that meets
//!    other ranges at its end than at its beginning is made anew.
//!    Who works on a range holds it (`busy.ranges`). A range is split by its holder alone: who splits one that has waited for it holds it until the view shows its
//!    halves.
//! 2. Nobody waits here while holding a stripe, or the publisher's lock. The lock of `busy` is taken behind the publisher's, never before.
//! 3. The count of memtables that wait, and with it whether writers are stopped, is looked at and changes under the publisher's lock: there are never more than may
//!    be, and what is noted last is what was published last. A count that came late would stop writers for a flush that nobody has to make.

mod refusal;
mod settle;
mod task;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};

use crate::adapt::{Governor, Reading};
use crate::failures::{Failures, Trouble};
use crate::inner::{Inner, MEMTABLES, Rotation, lock};
use crate::pace::Pace;
use refusal::Refusal;

pub(crate) use settle::RECLAIM;

/// How long a worker sleeps where there is nothing to do.
const IDLE: Duration = Duration::from_millis(50);
/// How long nobody must have written until reads are what matters.
const QUIET: Duration = Duration::from_millis(200);
/// How long nobody must have written until everything is flushed and compacted.
const STILL: Duration = Duration::from_secs(10);
/// Part of a full memtable's log that is worth a flush while it is quiet.
const WORTH: u64 = 16;
/// How long a writer waits at most before it looks again.
const WAIT: Duration = Duration::from_millis(20);
/// Frozen memtables at which writers are slowed.
const SLOW: usize = 2;

#[derive(Default)]
struct Busy {
    flushing: bool,
    ranges: HashSet<u64>,
    collecting: bool,
    failures: Failures,
    /// Room is scarce: one task at a time.
    alone: bool,
    /// The task that was handed out last has been the only one since.
    is_only: bool,
    /// The task that ended last came to its end.
    made_room: bool,
    /// Grows with whatever may make something due.
    changes: u64,
}

impl Busy {
    /// Tasks under way.
    fn working(&self) -> usize {
        self.ranges.len() + usize::from(self.flushing) + usize::from(self.collecting)
    }

    /// Whether a range may be compacted or joined: nobody works on it, and it did not fail.
    fn may_take(&self, range: u64) -> bool {
        !self.ranges.contains(&range) && !self.failures.has_range(range)
    }

    /// The end of a task, to be taken note of; none where it found no room beside others, and is to be tried again alone.
    fn ended(&mut self, outcome: Result<()>) -> Option<Result<()>> {
        let was_only = std::mem::take(&mut self.is_only);
        self.made_room = outcome.is_ok();
        if !was_only && matches!(outcome, Err(Error::Full { .. })) {
            self.alone = true;
            return None;
        }
        Some(outcome)
    }
}

/// The state of the work behind.
pub(crate) struct Migration {
    busy: Mutex<Busy>,
    changed: Condvar,
    pub(crate) pace: Pace,
    /// The sequence as workers last saw it change, and when.
    seen: Mutex<Option<(u64, Instant)>>,
    pub(crate) governor: Governor,
    /// A merge of small tables came to as many: this store's items are too large for fewer, or room is scarce. No more of them until the next open.
    pub(crate) crowds_stay: AtomicBool,
    /// The last attempt to make room, if it made none.
    refusal: Mutex<Option<Arc<Refusal>>>,
}

/// How much of the work behind is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// What writers need.
    Needed,
    /// What makes reads quicker, too, where it is worth it.
    Worthwhile,
    /// All there is.
    All,
    /// Whatever makes room, too, at whatever price.
    Scarce,
}

impl Migration {
    /// For a store with so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            busy: Mutex::default(),
            changed: Condvar::new(),
            pace: Pace::new(),
            seen: Mutex::new(None),
            governor: Governor::new(workers),
            crowds_stay: AtomicBool::new(false),
            refusal: Mutex::new(None),
        }
    }

    /// Takes note of how many memtables wait; with the publisher's lock held (Invariant 3).
    pub(crate) fn set_frozen(&self, count: usize) {
        // One that waits: as fast as flushes go. Two: half as fast, so that it never comes to three, where writers are stopped.
        let slow = (count >= SLOW).then(|| self.governor.flush_bandwidth() / (1 << (count - SLOW).min(8)) as f64);
        // A stop holds until there is room for one more.
        if (count as u64) < MEMTABLES - 1 || !self.pace.is_stopped() {
            self.pace.limit(slow);
        }
        self.wake();
    }

    /// What is due, given the last number, by how long nobody has written.
    fn due(&self, last: u64) -> Due {
        let mut seen = lock(&self.seen);
        match *seen {
            Some((number, since)) if number == last => match since.elapsed() {
                quiet if quiet >= STILL => Due::All,
                quiet if quiet >= QUIET => Due::Worthwhile,
                _ => Due::Needed,
            },
            _ => {
                *seen = Some((last, Instant::now()));
                Due::Needed
            }
        }
    }

    /// Whether room is scarce, so that one task works at a time.
    pub(crate) fn is_alone(&self) -> bool {
        lock(&self.busy).alone
    }

    /// Ranges that are being compacted.
    pub(crate) fn compacting(&self) -> usize {
        lock(&self.busy).ranges.len()
    }

    /// Waits until a memtable was flushed.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`]; [`Error::Full`] where the flush found no room, [`Error::Corrupt`] where it met damage, [`Error::Io`] where the system refused it
    /// something.
    pub(crate) fn wait_until_free(&self, inner: &Inner) -> Result<()> {
        loop {
            let mut busy = lock(&self.busy);
            if !self.pace.is_stopped() {
                return Ok(());
            }
            inner.open.check()?;
            inner.pool.check()?;
            if !busy.flushing
                && let Some(error) = busy.failures.tell_flush()
            {
                return Err(unflushed(error));
            }
            let seen = busy.changes;
            drop(busy);
            if inner.options.workers == 0 {
                // There is nobody else who would, unless another writer does so now.
                inner.work_until_quiet(Due::Needed);
            }
            self.rest(seen, WAIT);
        }
    }

    /// Why the oldest memtable cannot be flushed, if nobody is about to.
    fn flush_trouble(&self) -> Option<Trouble> {
        let busy = lock(&self.busy);
        busy.failures.flush().filter(|_| !busy.flushing).cloned()
    }

    /// Whether a flush goes on.
    pub(crate) fn is_flushing(&self) -> bool {
        lock(&self.busy).flushing
    }

    /// Takes hold of those of these ranges that nobody works on, until [`Self::let_go`]; with the publisher's lock held.
    pub(crate) fn hold_free(&self, ids: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut busy = lock(&self.busy);
        ids.filter(|id| busy.ranges.insert(*id)).collect()
    }

    /// Lets go of ranges, when the view shows what was made of them.
    pub(crate) fn let_go(&self, ids: &[u64]) {
        let mut busy = lock(&self.busy);
        ids.iter().for_each(|id| {
            busy.ranges.remove(id);
        });
        drop(busy);
        self.wake();
    }

    /// Lets what failed be tried again, what met damage too where `all` is.
    fn retry(&self, all: bool) {
        let failures = &mut lock(&self.busy).failures;
        if all {
            failures.forget();
        } else {
            failures.forget_passing();
        }
    }

    /// Wakes workers, to work or to end.
    pub(crate) fn wake(&self) {
        lock(&self.busy).changes += 1;
        self.changed.notify_all();
    }

    /// How often something changed.
    fn changes(&self) -> u64 {
        lock(&self.busy).changes
    }

    /// Waits, a while at most, until something changes behind the `seen`-th change: one that came while the caller looked for work is not missed.
    fn rest(&self, seen: u64, most: Duration) {
        let busy = lock(&self.busy);
        drop(self.changed.wait_timeout_while(busy, most, |busy| busy.changes == seen));
    }
}

/// What keeps memtables from their flush, for a writer: where it is damage, it is another key's.
fn unflushed(error: Error) -> Error {
    match error {
        Error::Corrupt { place, what, .. } => {
            Error::corrupt(place, format!("no more is written, since what is there cannot be flushed: {what}"))
        }
        other => other,
    }
}

impl Inner {
    /// Freezes a memtable that is full, unless too many wait already: then writers wait.
    pub(crate) fn freeze(&self, generation: u64) {
        let rotation = self.rotate_or(generation, || self.migration.pace.stop());
        if self.options.workers == 0 && rotation == Rotation::Done {
            self.work_until_quiet(Due::Needed);
        }
    }

    /// A worker, until the store is closed.
    pub(crate) fn work(&self) {
        while self.open.is_open() {
            let seen = self.migration.changes();
            let due = self.migration.due(self.order.last());
            self.freeze_if_due(due);
            self.migration.governor.tick(Instant::now(), || self.reading());
            if let Some(task) = self.next_task(due) {
                self.run(task);
                continue;
            }
            if self.open.is_open() {
                self.migration.rest(seen, IDLE);
            }
        }
    }

    /// What the governor looks at.
    fn reading(&self) -> Reading {
        let view = self.view.load();
        let active = view.active.log_bytes();
        let retired = self.counts.logged_bytes.load(Ordering::Relaxed);
        Reading {
            logged: retired + active,
            writes: self.order.last(),
            reads: self.counts.reads.load(Ordering::Relaxed),
            frozen: view.frozen.len(),
        }
    }

    /// Freezes the active memtable while nobody writes, where that is worth it.
    fn freeze_if_due(&self, due: Due) {
        let (generation, bytes) = {
            let view = self.view.load();
            (view.active.generation, if view.active.is_empty() { 0 } else { view.active.log_bytes() })
        };
        let least = match due {
            Due::Needed => return,
            Due::Worthwhile => self.sizes.memtable / WORTH,
            Due::All | Due::Scarce => 1,
        };
        if bytes >= least && self.pool.check().is_ok() {
            self.rotate_or(generation, || ());
        }
    }
}

#[cfg(test)]
mod tests;
