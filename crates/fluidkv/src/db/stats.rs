//! The store's statistics.

use std::sync::atomic::{AtomicU64, Ordering};

use lodestore_contract::threads::lock;
use lodestore_contract::{EngineCounters, MediumUse, ScrubStats, Stats, engine_statistics};

use super::store::FluidKv;
use crate::db::open_store::Inner;
use crate::layout::ENGINE;
use crate::tree::group_commit::SharedLog;
use crate::values::ValueLog;
use crate::values::segment::ValueSegment;

engine_statistics! {
    /// Statistics of a `fluidkv` store.
    pub struct FluidkvStats {
        /// Memtables in DRAM, the active one included.
        Gauge Count memtables,
        /// DRAM of all memtables.
        Gauge Bytes memtable_dram_bytes,
        /// Bytes of the write-ahead logs of all memtables.
        Gauge Bytes log_bytes,
        /// Ranges of the key space.
        Gauge Count ranges,
        /// Runs of the range that has the most.
        Gauge Count runs_most,
        /// Bytes of the runs of all ranges.
        Gauge Bytes buffered_bytes,
        /// Bytes of the stable tables of all ranges.
        Gauge Bytes stable_bytes,
        /// Tables that are compressed.
        Gauge Count compressed_tables,
        /// Bytes of compressed tables, as stored.
        Gauge Bytes compressed_bytes,
        /// Bytes of compressed tables, before compression.
        Gauge Bytes compressed_plain_bytes,
        /// Sorted tables of all ranges.
        Gauge Count tables,
        /// Flushes of memtables.
        Counter Count flushes,
        /// Bytes that flushes wrote to tables.
        Counter Bytes flushed_bytes,
        /// Compactions of a range.
        Counter Count compactions,
        /// Bytes that compactions wrote to tables.
        Counter Bytes compacted_bytes,
        /// Tables that a compaction moved without a rewrite.
        Counter Count moved_tables,
        /// Splits of a range.
        Counter Count range_splits,
        /// Joins of two ranges.
        Counter Count range_joins,
        /// Merges of small adjacent tables.
        Counter Count small_merges,
        /// Merges of tables for their expired keys.
        Counter Count expired_merges,
        /// Reads of single keys, about: one in 64 is counted.
        Counter Count reads,
        /// Share of recent reads whose key was absent.
        Gauge PerMille reads_absent_per_mille,
        /// Writes that were slowed down to the rate of flushes.
        Counter Count writers_slowed,
        /// Time by which writes were slowed down.
        Counter Nanoseconds writers_slowed_ns,
        /// Writes that waited for the end of a flush.
        Counter Count writers_stopped,
        /// Time that writes waited for the end of a flush.
        Counter Nanoseconds writers_stopped_ns,
        /// Groups of writes that one sync made durable.
        Counter Count group_commits,
        /// Segments of the value log.
        Gauge Count value_segments,
        /// Bytes of all segments of the value log.
        Gauge Bytes value_bytes,
        /// Bytes that are used in the segments of the value log.
        Gauge Bytes value_written_bytes,
        /// Bytes of dead values in the value log.
        Gauge Bytes value_dead_bytes,
        /// Segments that garbage collection freed.
        Counter Count value_collected_segments,
        /// Bytes of live values that garbage collection moved.
        Counter Bytes value_moved_bytes,
        /// Attempts to free space for a write to a full store.
        Counter Count reclaims,
        /// Bytes that flushes and compactions need to finish.
        Gauge Bytes reserve_needed_bytes,
        /// Bytes that are held in reserve for flushes and compactions.
        Gauge Bytes reserve_held_bytes,
        /// Bytes of the largest range.
        Gauge Bytes range_largest_bytes,
        /// Bytes of the manifest.
        Gauge Bytes manifest_bytes,
        /// Workers that may flush and compact now.
        Gauge Count workers_allowed,
        /// Buffered bytes at which a range is compacted, as a share of its stable bytes.
        Gauge Percent compaction_trigger_percent,
        /// Measured rate of the writers.
        Gauge BytesPerSecond log_bytes_per_s,
        /// Measured rate of a flush.
        Gauge BytesPerSecond flush_bytes_per_s,
        /// Measured rate of a compaction.
        Gauge BytesPerSecond compaction_bytes_per_s,
        /// Share of writes among recent operations.
        Gauge PerMille writes_per_mille,
        /// Bytes that compactions wrote for each byte of the logs.
        Gauge Percent compacted_per_log_percent,
        /// 1 while the manifest is still that of an earlier open, else 0.
        Gauge Count manifest_kept,
        /// Extents of the manifest.
        Gauge Count manifest_extents,
        /// Snapshots and scans that are open now.
        Gauge Count snapshots,
        ..scrub: ScrubStats,
    }
}

