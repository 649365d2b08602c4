//! The layout of a table, its header, and its part in DRAM.
//!
//! ```text
//! header, 128 bytes:
//!    0  8  magic "LSTABLE\x01"       8  4  format version
//!   12  4  crc32c of bytes 0..12 and 16..128
//!   16  8  identity                 24  4  length of the table
//!   28  4  items                    32  4  tombstones
//!   36  4  pointers                 40  4  items that expire
//!   44  4  blocks                   48  4  offset of the blocks
//!   52  4  length of the blocks     56  4  offset of the index
//!   60  4  offset of the filter     64  4  lines of the filter
//!   68  4  offset of the keys       72  4  length of the least key
//!   76  4  length of the greatest key
//!   80  4  bytes all keys share     84  2  key length, if uniform
//!   86  2  value length, if uniform 88  4  bytes of a uniform block
//!   92  1  line: below              93  1  line: above
//!   94  1  bits for a key (filter)  95  1  0
//!   96  8  head of the first block 104  8  line: scale
//!  112  4  crc32c of the index     116  4  crc32c of the filter
//!  120  4  crc32c of the keys      124  4  plain bytes of the blocks
//! ```
//!
//! A *uniform* table has fixed blocks of one shape only, all of one length except the last: its
//! index does not describe them one by one. The index has heads (8 bytes per block), tops,
//! descriptions and checksums (4 bytes per block). Tops have 8 bytes per 32 blocks, and exist only
//! with more than 32 blocks. A description has 8 bytes per block: offset from the first block u32,
//! key length u16, value length u16. A uniform table has none.
//!
//! Version 3 has no compressed blocks, and its word 124 is 0. A table with at least one compressed
//! block has version 4. Such a table is not uniform, and each description has 4 bytes more: the
//! block's plain length (0: the block is not compressed), at most [`PLAIN_MAX`]. Versions 1 and 2
//! had items and filter lines without checks, and are rejected.

use lodestore_contract::limits::{KEY_MAX, KEY_MIN};
use lodestore_contract::{Error, Result};
use lodestore_media::{crc32c, u32_at, u64_at};

use super::block::Shape;
use super::compress::PLAIN_MAX;
use super::filter::LINE_BYTES;
use super::index::{HEADS_PER_TOP_COUNT, Line};
use super::reader::Table;

/// Newest known format of tables: with compressed blocks. A table without them is written as
/// version 3 ([`PLAIN_FORMAT`]).
pub const TABLE_FORMAT: u32 = 4;
/// The format without compressed blocks, and the oldest that is read.
pub(super) const PLAIN_FORMAT: u32 = 3;
/// First bytes of a table.
const MAGIC: [u8; 8] = *b"LSTABLE\x01";
/// Bytes of the header.
pub(super) const HEADER_BYTES: usize = 128;
/// Parts of a table begin at multiples of this.
pub(super) const PART_ALIGN_BYTES: usize = 64;
/// Numbers of parts in their checksums; smaller numbers are blocks.
pub(super) const INDEX_PART_ID: u32 = u32::MAX;
pub(super) const FILTER_PART_ID: u32 = u32::MAX - 1;
pub(super) const KEYS_PART_ID: u32 = u32::MAX - 2;
const HEADER_PART_ID: u32 = u32::MAX - 3;
/// Offsets of the checksums in the header.
const CRC_AT: usize = 12;
pub(super) const INDEX_CRC_AT: usize = 112;
pub(super) const FILTER_CRC_AT: usize = 116;
pub(super) const KEYS_CRC_AT: usize = 120;
/// Offset of the plain bytes of the blocks in the header.
const PLAIN_LEN_AT: usize = 124;

/// Returns the checksum of a part of the table with this identity.
#[inline]
pub(super) fn part_crc(identity: u64, part: u32, bytes: &[u8]) -> u32 {
    crc32c(&[&identity.to_le_bytes(), &part.to_le_bytes(), bytes])
}

/// A block as its checksum covers it: its bytes, and their description in the index.
#[derive(Clone, Copy)]
pub(super) struct Summed<'a> {
    pub number: u32,
    pub shape: Shape,
    /// Its plain length, if it is compressed; else 0.
    pub plain: u32,
    pub bytes: &'a [u8],
}

/// Returns the checksum of a block of the table with this identity.
pub(super) fn block_crc(identity: u64, block: &Summed<'_>) -> u32 {
    let mut first = [0; 20];
    first[..8].copy_from_slice(&identity.to_le_bytes());
    first[8..12].copy_from_slice(&block.number.to_le_bytes());
    first[12..14].copy_from_slice(&block.shape.key.to_le_bytes());
    first[14..16].copy_from_slice(&block.shape.value.to_le_bytes());
    first[16..].copy_from_slice(&block.plain.to_le_bytes());
    crc32c(&[&first, block.bytes])
}

