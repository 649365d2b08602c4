//! Group commit on media whose fence writes pages (ordinary files): one log that all threads share,
//! and how it becomes durable.
//!
//! Syncing a file costs the same for one record as for a hundred. All threads therefore append to
//! one log, and one thread, the leader, syncs for all waiting writers ([`lodestore_index::group`]).
//! On byte-addressable media each thread has its own log, and this module is not used.
//!
//! **`power`**. Persist order of a write:
//! 1. The writer stores its record under the stripe of its key.
//! 2. The leader of its group flushes the group's ranges. **Fence: the group is durable.**
//! 3. The leader stores the end mark after the group's last record, if that record is still the
//!    last one of the log.
//! 4. The leader publishes the group's entries in the index, in the order of their numbers.
//! 5. The write returns.
//!
//! No reader sees an entry that a crash could lose. The sync is usually outside every lock, so a
//! hot key gets as many writes per sync as it has writers. Some syncs happen under locks:
//! * A record that does not fit into its segment: all earlier records are synced under the stripe
//!   and `append_lock`.
//! * A large value: its own sync, under the stripe (`values/writer.rs`).
//! * A read-modify-write that found unpublished writes in its stripe again after
//!   `STRIPE_RELEASES_MAX` releases of the stripe. It then waits with the stripe held.
//! * A batch with conditions, and values that GC moves: both wait with their stripes held.
//!
//! **`interval`**. A write is stored, published and answered at once. A thread syncs the gathered
//! writes twice per window. A crash leaves a prefix of the writes in log order
//! (`wal/writer/shared.rs`, Invariant 1), which is an order in which the writes can have happened.
//!
//! Invariants
//! 1. Sequence numbers are drawn in log order, under `append_lock`. The active memtable also
//!    changes under `append_lock`. All numbers of a memtable are therefore below all numbers of the
//!    next one, and the durable writes are a prefix by number.
//! 2. `power`: only the leader publishes. The published writes are the durable ones: all numbers up
//!    to `group.done()`. Above it only numbers of the group that is being published may be visible;
//!    the group ends at `publishing`.
//! 3. `power`: a write that reads first reads after all numbers of its stripe are published. The
//!    stripe is held from the read until the record is stored.
//! 4. If a group cannot be synced, the pool is poisoned before any writer is notified. Neither this
//!    group nor a later one is published.
//! 5. Lock order: stripes, `append_lock`, the log; `batch` is separate. A leader blocks only on
//!    `batch`, so a thread that holds a stripe or `append_lock` may wait for a leader.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, PoisonReason, Result};
use lodestore_media::MediumKind;

use crate::memtable::Memtable;
use crate::planted;
use crate::tree::Tree;
use crate::tree::counts::Counts;
use crate::tree::sequence::Order;
use crate::wal::shared_log::{self, Gathered};
use crate::wal::writer::shared::{Positions, RecordContent, Stored};

/// The log that all threads share.
pub(crate) type SharedLog = shared_log::SharedLog<Pending>;

/// A write of a group, not yet published.
pub(crate) struct Pending {
    pub(crate) memtable: Arc<Memtable>,
    pub(crate) positions: Positions,
}

/// How often a write that reads first releases its stripe to wait for other writes in it. After
/// that it waits with the stripe held, so that it cannot starve.
const STRIPE_RELEASES_MAX: u32 = 2;

impl Tree {
    /// Returns the shared log if writes wait for their group.
    #[inline]
    pub(crate) fn group_log(&self) -> Option<&SharedLog> {
        self.log.as_ref().filter(|log| log.waits_for_sync())
    }

    /// Appends one operation on a key whose stripe is held. Its entry is published with its group,
    /// or at once with `interval`.
    pub(crate) fn apply_shared(&self, log: &SharedLog, op: &crate::wal::entry::Op<'_>, hash: u64) -> Result<()> {
        self.store_shared(log, RecordContent::One(op), std::iter::once(hash)).map(|_| ())
    }

