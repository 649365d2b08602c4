//! The open store: creation, opening, closing, and the operations of the contract.

use std::path::Path;
use std::sync::Arc;

use lodestore_contract::{
    Batch, BatchOp, Capabilities, Change, ChangeFn, Commit, Condition, Error, Expected, Expiry, Lifetime, Options,
    Pair, Progress, RangeCondition, Result, Scan, ScanRange, Snapshot, Stats, Store, Swap, VerifyReport, Visit,
};
use lodestore_fluidkv::embedding::Conditions;
use lodestore_media::{OpenReport, Pool};

use crate::layout::{ENGINE, Stored, tag_value};
use crate::options::HashKvOptions;
use crate::running::Running;
use crate::stats::account;
use crate::{FORMAT, recover, scan, verify};

/// A HashKV store, open in this process. The crate's documentation states its guarantees.
///
/// [`HashkvStats`](crate::HashkvStats) has its own statistics.
///
/// Dropping it without [`Store::close`] equals a crash for the medium: no acknowledged write is
/// lost.
pub struct HashKv {
    pub(crate) running: Arc<Running>,
}

impl HashKv {
    /// Creates a new store in directory `dir`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Full`], [`Error::DurabilityRefused`], [`Error::InvalidOption`],
    /// [`Error::Io`].
    pub fn create(dir: &Path, options: &HashKvOptions) -> Result<Self> {
        options.check()?;
        let (pool, report) = Pool::create(dir, ENGINE, FORMAT, options.pool())?;
        let created = pool.created_in(dir);
        Self::start(pool, &report, options).inspect_err(|_| created.remove())
    }

    /// Opens the store in directory `dir`.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::WrongEngine`], [`Error::NewerFormat`], [`Error::OlderFormat`],
    /// [`Error::Locked`], [`Error::MachineRestarted`], [`Error::DurabilityRefused`],
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn open(dir: &Path, options: &HashKvOptions) -> Result<Self> {
        options.check()?;
        let (pool, report) = Pool::open(dir, ENGINE, FORMAT, options.pool())?;
        Self::start(pool, &report, options)
    }

    /// Starts a store on a pool that was just created or opened. The pool may be the crash
    /// simulator's.
    ///
    /// # Errors
    /// As [`HashKv::create`] and [`HashKv::open`].
    pub fn start(pool: Arc<Pool>, report: &OpenReport, options: &HashKvOptions) -> Result<Self> {
        let (values, index) = recover::start(&pool, report, options)?;
        let collect_rate = (options.index.workers > 0).then_some(options.collect_rate);
        let running = Running::start(index, values, collect_rate)?;
        Ok(Self { running })
    }

    /// Starts a scrub pass without its pause, for tests.
    #[doc(hidden)]
    pub fn scrub_now(&self) {
        self.running.index.scrub_now();
    }

    fn stored(value: &[u8]) -> Vec<u8> {
        let mut stored = Vec::with_capacity(value.len() + 1);
        stored.extend_from_slice(value);
        tag_value(&mut stored);
        stored
    }

    /// Returns a value as it is stored, if it is admitted.
    fn admitted(&self, key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
        let stored = Self::stored(value);
        self.running.values.admit(key, &stored)?;
        Ok(stored)
    }

    /// Returns value and expiry of a key from its LSM entry. The caller holds the key's stripe.
    fn present(
        &self,
        key: &[u8],
        stored: Option<&[u8]>,
        expiry: Option<Expiry>,
    ) -> Result<(Option<Vec<u8>>, Option<Expiry>)> {
        let Some(stored) = stored else { return Ok((None, None)) };
        let mut value = stored.to_vec();
        // A value whose space was freed after its expiry is absent: its key in the LSM has no
        // expiry to keep.
        let is_present = self.running.values.value(key, &mut value)?;
        Ok(if is_present { (Some(value), expiry) } else { (None, None) })
    }

    /// Compares the values of conditions before any stripe is held. Returns for each condition the
    /// LSM's entry of the key if the entry is a pointer to the expected value.
    ///
    /// A pointer names one record of one use of its segment. If the key still has the pointer when
    /// its stripe is held, its value is still the expected one. The file is not read again.
    fn judge_unlocked(&self, conditions: &[Condition]) -> Vec<Option<Vec<u8>>> {
        let judge = |condition: &Condition| {
            let (Expected::Value(expected) | Expected::Entry(expected, _)) = &condition.expected else { return None };
            let mut value = Vec::new();
            // The later read, under the stripe, reports errors.
            if !self.running.index.peek_into(&condition.key, &mut value).ok()? {
                return None;
            }
            let stored = value.clone();
            let is_pointer = matches!(Stored::read(&stored), Ok(Stored::Pointer(_)));
            let is_read = is_pointer && self.running.values.resolve(&condition.key, &mut value).ok()?.is_none();
            (is_read && value == *expected).then_some(stored)
        };
        conditions.iter().map(judge).collect()
    }

