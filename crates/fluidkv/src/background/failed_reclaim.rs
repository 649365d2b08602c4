//! An attempt to free space that freed none, remembered until something may have freed space.
//!
//! An attempt to free space flushes and compacts the store, which may need seconds. A full store
//! would do so for each refused put. Instead, the next put is refused at once unless something has
//! changed that may have freed space:
//!
//! * One more log segment is free, in the regions or on the medium, where other processes free
//!   space too.
//! * A flush, a compaction or a collection was done.
//! * The active memtable has one more key: an acknowledged write, such as a delete.
//! * A snapshot, a scan or another reader has ended.
//!
//! A retry is due at once while a table has not been examined for expiring values, and when enough
//! of an examined table has expired. A retry also finds space that none of these changes shows:
//! after [`RETRY_DURATION_FACTOR`] times the duration of the last attempt, and at least after
//! [`RETRY_AFTER_MILLIS`].

use std::sync::Arc;
use std::time::Instant;

use lodestore_contract::now_millis;
use lodestore_contract::threads::lock;

use crate::background::scheduler::Background;
use crate::background::scheduler::{FailedReclaim, Stamp};

/// Least time between two attempts to free space if nothing has changed.
const RETRY_AFTER_MILLIS: u64 = 1000;
/// Time between two attempts, as a multiple of the duration of one, so that they use a small share
/// of a CPU.
const RETRY_DURATION_FACTOR: u64 = 32;

impl Background {
    fn space_stamp(&self) -> Stamp {
        let view = self.view.load();
        Stamp {
            free_bytes: self.pool.space().free + self.reserve.held_bytes() + self.pool.room_on_medium(),
            tasks_done: self.tasks_done(),
            generation: view.active.generation,
            keys: view.active.index.len(),
            snapshots: self.order.snapshots(),
        }
    }

    /// Returns whether the last attempt to free space freed none, and nothing may have freed space
    /// since.
    pub(super) fn is_reclaim_futile(&self) -> bool {
        let Some(failed) = lock(&self.scheduler.failed_reclaim).clone() else { return false };
        let (then, now) = (&failed.stamp, self.space_stamp());
        (now.tasks_done, now.generation, now.keys) == (then.tasks_done, then.generation, then.keys)
            && now.free_bytes < then.free_bytes + self.sizes.segment
            && now.snapshots >= then.snapshots
            && failed.views.iter().all(|view| view.strong_count() > 0)
            && (failed.ended_at..failed.retry_at).contains(&now_millis())
    }

    /// Returns when the next stable table is worth a merge for its expired pairs, in milliseconds
    /// since 1970. Returns 0 while a table has not been examined.
    fn find_next_stale_ms(&self) -> u64 {
        let view = self.view.load();
        let tables = view.ranges.list.iter().flat_map(|range| &range.stable.tables);
        tables.map(|table| table.stale_from.get().copied().unwrap_or(0)).min().unwrap_or(u64::MAX)
    }

    /// Remembers that an attempt that began at `began` freed no space.
    pub(super) fn remember_failed_reclaim(&self, began: Instant) {
        let views = lock(&self.publisher).past_views();
        let took_ms = began.elapsed().as_millis() as u64;
        let ended_at = now_millis();
        let retry_at =
            (ended_at + RETRY_AFTER_MILLIS.max(took_ms * RETRY_DURATION_FACTOR)).min(self.find_next_stale_ms());
        let failed = FailedReclaim { stamp: self.space_stamp(), views, ended_at, retry_at };
        *lock(&self.scheduler.failed_reclaim) = Some(Arc::new(failed));
    }
}
