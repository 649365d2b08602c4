//! The locks of a group's keys, and the state that they protect.
//!
//! In a group of several devices, a key's hash selects its stripe. In a group of one device, the
//! store decides, and stripes only exclude walks over all keys and moving keys. There each thread
//! has its own stripe: threads do not share a lock's cache line, and an exclusive lock of a key
//! acquires all stripes.
//!
//! Invariants
//! 1. The exclusive holder of a key's stripe is the only user of the key; shared holders share it
//!    with each other.
//! 2. Several stripes are acquired in index order.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

use crate::filter::{Building, Filter};
use crate::route::KeyHash;
use crate::{read, write};

/// Number of stripes of a group of several devices (`KEY_STRIPES`) and of one (`THREAD_STRIPES`):
/// powers of two.
const KEY_STRIPES: usize = 1024;
const THREAD_STRIPES: usize = 64;

/// The state that a stripe's lock protects.
pub(crate) struct Stripe {
    /// The last operation on one of its keys that is or may be acknowledged.
    pub(crate) last: u64,
    /// Keys of in-doubt writes, with the sequence number of each write. A later acknowledged
    /// operation decides them.
    pub(crate) in_doubt: Vec<(Vec<u8>, u64)>,
    /// `None` while the set of keys is unknown.
    pub(crate) filter: Option<Arc<Filter>>,
    /// The filter that is being built as a replacement.
    pub(crate) building: Option<Arc<Building>>,
    pub(crate) counts: Arc<StripeCounts>,
}

/// Counters of a stripe, readable without its lock: a write holds the lock while it waits for
/// devices.
#[derive(Default)]
pub(crate) struct StripeCounts {
    /// Keys counted, less keys removed: may be negative (wrapped).
    pub(crate) raised: AtomicU64,
    /// Reads answered without a device.
    pub(crate) filtered: AtomicU64,
}

impl Stripe {
    /// Returns false if the key is certainly absent.
    #[inline]
    pub(crate) fn may_have(&self, hash: KeyHash) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_have(hash))
    }
}

/// A stripe, aligned to avoid false sharing.
#[repr(align(128))]
struct PaddedStripe(RwLock<Stripe>, Arc<StripeCounts>);

/// All stripes of a group.
pub(crate) struct Stripes {
    stripes: Box<[PaddedStripe]>,
    by_thread: bool,
}

/// A stripe that is locked exclusively; with stripes by thread, also all others.
pub(crate) struct ExclusiveStripe<'a> {
    stripe: RwLockWriteGuard<'a, Stripe>,
    _others: Vec<RwLockWriteGuard<'a, Stripe>>,
}

impl Deref for ExclusiveStripe<'_> {
    type Target = Stripe;

    fn deref(&self) -> &Stripe {
        &self.stripe
    }
}

impl DerefMut for ExclusiveStripe<'_> {
    fn deref_mut(&mut self) -> &mut Stripe {
        &mut self.stripe
    }
}

/// Returns the number of this thread, in the order of first calls.
#[inline]
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl Stripes {
    /// Creates the stripes of a group of one device (`by_thread`) or of several. `last` is its last
    /// operation.
    pub(crate) fn new(by_thread: bool, last: u64) -> Self {
        let stripe = || {
            let counts = Arc::<StripeCounts>::default();
            let stripe =
                Stripe { last, in_doubt: Vec::new(), filter: None, building: None, counts: Arc::clone(&counts) };
            PaddedStripe(RwLock::new(stripe), counts)
        };
        let count = if by_thread { THREAD_STRIPES } else { KEY_STRIPES };
        Self { stripes: (0..count).map(|_| stripe()).collect(), by_thread }
    }

    /// Locks a key's stripe, shared.
    #[inline]
    pub(crate) fn lock_shared(&self, hash: KeyHash) -> RwLockReadGuard<'_, Stripe> {
        let at = if self.by_thread { thread_number() % THREAD_STRIPES } else { hash.stripe(KEY_STRIPES) };
        read(&self.stripes[at].0)
    }

    /// Locks a key's stripe exclusively.
    pub(crate) fn lock_exclusive(&self, hash: KeyHash) -> ExclusiveStripe<'_> {
        if self.by_thread {
            let mut all = self.lock_all();
            // There is at least one stripe.
            let stripe = all.swap_remove(0);
            return ExclusiveStripe { stripe, _others: all };
        }
        ExclusiveStripe { stripe: write(&self.stripes[hash.stripe(KEY_STRIPES)].0), _others: Vec::new() }
    }

    /// Returns the index in [`lock_all`](Self::lock_all) of a stripe that covers a key.
    pub(crate) fn index_of(&self, hash: KeyHash) -> usize {
        if self.by_thread { 0 } else { hash.stripe(KEY_STRIPES) }
    }

    /// Locks each stripe exclusively and releases it, one after the other. Calls `visit` with each.
    pub(crate) fn lock_each(&self, mut visit: impl FnMut(&Stripe)) {
        self.stripes.iter().for_each(|stripe| visit(&write(&stripe.0)));
    }

    /// Locks all stripes exclusively: no operation of the group is in progress while they are held.
    pub(crate) fn lock_all(&self) -> Vec<RwLockWriteGuard<'_, Stripe>> {
        self.stripes.iter().map(|stripe| write(&stripe.0)).collect()
    }

    /// Waits until each stripe has been free once, therefore until its earlier holders have ended,
    /// while `waits` returns true. No caller acquires stripes any more.
    pub(crate) fn wait_free(&self, mut waits: impl FnMut() -> bool) {
        for stripe in &self.stripes {
            while matches!(stripe.0.try_write(), Err(TryLockError::WouldBlock)) && waits() {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// Calls `read` with any stripe that is not locked exclusively, for state that is equal in all.
    /// Returns `None` if there is none.
    pub(crate) fn read_any<T>(&self, read: impl FnOnce(&Stripe) -> T) -> Option<T> {
        let free = self.stripes.iter().find_map(|stripe| stripe.0.try_read().ok());
        free.map(|stripe| read(&stripe))
    }

    /// Returns the sum of `count` over all stripes. Waits for the holder of each stripe.
    pub(crate) fn sum_each(&self, count: impl Fn(&Stripe) -> usize) -> usize {
        self.stripes.iter().map(|stripe| count(&read(&stripe.0))).sum()
    }

    /// Returns the sum of a counter over all stripes.
    pub(crate) fn sum(&self, count: impl Fn(&StripeCounts) -> &AtomicU64) -> u64 {
        let counts = self.stripes.iter().map(|stripe| count(&stripe.1).load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }
}
