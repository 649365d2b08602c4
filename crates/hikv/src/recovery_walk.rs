//! The walk of a recovery: every entry's record is checked and marked, and the keys are sorted.
//!
//! Safe concurrently with readers and writers. A writer's old record may be unlinked before the
//! walk reaches it: the writer has made the allocator keep the record (`write.rs`). The walk
//! acquires no stripe, since a writer that holds one may wait for the rebuild.
//!
//! A damaged record keeps its entry, for gets to report it, and its space, which must not be reused
//! under that entry. If the space is not the record's own, the slot is marked as damaged instead.
//! Damage to the index is noted and never repaired: no entry can prove that its record is the
//! newest of its key.

use std::cmp::Ordering as KeyOrder;
use std::sync::atomic::Ordering;

use lodestore_contract::Result;
use lodestore_inplace::share_out;
use lodestore_media::{NvPtr, Pool};

use crate::entry::Entry;
use crate::layout::{ENTRY_BYTES, KIND_DIRECTORY, KIND_SEGMENT, SegmentHeader};
use crate::open_store::Inner;
use crate::planted;
use crate::record::{EXPIRY_TAG_FLAG, Record};
use crate::table::{Form, PREFETCH_BYTES, PREFETCH_RECORDS, SegmentLocation, Slot, Verdict};
use crate::walk::walk;

/// A key's first 16 bytes, as a number with the same order, and its record.
type SortKey = (u128, u64);

/// Results of one thread.
#[derive(Default)]
struct ThreadResult {
    found: Vec<SortKey>,
    /// Positions of records that cannot be read completely, to be marked after all others.
    damaged: Vec<NvPtr>,
}

/// Returns the first 16 bytes of a key. Shorter keys are padded with zeros; ties with longer keys
/// are resolved later.
fn first_bytes(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let len = key.len().min(16);
    bytes[..len].copy_from_slice(&key[..len]);
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// Walks all partitions, with `recovery_threads` threads. Returns the positions of all keys in key
/// order.
///
/// # Errors
/// [`Error::Closed`] if the store is being closed; [`Error::Corrupt`] if a directory cannot be
/// followed.
pub(crate) fn walk_all(inner: &Inner) -> Result<Vec<u64>> {
    let partitions = inner.table.shape.partitions as usize;
    if inner.pool.allocator().is_recovering()
        && let Err(error) = inner.logs.mark(&inner.pool)
    {
        inner.recovery.set_unsure();
        inner.recovery.count_corrupt();
        inner.report_corruption(&error);
    }
    let pool = &inner.pool;
    let results = share_out(
        partitions,
        inner.options.recovery_threads,
        |partition, result: &mut ThreadResult| walk_partition(inner, partition, result),
        |result| result.found.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| compare_keys(pool, a.1, b.1))),
    )?;
    inner.end_walk::<u64>(results.iter().flat_map(|result| &result.damaged).copied());
    Ok(merge(&inner.pool, results.into_iter().map(|result| result.found).collect()))
}

fn compare_keys(pool: &Pool, a: u64, b: u64) -> KeyOrder {
    let key = |at: u64| Record::read(pool, NvPtr::from_raw(at)).map_or(&[][..], |record| record.key());
    key(a).cmp(key(b))
}

/// Merges sorted lists.
fn merge(pool: &Pool, mut lists: Vec<Vec<SortKey>>) -> Vec<u64> {
    while lists.len() > 1 {
        let (a, b) = (lists.swap_remove(0), lists.pop().unwrap_or_default());
        let mut merged = Vec::with_capacity(a.len() + b.len());
        let (mut left, mut right) = (a.into_iter().peekable(), b.into_iter().peekable());
        loop {
            let take_left = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) => a.0.cmp(&b.0).then_with(|| compare_keys(pool, a.1, b.1)).is_lt(),
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => break,
            };
            merged.extend(if take_left { left.next() } else { right.next() });
        }
        lists.push(merged);
    }
    let mut sorted = lists.pop().unwrap_or_default();
    // A key that was deleted and put again while its segment was copied may occur twice. Either one
    // may stay: its changes wait in the backend and are applied afterwards.
    sorted.dedup_by(|b, a| a.0 == b.0 && compare_keys(pool, a.1, b.1).is_eq());
    sorted.into_iter().map(|(_, position)| position).collect()
}

