//! The partitioned hash index on the medium: looking up, and the one store that publishes.
//!
//! Invariants:
//! 1. An entry is (signature, position); half-zero means free. It changes only by one 16-byte compare-and-swap.
//! 2. A key's entry stands in one of its two buckets, of the one segment that its directory names; it moves only by a split.
//! 3. An entry whose hash does not belong to the segment at its present depth is free: a split left it behind.
//! 4. At most one entry of a segment names a record of a given key; writers of a key hold its stripe.
//! 5. Segments are never given back while the store is open, so a reader may use one it found a moment ago.
//! 6. The position in a reachable entry names a durable record.
//!
//! Readers take no lock. Writers hold the stripe of the key.

use lodestore_contract::{Error, Result};
use lodestore_media::{NvPtr, Pool};

use crate::hash::{Placement, Signature};
use crate::layout::{BUCKET, BUCKET_ENTRIES, Deep, ENTRY, Superblock, root_word};
use crate::record::Record;

/// The index: shape and access, no state of its own but the medium's.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    pub(crate) place: Placement,
    pub(crate) shape: Superblock,
}

/// A segment as its directory names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) at: NvPtr,
    pub(crate) depth: u32,
}

/// A slot with a free entry, and what stands in it.
pub(crate) type FreeSlot = (NvPtr, (u64, u64));

/// An entry that names a record of the key looked for.
#[derive(Clone, Copy)]
pub(crate) struct Hit<'a> {
    /// Where the entry stands.
    pub(crate) slot: NvPtr,
    /// What it holds.
    pub(crate) position: NvPtr,
    pub(crate) record: Record<'a>,
}

/// What a writer finds in a key's two buckets.
pub(crate) struct Probe {
    /// Entries with the key's signature: slot and position. More than one only if two keys share a hash.
    same: [(NvPtr, NvPtr); BUCKET_ENTRIES * 2],
    same_len: usize,
    /// A free slot and what stands in it, by the paper's rule of a home bucket with a second choice.
    pub(crate) free: Option<FreeSlot>,
}

/// Records whose bytes are asked for ahead of the one that is read, in walks.
pub(crate) const AHEAD: usize = 12;
/// Bytes of a record that are asked for together, once its position is known: header, key and the first of the value.
pub(crate) const READ_AHEAD: usize = 320;
/// Entries in the home bucket before the other one is considered.
const HOME_FILL: usize = BUCKET_ENTRIES / 2;

impl Table {
    pub(crate) fn new(shape: Superblock) -> Self {
        Self { place: Placement::new(shape.seed, shape.partitions, shape.buckets()), shape }
    }

    /// The directory of a partition.
    #[inline]
    pub(crate) fn directory(&self, pool: &Pool, partition: usize) -> Deep {
        Deep::unpack(pool.load_u64(root_word(pool, partition)))
    }

    /// The segment that the directory names for this signature now.
    #[inline]
    pub(crate) fn segment(&self, pool: &Pool, sig: Signature) -> Segment {
        let directory = self.directory(pool, self.place.partition(sig));
        let index = self.place.index(sig, directory.depth);
        let Deep { at, depth } = Deep::unpack(pool.load_u64(directory.at.add(index * 8)));
        Segment { at, depth }
    }

    /// Where a bucket begins.
    #[inline]
    pub(crate) fn bucket(segment: Segment, index: usize) -> NvPtr {
        segment.at.add(BUCKET + index as u64 * BUCKET)
    }

    /// Starts to load both buckets of a key.
    #[inline]
    pub(crate) fn prefetch(&self, pool: &Pool, segment: Segment, sig: Signature) {
        let (home, other) = self.place.buckets(sig);
        pool.prefetch(Self::bucket(segment, home), BUCKET as usize);
        pool.prefetch(Self::bucket(segment, other), BUCKET as usize);
    }

