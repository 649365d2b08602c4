//! NVHT's bytes on the medium, except records (`record.rs`), slots (`slot.rs`) and the first words
//! of lines (`line.rs`): superblock, partition roots and table headers. `docs/format/nvht.md` shows
//! them with rulers.
//!
//! ```text
//! superblock, at the pool's root area
//!  0            8     12      16      20      24     28     32     40            44
//! | LSNVHT\0\2 | ver | parts | slots | probe | load | hash | seed | offset bits | crc32c | 0...
//! 128    | 8 words of the batch logs |
//! 256    | root of partition 0: 32 bytes | of 1 | ...
//! ```

use lodestore_inplace::{Seal, Shape};
use lodestore_media::{ExtentKind, NvPtr, Pool, crc32c, u32_at, u64_at};

use crate::hash::{HashKind, PARTITIONS_MAX};
use crate::slot::{OFFSET_BITS_MAX, OFFSET_BITS_MIN, SlotForm};

/// Version of the engine's format.
pub const FORMAT: u32 = 3;
/// The engine's name in the pool header.
pub const ENGINE: &str = "nvht";

/// Extents of tables.
pub(crate) const KIND_TABLE: ExtentKind = ExtentKind(16);
/// Extents of batch logs.
pub(crate) const KIND_LOG: ExtentKind = ExtentKind(17);
/// Extents of the seal of a clean stop.
const KIND_SEAL: ExtentKind = ExtentKind(18);
/// The seal of a clean stop: over the root area and all tables.
pub(crate) const SEAL: Seal =
    Seal { kind: KIND_SEAL, name: |kind| if kind == KIND_TABLE { "table" } else { "extent" } };

/// Bytes of a line of slots: a cache line.
pub(crate) const LINE_BYTES: u64 = 64;
/// Slots of a line. Its first word is the probe limit (reach) of the line, with a check
/// (`line.rs`).
pub(crate) const LINE_SLOTS: usize = 7;
/// Maximum lines that are probed for a key.
pub(crate) const PROBE_LINES_MAX: u32 = 64;
/// Maximum slots of a new store.
pub(crate) const FIRST_SLOTS_MAX: u32 = 1 << 30;
/// Maximum load factor, in percent.
pub(crate) const LOAD_PERCENT_MAX: u32 = 95;
/// Minimum load factor, in percent.
pub(crate) const LOAD_PERCENT_MIN: u32 = 10;
/// Maximum lines of a table: a fraction has 32 bits.
pub(crate) const LINES_MAX: u64 = 1 << 32;
/// Cursor of a table that has moved completely: one more than the last fraction.
pub(crate) const CURSOR_MAX: u64 = 1 << 32;

const LOGS_AT: u64 = 128;
const ROOTS_AT: u64 = 256;
const PARTITION_ROOT_BYTES: u64 = 32;
/// Offset of the stage in a table's header.
const STAGE_AT: u64 = 24;
/// The largest number that is stored with a check.
const SEALED_NUMBER_MAX: u64 = (1 << 40) - 1;

const _: () = assert!(ROOTS_AT + PARTITIONS_MAX as u64 * PARTITION_ROOT_BYTES <= Seal::ROOT_BYTES);

/// Parameters that are fixed when a store is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) partitions: u32,
    /// Approximate slots of all tables of a new store.
    pub(crate) first_slots: u32,
    /// Maximum lines that are probed for a key.
    pub(crate) probe_lines: u32,
    /// Load in percent (keys per 100 slots) above which a table grows.
    pub(crate) load: u32,
    pub(crate) hash: HashKind,
    pub(crate) seed: u64,
    /// Bits of a record's offset in a slot, in units of 16 bytes.
    pub(crate) offset_bits: u32,
}

impl Superblock {
    /// Returns the division of bits in this store's slots.
    pub(crate) fn form(&self) -> SlotForm {
        SlotForm::of_offset_bits(self.offset_bits)
    }

    /// Returns the seed of the checks of this store's lines.
    pub(crate) fn salt(&self, pool: &Pool) -> u64 {
        pool.identity() ^ self.seed.rotate_left(17)
    }

    /// Returns the length of the longest region in which every record can be named.
    pub(crate) fn region_bytes_max(&self) -> u64 {
        SlotForm::region_bytes_max(self.offset_bits)
    }

    /// Returns the lines of a partition's first table. Lengths differ by up to a factor of two:
    /// tables then grow at different times.
    pub(crate) fn first_lines(&self, partition: usize) -> u64 {
        let (partitions, slots) = (u64::from(self.partitions), u64::from(self.first_slots));
        let share = 2 * slots * (partitions + partition as u64);
        share.div_ceil(3 * LINE_SLOTS as u64 * partitions * partitions).max(1)
    }
}

