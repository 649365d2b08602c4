//! The headers on the medium.
//!
//! Region 0 begins with two copies of the pool header, at 0 and 4096. Each change is written to
//! both, one after the other, each made durable before the next begins. The valid copy with the
//! higher sequence counts. Little-endian.
//!
//! ```text
//! pool header copy (checksummed part: 1024 bytes;
//!                   the rest of its 4096 is reserved for a table of readers)
//!    0  8  magic "LODEPOOL"                 (written last at creation)
//!    8  4  format version                   12  4  crc32c of bytes 8..12 and 16..1024
//!   16  8  sequence
//!   24 16  pool id                          40 16  boot id of the last open
//!   56 32  engine name, zero-padded         88  4  engine format
//!   92  4  flags: 1 clean, 2 emulate_dax, 4 the engine finished its creation,
//!         8 the generation is being raised, 16 a salvage found damage
//!   96  8  capacity                        104  8  region_bytes
//!  112  4  chunk_bytes                     116  4  number of regions
//!  120  4  durability: 0 process, 1 power, 2 interval
//!  124  4  zero                            128  8  interval in milliseconds
//!  136  8  length of region 0             144  8  generation
//!  152  4  seal of region 0's extent table, if clean            156  4  zero
//!  160  8  mark of the owner              168     zero
//! ```
//!
//! The headers of the other regions are in `region_header.rs`. Nothing here panics on any bytes.

use std::time::Duration;

use lodestore_contract::{Durability, Error, Result};

use crate::crc32c;
use crate::little_endian::{u32_at, u64_at};
use crate::options::ENGINE_NAME_MAX;
use crate::region_layout::{HEADER_BYTES, MAX_REGIONS, RegionLayout};

/// The pool format of this version.
pub const POOL_FORMAT: u32 = 3;
/// Bytes of a header copy under its checksum.
pub(crate) const HEADER_USED_BYTES: usize = 1024;
/// Bytes of a header copy that have a meaning; the rest is zero.
const HEADER_FIELDS_BYTES: usize = 168;
pub(crate) const POOL_MAGIC: u64 = u64::from_le_bytes(*b"LODEPOOL");
/// Maximum sequence number and generation: no header is written as often.
const SEQUENCE_MAX: u64 = (1 << 62) - 1;
const CLEAN_FLAG: u32 = 1;
const EMULATE_DAX_FLAG: u32 = 2;
const ENGINE_CREATED_FLAG: u32 = 4;
const RAISING_FLAG: u32 = 8;
const DAMAGED_FLAG: u32 = 16;

const _: () = assert!(ENGINE_NAME_MAX < 32 && HEADER_USED_BYTES <= HEADER_BYTES as usize);

/// The content of a pool header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoolHeader {
    pub(crate) sequence: u64,
    pub(crate) pool_id: [u8; 16],
    pub(crate) boot_id: [u8; 16],
    pub(crate) engine: String,
    pub(crate) engine_format: u32,
    pub(crate) clean: bool,
    pub(crate) emulate_dax: bool,
    pub(crate) engine_created: bool,
    pub(crate) capacity: u64,
    pub(crate) region_bytes: u64,
    pub(crate) chunk_bytes: u32,
    pub(crate) regions: u32,
    pub(crate) durability: Durability,
    pub(crate) region0_bytes: u64,
    /// Raised at each open and each clean stop. A region whose header has another generation is
    /// stale.
    pub(crate) generation: u64,
    /// The generation is being raised: each region header has this generation, or the one before.
    pub(crate) is_raising: bool,
    /// A salvage found damage that may have destroyed extents: only a salvage may open the pool.
    pub(crate) is_damaged: bool,
    /// The seal of region 0's extent table; counts only with `clean`.
    pub(crate) table_seal: u32,
    /// A number of the pool's owner; 0 in a new pool.
    pub(crate) mark: u64,
}

pub(crate) fn id_at(bytes: &[u8], at: usize) -> [u8; 16] {
    bytes.get(at..at + 16).and_then(|part| part.try_into().ok()).unwrap_or_default()
}

pub(crate) fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    bytes[at..at + part.len()].copy_from_slice(part);
}

pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc32c(&[&bytes[8..12], &bytes[16..]])
}

/// The reason why a copy does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// No pool header was ever finished here.
    NoMagic,
    /// The bytes differ from the written ones.
    Torn,
    /// Whole, but of this newer format.
    Newer(u32),
    /// Whole, but of this older format.
    Older(u32),
}

impl PoolHeader {
    /// Returns the bytes of a copy.
    pub(crate) fn encode(&self) -> [u8; HEADER_USED_BYTES] {
        let mut bytes = [0; HEADER_USED_BYTES];
        let (level, window) = match self.durability {
            Durability::Process => (0u32, 0),
            Durability::Power => (1, 0),
            Durability::Interval(window) => (2, u64::try_from(window.as_millis()).unwrap_or(u64::MAX)),
        };
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let flags = flag(self.clean, CLEAN_FLAG)
            | flag(self.emulate_dax, EMULATE_DAX_FLAG)
            | flag(self.engine_created, ENGINE_CREATED_FLAG)
            | flag(self.is_raising, RAISING_FLAG)
            | flag(self.is_damaged, DAMAGED_FLAG);
        put(&mut bytes, 0, &POOL_MAGIC.to_le_bytes());
        put(&mut bytes, 8, &POOL_FORMAT.to_le_bytes());
        put(&mut bytes, 16, &self.sequence.to_le_bytes());
        put(&mut bytes, 24, &self.pool_id);
        put(&mut bytes, 40, &self.boot_id);
        put(&mut bytes, 56, self.engine.as_bytes());
        put(&mut bytes, 88, &self.engine_format.to_le_bytes());
        put(&mut bytes, 92, &flags.to_le_bytes());
        put(&mut bytes, 96, &self.capacity.to_le_bytes());
        put(&mut bytes, 104, &self.region_bytes.to_le_bytes());
        put(&mut bytes, 112, &self.chunk_bytes.to_le_bytes());
        put(&mut bytes, 116, &self.regions.to_le_bytes());
        put(&mut bytes, 120, &level.to_le_bytes());
        put(&mut bytes, 128, &window.to_le_bytes());
        put(&mut bytes, 136, &self.region0_bytes.to_le_bytes());
        put(&mut bytes, 144, &self.generation.to_le_bytes());
        put(&mut bytes, 152, &self.table_seal.to_le_bytes());
        put(&mut bytes, 160, &self.mark.to_le_bytes());
        let sum = checksum(&bytes);
        put(&mut bytes, 12, &sum.to_le_bytes());
        bytes
    }

    /// Reads one copy of at least [`HEADER_USED_BYTES`] bytes.
    fn decode(bytes: &[u8], trust: bool) -> Result<Self, Flaw> {
        let bytes = bytes.get(..HEADER_USED_BYTES).ok_or(Flaw::NoMagic)?;
        if u64_at(bytes, 0) != POOL_MAGIC {
            return Err(Flaw::NoMagic);
        }
        if u32_at(bytes, 12) != checksum(bytes) && !trust {
            return Err(Flaw::Torn);
        }
        match u32_at(bytes, 8) {
            POOL_FORMAT => {}
            older if older < POOL_FORMAT => return Err(Flaw::Older(older)),
            newer => return Err(Flaw::Newer(newer)),
        }
        let name = &bytes[56..88];
        let name = &name[..name.iter().position(|byte| *byte == 0).unwrap_or(name.len())];
        let durability = match u32_at(bytes, 120) {
            0 => Durability::Process,
            1 => Durability::Power,
            2 => Durability::Interval(Duration::from_millis(u64_at(bytes, 128))),
            _ => return Err(Flaw::Torn),
        };
        let header = Self {
            sequence: u64_at(bytes, 16),
            pool_id: id_at(bytes, 24),
            boot_id: id_at(bytes, 40),
            engine: String::from_utf8(name.into()).map_err(|_| Flaw::Torn)?,
            engine_format: u32_at(bytes, 88),
            clean: u32_at(bytes, 92) & CLEAN_FLAG != 0,
            emulate_dax: u32_at(bytes, 92) & EMULATE_DAX_FLAG != 0,
            engine_created: u32_at(bytes, 92) & ENGINE_CREATED_FLAG != 0,
            capacity: u64_at(bytes, 96),
            region_bytes: u64_at(bytes, 104),
            chunk_bytes: u32_at(bytes, 112),
            regions: u32_at(bytes, 116),
            durability,
            region0_bytes: u64_at(bytes, 136),
            generation: u64_at(bytes, 144),
            is_raising: u32_at(bytes, 92) & RAISING_FLAG != 0,
            is_damaged: u32_at(bytes, 92) & DAMAGED_FLAG != 0,
            table_seal: u32_at(bytes, 152),
            mark: u64_at(bytes, 160),
        };
        if header.is_possible() { Ok(header) } else { Err(Flaw::Torn) }
    }

