//! Growth without stopping: a full segment is split in two, a full directory doubled
//! (extendible hashing; in place of MICA's bounded index, which HiKV's paper leaves open).
//!
//! Persist order of a split of segment S of depth L into S and N, under all stripes of the partition:
//! 1. N's extent word durable (by the allocator);
//! 2. N's header and its half of S's entries, at the same buckets and slots; fence;
//! 3. the first directory word of the upper half names (N, L+1); flush, fence: **the split is done**;
//! 4. the other words: upper half (N, L+1), lower half (S, L+1); flush, fence.
//!
//! A crash before 3 leaves N unreachable, to be swept. A crash after it leaves words of depth L in a range
//! whose first upper word has L+1; [`repair`] completes them, and does the same again if it is cut short.
//! Until a writer may change N or S again (the stripes), both hold each moved entry, so a reader of either is right.
//!
//! Doubling: the new directory is written whole, fence, then the root word; flush, fence. The old one is retired.

use lodestore_contract::{Error, Result};
use lodestore_media::{Mutant, NvPtr, Pool};

use crate::hash::{DEPTH_MAX, Signature};
use crate::layout::{BUCKET, Deep, KIND_DIRECTORY, KIND_SEGMENT, SegmentHeader, root_word};
use crate::options::INDEX_FULL;
use crate::table::{Segment, Table};

/// Bytes of a directory of this depth.
pub(crate) fn directory_bytes(depth: u32) -> u64 {
    8 << depth
}

/// Writes a new store's segments and directories: one segment a partition. Ends without a fence.
///
/// # Errors
/// [`Error::Full`].
pub(crate) fn format(table: &Table, pool: &Pool) -> Result<()> {
    for partition in 0..table.shape.partitions {
        let segment = pool.allocator().alloc_extent(pool, u64::from(table.shape.segment_bytes), KIND_SEGMENT)?;
        pool.zero(segment, table.shape.segment_bytes as usize);
        pool.flush(segment, table.shape.segment_bytes as usize);
        pool.store_durable(segment, &[&SegmentHeader { partition, depth: 0, prefix: 0 }.to_bytes()]);
        let directory = pool.allocator().alloc_extent(pool, directory_bytes(0), KIND_DIRECTORY)?;
        pool.store_durable(directory, &[&Deep { at: segment, depth: 0 }.pack().to_le_bytes()]);
        pool.fence();
        let root = root_word(pool, partition as usize);
        pool.publish_u64(root, Deep { at: directory, depth: 0 }.pack());
        pool.flush(root, 8);
    }
    Ok(())
}

/// Splits the segment of `sig`. The caller holds all stripes of its partition.
///
/// # Errors
/// [`Error::Full`], [`Error::IndexFull`]; nothing is changed then. [`Error::Poisoned`]: an open completes what was begun.
pub(crate) fn split(table: &Table, pool: &Pool, sig: Signature) -> Result<()> {
    let partition = table.place.partition(sig);
    let old = table.segment(pool, sig);
    if old.depth == DEPTH_MAX {
        return Err(Error::IndexFull { depth: old.depth, instead: INDEX_FULL });
    }
    if table.directory(pool, partition).depth == old.depth {
        double(table, pool, partition)?;
    }
    let depth = old.depth + 1;
    let prefix = table.place.index(sig, old.depth) << 1 | 1;
    let sibling = Segment { at: fill_sibling(table, pool, partition, old, depth, prefix)?, depth };
    let directory = table.directory(pool, partition);
    let range = 1u64 << (directory.depth - old.depth);
    let first = table.place.index(sig, old.depth) << (directory.depth - old.depth);
    assert!(range >= 2, "a directory as deep as its segment was doubled above");
    let upper = first + range / 2;
    publish(pool, directory, upper, 1, sibling);
    fence_checked(pool)?;
    publish(pool, directory, upper + 1, range / 2 - 1, sibling);
    publish(pool, directory, first, range / 2, Segment { at: old.at, depth });
    fence_checked(pool)?;
    debug_assert!(table.segment(pool, sig).depth == depth);
    Ok(())
}

/// A fence that what is stored next relies on.
///
/// # Errors
/// [`Error::Poisoned`] where a sync has failed: nothing more is stored then.
fn fence_checked(pool: &Pool) -> Result<()> {
    pool.fence();
    if pool.mutant(Mutant::GrowthUnchecked) { Ok(()) } else { pool.check() }
}

/// Stores `count` directory words from `first` on, and flushes them.
fn publish(pool: &Pool, directory: Deep, first: u64, count: u64, segment: Segment) {
    let word = Deep { at: segment.at, depth: segment.depth }.pack();
    for index in first..first + count {
        pool.publish_u64(directory.at.add(index * 8), word);
    }
    if count > 0 {
        pool.flush(directory.at.add(first * 8), count as usize * 8);
    }
}

