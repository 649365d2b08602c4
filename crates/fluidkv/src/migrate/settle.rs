//! Doing all that there is to do: for a settle, and for a write that found no room.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};

use super::task::Look;
use super::{Due, WAIT};
use crate::failures::Trouble;
use crate::inner::{Counts, Inner, Rotation, lock};
use crate::value_log::ValueLog;
use crate::view::View;

/// How long a write that found no room works at making some.
pub(crate) const RECLAIM: Duration = Duration::from_secs(10);
/// How long a write that found no room waits for readers to let go of what was replaced, and where they may all be scans.
const READERS: Duration = Duration::from_secs(1);
const SCANS: Duration = Duration::from_millis(50);
/// How long it sleeps between two looks at them.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// How long a store settles at most: writers that go on may keep it from an end.
pub(super) const SETTLE: Duration = Duration::from_secs(600);
/// Turns of a settle: one for what waits, one for what is active, one for what collections left; others write meanwhile.
const SETTLE_TURNS: usize = 4;
/// What keeps a settle from its end, and what to do.
const GO_ON: &str = "writers bring more than flushes and compactions take away: hold them back, or give the store more `workers`, and settle again";

impl Inner {
    /// Makes room: flushes and compacts all there is. For a write that found none, which holds nothing; whether it is worth another attempt: there is more
    /// room than before, or somebody has made some since the write's last attempt, which `made` counts.
    pub(crate) fn reclaim(&self, made: &mut Option<u64>) -> Result<bool> {
        if self.pool.is_telling() {
            // Who told may be whom it would wait for.
            return Ok(false);
        }
        if self.is_refusing() {
            return Ok(false);
        }
        let began = Instant::now();
        // What is free beyond what is needed: deletes may take it.
        let spare = || self.room() as i64 - self.reserve.needed_bytes() as i64;
        let (before, was_whole) = (spare(), self.reserve.refill(&self.pool));
        Counts::add(&self.counts.reclaimed, 1);
        if !was_whole {
            lock(&self.publisher).shorten(&self.pool)?;
        }
        let (mut held, mut looked) = (None, false);
        loop {
            match self.settle(Due::Scarce, RECLAIM) {
                // What could be done was done, and may be enough.
                Ok(_) | Err(Error::Full { .. }) => {}
                Err(other) => return Err(other),
            }
            if let Some(separator) = &self.separator {
                separator.make_room()?;
            }
            let mut is_whole = self.reserve.refill(&self.pool);
            // Less must be free for the compaction of smaller ranges.
            while !is_whole && self.halve_largest()? {
                is_whole = self.reserve.refill(&self.pool);
            }
            let now = self.tasks_done();
            let others = made.replace(now) != Some(now);
            let worth = others || spare() > before || (is_whole && !was_whole);
            if !worth && !std::mem::replace(&mut looked, true) && self.find_stale(RECLAIM) {
                continue;
            }
            if worth {
                return Ok(true);
            }
            let (held, waited_from) = held.get_or_insert_with(|| (lock(&self.publisher).past_views(), Instant::now()));
            if !self.wait_for_a_reader(held, *waited_from) {
                self.remember_refusal(began);
                return Ok(false);
            }
        }
    }

    /// How many flushes, compactions and collections were done.
    pub(super) fn tasks_done(&self) -> u64 {
        let counts = [&self.counts.flushes, &self.counts.compactions, &self.values.collected];
        counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Waits until one of these views that are past has gone with its last holder, for a while from `began` at most; whether one has. What was replaced comes free then, and a
    /// reader may be off its processor for longer than several flushes take. The caller holds no view.
    fn wait_for_a_reader(&self, held: &mut Vec<Weak<View>>, began: Instant) -> bool {
        let before = held.len();
        loop {
            held.retain(|view| view.strong_count() > 0);
            // Those of snapshots and scans may stay for long.
            let limit = if held.len() > self.order.snapshots() { READERS } else { SCANS };
            if held.len() < before || held.is_empty() || began.elapsed() > limit {
                return held.len() < before;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// As [`Self::settle`], of all there is; what could not be done is an error, the gravest where there are several.
    ///
    /// # Errors
    /// As `lodestore_contract::Store::settle`.
    pub(crate) fn settle_all(&self) -> Result<()> {
        self.settle_within(SETTLE)
    }

    /// As [`Self::settle_all`], for so long at most.
    pub(super) fn settle_within(&self, limit: Duration) -> Result<()> {
        let outcome = match self.settle(Due::All, limit) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::Unfinished { doing: "a settle", after: limit, instead: GO_ON }),
            Err(full @ Error::Full { .. }) => Err(full),
            Err(other) => return Err(other),
        };
        let failed = lock(&self.migration.busy).failures.gravest().map(Trouble::error);
        failed.or_else(|| self.values.kept_garbage()).map_or(outcome, Err)
    }

    /// Flushes and compacts all there is, and collects what is due, with the workers' help, for so long at most; whether it came to an end by then.
    ///
    /// # Errors
    /// Where a flush fails: [`Error::Full`], [`Error::Corrupt`]; other failures are in `busy.failures`. [`Error::Poisoned`]; [`Error::Closed`] where the store is
    /// closed meanwhile.
    pub(crate) fn settle(&self, due: Due, limit: Duration) -> Result<bool> {
        let began = Instant::now();
        let moved = |values: &ValueLog| values.moved_bytes.load(Ordering::Relaxed);
        self.values.seal_tails(false);
        for turn in 0..SETTLE_TURNS {
            let before = moved(&self.values);
            // Where as many wait as may it is for the next turn.
            let frozen = self.rotate() != Rotation::AtLimit;
            // What is damaged is tried once for each who asks.
            self.migration.retry(turn == 0 && due == Due::All);
            if !self.settle_once(due, (began, limit))? {
                return Ok(false);
            }
            // What was collected has left pointers in a memtable.
            let all = frozen && (due == Due::Scarce || moved(&self.values) == before);
            if all {
                break;
            }
        }
        // Where others write there is more by now; what there was at the call was frozen in the first turn, or by them, and flushed.
        Ok(true)
    }

    /// Does what is due until nothing is; whether it came to that before the limit.
    fn settle_once(&self, due: Due, (began, limit): (Instant, Duration)) -> Result<bool> {
        loop {
            let seen = self.migration.changes();
            let over = began.elapsed() > limit || !self.open.is_open();
            let look = if over { Look::Quiet(self.migration.flush_trouble()) } else { self.look_for_task(due) };
            if let Look::Task(task) = look {
                self.run(task);
                continue;
            }
            self.pool.check()?;
            if !self.open.is_open() {
                return Err(Error::Closed);
            }
            match look {
                Look::Quiet(Some(trouble)) => return Err(trouble.error()),
                Look::Quiet(None) => return Ok(!over),
                _ => self.migration.rest(seen, WAIT),
            }
        }
    }
}
