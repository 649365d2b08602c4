//! The verbs as engines call them; what they do is in `memory.rs`.
//!
//! Writers pass places that they got from the allocator or checked before: a place outside every region is a bug of
//! ours and panics. Readers of places that come from the medium ask [`Pool::bytes`] or [`Pool::contains`] first, which
//! take anything.

use lodestore_contract::Result;

use crate::nvptr::NvPtr;
use crate::pool::Pool;

impl Pool {
    /// Plain stores. The range must be private to the caller (not yet published).
    ///
    /// # Panics
    /// If the range is not inside a region.
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn store(&self, at: NvPtr, bytes: &[u8]) {
        self.memory.store(at, bytes);
    }

    /// Plain stores of a record, given in parts: no flush. Same rule and same panic as [`Self::store`].
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn store_parts(&self, at: NvPtr, parts: &[&[u8]]) {
        self.memory.store_parts(at, parts);
    }

    /// Stores a record, given in parts, and flushes it on the way: it is durable after the caller's next fence. Same rule
    /// and same panic as [`Self::store`].
    ///
    /// Where lines are flushed one by one, the whole lines of a long record go past the cache (non-temporal stores) and its
    /// edge lines are stored and written back; a short one is stored and written back. Where nothing is flushed, these
    /// are plain copies. Records that begin and end on lines of 64 bytes are the cheapest.
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn store_durable(&self, at: NvPtr, parts: &[&[u8]]) {
        self.memory.store_durable(at, parts);
    }

    /// Stores zeros. Same rule and same panic as [`Self::store`].
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn zero(&self, at: NvPtr, len: usize) {
        self.memory.zero(at, len);
    }

    /// Begins to make the range durable; the caller's next [`Self::fence`] ends it.
    ///
    /// # Panics
    /// If the range is not inside a region.
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn flush(&self, at: NvPtr, len: usize) {
        self.memory.flush(at, len);
    }

    /// What the calling thread flushed is durable when this returns, and ordered before all its later stores. On an
    /// ordinary file of durability power a failure shows in [`Self::check`].
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn fence(&self) {
        self.memory.fence();
    }

    /// As [`Self::fence`], and says whether all went well: for whoever stores next what relies on it.
    ///
    /// # Errors
    /// As [`Self::check`]: this sync has failed, or one before.
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn fence_checked(&self) -> Result<()> {
        self.memory.fence();
        self.check()
    }

    /// An atomic load (acquire) of the 8-aligned word at `at`.
    ///
    /// # Panics
    /// If it is not inside a region, or not aligned.
    #[inline]
    pub fn load_u64(&self, at: NvPtr) -> u64 {
        self.memory.load_u64(at)
    }

    /// An atomic store (release) of the 8-aligned word at `at`: what was stored before is seen by whoever loads it.
    ///
    /// # Panics
    /// As [`Self::load_u64`].
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn publish_u64(&self, at: NvPtr, value: u64) {
        self.memory.publish_u64(at, value);
    }

    /// Swaps the 8-aligned word at `at`, if it is `old`. Atomic for all threads, and whole after power loss.
    ///
    /// # Errors
    /// The word that was found, where it is not `old`.
    ///
    /// # Panics
    /// As [`Self::load_u64`].
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn cas_u64(&self, at: NvPtr, old: u64, new: u64) -> Result<(), u64> {
        self.memory.cas_u64(at, old, new)
    }

    /// An atomic load of the 16-aligned pair of words at `at`.
    ///
    /// # Panics
    /// As [`Self::load_u64`].
    #[inline]
    pub fn load_u128(&self, at: NvPtr) -> (u64, u64) {
        self.memory.load_u128(at)
    }

    /// Swaps the 16-aligned pair of words at `at` by one `cmpxchg16b`, if it is `old`. Atomic for all threads; after
    /// power loss it may be half done, the first word before the second.
    ///
    /// # Errors
    /// The pair that was found, where it is not `old`.
    ///
    /// # Panics
    /// As [`Self::load_u64`].
    #[inline]
    #[cfg_attr(feature = "sim", track_caller)]
    pub fn cas_u128(&self, at: NvPtr, old: (u64, u64), new: (u64, u64)) -> Result<(), (u64, u64)> {
        self.memory.cas_u128(at, old, new)
    }

    /// Bytes of a published, immutable range; `None` where the range is not inside a region, whatever `at` and `len` are.
    #[inline]
    pub fn bytes(&self, at: NvPtr, len: usize) -> Option<&[u8]> {
        self.memory.bytes(at, len)
    }

    /// As [`Self::bytes`], after the emulated read latency (`read_ns`) of the medium: for the first access to a record.
    #[inline]
    pub fn bytes_first_read(&self, at: NvPtr, len: usize) -> Option<&[u8]> {
        self.memory.bytes_first_read(at, len)
    }

    /// Whether the range is inside a region: then no verb panics on it, given its alignment.
    #[inline]
    pub fn contains(&self, at: NvPtr, len: usize) -> bool {
        self.memory.regions.address(at, len).is_some()
    }

    /// Asks the processor for the range's lines, the first 8 of them; any place is taken.
    #[inline]
    pub fn prefetch(&self, at: NvPtr, len: usize) {
        self.memory.prefetch(at, len);
    }
}
