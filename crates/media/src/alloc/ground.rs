//! What the allocator needs of the pool under it. The pool gives it; tests give a few kilobytes of heap.

use lodestore_contract::Result;

use crate::nvptr::NvPtr;
use crate::region_layout::RegionLayout;

/// The medium, as the allocator sees it.
pub(crate) trait Ground {
    /// Regions that exist, numbered from 0.
    fn regions(&self) -> usize;
    /// The layout of a region that exists.
    fn layout(&self, region: u16) -> Option<RegionLayout>;
    /// Most bytes the store may have, for the text of errors.
    fn capacity(&self) -> u64;
    /// Reads an aligned word.
    fn load(&self, at: NvPtr) -> u64;
    /// How many of the next `words` aligned words, from here on, are zero before one is not.
    fn zero_words(&self, at: NvPtr, words: usize) -> usize {
        (0..words).find(|word| self.load(at.add(*word as u64 * 8)) != 0).unwrap_or(words)
    }
    /// The pool's generation modulo 256, for the stamps of extent words.
    fn stamp(&self) -> u8 {
        0
    }
    /// The generation that the pool's header had when this open found it.
    fn found_generation(&self) -> u64 {
        0
    }
    /// The generation that the pool's header has after a clean stop of this session.
    fn next_generation(&self) -> u64 {
        0
    }
    /// Whether an open goes on when damage may have destroyed the word of an extent (salvage).
    fn tolerates_damage(&self) -> bool {
        false
    }
    /// Whether it may have another owner by now: nothing is given back any more.
    fn is_closed(&self) -> bool {
        false
    }
    /// Stores an aligned word, whole.
    fn put(&self, at: NvPtr, word: u64);
    /// Stores bytes that nobody else reads yet.
    fn store(&self, at: NvPtr, bytes: &[u8]);
    /// Begins to make a range durable.
    fn flush(&self, at: NvPtr, len: usize);
    /// Makes durable what this thread flushed.
    fn fence(&self);
    /// Whether a sync has failed, so that nothing vouches for the bytes that were flushed.
    fn has_failed(&self) -> bool {
        false
    }
    /// Adds a region that has room for an extent of `bytes` bytes, unless there are more than `seen` by now;
    /// [`Error::Full`](lodestore_contract::Error::Full) where the capacity or the medium does not allow it. The newest region, whose
    /// table is zero, and whose place in the pool's header is durable. Called with no lock held.
    fn grow(&self, seen: usize, bytes: u64) -> Result<u16>;
    /// Told, after each hand-out, how many bytes of chunks are free.
    fn hint_free(&self, _bytes: u64) {}
    /// Told that a record of `len` bytes at this place is likely to be stored next.
    fn soon_written(&self, _at: NvPtr, _len: usize) {}
    /// Gives back what waits for readers, as far as that can be. Called with no lock held.
    fn reclaim(&self);
    /// The planted fault `TableNotSettled`.
    fn not_settled(&self) -> bool {
        false
    }
    /// The planted fault `StaleCheckpointTrusted`.
    fn stale_trusted(&self) -> bool {
        false
    }
    /// The planted fault `ExtentWordLate`.
    fn word_late(&self) -> bool {
        false
    }
}
