//! The parts of a region that all threads may read without a lock: its layout and its slabs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ChunkPosition;
use super::classes::Class;
use super::slab::Slab;
use super::space::Ranges;
use crate::nvptr::NvPtr;
use crate::region_layout::RegionLayout;

/// Slabs that are created together: a page.
const ARRAY_SLAB_COUNT: u32 = 64;

/// Noted bytes of a block are stored when they reach a segment's bytes divided by this.
const NOTED_BYTES_DIVISOR: u64 = 16;

/// One region. Created once and never moved: regions are only added.
pub(super) struct Region {
    pub(super) layout: RegionLayout,
    slab_chunks: u32,
    /// log2 of a slab's bytes.
    slab_shift: u32,
    /// Groups of chunks that can be slabs.
    slab_count: u32,
    /// The slabs of the groups, in arrays of [`ARRAY_SLAB_COUNT`]. An array is created when its
    /// first slab is needed, so that an open, and a region without slabs, touch few pages.
    slabs: Box<[OnceLock<Box<[Slab]>>]>,
    /// Bytes written but not yet added to the wear of their block, by block.
    noted: Box<[AtomicU64]>,
    /// log2 of the chunks of a block.
    block_order: u32,
}

impl Region {
    pub(super) fn new(layout: RegionLayout, slab_chunks: u32) -> Self {
        // A group that the region's end cuts short can never be a slab.
        let slab_count = layout.chunks / slab_chunks;
        let slabs = (0..slab_count.div_ceil(ARRAY_SLAB_COUNT)).map(|_| OnceLock::new()).collect();
        let slab_shift = (slab_chunks * layout.chunk_bytes).ilog2();
        let block_order = Ranges::block_order(&layout);
        let noted = (0..((layout.chunks - 1) >> block_order) + 1).map(|_| AtomicU64::new(0)).collect();
        Self { layout, slab_chunks, slab_shift, slab_count, slabs, noted, block_order }
    }

    /// Notes bytes written to a slab; returns true if the wear of its block is due to be stored.
    #[inline]
    pub(super) fn note_written(&self, chunk: u32, bytes: u64) -> bool {
        let Some(noted) = self.noted.get((chunk >> self.block_order) as usize) else { return false };
        let before = noted.fetch_add(bytes, Ordering::Relaxed);
        before + bytes >= self.layout.wear_segment_bytes / NOTED_BYTES_DIVISOR
    }

    /// Returns the noted bytes of this chunk's block and resets them.
    pub(super) fn take_noted(&self, chunk: u32) -> u64 {
        self.noted.get((chunk >> self.block_order) as usize).map_or(0, |noted| noted.swap(0, Ordering::Relaxed))
    }

    /// Returns the first chunk of each block.
    pub(super) fn block_starts(&self) -> impl Iterator<Item = u32> + use<> {
        let order = self.block_order;
        (0..u32::try_from(self.noted.len()).unwrap_or(u32::MAX)).map(move |block| block << order)
    }

    /// Returns the slab (or group that could be one) of this chunk, if created.
    #[inline]
    pub(super) fn slab_at(&self, chunk: u32) -> Option<&Slab> {
        self.slab_of(chunk / self.slab_chunks)
    }

    #[inline]
    fn slab_of(&self, group: u32) -> Option<&Slab> {
        let array = self.slabs.get((group / ARRAY_SLAB_COUNT) as usize)?.get()?;
        array.get((group % ARRAY_SLAB_COUNT) as usize)
    }

    /// Like [`Self::slab_at`], but creates the slab. Returns `None` if the region's end cuts it
    /// short.
    pub(super) fn make_slab(&self, chunk: u32) -> Option<&Slab> {
        let group = chunk / self.slab_chunks;
        if group >= self.slab_count {
            return None;
        }
        let array = self.slabs.get((group / ARRAY_SLAB_COUNT) as usize)?;
        let first = group - group % ARRAY_SLAB_COUNT;
        let last = (first + ARRAY_SLAB_COUNT).min(self.slab_count);
        array.get_or_init(|| (first..last).map(|_| Slab::new()).collect()).get((group - first) as usize)
    }

    pub(super) fn slab_bytes(&self) -> u32 {
        1 << self.slab_shift
    }

    /// Returns all created groups, with their first chunk.
    pub(super) fn slabs(&self) -> impl Iterator<Item = (u32, &Slab)> {
        let made = self.slabs.iter().zip((0u32..).step_by(ARRAY_SLAB_COUNT as usize));
        let made = made.filter_map(|(array, first)| Some((array.get()?, first)));
        made.flat_map(|(array, first)| array.iter().zip(first..)).map(|(slab, group)| (group * self.slab_chunks, slab))
    }

    #[inline]
    pub(super) fn slot(&self, chunk: u32, class: Class, slot: u32) -> NvPtr {
        self.layout.chunk(chunk).add(u64::from(slot) * u64::from(class.size))
    }

    /// Returns the slab group of a byte of this region, if created: its first chunk, the slab, and
    /// the byte's offset in it.
    #[inline]
    pub(super) fn locate(&self, at: NvPtr) -> Option<(ChunkPosition, &Slab, u32)> {
        let inside = at.offset().checked_sub(self.layout.chunks_offset)?;
        let group = inside >> self.slab_shift;
        let slab = self.slab_of(u32::try_from(group).ok()?)?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the group exists, so its chunk fits 32 bits; a remainder fits a slab"
        )]
        let (chunk, rest) = (group as u32 * self.slab_chunks, (inside & ((1 << self.slab_shift) - 1)) as u32);
        Some((ChunkPosition { region: self.layout.index, chunk }, slab, rest))
    }

    /// Returns the extent that could begin exactly at `at`.
    pub(super) fn extent_start(&self, at: NvPtr) -> Option<ChunkPosition> {
        let chunk = self.layout.chunk_of(at.offset())?;
        (self.layout.chunk(chunk) == at).then_some(ChunkPosition { region: self.layout.index, chunk })
    }

    pub(super) fn dram_bytes(&self) -> usize {
        let bitmaps: usize = self.slabs().map(|(_, slab)| size_of::<Slab>() + slab.long_bitmap_bytes()).sum();
        size_of::<Self>() + size_of_val(&*self.slabs) + size_of_val(&*self.noted) + bitmaps
    }
}
