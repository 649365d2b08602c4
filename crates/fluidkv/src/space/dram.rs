//! DRAM accounting of an open store, and the share of the DRAM budget for memtables.
//!
//! The budget covers everything that grows:
//! * The index, filter and older versions of each memtable that is still held.
//! * The handles of tables, including tables that only a snapshot holds.
//! * The DRAM of the manifest's state, the value log and the pool.
//! * Tables that are being built.
//!
//! Rule: a memtable may use 3/16 of the DRAM that everything else leaves when the memtable is
//! created. At most four memtables exist at a time (`background/mod.rs`), and a quarter is left for
//! later growth. While a snapshot is held, the existing memtables count as everything else, because
//! the snapshot may keep them after their flush. Each new memtable is then smaller than the one
//! before, and their sum stays below the budget, however long the snapshot is held. Everything else
//! includes the maximum that background work uses: one table being built per worker, and the tables
//! of a range twice. If the largest range has outgrown its compactions, its tables are counted.
//!
//! If not even four memtables of [`MEMTABLE_DRAM_MIN`] bytes fit, writes and snapshots are refused,
//! after an attempt to free DRAM. Deletes, reads and scans continue.
//!
//! Invariants
//! 1. A memtable checks its DRAM every `DRAM_CHECK_LOG_BYTES` bytes of a log and after each
//!    batch, not only when a segment begins. The excess over its limit is at most one step of its
//!    index and the writes of each thread in `DRAM_CHECK_LOG_BYTES` bytes of log.
//! 2. [`Gauge`] counts each handle from its creation until it is dropped, regardless of its holder.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use lodestore_contract::threads::lock;
use lodestore_media::Pool;

use crate::space::gauge::Gauge;
use crate::space::sizes::MEMTABLES_MAX;

/// Least DRAM of a memtable, in bytes.
pub(crate) const MEMTABLE_DRAM_MIN: u64 = 32 << 10;
/// A memtable is frozen this far below its share, or a quarter below if that is less. The
/// difference is for writes until the freeze (Invariant 1).
const FREEZE_MARGIN_BYTES: u64 = 24 << 10;

/// A structure whose DRAM changes, and counts while it is held.
pub(crate) trait DramUse: Send + Sync {
    /// Returns the bytes of DRAM in use now.
    fn dram_bytes(&self) -> u64;
}

/// The DRAM account of an open store.
pub(crate) struct Dram {
    pub(crate) budget: u64,
    /// Maximum DRAM of background work.
    pub(crate) background: u64,
    /// DRAM of table handles.
    pub(crate) tables: Arc<Gauge>,
    /// DRAM of tables that are being built.
    pub(crate) built: Gauge,
    /// Every memtable that is still held.
    memtables: Mutex<Vec<Weak<dyn DramUse>>>,
    /// DRAM in use when too little was left for writes; 0: writes are admitted.
    pub(crate) refused_at: AtomicU64,
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
    pub(crate) fn add(&self, memtable: Arc<dyn DramUse>) {
        let mut memtables = lock(&self.memtables);
        memtables.retain(|memtable| memtable.strong_count() > 0);
        memtables.push(Arc::downgrade(&memtable));
    }

    /// Returns the DRAM of all memtables that are still held.
    pub(crate) fn memtables(&self) -> u64 {
        // The upgraded reference may become the last one. Dropping a memtable frees its logs, which
        // must not happen under the lock.
        let held: Vec<_> = lock(&self.memtables).iter().filter_map(Weak::upgrade).collect();
        held.iter().map(|memtable| memtable.dram_bytes()).sum()
    }

    /// Returns the DRAM left, given the DRAM in use and the maximum of background work.
    pub(crate) fn remaining(&self, others: u64, background: u64) -> u64 {
        self.budget.saturating_sub(others + background)
    }

    /// Records whether writes are admitted, given the DRAM of all but memtables that will be
    /// flushed.
    pub(crate) fn update_admission(&self, others: u64, background: u64) {
        let refused_at =
            if self.remaining(others, background) < MEMTABLES_MAX * MEMTABLE_DRAM_MIN { others } else { 0 };
        self.refused_at.store(refused_at, Ordering::Relaxed);
    }
}

/// Returns the DRAM of the pool itself.
pub(crate) fn pool_dram(pool: &Pool) -> u64 {
    pool.allocator().dram_bytes() + pool.epochs().dram_bytes()
}
