//! Helpers shared by the explorations of all engines.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use lodestore_sim::config::Config;
use lodestore_sim::counts::Counts;
use lodestore_sim::explore::explore;
use lodestore_sim::mutation::{Fault, try_fault};
use lodestore_sim::subject::Engine;

/// Explores, and prints the counts. `LODESTORE_SIM_IMAGES` sets the number of images.
pub fn must_pass(engine: &dyn Engine, config: Config) -> Counts {
    let share = std::env::var("LODESTORE_SIM_IMAGES").ok().and_then(|text| text.parse().ok());
    let config = Config { images: share.unwrap_or(config.images), ..config };
    let report = explore(engine, &config);
    println!("seed {}, grain {}: {}", config.seed, config.grain, report.counts);
    assert!(report.failure.is_none(), "{}", report.failure.map(|failure| failure.to_string()).unwrap_or_default());
    report.counts
}

/// Scripts of a seed that are searched for each fault, one by one.
const SCRIPT_COUNT: u64 = 48;
/// Maximum images of one of them.
const SCRIPT_IMAGES: u64 = 3_000;
/// Threads that search for one fault each.
const SEARCHERS: usize = 2;
/// Seeds of the long runs that follow.
const LONG_SEEDS: u64 = 48;

/// Returns a short run of one script, with few images at each point so that it reaches its end.
fn short_run_of(config: &Config, script: u64) -> Config {
    let thin = Config { images: SCRIPT_IMAGES, images_per_point: 4, only_script: Some(script), ..config.clone() };
    Config { nested_every: 50, nested_points: 2, nested_images: 2, ops_after_few: 2, ops_after_every: 50, ..thin }
}

/// Searches for `fault` in each script for a short time, then in long runs of several seeds.
///
/// Rare faults show in some scripts only. A long run spends its images on the first scripts.
fn find(engine: &dyn Engine, config: &Config, fault: &Fault) -> bool {
    let config = Config { threads: 1, ..config.clone() };
    let is_of_threads = matches!(fault, Fault::Planted(mutant) if engine.mutants_of_threads().contains(mutant));
    let scripts = match config.only_script {
        _ if is_of_threads => 0..0,
        Some(script) => script..script + 1,
        None => 0..SCRIPT_COUNT,
    };
    let short_runs = scripts.map(|script| short_run_of(&config, script));
    let long_runs = (1..=LONG_SEEDS).map(|seed| Config { seed, ..config.clone() });
    let (started, mut images) = (Instant::now(), 0);
    for run in short_runs.chain(long_runs) {
        let row = try_fault(engine, &run, fault.clone());
        images += row.images;
        if row.caught.is_some() {
            let place = run.only_script.map_or_else(String::new, |index| format!(" of script {index}"));
            println!("{images} images in {:?}, seed {}{place}: {row}", started.elapsed(), run.seed);
            return true;
        }
    }
    println!("{images} images in {:?}: {fault} is not seen", started.elapsed());
    false
}

/// Returns the faults that no exploration sees. `config_of` gives the configuration of each search.
pub fn find_unseen(engine: &dyn Engine, faults: &[Fault], config_of: impl Fn(&Fault) -> Config + Sync) -> Vec<Fault> {
    let next = AtomicUsize::new(0);
    let unseen = Mutex::new(Vec::new());
    let search = || {
        while let Some(fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !find(engine, &config_of(fault), fault) {
                unseen.lock().expect("no searcher panics").push(fault.clone());
            }
        }
    };
    thread::scope(|scope| (0..SEARCHERS).for_each(|_| drop(scope.spawn(search))));
    unseen.into_inner().expect("no searcher panics")
}
