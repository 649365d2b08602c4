//! Utilities shared by tests of whole stores.

use lodestore_contract::Store as _;
use lodestore_hashkv::{HashKv, HashKvOptions};
use lodestore_media::PoolOptions;

/// Tiny memtables and segments in a store of this capacity, for constant flushes and collections.
pub fn tiny(capacity: u64, workers: usize) -> HashKvOptions {
    let mut options = HashKvOptions { segment_bytes: 16 << 10, group_bytes: 64 << 10, ..HashKvOptions::default() };
    options.index.pool = PoolOptions { capacity, region_bytes: capacity / 2, ..PoolOptions::default() };
    options.index.memtable_bytes = 64 << 10;
    options.index.segment_bytes = 16 << 10;
    options.index.table_bytes = 16 << 10;
    options.index.range_bytes = 64 << 10;
    options.index.workers = workers;
    options
}

/// Returns a key by number; keys are in no order.
pub fn key(index: usize) -> Vec<u8> {
    format!("{:016x}", (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes()
}

/// Returns a value that contains its key's index and its version.
pub fn value(index: usize, version: u32, len: usize) -> Vec<u8> {
    let mut value = format!("{index} {version} ").into_bytes();
    value.resize(len.max(value.len()), version as u8);
    value
}

/// Returns one of the engine's own counters.
pub fn counter(store: &HashKv, name: &str) -> u64 {
    store.stats().engine_counters[name]
}
