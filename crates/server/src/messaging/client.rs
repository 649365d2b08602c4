//! The subscriptions of one client, and its caching.

use std::collections::{BTreeMap, BTreeSet};

use super::channels::Kind;

/// The caching mode of a client: `CLIENT TRACKING`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TrackingMode {
    /// Whether the client gets invalidations of all keys with its prefixes, not of the keys that it
    /// read.
    pub(crate) is_broadcast: bool,
    /// Whether only reads after `CLIENT CACHING YES` count.
    pub(crate) is_opt_in: bool,
    /// Whether reads after `CLIENT CACHING NO` do not count.
    pub(crate) is_opt_out: bool,
}

/// Bytes that a subscription uses in addition to its name, here and in the table of all clients.
const SUBSCRIPTION_OVERHEAD_BYTES: usize = 512;

/// The messages that one client receives. The client's event loop owns it.
#[derive(Debug, Default)]
pub(crate) struct ClientMessaging {
    channels: BTreeMap<Vec<u8>, u64>,
    patterns: BTreeMap<Vec<u8>, u64>,
    shard_channels: BTreeMap<Vec<u8>, u64>,
    /// The numbers of all subscriptions. Messages of other numbers come too late.
    numbers: BTreeSet<u64>,
    /// Bytes of the names of all subscriptions.
    pub(crate) name_bytes: usize,
    pub(crate) tracking: Option<TrackingMode>,
    /// Bytes of the prefixes of `CLIENT TRACKING`.
    pub(crate) prefix_bytes: usize,
    /// Whether `CLIENT CACHING` changes the next command.
    pub(crate) is_caching_named: bool,
    pub(crate) is_monitor: bool,
    /// Whether the client began to track, and writers may run that do not know of it. The client
    /// waits for them after the command, when it holds no stripe.
    pub(crate) needs_barrier: bool,
    /// Confirmations of changed subscriptions that the client receives although it wants no reply.
    pub(crate) confirmations: Vec<u8>,
}

impl ClientMessaging {
    fn names(&self, kind: Kind) -> &BTreeMap<Vec<u8>, u64> {
        match kind {
            Kind::Channel => &self.channels,
            Kind::Pattern => &self.patterns,
            Kind::Shard => &self.shard_channels,
        }
    }

    fn names_mut(&mut self, kind: Kind) -> &mut BTreeMap<Vec<u8>, u64> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shard_channels,
        }
    }

    /// Whether the client has a subscription.
    pub(crate) fn has(&self, kind: Kind, name: &[u8]) -> bool {
        self.names(kind).contains_key(name)
    }

    /// Returns the names of the subscriptions of a kind.
    pub(crate) fn list(&self, kind: Kind) -> Vec<Vec<u8>> {
        self.names(kind).keys().cloned().collect()
    }

    /// Returns the number of subscriptions of a kind.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.names(kind).len()
    }

    /// Returns the count that the confirmation of a change of `kind` shows.
    pub(crate) fn shown_count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel | Kind::Pattern => self.channels.len() + self.patterns.len(),
            Kind::Shard => self.shard_channels.len(),
        }
    }

    /// Keeps a subscription.
    pub(crate) fn add(&mut self, kind: Kind, name: &[u8], number: u64) {
        self.name_bytes += name.len();
        self.numbers.insert(number);
        self.names_mut(kind).insert(name.to_vec(), number);
    }

    /// Forgets a subscription. Returns whether it existed.
    pub(crate) fn remove(&mut self, kind: Kind, name: &[u8]) -> bool {
        let Some(number) = self.names_mut(kind).remove(name) else { return false };
        self.numbers.remove(&number);
        self.name_bytes -= name.len();
        true
    }

    /// Whether the client has this subscription now.
    pub(crate) fn has_number(&self, number: u64) -> bool {
        self.numbers.contains(&number)
    }

    /// Returns the bytes of the subscriptions and of the prefixes.
    pub(crate) fn bytes(&self) -> usize {
        // A name is here and in the table of all clients.
        2 * self.name_bytes + SUBSCRIPTION_OVERHEAD_BYTES * self.numbers.len() + self.prefix_bytes
    }

    /// Whether the client has any subscription.
    pub(crate) fn is_subscriber(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Whether each read must run alone, because its keys may be registered.
    pub(crate) fn needs_separate_reads(&self) -> bool {
        self.tracking.is_some_and(|mode| !mode.is_broadcast)
    }

    /// Whether the keys of the client's reads are registered.
    pub(crate) fn tracks_reads(&self) -> bool {
        self.tracking.is_some_and(|mode| {
            let is_left_out = match (mode.is_opt_in, mode.is_opt_out) {
                (true, _) => !self.is_caching_named,
                (_, true) => self.is_caching_named,
                (false, false) => false,
            };
            !mode.is_broadcast && !is_left_out
        })
    }
}
