//! The open store: creation, opening, closing, and the operations of the contract.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lodestore_contract::copy::{CopySink, copy_fuzzy};
use lodestore_contract::scrub::Scrub;
use lodestore_contract::{
    Batch, Capabilities, ChangeFn, Commit, Condition, EngineCounters, Error, Expiry, Lifetime, Options, Pair,
    PoisonReason, Progress, Result, Scan, ScanRange, Stats, Store, Swap, VerifyReport, Visit,
};
use lodestore_inplace::{Base, Begun, Behind, Decide, Engine, Quick, Running, SealCheck, Shape, When, random_seed};
use lodestore_media::{BatchLogs, Mutant, OpenReport, Pool};

use crate::hash::{HashKind, Hasher};
use crate::inner::{CarefulMode, GrowthCounts, Inner};
use crate::layout::{
    ENGINE, FORMAT, KIND_LOG, KIND_TABLE, LINE_SLOTS, Root, SEAL, Superblock, TableHeader, log_roots, superblock_lost,
};
use crate::options::NvhtOptions;
use crate::partition::{Partition, check_stages, extent_of, load_root, table_word};
use crate::recover;
use crate::repair::repair_growth;
use crate::resize::create_table;
use crate::settle::Reconciler;
use crate::slot::SlotForm;
use crate::stats::NvhtStats;
use crate::stripe::{Counts, STRIPES, Stripes};
use crate::table::{PrefetchLength, Table};

/// An NVHT store, open in this process. The crate's documentation states its guarantees.
///
/// Dropping it without [`Store::close`] equals a crash for the medium: no acknowledged write is
/// lost, and the next open recovers.
pub struct Nvht {
    running: Running<Inner>,
}

impl Nvht {
    /// Creates a new store in directory `dir`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Full`], [`Error::DurabilityRefused`], [`Error::InvalidOption`],
    /// [`Error::Io`].
    pub fn create(dir: &Path, options: &NvhtOptions) -> Result<Self> {
        options.check()?;
        let (pool, report) = Pool::create(dir, ENGINE, FORMAT, options.pool.clone())?;
        let created = pool.created_in(dir);
        Self::start(pool, &report, options).inspect_err(|_| created.remove())
    }

    /// Opens the store in directory `dir`, reading no records. After a clean stop the tables are
    /// compared with the stop's seal; after a crash they are checked after this returns.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::WrongEngine`], [`Error::NewerFormat`], [`Error::OlderFormat`],
    /// [`Error::Locked`], [`Error::MachineRestarted`], [`Error::DurabilityRefused`],
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn open(dir: &Path, options: &NvhtOptions) -> Result<Self> {
        options.check()?;
        let (pool, report) = Pool::open(dir, ENGINE, FORMAT, options.pool.clone())?;
        Self::start(pool, &report, options)
    }

    /// Starts a store on a pool that was just created or opened. The pool may be the crash
    /// simulator's.
    ///
    /// # Errors
    /// As [`Nvht::create`] and [`Nvht::open`].
    pub fn start(pool: Arc<Pool>, report: &OpenReport, options: &NvhtOptions) -> Result<Self> {
        let opened = Instant::now();
        if report.engine_format < FORMAT {
            let (part, found) = (ENGINE.to_owned(), report.engine_format);
            return Err(Error::OlderFormat { part, found, oldest: FORMAT });
        }
        let seal = SEAL.check(&pool, report, options.recovery_threads)?;
        let begun = Begun::begin(&pool, report, || new_shape(&pool, options))?;
        let shape = begun.shape;
        check_region_bytes(&pool, &shape)?;
        // Redo the logs before any read: a committed batch has happened.
        let logs = BatchLogs::open(&pool, log_roots(&pool), KIND_LOG, report.settled)?;
        if !begun.settled {
            pool.flush(pool.root(), Pool::ROOT_BYTES as usize);
            pool.fence_checked()?;
        }
        pool.mark_created()?;
        let sealed = report.clean && !report.created && seal == SealCheck::Whole;
        let counted = sealed || pool.mutant(Mutant::StaleCheckpointTrusted);
        let Opened { partitions, counted, older_root } = open_partitions(&pool, &shape, counted)?;
        if let Some(damage) = logs.damage() {
            pool.poison(PoisonReason::Damage, damage);
        }
        let scrub = Scrub::new(options.scrub_rate);
        let base = Base::new(pool, logs, opened, begun.is_unsettled(), options.dram_budget, scrub);
        let inner = Inner {
            base,
            hasher: hasher_of(&shape),
            stripes: Stripes::new(partitions.len(), STRIPES, Counts::default()),
            partitions,
            shape,
            growth: GrowthCounts::default(),
            prefetch_length: PrefetchLength::new(),
            form: shape.form(),
            // Recovery ends careful mode, at once if it need not check the lines.
            careful_mode: CarefulMode::new(seal == SealCheck::Damaged || older_root.is_some()),
            options: options.clone(),
        };
        if let Some(error) = &older_root {
            inner.note_damaged_line();
            inner.recovery.count_corrupt();
            inner.corrupt(error);
        }
        inner.recovery.expect_parts((inner.partitions.len() * STRIPES) as u64);
        mark_extents(&inner);
        let walks = !counted || inner.pool.allocator().is_recovering();
        let behind = Behind {
            clean: report.clean,
            trusted: counted,
            recovers: walks && options.recovery_threads > 0,
            sweep_ms: options.sweep_ms,
        };
        Ok(Self { running: Running::start(inner, behind)? })
    }

