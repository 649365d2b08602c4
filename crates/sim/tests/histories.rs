//! Concurrent histories: the checker must accept what an atomic map does, refuse what a careless one does, with batches too.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;

use lodestore_contract::Batch;
use lodestore_sim::concurrent::{Load, check_live};
use lodestore_sim::op::{Op, Outcome, State};

const LOAD: Load = Load { threads: 3, keys: 3, ops: 60, batches: false };

/// Batches among them: all keys are searched together, so fewer operations.
const BATCHES: Load = Load { ops: 40, batches: true, ..LOAD };

#[test]
fn an_atomic_map_is_linearizable() {
    for (seed, load) in (0..40).map(|seed| (seed, if seed % 2 == 0 { LOAD } else { BATCHES })) {
        let state = Mutex::new(State::default());
        let apply = |op: &Op| {
            let outcome = state.lock().unwrap_or_else(PoisonError::into_inner).apply(op);
            thread::yield_now();
            Ok(outcome)
        };
        let calls = check_live(load, seed, &apply).unwrap_or_else(|wrong| panic!("seed {seed}: {}", wrong.what));
        assert_eq!(calls as u64, load.threads * load.ops);
    }
}

/// Reads and writes are atomic each, but a swap is a read and a write.
#[test]
fn a_swap_in_two_steps_is_seen() {
    let mut seen = false;
    for seed in 0..200 {
        let state = Mutex::new(State::default());
        let apply = |op: &Op| {
            let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
            let (Op::Swap { key, .. } | Op::Insert { key, .. } | Op::Delete { key }) = op else {
                return Ok(lock().apply(op));
            };
            let mut alone = State::default();
            if let Some(held) = lock().get(key) {
                alone.set(key.clone(), held.clone());
            }
            thread::yield_now();
            let outcome = alone.apply(op);
            if matches!(outcome, Outcome::Changed(true)) {
                let after = alone.get(key).cloned();
                let mut now = lock();
                now.apply(&match after {
                    Some(held) => Op::Put { key: key.clone(), value: held.value, expiry: None },
                    None => Op::Delete { key: key.clone() },
                });
            }
            Ok(outcome)
        };
        seen |= check_live(LOAD, seed, &apply).is_err();
    }
    assert!(seen, "no history of a swap in two steps was refused");
}

/// A reader that answers from a copy.
#[test]
fn a_stale_read_is_seen() {
    let state = Mutex::new((State::default(), BTreeMap::<Vec<u8>, (u32, Outcome)>::new()));
    let apply = |op: &Op| {
        let mut both = state.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = both.0.apply(op);
        let Op::Get { key } = op else { return Ok(outcome) };
        let cached = both.1.entry(key.clone()).or_insert((0, outcome.clone()));
        cached.0 += 1;
        if cached.0 % 4 == 0 {
            cached.1 = outcome;
        }
        Ok(cached.1.clone())
    };
    assert!(check_live(LOAD, 1, &apply).is_err());
}

/// Each operation is atomic, but a batch is done one key after the other.
#[test]
fn a_batch_that_shows_by_half_is_seen() {
    let seen = (0..200).any(|seed| {
        let state = Mutex::new(State::default());
        let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
        let apply = |op: &Op| {
            let Op::Batch { batch } = op else { return Ok(lock().apply(op)) };
            for op in &batch.ops {
                lock().apply(&Op::Batch { batch: Batch { ops: vec![op.clone()] } });
                thread::yield_now();
            }
            Ok(Outcome::Done)
        };
        check_live(BATCHES, seed, &apply).is_err()
    });
    assert!(seen, "no history of a batch in steps was refused");
}
