//! NVHT's bytes on the medium, but for records (`record.rs`): superblock, partition roots, tables and their slots.
//! docs/format/nvht.md shows them with rulers.
//!
//! ```text
//! superblock, at the pool's root area
//!  0          8     12           16          20            24     28     32     40
//! | LSNVHT\0\1 | ver | partitions | first slots | probe lines | load | hash | seed | crc32c | 0...
//! 128    | 8 words of the batch logs |
//! 256    | root of partition 0: 32 bytes | of 1 | ...
//! ```

use lodestore_contract::{Error, Result};
use lodestore_media::{ExtentKind, NvPtr, Pool, crc32c, u32_at, u64_at};

use crate::hash::{HashKind, PARTITIONS_MAX, TAG_BITS};

/// Version of the engine's format.
pub const FORMAT: u32 = 1;
/// The engine's name in the pool header.
pub const ENGINE: &str = "nvht";

/// Extents of tables.
pub(crate) const KIND_TABLE: ExtentKind = ExtentKind(16);
/// Extents of batch logs.
pub(crate) const KIND_LOG: ExtentKind = ExtentKind(17);

/// Bytes of a line of slots: one of the processor's.
pub(crate) const LINE: u64 = 64;
/// Slots of a line; the eighth word is its reach.
pub(crate) const LINE_SLOTS: usize = 7;
/// Most lines that are probed for a key.
pub(crate) const PROBE_LINES_MAX: u32 = 64;
/// Most slots that a store can begin with.
pub(crate) const FIRST_SLOTS_MAX: u32 = 1 << 30;
/// Highest load factor, in hundredths.
pub(crate) const LOAD_MAX: u32 = 95;
/// Lowest load factor, in hundredths.
pub(crate) const LOAD_MIN: u32 = 10;
/// Most lines of a table: a fraction has 32 bits.
pub(crate) const LINES_MAX: u64 = 1 << 32;
/// The cursor of a table that has moved wholly: one more than the last fraction.
pub(crate) const CURSOR_END: u64 = 1 << 32;

const MAGIC: [u8; 8] = *b"LSNVHT\0\x01";
const CRC_AT: usize = 40;
const LOGS_AT: u64 = 128;
const ROOTS_AT: u64 = 256;
const ROOT: u64 = 32;

const _: () = assert!(ROOTS_AT + PARTITIONS_MAX as u64 * ROOT <= Pool::ROOT_BYTES);

/// What is fixed when a store is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) partitions: u32,
    /// Slots of all tables of a new store, about.
    pub(crate) first_slots: u32,
    /// Most lines that are probed for a key.
    pub(crate) probe_lines: u32,
    /// Keys for each hundred slots over which a table grows.
    pub(crate) load: u32,
    pub(crate) hash: HashKind,
    pub(crate) seed: u64,
}

impl Superblock {
    /// Writes it; durable after the caller's fence.
    pub(crate) fn store(&self, pool: &Pool) {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&MAGIC);
        let words = [FORMAT, self.partitions, self.first_slots, self.probe_lines, self.load, self.hash.number()];
        for (word, at) in words.iter().zip((8..).step_by(4)) {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[32..40].copy_from_slice(&self.seed.to_le_bytes());
        let crc = crc32c(&[&bytes[..CRC_AT]]);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        pool.store(pool.root(), &bytes);
        pool.flush(pool.root(), bytes.len());
    }

    /// Reads it; `None` where it is not whole.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::NewerFormat`].
    pub(crate) fn load(pool: &Pool) -> Result<Option<Self>> {
        let Some(bytes) = pool.bytes(pool.root(), 64) else { return Err(wrong("no root area")) };
        if bytes[..8] != MAGIC || crc32c(&[&bytes[..CRC_AT]]) != u32_at(bytes, CRC_AT) {
            return Ok(None);
        }
        let version = u32_at(bytes, 8);
        if version > FORMAT {
            return Err(Error::NewerFormat { part: ENGINE.into(), found: version, known: FORMAT });
        }
        let (partitions, first_slots) = (u32_at(bytes, 12), u32_at(bytes, 16));
        let (probe_lines, load) = (u32_at(bytes, 20), u32_at(bytes, 24));
        let sane = partitions.is_power_of_two()
            && partitions <= PARTITIONS_MAX
            && (1..=FIRST_SLOTS_MAX).contains(&first_slots)
            && (1..=PROBE_LINES_MAX).contains(&probe_lines)
            && (LOAD_MIN..=LOAD_MAX).contains(&load);
        match HashKind::of_number(u32_at(bytes, 28)).filter(|_| sane) {
            Some(hash) => Ok(Some(Self { partitions, first_slots, probe_lines, load, hash, seed: u64_at(bytes, 32) })),
            None => Err(wrong("partitions, first slots, probing length, load factor or hash out of range")),
        }
    }

