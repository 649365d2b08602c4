//! The open store of an engine: creation, opening, and the operations of the contract.

use std::path::Path;
use std::sync::Arc;

use lodestore_contract::copy::{CopySink, copy_fuzzy};
use lodestore_contract::limits::{check_key, check_value};
use lodestore_contract::{
    Batch, Capabilities, Change, ChangeFn, Commit, Condition, EngineCounters, Expiry, Lifetime, Options, Pair,
    Progress, PutWhen, Result, Scan, ScanRange, Stats, Store, Swap, VerifyReport, Visit,
};
use lodestore_media::{OpenReport, Pool, PoolOptions};

use crate::batch::Batches;
use crate::copy::CopySource;
use crate::full_store::retry_after_reclaim;
use crate::index::WALK_POSITION_COUNT;
use crate::read::{Reads, multi_get};
use crate::running::{BackgroundPlan, Running};
use crate::write::{Decide, Step, change, delete, put};

/// An engine with all operations of the contract. The errors of all methods are the contract's.
pub trait StoreEngine: Reads + Batches {
    /// The engine's name in the pool header.
    const NAME: &'static str;
    /// Version of the engine's format.
    const FORMAT: u32;
    /// The engine keeps an order of its keys.
    const HAS_SCAN: bool;
    /// The engine's options.
    type Options;

    /// Checks the options. Returns those of the pool.
    fn check_options(options: &Self::Options) -> Result<&PoolOptions>;

    /// Reads, and if necessary creates or repairs, a store on a pool that was just created or
    /// opened. Returns it with the work to be done in the background.
    fn start(pool: Arc<Pool>, report: &OpenReport, options: &Self::Options) -> Result<(Self, BackgroundPlan)>;

    /// Returns the number of keys. May wait for recovery. The caller has checked that the store is
    /// open.
    fn count_keys(&self) -> Result<u64>;

    /// Adds the engine's fixed options, as the store was created with them.
    fn add_creation_options(&self, options: &mut Options);

    /// Returns the number of keys as far as known, and the engine's own statistics.
    fn counters(&self) -> (u64, EngineCounters);

    /// See [`Store::scan_each`].
    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize>;

    /// See [`Store::scan`]. The scan keeps the store open.
    fn scan(running: &Arc<Running<Self>>, range: &ScanRange) -> Result<Scan>;

    /// See [`Store::verify`].
    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport>;
}

/// A store, open in this process. The documentation of the engine's crate states its guarantees.
///
/// Dropping it without [`Store::close`] equals a crash for the medium: no acknowledged write is
/// lost, and the next open recovers.
pub struct OpenStore<E: StoreEngine> {
    inner: Arc<E>,
    /// An owned scan holds it too: the store lives as long as its last scan.
    running: Arc<Running<E>>,
}

impl<E: StoreEngine> OpenStore<E> {
    /// Creates a new store in directory `dir`.
    ///
    /// # Errors
    /// `Error::Exists`, `Error::Full`, `Error::DurabilityRefused`, `Error::InvalidOption`,
    /// `Error::Io`.
    pub fn create(dir: &Path, options: &E::Options) -> Result<Self> {
        let (pool, report) = Pool::create(dir, E::NAME, E::FORMAT, E::check_options(options)?.clone())?;
        let created = pool.created_in(dir);
        Self::start(pool, &report, options).inspect_err(|_| created.remove())
    }

    /// Opens the store in directory `dir`. Gets and puts work on return; the rest of recovery runs
    /// in the background.
    ///
    /// # Errors
    /// `Error::Missing`, `Error::WrongEngine`, `Error::NewerFormat`, `Error::OlderFormat`,
    /// `Error::Locked`, `Error::MachineRestarted`, `Error::DurabilityRefused`,
    /// `Error::Corrupt`, `Error::Io`.
    pub fn open(dir: &Path, options: &E::Options) -> Result<Self> {
        let (pool, report) = Pool::open(dir, E::NAME, E::FORMAT, E::check_options(options)?.clone())?;
        Self::start(pool, &report, options)
    }

    /// Starts a store on a pool that was just created or opened. The pool may be the crash
    /// simulator's.
    ///
    /// # Errors
    /// As [`Self::create`] and [`Self::open`].
    pub fn start(pool: Arc<Pool>, report: &OpenReport, options: &E::Options) -> Result<Self> {
        let (engine, plan) = E::start(pool, report, options)?;
        let running = Running::start(engine, plan)?;
        Ok(Self { inner: Arc::clone(&running.inner), running: Arc::new(running) })
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
        self.inner.sweep()
    }

    /// Puts, inserts or updates. Returns whether it did.
    #[inline]
    fn write_when(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>, when: PutWhen) -> Result<bool> {
        check_key(key)?;
        check_value(value)?;
        match put(&*self.inner, key, value, expiry, when) {
            Ok(done) => Ok(done),
            Err(error) => retry_after_reclaim(&*self.inner, *error, || put(&*self.inner, key, value, expiry, when)),
        }
    }

    /// Changes a key by the step that `decide` returns for its present value and expiry.
    fn modify(&self, key: &[u8], decide: &mut Decide<'_, '_>) -> Result<()> {
        check_key(key)?;
        match change(&*self.inner, key, decide) {
            Ok(()) => Ok(()),
            Err(error) => retry_after_reclaim(&*self.inner, *error, || change(&*self.inner, key, decide)),
        }
    }

