//! What [`queue`](super::queue) takes from the memory model, in one place, so that the model checker's test
//! (`tests/queue_model.rs`) can compile the same source over its own atomics, and over orderings that are wrong.

pub use std::sync::atomic::{AtomicBool, AtomicU64};

/// The orderings that the queue's invariants rest on.
pub mod order {
    pub use std::sync::atomic::Ordering;

    /// A producer hands a filled slot to the consumer (Inv 41).
    pub const FILLED: Ordering = Ordering::Release;
    /// The consumer hands an emptied slot to a producer of the next lap (Inv 41).
    pub const EMPTIED: Ordering = Ordering::Release;
    /// A consumer gives the consumer's side to the next one (Inv 42).
    pub const UNLOCK: Ordering = Ordering::Release;
    /// The consumer says that the work of popped values is done (Inv 43).
    pub const COMPLETED: Ordering = Ordering::Release;
}

/// A cell whose accesses the model checker can see.
#[derive(Debug)]
pub struct Cell<T>(std::cell::UnsafeCell<T>);

impl<T> Cell<T> {
    /// A cell of `value`.
    pub fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Gives `f` the place of the value; whoever calls has it alone.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Asks for the line at `place`, to be written soon.
#[inline]
pub fn prefetch_write<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint that reads and changes nothing (Inv 7).
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
