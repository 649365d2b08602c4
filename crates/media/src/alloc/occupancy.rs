//! The bitmaps of all slabs, written by a clean stop into an extent of kind `OCCUPANCY` and read
//! back by the next open.
//!
//! ```text
//! 8  magic
//! 8  words that follow, the check included
//! 8  the pool's generation after the stop
//! then for each slab
//! 8    chunk (32 bits, low) | class (16) | region (16, high)
//! 8*n  its bitmap, one bit per slot, set = in use; the bits after the last slot are set
//! 8  CRC32C of all before, high half zero
//! ```
//! The extent counts only if the pool was closed cleanly and no other extent has its kind. Its
//! generation must be the one that the open finds: the bitmaps of an earlier stop would free
//! records that are in use. Its slabs must be exactly the slabs of the extent tables. Otherwise the
//! engine marks, as after a crash. The open frees the extent, so it is never read twice: before
//! anything changes, the pool's header says "not clean", durably.

use std::sync::atomic::Ordering;

use super::medium_access::MediumAccess;
use super::slab::NO_CLASS_ID;
use super::space::{Ends, plain_word};
use super::table::Word;
use super::{Allocator, ChunkPosition, ExtentKind, lock};
use crate::crc32c;

const MAGIC: u64 = u64::from_le_bytes(*b"lodeOCC2");
/// Words before those of the slabs.
const HEAD_WORDS: usize = 3;

impl Allocator {
    /// Saves the bitmaps. A clean close calls it when nothing else runs any more, before the header
    /// says "clean". Returns false if they could not be saved (no space, recovery in progress). The
    /// store is still sound; its next open marks.
    pub(crate) fn save<G: MediumAccess>(&self, medium: &G) -> bool {
        if self.is_recovering() {
            return false;
        }
        self.report_wear(medium);
        let words = self.occupancy_words(medium.next_generation());
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let Some(chunks) = self.chunks_of(bytes.len() as u64) else { return false };
        let mut space = lock(&self.space);
        let Some(position) =
            space.alloc_extent(medium, plain_word(ExtentKind::OCCUPANCY, chunks), (false, Ends::default()))
        else {
            space.flush_words(medium);
            medium.fence();
            return false;
        };
        let at = space.regions[usize::from(position.region)].layout.chunk(position.chunk);
        medium.store(at, &bytes);
        medium.flush(at, bytes.len());
        space.flush_words(medium);
        medium.fence();
        true
    }

    /// See [`Allocator::seal_tables`](Self::seal_tables).
    pub(crate) fn seal_tables_on<G: MediumAccess>(&self, medium: &G) -> Vec<u32> {
        let mut space = lock(&self.space);
        space.flush_words(medium);
        space.is_sealed = true;
        space.regions.iter().map(|ranges| Self::table_seal(medium, &ranges.layout)).collect()
    }

    fn occupancy_words(&self, generation: u64) -> Vec<u64> {
        let mut words = vec![MAGIC, 0, generation];
        for region in self.known_regions() {
            for (chunk, slab) in region.slabs() {
                let number = slab.class();
                let Some(class) = self.classes.get(number).filter(|_| number != NO_CLASS_ID) else { continue };
                words.push(u64::from(chunk) | u64::from(number) << 32 | u64::from(region.layout.index) << 48);
                words.extend(slab.words(class).iter().map(|word| word.load(Ordering::Relaxed)));
            }
        }
        words[1] = (words.len() - 1) as u64;
        words.push(u64::from(checksum(&words)));
        words
    }

    /// Loads the saved bitmaps into the slabs, which are all old. Returns false, and changes
    /// nothing, if they do not count.
    pub(super) fn load_occupancy<G: MediumAccess>(&self, medium: &G, saved: &[(ChunkPosition, Word)]) -> bool {
        let slabs = self.known_slabs().count();
        let [(position, word)] = saved else { return false };
        let Some(words) = self.read_saved(medium, *position, word.chunks) else { return false };
        if words.get(2).is_none_or(|generation| *generation != medium.found_generation()) {
            return false;
        }
        let Some(found) = self.parse_saved(&words) else { return false };
        if found.len() != slabs {
            return false;
        }
        found.iter().all(|(position, bitmap)| {
            let slab = self.slab(*position);
            slab.and_then(|slab| Some(slab.load(self.classes.get(slab.class())?, bitmap, self.slab_bytes())))
                .unwrap_or(false)
        })
    }

    fn read_saved<G: MediumAccess>(&self, medium: &G, position: ChunkPosition, chunks: u32) -> Option<Vec<u64>> {
        let layout = &self.region(position.region)?.layout;
        let at = layout.chunk(position.chunk);
        let available = u64::from(chunks) * u64::from(layout.chunk_bytes) / 8;
        let follow = medium.load(at.add(8));
        if medium.load(at) != MAGIC || follow == 0 || follow > available - 2 {
            return None;
        }
        let words: Vec<u64> = (0..follow + 2).map(|index| medium.load(at.add(index * 8))).collect();
        let (check, body) = words.split_last()?;
        (*check == u64::from(checksum(body))).then_some(words)
    }

    /// Parses slabs and their bitmaps; each slab must occur once and match the extent table.
    fn parse_saved<'a>(&self, words: &'a [u64]) -> Option<Vec<(ChunkPosition, &'a [u64])>> {
        let mut rest = words.get(HEAD_WORDS..words.len() - 1)?;
        let mut found = Vec::new();
        while let Some((head, tail)) = rest.split_first() {
            #[expect(clippy::cast_possible_truncation, reason = "each field is cut to its bits")]
            let (position, number) =
                (ChunkPosition { region: (head >> 48) as u16, chunk: *head as u32 }, (head >> 32) as u16);
            let class = self.classes.get(number)?;
            let slab =
                self.slab(position).filter(|slab| slab.class() == number && position.chunk % self.slab_chunks == 0)?;
            let (bitmap, after) = tail.split_at_checked(class.words())?;
            if !slab.fits(class, bitmap) || found.last().is_some_and(|(last, _)| *last >= position) {
                return None;
            }
            found.push((position, bitmap));
            rest = after;
        }
        Some(found)
    }
}

fn checksum(words: &[u64]) -> u32 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    crc32c(&[&bytes])
}
