//! The messages that a loop adds to the outputs of its clients.

use lodestore_wire::Protocol;

use super::event_loop::EventLoop;
use crate::messaging::channels::Kind;
use crate::messaging::delivery::{Delivery, INVALIDATION_CHANNEL, Payload};
use crate::session::ReplyMode;

impl EventLoop {
    /// Appends waiting messages to the outputs of their receivers. Returns each receiver once.
    ///
    /// The replies of the tick are already in the outputs. A confirmation of `SUBSCRIBE` therefore
    /// comes before the messages of the channel, and a read before its invalidation.
    pub(super) fn append_messages(&mut self) -> Vec<usize> {
        let mailbox = &self.inboxes[self.own].mailbox;
        if !mailbox.has_messages() {
            return Vec::new();
        }
        let messages = mailbox.take_messages();
        let mut touched = Vec::new();
        for message in &messages {
            if self.append_message(message) {
                touched.push(message.slot);
            }
        }
        touched.sort_unstable();
        touched.dedup();
        touched
    }

    /// Appends a message. Returns whether the output has new bytes.
    fn append_message(&mut self, message: &Delivery) -> bool {
        let slot = message.slot;
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return false };
        if connection.session.public.id != message.client {
            return false;
        }
        connection.session.public.route.release(message.payload.queued_bytes());
        if connection.session.public.is_killed() {
            self.close(slot);
            return false;
        }
        if connection.backlog.is_over_limit(&connection.session, self.outputs[slot].pending_bytes(), &self.shared) {
            // The socket may accept more. The write closes a client that is still over its bound.
            self.write(slot);
        }
        let Some(connection) = &mut self.connections[slot] else { return false };
        let bytes = message.payload.queued_bytes();
        if connection.backlog.refuses(&connection.session, self.outputs[slot].pending_bytes(), bytes, &self.shared) {
            // The message would exceed the bound, so it is not copied.
            self.close(slot);
            return false;
        }
        let session = &connection.session;
        let is_late = message.subscription.is_some_and(|number| !session.messaging.has_number(number));
        // `CLIENT REPLY OFF` omits only the lines of `MONITOR`, as in Redis.
        let wants_lines = session.messaging.is_monitor && session.reply_mode != ReplyMode::Off;
        let is_unwanted = matches!(message.payload, Payload::Line(_)) && !wants_lines;
        if is_late || is_unwanted || session.closes {
            return false;
        }
        let receives_invalidations =
            session.protocol == Protocol::Resp2 && session.messaging.has(Kind::Channel, INVALIDATION_CHANNEL);
        let output = &mut self.outputs[slot];
        let before = output.bytes.len();
        message.payload.write(&mut output.bytes, session.protocol, receives_invalidations);
        let added = output.bytes.len() - before;
        connection.backlog.add_pushed(added);
        added > 0
    }
}