impl Shape for Superblock {
    const ENGINE: &'static str = ENGINE;
    const MAGIC: [u8; 8] = *b"LSNVHT\0\x02";
    const VERSION: u32 = FORMAT;
    const CRC_AT: usize = 44;

    fn encode(&self, bytes: &mut [u8; 64]) {
        let words = [self.partitions, self.first_slots, self.probe_lines, self.load, self.hash.number()];
        for (word, at) in words.iter().zip((12..).step_by(4)) {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[32..40].copy_from_slice(&self.seed.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.offset_bits.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let found = Self {
            partitions: u32_at(bytes, 12),
            first_slots: u32_at(bytes, 16),
            probe_lines: u32_at(bytes, 20),
            load: u32_at(bytes, 24),
            hash: HashKind::of_number(u32_at(bytes, 28))?,
            seed: u64_at(bytes, 32),
            offset_bits: u32_at(bytes, 40),
        };
        let is_sane = found.partitions.is_power_of_two()
            && found.partitions <= PARTITIONS_MAX
            && (1..=FIRST_SLOTS_MAX).contains(&found.first_slots)
            && (1..=PROBE_LINES_MAX).contains(&found.probe_lines)
            && (LOAD_PERCENT_MIN..=LOAD_PERCENT_MAX).contains(&found.load)
            && (OFFSET_BITS_MIN..=OFFSET_BITS_MAX).contains(&found.offset_bits);
        is_sane.then_some(found)
    }
}

/// Returns the position of the words of the batch logs.
pub(crate) fn log_roots(pool: &Pool) -> NvPtr {
    pool.root().add(LOGS_AT)
}

/// The root of a partition, four words in one line:
///
/// ```text
///  0            8             16       24
/// | the table  | the next one | cursor | keys at the last clean stop |
/// ```
/// A table is named by its position with the number of its doublings in the low 6 bits. `next` is
/// nonzero only while the table grows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Root {
    pub(crate) at: NvPtr,
    partition: usize,
    identity: u64,
}

impl Root {
    pub(crate) const BYTES: usize = PARTITION_ROOT_BYTES as usize;
    /// The largest number that is sealed.
    pub(crate) const NUMBER_MAX: u64 = SEALED_NUMBER_MAX;

    #[inline]
    pub(crate) fn of(pool: &Pool, partition: usize) -> Self {
        let at = pool.root().add(ROOTS_AT + partition as u64 * PARTITION_ROOT_BYTES);
        Self { at, partition, identity: pool.identity() }
    }

    pub(crate) fn current(self) -> NvPtr {
        self.at
    }

    pub(crate) fn next(self) -> NvPtr {
        self.at.add(8)
    }

    pub(crate) fn cursor(self) -> NvPtr {
        self.at.add(16)
    }

    pub(crate) fn keys(self) -> NvPtr {
        self.at.add(24)
    }

    /// Returns the word of a number of up to 40 bits: the number with a check of 24 bits. The word
    /// of 0 is not 0: a zeroed word is detected.
    pub(crate) fn sealed(self, number: u64) -> u64 {
        let partition = (self.partition as u32).to_le_bytes();
        seal_number(number, &self.identity.to_le_bytes(), &partition)
    }

    /// Returns the number of a word; `None` if the word was changed.
    pub(crate) fn unsealed(self, word: u64) -> Option<u64> {
        let number = word & Self::NUMBER_MAX;
        (self.sealed(number) == word).then_some(number)
    }
}

/// Returns the word of a number of up to 40 bits at a place of a pool: the number with a check of
/// 24 bits. The word of 0 is not 0: a zeroed word is detected.
fn seal_number(number: u64, identity: &[u8; 8], place: &[u8]) -> u64 {
    assert!(number <= SEALED_NUMBER_MAX, "a number of 40 bits");
    let crc = crc32c(&[identity, place, &number.to_le_bytes()]);
    // The lowest check bit is always set.
    number | u64::from(crc >> 8 | 1) << 40
}

/// A table's first line. All fields except the stage are written once, before the table is named.
///
/// ```text
///  0      4           8           12       16      24
/// | LTAB | partition | doublings | crc32c | lines | stage | 0 ... 64
/// ```
/// The checksum also covers the pool's identity and the header's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableHeader {
    pub(crate) partition: u32,
    pub(crate) doublings: u32,
    pub(crate) lines: u64,
}

