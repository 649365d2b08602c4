//! The open store: making, opening, closing, and the contract's operations.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use arc_swap::ArcSwap;
use lodestore_contract::{
    Batch, Capabilities, Change, Error, Event, Expiry, MediumUse, Progress, Result, Scan, ScanRange, Snapshot, Stats,
    Store, Swap, VerifyReport, Visit,
};
use lodestore_media::{OpenReport, Pool};

use crate::commit::SharedLog;
use crate::dram::{Dram, Gauge, least_budget, share};
use crate::inner::{Counts, Inner, Sizes, lock};
use crate::layout::{ENGINE, FORMAT, has_superblock, store_superblock, superblock_lost};
use crate::locks::Order;
use crate::manifest::state::ManifestState;
use crate::memtable::Memtable;
use crate::migrate::Migration;
use crate::options::FluidOptions;
use crate::output::Identities;
use crate::publisher::Publisher;
use crate::recover::{self, How, Recovery};
use crate::reserve::Reserve;
use crate::value_log::ValueLog;
use crate::value_log::segment::{Hold, ValueSegment};
use crate::view::View;
use crate::write::When;

/// A FluidKV store, open in this process. See the crate's page for what it promises.
///
/// Dropping it without [`Store::close`] is a crash as far as the medium is concerned: nothing acknowledged is lost, and the next open
/// replays the logs.
pub struct FluidKv {
    pub(crate) running: Arc<Running>,
}

/// The store with its threads, which scans and snapshots hold as well.
pub(crate) struct Running {
    pub(crate) inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held by whoever closes, so that another close returns when the store is closed, not before.
    closing: Mutex<()>,
}

impl FluidKv {
    /// Makes a new store in directory `dir`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Full`], [`Error::DurabilityRefused`], [`Error::InvalidOption`], [`Error::Io`].
    pub fn create(dir: &Path, options: &FluidOptions) -> Result<Self> {
        options.check()?;
        let (pool, report) = Pool::create(dir, ENGINE, FORMAT, options.pool.clone())?;
        Self::start(pool, &report, options).inspect_err(|_| Pool::remove(dir))
    }

    /// Opens the store in directory `dir`, and replays what was not flushed when it was left.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::WrongEngine`], [`Error::NewerFormat`], [`Error::Locked`], [`Error::MachineRestarted`],
    /// [`Error::DurabilityRefused`], [`Error::Corrupt`], [`Error::Io`].
    pub fn open(dir: &Path, options: &FluidOptions) -> Result<Self> {
        options.check()?;
        let (pool, report) = Pool::open(dir, ENGINE, FORMAT, options.pool.clone())?;
        Self::start(pool, &report, options)
    }

    /// A store on a pool that was just created or opened, which may be one of the crash simulator's.
    ///
    /// # Errors
    /// As [`FluidKv::create`] and [`FluidKv::open`].
    pub fn start(pool: Arc<Pool>, report: &OpenReport, options: &FluidOptions) -> Result<Self> {
        let opened = Instant::now();
        let there = has_superblock(&pool)?;
        if !there && (report.engine_created || (report.clean && !report.created)) {
            return Err(superblock_lost());
        }
        if !there {
            check_budget(&pool, options)?;
        }
        let options = &options.within_budget();
        let inner = Arc::new(if there { open(pool, report, options)? } else { make(pool, options)? });
        inner.pool.mark_created()?;
        let running = Running { inner, threads: Mutex::new(Vec::new()), closing: Mutex::new(()) };
        let ready_after = running.inner.recovery.end(opened);
        running.inner.tell(&Event::Opened { clean: report.clean, ready_after });
        for number in 0..options.workers {
            let behind = Arc::clone(&running.inner);
            running.spawn(&format!("lodestore-fluid-{number}"), move || behind.work())?;
        }
        if running.inner.has_windows() {
            let behind = Arc::clone(&running.inner);
            running.spawn("lodestore-fluid-sync", move || behind.keep_window())?;
        }
        Ok(Self { running: Arc::new(running) })
    }
}

/// What a store is put together from.
struct Parts {
    order: Order,
    publisher: Publisher,
    values: Arc<ValueLog>,
    recovery: Recovery,
    replayed: Option<Arc<Memtable>>,
    /// The newest generation that there was.
    generation: u64,
    gauge: Arc<Gauge>,
}

fn reserve_of(pool: &Pool, options: &FluidOptions) -> Arc<Reserve> {
    Arc::new(Reserve::new(pool, &Sizes::of(options, pool.options().capacity)))
}

