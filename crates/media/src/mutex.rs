//! Locking after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also where a thread panicked with the lock: nothing under the locks of this crate panics half-way, and a pool whose writer
/// panicked is poisoned by then.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
