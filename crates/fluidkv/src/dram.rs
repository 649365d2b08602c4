//! What DRAM an open store takes, and what of its budget is left for memtables.
//!
//! The budget is for all that grows: the index, filter and older versions of each memtable that anybody still holds; the handles of tables, those that only
//! a snapshot holds among them; what the manifest's state, the value log and the pool keep in DRAM; and tables that are being built.
//!
//! The rule. A memtable may take 3/16 of what all else leaves when it is made: four are there at a time at most (`migrate.rs`), and a quarter is for what
//! comes meanwhile. While a snapshot is held, the memtables that there are count as all else, for it may keep them when they are flushed: so each that
//! follows is smaller than the one before, and their sum stays below the budget, however long it is held. All else includes what the work behind takes at most: a table that is built by each
//! worker, and the tables of a range twice, of the largest one where that has outgrown its compactions.
//!
//! Where not even four memtables of [`LEAST`] bytes would have room, writes and snapshots are refused, after an attempt to make room; deletes, reads and scans go on.
//!
//! Invariants
//! 1. A memtable looks at what it takes every [`LOOK`] bytes of a log and behind each batch, not only where a segment begins: so it is over its limit by no more than
//!    one step of its index and what each thread writes in as many bytes of log.
//! 2. [`Gauge`] counts each handle from its making to its end, whoever holds it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use lodestore_contract::{Error, Result};

use crate::commit::SharedLog;
use crate::inner::{Inner, MEMTABLES, lock};
use crate::memtable::Memtable;
use crate::migrate::Due;
use crate::publisher::Publisher;
use crate::store::pool_dram;
use crate::value_log::ValueLog;

/// The least that a memtable may take.
pub(crate) const LEAST: u64 = 32 << 10;
/// A memtable is frozen so much below what it may take, or a quarter: for what is written until it is (Invariant 1).
const SLACK: u64 = 24 << 10;
/// Bytes of a log behind which its memtable looks at what it takes.
pub(crate) const LOOK: u64 = 4 << 10;
/// DRAM of an operation of a batch in the index, about.
const OPERATION: u64 = 32;
/// The part of the budget that the operations of one batch may take.
const BATCH_PART: u64 = 8;
/// DRAM of a table's handle and of its place in the manifest's state, about.
pub(crate) const HANDLE: u64 = 448;
/// A table that is built takes its bytes this many times: itself, and what its index and filter are made from.
pub(crate) const BUILDS: u64 = 2;

/// Bytes of DRAM of something.
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

/// Counts a table as being built, as long as it lives.
pub(crate) struct Building<'a>(&'a Gauge, u64);

impl<'a> Building<'a> {
    pub(crate) fn new(gauge: &'a Gauge, table_bytes: usize) -> Self {
        let bytes = BUILDS * table_bytes as u64;
        gauge.add(bytes);
        Self(gauge, bytes)
    }
}

impl Drop for Building<'_> {
    fn drop(&mut self) {
        self.0.sub(self.1);
    }
}

/// The account of an open store.
pub(crate) struct Dram {
    pub(crate) budget: u64,
    /// What the work behind takes at most.
    working: u64,
    /// Of the handles of tables.
    pub(crate) tables: Arc<Gauge>,
    /// Of tables that are being built.
    pub(crate) built: Gauge,
    /// Every memtable that somebody holds.
    memtables: Mutex<Vec<Weak<Memtable>>>,
    /// What the store took when it was found that there is no room for writes; 0: there is.
    tight: AtomicU64,
}

/// The least budget where the pool and the work behind take so much.
pub(crate) fn least_budget(beside: u64) -> u64 {
    beside + MEMTABLES * LEAST
}

/// DRAM at which a memtable is frozen, where all else takes so much.
pub(crate) fn share(budget: u64, beside: u64) -> u64 {
    let share = (budget.saturating_sub(beside) * 3 / 4 / MEMTABLES).max(LEAST);
    share - SLACK.min(share / 4)
}

impl Dram {
    pub(crate) fn new(budget: u64, working: u64, tables: &Arc<Gauge>) -> Self {
        let (tables, memtables) = (Arc::clone(tables), Mutex::default());
        Self { budget, working, tables, built: Gauge::default(), memtables, tight: AtomicU64::new(0) }
    }

    /// Takes note of a memtable.
    pub(crate) fn add(&self, memtable: &Arc<Memtable>) {
        let mut memtables = lock(&self.memtables);
        memtables.retain(|memtable| memtable.strong_count() > 0);
        memtables.push(Arc::downgrade(memtable));
    }

    /// DRAM of all memtables that somebody holds.
    fn memtables(&self) -> u64 {
        // The last holder may be this one: a memtable that goes frees its logs, which is not for under the lock.
        let held: Vec<_> = lock(&self.memtables).iter().filter_map(Weak::upgrade).collect();
        held.iter().map(|memtable| memtable.dram_bytes()).sum()
    }

