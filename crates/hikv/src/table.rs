//! The partitioned hash index on the medium: lookups, and the single store that publishes an entry.
//!
//! Invariants:
//! 1. An entry is a pair of words (`entry.rs`). It changes only by one 16-byte compare-and-swap.
//! 2. A key's entry is in one of its two buckets, in the one segment that its directory names. Only
//!    a split moves it.
//! 3. An entry whose signature belongs to the sibling of the segment's last split is free if its
//!    check bits match its record: a crash came before the split cleared it. The same holds for the
//!    second word of a torn swap. The walk after a crash frees both. Any other entry with a foreign
//!    signature or bucket is damage.
//! 4. At most one entry of a segment names a record of a given key; writers of a key hold its
//!    stripe.
//! 5. Segments are never freed while the store is open: a reader may use one that it found earlier.
//! 6. The position in a reachable entry names a durable record, which the entry's check bits
//!    verify.
//! 7. A damaged entry is never overwritten, except by a write of the key with its signature. A
//!    split copies damage to both segments.
//!
//! 8. A directory word can change while the store is open. Whatever it names then, an entry that is
//!    found there is the key's: its check bits depend on its slot. Writers, and readers that miss,
//!    compare the word's check bits.
//!
//! Readers acquire no lock. Writers hold the stripe of the key.

use lodestore_contract::{Error, Result};
use lodestore_inplace::copied_key;
use lodestore_media::{NvPtr, Pool};

use crate::entry::{Entry, names_record};
use crate::hash::{Placement, Signature};
use crate::layout::{BUCKET_BYTES, BUCKET_ENTRIES, Deep, ENTRY_BYTES, Superblock, WordPlace};
use crate::planted;
use crate::record::Record;
use crate::roots::Roots;

/// The index: its shape and access. All state but a copy of the root words is on the medium.
pub(crate) struct Table {
    pub(crate) placement: Placement,
    pub(crate) shape: Superblock,
    /// The directories, as an open found them (`split::repair`) and doublings changed them.
    pub(crate) roots: Roots,
}

/// A segment as its directory names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub(crate) at: NvPtr,
    pub(crate) depth: u32,
}

/// A segment and its location in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentLocation {
    pub(crate) segment: Segment,
    pub(crate) partition: usize,
    pub(crate) prefix: u64,
}

impl SegmentLocation {
    /// The end of the segment's prefix, aligned to 32 bits.
    pub(crate) fn end(&self) -> u64 {
        (self.prefix + 1) << (32 - self.segment.depth)
    }
}

/// A slot and the entry that was read from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) at: NvPtr,
    pub(crate) bucket: usize,
    pub(crate) entry: Entry,
}

/// Form of a slot, judged by its words alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Free: its own mark, or half of a swap that a crash tore.
    Free,
    /// Names a record of this segment and bucket.
    Live,
    /// Names a record of the sibling of the segment's last split.
    Stray,
    /// Not a state that the engine stores.
    Damaged,
}

