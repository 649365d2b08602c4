//! Byte layout of the values file, and of the LSM's entries for values. `docs/format/hashkv.md` has
//! the rulers.
//!
//! The file holds one block with the superblock, then segments of equal length. A segment holds a
//! header, then records, each at a multiple of [`RECORD_ALIGN_BYTES`]. Each append begins at a new
//! block and pads its last block with zeros, thus no block is written twice.

use lodestore_contract::{Error, Result};
use lodestore_media::{BlockFile, Blocks, crc32c};

/// The engine's name in options and pool headers.
pub(crate) const ENGINE: &str = "hashkv";

/// Magic bytes at the start of the superblock.
const MAGIC: [u8; 8] = *b"LSHASHKV";
/// Version of the file's format.
pub(crate) const VERSION: u32 = 4;
/// Magic number at the start of a segment.
const SEGMENT_MAGIC: u32 = 0x4753_4853;
/// Minimum and maximum bytes of a segment. A pointer stores offset and length as 24-bit counts of
/// steps.
pub(crate) const SEGMENT_BYTES_MIN: u32 = 8 << 10;
pub(crate) const SEGMENT_BYTES_MAX: u32 = 16 << 20;
/// Bytes of a segment's header.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 32;
/// Bytes of a record before its key.
pub(crate) const RECORD_HEADER_BYTES: usize = 16;
/// Records begin at multiples of this number of bytes.
pub(crate) const RECORD_ALIGN_BYTES: usize = 8;
/// Marker byte of a record.
const RECORD_MAGIC: u8 = 1;
/// Bytes of a pointer in the LSM, without its tag.
const POINTER_BYTES: usize = 14;

/// Tags: the last byte of an entry in the LSM.
const VALUE_TAG_ID: u8 = 0;
const POINTER_TAG_ID: u8 = 1;

/// The superblock, at the start of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) segment_bytes: u32,
    /// Clock in milliseconds since 1970 when space that may have held records of expired keys was
    /// last freed. A zeroed record whose key expires later is damage.
    pub(crate) freed_expiry_max: u64,
    /// Number of the opening that wrote to the file last; see `open_number.rs`. 0 if damaged.
    pub(crate) opening: u32,
}

/// Bytes of the superblock that its checksum covers.
pub(crate) const SUPERBLOCK_SUMMED_BYTES: usize = 24;
/// Offset of the opening's number in the superblock.
const OPENING_AT: usize = 64;
const SUPERBLOCK_BYTES: usize = OPENING_AT + 8;
/// Checksummed bytes of superblocks of versions 1 to 3. The checksum follows them.
const SUPERBLOCKS_SUMMED_BEFORE: [usize; 3] = [16, SUPERBLOCK_SUMMED_BYTES, SUPERBLOCK_SUMMED_BYTES];

impl Superblock {
    pub(crate) fn encode(self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[16..SUPERBLOCK_SUMMED_BYTES].copy_from_slice(&self.freed_expiry_max.to_le_bytes());
        let sum = crc32c(&[&bytes[..SUPERBLOCK_SUMMED_BYTES]]);
        bytes[SUPERBLOCK_SUMMED_BYTES..SUPERBLOCK_SUMMED_BYTES + 4].copy_from_slice(&sum.to_le_bytes());
        bytes[OPENING_AT..].copy_from_slice(&seal_opening(self.opening).to_le_bytes());
        bytes
    }

