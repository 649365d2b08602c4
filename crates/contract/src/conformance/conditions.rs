//! Conditional batches, if the engine has batches; else their refusal.

use std::sync::Barrier;
use std::thread;

use super::data::key;
use super::expiring::{FAR, PAST};
use super::{Case, Harness, Pairs, Rng, Stop, assert_holds, assert_sees, assert_sound};
use crate::limits::{BATCH_OPS_MAX, KEY_MAX};
use crate::{Batch, BatchOp, Commit, Condition, Error, Expected, Expiry, Store};

/// Accounts of the transfers.
const ACCOUNT_COUNT: usize = 6;
/// Initial balance of each account.
const BALANCE_DEFAULT: u64 = 1000;

fn put(key: &[u8], value: &[u8]) -> BatchOp {
    BatchOp::Put { key: key.to_vec(), value: value.to_vec(), expiry: None }
}

fn delete(key: &[u8]) -> BatchOp {
    BatchOp::Delete { key: key.to_vec() }
}

fn batch<const N: usize>(ops: [BatchOp; N]) -> Batch {
    Batch { ops: ops.into() }
}

fn has(key: &[u8], value: &[u8]) -> Condition {
    Condition::value(key, Some(value.to_vec()))
}

/// Creates a store for these behaviours; `None`, after a check of the refusal, if the engine has no
/// batches.
fn create<H: Harness>(case: &Case<H>) -> Option<H::S> {
    let store = case.create_sized(case.plan.capacity);
    if store.capabilities().batch {
        return Some(store);
    }
    let refused = store.write_if(&[Condition::absent(b"b")], &batch([put(b"b", b"1")]));
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "no such capability, but {refused:?}");
    assert_holds(&store, &Pairs::new());
    None
}

/// Each kind of condition is met by the states that it names. A batch whose condition is not met
/// changes nothing.
pub fn conditions_are_met_or_nothing_is_written<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let condition = |key: &[u8], expected: Expected| Condition { key: key.to_vec(), expected };
    store.put(b"kept", b"1").expect("put");
    store.put_expiring(b"later", b"1", Some(FAR[0])).expect("put");
    store.put_expiring(b"past", b"1", Some(PAST)).expect("put");
    let states: [(&[u8], Option<Option<Expiry>>); 4] =
        [(b"kept", Some(None)), (b"later", Some(Some(FAR[0]))), (b"past", None), (b"never", None)];
    let mut round = 0_u32;
    for (name, present) in states {
        let cases = [
            (Expected::Absent, present.is_none()),
            (Expected::Present, present.is_some()),
            (Expected::Value(b"1".to_vec()), present.is_some()),
            (Expected::Value(b"2".to_vec()), false),
            (Expected::Value(Vec::new()), false),
            (Expected::Entry(b"1".to_vec(), None), present == Some(None)),
            (Expected::Entry(b"1".to_vec(), Some(FAR[0])), present == Some(Some(FAR[0]))),
            (Expected::Entry(b"1".to_vec(), Some(FAR[1])), false),
        ];
        for (expected, is_met) in cases {
            round += 1;
            let value = round.to_le_bytes();
            let what = format!("{expected:?} of {}", name.escape_ascii());
            let before = store.get(b"other").expect("get");
            let commit = store.write_if(&[condition(name, expected)], &batch([put(b"other", &value)])).expect("write");
            assert_eq!(commit, if is_met { Commit::Done } else { Commit::Unmet(0) }, "{what}");
            let after = store.get(b"other").expect("get");
            assert_eq!(after, if is_met { Some(value.to_vec()) } else { before }, "{what}");
        }
    }
    let last = store.get(b"other").expect("get").expect("written at least once");
    let pairs = [(b"kept".to_vec(), b"1".to_vec()), (b"later".to_vec(), b"1".to_vec()), (b"other".to_vec(), last)];
    let store = case.reopen(store, Stop::Crash);
    assert_sees(&store, &Pairs::from(pairs));
    assert_sound(&store);
}