/// What both ways to an open store have in common.
fn assemble(pool: Arc<Pool>, options: &FluidOptions, parts: Parts, reserve: Arc<Reserve>, seed: u64) -> Inner {
    let sizes = Sizes::of(options, pool.options().capacity);
    let Parts { order, publisher, values, recovery, replayed, generation, gauge } = parts;
    let working = sizes.working(options.workers);
    let dram = Dram::new(options.dram_budget, working, &gauge);
    let own = pool_dram(&pool) + publisher.dram_bytes();
    let make = sizes.make(generation + 1, order.last(), seed, share(dram.budget, working + gauge.bytes() + own));
    let frozen: Vec<_> = replayed.into_iter().collect();
    let count = frozen.len();
    let active = Arc::new(Memtable::new(&pool, &make));
    frozen.iter().chain([&active]).for_each(|memtable| dram.add(memtable));
    let hold = Arc::clone(&publisher.hold);
    let view = View { active, frozen, ranges: publisher.ranges(), hold };
    let migration = Migration::new(options.workers);
    migration.set_frozen(count);
    Inner {
        log: SharedLog::of(&pool, order.last()),
        identities: Identities::above(publisher.state.ranges().iter().flat_map(|range| range.tables()), pool.opening()),
        view: ArcSwap::from_pointee(view),
        publisher: Mutex::new(publisher),
        reads: options.verify_reads.reads(),
        options: options.clone(),
        counts: Counts::default(),
        values,
        batches: AtomicU64::new(0),
        absent: AtomicU32::new(0),
        closed: AtomicBool::new(false),
        reserve,
        dram,
        pool,
        sizes,
        order,
        migration,
        recovery,
        seed,
    }
}

/// Writes a new store. The superblock is last: without it, and before the pool's header says that this came to its end, the store is
/// made again.
fn make(pool: Arc<Pool>, options: &FluidOptions) -> Result<Inner> {
    // What a creation that was cut short has left.
    if pool.allocator().is_recovering() {
        pool.allocator().finish_recovery(&pool);
    }
    let seed = seed_of(&pool);
    let reserve = reserve_of(&pool, options);
    let values = ValueLog::new(&pool, Vec::new());
    let publisher = Publisher::new(&pool, &reserve, ManifestState::new(), Vec::new(), Hold::new(&values), seed)?;
    store_superblock(&pool);
    pool.fence();
    pool.check()?;
    let recovery = Recovery::default();
    let (order, gauge) = (Order::new(0), Arc::default());
    let made = Parts { order, publisher, values, recovery, replayed: None, generation: 0, gauge };
    Ok(assemble(pool, options, made, reserve, seed))
}

/// Refuses a budget in which a new store could take no writes.
fn check_budget(pool: &Pool, options: &FluidOptions) -> Result<()> {
    let needed = |budget: u64| {
        let options = FluidOptions { dram_budget: budget, ..options.clone() }.within_budget();
        let working = Sizes::of(&options, pool.options().capacity).working(options.workers);
        least_budget(working + pool_dram(pool))
    };
    let mut least = options.dram_budget;
    // With more DRAM more is done at a time; that takes less than half of what is added.
    while needed(least) > least {
        least = needed(least);
    }
    if least == options.dram_budget {
        return Ok(());
    }
    let why = format!("a store of this capacity, with these workers and tables, needs {least} at least");
    Err(Error::InvalidOption { name: "dram-budget".into(), value: options.dram_budget.to_string(), why })
}

/// DRAM of the pool's own.
pub(crate) fn pool_dram(pool: &Pool) -> u64 {
    pool.allocator().dram_bytes() + pool.epochs().dram_bytes()
}

fn open(pool: Arc<Pool>, report: &OpenReport, options: &FluidOptions) -> Result<Inner> {
    let seed = seed_of(&pool);
    let recovery = Recovery::default();
    let how = How {
        settled: report.settled,
        salvage: options.pool.salvage,
        threads: options.workers,
        sizes: Sizes::of(options, pool.options().capacity),
        seed,
        gauge: Arc::default(),
        memtable_dram: share(options.dram_budget, 0),
    };
    let found = recover::read(&pool, report, &how, &recovery)?;
    let reserve = reserve_of(&pool, options);
    let values = ValueLog::new(&pool, found.values.clone());
    if let Some(replayed) = &found.replayed {
        values.note_dead(&replayed.dead());
        reserve.note_logs(replayed.log_bytes());
    }
    if !found.values.is_empty() {
        reserve.note_values();
    }
    let (state, handles) = (found.state.clone(), found.handles.clone());
    let publisher = Publisher::new(&pool, &reserve, state, handles, Hold::new(&values), seed)?;
    found.free_old_manifest(&pool);
    let (damage, generation) = (found.damage, found.generation);
    let (order, replayed, gauge) = (found.order, found.replayed, how.gauge);
    let parts = Parts { order, publisher, values, recovery, replayed, generation, gauge };
    let inner = assemble(pool, options, parts, reserve, seed);
    damage.iter().for_each(|error| inner.corrupt(error));
    Ok(inner)
}

