//! The life of an engine's state from open to close, its DRAM budget, and its sweep.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Event, Result, VerifyReport};

use crate::base::Base;

/// Bytes of records that a verification reads under one guard, and the scrub between two pauses.
pub const PIECE_BYTES: u64 = 1 << 20;

/// An engine that changes its medium in place: a [`Base`] with an index.
pub trait Engine: Deref<Target = Base> + Sized + Send + Sync + 'static {
    /// Returns the DRAM of the store's own structures, and the part that an empty store uses.
    fn dram(&self) -> (u64, u64);

    /// Removes the keys of a partition that have expired. Sets [`Base::expiring`] if a key has an
    /// expiry. Returns the number removed.
    ///
    /// # Errors
    /// The contract's common ones.
    fn sweep_partition(&self, partition: usize) -> Result<u64>;

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
        let mut swept = 0;
        for partition in 0..self.partition_count() {
            let removed = self.sweep_partition(partition);
            swept += removed.inspect_err(|_| self.expiring.store(true, Ordering::Relaxed))?;
        }
        if swept > 0 {
            self.report(&Event::Swept { keys: swept });
        }
        Ok(swept)
    }
}
