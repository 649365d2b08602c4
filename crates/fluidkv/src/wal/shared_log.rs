//! The log that all threads share, on media whose fence writes pages: its locks, and the writes
//! that wait for their sync. `tree/group_commit.rs` has the protocol of its group commit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lodestore_contract::Durability;
use lodestore_contract::threads::lock;
use lodestore_index::group::Group;
use lodestore_media::{NvPtr, Pool};

/// Syncs per window. Writes stored during a sync wait for the next one.
const SYNCS_PER_WINDOW_COUNT: u32 = 2;

/// The work of a leader.
pub(crate) struct Gathered<W> {
    /// Ranges to flush. Adjacent ranges are merged.
    pub(crate) ranges: Vec<(NvPtr, usize)>,
    /// The writes to publish.
    pub(crate) writes: Vec<W>,
}

impl<W> Default for Gathered<W> {
    fn default() -> Self {
        Self { ranges: Vec::new(), writes: Vec::new() }
    }
}

impl<W> Gathered<W> {
    pub(crate) fn add(&mut self, (at, len): (NvPtr, usize)) {
        match self.ranges.last_mut() {
            Some(last) if last.0.add(last.1 as u64) == at => last.1 += len,
            _ => self.ranges.push((at, len)),
        }
    }
}

/// The state of the log that all threads share. `W` is a write that waits to be published.
pub(crate) struct SharedLog<W> {
    /// `interval`: the writes of this time may be lost. `None`: `power`.
    pub(crate) window: Option<Duration>,
    append_lock: Mutex<()>,
    pub(crate) group: Group<Gathered<W>>,
    pub(crate) publishing: AtomicU64,
    /// The last number of each stripe. Changed with the stripe held.
    pub(crate) last: Box<[AtomicU64]>,
    /// Held while a batch is published.
    pub(crate) batch: Mutex<()>,
    /// Held while a thread waits for the end of a window. True when windows have ended.
    ended: Mutex<bool>,
    end: Condvar,
}

impl<W> SharedLog<W> {
    /// Returns the shared log of a store in this pool, if all threads share one. `number` is
    /// the highest number ever assigned.
    pub(crate) fn of(pool: &Pool, number: u64, stripe_count: usize) -> Option<Self> {
        let window = match pool.durability() {
            Durability::Interval(window) => Some(window),
            Durability::Power | Durability::Process => None,
        };
        pool.syncs_pages().then(|| Self {
            window,
            append_lock: Mutex::default(),
            group: Group::new(number),
            publishing: AtomicU64::new(number),
            last: (0..stripe_count).map(|_| AtomicU64::new(0)).collect(),
            batch: Mutex::default(),
            ended: Mutex::default(),
            end: Condvar::new(),
        })
    }

    /// Returns whether a write returns only after its group is durable: not at `interval`.
    #[inline]
    pub(crate) fn waits_for_sync(&self) -> bool {
        self.window.is_none()
    }

    /// Serializes appends. Also held while the active memtable changes.
    pub(crate) fn append_lock(&self) -> MutexGuard<'_, ()> {
        lock(&self.append_lock)
    }

    /// Returns the number of the last write in a stripe that the caller holds.
    pub(crate) fn last_of(&self, stripe: usize) -> u64 {
        self.last[stripe].load(Ordering::Relaxed)
    }

    /// Waits while a batch is partly in the index.
    pub(crate) fn wait_for_batch(&self) {
        drop(lock(&self.batch));
    }

    /// Returns the number of a new snapshot, whose versions the caller holds already: the highest
    /// published number, which is durable. Waits for no sync.
    pub(crate) fn snapshot_number(&self) -> u64 {
        // A leader that begins to publish later sees the snapshot and keeps the versions that it
        // replaces.
        let publishing = self.publishing.load(Ordering::SeqCst);
        while self.group.done() < publishing && !self.group.is_broken() {
            std::thread::yield_now();
        }
        self.group.done()
    }

    /// Ends all windows: the store is being closed.
    pub(crate) fn end_windows(&self) {
        *lock(&self.ended) = true;
        self.end.notify_all();
    }

    /// Waits for one of the syncs of a window. Returns false once windows have ended.
    pub(crate) fn pause(&self, window: Duration) -> bool {
        let part = (window / SYNCS_PER_WINDOW_COUNT).max(Duration::from_millis(1));
        let ended = lock(&self.ended);
        let waited = self.end.wait_timeout_while(ended, part, |ended| !*ended);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        (size_of::<Self>() + size_of_val(&*self.last)) as u64
    }
}
