//! What an exploration did, in numbers.

use std::collections::BTreeMap;
use std::fmt;

use crate::config::DEPTH_MAX;

/// Numbers of one kind of operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Times it was run.
    pub runs: u64,
    /// Crash points in it.
    pub points: u64,
    /// Images taken there, later crashes included.
    pub images: u64,
}

/// Numbers of an exploration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Scripts run.
    pub scripts: u64,
    /// By name of the operation.
    pub ops: BTreeMap<&'static str, OpCounts>,
    /// Images by number of crashes before them: 1, 2, 3.
    pub images: [u64; DEPTH_MAX],
    /// Images that were not opened, because the same bytes were, in the same operation.
    pub repeated: u64,
    /// Operations against the model after a recovery.
    pub ops_after: u64,
    /// Recoveries done twice to compare the allocator's account.
    pub leak_checks: u64,
    /// Images that were opened without a part of the store.
    pub losses_borne: u64,
    /// Images that refused to be, as they must.
    pub losses_refused: u64,
    /// Syncs that failed.
    pub failed_syncs: u64,
    /// Stores, flushes and fences seen.
    pub events: u64,
}

impl Counts {
    /// Images of all depths.
    pub fn total(&self) -> u64 {
        self.images.iter().sum()
    }

    /// Crash points of all operations.
    pub fn points(&self) -> u64 {
        self.ops.values().map(|op| op.points).sum()
    }

    /// Adds another's.
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
