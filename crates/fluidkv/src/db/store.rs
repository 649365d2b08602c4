//! The open store: create, open, close, and the contract's operations.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use lodestore_contract::limits::{check_key, check_range_conditions};
use lodestore_contract::scrub;
use lodestore_contract::{
    Batch, Capabilities, ChangeFn, Commit, Condition, Error, Event, Expiry, Lifetime, Options, Pair, Progress,
    RangeCondition, RecoveryState, Result, Scan, ScanRange, Snapshot, Stats, Store, Swap, VerifyReport, Visit,
};
use lodestore_media::{OpenReport, Pool, own_work};

use crate::db::batch::Conditions;
use crate::db::close::Running;
use crate::db::key_ops::When;
use crate::db::open::{check_budget, make, open};
use crate::db::replace::Replace;
use crate::layout::{ENGINE, FORMAT, check_not_older, has_superblock, superblock_lost};
use crate::locks::lock;
use crate::options::FluidOptions;
use crate::space::reserve::SpaceBalance;
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

    /// Like [`FluidKv::start`], for a store whose flushes hand values to `separator`. Stored values
    /// may then have 2^30 + 16 bytes, so that the owner can mark them. Each open needs the same
    /// separator, or one that knows the earlier answers.
    ///
    /// The owner starts the threads with [`FluidKv::begin_workers`] when it knows the stored
    /// values. Nothing is flushed before.
    ///
    /// # Errors
    /// Those of [`FluidKv::create`] and [`FluidKv::open`].
    pub fn start_separating(
        pool: Arc<Pool>,
        report: &OpenReport,
        options: &FluidOptions,
        separator: Arc<dyn Separator>,
    ) -> Result<Self> {
        Self::start_with(pool, report, options, Some(separator))
    }

    fn start_with(
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
            let started = running.spawn(&format!("lodestore-fluid-{number}"), move || own_work(|| behind.run_worker()));
            if number > 0 && started.is_err() {
                // A single worker does all the work, only later.
                break;
            }
            started?;
        }
        if running.inner.has_windows() {
            let behind = Arc::clone(&running.inner);
            running.spawn("lodestore-fluid-sync", move || own_work(|| behind.sync_windows()))?;
        }
        if running.inner.options.workers > 0 && running.inner.scrub.is_on() {
            let behind = Arc::clone(&running.inner);
            // Each read verifies its result, so a store works without its scrub.
            let _ = running.spawn("lodestore-scrub", move || own_work(|| scrub::run(&*behind)));
        }
        Ok(())
    }

    /// Puts `new` for each key whose newest version is a live value equal to `old`, and keeps the
    /// expiry. Other keys are unchanged. Returns which keys were replaced, in the order of `moves`;
    /// each move sees the moves before it.
    ///
    /// Durable on return, with one fence or group for up to 256 keys and about 64 KiB of log. Such
    /// a record is stored whole or not at all. Readers may see part of it before the rest. Does not
    /// wait for a flush, and is not throttled when flushes lag: the caller bounds the moved bytes.
    /// May be called from within [`Separator::separate`].
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Poisoned`], [`Error::Closed`], [`Error::KeyLength`],
    /// [`Error::ValueLength`]; [`Error::Corrupt`] if a key's value cannot be read. Moves in records
    /// before the failed one are done.
    pub fn replace(&self, moves: &[Replace<'_>]) -> Result<Vec<bool>> {
        let inner = &self.running.inner;
        inner.replace(moves).inspect_err(|error| inner.corrupt(error))
    }
}

impl FluidKv {
    /// Like [`Store::get_into`], for background work. Many counted reads start compactions sooner;
    /// this read is not counted.
    ///
    /// # Errors
    /// Those of [`Store::get_into`].
    pub fn peek_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let inner = &self.running.inner;
        inner.peek_into(key, value).inspect_err(|error| inner.corrupt(error))
    }

    /// Like [`Store::write_if_ranges`], but the caller evaluates the conditions.
    ///
    /// # Errors
    /// Those of [`Store::write_if_ranges`], and of the closures in `conditions`.
    pub fn write_checked(&self, conditions: &mut Conditions<'_, '_>, batch: &Batch) -> Result<Commit> {
        conditions.keys.iter().try_for_each(|key| check_key(key))?;
        let inner = &self.running.inner;
        let written = inner.write_batch(batch, conditions);
        written
            .or_else(|error: Error| Commit::after_refusal(error, || inner.write_batch(&Batch::default(), conditions)))
    }

    /// Returns whether a value or a delete of a key waits in the logs for its flush. If so, the
    /// tables may hold an older version.
    ///
    /// # Errors
    /// Those of [`Store::get_into`].
    pub fn is_buffered(&self, key: &[u8]) -> Result<bool> {
        let inner = &self.running.inner;
        inner.is_buffered(key).inspect_err(|error| inner.corrupt(error))
    }

    /// Reads the flushed values of these ascending keys that are stored in tables, not in the value
    /// log. For a [`Separator`], these are the values that the handed values replace. Calls `each`
    /// with a key's index in `keys` and its value, in any order, and not at all for a key without a
    /// value. Not counted, like [`FluidKv::peek_into`]. The answers are hints: filters are not
    /// verified, so damage can hide a key.
    ///
    /// # Errors
    /// Those of [`Store::get_into`]. Before [`Error::Corrupt`] is returned, `each` is called for
    /// all readable keys.
    pub fn peek_tables(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let inner = &self.running.inner;
        inner.peek_tables(keys, each).inspect_err(|error| inner.corrupt(error))
    }

    /// Calls `each` with each key that has a value in the tables, the newest value there, and
    /// whether it is live; then with the entries of each memtable. Large values of the value log
    /// and deletes are left out. For an engine built on this one whose stored values name locations
    /// of its own ([`FluidKv::start_separating`]). The calls include every value that a read after
    /// the begin of this call may return. They also include every value that
    /// [`Separator::died`](crate::Separator::died) may report; an expired value is not live.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Corrupt`] if the calls are incomplete.
    #[expect(clippy::type_complexity, reason = "a key, its stored value, and whether it is live")]
    pub fn each_stored(&self, each: &mut dyn FnMut(&[u8], &[u8], bool)) -> Result<()> {
        self.running.inner.each_stored(each)
    }

    /// Calls `visit` with each key from `from` on that has a live value in the tables, and its
    /// newest value there, until `visit` returns stop. Values in the value log are left out.
    /// Memtables may have newer versions.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Corrupt`].
    pub fn each_flushed(&self, from: Bound<&[u8]>, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<()> {
        self.running.inner.each_flushed(from, visit)
    }

    /// Starts a pass of the scrub without its pause, for tests.
    #[doc(hidden)]
    pub fn scrub_now(&self) {
        let running = &self.running;
        running.inner.scrub.set_due();
        lock(&running.threads).iter().for_each(|thread| thread.thread().unpark());
    }

    /// Stops the store as dropping it does, which is a crash for the medium, and waits for its
    /// threads. For an owner whose [`Separator`] holds the store at times: dropping the owner's
    /// handle may not drop the last one.
    pub fn halt(&self) {
        self.running.halt();
    }

    /// Returns whether the store is closed or closing. Then [`FluidKv::replace`] returns
    /// [`Error::Closed`], while memtables may still be flushed.
    pub fn is_closed(&self) -> bool {
        !self.running.inner.open.is_open()
    }

    /// Returns the bytes of the capacity that must stay free of other use outside the regions
    /// (`lodestore_media::Pool::take_beside`). Flushes, compactions, deletes and some more puts
    /// need them.
    pub fn reserved_bytes(&self) -> u64 {
        let SpaceBalance { required, free } = self.space_balance();
        required.saturating_sub(free)
    }

    /// Returns the bytes free in the regions beyond the required space. No other owner can use
    /// them.
    pub fn free_bytes_in_regions(&self) -> u64 {
        let SpaceBalance { required, free } = self.space_balance();
        free.saturating_sub(required)
    }

    /// Merges tables of which a large share has expired, so that the separator learns of it.
    /// Returns whether there were any. Cheap if there are none and each table was examined before.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`], and the errors of a flush.
    pub fn merge_expired(&self) -> Result<bool> {
        self.running.inner.merge_expired()
    }

    /// Returns the bytes that background work and some more puts need, and the free bytes.
    fn space_balance(&self) -> SpaceBalance {
        let inner = &self.running.inner;
        let view = inner.view.load();
        let percent = u64::from(inner.options.buffer_percent);
        let buffers =
            view.ranges.list.iter().map(|range| (range.stable.bytes * percent / 100).saturating_sub(range.run_bytes()));
        inner.reserve.balance(&inner.pool, view.active.log_limit(), buffers.sum())
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
        self.running.inner.put(key, value, expiry, When::Always).map(|_| ())
    }

    fn insert(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        self.running.inner.put(key, value, lifetime.resolve(None), When::Absent)
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
