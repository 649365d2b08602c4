//! Sizes and modes of simulated stores.

use lodestore_contract::Durability;
use lodestore_media::{PoolOptions, Prefault};

/// The size of a simulated store. Small ones make recovery fast and growth frequent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Maximum bytes of all regions.
    pub capacity: u64,
    /// Bytes of one region.
    pub region_bytes: u64,
    /// Bytes of one allocation unit.
    pub chunk_bytes: u32,
    /// Partitions, if the engine has them.
    pub partitions: u32,
    /// A mode of the engine, by its own numbers; 0 is the default.
    pub mode: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self { capacity: 128 << 10, region_bytes: 128 << 10, chunk_bytes: 512, partitions: 1, mode: 0 }
    }
}

/// Mode of a [`Shape`], for every engine: the store is opened in salvage mode.
pub const SALVAGE_MODE_FLAG: u32 = 1 << 31;

impl Shape {
    /// Returns the options of a pool of this size, without prefaulting.
    pub(crate) fn pool(&self) -> PoolOptions {
        let salvage = self.mode & SALVAGE_MODE_FLAG != 0;
        PoolOptions { capacity: self.capacity, salvage, ..simulated_pool(self.region_bytes, self.chunk_bytes) }
    }
}

/// Returns the options of a simulated pool with one region of this many bytes, at durability
/// `process`.
pub fn simulated_pool(region_bytes: u64, chunk_bytes: u32) -> PoolOptions {
    PoolOptions {
        capacity: region_bytes,
        region_bytes,
        chunk_bytes,
        durability: Durability::Process,
        huge_pages: false,
        prefault: Prefault::None,
        ..PoolOptions::default()
    }
}
