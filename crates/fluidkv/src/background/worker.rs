//! Workers: the loop of a background thread, and the run of one task.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::Error;
use lodestore_contract::threads::lock;
use lodestore_media::{PoisonOnPanic, Quiet};

use super::policy::Task;
use crate::background::governor::Sample;
use crate::background::scheduler::{Background, Due, Scheduler};

/// How long a worker sleeps if no task is due.
const IDLE_PAUSE: Duration = Duration::from_millis(50);
/// Divisor: while there are no writes, a memtable with this share of a full log is worth a flush.
const IDLE_FLUSH_DIVISOR: u64 = 16;

/// Wakes the threads that wait for a task, also if the task panics.
struct WakeAtEnd<'a>(&'a Scheduler);

impl Drop for WakeAtEnd<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl Background {
    /// Runs a worker until the store is closed.
    pub(crate) fn run_worker(&self) {
        while self.open.is_open() {
            let seen = self.scheduler.changes();
            let due = self.scheduler.due(self.order.last());
            self.freeze_if_due(due);
            self.scheduler.governor.tick(Instant::now(), || self.sample());
            if let Some(task) = self.next_task(due) {
                self.run(task);
                continue;
            }
            if self.open.is_open() {
                self.scheduler.wait_for_change(seen, IDLE_PAUSE);
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

    /// Runs due tasks on the calling thread.
    pub(super) fn run_due_tasks(&self, due: Due) {
        while let Some(task) = self.next_task(due) {
            self.run(task);
        }
    }

    /// Runs a task. Its events are reported after it has ended and woken the waiting threads.
    pub(super) fn run(&self, task: Task) {
        let _quiet = Quiet::begin();
        let _wake_at_end = WakeAtEnd(&self.scheduler);
        // After a panic, the ranges of the task are never released.
        let cause = "a flush, a compaction or a collection panicked";
        let _poison_on_panic = PoisonOnPanic::new(&self.pool, cause);
        match task {
            Task::Flush => {
                let outcome = self.flush_oldest().inspect_err(|error| self.report_corruption(error));
                let mut busy = lock(&self.scheduler.busy);
                busy.flushing = false;
                if let Some(outcome) = busy.record_outcome(outcome.map(|_| ())) {
                    busy.failures.note_flush(outcome, self.usable_bytes());
                }
            }
            Task::Compact(range) => {
                let id = range.id;
                let outcome = self.compact(&range).inspect_err(|error| self.report_corruption(error));
                // Threads that wait for the end of this task count on the space of its tables.
                drop(range);
                let mut busy = lock(&self.scheduler.busy);
                busy.ranges.remove(&id);
                if let Some(outcome) = busy.record_outcome(outcome) {
                    busy.failures.note_range(id, outcome, self.usable_bytes());
                }
            }
            Task::Join(range, next) => {
                let outcome = self.join((range, next));
                let mut busy = lock(&self.scheduler.busy);
                busy.ranges.remove(&range);
                busy.ranges.remove(&next);
                // A join frees no space.
                if let Some(outcome @ Err(_)) = busy.record_outcome(outcome) {
                    busy.failures.note_range(range, outcome, self.usable_bytes());
                }
            }
            Task::Collect(segment) => {
                let outcome = self.collect(&segment).inspect_err(|error| self.report_corruption(error));
                let mut busy = lock(&self.scheduler.busy);
                busy.collecting = false;
                if matches!(outcome, Err(Error::Corrupt { .. })) {
                    // An unreadable key keeps its segment. Other segments are still collected.
                    segment.damaged.store(true, Ordering::Release);
                } else if let Some(outcome) = busy.record_outcome(outcome) {
                    busy.failures.note_collection(outcome, self.usable_bytes());
                }
            }
        }
        let whole = self.reserve.refill(&self.pool);
        self.note_dram();
        let mut busy = lock(&self.scheduler.busy);
        // Not after a task that lacked space: its next attempt must be alone.
        busy.serial &= !(whole && busy.has_succeeded);
    }
}