/// Form of a slot, judged by its words and its record.
pub(crate) enum Verdict<'a> {
    /// The slot holds no key.
    Free,
    /// A whole record whose key has the entry's signature.
    Whole(Record<'a>),
    /// The entry is valid and its record is damaged. The record is given if its lengths are
    /// possible.
    BadRecord(Option<Record<'a>>, Error),
    /// The entry is damaged: any key of this bucket may have been in it.
    Damaged(Error),
}

/// A slot with a free entry.
pub(crate) type FreeSlot = (NvPtr, Entry);

/// An entry that names a record of the requested key. Always bound. The tag of the record's
/// position is the expiry bit.
pub(crate) type Hit<'a> = lodestore_inplace::Found<'a, Entry, u64>;

/// Number of records to prefetch ahead in walks.
pub(crate) const PREFETCH_RECORDS: usize = 12;
/// Bytes of a record that are prefetched together: header, key and the start of the value.
pub(crate) const PREFETCH_BYTES: usize = 320;
/// Minimum used entries of the home bucket with which the other bucket is considered.
const HOME_FILL_MIN: usize = BUCKET_ENTRIES / 2;

impl Table {
    pub(crate) fn new(shape: Superblock) -> Self {
        let placement = Placement::new(shape.seed, shape.partitions, shape.buckets());
        Self { placement, shape, roots: Roots::new() }
    }

    /// Returns the segment that the directory names for this signature now, for a search for an
    /// entry. Compares no check bits: the segment may be anywhere, also outside of all regions.
    #[inline]
    pub(crate) fn likely_segment(&self, pool: &Pool, sig: Signature) -> Segment {
        let directory = self.roots.load(self.placement.partition(sig));
        let index = self.placement.index(sig, directory.depth);
        let Deep { at, depth } = Deep::unpack(pool.load_u64(directory.at.add(index * 8)));
        Segment { at, depth }
    }

    /// Returns the segment that the directory names for this signature now, if the word's check
    /// bits are right.
    #[inline]
    pub(crate) fn named_segment(&self, pool: &Pool, sig: Signature) -> Option<Segment> {
        let partition = self.placement.partition(sig);
        let directory = self.roots.load(partition);
        let index = self.placement.index(sig, directory.depth);
        named_by(pool, directory, partition, index)
    }

    /// Returns the segment of this signature, for code that needs the whole segment. `None` if the
    /// directory word is damaged.
    #[inline]
    pub(crate) fn segment(&self, pool: &Pool, sig: Signature) -> Option<Segment> {
        self.named_segment(pool, sig).filter(|segment| pool.contains(segment.at, self.shape.segment_bytes as usize))
    }

    /// Returns the segment that the directory names for a prefix of this depth; `None` if the
    /// directory is not as deep, or the word is damaged.
    pub(crate) fn segment_of_prefix(&self, pool: &Pool, partition: usize, depth: u32, prefix: u64) -> Option<Segment> {
        let directory = self.roots.load(partition);
        let index = prefix << directory.depth.checked_sub(depth)?;
        let segment = named_by(pool, directory, partition, index)?;
        pool.contains(segment.at, self.shape.segment_bytes as usize).then_some(segment)
    }

    /// Checks that the root word of a partition on the medium is the one that lookups use, and the
    /// check bits of all words of its directory. The caller holds an epoch guard.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn check_directory(&self, pool: &Pool, partition: usize) -> Result<()> {
        let known = self.roots.load(partition);
        let place = WordPlace::root(pool, partition);
        let word = pool.load_u64(place.at);
        let found = Deep::unpack(word);
        // A doubling stores the deeper directory on the medium first.
        if !(Deep::is_valid(word, pool, place) && (found == known || found.depth > known.depth)) {
            let what = "the word changed while the store was open";
            return Err(Error::corrupt(format!("root word of partition {partition}"), what));
        }
        if (0..1 << known.depth).any(|index| named_by(pool, known, partition, index).is_none()) {
            return Err(damaged_word(partition));
        }
        Ok(())
    }

    /// Returns the address of a bucket.
    #[inline]
    pub(crate) fn bucket(segment: Segment, index: usize) -> NvPtr {
        segment.at.add(BUCKET_BYTES + index as u64 * BUCKET_BYTES)
    }

    /// Starts to load both buckets of a key.
    #[inline]
    pub(crate) fn prefetch(&self, pool: &Pool, segment: Segment, sig: Signature) {
        let (home, other) = self.placement.buckets(sig);
        pool.prefetch(Self::bucket(segment, home), BUCKET_BYTES as usize);
        pool.prefetch(Self::bucket(segment, other), BUCKET_BYTES as usize);
    }

    /// Returns the first entry with this signature and its slot, for the prefetch of a batched
    /// read. Does not read the record.
    #[inline]
    pub(crate) fn candidate(&self, pool: &Pool, segment: Segment, sig: Signature) -> Option<(NvPtr, Entry)> {
        let (home, other) = self.placement.buckets(sig);
        for bucket in [home, other] {
            let at = Self::bucket(segment, bucket);
            let named = pool.pairs_with::<BUCKET_ENTRIES>(at, sig.0)?;
            if named != 0 {
                let slot = at.add(u64::from(named.trailing_zeros()) * ENTRY_BYTES);
                let entry = Entry::load(pool, slot);
                return (entry.sig == sig.0 && names_record(entry.word)).then_some((slot, entry));
            }
        }
        None
    }

    /// Returns the entry of `key`, if there is one. The caller holds an epoch guard. `segment` may
    /// be that of a damaged directory word.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if an entry with the key's signature names no record, or a record with a
    /// damaged key; or if a bucket is not in a region.
    #[inline]
    pub(crate) fn find<'a>(
        &self,
        pool: &'a Pool,
        segment: Segment,
        sig: Signature,
        key: &[u8],
    ) -> Result<Option<Hit<'a>>> {
        let (home, other) = self.placement.buckets(sig);
        for bucket in [home, other] {
            let at = Self::bucket(segment, bucket);
            let Some(mut named) = pool.pairs_with::<BUCKET_ENTRIES>(at, sig.0) else {
                return Err(damaged_word(self.placement.partition(sig)));
            };
            while named != 0 {
                let slot = at.add(u64::from(named.trailing_zeros()) * ENTRY_BYTES);
                named &= named - 1;
                // The words were read one by one; reload them as an atomic pair.
                let entry = Entry::load(pool, slot);
                if entry.sig != sig.0 || !names_record(entry.word) {
                    continue;
                }
                let position = entry.position();
                pool.prefetch(position.untagged(), PREFETCH_BYTES);
                let record = Record::read(pool, position)?;
                if record.key() == key && is_bound(pool, entry, slot, record.binding()) {
                    return Ok(Some(Hit { at: slot, entry, record_at: position, record, is_bound: true }));
                }
                check_other_record(&record, slot, entry)?;
            }
        }
        Ok(None)
    }

    /// Returns whether a new key goes to its home bucket, by the used entries of both buckets.
    #[inline]
    pub(crate) fn prefers_home(home_used: usize, other_used: usize) -> bool {
        home_used < HOME_FILL_MIN || home_used <= other_used
    }

    /// Returns whether an entry is free in the segment of this depth to which `sig` belongs.
    #[inline]
    pub(crate) fn is_free(&self, sig: Signature, entry: (u64, u64), depth: u32) -> bool {
        entry.0 == 0 || !names_record(entry.1) || !self.placement.same_segment(sig, entry.0, depth)
    }
}

