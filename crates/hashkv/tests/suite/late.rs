//! Values in the LSM that are long enough for the file, and values that do not fit into a segment
//! with their keys.

use crate::common;
use crate::common::{counter, key, value};
use lodestore_contract::Store;
use lodestore_contract::conformance::{Pairs, assert_holds, assert_sound};
use lodestore_hashkv::{HashKv, HashKvOptions, Mode};
use lodestore_inplace::testing::Scratch;

fn tiny(mode: Mode) -> HashKvOptions {
    HashKvOptions { mode, ..common::tiny(8 << 20, 0) }
}

/// Creates a store without separated values, and reopens it to separate them.
fn reopened(scratch: &Scratch, model: &Pairs) -> HashKv {
    let store = HashKv::create(&scratch.store(), &tiny(Mode::Nosep)).expect("create");
    model.iter().for_each(|(key, value)| store.put(key, value).expect("put"));
    store.settle().expect("settle");
    assert_eq!(counter(&store, "values_live_bytes"), 0);
    store.close().expect("close");
    HashKv::open(&scratch.store(), &tiny(Mode::Hash)).expect("open")
}

/// Regression: tables keep values until a compaction. These were separated repeatedly, until the
/// file was full.
#[test]
fn values_that_are_separated_late_are_written_once() {
    let scratch = Scratch::new();
    let model: Pairs = (0..200).map(|index| (key(index), value(index, 1, 1000))).collect();
    let store = reopened(&scratch, &model);
    (0..3).for_each(|_| store.settle().expect("settle"));
    assert_eq!(counter(&store, "values_separated_late"), 200);
    let (written, live) = (counter(&store, "values_written_bytes"), counter(&store, "values_live_bytes"));
    assert!(live >= 200_000 && written < 2 * live, "{written} bytes are written for {live}");
    assert_holds(&store, &model);
    assert_sound(&store);
}

/// Bytes of a record without key and value.
const RECORD: usize = 16;
/// Bytes of a segment without its header.
const SEGMENT: usize = (16 << 10) - 32;

/// Returns pairs with records that just fit into a segment, and pairs that just do not; with keys
/// of some bytes and of some KiB.
fn near_a_segment() -> [Pairs; 2] {
    let pair = |index: usize, key_len: usize, record: usize| {
        let mut key = key(index);
        key.resize(key_len, b'k');
        (key, value(index, 1, record - RECORD - key_len))
    };
    let lens = [9_000, 12_000, SEGMENT - RECORD - 300];
    let of = |first: usize, record: usize| {
        lens.iter().enumerate().map(move |(at, len)| pair(first + at, *len, record)).collect()
    };
    [of(0, SEGMENT), of(10, SEGMENT + 1)]
}

/// Regression: a flush judged a value without its key, and then found no segment for it. The store
/// retried for ever.
#[test]
fn a_value_too_long_for_a_segment_stays_in_the_index_without_retries() {
    let [fits, too_long] = near_a_segment();
    let all: Pairs = fits.clone().into_iter().chain(too_long.clone()).collect();
    let holds = |store: &HashKv, late: u64, at_flush: u64| {
        assert_eq!(counter(store, "values_separated_late"), late);
        assert_eq!(counter(store, "values_separated"), at_flush);
        assert_eq!(counter(store, "values_kept_inline"), 0, "a flush looks for a segment in vain");
        assert_holds(store, &all);
        assert_sound(store);
    };
    let scratch = Scratch::new();
    let store = HashKv::create(&scratch.store(), &tiny(Mode::Hash)).expect("create");
    all.iter().for_each(|(key, value)| store.put(key, value).expect("put"));
    (0..3).for_each(|_| store.settle().expect("settle"));
    holds(&store, 0, fits.len() as u64);
    drop(store);

    let scratch = Scratch::new();
    let store = reopened(&scratch, &all);
    (0..3).for_each(|_| store.settle().expect("settle"));
    holds(&store, fits.len() as u64, 0);
}

/// Keys of tens of KiB, in segments that hold them.
#[test]
fn long_keys_are_separated_with_their_values_if_a_segment_holds_both() {
    let long = |index: usize, len: usize| {
        let mut key = key(index);
        key.resize(len, b'k');
        key
    };
    let lens = [20 << 10, 40 << 10, 60 << 10, 64 << 10];
    let model: Pairs = lens.iter().enumerate().map(|(index, len)| (long(index, *len), value(index, 1, 5000))).collect();
    let scratch = Scratch::new();
    let mut options = common::tiny(64 << 20, 0);
    options.segment_bytes = 64 << 10;
    options.index.memtable_bytes = 1 << 20;
    let store = HashKv::create(&scratch.store(), &options).expect("create");
    model.iter().for_each(|(key, value)| store.put(key, value).expect("put"));
    (0..3).for_each(|_| store.settle().expect("settle"));
    // Keys of 60 and 64 KiB do not leave 5,000 bytes.
    assert_eq!((counter(&store, "values_separated"), counter(&store, "values_kept_inline")), (2, 0));
    assert_holds(&store, &model);
    assert_sound(&store);
    drop(store);
    let store = HashKv::open(&scratch.store(), &options).expect("open");
    (0..3).for_each(|_| store.settle().expect("settle"));
    assert_eq!(counter(&store, "values_separated_late"), 0);
    assert_holds(&store, &model);
}
