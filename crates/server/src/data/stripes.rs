//! Locks over keys, and the keys that clients watch.
//!
//! Invariants:
//!
//! 1. A command that changes a key holds the key's stripe from its first read of the key until the
//!    store has acknowledged the change.
//! 2. `EXEC` and each command that changes several keys hold the stripes of all their keys. They
//!    lock in ascending order. A group of writes (`net/group.rs`) locks the stripes of its first
//!    command in this order too, and waits for no stripe of a further command. Therefore a thread
//!    that waits for a stripe holds lower ones only, and no cycle of waiting threads exists.
//! 3. A command that changes the set of databases holds all stripes.
//! 4. Before a stripe is freed, the flags of all watched keys that changed under it are set.
//!    Therefore `EXEC`, which holds the stripes of its watched keys, sees every acknowledged
//!    change.
//! 5. A command that reads one record needs no stripe, because the store answers a whole value. A
//!    large hash has several records. Its readers compare sequences, as invariant 6 says
//!    (`command/hash_read.rs`), and lock the stripe after some vain attempts.
//! 6. The sequence of a stripe is odd while a command holds it. A command that reads several keys
//!    compares the sequences of their stripes before and after. If all are even and equal, no key
//!    changed in between, so the values are of one moment.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use smallvec::SmallVec;

/// Number of stripes. More stripes than threads make waiting rare; all of them are locked by a
/// flush, so their number is bounded.
const STRIPES: usize = 256;

/// A key of a database.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DatabaseKey {
    /// Number of the database.
    pub(crate) database: usize,
    /// The key.
    pub(crate) key: Vec<u8>,
}

/// The clients that watch keys of one stripe.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    flags: HashMap<DatabaseKey, Vec<Arc<AtomicBool>>>,
}

/// A lock over some keys.
#[derive(Debug, Default)]
struct Stripe {
    watched: Mutex<Watched>,
    /// Raised when the lock is acquired and when it is freed.
    sequence: AtomicU64,
}

/// Locks over all keys of all databases.
#[derive(Debug)]
pub(crate) struct Stripes {
    stripes: Vec<Stripe>,
    hasher: foldhash::fast::RandomState,
    /// Number of watched keys. Writers skip the search for flags while it is 0.
    watched_count: AtomicUsize,
}

/// The index of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StripeIndex(usize);

/// Stripes that a command holds.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    stripes: &'a Stripes,
    /// The first guard: one key needs no allocation.
    first: Option<Guard<'a>>,
    others: Vec<Guard<'a>>,
}

/// A stripe that a command holds.
type Guard<'a> = (StripeIndex, MutexGuard<'a, Watched>);

