//! The walk of a recovery: every entry's record is checked and marked, and the keys' order is found.
//!
//! Safe beside readers and writers. A writer's old record may be unlinked before the walk comes by: it has told the
//! allocator to keep it (`write.rs`). The walk takes no stripe, since a writer may wait with one for the rebuild.
//!
//! A record that is wrong keeps its entry, so that a get says so, and its space, so that nothing else is stored under that entry.

use std::cmp::Ordering as KeyOrder;
use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Result};
use lodestore_inplace::{copied_key, share_out};
use lodestore_media::{Mutant, NvPtr, Pool, Quiet};

use crate::inner::Inner;
use crate::layout::{BUCKET_ENTRIES, ENTRY, KIND_DIRECTORY, KIND_SEGMENT, SegmentHeader};
use crate::record::{OWN, Record, TAG_EXPIRY};
use crate::table::{AHEAD, READ_AHEAD, Segment, Table, strays, walk};

/// A key's first 16 bytes, as a number that orders like them, and its record.
type Sortable = (u128, u64);

/// A segment and where the directory has it.
#[derive(Clone, Copy)]
struct Home {
    segment: Segment,
    partition: usize,
    prefix: u64,
}

/// What one thread found.
#[derive(Default)]
struct Share {
    found: Vec<Sortable>,
    /// Positions of records that cannot be read whole, to be marked when all others are.
    damaged: Vec<NvPtr>,
}

/// The first 16 bytes of a key; shorter keys are filled with zeros, which ties with longer ones and is told apart later.
fn first_bytes(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let len = key.len().min(16);
    bytes[..len].copy_from_slice(&key[..len]);
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// Walks all partitions, with as many threads as the options say. The positions of all keys in the order of the keys.
///
/// # Errors
/// [`Error::Closed`] where the store is being closed; [`Error::Corrupt`] where a directory cannot be followed.
pub(crate) fn walk_all(inner: &Inner) -> Result<Vec<u64>> {
    let partitions = inner.table.shape.partitions as usize;
    if inner.pool.allocator().is_recovering()
        && let Err(error) = inner.logs.mark(&inner.pool)
    {
        inner.recovery.set_unsure();
        inner.recovery.count_corrupt();
        inner.corrupt(&error);
    }
    let pool = &inner.pool;
    let shares = share_out(
        partitions,
        inner.options.recovery_threads,
        |partition, share: &mut Share| walk_partition(inner, partition, share),
        |share| share.found.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| compare_keys(pool, a.1, b.1))),
    )?;
    // Every segment was flushed and fenced by the thread that walked it. Where a sync failed, readers go on to make durable what they answer from.
    if inner.pool.check().is_ok() {
        inner.unsettled.store(false, Ordering::Release);
    }
    inner.recovery.count_left_out(shares.iter().map(|share| share.damaged.len()).sum());
    for position in shares.iter().flat_map(|share| &share.damaged) {
        inner.keep_damaged::<OWN>(*position);
    }
    Ok(merge(&inner.pool, shares.into_iter().map(|share| share.found).collect()))
}

fn compare_keys(pool: &Pool, a: u64, b: u64) -> KeyOrder {
    let key = |at: u64| Record::read(pool, NvPtr::from_raw(at)).map_or(&[][..], |record| record.key());
    key(a).cmp(key(b))
}

/// Merges sorted shares.
fn merge(pool: &Pool, mut shares: Vec<Vec<Sortable>>) -> Vec<u64> {
    while shares.len() > 1 {
        let (a, b) = (shares.swap_remove(0), shares.pop().unwrap_or_default());
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
        shares.push(merged);
    }
    let mut sorted = shares.pop().unwrap_or_default();
    // A key that was deleted and put again while its segment was copied may be there twice. Which one stays is
    // no matter: its changes wait in the backend and are applied after.
    sorted.dedup_by(|b, a| a.0 == b.0 && compare_keys(pool, a.1, b.1).is_eq());
    sorted.into_iter().map(|(_, position)| position).collect()
}

fn walk_partition(inner: &Inner, partition: usize, share: &mut Share) -> Result<()> {
    let pool = &inner.pool;
    let marks = pool.allocator().is_recovering();
    let mark_extent = |at: NvPtr, kind| {
        if marks && let Err(error) = pool.allocator().mark_extent(pool, at, kind) {
            inner.recovery.set_unsure();
            inner.recovery.count_corrupt();
            inner.corrupt(&error);
        }
    };
    let _guard = pool.epochs().pin();
    mark_extent(inner.table.directory(pool, partition).at, KIND_DIRECTORY);
    walk(&inner.table, pool, partition, |segment, prefix, entries| {
        inner.recovery.check_wanted()?;
        if marks && let Err(error) = SegmentHeader::check(pool, segment.at, partition, segment.depth, prefix) {
            // Its entries stand for themselves: each is checked against its record.
            inner.recovery.count_corrupt();
            inner.corrupt(&error);
        }
        mark_extent(segment.at, KIND_SEGMENT);
        if inner.is_unsettled() {
            // Before anything is freed or trusted for what stands here, it stays.
            pool.flush(segment.at, inner.table.shape.segment_bytes as usize);
            pool.fence();
        }
        let home = Home { segment, partition, prefix };
        walk_segment(inner, home, &entries, marks, share);
        restore_strays(inner, home, marks, share);
        inner.recovery.count_part();
        Ok(true)
    })?;
    Ok(())
}

