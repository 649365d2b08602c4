//! Targets of `fluidkv`: superblock, manifest, tables and log segments, in whole stores.

use std::sync::{Arc, LazyLock};

use lodestore_contract::{Result, Store};
use lodestore_fluidkv::{Compression, ENGINE, FORMAT, FluidKv, FluidOptions};
use lodestore_media::{OpenReport, Pool};

use super::store::{Engine, Targets, pool_options};

impl Engine for FluidKv {
    const NAME: &'static str = ENGINE;
    const FORMAT: u32 = FORMAT;

    fn start(pool: Arc<Pool>, report: &OpenReport) -> Result<Self> {
        static BASE: LazyLock<FluidOptions> = LazyLock::new(FluidOptions::default);
        // Below the minimum of the options, because of the small capacity: memtables hold some
        // dozens of writes. Uncompressed tables of flushes and compressed ones of compactions
        // coexist.
        let options = FluidOptions {
            pool: pool_options(),
            workers: 0,
            block_bytes: 512,
            compression: Compression::Lz4,
            runs_max: 2,
            ..BASE.clone()
        };
        Self::start(pool, report, &options)
    }

    fn sweep(&self) -> Result<u64> {
        self.settle().map(|()| 0)
    }
}

/// The targets.
pub static TARGETS: Targets<FluidKv> = Targets::lazy();
