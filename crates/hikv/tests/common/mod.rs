//! Shared test utilities: a small store's options, and a temporary directory.

use lodestore_hikv::{Backends, HiKvOptions};
use lodestore_inplace::testing::small_dax_pool;

pub use lodestore_inplace::testing::Scratch;

/// Returns options of a small store without threads whose flushes and fences are executed.
pub fn small_dax() -> HiKvOptions {
    HiKvOptions {
        pool: small_dax_pool(),
        partitions: 4,
        segment_bytes: 4096,
        backends: Backends::Fixed(0),
        recovery_threads: 0,
        sweep_ms: 0,
        ..HiKvOptions::default()
    }
}
