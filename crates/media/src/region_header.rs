//! The header of a region other than 0, in two copies: at the region's start and in its last line.
//!
//! ```text
//!    0  8  magic "LODEREGN"
//!    8  4  format version                   12  4  crc32c of bytes 8..12 and 16..64
//!   16 16  pool id                          32  4  index
//!   36  4  chunk_bytes                      40  8  length
//!   48  8  generation                       56  4  seal of the extent table, after a clean stop
//!   60     zero
//! ```
//!
//! [`raise_generation`](crate::header_writes::raise_generation) writes one copy of every region,
//! then the other, with a fence after each. It first writes a copy that is not the only whole one.
//! A crash therefore leaves at least one whole copy, of the previous or of the new generation.
//!
//! Nothing here panics on any bytes.

use std::ops::Range;

use lodestore_contract::{Error, Finding, Result};

use crate::header::{POOL_FORMAT, PoolHeader, checksum, id_at, put};
use crate::little_endian::{u32_at, u64_at};
use crate::region_layout::{REGION_HEADER_BYTES, RegionLayout};

/// Bytes of a region header copy, all of them under its checksum.
pub(crate) const REGION_HEADER_USED_BYTES: usize = REGION_HEADER_BYTES as usize;
/// Offsets of the checksum and the generation in it.
const CHECKSUM: Range<usize> = 12..16;
const GENERATION: Range<usize> = 48..56;
const REGION_MAGIC: u64 = u64::from_le_bytes(*b"LODEREGN");

/// The content of the header of a region other than 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RegionHeader {
    pub(crate) pool_id: [u8; 16],
    pub(crate) index: u16,
    pub(crate) chunk_bytes: u32,
    pub(crate) bytes: u64,
    pub(crate) generation: u64,
    pub(crate) table_seal: u32,
}

/// The bytes at the positions of the two copies of a region header, as far as they exist.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderCopies<'a> {
    pub(crate) first: &'a [u8],
    pub(crate) last: &'a [u8],
}

impl<'a> HeaderCopies<'a> {
    /// Returns the copies in the bytes of a whole region.
    #[cfg(feature = "sim")]
    pub(crate) fn of_region(bytes: &'a [u8]) -> Self {
        let first = bytes.get(..REGION_HEADER_USED_BYTES).unwrap_or_default();
        let last = bytes.len().checked_sub(REGION_HEADER_USED_BYTES).and_then(|at| bytes.get(at..));
        Self { first, last: last.unwrap_or_default() }
    }

    fn valid(self) -> impl Iterator<Item = &'a [u8]> {
        [self.first, self.last].into_iter().filter(|bytes| {
            bytes.len() == REGION_HEADER_USED_BYTES
                && u64_at(bytes, 0) == REGION_MAGIC
                && u32_at(bytes, CHECKSUM.start) == checksum(bytes)
        })
    }
}

/// The header of a region as an open found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckedRegion {
    pub(crate) header: RegionHeader,
    /// One copy is damaged; the other one counts.
    pub(crate) repaired: Option<Finding>,
    /// The region is not of the pool's generation.
    pub(crate) stale: Option<Finding>,
}

impl RegionHeader {
    pub(crate) fn encode(&self) -> [u8; REGION_HEADER_USED_BYTES] {
        let mut bytes = [0; REGION_HEADER_USED_BYTES];
        put(&mut bytes, 0, &REGION_MAGIC.to_le_bytes());
        put(&mut bytes, 8, &POOL_FORMAT.to_le_bytes());
        put(&mut bytes, 16, &self.pool_id);
        put(&mut bytes, 32, &u32::from(self.index).to_le_bytes());
        put(&mut bytes, 36, &self.chunk_bytes.to_le_bytes());
        put(&mut bytes, 40, &self.bytes.to_le_bytes());
        put(&mut bytes, GENERATION.start, &self.generation.to_le_bytes());
        put(&mut bytes, 56, &self.table_seal.to_le_bytes());
        let sum = checksum(&bytes);
        put(&mut bytes, CHECKSUM.start, &sum.to_le_bytes());
        bytes
    }

    /// Returns whether these first bytes of a file hold this header's copies, complete or partly
    /// stored, and nothing else. Generation and checksum may differ.
    pub(crate) fn is_all_but_generation_of(&self, bytes: &[u8]) -> bool {
        let own = self.encode();
        let second = (self.bytes as usize).saturating_sub(REGION_HEADER_USED_BYTES);
        bytes.iter().enumerate().all(|(at, byte)| {
            let at = if at < REGION_HEADER_USED_BYTES { Some(at) } else { at.checked_sub(second) };
            let is_free = |at: usize| CHECKSUM.contains(&at) || GENERATION.contains(&at);
            *byte == 0 || at.is_some_and(|at| is_free(at) || own.get(at) == Some(byte))
        })
    }

    /// Returns the generation of a header copy at the start of these bytes. `None` if the file is
    /// no region of this pool.
    pub(crate) fn generation_in_pool(bytes: &[u8], pool_id: [u8; 16]) -> Option<u64> {
        let first = bytes.get(..REGION_HEADER_USED_BYTES).unwrap_or_default();
        let mut own = HeaderCopies { first, last: &[] }.valid().filter(|bytes| id_at(bytes, 16) == pool_id);
        own.next().map(|bytes| u64_at(bytes, GENERATION.start))
    }

