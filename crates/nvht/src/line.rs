//! The first word of a line: the probe limit (*reach*) of its keys, and a check over its occupied
//! slots.
//!
//! ```text
//! bit 63                      7      6          0
//! | check: 57                  | damaged | reach: 6 |
//! ```
//! The check is a hash of the line's place, its reach and its damage mark. For each slot that is
//! not free a hash of (place, slot number, tag) is combined by exclusive or. The check thereby
//! detects a zeroed line, a line of another place, a slot that vanished and a slot that appeared. A
//! new record of a key keeps the tag, and thus the check.
//!
//! Persist order: a writer stores a slot before the check counts it, and removes the slot from the
//! check before it frees the slot. All these stores are in one line, and stores to a line persist
//! in order. A crash therefore leaves only occupied slots that the check does not count yet: one
//! per write in progress.
//!
//! Every change of the word is one compare-and-swap that combines the same hashes by exclusive or.
//! The difference between a line's check and its slots ([`LineHash::gap`]) therefore persists
//! through all later writes until recovery examines it.
//!
//! Damage has two forms. If a small change explains the difference ([`LineHash::is_small_change`]),
//! the line's other slots are its own. Otherwise the content may be of another line, or of an older
//! table at this position: its slots can name older records, and no read uses them.

use lodestore_media::{NvPtr, Pool};

use crate::hash::TAG_BITS;
use crate::layout::{LINE_BYTES, LINE_SLOTS};
use crate::planted;
use crate::slot::Slot;

/// The eight words of a line.
pub(crate) type Words = [u64; 1 + LINE_SLOTS];

const REACH_MASK: u64 = 63;
/// Set in a line from which keys may be missing.
const DAMAGED_FLAG: u64 = 64;
/// The bits of the word below the check.
const HEAD_MASK: u64 = REACH_MASK | DAMAGED_FLAG;
const POSITION_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const ITEM_MULTIPLIER: u64 = 0xd6e8_feb8_6659_fd93;
/// The inverse of [`ITEM_MULTIPLIER`] modulo 2^64.
const ITEM_INVERSE_MULTIPLIER: u64 = inverse(ITEM_MULTIPLIER);
/// Separates the hashes of the low bits from those of slots.
const HEAD_ITEM_FLAG: u64 = 1 << 32;
/// Number of identical pairs of reads that must show damage before a line counts as damaged.
const DAMAGED_READS_MIN: u32 = 3;
/// Maximum flipped bits of the check of a line whose slots still count as its own.
const FLIPPED_BITS_MAX: u32 = 2;

/// Returns the inverse of an odd number modulo 2^64: each step doubles the number of right bits.
const fn inverse(odd: u64) -> u64 {
    let (mut inverse, mut bits) = (odd, 3);
    while bits < u64::BITS {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        bits *= 2;
    }
    inverse
}

const _: () = assert!(ITEM_MULTIPLIER.wrapping_mul(ITEM_INVERSE_MULTIPLIER) == 1);

/// The hash of a line's place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineHash(u64);

/// Result of comparing a line's check with its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The check counts every occupied slot.
    Whole,
    /// The check lacks these slots (a bit set): the state after a crash or during a write.
    Uncounted(u8),
    /// The line is marked as damaged, or a small change of the line explains its check. Its other
    /// slots are its own.
    Damaged,
    /// No small change explains the check. The slots may be those of another line, or of an older
    /// table at this position.
    Foreign,
}

impl Verdict {
    /// Returns whether keys may be missing from the line.
    pub(crate) fn is_damaged(self) -> bool {
        matches!(self, Self::Damaged | Self::Foreign)
    }
}

impl LineHash {
    #[inline]
    pub(crate) fn of(line: NvPtr, salt: u64) -> Self {
        let mixed = (line.raw() ^ salt).wrapping_mul(POSITION_MULTIPLIER);
        Self(mixed ^ mixed >> 29)
    }

    #[inline]
    fn item(self, number: u64) -> u64 {
        self.0.wrapping_add(number).wrapping_mul(ITEM_MULTIPLIER) & !HEAD_MASK
    }

    #[inline]
    fn head(self, low: u64) -> u64 {
        self.item(HEAD_ITEM_FLAG | low) | low
    }

    /// Returns the first word of a line without slots.
    #[inline]
    pub(crate) fn empty(self) -> u64 {
        self.head(0)
    }