    /// As [`Store::update_with`]. Returns the length of a value that was refused because the file
    /// is full.
    fn try_update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<Option<u64>> {
        let values = &self.running.values;
        let mut changed = |stored: Option<&[u8]>, expiry: Option<Expiry>| {
            let (value, expiry) = self.present(key, stored, expiry)?;
            let mut changed = change(value.as_deref(), expiry);
            if let Change::Put(value, lifetime) = &mut changed {
                lodestore_contract::limits::check_value(value)?;
                tag_value(value);
                *lifetime = lifetime.resolve(expiry).into();
            }
            Ok(changed)
        };
        let (mut failed, mut refused) = (None, None);
        // The holder of the key's stripe sees its newest pointer, and the value does not move
        // meanwhile.
        let outcome = self.running.index.update_with(key, &mut |stored, expiry| {
            (failed, refused) = (None, None);
            match changed(stored, expiry) {
                // Space is sought without the stripe, which a flush may need.
                Ok(Change::Put(value, _)) if values.refuses(key, &value) => refused = Some(value.len() as u64),
                Ok(changed) => return changed,
                Err(error) => failed = Some(error),
            }
            Change::Keep
        });
        failed.map_or(outcome, Err).map(|()| refused)
    }

    /// Returns the outcome of a write. If the write `changed` anything, the next check for space
    /// flushes it first.
    fn note_outcome<T>(&self, outcome: Result<T>, changed: impl FnOnce(&T) -> bool) -> Result<T> {
        // A write refused for lack of space has changed nothing.
        let has_changed = match &outcome {
            Ok(done) => changed(done),
            Err(error) => !matches!(error, Error::Full { .. }),
        };
        if has_changed {
            self.running.values.note_change();
        }
        outcome
    }
}