/// Use of the medium; what is held in reserve is free.
fn space_of(inner: &Inner) -> MediumUse {
    let (space, held) = (inner.pool.space(), inner.reserve.held_bytes());
    MediumUse { live: space.live.saturating_sub(held), free: space.free + held, ..space }
}

/// What nonces are drawn from: no other opening of the store has it.
fn seed_of(pool: &Pool) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&pool.opening().to_le_bytes())
}

impl Running {
    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(work)
            .map_err(|source| Error::io("starting a thread for", "the store", source))?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// Stops operations and threads; whether this call was the first.
    fn stop(&self) -> bool {
        let first = !self.inner.closed.swap(true, Ordering::SeqCst);
        self.inner.migration.wake();
        if let Some(log) = &self.inner.log {
            log.end_windows();
        }
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            let _ = thread.join();
        }
        if first {
            self.inner.pool.epochs().synchronize();
        }
        first
    }

    fn close(&self) -> Result<()> {
        let _turn = lock(&self.closing);
        if !self.stop() {
            return Ok(());
        }
        let inner = &self.inner;
        // A poisoned store is left as after a crash.
        let ended = inner.pool.check().and_then(|()| self.flush_out());
        let whole = inner.pool.check();
        let closed = inner.pool.close(whole.is_ok());
        whole.and(ended).and(closed)
    }

    /// Brings what is in memtables to tables. What finds no room there, or is damaged, stays in its log, which is durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; [`Error::Corrupt`] where a log is damaged.
    fn flush_out(&self) -> Result<()> {
        let inner = &self.inner;
        inner.values.seal_tails(true);
        let flushed = inner.flush_all().inspect_err(|error| inner.corrupt(error));
        inner.log.as_ref().map_or(Ok(()), |log| inner.settle_log(log))?;
        match flushed {
            Err(Error::Full { .. }) => Ok(()),
            other => other,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.stop() {
            // As after a crash: the clean flag stays unset.
            let _ = self.inner.pool.close(false);
        }
    }
}

impl FluidKv {
    /// Counters of the engine's own, by name.
    fn counters(&self) -> BTreeMap<&'static str, u64> {
        let inner = &self.running.inner;
        let view = inner.view.load();
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &inner.counts;
        let rates = inner.migration.governor.rates();
        let runs = view.ranges.list.iter().map(|range| range.runs.len() as u64);
        let values = inner.values.all();
        let of_values = |each: fn(&ValueSegment) -> u64| values.iter().map(|segment| each(segment)).sum::<u64>();
        let sorted = || view.ranges.list.iter().flat_map(|range| range.sorted());
        let compressed = || sorted().flat_map(|sorted| &sorted.tables).filter_map(|table| table.compressed());
        BTreeMap::from([
            ("memtables", 1 + view.frozen.len() as u64),
            ("memtable_dram_bytes", view.memtables().map(|memtable| memtable.dram_bytes()).sum()),
            ("log_bytes", view.memtables().map(|memtable| memtable.log_bytes()).sum()),
            ("ranges", view.ranges.list.len() as u64),
            ("runs_most", runs.max().unwrap_or(0)),
            ("buffered_bytes", view.ranges.list.iter().map(|range| range.run_bytes()).sum()),
            ("stable_bytes", view.ranges.list.iter().map(|range| range.stable.bytes).sum()),
            ("compressed_tables", compressed().count() as u64),
            ("compressed_bytes", compressed().map(|(stored, _)| stored).sum()),
            ("compressed_plain_bytes", compressed().map(|(_, plain)| plain).sum()),
            ("tables", sorted().map(|sorted| sorted.tables.len() as u64).sum()),
            ("flushes", load(&counts.flushes)),
            ("flushed_bytes", load(&counts.flushed_bytes)),
            ("compactions", load(&counts.compactions)),
            ("compacted_bytes", load(&counts.compacted_bytes)),
            ("moved_tables", load(&counts.moved_tables)),
            ("range_splits", load(&counts.splits)),
            ("range_joins", load(&counts.joins)),
            ("small_merges", load(&counts.crowds)),
            ("reads", load(&counts.reads)),
            ("reads_absent_per_mille", inner.absent_per_mille()),
            ("writers_slowed", load(&counts.slowed)),
            ("writers_slowed_ns", load(&counts.slowed_ns)),
            ("writers_stopped", load(&counts.stopped)),
            ("writers_stopped_ns", load(&counts.stopped_ns)),
            ("group_commits", load(&counts.commits)),
            ("value_segments", values.len() as u64),
            ("value_bytes", of_values(|segment| segment.bytes)),
            ("value_written_bytes", of_values(ValueSegment::written)),
            ("value_dead_bytes", of_values(|segment| segment.dead.load(Ordering::Relaxed))),
            ("value_collected_segments", load(&inner.values.collected)),
            ("value_moved_bytes", load(&inner.values.moved_bytes)),
            ("reclaims", load(&counts.reclaimed)),
            ("reserve_needed_bytes", inner.reserve.needed_bytes()),
            ("reserve_held_bytes", inner.reserve.held_bytes()),
            ("workers_allowed", inner.migration.governor.allowed() as u64),
            ("compaction_trigger_percent", (inner.migration.governor.trigger() * 100.0) as u64),
            ("log_bytes_per_s", rates[0]),
            ("flush_bytes_per_s", rates[1]),
            ("compaction_bytes_per_s", rates[2]),
            ("writes_per_mille", rates[3]),
            ("compacted_per_log_percent", rates[4]),
            ("snapshots", inner.order.snapshots() as u64),
        ])
    }
}

