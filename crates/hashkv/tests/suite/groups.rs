//! Groups: separation, collection, splits, snapshots.

use crate::common;
use crate::common::{counter, key, value};
use lodestore_contract::conformance::{Pairs, Rng, assert_holds, assert_sound, seed};
use lodestore_contract::{Change, Error, Lifetime, ScanRange, Store};
use lodestore_hashkv::{HashKv, HashKvOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

fn tiny(workers: usize) -> HashKvOptions {
    common::tiny(8 << 20, workers)
}

/// Checks that the store holds exactly these pairs, by every read operation, and verifies clean.
fn assert_all(store: &HashKv, model: &Pairs) {
    assert_holds(store, model);
    assert_sound(store);
}

#[test]
fn updates_are_collected_and_stay_within_the_capacity() {
    for workers in [0, 2] {
        let scratch = Scratch::new();
        let store = HashKv::create(&scratch.store(), &tiny(workers)).expect("create");
        let (mut rng, mut model) = (Rng::new(seed()), Pairs::new());
        // 1,000 keys of 1 KiB, a third of the file's bytes, written 12 times over.
        for version in 0..12u32 {
            for _ in 0..1000 {
                let index = rng.below(1000);
                let (key, value) = (key(index), value(index, version, 1000));
                store.put(&key, &value).expect("put");
                model.insert(key, value);
            }
        }
        assert_all(&store, &model);
        store.settle().expect("settle");
        assert!(counter(&store, "values_separated") > 5_000, "{:?}", store.stats().engine_counters);
        assert!(counter(&store, "values_collections") > 10 && counter(&store, "values_segments_freed") > 100);
        assert!(counter(&store, "values_group_splits") >= 1 && counter(&store, "values_groups") >= 2);
        assert_all(&store, &model);
        store.close().expect("close");
        drop(store);
        assert_all(&HashKv::open(&scratch.store(), &tiny(workers)).expect("open"), &model);
    }
}

/// Random puts and deletes, which create all kinds of versions of a key in a group.
#[test]
fn values_that_cross_the_threshold_and_deletes_stay_what_they_are_through_collections() {
    let scratch = Scratch::new();
    let store = HashKv::create(&scratch.store(), &tiny(2)).expect("create");
    let (mut rng, mut model) = (Rng::new(seed()), Pairs::new());
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
            assert_all(&store, &model);
        }
    }
    assert!(counter(&store, "values_collections") > 3, "{:?}", store.stats().engine_counters);
    assert_all(&store, &model);
    // As after a crash: no close before the drop.
    drop(store);
    let store = HashKv::open(&scratch.store(), &tiny(2)).expect("open");
    assert_all(&store, &model);
}

