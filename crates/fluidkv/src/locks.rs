//! Locking that survives a panic of an earlier holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also if an earlier holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
