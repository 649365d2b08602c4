//! Engines with concurrent threads: live histories, and histories cut by a crash.
//! `LODESTORE_SIM_HISTORIES` sets the number of live histories of each test.

use std::collections::BTreeMap;
use std::ops::Bound::Included;
use std::sync::Barrier;
use std::thread;

use lodestore_contract::{Batch, BatchOp, RangeCondition};
use lodestore_media::PlantedFault;
use lodestore_sim::concurrent::{Load, check_durable, check_live, key_bytes, value_bytes};
use lodestore_sim::config::Config;
use lodestore_sim::faults::named;
use lodestore_sim::fluidkv::{FluidEngine, MODE_INTERVAL};
use lodestore_sim::hashkv::HashEngine;
use lodestore_sim::hikv::HiKvEngine;
use lodestore_sim::history::{self, Action, Answer, Call};
use lodestore_sim::nvht::NvhtEngine;
use lodestore_sim::op::{Op, Outcome};
use lodestore_sim::shape::Shape;
use lodestore_sim::subject::{Engine, Subject};

const LOAD: Load = Load { threads: 3, keys: 3, ops: 60, batches: false, ranges: false };
/// With batches all keys are searched together, so there are fewer operations. More keys, so that
/// they are in several lines.
const BATCHES: Load = Load { keys: 6, ops: 40, batches: true, ..LOAD };

/// Some batches have conditions on ranges.
const RANGES: Load = Load { ranges: true, ..BATCHES };

fn shape() -> Shape {
    Shape::default()
}

/// Live histories of each test.
fn history_count() -> u64 {
    let given = std::env::var("LODESTORE_SIM_HISTORIES").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(40)
}

fn live_histories_are_linearizable(engine: &dyn Engine, load: Load) {
    for seed in 0..history_count() {
        let config = Config { seed, ..Config::default() };
        let store = engine.create(&config.spec(false), &shape()).expect("a store");
        store.recorder().set_jitter(2);
        check_live(load, seed, &|op| store.apply(op)).unwrap_or_else(|wrong| panic!("seed {seed}: {}", wrong.what));
        assert_eq!(store.verify().expect("verified"), Vec::<String>::new(), "seed {seed}");
    }
}

fn what_returned_survives_a_crash(engine: &dyn Engine, load: Load) {
    let mut images = 0;
    // A search over all keys together is slower.
    for seed in 0..if load.batches { 20 } else { 40 } {
        let config = Config { seed, images_per_point: 6, ..Config::default() };
        let counts = check_durable(engine, &config, &shape(), load, 120)
            .unwrap_or_else(|wrong| panic!("seed {seed}: {} oracle: {}", wrong.oracle, wrong.what));
        images += counts.images;
    }
    println!("{images} images of concurrent histories");
}

/// On a file, where all threads share one log and wait for their groups.
fn what_returned_of_a_file_survives_a_crash(
    load: Load,
    mutant: Option<PlantedFault>,
    seeds: u64,
) -> Result<u64, String> {
    let mut images = 0;
    for seed in 0..seeds {
        let config = Config { seed, grain: 512, images_per_point: 6, mutant, ..Config::default() };
        let counts = check_durable(&FluidEngine, &config, &shape(), load, 120)
            .map_err(|wrong| format!("seed {seed}: {} oracle: {}", wrong.oracle, wrong.what))?;
        images += counts.images;
    }
    Ok(images)
}

#[test]
fn what_returned_of_fluidkv_on_a_file_survives_a_crash_reads_included() {
    for load in [LOAD, Load { threads: 4, keys: 1, ops: 30, batches: false, ranges: false }, BATCHES] {
        let seeds = if load.batches { 20 } else { 40 };
        let images =
            what_returned_of_a_file_survives_a_crash(load, None, seeds).unwrap_or_else(|wrong| panic!("{wrong}"));
        println!("{images} images of concurrent histories");
    }
}

