//! Events inside a store that its owner may want to log or count.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// An event that a store caused or detected. Never sent from a hot path.
///
/// The text of an event is one line for a log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A store was opened.
    Opened {
        /// Whether the last stop was clean.
        clean: bool,
        /// Time from the open to the first operation that could be served.
        ready_after: Duration,
    },
    /// The recovery of the last open has ended.
    Recovered {
        /// Live keys found.
        keys: u64,
        /// Faults found, as in [`RecoveryState::corrupt`](crate::RecoveryState::corrupt).
        corrupt: u64,
        /// Duration of the recovery.
        took: Duration,
    },
    /// A region was added to a pool.
    Grown {
        /// Current bytes of the pool.
        bytes: u64,
    },
    /// Bytes on the medium were damaged.
    Corruption {
        /// How the damage was found.
        found_by: FoundBy,
        /// The damaged place.
        place: String,
        /// Description of the damage.
        what: String,
    },
    /// A write did not fit the store.
    Full {
        /// Bytes needed.
        needed: u64,
    },
    /// The store refuses writes from now on.
    Poisoned {
        /// The kind of failure.
        reason: PoisonReason,
        /// Description of the failure.
        cause: String,
    },
    /// Expired keys were removed.
    Swept {
        /// Number of removed keys.
        keys: u64,
    },
    /// A device of a matrix is no longer used.
    DeviceFailed {
        /// The group, from 0.
        group: usize,
        /// The device in its group, from 0.
        device: usize,
        /// Whether the device is only late. The store uses the device again when it answers.
        is_late: bool,
        /// Description of the failure.
        cause: String,
    },
    /// A device of a matrix was filled from other devices, which could not read some pairs.
    CopyIncomplete {
        /// The group, from 0.
        group: usize,
        /// The device in its group, from 0.
        device: usize,
        /// Minimum number of pairs that the device lacks.
        pairs: u64,
    },
}

/// How damage was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FoundBy {
    /// The open of the store.
    Open,
    /// A read by an operation, by the recovery, or by background work.
    Read,
    /// The background scrub.
    Scrub,
}

impl FoundBy {
    /// Returns the name in logs: `open`, `read` or `scrub`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Scrub => "scrub",
        }
    }
}

/// Why a store refuses writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoisonReason {
    /// The operating system failed to make writes durable.
    Sync,
    /// The operating system failed to write or to extend a file.
    Write,
    /// A thread panicked in the middle of a write.
    Panic,
    /// Damage that a write could make worse.
    Damage,
    /// The recovery failed.
    Recovery,
}

impl PoisonReason {
    /// Returns the name in logs: `sync`, `write`, `panic`, `damage` or `recovery`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Write => "write",
            Self::Panic => "panic",
            Self::Damage => "damage",
            Self::Recovery => "recovery",
        }
    }
}

impl Event {
    /// Returns a stable name of the event, for logs and counts.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Opened { .. } => "opened",
            Self::Recovered { .. } => "recovered",
            Self::Grown { .. } => "grown",
            Self::Corruption { .. } => "corruption",
            Self::Full { .. } => "full",
            Self::Poisoned { .. } => "poisoned",
            Self::Swept { .. } => "swept",
            Self::DeviceFailed { .. } => "device_failed",
            Self::CopyIncomplete { .. } => "copy_incomplete",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { clean, ready_after } => {
                let stop = if *clean { "a clean stop" } else { "a stop that was not clean" };
                write!(f, "opened after {stop}, ready in {ready_after:.1?}")
            }
            Self::Recovered { keys, corrupt, took } => {
                write!(f, "recovered {keys} keys in {took:.1?}, {corrupt} damaged places")
            }
            Self::Grown { bytes } => write!(f, "grew to {bytes} bytes"),
            Self::Corruption { found_by, place, what } => {
                write!(f, "corrupt data at {place}, found by {}: {what}", found_by.name())
            }
            Self::Full { needed } => write!(f, "the store is full: {needed} more bytes do not fit"),
            Self::Poisoned { reason, cause } => {
                write!(f, "the store refuses writes from now on ({}): {cause}", reason.name())
            }
            Self::Swept { keys } => write!(f, "removed {keys} expired keys"),
            Self::DeviceFailed { group, device, is_late, cause } => {
                let late = if *is_late { " (late; used again when it answers)" } else { "" };
                write!(f, "device {device} of group {group} is no longer used{late}: {cause}")
            }
            Self::CopyIncomplete { group, device, pairs } => write!(
                f,
                "device {device} of group {group} may lack at least {pairs} pairs, which no other device can read"
            ),
        }
    }
}

/// Receives events. The sink runs on the thread that detected the event, after the operation has
/// ended and released its locks.
///
/// The sink may read and write the store, but must not close the store, wait for its recovery, or
/// block for long. Events caused by the sink's own calls are sent after the current event.
pub type EventSink = Arc<dyn Fn(&Event) + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_is_one_line_with_the_numbers_of_its_event() {
        let (time, text) = (Duration::from_millis(12), || "some words".to_owned());
        for (event, says) in [
            (Event::Opened { clean: false, ready_after: time }, "not clean, ready in 12.0ms"),
            (Event::Recovered { keys: 7, corrupt: 2, took: time }, "7 keys in 12.0ms, 2 damaged"),
            (Event::Grown { bytes: 99 }, "99 bytes"),
            (Event::Corruption { found_by: FoundBy::Scrub, place: "pool.0000".into(), what: text() }, "by scrub: some"),
            (Event::Full { needed: 5 }, "5 more bytes"),
            (Event::Poisoned { reason: PoisonReason::Sync, cause: text() }, "(sync): some words"),
            (Event::Swept { keys: 3 }, "3 expired"),
            (Event::DeviceFailed { group: 1, device: 2, is_late: true, cause: text() }, "device 2 of group 1"),
            (Event::CopyIncomplete { group: 1, device: 2, pairs: 4 }, "lack at least 4 pairs"),
        ] {
            let line = event.to_string();
            assert!(line.contains(says) && !line.contains('\n'), "{line}");
            assert!(!event.name().contains(' '));
        }
    }
}
