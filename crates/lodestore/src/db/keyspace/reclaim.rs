//! The keyspaces of an open store, and the thread that removes the records of dropped ones.
//!
//! The thread exists only while there is a dropped keyspace. The thread removes records in pieces,
//! and ends after the present piece when the store is closed. The thread does not keep the store
//! open.
//!
//! Lock order: `reclaiming`, `worker` or the gate of a keyspace, then `catalogue`.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use lodestore_contract::threads::{lock, start_thread};
use lodestore_contract::{Batch, BatchOp, Error, Result, ScanRange, Store, Visit};

use super::catalogue::{Catalogue, Dead};
use super::key::{id_of, prefix_of};
use super::planted::{Fault, Planted};
use super::record::header_key;

/// Records removed together in an engine with an order.
const PIECE_RECORDS: usize = 256;
/// Maximum bytes of keys that a walk over an engine without an order collects.
const COLLECTED_BYTES_MAX: usize = 16 << 20;
/// Memory of a collected key in addition to its own bytes.
const KEY_OVERHEAD_BYTES: usize = 40;

/// The keyspaces of an open store.
pub(in crate::db) struct Keyspaces {
    store: Arc<dyn Store>,
    needs_sync: bool,
    /// The process that opened the store. A forked process has no such thread.
    process: u32,
    /// `None` until it was read.
    catalogue: Mutex<Option<Catalogue>>,
    worker: Mutex<Worker>,
    /// Held while records are removed.
    reclaiming: Mutex<()>,
    is_stopping: AtomicBool,
    planted: Planted,
}

/// The thread that removes records.
#[derive(Default)]
struct Worker {
    /// True until the thread has seen, under this lock, that no dropped keyspace is left.
    is_running: bool,
    thread: Option<JoinHandle<()>>,
}

/// Marks the thread as ended after a panic, so that a later drop restarts it.
struct MarkEndedOnPanic<'a>(&'a Keyspaces);

impl Drop for MarkEndedOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(&self.0.worker).is_running = false;
        }
    }
}

impl Keyspaces {
    /// Reads the catalogue, and continues the reclaim that the last close or a kill interrupted.
    /// A catalogue that cannot be read is an error of the calls that need it.
    pub(in crate::db) fn begin(store: Arc<dyn Store>, needs_sync: bool) -> Arc<Self> {
        Self::begin_planted(store, needs_sync, Planted::default())
    }

    /// As [`Self::begin`], with the changes of the crash explorer.
    pub(in crate::db) fn begin_planted(store: Arc<dyn Store>, needs_sync: bool, planted: Planted) -> Arc<Self> {
        let keyspaces = Arc::new(Self {
            store,
            needs_sync,
            process: std::process::id(),
            catalogue: Mutex::default(),
            worker: Mutex::default(),
            reclaiming: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            planted,
        });
        if keyspaces.has_dead() {
            keyspaces.start_reclaim();
        }
        keyspaces
    }

