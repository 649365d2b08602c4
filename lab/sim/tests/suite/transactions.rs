//! Concurrent transactions over keyspaces. `LODESTORE_SIM_HISTORIES` sets the number of histories
//! that each test of an engine checks.

use lodestore_sim::config::Config;
use lodestore_sim::faults::named;
use lodestore_sim::fluidkv::FluidEngine;
use lodestore_sim::hashkv::HashEngine;
use lodestore_sim::hikv::HiKvEngine;
use lodestore_sim::nvht::NvhtEngine;
use lodestore_sim::subject::Engine;
use lodestore_sim::transactions::{Counts, Load, check};

const LOAD: Load = Load { threads: 3, ops: 20 };
/// Maximum histories until a planted fault is seen.
const HISTORIES_MAX: u64 = 400;

/// Returns the number of histories of each engine.
fn history_count() -> u64 {
    let given = std::env::var("LODESTORE_SIM_HISTORIES").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(100)
}

fn histories_are_serializable(engine: &dyn Engine) {
    let (histories, mut counts) = (history_count(), Counts::default());
    for seed in 0..histories {
        let config = Config { seed, ..Config::default() };
        let of_history = check(engine, &config, LOAD)
            .unwrap_or_else(|wrong| panic!("{}, seed {seed}: {} oracle: {}", engine.name(), wrong.oracle, wrong.what));
        counts.add(&of_history);
    }
    println!("{}: {histories} histories, {counts:?}", engine.name());
    assert!(counts.committed > histories && counts.aborted > 0 && counts.single > histories, "{counts:?}");
    assert!(counts.expired > 0, "{counts:?}");
}

#[test]
fn transactions_of_hikv_over_keyspaces_are_serializable() {
    histories_are_serializable(&HiKvEngine);
}

#[test]
fn transactions_of_nvht_over_keyspaces_are_serializable() {
    histories_are_serializable(&NvhtEngine);
}

#[test]
fn transactions_of_fluidkv_over_keyspaces_and_their_ranges_are_serializable() {
    histories_are_serializable(&FluidEngine);
}

#[test]
fn transactions_of_hashkv_over_keyspaces_and_their_ranges_are_serializable() {
    histories_are_serializable(&HashEngine);
}

#[test]
fn a_commit_that_checks_no_condition_is_seen() {
    for engine in [&HiKvEngine as &dyn Engine, &NvhtEngine, &FluidEngine, &HashEngine] {
        let is_seen = |seed: u64| {
            let config = Config { seed, mutant: named(engine, "ConditionIgnored"), ..Config::default() };
            check(engine, &config, LOAD).is_err()
        };
        let seen = (0..HISTORIES_MAX).find(|seed| is_seen(*seed));
        println!("{}: seen in the history of seed {seen:?}", engine.name());
        assert!(seen.is_some(), "{}", engine.name());
    }
}
