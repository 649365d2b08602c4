//! Helpers for tests of whole stores.

use lodestore_contract::Store as _;
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_media::PoolOptions;

/// Tiny memtables, so that flushes and compactions happen all the time.
pub fn tiny(workers: usize) -> FluidOptions {
    FluidOptions {
        pool: PoolOptions { capacity: 64 << 20, region_bytes: 16 << 20, ..PoolOptions::default() },
        memtable_bytes: 64 << 10,
        segment_bytes: 16 << 10,
        table_bytes: 16 << 10,
        range_bytes: 64 << 10,
        workers,
        ..FluidOptions::default()
    }
}

/// Returns a key by number, in no order.
pub fn key(index: u64) -> Vec<u8> {
    format!("{:016x}", index.wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes()
}

/// Returns one of the engine's own counters.
pub fn counter(store: &FluidKv, name: &str) -> u64 {
    store.stats().engine_counters[name]
}