    /// Returns the engine.
    #[doc(hidden)]
    pub fn inner(&self) -> &E {
        &self.inner
    }
}

impl<E: StoreEngine> Store for OpenStore<E> {
    fn engine(&self) -> &'static str {
        E::NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { scan: E::HAS_SCAN, batch: true, expiry: true, power: true, ..Capabilities::default() }
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        check_key(key)?;
        let _timer = self.inner.time_get();
        let _guard = self.inner.enter()?;
        let found = self.inner.lookup(key)?;
        Ok(found.is_some_and(|record| {
            value.extend_from_slice(record.value());
            true
        }))
    }

    fn get_with(&self, key: &[u8], with: &mut dyn FnMut(&[u8])) -> Result<bool> {
        check_key(key)?;
        let _timer = self.inner.time_get();
        let _guard = self.inner.enter()?;
        let found = self.inner.lookup(key)?;
        Ok(found.is_some_and(|record| {
            with(record.value());
            true
        }))
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let _guard = self.inner.enter()?;
        Ok(self.inner.lookup(key)?.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        multi_get(&*self.inner, keys, each)
    }

    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        check_key(key)?;
        let _guard = self.inner.enter()?;
        Ok(self.inner.lookup(key)?.map(|record| record.expiry()))
    }

    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        self.write_when(key, value, expiry, PutWhen::Always).map(|_| ())
    }

    fn insert(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        self.write_when(key, value, lifetime.resolve(None), PutWhen::Absent)
    }

    fn update(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        if lifetime != Lifetime::Keep {
            return self.write_when(key, value, lifetime.resolve(None), PutWhen::Present);
        }
        // The new record cannot be stored before the old record is read.
        check_key(key)?;
        check_value(value)?;
        let mut is_present = false;
        self.modify(key, &mut |now, expiry| {
            is_present = now.is_some();
            if is_present { Step::Put(value.into(), expiry) } else { Step::Keep }
        })?;
        Ok(is_present)
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        delete(&*self.inner, key).map_err(|error| *error)
    }

    fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        lifetime: Lifetime,
    ) -> Result<Swap> {
        if let Some(new) = new {
            check_value(new)?;
        }
        let mut outcome = Swap::Done;
        self.modify(key, &mut |now, expiry| {
            if now != expected {
                outcome = Swap::Differs(now.map(<[u8]>::to_vec));
                return Step::Keep;
            }
            outcome = Swap::Done;
            new.map_or(Step::Delete, |new| Step::Put(new.into(), lifetime.resolve(expiry)))
        })?;
        Ok(outcome)
    }

    fn update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()> {
        self.modify(key, &mut |now, expiry| match change(now, expiry) {
            Change::Keep => Step::Keep,
            Change::Put(value, lifetime) => Step::Put(value.into(), lifetime.resolve(expiry)),
            Change::Delete => Step::Delete,
        })
    }

    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        self.inner.scan_each(range, visit)
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        E::scan(&self.running, range)
    }

    fn for_each_pair(&self, visit: &mut dyn FnMut(Pair<'_>) -> Visit) -> Result<u64> {
        let (mut visited, mut wrong) = (0, None);
        let mut show = |pair: Pair<'_>| {
            visited += 1;
            visit(pair)
        };
        for partition in 0..self.inner.partition_count() {
            let (mut from, verifies) = (0, self.inner.verifies_reads());
            while from < WALK_POSITION_COUNT {
                match self.inner.visit_piece(partition, from, verifies, &mut wrong, &mut show)? {
                    Some(next) => from = next,
                    None => return Ok(visited),
                }
            }
        }
        self.inner.check_complete()?;
        wrong.map_or(Ok(visited), Err)
    }

    fn write_if(&self, conditions: &[Condition], batch: &Batch) -> Result<Commit> {
        self.inner.write_batch(conditions, batch)
    }

    fn copy_all(&self, sink: &mut dyn CopySink) -> Result<()> {
        copy_fuzzy(&CopySource(&*self.inner), sink)
    }

    fn len(&self) -> Result<u64> {
        drop(self.inner.enter()?);
        self.inner.count_keys()
    }

    fn identity(&self) -> Option<u64> {
        Some(self.inner.pool.identity() | 1)
    }

    fn creation_options(&self) -> Options {
        let mut options = self.inner.pool.creation_options();
        self.inner.add_creation_options(&mut options);
        options
    }

    fn opening(&self) -> u64 {
        self.inner.pool.opening()
    }

    fn mark(&self) -> Option<u64> {
        Some(self.inner.pool.mark())
    }

    fn set_mark(&self, mark: u64) -> Result<()> {
        self.inner.pool.set_mark(mark)
    }

    fn stats(&self) -> Stats {
        if self.inner.open.is_foreign() {
            return Stats { engine: E::NAME, ..Stats::default() };
        }
        let (keys, counters) = self.inner.counters();
        self.inner.stats(E::NAME, keys, self.inner.dram(), counters)
    }

    fn sync(&self) -> Result<()> {
        let _guard = self.inner.enter()?;
        self.inner.pool.sync()
    }

    fn wait_recovered(&self) -> Result<()> {
        self.inner.open.check_process()?;
        self.inner.recovery.wait_done()
    }

    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.inner.verify(progress)
    }

    fn close(&self) -> Result<()> {
        self.running.close()
    }
}
