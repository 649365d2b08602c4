//! The state that all parts of an open store share.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use lodestore_contract::scrub::Scrub;
use lodestore_contract::{Event, Result};
use lodestore_media::{Guard, OpenState, Pool, Quiet, slots_used};

use crate::commit::SharedLog;
use crate::dram::{Dram, TABLE_BUILD_FACTOR, TABLE_HANDLE_BYTES};
use crate::locks::{Order, lock};
use crate::memtable::{Memtable, MemtableOptions, TAIL_COUNT};
use crate::migrate::Migration;
use crate::options::FluidOptions;
use crate::output::Identities;
use crate::publisher::{Publisher, publish};
use crate::recover::Recovery;
use crate::reserve::Reserve;
use crate::separate::Separator;
use crate::table::{Reads, TableOptions};
use crate::value_log::ValueLog;
use crate::view::View;

/// Sizes in use: from the options, limited by the capacity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) memtable: u64,
    pub(crate) segment: u64,
    pub(crate) range: u64,
    /// Values of this many bytes or more go to the value log.
    pub(crate) value_threshold: usize,
    /// Bytes of a value segment.
    pub(crate) value_segment: u64,
    /// Table options of flushes, and of compactions.
    pub(crate) table: TableOptions,
    pub(crate) stable: TableOptions,
    /// Whether reads compare checksums.
    pub(crate) reads: Reads,
}

/// Most memtables of a store: one is active, the others wait for their flush. `rotate_or` enforces
/// this.
pub(crate) const MEMTABLES_MAX: u64 = 4;
/// Divisor: a memtable's log reaches at most this share of the bytes of the tables, or
/// `SMALL_MEMTABLE_LOG_BYTES` bytes if that is more. An index of some 8 MiB covers that many bytes
/// of small records.
const MEMTABLE_LOG_DIVISOR: u64 = 8;
const SMALL_MEMTABLE_LOG_BYTES: u64 = 16 << 20;
/// Segments are not made shorter than this for many threads, in bytes.
const THREAD_SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// Tables are not made smaller than this for lack of DRAM, in bytes.
const TABLE_BYTES_MIN: u64 = 16 << 10;
/// Divisor of the capacity: the largest log of one memtable. A range may have twice that.
const MEMTABLE_CAPACITY_DIVISOR: u64 = 32;

impl Sizes {
    pub(crate) fn of(options: &FluidOptions, capacity: u64) -> Self {
        let part = (capacity / MEMTABLE_CAPACITY_DIVISOR).max(4 << 10);
        let range = options.range_bytes.min(2 * part);
        let workers = options.workers.max(1) as u64;
        // All tables being built at a time use a quarter of the budget.
        let built = options.dram_budget / 4 / TABLE_BUILD_FACTOR / workers;
        let table_bytes = options.table_bytes.min((range / 2).max(4 << 10)).min(built.max(TABLE_BYTES_MIN));
        // While a range is compacted, its tables exist twice.
        let most = (options.dram_budget / 16 / TABLE_HANDLE_BYTES / workers).max(8) * table_bytes;
        let (range, table_bytes) = (range.min(most), table_bytes as usize);
        let memtable = options.memtable_bytes.min(part).min(most / 4);
        let segment = options.segment_bytes.min((memtable / 4).max(1 << 10));
        let block_bytes = |wanted: u32| (wanted as usize).min(table_bytes / 4).max(256);
        let table = TableOptions {
            block_bytes: block_bytes(options.block_bytes),
            table_bytes,
            filter_bits: options.filter_bits as u8,
            compress: false,
        };
        let compress = options.compression.is_on();
        let stable = match options.compressed_block_bytes() {
            wanted if compress => TableOptions { block_bytes: block_bytes(wanted), compress, ..table },
            _ => table,
        };
        Self {
            memtable,
            segment,
            range,
            value_threshold: if options.value_threshold == 0 { usize::MAX } else { options.value_threshold as usize },
            value_segment: options.value_segment_bytes.min(part),
            table,
            stable,
            reads: options.verify_reads.reads(),
        }
    }
}

impl Sizes {
    /// Returns the parameters of a memtable of this generation. Its writes have numbers above
    /// `base`. `limits`: bytes of log, and of DRAM.
    pub(crate) fn memtable_options(
        &self,
        generation: u64,
        base: u64,
        seed: u64,
        limits: (u64, u64),
    ) -> MemtableOptions {
        // A memtable is full when its segments reach its log limit, however little is written in
        // them. Each thread has several segments.
        let quarter = (limits.0 / 4).max(1 << 10);
        let each = (quarter / slots_used().clamp(1, TAIL_COUNT) as u64).max(THREAD_SEGMENT_BYTES_MIN);
        let segment_bytes = self.segment.min(quarter).min(each);
        MemtableOptions { generation, base, segment_bytes, limits, seed, reads: self.reads }
    }

