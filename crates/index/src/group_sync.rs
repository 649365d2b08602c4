//! The parts of the standard library that [`group`](super::group) uses. The model checker's test
//! (`tests/loom_group.rs`) compiles the same source with its own locks, and with faults it must
//! detect.

pub use std::sync::atomic::{AtomicU64, Ordering};
pub use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A leader that ends wakes all waiting threads, because any of them may have to lead next.
pub const WAKES_ALL: bool = true;
/// At most one thread leads at a time.
pub const ONE_LEADER: bool = true;
/// A number becomes done when its work ends, not when the work begins.
pub const DONE_AFTER_WORK: bool = true;
