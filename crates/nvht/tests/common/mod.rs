//! Shared test utilities: the engine under test, a small store's options, and a temporary
//! directory.

use lodestore_inplace::testing::{Kind, small_dax_pool};
use lodestore_nvht::{Nvht, NvhtOptions};

pub use lodestore_inplace::testing::Scratch;

/// The engine under test.
pub static KIND: Kind<Nvht, NvhtOptions> =
    Kind { engine: "nvht", create: Nvht::create, open: Nvht::open, pool: |options| &mut options.pool };

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