    /// Reads a superblock. The version is judged only if the checksum matches: a damaged version is
    /// damage, not another format.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the checksum fails or a field is out of its bounds;
    /// [`Error::NewerFormat`], [`Error::OlderFormat`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |what: &str| Error::corrupt("the superblock of values.0000", what);
        let bytes = bytes.get(..SUPERBLOCK_BYTES).ok_or_else(|| corrupt("the block is truncated"))?;
        if bytes[..8] != MAGIC {
            return Err(corrupt("the block does not begin with the magic of a superblock"));
        }
        let found = word(&bytes[8..]);
        let fits = |summed: usize| crc32c(&[&bytes[..summed]]) == word(&bytes[summed..]);
        let before = (found as usize).checked_sub(1).and_then(|index| SUPERBLOCKS_SUMMED_BEFORE.get(index));
        if before.is_some_and(|summed| fits(*summed)) {
            return Err(Error::OlderFormat { part: "values".into(), found, oldest: VERSION });
        }
        if !fits(SUPERBLOCK_SUMMED_BYTES) {
            return Err(corrupt("the checksum differs"));
        }
        if found > VERSION {
            return Err(Error::NewerFormat { part: "values".into(), found, known: VERSION });
        }
        if found < VERSION {
            return Err(corrupt("the version does not match the checksum"));
        }
        let segment_bytes = word(&bytes[12..]);
        if !segment_bytes.is_power_of_two() || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes) {
            return Err(corrupt("the segment length is not a power of two from 8 KiB to 16 MiB"));
        }
        Ok(Self { segment_bytes, freed_expiry_max: long(&bytes[16..]), opening: Self::opening_in(bytes) })
    }
}

impl Superblock {
    /// Returns the opening's number in a superblock whose other fields may be damaged; 0 if the
    /// number is damaged.
    pub(crate) fn opening_in(bytes: &[u8]) -> u32 {
        let word = bytes.get(OPENING_AT..SUPERBLOCK_BYTES).map(long);
        word.and_then(unseal_opening).unwrap_or(0)
    }
}

/// Returns the word for an opening's number: the number in the low half, its crc32c in the high
/// half. A single store changes the word, and a crash cannot tear it.
pub(crate) fn seal_opening(opening: u32) -> u64 {
    u64::from(crc32c(&[&opening.to_le_bytes()])) << 32 | u64::from(opening)
}

/// Returns the number in such a word; `None` if the word is damaged.
pub(crate) fn unseal_opening(word: u64) -> Option<u32> {
    let opening = word as u32;
    (seal_opening(opening) == word).then_some(opening)
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn long(bytes: &[u8]) -> u64 {
    u64::from(word(bytes)) | u64::from(word(&bytes[4..])) << 32
}

/// The key range of a group: all keys whose hashes begin with these bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prefix {
    /// The bits, left-justified. Bits after `depth` are zero.
    pub(crate) bits: u64,
    pub(crate) depth: u8,
}

impl Prefix {
    /// The prefix of all keys.
    pub(crate) const ALL: Self = Self { bits: 0, depth: 0 };
    /// Maximum bits of a prefix.
    pub(crate) const DEPTH_MAX: u8 = 20;

    /// Returns whether the depth is at most [`Self::DEPTH_MAX`] and all bits after it are zero.
    fn is_one(self) -> bool {
        self.depth <= Self::DEPTH_MAX && self.bits.checked_shl(self.depth.into()) == Some(0)
    }

    pub(crate) fn has(self, hash: u64) -> bool {
        self.depth == 0 || (hash ^ self.bits) >> (64 - u32::from(self.depth)) == 0
    }

    /// Returns the two halves of the prefix.
    pub(crate) fn halves(self) -> [Self; 2] {
        let depth = self.depth + 1;
        [Self { bits: self.bits, depth }, Self { bits: self.bits | 1 << (64 - u32::from(depth)), depth }]
    }
}

/// Owner of a segment, as its header names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Home {
    /// The group with this prefix.
    Group(Prefix),
    /// The cold storage, which all groups share (hotness awareness: HashKV, ATC 2018, section 3.4).
    Cold,
}

impl Home {
    /// Returns whether records with this hash may be stored here.
    pub(crate) fn has(self, hash: u64) -> bool {
        match self {
            Self::Group(prefix) => prefix.has(hash),
            Self::Cold => true,
        }
    }
}

/// A use of a segment: its number, and the generation of the use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentUse {
    pub(crate) segment: u32,
    pub(crate) generation: u32,
}