    /// The first entry with this signature, slot and position, without a look at its record: what a batch of reads prefetches.
    #[inline]
    pub(crate) fn candidate(&self, pool: &Pool, segment: Segment, sig: Signature) -> Option<(NvPtr, NvPtr)> {
        let (home, other) = self.place.buckets(sig);
        for bucket in [home, other] {
            let at = Self::bucket(segment, bucket);
            let named = pool.pairs_with::<BUCKET_ENTRIES>(at, sig.0);
            if named != 0 {
                let slot = at.add(u64::from(named.trailing_zeros()) * ENTRY);
                let (now, position) = pool.load_u128(slot);
                return (now == sig.0 && position != 0).then_some((slot, NvPtr::from_raw(position)));
            }
        }
        None
    }

    /// The entry of `key`, if one is there. The caller holds an epoch guard.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where an entry with the key's signature names no record, or one of a damaged key.
    #[inline]
    pub(crate) fn find<'a>(
        &self,
        pool: &'a Pool,
        segment: Segment,
        sig: Signature,
        key: &[u8],
    ) -> Result<Option<Hit<'a>>> {
        let (home, other) = self.place.buckets(sig);
        for bucket in [home, other] {
            let at = Self::bucket(segment, bucket);
            let mut named = pool.pairs_with::<BUCKET_ENTRIES>(at, sig.0);
            while named != 0 {
                let slot = at.add(u64::from(named.trailing_zeros()) * ENTRY);
                named &= named - 1;
                // The words were read one by one; the pair is read as one.
                let (now, position) = pool.load_u128(slot);
                if now != sig.0 || position == 0 {
                    continue;
                }
                let position = NvPtr::from_raw(position);
                pool.prefetch(position.untagged(), READ_AHEAD);
                let record = Record::read(pool, position)?;
                if record.key() == key {
                    return Ok(Some(Hit { slot, position, record }));
                }
                is_another(&record, position)?;
            }
        }
        Ok(None)
    }

    /// Reads both buckets for a writer that holds the key's stripe.
    #[inline]
    pub(crate) fn probe(&self, pool: &Pool, segment: Segment, sig: Signature) -> Probe {
        let (home, other) = self.place.buckets(sig);
        let mut probe = Probe { same: [(NvPtr::NULL, NvPtr::NULL); BUCKET_ENTRIES * 2], same_len: 0, free: None };
        let (home_used, home_free) = self.probe_bucket(pool, segment, sig, home, &mut probe);
        let (other_used, other_free) = self.probe_bucket(pool, segment, sig, other, &mut probe);
        probe.free =
            if Self::prefers_home(home_used, other_used) { home_free.or(other_free) } else { other_free.or(home_free) };
        probe
    }

    /// Whether a new key goes to its home bucket, by the entries used there and in the other one.
    #[inline]
    pub(crate) fn prefers_home(home_used: usize, other_used: usize) -> bool {
        home_used < HOME_FILL || home_used <= other_used
    }

    /// Whether an entry of the segment of this depth to which `sig` belongs is free.
    #[inline]
    pub(crate) fn is_free(&self, sig: Signature, entry: (u64, u64), depth: u32) -> bool {
        entry.0 == 0 || entry.1 == 0 || !self.place.same_segment(sig, entry.0, depth)
    }

    #[inline]
    fn probe_bucket(
        &self,
        pool: &Pool,
        segment: Segment,
        sig: Signature,
        bucket: usize,
        probe: &mut Probe,
    ) -> (usize, Option<FreeSlot>) {
        let at = Self::bucket(segment, bucket);
        let words = pool.load_words::<16>(at);
        let mut used = 0;
        let mut free = None;
        for entry in 0..BUCKET_ENTRIES {
            let (found, position) = (words[entry * 2], words[entry * 2 + 1]);
            let slot = at.add(entry as u64 * ENTRY);
            if self.is_free(sig, (found, position), segment.depth) {
                free = free.or(Some((slot, (found, position))));
            } else {
                used += 1;
                if found == sig.0 {
                    probe.same[probe.same_len] = (slot, NvPtr::from_raw(position));
                    probe.same_len += 1;
                }
            }
        }
        (used, free)
    }
}

impl Probe {
    /// Whether some entry has the key's signature.
    #[inline]
    pub(crate) fn has_candidates(&self) -> bool {
        self.same_len > 0
    }

