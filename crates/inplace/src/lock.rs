//! Locks that stay usable after a panic of their holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Acquires a lock, also after a panic of its holder.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
