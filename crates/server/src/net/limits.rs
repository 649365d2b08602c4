//! Bounds on the unsent bytes of clients: `client-output-buffer-limit`.

use std::time::Instant;

use crate::session::Session;
use crate::settings::OutputLimit;
use crate::shared::Shared;

/// What a client has not read.
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
    /// Replies are bounded by `output_bytes_pause`, because a client that does not read them sends
    /// no further commands that run. Messages need a bound of their own, also for clients whose
    /// class has none.
    pub(crate) fn is_over_limit(&mut self, session: &Session, pending: usize, shared: &Shared) -> bool {
        let limits = shared.settings.output_limits();
        let limit = match () {
            () if session.messaging.is_monitor => limits.replica,
            () if session.messaging.is_subscriber() => limits.pubsub,
            () => limits.normal,
        };
        let is_pushed_over = exceeds(self.pushed_bytes, limits.pubsub.hard_bytes);
        let is_unbounded = limit.hard_bytes == 0 && limit.soft_bytes == 0;
        exceeds(pending, limit.hard_bytes) || self.is_over_soft(pending, limit) || (is_unbounded && is_pushed_over)
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

/// Whether bytes exceed a bound. 0 is no bound.
fn exceeds(bytes: usize, bound: usize) -> bool {
    bound > 0 && bytes > bound
}
