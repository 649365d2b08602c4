//! The locks of a group's keys, and what they keep.
//!
//! Where several devices vote, a key has the stripe that its hash says. Where one device decides, nothing is to be kept from anybody but a walk over all keys, and a key that moves: there
//! each thread has a stripe of its own, so that threads do not pass a lock's line to and fro, and whoever wants a key alone takes all of them.
//!
//! Invariants
//! 1. Who holds a key's stripe alone shares the key with nobody; who holds it shared, with those who share it.
//! 2. Several stripes are taken in their order.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

use crate::filter::{Building, Filter};
use crate::route::KeyHash;
use crate::{read, write};

/// Stripes of a group of several devices, and of one: powers of two.
const BY_KEY: usize = 1024;
const BY_THREAD: usize = 64;

/// What a stripe's lock keeps.
pub(crate) struct Stripe {
    /// The last operation on one of its keys that is acknowledged, or may be.
    pub(crate) last: u64,
    /// Keys with the last write of each, of which too few said that it stands: nobody knows before a later operation is acknowledged.
    pub(crate) undecided: Vec<(Vec<u8>, u64)>,
    /// None while it is not known what is there.
    pub(crate) filter: Option<Arc<Filter>>,
    /// The one that is being made to take its place.
    pub(crate) building: Option<Arc<Building>>,
    pub(crate) counts: Arc<Counts>,
}

/// What is counted under a stripe, and read without it: a write that waits for its devices holds its stripe.
#[derive(Default)]
pub(crate) struct Counts {
    /// Keys that were counted, less those that were removed: it may be below zero.
    pub(crate) raised: AtomicU64,
    /// Reads that no device was asked for.
    pub(crate) filtered: AtomicU64,
}

impl Stripe {
    /// False where the key is absent for sure.
    #[inline]
    pub(crate) fn may_have(&self, hash: KeyHash) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_have(hash))
    }
}

/// A stripe, far enough from the next one that two processors do not meet in a line.
#[repr(align(128))]
struct Apart(RwLock<Stripe>, Arc<Counts>);

/// All stripes of a group.
pub(crate) struct Stripes {
    stripes: Box<[Apart]>,
    by_thread: bool,
}

/// A stripe that is held alone; and the others, where a thread's is not enough.
pub(crate) struct Alone<'a> {
    stripe: RwLockWriteGuard<'a, Stripe>,
    _others: Vec<RwLockWriteGuard<'a, Stripe>>,
}

impl Deref for Alone<'_> {
    type Target = Stripe;

    fn deref(&self) -> &Stripe {
        &self.stripe
    }
}

impl DerefMut for Alone<'_> {
    fn deref_mut(&mut self) -> &mut Stripe {
        &mut self.stripe
    }
}

/// The number of this thread among those that have asked.
#[inline]
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl Stripes {
    /// Of a group of one device, or of several, whose last operation this is.
    pub(crate) fn new(by_thread: bool, last: u64) -> Self {
        let stripe = || {
            let counts = Arc::<Counts>::default();
            let stripe =
                Stripe { last, undecided: Vec::new(), filter: None, building: None, counts: Arc::clone(&counts) };
            Apart(RwLock::new(stripe), counts)
        };
        let count = if by_thread { BY_THREAD } else { BY_KEY };
        Self { stripes: (0..count).map(|_| stripe()).collect(), by_thread }
    }

    /// A key's stripe, shared.
    #[inline]
    pub(crate) fn share(&self, hash: KeyHash) -> RwLockReadGuard<'_, Stripe> {
        let at = if self.by_thread { thread_number() % BY_THREAD } else { hash.stripe(BY_KEY) };
        read(&self.stripes[at].0)
    }

    /// A key's stripe, alone.
    pub(crate) fn own(&self, hash: KeyHash) -> Alone<'_> {
        if self.by_thread {
            let mut all = self.all();
            // There are some.
            let stripe = all.swap_remove(0);
            return Alone { stripe, _others: all };
        }
        Alone { stripe: write(&self.stripes[hash.stripe(BY_KEY)].0), _others: Vec::new() }
    }

    /// The place in [`all`](Self::all) of a stripe that speaks for a key.
    pub(crate) fn place(&self, hash: KeyHash) -> usize {
        if self.by_thread { 0 } else { hash.stripe(BY_KEY) }
    }

    /// Acquires each stripe alone and frees it again, one after the other. `look` is shown each.
    pub(crate) fn pass(&self, mut look: impl FnMut(&Stripe)) {
        self.stripes.iter().for_each(|stripe| look(&write(&stripe.0)));
    }

    /// All stripes: nothing is on its way through the group while they are held.
    pub(crate) fn all(&self) -> Vec<RwLockWriteGuard<'_, Stripe>> {
        self.stripes.iter().map(|stripe| write(&stripe.0)).collect()
    }

    /// Waits until each has been free once, so that who held it has given it back; as long as `waits`. Nobody takes them any more.
    pub(crate) fn wait_free(&self, mut waits: impl FnMut() -> bool) {
        for stripe in &self.stripes {
            while matches!(stripe.0.try_write(), Err(TryLockError::WouldBlock)) && waits() {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// Looks at one that nobody holds alone, for what all of them have. `None` where there is none.
    pub(crate) fn peek<T>(&self, look: impl FnOnce(&Stripe) -> T) -> Option<T> {
        let free = self.stripes.iter().find_map(|stripe| stripe.0.try_read().ok());
        free.map(|stripe| look(&stripe))
    }

    /// Sums up what `count` returns for each stripe. Waits for the holder of each stripe.
    pub(crate) fn sum_each(&self, count: impl Fn(&Stripe) -> usize) -> usize {
        self.stripes.iter().map(|stripe| count(&read(&stripe.0))).sum()
    }

    /// Sums up a count of all stripes.
    pub(crate) fn sum(&self, count: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        let counts = self.stripes.iter().map(|stripe| count(&stripe.1).load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }
}
