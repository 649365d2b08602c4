//! What explorations of one engine share.

use lodestore_media::Mutant;
use lodestore_sim::config::Config;
use lodestore_sim::counts::Counts;
use lodestore_sim::explore::{explore, script_of};
use lodestore_sim::mutation::{Fault, try_fault};
use lodestore_sim::subject::Engine;

/// Explores, and prints how much. `LODESTORE_SIM_IMAGES` makes the share larger.
pub fn must_pass(engine: &dyn Engine, config: Config) -> Counts {
    let share = std::env::var("LODESTORE_SIM_IMAGES").ok().and_then(|text| text.parse().ok());
    let config = Config { images: share.unwrap_or(config.images), ..config };
    let report = explore(engine, &config);
    println!("seed {}, grain {}: {}", config.seed, config.grain, report.counts);
    assert!(report.failure.is_none(), "{}", report.failure.map(|failure| failure.to_string()).unwrap_or_default());
    report.counts
}

/// Returns where a fault is looked for that shows in one script alone. The first scripts of a seed
/// take most images, and this one is behind them.
fn search_for(engine: &dyn Engine, config: &Config, fault: &Fault) -> Config {
    let Fault::Planted(Mutant::RegionNotInHeader) = fault else { return config.clone() };
    let only_script = (0..32).find(|index| script_of(engine, 1, *index).name == "growth by regions");
    Config { only_script: only_script.or(config.only_script), ..config.clone() }
}

/// Seeds of short runs, which come before the long ones.
const SHORT_SEEDS: u64 = 8;
/// The part of the images that a short run has.
const SHORT_PART: u64 = 4;

/// Rare faults show in some scripts only, so many short runs see more than a long one.
pub fn is_seen_by_some_seed(engine: &dyn Engine, config: &Config, fault: &Fault) -> bool {
    let config = search_for(engine, config, fault);
    let is_seen = |seed: u64, images: u64| {
        let row = try_fault(engine, &Config { seed, images, ..config.clone() }, fault.clone());
        println!("seed {seed}: {row}");
        row.caught.is_some()
    };
    (1..=SHORT_SEEDS).any(|seed| is_seen(seed, config.images / SHORT_PART))
        || (1..=48).any(|seed| is_seen(seed, config.images))
}