    /// Appends a batch with the stripes of its keys held. Returns its number. `frees_space`: the
    /// batch frees space and may use the reserve.
    pub(crate) fn apply_batch_shared(
        &self,
        log: &SharedLog,
        ops: &[crate::wal::entry::Op<'_>],
        frees_space: bool,
    ) -> Result<u64> {
        self.store_shared(log, RecordContent::Batch(ops, frees_space), ops.iter().map(|op| crate::sst::hash(op.key)))
    }

    fn store_shared(
        &self,
        log: &SharedLog,
        content: RecordContent<'_, '_>,
        hashes: impl Iterator<Item = u64>,
    ) -> Result<u64> {
        let append_lock = log.append_lock();
        self.pool.check()?;
        // The newest memtable: it changes only under `append_lock`.
        let memtable = Arc::clone(&self.view.load().active);
        let (len, mut open) = (content.len(&self.pool)?, memtable.log.lock());
        if !open.fits(len) {
            // A new segment begins only when everything before it in the log is durable.
            if !self.pool.has_fault(planted::SUCCESSOR_EARLY) {
                self.commit_all_pending(log)?;
            }
            open.mark_durable_end(log.group.done());
        }
        let reserved = open.reserve(len, content.frees_space(), &self.reserve)?;
        let number = self.order.next();
        let stored = open.store_shared(&reserved, content, (number, log.group.done()))?;
        drop(open);
        let Stored { positions, range, spare, checks_dram } = stored;
        if checks_dram {
            memtable.mark_full_over_dram_limit();
        }
        if let (RecordContent::Batch(_, true), Positions::Batch(positions), true) =
            (content, &positions, self.separator.is_some())
        {
            memtable.separation.note_moved(positions);
        }
        let early = self.pool.has_fault(planted::PUBLISHED_BEFORE_SYNC);
        let mut write = Some(Pending { memtable, positions });
        log.group.join(number, |gathered| {
            spare.into_iter().flatten().for_each(|spare| gathered.add(spare));
            gathered.add(range);
            if log.waits_for_sync() && !early {
                gathered.writes.extend(write.take());
            }
        });
        drop(append_lock);
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
        match &write.positions {
            Positions::One(at) => self.publish_entry(&write.memtable, *at, keep),
            Positions::Batch(positions) => {
                let _batch = lock(&log.batch);
                self.batches.fetch_add(1, Ordering::SeqCst);
                let published = positions.iter().try_for_each(|at| self.publish_entry(&write.memtable, *at, keep));
                self.batches.fetch_sub(1, Ordering::SeqCst);
                write.memtable.mark_full_over_dram_limit();
                published
            }
        }
    }

    /// Commits a group. Returns whether it succeeded. The calling leader may hold a stripe or
    /// `append_lock`.
    fn commit_group(&self, log: &SharedLog, gathered: &Gathered<Pending>, last: u64) -> bool {
        let pool = &self.pool;
        gathered.ranges.iter().for_each(|(at, len)| pool.flush(*at, *len));
        let is_batch = |write: &Pending| matches!(write.positions, Positions::Batch(_));
        if !(pool.has_fault(planted::BATCH_NOT_LOGGED) && gathered.writes.iter().any(is_batch)) {
            pool.fence();
        }
        if pool.check().is_err() {
            return false;
        }
        Counts::add(&self.counts.commits, 1);
        let _ = self.view.load().memtables().any(|memtable| memtable.log.mark_shared_end(last));
        log.publishing.store(last, Ordering::SeqCst);
        let keep = self.order.has_snapshots();
        let published = gathered.writes.iter().try_for_each(|write| self.publish_write(log, write, keep));
        if let Err(error) = &published {
            pool.poison(PoisonReason::Damage, &format!("{error}: a committed write cannot be read"));
        }
        published.is_ok()
    }

    /// Waits until a number is durable and published. Leads a group if no other thread does.
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

    /// Makes all earlier appends durable and published.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn commit_all_pending(&self, log: &SharedLog) -> Result<()> {
        self.wait_committed(log, log.group.last())
    }

    /// Waits until every write in progress is published. All earlier records of a shared log are
    /// then durable. The calling thread has no write in progress and holds no stripe.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn quiesce_writes(&self) -> Result<()> {
        self.order.quiesce();
        self.log.as_ref().map_or(Ok(()), |log| self.commit_all_pending(log))
    }

    /// Locks the stripe of a key for a write that reads first, once all writes of the stripe are
    /// published.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn lock_published(&self, log: &SharedLog, hash: u64) -> Result<MutexGuard<'_, ()>> {
        let mut tries = 0;
        loop {
            let stripe = self.order.lock(hash);
            let last = log.last_of(Order::stripe_of(hash));
            if log.group.done() >= last || self.pool.has_fault(planted::READS_BEFORE_PENDING) {
                return Ok(stripe);
            }
            if tries == STRIPE_RELEASES_MAX {
                self.wait_committed(log, last)?;
                return Ok(stripe);
            }
            tries += 1;
            drop(stripe);
            self.wait_committed(log, last)?;
        }
    }

    /// Waits until all writes of these stripes are published, for a batch that reads first. The
    /// caller holds the stripes.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn wait_published(&self, log: &SharedLog, hashes: impl Iterator<Item = u64>) -> Result<()> {
        let last = hashes.map(|hash| log.last_of(Order::stripe_of(hash))).max().unwrap_or(0);
        if log.waits_for_sync() { self.wait_committed(log, last) } else { Ok(()) }
    }

    /// Waits until all writes are published. The caller holds all stripes.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn wait_all_published(&self, log: &SharedLog) -> Result<()> {
        let last = log.last.iter().map(|last| last.load(Ordering::Relaxed)).max().unwrap_or(0);
        if log.waits_for_sync() { self.wait_committed(log, last) } else { Ok(()) }
    }

    /// Syncs the gathered writes twice per window until the store is closed.
    pub(crate) fn sync_windows(&self) {
        let Some((log, window)) = self.log.as_ref().and_then(|log| Some((log, log.window?))) else { return };
        while log.pause(window) && self.commit_all_pending(log).is_ok() {}
    }

    /// Returns whether a thread has to sync in each window. A simulation has no clock and needs
    /// none.
    pub(crate) fn has_windows(&self) -> bool {
        self.pool.medium() != MediumKind::Sim && self.log.as_ref().is_some_and(|log| log.window.is_some())
    }
}
