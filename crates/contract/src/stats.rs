//! Statistics of a store.

use std::time::Duration;

use crate::durability::Durability;
use crate::metric::EngineCounters;

/// Bytes on the medium.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MediumUse {
    /// Bytes of the existing regions.
    pub size: u64,
    /// Maximum size of the store, in bytes.
    pub capacity: u64,
    /// Bytes of live records and index structures, with their rounding.
    pub live: u64,
    /// Bytes that hold nothing live and cannot be allocated yet.
    pub dead: u64,
    /// Bytes that can be allocated.
    pub free: u64,
}

/// Progress of the recovery.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RecoveryState {
    /// Whether everything is rebuilt.
    pub done: bool,
    /// Share done, 0 to 1.
    pub share: f64,
    /// Keys found so far.
    pub keys: u64,
    /// Damaged entries, records and places in use that recovery found. Nothing repairs them.
    /// [`Store::verify`](crate::Store::verify) names the places that are still in the files.
    pub corrupt: u64,
    /// Entries among them whose records are missing from scans and walks, because the records could
    /// not be read or did not match their entry.
    pub left_out: u64,
    /// Time from `open` to the first operation that could be served.
    pub ready_after: Duration,
    /// Time from `open` to the end of recovery; zero before the end.
    pub took: Duration,
}

/// Bytes written to one segment of the medium, since the store was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SegmentWear {
    /// Region of the store.
    pub region: u16,
    /// Number of the segment in its region.
    pub segment: u32,
    /// Bytes written, with their rounding.
    pub bytes: u64,
}

/// How evenly wearing media were written, since the store was created. A crash loses the newest
/// counts.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Wear {
    /// Segments that hold data; 0 if wear is not counted.
    pub segments: u64,
    /// Bytes written to all segments.
    pub bytes: u64,
    /// Bytes written to the hottest segment.
    pub max: u64,
    /// Mean bytes written per segment.
    pub mean: f64,
    /// The hottest segments, hottest first, at most [`Self::HOTTEST`].
    pub hottest: Vec<SegmentWear>,
}

impl Wear {
    /// Maximum number of named segments.
    pub const HOTTEST: usize = 16;

    /// Summarizes the wear of all segments.
    pub fn of(mut segments: Vec<SegmentWear>) -> Self {
        let count = segments.len() as u64;
        let bytes = segments.iter().map(|segment| segment.bytes).fold(0, u64::saturating_add);
        let mean = if count == 0 { 0.0 } else { bytes as f64 / count as f64 };
        segments.sort_unstable_by_key(|segment| (std::cmp::Reverse(segment.bytes), segment.region, segment.segment));
        segments.truncate(Self::HOTTEST);
        let max = segments.first().map_or(0, |hottest| hottest.bytes);
        Self { segments: count, bytes, max, mean, hottest: segments }
    }
}

/// A store's statistics, cheap enough to read every second.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// The engine's name.
    pub engine: &'static str,
    /// The medium: `dax`, `shm`, `file`, `sim`, with its particulars.
    pub medium: String,
    /// The durability that is provided.
    pub durability: Durability,
    /// Live keys, by a count that may lag behind the newest writes, or an estimate if the
    /// capability says so. [`Store::len`](crate::Store::len) is exact.
    pub keys: u64,
    /// DRAM of the store's own structures, in bytes, fixed part included.
    pub dram_bytes: u64,
    /// The fixed part of `dram_bytes`: DRAM of an empty store.
    pub dram_fixed_bytes: u64,
    /// The budget set for `dram_bytes`; 0 for none.
    pub dram_budget_bytes: u64,
    /// Use of the medium.
    pub space: MediumUse,
    /// Cache lines (or pages) flushed since open.
    pub flushes: u64,
    /// Fences (or syncs) executed since open.
    pub fences: u64,
    /// Bytes stored to the medium since open.
    pub bytes_written: u64,
    /// Bytes written per segment of the medium, since the store was created.
    pub wear: Wear,
    /// State of the recovery.
    pub recovery: RecoveryState,
    /// The engine's own numbers, typed and by name.
    pub engine_counters: EngineCounters,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wear_names_the_hottest_segments_first_and_counts_all() {
        let segments: Vec<SegmentWear> =
            (0..40).map(|segment| SegmentWear { region: 1, segment, bytes: u64::from(segment % 20) * 100 }).collect();
        let wear = Wear::of(segments);
        assert_eq!((wear.segments, wear.bytes, wear.max, wear.hottest.len()), (40, 38_000, 1900, 16));
        assert!((wear.mean - 950.0).abs() < 1e-9);
        let first: Vec<u32> = wear.hottest.iter().take(3).map(|segment| segment.segment).collect();
        assert_eq!(first, [19, 39, 18]);
        assert_eq!(Wear::of(Vec::new()), Wear::default());
    }
}
