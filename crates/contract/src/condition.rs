//! Conditions of a batch: the state that keys must have for the batch to take effect.

use std::ops::Bound;

use crate::error::{Error, Result};
use crate::expiry::Expiry;
use crate::range::ScanRange;

/// The state that a condition requires of its key.
///
/// Conditions compare contents, not write counts. A key that was changed and changed back satisfies
/// them: serializability depends on the state at the commit, not on its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// The key is absent. An expired key is absent.
    Absent,
    /// The key is present, with any value.
    Present,
    /// The key is present with this value and any expiry.
    Value(Vec<u8>),
    /// The key is present with this value and this expiry (`None`: it does not expire).
    Entry(Vec<u8>, Option<Expiry>),
}

/// The keys that a put changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutWhen {
    /// All keys.
    Always,
    /// Absent keys: an insert.
    Absent,
    /// Present keys: an update.
    Present,
}

/// A condition on one key: see [`Store::write_if`](crate::Store::write_if).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The key.
    pub key: Vec<u8>,
    /// The required state.
    pub expected: Expected,
}

impl Condition {
    /// Requires that `key` is absent.
    pub fn absent(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), expected: Expected::Absent }
    }

    /// Requires that `key` is present, with any value.
    pub fn present(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), expected: Expected::Present }
    }

    /// Requires that `key` has the value that a read returned: `None` if the read found no value.
    pub fn value(key: impl Into<Vec<u8>>, value: Option<Vec<u8>>) -> Self {
        Self { key: key.into(), expected: value.map_or(Expected::Absent, Expected::Value) }
    }

    /// Returns whether the present value and expiry of the key satisfy the condition. `value` is
    /// `None` if the key is absent or expired.
    pub fn is_met(&self, value: Option<&[u8]>, expiry: Option<Expiry>) -> bool {
        match &self.expected {
            Expected::Absent => value.is_none(),
            Expected::Present => value.is_some(),
            Expected::Value(expected) => value == Some(expected),
            Expected::Entry(expected, at) => value == Some(expected) && expiry == *at,
        }
    }
}

/// A condition on a range: exactly these keys are present in it. See
/// [`Store::write_if_ranges`](crate::Store::write_if_ranges).
///
/// The condition does not cover values; add a [`Condition`] on each key for that. Together they
/// require that the range is as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeCondition {
    /// The lower bound.
    pub from: Bound<Vec<u8>>,
    /// The upper bound.
    pub to: Bound<Vec<u8>>,
    /// The keys, ascending. If they are in another order, or a key is outside the bounds, the
    /// condition is never met.
    pub keys: Vec<Vec<u8>>,
}

impl RangeCondition {
    /// For engines: returns the range to walk, forward and without a limit.
    #[must_use]
    pub fn scan_range(&self) -> ScanRange {
        ScanRange { from: self.from.clone(), to: self.to.clone(), ..ScanRange::all() }
    }
}

/// The outcome of a conditional batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a batch whose conditions are not met writes nothing"]
pub enum Commit {
    /// All conditions were met, and the batch is written.
    Done,
    /// A condition was not met, and nothing is written. The number is the condition's index.
    /// Conditions on ranges are counted after the conditions on keys.
    Unmet(usize),
}

impl Commit {
    /// For engines: returns [`Commit::Unmet`] in place of an error for lack of space if `check`
    /// finds a condition that is not met. Other errors are returned unchanged.
    ///
    /// # Errors
    /// `error`, unless a condition is not met.
    pub fn after_refusal(error: Error, check: impl FnOnce() -> Result<Self>) -> Result<Self> {
        if error.is_for_space()
            && let Ok(Self::Unmet(index)) = check()
        {
            return Ok(Self::Unmet(index));
        }
        Err(error)
    }

    /// Returns whether the batch is written.
    pub fn is_done(self) -> bool {
        self == Self::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_is_met_only_by_the_states_that_it_names() {
        let (soon, late) = (Expiry::at_millis(1), Expiry::at_millis(2));
        let states = [(None, None), (Some(&b"1"[..]), None), (Some(b"1"), Some(soon)), (Some(b"2"), None)];
        let met = |expected: Expected| {
            let condition = Condition { key: b"k".to_vec(), expected };
            states.map(|(value, expiry)| condition.is_met(value, expiry))
        };
        assert_eq!(met(Expected::Absent), [true, false, false, false]);
        assert_eq!(met(Expected::Present), [false, true, true, true]);
        assert_eq!(met(Expected::Value(b"1".to_vec())), [false, true, true, false]);
        assert_eq!(met(Expected::Entry(b"1".to_vec(), None)), [false, true, false, false]);
        assert_eq!(met(Expected::Entry(b"1".to_vec(), Some(soon))), [false, false, true, false]);
        assert_eq!(met(Expected::Entry(b"1".to_vec(), Some(late))), [false; 4]);
    }
}
