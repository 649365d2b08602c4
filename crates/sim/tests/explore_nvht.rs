//! NVHT explored. `LODESTORE_SIM_IMAGES` makes the share larger; the `explore` program does the long runs.

mod common;

use lodestore_sim::config::Config;
use lodestore_sim::mutation::{Fault, planted};
use lodestore_sim::nvht::NvhtEngine;

fn must_pass(config: Config) {
    let images = config.images;
    assert!(common::must_pass(&NvhtEngine, config).total() >= images);
}

#[test]
fn every_image_of_cache_lines_recovers() {
    must_pass(Config { images: 40_000, ..Config::default() });
}

#[test]
fn every_image_of_sectors_recovers() {
    must_pass(Config { images: 10_000, grain: 512, seed: 2, ..Config::default() });
}

#[test]
fn every_kill_of_the_process_recovers() {
    must_pass(Config { images: 10_000, stores_persist: true, seed: 3, store_point_every: 1, ..Config::default() });
}

#[test]
fn every_planted_fault_is_seen() {
    let faults = planted(&NvhtEngine);
    assert!(faults.len() >= 20);
    // One seed alone may pass by a fault.
    let config = Config { images: 80_000, ..Config::default() };
    let is_seen = |fault: &Fault| common::is_seen_by_some_seed(&NvhtEngine, &config, fault);
    let unseen: Vec<_> = faults.into_iter().filter(|fault| !is_seen(fault)).collect();
    assert!(unseen.is_empty(), "not seen: {unseen:?}");
}
