//! From opening to a whole store, while gets and puts are served (HiKV, ATC 2017, section 3.5).
//!
//! The truth is the hash index. What is volatile and must be made anew: the tree, and after a crash the allocator's
//! occupancy. Steps, each idempotent, so that a crash in any of them changes nothing for the next open:
//! 1. Before `open` returns: half-done splits are completed (`split.rs`), the generation is raised (sequences and tree
//!    operations of this open are newer than all before).
//! 2. Behind: every segment is walked. Each entry's record is checked (checksum, signature) and marked in the allocator;
//!    its first key bytes and position are collected (`collect.rs`). What is wrong is reported, and kept where it is.
//! 3. The collected are sorted and loaded into the tree in bulk. Changes made meanwhile wait in the backend and are applied after.
//! 4. The allocator frees what was not marked.
//!
//! After a clean stop the sorted run replaces steps 2 and 3 where the allocator has its occupancy read back.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Event, RecoveryState, Result};
use lodestore_media::{Mutant, NvPtr};

use crate::backend::lock;
use crate::collect::walk_all;
use crate::inner::Inner;
use crate::layout::{KIND_RUN, run_word};
use crate::record::TAG_EXPIRY;
use crate::run;

/// How far recovery is; shared with whoever waits for it.
pub(crate) struct Recovery {
    opened: Instant,
    ready_after: Mutex<Duration>,
    phase: Mutex<Phase>,
    changed: Condvar,
    segments: AtomicU64,
    pub(crate) segments_done: AtomicU64,
    pub(crate) keys: AtomicU64,
    corrupt: AtomicU64,
    left_out: AtomicU64,
    pub(crate) cancelled: AtomicBool,
    /// Some extent of the index could not be marked, so that what seems free may not be.
    pub(crate) unsure: AtomicBool,
    /// Extents of the run that was loaded; it is kept until the next clean stop.
    run: Mutex<Vec<NvPtr>>,
}

#[derive(Debug, Clone)]
enum Phase {
    Running,
    TreeBuilt,
    Done(Duration),
    Failed(String),
}

impl Recovery {
    pub(crate) fn new(opened: Instant) -> Self {
        Self {
            opened,
            ready_after: Mutex::new(Duration::ZERO),
            phase: Mutex::new(Phase::Running),
            changed: Condvar::new(),
            segments: AtomicU64::new(0),
            segments_done: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            unsure: AtomicBool::new(false),
            run: Mutex::new(Vec::new()),
        }
    }

    /// Notes that operations are served from now on.
    pub(crate) fn ready(&self) -> Duration {
        let ready = self.opened.elapsed();
        *lock(&self.ready_after) = ready;
        ready
    }

