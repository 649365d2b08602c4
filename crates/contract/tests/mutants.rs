//! Each flaw of the reference store is caught by the suite.

mod reference;

use std::time::Duration;

use lodestore_contract::conformance::{Plan, outcomes, seed};
use reference::{Flaw, Place};

fn plan() -> Plan {
    Plan {
        keys: 120,
        thread_ops: 400,
        model_cases: 12,
        model_ops: 40,
        damage_rounds: 6,
        value_max: 2 << 20,
        capacity_small: 2 << 20,
        patience: Duration::from_secs(60),
        ..Plan::default()
    }
}

#[test]
fn every_flaw_is_caught() {
    // What fails here is told by the table; a thousand backtraces would take minutes.
    std::panic::set_hook(Box::new(|_| {}));
    let sound = outcomes(|| Place { plan: plan(), ..Place::new(None) });
    let mut missed = Vec::new();
    println!("LODESTORE_SEED={:#x}\n{:<26} {:>6}  first", seed(), "flaw", "caught");
    for flaw in Flaw::ALL {
        let outcomes = outcomes(|| Place { plan: plan(), ..Place::new(Some(*flaw)) });
        let caught: Vec<_> =
            outcomes.iter().filter(|outcome| outcome.failure.is_some()).map(|outcome| outcome.name).collect();
        println!("{:<26} {:>6}  {}", format!("{flaw:?}"), caught.len(), caught.first().unwrap_or(&"NOT CAUGHT"));
        if caught.is_empty() {
            missed.push(flaw);
        }
    }
    let _ = std::panic::take_hook();
    println!("{} flaws, {} behaviours, {} missed", Flaw::ALL.len(), sound.len(), missed.len());
    let failing: Vec<_> = sound.iter().filter(|outcome| outcome.failure.is_some()).collect();
    assert!(failing.is_empty(), "the suite fails without a flaw: {failing:?}");
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
