//! The engine of an open store: opening, the operations that need the tree, and the stop.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lodestore_contract::scrub::Scrub;
use lodestore_contract::{
    EngineCounters, Error, Options, PoisonReason, Progress, Result, Scan, ScanRange, VerifyReport, Visit,
};
use lodestore_inplace::{
    BackgroundPlan, Base, CarefulMode, Engine, LoadedShape, OpenStore, Running, SealCheck, StoreEngine, random_seed,
};
use lodestore_media::{BatchLogs, OpenReport, Pool, PoolOptions};

use crate::backend::{Backend, Config};
use crate::extents;
use crate::layout::{
    ENGINE, FORMAT, GENERATION_SHIFT, KIND_BATCH, PARTITIONED_MODE_FLAG, SEAL, SYNC_MODE_FLAG, Superblock,
    WAL_MODE_FLAG, batch_roots, generation_word,
};
use crate::open_store::{Inner, Records};
use crate::options::{Backends, HiKvOptions};
#[cfg(feature = "lab")]
use crate::paper_wal::Wal;
use crate::recover;
use crate::sampler::Sampler;
use crate::scan::OwnedScan;
use crate::split::{check_splits, format, persist_directories, repair};
use crate::stats::HikvStats;
use crate::stripe::Stripes;
use crate::table::Table;
use crate::unnamed;

/// Maximum opens of a store.
const GENERATION_MAX: u64 = (1 << 27) - 1;

/// A HiKV store, open in this process. The crate's documentation states its guarantees.
pub type HiKv = OpenStore<Inner>;

impl StoreEngine for Inner {
    const NAME: &'static str = ENGINE;
    const FORMAT: u32 = FORMAT;
    const HAS_SCAN: bool = true;
    type Options = HiKvOptions;

    fn check_options(options: &HiKvOptions) -> Result<&PoolOptions> {
        options.check().map(|()| &options.pool)
    }

    fn start(pool: Arc<Pool>, report: &OpenReport, options: &HiKvOptions) -> Result<(Self, BackgroundPlan)> {
        let opened = Instant::now();
        let loaded = LoadedShape::load_or_create(
            &pool,
            report,
            || new_shape(options),
            |shape| format(&Table::new(*shape), &pool),
        )?;
        let shape = loaded.shape;
        shape.check_modes()?;
        let table = Table::new(shape);
        let sealed = SEAL.check(&pool, report, options.recovery_threads)?;
        if !loaded.settled {
            persist_directories(&table, &pool)?;
        }
        let logs = BatchLogs::open(&pool, batch_roots(&pool), KIND_BATCH, report.settled)?;
        pool.mark_created()?;
        if let Some(damage) = logs.damage() {
            pool.poison(PoisonReason::Damage, damage);
        }
        let Directories { segments, older: older_directory } = read_directories(&table, &pool, sealed)?;
        let generation = raise_generation(&pool)?;
        let partitions = shape.partitions as usize;
        let sampler = Arc::new(Sampler::new(options.backends == Backends::Auto));
        let records = Records { pool: Arc::clone(&pool), cleared: Arc::default() };
        let careful_mode = CarefulMode::new(sealed != SealCheck::Whole);
        let scrub = Scrub::new(options.scrub_rate);
        let base = Base::new(pool, logs, opened, loaded.is_unsettled(), careful_mode, options.dram_budget, scrub);
        let inner = Inner {
            backend: Backend::start(backend_config(options, &shape), records.clone(), Arc::clone(&sampler)),
            records,
            stripes: Stripes::new(partitions, shape.buckets() as usize, generation << GENERATION_SHIFT),
            #[cfg(feature = "lab")]
            wal: if shape.has_mode(WAL_MODE_FLAG) { log_of(&base.pool)? } else { None },
            written: AtomicBool::new(false),
            run: Mutex::new(Vec::new()),
            base,
            table,
            sampler,
            options: options.clone(),
        };
        if sealed == SealCheck::Damaged {
            inner.count_damage(&Error::corrupt("hikv index", "the index differs from that of the last clean stop"));
        }
        if let Some(error) = &older_directory {
            inner.count_damage(error);
        }
        inner.recovery.expect_parts(segments);
        inner.backend.begin_rebuild();
        let plan = BackgroundPlan {
            clean: report.clean,
            trusted: sealed == SealCheck::Whole && report.clean,
            recovers: options.recovery_threads > 0,
            sweep_ms: options.sweep_ms,
        };
        Ok((inner, plan))
    }

    fn count_keys(&self) -> Result<u64> {
        self.wait_for_tree()?;
        self.check_tree_complete()?;
        Ok(self.backend.trees().len() as u64)
    }

    fn add_creation_options(&self, options: &mut Options) {
        let shape = &self.table.shape;
        let of_mode =
            |flag: u32, set: &'static str, unset: &'static str| if shape.has_mode(flag) { set } else { unset };
        options.set("partitions", shape.partitions.to_string());
        options.set("segment", shape.segment_bytes.to_string());
        options.set("update", of_mode(SYNC_MODE_FLAG, "sync", "queued"));
        options.set("tree", of_mode(PARTITIONED_MODE_FLAG, "partitioned", "global"));
        options.set("wal", of_mode(WAL_MODE_FLAG, "on", "off"));
    }

