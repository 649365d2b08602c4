//! A client as the threads of the server share it: its numbers for `CLIENT LIST`, and the route of
//! its messages. Only its event loop has its session.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lodestore_wire::Protocol;

use crate::command_specs::lookup::PermissionId;
use crate::pause::Pause;

/// Number of a client. Numbers are never used again.
pub(crate) type ClientId = u64;

/// Maximum bytes of messages that wait for the event loop of one client. A loop reads its messages
/// in each tick, so only a loop that a long command blocks reaches the bound.
const QUEUED_BYTES_MAX: usize = 32 << 20;

/// The information about a client for others, by `CLIENT LIST`.
#[derive(Debug)]
pub(crate) struct PublicState {
    /// Number of the client.
    pub(crate) id: ClientId,
    /// Address and port, or path of the socket.
    pub(crate) address: String,
    /// Address of the server's end.
    pub(crate) local_address: String,
    /// When the client connected.
    pub(crate) connected: Instant,
    /// Milliseconds from `connected` to the last bytes that were received or sent.
    pub(crate) last_activity_ms: AtomicU64,
    /// Whether the connection must be closed.
    pub(crate) is_killed: AtomicBool,
    /// Whether the connection is closed.
    pub(crate) is_closed: AtomicBool,
    /// The destination of messages to the client.
    pub(crate) route: Route,
    /// Numbers for `CLIENT LIST`.
    pub(crate) figures: ClientFigures,
    /// The fields that commands change.
    pub(crate) details: std::sync::Mutex<Details>,
}

/// Numbers of a client that its event loop keeps for `CLIENT LIST`.
///
/// Each is written by the event loop of the client alone, so a plain store is enough.
#[derive(Debug, Default)]
pub(crate) struct ClientFigures {
    /// Number of the last command or subcommand plus 1; 0 means none.
    last_command: AtomicUsize,
    /// Bytes that were received and not run.
    pub(crate) input_bytes: AtomicUsize,
    /// Free bytes of the input buffer.
    pub(crate) input_free_bytes: AtomicUsize,
    /// Bytes of the buffers and of the session.
    pub(crate) total_bytes: AtomicUsize,
    /// Whether a pause holds the client's next command.
    is_held: AtomicBool,
    /// Commands since `MULTI`.
    pub(crate) queued_commands: AtomicUsize,
    /// Bytes of the commands since `MULTI`.
    pub(crate) queue_bytes: AtomicUsize,
}

impl ClientFigures {
    /// Notes the last command. An unknown one is none.
    pub(crate) fn note_command(&self, id: Option<PermissionId>) {
        self.last_command.store(id.map_or(0, |id| id + 1), Ordering::Relaxed);
    }

    /// Whether a pause holds the client's next command.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Relaxed)
    }

    /// Notes whether a pause holds the client's next command.
    pub(crate) fn set_held(&self, pause: &Pause, is_held: bool) {
        if self.is_held.swap(is_held, Ordering::Relaxed) != is_held {
            pause.count_client(is_held);
        }
    }

    /// Returns the number of the last command.
    pub(crate) fn last_command(&self) -> Option<PermissionId> {
        self.last_command.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// The part of [`PublicState`] that commands change.
#[derive(Debug, Default, Clone)]
pub(crate) struct Details {
    pub(crate) name: String,
    pub(crate) library_name: String,
    pub(crate) library_version: String,
    pub(crate) user: String,
    /// Identity of the user. 0 is the default user.
    pub(crate) user_identity: u64,
    pub(crate) database: usize,
    pub(crate) protocol: Protocol,
    pub(crate) is_in_transaction: bool,
    pub(crate) watched_count: usize,
    pub(crate) channel_count: usize,
    pub(crate) pattern_count: usize,
    pub(crate) shard_channel_count: usize,
    pub(crate) is_monitor: bool,
    pub(crate) is_tracking: bool,
    /// The client that gets the invalidations of this client; 0 means none.
    pub(crate) redirect: ClientId,
}

impl PublicState {
    /// Returns how long nothing was received from the client and nothing was sent to it.
    pub(crate) fn idle(&self) -> Duration {
        self.connected.elapsed().saturating_sub(Duration::from_millis(self.last_activity_ms.load(Ordering::Relaxed)))
    }

    /// Notes that bytes were received or sent in a tick that began at `now`.
    pub(crate) fn note_activity(&self, now: Instant) {
        let since = now.saturating_duration_since(self.connected);
        self.last_activity_ms.store(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether another client or the server ends the connection. A killed client runs no further
    /// command. The load is relaxed: the locks of stripes order the load with the kill
    /// (`command/kill.rs`).
    pub(crate) fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Relaxed)
    }

    /// Whether the connection is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Calls `change` with the details.
    pub(crate) fn with_details<T>(&self, change: impl FnOnce(&mut Details) -> T) -> T {
        change(&mut self.details.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// The destination of a client's messages, and the bytes that wait there.
#[derive(Debug, Default)]
pub(crate) struct Route {
    event_loop: AtomicUsize,
    slot: AtomicUsize,
    queued_bytes: AtomicUsize,
    /// Bytes of replies and messages that the socket has not accepted.
    output_bytes: AtomicUsize,
}

impl Route {
    /// Sets the event loop of the client, and the client's index there.
    pub(crate) fn set(&self, event_loop: usize, slot: usize) {
        self.event_loop.store(event_loop, Ordering::Relaxed);
        self.slot.store(slot, Ordering::Relaxed);
    }

    pub(crate) fn event_loop(&self) -> usize {
        self.event_loop.load(Ordering::Relaxed)
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot.load(Ordering::Relaxed)
    }

    /// Counts bytes that will be queued. Returns whether the bound allows them.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let before = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_allowed = before == 0 || before + bytes <= QUEUED_BYTES_MAX;
        if !is_allowed {
            self.release(bytes);
        }
        is_allowed
    }

    /// Counts bytes that are queued no more.
    pub(crate) fn release(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Sets the number of unsent bytes.
    pub(crate) fn set_output_bytes(&self, bytes: usize) {
        if self.output_bytes.load(Ordering::Relaxed) != bytes {
            self.output_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the number of bytes that wait for the client.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.output_bytes.load(Ordering::Relaxed) + self.queued_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_bytes_are_bounded() {
        let route = Route::default();
        assert!(route.reserve(QUEUED_BYTES_MAX * 2));
        assert!(!route.reserve(1));
        route.release(QUEUED_BYTES_MAX * 2);
        assert!(route.reserve(QUEUED_BYTES_MAX));
        assert!(!route.reserve(1));
    }
}
