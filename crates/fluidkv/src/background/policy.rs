//! Chooses the next task of a worker. The rules and the invariants are in `background/mod.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lodestore_contract::threads::lock;

use crate::background::failures::Failure;
use crate::background::scheduler::{Background, Busy, Due};
use crate::values::segment::ValueSegment;
use crate::version::range::Range;
use crate::version::view::View;

/// Factor by which a range is compacted earlier while there are no writes.
const IDLE_COMPACTION_FACTOR: f64 = 8.0;

/// The result of a search for a task, at one moment.
pub(super) enum Search {
    Task(Task),
    /// No task is due before a running one ends.
    Busy,
    /// No task is due or running. With the reason, if the oldest memtable cannot be flushed.
    Idle(Option<Failure>),
}

/// A task of a worker.
pub(super) enum Task {
    Flush,
    Compact(Arc<Range>),
    /// Joins a range and the next one.
    Join(u64, u64),
    Collect(Arc<ValueSegment>),
}

impl Background {
    pub(super) fn next_task(&self, due: Due) -> Option<Task> {
        match self.find_task(due) {
            Search::Task(task) => Some(task),
            Search::Busy | Search::Idle(_) => None,
        }
    }

    /// Searches for a task, and marks it as running.
    pub(super) fn find_task(&self, due: Due) -> Search {
        if self.pool.check().is_err() {
            return Search::Idle(None);
        }
        let mut busy = lock(&self.scheduler.busy);
        busy.failures.clear_if_space_grew(self.sizes.range.min(self.sizes.memtable) / 4, || self.usable_bytes());
        let quiet = busy.running_tasks() == 0;
        if busy.serial && !quiet {
            return Search::Busy;
        }
        let task = self.choose_task(&mut busy, due);
        busy.is_only = busy.serial && task.is_some();
        match task {
            Some(task) => Search::Task(task),
            None if quiet => Search::Idle(busy.failures.flush().cloned()),
            None => Search::Busy,
        }
    }

    /// Returns the next due task, and marks it as running.
    fn choose_task(&self, busy: &mut Busy, due: Due) -> Option<Task> {
        // Loaded under the lock: a range is released once the view shows its changes.
        let view = self.view.load();
        // A thread that frees space or settles counts as a worker: each table being built uses
        // DRAM.
        if self.options.workers > 0 && busy.running_tasks() >= self.options.workers {
            return None;
        }
        if !view.frozen.is_empty() && !busy.flushing && busy.failures.flush().is_none() {
            busy.flushing = true;
            return Some(Task::Flush);
        }
        if due == Due::Needed && self.options.workers > 0 && busy.running_tasks() >= self.scheduler.governor.allowed() {
            return None;
        }
        let free = |range: &&Arc<Range>| busy.can_start(range.id);
        let alone = busy.serial;
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
        let free = |pair: &[Arc<Range>]| busy.can_start(pair[0].id) && busy.can_start(pair[1].id);
        let joins = |pair: &&[Arc<Range>]| free(pair) && pair[0].may_join(&pair[1], self.sizes.range);
        let pair = view.ranges.list.windows(2).find(joins)?;
        let (range, next) = (pair[0].id, pair[1].id);
        busy.ranges.extend([range, next]);
        Some(Task::Join(range, next))
    }

    /// Returns how far a range is beyond its compaction trigger; 1: exactly at it.
    fn score(&self, range: &Range, due: Due) -> f64 {
        if range.runs.is_empty() {
            // Ranges without runs come last. Their small tables are not merged if the range has
            // cuts, or if such merges stopped for lack of space.
            let merges = range.cuts.is_empty() && !self.scheduler.small_merges_stopped.load(Ordering::Relaxed);
            let has_small_tables = merges && range.small_tables(self.sizes.stable.table_bytes as u64).is_some();
            let stale = due == Due::Scarce && range.stale().is_some();
            return f64::from(u8::from(has_small_tables || stale));
        }
        let stable = range.stable.bytes.max(self.sizes.range / 8) as f64;
        let trigger = f64::from(self.options.buffer_percent) * self.scheduler.governor.trigger();
        let bytes = range.run_bytes() as f64 * 100.0 / stable / trigger;
        let runs = range.runs.len() as f64 / self.options.runs_max as f64;
        match due {
            Due::Needed => bytes.max(runs),
            Due::Worthwhile => (bytes * IDLE_COMPACTION_FACTOR).max(runs),
            Due::All | Due::Scarce => bytes.max(runs).max(1.0),
        }
    }
}
