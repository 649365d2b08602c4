//! HiKV's bytes on the medium, except records (`record.rs`): superblock, directories, segments.
//! `docs/format/hikv.md` shows them with rulers.
//!
//! ```text
//! superblock, at the pool's root area
//!  0        8    12         16            20    24    32          36
//! | LSHIKV\0\1 | ver | partitions | segment_bytes | modes | seed | crc32c | 0...
//!  64           72
//! | generation | run | run sum |  words of their own, each changed by one 8-byte store
//!  128
//! | root word of partition 0 | of 1 | ...
//!  2304
//! | root words of the eight batch logs |
//! ```
//! Root word: directory position and its depth. Directory word: segment position and its depth.
//! Both have 13 check bits ([`Deep`]). The last 64 bytes of the root area are the seal of a clean
//! stop (`lodestore_inplace::Seal`).

use lodestore_contract::{Error, Result};
use lodestore_inplace::{Seal, Shape};
use lodestore_media::{BatchLogs, ExtentKind, NvPtr, Pool, crc32c, crc32c_seeded, u32_at, u64_at};

use crate::hash::{DEPTH_MAX, PARTITIONS_MAX};

/// Version of the engine's format.
pub const FORMAT: u32 = 4;
/// The engine's name in the pool header.
pub const ENGINE: &str = "hikv";

/// Extents of the hash index.
pub(crate) const KIND_SEGMENT: ExtentKind = ExtentKind(16);
/// Extents of directories.
pub(crate) const KIND_DIRECTORY: ExtentKind = ExtentKind(17);
/// Extents of a sorted run.
pub(crate) const KIND_RUN: ExtentKind = ExtentKind(18);

/// Extents of batch logs. (19 is the log of `wal`.)
pub(crate) const KIND_BATCH: ExtentKind = ExtentKind(20);

/// Extents of the seal of a clean stop.
pub(crate) const KIND_SEAL: ExtentKind = ExtentKind(21);

/// The seal of a clean stop: it covers the root area, directories and segments.
pub(crate) const SEAL: Seal = Seal {
    kind: KIND_SEAL,
    name: |kind| match kind {
        KIND_SEGMENT => "segment",
        _ => "directory",
    },
};

/// Bytes of an index entry: signature, position (HiKV, section 3.4).
pub(crate) const ENTRY_BYTES: u64 = 16;
/// Entries of a bucket: two cache lines.
pub(crate) const BUCKET_ENTRIES: usize = 8;
/// Bytes of a bucket, and of a segment's header.
pub(crate) const BUCKET_BYTES: u64 = ENTRY_BYTES * BUCKET_ENTRIES as u64;
/// Smallest segment: a header and three buckets.
pub(crate) const SEGMENT_BYTES_MIN: u32 = 512;
/// Largest segment.
pub(crate) const SEGMENT_BYTES_MAX: u32 = 1 << 20;

/// Modes of the superblock: the writer updates the tree.
pub(crate) const SYNC_MODE_FLAG: u32 = 1;
/// One tree for each partition.
pub(crate) const PARTITIONED_MODE_FLAG: u32 = 2;
/// A log record before each write (`wal`).
pub(crate) const WAL_MODE_FLAG: u32 = 4;
/// All modes known.
pub(crate) const MODES_MASK: u32 = SYNC_MODE_FLAG | PARTITIONED_MODE_FLAG | WAL_MODE_FLAG;
/// Bits of a sequence below the generation: each stripe has 2^36 sequences per open.
pub(crate) const GENERATION_SHIFT: u32 = 36;

const GENERATION_AT: u64 = 64;
const RUN_AT: u64 = 72;
const ROOTS_AT: u64 = 128;
const BATCH_AT: u64 = 2304;
const DEPTH_MASK: u64 = 31;
/// Offset of the depth of the last split in a segment's header.
const SPLIT_AT: u64 = 24;

const _: () = assert!(ROOTS_AT + PARTITIONS_MAX as u64 * 8 <= BATCH_AT);
const _: () = assert!(BATCH_AT + BatchLogs::ROOT_BYTES <= Seal::ROOT_BYTES);
const _: () = assert!((DEPTH_MAX as u64) < DEPTH_MASK);

/// Parameters that are fixed when a store is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) partitions: u32,
    pub(crate) segment_bytes: u32,
    pub(crate) seed: u64,
    /// Modes, as bits of [`MODES_MASK`].
    pub(crate) modes: u32,
}

impl Superblock {
    /// Returns the number of buckets of a segment.
    pub(crate) fn buckets(&self) -> u32 {
        self.segment_bytes / BUCKET_BYTES as u32 - 1
    }
}