/// Returns the segment that a directory word names, if the word's check bits are right.
#[inline]
pub(crate) fn named_by(pool: &Pool, directory: Deep, partition: usize, index: u64) -> Option<Segment> {
    let place = WordPlace::in_directory(directory, partition, index);
    let word = pool.load_u64(place.at);
    let Deep { at, depth } = Deep::unpack(word);
    (Deep::is_valid(word, pool, place) && depth <= directory.depth).then_some(Segment { at, depth })
}

/// Returns the error for a directory word that changed while the store was open.
#[cold]
pub(crate) fn damaged_word(partition: usize) -> Error {
    Error::corrupt(format!("directory of partition {partition}"), "a word is damaged: its keys cannot be found")
}

/// Accepts a whole record of another key that has the same signature, which is very rare. Anything
/// else is damage: of the record, or of an entry that names a record which is not its own.
///
/// # Errors
/// [`Error::Corrupt`].
#[cold]
pub(crate) fn check_other_record(record: &Record<'_>, slot: NvPtr, entry: Entry) -> Result<()> {
    record.check(entry.position())?;
    if entry.is_bound(slot, record.binding()) { Ok(()) } else { Err(unbound_entry(slot)) }
}

/// Returns the error for an entry whose check bits do not match its record.
#[cold]
pub(crate) fn unbound_entry(slot: NvPtr) -> Error {
    Error::corrupt(format!("index entry {slot:?}"), "the check bits of the entry do not match its record")
}

