//! The damage explorer itself: it is right about undamaged stores, and a seed reproduces.

use lodestore_sim::damage::fault::Kind;
use lodestore_sim::damage::oracle::{Class, Effort};
use lodestore_sim::damage::{Case, Config, explore, run_case, scripts};
use lodestore_sim::fluidkv::FluidEngine;
use lodestore_sim::hashkv::HashEngine;
use lodestore_sim::hikv::HiKvEngine;
use lodestore_sim::mkvs::MkvsEngine;
use lodestore_sim::nvht::NvhtEngine;
use lodestore_sim::subject::Engine;

const ENGINES: [&dyn Engine; 5] = [&HiKvEngine, &NvhtEngine, &FluidEngine, &HashEngine, &MkvsEngine];
/// Histories without damage, for each engine.
const HISTORIES: u64 = 24;

#[test]
fn undamaged_stores_are_correct_and_report_nothing() {
    for engine in ENGINES {
        for index in 0..HISTORIES {
            let history = scripts::history(engine, 7, index, None);
            let effort = Effort { again: true, ops: 40, seed: index };
            let case = Case { history, history_seed: index, faults: Vec::new(), effort };
            let judged = run_case(engine, &case, None);
            assert_eq!(judged, Ok(Some(Class::Correct)), "{}, seed 7, history {index}", engine.name());
        }
    }
}

#[test]
fn a_seed_reproduces_every_row_of_the_table() {
    for engine in ENGINES {
        let explored = |threads| explore(engine, &Config { images: 128, threads, ..Config::default() }, None);
        let (first, second) = (explored(1), explored(2));
        assert_eq!(first.rows, second.rows, "{}", engine.name());
    }
}

#[test]
fn files_that_are_cut_or_missing_are_refused_or_reported() {
    for engine in ENGINES {
        let only = Some(Kind::Truncated);
        let report = explore(engine, &Config { images: 256, only, ..Config::default() }, None);
        let failures: Vec<_> = report.failures.values().map(|(failure, _)| failure).collect();
        assert!(failures.is_empty(), "{}: {failures:#?}", engine.name());
    }
}