    /// Returns the contribution of an occupied slot to the check.
    #[inline]
    pub(crate) fn of_slot(self, index: usize, slot: Slot) -> u64 {
        self.of_tag(index, slot.tag())
    }

    #[inline]
    fn of_tag(self, index: usize, tag: u64) -> u64 {
        self.item(tag << 3 | index as u64)
    }

    /// Returns the difference between the check and the occupied slots; 0 if they agree.
    fn gap(self, words: &Words) -> u64 {
        occupied(words)
            .fold(words[0] ^ self.head(words[0] & HEAD_MASK), |gap, (index, slot)| gap ^ self.of_slot(index, slot))
    }

    /// Compares the check with the slots.
    pub(crate) fn judge(self, words: &Words) -> Verdict {
        let gap = self.gap(words);
        let is_marked = words[0] & DAMAGED_FLAG != 0;
        if gap == 0 {
            return if is_marked { Verdict::Damaged } else { Verdict::Whole };
        }
        match self.uncounted_slots(words, gap) {
            Some(slots) if !is_marked => Verdict::Uncounted(slots),
            Some(_) => Verdict::Damaged,
            None if self.is_small_change(words, gap) => Verdict::Damaged,
            None => Verdict::Foreign,
        }
    }

    /// Returns the set of occupied slots whose contributions make up `gap`, if there is one.
    fn uncounted_slots(self, words: &Words, gap: u64) -> Option<u8> {
        let lacks = |set: u8| {
            let within = occupied(words).fold(0u8, |all, (index, _)| all | 1 << index);
            set & !within == 0
                && occupied(words)
                    .filter(|(index, _)| set >> index & 1 == 1)
                    .fold(0, |sum, (index, slot)| sum ^ self.of_slot(index, slot))
                    == gap
        };
        (1..1 << LINE_SLOTS).find(|set| lacks(*set))
    }

    /// Returns whether a small change of this line explains `gap`: other low bits of the first
    /// word; at most two bits of the check; or one slot. The last two may come with one low bit.
    /// Also true for a line without slots. The content of another line passes with a probability of
    /// 2^-40: about 2^17 changes are tried against 57 bits.
    fn is_small_change(self, words: &Words, gap: u64) -> bool {
        if occupied(words).next().is_none() {
            return true;
        }
        let head = words[0] & HEAD_MASK;
        // The difference if the line had these low bits.
        let gap_with = |low: u64| gap ^ self.item(HEAD_ITEM_FLAG | head) ^ self.item(HEAD_ITEM_FLAG | low);
        let is_of_slot = |gap: u64, index: usize| {
            let slot = Slot(words[1 + index]);
            // The contribution that the check counts for this slot.
            let counted = if slot == Slot::FREE { gap } else { gap ^ self.of_slot(index, slot) };
            counted == 0 || self.number_of(counted).is_some_and(|number| number & 7 == index as u64)
        };
        let flips = std::iter::once(0).chain((0..HEAD_MASK.count_ones()).map(|bit| 1 << bit));
        let mut gaps = flips.map(|flip| gap_with(head ^ flip));
        (0..=HEAD_MASK).any(|low| gap_with(low) == 0)
            || gaps
                .any(|gap| gap.count_ones() <= FLIPPED_BITS_MAX || (0..LINE_SLOTS).any(|index| is_of_slot(gap, index)))
    }

    /// Returns the number of a slot and its tag whose contribution is `item`, if there is one.
    fn number_of(self, item: u64) -> Option<u64> {
        let number = |low: u64| (item | low).wrapping_mul(ITEM_INVERSE_MULTIPLIER).wrapping_sub(self.0);
        (0..=HEAD_MASK).map(number).find(|number| *number < 1 << (TAG_BITS + 3))
    }

    /// Returns whether a line is marked as damaged and otherwise whole.
    pub(crate) fn is_marked(self, words: &Words) -> bool {
        words[0] & DAMAGED_FLAG != 0 && self.gap(words) == 0
    }

    /// Returns the first word that counts every occupied slot and keeps the low bits.
    pub(crate) fn counting_all(self, words: &Words) -> u64 {
        words[0] ^ self.gap(words)
    }

    /// Returns the first word that counts every occupied slot and marks the line as damaged.
    pub(crate) fn marking(self, words: &Words, reach: u32) -> u64 {
        let low = DAMAGED_FLAG | u64::from(reach);
        occupied(words).fold(self.head(low), |word, (index, slot)| word ^ self.of_slot(index, slot))
    }
}

