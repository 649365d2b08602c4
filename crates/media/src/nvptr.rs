//! Pointers that are valid at any mapping address (NVHT, JPDC 2018, section 3: region and offset,
//! never an address).

use std::fmt;

/// A position on a medium in 8 bytes: region (16 bits, top) and byte offset in it (48 bits). 0 is
/// null.
///
/// The allocator returns 16-byte aligned positions, so the low 4 bits are free for an engine's tag
/// ([`NvPtr::with_tag`]). Verbs accept untagged pointers only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct NvPtr(u64);

impl NvPtr {
    /// The null pointer. (Region 0, offset 0 is the pool's header, which no pointer names.)
    pub const NULL: Self = Self(0);
    const OFFSET_BITS: u32 = 48;
    const TAG_MASK: u64 = 15;

    /// Returns the pointer to the byte at `offset` of `region`.
    ///
    /// # Panics
    /// If the offset has more than 48 bits.
    #[inline]
    pub const fn new(region: u16, offset: u64) -> Self {
        assert!(offset < 1 << Self::OFFSET_BITS);
        Self((region as u64) << Self::OFFSET_BITS | offset)
    }

    /// Creates a pointer from the 8 bytes on the medium; accepts any value, which is checked at
    /// use.
    #[inline]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the 8 bytes for the medium.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the region.
    #[inline]
    pub const fn region(self) -> u16 {
        (self.0 >> Self::OFFSET_BITS) as u16
    }

    /// Returns the byte offset in the region, tag included.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.0 & ((1 << Self::OFFSET_BITS) - 1)
    }

    /// Returns whether the pointer is null.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns the pointer `bytes` further in the same region. An offset past 48 bits gives a
    /// position that no verb accepts.
    #[inline]
    pub const fn add(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Returns the same position with these low 4 bits.
    #[inline]
    pub const fn with_tag(self, tag: u8) -> Self {
        Self(self.0 & !Self::TAG_MASK | (tag as u64 & Self::TAG_MASK))
    }

    /// Returns the low 4 bits.
    #[inline]
    pub const fn tag(self) -> u8 {
        (self.0 & Self::TAG_MASK) as u8
    }

    /// Returns the same position without a tag.
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
    fn region_and_offset_round_trip() {
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
