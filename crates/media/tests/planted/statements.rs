//! Statements that the planted faults of `main.rs` change.

use lodestore_contract::Result;
use lodestore_media::{NvPtr, Pool};

/// Stores and flushes a word.
pub fn store(pool: &Pool, at: NvPtr) {
    pool.store_and_flush(at, &[&7u64.to_le_bytes()]);
}

/// Publishes a word.
pub fn publish(pool: &Pool, at: NvPtr) {
    pool.publish_u64(at, 8);
}

/// Publishes a pair of words.
pub fn publish_pair(pool: &Pool, at: NvPtr) {
    assert_eq!(pool.cas_u128(at, (0, 0), (1, 2)), Ok(()));
}

/// Flushes and fences, through a helper.
pub fn persist(pool: &Pool, at: NvPtr) {
    flush_and_fence(pool, at);
}

#[track_caller]
fn flush_and_fence(pool: &Pool, at: NvPtr) {
    pool.flush(at, 8);
    pool.fence();
}

/// Fences.
pub fn fence(pool: &Pool) {
    pool.fence();
}

/// Fences and checks.
pub fn fence_checked(pool: &Pool) -> Result<()> {
    pool.fence_checked()
}
