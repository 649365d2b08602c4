//! Extents: the buddy trees of all regions, their words on the medium, and wear. One lock, acquired
//! once per slab (some hundred records) or once per extent.
//!
//! Persist order of allocating an extent ([`Space::alloc_extent`]), all under the lock:
//! 1. The tree allocates the chunks (DRAM). If the caller wants the extent's ends zero, they are
//!    zeroed; **fence**. If that fence fails, the chunks are freed, and no word is stored.
//! 2. Both copies of its word are stored. The copies, and every word changed since the last time
//!    (`unflushed`), are flushed.
//! 3. Fence. Only then does the caller receive the extent.
//!
//! Persist order of freeing an extent ([`Space::free_extent`]): the free word is stored in both
//! copies; nothing waits for it. The flush comes with the next allocation or the clean stop, at the
//! latest.
//!
//! A crash is harmless at every store. Proof: let `live` be the extents allocated and not freed.
//! After a crash the table holds all of `live` (step 3 precedes their use). The table may also hold
//! words of extents freed but not yet flushed, and of one being allocated. None of these is
//! reachable. An extent is freed only after the store that unlinked it is durable, and an extent
//! being allocated is not yet known to a caller. Marking therefore never reaches them, and the
//! sweep frees them.
//!
//! None of them overlaps a live extent. Before chunks of a cleared word can be in a live extent,
//! that extent's own fence made the clearing durable (2). Hence a table word that begins inside
//! another extent is always stale or inside a stale one, and the open drops it. The two copies are
//! stored and flushed together. All this therefore holds for each copy, and for their union, which
//! the open uses (`table_copies.rs`).
//!
//! Wear words (`wear.rs`) are stored and flushed without a fence: a crash loses only some counts.

use super::buddy::{Buddy, FULL_BLOCK_WEAR_BYTES};
use super::medium_access::MediumAccess;
use super::table::{self, Found, Pair, Word};
use super::{ChunkPosition, ExtentKind};
use crate::nvptr::NvPtr;
use crate::region_layout::RegionLayout;

/// Maximum changed words that wait for their flush.
const UNFLUSHED_MAX: usize = 2048;

/// Bytes at an extent's ends to be zeroed at allocation; multiples of 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ends {
    pub(crate) head: u64,
    pub(crate) tail: u64,
}

/// Bytes written to a range, to be added to the wear of its segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    /// The start of the extent.
    pub(super) position: ChunkPosition,
    /// The length of the extent in chunks.
    pub(super) chunks: u32,
    /// Bytes written, spread over the extent.
    pub(super) bytes: u64,
}

/// The extents of one region.
pub(super) struct Ranges {
    pub(super) layout: RegionLayout,
    pub(super) tree: Buddy,
    /// Chunks under damaged words (start, length): never allocated; references to their records are
    /// accepted.
    pub(super) quarantine: Vec<(u32, u32)>,
}

/// The extents of all regions.
#[derive(Default)]
pub(super) struct Space {
    pub(super) regions: Vec<Ranges>,
    /// Words freed or repaired since the last fence of an allocation, each copy separately.
    pub(super) unflushed: Vec<NvPtr>,
    /// A clean stop has computed the seals of the tables: no word changes any more.
    pub(super) is_sealed: bool,
    /// Whether wear affects placement.
    pub(super) wear_aware: bool,
}

impl Ranges {
    /// Returns the segment whose wear count covers this block.
    pub(super) fn segment_of_block(&self, block: usize) -> u32 {
        let first = u32::try_from(block << self.tree.block_order()).unwrap_or(u32::MAX).min(self.layout.chunks - 1);
        let segment = self.layout.chunk(first).offset() / self.layout.wear_segment_bytes;
        u32::try_from(segment).unwrap_or(u32::MAX).min(self.layout.wear_segments - 1)
    }

    /// Returns log2 of the chunks that make up about one wear segment.
    pub(super) fn block_order(layout: &RegionLayout) -> u32 {
        (layout.wear_segment_bytes / u64::from(layout.chunk_bytes)).max(1).ilog2()
    }

    /// Loads the counts from the medium. An impossible count is read as 0: wear only affects
    /// placement.
    pub(super) fn read_wear<G: MediumAccess>(&mut self, medium: &G) {
        const WEAR_BYTES_MAX: u64 = (1 << 60) - 1;
        let segments: Vec<u32> = (0..self.tree.wear().len()).map(|block| self.segment_of_block(block)).collect();
        let mut block = 0;
        for sharing in segments.chunk_by(|a, b| a == b) {
            let count = Some(medium.load(self.layout.wear_word(sharing[0])))
                .filter(|count| *count <= WEAR_BYTES_MAX)
                .unwrap_or(0);
            if count > 0 {
                for index in block..block + sharing.len() {
                    self.tree.add_block_wear(index, count / sharing.len() as u64);
                }
            }
            block += sharing.len();
        }
    }

