//! The engine's own statistics.

use std::sync::atomic::{AtomicU64, Ordering};

use lodestore_contract::{ScrubStats, engine_statistics};

use crate::layout::LINE_SLOTS;
use crate::open_store::Inner;

engine_statistics! {
    /// Statistics of an `nvht` store.
    pub struct NvhtStats {
        /// Slots of all hash tables.
        Gauge Count slots,
        /// Partitions whose table is growing now.
        Gauge Count tables_growing,
        /// Tables that were replaced by a larger one since the open.
        Counter Count tables_grown,
        /// Steps in which writers moved keys to a larger table.
        Counter Count growth_steps,
        /// Keys that were moved to a larger table.
        Counter Count growth_moved_keys,
        /// Longest step of a growth since the open.
        Gauge Nanoseconds growth_longest_step_ns,
        /// Time of all steps of growths.
        Counter Nanoseconds growth_steps_ns,
        /// Steps of a growth that took more than 1 ms.
        Counter Count growth_long_steps,
        /// Bytes of the redo logs of batches.
        Gauge Bytes batch_log_bytes,
        /// Bytes that wait until no reader can see them.
        Gauge Bytes retired_bytes,
        ..scrub: ScrubStats,
    }
}

impl NvhtStats {
    /// Reads the statistics of a store.
    pub(crate) fn of(inner: &Inner) -> Self {
        let tables = inner.partitions.iter().flat_map(|part| [Some(part.current()), part.next()]).flatten();
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Self {
            slots: tables.map(|table| table.lines * LINE_SLOTS as u64).sum(),
            tables_growing: inner.partitions.iter().filter(|part| part.is_growing()).count() as u64,
            tables_grown: load(&inner.growth.tables),
            growth_steps: load(&inner.growth.steps),
            growth_moved_keys: load(&inner.growth.moved),
            growth_longest_step_ns: load(&inner.growth.longest_step_ns),
            growth_steps_ns: load(&inner.growth.all_ns),
            growth_long_steps: load(&inner.growth.over_1_ms),
            batch_log_bytes: inner.logs.medium_bytes(&inner.pool),
            retired_bytes: inner.pool.epochs().waiting_bytes(),
            scrub: inner.scrub.stats(),
        }
    }
}
