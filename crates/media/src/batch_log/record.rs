//! Bytes of a log record.
//!
//! ```text
//!  0       8      12       16      20       24      32
//! | stamp | LBT1 | crc32c | words | stores | place | stores ...            little-endian
//!
//!  a store:  0           8       16
//!           | at, pair? | first | second, if a pair |
//! ```
//! `stamp` is 0 in a disarmed record. `crc32c` covers the rest of the record, including `stamp` and
//! `place` (the record's own offset). `words` is the number of 8-byte words after the header. Bit 0
//! of `at` is set for a store of sixteen bytes.

use lodestore_contract::{Error, Result};

use super::{BatchLogs, Word, is_engine_range};
use crate::crc::crc32c;
use crate::little_endian::{u32_at, u64_at};
use crate::nvptr::NvPtr;
use crate::pool::Pool;

/// Bytes before the stores.
const HEADER_BYTES: usize = 32;
const MAGIC: [u8; 4] = *b"LBT1";
/// Bytes of the longest store.
const STORE_BYTES_MAX: u64 = 24;
/// Bit of a store's offset: sixteen bytes.
const PAIR_FLAG: u64 = 1;
const CRC_AT: usize = 12;

/// Returns the maximum bytes of a record of `stores` stores.
pub(super) fn record_bytes(stores: usize) -> u64 {
    HEADER_BYTES as u64 + stores as u64 * STORE_BYTES_MAX
}

/// An armed, whole record.
pub(super) struct ArmedRecord {
    pub(super) stamp: u64,
    pub(super) at: NvPtr,
    /// Length of the record in bytes.
    pub(super) bytes: usize,
    pub(super) stores: Vec<(NvPtr, Word)>,
}

/// Encodes the record.
pub(super) fn encode(bytes: &mut Vec<u8>, at: NvPtr, stamp: u64, stores: &[(NvPtr, Word)]) {
    assert!(stamp != 0, "0 is disarmed");
    bytes.clear();
    bytes.resize(HEADER_BYTES, 0);
    for (position, word) in stores {
        match *word {
            Word::U64(word) => {
                assert!(position.raw().is_multiple_of(8), "a word at an 8-aligned place");
                bytes.extend_from_slice(&position.raw().to_le_bytes());
                bytes.extend_from_slice(&word.to_le_bytes());
            }
            Word::U128(first, second) => {
                assert!(position.raw().is_multiple_of(16), "a pair at a 16-aligned place");
                bytes.extend_from_slice(&(position.raw() | PAIR_FLAG).to_le_bytes());
                bytes.extend_from_slice(&first.to_le_bytes());
                bytes.extend_from_slice(&second.to_le_bytes());
            }
        }
    }
    let words = (bytes.len() - HEADER_BYTES) as u32 / 8;
    bytes[..8].copy_from_slice(&stamp.to_le_bytes());
    bytes[8..12].copy_from_slice(&MAGIC);
    bytes[16..20].copy_from_slice(&words.to_le_bytes());
    bytes[20..24].copy_from_slice(&(stores.len() as u32).to_le_bytes());
    bytes[24..32].copy_from_slice(&at.raw().to_le_bytes());
    let crc = checksum(bytes);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c(&[&bytes[..CRC_AT], &bytes[CRC_AT + 4..]])
}

/// Reads the record at `at`; at most `available` bytes from there belong to its log. Returns `None`
/// if it is disarmed or not whole. Accepts any bytes.
///
/// # Errors
/// [`Error::Corrupt`] if it is whole and names an offset where no store can be.
pub(super) fn read(pool: &Pool, at: NvPtr, available: u64) -> Result<Option<ArmedRecord>> {
    let Some(bytes) = pool.bytes(at, HEADER_BYTES) else { return Ok(None) };
    let stamp = u64_at(bytes, 0);
    let words = u64::from(u32_at(bytes, 16));
    let len = HEADER_BYTES as u64 + words * 8;
    if stamp == 0 || bytes[8..12] != MAGIC || u64_at(bytes, 24) != at.raw() || len > available {
        return Ok(None);
    }
    let len = len as usize;
    let Some(bytes) = pool.bytes(at, len).filter(|bytes| checksum(bytes) == u32_at(bytes, CRC_AT)) else {
        return Ok(None);
    };
    let stores = decode(pool, &bytes[HEADER_BYTES..], u32_at(bytes, 20) as usize);
    let stores = stores.ok_or_else(|| {
        Error::corrupt(format!("batch record {at:?}"), "the record names a place outside of the pool")
    })?;
    Ok(Some(ArmedRecord { stamp, at, bytes: len, stores }))
}

/// Decodes the stores of a record; returns `None` if a store is impossible.
fn decode(pool: &Pool, bytes: &[u8], count: usize) -> Option<Vec<(NvPtr, Word)>> {
    let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
    let mut stores = Vec::with_capacity(count.min(bytes.len() / 16));
    while let Some(position) = words.next() {
        let at = NvPtr::from_raw(position & !PAIR_FLAG);
        let first = words.next()?;
        let word = if position & PAIR_FLAG == 0 { Word::U64(first) } else { Word::U128(first, words.next()?) };
        if !at.offset().is_multiple_of(word.bytes() as u64) || !is_engine_range(pool, at, word.bytes()) {
            return None;
        }
        stores.push((at, word));
    }
    (stores.len() == count && count <= BatchLogs::STORES_MAX).then_some(stores)
}
