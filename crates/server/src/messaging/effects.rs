//! The effects of a commit: keyspace events, and invalidations of caches.
//!
//! `Access` collects the changes of a command or of an `EXEC`. After the commit, and before the
//! stripes are freed, [`publish`] sends the effects that have listeners.

use lodestore::Expiry;

use super::expiries::{Listeners, RemovalReason};
use crate::client::ClientId;
use crate::data::stripes::DatabaseKey;
use crate::keyspace_events::{Event, class, wants};
use crate::shared::Shared;

/// Most expired keys that one sweep reports. The next sweep reports the others.
const SWEEP_KEYS_MAX: usize = 4096;

/// Which effects anyone wants to hear of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WantedEffects {
    /// The flags of `notify-keyspace-events`.
    pub(crate) flags: u32,
    /// Whether changed keys are collected.
    pub(crate) has_changes: bool,
}

/// A key that changed.
#[derive(Debug)]
struct ChangedKey {
    key: DatabaseKey,
    /// The expiry of the key after the change.
    expiry: Option<Expiry>,
}

/// The effects of a command, or of all commands of an `EXEC`.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) wanted: WantedEffects,
    changed: Vec<ChangedKey>,
    events: Vec<Event>,
    /// Whether whole databases changed.
    is_flushed: bool,
}

impl WantedEffects {
    /// Returns the effects that have listeners now.
    pub(crate) fn of(shared: &Shared) -> Self {
        let flags = shared.runtime.notify_flags();
        // An expiry is in `hub.expiries` only while one of the two wants to hear of it.
        let hub = &shared.hub;
        let has_changes = wants(flags, class::EXPIRED) || hub.tracking.is_active();
        Self { flags, has_changes }
    }

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

    fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.events.is_empty() && !self.is_flushed
    }
}

/// Returns the present listeners of expiries.
fn listeners(shared: &Shared) -> Listeners {
    let has_events = wants(shared.runtime.notify_flags(), class::EXPIRED);
    Listeners { has_events, has_caches: shared.hub.tracking.is_active() }
}

/// Ends the tracking of a client. The expiries that only caches wanted to hear of leave with the
/// last client.
pub(crate) fn end_tracking(shared: &Shared, client: ClientId) {
    shared.hub.tracking.disable(client, || remove_unwanted_expiries(shared));
}

/// Removes the expiries without listeners, after a listener has left.
pub(crate) fn remove_unwanted_expiries(shared: &Shared) {
    shared.hub.expiries.remove_unwanted(|| listeners(shared));
}

/// Sends the effects of a client's commit. The caller holds the stripes of the changed keys.
pub(crate) fn publish(shared: &Shared, effects: &mut Effects, changer: ClientId) {
    if effects.is_empty() {
        return;
    }
    let hub = &shared.hub;
    let reports_expiry = effects.wanted.has_event(class::EXPIRED);
    let changed = std::mem::take(&mut effects.changed);
    for ChangedKey { key, expiry } in &changed {
        let removed = hub.expiries.replace(key, *expiry, || listeners(shared));
        if removed == RemovalReason::ExpiredEvent && reports_expiry {
            publish_event(shared, effects.wanted.flags, key.database, "expired", &key.key);
        }
    }
    for event in effects.events.drain(..) {
        publish_event(shared, effects.wanted.flags, event.database, event.name, &event.key);
    }
    let keys: Vec<&[u8]> = changed.iter().map(|changed| changed.key.key.as_slice()).collect();
    if !keys.is_empty() {
        hub.tracking.invalidate(hub.post(), &keys, Some(changer));
    }
    if std::mem::take(&mut effects.is_flushed) {
        hub.expiries.clear();
        hub.tracking.invalidate_all(hub.post());
    }
}

fn publish_event(shared: &Shared, flags: u32, database: usize, name: &str, key: &[u8]) {
    if !shared.hub.channels.has_subscribers() {
        return;
    }
    if flags & class::KEYSPACE != 0 {
        let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
        shared.hub.publish(&channel, name.as_bytes());
    }
    if flags & class::KEYEVENT != 0 {
        shared.hub.publish(format!("__keyevent@{database}__:{name}").as_bytes(), key);
    }
}

/// Reports keys that have expired since the last sweep. The caller holds no stripe.
pub(crate) fn sweep(shared: &Shared) {
    if !shared.hub.expiries.is_active() {
        return;
    }
    let flags = shared.runtime.notify_flags();
    for key in shared.hub.expiries.expired_keys(SWEEP_KEYS_MAX) {
        let held = shared.stripes.lock_one(&key.key);
        let removed = shared.hub.expiries.remove_expired(&key);
        if removed == RemovalReason::Other {
            continue;
        }
        let view = shared.databases.view();
        // A key that cannot be read counts as changed, and not as expired.
        let is_present = view.keyspace(key.database).contains(&key.key);
        if matches!(is_present, Ok(false)) && removed == RemovalReason::ExpiredEvent && wants(flags, class::EXPIRED) {
            publish_event(shared, flags, key.database, "expired", &key.key);
        }
        shared.hub.tracking.invalidate(shared.hub.post(), &[&key.key], None);
        drop(held);
    }
}

/// Registers the keys that a client is about to read, if the client caches.
///
/// `expiry_of` returns the expiry of a key. A key whose expiry cannot be kept is invalidated at
/// once, so that the client does not cache it for ever.
pub(crate) fn register_reads<'k>(
    shared: &Shared,
    client: ClientId,
    database: usize,
    keys: impl Iterator<Item = &'k [u8]> + Clone,
    expiry_of: impl Fn(&[u8]) -> Option<Expiry>,
) {
    let hub = &shared.hub;
    hub.tracking.register(hub.post(), client, keys.clone(), shared.runtime.tracking_keys_max());
    for key in keys {
        let Some(expiry) = expiry_of(key) else { continue };
        let kept = hub.expiries.keep(DatabaseKey { database, key: key.to_vec() }, expiry);
        if !kept {
            hub.tracking.invalidate(hub.post(), &[key], None);
        }
    }
}