    /// Calls `work` with the catalogue, under its lock.
    ///
    /// # Errors
    ///
    /// Errors of `work`, and of [`Catalogue::load`].
    pub(in crate::db) fn with_catalogue<T>(&self, work: impl FnOnce(&mut Catalogue) -> Result<T>) -> Result<T> {
        // The engine knows whether the store is closed, or belongs to another process. Damage of
        // this record is an error of `load`.
        match self.store.contains(&header_key()) {
            Ok(_) | Err(Error::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut catalogue = lock(&self.catalogue);
        let catalogue = match &mut *catalogue {
            Some(catalogue) => catalogue,
            none => none.insert(Catalogue::load(Arc::clone(&self.store), self.needs_sync, self.planted.clone())?),
        };
        work(catalogue)
    }

    /// Returns whether the store certainly has no records of other keyspaces than the default one.
    pub(in crate::db) fn has_default_only(&self) -> bool {
        self.with_catalogue(|catalogue| Ok(!catalogue.has_records())).unwrap_or(false)
    }

    fn has_dead(&self) -> bool {
        self.with_catalogue(|catalogue| Ok(!catalogue.dead().is_empty())).unwrap_or(false)
    }

    /// Drops a keyspace. Returns whether there was one. Its records are removed in the background.
    ///
    /// # Errors
    /// As [`Catalogue::drop_named`].
    pub(in crate::db) fn drop_named(self: &Arc<Self>, name: &str) -> Result<bool> {
        let Some(named) = self.with_catalogue(|catalogue| catalogue.find_named(name))? else { return Ok(false) };
        // Slow writers delay only this call.
        let blocked = named.block_writers();
        if self.planted.has(Fault::RemovedBeforeDrop) {
            self.remove_records(&[Dead { slot: 0, id: named.id() }])?;
        }
        let existed = self.with_catalogue(|catalogue| catalogue.drop_named(&named, &blocked))?;
        drop(blocked);
        if existed {
            self.start_reclaim();
        }
        Ok(existed)
    }

    /// Starts the thread unless it runs. If the system refuses the thread, the reclaim waits for
    /// the next drop, the next settle or the next open.
    fn start_reclaim(self: &Arc<Self>) {
        let mut worker = lock(&self.worker);
        if worker.is_running || self.is_stopping() || self.planted.is_stepped() {
            return;
        }
        if let Some(ended) = worker.thread.take() {
            // A panic of the ended thread does not matter for the next one.
            let _ = ended.join();
        }
        let keyspaces = Arc::clone(self);
        if let Ok(thread) = start_thread("lodestore-reclaim", move || keyspaces.run()) {
            *worker = Worker { is_running: true, thread: Some(thread) };
        }
    }

    fn run(&self) {
        let _ended = MarkEndedOnPanic(self);
        loop {
            let reclaimed = self.reclaim();
            let mut worker = lock(&self.worker);
            // A drop marks its slot before it reads `is_running`.
            if reclaimed.is_err() || self.is_stopping() || !self.has_dead() {
                worker.is_running = false;
                return;
            }
        }
    }

    /// Ends the reclaim, and waits for the thread.
    pub(in crate::db) fn stop(&self) {
        if self.process != std::process::id() {
            return;
        }
        self.is_stopping.store(true, Ordering::Release);
        let thread = lock(&self.worker).thread.take();
        if let Some(thread) = thread {
            // The next open continues the reclaim of a thread that panicked.
            let _ = thread.join();
        }
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire) || self.planted.is_paused()
    }

    /// Returns whether a dropped handle closes the store.
    pub(in crate::db) fn closes_store(&self) -> bool {
        !self.planted.is_stepped()
    }

    /// As [`Self::reclaim`], but removes at most `pieces` pieces.
    #[cfg(feature = "testing")]
    pub(in crate::db) fn reclaim_pieces(&self, pieces: usize) -> Result<()> {
        self.planted.limit_pieces(pieces);
        let reclaimed = self.reclaim();
        self.planted.limit_pieces(usize::MAX);
        reclaimed
    }

    /// Removes the records of all dropped keyspaces, and then frees their slots.
    ///
    /// # Errors
    ///
    /// Errors of a read and a write. The next start continues the reclaim.
    pub(in crate::db) fn reclaim(&self) -> Result<()> {
        let _one_at_a_time = lock(&self.reclaiming);
        loop {
            let dead = self.with_catalogue(|catalogue| Ok(catalogue.dead()))?;
            if dead.is_empty() || self.is_stopping() {
                return Ok(());
            }
            if self.planted.has(Fault::FreedBeforeRemoval) {
                dead.iter().try_for_each(|dead| self.free_slot(dead))?;
                self.remove_records(&dead)?;
            } else if self.store.capabilities().scan {
                dead.iter().try_for_each(|dead| self.remove_range(dead).and_then(|()| self.free_slot(dead)))?;
            } else {
                self.remove_by_walks(&dead)?;
                dead.iter().try_for_each(|dead| self.free_slot(dead))?;
            }
        }
    }

    /// Removes the records of keyspaces, for planted faults.
    fn remove_records(&self, dead: &[Dead]) -> Result<()> {
        if self.store.capabilities().scan {
            return dead.iter().try_for_each(|dead| self.remove_range(dead));
        }
        self.remove_by_walks(dead)
    }

    /// Frees the slot of a keyspace whose records are removed. If the store is being closed, some
    /// records may be left, and the slot stays dead.
    fn free_slot(&self, dead: &Dead) -> Result<()> {
        if self.is_stopping() { Ok(()) } else { self.with_catalogue(|catalogue| catalogue.free_slot(dead)) }
    }

    /// Removes the records of a keyspace in an engine with an order.
    fn remove_range(&self, dead: &Dead) -> Result<()> {
        let piece_records = self.planted.piece_records(PIECE_RECORDS);
        let mut range = ScanRange::prefix(&prefix_of(dead.id)).limit(piece_records);
        if self.planted.has(Fault::RangeTooWide) {
            range.to = ScanRange::prefix(&prefix_of(dead.id + 1)).to;
        }
        while !self.is_stopping() {
            let mut keys = Vec::new();
            let scanned = self.store.scan_each(&range, &mut |key, _| {
                keys.push(key.to_vec());
                Visit::More
            });
            if let Some(last) = keys.last() {
                range.from = Bound::Excluded(last.clone());
            }
            let is_last = keys.len() < piece_records;
            self.remove(keys)?;
            match scanned {
                // The walk skips damage, and a scan does not.
                Err(Error::Corrupt { .. }) => return self.remove_by_walks(std::slice::from_ref(dead)),
                scanned => scanned?,
            };
            if is_last {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Removes the records of keyspaces by walks over the whole store. One walk suffices if the
    /// keys need at most [`COLLECTED_BYTES_MAX`].
    ///
    /// # Errors
    /// Errors of a read and a write. After [`Error::Corrupt`] the records without damage are
    /// removed.
    fn remove_by_walks(&self, dead: &[Dead]) -> Result<()> {
        let piece_records = self.planted.piece_records(PIECE_RECORDS);
        let ids: BTreeSet<u32> = dead.iter().map(|dead| dead.id).collect();
        while !self.is_stopping() {
            let (mut keys, mut bytes) = (Vec::new(), 0);
            let walked = self.store.for_each(&mut |key, _| {
                if id_of(key).is_some_and(|id| ids.contains(&id)) {
                    bytes += key.len() + KEY_OVERHEAD_BYTES;
                    keys.push(key.to_vec());
                }
                if bytes > COLLECTED_BYTES_MAX || self.is_stopping() { Visit::Stop } else { Visit::More }
            });
            let is_last = bytes <= COLLECTED_BYTES_MAX;
            while !keys.is_empty() && !self.is_stopping() {
                let piece = keys.split_off(keys.len().saturating_sub(piece_records));
                self.remove(piece)?;
            }
            walked?;
            if is_last {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Removes records, in one batch if the engine has batches.
    fn remove(&self, keys: Vec<Vec<u8>>) -> Result<()> {
        let removed = self.remove_together(&keys);
        if !keys.is_empty() {
            self.planted.count_piece();
        }
        removed
    }

    fn remove_together(&self, keys: &[Vec<u8>]) -> Result<()> {
        if self.store.capabilities().batch {
            let delete = |key: &Vec<u8>| BatchOp::Delete { key: key.clone() };
            match self.store.write(&Batch { ops: keys.iter().map(delete).collect() }) {
                // A full store accepts single deletes.
                Err(Error::Full { .. } | Error::DramBudget { .. }) => {}
                written => return written,
            }
        }
        let mut keys = keys.iter().take_while(|_| !self.is_stopping());
        keys.try_for_each(|key| self.store.delete(key).map(|_| ()))
    }
}
