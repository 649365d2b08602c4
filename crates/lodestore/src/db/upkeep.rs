//! The whole store: durability, background work, checks, information, and its close.

#[cfg(doc)]
use lodestore_contract::Store;
use lodestore_contract::{Durability, Progress, Result, Stats, VerifyReport};

use super::{Choice, Db};
use crate::trace;

/// The whole store.
impl Db {
    /// Makes everything that returned before this call survive power loss, if the medium can.
    ///
    /// # Errors
    /// As [`Store::sync`].
    pub fn sync(&self) -> Result<()> {
        trace::sync(self.store(), || self.store().sync())
    }

    /// Does the background work of earlier writes now, and frees the space of dropped keyspaces.
    ///
    /// # Errors
    /// As [`Store::settle`].
    pub fn settle(&self) -> Result<()> {
        trace::settle(self.store(), || {
            let reclaimed = self.shared().keyspaces.reclaim();
            self.store().settle().and(reclaimed)
        })
    }

    /// Reads and checks everything. Calls `progress` at intervals.
    ///
    /// # Errors
    ///
    /// As [`Store::verify`]. Damage is in the report.
    pub fn verify(&self, mut progress: impl FnMut(Progress)) -> Result<VerifyReport> {
        trace::verify(self.store(), || self.store().verify(&mut progress))
    }

    /// Waits until the recovery that the open began has ended.
    ///
    /// # Errors
    /// As [`Store::wait_recovered`].
    pub fn wait_recovered(&self) -> Result<()> {
        self.store().wait_recovered()
    }

    /// Returns the statistics of the store.
    pub fn stats(&self) -> Stats {
        self.store().stats()
    }

    /// Returns the engine's name.
    pub fn engine(&self) -> &'static str {
        self.store().engine()
    }

    /// Returns the engine and durability of the store, with the reason.
    pub fn choice(&self) -> &Choice {
        &self.shared().choice
    }

    /// Returns what an acknowledged write survives.
    pub fn durability(&self) -> Durability {
        self.shared().choice.durability
    }

    /// Returns whether the handle refuses all writes
    /// ([`Builder::read_only`](super::Builder::read_only)).
    pub fn is_read_only(&self) -> bool {
        self.shared().is_read_only
    }

    /// Closes the store cleanly, for all clones. Later calls answer [`Error::Closed`].
    ///
    /// # Errors
    /// As [`Store::close`]. The store is closed in any case, and nothing acknowledged is lost.
    ///
    /// [`Error::Closed`]: crate::Error::Closed
    pub fn close(&self) -> Result<()> {
        self.shared().keyspaces.stop();
        trace::close(self.store(), || self.store().close())
    }
}