/// Returns the occupied slots of a line with their numbers.
fn occupied(words: &Words) -> impl Iterator<Item = (usize, Slot)> {
    words[1..].iter().enumerate().filter(|(_, word)| **word != Slot::FREE.0).map(|(index, word)| (index, Slot(*word)))
}

/// Returns the reach of a line's first word, at most `most`.
#[inline]
pub(crate) fn reach_of(word: u64, most: u32) -> u32 {
    ((word & REACH_MASK) as u32).min(most)
}

/// The location of a slot in its table.
pub(crate) struct SlotLocation {
    pub(crate) line: NvPtr,
    /// The slot's number in its line.
    pub(crate) index: usize,
}

/// Returns the location of the slot at this position.
#[inline]
pub(crate) fn locate_slot(slot_at: NvPtr) -> SlotLocation {
    let offset = slot_at.offset();
    let line = NvPtr::new(slot_at.region(), offset & !(LINE_BYTES - 1));
    SlotLocation { line, index: ((offset & (LINE_BYTES - 1)) / 8) as usize - 1 }
}

/// Adds an occupied slot to its line's check, or removes the slot from the check. Not flushed.
#[inline]
fn toggle_slot(pool: &Pool, salt: u64, slot_at: NvPtr, slot: Slot) {
    let SlotLocation { line, index } = locate_slot(slot_at);
    let item = LineHash::of(line, salt).of_slot(index, slot);
    let mut word = pool.load_u64(line);
    while let Err(found) = pool.cas_u64(line, word, word ^ item) {
        word = found;
    }
}

/// Counts a slot that was just stored.
#[inline]
pub(crate) fn count_slot(pool: &Pool, salt: u64, slot_at: NvPtr, slot: Slot) {
    toggle_slot(pool, salt, slot_at, slot);
}

/// Frees a slot that the caller owns: removes the slot from the check, then stores the free word.
/// Not flushed.
#[inline]
pub(crate) fn free_slot(pool: &Pool, salt: u64, slot_at: NvPtr, slot: Slot) {
    toggle_slot(pool, salt, slot_at, slot);
    pool.publish_u64(slot_at, Slot::FREE.0);
}

/// Changes the low bits of a line's first word and the check with them. Not flushed.
fn change_low_bits(pool: &Pool, salt: u64, line: NvPtr, change: impl Fn(u64) -> u64) {
    let hash = LineHash::of(line, salt);
    let mut word = pool.load_u64(line);
    loop {
        let (old, new) = (word & HEAD_MASK, change(word & HEAD_MASK));
        if old == new {
            return;
        }
        match pool.cas_u64(line, word, word ^ hash.head(old) ^ hash.head(new)) {
            Ok(()) => return,
            Err(found) => word = found,
        }
    }
}

/// Raises the reach of a line to `distance`, if the reach is shorter. Not flushed.
pub(crate) fn raise_reach(pool: &Pool, salt: u64, line: NvPtr, distance: u32) {
    let distance = u64::from(distance);
    change_low_bits(
        pool,
        salt,
        line,
        |low| if low & REACH_MASK >= distance { low } else { low & DAMAGED_FLAG | distance },
    );
}

/// Marks a whole line as damaged: keys may be missing from it. Not flushed.
pub(crate) fn mark_damaged(pool: &Pool, salt: u64, line: NvPtr) {
    change_low_bits(pool, salt, line, |low| low | DAMAGED_FLAG);
}

