//! The bound on the used bytes of the store: `maxmemory` with the policy `noeviction`.
//!
//! One event loop compares the used bytes with the bound ten times a second. The writes of a tenth
//! of a second may therefore exceed the bound; the capacity of the store limits them. A refused
//! command checks again, so a delete frees space for the next write.
//!
//! `clients`: the memory of clients.

pub(crate) mod clients;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lodestore::Db;

use crate::command_specs::spec::{CommandSpec, flag};
use crate::error::{CommandResult, OUT_OF_MEMORY_ERROR};
use crate::runtime::Runtime;

/// Least time between two questions of refused commands.
const RETRY_PERIOD: Duration = Duration::from_millis(1);

/// Whether the store exceeds its bound, and the maximum bytes that it used.
#[derive(Debug)]
pub(crate) struct MemoryBound {
    is_exceeded: AtomicBool,
    /// Most used bytes of all samples since the start.
    peak_bytes: AtomicU64,
    begun: Instant,
    /// Microseconds from `begun` to the last question.
    asked_micros: AtomicU64,
}

impl MemoryBound {
    pub(crate) fn new() -> Self {
        Self {
            is_exceeded: AtomicBool::new(false),
            peak_bytes: AtomicU64::new(0),
            begun: Instant::now(),
            asked_micros: AtomicU64::new(0),
        }
    }

    /// Whether writes that need space are refused.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded.load(Ordering::Relaxed)
    }

    /// Records the used bytes. Returns the maximum of all samples since the start.
    pub(crate) fn note_used(&self, used_bytes: u64) -> u64 {
        self.peak_bytes.fetch_max(used_bytes, Ordering::Relaxed).max(used_bytes)
    }

    /// Compares the used bytes with the bound.
    pub(crate) fn refresh(&self, runtime: &Runtime, db: &Db) {
        let bound = runtime.memory_max();
        let used_bytes = db.stats().space.live;
        self.note_used(used_bytes);
        let is_exceeded = bound != 0 && used_bytes > bound;
        let was_exceeded = self.is_exceeded.swap(is_exceeded, Ordering::Relaxed);
        if is_exceeded != was_exceeded {
            let relation = if is_exceeded { "exceed" } else { "are within" };
            tracing::warn!(maxmemory = bound, "the used bytes of the store {relation} maxmemory");
        }
        self.asked_micros.store(self.elapsed_micros(), Ordering::Relaxed);
    }

    /// Refuses a command that needs space while the store uses more bytes than it may.
    ///
    /// # Errors
    ///
    /// `OOM`.
    pub(crate) fn admit(&self, runtime: &Runtime, db: &Db, spec: &CommandSpec) -> CommandResult {
        if !spec.has(flag::DENY_OOM) || !self.is_exceeded() {
            return Ok(());
        }
        let age = self.elapsed_micros().saturating_sub(self.asked_micros.load(Ordering::Relaxed));
        if u128::from(age) >= RETRY_PERIOD.as_micros() {
            self.refresh(runtime, db);
        }
        if self.is_exceeded() { Err(OUT_OF_MEMORY_ERROR) } else { Ok(()) }
    }

    fn elapsed_micros(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
