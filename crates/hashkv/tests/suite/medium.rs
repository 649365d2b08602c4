//! A medium that is smaller than the capacity: the medium fills up first.

use std::sync::Arc;
use std::time::Instant;

use lodestore_contract::{Error, Store};
use lodestore_hashkv::{ENGINE, FORMAT, HashKv, HashKvOptions};
use lodestore_media::Pool;
use lodestore_media::sim::{Recorder, SimSpec};

const CAPACITY: u64 = 64 << 20;
const MEDIUM: u64 = 12 << 20;
/// Maximum flushes, collections and attempts to free space per put attempt.
const WORK_PER_ATTEMPT_MAX: u64 = 20;

/// Puts values until one is refused. Returns their number.
fn fill(store: &HashKv, value: &[u8]) -> u64 {
    for index in 0..CAPACITY {
        match store.put(&index.to_le_bytes(), value) {
            Ok(()) => {}
            Err(Error::Full { .. }) => return index,
            Err(error) => panic!("put {index}: {error}"),
        }
    }
    unreachable!("a medium without an end")
}

/// Regression: the reserve for flushes and compactions depended on the capacity, not on the medium.
/// A full store refused both puts and deletes, even after all keys were deleted.
fn deletes_make_room(workers: usize, len: usize) {
    let mut options = HashKvOptions::default();
    (options.index.pool.capacity, options.index.workers) = (CAPACITY, workers);
    let spec = SimSpec { record: false, ..SimSpec::default() };
    let (pool, report) = Pool::create_sim(&spec, ENGINE, FORMAT, options.pool()).expect("a pool");
    pool.recorder().expect("a simulated pool").set_medium_bytes(MEDIUM);
    let store = HashKv::start(Arc::clone(&pool), &report, &options).expect("a store");
    let value = vec![7; len];
    let mut first = 0;
    for round in 0..3 {
        let count = fill(&store, &value);
        first = first.max(count);
        assert!(count * 10 >= first * 8, "round {round}: {count} values, {first} at first");
        assert!(count * len as u64 >= MEDIUM / 3, "{count} values of {len} bytes");
        let size = store.stats().space.size;
        assert!(size <= MEDIUM, "{size} bytes of a medium of {MEDIUM}");
        for index in 0..count {
            assert_eq!(
                store.get(&index.to_le_bytes()).expect("get"),
                Some(value.clone()),
                "round {round}, key {index}"
            );
        }
        for index in 0..count {
            assert!(store.delete(&index.to_le_bytes()).expect("delete"), "round {round}, key {index}");
        }
        store.settle().expect("settle");
    }
    assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
    store.close().expect("close");
}

#[test]
fn deletes_free_space_on_a_medium_full_of_separated_values() {
    deletes_make_room(0, 2000);
    deletes_make_room(1, 2000);
}

#[test]
fn deletes_free_space_on_a_medium_full_of_small_values() {
    deletes_make_room(0, 100);
    deletes_make_room(1, 100);
}

#[test]
fn deletes_free_space_on_a_medium_full_of_long_values() {
    deletes_make_room(1, 30_000);
}

/// Returns the store's work caused by refused puts.
fn work(store: &HashKv) -> u64 {
    let counters = store.stats().engine_counters;
    counters["reclaims"] + counters["flushes"] + counters["values_collections"] + counters["values_collections_failed"]
}

