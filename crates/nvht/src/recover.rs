//! From opening to a whole store, while gets and puts are served.
//!
//! Before `open` returns, whatever the size: armed batch logs are redone (`media`), roots are checked against the headers of their tables,
//! and what a cut-off step of growing left is cleared (`resize.rs`). What is volatile and must be made anew after a crash is the
//! allocator's occupancy, and the count of keys. Behind: each stripe's part is walked with the stripe held; its lines are made durable
//! where a killed process may have left them unflushed; each record is checked and marked; what is wrong is reported, and kept where it
//! is. Then the allocator frees what was not marked. Idempotent: a crash in it changes nothing for the next open.
//!
//! After a clean stop the allocator reads its occupancy back and the roots have the counts: nothing is walked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Event, RecoveryState, Result};
use lodestore_media::{Mutant, NvPtr};

use crate::inner::{Inner, lock};
use crate::layout::{CURSOR_END, LINE_SLOTS, Root, Slot, reach_is_whole, reach_word};
use crate::record::{HEADER, Record};
use crate::stripe::{STRIPES, fractions_of};
use crate::table::{AHEAD, READ_AHEAD, Table};
use crate::walk::Found;

/// How far recovery is; shared with whoever waits for it.
pub(crate) struct Recovery {
    opened: Instant,
    ready_after: Mutex<Duration>,
    phase: Mutex<Phase>,
    changed: Condvar,
    stripes_done: AtomicU64,
    stripes: u64,
    keys: AtomicU64,
    corrupt: AtomicU64,
    left_out: AtomicU64,
    cancelled: AtomicBool,
    /// Some extent of a table could not be marked, so that what seems free may not be.
    pub(crate) unsure: AtomicBool,
}

#[derive(Debug, Clone)]
enum Phase {
    Running,
    Done(Duration),
    Failed(String),
}

