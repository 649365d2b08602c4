//! The engine of an open store: creation, opening and stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lodestore_contract::scrub::Scrub;
use lodestore_contract::{
    EngineCounters, Error, Options, PoisonReason, Progress, Result, Scan, ScanRange, VerifyReport, Visit,
};
use lodestore_inplace::{
    BackgroundPlan, Base, CarefulMode, Engine, LoadedShape, OpenStore, Running, SealCheck, StoreEngine, random_seed,
};
use lodestore_media::{BatchLogs, OpenReport, Pool, PoolOptions};

use crate::growth::create_table;
use crate::growth_repair::repair_growth;
use crate::hash::{HashKind, Hasher};
use crate::layout::{ENGINE, FORMAT, KIND_LOG, KIND_TABLE, LINE_SLOTS, Root, SEAL, Superblock, TableHeader, log_roots};
use crate::lookup::broken_seal;
use crate::open_store::{GrowthCounts, Inner};
use crate::options::NvhtOptions;
use crate::partition::{Partition, check_stages, extent_of, load_root, table_word};
use crate::planted;
use crate::reconcile::Reconciler;
use crate::recover;
use crate::slot::SlotForm;
use crate::stats::NvhtStats;
use crate::stripe::{Counts, STRIPES, Stripes};
use crate::table::{PrefetchLength, Table};

/// An NVHT store, open in this process. The crate's documentation states its guarantees.
pub type Nvht = OpenStore<Inner>;

impl StoreEngine for Inner {
    const NAME: &'static str = ENGINE;
    const FORMAT: u32 = FORMAT;
    const HAS_SCAN: bool = false;
    type Options = NvhtOptions;

    fn check_options(options: &NvhtOptions) -> Result<&PoolOptions> {
        options.check().map(|()| &options.pool)
    }

    /// Reads no records. After a clean stop the tables are compared with the stop's seal; after a
    /// crash they are checked after the open.
    fn start(pool: Arc<Pool>, report: &OpenReport, options: &NvhtOptions) -> Result<(Self, BackgroundPlan)> {
        let opened = Instant::now();
        if report.engine_format < FORMAT {
            let (part, found) = (ENGINE.to_owned(), report.engine_format);
            return Err(Error::OlderFormat { part, found, oldest: FORMAT });
        }
        let seal = SEAL.check(&pool, report, options.recovery_threads)?;
        let loaded = LoadedShape::load_or_create(
            &pool,
            report,
            || new_shape(&pool, options),
            |shape| make_tables(shape, &pool),
        )?;
        let shape = loaded.shape;
        check_region_bytes(&pool, &shape)?;
        // Redo the logs before any read: a committed batch has happened.
        let logs = BatchLogs::open(&pool, log_roots(&pool), KIND_LOG, report.settled)?;
        if !loaded.settled {
            pool.flush(pool.root(), Pool::ROOT_BYTES as usize);
            pool.fence_checked()?;
        }
        pool.mark_created()?;
        let sealed = report.clean && !report.created && seal == SealCheck::Whole;
        let counted = sealed || pool.has_fault(planted::STALE_CHECKPOINT_TRUSTED);
        let Opened { partitions, counted, older_root } = open_partitions(&pool, &shape, counted)?;
        if let Some(damage) = logs.damage() {
            pool.poison(PoisonReason::Damage, damage);
        }
        // Recovery ends careful mode, at once if it need not check the lines.
        let careful_mode = CarefulMode::new(true);
        let scrub = Scrub::new(options.scrub_rate);
        let base = Base::new(pool, logs, opened, loaded.is_unsettled(), careful_mode, options.dram_budget, scrub);
        let inner = Inner {
            base,
            hasher: hasher_of(&shape),
            stripes: Stripes::new(partitions.len(), STRIPES, Counts::default()),
            partitions,
            shape,
            growth: GrowthCounts::default(),
            prefetch_length: PrefetchLength::new(),
            form: shape.form(),
            is_seal_broken: seal == SealCheck::Damaged || older_root.is_some(),
            may_have_duplicates: AtomicBool::new(false),
            options: options.clone(),
        };
        if let Some(error) = &older_root {
            inner.count_damage(error);
        }
        if inner.is_seal_broken {
            inner.careful_mode.note_damage(&broken_seal());
        }
        inner.recovery.expect_parts((inner.partitions.len() * STRIPES) as u64);
        mark_extents(&inner);
        let walks = !counted || inner.pool.allocator().is_recovering();
        let plan = BackgroundPlan {
            clean: report.clean,
            trusted: counted,
            recovers: walks && options.recovery_threads > 0,
            sweep_ms: options.sweep_ms,
        };
        Ok((inner, plan))
    }

