//! Growth without stopping: a full segment is split in two, and a full directory doubled
//! (extendible hashing, in place of MICA's bounded index; HiKV's paper leaves growth open).
//!
//! Persist order of a split of segment S of depth L into S and N, under all stripes of the
//! partition:
//! 1. N's extent word is durable (by the allocator; checked). In careful mode S is flushed, and a
//!    fence follows.
//! 2. N's header and its half of S's entries are stored, at the same buckets and slots, with all
//!    other slots free. Entries in S left by an earlier crashed split are freed. Fence.
//! 3. The first directory word of the upper half names (N, L+1); flush, fence: **the split is
//!    done**.
//! 4. The other words: upper half (N, L+1), lower half (S, L+1). The header of S gets depth L+1.
//!    Then the moved entries of S become free; flush, fence.
//!
//! A crash before 3 leaves N unreachable, and the sweep frees it. A crash after 3 leaves words of
//! depth L in a range whose first upper word has L+1. [`repair`] completes them, and is idempotent.
//! A crash in step 4 leaves moved entries in S. They have the sibling's prefix, and count as free.
//! A reader that used an old word and misses in S reads the directory again, which names N by then.
//!
//! The depth in the header of S detects a directory or a root word that is older than the split. A
//! crash in step 4 can leave S with some moved entries free and the old depth in its header. Then N
//! detects such a directory (`unnamed.rs`).
//!
//! Doubling: the new directory is written whole, fence, then the root word; flush, fence. The old
//! one is retired.

use lodestore_contract::{Error, Result};
use lodestore_media::{BatchLogs, NvPtr, Pool};

use crate::entry::Entry;
use crate::hash::{DEPTH_MAX, Signature};
use crate::layout::{
    BUCKET_BYTES, Deep, ENTRY_BYTES, KIND_DIRECTORY, KIND_SEGMENT, SegmentHeader, WordPlace, batch_roots,
};
use crate::options::INDEX_FULL;
use crate::planted;
use crate::table::{Form, PREFETCH_RECORDS, Segment, SegmentLocation, Table, Verdict, damaged_word, used_slots};

/// Advice for a directory that cannot be followed.
const ADVICE: &str = ": restore the store from a backup or an export";

/// Returns the bytes of a directory of this depth.
pub(crate) fn directory_bytes(depth: u32) -> u64 {
    8 << depth
}

/// Writes a new store's segments, directories and batch logs: one segment per partition. Ends
/// without a fence.
///
/// # Errors
/// [`Error::Full`].
pub(crate) fn format(table: &Table, pool: &Pool) -> Result<()> {
    BatchLogs::format(pool, batch_roots(pool));
    for partition in 0..table.shape.partitions {
        let segment = pool.allocator().alloc_extent(pool, u64::from(table.shape.segment_bytes), KIND_SEGMENT)?;
        let header = SegmentHeader { partition, depth: 0, prefix: 0 };
        pool.store_and_flush(segment, &[&free_segment(table, pool, segment, header)]);
        let directory = pool.allocator().alloc_extent(pool, directory_bytes(0), KIND_DIRECTORY)?;
        let directory = Deep { at: directory, depth: 0 };
        let place = WordPlace::in_directory(directory, partition as usize, 0);
        pool.store_and_flush(directory.at, &[&Deep { at: segment, depth: 0 }.pack(pool, place).to_le_bytes()]);
        pool.fence();
        let place = WordPlace::root(pool, partition as usize);
        pool.publish_u64(place.at, directory.pack(pool, place));
        pool.flush(place.at, 8);
    }
    Ok(())
}

/// Returns the bytes of a segment at `at` whose slots are all free.
fn free_segment(table: &Table, pool: &Pool, at: NvPtr, header: SegmentHeader) -> Vec<u8> {
    let mut image = vec![0u8; table.shape.segment_bytes as usize];
    image[..BUCKET_BYTES as usize].copy_from_slice(&header.to_bytes(pool, at));
    for offset in (BUCKET_BYTES as usize..image.len()).step_by(ENTRY_BYTES as usize) {
        put_entry(&mut image, offset, Entry::free(pool, at.add(offset as u64)));
    }
    image
}

