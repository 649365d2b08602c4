//! DRAM accounting of an open store, and the share of the DRAM budget for memtables.
//!
//! The budget covers everything that grows:
//! * The index, filter and older versions of each memtable that is still held.
//! * The handles of tables, including tables that only a snapshot holds.
//! * The DRAM of the manifest's state, the value log and the pool.
//! * Tables that are being built.
//!
//! Rule: a memtable may use 3/16 of the DRAM that everything else leaves when the memtable is
//! created. At most four memtables exist at a time (`migrate.rs`), and a quarter is left for later
//! growth. While a snapshot is held, the existing memtables count as everything else, because the
//! snapshot may keep them after their flush. Each new memtable is then smaller than the one before,
//! and their sum stays below the budget, however long the snapshot is held. Everything else
//! includes the maximum that background work uses: one table being built per worker, and the tables
//! of a range twice. If the largest range has outgrown its compactions, its tables are counted.
//!
//! If not even four memtables of [`MEMTABLE_DRAM_MIN`] bytes fit, writes and snapshots are refused,
//! after an attempt to free DRAM. Deletes, reads and scans continue.
//!
//! Invariants
//! 1. A memtable checks its DRAM every [`DRAM_CHECK_LOG_BYTES`] bytes of a log and after each
//!    batch, not only when a segment begins. The excess over its limit is at most one step of its
//!    index and the writes of each thread in [`DRAM_CHECK_LOG_BYTES`] bytes of log.
//! 2. [`Gauge`] counts each handle from its creation until it is dropped, regardless of its holder.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use lodestore_contract::{Error, Result};

use crate::commit::SharedLog;
use crate::inner::Inner;
use crate::locks::lock;
use crate::memtable::Memtable;
use crate::migrate::Due;
use crate::publisher::Publisher;
use crate::sizes::{MEMTABLES_MAX, TABLE_BUILD_FACTOR};
use crate::store::pool_dram;
use crate::value_log::ValueLog;

/// Least DRAM of a memtable, in bytes.
pub(crate) const MEMTABLE_DRAM_MIN: u64 = 32 << 10;
/// A memtable is frozen this far below its share, or a quarter below if that is less. The
/// difference is for writes until the freeze (Invariant 1).
const FREEZE_MARGIN_BYTES: u64 = 24 << 10;
/// Bytes of log after which a memtable checks its DRAM.
pub(crate) const DRAM_CHECK_LOG_BYTES: u64 = 4 << 10;
/// DRAM of an operation of a batch in the index, approximately.
const BATCH_OPERATION_BYTES: u64 = 32;
/// Divisor of the budget for the operations of one batch.
const BATCH_BUDGET_DIVISOR: u64 = 8;

/// Counts bytes of DRAM.
#[derive(Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts a table as being built while this value lives.
pub(crate) struct Building<'a>(&'a Gauge, u64);

impl<'a> Building<'a> {
    pub(crate) fn new(gauge: &'a Gauge, table_bytes: usize) -> Self {
        let bytes = TABLE_BUILD_FACTOR * table_bytes as u64;
        gauge.add(bytes);
        Self(gauge, bytes)
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        self.0.sub(self.1);
    }
}

/// The DRAM account of an open store.
pub(crate) struct Dram {
    pub(crate) budget: u64,
    /// Maximum DRAM of background work.
    background: u64,
    /// DRAM of table handles.
    pub(crate) tables: Arc<Gauge>,
    /// DRAM of tables that are being built.
    pub(crate) built: Gauge,
    /// Every memtable that is still held.
    memtables: Mutex<Vec<Weak<Memtable>>>,
    /// DRAM in use when too little was left for writes; 0: writes are admitted.
    refused_at: AtomicU64,
}

/// Returns the least budget, given the DRAM of the pool and of background work.
pub(crate) fn budget_min(others: u64) -> u64 {
    others + MEMTABLES_MAX * MEMTABLE_DRAM_MIN
}

/// Returns the DRAM at which a memtable is frozen, given the DRAM of everything else.
pub(crate) fn memtable_limit(budget: u64, others: u64) -> u64 {
    let share = (budget.saturating_sub(others) * 3 / 4 / MEMTABLES_MAX).max(MEMTABLE_DRAM_MIN);
    share - FREEZE_MARGIN_BYTES.min(share / 4)
}

impl Dram {
    pub(crate) fn new(budget: u64, background: u64, tables: &Arc<Gauge>) -> Self {
        let (tables, memtables) = (Arc::clone(tables), Mutex::default());
        Self { budget, background, tables, built: Gauge::default(), memtables, refused_at: AtomicU64::new(0) }
    }