    /// Returns whether the numbers are possible for a pool: a matching checksum alone does not
    /// prove this.
    fn is_possible(&self) -> bool {
        !self.engine.is_empty()
            && self.engine.len() <= ENGINE_NAME_MAX
            && self.sequence <= SEQUENCE_MAX
            && (1..=SEQUENCE_MAX).contains(&self.generation)
            && !(self.clean && self.is_raising)
            && (1..=MAX_REGIONS as u32).contains(&self.regions)
            && RegionLayout::new(0, self.region0_bytes, self.chunk_bytes).is_some()
            && RegionLayout::new(1, self.region_bytes, self.chunk_bytes).is_some()
    }

    /// Returns the newest valid copy of the two at the start of region 0. `trust` ignores checksums
    /// (a planted fault).
    ///
    /// # Errors
    /// [`Error::Corrupt`] if no copy is valid, [`Error::NewerFormat`], [`Error::OlderFormat`].
    pub(crate) fn newest(region0: &[u8], place: &str, trust: bool) -> Result<Self> {
        let size = HEADER_BYTES as usize;
        let copies = [region0.get(..size), region0.get(size..2 * size)]
            .map(|copy| copy.map_or(Err(Flaw::NoMagic), |bytes| Self::decode(bytes, trust)));
        match copies {
            [Err(Flaw::Newer(found)), _] | [_, Err(Flaw::Newer(found))] => {
                Err(Error::NewerFormat { part: "pool".into(), found, known: POOL_FORMAT })
            }
            [Err(Flaw::Older(found)), _] | [_, Err(Flaw::Older(found))] => {
                Err(Error::OlderFormat { part: "pool".into(), found, oldest: POOL_FORMAT })
            }
            [Ok(a), Ok(b)] if a.pool_id != b.pool_id => {
                Err(Error::corrupt(place, "the two header copies belong to different pools"))
            }
            [Ok(a), Ok(b)] => Ok(if a.sequence >= b.sequence { a } else { b }),
            [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(one),
            [Err(Flaw::NoMagic), Err(Flaw::NoMagic)] => {
                Err(Error::corrupt(place, "the file has no pool header, so it does not belong to a store"))
            }
            [Err(_), Err(_)] => Err(Error::corrupt(place, "neither header copy is valid")),
        }
    }

    /// Returns whether a header was ever finished at the start of these bytes.
    #[cfg(feature = "sim")]
    pub(crate) fn was_finished(region0: &[u8]) -> bool {
        u64_at(region0, 0) == POOL_MAGIC || u64_at(region0, HEADER_BYTES as usize) == POOL_MAGIC
    }
}

/// Returns whether a file that begins with these bytes is an interrupted, still unnamed creation of
/// region `index`. Such a file has zeros, and in region 0 header copies with or without their
/// magic.
pub(crate) fn is_unfinished(bytes: &[u8], index: u16) -> bool {
    let zero = |part: &[u8]| part.iter().all(|byte| *byte == 0);
    if index != 0 {
        return zero(bytes);
    }
    let size = HEADER_BYTES as usize;
    bytes.get(2 * size..).is_none_or(zero)
        && bytes.chunks(size).take(2).all(|copy| {
            [0, POOL_MAGIC].contains(&u64_at(copy, 0))
                && u32_at(copy, 8) <= POOL_FORMAT
                && copy.get(HEADER_FIELDS_BYTES..).is_none_or(zero)
        })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn header() -> PoolHeader {
        PoolHeader {
            sequence: 9,
            pool_id: [3; 16],
            boot_id: [4; 16],
            engine: "hikv".into(),
            engine_format: 2,
            clean: true,
            emulate_dax: false,
            engine_created: true,
            capacity: 1 << 30,
            region_bytes: 256 << 20,
            chunk_bytes: 4096,
            regions: 3,
            durability: Durability::Interval(Duration::from_millis(20)),
            region0_bytes: 256 << 20,
            generation: 5,
            mark: 6,
            is_raising: false,
            is_damaged: true,
            table_seal: 0x1234_5678,
        }
    }

    fn region(a: &[u8], b: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 8192];
        put(&mut bytes, 0, a);
        put(&mut bytes, 4096, b);
        bytes
    }

