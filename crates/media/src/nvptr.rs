//! Pointers that stay right under any mapping address (NVHT, JPDC 2018, section 3: region and offset, never an address).

use std::fmt;

/// A place on a medium in 8 bytes: region (16 bits, top) and byte offset in it (48 bits). 0 is null.
///
/// Whatever the allocator hands out is 16-byte aligned, so the low 4 bits are free
/// for an engine's tag ([`NvPtr::with_tag`]). Verbs take untagged pointers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct NvPtr(u64);

impl NvPtr {
    /// No place. (Region 0, offset 0 is the pool's header, which nobody points to.)
    pub const NULL: Self = Self(0);
    const OFFSET_BITS: u32 = 48;
    const TAG_MASK: u64 = 15;

    /// The byte at `offset` of `region`.
    ///
    /// # Panics
    /// If the offset has more than 48 bits.
    #[inline]
    pub const fn new(region: u16, offset: u64) -> Self {
        assert!(offset < 1 << Self::OFFSET_BITS);
        Self((region as u64) << Self::OFFSET_BITS | offset)
    }

    /// From the 8 bytes on the medium; any value is taken, and checked when it is used.
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The 8 bytes for the medium.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Its region.
    #[inline]
    pub const fn region(self) -> u16 {
        (self.0 >> Self::OFFSET_BITS) as u16
    }

    /// Its byte offset in the region, tag included.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.0 & ((1 << Self::OFFSET_BITS) - 1)
    }

    /// Whether it points nowhere.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// `bytes` further in the same region. An offset past 48 bits leads to a place that no verb accepts.
    #[inline]
    pub const fn add(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// The same place with these low 4 bits.
    #[inline]
    pub const fn with_tag(self, tag: u8) -> Self {
        Self(self.0 & !Self::TAG_MASK | (tag as u64 & Self::TAG_MASK))
    }

    /// The low 4 bits.
    #[inline]
    pub const fn tag(self) -> u8 {
        (self.0 & Self::TAG_MASK) as u8
    }

    /// The same place with no tag.
    #[inline]
    pub const fn untagged(self) -> Self {
        Self(self.0 & !Self::TAG_MASK)
    }
}

impl fmt::Debug for NvPtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:#x}", self.region(), self.offset())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back() {
        for (region, offset) in [(0, 16), (1, 0), (u16::MAX, (1 << 48) - 16), (7, 0x1234_5670)] {
            let at = NvPtr::new(region, offset);
            assert_eq!((at.region(), at.offset(), at.tag()), (region, offset, 0));
            let tagged = at.with_tag(11);
            assert_eq!((tagged.tag(), tagged.untagged()), (11, at));
            assert_eq!(NvPtr::from_raw(at.raw()), at);
            assert!(!at.is_null());
        }
        assert_eq!(NvPtr::new(2, 64).add(32), NvPtr::new(2, 96));
        assert!(NvPtr::NULL.is_null());
    }
}
