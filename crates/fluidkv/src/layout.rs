//! The root area on the medium, and the kinds of extents. See docs/format/fluidkv.md.
//!
//! ```text
//! offset 0          8         12        56    60  64         72     128     192    256
//!        | LFLUID1\0| version | zero .. | crc | 0 | manifest | 0 .. | reach | 0 .. | log counts |
//!          8          4                   4     4   8                 64             16 x 64
//! offset 1280   2048        2112   2304                  3328
//!        | 0 .. | reach     | 0 .. | log counts          | zero to 4096, but for hashkv's opening
//!                 once more          once more, 16 x 64
//! ```
//! `reach` is a mark: which manifest existed, and how far it reached at least. Without the mark, a
//! record that is cut off at a manifest's end and a damaged record look the same.
//!
//! A *log count* is the number of segments of a generation's logs that hold a durable record. The
//! next open must find each of these segments. The count is stored when the first record of a
//! segment is durable, without a flush, and flushed with the segment's second record.
//!
//! Persist order: the manifest's record, fence; both copies of the mark, **fence**. Only then are
//! the logs of a flush freed, or the pool's header set to *clean*. The mark names the manifest by
//! position and nonce. A mark therefore says nothing about a later manifest, and is never reset.

use std::collections::BTreeMap;

use lodestore_contract::limits::VALUE_MAX;
use lodestore_contract::{Error, Result};
use lodestore_media::{ExtentKind, NvPtr, Pool, crc32c, u32_at, u64_at};

/// The engine's name in pool headers and options.
pub(crate) const ENGINE: &str = "fluidkv";
/// Version of the engine's format.
pub(crate) const FORMAT: u32 = 5;
/// A segment of a thread's log.
pub(crate) const KIND_LOG: ExtentKind = ExtentKind(ExtentKind::ENGINE.0);
/// A sorted table.
pub(crate) const KIND_TABLE: ExtentKind = ExtentKind(ExtentKind::ENGINE.0 + 1);
/// A manifest.
pub(crate) const KIND_MANIFEST: ExtentKind = ExtentKind(ExtentKind::ENGINE.0 + 2);

/// A piece of the reserve: free space that is held.
pub(crate) const KIND_RESERVE: ExtentKind = ExtentKind(ExtentKind::ENGINE.0 + 3);

/// A segment of the value log.
pub(crate) const KIND_VALUES: ExtentKind = ExtentKind(ExtentKind::ENGINE.0 + 4);

/// Bytes of the longest stored value. An engine built on this one may add some bytes to a value.
pub(crate) const STORED_MAX: usize = VALUE_MAX + 16;
/// Bytes that a new log segment has as zeros: its header with both copies, and the spare copy.
pub(crate) const LOG_HEADER_BYTES: usize = 128;
pub(crate) const LOG_SPARE_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"LFLUID1\0";
const CRC_AT: usize = 56;
const MANIFEST_AT: u64 = 64;
/// Offsets of the two copies of the mark of how far the manifest reaches.
const REACH_AT: [u64; 2] = [128, 2048];
const REACH_MAGIC: [u8; 8] = *b"LFREACH\0";

/// Offsets of the two copies of the log counts.
const LOG_COUNTS_AT: [u64; 2] = [256, 2304];
/// Log counts per copy. The count of a generation is at the generation's number modulo this.
const LOG_COUNT_SLOTS: u64 = 16;
/// Bytes of a log count.
const LOG_COUNT_BYTES: u64 = 64;
const LOG_COUNT_MAGIC: [u8; 8] = *b"LFLOGS1\0";

fn wrong(what: &str) -> Error {
    Error::corrupt("root area", what)
}

/// Writes the superblock; durable after the caller's fence.
pub(crate) fn store_superblock(pool: &Pool) {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    let crc = crc32c(&[&bytes[..CRC_AT]]);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    pool.store(pool.root(), &bytes);
    pool.flush(pool.root(), bytes.len());
}

/// Returns whether the root area has a whole superblock.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::NewerFormat`], [`Error::OlderFormat`].
pub(crate) fn has_superblock(pool: &Pool) -> Result<bool> {
    let Some(bytes) = pool.bytes(pool.root(), 64) else { return Err(wrong("the root area is missing")) };
    if bytes[..8] != MAGIC || crc32c(&[&bytes[..CRC_AT]]) != u32_at(bytes, CRC_AT) {
        return Ok(false);
    }
    let found = u32_at(bytes, 8);
    if found > FORMAT {
        return Err(Error::NewerFormat { part: ENGINE.into(), found, known: FORMAT });
    }
    check_not_older(found)?;
    Ok(true)
}

/// Refuses an older format.
///
/// # Errors
/// [`Error::OlderFormat`].
pub(crate) fn check_not_older(found: u32) -> Result<()> {
    if found < FORMAT {
        return Err(Error::OlderFormat { part: ENGINE.into(), found, oldest: FORMAT });
    }
    Ok(())
}