#[test]
fn live_histories_of_fluidkv_on_a_file_are_linearizable_with_interval_too() {
    let loads = [LOAD, BATCHES, RANGES];
    for (mode, load) in [0, MODE_INTERVAL].into_iter().flat_map(|mode| loads.map(|load| (mode, load))) {
        for seed in 0..30 {
            let config = Config { seed, grain: 512, ..Config::default() };
            let shape = Shape { mode, ..shape() };
            let store = FluidEngine.create(&config.spec(false), &shape).expect("a store");
            store.recorder().set_jitter(2);
            check_live(load, seed, &|op| store.apply(op)).unwrap_or_else(|wrong| panic!("seed {seed}: {}", wrong.what));
            assert_eq!(store.verify().expect("verified"), Vec::<String>::new(), "seed {seed}");
        }
    }
}

#[test]
fn a_write_that_is_read_or_answered_before_its_group_is_durable_is_seen() {
    let load = Load { keys: 1, ops: 40, ..LOAD };
    for name in ["PublishedBeforeSync", "AnsweredBeforeSync", "ReadsBeforePending"] {
        let mutant = named(&FluidEngine, name).expect("a fault of the engine");
        let seen = what_returned_of_a_file_survives_a_crash(load, Some(mutant), 400).err();
        println!("{mutant:?}: {seen:?}");
        assert!(seen.is_some(), "{mutant:?}");
    }
}

fn a_mutant_is_seen(engine: &dyn Engine, name: &str, load: Load) {
    let mutant = named(engine, name).expect("a fault of the engine");
    let seen = (0..400).find(|seed| {
        let config = Config { seed: *seed, images_per_point: 6, mutant: Some(mutant), ..Config::default() };
        check_durable(engine, &config, &shape(), load, 200).is_err()
    });
    println!("{mutant:?} seen by the history of seed {seen:?}");
    assert!(seen.is_some());
}

#[test]
fn a_condition_that_is_ignored_is_seen_in_a_history() {
    for engine in [&HiKvEngine as &dyn Engine, &NvhtEngine, &FluidEngine, &HashEngine] {
        let is_seen = |seed: u64| {
            let config = Config { seed, mutant: named(engine, "ConditionIgnored"), ..Config::default() };
            let store = engine.create(&config.spec(false), &shape()).expect("a store");
            check_live(BATCHES, seed, &|op| store.apply(op)).is_err()
        };
        let seen = (0..40).find(|seed| is_seen(*seed));
        println!("{}: seen in the history of seed {seen:?}", engine.name());
        assert!(seen.is_some(), "{}", engine.name());
    }
}

/// Two threads put one key each on the condition that the range of both keys is empty. At least one
/// put is made. Returns the round whose history the checker refuses: both puts were made.
fn find_round_with_both_puts(store: &dyn Subject, rounds: u64) -> Option<u64> {
    let range = RangeCondition { from: Included(key_bytes(0)), to: Included(key_bytes(1)), keys: Vec::new() };
    (0..rounds).find(|round| {
        let start = Barrier::new(2);
        let put_own = |own: u64| {
            let put = BatchOp::Put { key: key_bytes(own), value: value_bytes(*round), expiry: None };
            let batch = Batch { ops: vec![put] };
            let op = Op::WriteIf { conditions: Vec::new(), ranges: vec![range.clone()], batch };
            start.wait();
            store.apply(&op).expect("an answer") == Outcome::Changed(true)
        };
        let made = thread::scope(|scope| {
            let other = scope.spawn(|| put_own(1));
            [put_own(0), other.join().expect("the answer of the other thread")]
        });
        assert_ne!(made, [false, false], "round {round}: no put was made");
        (0..2).for_each(|key| _ = store.apply(&Op::Delete { key: key_bytes(key) }).expect("a delete"));
        let call = |own: u64| Call {
            action: Action::WriteIf {
                expected: vec![(0, None), (1, None)],
                values: vec![(own, Some(*round))],
                is_range: true,
            },
            called: own,
            returned: Some((2 + own, Answer::Changed(made[own as usize]))),
        };
        let is_refused = history::check(&[call(0), call(1)], &BTreeMap::new()).is_err();
        assert_eq!(is_refused, made == [true, true], "round {round}: the checker and {made:?}");
        is_refused
    })
}