impl Store for FluidKv {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            scan: true,
            batch: true,
            snapshot: true,
            expiry: true,
            power: true,
            estimates: true,
            mends: true,
            interval: true,
        }
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.running.inner.get_into(key, value)
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.running.inner.contains(key)
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.running.inner.multi_get(keys, each)
    }

    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        self.running.inner.expiry(key)
    }

    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        self.running.inner.put(key, value, expiry, When::Always).map(|_| ())
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.running.inner.put(key, value, None, When::Absent)
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.running.inner.put(key, value, None, When::Present)
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.running.inner.delete(key)
    }

    fn compare_and_swap(&self, key: &[u8], expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<Swap> {
        self.running.inner.compare_and_swap(key, expected, new)
    }

    fn update_with(&self, key: &[u8], change: &mut dyn FnMut(Option<&[u8]>) -> Change) -> Result<()> {
        self.running.inner.update_with(key, change)
    }

    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        self.running.scan_each(range, visit)
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        self.running.scan(range)
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        self.running.for_each(visit)
    }

    fn write(&self, batch: &Batch) -> Result<()> {
        self.running.inner.write_batch(batch)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.running.snapshot()
    }

    fn len(&self) -> Result<u64> {
        self.running.for_each(&mut |_, _| Visit::More)
    }

    fn is_empty(&self) -> Result<bool> {
        let mut empty = true;
        self.running.for_each(&mut |_, _| {
            empty = false;
            Visit::Stop
        })?;
        Ok(empty)
    }

    fn stats(&self) -> Stats {
        let inner = &self.running.inner;
        let (dram_bytes, dram_fixed_bytes) = inner.dram();
        let view = inner.view.load();
        let items = view.ranges.list.iter().flat_map(|range| range.sorted()).flat_map(|sorted| &sorted.tables);
        let in_tables: u64 =
            items.map(|table| table.descriptor.items.saturating_sub(2 * table.descriptor.tombstones)).sum();
        Stats {
            engine: ENGINE,
            medium: inner.pool.medium_name(),
            durability: inner.pool.durability(),
            keys: in_tables + view.memtables().map(|memtable| memtable.tree.len() as u64).sum::<u64>(),
            dram_bytes,
            dram_fixed_bytes,
            dram_budget_bytes: inner.options.dram_budget,
            space: space_of(inner),
            flushes: inner.pool.flushes(),
            fences: inner.pool.fences(),
            bytes_written: inner.pool.bytes_written(),
            wear: inner.pool.allocator().wear(&inner.pool),
            recovery: inner.recovery.state(),
            engine_counters: self.counters(),
        }
    }

    fn sync(&self) -> Result<()> {
        let _guard = self.running.inner.enter()?;
        let inner = &self.running.inner;
        // All else is durable when it is done.
        inner
            .log
            .as_ref()
            .map_or_else(|| inner.pool.sync(), |log| inner.pool.check().and_then(|()| inner.settle_log(log)))
    }

    /// Flushes and compacts everything that is there, on the calling thread and the workers: reads find all in stable tables then. Where
    /// others go on writing it ends after ten minutes. What is damaged stays where it is: a table with its range, which is not compacted, a value with its
    /// segment; both are told as [`Error::Corrupt`].
    fn settle(&self) -> Result<()> {
        let _guard = self.running.inner.enter()?;
        self.running.inner.settle_all()
    }

    fn wait_recovered(&self) -> Result<()> {
        Ok(())
    }

    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.running.inner.verify(progress)
    }

    /// Flushes what is in memtables. Where the medium is full it stays in its logs, which is no error: the next open replays them.
    fn close(&self) -> Result<()> {
        self.running.close()
    }
}
