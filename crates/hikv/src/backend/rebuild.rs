//! Rebuild of the tree in the background of a store that already serves: the gate before scans
//! (`gate.rs`), and the waiting operations.
//!
//! # Invariants
//! * While a queue is *rebuilding*, its consumer moves its operations, in order, to its overflow
//!   list. They count as completed, since no drain returns before the gate opens.
//! * The gate opens after the trees are loaded and every overflow list was applied. With an open
//!   gate a tree therefore holds all completed operations.
//! * An old position is retired when its operation is applied, never when it is moved. Records that
//!   the walk over the hash index saw stay readable until the tree holds their successors.
//! * The walk may have seen the state before or after any operation of that time. The overflow is
//!   therefore applied with upsert semantics: the last operation of each key decides.
//! * A failure opens the gate for good, poisoned: no thread waits for ever.
//!
//! # Threads and locks
//! One thread begins and finishes or abandons a rebuild. In between it acquires no stripe lock of
//! the hash index: a writer that holds one may wait for the rebuild, once
//! [`OVERFLOW_MAX`](super::queues::OVERFLOW_MAX) operations are in the lists.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Result};
use lodestore_index::KeyResolver;

use super::queues::{BATCH_OPS_MAX, Core, Retire};
use super::worker_pool::Backoff;
use crate::trees::Trees;

impl<R: KeyResolver + Retire + Send + Sync + 'static> Core<R> {
    /// Makes operations and scans wait until the finish.
    pub(crate) fn begin_rebuild(&self) {
        self.gate.close();
        for queue in &self.queues {
            let mut state = lock(&queue.state);
            state.rebuilding = true;
            queue.rebuilding.store(true, Ordering::Release);
        }
    }

    /// Loads the trees by `install`, applies the waiting operations, and opens the gate.
    pub(crate) fn finish_rebuild(&self, install: impl FnOnce(&Trees) -> Result<()>) -> Result<()> {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            install(&self.trees)?;
            (0..self.queues.len()).try_for_each(|queue| self.apply_overflow(queue))
        }));
        let failed = match outcome {
            Ok(Ok(())) => {
                self.gate.open();
                return self.gate.check();
            }
            Ok(Err(error)) => error,
            Err(_) => Error::Poisoned { cause: "the rebuild of the ordered index panicked".into() },
        };
        self.gate.poison(&failed.to_string());
        Err(failed)
    }

    /// Applies the overflow of one queue and the operations pushed to it before the call, then
    /// returns it to normal operation.
    fn apply_overflow(&self, number: usize) -> Result<()> {
        let queue = &self.queues[number];
        let pushed = queue.ring.tail();
        let mut backoff = Backoff::default();
        let mut consumer = loop {
            if let Some(consumer) = queue.ring.try_consume() {
                break consumer;
            }
            self.gate.check()?;
            backoff.pause();
        };
        let mut state = lock(&queue.state);
        loop {
            let ops = std::mem::take(&mut state.overflow);
            self.records.pinned(|| self.apply_all(&ops, true));
            self.gate.waiting.fetch_sub(ops.len() as u64, Ordering::Relaxed);
            if consumer.popped() >= pushed {
                break;
            }
            let count = consumer.pop_batch(&mut state.overflow, BATCH_OPS_MAX);
            consumer.complete(count);
            self.gate.waiting.fetch_add(count as u64, Ordering::Relaxed);
            if count == 0 {
                // A producer has claimed its slot and not filled it yet.
                backoff.pause();
            }
        }
        state.rebuilding = false;
        queue.rebuilding.store(false, Ordering::Release);
        Ok(())
    }
}