    fn counters(&self) -> (u64, EngineCounters) {
        (self.backend.trees().len() as u64, EngineCounters::new(HikvStats::of(self)))
    }

    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        self.scan_tree(range, visit)
    }

    fn scan(running: &Arc<Running<Self>>, range: &ScanRange) -> Result<Scan> {
        OwnedScan::start(running, range)
    }

    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.verify_all(progress)
    }
}

/// The directories of all partitions, completed.
struct Directories {
    /// Number of segments that they name.
    segments: u64,
    /// The damage of a directory that is older than a split. `None` unless the open is a salvage.
    older: Option<Error>,
}

/// Completes the directories of all partitions, and checks that none is older than a split.
///
/// # Errors
/// [`Error::Corrupt`].
fn read_directories(table: &Table, pool: &Pool, sealed: SealCheck) -> Result<Directories> {
    let (mut named, mut older) = (Vec::new(), None);
    for partition in 0..table.shape.partitions as usize {
        let found = repair(table, pool, partition)?;
        match check_splits(pool, partition, &found) {
            Err(error) if pool.options().salvage => older = Some(error),
            checked => checked?,
        }
        extents::check(table, pool, partition, &found);
        named.extend(found.iter().map(|(segment, _)| segment.at.raw()));
    }
    let segments = named.len() as u64;
    if sealed != SealCheck::Whole {
        // A salvage of a damaged store keeps all that it found.
        let zeroes = !pool.options().salvage || older.is_none() && sealed == SealCheck::Absent;
        match unnamed::check(table, pool, named, zeroes) {
            Err(error) if pool.options().salvage => {
                // A poisoned store frees nothing: the next open finds the damage again.
                if pool.check().is_ok() {
                    pool.mark_damaged()?;
                }
                older = Some(error);
            }
            checked => checked?,
        }
    }
    Ok(Directories { segments, older })
}

/// Allocates the log of the mode `wal`. A store without space for it works without: nothing reads
/// the log.
#[cfg(feature = "lab")]
fn log_of(pool: &Pool) -> Result<Option<Wal>> {
    match Wal::new(pool) {
        Ok(wal) => Ok(Some(wal)),
        Err(Error::Full { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the setup of queues and trees.
fn backend_config(options: &HiKvOptions, shape: &Superblock) -> Config {
    Config {
        sync_update: shape.has_mode(SYNC_MODE_FLAG),
        trees: if shape.has_mode(PARTITIONED_MODE_FLAG) { shape.partitions as usize } else { 1 },
        queues: options.queues,
        queue_len: options.queue_len,
        backends: options.worker_count(),
        ..Config::default()
    }
}

/// Returns the shape that the options request.
fn new_shape(options: &HiKvOptions) -> Superblock {
    let seed = options.hash_seed.unwrap_or_else(random_seed);
    Superblock { partitions: options.partitions, segment_bytes: options.segment_bytes, seed, modes: options.modes() }
}

/// Raises the generation, durably, before anything else of this open is written.
fn raise_generation(pool: &Pool) -> Result<u64> {
    let word = generation_word(pool);
    let generation = pool.load_u64(word).saturating_add(1);
    if generation > GENERATION_MAX {
        return Err(Error::corrupt("hikv generation", format!("the number of opens, {generation}, is too large")));
    }
    pool.publish_u64(word, generation);
    pool.flush(word, 8);
    // Every write checks whether the fence succeeded. A read-only store opens anyway.
    pool.fence();
    Ok(generation)
}

impl Engine for Inner {
    fn dram(&self) -> (u64, u64) {
        let fixed = self.stripes.dram_bytes() + self.backend.fixed_dram_bytes();
        let pool = self.pool.allocator().dram_bytes() + self.pool.epochs().dram_bytes() + self.logs.dram_bytes();
        let moving = self.backend.dram_bytes() + pool;
        (fixed + moving, fixed)
    }

    fn sweep_partition(&self, partition: usize) -> Result<u64> {
        self.sweep_expired(partition)
    }

    fn partition_count(&self) -> usize {
        self.table.shape.partitions as usize
    }

    fn verify_partition(&self, partition: usize, piece: &mut dyn FnMut(VerifyReport) -> bool) -> Result<bool> {
        self.verify_segments(partition, piece)
    }

    fn rebuild(&self, trusted: bool) -> Result<()> {
        recover::rebuild(self, trusted)
    }

    fn abandon(&self, cause: &str) {
        self.backend.abandon_rebuild(cause);
    }

    fn drain(&self) -> Result<()> {
        self.backend.drain()
    }

    fn halt(&self) {
        // The tree is volatile; the index has all keys.
        let _ = self.backend.stop();
    }

    fn is_whole(&self) -> bool {
        self.backend.check().is_ok() && self.careful_mode.first_damage().is_none()
    }

    fn save(&self) -> Result<()> {
        let saved = self.save_run();
        #[cfg(feature = "lab")]
        if let Some(wal) = &self.wal {
            wal.free(&self.pool);
        }
        saved?;
        self.save_seal()
    }
}
