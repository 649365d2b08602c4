//! Targets of `hashkv`: the superblock, segments and records of the values file, and the pointers
//! to them, in whole stores whose index is FluidKV's.

use std::sync::{Arc, LazyLock};

use lodestore_contract::{Result, Store};
use lodestore_hashkv::{ENGINE, FORMAT, HashKv, HashKvOptions, fuzz};
use lodestore_media::{OpenReport, Pool};

use super::store::{Engine, Targets, pool_options};

impl Engine for HashKv {
    const NAME: &'static str = ENGINE;
    const FORMAT: u32 = FORMAT;

    fn start(pool: Arc<Pool>, report: &OpenReport) -> Result<Self> {
        static BASE: LazyLock<HashKvOptions> = LazyLock::new(HashKvOptions::default);
        // Segments of two blocks, and memtables of one.
        let mut options =
            HashKvOptions { segment_bytes: 8 << 10, value_threshold: 32, group_bytes: 8 << 10, ..BASE.clone() };
        options.index.pool = pool_options();
        options.index.workers = 0;
        options.index.memtable_bytes = 4 << 10;
        options.index.block_bytes = 512;
        options.index.runs_max = 2;
        Self::start(pool, report, &options)
    }

    fn sweep(&self) -> Result<u64> {
        self.settle().map(|()| 0)
    }
}

/// Parses a superblock, a segment's header and records, and the values of the index, each
/// separately. Returns the number of parsed ones.
pub fn parts(data: &[u8]) -> usize {
    fuzz::parts(data)
}

/// The targets.
pub static TARGETS: Targets<HashKv> = Targets::lazy();
