//! A failing case is printed as a test: the text compiles, gives the same case again, and the case
//! fails only with the planted fault.

use lodestore_sim::damage::fault::Kind;
use lodestore_sim::damage::minimize::minimize;
use lodestore_sim::damage::model::{Breach, Violation};
use lodestore_sim::damage::planted::seen_case;
use lodestore_sim::damage::{CaseId, Config, Failure, explore, print, run_case};
use lodestore_sim::hikv::HiKvEngine;
use lodestore_sim::subject::Engine;

/// The printed text of one case, which has every operation and every kind of damage.
mod printed {
    include!("../damage_printed/every_kind.rs");

    pub(super) fn case() -> Case {
        case_of_damage_hikv_0_0()
    }
}

#[test]
fn a_printed_case_compiles_and_is_the_case() {
    let case = printed::case();
    assert!(Kind::ALL.len() > case.faults.len(), "several flips are one kind");
    let failure = Failure {
        id: CaseId { base: 0, image: 0 },
        case,
        structures: String::new(),
        violation: Violation { breach: Breach::Absent, phase: "", what: String::new() },
    };
    let text = print::test("hikv", &failure, None);
    assert_eq!(text, include_str!("../damage_printed/every_kind.rs"));
}

#[test]
fn a_minimized_case_of_a_planted_fault_fails_with_the_fault_and_not_without_it() {
    let engine: &dyn Engine = &HiKvEngine;
    let mutant = engine.damage_mutants()[0];
    let config = Config { images: 1000, ..Config::default() };
    let without = explore(engine, &config, None);
    let (id, _) = seen_case(engine, &config, mutant, &without, None).expect("the fault is seen");
    let alone = Config { case: Some(id), mutant: Some(mutant), ..config };
    let report = explore(engine, &alone, None);
    let (failure, _) = report.failures.values().next().expect("the case fails again");
    let small = minimize(engine, failure, Some(mutant));
    assert!(small.case.history.ops.len() <= failure.case.history.ops.len());
    assert!(run_case(engine, &small.case, Some(mutant)).is_err(), "{}", print::test("hikv", &small, Some(mutant)));
    assert!(run_case(engine, &small.case, None).is_ok(), "{}", print::test("hikv", &small, None));
}
