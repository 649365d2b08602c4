//! HiKV's bytes on the medium, but for records (`record.rs`): superblock, directories, segments.
//! docs/format/hikv.md shows them with rulers.
//!
//! ```text
//! superblock, at the pool's root area
//!  0        8    12         16            20    24    32          36
//! | LSHIKV\0\1 | ver | partitions | segment_bytes | modes | seed | crc32c | 0...
//!  64           72
//! | generation | run |          both are words of their own, changed by one 8-byte store
//!  128
//! | root word of partition 0 | of 1 | ...
//!  2304
//! | root words of the eight batch logs |
//! ```
//! Root word: directory position, its depth in the low 6 bits. Directory word: segment position, its depth in the low 6 bits.

use lodestore_contract::{Error, Result};
use lodestore_media::{BatchLogs, ExtentKind, NvPtr, Pool, crc32c, u32_at, u64_at};

use crate::hash::{DEPTH_MAX, PARTITIONS_MAX};
use crate::options::MODES;

/// Version of the engine's format.
pub const FORMAT: u32 = 1;
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

/// Bytes of an index entry: signature, position (HiKV, section 3.4).
pub(crate) const ENTRY: u64 = 16;
/// Entries of a bucket: two cache lines.
pub(crate) const BUCKET_ENTRIES: usize = 8;
/// Bytes of a bucket, and of a segment's header.
pub(crate) const BUCKET: u64 = ENTRY * BUCKET_ENTRIES as u64;
/// Smallest segment: a header and three buckets.
pub(crate) const SEGMENT_MIN: u32 = 512;
/// Largest segment.
pub(crate) const SEGMENT_MAX: u32 = 1 << 20;

const MAGIC: [u8; 8] = *b"LSHIKV\0\x01";
const CRC_AT: usize = 32;
const GENERATION_AT: u64 = 64;
const RUN_AT: u64 = 72;
const ROOTS_AT: u64 = 128;
const BATCH_AT: u64 = 2304;
const DEPTH_BITS: u64 = 63;

const _: () = assert!(ROOTS_AT + PARTITIONS_MAX as u64 * 8 <= BATCH_AT);
const _: () = assert!(BATCH_AT + BatchLogs::ROOT_BYTES <= Pool::ROOT_BYTES);
const _: () = assert!((DEPTH_MAX as u64) < DEPTH_BITS);

/// What is fixed when a store is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) partitions: u32,
    pub(crate) segment_bytes: u32,
    pub(crate) seed: u64,
    /// Modes, as bits (see `options.rs`).
    pub(crate) modes: u32,
}

impl Superblock {
    /// Buckets of a segment.
    pub(crate) fn buckets(&self) -> u32 {
        self.segment_bytes / BUCKET as u32 - 1
    }

    /// Writes it; durable after the caller's fence.
    pub(crate) fn store(&self, pool: &Pool) {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.partitions.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.modes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.seed.to_le_bytes());
        let crc = crc32c(&[&bytes[..CRC_AT]]);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        pool.store(pool.root(), &bytes);
        pool.flush(pool.root(), bytes.len());
    }

    /// Reads it; `None` where no superblock was ever finished: none of the store's opens got as far as to raise the
    /// generation, and the superblock is not whole.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::NewerFormat`].
    pub(crate) fn load(pool: &Pool) -> Result<Option<Self>> {
        let Some(bytes) = pool.bytes(pool.root(), 64) else { return Err(wrong("no root area")) };
        if bytes[..8] != MAGIC || crc32c(&[&bytes[..CRC_AT]]) != u32_at(bytes, CRC_AT) {
            let never_opened = pool.load_u64(generation_word(pool)) == 0;
            return if never_opened { Ok(None) } else { Err(superblock_lost()) };
        }
        let version = u32_at(bytes, 8);
        if version > FORMAT {
            return Err(Error::NewerFormat { part: ENGINE.into(), found: version, known: FORMAT });
        }
        let found = Self {
            partitions: u32_at(bytes, 12),
            segment_bytes: u32_at(bytes, 16),
            seed: u64_at(bytes, 24),
            modes: u32_at(bytes, 20),
        };
        let sane = found.partitions.is_power_of_two()
            && found.partitions <= PARTITIONS_MAX
            && (SEGMENT_MIN..=SEGMENT_MAX).contains(&found.segment_bytes)
            && found.segment_bytes.is_multiple_of(BUCKET as u32)
            && found.modes & !MODES == 0;
        if sane { Ok(Some(found)) } else { Err(wrong("partitions or segment size out of range")) }
    }
}

