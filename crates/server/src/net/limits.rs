//! Bounds on the unsent bytes of clients: `client-output-buffer-limit`.

use std::time::Instant;

use crate::config::OutputLimit;
use crate::session::Session;
use crate::shared::Shared;

/// The unread bytes of a client.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Bytes of messages since the output was empty.
    pushed_bytes: usize,
    /// Since when the client has more unsent bytes than its soft bound.
    over_soft_since: Option<Instant>,
}

impl Backlog {
    /// Counts bytes of messages.
    pub(crate) fn add_pushed(&mut self, bytes: usize) {
        self.pushed_bytes += bytes;
    }

    /// Notes that everything is sent.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether a client with `pending` unsent bytes must be closed.
    ///
    /// Replies are bounded by `output_bytes_pause`, because no further commands run for a client
    /// that does not read them. Messages need a separate bound, also for clients whose class has
    /// none.
    pub(crate) fn is_over_limit(&mut self, session: &Session, pending: usize, shared: &Shared) -> bool {
        let limit = limit_of(session, shared);
        self.refuses(session, pending, 0, shared) || self.is_over_soft(pending, limit)
    }

    /// Whether a message of `bytes` bytes exceeds the hard bound of a client with `pending` unsent
    /// bytes.
    pub(crate) fn refuses(&self, session: &Session, pending: usize, bytes: usize, shared: &Shared) -> bool {
        let limit = limit_of(session, shared);
        let is_unbounded = limit.hard_bytes == 0 && limit.soft_bytes == 0;
        let pushed_max = shared.runtime.output_limits().pubsub.hard_bytes;
        exceeds(pending + bytes, limit.hard_bytes) || (is_unbounded && exceeds(self.pushed_bytes + bytes, pushed_max))
    }

    fn is_over_soft(&mut self, pending: usize, limit: OutputLimit) -> bool {
        if !exceeds(pending, limit.soft_bytes) {
            self.over_soft_since = None;
            return false;
        }
        let since = *self.over_soft_since.get_or_insert_with(Instant::now);
        since.elapsed() > limit.soft_time
    }
}

/// Returns the bound of a client's class.
fn limit_of(session: &Session, shared: &Shared) -> OutputLimit {
    let limits = shared.runtime.output_limits();
    match () {
        () if session.messaging.is_monitor => limits.replica,
        () if session.messaging.is_subscriber() => limits.pubsub,
        () => limits.normal,
    }
}

/// Whether bytes exceed a bound. 0 is no bound.
fn exceeds(bytes: usize, bound: usize) -> bool {
    bound > 0 && bytes > bound
}
