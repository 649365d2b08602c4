//! Targets of `hikv`: superblock, directories, segments, records, sorted runs and batch logs, in
//! whole stores.

use std::sync::{Arc, LazyLock};

use lodestore_contract::Result;
use lodestore_hikv::{Backends, ENGINE, FORMAT, HiKv, HiKvOptions};
use lodestore_media::{OpenReport, Pool};

use super::store::{Engine, Targets, pool_options};

impl Engine for HiKv {
    const NAME: &'static str = ENGINE;
    const FORMAT: u32 = FORMAT;

    fn start(pool: Arc<Pool>, report: &OpenReport) -> Result<Self> {
        static BASE: LazyLock<HiKvOptions> = LazyLock::new(HiKvOptions::default);
        let options = HiKvOptions {
            pool: pool_options(),
            partitions: 2,
            segment_bytes: 512,
            hash_seed: Some(7),
            queues: 1,
            queue_len: 16,
            backends: Backends::Fixed(0),
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
pub static TARGETS: Targets<HiKv> = Targets::lazy();
