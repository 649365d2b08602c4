//! Counters of the server for `INFO` and metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Look-ups of keys by a command. Each command counts once, although it may read repeatedly.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lookups {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// Counters of the server, for `INFO`. `CONFIG RESETSTAT` sets them to 0.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commands: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) refused_connections: AtomicU64,
    /// Clients that `maxmemory-clients` closed.
    pub(crate) evicted_clients: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) errors: AtomicU64,
}

impl Counters {
    fn all(&self) -> [&AtomicU64; 9] {
        let Self {
            commands,
            connections,
            refused_connections,
            evicted_clients,
            hits,
            misses,
            bytes_read,
            bytes_written,
            errors,
        } = self;
        [commands, connections, refused_connections, evicted_clients, hits, misses, bytes_read, bytes_written, errors]
    }

    /// Counts lookups of keys.
    pub(crate) fn count_lookups(&self, lookups: Lookups) {
        let Lookups { hits, misses } = lookups;
        for (counter, number) in [(&self.hits, hits), (&self.misses, misses)] {
            if number > 0 {
                counter.fetch_add(number, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn reset(&self) {
        self.all().iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}