/// Returns the slots of one segment that are not free by their own mark, in no order. The two words
/// of a pair may be read at different times: [`Table::judge`] reads a suspicious pair again.
pub(crate) fn used_slots(table: &Table, pool: &Pool, segment: Segment) -> Vec<Slot> {
    let buckets = table.shape.buckets() as usize;
    let mut found = Vec::with_capacity(buckets * BUCKET_ENTRIES);
    for bucket in 0..buckets {
        let first = Table::bucket(segment, bucket);
        let words = pool.load_words::<16>(first);
        for index in 0..BUCKET_ENTRIES {
            let entry = Entry { sig: words[index * 2], word: words[index * 2 + 1] };
            let at = first.add(index as u64 * ENTRY_BYTES);
            if entry.sig != 0 || entry != Entry::free(pool, at) {
                found.push(Slot { at, bucket, entry });
            }
        }
    }
    found
}

impl Table {
    /// Returns the slots of a bucket, each read as one pair.
    pub(crate) fn bucket_slots(pool: &Pool, segment: Segment, bucket: usize) -> impl Iterator<Item = Slot> {
        let first = Self::bucket(segment, bucket);
        (0..BUCKET_ENTRIES as u64).map(move |index| {
            let at = first.add(index * ENTRY_BYTES);
            Slot { at, bucket, entry: Entry::load(pool, at) }
        })
    }

    /// Returns the form of a slot of this segment.
    pub(crate) fn form(&self, pool: &Pool, location: SegmentLocation, slot: Slot) -> Form {
        let Entry { sig, word } = slot.entry;
        let is_own_mark = word == Entry::free(pool, slot.at).word;
        match (sig, names_record(word)) {
            (0, true) => Form::Free,
            (_, false) if is_own_mark => Form::Free,
            (_, false) => Form::Damaged,
            (sig, true) => {
                let SegmentLocation { segment, partition, prefix } = location;
                let (first, second) = self.placement.buckets(Signature(sig));
                if slot.bucket != first && slot.bucket != second {
                    Form::Damaged
                } else if self.placement.belongs(sig, partition, segment.depth, prefix) {
                    Form::Live
                } else if segment.depth > 0 && self.placement.belongs(sig, partition, segment.depth - 1, prefix >> 1) {
                    Form::Stray
                } else {
                    Form::Damaged
                }
            }
        }
    }

