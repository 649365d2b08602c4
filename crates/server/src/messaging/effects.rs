//! The effects of a commit: keyspace events, and invalidations of caches.
//!
//! `Access` collects the changes of a command or of an `EXEC` (`data/effects.rs`). After the
//! commit, and before the stripes are freed, [`publish`] sends the effects that have listeners.

use lodestore::Expiry;

use super::Hub;
use super::expiries::{Listeners, RemovalReason};
use crate::client::ClientId;
use crate::data::databases::Databases;
use crate::data::effects::{ChangedKey, Effects, WantedEffects};
use crate::data::stripes::{DatabaseKey, Stripes};
use crate::keyspace_events::{class, wants};
use crate::runtime::Runtime;

/// Most expired keys that one sweep reports. The next sweep reports the others.
const SWEEP_KEYS_MAX: usize = 4096;

/// Returns the effects that have listeners now.
pub(crate) fn wanted_effects(hub: &Hub, runtime: &Runtime) -> WantedEffects {
    let flags = runtime.notify_flags();
    // `hub.expiries` has an expiry only while an event or a cache needs it.
    let has_changes = wants(flags, class::EXPIRED) || hub.tracking.is_active();
    WantedEffects { flags, has_changes }
}

/// Returns the present listeners of expiries.
fn listeners(hub: &Hub, runtime: &Runtime) -> Listeners {
    let has_events = wants(runtime.notify_flags(), class::EXPIRED);
    Listeners { has_events, has_caches: hub.tracking.is_active() }
}

/// Ends the tracking of a client. The last client also removes the expiries that only caches
/// needed.
pub(crate) fn end_tracking(hub: &Hub, runtime: &Runtime, client: ClientId) {
    hub.tracking.disable(client, || remove_unwanted_expiries(hub, runtime));
}

/// Removes the expiries without listeners, after a listener has left.
pub(crate) fn remove_unwanted_expiries(hub: &Hub, runtime: &Runtime) {
    hub.expiries.remove_unwanted(|| listeners(hub, runtime));
}

/// Sends the effects of a client's commit. The caller holds the stripes of the changed keys.
pub(crate) fn publish(hub: &Hub, runtime: &Runtime, effects: &mut Effects, changer: ClientId) {
    if effects.is_empty() {
        return;
    }
    let reports_expiry = effects.wanted.has_event(class::EXPIRED);
    let changed = std::mem::take(&mut effects.changed);
    for ChangedKey { key, expiry } in &changed {
        let removed = hub.expiries.replace(key, *expiry, || listeners(hub, runtime));
        if removed == RemovalReason::ExpiredEvent && reports_expiry {
            publish_event(hub, effects.wanted.flags, key.database, "expired", &key.key);
        }
    }
    for event in effects.events.drain(..) {
        publish_event(hub, effects.wanted.flags, event.database, event.name, &event.key);
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

fn publish_event(hub: &Hub, flags: u32, database: usize, name: &str, key: &[u8]) {
    if !hub.channels.has_subscribers() {
        return;
    }
    if flags & class::KEYSPACE != 0 {
        let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
        hub.publish(&channel, name.as_bytes());
    }
    if flags & class::KEYEVENT != 0 {
        hub.publish(format!("__keyevent@{database}__:{name}").as_bytes(), key);
    }
}

/// Reports keys that have expired since the last sweep. The caller holds no stripe.
pub(crate) fn sweep(hub: &Hub, runtime: &Runtime, databases: &Databases, stripes: &Stripes) {
    if !hub.expiries.is_active() {
        return;
    }
    let flags = runtime.notify_flags();
    for key in hub.expiries.expired_keys(SWEEP_KEYS_MAX) {
        let held = stripes.lock_one(&key.key);
        let removed = hub.expiries.remove_expired(&key);
        if removed == RemovalReason::Other {
            continue;
        }
        let view = databases.view();
        // A key that cannot be read counts as changed, and not as expired.
        let is_present = view.keyspace(key.database).contains(&key.key);
        if matches!(is_present, Ok(false)) && removed == RemovalReason::ExpiredEvent && wants(flags, class::EXPIRED) {
            publish_event(hub, flags, key.database, "expired", &key.key);
        }
        hub.tracking.invalidate(hub.post(), &[&key.key], None);
        drop(held);
    }
}

/// Registers the keys that a client is about to read, if the client caches. `keys_max` is
/// `tracking-table-max-keys`.
///
/// `expiry_of` returns the expiry of a key. A key whose expiry cannot be kept is invalidated at
/// once, so that the client does not cache it for ever.
pub(crate) fn register_reads<'k>(
    hub: &Hub,
    keys_max: usize,
    client: ClientId,
    database: usize,
    keys: impl Iterator<Item = &'k [u8]> + Clone,
    expiry_of: impl Fn(&[u8]) -> Option<Expiry>,
) {
    hub.tracking.register(hub.post(), client, keys.clone(), keys_max);
    for key in keys {
        let Some(expiry) = expiry_of(key) else { continue };
        let kept = hub.expiries.keep(DatabaseKey { database, key: key.to_vec() }, expiry);
        if !kept {
            hub.tracking.invalidate(hub.post(), &[key], None);
        }
    }
}