/// 2^64 divided by the golden ratio, odd.
const SEED_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
/// An odd number that makes the seeds of adjacent parts differ.
const PART_MULTIPLIER: u32 = 0x85EB_CA6B;

#[inline]
fn seed(identity: u64, part: u32) -> u32 {
    (identity.wrapping_mul(SEED_MULTIPLIER) >> 32) as u32 ^ part.wrapping_mul(PART_MULTIPLIER)
}

/// Returns the seed of the checks of items in blocks of this shape.
#[inline]
pub(super) fn item_seed(identity: u64, shape: Shape) -> u32 {
    seed(identity, shape.key.into())
}

/// Returns the seed of the check of a filter line.
#[inline]
pub(super) fn line_seed(identity: u64, line: usize) -> u32 {
    seed(identity, FILTER_PART_ID.wrapping_sub(line as u32))
}

/// Returns `at`, rounded up to a multiple of [`PART_ALIGN_BYTES`].
pub(super) fn aligned(at: usize) -> usize {
    at.next_multiple_of(PART_ALIGN_BYTES)
}

/// The data that a get needs in addition to the table's bytes: about 100 bytes, which the engine
/// keeps in DRAM. Created once, by [`open`](Self::open), from verified bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableMeta {
    pub(super) identity: u64,
    pub(super) line: Line,
    pub(super) len: u32,
    pub(super) items: u32,
    pub(super) tombstones: u32,
    pub(super) pointers: u32,
    pub(super) expiring: u32,
    pub(super) blocks: u32,
    pub(super) data_at: u32,
    pub(super) data_len: u32,
    pub(super) index_at: u32,
    pub(super) filter_at: u32,
    pub(super) filter_lines: u32,
    pub(super) keys_at: u32,
    pub(super) least_len: u32,
    pub(super) greatest_len: u32,
    pub(super) prefix: u32,
    pub(super) block_len: u32,
    pub(super) uniform: Shape,
    pub(super) probes: u8,
    /// Bytes of all blocks decompressed, at most `u32::MAX`; 0 if none is compressed.
    pub(super) plain_len: u32,
}

impl TableMeta {
    /// Verifies a table's header, index, filter and keys, and returns the data that reads need.
    /// Does not read data blocks.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if this is no whole table of this identity. [`Error::NewerFormat`] and
    /// [`Error::OlderFormat`] for a version that is not supported.
    pub fn open(bytes: &[u8], identity: u64) -> Result<Self> {
        let meta = Self::read(bytes, identity)?;
        meta.check_part(bytes, "index", INDEX_PART_ID)?;
        meta.check_part(bytes, "filter", FILTER_PART_ID)?;
        meta.check_part(bytes, "least and greatest key", KEYS_PART_ID)?;
        Ok(meta)
    }

