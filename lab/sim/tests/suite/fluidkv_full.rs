//! A full FluidKV store whose threads share one log, as on a file: deletes fit, and free space.

use std::sync::Arc;
use std::time::Duration;

use lodestore_contract::{Batch, BatchOp, Durability, Error, Store};
use lodestore_fluidkv::{ENGINE, FORMAT, FluidKv, FluidOptions};
use lodestore_media::sim::{SECTOR, SimSpec};
use lodestore_media::{ExtentKind, Pool, PoolOptions};
use lodestore_sim::shape::simulated_pool;

/// The kind of extents that the test allocates in the store's pool.
const KIND_TAKEN: ExtentKind = ExtentKind(ExtentKind::ENGINE.0 + 40);
/// Operations of a batch.
const BATCH: u64 = 20;
/// Bytes of a value.
const VALUE: usize = 3000;

/// Log segments shared by all threads are longer than a piece of the reserve.
fn options(durability: Durability) -> FluidOptions {
    let pool = PoolOptions { capacity: 64 << 20, durability, ..simulated_pool(16 << 20, 4096) };
    FluidOptions {
        pool,
        memtable_bytes: 2 << 20,
        segment_bytes: 16 << 10,
        table_bytes: 16 << 10,
        range_bytes: 1 << 20,
        value_threshold: 0,
        value_segment_bytes: 16 << 10,
        workers: 0,
        ..FluidOptions::default()
    }
}

fn key(index: u64) -> Vec<u8> {
    format!("{:016x}", index.wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes()
}

fn put_batch(from: u64) -> Batch {
    let put = |index: u64| BatchOp::Put { key: key(index), value: vec![index as u8; VALUE], expiry: None };
    Batch { ops: (from..from + BATCH).map(put).collect() }
}

/// Puts until the store is full. Returns its number of keys.
fn fill_up(store: &FluidKv) -> u64 {
    let mut from = 0;
    loop {
        match store.write(&put_batch(from)) {
            Ok(()) => from += BATCH,
            Err(Error::Full { .. }) => return from,
            Err(other) => panic!("{other}"),
        }
        assert!(from < 1 << 20, "it is never full");
    }
}

/// Allocates all free space except the reserve.
fn take_all(pool: &Pool) {
    let mut bytes = 1 << 20;
    while bytes >= u64::from(pool.options().chunk_bytes) {
        while pool.allocator().alloc_extent(pool, bytes, KIND_TAKEN).is_ok() {}
        bytes /= 2;
    }
}

fn created(options: &FluidOptions) -> (Arc<Pool>, FluidKv) {
    let spec = SimSpec { grain: SECTOR, record: false, ..SimSpec::default() };
    let (pool, report) = Pool::create_sim(&spec, ENGINE, FORMAT, options.pool.clone()).expect("a pool");
    let store = FluidKv::start(Arc::clone(&pool), &report, options).expect("a store");
    (pool, store)
}

#[test]
fn deletes_find_room_where_no_two_free_pieces_lie_together() {
    const PIECE: u64 = 64 << 10;
    const KEYS: u64 = 4000;
    let (pool, store) = created(&options(Durability::Process));
    (0..KEYS).step_by(BATCH as usize).for_each(|from| store.write(&put_batch(from)).expect("put"));
    store.settle().expect("settled");
    let pieces: Vec<_> = std::iter::from_fn(|| pool.allocator().alloc_extent(&pool, PIECE, KIND_TAKEN).ok()).collect();
    let every_other = pieces.iter().filter(|at| (at.offset() / PIECE).is_multiple_of(2));
    every_other.for_each(|at| pool.allocator().free_extent(&pool, *at));
    for index in 0..KEYS {
        assert!(store.delete(&key(index)).expect("a delete"), "key {index}");
    }
    store.settle().expect("settled");
    assert!(store.is_empty().expect("is_empty"));
    assert_eq!(store.stats().engine_counters["tables"], 0);
}

#[test]
fn a_full_store_takes_deletes_and_has_room_then() {
    for durability in [Durability::Process, Durability::Interval(Duration::from_secs(3600))] {
        let (pool, store) = created(&options(durability));
        let keys = fill_up(&store);
        assert!(keys > 5000, "{keys} keys");
        take_all(&pool);
        let mut deleted = 0;
        for from in (0..keys).step_by(4 * BATCH as usize) {
            let delete = |index: u64| BatchOp::Delete { key: key(index) };
            store.write(&Batch { ops: (from..from + BATCH).map(delete).collect() }).expect("a batch of deletes");
            for index in from + BATCH..from + 2 * BATCH {
                assert!(store.delete(&key(index)).expect("a delete") || index >= keys, "key {index}");
            }
            deleted += 2 * BATCH;
        }
        store.settle().expect("settled");
        for from in (keys..keys + deleted / 2).step_by(BATCH as usize) {
            let put = store.write(&put_batch(from));
            assert!(put.is_ok(), "{put:?}, {} of {deleted}: {:?}", from - keys, store.stats());
        }
        for index in (0..keys).step_by(7) {
            let expected = (index % (4 * BATCH) >= 2 * BATCH).then(|| vec![index as u8; VALUE]);
            assert!(store.get(&key(index)).expect("get") == expected, "key {index}");
        }
    }
}