    /// Lines of a partition's first table. They differ, from one and up to two, so that tables grow one after the other and
    /// not all at about the same time.
    pub(crate) fn first_lines(&self, partition: usize) -> u64 {
        let (partitions, slots) = (u64::from(self.partitions), u64::from(self.first_slots));
        let share = 2 * slots * (partitions + partition as u64);
        share.div_ceil(3 * LINE_SLOTS as u64 * partitions * partitions).max(1)
    }
}

/// Where the words of the batch logs stand.
pub(crate) fn log_roots(pool: &Pool) -> NvPtr {
    pool.root().add(LOGS_AT)
}

/// The root of a partition, four words in one line:
///
/// ```text
///  0            8             16       24
/// | the table  | the next one | cursor | keys at the last clean stop |
/// ```
/// A table is named by its position with the number of its doublings in the low 6 bits. `next` is 0 but while the table grows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Root {
    pub(crate) at: NvPtr,
    partition: usize,
}

impl Root {
    pub(crate) const BYTES: usize = ROOT as usize;
    /// The largest number that is sealed.
    pub(crate) const NUMBER_MAX: u64 = (1 << 40) - 1;

    #[inline]
    pub(crate) fn of(pool: &Pool, partition: usize) -> Self {
        Self { at: pool.root().add(ROOTS_AT + partition as u64 * ROOT), partition }
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

    /// A number of up to 40 bits with a check of 24, so that a flipped bit is told; 0 is the number 0.
    pub(crate) fn sealed(self, number: u64) -> u64 {
        assert!(number <= Self::NUMBER_MAX, "a number of 40 bits");
        if number == 0 {
            return 0;
        }
        let crc = crc32c(&[&(self.partition as u32).to_le_bytes(), &number.to_le_bytes()]);
        number | u64::from(crc >> 8) << 40
    }

    /// What was sealed; `None` where it was changed.
    pub(crate) fn unsealed(self, word: u64) -> Option<u64> {
        let number = word & Self::NUMBER_MAX;
        (self.sealed(number) == word).then_some(number)
    }
}

/// A slot: what it knows of a key, and where its record is, in one word that is stored at once.
///
/// ```text
/// bit 63   49 48      47     36 35                  0
/// | tag: 15 | expires | region | offset in 16 bytes |
/// ```
/// A slot whose position is 0 names nothing; if the word is not 0 it is reserved by a batch under way, or was by one that a crash
/// cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u64);

impl Slot {
    /// Free.
    pub(crate) const FREE: u64 = 0;
    /// Reserved by a batch of the open of this number: two opens have the same one of 65535 by chance, and then what a crash left stays taken
    /// until the table grows.
    pub(crate) fn reserved(open: u64) -> u64 {
        (1 + open % 0xffff) << EXPIRES_SHIFT
    }

    #[inline]
    pub(crate) fn new(tag: u64, record: NvPtr, expires: bool) -> Self {
        debug_assert!(tag < 1 << TAG_BITS && record.region() < 1 << REGION_BITS && record.offset() < 1 << 40);
        let position = u64::from(record.region()) << UNIT_BITS | record.offset() >> 4;
        Self(tag << TAG_SHIFT | u64::from(expires) << EXPIRES_SHIFT | position)
    }

    #[inline]
    pub(crate) fn names_record(self) -> bool {
        self.0 & POSITION != 0
    }

    #[inline]
    pub(crate) fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    #[inline]
    pub(crate) fn expires(self) -> bool {
        self.0 >> EXPIRES_SHIFT & 1 == 1
    }

