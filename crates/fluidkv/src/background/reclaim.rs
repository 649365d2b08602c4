//! Runs all due tasks: for a `settle` (flush and compact), and for a write that lacked space.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Result};

use super::WRITER_WAIT_TIMEOUT;
use super::policy::Search;
use crate::background::Rotation;
use crate::background::failures::Failure;
use crate::background::scheduler::Background;
use crate::background::scheduler::Due;
use crate::tree::counts::Counts;
use crate::values::ValueLog;
use crate::version::view::View;

/// How long a write that lacked space works at freeing some.
pub(crate) const RECLAIM_TIMEOUT: Duration = Duration::from_secs(10);
/// How long such a write waits for readers to release replaced data. `SCANS_TIMEOUT` applies if all
/// of them may be scans.
const READERS_TIMEOUT: Duration = Duration::from_secs(1);
const SCANS_TIMEOUT: Duration = Duration::from_millis(50);
/// Sleep between two checks of the readers.
const READER_CHECK_PAUSE: Duration = Duration::from_millis(1);
/// Longest time of a settle: concurrent writers may keep it from ending.
pub(super) const FLUSH_AND_COMPACT_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum rounds of a settle: one for memtables that wait, one for the active one, and one for the
/// pointers that collections left. The fourth is for writes of other threads meanwhile.
const FLUSH_AND_COMPACT_ROUNDS_MAX: usize = 4;
/// Why a settle did not end, and the advice for the caller.
const HOLD_WRITERS_ADVICE: &str = "writers are faster than flushes and compactions: pause the writers or raise the \
                                   option `workers`, and repeat the call";

impl Background {
    /// Frees space: flushes and compacts everything. For a write that lacked space; the caller
    /// holds no lock. Returns whether another attempt is worthwhile: more space is free than
    /// before, or another thread has freed some since the write's last attempt, which `made`
    /// counts.
    pub(crate) fn reclaim(&self, made: &mut Option<u64>) -> Result<bool> {
        if self.pool.is_reporting() {
            // This thread is reporting an event, and might wait for the task that it reports for.
            return Ok(false);
        }
        if self.is_reclaim_futile() {
            return Ok(false);
        }
        let began = Instant::now();
        // Free space beyond the needed space: deletes may use it.
        let surplus = || self.usable_bytes() as i64 - self.reserve.needed_bytes() as i64;
        let (before, was_whole) = (surplus(), self.reserve.refill(&self.pool));
        Counts::add(&self.counts.reclaimed, 1);
        if !was_whole {
            lock(&self.publisher).rewrite_if_long(&self.pool)?;
        }
        let (mut held, mut examined) = (None, false);
        loop {
            match self.run_all_due(Due::Scarce, RECLAIM_TIMEOUT) {
                // The possible tasks are done, which may be enough.
                Ok(_) | Err(Error::Full { .. }) => {}
                Err(other) => return Err(other),
            }
            if let Some(separator) = &self.separator {
                separator.make_room()?;
            }
            let mut is_whole = self.reserve.refill(&self.pool);
            // The compaction of a smaller range needs less free space.
            while !is_whole && self.halve_largest()? {
                is_whole = self.reserve.refill(&self.pool);
            }
            let now = self.tasks_done();
            let others = made.replace(now) != Some(now);
            let worth = others || surplus() > before || (is_whole && !was_whole);
            if !worth && !std::mem::replace(&mut examined, true) && self.find_stale(RECLAIM_TIMEOUT) {
                continue;
            }
            if worth {
                return Ok(true);
            }
            let (held, waited_from) = held.get_or_insert_with(|| (lock(&self.publisher).past_views(), Instant::now()));
            if !self.wait_for_reader(held, *waited_from) {
                self.remember_failed_reclaim(began);
                return Ok(false);
            }
        }
    }