/// The snapshot's values are in segments that collections have retired.
#[test]
fn a_snapshot_reads_what_it_showed_at_its_beginning() {
    let scratch = Scratch::new();
    let store = HashKv::create(&scratch.store(), &tiny(2)).expect("create");
    let mut then = Pairs::new();
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
            // The snapshot keeps its values: space may run out while it is held.
            Err(Error::Full { .. } | Error::DramBudget { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    for (key, value) in &then {
        assert_eq!(snapshot.get(key).expect("get").as_ref(), Some(value));
    }
    let walked: Vec<_> = snapshot.scan(&ScanRange::all()).expect("scan").map(|pair| pair.expect("a pair")).collect();
    assert!(
        walked
            .iter()
            .map(|pair| (pair.key(), pair.value()))
            .eq(then.iter().map(|(key, value)| (key.as_slice(), value.as_slice()))),
        "refused {refused}"
    );
    drop((snapshot, walked));
    store.settle().expect("settle");
    for index in 0..300 {
        store.put(&key(index), &value(index, 7_000, 1000)).expect("there is room again");
    }
}

#[test]
fn keys_that_begin_with_zero_and_empty_values_are_handled_like_others() {
    let scratch = Scratch::new();
    let store = HashKv::create(&scratch.store(), &tiny(0)).expect("create");
    let mut model = Pairs::new();
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
    assert_all(&store, &model);
}

/// Regression: only the live bytes of one collection's segments were considered, at most some MiB.
/// A larger `group-bytes` therefore disabled splits.
#[test]
fn a_group_is_split_by_all_of_its_live_bytes_and_not_by_those_of_one_collection() {
    let scratch = Scratch::new();
    let mut options = HashKvOptions { group_bytes: 4 << 20, hotness: false, ..HashKvOptions::default() };
    options.index.pool = PoolOptions { capacity: 64 << 20, ..PoolOptions::default() };
    options.index.workers = 0;
    let store = HashKv::create(&scratch.store(), &options).expect("create");
    for round in 0..4 {
        (0..20_000).for_each(|index| store.put(&key(index), &value(index, round, 1000)).expect("put"));
    }
    assert!(counter(&store, "values_group_splits") >= 1, "{:?}", store.stats().engine_counters);
    assert!((0..20_000).all(|index| store.get(&key(index)).expect("get") == Some(value(index, 3, 1000))));
}

/// Regression: a flush without a free segment left values in the LSM, whose tables used the space
/// that the file released, and kept it. A store that was overwritten at its limit lost its file's
/// space for good.
#[test]
fn a_store_that_is_overwritten_at_its_limit_refuses_values_and_keeps_its_file() {
    let scratch = Scratch::new();
    let mut options = HashKvOptions::default();
    options.index.pool = PoolOptions { capacity: 64 << 20, ..PoolOptions::default() };
    let store = HashKv::create(&scratch.store(), &options).expect("create");
    let put = |index: usize, version: u32| match store.put(&key(index), &value(index, version, 1000)) {
        Ok(()) => true,
        Err(Error::Full { .. }) => false,
        Err(error) => panic!("{error}"),
    };
    let keys = (0..54_000).take_while(|index| put(*index, 0)).count();
    assert!(keys > 45_000, "{keys} values fill 64 MiB");
    let taken = (0..keys).filter(|index| put(index * 7 % keys, 1)).count();
    store.settle().expect("settle");
    let kept = counter(&store, "values_kept_inline");
    assert!(kept < 500, "{kept} of {keys} values have found no segment, {taken} were written over");
    for index in 0..keys {
        let found = store.get(&key(index)).expect("get").expect("a value");
        assert!(found == value(index, 0, 1000) || found == value(index, 1, 1000));
    }
    (0..keys).for_each(|index| assert!(store.delete(&key(index)).expect("delete")));
    store.settle().expect("settle");
    assert!((0..keys / 2).all(|index| put(index, 2)), "half of it finds room");
    store.settle().expect("settle");
    assert_eq!(counter(&store, "values_kept_inline"), kept, "and segments");
    assert!((0..keys / 2).all(|index| store.get(&key(index)).expect("get") == Some(value(index, 2, 1000))));
    assert_sound(&store);
}

/// Regression: a full store refused an insert of an existing key and an update of a missing key,
/// although neither writes anything.
#[test]
fn a_full_store_accepts_deletes_short_values_and_writes_that_store_nothing() {
    let scratch = Scratch::new();
    let mut options = HashKvOptions::default();
    options.index.pool = PoolOptions { capacity: 64 << 20, ..PoolOptions::default() };
    options.index.workers = 0;
    let store = HashKv::create(&scratch.store(), &options).expect("create");
    let full = |outcome: lodestore_contract::Result<()>| matches!(outcome, Err(Error::Full { .. }));
    let keys = (0..100_000).take_while(|index| !full(store.put(&key(*index), &value(*index, 0, 1000)))).count();
    assert!(keys > 45_000, "{keys} values fill 64 MiB");
    assert!(full(store.put(&key(0), &value(0, 1, 1000))));
    assert!(!store.insert(&key(0), &value(0, 1, 1000), Lifetime::Forever).expect("an insert of what is there"));
    assert!(!store.update(b"none", &value(0, 1, 1000), Lifetime::Forever).expect("an update of what is not there"));
    assert!(full(store.insert(b"none", &value(0, 1, 1000), Lifetime::Forever).map(drop)));
    assert!(full(store.update(&key(0), &value(0, 1, 1000), Lifetime::Forever).map(drop)));
    assert!(full(store.update_with(&key(0), &mut |_, _| Change::Put(value(0, 1, 1000), Lifetime::Forever))));
    assert!(full(
        store
            .compare_and_swap(&key(0), Some(&value(0, 0, 1000)), Some(&value(0, 1, 1000)), Lifetime::Forever)
            .map(drop)
    ));
    store.put(b"short", b"value").expect("a short value");
    assert_eq!(store.get(&key(0)).expect("get"), Some(value(0, 0, 1000)));
    // A tenth of the keys is deleted, and none of the deletes was flushed.
    (0..keys / 10).for_each(|index| assert!(store.delete(&key(index)).expect("delete")));
    store
        .update_with(&key(0), &mut |_, _| Change::Put(value(0, 2, 1000), Lifetime::Forever))
        .expect("there is room again");
    assert_eq!(store.get(&key(0)).expect("get"), Some(value(0, 2, 1000)));
    assert_sound(&store);
}
