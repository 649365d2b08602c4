//! HashKV on simulated media.

mod scripts;

use std::sync::{Arc, LazyLock};

use lodestore_contract::Result;
use lodestore_contract::Store as _;
use lodestore_hashkv::{ENGINE, FORMAT, HashKv, HashKvOptions, Mode};
use lodestore_media::sim::{SimImage, SimSpec};
use lodestore_media::{OpenReport, PlantedFault, Pool};
use xxhash_rust::xxh3::xxh3_64;

use crate::faults;
use crate::pool_subject::PoolSubject;
use crate::script::Script;
use crate::shape::Shape;
use crate::subject::{Engine, Subject};

/// The HashKV engine without background threads, so that runs are deterministic. Memtables hold
/// some tens of writes and the file some tens of segments, so that values are separated and
/// collected constantly.
#[derive(Debug, Clone, Copy)]
pub struct HashEngine;

/// Values longer than this are separated.
const THRESHOLD_BYTES: usize = 32;
/// Bytes of a segment.
const SEGMENT_BYTES: u64 = 8 << 10;
/// Live bytes above which a group is split.
const GROUP_BYTES: u64 = 8 << 10;
/// Bytes of a memtable's log.
const MEMTABLE_BYTES: u64 = 4 << 10;

/// Mode of a [`Shape`]: values go to one log.
pub const VLOG_MODE_FLAG: u32 = 1;
/// Mode of a [`Shape`]: each open uses another mode or threshold than the previous one, by the
/// number of opens and stops.
pub const CHANGING_MODE_FLAG: u32 = 2;
/// Mode of a [`Shape`]: values stay with their keys.
pub const NOSEP_MODE_FLAG: u32 = 32;
/// The modes and thresholds of [`CHANGING_MODE_FLAG`], in no order.
const CHANGES: [(Mode, usize); 4] = [
    (Mode::Hash, THRESHOLD_BYTES),
    (Mode::Vlog, THRESHOLD_BYTES),
    (Mode::Nosep, THRESHOLD_BYTES),
    (Mode::Hash, 12 * THRESHOLD_BYTES),
];

/// Computed once, because the query of the number of cores takes longer than a small recovery.
static BASE: LazyLock<HashKvOptions> = LazyLock::new(HashKvOptions::default);

/// Returns the options of a store of this size.
pub fn options(shape: &Shape) -> HashKvOptions {
    // Below the minimum of the options: a segment holds two parts, and so few segments fit that
    // nearly every flush collects.
    let mut options = HashKvOptions {
        segment_bytes: SEGMENT_BYTES,
        value_threshold: THRESHOLD_BYTES as u64,
        group_bytes: GROUP_BYTES,
        ..BASE.clone()
    };
    let index = &mut options.index;
    // One region as large as the other engines' store; the values file is separate.
    index.pool = shape.pool();
    index.pool.capacity = shape.capacity / 8 * 17;
    index.workers = 0;
    index.memtable_bytes = MEMTABLE_BYTES;
    index.block_bytes = 512;
    index.runs_max = 3;
    options.mode = match shape.mode {
        mode if mode & NOSEP_MODE_FLAG != 0 => Mode::Nosep,
        mode if mode & VLOG_MODE_FLAG != 0 => Mode::Vlog,
        _ => Mode::Hash,
    };
    options
}

/// Returns the options for an open of this image.
fn options_of(image: &SimImage, shape: &Shape) -> HashKvOptions {
    let mut options = options(shape);
    if shape.mode & CHANGING_MODE_FLAG != 0 {
        // The sequence numbers of the two header copies of the pool.
        let number = |at: usize| image.regions.first().and_then(|bytes| bytes.get(at..at + 8)).unwrap_or_default();
        let turn = xxh3_64(number(16).max(number(4096 + 16))) as usize;
        let (mode, threshold) = CHANGES[turn % CHANGES.len()];
        (options.mode, options.value_threshold) = (mode, threshold as u64);
    }
    options
}

fn start(pool: Arc<Pool>, report: &OpenReport, options: &HashKvOptions) -> Result<Box<dyn Subject>> {
    let store = Arc::new(HashKv::start(Arc::clone(&pool), report, options)?);
    let settler = Arc::clone(&store);
    // Compactions sweep expired pairs.
    let sweep = Box::new(move || settler.settle());
    Ok(Box::new(PoolSubject { store, pool, checkpoint_bytes: 0, optional_bytes: 0, accounts: false, sweep }))
}

impl Engine for HashEngine {
    fn name(&self) -> &'static str {
        ENGINE
    }

    fn mutants(&self) -> &'static [PlantedFault] {
        faults::hashkv::OF_CRASHES
    }

    fn scripts(&self, seed: u64, round: u64) -> Vec<Script> {
        scripts::all(seed, round)
    }

    fn damage_mutants(&self) -> &'static [PlantedFault] {
        faults::hashkv::OF_DAMAGE
    }

    fn other_mutants(&self) -> &'static [PlantedFault] {
        faults::hashkv::OF_OTHER_TESTS
    }

    fn create(&self, spec: &SimSpec, shape: &Shape) -> Result<Box<dyn Subject>> {
        let options = options(shape);
        let (pool, report) = Pool::create_sim(spec, ENGINE, FORMAT, options.pool())?;
        start(pool, &report, &options)
    }

    fn open(&self, image: &SimImage, shape: &Shape) -> Result<Box<dyn Subject>> {
        let options = options_of(image, shape);
        let (pool, report) = Pool::open_sim(image, ENGINE, FORMAT, options.pool())?;
        start(pool, &report, &options)
    }
}