    /// Returns the number of flushes, compactions and collections done.
    pub(super) fn tasks_done(&self) -> u64 {
        let counts = [&self.counts.flushes, &self.counts.compactions, &self.values.collected];
        counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Waits until the last holder drops one of these past views, for a limited time after `began`.
    /// Returns whether that happened. The replaced data is then freed. A reader may be off its
    /// processor for longer than several flushes. The caller holds no view.
    fn wait_for_reader(&self, held: &mut Vec<Weak<View>>, began: Instant) -> bool {
        let before = held.len();
        loop {
            held.retain(|view| view.strong_count() > 0);
            // Views of snapshots and scans may be held for long.
            let limit = if held.len() > self.order.snapshots() { READERS_TIMEOUT } else { SCANS_TIMEOUT };
            if held.len() < before || held.is_empty() || began.elapsed() > limit {
                return held.len() < before;
            }
            std::thread::sleep(READER_CHECK_PAUSE);
        }
    }

    /// Like [`Self::run_all_due`] for all tasks. Returns an error if a task failed, the most severe
    /// if several did.
    ///
    /// # Errors
    /// As `lodestore_contract::Store::settle`.
    pub(crate) fn flush_and_compact(&self) -> Result<()> {
        self.flush_and_compact_within(FLUSH_AND_COMPACT_TIMEOUT)
    }

    /// Like [`Self::flush_and_compact`], for at most `limit`.
    pub(super) fn flush_and_compact_within(&self, limit: Duration) -> Result<()> {
        let outcome = match self.run_all_due(Due::All, limit) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::Unfinished {
                doing: "flushing and compacting the store",
                after: limit,
                instead: HOLD_WRITERS_ADVICE,
            }),
            Err(full @ Error::Full { .. }) => Err(full),
            Err(other) => return Err(other),
        };
        let failed = lock(&self.scheduler.busy).failures.most_severe().map(Failure::error);
        failed.or_else(|| self.values.kept_garbage()).map_or(outcome, Err)
    }

    /// Flushes and compacts everything, and collects due garbage, with the workers' help, for at
    /// most `limit`. Returns whether it finished by then.
    ///
    /// # Errors
    /// If a flush fails: [`Error::Full`], [`Error::Corrupt`]; other failures are in
    /// `busy.failures`. [`Error::Poisoned`]; [`Error::Closed`] if the store is closed meanwhile.
    pub(crate) fn run_all_due(&self, due: Due, limit: Duration) -> Result<bool> {
        let began = Instant::now();
        let moved = |values: &ValueLog| values.moved_bytes.load(Ordering::Relaxed);
        self.values.seal_tails(false);
        for round in 0..FLUSH_AND_COMPACT_ROUNDS_MAX {
            let before = moved(&self.values);
            // If the maximum number of memtables waits, the active one is for the next round.
            let frozen = self.rotate() != Rotation::AtLimit;
            // Each caller retries damaged data once.
            self.scheduler.retry(round == 0 && due == Due::All);
            if !self.run_due_until(due, (began, limit))? {
                return Ok(false);
            }
            // Collections have left pointers in a memtable.
            let all = frozen && (due == Due::Scarce || moved(&self.values) == before);
            if all {
                break;
            }
        }
        // Concurrent writers may have written more by now. Everything written before the call was
        // frozen in the first round, or by these writers, and flushed.
        Ok(true)
    }

    /// Runs due tasks until none is left. Returns whether that happened before the limit.
    fn run_due_until(&self, due: Due, (began, limit): (Instant, Duration)) -> Result<bool> {
        loop {
            let seen = self.scheduler.changes();
            let over = began.elapsed() > limit || !self.open.is_open();
            let search = if over { Search::Idle(self.scheduler.flush_failure()) } else { self.find_task(due) };
            if let Search::Task(task) = search {
                self.run(task);
                continue;
            }
            self.pool.check()?;
            if !self.open.is_open() {
                return Err(Error::Closed);
            }
            match search {
                Search::Idle(Some(failure)) => return Err(failure.error()),
                Search::Idle(None) => return Ok(!over),
                _ => self.scheduler.wait_for_change(seen, WRITER_WAIT_TIMEOUT),
            }
        }
    }
}
