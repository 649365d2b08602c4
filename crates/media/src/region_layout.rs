//! The offsets of the parts of a region. They follow from the region's length and the chunk size
//! alone, so no offset needs to be stored or trusted.
//!
//! ```text
//! region 0
//! 0          4096       8192   12288                                                     end
//! | header A | header B | root | extent table A | wear table | chunks ... | extent table B |
//! other regions
//! 0          4096                                                           end - 64
//! | header A | extent table A | wear table | chunks ... | extent table B | header B |
//! ```
//! * extent table: 8 bytes a chunk in each copy; each copy is rounded up to a line (64 bytes)
//! * wear table: 8 bytes a segment; rounded up to a line
//! * chunks: aligned to the chunk size, at most to a page; a whole number of them
//! * header: 4096 bytes; copy B of the other regions is the region's last line
//!
//! The chunks are longer than a page, so no page holds bytes of both copies of a structure.

use crate::nvptr::NvPtr;

/// Maximum regions of a pool.
pub const MAX_REGIONS: usize = 4096;
/// A page of the medium, and the unit of region lengths, in bytes.
pub const PAGE_BYTES: u64 = 4096;
/// A cache line, in bytes: the unit of flushing.
pub const LINE_BYTES: u64 = 64;
/// Bytes of one header copy.
pub const HEADER_BYTES: u64 = PAGE_BYTES;
/// Bytes of a region header copy that have a meaning.
pub const REGION_HEADER_BYTES: u64 = LINE_BYTES;
/// Offset of the engine's root area in region 0.
pub const ROOT_OFFSET: u64 = 2 * HEADER_BYTES;
/// Bytes of the engine's root area.
pub const ROOT_BYTES: u64 = 4096;
/// Minimum and maximum unit of extents, in bytes; a power of two.
pub const CHUNK_BYTES_MIN: u32 = 64;
/// See [`CHUNK_BYTES_MIN`].
pub const CHUNK_BYTES_MAX: u32 = 1 << 20;
/// Minimum region, in bytes.
pub const REGION_BYTES_MIN: u64 = 32 << 10;
/// Maximum region, in bytes: a chunk's index must fit 32 bits, and a value of 1 GiB must fit a
/// region.
pub const REGION_BYTES_MAX: u64 = 1 << 40;
/// Bytes of a wear segment (one write count each) in a region of at least 16 MiB; shorter regions
/// have eight segments.
pub const WEAR_SEGMENT_BYTES: u64 = 2 << 20;

/// The offsets of the parts of one region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionLayout {
    /// The region's index.
    pub index: u16,
    /// The region's length, in bytes.
    pub region_bytes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Offset of copy A of the extent table: 8 bytes for each chunk.
    pub extent_table: u64,
    /// Offset of copy B of the extent table, of the same length.
    pub extent_table_copy: u64,
    /// Offset of the wear table: 8 bytes for each segment.
    pub wear_table: u64,
    /// Number of wear segments.
    pub wear_segments: u32,
    /// Bytes that one wear segment covers; segment of a region offset = offset / this.
    pub wear_segment_bytes: u64,
    /// Offset of chunk 0; aligned to `min(chunk_bytes, 4096)`.
    pub chunks_offset: u64,
    /// Number of chunks.
    pub chunks: u32,
}