    fn count_keys(&self) -> Result<u64> {
        self.recovery.wait_done()?;
        self.check_countable()?;
        Ok(self.keys())
    }

    fn add_creation_options(&self, options: &mut Options) {
        let shape = self.shape;
        options.set("partitions", shape.partitions.to_string());
        options.set("initial-capacity", shape.first_slots.to_string());
        options.set("load-factor", format!("{:.2}", f64::from(shape.load) / 100.0));
        options.set("probe-length", (shape.probe_lines * LINE_SLOTS as u32).to_string());
        options.set("hash", if shape.hash == HashKind::Murmur3 { "murmur3" } else { "xxh3" });
    }

    fn counters(&self) -> (u64, EngineCounters) {
        if self.open.is_open() {
            self.account_wear();
        }
        let recovery = self.recovery.state();
        let keys = if recovery.done { self.keys() } else { recovery.keys };
        (keys, EngineCounters::new(NvhtStats::of(self)))
    }

    fn scan_each(&self, _range: &ScanRange, _visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        self.no_order()
    }

    fn scan(running: &Arc<Running<Self>>, _range: &ScanRange) -> Result<Scan> {
        running.inner.no_order()
    }

    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.verify_all(progress)
    }
}

impl Inner {
    fn no_order<T>(&self) -> Result<T> {
        drop(self.enter()?);
        Err(Error::Unsupported {
            engine: ENGINE,
            what: "ordered scans, because a hash table has no order".into(),
            instead: "use `Db::for_each`, which needs no order, or the engine hikv, which keeps an order",
        })
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
    let why = format!("this store was created for regions of at most {max} bytes: use at most this size");
    Err(Error::InvalidOption { name: "region_bytes".into(), value: requested.to_string(), why })
}

fn hasher_of(shape: &Superblock) -> Hasher {
    Hasher { kind: shape.hash, seed: shape.seed, partition_bits: shape.partitions.ilog2() }
}

/// Creates the batch logs' roots, and for each partition its first table and its root.
fn make_tables(shape: &Superblock, pool: &Pool) -> Result<()> {
    BatchLogs::format(pool, log_roots(pool));
    for partition in 0..shape.partitions as usize {
        let lines = shape.first_lines(partition);
        let header = TableHeader { partition: partition as u32, doublings: 0, lines };
        let all_lines = lines + u64::from(shape.probe_lines) - 1;
        let table_at = |at| Partition::first_table(shape, shape.salt(pool), partition, at);
        let at = create_table(pool, header, shape.probe_lines, table_at, all_lines)?;
        let root = Root::of(pool, partition);
        let zero = root.sealed(0);
        let words = [(root.current(), table_word(at, 0)), (root.next(), 0), (root.cursor(), zero), (root.keys(), zero)];
        words.iter().for_each(|(at, word)| pool.publish_u64(*at, *word));
        pool.flush(root.at, Root::BYTES);
    }
    Ok(())
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
        pool.poison(
            PoisonReason::Damage,
            &format!(
                "the extent table lacks the table of partition {partition} at {at:?}, whose space would be used \
                 twice: export the store, and import the export into a new store"
            ),
        );
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
        inner.report_corruption(error);
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
    fn dram(&self) -> (u64, u64) {
        let partitions = size_of_val(&*self.partitions) as u64;
        let fixed = self.stripes.dram_bytes() + partitions + self.logs.dram_bytes() + size_of::<Self>() as u64;
        (fixed + self.pool.allocator().dram_bytes() + self.pool.epochs().dram_bytes(), fixed)
    }

    fn sweep_partition(&self, partition: usize) -> Result<u64> {
        self.sweep_expired(partition)
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
