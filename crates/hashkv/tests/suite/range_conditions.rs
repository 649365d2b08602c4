//! Conditions on ranges of keys with values in the values file.

use std::ops::Bound;

use lodestore_contract::{Batch, BatchOp, Commit, Condition, Expiry, RangeCondition, Store};
use lodestore_hashkv::{HashKv, HashKvOptions};
use lodestore_inplace::testing::Scratch;

const COUNTERS: u8 = 48;
const WRITERS: u64 = 3;
/// Numbers that each writer stores.
const NUMBERS: u64 = 40;
/// Values of this length are kept in the file.
const VALUE_BYTES: usize = 600;

fn small() -> HashKvOptions {
    let mut options = HashKvOptions::default();
    options.index.pool.capacity = 16 << 20;
    options
}

fn value(number: u64) -> Vec<u8> {
    let mut value = vec![0; VALUE_BYTES];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

fn number(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |number| u64::from_le_bytes(*number))
}

fn all_counters() -> RangeCondition {
    let keys = (0..COUNTERS).map(|counter| vec![counter]).collect();
    RangeCondition { from: Bound::Included(vec![0]), to: Bound::Excluded(vec![COUNTERS]), keys }
}

fn put(key: &[u8], value: &[u8]) -> Batch {
    Batch { ops: vec![BatchOp::Put { key: key.into(), value: value.into(), expiry: None }] }
}

/// Stores the number after the largest one in a counter, on the condition that all counters are as
/// read. Flushes before, to have the compared values in the file.
fn store_next_number(store: &HashKv, counter: u8) {
    loop {
        let read = |counter: u8| store.get(&[counter]).expect("get").expect("a counter");
        let values: Vec<_> = (0..COUNTERS).map(read).collect();
        let is_as_read = |(counter, value): (u8, &Vec<u8>)| Condition::value([counter], Some(value.clone()));
        let conditions: Vec<_> = (0..COUNTERS).zip(&values).map(is_as_read).collect();
        let next = 1 + values.iter().map(|value| number(value)).max().unwrap_or(0);
        store.settle().expect("settle");
        let batch = put(&[counter], &value(next));
        if store.write_if_ranges(&conditions, &[all_counters()], &batch).expect("written").is_done() {
            return;
        }
    }
}

/// The values are compared before the stripes are held. A value that is written in between must not
/// count as the one that was compared.
#[test]
fn no_number_is_given_twice_while_values_are_in_the_file() {
    let scratch = Scratch::new();
    let store = HashKv::create(&scratch.store(), &small()).expect("a store");
    (0..COUNTERS).for_each(|counter| store.put(&[counter], &value(0)).expect("put"));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || {
                (0..NUMBERS).for_each(|n| store_next_number(store, (n * WRITERS + writer) as u8 % COUNTERS))
            });
        }
    });
    let numbers = (0..COUNTERS).map(|counter| number(&store.get(&[counter]).expect("get").expect("a value")));
    assert_eq!(numbers.max(), Some(NUMBERS * WRITERS));
    let separated = store.stats().engine_counters["values_separated"];
    assert!(separated > 0, "no value was in the file");
    store.close().expect("close");
}

#[test]
fn values_in_the_file_meet_their_conditions_with_and_without_an_expiry() {
    let scratch = Scratch::new();
    let store = HashKv::create(&scratch.store(), &small()).expect("a store");
    let late = Expiry::at_millis(u64::MAX / 2);
    store.put(&[0], &value(1)).expect("put");
    store.put(&[2], &value(1)).expect("put");
    store.put_expiring(&[1], &value(1), Some(late)).expect("put");
    store.settle().expect("settle");
    let range =
        RangeCondition { from: Bound::Unbounded, to: Bound::Excluded(vec![3]), keys: vec![vec![0], vec![1], vec![2]] };
    let commit = |conditions: &[Condition]| {
        store.write_if_ranges(conditions, std::slice::from_ref(&range), &put(b"other", b"written")).expect("an outcome")
    };
    let is = |counter: u8, number: u64| Condition::value([counter], Some(value(number)));
    assert_eq!(commit(&[is(0, 1), is(1, 1), is(2, 1)]), Commit::Done);
    assert_eq!(commit(&[is(0, 1), is(1, 2)]), Commit::Unmet(1));
    assert_eq!(commit(&[is(0, 1), is(1, 1), is(2, 3)]), Commit::Unmet(2));
    let entry = |counter: u8, expiry| Condition {
        key: vec![counter],
        expected: lodestore_contract::Expected::Entry(value(1), expiry),
    };
    assert_eq!(commit(&[entry(0, None), entry(1, Some(late))]), Commit::Done);
    assert_eq!(commit(&[entry(0, Some(late))]), Commit::Unmet(0));
    assert_eq!(commit(&[entry(1, None)]), Commit::Unmet(0));
    store.close().expect("close");
}