impl RegionLayout {
    /// Returns the layout of region `index` of `region_bytes` bytes, or `None` if these numbers are
    /// impossible. Impossible are:
    /// * a length that is no multiple of 4096 or outside its limits;
    /// * a chunk that is no power of two or outside its limits;
    /// * a region that does not fit a page of chunks.
    pub fn new(index: u16, region_bytes: u64, chunk_bytes: u32) -> Option<Self> {
        if usize::from(index) >= MAX_REGIONS
            || !region_bytes.is_multiple_of(PAGE_BYTES)
            || !(REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(&region_bytes)
            || !chunk_bytes.is_power_of_two()
            || !(CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes)
        {
            return None;
        }
        let chunk = u64::from(chunk_bytes);
        let extent_table = if index == 0 { ROOT_OFFSET + ROOT_BYTES } else { HEADER_BYTES };
        let wear_segment_bytes = WEAR_SEGMENT_BYTES.min(region_bytes / 8);
        let wear_segments = region_bytes.div_ceil(wear_segment_bytes);
        let wear_bytes = (wear_segments * 8).next_multiple_of(LINE_BYTES);
        let tail_bytes = if index == 0 { 0 } else { REGION_HEADER_BYTES };
        // As many chunks as fit: the first guess ignores rounding, then it shrinks to a fit.
        let mut chunks = region_bytes.checked_sub(extent_table + wear_bytes + tail_bytes)? / (chunk + 16);
        loop {
            if chunks * chunk < PAGE_BYTES {
                return None;
            }
            let table_bytes = (chunks * 8).next_multiple_of(LINE_BYTES);
            let wear_table = extent_table + table_bytes;
            let chunks_offset = (wear_table + wear_bytes).next_multiple_of(chunk.min(PAGE_BYTES));
            if chunks_offset + chunks * chunk + table_bytes + tail_bytes <= region_bytes {
                return Some(Self {
                    index,
                    region_bytes,
                    chunk_bytes,
                    extent_table,
                    extent_table_copy: region_bytes - tail_bytes - table_bytes,
                    wear_table,
                    wear_segments: u32::try_from(wear_segments).ok()?,
                    wear_segment_bytes,
                    chunks_offset,
                    chunks: u32::try_from(chunks).ok()?,
                });
            }
            chunks -= 1;
        }
    }

    /// Returns the minimum length of region `index` whose chunks hold an extent of `bytes` bytes.
    /// The length is a multiple of 4096, and of 2 MiB above 2 MiB. `None` beyond the limits.
    pub fn length_for(index: u16, bytes: u64, chunk_bytes: u32) -> Option<u64> {
        let unit = if bytes >= 2 << 20 { 2 << 20 } else { PAGE_BYTES };
        let mut length = bytes.checked_add(REGION_BYTES_MIN)?.checked_next_multiple_of(unit)?;
        loop {
            let layout = Self::new(index, length, chunk_bytes);
            if layout.is_some_and(|found| found.usable_bytes() >= bytes) {
                return Some(length);
            }
            if length > REGION_BYTES_MAX {
                return None;
            }
            let missing = bytes - layout.map_or(0, |found| found.usable_bytes().min(bytes));
            length = (length + missing.max(1)).next_multiple_of(unit);
        }
    }

    /// Returns the bytes of all chunks together.
    pub const fn usable_bytes(&self) -> u64 {
        self.chunks as u64 * self.chunk_bytes as u64
    }

    /// Returns the word of chunk `chunk` in copies A and B of the extent table.
    pub const fn extent_words(&self, chunk: u32) -> [NvPtr; 2] {
        assert!(chunk < self.chunks);
        let offset = chunk as u64 * 8;
        [NvPtr::new(self.index, self.extent_table + offset), NvPtr::new(self.index, self.extent_table_copy + offset)]
    }

    /// Returns copies A and B of the region header; of the pool header in region 0.
    pub const fn header_copies(&self) -> [NvPtr; 2] {
        let second = if self.index == 0 { HEADER_BYTES } else { self.region_bytes - REGION_HEADER_BYTES };
        [NvPtr::new(self.index, 0), NvPtr::new(self.index, second)]
    }

    /// Returns the write count of wear segment `segment`.
    pub const fn wear_word(&self, segment: u32) -> NvPtr {
        assert!(segment < self.wear_segments);
        NvPtr::new(self.index, self.wear_table + segment as u64 * 8)
    }

    /// Returns the first byte of chunk `chunk`; `chunks` gives the end.
    pub const fn chunk(&self, chunk: u32) -> NvPtr {
        assert!(chunk <= self.chunks);
        NvPtr::new(self.index, self.chunks_offset + chunk as u64 * self.chunk_bytes as u64)
    }

    /// Returns the chunk that holds the byte at this region offset, if any.
    pub const fn chunk_of(&self, offset: u64) -> Option<u32> {
        if offset < self.chunks_offset {
            return None;
        }
        let chunk = (offset - self.chunks_offset) / self.chunk_bytes as u64;
        if chunk < self.chunks as u64 { Some(chunk as u32) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_and_stay_inside() {
        for index in [0, 1, 7] {
            for length in [32 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 16 << 20, 256 << 20, (1 << 30) + 4096] {
                for chunk in [64, 512, 4096, 65536] {
                    let Some(layout) = RegionLayout::new(index, length, chunk) else {
                        assert!(length < 4 * u64::from(chunk), "{length} {chunk}");
                        continue;
                    };
                    let tables = if index == 0 { 12288 } else { 4096 };
                    assert_eq!(layout.extent_table, tables);
                    assert!(layout.extent_table + u64::from(layout.chunks) * 8 <= layout.wear_table);
                    assert!(layout.wear_table + u64::from(layout.wear_segments) * 8 <= layout.chunks_offset);
                    let (end, tail) = (layout.chunks_offset + layout.usable_bytes(), if index == 0 { 0 } else { 64 });
                    assert!(end <= layout.extent_table_copy && layout.extent_table_copy % 64 == 0);
                    let table_bytes = (u64::from(layout.chunks) * 8).next_multiple_of(64);
                    assert_eq!(layout.extent_table_copy + table_bytes + tail, length);
                    let [a, b] = layout.extent_words(layout.chunks - 1);
                    assert!(a.offset() / 4096 < layout.extent_table_copy / 4096 && b.offset() < length - tail);
                    assert_eq!(layout.header_copies()[1].offset(), if index == 0 { 4096 } else { length - 64 });
                    assert_eq!(layout.chunks_offset % u64::from(chunk).min(4096), 0);
                    assert!(length - end < 4096 + u64::from(chunk) + 2 * 64 + table_bytes);
                    assert!(u64::from(layout.wear_segments) * layout.wear_segment_bytes >= length);
                    assert_eq!(layout.chunk_of(layout.chunk(0).offset()), Some(0));
                    assert_eq!(layout.chunk_of(layout.chunks_offset - 1), None);
                    assert_eq!(layout.chunk_of(layout.chunk(layout.chunks).offset()), None);
                }
            }
        }
    }

    #[test]
    fn wrong_numbers_have_no_layout() {
        for (length, chunk) in [(0, 4096), (4096, 4096), (65536 + 1, 512), (65536, 0), (65536, 513), (65536, 32)] {
            assert_eq!(RegionLayout::new(0, length, chunk), None, "{length} {chunk}");
        }
        assert_eq!(RegionLayout::new(0, 2 << 40, 4096), None);
        assert_eq!(RegionLayout::new(4096, 65536, 512), None);
    }

    #[test]
    fn length_for_fits_the_requested_bytes() {
        for bytes in [1, 4096, 100_000, 2 << 20, (1 << 30) + 200_000] {
            for chunk in [512, 4096] {
                let length = RegionLayout::length_for(3, bytes, chunk).expect("within limits");
                let layout = RegionLayout::new(3, length, chunk).expect("a layout");
                assert!(layout.usable_bytes() >= bytes);
                assert!(length < bytes + bytes / 32 + (5 << 20));
            }
        }
        assert_eq!(RegionLayout::length_for(3, 2 << 40, 4096), None);
    }
}
