//! The order of writers: one sequence of numbers, and lock stripes by key.
//!
//! Invariants
//! 1. A write draws its number while it holds the stripe of its key. Before it releases the stripe,
//!    its entry is *published* (in the index of its memtable) or *pending*. Only group commit has
//!    pending entries: the record is in the log, and a leader publishes the entry later, in the
//!    order of the numbers (`tree/group_commit.rs`). The numbers of one key are thus in the order
//!    of its versions.
//! 2. A writer's slot is odd from before it loads the view and draws its number until its entry is
//!    published or pending. If each slot has been even, or has changed, after a point in time, all
//!    writes with an older view or a lower number are published or pending. `commit_all_pending`
//!    publishes the pending ones.
//! 3. Lock order: the lock of the shared slot, then stripes, ascending. A thread that holds one of
//!    them never waits for a memtable flush.
//! 4. The count of snapshots is raised before a snapshot draws its number: a writer that draws a
//!    higher number sees the count.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use lodestore_contract::threads::lock;
use lodestore_media::{MAX_SLOTS, slots_used, thread_slot};

/// Stripes; a power of two.
pub(crate) const STRIPES: usize = 1024;

#[repr(align(128))]
#[derive(Default)]
struct Padded<T>(T);

/// The sequence, the stripes and the slots of the writers.
pub(crate) struct Order {
    last: Padded<AtomicU64>,
    snapshots: Padded<AtomicUsize>,
    stripes: Box<[Mutex<()>]>,
    /// One slot per thread slot, and one that the threads without a slot of their own share.
    slots: Box<[Padded<AtomicU64>]>,
    shared: Mutex<()>,
}

/// A write in progress: its slot is odd.
pub(crate) struct Writing<'a> {
    slot: &'a AtomicU64,
    _shared: Option<MutexGuard<'a, ()>>,
}

impl Drop for Writing<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.store(self.slot.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl Order {
    /// Creates the order of a store. `last`: the highest number ever assigned.
    pub(crate) fn new(last: u64) -> Self {
        Self {
            last: Padded(AtomicU64::new(last)),
            snapshots: Padded::default(),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            slots: (0..=MAX_SLOTS).map(|_| Padded::default()).collect(),
            shared: Mutex::new(()),
        }
    }

    /// Begins a write. Called before the view is loaded and any stripe is locked.
    #[inline]
    pub(crate) fn writing(&self) -> Writing<'_> {
        let slot = thread_slot();
        let shared = (slot >= MAX_SLOTS).then(|| lock(&self.shared));
        let slot = &self.slots[slot.min(MAX_SLOTS)].0;
        let before = slot.fetch_add(1, Ordering::SeqCst);
        debug_assert!(before.is_multiple_of(2), "one write at a time in a slot");
        Writing { slot, _shared: shared }
    }

    pub(crate) fn stripe_of(hash: u64) -> usize {
        (hash >> 40) as usize & (STRIPES - 1)
    }

    /// Locks the stripe of a key.
    #[inline]
    pub(crate) fn lock(&self, hash: u64) -> MutexGuard<'_, ()> {
        lock(&self.stripes[Self::stripe_of(hash)])
    }

    /// Locks the stripes of many keys.
    pub(crate) fn lock_all(&self, hashes: impl Iterator<Item = u64>) -> Vec<MutexGuard<'_, ()>> {
        let mut numbers: Vec<usize> = hashes.map(Self::stripe_of).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.into_iter().map(|number| lock(&self.stripes[number])).collect()
    }

    /// Locks all stripes.
    pub(crate) fn lock_all_stripes(&self) -> Vec<MutexGuard<'_, ()>> {
        self.stripes.iter().map(lock).collect()
    }

    /// Returns the next number. The caller holds the stripe of its key.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.last.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Records a number that was assigned before this process.
    pub(crate) fn raise_last(&self, number: u64) {
        self.last.0.fetch_max(number, Ordering::Relaxed);
    }

    /// Returns the highest number assigned.
    pub(crate) fn last(&self) -> u64 {
        self.last.0.load(Ordering::SeqCst)
    }

    /// Returns whether a snapshot may need overwritten versions. Called after [`Self::next`]
    /// (Invariant 4).
    #[inline]
    pub(crate) fn has_snapshots(&self) -> bool {
        self.snapshots.0.load(Ordering::SeqCst) > 0
    }

    /// Waits until every write in progress is published or pending (Invariant 2).
    /// `Tree::quiesce_writes` also waits for the pending ones. The calling thread has no write in
    /// progress and holds no stripe.
    pub(crate) fn quiesce(&self) {
        let used = slots_used().min(MAX_SLOTS);
        for slot in self.slots[..used].iter().chain(&self.slots[MAX_SLOTS..]) {
            let seen = slot.0.load(Ordering::SeqCst);
            let mut rounds = 0u32;
            while !seen.is_multiple_of(2) && slot.0.load(Ordering::SeqCst) == seen {
                rounds += 1;
                if rounds < 100 { std::hint::spin_loop() } else { std::thread::yield_now() }
            }
        }
    }

    /// Begins a snapshot of a store without group commit. Returns its number: all writes up to it
    /// are published. [`Self::end_snapshot`] ends it.
    pub(crate) fn begin_snapshot(&self) -> u64 {
        self.hold_versions();
        let number = self.last();
        self.quiesce();
        number
    }

    /// Begins a snapshot whose number is drawn later.
    pub(crate) fn hold_versions(&self) {
        self.snapshots.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Adds a holder of a number that is already held.
    pub(crate) fn add_holder(&self) {
        let before = self.snapshots.0.fetch_add(1, Ordering::SeqCst);
        assert!(before > 0, "a snapshot that began");
    }

    pub(crate) fn end_snapshot(&self) {
        let before = self.snapshots.0.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a snapshot that began");
    }

    /// Returns the number of snapshots and scans in progress.
    pub(crate) fn snapshots(&self) -> usize {
        self.snapshots.0.load(Ordering::Relaxed)
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        (size_of_val(&*self.stripes) + size_of_val(&*self.slots) + size_of::<Self>()) as u64
    }
}