    /// Starts a scrub pass without its pause, for tests.
    #[doc(hidden)]
    pub fn scrub_now(&self) {
        self.running.scrub_now();
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

/// Returns the shape that the options request.
fn new_shape(pool: &Pool, options: &NvhtOptions) -> Superblock {
    let region_bytes = options.pool.region_bytes.max(pool.layout(0).map_or(0, |layout| layout.region_bytes));
    Superblock {
        offset_bits: SlotForm::offset_bits_for(region_bytes),
        partitions: options.partitions,
        first_slots: options.initial_capacity,
        probe_lines: options.probe_lines(),
        load: options.load_percent,
        hash: options.hash,
        seed: options.hash_seed.unwrap_or_else(random_seed),
    }
}

/// Refuses regions that are too long: slots could not name all records in them.
fn check_region_bytes(pool: &Pool, shape: &Superblock) -> Result<()> {
    let (requested, max) = (pool.options().region_bytes, shape.region_bytes_max());
    if requested <= max {
        return Ok(());
    }
    let why = format!("this store was created for regions of at most {max} bytes: give at most that");
    Err(Error::InvalidOption { name: "region_bytes".into(), value: requested.to_string(), why })
}

fn hasher_of(shape: &Superblock) -> Hasher {
    Hasher { kind: shape.hash, seed: shape.seed, partition_bits: shape.partitions.ilog2() }
}

impl Shape for Superblock {
    fn load(pool: &Pool) -> Result<Option<Self>> {
        Self::load(pool)
    }

    fn store(&self, pool: &Pool) {
        self.store(pool);
    }

    /// Creates the batch logs' roots, and for each partition its first table and its root.
    fn make(&self, pool: &Pool) -> Result<()> {
        BatchLogs::format(pool, log_roots(pool));
        for partition in 0..self.partitions as usize {
            let lines = self.first_lines(partition);
            let header = TableHeader { partition: partition as u32, doublings: 0, lines };
            let all_lines = lines + u64::from(self.probe_lines) - 1;
            let table_at = |at| Partition::first_table(self, self.salt(pool), partition, at);
            let at = create_table(pool, header, self.probe_lines, table_at, all_lines)?;
            let root = Root::of(pool, partition);
            let zero = root.sealed(0);
            let words =
                [(root.current(), table_word(at, 0)), (root.next(), 0), (root.cursor(), zero), (root.keys(), zero)];
            words.iter().for_each(|(at, word)| pool.publish_u64(*at, *word));
            pool.flush(root.at, Root::BYTES);
        }
        Ok(())
    }

    fn lost() -> Error {
        superblock_lost()
    }
}

/// The partitions of a store that is being opened.
struct Opened {
    /// The partitions by their roots, repaired.
    partitions: Box<[Partition]>,
    /// The roots have the counts of keys.
    counted: bool,
    /// The error of a root that is older than its tables. Only a salvage uses such a root.
    older_root: Option<Error>,
}

/// Reads the roots and repairs them. `counted`: they may have the counts of keys.
///
/// # Errors
/// [`Error::Corrupt`].
fn open_partitions(pool: &Pool, shape: &Superblock, counted: bool) -> Result<Opened> {
    let mut all_counted = counted;
    let mut older_root = None;
    let mut partitions = Vec::with_capacity(shape.partitions as usize);
    for number in 0..shape.partitions as usize {
        let found = load_root(pool, shape, number)?;
        match check_stages(pool, number, &found) {
            Err(error) if pool.options().salvage => older_root = Some(error),
            checked => checked?,
        }
        let part = Partition::new(shape, shape.salt(pool), number, found);
        let reconciler = Reconciler { pool, hasher: hasher_of(shape), form: shape.form(), partition: number };
        repair_growth(&reconciler, &part, number);
        match found.keys.filter(|_| counted).and_then(|keys| i64::try_from(keys).ok()) {
            Some(keys) => part.keys_before.store(keys, Ordering::Relaxed),
            None => all_counted = false,
        }
        for table in [Some(part.current()), part.next()].into_iter().flatten() {
            check_extent(pool, shape, number, table);
        }
        partitions.push(part);
    }
    if !all_counted {
        partitions.iter().for_each(|part| part.keys_before.store(-1, Ordering::Relaxed));
    }
    Ok(Opened { partitions: partitions.into(), counted: all_counted, older_root })
}

/// Makes the store refuse writes if the extent table lacks a table: its space would be used twice.
/// Existing data stays readable. Must be called before any allocation.
fn check_extent(pool: &Pool, shape: &Superblock, partition: usize, table: Table) {
    let at = lodestore_media::NvPtr::from_raw(table.lines_at.raw() - crate::layout::LINE_BYTES);
    let bytes = Table::extent_bytes(table.lines, shape.probe_lines);
    if !pool.allocator().holds_extent(pool, at, bytes, KIND_TABLE) {
        pool.poison(PoisonReason::Damage, &format!(
            "the extent table has lost the table of partition {partition} at {at:?}, whose space would be used twice: export the store \
             and import it into a new one"
        ));
    }
}

/// Marks the engine's own extents in a recovering allocator: they are few, regardless of the
/// store's content.
fn mark_extents(inner: &Inner) {
    let allocator = inner.pool.allocator();
    if !allocator.is_recovering() {
        return;
    }
    let unsure = |error: &Error| {
        inner.recovery.set_unsure();
        inner.corrupt(error);
    };
    let _guard = inner.pool.epochs().pin();
    for part in &inner.partitions {
        let (current, next, _) = part.words();
        for word in [current, next].into_iter().filter(|word| *word != 0) {
            if let Err(error) = allocator.mark_extent(&inner.pool, extent_of(word), KIND_TABLE) {
                unsure(&error);
            }
        }
    }
    if let Err(error) = inner.logs.mark(&inner.pool) {
        unsure(&error);
    }
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
        let partitions = size_of_val(&*self.partitions) as u64;
        let fixed = self.stripes.dram_bytes() + partitions + self.logs.dram_bytes() + size_of::<Self>() as u64;
        (fixed + self.pool.allocator().dram_bytes() + self.pool.epochs().dram_bytes(), fixed)
    }

    fn sweep_all(&self) -> Result<u64> {
        self.sweep_partitions()
    }

    fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    fn verify_partition(&self, partition: usize, piece: &mut dyn FnMut(VerifyReport) -> bool) -> Result<bool> {
        self.verify_ranges(partition, piece)
    }

    fn rebuild(&self, trusted: bool) -> Result<()> {
        recover::rebuild(self, trusted)
    }

    fn save(&self) -> Result<()> {
        self.account_wear();
        self.save_counts();
        self.save_seal()
    }
}

impl Nvht {
    fn no_order<T>(&self) -> Result<T> {
        drop(self.inner().enter()?);
        Err(Error::Unsupported {
            engine: ENGINE,
            what: "ordered scan, since a hash table has no order".into(),
            instead: "use `Db::for_each`, which needs no order, or the engine hikv, which keeps an order",
        })
    }
}

impl Store for Nvht {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { batch: true, expiry: true, power: true, ..Capabilities::default() }
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

