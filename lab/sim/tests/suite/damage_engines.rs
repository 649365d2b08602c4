//! Short damage explorations of every engine. `LODESTORE_SIM_IMAGES` makes them longer; the
//! `damage` program does the long runs.

use lodestore_media::sim::SimSpec;
use lodestore_sim::damage::base::{End, History, build};
use lodestore_sim::damage::fault::{Fault, Place};
use lodestore_sim::damage::known_gaps::{are_few, is_known};
use lodestore_sim::damage::map::map_of;
use lodestore_sim::damage::oracle::Effort;
use lodestore_sim::damage::planted::seen_case;
use lodestore_sim::damage::{Case, CaseId, Config, Report, explore, run_case};
use lodestore_sim::fluidkv::FluidEngine;
use lodestore_sim::hashkv::HashEngine;
use lodestore_sim::hikv::HiKvEngine;
use lodestore_sim::mkvs::MkvsEngine;
use lodestore_sim::nvht::NvhtEngine;
use lodestore_sim::op::Op;
use lodestore_sim::shape::Shape;
use lodestore_sim::subject::Engine;

fn config(images: u64) -> Config {
    let given = std::env::var("LODESTORE_SIM_IMAGES").ok().and_then(|text| text.parse().ok());
    Config { images: given.unwrap_or(images), ..Config::default() }
}

/// Explores, and prints every violation. Fails on a breach that is not known for the engine.
fn explored(engine: &dyn Engine, images: u64) -> Report {
    let report = explore(engine, &config(images), None);
    let mut worst = None;
    for (signature, (failure, count)) in &report.failures {
        let breach = failure.violation.breach;
        let is_known = is_known(engine.name(), signature);
        let known = if is_known { "KNOWN VIOLATION" } else { "VIOLATION" };
        let id = failure.id;
        println!(
            "{known}, {count} images: {breach:?}, {}, case {}.{}: {}",
            failure.structures, id.base, id.image, failure.violation.what
        );
        if !is_known {
            worst = Some(failure.clone());
        }
    }
    assert!(worst.is_none(), "{} breaks the rule: {worst:#?}", engine.name());
    assert!(are_few(engine.name(), &report), "{}: {} violations", engine.name(), report.violations());
    report
}

/// Maximum seeds of the search for a planted fault.
const SEEDS_MAX: u64 = 24;

/// Explores with each planted fault, one seed after the other. Fails if no case of any seed shows
/// the fault.
fn planted_faults_are_seen(engine: &dyn Engine, images: u64) {
    // All faults have the reports without a fault in common, one for each seed.
    let mut without = Vec::new();
    for mutant in engine.damage_mutants() {
        let seen = (1..=SEEDS_MAX).find_map(|seed| {
            let config = Config { seed, ..config(images) };
            if without.len() < seed as usize {
                without.push(explore(engine, &config, None));
            }
            Some(seed).zip(seen_case(engine, &config, *mutant, &without[seed as usize - 1], None))
        });
        let Some((seed, (id, violation))) = seen else {
            panic!("{}: no damage shows {mutant:?}, seeds 1 to {SEEDS_MAX}", engine.name());
        };
        println!("{mutant:?}, seed {seed}, case {}.{}: {violation:?}", id.base, id.image);
    }
}

#[test]
fn damaged_stores_of_hikv_keep_the_rule() {
    explored(&HiKvEngine, 1500);
}

#[test]
fn damaged_stores_of_nvht_keep_the_rule() {
    explored(&NvhtEngine, 1500);
}

#[test]
fn damaged_stores_of_fluidkv_keep_the_rule() {
    explored(&FluidEngine, 1500);
}

#[test]
fn damaged_stores_of_hashkv_keep_the_rule() {
    explored(&HashEngine, 1500);
}

#[test]
fn damaged_matrices_keep_the_rule() {
    explored(&MkvsEngine, 640);
}

#[test]
fn planted_faults_of_in_place_engines_are_seen() {
    planted_faults_are_seen(&HiKvEngine, 1000);
    planted_faults_are_seen(&NvhtEngine, 640);
}

#[test]
fn planted_faults_of_log_engines_are_seen() {
    planted_faults_are_seen(&FluidEngine, 2000);
    planted_faults_are_seen(&HashEngine, 1000);
}

#[test]
fn planted_faults_of_matrices_are_seen() {
    planted_faults_are_seen(&MkvsEngine, 640);
}

/// A salvage of a matrix gave up acknowledged keys, and the next strict open did not report the
/// loss.
#[test]
fn a_salvage_of_a_matrix_that_gives_up_keys_is_not_forgotten() {
    let cases = [(13, 34), (13, 57), (15, 45), (35, 31), (60, 24), (60, 44), (76, 35), (85, 1), (85, 27), (90, 31)];
    for (base, image) in cases {
        let case = Some(CaseId { base, image });
        let report = explore(&MkvsEngine, &Config { case, ..Config::default() }, None);
        assert_eq!((report.images, report.violations()), (1, 0), "{base}.{image}: {:?}", report.broken);
    }
}

/// `hikv` counted a key twice after a put over a damaged record.
#[test]
fn a_key_of_hikv_that_is_put_over_a_damaged_record_is_not_counted_twice() {
    for (base, image) in [(415, 60), (854, 18), (1129, 54), (1988, 63)] {
        let case = Some(CaseId { base, image });
        let report = explore(&HiKvEngine, &Config { case, ..Config::default() }, None);
        assert_eq!((report.images, report.violations()), (1, 0), "{base}.{image}: {:?}", report.broken);
    }
}

/// A power failure loses the log count, the spare header and the end hint of a log of one record.
/// The next open finds the record and stores all three again.
#[test]
fn a_log_that_a_power_failure_left_without_marks_is_missed_when_its_page_is_lost() {
    let value = |len| vec![4; len];
    let put = |len| Op::Put { key: b"the key".to_vec(), value: value(len), expiry: None };
    for history_seed in 0..64 {
        let history = History {
            shape: Shape { capacity: 1 << 20, region_bytes: 1 << 20, chunk_bytes: 4096, partitions: 1, mode: 0 },
            ops: vec![put(20), Op::Reopen, put(21), Op::PowerCut],
            end: End::Kill,
        };
        let base = build(&FluidEngine, &SimSpec::default(), &history, history_seed).expect("an undamaged store");
        let parts = map_of(&base.image, "fluidkv");
        let logs = parts.iter().filter(|part| part.name == "log segment: head");
        for log in logs {
            let at = Place { len: 4096, ..log.at };
            let effort = Effort { again: false, ops: 0, seed: 1 };
            let case = Case { history: history.clone(), history_seed, faults: vec![Fault::Zero { at }], effort };
            run_case(&FluidEngine, &case, None).unwrap_or_else(|broken| panic!("seed {history_seed}: {broken:?}"));
        }
    }
}
