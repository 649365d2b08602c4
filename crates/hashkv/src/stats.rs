//! The engine's own statistics.

use lodestore_contract::engine_statistics;
use lodestore_fluidkv::FluidkvStats;

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