/// Progress of a growth, as the headers of its two tables state it. The stages of a table ascend.
///
/// A stage is stored after the root on which it depends is durable, and has no fence of its own. A
/// crash therefore never leaves a root that is older than a stage says: such a root is an older
/// copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TableStage(u64);

impl TableStage {
    /// No stage was stored.
    pub(crate) const NONE: Self = Self(0);
    /// The table grows: the root has named the next table.
    pub(crate) const GROWING: Self = Self(CURSOR_MAX + 1);
    /// The growth has left the table: the root does not name it any more.
    pub(crate) const REPLACED: Self = Self(CURSOR_MAX + 2);

    /// Returns the stage of the table that a growth fills, when the root has had this cursor.
    pub(crate) fn of_cursor(cursor: u64) -> Self {
        debug_assert!(cursor <= CURSOR_MAX);
        Self(cursor)
    }

    /// Stores the stage of the table whose header is at `at`, without a fence.
    pub(crate) fn store(self, pool: &Pool, at: NvPtr) {
        pool.publish_u64(at.add(STAGE_AT), self.sealed_at(pool, at));
        pool.flush(at.add(STAGE_AT), 8);
    }

    /// Returns the stage of the table whose header is at `at`; `None` if the word was changed.
    pub(crate) fn load(pool: &Pool, at: NvPtr) -> Option<Self> {
        let word = pool.load_u64(at.add(STAGE_AT));
        if word == 0 {
            return Some(Self::NONE);
        }
        let stage = Self(word & SEALED_NUMBER_MAX);
        (stage.sealed_at(pool, at) == word).then_some(stage)
    }

    fn sealed_at(self, pool: &Pool, at: NvPtr) -> u64 {
        seal_number(self.0, &pool.identity().to_le_bytes(), &at.raw().to_le_bytes())
    }
}

impl TableHeader {
    const MAGIC: [u8; 4] = *b"LTAB";

    /// Returns the bytes of this header at `at`, without a stage.
    pub(crate) fn bytes_at(self, pool: &Pool, at: NvPtr) -> [u8; LINE_BYTES as usize] {
        let mut bytes = [0; LINE_BYTES as usize];
        bytes[..4].copy_from_slice(&Self::MAGIC);
        bytes[4..8].copy_from_slice(&self.partition.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.doublings.to_le_bytes());
        bytes[16..STAGE_AT as usize].copy_from_slice(&self.lines.to_le_bytes());
        let place = [pool.identity().to_le_bytes(), at.raw().to_le_bytes()];
        let crc = crc32c(&[&bytes[..12], &bytes[16..STAGE_AT as usize], place.as_flattened()]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Returns whether this header is at `at`, with any stage.
    pub(crate) fn is_stored_at(self, pool: &Pool, at: NvPtr) -> bool {
        let (before, after) = (STAGE_AT as usize, STAGE_AT as usize + 8);
        pool.bytes(at, LINE_BYTES as usize).is_some_and(|bytes| {
            let expected = self.bytes_at(pool, at);
            bytes[..before] == expected[..before] && bytes[after..] == expected[after..]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_tables_differ_by_at_most_a_factor_of_two_and_hold_the_requested_slots() {
        let shape = |partitions, first_slots| Superblock {
            partitions,
            first_slots,
            probe_lines: 16,
            load: 80,
            hash: HashKind::Murmur3,
            seed: 0,
            offset_bits: OFFSET_BITS_MIN,
        };
        for (partitions, slots) in [(64u32, 8192u32), (64, 1 << 20), (1, 14), (4, 1000)] {
            let shape = shape(partitions, slots);
            let lines: Vec<u64> = (0..partitions as usize).map(|index| shape.first_lines(index)).collect();
            let all = lines.iter().sum::<u64>() * LINE_SLOTS as u64;
            assert!(
                all * 3 >= u64::from(slots) * 2 && all <= u64::from(slots) + u64::from(partitions) * 8,
                "{all} of {slots}"
            );
            assert!(lines.is_sorted() && lines[partitions as usize - 1] <= 2 * lines[0]);
        }
        assert_eq!(shape(1, 1).first_lines(0), 1);
    }

    #[test]
    fn a_sealed_number_is_returned_and_a_flipped_bit_is_detected() {
        let root = Root { at: NvPtr::new(0, 4096), partition: 5, identity: 77 };
        assert_eq!(root.unsealed(0), None);
        for number in [0, 1, 77, CURSOR_MAX, (1 << 40) - 1] {
            let word = root.sealed(number);
            assert_eq!(root.unsealed(word), Some(number));
            for bit in 0..64 {
                assert_eq!(root.unsealed(word ^ 1 << bit), None, "{number} with bit {bit}");
            }
        }
    }
}
