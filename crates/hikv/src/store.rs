//! The open store: creation, opening, closing, and the operations of the contract.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lodestore_contract::copy::{CopySink, copy_fuzzy};
use lodestore_contract::scrub::Scrub;
use lodestore_contract::{
    Batch, Capabilities, ChangeFn, Commit, Condition, EngineCounters, Error, Expiry, Lifetime, Options, Pair,
    PoisonReason, Progress, Result, Scan, ScanRange, Stats, Store, Swap, VerifyReport, Visit,
};
use lodestore_inplace::{Base, Begun, Behind, Decide, Engine, Quick, Running, SealCheck, Shape, When, random_seed};
use lodestore_media::{BatchLogs, OpenReport, Pool};

use crate::backend::{Backend, Config};
use crate::careful::CarefulMode;
use crate::extents;
use crate::inner::{Inner, Records};
use crate::layout::{
    ENGINE, FORMAT, GENERATION_SHIFT, KIND_BATCH, SEAL, Superblock, batch_roots, generation_word, superblock_lost,
};
use crate::options::{Backends, HiKvOptions};
use crate::recover;
use crate::sampler::Sampler;
use crate::scan::OwnedScan;
use crate::split::{check_splits, format, persist_directories, repair};
use crate::stats::HikvStats;
use crate::stripe::{Sequence, Stripes};
use crate::table::Table;
use crate::wal::Wal;

/// Maximum opens of a store.
const GENERATION_MAX: u64 = (1 << 27) - 1;

/// A HiKV store, open in this process. The crate's documentation states its guarantees.
///
/// Dropping it without [`Store::close`] equals a crash for the medium: no acknowledged write is
/// lost, and the next open recovers.
pub struct HiKv {
    /// An owned scan holds it too: the store lives as long as its last scan.
    running: Arc<Running<Inner>>,
}

impl HiKv {
    /// Creates a new store in directory `dir`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Full`], [`Error::DurabilityRefused`], [`Error::InvalidOption`],
    /// [`Error::Io`].
    pub fn create(dir: &Path, options: &HiKvOptions) -> Result<Self> {
        options.check()?;
        let (pool, report) = Pool::create(dir, ENGINE, FORMAT, options.pool.clone())?;
        let created = pool.created_in(dir);
        Self::start(pool, &report, options).inspect_err(|_| created.remove())
    }

    /// Opens the store in directory `dir`. Gets and puts work on return; the rest of recovery runs
    /// in the background.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::WrongEngine`], [`Error::NewerFormat`], [`Error::Locked`],
    /// [`Error::MachineRestarted`], [`Error::DurabilityRefused`], [`Error::Corrupt`],
    /// [`Error::Io`].
    pub fn open(dir: &Path, options: &HiKvOptions) -> Result<Self> {
        options.check()?;
        let (pool, report) = Pool::open(dir, ENGINE, FORMAT, options.pool.clone())?;
        Self::start(pool, &report, options)
    }

