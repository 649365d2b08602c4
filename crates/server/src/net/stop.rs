//! The last work of an event loop: the commands that were read, and their replies.

use std::time::{Duration, Instant};

use super::event_loop::{Connection, EventLoop};
use crate::command::dispatch::ViewCache;

/// Longest time after a stop for the commands that were read, and for sending their replies.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Time without an accepted byte after which a client with unsent replies is closed. The system
/// needs up to 0.3 s to free a gigabyte of replies, and other clients are served meanwhile.
const STALL_TIMEOUT: Duration = Duration::from_millis(400);

/// Pause between two attempts to send the last replies.
const STOP_PAUSE: Duration = Duration::from_millis(1);

impl EventLoop {
    /// Runs the commands that were read whole, and sends all replies, for a bounded time. Commands
    /// that a pause holds do not run: their clients get the earlier replies and no more, as in
    /// Redis.
    pub(super) fn finish(&mut self, view: &mut ViewCache) {
        let begun = Instant::now();
        let deadline = self.shared.stopping_since().unwrap_or(begun) + STOP_TIMEOUT;
        self.listeners.clear();
        let mut all: Vec<usize> = (0..self.connections.len()).collect();
        let mut last_progress = vec![begun; all.len()];
        loop {
            let mut held: Vec<usize> = all.extract_if(.., |index| self.is_held(*index)).collect();
            let are_commands_left;
            (all, are_commands_left) = self.run_commands(&all, view);
            all.append(&mut held);
            let (mut is_pending, mut is_sending) = (false, false);
            for index in &all {
                let before = self.unsent_bytes(*index);
                self.write(*index);
                let unsent = self.unsent_bytes(*index);
                let now = Instant::now();
                if unsent < before {
                    is_sending = true;
                    last_progress[*index] = now;
                }
                if unsent > 0 && now.saturating_duration_since(last_progress[*index]) >= STALL_TIMEOUT {
                    self.close(*index);
                } else {
                    is_pending |= unsent > 0;
                }
            }
            if (!are_commands_left && !is_pending) || Instant::now() >= deadline {
                break;
            }
            if !is_sending {
                std::thread::sleep(STOP_PAUSE);
            }
        }
        all.into_iter().for_each(|index| self.close(index));
    }

    fn is_held(&self, index: usize) -> bool {
        self.connections[index].as_ref().is_some_and(Connection::is_held)
    }

    /// Returns the bytes of a connection that its socket has not accepted. Bytes within TLS count
    /// as one.
    fn unsent_bytes(&self, index: usize) -> usize {
        let is_unsent = self.connections[index].as_ref().is_some_and(|open| open.stream.has_unsent());
        self.outputs[index].pending_bytes() + usize::from(is_unsent)
    }
}