impl Shape for Superblock {
    const ENGINE: &'static str = ENGINE;
    const MAGIC: [u8; 8] = *b"LSHIKV\0\x01";
    const VERSION: u32 = FORMAT;
    const CRC_AT: usize = 32;

    fn encode(&self, bytes: &mut [u8; 64]) {
        bytes[12..16].copy_from_slice(&self.partitions.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.modes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.seed.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let found = Self {
            partitions: u32_at(bytes, 12),
            segment_bytes: u32_at(bytes, 16),
            seed: u64_at(bytes, 24),
            modes: u32_at(bytes, 20),
        };
        let is_sane = found.partitions.is_power_of_two()
            && found.partitions <= PARTITIONS_MAX
            && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&found.segment_bytes)
            && found.segment_bytes.is_multiple_of(BUCKET_BYTES as u32)
            && found.modes & !MODES_MASK == 0;
        is_sane.then_some(found)
    }

    /// Each open raises the generation.
    fn was_opened(pool: &Pool) -> bool {
        pool.load_u64(generation_word(pool)) != 0
    }
}

/// Returns the word that holds the number of opens. Sequences of an open begin with it.
pub(crate) fn generation_word(pool: &Pool) -> NvPtr {
    pool.root().add(GENERATION_AT)
}

/// Returns the word that names the sorted run of the last clean stop.
pub(crate) fn run_word(pool: &Pool) -> NvPtr {
    pool.root().add(RUN_AT)
}

/// Returns the root words of the batch logs.
pub(crate) fn batch_roots(pool: &Pool) -> NvPtr {
    pool.root().add(BATCH_AT)
}

/// Returns the root word of a partition.
#[inline]
pub(crate) fn root_word(pool: &Pool, partition: usize) -> NvPtr {
    pool.root().add(ROOTS_AT + partition as u64 * 8)
}

/// The place of a [`Deep`] word on the medium. Its check bits depend on the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WordPlace {
    /// Position of the word.
    pub(crate) at: NvPtr,
    /// The partition whose root word or directory word it is.
    pub(crate) partition: usize,
}

impl WordPlace {
    /// Bit of a position from which 8 bits are always 0: the partition's place in a number.
    const PARTITION_SHIFT: u32 = 40;

    /// Returns the place of a partition's root word.
    #[inline]
    pub(crate) fn root(pool: &Pool, partition: usize) -> Self {
        Self { at: root_word(pool, partition), partition }
    }

    /// Returns the place of the word `index` of a partition's directory.
    #[inline]
    pub(crate) fn in_directory(directory: Deep, partition: usize, index: u64) -> Self {
        Self { at: directory.at.add(index * 8), partition }
    }

    #[inline]
    fn seed(self, pool: &Pool) -> u64 {
        let place = self.at.raw() | (self.partition as u64) << Self::PARTITION_SHIFT;
        pool.identity() ^ place.wrapping_mul(0xaf25_1af3_b0f0_25b5)
    }
}

/// A position and a depth in one word: the content of root and directory words.
///
/// ```text
/// bit 63     60 59      48 47     40 39          6   5    4      0
///     | check  |  region  |  check  | offset / 64 | check | depth |
/// ```
/// The check bits depend on position, depth, pool, and on the place of the word itself. An open
/// compares all of them before it serves anything. A hit of a reader compares none (`table.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deep {
    pub(crate) at: NvPtr,
    pub(crate) depth: u32,
}

impl Deep {
    const AT_MASK: u64 = 0x0fff_00ff_ffff_ffc0;
    const CHECK_MASK: u64 = !(Self::AT_MASK | DEPTH_MASK);
    /// The check bit that makes the word's parity even: every single changed bit is detected.
    const PARITY_FLAG: u64 = 1 << 5;
    const HASH_MASK: u64 = Self::CHECK_MASK & !Self::PARITY_FLAG;

    /// Returns the word without check bits.
    pub(crate) fn to_word(self) -> u64 {
        debug_assert!(self.at.raw() & !Self::AT_MASK == 0 && self.depth <= DEPTH_MAX);
        self.at.raw() | u64::from(self.depth)
    }

    pub(crate) fn pack(self, pool: &Pool, place: WordPlace) -> u64 {
        let word = self.to_word();
        let word = word | Self::hash_bits(word, pool, place);
        if word.count_ones().is_multiple_of(2) { word } else { word | Self::PARITY_FLAG }
    }

    #[inline]
    pub(crate) fn unpack(word: u64) -> Self {
        Self { at: NvPtr::from_raw(word & Self::AT_MASK), depth: (word & DEPTH_MASK) as u32 }
    }