/// Encodes the header of a segment for this use.
pub(crate) fn encode_segment(SegmentUse { segment, generation }: SegmentUse, home: Home) -> [u8; SEGMENT_HEADER_BYTES] {
    let (prefix, cold) = match home {
        Home::Group(prefix) => (prefix, 0),
        Home::Cold => (Prefix::ALL, 1),
    };
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    bytes[..4].copy_from_slice(&SEGMENT_MAGIC.to_le_bytes());
    bytes[4..8].copy_from_slice(&segment.to_le_bytes());
    bytes[8..16].copy_from_slice(&prefix.bits.to_le_bytes());
    (bytes[16], bytes[17]) = (prefix.depth, cold);
    bytes[20..24].copy_from_slice(&generation.to_le_bytes());
    let sum = crc32c(&[&bytes[..28]]);
    bytes[28..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Returns the segment length derived from a header `behind` bytes after the first segment. `None`
/// if the bytes are not a header, or are the first segment's.
pub(crate) fn segment_bytes_of(header: &[u8], behind: u64) -> Option<u32> {
    let number = word(header.get(4..8)?);
    decode_segment(header, number)?;
    let bytes = behind.checked_div(u64::from(number)).filter(|bytes| bytes * u64::from(number) == behind)?;
    let bytes = u32::try_from(bytes).ok()?;
    (bytes.is_power_of_two() && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes)).then_some(bytes)
}

/// Returns owner and generation of a segment from its header. `None` if the bytes are not exactly a
/// header of this segment.
pub(crate) fn decode_segment(bytes: &[u8], segment: u32) -> Option<(Home, u32)> {
    let bytes = bytes.get(..SEGMENT_HEADER_BYTES)?;
    let prefix = Prefix { bits: long(&bytes[8..]), depth: bytes[16] };
    let home = match bytes[17] {
        0 if prefix.is_one() => Home::Group(prefix),
        1 => Home::Cold,
        _ => return None,
    };
    let generation = word(&bytes[20..]);
    (encode_segment(SegmentUse { segment, generation }, home) == bytes).then_some((home, generation))
}

/// Location of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Pointer {
    pub(crate) segment: u32,
    /// Generation: the number of this use of the segment. Numbers are unique until they wrap
    /// around. The record's checksum covers it.
    pub(crate) generation: u32,
    /// Bytes from the start of the segment, a multiple of [`RECORD_ALIGN_BYTES`].
    pub(crate) at: u32,
    /// Bytes of the record with padding, a multiple of [`RECORD_ALIGN_BYTES`].
    pub(crate) len: u32,
}

impl Pointer {
    /// Encodes the pointer as an LSM entry.
    pub(crate) fn stored(self) -> Box<[u8]> {
        let mut bytes = [0; POINTER_BYTES + 1];
        bytes[..4].copy_from_slice(&self.segment.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        for (steps, to) in [(self.at, 8), (self.len, 11)] {
            let steps = steps / RECORD_ALIGN_BYTES as u32;
            assert!(steps < 1 << 24, "segments have 16 MiB at most");
            bytes[to..to + 3].copy_from_slice(&steps.to_le_bytes()[..3]);
        }
        bytes[POINTER_BYTES] = POINTER_TAG_ID;
        bytes.into()
    }

    /// Returns the pointer to the record at `location`, of `len` bytes.
    pub(crate) fn to(location: Location, len: u32) -> Self {
        Self { segment: location.segment, generation: location.generation, at: location.at, len }
    }

    fn read(bytes: &[u8]) -> Self {
        let steps = |from: usize| {
            RECORD_ALIGN_BYTES as u32 * u32::from_le_bytes([bytes[from], bytes[from + 1], bytes[from + 2], 0])
        };
        Self { segment: word(bytes), generation: word(&bytes[4..]), at: steps(8), len: steps(11) }
    }

    /// Returns the location of its record in the store with this seed.
    pub(crate) fn location(self, seed: u32) -> Location {
        Location { seed, segment: self.segment, generation: self.generation, at: self.at }
    }
}

/// Location of a record. The record's checksum covers it: a record of another store, location or
/// generation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    /// The low half of the pool's identity.
    pub(crate) seed: u32,
    pub(crate) segment: u32,
    pub(crate) generation: u32,
    pub(crate) at: u32,
}

/// A decoded LSM entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored<'a> {
    /// The value itself.
    Value(&'a [u8]),
    Pointer(Pointer),
}

impl<'a> Stored<'a> {
    /// Decodes an LSM entry.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self> {
        match bytes.split_last() {
            Some((&VALUE_TAG_ID, value)) => Ok(Self::Value(value)),
            Some((&POINTER_TAG_ID, at)) if at.len() == POINTER_BYTES => Ok(Self::Pointer(Pointer::read(at))),
            _ => Err(Error::corrupt("a value in the index", "the item is neither a value nor a pointer")),
        }
    }
}

