//! The effects of a commit: changed keys, and keyspace events.
//!
//! `Access` collects the effects of a command or of an `EXEC`. `messaging/effects.rs` sends them
//! after the commit.

use lodestore::Expiry;

use super::stripes::DatabaseKey;
use crate::keyspace_events::{Event, wants};

/// The effects that have listeners.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WantedEffects {
    /// The flags of `notify-keyspace-events`.
    pub(crate) flags: u32,
    /// Whether changed keys are collected.
    pub(crate) has_changes: bool,
}

/// A key that changed.
#[derive(Debug)]
pub(crate) struct ChangedKey {
    pub(crate) key: DatabaseKey,
    /// The expiry of the key after the change.
    pub(crate) expiry: Option<Expiry>,
}

/// The effects of a command, or of all commands of an `EXEC`.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) wanted: WantedEffects,
    pub(crate) changed: Vec<ChangedKey>,
    pub(crate) events: Vec<Event>,
    /// Whether whole databases changed.
    pub(crate) is_flushed: bool,
}

impl WantedEffects {
    /// Whether a client listens to changes.
    pub(crate) fn is_any(self) -> bool {
        self.flags != 0 || self.has_changes
    }

    /// Whether events of a class are published.
    pub(crate) fn has_event(self, class: u32) -> bool {
        wants(self.flags, class)
    }
}

impl Effects {
    /// Notes a changed key with its new expiry.
    pub(crate) fn note_change(&mut self, database: usize, key: &[u8], expiry: Option<Expiry>) {
        if self.wanted.has_changes {
            self.changed.push(ChangedKey { key: DatabaseKey { database, key: key.to_vec() }, expiry });
        }
    }

    /// Notes that whole databases changed.
    pub(crate) fn note_flush(&mut self) {
        self.is_flushed = true;
    }

    /// Notes an event.
    pub(crate) fn note_event(&mut self, class: u32, name: &'static str, database: usize, key: &[u8]) {
        if self.wanted.has_event(class) {
            self.events.push(Event { database, name, key: key.to_vec() });
        }
    }

    /// Forgets all events, because the commit failed. Changes stay: the commit may be in doubt.
    pub(crate) fn drop_events(&mut self) {
        self.events.clear();
    }

    /// Whether a commit has no effects with listeners.
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.events.is_empty() && !self.is_flushed
    }
}
