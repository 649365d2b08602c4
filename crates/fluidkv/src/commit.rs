//! The one log that all threads share where a fence writes pages (an ordinary file), and how it becomes durable.
//!
//! A sync of a file costs the same for one record as for a hundred. So there all threads append to one log, and one of them syncs for all who wait
//! ([`lodestore_index::group`]). On byte-addressed media each thread has a log of its own, and nothing of this is used.
//!
//! **`power`**. Persist order of a write: its record is stored, under the stripe of its key, and nothing else is done under that lock; the leader
//! of its group flushes the group's ranges; **fence: the group is durable**; the leader stores the end mark behind its last record, if that is still the log's, and publishes the group's entries in the index, in the order of
//! their numbers; the writer is answered. No reader meets an entry that a crash could take away, and a hot key has as many writes a sync as it has
//! writers.
//!
//! **`interval`**. A write is stored, published and answered. A thread syncs what was gathered twice in each window. A crash leaves a prefix of the
//! writes in the order of the log (`memtable/shared.rs`, Invariant 1), which is an order in which they can have happened.
//!
//! Invariants
//! 1. Numbers are drawn in the order of the log, with `turn` held; the active memtable changes with `turn` held as well. So all numbers of a memtable
//!    are below those of the next, and what is durable is a prefix in numbers.
//! 2. `power`: the leader alone publishes. What is published is what is durable: all numbers up to `group.done()`, and no others but those of the
//!    group that is being published, which ends at `publishing`.
//! 3. `power`: a write that reads first does so when all numbers of its stripe are published, and holds the stripe from then until its record is stored.
//! 4. A group that could not be synced poisons the pool before anybody is told, and is not published; nor is anything behind it.
//! 5. Order of locks: stripes, `turn`, the tail; `batch` by itself. A leader takes `batch` alone, so whoever holds a stripe or `turn` may wait for one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lodestore_contract::{Durability, Error, PoisonReason, Result};
use lodestore_index::group::Group;
use lodestore_media::{MediumKind, Mutant, NvPtr, Pool};

use crate::inner::{Counts, Inner, lock};
use crate::locks::{Order, STRIPES};
use crate::memtable::Memtable;
use crate::memtable::shared::{Log, Places, Stored, What};

/// How often a write that reads first lets go of its stripe to wait for other writes of it; then it keeps the stripe, so that it comes to its turn.
const LETS_GO: u32 = 2;
/// Parts of a window in each of which what was gathered is synced: what is written while a sync goes on waits for the next.
const SYNCS_A_WINDOW: u32 = 2;

/// A write of a group, to be published.
struct Pending {
    memtable: Arc<Memtable>,
    places: Places,
}

/// What a leader does.
#[derive(Default)]
struct Gathered {
    /// What must be flushed, neighbours joined.
    ranges: Vec<(NvPtr, usize)>,
    writes: Vec<Pending>,
}

impl Gathered {
    fn add(&mut self, (at, len): (NvPtr, usize)) {
        match self.ranges.last_mut() {
            Some(last) if last.0.add(last.1 as u64) == at => last.1 += len,
            _ => self.ranges.push((at, len)),
        }
    }
}

/// The log of all threads. See the module.
pub(crate) struct SharedLog {
    /// `interval`: how much may be lost. None: `power`.
    window: Option<Duration>,
    turn: Mutex<()>,
    group: Group<Gathered>,
    publishing: AtomicU64,
    /// The last number of each stripe; changed with the stripe held.
    last: Box<[AtomicU64]>,
    /// Held while a batch is published.
    batch: Mutex<()>,
    /// Held by who waits for the end of a window; true when there are no more.
    ended: Mutex<bool>,
    end: Condvar,
}

impl SharedLog {
    /// The log of a store in this pool, if all threads share one; `number` is the highest that was ever given.
    pub(crate) fn of(pool: &Pool, number: u64) -> Option<Self> {
        let window = match pool.durability() {
            Durability::Interval(window) => Some(window),
            Durability::Power | Durability::Process => None,
        };
        pool.syncs_pages().then(|| Self {
            window,
            turn: Mutex::default(),
            group: Group::new(number),
            publishing: AtomicU64::new(number),
            last: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(),
            batch: Mutex::default(),
            ended: Mutex::default(),
            end: Condvar::new(),
        })
    }

    /// Whether writes are answered when their group is durable, and not before.
    #[inline]
    pub(crate) fn is_group_commit(&self) -> bool {
        self.window.is_none()
    }

