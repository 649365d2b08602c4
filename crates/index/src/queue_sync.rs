//! The parts of the memory model that [`queue`](super::queue) uses. The model checker's test
//! (`tests/queue_model.rs`) compiles the same source with its own atomics and with wrong orderings.

pub use std::sync::atomic::{AtomicBool, AtomicU64};

/// The orderings that the queue's invariants depend on.
pub mod order {
    pub use std::sync::atomic::Ordering;

    /// A producer transfers a filled slot to the consumer (Inv 41).
    pub const FILLED: Ordering = Ordering::Release;
    /// The consumer transfers an emptied slot to a producer of the next lap (Inv 41).
    pub const EMPTIED: Ordering = Ordering::Release;
    /// A consumer releases the consumer side to the next one (Inv 42).
    pub const UNLOCK: Ordering = Ordering::Release;
    /// The consumer publishes that the work of popped values is done (Inv 43).
    pub const COMPLETED: Ordering = Ordering::Release;
}

/// A cell whose accesses the model checker can observe.
#[derive(Debug)]
pub struct Cell<T>(std::cell::UnsafeCell<T>);

impl<T> Cell<T> {
    /// Creates a cell that holds `value`.
    pub fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Calls `f` with a pointer to the value. The caller must have exclusive access.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Prefetches the cache line at `target` for a write.
#[inline]
pub fn prefetch_write<T>(target: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint that reads and changes nothing (Inv 7).
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(target).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = target;
}
