//! Segments of the extent table that no directory names, after an unclean stop.
//!
//! A crash before the commit of a split leaves such a segment N. The split's source S then still
//! has all entries that N has, in the same slots: no write changes S before the commit, and a split
//! makes S durable before it stores N. An entry of N that S lacks therefore shows that the split
//! was done, and that the directory or its root word is older.
//!
//! Invariants:
//! 1. Before an open serves the store, each unnamed segment is durably zeroed. Then S may change
//!    independently of N, and the next owner of the space finds no entries.
//! 2. Free space never has entries of a split: a split stores nothing in an extent before the
//!    extent word is known to be durable, and an open zeroes the extent before the sweep frees it.
//! 3. A salvage that found damage zeroes nothing. It marks the store as damaged, so no later strict
//!    open trusts the index.

use lodestore_contract::Result;
use lodestore_media::{NvPtr, Pool};

use crate::entry::Entry;
use crate::hash::DEPTH_MAX;
use crate::layout::{KIND_SEGMENT, SegmentHeader};
use crate::split::older_directory;
use crate::table::{Segment, SegmentLocation, Slot, Table, Verdict, used_slots};

/// Checks that no unnamed segment has an entry that its source lacks. Then zeroes all of them, if
/// `zeroes`. `named` are the positions of the segments that the repaired directories name. Must be
/// called before any allocation and before the index is served.
///
/// # Errors
/// [`Error::Corrupt`] if a directory is older than a split; nothing is zeroed then.
pub(crate) fn check(table: &Table, pool: &Pool, mut named: Vec<u64>, zeroes: bool) -> Result<()> {
    named.sort_unstable();
    let bytes = table.shape.segment_bytes as usize;
    let mut unnamed = pool.allocator().extents_of(pool, KIND_SEGMENT);
    unnamed.retain(|at| named.binary_search(&at.raw()).is_err() && pool.contains(*at, bytes));
    {
        // The check of an entry reads its record.
        let _guard = pool.epochs().pin();
        unnamed.iter().try_for_each(|at| check_entries(table, pool, *at))?;
    }
    if !zeroes || unnamed.is_empty() {
        return Ok(());
    }
    for at in unnamed {
        pool.zero(at, bytes);
        pool.flush(at, bytes);
    }
    // Every write checks whether this fence succeeded.
    pool.fence();
    Ok(())
}

/// Checks that the source of the unnamed segment at `at` has its entries.
///
/// # Errors
/// [`Error::Corrupt`].
fn check_entries(table: &Table, pool: &Pool, at: NvPtr) -> Result<()> {
    // A crash may have come before the header was durable.
    let Some(header) = SegmentHeader::read(pool, at) else { return Ok(()) };
    let SegmentHeader { partition, depth, prefix } = header;
    if partition >= table.shape.partitions || depth > DEPTH_MAX || prefix >> depth != 0 {
        return Ok(());
    }
    let partition = partition as usize;
    let location = SegmentLocation { segment: Segment { at, depth }, partition, prefix };
    let source = source_of(table, pool, location);
    let is_in_source = |slot: &Slot| {
        source.is_some_and(|source| {
            let from = source.add(slot.at.raw() - at.raw());
            Entry::load(pool, from).moved(from, slot.at) == slot.entry
        })
    };
    // A line of the segment that was not durable has bytes of an earlier owner of the space.
    let is_entry = |slot: &Slot| matches!(table.judge(pool, location, *slot), Verdict::Whole(_));
    let slots = used_slots(table, pool, location.segment);
    match slots.iter().find(|slot| !is_in_source(slot) && is_entry(slot)) {
        Some(_) => Err(older_directory(partition, &format!("the split that made {at:?}"))),
        None => Ok(()),
    }
}

/// Returns the segment that a split into `location` reads, if the directory names it as that split
/// finds it.
fn source_of(table: &Table, pool: &Pool, location: SegmentLocation) -> Option<NvPtr> {
    let SegmentLocation { segment: Segment { depth, .. }, partition, prefix } = location;
    let depth = depth.checked_sub(1)?;
    let named = table.segment_of_prefix(pool, partition, depth, prefix >> 1)?;
    (named.depth == depth).then_some(named.at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Signature;
    use crate::layout::BUCKET_BYTES;
    use crate::split::{repair, split};
    use crate::split_tests::{SEGMENT_BYTES, formatted_table};

    fn with_table(work: impl FnOnce(&Table, &Pool)) {
        let (_scratch, pool, table) = formatted_table();
        split(&table, &pool, Signature(1), false).expect("a split");
        work(&table, &pool);
    }

    fn named(table: &Table, pool: &Pool) -> Vec<u64> {
        repair(table, pool, 0).expect("a directory").iter().map(|(segment, _)| segment.at.raw()).collect()
    }

    #[test]
    fn unnamed_segments_are_zeroed_and_named_ones_are_not() {
        with_table(|table, pool| {
            let at = pool.allocator().alloc_extent(pool, u64::from(SEGMENT_BYTES), KIND_SEGMENT).expect("room");
            pool.store(at, &[7; SEGMENT_BYTES as usize]);
            let named = named(table, pool);
            let all = |at: u64| pool.bytes(NvPtr::from_raw(at), SEGMENT_BYTES as usize).expect("in a region").to_vec();
            let before: Vec<_> = named.iter().copied().map(all).collect();
            check(table, pool, named.clone(), true).expect("no damage");
            assert_eq!(pool.load_words::<{ SEGMENT_BYTES as usize / 8 }>(at), [0; SEGMENT_BYTES as usize / 8]);
            assert_eq!(named.iter().copied().map(all).collect::<Vec<_>>(), before);
        });
    }

    /// Garbage that looks like an entry of the segment names no whole record.
    #[test]
    fn an_entry_without_a_whole_record_is_no_evidence() {
        with_table(|table, pool| {
            let upper = table.segment_of_prefix(pool, 0, 1, 1).expect("a segment");
            let sig = Signature(1 << 63);
            let slot = Table::bucket(upper, table.placement.buckets(sig).0);
            assert!(slot.raw() >= upper.at.raw() + BUCKET_BYTES);
            let entry = Entry::naming(slot, sig.0, upper.at, 12345);
            pool.cas_u128(slot, Entry::free(pool, slot).pair(), entry.pair()).expect("a free slot");
            let lower = table.segment_of_prefix(pool, 0, 1, 0).expect("a segment");
            check(table, pool, vec![lower.at.raw()], true).expect("no evidence");
        });
    }
}
