//! The two words of an index entry.
//!
//! ```text
//! signature word: the key's signature, or 0
//! second word, naming a record
//! bit 63     60 59      48 47     40 39            4 3     1   0
//!     | check  |  region  |  check  | offset / 16   | check | expiry |
//! second word of a free slot: a mark, whose offset is 0
//! bit 63                          40 39            4 3        0
//!     | hash of slot and pool       | 0             | mark kind |
//! ```
//! Invariants:
//! 1. The 15 check bits depend on slot, signature, position, expiry bit and the record's checksum.
//!    An entry therefore names one record. A changed bit or an older record is detected with
//!    probability 1 - 2^-15.
//! 2. A slot that was never used, or was freed, holds signature 0 and its own free mark. A zeroed
//!    slot, or a line of another place or pool, does not, except with probability 2^-24 per slot.
//! 3. A crash that tears a swap between a live entry and a free mark leaves (0, position) or
//!    (signature, own mark). Both are free.

use lodestore_media::{NvPtr, Pool};

const EXPIRY_FLAG: u64 = 1;
const OFFSET_MASK: u64 = 0x0000_00ff_ffff_fff0;
const REGION_MASK: u64 = 0x0fff << 48;
const POSITION_MASK: u64 = REGION_MASK | OFFSET_MASK | EXPIRY_FLAG;
const CHECK_MASK: u64 = !POSITION_MASK;
const MARK_HASH_MASK: u64 = !0 << 40;
/// Low bits of the mark of a free slot.
const FREE_MARK_ID: u64 = 1;
/// Low bits of the mark of a slot whose entry a split or a recovery found damaged. Never free.
const DAMAGED_MARK_ID: u64 = 2;
/// Odd multipliers of the hashes (Steele and Vigna, "Computationally easy, spectrally good
/// multipliers", 2021).
const ENTRY_MULTIPLIER: u64 = 0xd134_2543_de82_ef95;
const BINDING_MULTIPLIER: u64 = 0xaf25_1af3_b0f0_25b5;
const SLOT_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Both words of an entry, read or to be stored as one pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The key's signature.
    pub(crate) sig: u64,
    /// Position, expiry bit and check bits; or a mark.
    pub(crate) word: u64,
}

impl Entry {
    /// Reads the entry at `slot` as one pair.
    #[inline]
    pub(crate) fn load(pool: &Pool, slot: NvPtr) -> Self {
        let (sig, word) = pool.load_u128(slot);
        Self { sig, word }
    }

    /// Returns the entry at `slot` that names the record with this checksum at `position`. The
    /// position's tag is the expiry bit.
    #[inline]
    pub(crate) fn naming(slot: NvPtr, sig: u64, position: NvPtr, binding: u32) -> Self {
        let raw = position.raw();
        debug_assert!(raw & CHECK_MASK == 0 && raw & OFFSET_MASK != 0, "a record's position fits an entry");
        Self { sig, word: raw | check_bits(slot, sig, raw, binding) }
    }

    /// Returns the entry of a free slot.
    #[inline]
    pub(crate) fn free(pool: &Pool, slot: NvPtr) -> Self {
        Self { sig: 0, word: mark_hash(pool, slot) | FREE_MARK_ID }
    }

    /// Returns the entry of a slot that a split or a recovery found damaged.
    pub(crate) fn damaged(pool: &Pool, slot: NvPtr) -> Self {
        Self { sig: 0, word: mark_hash(pool, slot) | DAMAGED_MARK_ID }
    }

    /// Returns the same entry for the slot `to` of another segment.
    pub(crate) fn moved(self, from: NvPtr, to: NvPtr) -> Self {
        Self { sig: self.sig, word: self.word ^ (slot_bits(from) ^ slot_bits(to)) & CHECK_MASK }
    }

    /// Returns the position of the record; its tag is the expiry bit.
    #[inline]
    pub(crate) fn position(self) -> NvPtr {
        position_of(self.word)
    }

    /// Returns whether the entry, which is at `slot`, names the record with this checksum.
    #[inline]
    pub(crate) fn is_bound(self, slot: NvPtr, binding: u32) -> bool {
        let expected = check_bits(slot, self.sig, self.word & POSITION_MASK, binding);
        self.word & CHECK_MASK == expected
    }

