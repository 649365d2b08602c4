//! Messages that answer no command: published messages, keyspace notifications, invalidations of
//! client-side caches, and the lines of `MONITOR`.
//!
//! * `channels`: the subscriptions of all clients. `client`: those of one client.
//! * `delivery`: a message on its way to the event loop of its receiver. `mailbox`: the messages
//!   that wait for an event loop.
//! * `tracking`: the keys that clients cache.
//! * `expiries`: the keys whose expiry is reported.
//! * `effects`: what follows a commit: events and invalidations.
//! * `monitor`: the lines of `MONITOR`.
//!
//! Invariants:
//!
//! 1. Events and invalidations of a change are sent after its commit, and before the stripe of its
//!    key is freed. Therefore the events of a key have the order of its changes.
//! 2. A tracked key is registered before it is read. Therefore each value that a client received is
//!    either current, or its invalidation is on its way.
//! 3. A writer asks whether a client tracks after it has acquired the stripe of its key. A client
//!    that begins to track first registers itself, and then waits once for all commands that hold
//!    stripes. The wait comes before the next command outside `EXEC`, and no stripe is held in it.
//!    Therefore each read sees the change of a writer that does not know of the client. The reads
//!    of the `EXEC` that begins to track hold the stripes of their keys, which are thus not
//!    written.
//! 4. Locks of this module are leaves: a thread that holds one acquires only the lock of a mailbox.
//!    The exception is the end of the last tracking client, which holds the lock of `tracking` and
//!    acquires the lock of `expiries`.

pub(crate) mod channels;
pub(crate) mod client;
pub(crate) mod delivery;
pub(crate) mod effects;
pub(crate) mod expiries;
pub(crate) mod mailbox;
pub(crate) mod monitor;
pub(crate) mod tracking;

use std::sync::{Arc, OnceLock};

use self::channels::Channels;
use self::delivery::{Delivery, Payload};
use self::expiries::Expiries;
use self::mailbox::Mailbox;
use self::monitor::Monitors;
use self::tracking::Tracking;
use crate::client::{PublicState, Route};

/// The messages of a server.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    pub(crate) channels: Channels,
    pub(crate) tracking: Tracking,
    pub(crate) expiries: Expiries,
    pub(crate) monitors: Monitors,
    post: Post,
}

/// The mailboxes of all event loops.
#[derive(Debug, Default)]
pub(crate) struct Post {
    mailboxes: OnceLock<Vec<Arc<Mailbox>>>,
}

impl Hub {
    /// Connects the hub with the mailboxes of the event loops. Later calls do nothing.
    pub(crate) fn connect(&self, mailboxes: Vec<Arc<Mailbox>>) {
        self.post.mailboxes.get_or_init(|| mailboxes);
    }

    /// Returns the mailboxes.
    pub(crate) fn post(&self) -> &Post {
        &self.post
    }

    /// Publishes a message. Returns the number of its receivers.
    pub(crate) fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        self.channels.publish(&self.post, channel, message)
    }

    /// Publishes a message to a shard channel. Returns the number of its receivers.
    pub(crate) fn publish_shard(&self, channel: &[u8], message: &[u8]) -> usize {
        self.channels.publish_shard(&self.post, channel, message)
    }
}

impl Post {
    /// Wakes all event loops.
    pub(crate) fn wake_all(&self) {
        self.mailboxes.get().into_iter().flatten().for_each(|mailbox| mailbox.wake());
    }

    /// Ends a client, and wakes its event loop, which closes the connection.
    pub(crate) fn kill(&self, client: &PublicState) {
        let is_first = !client.is_killed.swap(true, std::sync::atomic::Ordering::SeqCst);
        if is_first {
            self.deliver(client, Payload::Kill, None);
        }
    }

    /// Sends a message to a client. A killed client receives nothing.
    pub(crate) fn send(&self, receiver: &PublicState, payload: Payload, subscription: Option<u64>) {
        if !receiver.is_killed() {
            self.deliver(receiver, payload, subscription);
        }
    }

    /// Hands a message to the event loop of its receiver. A client that has too many unread
    /// messages is closed instead: its loop finds the flag with the first of them.
    fn deliver(&self, receiver: &PublicState, payload: Payload, subscription: Option<u64>) {
        let route: &Route = &receiver.route;
        let bytes = payload.queued_bytes();
        if !route.reserve(bytes) {
            receiver.is_killed.store(true, std::sync::atomic::Ordering::SeqCst);
            return;
        }
        let mailbox = self.mailboxes.get().and_then(|mailboxes| mailboxes.get(route.event_loop()));
        match mailbox {
            Some(mailbox) => {
                mailbox.deliver(Delivery { client: receiver.id, slot: route.slot(), subscription, payload });
            }
            None => route.release(bytes),
        }
    }
}