fn walk_segment(inner: &Inner, home: Home, entries: &[(u64, NvPtr)], marks: bool, share: &mut Share) {
    let pool = &inner.pool;
    for (index, (sig, position)) in entries.iter().enumerate() {
        if let Some((_, next)) = entries.get(index + AHEAD) {
            pool.prefetch(next.untagged(), READ_AHEAD);
        }
        let read = Record::read(pool, *position);
        let wrong = match &read {
            Ok(record) => record.check(*position).err(),
            Err(error) => Some(Error::corrupt(format!("entry {position:?}"), error.to_string())),
        };
        if let Some(error) = &wrong {
            inner.recovery.count_corrupt();
            inner.corrupt(error);
        }
        let signed = read.as_ref().is_ok_and(|record| inner.table.place.sign(record.key()).0 == *sig);
        let record = match read {
            // A record whose key is right stays in the tree, so that a scan says where it is wrong.
            Ok(record) if signed => record,
            Ok(record) if wrong.is_none() && pool.mutant(Mutant::TornEntryAccepted) => record,
            Ok(record) if wrong.is_none() && mend_signature(inner, home, *sig, *position, record.key()) => record,
            _ => {
                share.damaged.push(*position);
                continue;
            }
        };
        take(inner, *position, &record, marks, share);
    }
}

/// Marks a record and collects its key.
fn take(inner: &Inner, position: NvPtr, record: &Record<'_>, marks: bool, share: &mut Share) {
    let pool = &inner.pool;
    if marks
        && !pool.mutant(Mutant::RecordNotMarked)
        && let Err(error) = pool.allocator().mark(pool, position.untagged(), record.len())
    {
        inner.recovery.count_corrupt();
        inner.corrupt(&error);
        share.damaged.push(position);
        return;
    }
    if position.tag() & TAG_EXPIRY != 0 {
        inner.expiring.store(true, Ordering::Relaxed);
    }
    share.found.push((first_bytes(record.key()), position.raw()));
    inner.recovery.count_key();
}

/// Looks at entries of a segment that do not belong there. Those that a split left behind belonged when the segment was made; any other
/// has a damaged signature, and is mended where its record shows what it was. (A flip among the few bits that splits have used since
/// is told from what they left behind by `verify` only: it would cost a miss for each of those.)
fn restore_strays(inner: &Inner, home: Home, marks: bool, share: &mut Share) {
    let pool = &inner.pool;
    let Some(born) = SegmentHeader::read(pool, home.segment.at) else { return };
    for (sig, position, _) in strays(&inner.table, pool, home.partition, home.segment, home.prefix) {
        if inner.table.place.belongs(sig, home.partition, born.depth, born.prefix) {
            continue;
        }
        // The place may be another record's by now: its bytes are lent only once the entry is right again.
        let key = copied_key::<OWN>(pool, position);
        if key.is_none() {
            inner.recovery.count_corrupt();
            inner
                .corrupt(&Error::corrupt(format!("entry {position:?}"), "it is in a segment where it does not belong"));
        }
        let mended = key.is_some_and(|key| mend_signature(inner, home, sig, position, &key));
        match Record::read(pool, position) {
            Ok(record) if mended => take(inner, position, &record, marks, share),
            // It may be the one entry that names a whole record, which the next recovery can mend: its place is kept.
            _ => share.damaged.push(position),
        }
    }
}

/// An entry whose signature is not that of its record's key was damaged on the medium: no swap that tears leaves one
/// (`write.rs`). The record's checksum is right, so the signature is mended where the key belongs at the entry's place and no other entry has
/// it; if not, the entry stays as it is. Whether it was mended.
///
/// Persist order, under the stripe of the record's key: the entry by one 16-byte swap; flush; fence. A crash before leaves it as damaged
/// as it was. The stripe is not waited for: who holds it may wait for this recovery, and the next one will do.
#[cold]
fn mend_signature(inner: &Inner, place: Home, sig: u64, position: NvPtr, key: &[u8]) -> bool {
    let Home { segment, partition, prefix } = place;
    let pool = &inner.pool;
    let truth = inner.table.place.sign(key);
    inner.recovery.count_corrupt();
    inner.corrupt(&Error::corrupt(
        format!("entry of record {position:?}"),
        "its signature is not that of the record's key",
    ));
    let (home, other) = inner.table.place.buckets(truth);
    let _quiet = Quiet::begin();
    let Some(_held) = inner.stripes.try_lock(inner.table.place.partition(truth), home) else { return false };
    let is_here = inner.table.place.belongs(truth.0, partition, segment.depth, prefix)
        && inner.table.segment(pool, truth) == segment;
    if !is_here || !matches!(inner.table.find(pool, segment, truth, key), Ok(None)) {
        return false;
    }
    let slots = [home, other].into_iter().flat_map(|bucket| {
        let at = Table::bucket(segment, bucket);
        (0..BUCKET_ENTRIES as u64).map(move |entry| at.add(entry * ENTRY))
    });
    for slot in slots {
        if pool.cas_u128(slot, (sig, position.raw()), (truth.0, position.raw())).is_ok() {
            pool.flush(slot, ENTRY as usize);
            pool.fence();
            return true;
        }
    }
    false
}
