//! Freezes the active memtable and puts a new one in its place.

use std::sync::Arc;

use crate::background::scheduler::Background;
use crate::locks::lock;
use crate::space::sizes::MEMTABLES_MAX;
use crate::tree::counts::Counts;
use crate::tree::shared_log::SharedLog;
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

impl Background {
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