    /// Judges a slot by its form and the record that it names. The caller holds an epoch guard
    /// from before the slot was read.
    pub(crate) fn judge<'a>(&self, pool: &'a Pool, location: SegmentLocation, slot: Slot) -> Verdict<'a> {
        let verdict = self.judge_as_read(pool, location, slot);
        let now = Entry::load(pool, slot.at);
        if now == slot.entry || !matches!(verdict, Verdict::Damaged(_) | Verdict::BadRecord(..)) {
            return verdict;
        }
        // A writer changed the slot, or its words were read at different times.
        self.judge_as_read(pool, location, Slot { entry: now, ..slot })
    }

    fn judge_as_read<'a>(&self, pool: &'a Pool, location: SegmentLocation, slot: Slot) -> Verdict<'a> {
        let place = || format!("index entry {:?} of segment {:?}", slot.at, location.segment.at);
        let damaged = |what: &str| Verdict::Damaged(Error::corrupt(place(), what));
        match self.form(pool, location, slot) {
            Form::Free | Form::Stray if !self.is_left_by_crash(pool, slot) => {
                damaged("the slot is not free, and a crash cannot have left its content")
            }
            Form::Free | Form::Stray => Verdict::Free,
            Form::Damaged => damaged("the slot is neither free nor has an entry of this bucket"),
            Form::Live => {
                let position = slot.entry.position();
                if !binding_at(pool, position).is_some_and(|binding| slot.entry.is_bound(slot.at, binding)) {
                    return Verdict::Damaged(unbound_entry(slot.at));
                }
                match Record::read(pool, position) {
                    Err(error) => Verdict::BadRecord(None, error),
                    Ok(record) => match record.check(position) {
                        Err(error) => Verdict::BadRecord(Some(record), error),
                        Ok(()) if self.placement.sign(record.key()).0 == slot.entry.sig => Verdict::Whole(record),
                        Ok(()) => damaged("the signature of the entry is not that of its record's key"),
                    },
                }
            }
        }
    }

    /// Returns whether a slot that names no key of this segment is free by its own mark, or in a
    /// state left by a crash: an entry that a split moved, or the second word of a torn swap. Both
    /// name a record whose space is not reused before the walk of the next open ends, and the walk
    /// frees both slots. The check bits must therefore still match the record.
    fn is_left_by_crash(&self, pool: &Pool, slot: Slot) -> bool {
        let Entry { sig, word } = slot.entry;
        if !names_record(word) || pool.has_fault(planted::ENTRY_CHECK_IGNORED) {
            return true;
        }
        let position = slot.entry.position();
        let Some(binding) = binding_at(pool, position) else { return false };
        let sig = match copied_key::<u64>(pool, position) {
            Some(key) if sig == 0 || sig == self.placement.sign(&key).0 => self.placement.sign(&key).0,
            Some(_) => return false,
            None => sig,
        };
        Entry { sig, word }.is_bound(slot.at, binding)
    }

    /// Checks both buckets of a signature for damage, slot by slot. The caller holds an epoch
    /// guard.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the key may have been in a damaged slot.
    #[cold]
    pub(crate) fn check_buckets(&self, pool: &Pool, segment: Segment, sig: Signature) -> Result<()> {
        let prefix = self.placement.index(sig, segment.depth);
        let location = SegmentLocation { segment, partition: self.placement.partition(sig), prefix };
        let (first, second) = self.placement.buckets(sig);
        for bucket in [first, second] {
            for slot in Self::bucket_slots(pool, segment, bucket) {
                if let Verdict::Damaged(error) = self.judge(pool, location, slot) {
                    return Err(Error::corrupt(
                        format!("index bucket {:?}", Self::bucket(segment, bucket)),
                        format!("the absent key may have been in this bucket: {error}"),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns the first slot of a signature's buckets that is free without doubt.
    #[cold]
    pub(crate) fn find_sound_free(&self, pool: &Pool, segment: Segment, sig: Signature) -> Option<FreeSlot> {
        let prefix = self.placement.index(sig, segment.depth);
        let location = SegmentLocation { segment, partition: self.placement.partition(sig), prefix };
        let (first, second) = self.placement.buckets(sig);
        let mut slots = [first, second].into_iter().flat_map(|bucket| Self::bucket_slots(pool, segment, bucket));
        slots
            .find(|slot| matches!(self.judge_as_read(pool, location, *slot), Verdict::Free))
            .map(|slot| (slot.at, slot.entry))
    }
}

/// Returns whether the check of an entry in this slot matches the record's checksum.
#[inline]
pub(crate) fn is_bound(pool: &Pool, entry: Entry, slot: NvPtr, binding: u32) -> bool {
    entry.is_bound(slot, binding) || pool.has_fault(planted::ENTRY_CHECK_IGNORED)
}

/// Returns the checksum that the record at this position stores, if the position is in the pool.
pub(crate) fn binding_at(pool: &Pool, position: NvPtr) -> Option<u32> {
    let at = position.untagged();
    pool.contains(at, 8).then(|| pool.load_u64(at) as u32)
}