/// The first condition that is not met is named. Keys may be in several conditions and in the
/// batch. A batch of nothing checks its conditions.
pub fn the_first_unmet_condition_is_named<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let mut pairs = Pairs::new();
    for i in 0..20 {
        store.put(&key("held", i), b"v").expect("put");
        pairs.insert(key("held", i), b"v".to_vec());
    }
    for wrong in 0..20 {
        let expected = |i: usize| if i >= wrong { b"w" } else { b"v" };
        let conditions: Vec<Condition> = (0..20).map(|i| has(&key("held", i), expected(i))).collect();
        let commit = store.write_if(&conditions, &batch([put(b"new", b"1"), delete(&key("held", 0))]));
        assert_eq!(commit.expect("write"), Commit::Unmet(wrong));
        assert_eq!(store.write_if(&conditions, &Batch::default()).expect("check"), Commit::Unmet(wrong));
    }
    let all: Vec<Condition> = (0..20).map(|i| has(&key("held", i), b"v")).collect();
    assert_eq!(store.write_if(&all, &Batch::default()).expect("check"), Commit::Done);
    assert_eq!(store.write_if(&[], &Batch::default()).expect("check"), Commit::Done);
    assert_holds(&store, &pairs);
    let twice = [Condition::present(key("held", 1)), has(&key("held", 1), b"v"), Condition::absent(b"new")];
    let both = batch([delete(&key("held", 1)), put(b"new", b"2"), put(&key("held", 1), b"w")]);
    assert_eq!(store.write_if(&twice, &both).expect("write"), Commit::Done);
    pairs.extend([(key("held", 1), b"w".to_vec()), (b"new".to_vec(), b"2".to_vec())]);
    assert_eq!(store.write_if(&twice, &both).expect("write"), Commit::Unmet(1));
    assert_holds(&store, &pairs);
    assert_sound(&store);
}

/// Conditions beyond the limits are refused, and nothing is changed.
pub fn conditions_beyond_the_limits_are_refused<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let write = batch([put(b"new", b"1")]);
    for bad in [vec![], vec![1; KEY_MAX + 1]] {
        let refused = store.write_if(&[Condition::absent(b"k"), Condition::absent(bad)], &write);
        assert!(matches!(refused, Err(Error::KeyLength { .. })), "{refused:?}");
    }
    let many = vec![Condition::absent(b"k"); BATCH_OPS_MAX + 1];
    let refused = store.write_if(&many, &write);
    assert!(matches!(refused, Err(Error::BatchLength { ops }) if ops == BATCH_OPS_MAX + 1), "{refused:?}");
    assert_holds(&store, &Pairs::new());
    assert_eq!(store.write_if(&many[1..], &write).expect("as many as the limit"), Commit::Done);
    assert_holds(&store, &Pairs::from([(b"new".to_vec(), b"1".to_vec())]));
}

/// Values of all sizes are compared whole, wherever the engine stores them.
pub fn conditions_compare_values_of_all_sizes<H: Harness>(case: &Case<H>) {
    let Some(mut store) = create(case) else { return };
    let sizes = [0, 1, 31, 32, 300, 5000, 70_000];
    for (i, len) in sizes.into_iter().enumerate() {
        store.put(&key("size", i), &vec![7; len]).expect("put");
    }
    for is_settled in [false, true] {
        for (i, len) in sizes.into_iter().enumerate() {
            let mut value = vec![7; len];
            let found = store.write_if(&[has(&key("size", i), &value)], &batch([put(b"last", &value)]));
            assert_eq!(found.expect("write"), Commit::Done, "{len} bytes, settled {is_settled}");
            value.push(7);
            let found = store.write_if(&[has(&key("size", i), &value)], &Batch::default());
            assert_eq!(found.expect("check"), Commit::Unmet(0), "{len} bytes and one more");
            value.pop();
            let Some(last) = value.last_mut() else { continue };
            *last ^= 1;
            let found = store.write_if(&[has(&key("size", i), &value)], &Batch::default());
            assert_eq!(found.expect("check"), Commit::Unmet(0), "{len} bytes, the last one differs");
        }
        store.settle().expect("settle");
        store = case.reopen(store, Stop::Crash);
    }
    assert_sound(&store);
}

/// A full store refuses a batch whose conditions are met, and names an unmet condition.
pub fn a_full_store_names_an_unmet_condition<H: Harness>(case: &Case<H>) {
    let store = case.create_sized(case.plan.capacity_small);
    if !store.capabilities().batch {
        return;
    }
    store.put(b"held", b"1").expect("put");
    let filled = (0..).find(|i| store.put(&key("fill", *i), &[1; 4000]).is_err());
    assert!(filled.is_some_and(|pairs| pairs > 0), "a store for a few pairs");
    let write = Batch { ops: (0..40).map(|i| put(&key("batch", i), &[2; 4000])).collect() };
    let refused = store.write_if(&[has(b"held", b"1")], &write);
    assert!(matches!(&refused, Err(error) if error.is_for_space()), "{refused:?}");
    let unmet = [has(b"held", b"1"), Condition::absent(b"held")];
    assert_eq!(store.write_if(&unmet, &write).expect("an answer"), Commit::Unmet(1));
    assert_eq!(store.get(&key("batch", 0)).expect("get"), None);
    assert_sound(&store);
}

fn balance(store: &impl Store, account: &[u8]) -> (Vec<u8>, u64) {
    let value = store.get(account).expect("get").expect("an account");
    let number = u64::from_le_bytes(value.as_slice().try_into().expect("8 bytes"));
    (value, number)
}

