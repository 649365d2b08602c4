//! The number of keys that expired, for `INFO`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestore::events::Event;

/// Counts the expired keys that the engine of a store removes.
///
/// `hikv` and `nvht` report each sweep as an event. The other engines leave expired keys out when
/// they rewrite their tables, and report nothing. Give the events of the store to
/// [`Self::observe`], and the counter to [`Server::count_expired`](crate::Server::count_expired).
#[derive(Debug, Clone, Default)]
pub struct ExpiredKeys {
    count: Arc<AtomicU64>,
}

impl ExpiredKeys {
    /// Counts the keys of an event. All events but those of sweeps count nothing.
    pub fn observe(&self, event: &Event) {
        if let Event::Swept { keys } = event {
            self.count.fetch_add(*keys, Ordering::Relaxed);
        }
    }

    /// Returns the number of keys that were removed.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn reset(&self) {
        self.count.store(0, Ordering::Relaxed);
    }
}