    /// Entries with the key's signature: slot and position.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = (NvPtr, NvPtr)> {
        self.same[..self.same_len].iter().copied()
    }

    /// Starts to load the records of the candidates.
    #[inline]
    pub(crate) fn prefetch(&self, pool: &Pool) {
        for (_, position) in &self.same[..self.same_len] {
            pool.prefetch(position.untagged(), 64);
        }
    }

    /// The candidate whose record has this key. The caller holds the key's stripe.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where a candidate names no record, or one of a damaged key.
    #[inline]
    pub(crate) fn find<'a>(&self, pool: &'a Pool, key: &[u8]) -> Result<Option<Hit<'a>>> {
        for (slot, position) in &self.same[..self.same_len] {
            let record = Record::read(pool, *position)?;
            if record.key() == key {
                return Ok(Some(Hit { slot: *slot, position: *position, record }));
            }
            is_another(&record, *position)?;
        }
        Ok(None)
    }
}

/// Two keys hardly ever share a signature: an entry with the key's signature whose record has another key is damaged, unless the record's
/// checksum says otherwise.
#[cold]
fn is_another(record: &Record<'_>, position: NvPtr) -> Result<()> {
    record.check(position)
}

/// The live entries of one segment, each signature and position, in no order: one copy, taken at once.
pub(crate) fn entries(
    table: &Table,
    pool: &Pool,
    partition: usize,
    segment: Segment,
    prefix: u64,
) -> Vec<(u64, NvPtr)> {
    let buckets = table.shape.buckets() as usize;
    let mut found = Vec::with_capacity(buckets * BUCKET_ENTRIES);
    for bucket in 0..buckets {
        let words = pool.load_words::<16>(Table::bucket(segment, bucket));
        for entry in 0..BUCKET_ENTRIES {
            let (sig, position) = (words[entry * 2], words[entry * 2 + 1]);
            if sig != 0 && position != 0 && table.place.belongs(sig, partition, segment.depth, prefix) {
                found.push((sig, NvPtr::from_raw(position)));
            }
        }
    }
    found
}

/// Entries of a segment that do not belong to it: their signatures, positions and slots. A split leaves such entries behind
/// (invariant 3); so does a flipped bit of a signature.
pub(crate) fn strays(
    table: &Table,
    pool: &Pool,
    partition: usize,
    segment: Segment,
    prefix: u64,
) -> impl Iterator<Item = (u64, NvPtr, NvPtr)> {
    (0..table.shape.buckets() as usize).flat_map(move |bucket| {
        let at = Table::bucket(segment, bucket);
        let words = pool.load_words::<16>(at);
        (0..BUCKET_ENTRIES).filter_map(move |entry| {
            let (sig, position) = (words[entry * 2], words[entry * 2 + 1]);
            let is_stray = sig != 0 && position != 0 && !table.place.belongs(sig, partition, segment.depth, prefix);
            is_stray.then(|| (sig, NvPtr::from_raw(position), at.add(entry as u64 * ENTRY)))
        })
    })
}

/// Walks the segments of a partition in the order of their prefixes, safe beside splits: `each` gets a
/// segment's entries only if the directory still named it after they were copied.
///
/// # Errors
/// What `each` answers; [`Error::Corrupt`] for a directory that no split could have left.
pub(crate) fn walk(
    table: &Table,
    pool: &Pool,
    partition: usize,
    mut each: impl FnMut(Segment, u64, Vec<(u64, NvPtr)>) -> Result<bool>,
) -> Result<bool> {
    let mut covered = 0u64;
    while covered < 1 << 32 {
        let directory = table.directory(pool, partition);
        let word = pool.load_u64(directory.at.add((covered >> (32 - directory.depth)) * 8));
        let Deep { at, depth } = Deep::unpack(word);
        if depth > directory.depth || at.is_null() {
            return Err(Error::corrupt(
                format!("directory of partition {partition}"),
                "a word deeper than its directory",
            ));
        }
        let segment = Segment { at, depth };
        let prefix = covered >> (32 - depth);
        let found = entries(table, pool, partition, segment, prefix);
        let now = table.directory(pool, partition);
        if pool.load_u64(now.at.add((covered >> (32 - now.depth)) * 8)) != word {
            continue;
        }
        if !each(segment, prefix, found)? {
            return Ok(false);
        }
        covered += 1 << (32 - depth);
    }
    Ok(true)
}