    fn scan_each(&self, _range: &ScanRange, _visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        self.no_order()
    }

    fn scan(&self, _range: &ScanRange) -> Result<Scan> {
        self.no_order()
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
        self.inner().recovery.wait_done()?;
        self.inner().check_countable()?;
        Ok(self.inner().keys())
    }

    fn identity(&self) -> Option<u64> {
        Some(self.inner().pool.identity() | 1)
    }

    fn creation_options(&self) -> Options {
        let (inner, shape) = (self.inner(), self.inner().shape);
        let mut options = inner.pool.creation_options();
        options.set("partitions", shape.partitions.to_string());
        options.set("initial-capacity", shape.first_slots.to_string());
        options.set("load-factor", format!("{:.2}", f64::from(shape.load) / 100.0));
        options.set("probe-length", (shape.probe_lines * LINE_SLOTS as u32).to_string());
        options.set("hash", if shape.hash == HashKind::Murmur3 { "murmur3" } else { "xxh3" });
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
        if inner.open.is_open() {
            inner.account_wear();
        }
        let recovery = inner.recovery.state();
        let keys = if recovery.done { inner.keys() } else { recovery.keys };
        inner.stats(ENGINE, keys, inner.dram(), EngineCounters::new(NvhtStats::of(inner)))
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
