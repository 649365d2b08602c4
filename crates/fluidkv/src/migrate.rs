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

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};

use crate::adapt::{Governor, Reading};
use crate::failures::{Failures, Trouble};
use crate::inner::{Counts, Inner, MEMTABLES, Rotation, lock};
use crate::pace::Pace;
use crate::value_log::ValueLog;
use crate::value_log::segment::ValueSegment;
use crate::view::{Range, View};

/// How long a worker sleeps where there is nothing to do.
const IDLE: Duration = Duration::from_millis(50);
/// How long nobody must have written until reads are what matters.
const QUIET: Duration = Duration::from_millis(200);
/// How long nobody must have written until everything is flushed and compacted.
const STILL: Duration = Duration::from_secs(10);
/// How long a write that found no room works at making some.
pub(crate) const RECLAIM: Duration = Duration::from_secs(10);
/// How long a write that found no room waits for readers to let go of what was replaced, and where they may all be scans.
const READERS: Duration = Duration::from_secs(1);
const SCANS: Duration = Duration::from_millis(50);
/// How long it sleeps between two looks at them.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How long a store settles at most: writers that go on may keep it from an end.
const SETTLE: Duration = Duration::from_secs(600);
/// Part of a full memtable's log that is worth a flush while it is quiet.
const WORTH: u64 = 16;
/// How much sooner a range is compacted while it is quiet.
const SOONER: f64 = 8.0;
/// How long a writer waits at most before it looks again.
const WAIT: Duration = Duration::from_millis(20);
/// Frozen memtables at which writers are slowed.
const SLOW: usize = 2;

/// Turns of a settle: one for what waits, one for what is active, one for what collections left; others write meanwhile.
const SETTLE_TURNS: usize = 4;

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

/// What a worker may do next.
enum Task {
    Flush,
    Compact(Arc<Range>),
    /// Of a range and the one behind it.
    Join(u64, u64),
    Collect(Arc<ValueSegment>),
}

