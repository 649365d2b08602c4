//! Small tables, moved unchanged or left by deletes, do not stay small forever. Large ones are
//! moved and stay.

use crate::common::{counter, key, tiny};
use lodestore_contract::Store;
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

const TABLE: u64 = 128 << 10;
/// Adjacent small tables that may stay: 16 for each factor of four below half a table.
const SMALL: u64 = 16 * 4;

fn options(memtable_bytes: u64) -> FluidOptions {
    FluidOptions {
        pool: PoolOptions { capacity: 512 << 20, region_bytes: 64 << 20, ..PoolOptions::default() },
        memtable_bytes,
        table_bytes: TABLE,
        range_bytes: 4 << 20,
        ..tiny(0)
    }
}

fn ascending(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

fn fill(store: &FluidKv, keys: u64) {
    (0..keys).for_each(|number| store.put(&ascending(number), &[number as u8; 92]).expect("put"));
}

#[track_caller]
fn assert_few_tables(store: &FluidKv) {
    let needed = (counter(store, "stable_bytes") + counter(store, "buffered_bytes")).div_ceil(TABLE);
    // Tables that are at least half full stay.
    let (tables, most) = (counter(store, "tables"), 2 * needed + SMALL);
    assert!(tables <= most, "{tables} tables where {needed} would do");
}

#[test]
fn small_flushes_of_ascending_keys_leave_few_tables() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &options(64 << 10)).expect("created");
    for round in 1..=6u64 {
        let keys = 10_000 * round;
        (keys - 10_000..keys).for_each(|number| store.put(&ascending(number), &[number as u8; 92]).expect("put"));
        // A flush of a few keys each, as in a store that is seldom written.
        for number in keys..keys + 100 {
            store.put(&ascending(number), &[number as u8; 92]).expect("put");
            store.settle().expect("settled");
        }
        assert_few_tables(&store);
    }
    let (flushed, compacted) = (counter(&store, "flushed_bytes"), counter(&store, "compacted_bytes"));
    assert!(compacted <= 5 * flushed, "{compacted} bytes were written anew of {flushed}");
    assert_eq!(store.len().expect("len"), 60_100);
    assert_eq!(store.get(&key(7)).expect("get"), None, "none of these keys");
    assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
}

#[test]
fn ranges_emptied_by_deletes_are_merged_into_few_tables() {
    let scratch = Scratch::new();
    let options = FluidOptions { range_bytes: 256 << 10, ..options(256 << 10) };
    let store = FluidKv::create(&scratch.store(), &options).expect("created");
    fill(&store, 200_000);
    store.settle().expect("settled");
    assert!(counter(&store, "ranges") > 50);
    for number in (0..200_000u64).filter(|number| number % 1000 != 0) {
        assert!(store.delete(&ascending(number)).expect("deleted"));
    }
    store.settle().expect("settled");
    let tables = counter(&store, "tables");
    assert!(tables < 16, "{tables} tables for 200 keys in {} ranges", counter(&store, "ranges"));
    assert_eq!(store.len().expect("len"), 200);
}

#[test]
fn large_flushes_of_ascending_keys_are_moved_and_never_rewritten() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &options(4 << 20)).expect("created");
    fill(&store, 200_000);
    store.settle().expect("settled");
    assert!(counter(&store, "moved_tables") > 100);
    assert_eq!(counter(&store, "compacted_bytes"), 0);
    assert_eq!(counter(&store, "buffered_bytes"), 0);
}