    #[test]
    fn the_newest_valid_copy_counts() {
        let old = header();
        let new = PoolHeader { sequence: 10, clean: false, ..old.clone() };
        for bytes in [region(&old.encode(), &new.encode()), region(&new.encode(), &old.encode())] {
            assert_eq!(PoolHeader::newest(&bytes, "x", false).expect("valid"), new);
        }
        let mut torn = new.encode();
        torn[92] ^= 1;
        for bytes in [region(&old.encode(), &torn), region(&torn, &old.encode())] {
            assert_eq!(PoolHeader::newest(&bytes, "x", false).expect("one valid"), old);
        }
        let both = PoolHeader::newest(&region(&torn, &torn), "x", false);
        assert!(matches!(both, Err(Error::Corrupt { .. })));
        assert!(matches!(PoolHeader::newest(&[], "x", false), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn an_impossible_sequence_number_is_damage() {
        let last = PoolHeader { sequence: SEQUENCE_MAX, ..header() };
        let past = PoolHeader { sequence: u64::MAX, ..header() };
        let found = PoolHeader::newest(&region(&past.encode(), &last.encode()), "x", false);
        assert_eq!(found.expect("one possible"), last);
        assert!(PoolHeader::newest(&region(&past.encode(), &past.encode()), "x", false).is_err());
    }

    #[test]
    fn a_newer_format_is_refused_by_number() {
        let mut bytes = header().encode();
        put(&mut bytes, 8, &7u32.to_le_bytes());
        let sum = checksum(&bytes);
        put(&mut bytes, 12, &sum.to_le_bytes());
        for region in [region(&bytes, &header().encode()), region(&header().encode(), &bytes)] {
            let refused = PoolHeader::newest(&region, "x", false);
            assert!(matches!(refused, Err(Error::NewerFormat { found: 7, known: POOL_FORMAT, .. })), "{refused:?}");
        }
    }

    #[test]
    fn an_older_format_is_refused_by_number() {
        let mut bytes = header().encode();
        put(&mut bytes, 8, &1u32.to_le_bytes());
        let sum = checksum(&bytes);
        put(&mut bytes, 12, &sum.to_le_bytes());
        let refused = PoolHeader::newest(&region(&bytes, &bytes), "x", false);
        assert!(matches!(refused, Err(Error::OlderFormat { found: 1, oldest: POOL_FORMAT, .. })), "{refused:?}");
    }

    #[test]
    fn the_rest_of_an_interrupted_creation_is_distinguished_from_foreign_bytes() {
        let mut bytes = region(&header().encode(), &header().encode());
        bytes.resize(65536, 0);
        assert!(is_unfinished(&bytes, 0), "whole copies, not yet named");
        assert!(!is_unfinished(&bytes, 1), "no other region has a header before it has its name");
        bytes[..8].fill(0);
        assert!(is_unfinished(&bytes, 0), "no magic yet");
        for at in [0, 11, 200, 4095, 4096, 9000] {
            let mut other = bytes.clone();
            other[at] = 0x55;
            assert!(!is_unfinished(&other, 0), "byte {at}");
        }
        assert!(is_unfinished(&[], 0) && is_unfinished(&[0; 700], 7));
    }

    #[test]
    fn every_single_flipped_bit_is_detected() {
        let good = header().encode();
        for bit in 0..HEADER_USED_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(PoolHeader::decode(&bad, false).is_err(), "bit {bit}");
        }
    }
}
