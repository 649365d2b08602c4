//! Failures of background work, remembered until something changes. A failed task is not retried in
//! vain, and is retried once it may succeed.
//!
//! Rules
//! * A failure for lack of space is forgotten after each success, which may have freed space. Such
//!   a failure is also forgotten once more space is free than at the failure. The end of a
//!   snapshot, for example, frees as much as a compaction does, without a notification.
//! * A refusal by the operating system (e.g. too many open files) is also forgotten after each
//!   success. A refused flush is also forgotten once a writer got the error, so that the next write
//!   retries the flush.
//! * A failure due to damage is not retried before a caller requests it (`Store::settle`). Damage
//!   does not repair itself, and the work up to the damaged bytes would be wasted.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use lodestore_contract::{Error, Result};

/// The reason of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Too little free space.
    Full { needed: u64, capacity: u64 },
    /// Damaged data.
    Corrupt { place: String, what: String },
    /// The operating system refused an operation.
    Io { doing: &'static str, path: PathBuf, os_error: OsError },
    /// Any other reason. A failed sync poisons the pool, which is checked first.
    Other(String),
}

/// The error of the operating system, in a form that can be returned more than once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OsError {
    Code(i32),
    Text(io::ErrorKind, String),
}

impl From<io::Error> for OsError {
    fn from(error: io::Error) -> Self {
        error.raw_os_error().map_or_else(|| Self::Text(error.kind(), error.to_string()), Self::Code)
    }
}

impl OsError {
    fn error(&self) -> io::Error {
        match self {
            Self::Code(code) => io::Error::from_raw_os_error(*code),
            Self::Text(kind, text) => io::Error::new(*kind, text.clone()),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Full { needed, capacity } => Self::Full { needed, capacity },
            Error::Corrupt { place, what, .. } => Self::Corrupt { place, what },
            Error::Io { doing, path, source } => Self::Io { doing, path, os_error: source.into() },
            Error::Poisoned { cause } => Self::Other(cause),
            other => Self::Other(other.to_string()),
        }
    }
}

impl Failure {
    /// Returns the failure as an error, for another caller.
    pub(crate) fn error(&self) -> Error {
        match self {
            Self::Full { needed, capacity } => Error::Full { needed: *needed, capacity: *capacity },
            Self::Corrupt { place, what } => Error::corrupt(place.clone(), what.clone()),
            Self::Io { doing, path, os_error } => Error::io(doing, path, os_error.error()),
            Self::Other(cause) => Error::Poisoned { cause: cause.clone() },
        }
    }

    fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// Returns whether a retry may succeed without an intervention.
    fn is_transient(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Io { .. })
    }
}

/// The failures of background work.
#[derive(Default)]
pub(crate) struct Failures {
    /// The flush of the oldest memtable.
    flush: Option<Failure>,
    /// Compactions and joins, by range.
    ranges: HashMap<u64, Failure>,
    /// The garbage collection of a value segment.
    collection: Option<Failure>,
    /// Usable bytes at the last failure for lack of space.
    usable_bytes: u64,
}

impl Failures {
    pub(crate) fn flush(&self) -> Option<&Failure> {
        self.flush.as_ref()
    }

    pub(crate) fn has_range(&self, id: u64) -> bool {
        self.ranges.contains_key(&id)
    }

    pub(crate) fn has_collection(&self) -> bool {
        self.collection.is_some()
    }

    /// Records the outcome of a flush. `usable_bytes`: the bytes that background work may use now.
    /// A failure for lack of space is forgotten once more are usable.
    pub(crate) fn note_flush(&mut self, outcome: Result<()>, usable_bytes: u64) {
        self.flush = self.failure_of(outcome, usable_bytes);
    }

    /// Records the outcome of a compaction or a join.
    pub(crate) fn note_range(&mut self, id: u64, outcome: Result<()>, usable_bytes: u64) {
        match self.failure_of(outcome, usable_bytes) {
            Some(failure) => self.ranges.insert(id, failure),
            None => self.ranges.remove(&id),
        };
    }

    /// Records the outcome of a garbage collection.
    pub(crate) fn note_collection(&mut self, outcome: Result<()>, usable_bytes: u64) {
        self.collection = self.failure_of(outcome, usable_bytes);
    }

    fn failure_of(&mut self, outcome: Result<()>, usable_bytes: u64) -> Option<Failure> {
        let Err(error) = outcome else {
            self.clear_transient();
            return None;
        };
        let failure = Failure::from(error);
        if failure.is_full() {
            self.usable_bytes = usable_bytes;
        }
        Some(failure)
    }

    /// Forgets failures for lack of space and refusals by the operating system, so that they are
    /// retried.
    pub(crate) fn clear_transient(&mut self) {
        self.flush.take_if(|failure| failure.is_transient());
        self.ranges.retain(|_, failure| !failure.is_transient());
        self.collection.take_if(|failure| failure.is_transient());
    }

