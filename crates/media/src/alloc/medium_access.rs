//! The interface of the pool to the allocator. The pool implements it; tests implement it on a few
//! kilobytes of heap.

use lodestore_contract::Result;

use crate::fault::PlantedFault;
use crate::nvptr::NvPtr;
use crate::region_layout::RegionLayout;

/// The medium, as the allocator sees it.
pub(crate) trait MediumAccess {
    /// Returns the number of regions, which are numbered from 0.
    fn regions(&self) -> usize;
    /// Returns the layout of an existing region.
    fn layout(&self, region: u16) -> Option<RegionLayout>;
    /// Returns the maximum bytes of the store, for error texts.
    fn capacity(&self) -> u64;
    /// Loads an aligned word.
    fn load(&self, at: NvPtr) -> u64;
    /// Counts the zero words at the start of the next `words` aligned words.
    fn zero_words(&self, at: NvPtr, words: usize) -> usize {
        (0..words).find(|word| self.load(at.add(*word as u64 * 8)) != 0).unwrap_or(words)
    }
    /// Returns the pool's generation modulo 256, for the stamps of extent words.
    fn stamp(&self) -> u8 {
        0
    }
    /// Returns the generation that the open found in the pool's header.
    fn found_generation(&self) -> u64 {
        0
    }
    /// Returns the generation of the pool's header after a clean stop of this session.
    fn next_generation(&self) -> u64 {
        0
    }
    /// Returns whether an open continues if damage may have destroyed the word of an extent
    /// (salvage).
    fn tolerates_damage(&self) -> bool {
        false
    }
    /// Returns whether the pool may have another owner by now: nothing is freed any more.
    fn is_closed(&self) -> bool {
        false
    }
    /// Stores an aligned word atomically.
    fn put(&self, at: NvPtr, word: u64);
    /// Stores bytes that no other thread reads yet.
    fn store(&self, at: NvPtr, bytes: &[u8]);
    /// Begins to make a range durable.
    fn flush(&self, at: NvPtr, len: usize);
    /// Makes this thread's flushed ranges durable.
    fn fence(&self);
    /// Returns whether a sync has failed: the flushed bytes may not be durable.
    fn has_failed(&self) -> bool {
        false
    }
    /// Adds a region with space for an extent of `bytes` bytes, unless there are more than `seen`
    /// by now. Returns the newest region, whose table is zero and which the pool's header names
    /// durably. Returns [`Error::Full`](lodestore_contract::Error::Full) if the capacity or the
    /// medium does not allow it. Called with no lock held.
    fn grow(&self, seen: usize, bytes: u64) -> Result<u16>;
    /// Receives, after each allocation, the bytes of free chunks.
    fn hint_free(&self, _bytes: u64) {}
    /// Receives a record position of `len` bytes that is likely to be stored next.
    fn prefetch_record(&self, _at: NvPtr, _len: usize) {}
    /// Frees the records that wait for readers, as far as possible. Called with no lock held.
    fn reclaim(&self);
    /// Returns whether this fault is planted.
    fn has_fault(&self, _fault: PlantedFault) -> bool {
        false
    }
}
