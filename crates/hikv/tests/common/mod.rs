//! Shared test utilities: the engine under test, a small store's options, and a temporary
//! directory.

use lodestore_hikv::{Backends, HiKv, HiKvOptions};
use lodestore_inplace::testing::{Kind, small_dax_pool};

pub use lodestore_inplace::testing::Scratch;

/// The engine under test.
pub static KIND: Kind<HiKv, HiKvOptions> =
    Kind { engine: "hikv", create: HiKv::create, open: HiKv::open, pool: |options| &mut options.pool };

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