/// Appends the tag that makes a value an LSM entry.
pub(crate) fn tag_value(value: &mut Vec<u8>) {
    value.push(VALUE_TAG_ID);
}

/// Returns the bytes of a record, with padding.
pub(crate) fn record_len(key: usize, value: usize) -> usize {
    (RECORD_HEADER_BYTES + key + value).next_multiple_of(RECORD_ALIGN_BYTES)
}

/// A decoded record that borrows its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Record<'a> {
    /// Appends a record that will be stored at `location`.
    pub(crate) fn append(to: &mut Blocks, location: Location, key: &[u8], value: &[u8]) {
        let mut head = [0; RECORD_HEADER_BYTES];
        head[4] = RECORD_MAGIC;
        head[6..8].copy_from_slice(&((key.len() - 1) as u16).to_le_bytes());
        head[8..12].copy_from_slice(&(value.len() as u32).to_le_bytes());
        let sum = sum_of(location, &head, key, value);
        head[..4].copy_from_slice(&sum.to_le_bytes());
        let begin = to.len();
        to.extend_from_slice(&head);
        to.extend_from_slice(key);
        to.extend_from_slice(value);
        to.resize(begin + record_len(key.len(), value.len()));
    }

    /// Returns the record that begins here; `None` if no complete record does.
    pub(crate) fn read(bytes: &'a [u8], location: Location) -> Option<Self> {
        let head = bytes.get(..RECORD_HEADER_BYTES)?;
        if head[4] != RECORD_MAGIC {
            return None;
        }
        let key_len = usize::from(u16::from_le_bytes([head[6], head[7]])) + 1;
        let value_len = word(&head[8..]) as usize;
        let key = bytes.get(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + key_len)?;
        let value_at = RECORD_HEADER_BYTES + key_len;
        let value = bytes.get(value_at..value_at.checked_add(value_len)?)?;
        (sum_of(location, head, key, value) == word(head)).then_some(Self { key, value })
    }

    pub(crate) fn len(&self) -> usize {
        record_len(self.key.len(), self.value.len())
    }

    /// Makes the start of these bytes a record with a valid checksum and with lengths that fit.
    #[cfg(feature = "fuzz")]
    pub(crate) fn seal(bytes: &mut [u8], location: Location) {
        let Some(room) = bytes.len().checked_sub(RECORD_HEADER_BYTES + 1) else { return };
        let key = usize::from(bytes[6]) % (room + 1);
        let value = usize::from(bytes[8]) % (room + 1 - key);
        bytes[4] = RECORD_MAGIC;
        bytes[6..8].copy_from_slice(&(key as u16).to_le_bytes());
        bytes[8..12].copy_from_slice(&(value as u32).to_le_bytes());
        let (head, rest) = bytes.split_at_mut(RECORD_HEADER_BYTES);
        let sum = sum_of(location, head, &rest[..key + 1], &rest[key + 1..key + 1 + value]);
        head[..4].copy_from_slice(&sum.to_le_bytes());
    }
}

fn sum_of(location: Location, head: &[u8], key: &[u8], value: &[u8]) -> u32 {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&location.seed.to_le_bytes());
    bytes[4..8].copy_from_slice(&location.segment.to_le_bytes());
    bytes[8..12].copy_from_slice(&location.generation.to_le_bytes());
    bytes[12..].copy_from_slice(&location.at.to_le_bytes());
    crc32c(&[&bytes, &head[4..], key, value])
}