/// Poisons a store whose work behind panics: what it held is never let go of, and whoever waits for it has to be told.
struct Unwinding<'a>(&'a Inner);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.pool.poison("a flush, a compaction or a collection panicked");
            self.0.migration.wake();
        }
    }
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
    /// [`Error::Closed`], [`Error::Poisoned`]; [`Error::Full`] where the flush found no room.
    pub(crate) fn wait_until_free(&self, inner: &Inner) -> Result<()> {
        loop {
            let busy = lock(&self.busy);
            if !self.pace.is_stopped() {
                return Ok(());
            }
            if inner.closed.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            inner.pool.check()?;
            if let Some(trouble) = busy.failures.flush().filter(|_| !busy.flushing) {
                return Err(trouble.error());
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
            failures.forget_full();
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

impl Inner {
    /// Freezes a memtable that is full, unless too many wait already: then writers wait.
    pub(crate) fn freeze(&self, generation: u64) {
        let rotation = self.rotate_or(generation, || self.migration.pace.stop());
        if self.options.workers == 0 && rotation == Rotation::Done {
            self.work_until_quiet(Due::Needed);
        }
    }

    /// Does what is due, on the calling thread.
    pub(crate) fn work_until_quiet(&self, due: Due) {
        while let Some(task) = self.next_task(due) {
            self.run(task);
        }
    }

    /// A worker, until the store is closed.
    pub(crate) fn work(&self) {
        while !self.closed.load(Ordering::Acquire) {
            let seen = self.migration.changes();
            let due = self.migration.due(self.order.last());
            self.freeze_if_due(due);
            self.migration.governor.tick(Instant::now(), || self.reading());
            if let Some(task) = self.next_task(due) {
                self.run(task);
                continue;
            }
            if !self.closed.load(Ordering::Acquire) {
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

    fn next_task(&self, due: Due) -> Option<Task> {
        self.look_for_task(due).0
    }

    /// A task; or else whether none is under way either.
    fn look_for_task(&self, due: Due) -> (Option<Task>, bool) {
        if self.pool.check().is_err() {
            return (None, true);
        }
        let mut busy = lock(&self.migration.busy);
        busy.failures.forget_full_above(self.sizes.range.min(self.sizes.memtable) / 4, || self.room());
        let quiet = busy.working() == 0;
        if busy.alone && !quiet {
            return (None, quiet);
        }
        let task = self.choose(&mut busy, due);
        busy.is_only = busy.alone && task.is_some();
        (task, quiet)
    }

    /// What is due next; it is noted as under way.
    fn choose(&self, busy: &mut Busy, due: Due) -> Option<Task> {
        // Behind the lock: a range is let go of when the view shows what was made of it.
        let view = self.view.load();
        // Who makes room or settles works in the place of a worker: what is built at a time takes DRAM.
        if self.options.workers > 0 && busy.working() >= self.options.workers {
            return None;
        }
        if !view.frozen.is_empty() && !busy.flushing && busy.failures.flush().is_none() {
            busy.flushing = true;
            return Some(Task::Flush);
        }
        if due == Due::Needed && self.options.workers > 0 && busy.working() >= self.migration.governor.allowed() {
            return None;
        }
        let free = |range: &&Arc<Range>| busy.may_take(range.id);
        let alone = busy.alone;
        let worth = |range: &&Arc<Range>| free(range) && !(alone && range.runs.is_empty());
        let scored = view.ranges.list.iter().filter(worth).map(|range| (self.score(range, due), range));
        let best = scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score >= 1.0);
        let rest = !busy.collecting && !busy.failures.has_collection();
        let garbage = rest.then(|| self.garbage_segment(due == Due::Scarce)).flatten();
        // Where room is scarce compactions come first: they say what is dead.
        let wins = |score: f64| due < Due::All && score > best.map_or(0.0, |(best, _)| best);
        if let Some((_, segment)) = garbage.filter(|(score, _)| best.is_none() || wins(*score)) {
            busy.collecting = true;
            return Some(Task::Collect(segment));
        }
        let Some((_, range)) = best else { return self.join_task(busy, &view) };
        let range = Arc::clone(range);
        busy.ranges.insert(range.id);
        Some(Task::Compact(range))
    }

    /// Two ranges to be joined, while no flush goes on, which would have to begin again.
    fn join_task(&self, busy: &mut Busy, view: &View) -> Option<Task> {
        if busy.flushing {
            return None;
        }
        let free = |pair: &[Arc<Range>]| busy.may_take(pair[0].id) && busy.may_take(pair[1].id);
        let joins = |pair: &&[Arc<Range>]| free(pair) && pair[0].may_join(&pair[1], self.sizes.range);
        let pair = view.ranges.list.windows(2).find(joins)?;
        let (range, next) = (pair[0].id, pair[1].id);
        busy.ranges.extend([range, next]);
        Some(Task::Join(range, next))
    }

    /// How far a range is beyond the point at which it is worth a compaction; 1: just there.
    fn score(&self, range: &Range, due: Due) -> f64 {
        if range.runs.is_empty() {
            // Behind all that has runs. Not where cuts, or want of room, keep tables small.
            let merges = range.cuts.is_empty() && !self.migration.crowds_stay.load(Ordering::Relaxed);
            let crowded = merges && range.crowd(self.sizes.stable.table_bytes as u64).is_some();
            return f64::from(u8::from(crowded));
        }
        let stable = range.stable.bytes.max(self.sizes.range / 8) as f64;
        let trigger = f64::from(self.options.buffer_percent) * self.migration.governor.trigger();
        let bytes = range.run_bytes() as f64 * 100.0 / stable / trigger;
        let runs = range.runs.len() as f64 / self.options.runs_max as f64;
        match due {
            Due::Needed => bytes.max(runs),
            Due::Worthwhile => (bytes * SOONER).max(runs),
            Due::All | Due::Scarce => bytes.max(runs).max(1.0),
        }
    }

    fn run(&self, task: Task) {
        let _unwinding = Unwinding(self);
        match task {
            Task::Flush => {
                let outcome = self.flush_oldest().inspect_err(|error| self.corrupt(error));
                let mut busy = lock(&self.migration.busy);
                busy.flushing = false;
                if let Some(outcome) = busy.ended(outcome.map(|_| ())) {
                    busy.failures.note_flush(outcome, self.room());
                }
            }
            Task::Compact(range) => {
                let id = range.id;
                let outcome = self.compact(&range).inspect_err(|error| self.corrupt(error));
                // Who waits for the end of this counts on the space of its tables.
                drop(range);
                let mut busy = lock(&self.migration.busy);
                busy.ranges.remove(&id);
                if let Some(outcome) = busy.ended(outcome) {
                    busy.failures.note_range(id, outcome, self.room());
                }
            }
            Task::Join(range, next) => {
                let outcome = self.join((range, next));
                let mut busy = lock(&self.migration.busy);
                busy.ranges.remove(&range);
                busy.ranges.remove(&next);
                // One that was made gives back nothing.
                if let Some(outcome @ Err(_)) = busy.ended(outcome) {
                    busy.failures.note_range(range, outcome, self.room());
                }
            }
            Task::Collect(segment) => {
                let outcome = self.collect(&segment).inspect_err(|error| self.corrupt(error));
                let mut busy = lock(&self.migration.busy);
                busy.collecting = false;
                if matches!(outcome, Err(Error::Corrupt { .. })) {
                    // A key that cannot be read keeps its segment; the others go on.
                    segment.damaged.store(true, Ordering::Release);
                } else if let Some(outcome) = busy.ended(outcome) {
                    busy.failures.note_collection(outcome, self.room());
                }
            }
        }
        let whole = self.reserve.refill(&self.pool);
        self.note_dram();
        let mut busy = lock(&self.migration.busy);
        // Not behind one that found no room: its next attempt is to be made alone.
        busy.alone &= !(whole && busy.made_room);
        drop(busy);
        self.migration.wake();
    }

    /// Bytes that what works behind may take.
    fn room(&self) -> u64 {
        self.headroom() + self.reserve.held_bytes()
    }

    /// Makes room: flushes and compacts all there is. For a write that found none, which holds nothing; whether it is worth another attempt: there is more
    /// room than before, or somebody has made some since the write's last attempt, which `made` counts.
    pub(crate) fn reclaim(&self, made: &mut Option<u64>) -> Result<bool> {
        // What is free beyond what is needed: deletes may take it.
        let spare = || self.room() as i64 - self.reserve.needed_bytes() as i64;
        let (before, was_whole, began) = (spare(), self.reserve.refill(&self.pool), Instant::now());
        Counts::add(&self.counts.reclaimed, 1);
        loop {
            let gone = lock(&self.publisher).past_views().1;
            match self.settle(Due::Scarce, RECLAIM) {
                // What could be done was done, and may be enough.
                Ok(()) | Err(Error::Full { .. }) => {}
                Err(other) => return Err(other),
            }
            let is_whole = self.reserve.refill(&self.pool);
            let counts = [&self.counts.flushes, &self.counts.compactions, &self.values.collected];
            let now = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
            let others = made.replace(now) != Some(now);
            let worth = others || spare() > before || (is_whole && !was_whole);
            if worth || began.elapsed() > RECLAIM || !self.wait_for_readers(gone) {
                return Ok(worth);
            }
        }
    }

    /// Waits until the last holder of a view that is past lets go of it, for a while at most: what was replaced comes free then, and a reader may be off its
    /// processor for longer than several flushes take. Whether one went since `gone` had gone. The caller holds no view.
    fn wait_for_readers(&self, gone: u64) -> bool {
        let began = Instant::now();
        loop {
            let (held, now) = lock(&self.publisher).past_views();
            // Those of snapshots and scans may stay for long.
            let limit = if held > self.order.snapshots() { READERS } else { SCANS };
            if now > gone || held == 0 || began.elapsed() > limit {
                return now > gone;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// As [`Self::settle`], of all there is; what could not be done is an error, the gravest where there are several.
    ///
    /// # Errors
    /// As `lodestore_contract::Store::settle`.
    pub(crate) fn settle_all(&self) -> Result<()> {
        let outcome = self.settle(Due::All, SETTLE);
        if !matches!(outcome, Ok(()) | Err(Error::Full { .. })) {
            return outcome;
        }
        let failed = lock(&self.migration.busy).failures.gravest().map(Trouble::error);
        failed.or_else(|| self.values.kept_garbage()).map_or(outcome, Err)
    }

    /// Flushes and compacts all there is, and collects what is due, with the workers' help, for so long at most.
    ///
    /// # Errors
    /// Where a flush fails: [`Error::Full`], [`Error::Corrupt`]; other failures are in `busy.failures`. [`Error::Poisoned`]; [`Error::Closed`] where the store is
    /// closed meanwhile.
    pub(crate) fn settle(&self, due: Due, limit: Duration) -> Result<()> {
        let began = Instant::now();
        let moved = |values: &ValueLog| values.moved_bytes.load(Ordering::Relaxed);
        self.values.seal_tails(false);
        for turn in 0..SETTLE_TURNS {
            let before = moved(&self.values);
            // Where as many wait as may it is for the next turn.
            let frozen = self.rotate() != Rotation::AtLimit;
            // What is damaged is tried once for each who asks.
            self.migration.retry(turn == 0 && due == Due::All);
            self.settle_once(due, (began, limit))?;
            // What was collected has left pointers in a memtable.
            let all = frozen && (due == Due::Scarce || moved(&self.values) == before);
            if all || began.elapsed() > limit {
                break;
            }
        }
        Ok(())
    }

    fn settle_once(&self, due: Due, (began, limit): (Instant, Duration)) -> Result<()> {
        loop {
            let over = began.elapsed() > limit || self.closed.load(Ordering::Acquire);
            let (task, quiet) = if over { (None, true) } else { self.look_for_task(due) };
            if let Some(task) = task {
                self.run(task);
                continue;
            }
            self.pool.check()?;
            if self.closed.load(Ordering::Acquire) {
                return Err(Error::Closed);
            }
            let busy = lock(&self.migration.busy);
            if quiet
                && !busy.flushing
                && let Some(trouble) = busy.failures.flush()
            {
                return Err(trouble.error());
            }
            if quiet {
                return Ok(());
            }
            drop(self.migration.changed.wait_timeout(busy, WAIT).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

#[cfg(test)]
mod tests;
