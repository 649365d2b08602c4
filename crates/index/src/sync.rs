//! The atomics the tree is built on, gathered in one place so that the models can put their own here.
//!
//! `tests/loom_latch.rs` and `tests/shuttle_tree.rs` compile the same sources against a `sync` module of their own, in
//! which every access is a scheduling point and a [`Mutant`] can be switched on.

pub(crate) use crate::mutant::Mutant;
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

/// Whether a planted fault is on: never, outside the models.
#[inline(always)]
pub(crate) const fn mutant(_which: Mutant) -> bool {
    false
}

/// Waits a little: the first rounds on the core, then by giving it away (the holder may need it).
#[inline]
pub(crate) fn relax(round: u32) {
    if round < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