    /// Returns whether the word is one that `pack` makes for this place.
    #[inline]
    pub(crate) fn is_valid(word: u64, pool: &Pool, place: WordPlace) -> bool {
        word & Self::AT_MASK != 0
            && word & Self::HASH_MASK == Self::hash_bits(word & !Self::CHECK_MASK, pool, place)
            && word.count_ones().is_multiple_of(2)
    }

    #[inline]
    fn hash_bits(word: u64, pool: &Pool, place: WordPlace) -> u64 {
        let mixed = (word ^ place.seed(pool)).wrapping_mul(0xd134_2543_de82_ef95);
        (mixed ^ mixed >> 32) & Self::HASH_MASK
    }
}

/// A segment's header. All but the depth of the last split is written once, before the segment can
/// be reached.
///
/// ```text
///  0      4           8            12       16       24            32
/// | LSEG | partition | depth born | crc32c | prefix | split depth | 0 ... 128
/// ```
/// The checksum starts from a seed of the segment's position and the pool's identity.
///
/// The split depth is the depth that the segment's last split gave it, with a check in the high
/// half; 0 if the segment was never split. The word is stored after the split's commit is durable,
/// and is durable when the split ends. A repaired directory that names the segment at a smaller
/// depth is therefore older.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) partition: u32,
    pub(crate) depth: u32,
    pub(crate) prefix: u64,
}

impl SegmentHeader {
    const MAGIC: [u8; 4] = *b"LSEG";

    /// Returns the header's bytes for a segment at `at`.
    pub(crate) fn to_bytes(self, pool: &Pool, at: NvPtr) -> [u8; BUCKET_BYTES as usize] {
        let mut bytes = [0; BUCKET_BYTES as usize];
        bytes[..4].copy_from_slice(&Self::MAGIC);
        bytes[4..8].copy_from_slice(&self.partition.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.depth.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.prefix.to_le_bytes());
        let crc = Self::sum(pool, at, &bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn sum(pool: &Pool, at: NvPtr, bytes: &[u8]) -> u32 {
        crc32c_seeded(
            pool.position_seed(at),
            &[&bytes[..12], &bytes[16..SPLIT_AT as usize], &bytes[SPLIT_AT as usize + 8..BUCKET_BYTES as usize]],
        )
    }

    /// Stores that the segment at `at` was split to this depth, without a fence.
    pub(crate) fn store_split_depth(pool: &Pool, at: NvPtr, depth: u32) {
        pool.publish_u64(at.add(SPLIT_AT), Self::split_word(pool, at, depth));
        pool.flush(at.add(SPLIT_AT), 8);
    }

    /// Returns the depth to which the segment at `at` was split; 0 if it was not. `None`: the word
    /// was changed.
    pub(crate) fn split_depth(pool: &Pool, at: NvPtr) -> Option<u32> {
        let word = pool.load_u64(at.add(SPLIT_AT));
        let depth = word as u32;
        (word == 0 || word == Self::split_word(pool, at, depth)).then_some(depth)
    }

    fn split_word(pool: &Pool, at: NvPtr, depth: u32) -> u64 {
        let place = [pool.identity().to_le_bytes(), at.raw().to_le_bytes()];
        u64::from(crc32c(&[place.as_flattened(), &depth.to_le_bytes()])) << 32 | u64::from(depth)
    }

    /// Returns the header at `at`, if it is whole.
    pub(crate) fn read(pool: &Pool, at: NvPtr) -> Option<Self> {
        let bytes = pool.bytes(at, BUCKET_BYTES as usize)?;
        let whole = bytes[..4] == Self::MAGIC && Self::sum(pool, at, bytes) == u32_at(bytes, 12);
        whole.then(|| Self { partition: u32_at(bytes, 4), depth: u32_at(bytes, 8), prefix: u64_at(bytes, 16) })
    }

    /// Checks that the segment at `at` is of this partition and covers this prefix at this depth.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn check(pool: &Pool, at: NvPtr, partition: usize, depth: u32, prefix: u64) -> Result<()> {
        let fits = |found: Self| {
            found.partition as usize == partition
                && found.depth <= depth
                && found.prefix == prefix >> (depth - found.depth)
        };
        let wrong = |what: &str| Error::corrupt(format!("segment {at:?}"), what);
        if !Self::read(pool, at).is_some_and(fits) {
            return Err(wrong("the segment header does not match its place in the directory"));
        }
        Self::split_depth(pool, at).map(|_| ()).ok_or_else(|| wrong("the depth of its last split is damaged"))
    }
}
