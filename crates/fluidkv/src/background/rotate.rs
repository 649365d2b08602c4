//! Freezes the active memtable and puts a new one in its place. Writers wait here if too many
//! memtables wait for their flush.

use std::sync::Arc;

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Result};

use super::WRITER_WAIT_TIMEOUT;
use crate::background::scheduler::{Background, Due};
use crate::space::sizes::MEMTABLES_MAX;
use crate::tree::counts::Counts;
use crate::tree::group_commit::SharedLog;
use crate::version::publish::publish;

/// The result of an attempt to freeze a memtable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rotation {
    Done,
    /// The memtable is frozen already, or empty.
    NotDue,
    /// The maximum number of memtables waits.
    AtLimit,
}

/// Returns the error of a failed flush for a writer. Damage is that of another key.
fn flush_error(error: Error) -> Error {
    match error {
        Error::Corrupt { place, what, .. } => {
            Error::corrupt(place, format!("writes are refused, because a memtable cannot be flushed: {what}"))
        }
        other => other,
    }
}

impl Background {
    /// Freezes a memtable that is full. If too many wait already, stalls writers.
    pub(crate) fn freeze(&self, generation: u64) {
        let rotation = self.rotate_or(generation, || self.scheduler.throttle.stall());
        if self.options.workers == 0 && rotation == Rotation::Done {
            self.run_due_tasks(Due::Needed);
        }
    }

    /// Waits until a memtable has been flushed.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Poisoned`]; [`Error::Full`] if the flush lacked space,
    /// [`Error::Corrupt`] if it met damage, [`Error::Io`] if the operating system refused an
    /// operation.
    pub(crate) fn wait_until_flushed(&self) -> Result<()> {
        loop {
            let mut busy = lock(&self.scheduler.busy);
            if !self.scheduler.throttle.is_stalled() {
                return Ok(());
            }
            self.open.check()?;
            self.pool.check()?;
            if !busy.flushing
                && let Some(error) = busy.failures.take_flush_error()
            {
                return Err(flush_error(error));
            }
            let seen = busy.changes;
            drop(busy);
            if self.options.workers == 0 {
                // The store has no workers: this thread does it, unless another writer does so now.
                self.run_due_tasks(Due::Needed);
            }
            self.scheduler.wait_for_change(seen, WRITER_WAIT_TIMEOUT);
        }
    }

    /// Freezes the active memtable if it has this generation and is not empty, and puts a new one
    /// in its place. If the maximum number of memtables waits, calls `at_limit` instead, still
    /// under the publisher's lock. The caller holds no stripe and has no write in progress.
    pub(crate) fn rotate_or(&self, generation: u64, at_limit: impl FnOnce()) -> Rotation {
        let mut publisher = lock(&self.publisher);
        let view = self.view.load();
        if view.active.generation != generation || view.active.is_empty() {
            return Rotation::NotDue;
        }
        if view.frozen.len() as u64 >= MEMTABLES_MAX - 1 {
            at_limit();
            return Rotation::AtLimit;
        }
        let mut frozen = Vec::with_capacity(view.frozen.len() + 1);
        frozen.push(Arc::clone(&view.active));
        frozen.extend(view.frozen.iter().cloned());
        Counts::add(&self.counts.logged_bytes, view.active.log_bytes());
        let count = frozen.len();
        // An append goes to the active memtable, never to an older one.
        let append_lock = self.log.as_ref().map(SharedLog::append_lock);
        let fresh = self.new_memtable(generation + 1, &publisher);
        publish(&self.view, &mut publisher, fresh, frozen);
        drop(append_lock);
        view.active.log.flush_ends();
        self.scheduler.set_frozen(count);
        Rotation::Done
    }

    /// Like [`Self::rotate_or`], for the memtable that is active now.
    pub(crate) fn rotate(&self) -> Rotation {
        let generation = self.view.load().active.generation;
        self.rotate_or(generation, || ())
    }
}
