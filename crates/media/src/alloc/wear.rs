//! Wear: bytes written by segment of the medium, kept over restarts.
//!
//! Three kinds of writes count:
//! * each allocated record, once, with its rounding (it is written once);
//! * each allocated extent, once in full;
//! * bytes that an engine reports as stored in place in its own extent
//!   ([`Allocator::note_written`]).
//!
//! The pool's tables and headers do not count.
//!
//! Stages of a count on its way to the medium:
//! 1. Allocated slots are counted in their slab. The count of the current slab moves on after eight
//!    overwrites. The count of another slab moves on when that slab is next replaced as current
//!    with at least half overwritten.
//! 2. Then the bytes are counted in their block (`Region::note_written`), until a sixteenth of a
//!    segment is reached.
//! 3. Then they are added to the tree and, at once, to the segment's word on the medium, which is
//!    flushed without a fence.
//!
//! A clean stop, and a query of the counts, move stage 2 to the medium; a clean stop also moves
//! stage 1. A crash loses both: at most nine sixteenths of each segment's length, and eight times
//! the current slab of each class that a thread uses. A power failure may also lose words whose
//! storing thread has not fenced since.

use lodestore_contract::{SegmentWear, Wear};

use super::medium_access::MediumAccess;
use super::region::Region;
use super::slab::{NO_CLASS_ID, Slab};
use super::space::{Space, Written};
use super::table::Found;
use super::{Allocator, ChunkPosition, ExtentKind, lock};
use crate::nvptr::NvPtr;

impl Allocator {
    /// Notes bytes of slots allocated from a slab. A shard's lock may be held, the space lock must
    /// not be.
    pub(super) fn note_slab_wear<G: MediumAccess>(&self, medium: &G, position: ChunkPosition, bytes: u64) {
        if let Some(region) = self.region(position.region)
            && region.note_written(position.chunk, bytes)
        {
            lock(&self.space).add_noted_wear(medium, region, position.chunk);
        }
    }

    /// See [`Allocator::note_written`](Self::note_written).
    pub(crate) fn note_written_on<G: MediumAccess>(&self, medium: &G, extent: NvPtr, bytes: u64) {
        let Some(position) = self.region(extent.region()).and_then(|region| region.extent_start(extent)) else {
            return;
        };
        let mut space = lock(&self.space);
        if let Found::Extent(word) = space.word(medium, position)
            && word.kind != ExtentKind::SLAB
        {
            space.wear(medium, &[Written { position, chunks: word.chunks, bytes }]);
        }
    }

    /// Moves all counts to the medium; nothing else may run.
    pub(crate) fn report_wear<G: MediumAccess>(&self, medium: &G) {
        for region in self.known_regions() {
            for (chunk, slab) in region.slabs() {
                let bytes = self.written_of(slab);
                if bytes > 0 {
                    slab.take_written();
                    region.note_written(chunk, bytes);
                }
            }
            region.block_starts().for_each(|chunk| lock(&self.space).add_noted_wear(medium, region, chunk));
        }
    }

    /// See [`Allocator::wear`](Self::wear).
    pub(crate) fn wear_on<G: MediumAccess>(&self, medium: &G) -> Wear {
        let mut segments = Vec::new();
        for region in self.known_regions() {
            let mut space = lock(&self.space);
            region.block_starts().for_each(|chunk| space.add_noted_wear(medium, region, chunk));
            let Some(ranges) = space.regions.get(usize::from(region.layout.index)) else { break };
            // Segments without a block (usually the pool's tables) do not belong to the allocator.
            let base = segments.len();
            let mut index_of_block = Vec::new();
            for (block, bytes) in ranges.tree.wear().iter().enumerate().take(region.block_starts().count()) {
                let segment = ranges.segment_of_block(block);
                match segments.get_mut(base..).and_then(|own: &mut [SegmentWear]| own.last_mut()) {
                    Some(last) if last.segment == segment => last.bytes += bytes,
                    _ => segments.push(SegmentWear { region: region.layout.index, segment, bytes: *bytes }),
                }
                index_of_block.push(segments.len() - 1);
            }
            for (chunk, slab) in region.slabs() {
                let position = index_of_block.get((chunk >> ranges.tree.block_order()) as usize);
                if let Some(segment) = position.and_then(|position| segments.get_mut(*position)) {
                    segment.bytes += self.written_of(slab);
                }
            }
        }
        Wear::of(segments)
    }

    fn written_of(&self, slab: &Slab) -> u64 {
        let class = self.classes.get(slab.class()).filter(|_| slab.class() != NO_CLASS_ID);
        class.map_or(0, |class| u64::from(slab.written()) * u64::from(class.size))
    }
}

impl Space {
    /// Adds the noted bytes of this chunk's block to its wear.
    pub(super) fn add_noted_wear<G: MediumAccess>(&mut self, medium: &G, region: &Region, chunk: u32) {
        let bytes = region.take_noted(chunk);
        if bytes > 0 {
            let position = ChunkPosition { region: region.layout.index, chunk };
            self.wear(medium, &[Written { position, chunks: 1, bytes }]);
        }
    }
}
