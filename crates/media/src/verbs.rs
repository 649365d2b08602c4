//! The verbs as engines call them; `memory.rs` implements them.
//!
//! Writers pass positions from the allocator, or positions that they checked before. A position
//! outside every region is a defect of the caller and panics. Readers of positions from the medium
//! call [`Pool::bytes`] or [`Pool::contains`] first, which accept any value.

use lodestore_contract::Result;

use crate::nvptr::NvPtr;
use crate::pool::Pool;

impl Pool {
    /// Stores bytes plainly. The range must be private to the caller (not yet published).
    ///
    /// # Panics
    /// If the range is not inside a region.
    #[inline]
    #[track_caller]
    pub fn store(&self, at: NvPtr, bytes: &[u8]) {
        self.memory.store(at, bytes);
    }

    /// Stores a record, given in parts, plainly and without a flush. Same rule and same panic as
    /// [`Self::store`].
    #[inline]
    #[track_caller]
    pub fn store_parts(&self, at: NvPtr, parts: &[&[u8]]) {
        self.memory.store_parts(at, parts);
    }

    /// Stores a record, given in parts, and flushes it: the record is durable after the caller's
    /// next fence. Same rule and same panic as [`Self::store`].
    ///
    /// If lines are flushed one by one, the whole lines of a long record bypass the cache
    /// (non-temporal stores). Its edge lines are stored and written back. A short record is stored
    /// and written back. If nothing is flushed, these are plain copies. Records that begin and end
    /// on lines of 64 bytes are the cheapest.
    #[inline]
    #[track_caller]
    pub fn store_and_flush(&self, at: NvPtr, parts: &[&[u8]]) {
        self.memory.store_and_flush(at, parts);
    }

    /// Stores zeros. Same rule and same panic as [`Self::store`].
    #[inline]
    #[track_caller]
    pub fn zero(&self, at: NvPtr, len: usize) {
        self.memory.zero(at, len);
    }

    /// Begins to make the range durable; the caller's next [`Self::fence`] completes it.
    ///
    /// # Panics
    /// If the range is not inside a region.
    #[inline]
    #[track_caller]
    pub fn flush(&self, at: NvPtr, len: usize) {
        self.memory.flush(at, len);
    }

    /// Makes the calling thread's flushed ranges durable before it returns, and orders them before
    /// all its later stores. On a regular file with durability power, [`Self::check`] reports a
    /// failure.
    #[inline]
    #[track_caller]
    pub fn fence(&self) {
        self.memory.fence();
    }

    /// Like [`Self::fence`], and reports a failure, for callers whose next stores rely on the
    /// fence.
    ///
    /// # Errors
    /// Like [`Self::check`]: this sync or an earlier one has failed.
    #[inline]
    #[track_caller]
    pub fn fence_checked(&self) -> Result<()> {
        self.memory.fence();
        self.check()
    }

    /// Loads the 8-aligned word at `at` atomically (acquire).
    ///
    /// # Panics
    /// If the word is not inside a region or not aligned.
    #[inline]
    pub fn load_u64(&self, at: NvPtr) -> u64 {
        self.memory.load_u64(at)
    }

    /// Stores the 8-aligned word at `at` atomically (release): a thread that loads it sees all
    /// earlier stores.
    ///
    /// # Panics
    /// Like [`Self::load_u64`].
    #[inline]
    #[track_caller]
    pub fn publish_u64(&self, at: NvPtr, value: u64) {
        self.memory.publish_u64(at, value);
    }

    /// Swaps the 8-aligned word at `at`, if it is `old`. Atomic for all threads, and whole after
    /// power loss.
    ///
    /// # Errors
    /// The word found, if it is not `old`.
    ///
    /// # Panics
    /// Like [`Self::load_u64`].
    #[inline]
    #[track_caller]
    pub fn cas_u64(&self, at: NvPtr, old: u64, new: u64) -> Result<(), u64> {
        self.memory.cas_u64(at, old, new)
    }

    /// Loads the 16-aligned pair of words at `at` atomically.
    ///
    /// # Panics
    /// Like [`Self::load_u64`].
    #[inline]
    pub fn load_u128(&self, at: NvPtr) -> (u64, u64) {
        self.memory.load_u128(at)
    }

    /// Swaps the 16-aligned pair of words at `at` by one `cmpxchg16b`, if it is `old`. Atomic for
    /// all threads. After power loss it may be half done, the first word before the second.
    ///
    /// # Errors
    /// The pair found, if it is not `old`.
    ///
    /// # Panics
    /// Like [`Self::load_u64`].
    #[inline]
    #[track_caller]
    pub fn cas_u128(&self, at: NvPtr, old: (u64, u64), new: (u64, u64)) -> Result<(), (u64, u64)> {
        self.memory.cas_u128(at, old, new)
    }

    /// Returns the bytes of a published, immutable range. Returns `None` if the range is not inside
    /// a region; accepts any `at` and `len`.
    #[inline]
    pub fn bytes(&self, at: NvPtr, len: usize) -> Option<&[u8]> {
        self.memory.bytes(at, len)
    }

    /// Like [`Self::bytes`], after the medium's emulated read latency (`read_ns`): for the first
    /// access to a record.
    #[inline]
    pub fn bytes_first_read(&self, at: NvPtr, len: usize) -> Option<&[u8]> {
        self.memory.bytes_first_read(at, len)
    }

    /// Returns whether the range is inside a region: no verb then panics on it, if it is aligned.
    #[inline]
    pub fn contains(&self, at: NvPtr, len: usize) -> bool {
        self.memory.regions.address(at, len).is_some()
    }

    /// Prefetches the range's first 8 lines into the processor's cache; accepts any position.
    #[inline]
    pub fn prefetch(&self, at: NvPtr, len: usize) {
        self.memory.prefetch(at, len);
    }
}