    /// Like [`open`](Self::open), but verifies only the header.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn read(bytes: &[u8], identity: u64) -> Result<Self> {
        let refuse = |what: &str| Err(Error::corrupt(format!("table {identity:#x}, header"), what));
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return refuse("the bytes are truncated") };
        if header[..8] != MAGIC {
            return refuse("the bytes do not begin with the magic of a table");
        }
        let version = u32_at(header, 8);
        if version > TABLE_FORMAT {
            return Err(Error::NewerFormat { part: "fluidkv table".into(), found: version, known: TABLE_FORMAT });
        }
        if u32_at(header, CRC_AT) != header_crc(identity, header) {
            return refuse("the checksum differs");
        }
        if (1..PLAIN_FORMAT).contains(&version) {
            return Err(Error::OlderFormat { part: "fluidkv table".into(), found: version, oldest: PLAIN_FORMAT });
        }
        let meta = Self::decode(header, version);
        if version == 0 || meta.identity != identity {
            return refuse("the header belongs to another table");
        }
        if !meta.is_sound() || meta.is_compressed() != (version > PLAIN_FORMAT) {
            return refuse("the numbers are invalid");
        }
        if bytes.len() < meta.len as usize {
            return refuse("the table is longer than its extent");
        }
        Ok(meta)
    }

    /// Finds the table that begins here, with the identity in its header, under the checksum. Like
    /// [`open`](Self::open).
    #[must_use]
    pub fn find(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        Self::open(bytes, u64_at(header, 16)).ok()
    }

    /// Returns the length of the table that begins with these bytes, if there is one.
    #[must_use]
    pub fn len_of(header: &[u8]) -> Option<usize> {
        let header = header.first_chunk::<HEADER_BYTES>().filter(|header| header[..8] == MAGIC)?;
        Some(u32_at(header, 24) as usize)
    }

    /// Returns its identity.
    #[must_use]
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Returns the number of its items, and of tombstones and pointers among them.
    #[must_use]
    pub fn counts(&self) -> [u64; 3] {
        [self.items, self.tombstones, self.pointers].map(u64::from)
    }

    /// Returns the reader of the table in `bytes`, the same bytes from which this was created.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there are fewer.
    #[inline]
    pub fn table<'m, 'b>(&'m self, bytes: &'b [u8]) -> Result<Table<'m, 'b>> {
        match bytes.get(..self.len as usize) {
            Some(bytes) => Ok(Table::new(self, bytes)),
            None => Err(self.corrupt("end", self.len as usize, "the table is truncated")),
        }
    }

    /// Returns the bytes of the table.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len as usize
    }

    /// Returns the number of data blocks.
    #[must_use]
    #[cfg(test)]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns whether some of its blocks are compressed.
    #[must_use]
    #[inline]
    pub fn is_compressed(&self) -> bool {
        self.plain_len != 0
    }

    /// Returns the bytes of its blocks, as stored and decompressed.
    #[must_use]
    pub fn block_bytes(&self) -> (u64, u64) {
        (self.data_len.into(), if self.is_compressed() { self.plain_len } else { self.data_len }.into())
    }

    /// Returns where the index, the filter or the keys are.
    pub(super) fn part(&self, part: u32) -> std::ops::Range<usize> {
        match part {
            INDEX_PART_ID => self.index_at as usize..self.index_at as usize + self.index_len(),
            FILTER_PART_ID => {
                self.filter_at as usize..self.filter_at as usize + self.filter_lines as usize * LINE_BYTES
            }
            _ => self.keys_at as usize..self.keys_at as usize + (self.least_len + self.greatest_len) as usize,
        }
    }

    /// Verifies the checksum of the index, the filter or the keys.
    pub(super) fn check_part(&self, bytes: &[u8], name: &str, part: u32) -> Result<()> {
        let at = match part {
            INDEX_PART_ID => INDEX_CRC_AT,
            FILTER_PART_ID => FILTER_CRC_AT,
            _ => KEYS_CRC_AT,
        };
        let range = self.part(part);
        let from = range.start;
        match bytes.get(range) {
            Some(bytes_of) if part_crc(self.identity, part, bytes_of) == u32_at(bytes, at) => Ok(()),
            Some(_) => Err(self.corrupt(name, from, "the checksum differs")),
            None => Err(self.corrupt(name, from, "the bytes are truncated")),
        }
    }

    /// Returns an error of this table.
    #[cold]
    pub(super) fn corrupt(&self, part: &str, at: usize, what: &str) -> Error {
        Error::corrupt(format!("table {:#x}, {part}, at byte {at} of the table", self.identity), what)
    }

    /// Returns an error of one of its blocks.
    #[cold]
    pub(super) fn corrupt_block(&self, block: usize, at: usize, what: &str) -> Error {
        self.corrupt(&format!("block {block}"), at, what)
    }

    /// Returns the bytes of the tops.
    #[inline]
    pub(super) fn tops_len(&self) -> usize {
        if self.blocks as usize > HEADS_PER_TOP_COUNT {
            (self.blocks as usize).div_ceil(HEADS_PER_TOP_COUNT) * 8
        } else {
            0
        }
    }

    /// Returns where the descriptions of the blocks begin; in a uniform table, their checksums.
    #[inline]
    pub(super) fn descriptions_at(&self) -> usize {
        self.index_at as usize + 8 * self.blocks as usize + self.tops_len()
    }

    /// Returns the bytes of the description of a block; 0 in a uniform table.
    #[inline]
    pub(super) fn described(&self) -> usize {
        match (self.uniform.is_fixed(), self.is_compressed()) {
            (true, _) => 0,
            (false, false) => 8,
            (false, true) => 12,
        }
    }

    /// Returns where the checksums of the blocks begin.
    #[inline]
    pub(super) fn checksums_at(&self) -> usize {
        self.descriptions_at() + self.described() * self.blocks as usize
    }

    /// Returns the bytes of the index.
    pub(super) fn index_len(&self) -> usize {
        self.checksums_at() + 4 * self.blocks as usize - self.index_at as usize
    }

    /// Returns whether all parts are within the table, in order, and the lengths are possible.
    fn is_sound(&self) -> bool {
        let keys = KEY_MIN..=KEY_MAX;
        let (blocks, stride) = (u64::from(self.blocks), self.uniform.stride() as u64);
        let ends = |at: u32, len: u64, next: u32| u64::from(at) + len <= u64::from(next);
        let described = self.described() as u64;
        let index_len = blocks * (12 + described)
            + if blocks > HEADS_PER_TOP_COUNT as u64 { blocks.div_ceil(HEADS_PER_TOP_COUNT as u64) * 8 } else { 0 };
        let keys_len = u64::from(self.least_len) + u64::from(self.greatest_len);
        let block_len = u64::from(self.block_len);
        (1..=u64::from(self.items)).contains(&blocks)
            && keys.contains(&(self.least_len as usize))
            && keys.contains(&(self.greatest_len as usize))
            && self.prefix <= self.least_len.min(self.greatest_len)
            && self.data_at as usize >= HEADER_BYTES
            && ends(self.data_at, u64::from(self.data_len), self.index_at)
            && ends(self.index_at, index_len, self.filter_at)
            && ends(self.filter_at, u64::from(self.filter_lines) * LINE_BYTES as u64, self.keys_at)
            && ends(self.keys_at, keys_len, self.len)
            && u64::from(self.plain_len) <= u64::from(self.data_len) + blocks * PLAIN_MAX as u64
            && if stride == 0 {
                block_len == 0
            } else if self.is_compressed() {
                false
            } else {
                block_len > 0
                    && block_len.is_multiple_of(stride)
                    && u64::from(self.data_len).div_ceil(block_len) == blocks
                    && u64::from(self.items) * stride == u64::from(self.data_len)
            }
    }

    fn decode(header: &[u8; HEADER_BYTES], version: u32) -> Self {
        let word = |at| u32_at(header, at);
        let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        Self {
            identity: u64_at(header, 16),
            line: Line { first: u64_at(header, 96), scale: u64_at(header, 104), below: header[92], above: header[93] },
            len: word(24),
            items: word(28),
            tombstones: word(32),
            pointers: word(36),
            expiring: word(40),
            blocks: word(44),
            data_at: word(48),
            data_len: word(52),
            index_at: word(56),
            filter_at: word(60),
            filter_lines: word(64),
            keys_at: word(68),
            least_len: word(72),
            greatest_len: word(76),
            prefix: word(80),
            uniform: Shape { key: half(84), value: half(86) },
            block_len: word(88),
            probes: header[94],
            plain_len: if version == PLAIN_FORMAT { 0 } else { word(PLAIN_LEN_AT) },
        }
    }

    /// Encodes the header of this table, whose parts have these checksums.
    pub(super) fn encode(&self, index_crc: u32, filter_crc: u32, keys_crc: u32) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[16..24].copy_from_slice(&self.identity.to_le_bytes());
        let words = [
            (8, if self.is_compressed() { TABLE_FORMAT } else { PLAIN_FORMAT }),
            (24, self.len),
            (28, self.items),
            (32, self.tombstones),
            (36, self.pointers),
            (40, self.expiring),
            (44, self.blocks),
            (48, self.data_at),
            (52, self.data_len),
            (56, self.index_at),
            (60, self.filter_at),
            (64, self.filter_lines),
            (68, self.keys_at),
            (72, self.least_len),
            (76, self.greatest_len),
            (80, self.prefix),
            (84, u32::from(self.uniform.key) | u32::from(self.uniform.value) << 16),
            (88, self.block_len),
            (INDEX_CRC_AT, index_crc),
            (FILTER_CRC_AT, filter_crc),
            (KEYS_CRC_AT, keys_crc),
            (PLAIN_LEN_AT, self.plain_len),
        ];
        for (at, word) in words {
            header[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        header[92..95].copy_from_slice(&[self.line.below, self.line.above, self.probes]);
        header[96..104].copy_from_slice(&self.line.first.to_le_bytes());
        header[104..112].copy_from_slice(&self.line.scale.to_le_bytes());
        let crc = header_crc(self.identity, &header);
        header[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        header
    }
}

fn header_crc(identity: u64, header: &[u8; HEADER_BYTES]) -> u32 {
    let (before, behind) = (&header[..CRC_AT], &header[CRC_AT + 4..]);
    crc32c(&[&identity.to_le_bytes(), &HEADER_PART_ID.to_le_bytes(), before, behind])
}
