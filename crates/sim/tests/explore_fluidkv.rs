//! FluidKV explored. `LODESTORE_SIM_IMAGES` makes the share larger; the `explore` program does the long runs.

use lodestore_sim::config::Config;
use lodestore_sim::explore::explore;
use lodestore_sim::fluidkv::FluidEngine;
use lodestore_sim::mutation::{planted, try_fault};

fn must_pass(config: Config) {
    let share = std::env::var("LODESTORE_SIM_IMAGES").ok().and_then(|text| text.parse().ok());
    let config = Config { images: share.unwrap_or(config.images), ..config };
    let report = explore(&FluidEngine, &config);
    println!("seed {}, grain {}: {}", config.seed, config.grain, report.counts);
    assert!(report.failure.is_none(), "{}", report.failure.map(|failure| failure.to_string()).unwrap_or_default());
}

#[test]
fn every_image_of_cache_lines_recovers() {
    must_pass(Config { images: 30_000, ..Config::default() });
}

#[test]
fn every_image_of_sectors_and_every_kill_recovers() {
    must_pass(Config { images: 10_000, grain: 512, seed: 2, ..Config::default() });
    must_pass(Config { images: 10_000, stores_persist: true, seed: 3, store_point_every: 1, ..Config::default() });
}

#[test]
fn every_planted_fault_is_seen() {
    let faults = planted(&FluidEngine);
    assert!(faults.len() >= 12);
    let seen = |fault| try_fault(&FluidEngine, &Config { images: 200_000, ..Config::default() }, fault);
    let unseen: Vec<_> = faults.into_iter().map(seen).filter(|row| row.caught.is_none()).map(|row| row.fault).collect();
    assert!(unseen.is_empty(), "not seen: {unseen:?}");
}
