//! What all threads may read of a region without a lock: its places and its slabs.

use super::Place;
use super::classes::Class;
use super::slab::Slab;
use crate::nvptr::NvPtr;
use crate::region_layout::RegionLayout;

/// One region. Made once and never moved: regions are only added.
pub(super) struct Region {
    pub(super) layout: RegionLayout,
    slab_chunks: u32,
    /// log2 of a slab's bytes.
    slab_shift: u32,
    slabs: Box<[Slab]>,
}

impl Region {
    pub(super) fn new(layout: RegionLayout, slab_chunks: u32) -> Self {
        // A group that the region's end cuts short can never be a slab.
        let slabs = (0..layout.chunks / slab_chunks).map(|_| Slab::new()).collect();
        let slab_shift = (slab_chunks * layout.chunk_bytes).ilog2();
        Self { layout, slab_chunks, slab_shift, slabs }
    }

    /// The slab, or group that could be one, of these chunks.
    #[inline]
    pub(super) fn slab_at(&self, chunk: u32) -> Option<&Slab> {
        self.slabs.get((chunk / self.slab_chunks) as usize)
    }

    /// All groups with their first chunk.
    pub(super) fn slabs(&self) -> impl Iterator<Item = (u32, &Slab)> {
        self.slabs.iter().zip(0u32..).map(|(slab, group)| (group * self.slab_chunks, slab))
    }

    /// The place of a slot.
    #[inline]
    pub(super) fn slot(&self, chunk: u32, class: Class, slot: u32) -> NvPtr {
        self.layout.chunk(chunk).add(u64::from(slot) * u64::from(class.size))
    }

    /// The slab group of a byte of this region: its first chunk, the slab, and the byte's offset in it.
    #[inline]
    pub(super) fn locate(&self, at: NvPtr) -> Option<(Place, &Slab, u32)> {
        let inside = at.offset().checked_sub(self.layout.chunks_offset)?;
        let group = inside >> self.slab_shift;
        let slab = self.slabs.get(usize::try_from(group).ok()?)?;
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
        let far: usize = self.slabs.iter().map(Slab::far_bytes).sum();
        size_of::<Self>() + size_of_val(&*self.slabs) + far
    }
}