/// A new segment that holds the entries of `old` that belong to `prefix`; durable when this returns.
fn fill_sibling(table: &Table, pool: &Pool, partition: usize, old: Segment, depth: u32, prefix: u64) -> Result<NvPtr> {
    let bytes = table.shape.segment_bytes as usize;
    let at = pool.allocator().alloc_extent(pool, bytes as u64, KIND_SEGMENT)?;
    let mut image = vec![0u8; bytes];
    let header = SegmentHeader { partition: partition as u32, depth, prefix };
    image[..BUCKET as usize].copy_from_slice(&header.to_bytes());
    for bucket in 0..table.shape.buckets() as usize {
        let from = Table::bucket(old, bucket);
        let words = pool.load_words::<16>(from);
        for entry in 0..8 {
            let (sig, position) = (words[entry * 2], words[entry * 2 + 1]);
            if sig != 0 && position != 0 && table.place.belongs(sig, partition, depth, prefix) {
                if pool.mutant(Mutant::SplitDropsEntry) && entry == 0 {
                    continue;
                }
                let slot = (bucket + 1) * BUCKET as usize + entry * 16;
                image[slot..slot + 8].copy_from_slice(&sig.to_le_bytes());
                image[slot + 8..slot + 16].copy_from_slice(&position.to_le_bytes());
            }
        }
    }
    if pool.mutant(Mutant::SplitFlipsEarly) {
        pool.store(at, &image);
        return Ok(at);
    }
    pool.store_durable(at, &[&image]);
    fence_checked(pool)?;
    Ok(at)
}

/// Doubles a partition's directory.
fn double(table: &Table, pool: &Pool, partition: usize) -> Result<()> {
    let old = table.directory(pool, partition);
    let depth = old.depth + 1;
    let mut image = Vec::with_capacity(directory_bytes(depth) as usize);
    for index in 0..1u64 << old.depth {
        let word = pool.load_u64(old.at.add(index * 8)).to_le_bytes();
        image.extend_from_slice(&word);
        image.extend_from_slice(&word);
    }
    let at = pool.allocator().alloc_extent(pool, directory_bytes(depth), KIND_DIRECTORY)?;
    pool.store_durable(at, &[&image]);
    fence_checked(pool)?;
    let root = root_word(pool, partition);
    // A recovery that reads the new root never meets the old directory: it must not sweep what is still to be retired.
    pool.allocator().keep_extent(old.at);
    pool.publish_u64(root, Deep { at, depth }.pack());
    pool.flush(root, 8);
    fence_checked(pool)?;
    pool.epochs().retire_extent(pool, old.at);
    Ok(())
}

/// Makes the root area and the directories durable as they stand: a process that was killed may have stored a word and not flushed it,
/// and what [`repair`] and every write after it do is built on that word.
///
/// # Errors
/// [`Error::Corrupt`] where a root word names no directory.
pub(crate) fn settle(table: &Table, pool: &Pool) -> Result<()> {
    pool.flush(pool.root(), Pool::ROOT_BYTES as usize);
    for partition in 0..table.shape.partitions as usize {
        let Deep { at, depth } = named_directory(table, pool, partition)?;
        pool.flush(at, directory_bytes(depth) as usize);
    }
    pool.fence_checked()
}

/// The directory that a root word names, if it lies in the pool.
fn named_directory(table: &Table, pool: &Pool, partition: usize) -> Result<Deep> {
    let directory = table.directory(pool, partition);
    let is_there = !directory.at.is_null()
        && directory.depth <= DEPTH_MAX
        && pool.bytes(directory.at, directory_bytes(directory.depth) as usize).is_some();
    if is_there {
        return Ok(directory);
    }
    Err(Error::corrupt(format!("directory of partition {partition}"), "root word names no directory"))
}

/// Completes a split that a crash cut short, and checks that the directory is one that splits leave. Idempotent.
/// Returns the partition's segments, each with its prefix.
///
/// # Errors
/// [`Error::Corrupt`].
pub(crate) fn repair(table: &Table, pool: &Pool, partition: usize) -> Result<Vec<(Segment, u64)>> {
    let wrong = |what: &str| Error::corrupt(format!("directory of partition {partition}"), what);
    let directory = named_directory(table, pool, partition)?;
    let words = 1u64 << directory.depth;
    let word_at = |index: u64| Deep::unpack(pool.load_u64(directory.at.add(index * 8)));
    let mut segments = Vec::new();
    let mut mended = false;
    let mut index = 0;
    while index < words {
        let mut named = word_at(index);
        if named.depth > directory.depth || !index.is_multiple_of(1 << (directory.depth - named.depth)) {
            return Err(wrong("a word whose depth does not fit its place"));
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
            if pool.mutant(Mutant::SplitRecoverySkipped) {
                continue;
            }
            if found.depth + 1 != named.depth {
                return Err(wrong("words of one range differ in more than an unfinished split"));
            }
            let word = directory.at.add(other * 8);
            if pool.mutant(Mutant::SplitRecoveryTwice) {
                pool.publish_u64(word, 0);
                pool.flush(word, 8);
                pool.fence();
            }
            pool.publish_u64(word, named.pack());
            pool.flush(word, 8);
            mended = true;
        }
        let segment = Segment { at: named.at, depth: named.depth };
        let prefix = index >> (directory.depth - named.depth);
        if pool.bytes(segment.at, table.shape.segment_bytes as usize).is_none() {
            return Err(wrong("a word that names no segment"));
        }
        if SegmentHeader::is_foreign(pool, segment.at, partition, segment.depth, prefix) {
            return Err(wrong("a word that names something else than its segment"));
        }
        segments.push((segment, prefix));
        index += range;
    }
    if mended {
        // Every write asks whether it held.
        pool.fence();
    }
    Ok(segments)
}
