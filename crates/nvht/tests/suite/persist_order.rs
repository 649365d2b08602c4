//! The number of ordering points of each operation, and none on a medium that needs none.

use crate::common::{Scratch, small_dax};
use lodestore_contract::{Batch, BatchOp, Durability, Store};
use lodestore_inplace::testing::{
    check_no_flush_at_process, check_nothing_persisted, check_ordering_points, fences, warm,
};
use lodestore_nvht::{Nvht, NvhtOptions};

/// Creates a store with a record of the tests' size class: the tests need no new slab, and no table
/// grows.
fn warmed() -> (Scratch, Nvht) {
    let scratch = Scratch::new();
    let options = NvhtOptions { initial_capacity: 4096, ..small_dax() };
    let store = Nvht::create(&scratch.store(), &options).expect("the store can be made");
    warm(&store);
    (scratch, store)
}

#[test]
fn a_put_has_two_ordering_points_and_a_delete_one() {
    check_ordering_points(&warmed().1);
}

#[test]
fn operations_that_change_nothing_persist_nothing() {
    check_nothing_persisted(&warmed().1);
}

#[test]
fn a_batch_has_four_ordering_points_for_any_length() {
    let (_scratch, store) = warmed();
    let batch = |keys: u8| Batch {
        ops: (0..keys).map(|key| BatchOp::Put { key: vec![b'b', key], value: vec![key; 100], expiry: None }).collect(),
    };
    // The first batch allocates the log's extent.
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
    check_no_flush_at_process(&store);
}
