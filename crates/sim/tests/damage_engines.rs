//! Short damage explorations of every engine. `LODESTORE_SIM_IMAGES` makes them longer; the
//! `damage` program does the long runs.

use lodestore_sim::damage::open::{are_few, is_known};
use lodestore_sim::damage::planted::seen_case;
use lodestore_sim::damage::{CaseId, Config, Report, explore};
use lodestore_sim::fluidkv::FluidEngine;
use lodestore_sim::hashkv::HashEngine;
use lodestore_sim::hikv::HiKvEngine;
use lodestore_sim::mkvs::MkvsEngine;
use lodestore_sim::nvht::NvhtEngine;
use lodestore_sim::subject::Engine;

fn config(images: u64) -> Config {
    let given = std::env::var("LODESTORE_SIM_IMAGES").ok().and_then(|text| text.parse().ok());
    Config { images: given.unwrap_or(images), ..Config::default() }
}

/// Explores, and prints every violation. Fails on a breach that the engine is not known to have.
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

/// Explores with each planted fault, and fails if no case shows the fault.
fn planted_faults_are_seen(engine: &dyn Engine, images: u64) {
    let config = config(images);
    let without = explore(engine, &config, None);
    for mutant in engine.damage_mutants() {
        let seen = seen_case(engine, &config, *mutant, &without, None);
        println!("{} {mutant:?}: {seen:?}", engine.name());
        assert!(seen.is_some(), "{}: no damage shows {mutant:?}, seed {}", engine.name(), config.seed);
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

/// `hikv` counted a key twice that was put over a damaged record.
#[test]
fn a_key_of_hikv_that_is_put_over_a_damaged_record_is_not_counted_twice() {
    for (base, image) in [(415, 60), (854, 18), (1129, 54), (1988, 63)] {
        let case = Some(CaseId { base, image });
        let report = explore(&HiKvEngine, &Config { case, ..Config::default() }, None);
        assert_eq!((report.images, report.violations()), (1, 0), "{base}.{image}: {:?}", report.broken);
    }
}