    /// Returns the bytes of log of the next memtable, given the bytes of the tables. Compactions
    /// follow the ratio of buffered to stable bytes (`migrate.rs`). As long as several memtables
    /// are needed to trigger one, the size of a memtable costs no extra writes. The index of a
    /// small memtable also stays in the processor's cache.
    pub(crate) fn memtable_log_bytes(&self, tables: u64) -> u64 {
        self.memtable.min((tables / MEMTABLE_LOG_DIVISOR).max(SMALL_MEMTABLE_LOG_BYTES))
    }

    /// Returns the maximum DRAM of background work with this many workers. Each needs a table being
    /// built, and the handles of a range's new tables in addition to its old ones.
    pub(crate) fn background_dram(&self, workers: usize) -> u64 {
        (TABLE_BUILD_FACTOR * self.table.table_bytes as u64 + self.handle_bytes(2 * self.range)) * workers.max(1) as u64
    }

    /// Returns the DRAM of the handles of tables with this many bytes together.
    pub(crate) fn handle_bytes(&self, bytes: u64) -> u64 {
        (bytes / self.table.table_bytes as u64 + 1) * TABLE_HANDLE_BYTES
    }
}

/// Counters since the open.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) flushes: AtomicU64,
    pub(crate) flushed_bytes: AtomicU64,
    /// Bytes of log of the memtables that were frozen.
    pub(crate) logged_bytes: AtomicU64,
    /// Lookups, approximately: sampled at one in 64.
    pub(crate) reads: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) compacted_bytes: AtomicU64,
    pub(crate) moved_tables: AtomicU64,
    pub(crate) splits: AtomicU64,
    pub(crate) joins: AtomicU64,
    /// Merges of small adjacent tables.
    pub(crate) small_merges: AtomicU64,
    /// Merges of tables with many expired pairs.
    pub(crate) expired_merges: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) throttled_ns: AtomicU64,
    pub(crate) stalled: AtomicU64,
    pub(crate) stalled_ns: AtomicU64,
    pub(crate) reclaimed: AtomicU64,
    /// Groups of writes that became durable together.
    pub(crate) commits: AtomicU64,
}

impl Counts {
    pub(crate) fn add(count: &AtomicU64, by: u64) {
        count.fetch_add(by, Ordering::Relaxed);
    }
}

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
        let limits = (self.sizes.memtable_log_bytes(publisher.table_bytes()), self.memtable_share(publisher));
        let options = self.sizes.memtable_options(generation, self.order.last(), self.seed, limits);
        let memtable = Arc::new(Memtable::new(&self.pool, &options));
        self.dram.add(&memtable);
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

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_log_of_a_memtable_grows_with_the_tables() {
        let sizes = Sizes::of(&FluidOptions::default(), 64 << 30);
        let of = |mib: u64| sizes.memtable_log_bytes(mib * MIB) / MIB;
        assert_eq!([0, 64, 128, 256, 512, 1 << 20].map(of), [16, 16, 16, 32, 64, 64]);
        let small = Sizes::of(&FluidOptions { memtable_bytes: MIB, ..FluidOptions::default() }, 64 << 30);
        assert_eq!([0, 1 << 20].map(|mib| small.memtable_log_bytes(mib * MIB)), [MIB; 2]);
    }

    /// Regression: segments sized for a large memtable filled a small one at its first put. The
    /// memtable was frozen and flushed empty.
    #[test]
    fn segments_are_short_compared_with_their_memtable() {
        let long = FluidOptions { segment_bytes: 64 * MIB, memtable_bytes: 1 << 30, ..FluidOptions::default() };
        let sizes = Sizes::of(&long, 64 << 30);
        for limit in [MIB, 16 * MIB, 1 << 30] {
            let made = sizes.memtable_options(1, 0, 0, (limit, 1 << 30)).segment_bytes;
            assert!(made <= limit / 4 && made >= (limit / 4).min(THREAD_SEGMENT_BYTES_MIN), "{made} of {limit}");
        }
        let usual = Sizes::of(&FluidOptions::default(), 64 << 30);
        assert_eq!(usual.memtable_options(1, 0, 0, (64 << 10, 1 << 20)).segment_bytes, 16 << 10);
    }
}
