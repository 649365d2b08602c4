//! The keys whose expiry is reported: by the event `expired`, and by invalidations.
//!
//! The engines remove expired keys silently. The server therefore keeps the time of each expiry
//! that a command sets while there is a listener, and of each tracked key. The table is bounded.
//! Expiries that were set before, or that exceed the bound, are not reported.
//!
//! The table holds an expiry only while it has a listener. Each change of a key in the table is
//! therefore recorded, and no expiry in it is of an earlier value.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lodestore::Expiry;

use crate::data::stripes::DatabaseKey;

/// Most keys in the table.
const KEYS_MAX: usize = 1_000_000;

/// Most bytes of the names of the keys.
const NAME_BYTES_MAX: usize = 256 << 20;

/// When a key expires.
#[derive(Debug, Clone, Copy)]
struct ExpiryEntry {
    expiry: Expiry,
    /// Whether the expiry is an event. Otherwise only caches are invalidated.
    is_event: bool,
}

#[derive(Debug, Default)]
struct Table {
    by_key: HashMap<Arc<DatabaseKey>, ExpiryEntry>,
    by_time: BTreeSet<(u64, OrderedKey)>,
    name_bytes: usize,
}

/// A key in the order of times. Keys of one time have the order of database and name.
#[derive(Debug, PartialEq, Eq)]
struct OrderedKey(Arc<DatabaseKey>);

impl Ord for OrderedKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0.database, &self.0.key).cmp(&(other.0.database, &other.0.key))
    }
}

impl PartialOrd for OrderedKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The listeners of expiries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listeners {
    /// Whether the event `expired` is published.
    pub(crate) has_events: bool,
    /// Whether any client caches.
    pub(crate) has_caches: bool,
}

/// The keys whose expiry is reported.
#[derive(Debug, Default)]
pub(crate) struct Expiries {
    table: Mutex<Table>,
    count: AtomicUsize,
}

/// The reason why a key left the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemovalReason {
    /// The key was absent, or had not expired.
    Other,
    /// The key had expired. Only caches are invalidated.
    Expired,
    /// The key had expired, and the expiry is an event.
    ExpiredEvent,
}

impl Expiries {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the table has keys.
    pub(crate) fn is_active(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Replaces the expiry of a changed key, if the new one has a listener. The caller holds the
    /// key's stripe.
    ///
    /// `listeners` is called under the lock of the table, so [`Self::remove_unwanted`] finds each
    /// expiry that is kept for a listener who has left.
    pub(crate) fn replace(
        &self,
        key: &DatabaseKey,
        expiry: Option<Expiry>,
        listeners: impl FnOnce() -> Listeners,
    ) -> RemovalReason {
        if expiry.is_none() && !self.is_active() {
            return RemovalReason::Other;
        }
        let mut table = self.table();
        let removed = table.remove(key);
        let Listeners { has_events, has_caches } = listeners();
        if let Some(expiry) = expiry.filter(|_| has_events || has_caches) {
            table.insert(key.clone(), ExpiryEntry { expiry, is_event: has_events });
        }
        self.count.store(table.by_key.len(), Ordering::SeqCst);
        removed
    }

    /// Keeps the expiry of a key that a client caches. Returns whether the key is in the table.
    pub(crate) fn keep(&self, key: DatabaseKey, expiry: Expiry) -> bool {
        let mut table = self.table();
        let is_kept = table.by_key.contains_key(&key) || table.insert(key, ExpiryEntry { expiry, is_event: false });
        self.count.store(table.by_key.len(), Ordering::SeqCst);
        is_kept
    }

    /// Returns at most `max` keys that have expired.
    pub(crate) fn expired_keys(&self, max: usize) -> Vec<DatabaseKey> {
        let table = self.table();
        let is_past = |(time, _): &&(u64, OrderedKey)| Expiry::at_millis(*time).is_past();
        table.by_time.iter().take_while(is_past).take(max).map(|(_, key)| DatabaseKey::clone(&key.0)).collect()
    }

    /// Removes a key if it has expired. The caller holds the key's stripe.
    pub(crate) fn remove_expired(&self, key: &DatabaseKey) -> RemovalReason {
        let mut table = self.table();
        let removed = match table.by_key.get(key) {
            Some(entry) if entry.expiry.is_past() => table.remove(key),
            _ => RemovalReason::Other,
        };
        self.count.store(table.by_key.len(), Ordering::SeqCst);
        removed
    }

    /// Removes the expiries without listeners, after a listener has left. `listeners` is called
    /// under the lock of the table.
    pub(crate) fn remove_unwanted(&self, listeners: impl FnOnce() -> Listeners) {
        let mut table = self.table();
        let Listeners { has_events, has_caches } = listeners();
        if !has_events && !has_caches {
            *table = Table::default();
        } else if !has_caches {
            let unwanted: Vec<Arc<DatabaseKey>> =
                table.by_key.iter().filter(|(_, entry)| !entry.is_event).map(|(key, _)| Arc::clone(key)).collect();
            for key in unwanted {
                table.remove(&key);
            }
        } else if !has_events {
            table.by_key.values_mut().for_each(|entry| entry.is_event = false);
        }
        self.count.store(table.by_key.len(), Ordering::SeqCst);
    }

    /// Forgets all keys, because databases were emptied or exchanged.
    pub(crate) fn clear(&self) {
        let mut table = self.table();
        *table = Table::default();
        self.count.store(0, Ordering::SeqCst);
    }
}

impl Table {
    fn insert(&mut self, key: DatabaseKey, entry: ExpiryEntry) -> bool {
        if self.by_key.len() >= KEYS_MAX || self.name_bytes + key.key.len() > NAME_BYTES_MAX {
            return false;
        }
        self.name_bytes += key.key.len();
        let key = Arc::new(key);
        self.by_time.insert((entry.expiry.millis(), OrderedKey(Arc::clone(&key))));
        self.by_key.insert(key, entry);
        true
    }