    /// Starts a store on a pool that was just created or opened. The pool may be the crash
    /// simulator's.
    ///
    /// # Errors
    /// As [`HiKv::create`] and [`HiKv::open`].
    pub fn start(pool: Arc<Pool>, report: &OpenReport, options: &HiKvOptions) -> Result<Self> {
        let opened = Instant::now();
        let mut options = options.clone();
        let begun = Begun::begin(&pool, report, || new_shape(&options))?;
        let shape = begun.shape;
        options.set_modes(shape.modes);
        let table = Table::new(shape);
        let sealed = SEAL.check(&pool, report, options.recovery_threads)?;
        if !begun.settled {
            persist_directories(&table, &pool)?;
        }
        let logs = BatchLogs::open(&pool, batch_roots(&pool), KIND_BATCH, report.settled)?;
        pool.mark_created()?;
        if let Some(damage) = logs.damage() {
            pool.poison(PoisonReason::Damage, damage);
        }
        let (mut segments, mut older_directory) = (0, None);
        for partition in 0..shape.partitions as usize {
            let found = repair(&table, &pool, partition)?;
            match check_splits(&pool, partition, &found) {
                Err(error) if pool.options().salvage => older_directory = Some(error),
                checked => checked?,
            }
            extents::check(&table, &pool, partition, &found);
            segments += found.len() as u64;
        }
        let generation = raise_generation(&pool)?;
        let partitions = shape.partitions as usize;
        let sampler = Arc::new(Sampler::new(options.backends == Backends::Auto));
        let records = Records { pool: Arc::clone(&pool), cleared: Arc::default() };
        let scrub = Scrub::new(options.scrub_rate);
        let base = Base::new(pool, logs, opened, begun.is_unsettled(), options.dram_budget, scrub);
        let inner = Inner {
            backend: Backend::start(backend_config(&options, partitions), records.clone(), Arc::clone(&sampler)),
            records,
            stripes: Stripes::new(partitions, shape.buckets() as usize, Sequence(generation << GENERATION_SHIFT)),
            wal: if options.wal { log_of(&base.pool)? } else { None },
            written: AtomicBool::new(false),
            run: Mutex::new(Vec::new()),
            base,
            table,
            sampler,
            options: options.clone(),
            careful_mode: CarefulMode::new(sealed == SealCheck::Whole),
        };
        if sealed == SealCheck::Damaged {
            inner.count_damage(&Error::corrupt("hikv index", "it is not as the last clean stop left it"));
        }
        if let Some(error) = &older_directory {
            inner.count_damage(error);
        }
        inner.recovery.expect_parts(segments);
        inner.backend.begin_rebuild();
        let behind = Behind {
            clean: report.clean,
            trusted: sealed == SealCheck::Whole && report.clean,
            recovers: options.recovery_threads > 0,
            sweep_ms: options.sweep_ms,
        };
        Ok(Self { running: Arc::new(Running::start(inner, behind)?) })
    }

    /// Starts a scrub pass without its pause, for tests.
    #[doc(hidden)]
    pub fn scrub_now(&self) {
        self.running.scrub_now();
    }

    /// Returns the bytes of the log of the mode `wal`, for tests. A full store has no log.
    #[doc(hidden)]
    pub fn log_bytes(&self) -> u64 {
        self.inner().wal.as_ref().map_or(0, |_| Wal::BYTES)
    }

    /// Removes every key that has expired. Returns their number. Also runs every `sweep-ms` in a
    /// thread of its own.
    ///
    /// # Errors
    /// The contract's common ones.
    pub fn sweep_expired(&self) -> Result<u64> {
        self.inner().sweep()
    }

    #[inline]
    pub(crate) fn inner(&self) -> &Inner {
        &self.running.inner
    }
}

