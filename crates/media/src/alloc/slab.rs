//! Slabs: extents of a fixed number of chunks, divided into slots of one size class. Each slab has
//! one DRAM line, occupancy included.
//!
//! The states of a slab and their locks:
//! 1. `class` is `NO_CLASS_ID` while the group of chunks is not a slab. The group becomes a slab
//!    under the space lock ([`Slab::format`]). The slab ends under its owner's shard lock and the
//!    space lock ([`Slab::retire`]).
//! 2. All other fields are read and written under the lock of the shard that `owner` names. A slab
//!    changes owner under the old owner's lock. A thread that holds the lock of shard `s` and then
//!    reads `owner == s` therefore holds the slab.
//! 3. Exception: while `OLD_FLAG` is set (named by the table at open, recovery not finished), no
//!    shard allocates from the slab. Only its bitmap changes, by atomic marks from any thread. The
//!    first mark creates the bitmap if it does not fit the slab's own line. The sweep then takes
//!    over, with the orphan shard's lock held.
//! 4. `free` is the number of zero bits of the bitmap. Bits after the last slot are always set. No
//!    zero bit is in a word before `hint`. (Not while `OLD_FLAG` is set: the sweep counts.)
//!
//! All fields are atomics used with plain loads and stores (relaxed): the locks order them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::classes::{Class, SLOT_BYTES_MIN};
use crate::x86;

/// The class of a group that is not a slab.
pub(super) const NO_CLASS_ID: u16 = u16::MAX;

/// The slab is in its class's list of slabs with free slots.
pub(super) const LISTED_FLAG: u8 = 1;
/// Kept though empty, so that a class that varies around empty does not allocate and release slabs
/// repeatedly.
pub(super) const KEPT_FLAG: u8 = 2;
/// The current slab of a shard, or in transfer between two shards: must not be listed or released.
pub(super) const HELD_FLAG: u8 = 4;
/// Named by the table at open; its content is still being marked.
pub(super) const OLD_FLAG: u8 = 8;

/// Bitmap words in the slab's own line: 256 slots, enough for classes of at least 256 bytes in a
/// slab of 64 KiB.
const INLINE_WORDS: usize = 4;

#[repr(C, align(64))]
pub(super) struct Slab {
    class: AtomicU16,
    owner: AtomicU16,
    free: AtomicU16,
    hint: AtomicU16,
    written: AtomicU32,
    flags: AtomicU8,
    inline_words: [AtomicU64; INLINE_WORDS],
    /// The bitmap of small classes. Created once, as large as any class needs, and kept.
    long_bitmap: OnceLock<Box<LongBitmap>>,
}

struct LongBitmap(Box<[AtomicU64]>);

const _: () = assert!(size_of::<Slab>() == 64, "one line a slab: DRAM per record depends on it");

impl Slab {
    pub(super) const fn new() -> Self {
        Self {
            class: AtomicU16::new(NO_CLASS_ID),
            owner: AtomicU16::new(0),
            free: AtomicU16::new(0),
            hint: AtomicU16::new(0),
            written: AtomicU32::new(0),
            flags: AtomicU8::new(0),
            inline_words: [const { AtomicU64::new(0) }; INLINE_WORDS],
            long_bitmap: OnceLock::new(),
        }
    }

