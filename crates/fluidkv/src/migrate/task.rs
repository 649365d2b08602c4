//! Chooses the next task of a worker, and runs it. The rules and the invariants are in
//! `migrate.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestore_contract::{Error, PoisonReason};
use lodestore_media::Quiet;

use super::{Busy, Due};
use crate::failures::Trouble;
use crate::inner::{Inner, lock};
use crate::value_log::segment::ValueSegment;
use crate::view::{Range, View};

/// Factor by which a range is compacted earlier while there are no writes.
const IDLE_COMPACTION_FACTOR: f64 = 8.0;

/// The result of a search for a task, at one moment.
pub(super) enum Look {
    Task(Task),
    /// No task is due before a running one ends.
    Busy,
    /// No task is due or running. With the reason, if the oldest memtable cannot be flushed.
    Quiet(Option<Trouble>),
}

/// A task of a worker.
pub(super) enum Task {
    Flush,
    Compact(Arc<Range>),
    /// Joins a range and the next one.
    Join(u64, u64),
    Collect(Arc<ValueSegment>),
}

/// Poisons a store whose background work panics: the ranges that it held are never released, and
/// threads that wait for it must be woken.
struct Unwinding<'a>(&'a Inner);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.pool.poison(PoisonReason::Panic, "a flush, a compaction or a collection panicked");
            self.0.migration.wake();
        }
    }
}
impl Inner {
    /// Runs due tasks on the calling thread.
    pub(super) fn work_until_quiet(&self, due: Due) {
        while let Some(task) = self.next_task(due) {
            self.run(task);
        }
    }

    pub(super) fn next_task(&self, due: Due) -> Option<Task> {
        match self.look_for_task(due) {
            Look::Task(task) => Some(task),
            Look::Busy | Look::Quiet(_) => None,
        }
    }

    /// Searches for a task, and marks it as running.
    pub(super) fn look_for_task(&self, due: Due) -> Look {
        if self.pool.check().is_err() {
            return Look::Quiet(None);
        }
        let mut busy = lock(&self.migration.busy);
        busy.failures.forget_full_above(self.sizes.range.min(self.sizes.memtable) / 4, || self.room());
        let quiet = busy.working() == 0;
        if busy.alone && !quiet {
            return Look::Busy;
        }
        let task = self.choose(&mut busy, due);
        busy.is_only = busy.alone && task.is_some();
        match task {
            Some(task) => Look::Task(task),
            None if quiet => Look::Quiet(busy.failures.flush().cloned()),
            None => Look::Busy,
        }
    }

    /// Returns the next due task, and marks it as running.
    fn choose(&self, busy: &mut Busy, due: Due) -> Option<Task> {
        // Loaded under the lock: a range is released once the view shows its changes.
        let view = self.view.load();
        // A thread that frees space or settles counts as a worker: each table being built uses
        // DRAM.
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
        let small = |range: &Range| range.runs.is_empty() && range.stale().is_none();
        let worth = |range: &&Arc<Range>| free(range) && !(alone && small(range));
        let scored = view.ranges.list.iter().filter(worth).map(|range| (self.score(range, due), range));
        let best = scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(score, _)| *score >= 1.0);
        let rest = !busy.collecting && !busy.failures.has_collection();
        let garbage = rest.then(|| self.garbage_segment(due == Due::Scarce)).flatten();
        // If space is scarce, compactions come first: they find dead values.
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

    /// Returns two ranges to join. Returns `None` during a flush, which would have to start again.
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

    /// Returns how far a range is beyond its compaction trigger; 1: exactly at it.
    fn score(&self, range: &Range, due: Due) -> f64 {
        if range.runs.is_empty() {
            // After all ranges with runs. Not if cuts, or lack of space, keep tables small.
            let merges = range.cuts.is_empty() && !self.migration.crowds_stay.load(Ordering::Relaxed);
            let crowded = merges && range.crowd(self.sizes.stable.table_bytes as u64).is_some();
            let stale = due == Due::Scarce && range.stale().is_some();
            return f64::from(u8::from(crowded || stale));
        }
        let stable = range.stable.bytes.max(self.sizes.range / 8) as f64;
        let trigger = f64::from(self.options.buffer_percent) * self.migration.governor.trigger();
        let bytes = range.run_bytes() as f64 * 100.0 / stable / trigger;
        let runs = range.runs.len() as f64 / self.options.runs_max as f64;
        match due {
            Due::Needed => bytes.max(runs),
            Due::Worthwhile => (bytes * IDLE_COMPACTION_FACTOR).max(runs),
            Due::All | Due::Scarce => bytes.max(runs).max(1.0),
        }
    }

    /// Runs a task. Its events are reported after it has ended and woken the waiting threads.
    pub(super) fn run(&self, task: Task) {
        let _quiet = Quiet::begin();
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
                // Threads that wait for the end of this task count on the space of its tables.
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
                // A join frees no space.
                if let Some(outcome @ Err(_)) = busy.ended(outcome) {
                    busy.failures.note_range(range, outcome, self.room());
                }
            }
            Task::Collect(segment) => {
                let outcome = self.collect(&segment).inspect_err(|error| self.corrupt(error));
                let mut busy = lock(&self.migration.busy);
                busy.collecting = false;
                if matches!(outcome, Err(Error::Corrupt { .. })) {
                    // An unreadable key keeps its segment. Other segments are still collected.
                    segment.damaged.store(true, Ordering::Release);
                } else if let Some(outcome) = busy.ended(outcome) {
                    busy.failures.note_collection(outcome, self.room());
                }
            }
        }
        let whole = self.reserve.refill(&self.pool);
        self.note_dram();
        let mut busy = lock(&self.migration.busy);
        // Not after a task that lacked space: its next attempt must be alone.
        busy.alone &= !(whole && busy.made_room);
        drop(busy);
        self.migration.wake();
    }

    /// Returns the bytes that background work may use.
    pub(super) fn room(&self) -> u64 {
        self.headroom() + self.reserve.held_bytes()
    }
}
