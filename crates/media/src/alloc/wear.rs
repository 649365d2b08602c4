//! Wear: bytes written by segment of the medium, kept over restarts.
//!
//! What counts: each record that is handed out, once, with its rounding (it is written once); each extent that is handed out,
//! once in full; and what an engine says that it stored in place in an extent of its own ([`Allocator::note_written`]). Tables and headers
//! of the pool count for nothing.
//!
//! Where a count is on its way to the medium:
//! 1. slots handed out are counted in their slab: of the one that slots come from until it was overwritten eight times, of another
//!    until its next turn finds that half of it was;
//! 2. then in their block (`Region::note_written`), until a sixteenth of a segment is gathered;
//! 3. then in the tree and, at once, in the segment's word on the medium, which is flushed and not waited for.
//!
//! A clean stop, and whoever asks for the counts, take to the medium what stands at 2; a clean stop also what stands at 1. A crash loses both:
//! at most nine sixteenths of each segment's length, and of each class that a thread uses eight times its current slab. A
//! power failure may also lose what no fence of the thread that stored the word has followed yet.

use lodestore_contract::{SegmentWear, Wear};

use super::ground::Ground;
use super::region::Region;
use super::slab::{NO_CLASS, Slab};
use super::space::{Space, Written};
use super::table::Found;
use super::{Allocator, ExtentKind, Place, lock};
use crate::nvptr::NvPtr;

impl Allocator {
    /// Bytes of slots handed out of a slab. A shard's lock may be held, that of space not.
    pub(super) fn note_slab<G: Ground>(&self, ground: &G, place: Place, bytes: u64) {
        if let Some(region) = self.region(place.region)
            && region.note_written(place.chunk, bytes)
        {
            lock(&self.space).take_in(ground, region, place.chunk);
        }
    }

    /// See [`Allocator::note_written`](Self::note_written).
    pub(crate) fn note_written_on<G: Ground>(&self, ground: &G, extent: NvPtr, bytes: u64) {
        let Some(place) = self.region(extent.region()).and_then(|region| region.extent_start(extent)) else { return };
        let mut space = lock(&self.space);
        if let Found::Extent(word) = space.word(ground, place)
            && word.kind != ExtentKind::SLAB
        {
            space.wear(ground, &[Written { place, chunks: word.chunks, bytes }]);
        }
    }

    /// Takes all counts to the medium; nothing else may run.
    pub(crate) fn report_wear<G: Ground>(&self, ground: &G) {
        for region in self.known_regions() {
            for (chunk, slab) in region.slabs() {
                let bytes = self.written_of(slab);
                if bytes > 0 {
                    slab.take_written();
                    region.note_written(chunk, bytes);
                }
            }
            region.block_starts().for_each(|chunk| lock(&self.space).take_in(ground, region, chunk));
        }
    }

    /// See [`Allocator::wear`](Self::wear).
    pub(crate) fn wear_on<G: Ground>(&self, ground: &G) -> Wear {
        let mut segments = Vec::new();
        for region in self.known_regions() {
            let mut space = lock(&self.space);
            region.block_starts().for_each(|chunk| space.take_in(ground, region, chunk));
            let Some(ranges) = space.regions.get(usize::from(region.layout.index)) else { break };
            // Segments that no block stands for (the pool's tables, as a rule) are none of the allocator's.
            let base = segments.len();
            let mut place_of = Vec::new();
            for (block, bytes) in ranges.tree.wear().iter().enumerate().take(region.block_starts().count()) {
                let segment = ranges.segment_of_block(block);
                match segments.get_mut(base..).and_then(|own: &mut [SegmentWear]| own.last_mut()) {
                    Some(last) if last.segment == segment => last.bytes += bytes,
                    _ => segments.push(SegmentWear { region: region.layout.index, segment, bytes: *bytes }),
                }
                place_of.push(segments.len() - 1);
            }
            for (chunk, slab) in region.slabs() {
                let place = place_of.get((chunk >> ranges.tree.block_order()) as usize);
                if let Some(segment) = place.and_then(|place| segments.get_mut(*place)) {
                    segment.bytes += self.written_of(slab);
                }
            }
        }
        Wear::of(segments)
    }

    fn written_of(&self, slab: &Slab) -> u64 {
        let class = self.classes.get(slab.class()).filter(|_| slab.class() != NO_CLASS);
        class.map_or(0, |class| u64::from(slab.written()) * u64::from(class.size))
    }
}

impl Space {
    /// Takes what was noted of the block of this chunk into its wear.
    pub(super) fn take_in<G: Ground>(&mut self, ground: &G, region: &Region, chunk: u32) {
        let bytes = region.take_noted(chunk);
        if bytes > 0 {
            let place = Place { region: region.layout.index, chunk };
            self.wear(ground, &[Written { place, chunks: 1, bytes }]);
        }
    }
}
