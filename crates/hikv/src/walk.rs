//! Walks over the segments of a partition.

use lodestore_contract::Result;
use lodestore_media::Pool;

use crate::table::{Segment, SegmentLocation, Slot, Table, damaged_word, named_by, used_slots};

/// Number of prefixes of 32 bits. The prefixes of a partition's segments are aligned to 32 bits.
pub(crate) const PREFIX_COUNT: u64 = 1 << 32;

/// Walks the segments of a partition in prefix order, safely concurrent with splits. `each` gets a
/// segment's used slots only if the directory still named it after the copy.
///
/// # Errors
/// Errors of `each`; [`Error::Corrupt`](lodestore_contract::Error::Corrupt) for a damaged directory
/// word.
pub(crate) fn walk(
    table: &Table,
    pool: &Pool,
    partition: usize,
    each: impl FnMut(SegmentLocation, Vec<Slot>) -> Result<bool>,
) -> Result<bool> {
    walk_from(table, pool, (partition, 0), each)
}

/// Walks as [`walk`] does, from the segment whose prefix begins at `covered` on.
///
/// # Errors
/// As [`walk`].
pub(crate) fn walk_from(
    table: &Table,
    pool: &Pool,
    (partition, mut covered): (usize, u64),
    mut each: impl FnMut(SegmentLocation, Vec<Slot>) -> Result<bool>,
) -> Result<bool> {
    while covered < PREFIX_COUNT {
        let segment_at = || {
            let directory = table.roots.load(partition);
            named_by(pool, directory, partition, covered >> (32 - directory.depth))
        };
        let is_in_region = |segment: &Segment| pool.contains(segment.at, table.shape.segment_bytes as usize);
        let Some(segment) = segment_at().filter(is_in_region) else { return Err(damaged_word(partition)) };
        let depth = segment.depth;
        let prefix = covered >> (32 - depth);
        let found = used_slots(table, pool, segment);
        if segment_at() != Some(segment) {
            continue;
        }
        if !each(SegmentLocation { segment, partition, prefix }, found)? {
            return Ok(false);
        }
        covered += 1 << (32 - depth);
    }
    Ok(true)
}