    /// Adds a memtable to the account.
    pub(crate) fn add(&self, memtable: &Arc<Memtable>) {
        let mut memtables = lock(&self.memtables);
        memtables.retain(|memtable| memtable.strong_count() > 0);
        memtables.push(Arc::downgrade(memtable));
    }

    /// Returns the DRAM of all memtables that are still held.
    fn memtables(&self) -> u64 {
        // The upgraded reference may become the last one. Dropping a memtable frees its logs, which
        // must not happen under the lock.
        let held: Vec<_> = lock(&self.memtables).iter().filter_map(Weak::upgrade).collect();
        held.iter().map(|memtable| memtable.dram_bytes()).sum()
    }

    /// Returns the DRAM left, given the DRAM in use and the maximum of background work.
    fn remaining(&self, others: u64, background: u64) -> u64 {
        self.budget.saturating_sub(others + background)
    }

    /// Records whether writes are admitted, given the DRAM of all but memtables that will be
    /// flushed.
    fn update_admission(&self, others: u64, background: u64) {
        let refused_at =
            if self.remaining(others, background) < MEMTABLES_MAX * MEMTABLE_DRAM_MIN { others } else { 0 };
        self.refused_at.store(refused_at, Ordering::Relaxed);
    }
}

impl Inner {
    /// Returns the DRAM of the store's own structures, and the part of it with a fixed size.
    pub(crate) fn dram(&self) -> (u64, u64) {
        let publisher = lock(&self.publisher).dram_bytes();
        let log = self.log.as_ref().map_or(0, SharedLog::dram_bytes);
        let fixed = self.order.dram_bytes() + log + ValueLog::fixed_dram_bytes() + size_of::<Self>() as u64;
        (fixed + self.bytes_except_memtables(publisher) + self.dram.built.bytes() + self.dram.memtables(), fixed)
    }

    /// Returns the DRAM of everything that grows, except memtables and tables being built.
    /// `publisher`: DRAM of the publisher.
    fn bytes_except_memtables(&self, publisher: u64) -> u64 {
        let pool = pool_dram(&self.pool);
        publisher + self.dram.tables.bytes() + self.view.load().ranges.dram_bytes() + self.values.dram_bytes() + pool
    }

    /// Returns the DRAM that counts against the budget, without the memtables in the view, which
    /// will be flushed, and the DRAM of these memtables. The first number includes the handles of
    /// the tables that these memtables will become.
    fn bytes_outside_view(&self, publisher: u64) -> (u64, u64) {
        let view = self.view.load();
        let in_view: u64 = view.memtables().map(|memtable| memtable.dram_bytes()).sum();
        let log = view.memtables().map(|memtable| memtable.log_bytes()).sum();
        let held = self.dram.memtables().saturating_sub(in_view);
        (self.bytes_except_memtables(publisher) + held + self.sizes.handle_bytes(log), in_view)
    }

    /// Returns the maximum DRAM of background work. A range that grows faster than it is compacted
    /// has more tables than a range of the usual length. During its compaction they exist twice.
    fn background_bytes(&self) -> u64 {
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

    /// Freezes the active memtable if a batch would exceed its limit. The caller holds no lock.
    pub(crate) fn freeze_before_batch(&self, ops: usize) {
        let (generation, over) = {
            let active = &self.view.load().active;
            (active.generation, !active.is_empty() && !active.has_dram(ops as u64 * BATCH_OPERATION_BYTES))
        };
        if over {
            self.freeze(generation);
        }
    }

    /// Refuses a snapshot that might keep so much DRAM that no memtable would fit, if a flush
    /// before it does not help.
    ///
    /// # Errors
    /// [`Error::DramBudget`]; [`Error::Poisoned`] and [`Error::Full`] from the flush.
    pub(crate) fn check_snapshot_dram(&self) -> Result<()> {
        let is_scarce = || {
            let publisher = lock(&self.publisher).dram_bytes();
            let (others, in_view) = self.bytes_outside_view(publisher);
            self.dram.remaining(others + in_view, self.background_bytes()) < MEMTABLES_MAX * MEMTABLE_DRAM_MIN
        };
        if !is_scarce() {
            return Ok(());
        }
        self.run_all_due(Due::Needed, crate::migrate::RECLAIM_TIMEOUT)?;
        if is_scarce() {
            Err(Error::DramBudget { used: self.dram().0.max(self.dram.budget), budget: self.dram.budget })
        } else {
            Ok(())
        }
    }
}
