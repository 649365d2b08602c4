//! Exploration of a whole matrix: all its pools at one moment. `LODESTORE_SIM_IMAGES` sets the
//! number of images; the `explore` program does the long runs.

use std::collections::BTreeMap;

use crate::common;
use lodestore_media::sim::{LineModel, SimImage, SimSpec};
use lodestore_mkvs::planted::{FORK_CUT_UNSAID, REPLACED_EARLY};
use lodestore_sim::config::Config;
use lodestore_sim::counts::Counts;
use lodestore_sim::explore::script_of;
use lodestore_sim::mkvs::MkvsEngine;
use lodestore_sim::mutation::{Fault, planted};
use lodestore_sim::op::Op;
use lodestore_sim::script::Script;
use lodestore_sim::subject::Engine;

fn must_pass(config: Config) -> Counts {
    common::must_pass(&MkvsEngine, config)
}

fn script_named(name: &str) -> Option<u64> {
    let index = (0..40).find(|index| script_of(&MkvsEngine, 1, *index).name == name);
    assert!(index.is_some(), "the script {name:?} is there");
    index
}

/// Few images per point, so that the limit is reached late in a script.
fn thin(images: u64, seed: u64, script: &str) -> Config {
    let thin = Config { images, seed, only_script: script_named(script), images_per_point: 3, ..Config::default() };
    let thin = Config { nested_every: 100, nested_points: 2, nested_images: 2, store_point_every: 0, ..thin };
    Config { ops_after_few: 1, ops_after_every: 50, ..thin }
}

#[test]
fn every_image_of_cache_lines_recovers() {
    must_pass(Config { images: 8_000, ..Config::default() });
}

#[test]
fn every_image_of_sectors_and_every_kill_recovers() {
    must_pass(Config { images: 5_000, grain: 512, seed: 2, ..Config::default() });
    must_pass(Config { images: 5_000, stores_persist: true, seed: 3, ..Config::default() });
}

#[test]
fn every_geometry_and_rule_of_acknowledging_recovers() {
    for script in ["one acknowledges", "both acknowledge", "two groups", "filters that a clean stop leaves"] {
        must_pass(thin(3_000, 4, script));
    }
    must_pass(thin(3_000, 5, "two groups of three, of which one is taken away"));
    must_pass(thin(3_000, 6, "full devices"));
    must_pass(thin(3_000, 7, "both acknowledge, and one is taken away"));
}

/// Images in changes of the devices that each script must have, over at most this many seeds.
const IMAGES_OF_CHANGES_MIN: u64 = 300;
const SEEDS_MAX: u64 = 12;

/// Covers each step of a replacement, a state transfer, the creation of a group, and the move of
/// keys. At least three seeds, because a change is refused while a device is missing. The bytes of
/// the stores determine which and when: a seed may have all changes of a script refused.
#[test]
fn every_step_of_a_change_of_the_devices_recovers() {
    for (at, script) in [
        "devices are replaced",
        "devices are replaced, and one of three is taken away",
        "both acknowledge, and are replaced",
        "groups of one device are added",
        "a group is added, and one device of three is taken away",
        "groups are added and their devices replaced",
    ]
    .into_iter()
    .enumerate()
    {
        let mut images: Vec<u64> = Vec::new();
        for seed in (0..SEEDS_MAX).map(|more| 1 + at as u64 + 10 * more) {
            if images.len() < 3 || images.iter().sum::<u64>() <= IMAGES_OF_CHANGES_MIN {
                images.push(images_of_changes(seed, script));
            }
        }
        println!("{script}: {images:?} images in changes of the devices");
        assert!(images.iter().sum::<u64>() > IMAGES_OF_CHANGES_MIN, "{script}: {images:?} images in changes");
    }
}

fn images_of_changes(seed: u64, script: &str) -> u64 {
    let counts = must_pass(Config { store_point_every: 6, only_device_changes: true, ..thin(4_000, seed, script) });
    let of = |name| counts.ops.get(name).map_or(0, |counts| counts.images);
    of("replace a device") + of("add a group")
}

/// An inactive member had an operation of the last epoch that the leader lacked, and nothing
/// removed it: the epoch that excludes it begins when all members have caught up. The member was
/// then active with one operation too many in its log, and later in its store.
#[test]
fn what_a_member_has_of_the_last_epoch_and_the_leader_lacks_is_cut_off() {
    for script in
        ["one device of three is taken away, and logs turn", "operations that the device taken away alone has"]
    {
        let thin = thin(6_000, 2, script);
        let thin = Config { nested_every: 30, nested_points: 3, store_point_every: 4, ..thin };
        must_pass(Config { stores_persist: true, threads: 1, ..thin });
    }
}

