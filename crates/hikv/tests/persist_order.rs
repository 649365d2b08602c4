//! The number of ordering points of each operation, and that there are none where the medium needs none.

mod common;

use common::{Scratch, small_dax};
use lodestore_contract::{Durability, Store};
use lodestore_hikv::HiKv;

/// Fences that `work` executes.
fn fences(store: &HiKv, work: impl FnOnce(&HiKv)) -> u64 {
    let before = store.stats().fences;
    work(store);
    store.stats().fences - before
}

/// A store with a record of each size class that the tests use, so that no new slab is taken in them.
fn warmed() -> (Scratch, HiKv) {
    let scratch = Scratch::new();
    let store = HiKv::create(&scratch.store(), &small_dax()).expect("the store can be made");
    for key in 0..4u8 {
        store.put(&[b'w', key], &[key; 100]).expect("put");
    }
    (scratch, store)
}

#[test]
fn a_put_has_two_ordering_points_and_a_delete_one() {
    let (_scratch, store) = warmed();
    assert_eq!(fences(&store, |store| store.put(b"kk", &[1; 100]).expect("put")), 2, "put of a new key");
    assert_eq!(fences(&store, |store| store.put(b"kk", &[2; 100]).expect("put")), 2, "put of a present key");
    assert_eq!(fences(&store, |store| assert!(store.update(b"kk", &[3; 100]).expect("update"))), 2, "update");
    assert_eq!(fences(&store, |store| assert!(store.delete(b"kk").expect("delete"))), 1, "delete");
    assert_eq!(fences(&store, |store| assert!(store.insert(b"kk", &[4; 100]).expect("insert"))), 2, "insert");
}

#[test]
fn what_changes_nothing_persists_nothing() {
    let (_scratch, store) = warmed();
    let nothing = fences(&store, |store| {
        assert!(store.get(b"absent").expect("get").is_none());
        assert!(!store.delete(b"absent").expect("delete"));
        assert!(!store.update(b"absent", b"v").expect("update"));
        assert!(!store.insert(b"w\0", b"v").expect("insert"));
        assert!(store.get(b"w\0").expect("get").is_some());
    });
    assert_eq!(nothing, 0);
}

#[test]
fn the_log_ablation_has_a_third_ordering_point() {
    let scratch = Scratch::new();
    let mut options = small_dax();
    options.wal = true;
    let store = HiKv::create(&scratch.store(), &options).expect("the store can be made");
    store.put(b"warm", &[0; 100]).expect("put");
    assert_eq!(fences(&store, |store| store.put(b"kk", &[1; 100]).expect("put")), 3);
}

#[test]
fn at_process_durability_no_flush_and_no_fence_is_executed() {
    let scratch = Scratch::new();
    let mut options = small_dax();
    options.pool.durability = Durability::Process;
    options.pool.emulate_dax = false;
    let store = HiKv::create(&scratch.store(), &options).expect("the store can be made");
    let before = store.stats();
    for key in 0..1000u32 {
        store.put(&key.to_le_bytes(), &[7; 100]).expect("put");
    }
    for key in 0..1000u32 {
        assert!(store.delete(&key.to_le_bytes()).expect("delete"));
    }
    let after = store.stats();
    assert_eq!((after.flushes - before.flushes, after.fences - before.fences), (0, 0));
    assert!(after.bytes_written > before.bytes_written);
}