impl Recovery {
    pub(crate) fn new(opened: Instant, partitions: usize) -> Self {
        Self {
            opened,
            ready_after: Mutex::new(Duration::ZERO),
            phase: Mutex::new(Phase::Running),
            changed: Condvar::new(),
            stripes_done: AtomicU64::new(0),
            stripes: (partitions * STRIPES) as u64,
            keys: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            unsure: AtomicBool::new(false),
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

    fn enter(&self, phase: Phase) {
        *lock(&self.phase) = phase;
        self.changed.notify_all();
    }

    /// Waits until everything is rebuilt.
    pub(crate) fn wait_done(&self) -> Result<()> {
        let mut phase = lock(&self.phase);
        loop {
            match &*phase {
                Phase::Running => {}
                Phase::Done(_) => return Ok(()),
                Phase::Failed(cause) => return Err(Error::Poisoned { cause: cause.clone() }),
            }
            phase = self.changed.wait(phase).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(*lock(&self.phase), Phase::Done(_))
    }

    pub(crate) fn state(&self) -> RecoveryState {
        let phase = lock(&self.phase).clone();
        let walked = self.stripes_done.load(Ordering::Relaxed) as f64 / self.stripes as f64;
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

/// Runs recovery to its end and tells how it ended; never panics. `counted`: the roots had the counts of keys.
pub(crate) fn run(inner: &Inner, counted: bool) {
    let outcome = catch_unwind(AssertUnwindSafe(|| rebuild(inner, counted)));
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
    inner.recovery.enter(Phase::Failed(cause));
}

fn rebuild(inner: &Inner, counted: bool) -> Result<()> {
    let allocator = inner.pool.allocator();
    let trusted = counted && (!allocator.is_recovering() || inner.pool.mutant(Mutant::StaleCheckpointTrusted));
    if !trusted {
        walk_all(inner)?;
    } else {
        inner.recovery.keys.store(inner.keys(), Ordering::Relaxed);
        // Whether there are some only a sweep can tell.
        inner.expiring.store(true, Ordering::Relaxed);
    }
    // Where an extent of the tables could not be marked, nothing of the old is freed: the store grows instead.
    if allocator.is_recovering() && !inner.recovery.unsure.load(Ordering::Acquire) {
        allocator.finish_recovery(&inner.pool);
    }
    Ok(())
}

/// Walks all partitions, with as many threads as the options say.
fn walk_all(inner: &Inner) -> Result<()> {
    let partitions = inner.partitions.len();
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<NvPtr>> {
        let mut damaged = Vec::new();
        loop {
            let partition = next.fetch_add(1, Ordering::Relaxed);
            if partition >= partitions {
                return Ok(damaged);
            }
            walk_partition(inner, partition, &mut damaged)?;
        }
    };
    let threads = inner.options.recovery_threads.clamp(1, partitions);
    let shares: Vec<Vec<NvPtr>> = if threads == 1 {
        vec![work()?]
    } else {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let join = |worker: std::thread::ScopedJoinHandle<'_, Result<Vec<NvPtr>>>| {
                worker.join().unwrap_or_else(|_| Err(Error::corrupt("recovery", "a worker panicked")))
            };
            workers.into_iter().map(join).collect::<Result<_>>()
        })?
    };
    // Every line was flushed and fenced by the thread that walked it.
    inner.unsettled.store(false, Ordering::Release);
    for record in shares.iter().flatten() {
        inner.recovery.left_out.fetch_add(1, Ordering::Relaxed);
        keep_damaged(inner, *record);
    }
    Ok(())
}

fn walk_partition(inner: &Inner, partition: usize, damaged: &mut Vec<NvPtr>) -> Result<()> {
    let part = &inner.partitions[partition];
    for stripe in 0..STRIPES {
        if inner.recovery.cancelled.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        let _guard = inner.pool.epochs().pin();
        let (from, to) = fractions_of(stripe);
        let mut held = inner.stripes.lock(partition, stripe);
        let mut keys = 0;
        for (table, from, to) in Inner::tables_of(part, from, to) {
            if inner.is_unsettled() && !inner.pool.mutant(Mutant::EntriesNotSettled) {
                inner.settle_part(table, from, to);
            }
            mend_lines(inner, table, from, to);
            let found = inner.collect(table, from, to, |_| true);
            keys += found.len() as u64;
            take_all(inner, table, &found, damaged);
        }
        held.set_keys(keys);
        drop(held);
        inner.recovery.stripes_done.fetch_add(1, Ordering::Relaxed);
    }
    part.keys_before.store(0, Ordering::Release);
    Ok(())
}

/// Checks and marks the records of a part.
fn take_all(inner: &Inner, table: Table, found: &[Found], damaged: &mut Vec<NvPtr>) {
    for (index, slot) in found.iter().enumerate() {
        if let Some(next) = found.get(index + AHEAD) {
            inner.pool.prefetch(next.slot.record(), READ_AHEAD);
        }
        if let Err(error) = take(inner, table, slot) {
            inner.recovery.corrupt.fetch_add(1, Ordering::Relaxed);
            inner.corrupt(&error);
            damaged.push(slot.slot.record());
        }
        inner.recovery.keys.fetch_add(1, Ordering::Relaxed);
    }
}

/// Checks the record that a slot names, mends the slot where the record shows what it was, and marks the record.
fn take(inner: &Inner, table: Table, found: &Found) -> Result<()> {
    let (pool, at) = (&inner.pool, found.slot.record());
    let record = Record::read(pool, at)?;
    record.check(at)?;
    let hashed = inner.hasher.hash(record.key());
    if found.fraction != Some(hashed.fraction) {
        return Err(Error::corrupt(format!("slot of record {at:?}"), "it names the record of another key"));
    }
    let right = Slot::new(hashed.tag, at, record.expiry().is_some());
    if found.slot != right {
        inner.recovery.corrupt.fetch_add(1, Ordering::Relaxed);
        let error = Error::corrupt(format!("slot of record {at:?}"), "its tag or expiry bit is not that of its record");
        inner.corrupt(&error);
        // The stripe is held. Where another slot names the key, this one is a stray.
        let other = table.find(pool, inner.finding(), hashed, record.key());
        if !other.is_ok_and(|other| other.is_none_or(|other| other.at == found.at)) {
            return Err(error);
        }
        pool.publish_u64(found.at, right.0);
        pool.flush(found.at, 8);
        pool.fence();
    }
    if right.expires() {
        inner.expiring.store(true, Ordering::Relaxed);
    }
    if pool.allocator().is_recovering() && !pool.mutant(Mutant::RecordNotMarked) {
        pool.allocator().mark(pool, at, record.len())?;
    }
    Ok(())
}

/// Frees slots that batches of other opens reserved, which a crash cut off, and makes damaged reaches the longest there are, so that nothing is missed.
fn mend_lines(inner: &Inner, table: Table, from: u64, to: u64) {
    let pool = &inner.pool;
    // The lines behind the last home line are looked at with the last part.
    let last = if to == CURSOR_END { table.all_lines() - 1 } else { table.home((to - 1) as u32) };
    let mut mended = false;
    for line in table.home(from as u32)..=last {
        let words = table.load(pool, line);
        if !reach_is_whole(words[0]) {
            inner.recovery.corrupt.fetch_add(1, Ordering::Relaxed);
            inner.corrupt(&Error::corrupt(format!("line {:?}", table.line(line)), "its reach was changed"));
            if pool.cas_u64(table.line(line), words[0], reach_word(table.probe - 1)).is_ok() {
                pool.flush(table.line(line), 8);
                mended = true;
            }
        }
        for index in 0..LINE_SLOTS {
            let word = words[1 + index];
            let is_left = word != Slot::FREE && word != inner.reserved && !Slot(word).names_record();
            if is_left && pool.cas_u64(table.slot(line, index), word, Slot::FREE).is_ok() {
                pool.flush(table.slot(line, index), 8);
                mended = true;
            }
        }
    }
    if mended {
        pool.fence();
    }
}

/// Keeps the place of a record that is wrong from being handed out under the slot that names it. Right records were marked before, so a
/// position that went astray takes nothing from them.
fn keep_damaged(inner: &Inner, at: NvPtr) {
    let pool = &inner.pool;
    if pool.allocator().is_recovering() {
        let len = Record::read(pool, at).map_or(HEADER, |record| record.len());
        if pool.allocator().mark(pool, at, len).is_err() {
            // Its length may be what is wrong.
            let _ = pool.allocator().mark(pool, at, HEADER);
        }
    }
}

impl Inner {
    /// Stores the counts of keys for the next open. Nothing works any more.
    pub(crate) fn save_counts(&self) {
        for partition in 0..self.partitions.len() {
            let root = Root::of(&self.pool, partition);
            let word = self.keys_of(partition).map_or(0, |keys| root.sealed(keys + 1));
            self.pool.publish_u64(root.keys(), word);
            self.pool.flush(root.keys(), 8);
        }
        self.pool.fence();
    }
}