/// Moves money between accounts `moves` times. Returns how many moves were refused and retried.
fn transfer(store: &impl Store, accounts: &[Vec<u8>], rng: &mut Rng, moves: usize) -> u64 {
    let (mut moved, mut refused) = (0, 0);
    while moved < moves {
        let from = rng.below(ACCOUNT_COUNT);
        let to = (from + 1 + rng.below(ACCOUNT_COUNT - 1)) % ACCOUNT_COUNT;
        let (old_from, has_from) = balance(store, &accounts[from]);
        let (old_to, has_to) = balance(store, &accounts[to]);
        let amount = has_from.min(rng.below(20) as u64);
        let write = batch([
            put(&accounts[from], &(has_from - amount).to_le_bytes()),
            put(&accounts[to], &(has_to + amount).to_le_bytes()),
        ]);
        match store.write_if(&[has(&accounts[from], &old_from), has(&accounts[to], &old_to)], &write) {
            Ok(Commit::Done) => moved += 1,
            Ok(Commit::Unmet(_)) => refused += 1,
            Err(error) => panic!("write_if: {error}"),
        }
        // All balances at one moment, by a check of the values read.
        let seen: Vec<_> = accounts.iter().map(|account| balance(store, account)).collect();
        let conditions: Vec<_> = accounts.iter().zip(&seen).map(|(account, (value, _))| has(account, value)).collect();
        if store.write_if(&conditions, &Batch::default()).expect("check").is_done() {
            let sum: u64 = seen.iter().map(|(_, number)| number).sum();
            assert_eq!(sum, ACCOUNT_COUNT as u64 * BALANCE_DEFAULT, "the sum at one moment");
        }
    }
    refused
}

/// Threads move money between accounts; each move requires that both balances are unchanged since
/// they were read. The sum never changes: neither in a check of all accounts, nor after a crash.
pub fn conditional_transfers_keep_the_sum<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let accounts: Vec<Vec<u8>> = (0..ACCOUNT_COUNT).map(|i| key("account", i)).collect();
    accounts.iter().for_each(|account| store.put(account, &BALANCE_DEFAULT.to_le_bytes()).expect("put"));
    let begin = Barrier::new(case.plan.threads);
    let refused: u64 = thread::scope(|scope| {
        let start = |thread: usize| {
            let mut rng = case.rng(700 + thread as u64);
            let (store, accounts, begin) = (&store, &accounts, &begin);
            scope.spawn(move || {
                begin.wait();
                transfer(store, accounts, &mut rng, case.plan.thread_ops / 10)
            })
        };
        let threads: Vec<_> = (0..case.plan.threads).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    eprintln!("{refused} transfers were refused and tried again");
    let store = case.reopen(store, Stop::Crash);
    let sum: u64 = accounts.iter().map(|account| balance(&store, account).1).sum();
    assert_eq!(sum, ACCOUNT_COUNT as u64 * BALANCE_DEFAULT, "the sum after a crash");
    assert_sound(&store);
}

/// Two batches each require both keys unchanged and change one of them: one batch is refused.
pub fn conditional_batches_have_no_write_skew<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let (names, rounds) = ([b"left".to_vec(), b"right".to_vec()], case.plan.thread_ops / 10);
    let (begin, end) = (Barrier::new(3), Barrier::new(3));
    // No thread panics before all rounds have ended, because others wait at the barriers.
    let (errors, both_off) = thread::scope(|scope| {
        let writers = [0, 1].map(|own| {
            let (store, names, begin, end) = (&store, &names, &begin, &end);
            scope.spawn(move || {
                let mut errors = Vec::new();
                for _ in 0..rounds {
                    begin.wait();
                    let conditions = [has(&names[0], b"on"), has(&names[1], b"on")];
                    errors.extend(store.write_if(&conditions, &batch([put(&names[own], b"off")])).err());
                    end.wait();
                }
                errors
            })
        });
        let mut wrong = Vec::new();
        for round in 0..rounds {
            let prepared = names.iter().try_for_each(|name| store.put(name, b"on"));
            begin.wait();
            end.wait();
            let is_off = |name: &&Vec<u8>| store.get(name).is_ok_and(|value| value.as_deref() == Some(b"off"));
            let off = names.iter().filter(is_off).count();
            if off != 1 || prepared.is_err() {
                wrong.push((round, off, prepared));
            }
        }
        let errors = writers.map(|writer| writer.join().expect("no panic"));
        (errors, wrong)
    });
    assert!(errors.iter().all(Vec::is_empty), "{errors:?}");
    assert!(both_off.is_empty(), "rounds with their number of keys that are off: {both_off:?}");
    assert_sound(&store);
}
