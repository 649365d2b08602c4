//! The open store: create, open, close, and the contract's operations.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

#[cfg(doc)]
use lodestore_contract::Error;
use lodestore_contract::limits::check_range_conditions;
use lodestore_contract::scrub;
use lodestore_contract::{
    Batch, Capabilities, ChangeFn, Commit, Condition, Event, Expiry, Lifetime, Options, Pair, Progress, PutWhen,
    RangeCondition, RecoveryState, Result, Scan, ScanRange, Snapshot, Stats, Store, Swap, VerifyReport, Visit,
};
use lodestore_media::{OpenReport, Pool, own_work};

use crate::db::batch::Conditions;
use crate::db::close::Running;
use crate::db::open::{check_budget, make, open};
use crate::layout::{ENGINE, FORMAT, check_not_older, has_superblock, superblock_lost};
use crate::options::FluidOptions;
use crate::values::separator::Separator;

/// An open FluidKV store. The crate's page describes its guarantees.
///
/// [`FluidkvStats`](crate::FluidkvStats) has its own statistics.
///
/// Dropping it without [`Store::close`] is a crash for the medium: no acknowledged write is lost,
/// and the next open replays the logs.
pub struct FluidKv {
    pub(crate) running: Arc<Running>,
}

impl FluidKv {
    /// Creates a new store in directory `dir`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Full`], [`Error::DurabilityRefused`], [`Error::InvalidOption`],
    /// [`Error::Io`].
    pub fn create(dir: &Path, options: &FluidOptions) -> Result<Self> {
        options.check()?;
        let (pool, report) = Pool::create(dir, ENGINE, FORMAT, options.pool.clone())?;
        let created = pool.created_in(dir);
        Self::start(pool, &report, options).inspect_err(|_| created.remove())
    }

    /// Opens the store in directory `dir`, and replays the writes that were not flushed at the last
    /// stop.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::WrongEngine`], [`Error::NewerFormat`], [`Error::OlderFormat`],
    /// [`Error::Locked`], [`Error::MachineRestarted`], [`Error::DurabilityRefused`],
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn open(dir: &Path, options: &FluidOptions) -> Result<Self> {
        options.check()?;
        let (pool, report) = Pool::open(dir, ENGINE, FORMAT, options.pool.clone())?;
        Self::start(pool, &report, options)
    }

    /// Starts a store on a pool that was just created or opened, which may be a pool of the crash
    /// simulator.
    ///
    /// # Errors
    /// Those of [`FluidKv::create`] and [`FluidKv::open`].
    pub fn start(pool: Arc<Pool>, report: &OpenReport, options: &FluidOptions) -> Result<Self> {
        let store = Self::start_with(pool, report, options, None)?;
        store.begin_workers()?;
        Ok(store)
    }

    pub(super) fn start_with(
        pool: Arc<Pool>,
        report: &OpenReport,
        options: &FluidOptions,
        separator: Option<Arc<dyn Separator>>,
    ) -> Result<Self> {
        let opened = Instant::now();
        check_not_older(report.engine_format)?;
        let there = has_superblock(&pool)?;
        if !there && (report.engine_created || (report.clean && !report.created)) {
            return Err(superblock_lost());
        }
        if !there {
            check_budget(&pool, options)?;
        }
        let options = &options.within_budget();
        let mut inner = if there { open(pool, report, options)? } else { make(pool, options)? };
        if separator.is_some() {
            // A separator writes values in the background, and may first have to yield to writers.
            inner.background.scheduler.throttle.sleep();
        }
        inner.background.tree.separator = separator;
        let inner = Arc::new(inner);
        if !inner.read_only {
            inner.pool.mark_created()?;
        }
        let running = Running::new(inner);
        let ready_after = running.inner.recovery.end(opened);
        running.inner.report(&Event::Opened { clean: report.clean, ready_after });
        let RecoveryState { keys, corrupt, took, .. } = running.inner.recovery.state();
        running.inner.report(&Event::Recovered { keys, corrupt, took });
        Ok(Self { running: Arc::new(running) })
    }

    /// Starts the threads of a store that [`FluidKv::start_separating`] has opened. Must be called
    /// once, before the first write: without threads nothing is flushed.
    ///
    /// # Errors
    /// [`Error::ThreadRefused`] if not even one worker can start. Drop the store then.
    pub fn begin_workers(&self) -> Result<()> {
        let running = &self.running;
        for number in 0..running.inner.options.workers {
            let behind = Arc::clone(&running.inner);
            let started =
                running.threads.start(format!("lodestore-fluid-{number}"), move || own_work(|| behind.run_worker()));
            if number > 0 && started.is_err() {
                // A single worker does all the work, only later.
                break;
            }
            started?;
        }
        if running.inner.has_windows() {
            let behind = Arc::clone(&running.inner);
            running.threads.start("lodestore-fluid-sync", move || own_work(|| behind.sync_windows()))?;
        }
        if running.inner.options.workers > 0 && running.inner.scrub.is_on() {
            let behind = Arc::clone(&running.inner);
            // Each read verifies its result, so a store works without its scrub.
            let _ = running.threads.start("lodestore-scrub", move || own_work(|| scrub::run(&*behind)));
        }
        Ok(())
    }

