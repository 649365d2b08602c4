//! Exploration of keyspaces over each engine. `LODESTORE_SIM_IMAGES` sets the number of images; the
//! `explore` program does the long runs.

use lodestore_sim::config::Config;
use lodestore_sim::explore::{explore, script_of};
use lodestore_sim::keyspaces::{FLUIDKV, HASHKV, HIKV, KeyspaceFault, MKVS, NVHT};
use lodestore_sim::subject::Engine;

/// Maximum images until a planted fault is seen.
const IMAGES_MAX: u64 = 12_000;

fn must_pass(engine: &dyn Engine, config: Config) {
    let share = std::env::var("LODESTORE_SIM_IMAGES").ok().and_then(|text| text.parse().ok());
    let config = Config { images: share.unwrap_or(config.images), ..config };
    let report = explore(engine, &config);
    println!("{}, seed {}, grain {}: {}", engine.name(), config.seed, config.grain, report.counts);
    assert!(report.failure.is_none(), "{}", report.failure.map(|failure| failure.to_string()).unwrap_or_default());
}

#[test]
fn every_image_of_cache_lines_recovers() {
    must_pass(&HIKV, Config { images: 4_000, ..Config::default() });
    must_pass(&NVHT, Config { images: 2_000, seed: 2, ..Config::default() });
    must_pass(&FLUIDKV, Config { images: 2_000, seed: 3, ..Config::default() });
    must_pass(&HASHKV, Config { images: 2_000, seed: 4, ..Config::default() });
    must_pass(&MKVS, Config { images: 1_000, seed: 5, ..Config::default() });
}

#[test]
fn every_kill_of_the_process_recovers() {
    for engine in [&HIKV as &dyn Engine, &NVHT, &FLUIDKV, &HASHKV] {
        must_pass(engine, Config { images: 1_000, stores_persist: true, seed: 6, ..Config::default() });
    }
}

/// A creation and a drop are durable when they return, also in a store of `interval`.
#[test]
fn every_image_of_an_interval_store_has_the_keyspaces_that_were_acknowledged() {
    must_pass(&FLUIDKV, interval());
}

fn interval() -> Config {
    Config { images: 2_000, grain: 512, prefix: true, seed: 7, ..Config::default() }
}

/// The engines refuse a drop at different moments. The keyspace is then read as before.
#[test]
fn a_full_store_refuses_keyspaces_and_still_reads_them() {
    for engine in [&HIKV as &dyn Engine, &FLUIDKV, &HASHKV] {
        let only_script = (0..32).find(|index| script_of(engine, 1, *index).name == "a full store");
        assert!(only_script.is_some(), "the script is there");
        let thin = Config { images: 4_000, only_script, images_per_point: 1, nested_every: 400, ..Config::default() };
        must_pass(engine, Config { ops_after_few: 2, ops_after_every: 60, ..thin });
    }
}

fn is_seen(engine: &dyn Engine, fault: KeyspaceFault, config: &Config) -> bool {
    let report = explore(engine, &Config { images: IMAGES_MAX, ..config.clone() });
    let what = report.failure.map_or_else(|| "NOT SEEN".into(), |failure| failure.to_string());
    println!("{fault:?}: {} images, {what}", report.counts.total());
    what != "NOT SEEN"
}

#[test]
fn every_planted_fault_is_seen() {
    let is_seen = |fault: &KeyspaceFault| match fault {
        KeyspaceFault::SyncLeftOut => is_seen(&FLUIDKV.with_fault(*fault), *fault, &interval()),
        _ => is_seen(&HIKV.with_fault(*fault), *fault, &Config::default()),
    };
    let unseen: Vec<_> = KeyspaceFault::ALL.into_iter().filter(|fault| !is_seen(fault)).collect();
    assert!(unseen.is_empty(), "not seen: {unseen:?}");
}