/// Regression: each refused put tried to free space in vain: it flushed, compacted and collected.
fn a_refusal_does_no_work(workers: usize, len: usize) {
    let mut options = HashKvOptions::default();
    (options.index.pool.capacity, options.index.workers) = (CAPACITY, workers);
    let spec = SimSpec { record: false, ..SimSpec::default() };
    let (pool, report) = Pool::create_sim(&spec, ENGINE, FORMAT, options.pool()).expect("a pool");
    pool.recorder().expect("a simulated pool").set_medium_bytes(MEDIUM);
    let store = HashKv::start(Arc::clone(&pool), &report, &options).expect("a store");
    let value = vec![7; len];
    let count = fill(&store, &value);
    let put = |index: u64| store.put(&index.to_le_bytes(), &value);
    // Work left over from the last flushes may free a little space.
    let mut next = count;
    while (0..20).any(|_| put(next).inspect(|()| next += 1).is_ok()) {}
    let (before, began) = (work(&store), Instant::now());
    for _ in 0..1000 {
        assert!(matches!(put(next), Err(Error::Full { .. })), "the medium has no room");
    }
    let attempts_max = 2 + began.elapsed().as_secs();
    let done = work(&store) - before;
    assert!(done <= WORK_PER_ATTEMPT_MAX * attempts_max, "{done} tasks for 1000 refusals");
    // The next put finds space that another process frees.
    pool.recorder().expect("a simulated pool").set_medium_bytes(2 * MEDIUM);
    put(next).expect("the medium has room");
    next += 1;
    // Fill the store again, then free space by deletes.
    pool.recorder().expect("a simulated pool").set_medium_bytes(MEDIUM);
    while put(next).is_ok() {
        next += 1;
    }
    for index in 0..next {
        assert!(store.delete(&index.to_le_bytes()).expect("delete"), "key {index}");
    }
    for index in 0..count / 2 {
        put(index).expect("the deletes made room");
    }
    store.close().expect("close");
}

#[test]
fn a_put_that_a_full_medium_refuses_does_no_work_until_space_is_freed() {
    for workers in [0, 1] {
        for len in [100, 2000, 30_000] {
            a_refusal_does_no_work(workers, len);
        }
    }
}

/// The options of a store depend on its capacity, regardless of other users of the medium.
#[test]
fn a_medium_that_is_nearly_full_refuses_no_store_by_its_options() {
    let mut options = HashKvOptions { value_threshold: 20_000, ..HashKvOptions::default() };
    options.index.pool.capacity = 1 << 30;
    let spec = SimSpec { record: false, ..SimSpec::default() };
    let (pool, report) = Pool::create_sim(&spec, ENGINE, FORMAT, options.pool()).expect("a pool");
    pool.recorder().expect("a simulated pool").set_medium_bytes(MEDIUM);
    let store = HashKv::start(Arc::clone(&pool), &report, &options).expect("a store");
    for len in [10, 19_000, 21_000, 100_000] {
        store.put(&[len as u8], &vec![7; len]).expect("put");
        assert_eq!(store.get(&[len as u8]).expect("get"), Some(vec![7; len]));
    }
    store.settle().expect("settle");
    assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
    store.close().expect("close");
}

/// The length of values that fill a small medium.
const SMALL_MEDIUM_VALUE_BYTES: usize = 1000;

/// Regression: the first region had 32 MiB on any medium, and values could not use that space.
#[test]
fn a_store_of_the_default_capacity_fills_a_small_medium_with_values() {
    for medium_mib in [32, 64, 128] {
        let medium = medium_mib << 20;
        let mut options = HashKvOptions::default();
        options.index.pool.capacity = 8 << 30;
        let spec = SimSpec { record: false, ..SimSpec::default() };
        let recorder = Recorder::new(&spec);
        recorder.set_medium_bytes(medium);
        let (pool, report) = Pool::create_sim_on(recorder, &spec, ENGINE, FORMAT, options.pool()).expect("a pool");
        let store = HashKv::start(pool, &report, &options).expect("a store");
        let count = fill(&store, &[7; SMALL_MEDIUM_VALUE_BYTES]);
        let percent = count * SMALL_MEDIUM_VALUE_BYTES as u64 * 100 / medium;
        assert!(percent >= 70, "{count} values are {percent} % of {medium_mib} MiB");
        let size = store.stats().space.size;
        assert!(size <= medium, "{size} bytes on a medium of {medium_mib} MiB");
        store.close().expect("close");
    }
}
