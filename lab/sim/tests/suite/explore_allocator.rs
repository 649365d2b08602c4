//! The pool and its allocator explored alone. `LODESTORE_SIM_IMAGES` sets the number of images; the
//! `explore` program does the long runs.

use lodestore_sim::allocator::AllocatorEngine;
use lodestore_sim::config::Config;
use lodestore_sim::explore::explore;
use lodestore_sim::mutation::planted;

use crate::common;

fn images(share: u64) -> u64 {
    std::env::var("LODESTORE_SIM_IMAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(share)
}

fn must_pass(config: &Config) {
    let report = explore(&AllocatorEngine, config);
    println!("seed {}, grain {}: {}", config.seed, config.grain, report.counts);
    if let Some(failure) = report.failure {
        panic!("{failure}\n{}", failure.trace);
    }
    assert!(report.counts.total() >= config.images);
    assert!(report.counts.leak_checks > 0);
}

#[test]
fn every_image_of_cache_lines_recovers() {
    must_pass(&Config { images: images(15_000), ..Config::default() });
}

#[test]
fn every_image_of_sectors_recovers() {
    must_pass(&Config { images: images(5_000), grain: 512, seed: 2, ..Config::default() });
}

#[test]
fn every_kill_of_the_process_recovers() {
    must_pass(&Config {
        images: images(5_000),
        stores_persist: true,
        seed: 3,
        store_point_every: 1,
        ..Config::default()
    });
}

#[test]
fn every_planted_fault_is_seen() {
    let faults = planted(&AllocatorEngine);
    let config = Config { images: 200_000, ..Config::default() };
    let unseen = common::find_unseen(&AllocatorEngine, &faults, |_| config.clone());
    assert!(unseen.is_empty(), "not seen: {unseen:?}");
}
