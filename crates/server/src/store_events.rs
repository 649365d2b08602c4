//! The events of the store: expired keys, damage, and reasons of refused writes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lodestore::events::Event;

/// Counts and keeps the events of a store.
///
/// Pass the events of the store to [`Self::observe`] from its open on, and a clone of the value to
/// [`Server::report_store_events`](crate::Server::report_store_events). `INFO`, the metrics and the
/// status page then show the expired keys that the engine has removed, and damage.
#[derive(Debug, Clone, Default)]
pub struct StoreEvents {
    observed: Arc<ObservedEvents>,
}

#[derive(Debug, Default)]
struct ObservedEvents {
    expired_keys: AtomicU64,
    damage_reports: AtomicU64,
    texts: Mutex<Texts>,
}

/// The newest events of a kind, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    /// Damage.
    pub(crate) damage: Option<String>,
    /// Why the store refuses writes.
    pub(crate) poison: Option<String>,
    /// A device of a matrix that is not used any more, or that lacks pairs.
    pub(crate) device: Option<String>,
}

impl StoreEvents {
    /// Counts an event. Events that report nothing to count are ignored.
    pub fn observe(&self, event: &Event) {
        match event {
            Event::Swept { keys } => {
                self.observed.expired_keys.fetch_add(*keys, Ordering::Relaxed);
            }
            Event::Corruption { .. } => {
                self.observed.damage_reports.fetch_add(1, Ordering::Relaxed);
                self.lock().damage = Some(event.to_string());
            }
            Event::Poisoned { .. } => self.lock().poison = Some(event.to_string()),
            Event::DeviceFailed { .. } | Event::CopyIncomplete { .. } => self.lock().device = Some(event.to_string()),
            _ => {}
        }
    }

    /// Returns the number of expired keys that the engine has removed.
    pub fn expired_keys(&self) -> u64 {
        self.observed.expired_keys.load(Ordering::Relaxed)
    }

    /// Returns the number of reports of damage since the open of the store.
    pub fn damage_reports(&self) -> u64 {
        self.observed.damage_reports.load(Ordering::Relaxed)
    }

    pub(crate) fn texts(&self) -> Texts {
        self.lock().clone()
    }

    /// Sets the number of expired keys to 0. Reports of damage stay.
    pub(crate) fn reset(&self) {
        self.observed.expired_keys.store(0, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Texts> {
        self.observed.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use lodestore::events::FoundBy;

    use super::*;

    #[test]
    fn events_are_counted_and_damage_is_named() {
        let events = StoreEvents::default();
        let damage = |what: &str| Event::Corruption {
            found_by: FoundBy::Scrub,
            place: "pool.0000 at 64".into(),
            what: what.into(),
        };
        for event in [Event::Swept { keys: 3 }, damage("first"), Event::Swept { keys: 4 }, damage("second")] {
            events.observe(&event);
        }
        assert_eq!((events.expired_keys(), events.damage_reports()), (7, 2));
        let texts = events.texts();
        assert!(texts.damage.is_some_and(|text| text.contains("pool.0000 at 64") && text.contains("second")));
        assert_eq!((texts.poison, texts.device), (None, None));
        events.reset();
        assert_eq!((events.expired_keys(), events.damage_reports()), (0, 2));
    }
}
