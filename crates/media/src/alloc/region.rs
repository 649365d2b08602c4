//! What all threads may read of a region without a lock: its places and its slabs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Place;
use super::classes::Class;
use super::slab::Slab;
use super::space::Ranges;
use crate::nvptr::NvPtr;
use crate::region_layout::RegionLayout;

/// Slabs that are made together: a page.
const SLABS_TOGETHER: u32 = 64;

/// What is noted of a block is stored when it is this part of a segment's bytes.
const NOTED_PART: u64 = 16;

/// One region. Made once and never moved: regions are only added.
pub(super) struct Region {
    pub(super) layout: RegionLayout,
    slab_chunks: u32,
    /// log2 of a slab's bytes.
    slab_shift: u32,
    /// Groups of chunks that can be slabs.
    slab_count: u32,
    /// Their slabs, by [`SLABS_TOGETHER`]; made when the first of them is needed, so that an open, and a region that holds none, touch few
    /// pages.
    slabs: Box<[OnceLock<Box<[Slab]>>]>,
    /// Bytes written that the wear of their block does not contain yet, by block.
    noted: Box<[AtomicU64]>,
    /// log2 of the chunks of a block.
    block_order: u32,
}

impl Region {
    pub(super) fn new(layout: RegionLayout, slab_chunks: u32) -> Self {
        // A group that the region's end cuts short can never be a slab.
        let slab_count = layout.chunks / slab_chunks;
        let slabs = (0..slab_count.div_ceil(SLABS_TOGETHER)).map(|_| OnceLock::new()).collect();
        let slab_shift = (slab_chunks * layout.chunk_bytes).ilog2();
        let block_order = Ranges::block_order(&layout);
        let noted = (0..((layout.chunks - 1) >> block_order) + 1).map(|_| AtomicU64::new(0)).collect();
        Self { layout, slab_chunks, slab_shift, slab_count, slabs, noted, block_order }
    }

    /// Notes bytes written to a slab; true if it is time to store the wear of its block.
    #[inline]
    pub(super) fn note_written(&self, chunk: u32, bytes: u64) -> bool {
        let Some(noted) = self.noted.get((chunk >> self.block_order) as usize) else { return false };
        let before = noted.fetch_add(bytes, Ordering::Relaxed);
        before + bytes >= self.layout.wear_segment_bytes / NOTED_PART
    }

    /// Takes what was noted of the block of this chunk.
    pub(super) fn take_noted(&self, chunk: u32) -> u64 {
        self.noted.get((chunk >> self.block_order) as usize).map_or(0, |noted| noted.swap(0, Ordering::Relaxed))
    }

    /// The first chunk of each block.
    pub(super) fn block_starts(&self) -> impl Iterator<Item = u32> + use<> {
        let order = self.block_order;
        (0..u32::try_from(self.noted.len()).unwrap_or(u32::MAX)).map(move |block| block << order)
    }

    /// The slab, or group that could be one, of these chunks.
    #[inline]
    pub(super) fn slab_at(&self, chunk: u32) -> Option<&Slab> {
        self.slab_of(chunk / self.slab_chunks)
    }

    #[inline]
    fn slab_of(&self, group: u32) -> Option<&Slab> {
        let together = self.slabs.get((group / SLABS_TOGETHER) as usize)?.get()?;
        together.get((group % SLABS_TOGETHER) as usize)
    }

    /// The same, and makes it; `None` where the region's end cuts it short.
    pub(super) fn make_slab(&self, chunk: u32) -> Option<&Slab> {
        let group = chunk / self.slab_chunks;
        if group >= self.slab_count {
            return None;
        }
        let together = self.slabs.get((group / SLABS_TOGETHER) as usize)?;
        let first = group - group % SLABS_TOGETHER;
        let last = (first + SLABS_TOGETHER).min(self.slab_count);
        together.get_or_init(|| (first..last).map(|_| Slab::new()).collect()).get((group - first) as usize)
    }

    /// Bytes of a slab.
    pub(super) fn slab_bytes(&self) -> u32 {
        1 << self.slab_shift
    }

    /// All groups that were made, with their first chunk.
    pub(super) fn slabs(&self) -> impl Iterator<Item = (u32, &Slab)> {
        let made = self.slabs.iter().zip((0u32..).step_by(SLABS_TOGETHER as usize));
        let made = made.filter_map(|(together, first)| Some((together.get()?, first)));
        made.flat_map(|(together, first)| together.iter().zip(first..))
            .map(|(slab, group)| (group * self.slab_chunks, slab))
    }

    /// The place of a slot.
    #[inline]
    pub(super) fn slot(&self, chunk: u32, class: Class, slot: u32) -> NvPtr {
        self.layout.chunk(chunk).add(u64::from(slot) * u64::from(class.size))
    }

    /// The slab group of a byte of this region, if it was made: its first chunk, the slab, and the byte's offset in it.
    #[inline]
    pub(super) fn locate(&self, at: NvPtr) -> Option<(Place, &Slab, u32)> {
        let inside = at.offset().checked_sub(self.layout.chunks_offset)?;
        let group = inside >> self.slab_shift;
        let slab = self.slab_of(u32::try_from(group).ok()?)?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the group exists, so its chunk fits 32 bits; a remainder fits a slab"
        )]
        let (chunk, rest) = (group as u32 * self.slab_chunks, (inside & ((1 << self.slab_shift) - 1)) as u32);
        Some((Place { region: self.layout.index, chunk }, slab, rest))
    }

    /// The extent that could begin exactly at `at`.
    pub(super) fn extent_start(&self, at: NvPtr) -> Option<Place> {
        let chunk = self.layout.chunk_of(at.offset())?;
        (self.layout.chunk(chunk) == at).then_some(Place { region: self.layout.index, chunk })
    }

    pub(super) fn dram_bytes(&self) -> usize {
        let far: usize = self.slabs().map(|(_, slab)| size_of::<Slab>() + slab.far_bytes()).sum();
        size_of::<Self>() + size_of_val(&*self.slabs) + size_of_val(&*self.noted) + far
    }
}