fn put_entry(image: &mut [u8], offset: usize, entry: Entry) {
    image[offset..offset + 8].copy_from_slice(&entry.sig.to_le_bytes());
    image[offset + 8..offset + 16].copy_from_slice(&entry.word.to_le_bytes());
}

/// Splits the segment of `sig`. The caller holds all stripes of its partition. With `careful`, all
/// entries are checked against their records; without it, only entries not of this segment. Each
/// damaged slot is damaged in both segments afterwards.
///
/// # Errors
/// [`Error::Full`], [`Error::IndexFull`]; [`Error::Corrupt`] for a damaged directory word; nothing
/// is changed then. [`Error::Poisoned`]: an open completes the split.
pub(crate) fn split(table: &Table, pool: &Pool, sig: Signature, careful: bool) -> Result<()> {
    let partition = table.placement.partition(sig);
    let old = table.segment(pool, sig).ok_or_else(|| damaged_word(partition))?;
    if old.depth == DEPTH_MAX {
        return Err(Error::IndexFull { depth: old.depth, instead: INDEX_FULL });
    }
    if table.roots.load(partition).depth == old.depth {
        double_directory(table, pool, partition)?;
    }
    let depth = old.depth + 1;
    let location = SegmentLocation { segment: old, partition, prefix: table.placement.index(sig, old.depth) };
    let (at, moved) = fill_sibling(table, pool, location, careful)?;
    let sibling = Segment { at, depth };
    let directory = table.roots.load(partition);
    let range = 1u64 << (directory.depth - old.depth);
    let first = table.placement.index(sig, old.depth) << (directory.depth - old.depth);
    assert!(range >= 2, "a directory as deep as its segment was doubled above");
    let upper = first + range / 2;
    let words = (directory, partition);
    publish(pool, words, upper, 1, sibling);
    pool.fence_checked()?;
    publish(pool, words, upper + 1, range / 2 - 1, sibling);
    publish(pool, words, first, range / 2, Segment { at: old.at, depth });
    SegmentHeader::store_split_depth(pool, old.at, depth);
    replace_entries(pool, &moved);
    pool.fence_checked()?;
    Ok(())
}

/// Stores `count` directory words from `first` on, and flushes them.
fn publish(pool: &Pool, (directory, partition): (Deep, usize), first: u64, count: u64, segment: Segment) {
    let named = Deep { at: segment.at, depth: segment.depth };
    for index in first..first + count {
        let place = WordPlace::in_directory(directory, partition, index);
        pool.publish_u64(place.at, named.pack(pool, place));
    }
    if count > 0 {
        pool.flush(directory.at.add(first * 8), count as usize * 8);
    }
}

/// An entry of the split segment, and its replacement.
struct Replaced {
    slot: NvPtr,
    old: Entry,
    new: Entry,
}

/// Replaces entries of a segment whose stripes are all held, and flushes them.
fn replace_entries(pool: &Pool, replaced: &[Replaced]) {
    for Replaced { slot, old, new } in replaced {
        let swapped = pool.cas_u128(*slot, old.pair(), new.pair());
        // The walk after a crash, which holds no stripe, may have freed an entry left by a split.
        assert!(swapped.is_ok() || Entry::load(pool, *slot) == *new, "an entry changes only under its stripe");
        pool.flush(*slot, ENTRY_BYTES as usize);
    }
}