impl FluidKv {
    /// Returns the engine's own statistics.
    fn own_stats(&self) -> FluidkvStats {
        let inner = &self.running.inner;
        let view = inner.view.load();
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &inner.counts;
        let rates = inner.scheduler.governor.rates();
        let runs = view.ranges.list.iter().map(|range| range.runs.len() as u64);
        let values = inner.values.all();
        let of_values = |each: fn(&ValueSegment) -> u64| values.iter().map(|segment| each(segment)).sum::<u64>();
        let sorted = || view.ranges.list.iter().flat_map(|range| range.sorted());
        let (manifest_kept, manifest_extents, manifest_bytes) = lock(&inner.publisher).manifest();
        let compressed = || sorted().flat_map(|sorted| &sorted.tables).filter_map(|table| table.compressed());
        FluidkvStats {
            memtables: 1 + view.frozen.len() as u64,
            memtable_dram_bytes: view.memtables().map(|memtable| memtable.dram_bytes()).sum(),
            log_bytes: view.memtables().map(|memtable| memtable.log_bytes()).sum(),
            ranges: view.ranges.list.len() as u64,
            runs_most: runs.max().unwrap_or(0),
            buffered_bytes: view.ranges.list.iter().map(|range| range.run_bytes()).sum(),
            stable_bytes: view.ranges.list.iter().map(|range| range.stable.bytes).sum(),
            compressed_tables: compressed().count() as u64,
            compressed_bytes: compressed().map(|(stored, _)| stored).sum(),
            compressed_plain_bytes: compressed().map(|(_, plain)| plain).sum(),
            tables: sorted().map(|sorted| sorted.tables.len() as u64).sum(),
            flushes: load(&counts.flushes),
            flushed_bytes: load(&counts.flushed_bytes),
            compactions: load(&counts.compactions),
            compacted_bytes: load(&counts.compacted_bytes),
            moved_tables: load(&counts.moved_tables),
            range_splits: load(&counts.splits),
            range_joins: load(&counts.joins),
            small_merges: load(&counts.small_merges),
            expired_merges: load(&counts.expired_merges),
            reads: load(&counts.reads),
            reads_absent_per_mille: inner.absent_per_mille(),
            writers_slowed: load(&counts.throttled),
            writers_slowed_ns: load(&counts.throttled_ns),
            writers_stopped: load(&counts.stalled),
            writers_stopped_ns: load(&counts.stalled_ns),
            group_commits: load(&counts.commits),
            value_segments: values.len() as u64,
            value_bytes: of_values(|segment| segment.bytes),
            value_written_bytes: of_values(ValueSegment::written),
            value_dead_bytes: of_values(|segment| segment.dead.load(Ordering::Relaxed)),
            value_collected_segments: load(&inner.values.collected),
            value_moved_bytes: load(&inner.values.moved_bytes),
            reclaims: load(&counts.reclaimed),
            reserve_needed_bytes: inner.reserve.needed_bytes(),
            reserve_held_bytes: inner.reserve.held_bytes(),
            range_largest_bytes: inner.reserve.largest_range(),
            manifest_bytes,
            workers_allowed: inner.scheduler.governor.allowed() as u64,
            compaction_trigger_percent: (inner.scheduler.governor.trigger() * 100.0) as u64,
            log_bytes_per_s: rates[0],
            flush_bytes_per_s: rates[1],
            compaction_bytes_per_s: rates[2],
            writes_per_mille: rates[3],
            compacted_per_log_percent: rates[4],
            manifest_kept: manifest_kept.into(),
            manifest_extents,
            snapshots: inner.order.snapshots() as u64,
            scrub: inner.scrub.stats(),
        }
    }

    /// Implements [`lodestore_contract::Store::stats`].
    pub(super) fn account(&self) -> Stats {
        let inner = &self.running.inner;
        if inner.open.is_foreign() {
            return Stats { engine: ENGINE, ..Stats::default() };
        }
        let (dram_bytes, dram_fixed_bytes) = inner.dram();
        let view = inner.view.load();
        let items = view.ranges.list.iter().flat_map(|range| range.sorted()).flat_map(|sorted| &sorted.tables);
        let in_tables: u64 =
            items.map(|table| table.descriptor.items.saturating_sub(2 * table.descriptor.tombstones)).sum();
        Stats {
            engine: ENGINE,
            medium: inner.pool.medium_name(),
            durability: inner.pool.durability(),
            keys: in_tables + view.memtables().map(|memtable| memtable.index.len() as u64).sum::<u64>(),
            dram_bytes,
            dram_fixed_bytes,
            dram_budget_bytes: inner.options.dram_budget,
            space: space_of(inner),
            flushes: inner.pool.flushes(),
            fences: inner.pool.fences(),
            bytes_written: inner.pool.bytes_written(),
            wear: inner.pool.allocator().wear(&inner.pool),
            recovery: inner.recovery.state(),
            engine_counters: EngineCounters::new(self.own_stats()),
        }
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
}

/// Attempts to read the use of the medium while the reserve does not change.
const SPACE_ATTEMPTS_MAX: usize = 8;

/// Returns the use of the medium. Space held by the reserve counts as free. The allocator and the
/// reserve have their own locks, so a reserve that changes in between is read again.
fn space_of(inner: &Inner) -> MediumUse {
    let mut held = inner.reserve.held_bytes();
    let mut space = inner.pool.space();
    for _ in 0..SPACE_ATTEMPTS_MAX {
        let now = inner.reserve.held_bytes();
        if now == held {
            break;
        }
        held = now;
        space = inner.pool.space();
    }
    MediumUse { live: space.live.saturating_sub(held), free: space.free + held, ..space }
}