    /// Checks the header copies of region `index` of the pool that `pool` describes, in a file of
    /// `len` bytes. The caller decides about a stale region.
    ///
    /// # Errors
    /// [`Error::Corrupt`] naming `place`.
    pub(crate) fn check(
        copies: HeaderCopies<'_>,
        place: &str,
        pool: &PoolHeader,
        index: u16,
        len: u64,
    ) -> Result<CheckedRegion> {
        if len < REGION_HEADER_BYTES {
            return Err(Error::corrupt(place, "the file is shorter than a region header"));
        }
        let checked: Vec<Result<Self>> =
            copies.valid().map(|bytes| Self::check_copy(bytes, place, pool, index, len)).collect();
        let whole = checked.iter().filter(|copy| copy.is_ok()).count();
        let newest = checked.iter().flatten().max_by_key(|header| header.generation).copied();
        let Some(header) = newest else {
            let error = checked.into_iter().find_map(Result::err);
            return Err(error.unwrap_or_else(|| Error::corrupt(place, "the file has no valid region header")));
        };
        let finding = |what: String| Some(Finding { place: place.into(), what });
        let repaired = if whole < 2 && !pool.is_raising {
            finding("one copy of the region header is damaged".into())
        } else {
            None
        };
        let oldest = if pool.is_raising { pool.generation - 1 } else { pool.generation };
        let stale = if (oldest..=pool.generation).contains(&header.generation) {
            None
        } else {
            finding(format!(
                "the file has generation {}, and the pool has {}: the file or pool.0000 is a copy of another time; \
                 restore all files of the store from one copy",
                header.generation, pool.generation
            ))
        };
        Ok(CheckedRegion { header, repaired, stale })
    }

    /// Checks one copy whose magic and checksum are right.
    fn check_copy(bytes: &[u8], place: &str, pool: &PoolHeader, index: u16, len: u64) -> Result<Self> {
        let corrupt = |what: &str| Err(Error::corrupt(place, what));
        let (own_index, own_bytes) = (u32_at(bytes, 32), u64_at(bytes, 40));
        if u32_at(bytes, 8) != POOL_FORMAT {
            return corrupt("the region header has another format");
        }
        if id_at(bytes, 16) != pool.pool_id {
            return corrupt("the region belongs to another pool");
        }
        if own_index != u32::from(index) {
            return Err(Error::corrupt(place, format!("the file is region {own_index}, not {index}")));
        }
        if own_bytes != len {
            return Err(Error::corrupt(
                place,
                format!(
                    "the file has {len} bytes, and it was created with {own_bytes}: restore all files from one copy"
                ),
            ));
        }
        if u32_at(bytes, 36) != pool.chunk_bytes || RegionLayout::new(index, len, pool.chunk_bytes).is_none() {
            return corrupt("the lengths in the region header are invalid");
        }
        Ok(Self {
            pool_id: pool.pool_id,
            index,
            chunk_bytes: pool.chunk_bytes,
            bytes: len,
            generation: u64_at(bytes, 48),
            table_seal: u32_at(bytes, 56),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::tests::header as pool_header;

    const REGION_BYTES: u64 = 1 << 20;

    fn made() -> RegionHeader {
        let pool = pool_header();
        RegionHeader {
            pool_id: pool.pool_id,
            index: 2,
            chunk_bytes: 4096,
            bytes: REGION_BYTES,
            generation: pool.generation,
            table_seal: 7,
        }
    }

    fn check(first: &[u8], last: &[u8], pool: &PoolHeader) -> Result<CheckedRegion> {
        RegionHeader::check(HeaderCopies { first, last }, "x", pool, 2, REGION_BYTES)
    }

    #[test]
    fn the_rest_of_an_interrupted_growth_is_distinguished_from_foreign_bytes() {
        let made = RegionHeader { bytes: 65536, ..made() };
        let mut bytes = vec![0; 65536];
        assert!(made.is_all_but_generation_of(&bytes), "not yet stored");
        bytes[..30].copy_from_slice(&made.encode()[..30]);
        assert!(made.is_all_but_generation_of(&bytes), "stored in part");
        bytes[..64].copy_from_slice(&made.encode());
        bytes[65536 - 64..].copy_from_slice(&made.encode());
        assert!(made.is_all_but_generation_of(&bytes));
        assert!(!RegionHeader { pool_id: [4; 16], ..made }.is_all_but_generation_of(&bytes));
        bytes[5000] = 1;
        assert!(!made.is_all_but_generation_of(&bytes), "an extent's word: it is in use");
    }

    #[test]
    fn one_whole_copy_is_enough_and_every_flipped_bit_is_detected() {
        let (good, pool) = (made().encode(), pool_header());
        assert_eq!(check(&good, &good, &pool).expect("as made").repaired, None);
        for bit in 0..REGION_HEADER_USED_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            for (first, last) in [(&bad, &good), (&good, &bad)] {
                let found = check(first, last, &pool).expect("one whole copy");
                assert_eq!(found.header, made());
                assert!(found.repaired.is_some() && found.stale.is_none(), "bit {bit}");
            }
            assert!(check(&bad, &bad, &pool).is_err(), "bit {bit}");
        }
        assert!(check(&[], &[], &pool).is_err() && check(&good[..60], &[], &pool).is_err());
    }

    #[test]
    fn a_region_of_another_generation_is_stale_but_for_the_one_before_during_a_raise() {
        let pool = pool_header();
        let raising = PoolHeader { is_raising: true, clean: false, ..pool.clone() };
        for generation in 1..9 {
            let bytes = RegionHeader { generation, ..made() }.encode();
            let is_stale = |pool| check(&bytes, &bytes, pool).expect("whole").stale.is_some();
            assert_eq!(is_stale(&pool), generation != 5, "{generation}");
            assert_eq!(is_stale(&raising), ![4, 5].contains(&generation), "{generation}");
        }
        let old = RegionHeader { generation: 4, ..made() }.encode();
        for (first, last) in [(old, made().encode()), (made().encode(), old)] {
            assert_eq!(check(&first, &last, &pool).expect("whole").stale, None, "the newer copy counts");
        }
    }
}
