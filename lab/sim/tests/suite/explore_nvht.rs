//! Exploration of NVHT. `LODESTORE_SIM_IMAGES` sets the number of images; the `explore` program
//! does the long runs.

use crate::common;
use lodestore_media::planted::REGION_NOT_IN_HEADER;
use lodestore_sim::config::Config;
use lodestore_sim::explore::script_of;
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
    let unseen = common::find_unseen(&NvhtEngine, &faults, search_for);
    assert!(unseen.is_empty(), "not seen: {unseen:?}");
}

/// Returns the configuration of the search for a fault: everywhere, or in the only script that
/// shows it.
fn search_for(fault: &Fault) -> Config {
    let config = Config { images: 80_000, ..Config::default() };
    if *fault != Fault::Planted(REGION_NOT_IN_HEADER) {
        return config;
    }
    let only_script = (0..48).find(|index| script_of(&NvhtEngine, 1, *index).name == "growth by regions");
    assert!(only_script.is_some(), "the script is there");
    Config { only_script, ..config }
}
