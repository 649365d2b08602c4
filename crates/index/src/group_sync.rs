//! What [`group`](super::group) takes from the standard library, in one place, so that the model checker's test (`tests/loom_group.rs`) can
//! compile the same source over its own locks, and with faults that it must refuse.

pub use std::sync::atomic::{AtomicU64, Ordering};
pub use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A leader that has ended wakes everybody who waits, as any of them may have to lead next.
pub const WAKES_ALL: bool = true;
/// Nobody leads while another does.
pub const ONE_LEADER: bool = true;
/// A number is done when the work is, not when it begins.
pub const DONE_BEHIND_WORK: bool = true;
