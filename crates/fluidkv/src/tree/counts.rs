//! Counters of a store's work.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the open.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) flushes: AtomicU64,
    pub(crate) flushed_bytes: AtomicU64,
    /// Bytes of log of the memtables that were frozen.
    pub(crate) logged_bytes: AtomicU64,
    /// Lookups, approximately: sampled at one in 64.
    pub(crate) reads: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) compacted_bytes: AtomicU64,
    pub(crate) moved_tables: AtomicU64,
    pub(crate) splits: AtomicU64,
    pub(crate) joins: AtomicU64,
    /// Merges of small adjacent tables.
    pub(crate) small_merges: AtomicU64,
    /// Merges of tables with many expired pairs.
    pub(crate) expired_merges: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) throttled_ns: AtomicU64,
    pub(crate) stalled: AtomicU64,
    pub(crate) stalled_ns: AtomicU64,
    pub(crate) reclaimed: AtomicU64,
    /// Groups of writes that became durable together.
    pub(crate) commits: AtomicU64,
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64, by: u64) {
        count.fetch_add(by, Ordering::Relaxed);
    }
}
