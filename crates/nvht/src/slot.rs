//! A slot: one 8-byte word that names the record of a key and vouches for it.
//!
//! ```text
//! bit 63      53 52       41      40    39    38 37        U U-1            0
//! | tag: 11     | region: 12 | expires | residue | binding    | offset / 16: U |
//! ```
//! `U` is the store's number of offset bits, at least [`OFFSET_BITS_MIN`]. The binding holds bits
//! of the record's checksum: a slot names one record and not an older one at the same position. The
//! residue makes every slot a multiple of 3. No power of two is a multiple of 3: each single
//! flipped bit is detected.

use lodestore_media::NvPtr;

use crate::hash::TAG_BITS;

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 8;
/// Minimum offset bits of a slot: regions of up to 2 GiB.
pub(crate) const OFFSET_BITS_MIN: u32 = 27;
/// Maximum offset bits of a slot: regions of up to 1 TiB.
pub(crate) const OFFSET_BITS_MAX: u32 = 36;
/// Bytes of the unit in which a slot counts offsets, as a shift.
const UNIT_SHIFT: u32 = 4;

const RESIDUE_SHIFT: u32 = 38;
const EXPIRES_SHIFT: u32 = 40;
const REGION_SHIFT: u32 = 41;
const REGION_BITS: u32 = 12;
const TAG_SHIFT: u32 = REGION_SHIFT + REGION_BITS;
/// Shift of a 32-bit checksum that aligns its high bits with the binding's.
const BINDING_SHIFT: u32 = RESIDUE_SHIFT - 32;
/// A table of the residue bits that make a word of remainder 0, 1 and 2 a multiple of 3; two bits
/// each, the lowest first. Bit 38 has the value 1 modulo 3.
const RESIDUE_TABLE_BITS: u64 = 0b01_10_00;
/// The binding bits of a reserved slot.
const RESERVED_BINDING_BITS: u64 = 0xaaaa_aaaa_aaaa_aaaa;
/// Divides a multiple of 3 by 3: the inverse of 3 modulo 2^64.
const THIRD_MULTIPLIER: u64 = 0xaaaa_aaaa_aaaa_aaab;

const _: () = assert!(TAG_SHIFT + TAG_BITS == 64 && RESIDUE_SHIFT.is_multiple_of(2));
const _: () = assert!(lodestore_media::MAX_REGIONS <= 1 << REGION_BITS && OFFSET_BITS_MAX < RESIDUE_SHIFT);

/// A slot's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(pub(crate) u64);

/// A record as its slot names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named {
    pub(crate) at: NvPtr,
    pub(crate) expires: bool,
    /// The record's stored checksum.
    pub(crate) binding: u32,
}

/// The division of bits in the slots of one store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotForm {
    offset_mask: u64,
    binding_mask: u64,
}

impl Slot {
    /// A free slot.
    pub(crate) const FREE: Self = Self(0);

    #[inline]
    pub(crate) fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    #[inline]
    pub(crate) fn expires(self) -> bool {
        self.0 >> EXPIRES_SHIFT & 1 == 1
    }
}

/// Adds the residue bits to a word that has none.
#[inline]
fn with_residue(word: u64) -> u64 {
    word | (RESIDUE_TABLE_BITS >> (word % 3 * 2) & 3) << RESIDUE_SHIFT
}

/// Returns whether a word has the residue bits that it was made with.
#[inline]
fn is_residue_right(word: u64) -> bool {
    word.wrapping_mul(THIRD_MULTIPLIER) <= u64::MAX / 3
}

impl SlotForm {
    #[inline]
    pub(crate) fn of_offset_bits(bits: u32) -> Self {
        let offset_mask = (1 << bits) - 1;
        Self { offset_mask, binding_mask: ((1 << RESIDUE_SHIFT) - 1) & !offset_mask }
    }

    /// Returns the fewest offset bits that reach every byte of regions of this length.
    pub(crate) fn offset_bits_for(region_bytes: u64) -> u32 {
        let bits = u64::BITS - region_bytes.saturating_sub(1).leading_zeros();
        bits.saturating_sub(UNIT_SHIFT).clamp(OFFSET_BITS_MIN, OFFSET_BITS_MAX)
    }

    /// Returns the length of the longest region of which every byte can be named, given the number
    /// of offset bits.
    pub(crate) fn region_bytes_max(offset_bits: u32) -> u64 {
        1 << (offset_bits + UNIT_SHIFT)
    }

    /// Returns the slot of a key with this tag.
    #[inline]
    pub(crate) fn slot(self, tag: u64, named: Named) -> Slot {
        let Named { at, expires, binding } = named;
        debug_assert!(tag < 1 << TAG_BITS && at.region() < 1 << REGION_BITS);
        debug_assert!(at.offset() >> UNIT_SHIFT <= self.offset_mask, "the record is within reach of a slot");
        let word = tag << TAG_SHIFT
            | u64::from(at.region()) << REGION_SHIFT
            | u64::from(expires) << EXPIRES_SHIFT
            | u64::from(binding) << BINDING_SHIFT & self.binding_mask
            | at.offset() >> UNIT_SHIFT;
        Slot(with_residue(word))
    }

