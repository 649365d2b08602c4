//! Locks over keys, and the keys that clients watch.
//!
//! Invariants:
//!
//! 1. A command that changes a key holds the key's stripe from its first read of the key until the
//!    store has acknowledged the change.
//! 2. `EXEC` and each command that changes several keys hold the stripes of all their keys. They
//!    lock in ascending order, so no two commands wait for each other.
//! 3. A command that changes the set of databases holds all stripes.
//! 4. Before a stripe is freed, the flags of all watched keys that changed under it are set. So
//!    `EXEC`, which holds the stripes of its watched keys, sees every acknowledged change.
//! 5. A command that reads one key needs no stripe: the store answers a whole value.
//! 6. A command that reads several keys at one moment compares [`Stripes::changes`] before and
//!    after. The two differ if a change of several keys was under way.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// Locks over all keys of all databases.
#[derive(Debug)]
pub(crate) struct Stripes {
    stripes: Vec<Mutex<Watched>>,
    hasher: std::hash::RandomState,
    /// Number of watched keys. Writers skip the search for flags while it is 0.
    watched_count: AtomicUsize,
    /// Changes of several keys that began.
    begun: AtomicU64,
    /// Changes of several keys that ended.
    ended: AtomicU64,
}

/// The index of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StripeIndex(usize);

/// Stripes that a command holds.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    stripes: &'a Stripes,
    guards: Vec<(StripeIndex, MutexGuard<'a, Watched>)>,
    is_group: bool,
}

impl Stripes {
    pub(crate) fn new() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            hasher: std::hash::RandomState::new(),
            watched_count: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
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
        Held { stripes: self, guards: vec![(index, self.lock(index))], is_group: false }
    }

    /// Locks the stripes of several keys. Readers of several keys see the change as one step.
    pub(crate) fn lock_several(&self, mut indexes: Vec<StripeIndex>) -> Held<'_> {
        indexes.sort_unstable();
        indexes.dedup();
        self.lock_group(indexes.into_iter())
    }

    /// Locks all stripes.
    pub(crate) fn lock_all(&self) -> Held<'_> {
        self.lock_group((0..STRIPES).map(StripeIndex))
    }

    fn lock_group(&self, indexes: impl Iterator<Item = StripeIndex>) -> Held<'_> {
        let guards = indexes.map(|index| (index, self.lock(index))).collect();
        self.begun.fetch_add(1, Ordering::SeqCst);
        Held { stripes: self, guards, is_group: true }
    }

    fn lock(&self, index: StripeIndex) -> MutexGuard<'_, Watched> {
        // A panic of another command leaves flags that are set too often, and never too seldom.
        self.stripes[index.0].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of changes of several keys so far, or `None` while one is under way.
    pub(crate) fn changes(&self) -> Option<u64> {
        let ended = self.ended.load(Ordering::SeqCst);
        let begun = self.begun.load(Ordering::SeqCst);
        (begun == ended).then_some(begun)
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
        let mut watched = self.lock(self.index_of(&key.key));
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
    fn watched(&mut self, index: StripeIndex) -> Option<&mut Watched> {
        self.guards.iter_mut().find(|(held, _)| *held == index).map(|(_, watched)| &mut **watched)
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
        for (_, watched) in &self.guards {
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
        if self.is_group {
            self.stripes.ended.fetch_add(1, Ordering::SeqCst);
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
    fn a_change_of_several_keys_is_seen_by_their_readers() {
        let stripes = Stripes::new();
        let before = stripes.changes();
        assert!(before.is_some());
        let held = stripes.lock_several(vec![stripes.index_of(b"a"), stripes.index_of(b"b")]);
        assert_eq!(stripes.changes(), None);
        drop(held);
        assert_ne!(stripes.changes(), before);
        drop(stripes.lock_one(b"a"));
        assert_eq!(stripes.changes(), before.map(|count| count + 1));
    }
}
