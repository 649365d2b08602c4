//! The subscriptions of all clients.
//!
//! One lock covers all tables, and a publisher holds it while it fills the mailboxes. Therefore all
//! subscribers of a channel receive its messages in one order.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Post;
use super::client::ClientMessaging;
use super::delivery::Payload;
use crate::client::{ClientId, PublicState};
use crate::glob;

/// The kind of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A channel.
    Channel,
    /// A pattern of channels.
    Pattern,
    /// A shard channel. Without a cluster, a second space of channels.
    Shard,
}

/// A client that subscribes.
#[derive(Debug)]
struct Subscriber {
    client: Arc<PublicState>,
    /// Number of the subscription.
    number: u64,
}

/// The subscribers of a name.
type Subscribers = BTreeMap<ClientId, Subscriber>;

#[derive(Debug, Default)]
struct Tables {
    channels: HashMap<Vec<u8>, Subscribers>,
    patterns: BTreeMap<Vec<u8>, Subscribers>,
    shard_channels: HashMap<Vec<u8>, Subscribers>,
}

/// The subscriptions of all clients.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    tables: Mutex<Tables>,
    next_number: AtomicU64,
    /// Number of names with subscribers. Publishers skip the lock while it is 0.
    name_count: AtomicUsize,
}

impl Channels {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any client subscribes to anything.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.name_count.load(Ordering::SeqCst) > 0
    }

    /// Adds a subscription. A subscription that exists stays.
    pub(crate) fn subscribe(&self, own: &mut ClientMessaging, client: &Arc<PublicState>, kind: Kind, name: &[u8]) {
        if own.has(kind, name) {
            return;
        }
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        own.add(kind, name, number);
        let subscriber = Subscriber { client: Arc::clone(client), number };
        let mut tables = self.tables();
        let subscribers = match kind {
            Kind::Channel => tables.channels.entry(name.to_vec()).or_default(),
            Kind::Pattern => tables.patterns.entry(name.to_vec()).or_default(),
            Kind::Shard => tables.shard_channels.entry(name.to_vec()).or_default(),
        };
        if subscribers.is_empty() {
            self.name_count.fetch_add(1, Ordering::SeqCst);
        }
        subscribers.insert(client.id, subscriber);
    }

    /// Removes a subscription. Messages that are on their way do not arrive.
    pub(crate) fn unsubscribe(&self, own: &mut ClientMessaging, client: ClientId, kind: Kind, name: &[u8]) {
        if !own.remove(kind, name) {
            return;
        }
        let mut tables = self.tables();
        let subscribers = match kind {
            Kind::Channel => tables.channels.get_mut(name),
            Kind::Pattern => tables.patterns.get_mut(name),
            Kind::Shard => tables.shard_channels.get_mut(name),
        };
        let Some(subscribers) = subscribers else { return };
        subscribers.remove(&client);
        if subscribers.is_empty() {
            match kind {
                Kind::Channel => drop(tables.channels.remove(name)),
                Kind::Pattern => drop(tables.patterns.remove(name)),
                Kind::Shard => drop(tables.shard_channels.remove(name)),
            }
            self.name_count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Removes all subscriptions of a client.
    pub(crate) fn unsubscribe_all(&self, own: &mut ClientMessaging, client: ClientId) {
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            for name in own.list(kind) {
                self.unsubscribe(own, client, kind, &name);
            }
        }
    }

    /// Publishes a message. Returns the number of its receivers.
    pub(crate) fn publish(&self, post: &Post, channel: &[u8], message: &[u8]) -> usize {
        if !self.has_subscribers() {
            return 0;
        }
        let tables = self.tables();
        let mut count = 0;
        if let Some(subscribers) = tables.channels.get(channel) {
            count += send_all(post, subscribers, &Payload::of_texts(&[b"message", channel, message]));
        }
        for (pattern, subscribers) in &tables.patterns {
            if glob::matches(pattern, channel) {
                let payload = Payload::of_texts(&[b"pmessage", pattern, channel, message]);
                count += send_all(post, subscribers, &payload);
            }
        }
        count
    }

    /// Publishes a message to a shard channel. Returns the number of its receivers.
    pub(crate) fn publish_shard(&self, post: &Post, channel: &[u8], message: &[u8]) -> usize {
        let tables = self.tables();
        match tables.shard_channels.get(channel) {
            Some(subscribers) => send_all(post, subscribers, &Payload::of_texts(&[b"smessage", channel, message])),
            None => 0,
        }
    }

    /// Returns the channels that match a pattern, in their order.
    pub(crate) fn names(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Vec<u8>> {
        let tables = self.tables();
        let table = if kind == Kind::Shard { &tables.shard_channels } else { &tables.channels };
        let is_wanted = |name: &&Vec<u8>| pattern.is_none_or(|pattern| glob::matches(pattern, name));
        let mut names: Vec<Vec<u8>> = table.keys().filter(is_wanted).cloned().collect();
        names.sort_unstable();
        names
    }

    /// Returns the number of subscribers of a channel.
    pub(crate) fn subscriber_count(&self, kind: Kind, name: &[u8]) -> usize {
        let tables = self.tables();
        let table = if kind == Kind::Shard { &tables.shard_channels } else { &tables.channels };
        table.get(name).map_or(0, BTreeMap::len)
    }

    /// Returns the clients with a subscription for which `is_wanted` answers true. `is_wanted`
    /// acquires no lock.
    pub(crate) fn subscribers(
        &self,
        mut is_wanted: impl FnMut(ClientId, Kind, &[u8]) -> bool,
    ) -> Vec<Arc<PublicState>> {
        let tables = self.tables();
        let channels = tables.channels.iter().map(|(name, subscribers)| (Kind::Channel, name, subscribers));
        let patterns = tables.patterns.iter().map(|(name, subscribers)| (Kind::Pattern, name, subscribers));
        let shards = tables.shard_channels.iter().map(|(name, subscribers)| (Kind::Shard, name, subscribers));
        let mut found = BTreeMap::new();
        for (kind, name, subscribers) in channels.chain(patterns).chain(shards) {
            let wanted = subscribers.values().filter(|subscriber| is_wanted(subscriber.client.id, kind, name));
            found.extend(wanted.map(|subscriber| (subscriber.client.id, Arc::clone(&subscriber.client))));
        }
        found.into_values().collect()
    }

    /// Returns the number of different patterns.
    pub(crate) fn pattern_count(&self) -> usize {
        self.tables().patterns.len()
    }

    /// Returns the number of channels.
    pub(crate) fn channel_count(&self) -> usize {
        self.tables().channels.len()
    }
}

fn send_all(post: &Post, subscribers: &Subscribers, payload: &Payload) -> usize {
    let mut count = 0;
    for subscriber in subscribers.values().filter(|subscriber| !subscriber.client.is_killed()) {
        post.send(&subscriber.client, payload.clone(), Some(subscriber.number));
        count += 1;
    }
    count
}