    /// Returns the slot that a batch reserves for a key with this tag. It names no record.
    pub(crate) fn reserved(self, tag: u64) -> Slot {
        Slot(with_residue(tag << TAG_SHIFT | RESERVED_BINDING_BITS & self.binding_mask))
    }

    /// Returns whether a slot names a record.
    #[inline]
    pub(crate) fn is_record(self, slot: Slot) -> bool {
        slot.0 & self.offset_mask != 0
    }

    /// Returns whether a slot is one that a batch reserved.
    pub(crate) fn is_reserved(self, slot: Slot) -> bool {
        slot != Slot::FREE && self.reserved(slot.tag()) == slot
    }

    /// Returns the position of the record that a slot names.
    #[inline]
    pub(crate) fn record(self, slot: Slot) -> NvPtr {
        let region = (slot.0 >> REGION_SHIFT & ((1 << REGION_BITS) - 1)) as u16;
        NvPtr::new(region, (slot.0 & self.offset_mask) << UNIT_SHIFT)
    }

    /// Returns whether a slot vouches for a record with this stored checksum.
    #[inline]
    pub(crate) fn is_bound(self, slot: Slot, binding: u32) -> bool {
        (u64::from(binding) << BINDING_SHIFT ^ slot.0) & self.binding_mask == 0 && is_residue_right(slot.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(at: NvPtr, expires: bool, binding: u32) -> Named {
        Named { at, expires, binding }
    }

    #[test]
    fn a_slot_returns_its_parts_and_vouches_for_its_record() {
        for bits in OFFSET_BITS_MIN..=OFFSET_BITS_MAX {
            let form = SlotForm::of_offset_bits(bits);
            let last = SlotForm::region_bytes_max(bits) - 16;
            for (tag, at, expires, binding) in [
                (0, NvPtr::new(0, 16), false, 0),
                (0x7ff, NvPtr::new(4095, last), true, u32::MAX),
                (0x234, NvPtr::new(7, 0x1234_5670), false, 0x9abc_def1),
            ] {
                let slot = form.slot(tag, named(at, expires, binding));
                assert_eq!((slot.tag(), form.record(slot), slot.expires()), (tag, at, expires));
                assert!(form.is_record(slot) && !form.is_reserved(slot) && form.is_bound(slot, binding));
            }
        }
    }

    #[test]
    fn a_slot_with_one_flipped_bit_vouches_for_no_record() {
        for bits in OFFSET_BITS_MIN..=OFFSET_BITS_MAX {
            let form = SlotForm::of_offset_bits(bits);
            for binding in [0, 0x9abc_def1, u32::MAX] {
                let slot = form.slot(0x5a5, named(NvPtr::new(3, 0x10_0040), binding == 0, binding));
                for bit in 0..64 {
                    let flipped = Slot(slot.0 ^ 1 << bit);
                    for other in [binding, !binding, binding.wrapping_add(0x1357_9bdf)] {
                        assert!(!form.is_bound(flipped, other), "bit {bit} of {:#x}", slot.0);
                    }
                }
            }
        }
    }

    #[test]
    fn a_slot_vouches_for_an_older_record_with_the_probability_of_its_binding_bits() {
        let form = SlotForm::of_offset_bits(OFFSET_BITS_MIN);
        let slot = form.slot(1, named(NvPtr::new(0, 4096), false, 0x1234_5678));
        let step = 0x9e37_79b9_u32;
        let bound = (1..=1 << 20).filter(|index: &u32| form.is_bound(slot, index.wrapping_mul(step))).count();
        assert!((400..640).contains(&bound), "{bound} of 2^20, with 11 bits");
    }

    #[test]
    fn a_reserved_slot_is_neither_free_nor_a_record_and_a_flipped_bit_is_found() {
        let form = SlotForm::of_offset_bits(OFFSET_BITS_MIN);
        for tag in [0, 1, 0x7ff] {
            let slot = form.reserved(tag);
            assert!(slot != Slot::FREE && !form.is_record(slot) && form.is_reserved(slot) && slot.tag() == tag);
            assert!((0..64).all(|bit| !form.is_reserved(Slot(slot.0 ^ 1 << bit))));
        }
        assert!(!form.is_reserved(Slot::FREE));
    }

    #[test]
    fn offset_bits_follow_from_the_longest_region() {
        for (bytes, bits) in [(1 << 20, 27), (2 << 30, 27), ((2 << 30) + 1, 28), (1 << 40, 36)] {
            assert_eq!(SlotForm::offset_bits_for(bytes), bits);
            assert!(SlotForm::region_bytes_max(bits) >= bytes);
        }
    }
}
