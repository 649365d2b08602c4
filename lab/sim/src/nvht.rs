//! NVHT on simulated media.

use std::sync::{Arc, LazyLock};

use lodestore_contract::Result;
use lodestore_media::sim::{SimImage, SimSpec};
use lodestore_media::{OpenReport, PlantedFault, Pool};
use lodestore_nvht::{ENGINE, FORMAT, HashKind, Nvht, NvhtOptions};

use crate::faults;
use crate::pool_subject::PoolSubject;
use crate::script::HASH_SEED;
use crate::shape::Shape;
use crate::subject::{Engine, Subject};

/// The NVHT engine without background threads, so that runs are deterministic. Tables begin with a
/// line or two, so that they grow constantly. Keys are probed in two lines, so that many are after
/// their home lines.
#[derive(Debug, Clone, Copy)]
pub struct NvhtEngine;

/// Mode of a [`Shape`]: four lines are probed instead of two.
pub const LONG_PROBES_MODE_FLAG: u32 = 1;
/// Mode of a [`Shape`]: tables grow when they are half full instead of almost full.
pub const SPARSE_MODE_FLAG: u32 = 2;
/// Mode of a [`Shape`]: MurmurHash3 instead of XXH3.
pub const MURMUR_MODE_FLAG: u32 = 4;

/// Computed once, because the query of the number of cores takes longer than a small recovery.
static BASE: LazyLock<NvhtOptions> = LazyLock::new(NvhtOptions::default);

pub(crate) fn options(shape: &Shape) -> NvhtOptions {
    let mode = |bit: u32| shape.mode & bit != 0;
    NvhtOptions {
        pool: shape.pool(),
        partitions: shape.partitions,
        initial_capacity: 7 * shape.partitions,
        load_percent: if mode(SPARSE_MODE_FLAG) { 50 } else { 95 },
        probe_length: if mode(LONG_PROBES_MODE_FLAG) { 28 } else { 14 },
        hash: if mode(MURMUR_MODE_FLAG) { HashKind::Murmur3 } else { HashKind::Xxh3 },
        hash_seed: Some(HASH_SEED),
        recovery_threads: 0,
        sweep_ms: 0,
        scrub_rate: 0,
        ..BASE.clone()
    }
}

fn start(pool: Arc<Pool>, report: &OpenReport, shape: &Shape) -> Result<Box<dyn Subject>> {
    let store = Arc::new(Nvht::start(Arc::clone(&pool), report, &options(shape))?);
    let sweeper = Arc::clone(&store);
    let sweep = Box::new(move || sweeper.sweep_expired().map(|_| ()));
    Ok(Box::new(PoolSubject { store, pool, checkpoint_bytes: 0, optional_bytes: 0, accounts: true, sweep }))
}

impl Engine for NvhtEngine {
    fn name(&self) -> &'static str {
        ENGINE
    }

    fn mutants(&self) -> &'static [PlantedFault] {
        faults::nvht::OF_CRASHES
    }

    fn mutants_of_threads(&self) -> &'static [PlantedFault] {
        faults::nvht::OF_THREADS
    }

    fn damage_mutants(&self) -> &'static [PlantedFault] {
        faults::nvht::OF_DAMAGE
    }

    fn other_mutants(&self) -> &'static [PlantedFault] {
        faults::nvht::OF_GROWTHS
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
