//! Concurrent histories: the checker must accept an atomic map and refuse a faulty one, with
//! batches too.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use lodestore_contract::{Batch, Error};
use lodestore_sim::concurrent::{Load, check_failing, check_live};
use lodestore_sim::op::{Op, Outcome, State};

const LOAD: Load = Load { threads: 3, keys: 3, ops: 60, batches: false, ranges: false };

/// With batches all keys are searched together, so there are fewer operations.
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

/// Reads and writes are atomic, but a swap is a read and a write.
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

/// Each operation is atomic, but a batch is applied one key after the other.
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

fn failure() -> Error {
    Error::too_few_devices(0, 0, 1)
}

/// Whether a step may fail in the middle, because it changes something.
fn is_write(op: &Op) -> bool {
    !matches!(op, Op::Get { .. })
}

/// Some operations fail: they have taken effect, take effect with a later one, or never. Others are
/// refused.
#[test]
fn a_write_that_failed_may_have_happened_or_happen_later_or_never() {
    for seed in 0..40 {
        let both = Mutex::new((0_u32, State::default(), Vec::new()));
        let ended = AtomicBool::new(false);
        let apply = |op: &Op| {
            let mut all = both.lock().unwrap_or_else(PoisonError::into_inner);
            let (calls, state, late) = &mut *all;
            *calls += 1;
            if *calls % 7 == 0 {
                late.drain(..).for_each(|op: Op| drop(state.apply(&op)));
            }
            match *calls % 24 {
                3 | 4 if is_write(op) => drop(state.apply(op)),
                9 | 10 if is_write(op) => late.push(op.clone()),
                15 if !ended.load(Ordering::Relaxed) => {}
                18..=23 if is_write(op) => return Ok(Outcome::Full),
                _ => return Ok(state.apply(op)),
            }
            Err(failure())
        };
        let counts = check_failing(LOAD, seed, &apply, || ended.store(true, Ordering::Relaxed));
        let counts = counts.unwrap_or_else(|wrong| panic!("seed {seed}: {}", wrong.what));
        assert!(counts.failed > 0 && counts.refused > 0, "{counts:?}");
        assert_eq!(counts.answered + counts.failed + counts.refused, LOAD.threads * LOAD.ops);
    }
}

/// Runs a store that passes every eighth write to `spoilt`, with the state. `spoilt` returns
/// whether the write reports a refusal or a failure.
fn some_history_is_refused(spoilt: impl Fn(&mut State, &Op) -> bool + Sync) -> bool {
    (0..40).any(|seed| {
        let both = Mutex::new((0_u32, State::default()));
        let apply = |op: &Op| {
            let mut both = both.lock().unwrap_or_else(PoisonError::into_inner);
            let (writes, state) = &mut *both;
            *writes += u32::from(is_write(op));
            if !is_write(op) || *writes % 8 != 0 {
                return Ok(state.apply(op));
            }
            if spoilt(state, op) { Ok(Outcome::Full) } else { Err(failure()) }
        };
        check_failing(LOAD, seed, &apply, || {}).is_err()
    })
}

#[test]
fn a_write_that_failed_and_took_what_was_acknowledged_with_it_is_seen() {
    let forgets = |state: &mut State, op: &Op| {
        let key = op.key().expect("it writes a key").to_vec();
        state.apply(&Op::Remove { key });
        false
    };
    assert!(some_history_is_refused(forgets), "no history of writes that are lost was refused");
}

#[test]
fn a_write_that_was_refused_and_done_is_seen() {
    let does = |state: &mut State, op: &Op| {
        state.apply(op);
        true
    };
    assert!(some_history_is_refused(does), "no history of refused writes that were done was refused");
}

/// A read shows the effect of a failed write, and the next read does not.
#[test]
fn a_write_that_failed_and_was_shown_and_taken_back_is_seen() {
    let seen = (0..40).any(|seed| {
        let all = Mutex::new((0_u32, State::default(), BTreeMap::<Vec<u8>, Op>::new()));
        let apply = |op: &Op| {
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            let (calls, state, back) = &mut *all;
            *calls += 1;
            let key = op.key().expect("each has one").to_vec();
            if let Op::Get { .. } = op {
                let shown = state.apply(op);
                back.remove(&key).iter().for_each(|op| drop(state.apply(op)));
                return Ok(shown);
            }
            back.remove(&key).iter().for_each(|op| drop(state.apply(op)));
            if *calls % 8 != 0 {
                return Ok(state.apply(op));
            }
            let before = state.get(&key).cloned();
            state.apply(op);
            let undo = match before {
                Some(held) => Op::Put { key: key.clone(), value: held.value, expiry: None },
                None => Op::Remove { key: key.clone() },
            };
            back.insert(key, undo);
            Err(failure())
        };
        check_failing(LOAD, seed, &apply, || {}).is_err()
    });
    assert!(seen, "no history of writes that were taken back was refused");
}

/// Reads after the end of all threads count.
#[test]
fn what_is_lost_behind_the_last_operation_is_seen() {
    let state = Mutex::new(State::default());
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let apply = |op: &Op| Ok(lock().apply(op));
    let wrong = check_failing(LOAD, 1, &apply, || *lock() = State::default());
    assert!(wrong.is_err(), "{wrong:?}");
}