/// Allocates the log. A store without space for it works without: nothing reads the log.
fn log_of(pool: &Pool) -> Result<Option<Wal>> {
    match Wal::new(pool) {
        Ok(wal) => Ok(Some(wal)),
        Err(Error::Full { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the setup of queues and trees.
fn backend_config(options: &HiKvOptions, partitions: usize) -> Config {
    Config {
        sync_update: options.sync_update,
        trees: if options.partitioned_tree { partitions } else { 1 },
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

impl Shape for Superblock {
    fn load(pool: &Pool) -> Result<Option<Self>> {
        Self::load(pool)
    }

    fn store(&self, pool: &Pool) {
        self.store(pool);
    }

    fn make(&self, pool: &Pool) -> Result<()> {
        format(&Table::new(*self), pool)
    }

    fn lost() -> Error {
        superblock_lost()
    }
}

/// Raises the generation, durably, before anything else of this open is written.
fn raise_generation(pool: &Pool) -> Result<u64> {
    let word = generation_word(pool);
    let generation = pool.load_u64(word).saturating_add(1);
    if generation > GENERATION_MAX {
        return Err(Error::corrupt("hikv generation", format!("{generation} opens are more than there can have been")));
    }
    pool.publish_u64(word, generation);
    pool.flush(word, 8);
    // Every write checks whether the fence succeeded. A read-only store opens anyway.
    pool.fence();
    Ok(generation)
}

impl Engine for Inner {
    #[inline]
    fn try_write(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>, when: When) -> Quick<bool> {
        self.try_put(key, value, expiry, when)
    }

    fn try_modify(&self, key: &[u8], decide: &mut Decide<'_, '_>) -> Quick<()> {
        self.try_change(key, decide)
    }

    fn dram(&self) -> (u64, u64) {
        let fixed = self.stripes.dram_bytes() + self.backend.fixed_dram_bytes();
        let pool = self.pool.allocator().dram_bytes() + self.pool.epochs().dram_bytes() + self.logs.dram_bytes();
        let moving = self.backend.dram_bytes() + pool;
        (fixed + moving, fixed)
    }

    fn sweep_all(&self) -> Result<u64> {
        self.sweep_partitions()
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
        self.backend.check().is_ok() && !self.has_damage()
    }

    fn save(&self) -> Result<()> {
        let saved = self.save_run();
        if let Some(wal) = &self.wal {
            wal.free(&self.pool);
        }
        saved?;
        self.save_seal()
    }
}

impl Store for HiKv {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { scan: true, batch: true, expiry: true, power: true, ..Capabilities::default() }
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.inner().get_into(key, value)
    }

    fn get_with(&self, key: &[u8], with: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.inner().get_with(key, with)
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.inner().contains(key)
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.inner().multi_get(keys, each)
    }

    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        self.inner().expiry(key)
    }

    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        self.inner().write(key, value, expiry, When::Always).map(|_| ())
    }

    fn insert(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        self.inner().write(key, value, lifetime.resolve(None), When::Absent)
    }

    fn update(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        self.inner().update(key, value, lifetime)
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.inner().delete(key).map_err(|error| *error)
    }

    fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        lifetime: Lifetime,
    ) -> Result<Swap> {
        self.inner().compare_and_swap(key, expected, new, lifetime)
    }

    fn update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()> {
        self.inner().update_with(key, change)
    }

    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        self.inner().scan_each(range, visit)
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        OwnedScan::start(&self.running, range)
    }

    fn for_each_pair(&self, visit: &mut dyn FnMut(Pair<'_>) -> Visit) -> Result<u64> {
        self.inner().for_each_pair(visit)
    }

    fn write_if(&self, conditions: &[Condition], batch: &Batch) -> Result<Commit> {
        self.inner().write_batch(conditions, batch)
    }

    fn copy_all(&self, sink: &mut dyn CopySink) -> Result<()> {
        copy_fuzzy(self.inner(), sink)
    }

    fn len(&self) -> Result<u64> {
        drop(self.inner().enter()?);
        self.inner().wait_for_tree()?;
        self.inner().check_tree_complete()?;
        Ok(self.inner().backend.trees().len() as u64)
    }

    fn identity(&self) -> Option<u64> {
        Some(self.inner().pool.identity() | 1)
    }

    fn creation_options(&self) -> Options {
        let inner = self.inner();
        let of_switch = |is_set: bool, set: &'static str, unset: &'static str| if is_set { set } else { unset };
        let mut options = inner.pool.creation_options();
        options.set("partitions", inner.table.shape.partitions.to_string());
        options.set("segment", inner.table.shape.segment_bytes.to_string());
        options.set("update", of_switch(inner.options.sync_update, "sync", "queued"));
        options.set("tree", of_switch(inner.options.partitioned_tree, "partitioned", "global"));
        options.set("wal", of_switch(inner.options.wal, "on", "off"));
        options
    }

    fn opening(&self) -> u64 {
        self.inner().pool.opening()
    }

    fn stats(&self) -> Stats {
        let inner = self.inner();
        if inner.open.is_foreign() {
            return Stats { engine: ENGINE, ..Stats::default() };
        }
        let own = EngineCounters::new(HikvStats::of(inner));
        inner.stats(ENGINE, inner.backend.trees().len() as u64, inner.dram(), own)
    }

    fn sync(&self) -> Result<()> {
        let _guard = self.inner().enter()?;
        self.inner().pool.sync()
    }

    fn wait_recovered(&self) -> Result<()> {
        self.inner().open.check_process()?;
        self.inner().recovery.wait_done()
    }

    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.inner().verify(progress)
    }

    fn close(&self) -> Result<()> {
        self.running.close()
    }
}