/// The explorer once repeated a refused open with all devices, whatever the error, so a wrong
/// refusal (`OpenAsksForAll`) was not seen.
#[test]
fn an_open_without_a_device_is_refused_where_the_image_says_so_alone() {
    let (mut borne, mut refused) = (0, 0);
    for script in ["one device of three is taken away", "two groups of three, of which one is taken away"] {
        let counts = must_pass(thin(4_000, 1, script));
        (borne, refused) = (borne + counts.losses_borne, refused + counts.losses_refused);
    }
    println!("{borne} opened without a device, {refused} refused");
    assert!(borne > 1_000 && refused < borne / 4, "{borne} opened without a device, {refused} refused");
}

/// Returns the engine's counters after a script without cuts, whose stops are kills and clean
/// stops.
fn counters(script: &Script) -> BTreeMap<&'static str, u64> {
    let spec = SimSpec::default();
    let mut model = LineModel::new(SimImage { spec: spec.clone(), ..SimImage::default() });
    let mut store = MkvsEngine.create(&spec, &script.shape).expect("create");
    let mut counted = BTreeMap::new();
    for op in script.ops.iter().chain([&Op::Reopen]) {
        store.apply(op).expect("an operation");
        if !matches!(op, Op::Reopen | Op::Kill | Op::PowerCut) {
            continue;
        }
        for (name, _) in REACHED {
            *counted.entry(name).or_default() += store.counter(name);
        }
        if *op == Op::Reopen {
            store.close().expect("close");
        }
        store.recorder().take().events.iter().for_each(|event| model.apply(event));
        drop(store);
        store = MkvsEngine.open(&model.newest(), &script.shape).expect("open");
        store.wait_recovered().expect("recovers");
    }
    counted
}

/// Counters that increase in the first 48 scripts, with the minimum number of scripts.
const REACHED: [(&str, usize); 7] = [
    ("devices_caught_up", 24),
    ("devices_copied", 8),
    ("writes_taken_back", 1),
    ("reads_filtered", 4),
    ("devices_behind", 4),
    ("devices_replaced", 2),
    ("groups_added", 2),
];

#[test]
fn scripts_reach_what_the_engine_does_about_its_members() {
    let all: Vec<_> = (0..48).map(|index| counters(&script_of(&MkvsEngine, 1, index))).collect();
    for (name, least) in REACHED {
        let reached = all.iter().filter(|counted| counted[name] > 0).count();
        println!("{name}: {reached} scripts");
        assert!(reached >= least, "{name} rises in {reached} scripts of 48");
    }
}

/// Returns the script in which to search for a fault that shows in few scripts.
fn place_of(fault: &Fault) -> Option<&'static str> {
    let Fault::Planted(mutant) = fault else { return None };
    match mutant.name() {
        "MovedDeletedFirst" => Some("groups of one device are added"),
        "ReplacedEarly" => Some("devices are replaced, and one of three is taken away"),
        "FilterLeftKept" => Some("filters that a clean stop leaves"),
        "MemberBackUnsaid" | "OpenAsksForAll" => Some("one device of three is taken away"),
        "OpEvictedEarly" => Some("logs turn"),
        "ForkCutUnsaid" => Some("operations that the device taken away alone has"),
        _ => None,
    }
}

/// Returns the configuration of the search. Two faults show in one script of seven, whatever is cut
/// there: many short runs see them that cut no recovery and only stop the process.
fn search_for(fault: &Fault) -> Config {
    let Some(script) = place_of(fault) else { return Config { images: 30_000, ..Config::default() } };
    let thin = thin(30_000, 1, script);
    if [FORK_CUT_UNSAID, REPLACED_EARLY].map(Fault::Planted).contains(fault) {
        return Config { stores_persist: true, nested_every: 0, store_point_every: 4, ..thin };
    }
    thin
}

#[test]
fn every_planted_fault_is_seen() {
    let faults = planted(&MkvsEngine);
    assert!(faults.len() >= 12);
    let unseen = common::find_unseen(&MkvsEngine, &faults, search_for);
    assert!(unseen.is_empty(), "not seen: {unseen:?}");
}