#[test]
fn of_two_puts_on_the_condition_of_one_range_one_is_made() {
    for engine in [&FluidEngine as &dyn Engine, &HashEngine] {
        let find = |name: Option<&str>, rounds| {
            let config = Config { mutant: name.and_then(|name| named(engine, name)), ..Config::default() };
            let store = engine.create(&config.spec(false), &shape()).expect("a store");
            store.recorder().set_jitter(2);
            find_round_with_both_puts(&*store, rounds)
        };
        assert_eq!(find(None, 300), None, "{}", engine.name());
        let seen = find(Some("RangeNotLocked"), 20_000);
        println!("{}: seen in round {seen:?}", engine.name());
        assert!(seen.is_some(), "{}", engine.name());
    }
}

#[test]
fn live_histories_with_conditions_on_ranges_are_linearizable() {
    live_histories_are_linearizable(&FluidEngine, RANGES);
    live_histories_are_linearizable(&HashEngine, RANGES);
}

#[test]
fn live_histories_of_hikv_are_linearizable() {
    live_histories_are_linearizable(&HiKvEngine, LOAD);
}

#[test]
fn live_histories_of_nvht_are_linearizable() {
    live_histories_are_linearizable(&NvhtEngine, LOAD);
}

#[test]
fn live_histories_of_hikv_with_batches_are_linearizable() {
    live_histories_are_linearizable(&HiKvEngine, BATCHES);
}

#[test]
fn live_histories_of_nvht_with_batches_are_linearizable() {
    live_histories_are_linearizable(&NvhtEngine, BATCHES);
}

#[test]
fn what_returned_of_hikv_survives_a_crash_reads_included() {
    what_returned_survives_a_crash(&HiKvEngine, LOAD);
}

#[test]
fn what_returned_of_nvht_survives_a_crash_reads_included() {
    what_returned_survives_a_crash(&NvhtEngine, LOAD);
}

#[test]
fn what_returned_of_hikv_with_batches_survives_a_crash_and_no_batch_by_half() {
    what_returned_survives_a_crash(&HiKvEngine, BATCHES);
}

#[test]
fn what_returned_of_nvht_with_batches_survives_a_crash_and_no_batch_by_half() {
    what_returned_survives_a_crash(&NvhtEngine, BATCHES);
}

#[test]
fn an_answer_from_an_entry_that_is_not_durable_is_seen() {
    for engine in [&HiKvEngine as &dyn Engine, &NvhtEngine] {
        a_mutant_is_seen(engine, "ReadUnpersisted", Load { keys: 1, ops: 40, ..LOAD });
    }
}

#[test]
fn a_batch_that_a_crash_cuts_in_half_is_seen() {
    for engine in [&HiKvEngine as &dyn Engine, &NvhtEngine] {
        a_mutant_is_seen(engine, "BatchNotLogged", BATCHES);
    }
}

#[test]
fn live_histories_of_fluidkv_are_linearizable_with_batches_too() {
    live_histories_are_linearizable(&FluidEngine, LOAD);
    live_histories_are_linearizable(&FluidEngine, BATCHES);
}

#[test]
fn what_returned_of_fluidkv_survives_a_crash_and_no_batch_by_half() {
    what_returned_survives_a_crash(&FluidEngine, LOAD);
    what_returned_survives_a_crash(&FluidEngine, BATCHES);
}

#[test]
fn a_replay_that_ignores_the_numbers_of_its_entries_is_seen() {
    a_mutant_is_seen(&FluidEngine, "ReplayIgnoresNumbers", Load { keys: 1, ops: 40, ..LOAD });
}

#[test]
fn live_histories_of_hashkv_are_linearizable_with_batches_too() {
    live_histories_are_linearizable(&HashEngine, LOAD);
    live_histories_are_linearizable(&HashEngine, BATCHES);
}

#[test]
fn what_returned_of_hashkv_survives_a_crash_and_no_batch_by_half() {
    what_returned_survives_a_crash(&HashEngine, LOAD);
    what_returned_survives_a_crash(&HashEngine, BATCHES);
    what_returned_survives_a_crash(&HashEngine, SCATTERED);
}

/// Enough writes that values are separated concurrently with other writes.
const SCATTERED: Load = Load { threads: 3, keys: 8, ops: 200, batches: false, ranges: false };

#[test]
fn values_that_are_named_before_they_are_synced_are_seen_beside_other_writers() {
    a_mutant_is_seen(&HashEngine, "ScatterNotSynced", SCATTERED);
}