/// Calls `each` for every record of a segment with its pointer. `first` is the location of the
/// first record. Skips damage up to the next block. Returns whether the bytes are only records and
/// padding.
pub(crate) fn each_record<'a>(bytes: &'a [u8], first: Location, mut each: impl FnMut(Pointer, Record<'a>)) -> bool {
    let (mut at, mut whole) = (first.at as usize, true);
    while at < bytes.len() {
        let location = Location { at: at as u32, ..first };
        if let Some(record) = Record::read(&bytes[at..], location) {
            let len = record.len();
            each(Pointer::to(location, len as u32), record);
            at += len;
            continue;
        }
        let next = (at + 1).next_multiple_of(BlockFile::BLOCK as usize).min(bytes.len());
        whole &= bytes[at..next].iter().all(|byte| *byte == 0);
        at = next;
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_superblock_is_read_as_written_and_refused_when_damaged() {
        let superblock = Superblock { segment_bytes: 65536, freed_expiry_max: 1_700_000_000_000, opening: 77 };
        let bytes = superblock.encode();
        assert_eq!(Superblock::decode(&bytes).expect("whole"), superblock);
        for bit in OPENING_AT * 8..SUPERBLOCK_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                Superblock::decode(&damaged).expect("the rest is whole"),
                Superblock { opening: 0, ..superblock }
            );
        }
        for bit in 0..(SUPERBLOCK_SUMMED_BYTES + 4) * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            let decoded = Superblock::decode(&damaged);
            assert!(matches!(decoded, Err(Error::Corrupt { .. })), "bit {bit}: {decoded:?}");
        }
        Superblock::decode(&bytes[..SUPERBLOCK_BYTES - 1]).expect_err("the block is truncated");
    }

    /// A valid checksum only shows that the bytes are as they were written.
    #[test]
    fn a_superblock_with_impossible_fields_is_refused_despite_a_valid_checksum() {
        let with = |at: usize, value: u32| {
            let mut bytes = Superblock { segment_bytes: 65536, freed_expiry_max: 0, opening: 1 }.encode();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let sum = crc32c(&[&bytes[..SUPERBLOCK_SUMMED_BYTES]]);
            bytes[SUPERBLOCK_SUMMED_BYTES..SUPERBLOCK_SUMMED_BYTES + 4].copy_from_slice(&sum.to_le_bytes());
            Superblock::decode(&bytes)
        };
        for power in 0..32 {
            let decoded = with(12, 1 << power);
            if (13..=24).contains(&power) {
                assert_eq!(decoded.expect("as long as a segment may be").segment_bytes, 1 << power);
            } else {
                assert!(matches!(decoded, Err(Error::Corrupt { .. })), "2^{power}: {decoded:?}");
            }
        }
        for wrong in [0, 1, 3 << 12, 5 << 12, (64 << 10) + 4096, (16 << 20) - 4096, u32::MAX, u32::MAX - 4095] {
            let decoded = with(12, wrong);
            assert!(matches!(decoded, Err(Error::Corrupt { .. })), "{wrong}: {decoded:?}");
        }
        assert!(matches!(with(0, 0), Err(Error::Corrupt { .. })));
        assert!(matches!(with(8, VERSION + 1), Err(Error::NewerFormat { .. })));
        for older in 2..VERSION {
            assert!(matches!(with(8, older), Err(Error::OlderFormat { .. })), "{older}");
        }
        // Version 1 had its checksum at another offset.
        assert!(matches!(with(8, 1), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn a_superblock_of_an_earlier_version_is_older_and_damage_of_it_is_corrupt() {
        for (version, summed) in (1u32..).zip(SUPERBLOCKS_SUMMED_BEFORE) {
            let mut bytes = [0; SUPERBLOCK_BYTES];
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
            bytes[12..16].copy_from_slice(&65536u32.to_le_bytes());
            let sum = crc32c(&[&bytes[..summed]]);
            bytes[summed..summed + 4].copy_from_slice(&sum.to_le_bytes());
            let decoded = Superblock::decode(&bytes);
            assert!(matches!(decoded, Err(Error::OlderFormat { found, .. }) if found == version), "{decoded:?}");
            for bit in 0..(summed + 4) * 8 {
                let mut damaged = bytes;
                damaged[bit / 8] ^= 1 << (bit % 8);
                let decoded = Superblock::decode(&damaged);
                assert!(matches!(decoded, Err(Error::Corrupt { .. })), "bit {bit}: {decoded:?}");
            }
        }
    }

    #[test]
    fn halves_of_a_prefix_share_its_keys_between_them() {
        let mut prefix = Prefix::ALL;
        for step in 0..Prefix::DEPTH_MAX {
            let [low, high] = prefix.halves();
            let hash = prefix.bits | 0x5555_5555_5555_5555 >> prefix.depth;
            assert!(prefix.has(hash) && low.has(hash) != high.has(hash), "at {step}");
            prefix = if step % 3 == 0 { high } else { low };
        }
    }

    #[test]
    fn a_header_is_valid_only_in_its_segment_and_names_its_owner() {
        let [low, high] = Prefix::ALL.halves();
        for home in [Home::Group(Prefix::ALL), Home::Group(low), Home::Group(high.halves()[1]), Home::Cold] {
            let bytes = encode_segment(SegmentUse { segment: 9, generation: 1 << 20 }, home);
            assert_eq!(decode_segment(&bytes, 9), Some((home, 1 << 20)));
            assert_eq!(decode_segment(&bytes, 8), None);
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes;
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode_segment(&damaged, 9), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn a_header_with_an_impossible_field_is_refused_despite_a_valid_checksum() {
        let [low, high] = Prefix::ALL.halves();
        for (home, at, byte) in [
            (Home::Group(Prefix::ALL), 8, 1),
            (Home::Group(low), 15, 0x40),
            (Home::Group(high), 16, 0),
            (Home::Group(high), 16, 21),
            (Home::Group(high), 17, 1),
            (Home::Group(high), 17, 2),
            (Home::Group(low), 18, 1),
            (Home::Group(low), 27, 1),
            (Home::Cold, 8, 1),
        ] {
            let mut bytes = encode_segment(SegmentUse { segment: 9, generation: 5 }, home);
            bytes[at] = byte;
            let sum = crc32c(&[&bytes[..28]]);
            bytes[28..].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(decode_segment(&bytes, 9), None, "{home:?}, byte {at}");
        }
    }

    #[test]
    fn records_of_a_segment_are_found_after_padding_and_damage() {
        let mut bytes = Blocks::new();
        bytes.extend_from_slice(&encode_segment(SegmentUse { segment: 7, generation: 3 }, Home::Group(Prefix::ALL)));
        let first = Location { seed: 5, segment: 7, generation: 3, at: SEGMENT_HEADER_BYTES as u32 };
        let mut wanted = Vec::new();
        for round in 0..4u8 {
            for index in 0..5u8 {
                let (key, value) = (vec![0, round, index], vec![index; usize::from(index) * 100]);
                let at = bytes.len() as u32;
                Record::append(&mut bytes, Location { at, ..first }, &key, &value);
                wanted.push((at, key, value));
            }
            bytes.resize(bytes.len().next_multiple_of(4096));
        }
        // The first record of the third batch.
        let (at, ..) = wanted[10];
        bytes[at as usize + 17] ^= 1;
        let mut found = Vec::new();
        let mut find = |bytes: &[u8]| {
            found.clear();
            let whole = each_record(bytes, first, |pointer, record| {
                found.push((pointer.at, record.key.to_vec(), record.value.to_vec()))
            });
            (whole, found.clone())
        };
        assert_eq!(find(&bytes), (false, [&wanted[..10], &wanted[15..]].concat()));
        bytes[at as usize + 17] ^= 1;
        assert_eq!(find(&bytes), (true, wanted));
        for other in
            [Location { segment: 8, ..first }, Location { generation: 4, ..first }, Location { seed: 4, ..first }]
        {
            assert!(!each_record(&bytes, other, |_, _| panic!("of another segment, use or store")));
        }
    }

    #[test]
    fn an_index_entry_is_a_value_or_a_pointer_and_nothing_else() {
        let pointer = Pointer { segment: 3, generation: u32::MAX - 9, at: 40, len: (16 << 20) - 8 };
        assert_eq!(Stored::read(&pointer.stored()).expect("a pointer"), Stored::Pointer(pointer));
        for value in [&b""[..], &[POINTER_TAG_ID; POINTER_BYTES + 1], &[0; 3]] {
            let mut stored = value.to_vec();
            tag_value(&mut stored);
            assert_eq!(Stored::read(&stored).expect("a value"), Stored::Value(value));
        }
        for wrong in [&b""[..], &[1], &[0, 0, 2]] {
            Stored::read(wrong).expect_err("neither");
        }
    }
}
