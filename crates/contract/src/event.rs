//! What happens inside a store that its owner may want to log or count.

use std::sync::Arc;
use std::time::Duration;

/// Something that a store did on its own, or met. Never sent from a hot path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A store was opened.
    Opened {
        /// Whether the last stop was clean.
        clean: bool,
        /// Until the first operation could be served.
        ready_after: Duration,
    },
    /// Recovery behind the open has ended.
    Recovered {
        /// Live keys found.
        keys: u64,
        /// Things found wrong, as in [`RecoveryState::corrupt`](crate::RecoveryState::corrupt).
        corrupt: u64,
        /// How long it took.
        took: Duration,
    },
    /// A region was added to a pool.
    Grown {
        /// Bytes of the pool now.
        bytes: u64,
    },
    /// Bytes on the medium were wrong.
    Corruption {
        /// Where.
        place: String,
        /// What.
        what: String,
    },
    /// A write found no room.
    Full {
        /// Bytes that were needed.
        needed: u64,
    },
    /// The store refuses writes from now on.
    Poisoned {
        /// The failure.
        cause: String,
    },
    /// Expired keys were removed.
    Swept {
        /// How many.
        keys: u64,
    },
}

/// Receives events; called on the thread that met them, when the operation is over and its locks are free: it may read and write the store,
/// but must not close it, nor wait for its recovery, nor block for long. What its own calls meet is told behind the event at hand.
pub type EventSink = Arc<dyn Fn(&Event) + Send + Sync>;
