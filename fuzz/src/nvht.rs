//! Targets of `nvht`: superblock, roots, tables in the middle of a growth, records and batch logs,
//! in whole stores.

use std::sync::{Arc, LazyLock};

use lodestore_contract::Result;
use lodestore_media::{OpenReport, Pool};
use lodestore_nvht::{ENGINE, FORMAT, HashKind, Nvht, NvhtOptions};

use super::store::{Engine, Targets, pool_options};

impl Engine for Nvht {
    const NAME: &'static str = ENGINE;
    const FORMAT: u32 = FORMAT;

    fn start(pool: Arc<Pool>, report: &OpenReport) -> Result<Self> {
        static BASE: LazyLock<NvhtOptions> = LazyLock::new(NvhtOptions::default);
        let options = NvhtOptions {
            pool: pool_options(),
            partitions: 1,
            initial_capacity: 1,
            // The table of 224 slots begins to grow at the second to last key, and the last one
            // moves half of it.
            load_percent: 53,
            probe_length: 28,
            hash: HashKind::Xxh3,
            hash_seed: Some(7),
            recovery_threads: 0,
            sweep_ms: 0,
            scrub_rate: 0,
            ..BASE.clone()
        };
        Self::start(pool, report, &options)
    }

    fn sweep(&self) -> Result<u64> {
        self.sweep_expired()
    }
}

/// The targets.
pub static TARGETS: Targets<Nvht> = Targets::lazy();
