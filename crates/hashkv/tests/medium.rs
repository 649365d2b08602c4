//! A medium that is shorter than the capacity: it is full before the store is.

use std::sync::Arc;

use lodestore_contract::{Error, Store};
use lodestore_hashkv::{ENGINE, FORMAT, HashKv, HashKvOptions};
use lodestore_media::Pool;
use lodestore_media::sim::SimSpec;

const CAPACITY: u64 = 64 << 20;
const MEDIUM: u64 = 12 << 20;

/// Puts values until one is refused; how many there are.
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

/// What must be free for flushes and compactions was a number of the capacity, of which the medium had nothing: a store that was full took neither puts nor deletes any more, even where nothing was left in it.
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
fn deletes_make_room_on_a_medium_that_is_full_of_values_apart() {
    deletes_make_room(0, 2000);
    deletes_make_room(1, 2000);
}

#[test]
fn deletes_make_room_on_a_medium_that_is_full_of_small_values() {
    deletes_make_room(0, 100);
    deletes_make_room(1, 100);
}

#[test]
fn deletes_make_room_on_a_medium_that_is_full_of_long_values() {
    deletes_make_room(1, 30_000);
}
