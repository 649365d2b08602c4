//! The engine's own statistics.

use lodestore_contract::{ScrubStats, engine_statistics};

use crate::open_store::Inner;
#[cfg(feature = "lab")]
use crate::paper_wal::Wal;

engine_statistics! {
    /// Statistics of a `hikv` store.
    pub struct HikvStats {
        /// Operations in the fullest queue of the ordered index now.
        Gauge Count queue_depth,
        /// Most operations that were seen in a queue since the open.
        Gauge Count queue_depth_max,
        /// Operations in all queues that the ordered index lacks now.
        Gauge Count queue_pending,
        /// Operations that queues brought to the ordered index.
        Counter Count queue_applied,
        /// Queued operations that writers and scans applied themselves.
        Counter Count queue_helped,
        /// Writes that found their queue full.
        Counter Count queue_full,
        /// Operations that found another state of the ordered index than expected.
        Counter Count tree_surprises,
        /// Operations that wait for the end of the rebuild now.
        Gauge Count rebuild_waiting,
        /// Backend threads that are active now.
        Gauge Count backend_threads,
        /// Threads left for serving operations; 0 if the number of backend threads is fixed.
        Gauge Count adapt_serving,
        /// Backend threads that the paper's formula asks for; 0 if fixed or not measured yet.
        Gauge Count adapt_formula,
        /// Wake-ups of sleeping backend threads.
        Counter Count backend_wakes,
        /// Times that a backend thread went to sleep.
        Counter Count backend_naps,
        /// Windows in which the load was measured.
        Counter Count adapt_windows,
        /// Windows that changed the number of active backend threads.
        Counter Count adapt_changes,
        /// Bytes that wait until no reader can see them.
        Gauge Bytes retired_bytes,
        /// Bytes of the log of the mode `wal`; 0 without it.
        Gauge Bytes wal_bytes,
        ..scrub: ScrubStats,
    }
}

impl HikvStats {
    /// Reads the statistics of a store.
    pub(crate) fn of(inner: &Inner) -> Self {
        let backend = inner.backend.stats();
        #[cfg(feature = "lab")]
        let wal_bytes = inner.wal.as_ref().map_or(0, |_| Wal::BYTES);
        #[cfg(not(feature = "lab"))]
        let wal_bytes = 0;
        Self {
            queue_depth: backend.depth,
            queue_depth_max: backend.depth_max,
            queue_pending: backend.pending,
            queue_applied: backend.applied,
            queue_helped: backend.helped,
            queue_full: backend.full,
            tree_surprises: backend.surprises,
            rebuild_waiting: backend.rebuild_waiting,
            backend_threads: backend.backends,
            adapt_serving: backend.serving,
            adapt_formula: backend.formula,
            backend_wakes: backend.wakes,
            backend_naps: backend.naps,
            adapt_windows: backend.windows,
            adapt_changes: backend.changes,
            retired_bytes: inner.pool.epochs().waiting_bytes(),
            wal_bytes,
            scrub: inner.scrub.stats(),
        }
    }
}