    fn write_wear<G: MediumAccess>(&self, medium: &G, block: usize) {
        let segment = self.segment_of_block(block);
        let (mut low, mut high) = (block, block);
        while low > 0 && self.segment_of_block(low - 1) == segment {
            low -= 1;
        }
        while high + 1 < self.tree.wear().len() && self.segment_of_block(high + 1) == segment {
            high += 1;
        }
        let at = self.layout.wear_word(segment);
        medium.put(at, self.tree.wear()[low..=high].iter().sum());
        medium.flush(at, 8);
    }
}

impl Space {
    /// Allocates `word.chunks` chunks for an extent and makes its word durable. Returns `None` if
    /// no region has such a run. The bytes at its `ends` are zeroed durably before the word is
    /// stored.
    pub(super) fn alloc_extent<G: MediumAccess>(
        &mut self,
        medium: &G,
        word: Word,
        (aligned, ends): (bool, Ends),
    ) -> Option<ChunkPosition> {
        if self.is_sealed {
            return None;
        }
        let position = self.alloc_chunks(word.chunks, aligned)?;
        let layout = &self.regions[usize::from(position.region)].layout;
        if ends != Ends::default() {
            let (first, bytes) = (layout.chunk(position.chunk), u64::from(word.chunks) * u64::from(layout.chunk_bytes));
            for (from, len) in [(0, ends.head.min(bytes)), (bytes - ends.tail.min(bytes), ends.tail.min(bytes))] {
                (0..len).step_by(8).for_each(|word| medium.put(first.add(from + word), 0));
                medium.flush(first.add(from), len as usize);
            }
            medium.fence();
            if medium.has_failed() {
                // The ends may still have the header of an older extent, so no word may declare
                // them valid.
                let is_freed = self.regions[usize::from(position.region)].tree.free_range(position.chunk, word.chunks);
                debug_assert!(is_freed, "the chunks were taken above");
                return None;
            }
        }
        let copies = layout.extent_words(position.chunk);
        let raw = table::encode(word, medium.stamp(), position.region, position.chunk);
        copies.iter().for_each(|copy| medium.put(*copy, raw));
        self.flush_words(medium);
        copies.iter().for_each(|copy| medium.flush(*copy, 8));
        medium.fence();
        debug_assert_eq!(self.word(medium, position), Found::Extent(word));
        Some(position)
    }

    /// Frees an extent; returns false if its chunks are not all in use. After a close the extent
    /// stays allocated: the next open frees unreachable extents, and the words no longer belong to
    /// this pool.
    #[must_use]
    pub(super) fn free_extent<G: MediumAccess>(&mut self, medium: &G, position: ChunkPosition, chunks: u32) -> bool {
        if self.is_sealed || medium.is_closed() {
            return true;
        }
        let Some(ranges) = self.regions.get_mut(usize::from(position.region)) else { return false };
        if !ranges.tree.free_range(position.chunk, chunks) {
            return false;
        }
        let copies = ranges.layout.extent_words(position.chunk);
        self.store_word(medium, copies, 0);
        true
    }

    /// Stores a free or repaired word in both copies, to be flushed with the next allocation.
    pub(super) fn store_word<G: MediumAccess>(&mut self, medium: &G, copies: [NvPtr; 2], raw: u64) {
        for copy in copies {
            medium.put(copy, raw);
            self.unflushed.push(copy);
        }
        if self.unflushed.len() >= UNFLUSHED_MAX {
            self.flush_words(medium);
            medium.fence();
        }
    }

    /// Flushes the unflushed words; the caller fences.
    pub(super) fn flush_words<G: MediumAccess>(&mut self, medium: &G) {
        // Neighbours share lines: after sorting, each line is flushed once.
        self.unflushed.sort_unstable();
        let mut last = NvPtr::NULL;
        for at in self.unflushed.drain(..) {
            let line = NvPtr::from_raw(at.raw() & !63);
            if line != last {
                medium.flush(at, 8);
                last = line;
            }
        }
    }