    /// Returns why a flush failed, to a writer that waits for it. A refusal by the operating system
    /// is then forgotten, so that the flush is retried.
    pub(crate) fn take_flush_error(&mut self) -> Option<Error> {
        let error = self.flush.as_ref()?.error();
        self.flush.take_if(|failure| matches!(failure, Failure::Io { .. }));
        Some(error)
    }

    /// Like [`Self::clear_transient`], if at least `more` bytes more are usable than at the last
    /// failure for lack of space.
    pub(crate) fn clear_if_space_grew(&mut self, more: u64, usable_bytes: impl FnOnce() -> u64) {
        let waits = self.all().any(Failure::is_full);
        if waits && usable_bytes() >= self.usable_bytes.saturating_add(more) {
            self.clear_transient();
        }
    }

    /// Forgets all failures.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    fn all(&self) -> impl Iterator<Item = &Failure> {
        self.flush.iter().chain(self.ranges.values()).chain(&self.collection)
    }

    /// Returns the most severe failure: damage, then refusals by the operating system, then lack of
    /// space.
    pub(crate) fn most_severe(&self) -> Option<&Failure> {
        self.all().min_by_key(|failure| (failure.is_transient(), failure.is_full()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Result<()> {
        Err(Error::Full { needed: 5, capacity: 9 })
    }

    fn corrupt() -> Result<()> {
        Err(Error::corrupt("a table", "a block"))
    }

    #[test]
    fn a_success_clears_lack_of_space_and_keeps_damage() {
        let mut failures = Failures::default();
        failures.note_flush(full(), 0);
        failures.note_range(1, full(), 0);
        failures.note_range(2, corrupt(), 0);
        failures.note_collection(full(), 0);
        assert!(matches!(failures.most_severe(), Some(Failure::Corrupt { .. })));
        failures.note_range(3, Ok(()), 0);
        assert!(failures.flush().is_none() && !failures.has_collection());
        assert_eq!([1, 2, 3].map(|id| failures.has_range(id)), [false, true, false]);
        failures.note_range(2, Ok(()), 0);
        assert_eq!(failures.most_severe(), None);
    }

    #[test]
    fn a_failure_clears_no_other_failure() {
        let mut failures = Failures::default();
        failures.note_range(1, full(), 0);
        failures.note_flush(full(), 0);
        assert!(failures.has_range(1) && failures.flush().is_some());
    }

    #[test]
    fn lack_of_space_is_cleared_once_space_grows() {
        let mut failures = Failures::default();
        failures.clear_if_space_grew(10, || panic!("nobody waits for room"));
        failures.note_range(1, full(), 100);
        failures.clear_if_space_grew(10, || 109);
        assert!(failures.has_range(1));
        failures.clear_if_space_grew(10, || 110);
        assert!(!failures.has_range(1));
        failures.note_range(1, corrupt(), 100);
        failures.clear_if_space_grew(10, || panic!("room is no help"));
        assert!(failures.has_range(1));
        failures.clear();
        assert!(!failures.has_range(1));
    }

    /// Regression: the error was reported as a poisoned store, and the flush was never retried.
    #[test]
    fn os_errors_are_cleared_once_reported_or_after_a_success() {
        let refused = || Err(Error::io("opening", "a/store", io::Error::from_raw_os_error(24)));
        let mut failures = Failures::default();
        failures.note_flush(refused(), 0);
        failures.note_range(1, full(), 0);
        assert!(matches!(failures.most_severe(), Some(Failure::Io { .. })));
        let told = failures.take_flush_error().expect("it failed").to_string();
        assert!(told.contains("ulimit -n"), "{told}");
        assert!(failures.flush().is_none() && failures.has_range(1));
        failures.note_range(2, refused(), 0);
        failures.note_flush(Ok(()), 0);
        assert!(!failures.has_range(1) && !failures.has_range(2));
        failures.note_flush(corrupt(), 0);
        assert!(failures.take_flush_error().is_some() && failures.flush().is_some(), "damage does not mend");
    }

    #[test]
    fn a_failure_converts_back_to_its_error() {
        for error in [
            Error::Full { needed: 5, capacity: 9 },
            Error::corrupt("a table", "a block"),
            Error::io("opening", "a/store", io::Error::from_raw_os_error(28)),
            Error::io("opening", "a/store", io::Error::new(io::ErrorKind::InvalidData, "odd")),
        ] {
            let text = error.to_string();
            assert_eq!(Failure::from(error).error().to_string(), text);
        }
        let panicked = Failure::from(Error::Poisoned { cause: "a flush panicked".into() });
        assert!(matches!(panicked.error(), Error::Poisoned { cause } if cause == "a flush panicked"));
    }
}