    /// What is left, given what the store takes; the work behind counted as the most that it can be.
    fn left(&self, beside: u64, working: u64) -> u64 {
        self.budget.saturating_sub(beside + working)
    }

    /// Takes note of whether there is room for writes, given what all but memtables that will be flushed takes.
    fn note(&self, beside: u64, working: u64) {
        let tight = if self.left(beside, working) < MEMTABLES * LEAST { beside } else { 0 };
        self.tight.store(tight, Ordering::Relaxed);
    }
}

impl Inner {
    /// DRAM of the store's own structures, and of them what has a fixed size.
    pub(crate) fn dram(&self) -> (u64, u64) {
        let publisher = lock(&self.publisher).dram_bytes();
        let log = self.log.as_ref().map_or(0, SharedLog::dram_bytes);
        let fixed = self.order.dram_bytes() + log + ValueLog::fixed_dram_bytes() + size_of::<Self>() as u64;
        (fixed + self.beside_memtables(publisher) + self.dram.built.bytes() + self.dram.memtables(), fixed)
    }

    /// All that grows but memtables and tables that are being built; `publisher`: its part.
    fn beside_memtables(&self, publisher: u64) -> u64 {
        let pool = pool_dram(&self.pool);
        publisher + self.dram.tables.bytes() + self.view.load().ranges.dram_bytes() + self.values.dram_bytes() + pool
    }

    /// What counts against the budget but memtables that will be flushed, which are those in the view, the tables that they will become included;
    /// and those memtables.
    fn beside(&self, publisher: u64) -> (u64, u64) {
        let view = self.view.load();
        let in_view: u64 = view.memtables().map(|memtable| memtable.dram_bytes()).sum();
        let log = view.memtables().map(|memtable| memtable.log_bytes()).sum();
        let held = self.dram.memtables().saturating_sub(in_view);
        (self.beside_memtables(publisher) + held + self.sizes.handles(log), in_view)
    }

    /// What the work behind takes at most: a range that has grown faster than it is compacted has more tables than one of the usual length, and they are there twice while it is.
    fn working(&self) -> u64 {
        let largest = self.sizes.handles(self.reserve.largest_range());
        self.dram.working + largest.saturating_sub(self.sizes.handles(2 * self.sizes.range))
    }

    /// What the next memtable may take: see the module. The caller holds the publisher.
    pub(crate) fn memtable_share(&self, publisher: &Publisher) -> u64 {
        let (beside, in_view) = self.beside(publisher.dram_bytes());
        let working = self.working();
        self.dram.note(beside, working);
        let kept = if self.order.has_snapshots() { in_view } else { 0 };
        share(self.dram.budget, beside + kept + working)
    }

    /// Takes note of whether there is room for writes. The caller holds nothing.
    pub(crate) fn note_dram(&self) {
        let publisher = lock(&self.publisher).dram_bytes();
        self.dram.note(self.beside(publisher).0, self.working());
    }

    /// Refuses a write that is no delete, where there is no DRAM for it.
    ///
    /// # Errors
    /// [`Error::DramBudget`].
    #[inline]
    pub(crate) fn check_dram(&self) -> Result<()> {
        match self.dram.tight.load(Ordering::Relaxed) {
            0 => Ok(()),
            used => Err(Error::DramBudget { used: used.max(self.dram.budget), budget: self.dram.budget }),
        }
    }

    /// Refuses a batch of more operations than a memtable's index should take at once.
    ///
    /// # Errors
    /// [`Error::DramBudget`].
    pub(crate) fn check_batch_dram(&self, ops: usize) -> Result<()> {
        let (used, budget) = (ops as u64 * OPERATION, self.dram.budget / BATCH_PART);
        if used > budget { Err(Error::DramBudget { used, budget }) } else { Ok(()) }
    }

    /// Makes the active memtable way for a batch that would take it over its limit. The caller holds nothing.
    pub(crate) fn make_way(&self, ops: usize) {
        let (generation, over) = {
            let active = &self.view.load().active;
            (active.generation, !active.is_empty() && !active.has_dram(ops as u64 * OPERATION))
        };
        if over {
            self.freeze(generation);
        }
    }

    /// Refuses a snapshot that might keep so much that no memtable would have room, where flushing first is of no help.
    ///
    /// # Errors
    /// [`Error::DramBudget`], [`Error::Poisoned`], [`Error::Full`] as the flush had them.
    pub(crate) fn check_snapshot_dram(&self) -> Result<()> {
        let is_scarce = || {
            let publisher = lock(&self.publisher).dram_bytes();
            let (beside, in_view) = self.beside(publisher);
            self.dram.left(beside + in_view, self.working()) < MEMTABLES * LEAST
        };
        if !is_scarce() {
            return Ok(());
        }
        self.settle(Due::Needed, crate::migrate::RECLAIM)?;
        if is_scarce() {
            Err(Error::DramBudget { used: self.dram().0.max(self.dram.budget), budget: self.dram.budget })
        } else {
            Ok(())
        }
    }
}