    #[inline]
    pub(super) fn class(&self) -> u16 {
        self.class.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn owner(&self) -> u16 {
        self.owner.load(Ordering::Acquire)
    }

    pub(super) fn set_owner(&self, owner: u16) {
        self.owner.store(owner, Ordering::Release);
    }

    #[inline]
    pub(super) fn free_slots(&self) -> u32 {
        u32::from(self.free.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn has_flag(&self, flag: u8) -> bool {
        self.flags.load(Ordering::Acquire) & flag != 0
    }

    pub(super) fn set_flag(&self, flag: u8) {
        self.flags.store(self.flags.load(Ordering::Relaxed) | flag, Ordering::Release);
    }

    pub(super) fn clear_flag(&self, flag: u8) {
        self.flags.store(self.flags.load(Ordering::Relaxed) & !flag, Ordering::Release);
    }

    /// Makes this group an empty slab of `class`.
    pub(super) fn format(&self, number: u16, class: Class, slab_bytes: u32, owner: u16, flags: u8) {
        debug_assert_eq!(self.class(), NO_CLASS_ID);
        // The first mark creates the bitmap of a slab found at open: the open must not touch that
        // much memory.
        let words = if flags & OLD_FLAG == 0 { self.make_words(class, slab_bytes) } else { self.words(class) };
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        if let Some(last) = words.last() {
            last.store(class.unused_bits(), Ordering::Relaxed);
        }
        self.free.store(u16::try_from(class.slots).expect("SLAB_BYTES_MAX bounds it"), Ordering::Relaxed);
        self.hint.store(0, Ordering::Relaxed);
        self.written.store(0, Ordering::Relaxed);
        self.owner.store(owner, Ordering::Relaxed);
        self.flags.store(flags, Ordering::Relaxed);
        self.class.store(number, Ordering::Release);
    }

    /// Marks this group as no longer a slab.
    pub(super) fn retire(&self) {
        self.class.store(NO_CLASS_ID, Ordering::Release);
        self.flags.store(0, Ordering::Relaxed);
    }

    /// Returns the words of the bitmap; creates an empty bitmap if there is none.
    #[inline]
    fn make_words(&self, class: Class, slab_bytes: u32) -> &[AtomicU64] {
        let words = class.words();
        if words <= INLINE_WORDS {
            return &self.inline_words[..words];
        }
        let long_bitmap = self.long_bitmap.get_or_init(|| {
            let words_max = (slab_bytes / SLOT_BYTES_MIN).div_ceil(64) as usize;
            let word = |at: usize| AtomicU64::new(if at + 1 == words { class.unused_bits() } else { 0 });
            Box::new(LongBitmap((0..words_max.max(words)).map(word).collect()))
        });
        &long_bitmap.0[..words]
    }

    /// Returns the words of the bitmap; empty if it was not created.
    #[inline]
    pub(super) fn words(&self, class: Class) -> &[AtomicU64] {
        let words = class.words();
        if words <= INLINE_WORDS {
            &self.inline_words[..words]
        } else {
            // Empty only while nothing of a slab with `OLD_FLAG` was marked.
            self.long_bitmap.get().map_or(&[], |long_bitmap| &long_bitmap.0[..words])
        }
    }

    /// Allocates a free slot and returns its number.
    #[inline]
    pub(super) fn alloc_slot(&self, class: Class) -> Option<u32> {
        let free = self.free.load(Ordering::Relaxed);
        if free == 0 {
            return None;
        }
        let words = self.words(class);
        let mut at = usize::from(self.hint.load(Ordering::Relaxed));
        while let Some(word) = words.get(at) {
            let bits = word.load(Ordering::Relaxed);
            if bits != u64::MAX {
                let bit = bits.trailing_ones();
                word.store(bits | 1 << bit, Ordering::Relaxed);
                #[expect(clippy::cast_possible_truncation, reason = "below the number of words, which fits 16 bits")]
                self.hint.store(at as u16, Ordering::Relaxed);
                self.free.store(free - 1, Ordering::Relaxed);
                self.written.store(self.written.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                #[expect(clippy::cast_possible_truncation, reason = "below the number of slots")]
                return Some(at as u32 * 64 + bit);
            }
            at += 1;
        }
        debug_assert!(false, "free slots counted, none found");
        None
    }

    /// Returns the slot that is allocated next.
    #[inline]
    pub(super) fn next_slot(&self, class: Class) -> Option<u32> {
        let hint = self.hint.load(Ordering::Relaxed);
        let words = self.words(class).get(usize::from(hint)..)?;
        let (word, at) = words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .zip(u32::from(hint)..)
            .find(|(word, _)| *word != u64::MAX)?;
        Some(at * 64 + word.trailing_ones())
    }

    /// Prefetches the slab's line for writing.
    #[inline]
    pub(super) fn prefetch(&self) {
        x86::prefetch_line_to_write(std::ptr::from_ref(self).cast());
    }

    /// Frees a slot and returns the number of free slots before. Returns `None`, and changes
    /// nothing, if the slot was free already.
    #[inline]
    pub(super) fn free_slot(&self, class: Class, slot: u32) -> Option<u32> {
        let at = slot as usize / 64;
        let word = self.words(class).get(at)?;
        let bits = word.load(Ordering::Relaxed);
        let bit = 1u64 << (slot % 64);
        if slot >= class.slots || bits & bit == 0 {
            return None;
        }
        word.store(bits & !bit, Ordering::Relaxed);
        #[expect(clippy::cast_possible_truncation, reason = "below the number of words, which fits 16 bits")]
        let at = at as u16;
        if at < self.hint.load(Ordering::Relaxed) {
            self.hint.store(at, Ordering::Relaxed);
        }
        let free = self.free.load(Ordering::Relaxed);
        self.free.store(free + 1, Ordering::Relaxed);
        Some(u32::from(free))
    }

    pub(super) fn is_used(&self, class: Class, slot: u32) -> bool {
        slot < class.slots
            && self
                .words(class)
                .get(slot as usize / 64)
                .is_some_and(|word| word.load(Ordering::Relaxed) >> (slot % 64) & 1 == 1)
    }

    /// Sets a slot's bit, from any thread, while the slab has `OLD_FLAG`; returns false if it was
    /// set already.
    #[inline]
    pub(super) fn mark(&self, class: Class, slot: u32, slab_bytes: u32) -> bool {
        let bit = 1u64 << (slot % 64);
        match self.make_words(class, slab_bytes).get(slot as usize / 64).filter(|_| slot < class.slots) {
            Some(word) => word.fetch_or(bit, Ordering::Relaxed) & bit == 0,
            None => false,
        }
    }

    /// Clears a slot's bit while the slab has `OLD_FLAG`.
    pub(super) fn unmark(&self, class: Class, slot: u32) {
        if let Some(word) = self.words(class).get(slot as usize / 64).filter(|_| slot < class.slots) {
            word.fetch_and(!(1 << (slot % 64)), Ordering::Relaxed);
        }
    }

    /// Returns whether these words can be a bitmap of this class.
    pub(super) fn fits(&self, class: Class, saved: &[u64]) -> bool {
        let unused_bits = class.unused_bits();
        saved.len() == class.words() && saved.last().is_some_and(|last| last & unused_bits == unused_bits)
    }

    /// Loads the saved bitmap. Returns false, and changes nothing, if the words cannot belong to
    /// this class.
    pub(super) fn load(&self, class: Class, saved: &[u64], slab_bytes: u32) -> bool {
        if !self.fits(class, saved) {
            return false;
        }
        for (word, saved) in self.make_words(class, slab_bytes).iter().zip(saved) {
            word.store(*saved, Ordering::Relaxed);
        }
        true
    }

    /// Recounts the bitmap after marks or a load; returns the number of slots in use.
    pub(super) fn recount(&self, class: Class) -> u32 {
        let taken = self.used_slots(class);
        self.free.store(u16::try_from(class.slots - taken).expect("SLAB_BYTES_MAX bounds it"), Ordering::Relaxed);
        self.hint.store(0, Ordering::Relaxed);
        taken
    }

    /// Returns the slots in use, by the bitmap.
    pub(super) fn used_slots(&self, class: Class) -> u32 {
        let words = self.words(class);
        if words.is_empty() {
            return 0;
        }
        let ones: u32 = words.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum();
        let unused_bits = u32::try_from(words.len()).expect("few") * 64 - class.slots;
        ones.saturating_sub(unused_bits)
    }

    /// Returns the slots allocated since the last wear accounting.
    pub(super) fn written(&self) -> u32 {
        self.written.load(Ordering::Relaxed)
    }

    /// Returns the same count and resets it.
    pub(super) fn take_written(&self) -> u32 {
        let written = self.written.load(Ordering::Relaxed);
        self.written.store(0, Ordering::Relaxed);
        written
    }

    /// Returns the DRAM in addition to the line itself, in bytes.
    pub(super) fn long_bitmap_bytes(&self) -> usize {
        self.long_bitmap.get().map_or(0, |long_bitmap| size_of::<LongBitmap>() + size_of_val(&*long_bitmap.0) + 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_is_allocated_once_and_can_be_freed() {
        for (size, slots) in [(304, 215), (32, 2048), (8192, 8), (1024, 64)] {
            let class = Class { size, slots };
            let slab = Slab::new();
            slab.format(5, class, 65536, 0, HELD_FLAG);
            for expected in 0..slots {
                assert_eq!(slab.alloc_slot(class), Some(expected));
            }
            assert_eq!((slab.alloc_slot(class), slab.free_slots(), slab.used_slots(class)), (None, 0, slots));
            assert_eq!(slab.free_slot(class, 3), Some(0));
            assert_eq!(slab.free_slot(class, 3), None, "twice");
            assert_eq!(slab.free_slot(class, slots), None, "beyond the end");
            assert_eq!(slab.alloc_slot(class), Some(3));
            for slot in 0..slots {
                assert_eq!(slab.free_slot(class, slot), Some(slot));
            }
            assert_eq!((slab.free_slots(), slab.used_slots(class), slab.take_written()), (slots, 0, slots + 1));
        }
    }

    #[test]
    fn marks_are_counted_once() {
        let class = Class { size: 304, slots: 215 };
        let slab = Slab::new();
        slab.format(5, class, 65536, 0, OLD_FLAG);
        let mark = |slot| slab.mark(class, slot, 65536);
        assert!(mark(7) && mark(214) && !mark(7));
        assert_eq!(slab.recount(class), 2);
        assert_eq!((slab.free_slots(), slab.is_used(class, 7), slab.is_used(class, 8)), (213, true, false));
        let class = Class { size: 96, slots: 682 };
        let slab = Slab::new();
        slab.format(3, class, 65536, 0, OLD_FLAG);
        assert_eq!(
            (slab.used_slots(class), slab.is_used(class, 5), slab.long_bitmap_bytes()),
            (0, false, 0),
            "no bitmap before a mark"
        );
        assert!(slab.mark(class, 681, 65536) && !slab.mark(class, 681, 65536) && !slab.mark(class, 682, 65536));
        assert_eq!((slab.recount(class), slab.free_slots()), (1, 681));
    }
}
