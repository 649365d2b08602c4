//! The keys that clients cache: `CLIENT TRACKING`.
//!
//! A client without `BCAST` gets one invalidation of each key that it read. A client with `BCAST`
//! gets an invalidation at each change of a key with one of its prefixes. Names of keys count for
//! all databases, as in Redis. The table of keys is bounded: it evicts the oldest keys, and sends
//! their invalidations.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::Post;
use super::delivery::Payload;
use crate::client::{ClientId, PublicState};

/// Most bytes of the names of tracked keys.
const NAME_BYTES_MAX: usize = 256 << 20;

/// Most pairs of a tracked key and a client that read it.
const REGISTRATIONS_MAX: usize = 16 << 20;

/// The settings of a tracking client.
#[derive(Debug, Clone)]
pub(crate) struct TrackedClient {
    pub(crate) client: Arc<PublicState>,
    /// The client that gets the invalidations instead.
    pub(crate) redirect: Option<Arc<PublicState>>,
    pub(crate) is_broadcast: bool,
    /// Prefixes of keys of a client with `BCAST`. The empty prefix means all keys.
    pub(crate) prefixes: Vec<Vec<u8>>,
    /// Whether the client does not receive its own changes.
    pub(crate) skips_own: bool,
    /// Whether the redirection target has disconnected, and the client was informed.
    pub(crate) is_broken: bool,
}

/// A key that clients cache.
#[derive(Debug)]
struct TrackedKey {
    /// Place in the order of registration.
    number: u64,
    clients: SmallVec<[ClientId; 2]>,
}

#[derive(Debug, Default)]
struct Table {
    clients: BTreeMap<ClientId, TrackedClient>,
    keys: HashMap<Vec<u8>, TrackedKey>,
    /// Keys in the order of their registration.
    order: BTreeMap<u64, Vec<u8>>,
    next_number: u64,
    name_bytes: usize,
    /// Number of pairs of a key and a client.
    registrations: usize,
}

/// The clients that cache, and the keys that they cache.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    table: Mutex<Table>,
    /// Number of clients. Writers skip the lock while it is 0.
    client_count: AtomicUsize,
}

/// Sizes of the table, for `INFO`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TrackingSizes {
    pub(crate) clients: usize,
    pub(crate) keys: usize,
    pub(crate) registrations: usize,
    pub(crate) prefixes: usize,
}

impl Tracking {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any client caches.
    pub(crate) fn is_active(&self) -> bool {
        self.client_count.load(Ordering::SeqCst) > 0
    }

    /// Starts tracking for a client, or replaces its settings. Prefixes are added.
    pub(crate) fn enable(&self, mut wanted: TrackedClient) {
        let mut table = self.table();
        if let Some(present) = table.clients.remove(&wanted.client.id) {
            let mut prefixes = present.prefixes;
            wanted.prefixes.retain(|prefix| !prefixes.contains(prefix));
            prefixes.append(&mut wanted.prefixes);
            wanted.prefixes = prefixes;
        } else {
            self.client_count.fetch_add(1, Ordering::SeqCst);
        }
        table.clients.insert(wanted.client.id, wanted);
    }

    /// Ends the tracking of a client. Its keys leave the table when they change. After the last
    /// client, `end` is called before another client can begin.
    pub(crate) fn disable(&self, client: ClientId, end: impl FnOnce()) {
        let mut table = self.table();
        if table.clients.remove(&client).is_some() && self.client_count.fetch_sub(1, Ordering::SeqCst) == 1 {
            *table = Table::default();
            end();
        }
    }

    /// Returns the settings of a client.
    pub(crate) fn find(&self, client: ClientId) -> Option<TrackedClient> {
        self.table().clients.get(&client).cloned()
    }

