//! Exploration of HashKV. `LODESTORE_SIM_IMAGES` sets the number of images; the `explore` program
//! does the long runs.

use std::collections::BTreeMap;

use crate::common;
use lodestore_media::sim::{LineModel, SimImage, SimSpec};
use lodestore_sim::config::Config;
use lodestore_sim::explore::script_of;
use lodestore_sim::faults::hashkv::LATE_NOT_SYNCED;
use lodestore_sim::hashkv::HashEngine;
use lodestore_sim::mutation::{Fault, planted};
use lodestore_sim::op::Op;
use lodestore_sim::script::Script;
use lodestore_sim::subject::Engine;

fn must_pass(config: Config) {
    common::must_pass(&HashEngine, config);
}

#[test]
fn every_image_of_cache_lines_recovers() {
    must_pass(Config { images: 30_000, ..Config::default() });
}

#[test]
fn every_image_of_sectors_and_every_kill_recovers() {
    must_pass(Config { images: 20_000, grain: 512, seed: 2, ..Config::default() });
    must_pass(Config { images: 10_000, stores_persist: true, seed: 3, store_point_every: 1, ..Config::default() });
}

fn script_named(name: &str) -> Option<u64> {
    let index = (0..48).find(|index| script_of(&HashEngine, 1, *index).name == name);
    assert!(index.is_some(), "the script {name:?} is there");
    index
}

/// Few images per point, so that the limit is reached after the splits.
#[test]
fn every_image_of_groups_that_are_split_recovers() {
    let only_script = script_named("groups split");
    let thin = Config { images: 30_000, only_script, images_per_point: 8, store_point_every: 0, ..Config::default() };
    let thin = Config { nested_every: 200, nested_points: 2, nested_images: 2, ops_after_few: 1, ..thin };
    must_pass(Config { ops_after_every: 50, failing_every: 100, ..thin.clone() });
    must_pass(Config { grain: 512, ops_after_every: 50, failing_every: 100, ..thin });
}

#[test]
fn every_image_of_one_log_and_of_stores_whose_opens_have_other_modes_recovers() {
    for name in ["one log of values is collected", "each open has another mode"] {
        let thin = Config { images: 25_000, only_script: script_named(name), images_per_point: 8, ..Config::default() };
        let thin = Config { nested_every: 100, nested_points: 2, nested_images: 2, store_point_every: 0, ..thin };
        must_pass(Config { ops_after_every: 50, failing_every: 50, ..thin.clone() });
        must_pass(Config { grain: 512, ops_after_every: 50, failing_every: 50, ..thin });
    }
}

/// A newer version in the log hides a table's pointer into a segment that was collected and reused.
/// An open considered this pointer's use the current one, and the next collection freed live
/// values.
#[test]
fn a_pointer_that_a_log_hides_does_not_tell_which_use_of_a_segment_is_the_newest() {
    let only_script = script_named("groups split");
    must_pass(Config { images: 10_000, only_script, stores_persist: true, seed: 11, ..Config::default() });
    must_pass(Config { images: 60_000, only_script, grain: 512, seed: 11, ..Config::default() });
}

/// Returns the engine's counters after a script without cuts, whose stops are kills and clean
/// stops.
fn counters(script: &Script) -> BTreeMap<&'static str, u64> {
    let spec = SimSpec::default();
    let mut model = LineModel::new(SimImage { spec: spec.clone(), ..SimImage::default() });
    let mut store = HashEngine.create(&spec, &script.shape).expect("create");
    let mut counted = BTreeMap::new();
    for op in script.ops.iter().chain([&Op::Reopen]) {
        store.apply(op).expect("an operation");
        if !matches!(op, Op::Reopen | Op::Kill | Op::PowerCut) {
            continue;
        }
        if *op == Op::Reopen {
            store.close().expect("close");
        }
        for (name, _) in REACHED {
            *counted.entry(name).or_default() += store.counter(name);
        }
        store.recorder().take().events.iter().for_each(|event| model.apply(event));
        drop(store);
        store = HashEngine.open(&model.newest(), &script.shape).expect("open");
    }
    counted
}

/// Counters that increase in the first 48 scripts, with the minimum number of scripts.
const REACHED: [(&str, usize); 8] = [
    ("values_separated", 24),
    ("values_collections", 20),
    ("values_moved", 12),
    ("values_segments_freed", 20),
    ("values_group_splits", 5),
    ("values_segments_holes", 20),
    ("values_separated_late", 3),
    ("values_cooled_bytes", 12),
];

#[test]
fn scripts_reach_all_that_the_engine_does() {
    let all: Vec<_> = (0..48).map(|index| counters(&script_of(&HashEngine, 1, index))).collect();
    for (name, least) in REACHED {
        let reached = all.iter().filter(|counted| counted[name] > 0).count();
        println!("{name}: {reached} scripts");
        assert!(reached >= least, "{name} rises in {reached} scripts of 48");
    }
}

#[test]
fn every_planted_fault_is_seen() {
    let faults = planted(&HashEngine);
    assert!(faults.len() >= 7);
    let unseen = common::find_unseen(&HashEngine, &faults, search_for);
    assert!(unseen.is_empty(), "not seen: {unseen:?}");
}

fn search_for(fault: &Fault) -> Config {
    let late = *fault == Fault::Planted(LATE_NOT_SYNCED);
    let only_script = script_named("each open has another mode").filter(|_| late);
    let base = Config { images: 80_000, only_script, ..Config::default() };
    if late { Config { images_per_point: 8, store_point_every: 0, ..base } } else { base }
}