fn walk_partition(inner: &Inner, partition: usize, result: &mut ThreadResult) -> Result<()> {
    let pool = &inner.pool;
    let marks = pool.allocator().is_recovering();
    let mark_extent = |at: NvPtr, kind| {
        if marks && let Err(error) = pool.allocator().mark_extent(pool, at, kind) {
            inner.recovery.set_unsure();
            inner.recovery.count_corrupt();
            inner.report_corruption(&error);
        }
    };
    let _guard = pool.epochs().pin();
    mark_extent(inner.table.roots.load(partition).at, KIND_DIRECTORY);
    walk(&inner.table, pool, partition, |location, slots| {
        inner.recovery.check_wanted()?;
        let SegmentLocation { segment, prefix, .. } = location;
        if let Err(error) = SegmentHeader::check(pool, segment.at, partition, segment.depth, prefix) {
            // Its entries are valid without it: each is checked against its record.
            inner.count_damage(&error);
        }
        mark_extent(segment.at, KIND_SEGMENT);
        if inner.is_unsettled() {
            // Make the segment durable before anything is freed or trusted because of it.
            pool.flush(segment.at, inner.table.shape.segment_bytes as usize);
            pool.fence();
        }
        walk_segment(inner, location, &slots, marks, result);
        inner.recovery.count_part();
        Ok(true)
    })?;
    Ok(())
}

fn walk_segment(inner: &Inner, location: SegmentLocation, slots: &[Slot], marks: bool, result: &mut ThreadResult) {
    let (pool, table) = (&inner.pool, &inner.table);
    let mut changed = false;
    for (index, slot) in slots.iter().enumerate() {
        if let Some(next) = slots.get(index + PREFETCH_RECORDS) {
            pool.prefetch(next.entry.position().untagged(), PREFETCH_BYTES);
        }
        let position = slot.entry.position();
        match table.judge(pool, location, *slot) {
            Verdict::Free if pool.has_fault(planted::TORN_ENTRY_ACCEPTED) && slot.entry.sig != 0 => {
                accept_torn(inner, *slot, marks, result);
            }
            Verdict::Free => changed |= free_leftover(pool, *slot),
            Verdict::Whole(record) => changed |= mark_and_add_record(inner, *slot, &record, marks, result),
            Verdict::BadRecord(record, error) => {
                inner.recovery.count_corrupt();
                inner.report_corruption(&error);
                match record {
                    // A record with an intact key stays in the tree, for scans to report its damage
                    // in place.
                    Some(record) if table.placement.sign(record.key()).0 == slot.entry.sig => {
                        changed |= mark_and_add_record(inner, *slot, &record, marks, result);
                    }
                    _ => result.damaged.push(position),
                }
            }
            Verdict::Damaged(error) => {
                inner.count_damage(&error);
                if table.form(pool, location, *slot) != Form::Damaged {
                    result.damaged.push(position);
                }
            }
        }
    }
    if changed {
        // Before the sweep frees the space of records that only these slots named.
        pool.fence();
    }
}

/// Frees a slot in a state left by a crash: an entry that a split moved, or half of a torn swap. A
/// writer may claim the slot concurrently, and has then cleared it. Returns whether the caller must
/// fence.
fn free_leftover(pool: &Pool, slot: Slot) -> bool {
    let free = Entry::free(pool, slot.at);
    if slot.entry == free || pool.cas_u128(slot.at, slot.entry.pair(), free.pair()).is_err() {
        return false;
    }
    pool.flush(slot.at, ENTRY_BYTES as usize);
    true
}

/// Planted fault: accepts a torn entry if its position names a record.
fn accept_torn(inner: &Inner, slot: Slot, marks: bool, result: &mut ThreadResult) {
    if let Ok(record) = Record::read(&inner.pool, slot.entry.position()) {
        mark_and_add_record(inner, slot, &record, marks, result);
    }
}

/// Marks a record, and adds its key to the results. Returns whether the caller must fence.
fn mark_and_add_record(inner: &Inner, slot: Slot, record: &Record<'_>, marks: bool, result: &mut ThreadResult) -> bool {
    let (pool, position) = (&inner.pool, slot.entry.position());
    if marks
        && !pool.has_fault(planted::RECORD_NOT_MARKED)
        && let Err(error) = pool.allocator().mark(pool, position.untagged(), record.len())
    {
        inner.count_damage(&error);
        result.damaged.push(position);
        return disown_record(inner, slot);
    }
    if position.tag() & EXPIRY_TAG_FLAG != 0 {
        inner.expiring.store(true, Ordering::Relaxed);
    }
    result.found.push((first_bytes(record.key()), position.raw()));
    inner.recovery.count_key();
    false
}

/// Replaces an entry whose record is in space that is not its own by the mark of a damaged slot. No
/// crash leaves such an entry, and other records may be stored there: a later put of the key would
/// free their space. A salvage keeps the entry, because its record may be the last copy. Returns
/// whether the caller must fence.
#[cold]
fn disown_record(inner: &Inner, slot: Slot) -> bool {
    let pool = &inner.pool;
    let damaged = Entry::damaged(pool, slot.at);
    if pool.options().salvage || pool.cas_u128(slot.at, slot.entry.pair(), damaged.pair()).is_err() {
        return false;
    }
    pool.flush(slot.at, ENTRY_BYTES as usize);
    true
}
