//! FluidKV on simulated media.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use lodestore_contract::Store as _;
use lodestore_contract::{Durability, Result};
use lodestore_fluidkv::{Compression, ENGINE, FORMAT, FluidKv, FluidOptions};
use lodestore_media::sim::{SimImage, SimSpec};
use lodestore_media::{OpenReport, PlantedFault, Pool, PoolOptions};

use crate::faults;
use crate::pool_subject::PoolSubject;
use crate::shape::Shape;
use crate::subject::{Engine, Subject};

/// The FluidKV engine without background threads, so that runs are deterministic. Memtables hold
/// some tens of writes, so that flushes, compactions and splits happen constantly. Value segments
/// hold a few values, so that GC is frequent.
#[derive(Debug, Clone, Copy)]
pub struct FluidEngine;

/// Mode of a [`Shape`]: each flush is compacted at once, instead of every third.
pub const EAGER_MODE_FLAG: u32 = 1;
/// Mode of a [`Shape`]: tables have no filter, and no value is separated.
pub const NO_FILTER_MODE_FLAG: u32 = 2;
/// Mode of a [`Shape`]: runs are kept as long as possible.
pub const LAZY_MODE_FLAG: u32 = 4;
/// Mode of a [`Shape`]: compactions compress.
pub const COMPRESSED_MODE_FLAG: u32 = 8;

/// Mode of a [`Shape`]: `interval`, whose stores lose unsynced writes
/// ([`crate::config::Config::prefix`]).
pub const MODE_INTERVAL: u32 = 16;

/// A window that never ends within a simulation.
const WINDOW_TIME: Duration = Duration::from_secs(3600);

/// Computed once, because the query of the number of cores takes longer than a small recovery.
static BASE: LazyLock<FluidOptions> = LazyLock::new(FluidOptions::default);

fn options(shape: &Shape) -> FluidOptions {
    let interval = shape.mode & MODE_INTERVAL != 0;
    let pool = PoolOptions {
        durability: if interval { Durability::Interval(WINDOW_TIME) } else { Durability::Process },
        ..shape.pool()
    };
    let mode = |bit: u32| shape.mode & bit != 0;
    FluidOptions {
        pool,
        workers: 0,
        value_threshold: if mode(NO_FILTER_MODE_FLAG) { 0 } else { 32 },
        value_segment_bytes: 1 << 10,
        value_garbage: if mode(LAZY_MODE_FLAG) { 60 } else { 20 },
        block_bytes: 512,
        compression: if mode(COMPRESSED_MODE_FLAG) { Compression::Lz4 } else { Compression::None },
        filter_bits: if mode(NO_FILTER_MODE_FLAG) { 0 } else { 10 },
        runs_max: if mode(EAGER_MODE_FLAG) { 1 } else { 3 },
        buffer_percent: if mode(LAZY_MODE_FLAG) { 1000 } else { 50 },
        ..BASE.clone()
    }
}

fn start(pool: Arc<Pool>, report: &OpenReport, shape: &Shape) -> Result<Box<dyn Subject>> {
    let store = Arc::new(FluidKv::start(Arc::clone(&pool), report, &options(shape))?);
    let settler = Arc::clone(&store);
    // Compactions sweep expired pairs.
    let sweep = Box::new(move || settler.settle());
    Ok(Box::new(PoolSubject { store, pool, checkpoint_bytes: 0, optional_bytes: 0, accounts: false, sweep }))
}

impl Engine for FluidEngine {
    fn name(&self) -> &'static str {
        ENGINE
    }

    fn mutants(&self) -> &'static [PlantedFault] {
        faults::fluidkv::OF_CRASHES
    }

    fn mutants_of_threads(&self) -> &'static [PlantedFault] {
        faults::fluidkv::OF_THREADS
    }

    fn damage_mutants(&self) -> &'static [PlantedFault] {
        faults::fluidkv::OF_DAMAGE
    }

    fn other_mutants(&self) -> &'static [PlantedFault] {
        faults::fluidkv::OF_OTHER_TESTS
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
