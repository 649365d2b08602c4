//! Connections whose next command waits for the end of a pause.
//!
//! A held connection is not in the list of the ready ones, and its socket is not read. So the loop
//! does nothing for the connection until the pause ends. `CLIENT UNPAUSE` wakes all loops, and a
//! loop with held connections polls at most until the pause ends by time.
//!
//! A held client that closes its end is closed, and its command does not run, as in Redis.

use std::time::Duration;

use super::event_loop::EventLoop;

/// Longest wait for events while no command is held.
const UNBOUNDED: Duration = Duration::MAX;

impl EventLoop {
    /// Keeps a connection with a held command, or closes the connection if the client is gone.
    pub(super) fn keep_held(&mut self, index: usize) {
        let is_gone = self.connections[index].as_ref().is_some_and(|connection| connection.is_closing);
        if is_gone {
            self.close(index);
        } else {
            self.has_held = true;
        }
    }

    /// Returns the time after which held commands may run.
    pub(super) fn time_to_release(&self) -> Duration {
        if self.has_held { self.shared.pause.remaining() } else { UNBOUNDED }
    }

    /// Lists all held connections as ready, if there is no pause.
    pub(super) fn release_held(&mut self) {
        if !self.has_held || self.shared.pause_mode().is_some() {
            return;
        }
        self.has_held = false;
        for (index, connection) in self.connections.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            let figures = &connection.session.public.figures;
            if figures.is_held() {
                figures.set_held(&self.shared.pause, false);
                if !connection.is_listed {
                    connection.is_listed = true;
                    self.ready.push(index);
                }
            }
        }
    }
}
