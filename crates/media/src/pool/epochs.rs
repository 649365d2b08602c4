//! The operations of epochs on a pool: retiring, and freeing what no guard protects.

use super::Pool;
use crate::alloc::Freed;
use crate::epoch::Epochs;
use crate::nvptr::NvPtr;

/// Attempts to free, each followed by a yield to other threads, before a store counts as full.
const RECLAIM_ATTEMPTS: u32 = 64;

impl Epochs {
    /// Frees the record once every guard that exists now is gone. The store that unlinked it must
    /// be durable.
    pub fn retire(&self, pool: &Pool, at: NvPtr, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX).min(Freed::EXTENT_FLAG - 1);
        self.retire_on(pool.allocator(), pool, Freed { at, len });
    }

    /// Like [`Self::retire`], for an extent.
    pub fn retire_extent(&self, pool: &Pool, at: NvPtr) {
        self.retire_on(pool.allocator(), pool, Freed { at, len: Freed::EXTENT_FLAG });
    }

    /// Frees everything that can be freed now, of all threads. Frees little while the caller itself
    /// holds a guard.
    pub fn reclaim(&self, pool: &Pool) {
        self.reclaim_on(pool.allocator(), pool, |_| true);
    }

    /// Called before a store counts as full: frees what can be freed. If nothing can, yields to the
    /// threads that hold guards, for a bounded time. If the caller holds a guard itself, items
    /// retired after it stay.
    #[cold]
    pub fn reclaim_patiently(&self, pool: &Pool) {
        let before = self.waiting_bytes();
        for _ in 0..RECLAIM_ATTEMPTS {
            self.reclaim(pool);
            if before == 0 || self.waiting_bytes() < before {
                return;
            }
            std::thread::yield_now();
        }
    }
}
