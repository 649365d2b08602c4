//! Size classes: the slot size for each record length.
//!
//! Sizes increase in 16-byte steps from [`SLOT_BYTES_MIN`] to 1024 bytes. Above, each size is an
//! equal share of a slab (rounded down to 16 bytes), and the next one is at least a twelfth larger.
//! This gives about eight classes per doubling, with almost no waste at a slab's end. The largest
//! class is an eighth of a slab; a longer record has an extent of its own.

/// Minimum slot, in bytes. A record header and one byte of key need more than 16.
pub(super) const SLOT_BYTES_MIN: u32 = 32;
/// Slot sizes and record offsets are multiples of this.
pub(super) const SLOT_STEP_BYTES: u32 = 16;
/// Maximum slab, in bytes: a slot's number must fit 16 bits.
pub(super) const SLAB_BYTES_MAX: u32 = 1 << 20;
/// Up to this size, sizes increase in steps of 16.
const FINE_SLOT_BYTES_MAX: u32 = 1024;

const _: () = assert!(SLAB_BYTES_MAX / SLOT_BYTES_MIN < u16::MAX as u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Class {
    /// Bytes of a slot.
    pub(super) size: u32,
    /// Slots in a slab.
    pub(super) slots: u32,
}

impl Class {
    /// Returns the bits of a bitmap's last word that belong to no slot.
    #[inline]
    pub(super) const fn unused_bits(self) -> u64 {
        if self.slots.is_multiple_of(64) { 0 } else { u64::MAX << (self.slots % 64) }
    }

    /// Returns the words of a slab's bitmap.
    #[inline]
    pub(super) const fn words(self) -> usize {
        self.slots.div_ceil(64) as usize
    }
}

/// The classes of one pool; they depend on its slab length only.
#[derive(Debug)]
pub(super) struct Classes {
    list: Box<[Class]>,
    /// Class by length in steps, rounded up.
    by_step: Box<[u8]>,
}

impl Classes {
    /// Computes the classes of slabs of `slab_bytes` bytes. There are none if a slab is too short
    /// for eight of the smallest slots.
    pub(super) fn new(slab_bytes: u32) -> Self {
        assert!(slab_bytes <= SLAB_BYTES_MAX);
        let largest = slab_bytes / 8 / SLOT_STEP_BYTES * SLOT_STEP_BYTES;
        let mut list = Vec::new();
        let mut size = SLOT_BYTES_MIN;
        while size <= largest.min(FINE_SLOT_BYTES_MAX) {
            list.push(Class { size, slots: slab_bytes / size });
            size += SLOT_STEP_BYTES;
        }
        let mut last = list.last().map_or(largest, |class| class.size);
        while last < largest {
            let share = (slab_bytes / (last + last / 12)).max(8);
            // At some sizes rounding down would not grow: use one slot fewer.
            let slots =
                if slab_bytes / share / SLOT_STEP_BYTES * SLOT_STEP_BYTES > last { share } else { (share - 1).max(8) };
            last = slab_bytes / slots / SLOT_STEP_BYTES * SLOT_STEP_BYTES;
            list.push(Class { size: last, slots });
        }
        let steps = list.last().map_or(0, |class| class.size / SLOT_STEP_BYTES + 1);
        let by_step = (0..steps)
            .map(|step| list.partition_point(|class| class.size < step * SLOT_STEP_BYTES))
            .map(|class| u8::try_from(class).expect("at most 255 classes"))
            .collect();
        Self { list: list.into(), by_step }
    }

    /// Returns the class of a record of `len` bytes; `None` if it needs an extent of its own.
    #[inline]
    pub(super) fn of(&self, len: usize) -> Option<u16> {
        self.by_step.get(len.div_ceil(SLOT_STEP_BYTES as usize)).map(|class| u16::from(*class))
    }

    #[inline]
    pub(super) fn get(&self, class: u16) -> Option<Class> {
        self.list.get(usize::from(class)).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn dram_bytes(&self) -> usize {
        size_of_val(&*self.list) + self.by_step.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_the_smallest_class_that_holds_it() {
        for slab_bytes in [256, 512, 1024, 2048, 4096, 8192, 65536, 1 << 20] {
            let classes = Classes::new(slab_bytes);
            let largest = classes.list.last().expect("some class").size;
            assert_eq!(largest, (slab_bytes / 8).max(SLOT_BYTES_MIN), "{slab_bytes}");
            for len in 0..=largest as usize {
                let class = classes.of(len).expect("a class");
                let found = classes.get(class).expect("it exists");
                assert!(found.size as usize >= len);
                assert!(found.size * found.slots <= slab_bytes && found.size.is_multiple_of(SLOT_STEP_BYTES));
                assert!(class == 0 || (classes.list[usize::from(class) - 1].size as usize) < len.max(1));
            }
            assert_eq!(classes.of(largest as usize + 1), None);
        }
    }

    #[test]
    fn a_record_of_hikv_wastes_little() {
        let classes = Classes::new(65536);
        let class = classes.get(classes.of(296).expect("a class")).expect("it exists");
        assert_eq!((class.size, class.slots), (304, 215));
        assert!(classes.len() < 110, "{}", classes.len());
        for class in &classes.list {
            assert!(65536 - class.size * class.slots <= 65536 / 64, "{class:?}");
        }
    }

    #[test]
    fn slabs_too_short_have_no_classes() {
        let classes = Classes::new(128);
        assert_eq!((classes.len(), classes.of(1)), (0, None));
    }
}
