//! The protocol of epochs without the freed items: a clock, and a seat for each thread.
//!
//! Compiled twice: over the processor's atomics, and over loom's for the model in `model.rs`.
//!
//! Invariants
//! 1. The clock only goes from `e` to `e + 1`, and only if after a full fence every seat was seen
//!    idle or at `e`.
//! 2. A thread reads shared pointers only between `pin` and `unpin`. `pin` puts a full fence
//!    between its announcement and all later reads.
//! 3. An unlinked item is stamped with the clock, after the unlinking and a full fence.
//! 4. An item with stamp `s` is freed by a thread that has read a clock of at least `s + GRACE`.
//!
//! Proof that nothing is freed under a reader (GRACE = 2). Let reader R have pinned and read a
//! pointer to an item that was then unlinked and stamped `s`. R's read preceded the unlinking, so
//! its announcement of some `a <= s` preceded the stamp's fence. To advance the clock from `s + 1`
//! to `s + 2`, a thread must, after a fence, find every seat idle or at `s + 1`. This check comes
//! after the stamp (where the clock read `s`), hence after R's announcement. The check sees `a`,
//! which is neither idle nor `s + 1`, as long as R has not unpinned. The clock therefore does not
//! advance.
//!
//! With GRACE = 1 the check from `s` to `s + 1` may precede R's announcement of `s`: the model must
//! catch this mutant. A stale announcement (the clock advanced between R's read of it and its
//! store) only holds the clock back more.

use super::sync::{AtomicU64, Ordering, announce, fence};

/// Announced by a seat that is not pinned. The clock starts above it.
const IDLE_EPOCH_ID: u64 = 0;

/// The word in which a thread announces its epoch.
pub(super) struct Seat {
    pinned: AtomicU64,
}

impl Seat {
    pub(super) fn new() -> Self {
        Self { pinned: AtomicU64::new(IDLE_EPOCH_ID) }
    }

    /// Returns the announced epoch; `None` if idle.
    pub(super) fn announced(&self) -> Option<u64> {
        Some(self.pinned.load(Ordering::Relaxed)).filter(|epoch| *epoch != IDLE_EPOCH_ID)
    }

    /// Ends the pin.
    #[inline]
    pub(super) fn unpin(&self) {
        self.pinned.store(IDLE_EPOCH_ID, Ordering::Release);
    }
}

/// The epoch. Unlinked items wait until it has advanced by `GRACE` steps.
pub(super) struct Clock<const GRACE: u64> {
    epoch: AtomicU64,
}

impl<const GRACE: u64> Clock<GRACE> {
    pub(super) fn new() -> Self {
        Self { epoch: AtomicU64::new(IDLE_EPOCH_ID + 1) }
    }

    /// Announces the epoch. Before `unpin`, nothing that is linked now is freed.
    #[inline]
    pub(super) fn pin(&self, seat: &Seat) {
        announce(&seat.pinned, self.epoch.load(Ordering::Relaxed));
    }

    /// Returns the stamp of items unlinked before this call.
    pub(super) fn stamp(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.epoch.load(Ordering::Relaxed)
    }

    /// Advances by one step, if no seat prevents it. `seats` is called after the fence.
    pub(super) fn advance<'a, I: Iterator<Item = &'a Seat>>(&self, seats: impl FnOnce() -> I) -> bool {
        let now = self.epoch.load(Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for seat in seats() {
            let pinned = seat.pinned.load(Ordering::Relaxed);
            if pinned != IDLE_EPOCH_ID && pinned != now {
                return false;
            }
        }
        // The reads of threads that have unpinned come before everything after this fence.
        fence(Ordering::Acquire);
        self.epoch.compare_exchange(now, now + 1, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Returns whether items with this stamp can be freed.
    pub(super) fn is_expired(&self, stamp: u64) -> bool {
        self.epoch.load(Ordering::Acquire) >= stamp + GRACE
    }
}