/// Reads a line that writers may change concurrently, all words at one moment. Returns the words
/// and the verdict.
pub(crate) fn read_line(pool: &Pool, salt: u64, line: NvPtr) -> (Words, Verdict) {
    let hash = LineHash::of(line, salt);
    let mut damaged_reads = 0;
    let mut words: Words = pool.load_words(line);
    loop {
        let reread = pool.load_words(line);
        if reread == words {
            let verdict = hash.judge(&words);
            damaged_reads += 1;
            if pool.has_fault(planted::ENTRY_CHECK_IGNORED) {
                return (words, Verdict::Whole);
            }
            if !verdict.is_damaged() || damaged_reads == DAMAGED_READS_MIN {
                return (words, verdict);
            }
        }
        words = reread;
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: NvPtr = NvPtr::new(1, 0x4_0040);
    const SALT: u64 = 0x1234_5678_9abc_def0;

    /// Returns a line with slots of these tags; 0 is free.
    fn line(tags: [u64; LINE_SLOTS]) -> Words {
        let mut words = [0; 8];
        tags.iter().zip(&mut words[1..]).for_each(|(tag, word)| *word = (tag << 53) | (tag * 0x10_0001));
        words[0] = LineHash::of(AT, SALT).head(3);
        words[0] = LineHash::of(AT, SALT).counting_all(&words);
        words
    }

    #[test]
    fn a_line_that_was_zeroed_or_moved_or_lost_a_slot_is_damaged() {
        let hash = LineHash::of(AT, SALT);
        let words = line([5, 0, 7, 7, 0x7ff, 0, 1]);
        assert_eq!(hash.judge(&words), Verdict::Whole);
        assert_eq!(hash.judge(&[0; 8]), Verdict::Damaged);
        for (at, salt) in [(AT.add(64), SALT), (AT, SALT ^ 1), (NvPtr::new(2, AT.offset()), SALT)] {
            assert_eq!(LineHash::of(at, salt).judge(&words), Verdict::Foreign);
            // Writers that change the line keep the difference.
            let mut written = words;
            (written[2], written[3]) = (6 << 53 | 1, 0);
            written[0] ^= LineHash::of(at, salt).of_tag(1, 6) ^ LineHash::of(at, salt).of_tag(2, 7);
            assert_eq!(LineHash::of(at, salt).judge(&written), Verdict::Foreign);
        }
        for slot in [1, 3, 4, 5, 7] {
            let mut lost = words;
            lost[slot] = 0;
            assert_eq!(hash.judge(&lost), Verdict::Damaged, "slot {slot}");
        }
    }

    #[test]
    fn a_flipped_bit_of_the_check_or_the_reach_or_a_tag_is_damage() {
        let hash = LineHash::of(AT, SALT);
        let words = line([5, 0, 7, 7, 0x7ff, 0, 1]);
        for bit in 0..64 {
            let mut flipped = words;
            flipped[0] ^= 1 << bit;
            assert_eq!(hash.judge(&flipped), Verdict::Damaged, "bit {bit} of the first word");
        }
        for (slot, bit) in [1, 3, 4, 5, 7].into_iter().flat_map(|slot| (53..64).map(move |bit| (slot, bit))) {
            let mut flipped = words;
            flipped[slot] ^= 1 << bit;
            assert_eq!(hash.judge(&flipped), Verdict::Damaged, "bit {bit} of slot {slot}");
        }
    }

    #[test]
    fn a_changed_tag_next_to_a_changed_reach_keeps_the_other_slots() {
        let hash = LineHash::of(AT, SALT);
        let words = line([5, 0, 7, 7, 0x7ff, 0, 1]);
        for (slot, flip, low) in [(1, 3, 0), (3, 0x7ff, 6), (5, 1, 3), (2, 0x155, 5)] {
            let mut changed = words;
            changed[slot] ^= flip << 53;
            changed[0] ^= 1 << low;
            assert_eq!(hash.judge(&changed), Verdict::Damaged, "slot {slot}");
            changed[7] ^= 1 << 60;
            assert_eq!(hash.judge(&changed), Verdict::Foreign, "slot {slot} and another one");
        }
    }

    #[test]
    fn uncounted_slots_of_a_crash_are_identified() {
        let hash = LineHash::of(AT, SALT);
        for set in 1..1u8 << LINE_SLOTS {
            let mut words = line([5, 6, 7, 7, 0x7ff, 2, 1]);
            for index in (0..LINE_SLOTS).filter(|index| set >> index & 1 == 1) {
                words[0] ^= hash.of_slot(index, Slot(words[1 + index]));
            }
            assert_eq!(hash.judge(&words), Verdict::Uncounted(set));
            words[0] = hash.counting_all(&words);
            assert_eq!(hash.judge(&words), Verdict::Whole);
        }
    }

    #[test]
    fn a_mark_keeps_the_slots_counted_and_differs_from_other_damage() {
        let hash = LineHash::of(AT, SALT);
        let mut words = line([5, 0, 7, 7, 0x7ff, 0, 1]);
        words[0] = hash.marking(&words, 15);
        assert_eq!((hash.judge(&words), hash.is_marked(&words)), (Verdict::Damaged, true));
        assert_eq!(reach_of(words[0], 63), 15);
        words[3] = 0;
        assert!(!hash.is_marked(&words));
    }
}