    /// Holds back appends: while the active memtable changes.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
    }

    /// The number of the last write of a stripe that the caller holds.
    fn last_of(&self, hash: u64) -> u64 {
        self.last[Order::stripe_of(hash)].load(Ordering::Relaxed)
    }

    /// Waits while a batch is half in the index.
    pub(crate) fn wait_for_batch(&self) {
        drop(lock(&self.batch));
    }

    /// The number of a new snapshot: what is published, which is what is durable. It waits for no sync.
    pub(crate) fn begin_snapshot(&self, order: &Order) -> u64 {
        order.hold_versions();
        // Who begins to publish later sees the snapshot, and keeps what it replaces.
        let publishing = self.publishing.load(Ordering::SeqCst);
        while self.group.done() < publishing && !self.group.is_broken() {
            std::thread::yield_now();
        }
        self.group.done()
    }

    /// No more windows: the store is being closed.
    pub(crate) fn end_windows(&self) {
        *lock(&self.ended) = true;
        self.end.notify_all();
    }

    /// Waits for a part of a window; whether it was not the last.
    fn pause(&self, window: Duration) -> bool {
        let part = (window / SYNCS_A_WINDOW).max(Duration::from_millis(1));
        let ended = lock(&self.ended);
        let waited = self.end.wait_timeout_while(ended, part, |ended| !*ended);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        (size_of::<Self>() + size_of_val(&*self.last)) as u64
    }
}

/// The log as an append sees it.
struct Appending<'a>(&'a Inner, &'a SharedLog);

impl Log for Appending<'_> {
    fn next(&self) -> u64 {
        self.0.order.next()
    }

    fn durable(&self) -> u64 {
        self.1.group.done()
    }

    fn settle(&self) -> Result<()> {
        if self.0.pool.mutant(Mutant::SuccessorEarly) { Ok(()) } else { self.0.settle_log(self.1) }
    }
}

impl Inner {
    /// The shared log, where writes wait for their group.
    #[inline]
    pub(crate) fn group_log(&self) -> Option<&SharedLog> {
        self.log.as_ref().filter(|log| log.is_group_commit())
    }

    /// Appends one operation, of a key whose stripe is held. In the index with its group, or, with `interval`, at once.
    pub(crate) fn apply_shared(&self, log: &SharedLog, op: &crate::entry::Op<'_>, hash: u64) -> Result<()> {
        self.store_shared(log, What::One(op), std::iter::once(hash)).map(|_| ())
    }

    /// Appends a batch, with the stripes of its keys held; its number. `spare`: it makes room, and may take of the reserve.
    pub(crate) fn apply_batch_shared(&self, log: &SharedLog, ops: &[crate::entry::Op<'_>], spare: bool) -> Result<u64> {
        self.store_shared(log, What::Batch(ops, spare), ops.iter().map(|op| crate::table::hash(op.key)))
    }

    fn store_shared(&self, log: &SharedLog, what: What<'_, '_>, hashes: impl Iterator<Item = u64>) -> Result<u64> {
        let turn = log.turn();
        self.pool.check()?;
        // The newest: it changes in a turn of its own.
        let memtable = Arc::clone(&self.view.load().active);
        let stored = memtable.append_shared(what, &Appending(self, log), &self.reserve)?;
        let Stored { number, places, range, spare } = stored;
        if let (What::Batch(_, true), Places::Batch(places), true) = (what, &places, self.separator.is_some()) {
            memtable.apart.note_moved(places);
        }
        let early = self.pool.mutant(Mutant::PublishedBeforeSync);
        let mut write = Some(Pending { memtable, places });
        log.group.join(number, |gathered| {
            spare.into_iter().flatten().for_each(|spare| gathered.add(spare));
            gathered.add(range);
            if log.is_group_commit() && !early {
                gathered.writes.extend(write.take());
            }
        });
        drop(turn);
        hashes.for_each(|hash| log.last[Order::stripe_of(hash)].store(number, Ordering::Relaxed));
        if let Some(write) = write {
            self.publish_write(log, &write, self.order.has_snapshots())?;
        }
        Ok(number)
    }

    fn publish_entry(&self, memtable: &Memtable, at: u64, keep: bool) -> Result<()> {
        let old = memtable.publish_at(at, keep)?;
        self.note_replaced(memtable, old);
        Ok(())
    }

    fn publish_write(&self, log: &SharedLog, write: &Pending, keep: bool) -> Result<()> {
        match &write.places {
            Places::One(at) => self.publish_entry(&write.memtable, *at, keep),
            Places::Batch(places) => {
                let _batch = lock(&log.batch);
                self.batches.fetch_add(1, Ordering::SeqCst);
                let published = places.iter().try_for_each(|at| self.publish_entry(&write.memtable, *at, keep));
                self.batches.fetch_sub(1, Ordering::SeqCst);
                write.memtable.look();
                published
            }
        }
    }

    /// Does the work of a group; whether all went well. Of a leader, which may hold a stripe or the turn.
    fn commit_group(&self, log: &SharedLog, gathered: &Gathered, last: u64) -> bool {
        let pool = &self.pool;
        if !pool.mutant(Mutant::RecordNotFlushed) {
            gathered.ranges.iter().for_each(|(at, len)| pool.flush(*at, *len));
        }
        let is_batch = |write: &Pending| matches!(write.places, Places::Batch(_));
        let unlogged = pool.mutant(Mutant::BatchNotLogged) && gathered.writes.iter().any(is_batch);
        if !pool.mutant(Mutant::NoFenceBeforePublish) && !unlogged {
            pool.fence();
        }
        if pool.check().is_err() && !pool.mutant(Mutant::PublishedUnchecked) {
            return false;
        }
        Counts::add(&self.counts.commits, 1);
        let _ = self.view.load().memtables().any(|memtable| memtable.mark_shared(last));
        log.publishing.store(last, Ordering::SeqCst);
        let keep = self.order.has_snapshots();
        let published = gathered.writes.iter().try_for_each(|write| self.publish_write(log, write, keep));
        if let Err(error) = &published {
            pool.poison(PoisonReason::Damage, &format!("{error}: a write cannot be read back"));
        }
        published.is_ok()
    }

    /// Waits until a number is durable, and published; leads a group where nobody does.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn wait_committed(&self, log: &SharedLog, number: u64) -> Result<()> {
        let waited = log.group.wait(number, |gathered, last| self.commit_group(log, &gathered, last));
        waited.or_else(|_| {
            self.pool.check()?;
            Err(Error::Poisoned { cause: "a group of writes was not committed".into() })
        })
    }