impl Stripes {
    pub(crate) fn new() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            hasher: foldhash::fast::RandomState::default(),
            watched_count: AtomicUsize::new(0),
        }
    }

    /// Returns the stripe of a key. Equal keys of all databases share a stripe.
    pub(crate) fn index_of(&self, key: &[u8]) -> StripeIndex {
        // The remainder is below the number of stripes.
        StripeIndex((self.hasher.hash_one(key) % STRIPES as u64) as usize)
    }

    /// Locks the stripe of one key.
    pub(crate) fn lock_one(&self, key: &[u8]) -> Held<'_> {
        let index = self.index_of(key);
        Held { stripes: self, first: Some((index, self.lock(index))), others: Vec::new() }
    }

    /// Locks the stripes of several keys.
    pub(crate) fn lock_several(&self, mut indexes: Vec<StripeIndex>) -> Held<'_> {
        indexes.sort_unstable();
        indexes.dedup();
        self.lock_group(indexes.into_iter())
    }

    /// Locks all stripes.
    pub(crate) fn lock_all(&self) -> Held<'_> {
        self.lock_group((0..STRIPES).map(StripeIndex))
    }

    /// Waits for each command that holds a stripe now. The caller holds no stripe.
    ///
    /// A command that acquires a stripe later sees all that the caller did before.
    pub(crate) fn wait_for_holders(&self) {
        (0..STRIPES).for_each(|index| drop(self.lock_group(std::iter::once(StripeIndex(index)))));
    }

    fn lock_group(&self, indexes: impl Iterator<Item = StripeIndex>) -> Held<'_> {
        let others = indexes.map(|index| (index, self.lock(index))).collect();
        Held { stripes: self, first: None, others }
    }

    fn try_lock(&self, index: StripeIndex) -> Option<MutexGuard<'_, Watched>> {
        let stripe = &self.stripes[index.0];
        let guard = match stripe.watched.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        stripe.sequence.fetch_add(1, Ordering::SeqCst);
        Some(guard)
    }

    fn lock(&self, index: StripeIndex) -> MutexGuard<'_, Watched> {
        let stripe = &self.stripes[index.0];
        // A panic of another command leaves flags that are set too often, and never too seldom.
        let guard = stripe.watched.lock().unwrap_or_else(PoisonError::into_inner);
        stripe.sequence.fetch_add(1, Ordering::SeqCst);
        guard
    }

    /// Returns the sequences of stripes, or `None` if a command holds one of them.
    pub(crate) fn sequences(&self, indexes: &[StripeIndex]) -> Option<SmallVec<[u64; 16]>> {
        let read = |index: &StripeIndex| self.stripes[index.0].sequence.load(Ordering::SeqCst);
        indexes.iter().map(read).map(|sequence| sequence.is_multiple_of(2).then_some(sequence)).collect()
    }

    /// Registers a flag that is set when the key changes. The caller holds the key's stripe.
    pub(crate) fn watch(&self, held: &mut Held<'_>, key: DatabaseKey, flag: &Arc<AtomicBool>) {
        let index = self.index_of(&key.key);
        if let Some(watched) = held.watched(index) {
            watched.flags.entry(key).or_default().push(Arc::clone(flag));
            self.watched_count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Removes a flag. The caller holds no stripe.
    pub(crate) fn unwatch(&self, key: &DatabaseKey, flag: &Arc<AtomicBool>) {
        let mut held = self.lock_one(&key.key);
        let Some((_, watched)) = &mut held.first else { return };
        if let Some(flags) = watched.flags.get_mut(key) {
            let before = flags.len();
            flags.retain(|other| !Arc::ptr_eq(other, flag));
            self.watched_count.fetch_sub(before - flags.len(), Ordering::SeqCst);
            if flags.is_empty() {
                watched.flags.remove(key);
            }
        }
    }
}

impl Held<'_> {
    /// Locks further stripes without waiting. Returns whether all are held now. Waiting could
    /// never end: stripes that are held already break the ascending order.
    pub(crate) fn try_extend(&mut self, indexes: impl Iterator<Item = StripeIndex>) -> bool {
        for index in indexes {
            if self.first.iter().chain(&self.others).any(|(held, _)| *held == index) {
                continue;
            }
            let Some(guard) = self.stripes.try_lock(index) else { return false };
            self.others.push((index, guard));
        }
        true
    }

    fn watched(&mut self, index: StripeIndex) -> Option<&mut Watched> {
        self.first
            .iter_mut()
            .chain(&mut self.others)
            .find(|(held, _)| *held == index)
            .map(|(_, watched)| &mut **watched)
    }

    /// Sets the flags of the clients that watch a key, because the key changed.
    pub(crate) fn mark_changed(&mut self, database: usize, key: &[u8]) {
        if self.stripes.watched_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let index = self.stripes.index_of(key);
        if let Some(watched) = self.watched(index)
            && let Some(flags) = watched.flags.get(&DatabaseKey { database, key: key.to_vec() })
        {
            flags.iter().for_each(|flag| flag.store(true, Ordering::SeqCst));
        }
    }

    /// Sets the flags of the clients that watch a key of a database and for which `is_changed`
    /// answers true. The caller holds all stripes.
    pub(crate) fn mark_database_changed(&mut self, database: usize, mut is_changed: impl FnMut(&[u8]) -> bool) {
        for (_, watched) in self.first.iter().chain(&self.others) {
            for (key, flags) in &watched.flags {
                if key.database == database && is_changed(&key.key) {
                    flags.iter().for_each(|flag| flag.store(true, Ordering::SeqCst));
                }
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for (index, guard) in self.first.take().into_iter().chain(self.others.drain(..)) {
            self.stripes.stripes[index.0].sequence.fetch_add(1, Ordering::SeqCst);
            drop(guard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_watched_key_sets_its_flags() {
        let stripes = Stripes::new();
        let flag = Arc::new(AtomicBool::new(false));
        let key = DatabaseKey { database: 0, key: b"a".to_vec() };
        stripes.watch(&mut stripes.lock_one(b"a"), key.clone(), &flag);
        stripes.lock_one(b"b").mark_changed(0, b"b");
        stripes.lock_one(b"a").mark_changed(1, b"a");
        assert!(!flag.load(Ordering::SeqCst));
        stripes.lock_one(b"a").mark_changed(0, b"a");
        assert!(flag.load(Ordering::SeqCst));
        stripes.unwatch(&key, &flag);
        assert_eq!(stripes.watched_count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn further_stripes_are_locked_unless_another_command_holds_them() {
        let stripes = Stripes::new();
        let (first, second) = (StripeIndex(7), StripeIndex(3));
        let mut held = stripes.lock_several(vec![first]);
        assert!(held.try_extend([first, second].into_iter()));
        let mut other = stripes.lock_several(Vec::new());
        assert!(!other.try_extend([second].into_iter()));
        drop(held);
        assert!(other.try_extend([second, first].into_iter()));
        assert_eq!(stripes.sequences(&[first, second]), None);
    }

    #[test]
    fn a_wait_for_holders_ends_after_each_change_that_ran() {
        let stripes = Stripes::new();
        let is_changed = AtomicBool::new(false);
        let held = stripes.lock_several(vec![StripeIndex(7), StripeIndex(STRIPES - 1)]);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                stripes.wait_for_holders();
                is_changed.load(Ordering::SeqCst)
            });
            // The wait has begun once its first stripe was acquired and freed.
            while stripes.sequences(&[StripeIndex(0)]).is_none_or(|sequences| sequences[0] == 0) {
                std::thread::yield_now();
            }
            is_changed.store(true, Ordering::SeqCst);
            drop(held);
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn readers_see_that_a_key_is_being_changed_or_was_changed() {
        let stripes = Stripes::new();
        let indexes = [stripes.index_of(b"a"), stripes.index_of(b"b")];
        let before = stripes.sequences(&indexes);
        assert!(before.is_some());
        let held = stripes.lock_one(b"b");
        assert_eq!(stripes.sequences(&indexes), None);
        drop(held);
        assert!(stripes.sequences(&indexes).is_some());
        assert_ne!(stripes.sequences(&indexes), before);
    }
}
