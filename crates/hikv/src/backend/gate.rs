//! The gate at which scans wait for the end of a rebuild.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Duration;

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Result};

/// The gate. Closed during a rebuild; poisoned for good after a failure.
#[derive(Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    poison: OnceLock<String>,
    mutex: Mutex<()>,
    changed: Condvar,
    /// Operations in the overflow lists.
    pub(crate) waiting: AtomicU64,
}

impl Gate {
    pub(crate) fn check(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(cause) => Err(Error::Poisoned { cause: cause.clone() }),
        }
    }

    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn poison(&self, cause: &str) {
        let _guard = lock(&self.mutex);
        // The first cause is kept.
        let _ = self.poison.set(cause.to_owned());
        self.changed.notify_all();
    }

    pub(crate) fn close(&self) {
        let _guard = lock(&self.mutex);
        self.closed.store(true, Ordering::Release);
    }

    pub(crate) fn open(&self) {
        let _guard = lock(&self.mutex);
        self.closed.store(false, Ordering::Release);
        self.changed.notify_all();
    }

    /// Waits for an open gate.
    pub(crate) fn wait(&self) -> Result<()> {
        if self.is_closed() {
            let mut guard = lock(&self.mutex);
            while self.is_closed() && !self.is_poisoned() {
                guard = self.changed.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        }
        self.check()
    }

    /// Waits a short time for a change, for threads that wait for space in the lists.
    pub(crate) fn wait_briefly(&self) {
        let guard = lock(&self.mutex);
        if self.is_closed() && !self.is_poisoned() {
            drop(self.changed.wait_timeout(guard, Duration::from_millis(5)));
        }
    }
}