    /// Makes all durable, and published, that was appended so far.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn settle_log(&self, log: &SharedLog) -> Result<()> {
        self.wait_committed(log, log.group.last())
    }

    /// Locks the stripe of a key for a write that reads first, with all writes of the stripe published.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    fn lock_published(&self, log: &SharedLog, hash: u64) -> Result<MutexGuard<'_, ()>> {
        let mut tries = 0;
        loop {
            let stripe = self.order.lock(hash);
            let last = log.last_of(hash);
            if log.group.done() >= last || self.pool.mutant(Mutant::ReadsBeforePending) {
                return Ok(stripe);
            }
            if tries == LETS_GO {
                self.wait_committed(log, last)?;
                return Ok(stripe);
            }
            tries += 1;
            drop(stripe);
            self.wait_committed(log, last)?;
        }
    }

    /// Waits until all writes of these stripes, which the caller holds, are published: for a batch that reads first.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn wait_published(&self, log: &SharedLog, hashes: impl Iterator<Item = u64>) -> Result<()> {
        let last = hashes.map(|hash| log.last_of(hash)).max().unwrap_or(0);
        if log.is_group_commit() { self.wait_committed(log, last) } else { Ok(()) }
    }

    /// Waits until all writes are published. The caller holds all stripes.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn wait_all_published(&self, log: &SharedLog) -> Result<()> {
        let last = log.last.iter().map(|last| last.load(Ordering::Relaxed)).max().unwrap_or(0);
        if log.is_group_commit() { self.wait_committed(log, last) } else { Ok(()) }
    }

    /// Does a write of one key under its stripe, and waits for its group without; `blind`: it reads nothing first.
    pub(crate) fn with_group<T>(
        &self,
        log: &SharedLog,
        (hash, blind): (u64, bool),
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let writing = self.order.writing();
        let stripe = if blind { self.order.lock(hash) } else { self.lock_published(log, hash)? };
        let done = work()?;
        // Its own, if it wrote; else one that is published.
        let number = log.last_of(hash);
        drop((stripe, writing));
        if !self.pool.mutant(Mutant::AnsweredBeforeSync) {
            self.wait_committed(log, number)?;
        }
        Ok(done)
    }

    /// Syncs what was gathered, in each part of a window, until the store is closed.
    pub(crate) fn keep_window(&self) {
        let Some((log, window)) = self.log.as_ref().and_then(|log| Some((log, log.window?))) else { return };
        while log.pause(window) && self.settle_log(log).is_ok() {}
    }

    /// Whether a thread is to sync at the end of each window: not in a simulation, which has no time.
    pub(crate) fn has_windows(&self) -> bool {
        self.pool.medium() != MediumKind::Sim && self.log.as_ref().is_some_and(|log| log.window.is_some())
    }
}