/// The word that holds the number of opens; sequences of an open begin with it.
pub(crate) fn generation_word(pool: &Pool) -> NvPtr {
    pool.root().add(GENERATION_AT)
}

/// The word that names the sorted run of the last clean stop.
pub(crate) fn run_word(pool: &Pool) -> NvPtr {
    pool.root().add(RUN_AT)
}

/// The root words of the batch logs: zero in stores that were made before there were any.
pub(crate) fn batch_roots(pool: &Pool) -> NvPtr {
    pool.root().add(BATCH_AT)
}

/// The root word of a partition.
#[inline]
pub(crate) fn root_word(pool: &Pool, partition: usize) -> NvPtr {
    pool.root().add(ROOTS_AT + partition as u64 * 8)
}

/// A position and a depth in one word: what root and directory words hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deep {
    pub(crate) at: NvPtr,
    pub(crate) depth: u32,
}

impl Deep {
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        debug_assert!(self.at.raw() & DEPTH_BITS == 0 && self.depth <= DEPTH_MAX);
        self.at.raw() | u64::from(self.depth)
    }

    #[inline]
    pub(crate) fn unpack(word: u64) -> Self {
        Self { at: NvPtr::from_raw(word & !DEPTH_BITS), depth: (word & DEPTH_BITS) as u32 }
    }
}

/// A segment's header: written once, before the segment can be reached.
///
/// ```text
///  0      4           8            12      16       24
/// | LSEG | partition | depth born | crc32c | prefix | 0 ... 128
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) partition: u32,
    pub(crate) depth: u32,
    pub(crate) prefix: u64,
}

impl SegmentHeader {
    const MAGIC: [u8; 4] = *b"LSEG";

    pub(crate) fn to_bytes(self) -> [u8; BUCKET as usize] {
        let mut bytes = [0; BUCKET as usize];
        bytes[..4].copy_from_slice(&Self::MAGIC);
        bytes[4..8].copy_from_slice(&self.partition.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.depth.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.prefix.to_le_bytes());
        let crc = crc32c(&[&bytes[..12], &bytes[16..24]]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Whether what stands at `at` is so unlike the header that belongs there that the directory's word is to be doubted: more
    /// than one of its fields is another's.
    pub(crate) fn is_foreign(pool: &Pool, at: NvPtr, partition: usize, depth: u32, prefix: u64) -> bool {
        let Some(bytes) = pool.bytes(at, BUCKET as usize) else { return true };
        let born = u32_at(bytes, 8);
        let found = u64_at(bytes, 16);
        let wrong = [
            bytes[..4] != Self::MAGIC,
            u32_at(bytes, 4) as usize != partition,
            born > depth || found != prefix >> (depth - born.min(depth)),
        ];
        let whole = crc32c(&[&bytes[..12], &bytes[16..24]]) == u32_at(bytes, 12);
        let wrong = wrong.into_iter().filter(|wrong| *wrong).count();
        wrong > 1 || whole && wrong > 0
    }

    /// The header at `at`, if it is whole.
    pub(crate) fn read(pool: &Pool, at: NvPtr) -> Option<Self> {
        let bytes = pool.bytes(at, BUCKET as usize)?;
        let whole = bytes[..4] == Self::MAGIC && crc32c(&[&bytes[..12], &bytes[16..24]]) == u32_at(bytes, 12);
        whole.then(|| Self { partition: u32_at(bytes, 4), depth: u32_at(bytes, 8), prefix: u64_at(bytes, 16) })
    }

    /// Whether the segment at `at` is of this partition and covers this prefix at this depth.
    pub(crate) fn check(pool: &Pool, at: NvPtr, partition: usize, depth: u32, prefix: u64) -> Result<()> {
        let fits = |found: Self| {
            found.partition as usize == partition
                && found.depth <= depth
                && found.prefix == prefix >> (depth - found.depth)
        };
        if Self::read(pool, at).is_some_and(fits) {
            return Ok(());
        }
        Err(Error::corrupt(format!("segment {at:?}"), "its header does not fit its place in the directory"))
    }
}

/// A store that was made has no superblock any more.
#[cold]
pub(crate) fn superblock_lost() -> Error {
    wrong(
        "it was written once and is not whole any more, and nothing is found without it: restore the store from a backup or an export",
    )
}

#[cold]
fn wrong(what: &str) -> Error {
    Error::corrupt("hikv superblock", what)
}
