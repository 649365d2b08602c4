//! Applies the DRAM budget (`space/dram.rs`): the share of the next memtable, and the refusal of
//! writes and snapshots.

use std::sync::atomic::Ordering;

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Result};

use crate::space::dram::{memtable_limit, pool_dram};
use crate::tree::Tree;
use crate::version::publish::Publisher;

/// DRAM of an operation of a batch in the index, approximately.
pub(crate) const BATCH_OPERATION_BYTES: u64 = 32;
/// Divisor of the budget for the operations of one batch.
const BATCH_BUDGET_DIVISOR: u64 = 8;

impl Tree {
    /// Returns the DRAM of everything that grows, except memtables and tables being built.
    /// `publisher`: DRAM of the publisher.
    pub(crate) fn bytes_except_memtables(&self, publisher: u64) -> u64 {
        let pool = pool_dram(&self.pool);
        publisher + self.dram.tables.bytes() + self.view.load().ranges.dram_bytes() + self.values.dram_bytes() + pool
    }

    /// Returns the DRAM that counts against the budget, without the memtables in the view, which
    /// will be flushed, and the DRAM of these memtables. The first number includes the handles of
    /// the tables that these memtables will become.
    pub(crate) fn bytes_outside_view(&self, publisher: u64) -> (u64, u64) {
        let view = self.view.load();
        let in_view: u64 = view.memtables().map(|memtable| memtable.dram_bytes()).sum();
        let log = view.memtables().map(|memtable| memtable.log_bytes()).sum();
        let held = self.dram.memtables().saturating_sub(in_view);
        (self.bytes_except_memtables(publisher) + held + self.sizes.handle_bytes(log), in_view)
    }

    /// Returns the maximum DRAM of background work. A range that grows faster than it is compacted
    /// has more tables than a range of the usual length. During its compaction they exist twice.
    pub(crate) fn background_bytes(&self) -> u64 {
        let largest = self.sizes.handle_bytes(self.reserve.largest_range());
        self.dram.background + largest.saturating_sub(self.sizes.handle_bytes(2 * self.sizes.range))
    }

    /// Returns the share of the next memtable: see the module. The caller holds the publisher.
    pub(crate) fn memtable_share(&self, publisher: &Publisher) -> u64 {
        let (others, in_view) = self.bytes_outside_view(publisher.dram_bytes());
        let background = self.background_bytes();
        self.dram.update_admission(others, background);
        let kept = if self.order.has_snapshots() { in_view } else { 0 };
        memtable_limit(self.dram.budget, others + kept + background)
    }

    /// Records whether writes are admitted. The caller holds no lock.
    pub(crate) fn note_dram(&self) {
        let publisher = lock(&self.publisher).dram_bytes();
        self.dram.update_admission(self.bytes_outside_view(publisher).0, self.background_bytes());
    }

    /// Refuses a write that is not a delete if too little DRAM is left for it.
    ///
    /// # Errors
    /// [`Error::DramBudget`].
    #[inline]
    pub(crate) fn check_dram(&self) -> Result<()> {
        match self.dram.refused_at.load(Ordering::Relaxed) {
            0 => Ok(()),
            used => Err(Error::DramBudget { used: used.max(self.dram.budget), budget: self.dram.budget }),
        }
    }

    /// Refuses a batch with more operations than a memtable's index should receive at once.
    ///
    /// # Errors
    /// [`Error::DramBudget`].
    pub(crate) fn check_batch_dram(&self, ops: usize) -> Result<()> {
        let (used, budget) = (ops as u64 * BATCH_OPERATION_BYTES, self.dram.budget / BATCH_BUDGET_DIVISOR);
        if used > budget { Err(Error::DramBudget { used, budget }) } else { Ok(()) }
    }
}