    /// Adds wear and stores the changed counts. The remainder of the division goes to the first
    /// block.
    pub(super) fn wear<G: MediumAccess>(&mut self, medium: &G, written: &[Written]) {
        for item in written {
            let Some(ranges) = self.regions.get_mut(usize::from(item.position.region)) else { continue };
            let block_chunks = 1u32 << ranges.tree.block_order();
            let first = item.position.chunk / block_chunks;
            let last = (item.position.chunk + item.chunks.max(1) - 1) / block_chunks;
            let mut rest = item.bytes;
            for block in (first..=last).rev() {
                // The share of an extent that is in this block; a slab is in one block.
                let start = item.position.chunk.max(block * block_chunks);
                let end = (item.position.chunk + item.chunks.max(1)).min((block + 1).saturating_mul(block_chunks));
                let share = u128::from(item.bytes) * u128::from(end - start) / u128::from(item.chunks.max(1));
                let share = if block == first { rest } else { u64::try_from(share).unwrap_or(rest) };
                rest -= share;
                ranges.tree.add_block_wear(block as usize, share);
                ranges.write_wear(medium, block as usize);
            }
        }
    }

    /// Returns whether a slab elsewhere would avoid more than one overwrite of this segment.
    pub(super) fn has_less_worn_segment(&self, position: ChunkPosition) -> bool {
        let Some(ranges) = self.regions.get(usize::from(position.region)).filter(|_| self.wear_aware) else {
            return false;
        };
        let wear = ranges.tree.wear().get((position.chunk >> ranges.tree.block_order()) as usize).copied().unwrap_or(0);
        let lead = ranges.layout.wear_segment_bytes;
        self.regions.iter().any(|other| other.tree.min_wear().saturating_add(lead) < wear)
    }

    /// Returns whether a slab can be allocated without growing.
    pub(super) fn has_free_slab(&self) -> bool {
        self.regions.iter().any(|ranges| ranges.tree.min_wear() != FULL_BLOCK_WEAR_BYTES)
    }

    /// Returns the word that begins at this position.
    pub(super) fn word<G: MediumAccess>(&self, medium: &G, position: ChunkPosition) -> Found {
        match self.regions.get(usize::from(position.region)) {
            Some(ranges) => read_word(medium, &ranges.layout, position.chunk),
            None => Found::Bad,
        }
    }

    /// Returns the bytes of free chunks.
    pub(super) fn free_bytes(&self) -> u64 {
        self.regions
            .iter()
            .map(|ranges| u64::from(ranges.tree.free_chunks()) * u64::from(ranges.layout.chunk_bytes))
            .sum()
    }

    fn alloc_chunks(&mut self, chunks: u32, aligned: bool) -> Option<ChunkPosition> {
        let order = chunks.checked_next_power_of_two()?.ilog2();
        let mut best: Option<(usize, u64)> = None;
        for (index, ranges) in
            self.regions.iter().enumerate().filter(|(_, ranges)| ranges.tree.can_alloc(chunks, order))
        {
            let wear = ranges.tree.min_wear();
            let lead = ranges.layout.wear_segment_bytes;
            if best.is_none_or(|(_, min_wear)| wear.saturating_add(lead) < min_wear) {
                best = Some((index, wear));
            }
            if !self.wear_aware {
                break;
            }
        }
        let wear_aware = self.wear_aware;
        let taken = |ranges: &mut Ranges, unaligned: bool| {
            let lead = wear_aware.then_some(ranges.layout.wear_segment_bytes);
            if unaligned { ranges.tree.alloc_unaligned(chunks) } else { ranges.tree.alloc(chunks, lead) }
        };
        let (index, chunk) = match best {
            Some((index, _)) => (index, taken(&mut self.regions[index], false)?),
            None if aligned => return None,
            None => {
                self.regions.iter_mut().enumerate().find_map(|(index, ranges)| Some((index, taken(ranges, true)?)))?
            }
        };
        Some(ChunkPosition { region: u16::try_from(index).ok()?, chunk })
    }
}

/// Reads the word of a chunk from the two copies on the medium.
pub(super) fn read_word<G: MediumAccess>(medium: &G, layout: &RegionLayout, chunk: u32) -> Found {
    if chunk >= layout.chunks {
        return Found::Bad;
    }
    let raw = layout.extent_words(chunk).map(|copy| medium.load(copy));
    let found = raw.map(|raw| table::decode(raw, layout.index, chunk, layout.chunks));
    Pair { raw, found }.resolve(medium.stamp()).found
}

/// Returns a word for an extent of an engine or of a single record.
pub(super) fn plain_word(kind: ExtentKind, chunks: u32) -> Word {
    Word { kind, class: 0, chunks }
}