    /// Ends the walk early: the store is being closed.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Counts something that was wrong on the medium.
    pub(crate) fn count_corrupt(&self) {
        self.corrupt.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts entries whose records are in no walk.
    pub(crate) fn count_left_out(&self, entries: usize) {
        self.left_out.fetch_add(entries as u64, Ordering::Relaxed);
    }

    fn enter(&self, phase: Phase) {
        *lock(&self.phase) = phase;
        self.changed.notify_all();
    }

    /// Waits until the tree can be scanned.
    pub(crate) fn wait_tree(&self) -> Result<()> {
        self.wait(|phase| !matches!(phase, Phase::Running))
    }

    /// Waits until everything is rebuilt.
    pub(crate) fn wait_done(&self) -> Result<()> {
        self.wait(|phase| matches!(phase, Phase::Done(_)))
    }

    fn wait(&self, reached: impl Fn(&Phase) -> bool) -> Result<()> {
        let mut phase = lock(&self.phase);
        loop {
            match &*phase {
                Phase::Failed(cause) => return Err(Error::Poisoned { cause: cause.clone() }),
                phase if reached(phase) => return Ok(()),
                _ => {}
            }
            phase = self.changed.wait(phase).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(*lock(&self.phase), Phase::Done(_))
    }

    pub(crate) fn state(&self) -> RecoveryState {
        let phase = lock(&self.phase).clone();
        let total = self.segments.load(Ordering::Relaxed);
        let walked = self.segments_done.load(Ordering::Relaxed) as f64 / total.max(1) as f64;
        RecoveryState {
            done: matches!(phase, Phase::Done(_)),
            share: if matches!(phase, Phase::Done(_)) { 1.0 } else { walked.min(0.99) },
            keys: self.keys.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
            left_out: self.left_out.load(Ordering::Relaxed),
            ready_after: *lock(&self.ready_after),
            took: if let Phase::Done(took) = phase { took } else { Duration::ZERO },
        }
    }
}

/// Runs recovery to its end and tells how it ended; never panics.
pub(crate) fn run(inner: &Inner, clean: bool) {
    let outcome = catch_unwind(AssertUnwindSafe(|| rebuild(inner, clean)));
    match outcome {
        Ok(Ok(())) => {
            let took = inner.recovery.opened.elapsed();
            inner.recovery.enter(Phase::Done(took));
            let state = inner.recovery.state();
            inner.tell(&Event::Recovered { keys: state.keys, corrupt: state.corrupt, took });
        }
        Ok(Err(error)) => fail(inner, error.to_string()),
        Err(_) => fail(inner, "recovery panicked".into()),
    }
}

fn fail(inner: &Inner, cause: String) {
    if !inner.recovery.cancelled.load(Ordering::Acquire) {
        // It tells the owner.
        inner.pool.poison(&cause);
    }
    inner.backend.abandon_rebuild(&cause);
    inner.recovery.enter(Phase::Failed(cause));
}

fn rebuild(inner: &Inner, clean: bool) -> Result<()> {
    let pool = &inner.pool;
    let trusted = clean || pool.mutant(Mutant::StaleCheckpointTrusted);
    let run = if trusted { load_run(inner) } else { None };
    let (sorted, extents, from_walk) = match run {
        Some((positions, extents))
            if !pool.allocator().is_recovering() || pool.mutant(Mutant::StaleCheckpointTrusted) =>
        {
            (positions, extents, false)
        }
        // The occupancy has to be walked for, so the run saves nothing; its extents are not marked.
        _ => (walk_all(inner)?, Vec::new(), true),
    };
    inner.recovery.keys.store(sorted.len() as u64, Ordering::Relaxed);
    if sorted.iter().any(|position| NvPtr::from_raw(*position).tag() & TAG_EXPIRY != 0) {
        inner.expiring.store(true, Ordering::Relaxed);
    }
    let records = &inner.records;
    let threads = inner.options.recovery_threads.max(1);
    let hash = |key: &[u8]| inner.table.place.sign(key).0;
    inner.backend.finish_rebuild(|trees| {
        // A run that is out of order names a record that was changed on the medium since: the walk finds it.
        let loaded = trees.load(records, &sorted, threads, hash);
        if loaded.is_ok() || from_walk {
            return loaded;
        }
        trees.load(records, &walk_all(inner)?, threads, hash)
    })?;
    drop(sorted);
    inner.recovery.enter(Phase::TreeBuilt);
    // Where an extent of the index could not be marked, nothing of the old is freed: the store grows instead.
    if pool.allocator().is_recovering() && !inner.recovery.unsure.load(Ordering::Acquire) {
        pool.allocator().finish_recovery(pool);
    }
    if extents.is_empty() && pool.load_u64(run_word(pool)) != 0 {
        run::name(pool, NvPtr::NULL);
        if !pool.allocator().is_recovering() {
            // A run that could not be read after a clean stop: where its extents are, only their kind tells.
            pool.allocator().free_kind(pool, KIND_RUN);
        }
    }
    *lock(&inner.recovery.run) = extents;
    Ok(())
}

impl Inner {
    /// Stores the sorted run for the next open, unless the one of the last stop is still right. Nothing works any more.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`].
    pub(crate) fn save_run(&self) -> Result<()> {
        let kept = std::mem::take(&mut *lock(&self.recovery.run));
        if !kept.is_empty() && !self.written.load(Ordering::Acquire) {
            return Ok(());
        }
        run::name(&self.pool, NvPtr::NULL);
        run::free(&self.pool, &kept);
        if self.recovery.state().left_out > 0 {
            // A run would make the next open believe that what is missing from it was never there.
            return Ok(());
        }
        if self.options.partitioned_tree {
            // Its trees are loaded one by one and cannot be told whole from a run alone.
            return Ok(());
        }
        let positions = self.positions()?;
        match run::store(&self.pool, &positions) {
            // No room for the run is no failure: the next open walks the index.
            Ok(()) | Err(Error::Full { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The run of the last clean stop; a wrong one is as none.
fn load_run(inner: &Inner) -> Option<(Vec<u64>, Vec<NvPtr>)> {
    run::load(&inner.pool).unwrap_or_else(|error| {
        inner.corrupt(&error);
        None
    })
}

/// Sets how many segments there are to walk.
pub(crate) fn expect_segments(inner: &Inner, segments: u64) {
    inner.recovery.segments.store(segments, Ordering::Relaxed);
}