    #[inline]
    pub(crate) fn record(self) -> NvPtr {
        NvPtr::new((self.0 >> UNIT_BITS & ((1 << REGION_BITS) - 1)) as u16, (self.0 & ((1 << UNIT_BITS) - 1)) << 4)
    }
}

const UNIT_BITS: u32 = 36;
const REGION_BITS: u32 = 12;
const EXPIRES_SHIFT: u32 = UNIT_BITS + REGION_BITS;
const TAG_SHIFT: u32 = EXPIRES_SHIFT + 1;
/// The bits of a position.
const POSITION: u64 = (1 << EXPIRES_SHIFT) - 1;

const _: () = assert!(TAG_SHIFT + TAG_BITS == 64);
const _: () = assert!(lodestore_media::MAX_REGIONS <= 1 << REGION_BITS);

/// A line's first word: how many lines further keys of this home line may stand, and its complement, so that a flipped bit is told. A
/// fresh line's is 0.
pub(crate) fn reach_word(lines: u32) -> u64 {
    debug_assert!(lines < PROBE_LINES_MAX);
    if lines == 0 { 0 } else { u64::from(lines) | u64::from(!lines) << 32 }
}

/// The reach that a line's first word tells; `most` where it was changed, so that nothing is missed.
#[inline]
pub(crate) fn reach_of(word: u64, most: u32) -> u32 {
    if word == 0 {
        return 0;
    }
    let lines = word as u32;
    if reach_is_whole(word) && lines <= most { lines } else { most }
}

/// Whether a line's first word is as it was written.
#[inline]
pub(crate) fn reach_is_whole(word: u64) -> bool {
    word == 0 || word as u32 == !((word >> 32) as u32)
}

/// A table's first line: written once, before the table is named.
///
/// ```text
///  0      4           8           12       16
/// | LTAB | partition | doublings | crc32c | lines | 0 ... 64
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableHeader {
    pub(crate) partition: u32,
    pub(crate) doublings: u32,
    pub(crate) lines: u64,
}

impl TableHeader {
    const MAGIC: [u8; 4] = *b"LTAB";

    pub(crate) fn to_bytes(self) -> [u8; LINE as usize] {
        let mut bytes = [0; LINE as usize];
        bytes[..4].copy_from_slice(&Self::MAGIC);
        bytes[4..8].copy_from_slice(&self.partition.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.doublings.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.lines.to_le_bytes());
        let crc = crc32c(&[&bytes[..12], &bytes[16..24]]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Whether this header stands at `at`.
    pub(crate) fn stands_at(self, pool: &Pool, at: NvPtr) -> bool {
        pool.bytes(at, LINE as usize).is_some_and(|bytes| bytes == self.to_bytes())
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
    Error::corrupt("nvht superblock", what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_gives_back_its_parts() {
        for (tag, at, expires) in [
            (0, NvPtr::new(0, 16), false),
            (0x7fff, NvPtr::new(4095, (1 << 40) - 16), true),
            (0x1234, NvPtr::new(7, 0x1234_5670), false),
        ] {
            let slot = Slot::new(tag, at, expires);
            assert_eq!((slot.tag(), slot.record(), slot.expires(), slot.names_record()), (tag, at, expires, true));
        }
        for open in [0, 1, 0xfffe, 0xffff, u64::MAX] {
            let word = Slot::reserved(open);
            assert!(word != Slot::FREE && !Slot(word).names_record(), "{open}");
        }
    }

    #[test]
    fn a_flipped_bit_of_a_reach_is_told_and_never_shortens_it() {
        for lines in 0..PROBE_LINES_MAX {
            let word = reach_word(lines);
            assert_eq!(reach_of(word, 63), lines);
            for bit in 0..64 {
                let flipped = word ^ 1 << bit;
                assert!(!reach_is_whole(flipped) && reach_of(flipped, 63) == 63, "{lines} with bit {bit}");
            }
        }
    }

    #[test]
    fn first_tables_differ_from_one_to_two_and_hold_about_what_was_asked() {
        let shape = |partitions, first_slots| Superblock {
            partitions,
            first_slots,
            probe_lines: 16,
            load: 80,
            hash: HashKind::Murmur3,
            seed: 0,
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
    fn a_sealed_number_comes_back_and_a_flipped_bit_is_told() {
        let root = Root { at: NvPtr::new(0, 4096), partition: 5 };
        for number in [0, 1, 77, CURSOR_END, (1 << 40) - 1] {
            let word = root.sealed(number);
            assert_eq!(root.unsealed(word), Some(number));
            for bit in 0..64 {
                assert_eq!(root.unsealed(word ^ 1 << bit), None, "{number} with bit {bit}");
            }
        }
    }
}
