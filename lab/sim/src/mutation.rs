//! Planted faults, to check that the explorer sees them.
//!
//! There are two kinds: the named faults of an engine ([`crate::faults`]), and each flush or fence
//! call of the source, dropped one by one. A call site whose loss is never seen is either
//! redundant (a cost without a use) or not tested.

use std::fmt;
use std::time::Instant;

use lodestore_media::PlantedFault;
use lodestore_media::sim::{DropSite, Verb};

use crate::concurrent::{Load, check_durable};
use crate::config::Config;
use crate::explore::{Sites, explore};
use crate::oracle::Wrong;
use crate::shape::Shape;
use crate::subject::Engine;

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A fault by name.
    Planted(PlantedFault),
    /// A dropped flush or fence of the source.
    Lost(DropSite),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Planted(mutant) => write!(f, "{mutant:?}"),
            Self::Lost(site) => {
                let verb = if site.verb == Verb::Flush { "flush" } else { "fence" };
                write!(f, "lost {verb} {}:{}", site.file, site.line)
            }
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// The fault.
    pub fault: Fault,
    /// Images until the fault was seen, or all images.
    pub images: u64,
    /// Elapsed seconds.
    pub seconds: f64,
    /// The crash depth and judgement that saw it; `None` if unseen.
    pub caught: Option<(usize, Wrong)>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<58} {:>9} {:>7.1}s  ", self.fault.to_string(), self.images, self.seconds)?;
        match &self.caught {
            None => f.write_str("NOT SEEN"),
            Some((depth, wrong)) => {
                let what: String = wrong.what.chars().take(90).collect();
                write!(f, "{:<9} crash {depth}: {what}", wrong.oracle.to_string())
            }
        }
    }
}

/// The heading of the table.
pub fn heading() -> String {
    format!("{:<58} {:>9} {:>8}  {:<9} {}", "fault", "images", "time", "oracle", "what it saw")
}

/// Faults that are harmful only after a failed sync.
const UNCHECKED: [&str; 2] = ["PublishedUnchecked", "GrowthUnchecked"];
/// Maximum concurrent runs.
const HISTORIES_MAX: u64 = 2000;

/// Explores `engine` with one fault.
pub fn try_fault(engine: &dyn Engine, config: &Config, fault: Fault) -> Row {
    let mut config = config.clone();
    match &fault {
        Fault::Planted(mutant) => config.mutant = Some(*mutant),
        Fault::Lost(site) => config.drop_site = Some(site.clone()),
    }
    if config.mutant.is_some_and(|mutant| UNCHECKED.contains(&mutant.name())) {
        config.failing_every = config.failing_every.min(4);
    }
    let started = Instant::now();
    let of_threads = config.mutant.is_some_and(|mutant| engine.mutants_of_threads().contains(&mutant));
    let (images, caught) = if of_threads {
        by_histories(engine, &config)
    } else {
        let report = explore(engine, &config);
        (report.counts.total(), report.failure.map(|failure| (failure.depth, failure.wrong)))
    };
    Row { fault, images, seconds: started.elapsed().as_secs_f64(), caught }
}

/// Judges the histories of short concurrent runs, each cut by crashes. The interleaving differs
/// between runs.
fn by_histories(engine: &dyn Engine, config: &Config) -> (u64, Option<(usize, Wrong)>) {
    let load = Load { threads: 3, keys: 1, ops: 40, batches: false, ranges: false };
    let mut images = 0;
    for seed in 0..HISTORIES_MAX {
        let config = Config { seed: config.seed + seed, images_per_point: 6, ..config.clone() };
        match check_durable(engine, &config, &Shape::default(), load, 200) {
            Ok(counts) => images += counts.images,
            Err(wrong) => return (images, Some((1, wrong))),
        }
    }
    (images, None)
}

/// Returns every planted fault of `engine`.
pub fn planted(engine: &dyn Engine) -> Vec<Fault> {
    engine.mutants().iter().copied().map(Fault::Planted).collect()
}

/// Returns a dropped-call fault for every flush and fence executed in an exploration.
pub fn lost(sites: &Sites) -> Vec<Fault> {
    let drop_site =
        |(verb, file, line): &(Verb, &'static str, u32)| DropSite { verb: *verb, file: (*file).into(), line: *line };
    sites.keys().map(drop_site).map(Fault::Lost).collect()
}
