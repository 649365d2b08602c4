//! The interface of an engine to a store of this kind, and the operations built on it.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use lodestore_contract::limits::{check_key, check_value};
use lodestore_contract::{Change, ChangeFn, Error, Event, Expiry, Lifetime, Result, Swap, VerifyReport};
use lodestore_media::Quiet;

use crate::base::{Base, Quick};

/// Bytes of records that a verification reads under one guard, and the scrub between two pauses.
pub const PIECE_BYTES: u64 = 1 << 20;

/// The condition of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Put.
    Always,
    /// Insert.
    Absent,
    /// Update.
    Present,
}

/// The step to perform on a key, given its present value and expiry.
pub enum Step<'v> {
    /// Change nothing.
    Keep,
    /// Set this value and this expiry.
    Put(Cow<'v, [u8]>, Option<Expiry>),
    /// Delete it.
    Delete,
}

/// Returns the step for the present value and expiry of a key. The expiry is `None` if the key is
/// absent, has expired, or does not expire.
pub type Decide<'d, 'v> = dyn FnMut(Option<&[u8]>, Option<Expiry>) -> Step<'v> + 'd;

/// An engine that changes its medium in place: a [`Base`] with an index.
pub trait Engine: Deref<Target = Base> + Sized + Send + Sync + 'static {
    /// Puts, inserts or updates a key of valid size. Returns whether it did.
    ///
    /// # Errors
    /// The contract's. [`Error::Full`] is retried once.
    fn try_write(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>, when: When) -> Quick<bool>;

    /// Changes a key by the step that `decide` returns for its present value and expiry. `decide`
    /// runs again if the write must restart.
    ///
    /// # Errors
    /// As [`Self::try_write`].
    fn try_modify(&self, key: &[u8], decide: &mut Decide<'_, '_>) -> Quick<()>;

    /// Returns the DRAM of the store's own structures, and the part that an empty store uses.
    fn dram(&self) -> (u64, u64);

    /// Removes all keys that have expired. Reads all keys that may have an expiry. Returns the
    /// number removed.
    ///
    /// # Errors
    /// The contract's common ones.
    fn sweep_all(&self) -> Result<u64>;

    /// Returns the number of partitions of the index.
    fn partition_count(&self) -> usize;

    /// Verifies a partition in pieces of about [`PIECE_BYTES`] of records, each under its own
    /// guard. Calls `piece` with the report of each piece, under no lock and no guard. Stops when
    /// `piece` returns false. Returns whether it reached the end.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::ForeignProcess`].
    fn verify_partition(&self, partition: usize, piece: &mut dyn FnMut(VerifyReport) -> bool) -> Result<bool>;

    /// Verifies all partitions, for the scrub, as [`Self::verify_partition`] does. Returns whether
    /// it reached the end.
    fn verify_pieces(&self, piece: &mut dyn FnMut(VerifyReport) -> bool) -> bool {
        (0..self.partition_count()).all(|partition| self.verify_partition(partition, piece).unwrap_or(false))
    }

    /// Rebuilds volatile state. `trusted`: the data saved by the last stop is valid.
    ///
    /// # Errors
    /// The error that stopped the rebuild; the store is poisoned then.
    fn rebuild(&self, trusted: bool) -> Result<()>;

    /// Releases threads that wait for a failed recovery.
    fn abandon(&self, _cause: &str) {}

    /// Applies work that writers have queued.
    ///
    /// # Errors
    /// Errors of the queued work.
    fn drain(&self) -> Result<()> {
        Ok(())
    }

    /// Ends the engine's own threads, after all operations have ended.
    fn halt(&self) {}

    /// Returns whether the volatile state is intact.
    fn is_whole(&self) -> bool {
        true
    }

    /// Saves state that the next open need not rebuild then. All threads have stopped.
    ///
    /// # Errors
    /// Errors of saving: the store is left as after a crash.
    fn save(&self) -> Result<()>;

    /// Puts, inserts or updates. Returns whether it did.
    ///
    /// # Errors
    /// The contract's.
    #[inline]
    fn write(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>, when: When) -> Result<bool> {
        check_key(key)?;
        check_value(value)?;
        match self.try_write(key, value, expiry, when) {
            Ok(done) => Ok(done),
            Err(error) => self.second_try(*error, || self.try_write(key, value, expiry, when)),
        }
    }

    /// Changes a key by the step that `decide` returns for its present value and expiry.
    ///
    /// # Errors
    /// The contract's.
    fn modify(&self, key: &[u8], decide: &mut Decide<'_, '_>) -> Result<()> {
        check_key(key)?;
        match self.try_modify(key, decide) {
            Ok(()) => Ok(()),
            Err(error) => self.second_try(*error, || self.try_modify(key, decide)),
        }
    }

    /// See [`Store::update`](lodestore_contract::Store::update).
    ///
    /// # Errors
    /// The contract's.
    #[inline]
    fn update(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        match lifetime {
            Lifetime::Keep => self.update_keeping(key, value),
            Lifetime::Forever | Lifetime::Until(_) => self.write(key, value, lifetime.resolve(None), When::Present),
        }
    }

    /// Updates a key that keeps its expiry. The new record cannot be stored before the old record
    /// is read, thus this path is separate from [`Self::write`].
    ///
    /// # Errors
    /// The contract's.
    fn update_keeping(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        check_key(key)?;
        check_value(value)?;
        let mut is_present = false;
        self.modify(key, &mut |now, expiry| {
            is_present = now.is_some();
            if is_present { Step::Put(value.into(), expiry) } else { Step::Keep }
        })?;
        Ok(is_present)
    }

    /// See [`Store::compare_and_swap`](lodestore_contract::Store::compare_and_swap).
    ///
    /// # Errors
    /// The contract's.
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

    /// See [`Store::update_with`](lodestore_contract::Store::update_with).
    ///
    /// # Errors
    /// The contract's.
    fn update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()> {
        self.modify(key, &mut |now, expiry| match change(now, expiry) {
            Change::Keep => Step::Keep,
            Change::Put(value, lifetime) => Step::Put(value.into(), lifetime.resolve(expiry)),
            Change::Delete => Step::Delete,
        })
    }

    /// Retries once if the store seems full and space waits to be freed. The caller holds no stripe
    /// and no guard.
    ///
    /// # Errors
    /// Errors of the first attempt, or of the second.
    #[cold]
    fn second_try<T>(&self, error: Error, attempt: impl FnOnce() -> Quick<T>) -> Result<T> {
        if !matches!(error, Error::Full { .. }) || !self.reclaim() {
            return Err(error);
        }
        attempt().map_err(|error| {
            if let Error::Full { needed, .. } = &*error {
                self.tell(&Event::Full { needed: *needed });
            }
            *error
        })
    }

    /// Frees space that waits for recovery's sweep, for queued operations, or for the end of
    /// readers. Returns whether a second attempt may succeed.
    #[cold]
    fn reclaim(&self) -> bool {
        // Inside another operation of this store, or a call of its sink, it would deadlock.
        if self.pool.is_engaged() || self.recovery.wait_done().is_err() || self.drain().is_err() {
            return false;
        }
        if Quiet::is_now() {
            // Inside an operation of another store: a holder of a guard here may wait for that
            // store, thus guards must not be waited for.
            self.pool.epochs().reclaim_patiently(&self.pool);
            return true;
        }
        self.pool.epochs().synchronize();
        self.pool.epochs().reclaim(&self.pool);
        true
    }

    /// Rejects a new key above the DRAM budget.
    ///
    /// # Errors
    /// [`Error::DramBudget`].
    #[inline]
    fn check_budget(&self) -> Result<()> {
        let budget = self.dram_budget;
        if budget == 0 {
            return Ok(());
        }
        let (used, _) = self.dram();
        if used <= budget { Ok(()) } else { Err(Error::DramBudget { used, budget }) }
    }

    /// Removes every key that has expired. Returns their number. Reads only records with an expiry.
    ///
    /// # Errors
    /// The contract's common ones.
    fn sweep(&self) -> Result<u64> {
        if !self.expiring.swap(false, Ordering::AcqRel) {
            return Ok(0);
        }
        let swept = self.sweep_all().inspect_err(|_| self.expiring.store(true, Ordering::Relaxed))?;
        if swept > 0 {
            self.tell(&Event::Swept { keys: swept });
        }
        Ok(swept)
    }
}

/// Adds an error to a report.
pub fn note_finding(report: &mut VerifyReport, error: &Error) {
    match error {
        Error::Corrupt { place, what, .. } => report.find(place.clone(), what.clone()),
        other => report.find("store", other.to_string()),
    }
}
