//! The bytes that the clients of all event loops use, for `maxmemory-clients`.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::THREADS_MAX;

/// The memory of the clients of all event loops.
#[derive(Debug)]
pub(crate) struct ClientMemory {
    total: AtomicUsize,
    /// Bytes of the largest client of each event loop, as the loop last saw them.
    largest: [AtomicUsize; THREADS_MAX],
}

impl Default for ClientMemory {
    fn default() -> Self {
        Self { total: AtomicUsize::new(0), largest: [const { AtomicUsize::new(0) }; THREADS_MAX] }
    }
}

impl ClientMemory {
    /// Returns the bytes of all clients.
    pub(crate) fn total(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Counts the change of a client's bytes.
    pub(crate) fn replace(&self, before: usize, after: usize) {
        if after > before {
            self.total.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.total.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// Notes that a loop has a client of this size.
    pub(crate) fn note_client(&self, own: usize, bytes: usize) {
        self.largest[own].fetch_max(bytes, Ordering::Relaxed);
    }

    /// Replaces the size of a loop's largest client. Returns whether no other loop has a larger
    /// one.
    pub(crate) fn set_largest(&self, own: usize, bytes: usize) -> bool {
        self.largest[own].store(bytes, Ordering::Relaxed);
        self.largest.iter().all(|other| other.load(Ordering::Relaxed) <= bytes)
    }
}
