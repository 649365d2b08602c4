//! The memory of clients: `client-query-buffer-limit` and `maxmemory-clients`.
//!
//! The input and the output of each connection count, and the data of its session: the queue of a
//! transaction, watched keys and subscriptions. The sum of all event loops is exact after each
//! tick. If the sum exceeds its bound, the loop that has the largest client closes that client.

use std::sync::atomic::Ordering;

use super::event_loop::EventLoop;

impl EventLoop {
    /// Counts the bytes of a connection. Returns whether they are within the bound on commands.
    pub(super) fn count_memory(&mut self, index: usize) -> bool {
        let Some(connection) = &mut self.connections[index] else { return true };
        let (input, output) = (&self.inputs[index], &self.outputs[index]);
        let state_bytes = connection.session.state_bytes();
        let bytes = input.allocated_bytes() + output.allocated_bytes() + state_bytes;
        let figures = &connection.session.public.figures;
        figures.input_bytes.store(input.pending_bytes(), Ordering::Relaxed);
        figures.input_free_bytes.store(input.free_bytes(), Ordering::Relaxed);
        if bytes != connection.counted_bytes {
            figures.total_bytes.store(bytes, Ordering::Relaxed);
            self.shared.client_memory.replace(connection.counted_bytes, bytes);
            self.shared.client_memory.note_client(self.own, bytes);
            connection.counted_bytes = bytes;
        }
        input.pending_bytes() + state_bytes <= self.shared.runtime.query_bytes_max()
    }

    /// Counts the bytes of a connection, and closes one that exceeds the bound on commands.
    pub(super) fn close_if_too_large(&mut self, index: usize) {
        if !self.count_memory(index) {
            tracing::warn!("a client exceeds client-query-buffer-limit and is closed");
            self.close(index);
        }
    }

    /// Forgets the bytes of a connection that ends.
    pub(super) fn forget_memory(&self, counted_bytes: usize) {
        self.shared.client_memory.replace(counted_bytes, 0);
    }

    /// Closes the largest clients, if the clients of all loops use more memory than they may.
    pub(super) fn close_largest(&mut self) {
        let max = self.shared.runtime.clients_memory_max();
        while self.shared.client_memory.total() > max {
            // The loop of a larger client closes that client, within `POLL_TIMEOUT`.
            let (is_largest, largest) = self.refresh_largest();
            let Some((bytes, index)) = largest.filter(|_| is_largest) else { return };
            tracing::warn!(bytes, "the clients exceed maxmemory-clients, and the largest client is closed");
            self.shared.counters.evicted_clients.fetch_add(1, Ordering::Relaxed);
            self.close(index);
        }
    }

    /// Counts the largest client of the loop again, if the memory of clients has a bound. A client
    /// may have become smaller since.
    pub(super) fn check_memory(&mut self) {
        if self.shared.runtime.clients_memory_max() != usize::MAX {
            self.refresh_largest();
            self.close_largest();
        }
    }

    /// Finds the largest client of the loop that may be closed: its bytes and its index. Returns
    /// whether no other loop has a larger one.
    fn refresh_largest(&self) -> (bool, Option<(usize, usize)>) {
        let open = self.connections.iter().enumerate().filter_map(|(index, connection)| {
            let connection = connection.as_ref().filter(|connection| !connection.session.is_kept)?;
            Some((connection.counted_bytes, index))
        });
        let largest = open.max();
        let bytes = largest.map_or(0, |(bytes, _)| bytes);
        (self.shared.client_memory.set_largest(self.own, bytes), largest)
    }
}