/// Creates a new segment with the entries of the upper half of `location`. Frees entries that an
/// earlier split left. Both are durable on return. Returns the segment, and the entries of the old
/// segment to replace once the directory names the new one.
fn fill_sibling(
    table: &Table,
    pool: &Pool,
    location: SegmentLocation,
    careful: bool,
) -> Result<(NvPtr, Vec<Replaced>)> {
    let bytes = table.shape.segment_bytes as usize;
    let at = pool.allocator().alloc_extent(pool, bytes as u64, KIND_SEGMENT)?;
    // If the fence of the extent word failed, a crash may lose the word and keep what is stored in
    // the extent. A later split in the same space would leave these entries to `unnamed.rs`.
    pool.check()?;
    let SegmentLocation { segment: old, partition, prefix } = location;
    if careful {
        // A killed process may have left entries unflushed. A crash must not show an entry in the
        // new segment alone (`unnamed.rs`).
        pool.flush(old.at, bytes);
        pool.fence_checked()?;
    }
    let (depth, prefix) = (old.depth + 1, prefix << 1 | 1);
    let mut image = free_segment(table, pool, at, SegmentHeader { partition: partition as u32, depth, prefix });
    let (mut moved, mut leftovers) = (Vec::new(), Vec::new());
    for slot in used_slots(table, pool, old) {
        let offset = slot.at.raw() - old.at.raw();
        let to = at.add(offset);
        let free = Entry::free(pool, slot.at);
        let is_upper = table.placement.belongs(slot.entry.sig, partition, depth, prefix);
        let form = table.form(pool, location, slot);
        let is_judged = careful || form != Form::Live;
        let is_damaged =
            form == Form::Damaged || is_judged && matches!(table.judge(pool, location, slot), Verdict::Damaged(_));
        let entry = if is_damaged {
            if form == Form::Live && is_upper {
                // The damaged entry moves with its signature.
                moved.push(Replaced { slot: slot.at, old: slot.entry, new: Entry::damaged(pool, slot.at) });
                slot.entry.moved(slot.at, to)
            } else {
                Entry::damaged(pool, to)
            }
        } else if form == Form::Live && is_upper {
            moved.push(Replaced { slot: slot.at, old: slot.entry, new: free });
            if pool.has_fault(planted::SPLIT_DROPS_ENTRY) && offset.is_multiple_of(BUCKET_BYTES) {
                continue;
            }
            slot.entry.moved(slot.at, to)
        } else {
            if form == Form::Stray {
                leftovers.push(Replaced { slot: slot.at, old: slot.entry, new: free });
            }
            continue;
        };
        put_entry(&mut image, offset as usize, entry);
    }
    replace_entries(pool, &leftovers);
    pool.store_and_flush(at, &[&image]);
    pool.fence_checked()?;
    Ok((at, moved))
}

/// Doubles a partition's directory.
///
/// # Errors
/// [`Error::Full`]; [`Error::Corrupt`] if a word is damaged: a copy with new check bits would hide
/// it. [`Error::Poisoned`].
fn double_directory(table: &Table, pool: &Pool, partition: usize) -> Result<()> {
    let old = table.roots.load(partition);
    let depth = old.depth + 1;
    let mut named = Vec::with_capacity(1 << old.depth);
    for index in 0..1u64 << old.depth {
        let place = WordPlace::in_directory(old, partition, index);
        let word = pool.load_u64(place.at);
        if !Deep::is_valid(word, pool, place) {
            return Err(damaged_word(partition));
        }
        named.push(Deep::unpack(word));
    }
    let at = pool.allocator().alloc_extent(pool, directory_bytes(depth), KIND_DIRECTORY)?;
    let new = Deep { at, depth };
    let mut image = Vec::with_capacity(directory_bytes(depth) as usize);
    for index in 0..1u64 << depth {
        let place = WordPlace::in_directory(new, partition, index);
        image.extend_from_slice(&named[index as usize / 2].pack(pool, place).to_le_bytes());
    }
    pool.store_and_flush(at, &[&image]);
    pool.fence_checked()?;
    let root = WordPlace::root(pool, partition);
    // A recovery that reads the new root never sees the old directory: it must not sweep an extent
    // that is still to be retired.
    pool.allocator().exclude_extent_from_sweep(old.at);
    pool.publish_u64(root.at, new.pack(pool, root));
    pool.flush(root.at, 8);
    pool.fence_checked()?;
    table.roots.store(partition, new);
    pool.epochs().retire_extent(pool, old.at);
    Ok(())
}

/// Makes the root area and the directories durable as they are. A killed process may have stored a
/// word without flushing it, and [`repair`] and all later writes build on that word.
///
/// # Errors
/// [`Error::Corrupt`] if a root word names no directory.
pub(crate) fn persist_directories(table: &Table, pool: &Pool) -> Result<()> {
    pool.flush(pool.root(), Pool::ROOT_BYTES as usize);
    for partition in 0..table.shape.partitions as usize {
        let Deep { at, depth } = named_directory(pool, partition)?;
        pool.flush(at, directory_bytes(depth) as usize);
    }
    pool.fence_checked()
}

