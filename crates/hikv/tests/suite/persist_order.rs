//! The number of ordering points of each operation, and none on a medium that needs none.

use crate::common::{Scratch, small_dax};
use lodestore_contract::{Durability, Store};
use lodestore_hikv::HiKv;
use lodestore_inplace::testing::{
    check_no_flush_at_process, check_nothing_persisted, check_ordering_points, fences, warm,
};

/// Creates a store with a record of each size class of the tests: they need no new slab.
fn warmed() -> (Scratch, HiKv) {
    let scratch = Scratch::new();
    let store = HiKv::create(&scratch.store(), &small_dax()).expect("the store can be made");
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
fn the_wal_mode_has_a_third_ordering_point() {
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
    check_no_flush_at_process(&store);
}