    /// Returns the pair for the medium's swap.
    #[inline]
    pub(crate) fn pair(self) -> (u64, u64) {
        (self.sig, self.word)
    }
}

/// Returns the position of the record that a second word names; its tag is the expiry bit.
#[inline]
pub(crate) fn position_of(word: u64) -> NvPtr {
    NvPtr::from_raw(word & POSITION_MASK)
}

/// Returns whether a second word names a record. Marks and zero do not.
#[inline]
pub(crate) fn names_record(word: u64) -> bool {
    word & OFFSET_MASK != 0
}

#[inline]
fn check_bits(slot: NvPtr, sig: u64, position: u64, binding: u32) -> u64 {
    let mixed = (sig.rotate_left(32) ^ position ^ u64::from(binding).wrapping_mul(BINDING_MULTIPLIER))
        .wrapping_mul(ENTRY_MULTIPLIER);
    (mixed ^ mixed >> 32 ^ slot_bits(slot)) & CHECK_MASK
}

#[inline]
fn slot_bits(slot: NvPtr) -> u64 {
    slot.raw().wrapping_mul(SLOT_MULTIPLIER)
}

#[inline]
fn mark_hash(pool: &Pool, slot: NvPtr) -> u64 {
    (slot.raw() ^ pool.identity()).wrapping_mul(ENTRY_MULTIPLIER) & MARK_HASH_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot() -> NvPtr {
        NvPtr::new(2, 0x4_5680)
    }

    fn noise(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(ENTRY_MULTIPLIER).wrapping_add(1);
        *state ^ *state >> 29
    }

    #[test]
    fn an_entry_returns_its_position_and_is_bound_to_its_record() {
        for tag in [0, 1] {
            for at in [NvPtr::new(0, 16), NvPtr::new(4095, (1 << 40) - 16), NvPtr::new(7, 0x1234_5670)] {
                let entry = Entry::naming(slot(), 99, at.with_tag(tag), 0xdead_beef);
                assert_eq!(entry.position(), at.with_tag(tag));
                assert!(names_record(entry.word) && entry.is_bound(slot(), 0xdead_beef));
            }
        }
    }

    #[test]
    fn one_or_two_changed_bits_of_the_second_word_are_detected_with_the_stated_probability() {
        let (mut state, mut tried, mut missed) = (7, 0u64, 0u64);
        for _entry in 0..200 {
            let position = NvPtr::new(3, noise(&mut state) & 0xf_ffff_fff0 | 16);
            let (sig, binding) = (noise(&mut state), noise(&mut state) as u32);
            let entry = Entry::naming(slot(), sig, position, binding);
            for first in 0..64 {
                for second in first..64 {
                    let flips = 1 << first | 1 << second;
                    let word = entry.word ^ flips;
                    // Another position holds another record; a changed check or expiry bit, the
                    // same one.
                    let moved = flips & (OFFSET_MASK | REGION_MASK) != 0;
                    let found = if moved { noise(&mut state) as u32 } else { binding };
                    tried += 1;
                    missed += u64::from(Entry { sig, word }.is_bound(slot(), found));
                }
            }
        }
        // Expected: 2^-15 of 416,000 is 13.
        assert!(missed < 40, "{missed} of {tried}");
    }

    #[test]
    fn an_older_record_at_the_same_position_is_detected_with_the_stated_probability() {
        let (mut state, mut missed) = (11, 0);
        for _record in 0..1_000_000 {
            let entry = Entry::naming(slot(), noise(&mut state), NvPtr::new(1, 4096), noise(&mut state) as u32);
            missed += u64::from(entry.is_bound(slot(), noise(&mut state) as u32));
        }
        // Expected: 2^-15 of a million is 31.
        assert!(missed < 80, "{missed}");
    }

    #[test]
    fn a_moved_entry_is_bound_to_its_new_slot_only() {
        let to = NvPtr::new(5, 0x9_9980);
        let entry = Entry::naming(slot(), 12345, NvPtr::new(1, 4096), 77);
        let moved = entry.moved(slot(), to);
        assert!(moved.is_bound(to, 77) && !moved.is_bound(slot(), 77) && !entry.is_bound(to, 77));
    }
}
