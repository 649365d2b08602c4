//! An open store with its threads, and its end: close, halt, or drop.

use std::sync::{Arc, Mutex};

use lodestore_contract::threads::{ThreadGroup, lock};
use lodestore_contract::{Error, Result};

use crate::db::open_store::Inner;

/// The store with its threads. Scans and snapshots hold it as well.
pub(crate) struct Running {
    pub(crate) inner: Arc<Inner>,
    pub(crate) threads: ThreadGroup,
    /// Held during a close, so that a concurrent close returns only when the store is closed.
    closing: Mutex<()>,
}

impl Running {
    /// Creates the running store, without threads.
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, threads: ThreadGroup::default(), closing: Mutex::new(()) }
    }

    /// Stops operations and threads. Returns whether this call was the first.
    fn stop(&self) -> bool {
        let first = self.inner.open.close();
        self.inner.scheduler.wake();
        if let Some(log) = &self.inner.log {
            log.end_windows();
        }
        self.threads.join();
        if first {
            self.inner.pool.epochs().synchronize();
        }
        first
    }

    pub(crate) fn halt(&self) {
        if self.inner.open.is_foreign() {
            return self.leave_to_parent();
        }
        let _closing = lock(&self.closing);
        if self.stop() {
            // As after a crash: the clean flag stays unset.
            let _ = self.inner.pool.close(false);
        }
    }

    /// Drops nothing in a process that inherited the store by a fork. Its threads do not exist
    /// there, and memory may be in a state that only they could complete.
    #[cold]
    fn leave_to_parent(&self) {
        self.inner.pool.close_inherited_lock();
        std::mem::forget(Arc::clone(&self.inner));
    }

    pub(crate) fn close(&self) -> Result<()> {
        self.inner.open.check_process()?;
        let _closing = lock(&self.closing);
        if !self.stop() {
            return Ok(());
        }
        let inner = &self.inner;
        if inner.read_only {
            return inner.pool.close(false);
        }
        // A poisoned store stays as after a crash.
        let ended = inner.pool.check().and_then(|()| self.flush_before_close());
        let settled = inner.separator.as_ref().map_or(Ok(()), |separator| separator.closing());
        // The reach of the manifest must be durable before the pool records a clean stop.
        let whole = inner.pool.check().and_then(|()| lock(&inner.publisher).mark_reach(&inner.pool)).and(settled);
        let closed = inner.pool.close(whole.is_ok());
        whole.and(ended).and(closed)
    }

    /// Flushes the memtables to tables. Entries that do not fit, or are damaged, stay in their log,
    /// which is durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; [`Error::Corrupt`] if a log is damaged.
    fn flush_before_close(&self) -> Result<()> {
        let inner = &self.inner;
        inner.values.seal_tails(true);
        let flushed = inner.flush_all().inspect_err(|error| inner.report_corruption(error));
        inner.log.as_ref().map_or(Ok(()), |log| inner.commit_all_pending(log))?;
        match flushed {
            Err(Error::Full { .. }) => Ok(()),
            other => other,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.halt();
    }
}