/// Returns the error of a store whose superblock is lost.
pub(crate) fn superblock_lost() -> Error {
    wrong("the superblock is damaged, so the store cannot be opened: restore the store from a backup")
}

/// Makes the chain that begins here the manifest. Durable after the caller's fence.
pub(crate) fn publish_manifest(pool: &Pool, first: NvPtr) {
    let word = pool.root().add(MANIFEST_AT);
    pool.publish_u64(word, first.raw());
    pool.flush(word, 8);
}

/// Returns the first extent of the manifest, from the root word.
///
/// # Errors
/// [`Error::Corrupt`] if the root word names none.
pub(crate) fn manifest(pool: &Pool) -> Result<NvPtr> {
    let first = NvPtr::from_raw(pool.load_u64(pool.root().add(MANIFEST_AT)));
    if first.is_null() { Err(wrong("the root word names no manifest")) } else { Ok(first) }
}

/// How far a manifest reaches, at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reach {
    /// The manifest's first extent.
    pub(crate) at: NvPtr,
    /// Its chain's nonce.
    pub(crate) nonce: u64,
    /// Bytes of its records, without the headers of extents.
    pub(crate) end: u64,
    /// The number of the next record.
    pub(crate) next_number: u64,
}

/// Stores the mark of how far the manifest reaches. Durable after the caller's fence.
pub(crate) fn store_reach(pool: &Pool, reach: &Reach) {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&REACH_MAGIC);
    let words = [reach.at.raw(), reach.nonce, reach.end, reach.next_number];
    for (word, place) in words.iter().zip(bytes[16..].as_chunks_mut::<8>().0) {
        *place = word.to_le_bytes();
    }
    let crc = crc32c(&[&bytes[12..]]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    for at in REACH_AT {
        pool.store(pool.root().add(at), &bytes);
        pool.flush(pool.root().add(at), bytes.len());
    }
}

/// Returns the mark if one of its copies is whole.
pub(crate) fn reach(pool: &Pool) -> Option<Reach> {
    REACH_AT.into_iter().find_map(|at| {
        let bytes = pool.bytes(pool.root().add(at), 64)?;
        let whole = bytes[..8] == REACH_MAGIC && crc32c(&[&bytes[12..]]) == u32_at(bytes, 8);
        let word = |index: usize| u64_at(bytes, 16 + 8 * index);
        let mark = || Reach { at: NvPtr::from_raw(word(0)), nonce: word(1), end: word(2), next_number: word(3) };
        whole.then(mark)
    })
}

/// How many segments of one generation's logs hold a durable record, at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogCount {
    /// The generation of the memtable.
    pub(crate) generation: u64,
    /// Segments with a durable record.
    pub(crate) segments: u64,
}

fn log_counts_at(pool: &Pool, generation: u64) -> [NvPtr; 2] {
    LOG_COUNTS_AT.map(|copies| pool.root().add(copies + generation % LOG_COUNT_SLOTS * LOG_COUNT_BYTES))
}

/// Stores both copies of a log count without a flush.
pub(crate) fn store_log_count(pool: &Pool, count: LogCount) {
    let mut bytes = [0; LOG_COUNT_BYTES as usize];
    bytes[..8].copy_from_slice(&LOG_COUNT_MAGIC);
    bytes[16..24].copy_from_slice(&count.generation.to_le_bytes());
    bytes[24..32].copy_from_slice(&count.segments.to_le_bytes());
    let crc = crc32c(&[&bytes[12..]]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    for at in log_counts_at(pool, count.generation) {
        pool.store(at, &bytes);
    }
}

/// Returns the ranges to flush for the log count of a generation.
pub(crate) fn log_count_ranges(pool: &Pool, generation: u64) -> [(NvPtr, usize); 2] {
    log_counts_at(pool, generation).map(|at| (at, LOG_COUNT_BYTES as usize))
}

/// Returns the log counts that have a whole copy. If the copies differ, returns the larger count.
pub(crate) fn log_counts(pool: &Pool) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    let copies = LOG_COUNTS_AT.into_iter().flat_map(|copy| (0..LOG_COUNT_SLOTS).map(move |index| (copy, index)));
    for (copy, index) in copies {
        let Some(bytes) = pool.bytes(pool.root().add(copy + index * LOG_COUNT_BYTES), LOG_COUNT_BYTES as usize) else {
            continue;
        };
        if bytes[..8] == LOG_COUNT_MAGIC && crc32c(&[&bytes[12..]]) == u32_at(bytes, 8) {
            let segments: &mut u64 = counts.entry(u64_at(bytes, 16)).or_default();
            *segments = u64_at(bytes, 24).max(*segments);
        }
    }
    counts
}
