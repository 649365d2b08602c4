//! Counts of an exploration.

use std::collections::BTreeMap;
use std::fmt;

use crate::config::DEPTH_MAX;

/// Counts of one kind of operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Executions.
    pub runs: u64,
    /// Crash points in it.
    pub points: u64,
    /// Images of these points, later crashes included.
    pub images: u64,
}

/// Counts of an exploration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Scripts run.
    pub scripts: u64,
    /// Counts by name of the operation.
    pub ops: BTreeMap<&'static str, OpCounts>,
    /// Images by number of crashes before them: 1, 2, 3.
    pub images: [u64; DEPTH_MAX],
    /// Images not opened because the same operation had the same bytes before.
    pub repeated: u64,
    /// Operations against the model after a recovery.
    pub ops_after: u64,
    /// Recoveries done twice to compare the allocator's account.
    pub leak_checks: u64,
    /// Images opened without a part of the store.
    pub losses_borne: u64,
    /// Images without a part of the store that were refused, as required.
    pub losses_refused: u64,
    /// Syncs that failed.
    pub failed_syncs: u64,
    /// Recorded stores, flushes and fences.
    pub events: u64,
}

impl Counts {
    /// Returns the images of all depths.
    pub fn total(&self) -> u64 {
        self.images.iter().sum()
    }

    /// Returns the crash points of all operations.
    pub fn points(&self) -> u64 {
        self.ops.values().map(|op| op.points).sum()
    }

    /// Adds the counts of another exploration.
    pub fn add(&mut self, other: &Self) {
        self.scripts += other.scripts;
        for (name, op) in &other.ops {
            let mine = self.ops.entry(name).or_default();
            mine.runs += op.runs;
            mine.points += op.points;
            mine.images += op.images;
        }
        for (mine, theirs) in self.images.iter_mut().zip(other.images) {
            *mine += theirs;
        }
        self.repeated += other.repeated;
        self.ops_after += other.ops_after;
        self.leak_checks += other.leak_checks;
        self.losses_borne += other.losses_borne;
        self.losses_refused += other.losses_refused;
        self.failed_syncs += other.failed_syncs;
        self.events += other.events;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<20} {:>10} {:>12} {:>12}", "operation", "runs", "crash points", "images")?;
        for (name, op) in &self.ops {
            writeln!(f, "{name:<20} {:>10} {:>12} {:>12}", op.runs, op.points, op.images)?;
        }
        let runs: u64 = self.ops.values().map(|op| op.runs).sum();
        writeln!(f, "{:<20} {runs:>10} {:>12} {:>12}", "all", self.points(), self.total())?;
        let [first, second, third] = self.images;
        writeln!(
            f,
            "images by depth: {first} after one crash, {second} in its recovery, {third} in the recovery of that"
        )?;
        if self.losses_borne + self.losses_refused > 0 {
            writeln!(f, "a part taken away: {} opened, {} refused rightly", self.losses_borne, self.losses_refused)?;
        }
        write!(
            f,
            "{} scripts, {} events, {} failed syncs, {} repeated images left out, {} operations after recoveries, {} accounts compared",
            self.scripts, self.events, self.failed_syncs, self.repeated, self.ops_after, self.leak_checks
        )
    }
}
