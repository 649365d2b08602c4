//! Shared test utilities: a small store's options, and a temporary directory.

use lodestore_inplace::testing::small_dax_pool;
use lodestore_nvht::NvhtOptions;

pub use lodestore_inplace::testing::Scratch;

/// Returns options of a small store without threads whose flushes and fences are executed.
pub fn small_dax() -> NvhtOptions {
    NvhtOptions {
        pool: small_dax_pool(),
        partitions: 4,
        initial_capacity: 64,
        recovery_threads: 0,
        sweep_ms: 0,
        ..NvhtOptions::default()
    }
}
