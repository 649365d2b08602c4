//! The state of an open store without its background work: the tree of memtables and tables, and
//! the accounts of its space. Background work (`background/`) and the operations (`db/`) share it.

mod batch_append;
pub(crate) mod budget;
pub(crate) mod counts;
pub(crate) mod group_commit;
mod large_values;
pub(crate) mod sequence;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use lodestore_contract::{Error, Event, FoundBy, Result};
use lodestore_media::{Guard, OpenState, Pool, Quiet};

use crate::memtable::{Memtable, MemtableLimits, MemtableOptions};
use crate::options::FluidOptions;
use crate::space::dram::Dram;
use crate::space::reserve::Reserve;
use crate::space::sizes::Sizes;
use crate::sst::Reads;
use crate::tree::counts::Counts;
use crate::tree::group_commit::SharedLog;
use crate::tree::sequence::Order;
use crate::values::ValueLog;
use crate::values::separator::Separator;
use crate::version::publish::Publisher;
use crate::version::tables::{Identities, LookupOptions};
use crate::version::view::View;

/// Added to the moving share of absent keys for an absent key. A sixteenth of the share decays with
/// each sample, so 16 units are 100 percent.
pub(crate) const ABSENT_SAMPLE_FACTOR: u32 = 4096;
/// Share above which filters of stable tables are used: one lookup in sixteen.
const ABSENT_RATIO_MIN: u32 = ABSENT_SAMPLE_FACTOR;

/// A write in progress. While it lives, `close` waits. Its events are reported after it ends, when
/// its locks are free.
pub(crate) struct WriteGuard<'a> {
    _guard: Guard<'a>,
    _quiet: Quiet,
}

/// The tree of an open store.
///
/// The owner's event sink may use the store, so it is never called with a lock held. Writes,
/// background tasks and walks are [`Quiet`]. Reads of single keys report events after they end.
pub(crate) struct Tree {
    pub(crate) pool: Arc<Pool>,
    pub(crate) options: FluidOptions,
    pub(crate) sizes: Sizes,
    pub(crate) reads: Reads,
    pub(crate) order: Order,
    /// The log that all threads share, if they share one.
    pub(crate) log: Option<SharedLog>,
    pub(crate) view: ArcSwap<View>,
    pub(crate) publisher: Mutex<Publisher>,
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
    /// The share of absent keys among looked-up keys (`db/read.rs`).
    pub(crate) absent: AtomicU32,
    pub(crate) seed: u64,
    /// Whether operations are served: not after a close, and not in a forked process.
    pub(crate) open: OpenState,
}

impl Tree {
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
        self.pool.report_event(event);
    }

    /// Creates a memtable for writes, newer than all others.
    pub(crate) fn new_memtable(&self, generation: u64, publisher: &Publisher) -> Arc<Memtable> {
        let limits = MemtableLimits {
            log_bytes: self.sizes.memtable_log_bytes(publisher.table_bytes()),
            dram_bytes: self.memtable_share(publisher),
        };
        let options = MemtableOptions::new(&self.sizes, generation, self.order.last(), self.seed, limits);
        let memtable = Arc::new(Memtable::new(&self.pool, &options));
        self.dram.add(Arc::clone(&memtable) as _);
        memtable
    }

    /// Returns the bytes that can still be allocated, including regions that can be added.
    pub(crate) fn headroom(&self) -> u64 {
        self.pool.room_on_medium() + self.pool.space().free
    }

    /// Returns the bytes that background work may use.
    pub(crate) fn usable_bytes(&self) -> u64 {
        self.headroom() + self.reserve.held_bytes()
    }

    /// Returns how tables are read now. Filters of stable tables are used only if enough of the
    /// recent keys were absent.
    #[inline]
    pub(crate) fn lookup_options(&self) -> LookupOptions {
        LookupOptions { reads: self.reads, filtered: self.absent.load(Ordering::Relaxed) > ABSENT_RATIO_MIN }
    }

    /// Reports wrong bytes to the owner's event sink.
    #[cold]
    pub(crate) fn report_corruption(&self, error: &Error) {
        if let Error::Corrupt { place, what, .. } = error {
            self.report(&Event::Corruption { found_by: FoundBy::Read, place: place.clone(), what: what.clone() });
        }
    }
}
