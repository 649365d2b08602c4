//! The protocol of epochs, apart from what is freed: a clock, and a seat for each thread.
//!
//! Compiled twice: over the processor's atomics, and over loom's for the model in `model.rs`.
//!
//! Invariants
//! 1. The clock only goes from `e` to `e + 1`, and only if after a full fence every seat was seen idle or at `e`.
//! 2. A thread reads shared pointers only between `pin` and `unpin`, and `pin` puts a full fence between its announcement
//!    and whatever is read after it.
//! 3. What is unlinked is stamped, after the unlinking and a full fence, with the clock.
//! 4. What carries stamp `s` is freed by who has read a clock of `s + GRACE` or more.
//!
//! Why nothing is freed under a reader (GRACE = 2). Let R have pinned, and read a pointer to what was then unlinked and
//! stamped `s`. Its read came before the unlinking, so its announcement, some `a <= s`, stood before the stamp's fence. For the clock
//! to go from `s + 1` to `s + 2` someone must, after a fence, have found every seat idle or at `s + 1`. That look comes after the
//! stamp (the clock read `s` there), hence after R's announcement: it sees `a`, not idle and not `s + 1`, as long as R has not unpinned. So the
//! clock stays. With GRACE = 1 the look from `s` to `s + 1` may precede R's announcement of `s`: that is the mutant that the model must catch.
//! A stale announcement (the clock went on between R's read of it and its store) only holds the clock back more.

use super::sync::{AtomicU64, Ordering, announce, fence};

/// A seat that is not pinned. The clock starts above it.
const IDLE: u64 = 0;

/// What a thread shows to the others.
pub(super) struct Seat {
    pinned: AtomicU64,
}

impl Seat {
    pub(super) fn new() -> Self {
        Self { pinned: AtomicU64::new(IDLE) }
    }

    /// The epoch announced; `None` when idle.
    pub(super) fn announced(&self) -> Option<u64> {
        Some(self.pinned.load(Ordering::Relaxed)).filter(|epoch| *epoch != IDLE)
    }

    /// Ends what `pin` began.
    #[inline]
    pub(super) fn unpin(&self) {
        self.pinned.store(IDLE, Ordering::Release);
    }
}

/// The epoch. What is unlinked waits until it has gone `GRACE` steps on.
pub(super) struct Clock<const GRACE: u64> {
    epoch: AtomicU64,
}

impl<const GRACE: u64> Clock<GRACE> {
    pub(super) fn new() -> Self {
        Self { epoch: AtomicU64::new(IDLE + 1) }
    }

    /// From here to `unpin`, nothing that is linked now is freed.
    #[inline]
    pub(super) fn pin(&self, seat: &Seat) {
        announce(&seat.pinned, self.epoch.load(Ordering::Relaxed));
    }

    /// The stamp of what was unlinked before this call.
    pub(super) fn stamp(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.epoch.load(Ordering::Relaxed)
    }

    /// One step on, if no seat hinders it. `seats` is asked for after the fence.
    pub(super) fn advance<'a, I: Iterator<Item = &'a Seat>>(&self, seats: impl FnOnce() -> I) -> bool {
        let now = self.epoch.load(Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for seat in seats() {
            let pinned = seat.pinned.load(Ordering::Relaxed);
            if pinned != IDLE && pinned != now {
                return false;
            }
        }
        // What those who have unpinned read, they read before what follows.
        fence(Ordering::Acquire);
        self.epoch.compare_exchange(now, now + 1, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Whether what carries this stamp can be freed.
    pub(super) fn is_over(&self, stamp: u64) -> bool {
        self.epoch.load(Ordering::Acquire) >= stamp + GRACE
    }
}
