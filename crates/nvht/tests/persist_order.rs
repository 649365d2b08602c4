//! The number of ordering points of each operation, and that there are none where the medium needs none.

mod common;

use common::{Scratch, small_dax};
use lodestore_contract::{Batch, BatchOp, Durability, Store};
use lodestore_nvht::{Nvht, NvhtOptions};

/// Fences that `work` executes.
fn fences(store: &Nvht, work: impl FnOnce(&Nvht)) -> u64 {
    let before = store.stats().fences;
    work(store);
    store.stats().fences - before
}

/// A store with a record of the size class that the tests use, so that no new slab is taken in them, and no table grows.
fn warmed() -> (Scratch, Nvht) {
    let scratch = Scratch::new();
    let options = NvhtOptions { initial_capacity: 4096, ..small_dax() };
    let store = Nvht::create(&scratch.store(), &options).expect("the store can be made");
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
fn a_batch_has_four_ordering_points_however_long() {
    let (_scratch, store) = warmed();
    let batch = |keys: u8| Batch {
        ops: (0..keys).map(|key| BatchOp::Put { key: vec![b'b', key], value: vec![key; 100], expiry: None }).collect(),
    };
    // The first takes the log's extent.
    store.write(&batch(1)).expect("write");
    for keys in [1, 2, 16] {
        assert_eq!(fences(&store, |store| store.write(&batch(keys)).expect("write")), 4, "{keys} keys");
    }
}

#[test]
fn at_process_durability_no_flush_and_no_fence_is_executed() {
    let scratch = Scratch::new();
    let mut options = small_dax();
    options.pool.durability = Durability::Process;
    options.pool.emulate_dax = false;
    let store = Nvht::create(&scratch.store(), &options).expect("the store can be made");
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
