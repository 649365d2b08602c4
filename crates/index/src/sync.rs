//! The atomics that the tree uses, in one module so that the models can replace them.
//!
//! `tests/loom_latch.rs` and `tests/shuttle_tree.rs` compile the same sources with a `sync` module
//! of their own. In that module every access is a scheduling point and a [`Mutant`] can be switched
//! on.

pub(crate) use crate::mutant::Mutant;
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// Returns whether a planted fault is on: always `false` outside the models.
#[inline(always)]
pub(crate) const fn mutant(_which: Mutant) -> bool {
    false
}

/// Waits briefly: spins in the first rounds, then yields the core (the holder may need it).
#[inline]
pub(crate) fn relax(round: u32) {
    if round < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