    fn remove(&mut self, key: &DatabaseKey) -> RemovalReason {
        let Some((key, entry)) = self.by_key.remove_entry(key) else { return RemovalReason::Other };
        self.name_bytes -= key.key.len();
        self.by_time.remove(&(entry.expiry.millis(), OrderedKey(key)));
        match (entry.expiry.is_past(), entry.is_event) {
            (false, _) => RemovalReason::Other,
            (true, false) => RemovalReason::Expired,
            (true, true) => RemovalReason::ExpiredEvent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: Listeners = Listeners { has_events: false, has_caches: false };
    const EVENTS: Listeners = Listeners { has_events: true, has_caches: false };
    const CACHES: Listeners = Listeners { has_events: false, has_caches: true };

    fn key(name: &str) -> DatabaseKey {
        DatabaseKey { database: 0, key: name.as_bytes().to_vec() }
    }

    #[test]
    fn an_expired_key_is_found_once() {
        let expiries = Expiries::default();
        let past = Expiry::at_millis(1);
        let later = Expiry::after(std::time::Duration::from_secs(1000));
        assert_eq!(expiries.replace(&key("a"), Some(past), || EVENTS), RemovalReason::Other);
        assert_eq!(expiries.replace(&key("b"), Some(later), || EVENTS), RemovalReason::Other);
        assert!(expiries.keep(key("c"), past));
        assert_eq!(expiries.expired_keys(10), [key("a"), key("c")]);
        assert_eq!(expiries.remove_expired(&key("a")), RemovalReason::ExpiredEvent);
        assert_eq!(expiries.remove_expired(&key("a")), RemovalReason::Other);
        assert_eq!(expiries.remove_expired(&key("b")), RemovalReason::Other);
        assert_eq!(expiries.replace(&key("c"), None, || EVENTS), RemovalReason::Expired);
        assert_eq!(expiries.replace(&key("b"), None, || EVENTS), RemovalReason::Other);
        assert!(!expiries.is_active());
    }

    #[test]
    fn an_expiry_is_kept_while_it_has_a_listener() {
        let (later, past) = (Expiry::after(std::time::Duration::from_secs(1000)), Expiry::at_millis(1));
        let expiries = Expiries::default();
        expiries.replace(&key("event"), Some(past), || EVENTS);
        assert!(expiries.keep(key("cache"), later));
        expiries.remove_unwanted(|| EVENTS);
        assert_eq!((expiries.count.load(Ordering::SeqCst), expiries.expired_keys(10)), (1, vec![key("event")]));
        expiries.remove_unwanted(|| CACHES);
        assert_eq!(expiries.remove_expired(&key("event")), RemovalReason::Expired);
        expiries.replace(&key("cache"), Some(later), || CACHES);
        assert!(expiries.is_active());
        expiries.remove_unwanted(|| NOBODY);
        assert!(!expiries.is_active());
        expiries.replace(&key("late"), Some(later), || NOBODY);
        assert!(!expiries.is_active());
    }
}
