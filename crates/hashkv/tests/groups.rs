//! Groups at work: separation, collection, splits; and what the published code got wrong (design notes, B.5), as tests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use lodestore_contract::conformance::{Rng, seed};
use lodestore_contract::{Error, ScanRange, Store};
use lodestore_hashkv::{HashKv, HashKvOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

/// Tiny memtables and segments; a file of values of 3 MiB, beside a pool of 5.
fn tiny(workers: usize) -> HashKvOptions {
    let mut options = HashKvOptions { segment_bytes: 16 << 10, group_bytes: 64 << 10, ..HashKvOptions::default() };
    options.index.pool = PoolOptions { capacity: 8 << 20, region_bytes: 4 << 20, ..PoolOptions::default() };
    options.index.memtable_bytes = 64 << 10;
    options.index.segment_bytes = 16 << 10;
    options.index.table_bytes = 16 << 10;
    options.index.range_bytes = 64 << 10;
    options.index.workers = workers;
    options
}

fn key(index: usize) -> Vec<u8> {
    format!("{:016x}", (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes()
}

fn counter(store: &HashKv, name: &str) -> u64 {
    store.stats().engine_counters[name]
}

/// A value that tells its key and its version.
fn value(index: usize, version: u32, len: usize) -> Vec<u8> {
    let mut value = format!("{index} {version} ").into_bytes();
    value.resize(len.max(value.len()), version as u8);
    value
}

fn assert_holds(store: &HashKv, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    for (key, value) in model {
        assert_eq!(store.get(key).expect("get").as_ref(), Some(value));
    }
    let mut walked = Vec::new();
    store
        .scan_each(&ScanRange::all(), &mut |key, value| {
            walked.push((key.to_vec(), value.to_vec()));
            lodestore_contract::Visit::More
        })
        .expect("scan");
    assert!(walked.iter().map(|(key, value)| (key, value)).eq(model.iter()));
    assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
}

#[test]
fn updates_are_collected_and_take_no_more_space_than_there_is() {
    for workers in [0, 2] {
        let scratch = Scratch::new();
        let store = HashKv::create(&scratch.store(), &tiny(workers)).expect("create");
        let (mut rng, mut model) = (Rng::new(seed()), BTreeMap::new());
        // 1,000 keys of 1 KiB, a third of the file's bytes, written 12 times over.
        for version in 0..12u32 {
            for _ in 0..1000 {
                let index = rng.below(1000);
                let (key, value) = (key(index), value(index, version, 1000));
                store.put(&key, &value).expect("put");
                model.insert(key, value);
            }
        }
        assert_holds(&store, &model);
        store.settle().expect("settle");
        assert!(counter(&store, "values_separated") > 5_000, "{:?}", store.stats().engine_counters);
        assert!(counter(&store, "values_collections") > 10 && counter(&store, "values_segments_freed") > 100);
        assert!(counter(&store, "values_group_splits") >= 1 && counter(&store, "values_groups") >= 2);
        assert_holds(&store, &model);
        store.close().expect("close");
        drop(store);
        assert_holds(&HashKv::open(&scratch.store(), &tiny(workers)).expect("open"), &model);
    }
}

/// The published code took the last version in a group for the newest: 50 of 50 keys had their old value again.
#[test]
fn values_that_cross_the_threshold_and_deletes_stay_what_they_are_through_collections() {
    let scratch = Scratch::new();
    let store = HashKv::create(&scratch.store(), &tiny(2)).expect("create");
    let (mut rng, mut model) = (Rng::new(seed()), BTreeMap::new());
    for version in 0..40u32 {
        for _ in 0..300 {
            let index = rng.below(400);
            let key = key(index);
            match rng.below(4) {
                0 => {
                    store.delete(&key).expect("delete");
                    model.remove(&key);
                }
                1 => {
                    let small = value(index, version, 20);
                    store.put(&key, &small).expect("put");
                    model.insert(key, small);
                }
                _ => {
                    let large = value(index, version, 300 + rng.below(3000));
                    store.put(&key, &large).expect("put");
                    model.insert(key, large);
                }
            }
        }
        if version % 10 == 0 {
            assert_holds(&store, &model);
        }
    }
    assert!(counter(&store, "values_collections") > 3, "{:?}", store.stats().engine_counters);
    assert_holds(&store, &model);
    // As after a crash: nothing was closed.
    drop(store);
    let store = HashKv::open(&scratch.store(), &tiny(2)).expect("open");
    assert_holds(&store, &model);
}

/// One writer and two readers crashed the published code within seconds.
#[test]
fn readers_beside_collections_see_whole_values_of_their_own_key() {
    let scratch = Scratch::new();
    let store = HashKv::create(&scratch.store(), &tiny(2)).expect("create");
    let ended = AtomicBool::new(false);
    for index in 0..500 {
        store.put(&key(index), &value(index, 0, 1000)).expect("put");
    }
    std::thread::scope(|scope| {
        for reader in 0..2usize {
            let (store, ended) = (&store, &ended);
            scope.spawn(move || {
                let mut rng = Rng::new(seed() ^ reader as u64);
                while !ended.load(Ordering::Relaxed) {
                    let index = rng.below(500);
                    let found = store.get(&key(index)).expect("get").expect("never deleted");
                    assert!(found.starts_with(format!("{index} ").as_bytes()) && found.len() == 1000);
                    if rng.below(50) == 0 {
                        let all = store.scan(&ScanRange::all()).expect("scan").map(|pair| pair.expect("a pair"));
                        assert_eq!(all.count(), 500);
                    }
                }
            });
        }
        let mut rng = Rng::new(seed());
        for version in 1..15_000u32 {
            let index = rng.below(500);
            store.put(&key(index), &value(index, version, 1000)).expect("put");
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert!(counter(&store, "values_collections") > 10, "{:?}", store.stats().engine_counters);
}

/// What a snapshot shows stands in segments that collections have left.
#[test]
fn a_snapshot_reads_what_it_showed_at_its_beginning() {
    let scratch = Scratch::new();
    let store = HashKv::create(&scratch.store(), &tiny(2)).expect("create");
    let mut then = BTreeMap::new();
    for index in 0..300 {
        store.put(&key(index), &value(index, 1, 1000)).expect("put");
        then.insert(key(index), value(index, 1, 1000));
    }
    store.settle().expect("settle");
    let snapshot = store.snapshot().expect("snapshot");
    let mut rng = Rng::new(seed());
    let mut refused = 0;
    for version in 2..6_000u32 {
        let index = rng.below(300);
        match store.put(&key(index), &value(index, version, 1000)) {
            Ok(()) => {}
            // The snapshot keeps what it shows: there may be no more room while it is held.
            Err(Error::Full { .. } | Error::DramBudget { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    for (key, value) in &then {
        assert_eq!(snapshot.get(key).expect("get").as_ref(), Some(value));
    }
    let walked: Vec<_> = snapshot.scan(&ScanRange::all()).expect("scan").map(|pair| pair.expect("a pair")).collect();
    assert!(walked.iter().map(|pair| (&pair.key, &pair.value)).eq(then.iter()), "refused {refused}");
    drop((snapshot, walked));
    store.settle().expect("settle");
    for index in 0..300 {
        store.put(&key(index), &value(index, 7_000, 1000)).expect("there is room again");
    }
}

/// The published code never came back from a put where live data took more than its space.
#[test]
fn a_store_full_of_live_values_says_so_and_reads_and_deletes_go_on() {
    let scratch = Scratch::new();
    let store = HashKv::create(&scratch.store(), &tiny(2)).expect("create");
    let mut count = 0;
    let refused = loop {
        match store.put(&key(count), &value(count, 1, 2000)) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 10_000, "8 MiB do not hold that");
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    assert!(count * 2000 > 4 << 20, "only {count} values of 2,000 bytes had room in 8 MiB");
    for index in 0..count {
        assert_eq!(store.get(&key(index)).expect("get"), Some(value(index, 1, 2000)));
    }
    for index in 0..count {
        assert!(store.delete(&key(index)).expect("delete"));
    }
    store.settle().expect("settle");
    for index in 0..count / 2 {
        store.put(&key(index), &value(index, 2, 2000)).expect("there is room again");
    }
}

/// A first byte of zero was taken for padding, and an empty value for a tag.
#[test]
fn keys_that_begin_with_zero_and_empty_values_are_as_good_as_others() {
    let scratch = Scratch::new();
    let store = HashKv::create(&scratch.store(), &tiny(0)).expect("create");
    let mut model = BTreeMap::new();
    for round in 0..8u8 {
        for index in 0..200u8 {
            let (key, value) = (vec![0, 0, index], vec![round; usize::from(index) * 12]);
            store.put(&key, &value).expect("put");
            model.insert(key, value);
        }
    }
    store.put(&[0], &[]).expect("put");
    model.insert(vec![0], Vec::new());
    store.settle().expect("settle");
    assert_holds(&store, &model);
}