/// Returns the directory that a root word names.
///
/// # Errors
/// [`Error::Corrupt`] if the word's check bits are wrong, or the directory is not in the pool.
fn named_directory(pool: &Pool, partition: usize) -> Result<Deep> {
    let place = WordPlace::root(pool, partition);
    let word = pool.load_u64(place.at);
    let directory = Deep::unpack(word);
    let is_valid = Deep::is_valid(word, pool, place)
        && directory.depth <= DEPTH_MAX
        && pool.bytes(directory.at, directory_bytes(directory.depth) as usize).is_some();
    if is_valid {
        return Ok(directory);
    }
    Err(Error::corrupt(format!("directory of partition {partition}"), format!("the root word is damaged{ADVICE}")))
}

/// Compares the directory of a partition with the splits of the segments that [`repair`] returned.
///
/// # Errors
/// [`Error::Corrupt`] if a segment was split and the directory does not have the split.
pub(crate) fn check_splits(pool: &Pool, partition: usize, segments: &[(Segment, u64)]) -> Result<()> {
    for (index, (segment, _)) in segments.iter().enumerate() {
        if let Some((ahead, _)) = segments.get(index + PREFETCH_RECORDS) {
            pool.prefetch(ahead.at, ENTRY_BYTES as usize);
        }
        // A damaged word is reported by the walk.
        if SegmentHeader::split_depth(pool, segment.at).is_some_and(|depth| depth > segment.depth) {
            return Err(older_directory(partition, &format!("a split of {:?}", segment.at)));
        }
    }
    Ok(())
}

/// Returns the error for a directory that does not have a split.
#[cold]
pub(crate) fn older_directory(partition: usize, split: &str) -> Error {
    Error::corrupt(
        format!("directory of partition {partition}"),
        format!("the directory is older than {split}, so keys may be missing{ADVICE}"),
    )
}

/// Completes a split that a crash interrupted, and checks that the directory is one that splits can
/// leave. Idempotent. Lookups use the directory from then on. Returns the partition's segments,
/// each with its prefix.
///
/// # Errors
/// [`Error::Corrupt`].
pub(crate) fn repair(table: &Table, pool: &Pool, partition: usize) -> Result<Vec<(Segment, u64)>> {
    let wrong = |what: &str| Error::corrupt(format!("directory of partition {partition}"), format!("{what}{ADVICE}"));
    let directory = named_directory(pool, partition)?;
    table.roots.store(partition, directory);
    let words = 1u64 << directory.depth;
    let place = |index: u64| WordPlace::in_directory(directory, partition, index);
    let word_at = |index: u64| Deep::unpack(pool.load_u64(place(index).at));
    if (0..words).any(|index| !Deep::is_valid(pool.load_u64(place(index).at), pool, place(index))) {
        return Err(wrong("a word is damaged"));
    }
    let mut segments = Vec::new();
    let mut repaired = false;
    let mut index = 0;
    while index < words {
        let mut named = word_at(index);
        if named.depth > directory.depth || !index.is_multiple_of(1 << (directory.depth - named.depth)) {
            return Err(wrong("the depth of a word does not match its place"));
        }
        let mut range = 1u64 << (directory.depth - named.depth);
        // The commit point of a split is the first word of the upper half.
        if range >= 2 && word_at(index + range / 2).depth == named.depth + 1 {
            named.depth += 1;
            range /= 2;
        }
        for other in index..index + range {
            let found = word_at(other);
            if found == named {
                continue;
            }
            if pool.has_fault(planted::SPLIT_RECOVERY_SKIPPED) {
                continue;
            }
            if found.depth + 1 != named.depth {
                return Err(wrong("the words of one range differ by more than an unfinished split"));
            }
            let word = place(other);
            pool.publish_u64(word.at, named.pack(pool, word));
            pool.flush(word.at, 8);
            repaired = true;
        }
        let segment = Segment { at: named.at, depth: named.depth };
        let prefix = index >> (directory.depth - named.depth);
        if pool.bytes(segment.at, table.shape.segment_bytes as usize).is_none() {
            return Err(wrong("a word names no segment"));
        }
        segments.push((segment, prefix));
        index += range;
    }
    if repaired {
        // Every write checks whether this fence succeeded.
        pool.fence();
    }
    Ok(segments)
}