    /// Starts a pass of the scrub without its pause, for tests.
    #[doc(hidden)]
    pub fn scrub_now(&self) {
        let running = &self.running;
        running.inner.scrub.set_due();
        running.threads.unpark();
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
            range_conditions: true,
            snapshot: true,
            expiry: true,
            power: true,
            estimates: true,
            interval: true,
        }
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.running.inner.get_into(key, value)
    }

    fn get_with(&self, key: &[u8], with: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.running.inner.get_with(key, with)
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
        self.running.inner.put(key, value, expiry, PutWhen::Always).map(|_| ())
    }

    fn insert(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        self.running.inner.put(key, value, lifetime.resolve(None), PutWhen::Absent)
    }

    fn update(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        self.running.inner.update(key, value, lifetime)
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.running.inner.delete(key)
    }

    fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        lifetime: Lifetime,
    ) -> Result<Swap> {
        self.running.inner.compare_and_swap(key, (expected, new), lifetime)
    }

    fn update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()> {
        self.running.inner.update_with(key, change)
    }

    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        self.running.scan_each(range, visit)
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        self.running.scan(range)
    }

    fn for_each_pair(&self, visit: &mut dyn FnMut(Pair<'_>) -> Visit) -> Result<u64> {
        self.running.for_each_pair(visit)
    }

    /// The batch is one log record, which needs one free extent within one region of the store. The
    /// record has the keys, the values and at most 32 bytes per operation. If no extent is as long,
    /// values of 32 bytes or more go to the value log, unless `value-threshold` is 0. The record
    /// has 16 bytes for each of them. The index entries of the operations, 32 bytes each, may use
    /// an eighth of the DRAM budget.
    fn write_if(&self, conditions: &[Condition], batch: &Batch) -> Result<Commit> {
        self.write_if_ranges(conditions, &[], batch)
    }

    fn write_if_ranges(&self, conditions: &[Condition], ranges: &[RangeCondition], batch: &Batch) -> Result<Commit> {
        check_range_conditions(conditions, ranges)?;
        let keys: Vec<&[u8]> = conditions.iter().map(|condition| &*condition.key).collect();
        let is_met = &mut |index: usize, value: Option<&[u8]>, expiry| Ok(conditions[index].is_met(value, expiry));
        let is_present = &mut |_: &[u8], _: &[u8], _: Option<Expiry>| Ok(true);
        self.write_checked(&mut Conditions { keys: &keys, is_met, ranges, is_present }, batch)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.running.snapshot()
    }

    fn len(&self) -> Result<u64> {
        self.running.for_each_pair(&mut |_| Visit::More)
    }

    fn is_empty(&self) -> Result<bool> {
        let mut empty = true;
        self.running.for_each_pair(&mut |_| {
            empty = false;
            Visit::Stop
        })?;
        Ok(empty)
    }

    fn identity(&self) -> Option<u64> {
        Some(self.running.inner.pool.identity() | 1)
    }

    fn creation_options(&self) -> Options {
        self.running.inner.pool.creation_options()
    }

    fn opening(&self) -> u64 {
        self.running.inner.pool.opening()
    }

    fn mark(&self) -> Option<u64> {
        Some(self.running.inner.pool.mark())
    }

    fn set_mark(&self, mark: u64) -> Result<()> {
        self.running.inner.pool.set_mark(mark)
    }

    fn stats(&self) -> Stats {
        self.account()
    }

    fn sync(&self) -> Result<()> {
        let _guard = self.running.inner.enter()?;
        let inner = &self.running.inner;
        // All other writes are durable on return.
        inner
            .log
            .as_ref()
            .map_or_else(|| inner.pool.sync(), |log| inner.pool.check().and_then(|()| inner.commit_all_pending(log)))
    }

    /// Flushes and compacts all data, on the calling thread and the workers: afterwards reads find
    /// everything in stable tables. Returns [`Error::Unfinished`] if concurrent writes keep it from
    /// ending within ten minutes. Damaged data stays where it is: a table with its range, which is
    /// not compacted, and a value with its segment. Both are reported as [`Error::Corrupt`].
    fn settle(&self) -> Result<()> {
        let _guard = self.running.inner.enter()?;
        self.running.inner.flush_and_compact()
    }

    fn wait_recovered(&self) -> Result<()> {
        self.running.inner.open.check_process()
    }

    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.running.inner.verify(progress)
    }

    /// Flushes the memtables. If the medium is full, entries stay in their logs, which is no error:
    /// the next open replays them.
    fn close(&self) -> Result<()> {
        self.running.close()
    }
}