    /// Registers keys before the client reads them. At most `keys_max` keys stay in the table.
    pub(crate) fn register<'k>(
        &self,
        post: &Post,
        client: ClientId,
        keys: impl Iterator<Item = &'k [u8]>,
        keys_max: usize,
    ) {
        let mut table = self.table();
        for key in keys {
            table.register(client, key);
        }
        while table.keys.len() > keys_max
            || table.name_bytes > NAME_BYTES_MAX
            || table.registrations > REGISTRATIONS_MAX
        {
            let Some((_, key)) = table.order.pop_first() else { break };
            table.invalidate_key(post, key, None);
        }
    }

    /// Sends the invalidations of changed keys. `changer` is the client that changed them.
    pub(crate) fn invalidate(&self, post: &Post, keys: &[&[u8]], changer: Option<ClientId>) {
        if !self.is_active() {
            return;
        }
        let mut table = self.table();
        for key in keys {
            table.invalidate_key(post, key.to_vec(), changer);
        }
        table.broadcast(post, keys, changer);
    }

    /// Tells all clients that all keys may have changed.
    pub(crate) fn invalidate_all(&self, post: &Post) {
        if !self.is_active() {
            return;
        }
        let mut table = self.table();
        table.keys.clear();
        table.order.clear();
        table.name_bytes = 0;
        table.registrations = 0;
        let payload = Payload::Invalidation(Arc::new(None));
        table.clients.values_mut().for_each(|tracked| send(post, tracked, payload.clone()));
    }

    /// Returns the sizes of the table.
    pub(crate) fn sizes(&self) -> TrackingSizes {
        let table = self.table();
        TrackingSizes {
            clients: table.clients.len(),
            keys: table.keys.len(),
            registrations: table.registrations,
            prefixes: table.clients.values().map(|client| client.prefixes.len()).sum(),
        }
    }
}

impl Table {
    fn register(&mut self, client: ClientId, key: &[u8]) {
        if let Some(tracked) = self.keys.get_mut(key) {
            if !tracked.clients.contains(&client) {
                tracked.clients.push(client);
                self.registrations += 1;
            }
            return;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.order.insert(number, key.to_vec());
        self.keys.insert(key.to_vec(), TrackedKey { number, clients: SmallVec::from_elem(client, 1) });
        self.name_bytes += key.len();
        self.registrations += 1;
    }

    /// Removes a key, and notifies the clients that read it.
    fn invalidate_key(&mut self, post: &Post, key: Vec<u8>, changer: Option<ClientId>) {
        let Some(tracked) = self.keys.remove(&key) else { return };
        self.order.remove(&tracked.number);
        self.name_bytes -= key.len();
        self.registrations -= tracked.clients.len();
        let payload = Payload::Invalidation(Arc::new(Some(vec![key])));
        for id in tracked.clients {
            let Some(client) = self.clients.get_mut(&id) else { continue };
            let is_own = client.skips_own && changer == Some(id);
            if !is_own && !client.is_broadcast {
                send(post, client, payload.clone());
            }
        }
    }

    /// Tells the clients with `BCAST`, with one message for each of their prefixes.
    fn broadcast(&mut self, post: &Post, keys: &[&[u8]], changer: Option<ClientId>) {
        for (id, client) in self.clients.iter_mut().filter(|(_, client)| client.is_broadcast) {
            if client.skips_own && changer == Some(*id) {
                continue;
            }
            let lists: Vec<Vec<Vec<u8>>> = client.prefixes.iter().map(|prefix| changed_with(prefix, keys)).collect();
            for list in lists.into_iter().filter(|list| !list.is_empty()) {
                send(post, client, Payload::Invalidation(Arc::new(Some(list))));
            }
        }
    }
}

/// Returns the different keys with a prefix, in the order of their changes.
fn changed_with(prefix: &[u8], keys: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut seen = std::collections::HashSet::new();
    keys.iter().filter(|key| key.starts_with(prefix) && seen.insert(**key)).map(|key| key.to_vec()).collect()
}

/// Sends an invalidation to a client or to its redirection target.
fn send(post: &Post, tracked: &mut TrackedClient, payload: Payload) {
    match &tracked.redirect {
        None => post.send(&tracked.client, payload, None),
        Some(target) if !target.is_closed() => post.send(target, payload, None),
        Some(target) => {
            tracked.is_broken = true;
            post.send(&tracked.client, Payload::RedirectBroken(target.id), None);
        }
    }
}
