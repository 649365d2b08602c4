//! The root area on the medium, and the kinds of extents. See docs/format/fluidkv.md.
//!
//! ```text
//! offset 0          8         12        56     60    64         72
//!        | LFLUID1\0| version | zero ... | crc  | 0   | manifest | zero to 4096
//! ```

use lodestore_contract::{Error, Result};
use lodestore_media::{ExtentKind, NvPtr, Pool, crc32c, u32_at};

/// The engine's name in pool headers and options.
pub(crate) const ENGINE: &str = "fluidkv";
/// Version of the engine's format.
pub(crate) const FORMAT: u32 = 2;
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

const MAGIC: [u8; 8] = *b"LFLUID1\0";
const CRC_AT: usize = 56;
const MANIFEST_AT: u64 = 64;

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

/// Whether a whole superblock stands there.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::NewerFormat`].
pub(crate) fn has_superblock(pool: &Pool) -> Result<bool> {
    let Some(bytes) = pool.bytes(pool.root(), 64) else { return Err(wrong("no root area")) };
    if bytes[..8] != MAGIC || crc32c(&[&bytes[..CRC_AT]]) != u32_at(bytes, CRC_AT) {
        return Ok(false);
    }
    match u32_at(bytes, 8) {
        FORMAT => Ok(true),
        found => Err(Error::NewerFormat { part: ENGINE.into(), found, known: FORMAT }),
    }
}

/// The error of a store whose superblock is lost.
pub(crate) fn superblock_lost() -> Error {
    wrong("the superblock is not whole: the store cannot be opened; restore it from a copy")
}

/// Makes the chain that begins here the manifest; durable after the caller's fence.
pub(crate) fn publish_manifest(pool: &Pool, first: NvPtr) {
    let word = pool.root().add(MANIFEST_AT);
    pool.publish_u64(word, first.raw());
    pool.flush(word, 8);
}

/// The first extent of the manifest, as the root word has it.
///
/// # Errors
/// [`Error::Corrupt`] where it names none.
pub(crate) fn manifest(pool: &Pool) -> Result<NvPtr> {
    let first = NvPtr::from_raw(pool.load_u64(pool.root().add(MANIFEST_AT)));
    if first.is_null() { Err(wrong("its word names no manifest")) } else { Ok(first) }
}
