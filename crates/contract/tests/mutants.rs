//! The suite catches each flaw of the reference store.

mod reference;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lodestore_contract::conformance::{Plan, first_failure, outcomes, seed};
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

/// Threads that search, each for one flaw at a time.
const SEARCHERS: usize = 2;

/// Returns the name of the first behaviour that fails with `flaw`.
fn catch(flaw: Flaw, names: &[&str]) -> Option<&'static str> {
    first_failure(names, || Place { plan: plan(), ..Place::new(Some(flaw)) }).map(|outcome| outcome.name)
}

#[test]
fn every_flaw_is_caught() {
    // The table reports the failures. A thousand backtraces would take minutes.
    std::panic::set_hook(Box::new(|_| {}));
    let mut sound = outcomes(|| Place { plan: plan(), ..Place::new(None) });
    // Short behaviours run first, so that most flaws are caught soon.
    sound.sort_by_key(|outcome| outcome.took);
    let names: Vec<&str> = sound.iter().map(|outcome| outcome.name).collect();
    println!("LODESTORE_SEED={:#x}\n{:<26} caught by", seed(), "flaw");
    let next = AtomicUsize::new(0);
    let missed = Mutex::new(Vec::new());
    let search = || {
        while let Some(flaw) = Flaw::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            let caught = catch(*flaw, &names);
            println!("{:<26} {}", format!("{flaw:?}"), caught.unwrap_or("NOT CAUGHT"));
            if caught.is_none() {
                missed.lock().expect("no searcher panics").push(flaw);
            }
        }
    };
    thread::scope(|scope| (0..SEARCHERS).for_each(|_| drop(scope.spawn(search))));
    let _ = std::panic::take_hook();
    let missed = missed.into_inner().expect("no searcher panics");
    println!("{} flaws, {} behaviours, {} missed", Flaw::ALL.len(), sound.len(), missed.len());
    let failing: Vec<_> = sound.iter().filter(|outcome| outcome.failure.is_some()).collect();
    assert!(failing.is_empty(), "the suite fails without a flaw: {failing:?}");
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
