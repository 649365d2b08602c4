//! The engine's own statistics.

use std::sync::atomic::{AtomicU64, Ordering};

use lodestore_contract::{EngineCounters, Stats, Store, engine_statistics};
use lodestore_fluidkv::{FluidKv, FluidkvStats};

use crate::layout::ENGINE;
use crate::values::{Values, lock};

engine_statistics! {
    /// Statistics of a `hashkv` store: those of its values file, and those of its LSM.
    pub struct HashkvStats {
        /// Segments of the values file.
        Gauge Count values_segments,
        /// Free segments that hold their space.
        Gauge Count values_segments_free,
        /// Free segments that gave their space back to the medium.
        Gauge Count values_segments_holes,
        /// Segments that are freed when no reader needs them.
        Gauge Count values_segments_waiting,
        /// Segments with a part that could not be read or written.
        Gauge Count values_segments_damaged,
        /// Live bytes of the values file, about.
        Gauge Bytes values_live_bytes,
        /// Groups of keys.
        Gauge Count values_groups,
        /// Segments that flushes leave to collections.
        Gauge Count values_segments_spare,
        /// Values of this length and longer stay in the value log of the LSM.
        Gauge Bytes values_longest_bytes,
        /// Values that flushes wrote to the values file.
        Counter Count values_separated,
        /// Bytes of the records that flushes wrote to the values file.
        Counter Bytes values_separated_bytes,
        /// Values that stayed in the LSM, because no segment was free.
        Counter Count values_kept_inline,
        /// Values that were written to the values file after their flush.
        Counter Count values_separated_late,
        /// Collections of garbage.
        Counter Count values_collections,
        /// Collections that found no space for the live records.
        Counter Count values_collections_failed,
        /// 1 while puts of long values are refused, else 0.
        Gauge Count values_refused_now,
        /// Live records that collections moved.
        Counter Count values_moved,
        /// Bytes of the records that collections moved.
        Counter Bytes values_moved_bytes,
        /// Bytes of the records that collections moved to the cold storage.
        Counter Bytes values_cooled_bytes,
        /// Bytes that collections read.
        Counter Bytes values_scanned_bytes,
        /// Segments that collections freed.
        Counter Count values_segments_freed,
        /// Times that the background thread looked for work.
        Counter Count values_looks,
        /// Splits of a group.
        Counter Count values_group_splits,
        /// Bytes written to the values file.
        Counter Bytes values_written_bytes,
        /// Reads of the values file.
        Counter Count values_reads,
        /// Bytes read from the values file.
        Counter Bytes values_read_bytes,
        ..lsm: FluidkvStats,
    }
}

/// Returns the statistics of the store: the LSM's and the file's.
pub(crate) fn account(index: &FluidKv, values: &Values) -> Stats {
    let mut stats = index.stats();
    stats.engine = ENGINE;
    if values.pool.is_foreign() {
        return stats;
    }
    let (segments, live, groups) = {
        let space = lock(&values.space);
        stats.dram_bytes += space.dram_bytes();
        (space.counts(), space.live_bytes(), space.groups())
    };
    let bytes = |count: u32| u64::from(count) * u64::from(values.sizes.segment_bytes);
    let (all, open) = (bytes(segments.all - segments.holes), bytes(segments.free));
    // The superblock's block is counted in no class.
    stats.space.size += all;
    stats.space.capacity = values.pool.options().capacity;
    stats.space.live += live;
    stats.space.free += open;
    stats.space.dead += all.saturating_sub(open + live);
    let counters = values.file.counts();
    stats.bytes_written += counters.bytes_written;
    stats.fences += counters.syncs;
    let own = &values.counts;
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let lsm = stats.engine_counters.of::<FluidkvStats>().copied().unwrap_or_default();
    stats.engine_counters = EngineCounters::new(HashkvStats {
        values_segments: u64::from(segments.all),
        values_segments_free: u64::from(segments.free),
        values_segments_holes: u64::from(segments.holes),
        values_segments_waiting: u64::from(segments.waiting),
        values_segments_damaged: u64::from(segments.damaged),
        values_live_bytes: live,
        values_groups: groups as u64,
        values_segments_spare: u64::from(values.gc_reserve_segments()),
        values_longest_bytes: values.sizes.longest as u64,
        values_separated: read(&own.separated),
        values_separated_bytes: read(&own.separated_bytes),
        values_kept_inline: read(&own.kept),
        values_separated_late: read(&own.late),
        values_collections: read(&own.collections),
        values_collections_failed: read(&own.failed),
        values_refused_now: values.full.load(Ordering::Relaxed).into(),
        values_moved: read(&own.moved),
        values_moved_bytes: read(&own.moved_bytes),
        values_cooled_bytes: read(&own.cold_bytes),
        values_scanned_bytes: read(&own.scanned_bytes),
        values_segments_freed: read(&own.freed),
        values_looks: read(&own.work_checks),
        values_group_splits: read(&own.splits),
        values_written_bytes: counters.bytes_written,
        values_reads: counters.reads,
        values_read_bytes: counters.bytes_read,
        lsm,
    });
    stats
}