impl Store for HashKv {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { interval: false, ..self.running.index.capabilities() }
    }

    fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.running.values.get_into(&self.running.index, key, value)
    }

    fn contains(&self, key: &[u8]) -> Result<bool> {
        self.running.index.contains(key)
    }

    fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        scan::multi_get(&self.running, keys, each)
    }

    fn expiry(&self, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        self.running.index.expiry(key)
    }

    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        lodestore_contract::limits::check_value(value)?;
        let stored = self.admitted(key, value)?;
        self.note_outcome(self.running.index.put_expiring(key, &stored, expiry), |()| true)
    }

    fn insert(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        lodestore_contract::limits::check_value(value)?;
        let stored = match self.admitted(key, value) {
            // Nothing is stored, and no space is needed.
            Err(Error::Full { .. }) if self.contains(key)? => return Ok(false),
            stored => stored?,
        };
        self.note_outcome(self.running.index.insert(key, &stored, lifetime), |did| *did)
    }

    fn update(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        lodestore_contract::limits::check_value(value)?;
        let stored = match self.admitted(key, value) {
            Err(Error::Full { .. }) if !self.contains(key)? => return Ok(false),
            stored => stored?,
        };
        self.note_outcome(self.running.index.update(key, &stored, lifetime), |did| *did)
    }

    fn delete(&self, key: &[u8]) -> Result<bool> {
        self.note_outcome(self.running.index.delete(key), |did| *did)
    }

    fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        lifetime: Lifetime,
    ) -> Result<Swap> {
        new.map_or(Ok(()), lodestore_contract::limits::check_value)?;
        let mut swap = Swap::Done;
        self.update_with(key, &mut |now, _| {
            if now != expected {
                swap = Swap::Differs(now.map(<[u8]>::to_vec));
                return Change::Keep;
            }
            swap = Swap::Done;
            match new {
                Some(new) => Change::Put(new.to_vec(), lifetime),
                None => Change::Delete,
            }
        })?;
        Ok(swap)
    }

    fn update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()> {
        while let Some(needed) = self.note_outcome(self.try_update_with(key, change), Option::is_none)? {
            self.running.values.recheck_space(needed)?;
        }
        Ok(())
    }

    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        scan::scan_each(&self.running, range, visit)
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        scan::scan(&self.running, range)
    }

    fn for_each_pair(&self, visit: &mut dyn FnMut(Pair<'_>) -> Visit) -> Result<u64> {
        scan::for_each_pair(&self.running, visit)
    }

    fn write_if(&self, conditions: &[Condition], batch: &Batch) -> Result<Commit> {
        self.write_if_ranges(conditions, &[], batch)
    }

    fn write_if_ranges(&self, conditions: &[Condition], ranges: &[RangeCondition], batch: &Batch) -> Result<Commit> {
        lodestore_contract::limits::check_batch(batch)?;
        lodestore_contract::limits::check_range_conditions(conditions, ranges)?;
        let ops = batch.ops.iter().map(|op| match op {
            BatchOp::Put { key, value, expiry } => {
                Ok(BatchOp::Put { key: key.clone(), value: self.admitted(key, value)?, expiry: *expiry })
            }
            delete => Ok(delete.clone()),
        });
        let ops: Result<Vec<BatchOp>> = ops.collect();
        let keys: Vec<&[u8]> = conditions.iter().map(|condition| &*condition.key).collect();
        // The caller of this closure holds the key's stripe: the pointer is the newest, and the
        // collector does not move its value. A range condition locks the stripes of all keys. The
        // file is therefore read before.
        let judged = if ranges.is_empty() { Vec::new() } else { self.judge_unlocked(conditions) };
        let mut is_met = |index: usize, stored: Option<&[u8]>, expiry: Option<Expiry>| {
            if let Some(Some(pointer)) = judged.get(index)
                && stored == Some(pointer)
                && expiry.is_none()
            {
                // The value is the expected one, and the key does not expire.
                return Ok(!matches!(conditions[index].expected, Expected::Entry(_, Some(_))));
            }
            let (value, expiry) = self.present(&conditions[index].key, stored, expiry)?;
            Ok(conditions[index].is_met(value.as_deref(), expiry))
        };
        // Only the value of a key that expires may be absent without damage.
        let mut is_present = |key: &[u8], stored: &[u8], expiry: Option<Expiry>| match expiry {
            None => Ok(true),
            Some(_) => Ok(self.present(key, Some(stored), None)?.0.is_some()),
        };
        let mut checked = Conditions { keys: &keys, is_met: &mut is_met, ranges, is_present: &mut is_present };
        let index = &self.running.index;
        let written = match ops {
            Ok(ops) => index.write_checked(&mut checked, &Batch { ops }),
            Err(error) => Commit::after_refusal(error, || index.write_checked(&mut checked, &Batch::default())),
        };
        self.note_outcome(written, |commit| commit.is_done())
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        scan::snapshot(&self.running)
    }

    fn len(&self) -> Result<u64> {
        self.running.index.len()
    }

    fn is_empty(&self) -> Result<bool> {
        self.running.index.is_empty()
    }

    fn identity(&self) -> Option<u64> {
        self.running.index.identity()
    }

    fn creation_options(&self) -> Options {
        self.running.index.creation_options()
    }

    fn opening(&self) -> u64 {
        self.running.index.opening()
    }

    fn mark(&self) -> Option<u64> {
        self.running.index.mark()
    }

    fn set_mark(&self, mark: u64) -> Result<()> {
        self.running.index.set_mark(mark)
    }

    fn stats(&self) -> Stats {
        account(&self.running.index, &self.running.values)
    }

    fn sync(&self) -> Result<()> {
        // All writes acknowledged before are in the LSM, some as pointers to values in the file. At
        // durability `process` a concurrent flush may write values without a sync and publish their
        // pointers. The LSM's sync then makes these pointers durable. Syncing the file second
        // covers all values that the LSM names. Between both syncs durable pointers may name values
        // that are not durable, but no write has been acknowledged as synced yet.
        self.running.index.sync()?;
        self.running.values.file.sync_now()
    }

    fn settle(&self) -> Result<()> {
        // A failure of one step does not skip the others.
        let index = self.running.index.settle();
        self.running.values.pool.check()?;
        let values = self.running.values.collect_all();
        // Moved records have left pointers in a memtable.
        let moved = self.running.index.settle();
        index.and(values).and(moved)
    }

    fn wait_recovered(&self) -> Result<()> {
        self.running.index.wait_recovered()
    }

    fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.running.values.pool.check_process()?;
        verify::verify(&self.running, progress)
    }

    fn close(&self) -> Result<()> {
        self.running.values.pool.check_process()?;
        self.running.stop();
        if self.running.values.sizes.is_lost {
            // The store was opened read-only: nothing is written.
            self.running.index.halt();
            return Ok(());
        }
        self.running.index.close()
    }
}
