//! The state that all parts of an open store share.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use lodestore_contract::scrub::Scrub;
use lodestore_contract::{Event, Result};
use lodestore_media::{Guard, OpenState, Pool, Quiet};

use crate::background::Migration;
use crate::counts::Counts;
use crate::dram::Dram;
use crate::locks::{Order, lock};
use crate::memtable::{Memtable, MemtableLimits, MemtableOptions};
use crate::options::FluidOptions;
use crate::publisher::{Publisher, publish};
use crate::recover::Recovery;
use crate::reserve::Reserve;
use crate::separator::Separator;
use crate::shared_log::SharedLog;
use crate::sizes::{MEMTABLES_MAX, Sizes};
use crate::table::Reads;
use crate::tables::Identities;
use crate::value_log::ValueLog;
use crate::view::View;

/// The result of an attempt to freeze a memtable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rotation {
    Done,
    /// The memtable is frozen already, or empty.
    NotDue,
    /// The maximum number of memtables waits.
    AtLimit,
}

/// A write in progress. While it lives, `close` waits. Its events are reported after it ends, when
/// its locks are free.
pub(crate) struct WriteGuard<'a> {
    _guard: Guard<'a>,
    _quiet: Quiet,
}

/// An open store.
///
/// The owner's event sink may use the store, so it is never called with a lock held. Writes,
/// background tasks and walks are [`Quiet`]. Reads of single keys report events after they end.
pub(crate) struct Inner {
    pub(crate) pool: Arc<Pool>,
    pub(crate) options: FluidOptions,
    pub(crate) sizes: Sizes,
    pub(crate) reads: Reads,
    pub(crate) order: Order,
    /// The log that all threads share, if they share one.
    pub(crate) log: Option<SharedLog>,
    pub(crate) view: ArcSwap<View>,
    pub(crate) publisher: Mutex<Publisher>,
    pub(crate) migration: Migration,
    pub(crate) recovery: Recovery,
    pub(crate) counts: Counts,
    pub(crate) identities: Identities,
    pub(crate) values: Arc<ValueLog>,
    pub(crate) reserve: Arc<Reserve>,
    pub(crate) dram: Dram,
    /// Keeps values outside the tables, if set.
    pub(crate) separator: Option<Arc<dyn Separator>>,
    /// Held while the separator is informed of dead values.
    pub(crate) death_reports: Mutex<()>,
    /// Batches whose entries are being added to the index.
    pub(crate) batches: AtomicU64,
    /// The share of absent keys among looked-up keys (`read.rs`).
    pub(crate) absent: AtomicU32,
    pub(crate) seed: u64,
    pub(crate) scrub: Scrub,
    /// Whether operations are served: not after a close, and not in a forked process.
    pub(crate) open: OpenState,
    /// Opened read-only because its structure is damaged: the pool accepts no writes.
    pub(crate) read_only: bool,
}

impl Inner {
    /// Begins a read. While the guard lives, `close` waits.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Guard<'_>> {
        let guard = self.pool.epochs().pin();
        if self.open.is_open() { Ok(guard) } else { Err(self.open.refusal()) }
    }

    /// Begins a write.
    #[inline]
    pub(crate) fn enter_write(&self) -> Result<WriteGuard<'_>> {
        let write = WriteGuard { _guard: self.enter()?, _quiet: Quiet::begin() };
        self.pool.check()?;
        Ok(write)
    }

    /// Reports an event to the owner's event sink, after the thread's current operation.
    pub(crate) fn report(&self, event: &Event) {
        self.pool.tell(event);
    }

    /// Creates a memtable for writes, newer than all others.
    fn new_memtable(&self, generation: u64, publisher: &Publisher) -> Arc<Memtable> {
        let limits = MemtableLimits {
            log_bytes: self.sizes.memtable_log_bytes(publisher.table_bytes()),
            dram_bytes: self.memtable_share(publisher),
        };
        let options = MemtableOptions::new(&self.sizes, generation, self.order.last(), self.seed, limits);
        let memtable = Arc::new(Memtable::new(&self.pool, &options));
        self.dram.add(Arc::clone(&memtable) as _);
        memtable
    }

    /// Freezes the active memtable if it has this generation and is not empty, and puts a new one
    /// in its place. If the maximum number of memtables waits, calls `at_limit` instead, still
    /// under the publisher's lock. The caller holds no stripe and has no write in progress.
    pub(crate) fn rotate_or(&self, generation: u64, at_limit: impl FnOnce()) -> Rotation {
        let mut publisher = lock(&self.publisher);
        let view = self.view.load();
        if view.active.generation != generation || view.active.is_empty() {
            return Rotation::NotDue;
        }
        if view.frozen.len() as u64 >= MEMTABLES_MAX - 1 {
            at_limit();
            return Rotation::AtLimit;
        }
        let mut frozen = Vec::with_capacity(view.frozen.len() + 1);
        frozen.push(Arc::clone(&view.active));
        frozen.extend(view.frozen.iter().cloned());
        Counts::add(&self.counts.logged_bytes, view.active.log_bytes());
        let count = frozen.len();
        // An append goes to the active memtable, never to an older one.
        let append_lock = self.log.as_ref().map(SharedLog::append_lock);
        let fresh = self.new_memtable(generation + 1, &publisher);
        publish(&self.view, &mut publisher, fresh, frozen);
        drop(append_lock);
        view.active.flush_ends();
        self.migration.set_frozen(count);
        Rotation::Done
    }

    /// Like [`Self::rotate_or`], for the memtable that is active now.
    pub(crate) fn rotate(&self) -> Rotation {
        let generation = self.view.load().active.generation;
        self.rotate_or(generation, || ())
    }

    /// Returns the bytes that can still be allocated, including regions that can be added.
    pub(crate) fn headroom(&self) -> u64 {
        self.pool.room_on_medium() + self.pool.space().free
    }
}
