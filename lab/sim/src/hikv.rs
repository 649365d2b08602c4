//! HiKV on simulated media.

use std::sync::{Arc, LazyLock};

use lodestore_contract::{Result, Store};
use lodestore_hikv::{Backends, ENGINE, FORMAT, HiKv, HiKvOptions};
use lodestore_media::sim::{SimImage, SimSpec};
use lodestore_media::{OpenReport, PlantedFault, Pool};

use crate::faults;
use crate::pool_subject::PoolSubject;
use crate::script::HASH_SEED;
use crate::shape::Shape;
use crate::subject::{Engine, Subject};

/// The HiKV engine without background threads, so that runs are deterministic.
#[derive(Debug, Clone, Copy)]
pub struct HiKvEngine;

/// Mode of a [`Shape`]: the writer updates the tree.
pub const SYNC_MODE_FLAG: u32 = 1;
/// Mode of a [`Shape`]: one tree per partition.
pub const PARTITIONED_MODE_FLAG: u32 = 2;
/// Mode of a [`Shape`]: each write is logged first.
pub const WAL_MODE_FLAG: u32 = 4;

/// Computed once, because the query of the number of cores takes longer than a small recovery.
static BASE: LazyLock<HiKvOptions> = LazyLock::new(HiKvOptions::default);

pub(crate) fn options(shape: &Shape) -> HiKvOptions {
    HiKvOptions {
        pool: shape.pool(),
        partitions: shape.partitions,
        segment_bytes: 512,
        hash_seed: Some(HASH_SEED),
        sync_update: shape.mode & SYNC_MODE_FLAG != 0,
        partitioned_tree: shape.mode & PARTITIONED_MODE_FLAG != 0,
        wal: shape.mode & WAL_MODE_FLAG != 0,
        queues: 1,
        queue_len: 16,
        backends: Backends::Fixed(0),
        recovery_threads: 0,
        sweep_ms: 0,
        scrub_rate: 0,
        ..BASE.clone()
    }
}

fn start(pool: Arc<Pool>, report: &OpenReport, shape: &Shape) -> Result<Box<dyn Subject>> {
    let store = Arc::new(HiKv::start(Arc::clone(&pool), report, &options(shape))?);
    let sweeper = Arc::clone(&store);
    let sweep = Box::new(move || sweeper.sweep_expired().map(|_| ()));
    let keys = if report.clean && !report.created { store.len()? } else { 0 };
    // The sorted run of a clean stop is one extent here: a head of 24 bytes, then 8 per key.
    let checkpoint_bytes = if keys > 0 { (24 + keys * 8).next_multiple_of(shape.chunk_bytes.into()) } else { 0 };
    // A full store has no log.
    let wal_bytes = store.stats().engine_counters.get("wal_bytes").copied().unwrap_or(0);
    let optional_bytes = wal_bytes.next_multiple_of(shape.chunk_bytes.into());
    Ok(Box::new(PoolSubject { store, pool, checkpoint_bytes, optional_bytes, accounts: true, sweep }))
}

impl Engine for HiKvEngine {
    fn name(&self) -> &'static str {
        ENGINE
    }

    fn mutants(&self) -> &'static [PlantedFault] {
        faults::hikv::OF_CRASHES
    }

    fn mutants_of_threads(&self) -> &'static [PlantedFault] {
        faults::hikv::OF_THREADS
    }

    fn damage_mutants(&self) -> &'static [PlantedFault] {
        faults::hikv::OF_DAMAGE
    }

    fn create(&self, spec: &SimSpec, shape: &Shape) -> Result<Box<dyn Subject>> {
        let (pool, report) = Pool::create_sim(spec, ENGINE, FORMAT, options(shape).pool)?;
        start(pool, &report, shape)
    }

    fn open(&self, image: &SimImage, shape: &Shape) -> Result<Box<dyn Subject>> {
        let (pool, report) = Pool::open_sim(image, ENGINE, FORMAT, options(shape).pool)?;
        start(pool, &report, shape)
    }
}
