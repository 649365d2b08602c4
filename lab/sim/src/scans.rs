//! Scans concurrent with a history: the values that a scan may return for each key.
//!
//! A scan is no read of a history. A page has the contents of a device at the time of the read,
//! including values that are not acknowledged yet and are reverted later. The scan must respect
//! writes that were acknowledged before it began: for each key it returns the value of a write that
//! began before the scan ended, and that no acknowledged write has overwritten in between.

use std::collections::BTreeMap;

use crate::history::{Action, Answer, Call, KeyOp, Value};

/// The result of a scan by key, and its call and return times by the history's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Values by key; other keys are absent.
    pub values: BTreeMap<u64, Value>,
    /// The time of the call.
    pub called: u64,
    /// The time of the return.
    pub returned: u64,
}

/// A refused write, reverted where some devices had applied it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Its key.
    pub key: u64,
    /// The value that it would have left.
    pub value: Option<Value>,
    /// The clock before the call.
    pub called: u64,
    /// The clock after the return.
    pub returned: u64,
}

/// Returns the value that a write leaves if it takes effect.
pub(crate) fn left_by(op: KeyOp) -> Option<Option<Value>> {
    match op {
        KeyOp::Put(value) | KeyOp::Insert(value) | KeyOp::Update(value) => Some(Some(value)),
        KeyOp::Delete | KeyOp::Clear => Some(None),
        KeyOp::Swap(_, new) => Some(new),
        KeyOp::Get | KeyOp::Contains => None,
    }
}

/// A write that took effect, or may do so: its value, its call time, and its return time, if it
/// returned.
struct Write(Option<Value>, u64, Option<u64>);

fn writes(history: &[Call], key: u64) -> Vec<Write> {
    let write = |call: &Call| {
        let Action::One(of, op) = call.action else { return None };
        let left = left_by(op).filter(|_| of == key)?;
        match call.returned {
            Some((_, Answer::Changed(false) | Answer::Value(_))) => None,
            returned => Some(Write(left, call.called, returned.map(|(at, _)| at))),
        }
    };
    history.iter().filter_map(write).collect()
}

/// Checks scans of keys below `keys`, which are initially absent, concurrent with a history of
/// single-key operations.
///
/// # Errors
///
/// The first scan with an impossible value.
pub fn check(keys: u64, history: &[Call], refused: &[Refused], scans: &[Shown]) -> Result<(), String> {
    for key in 0..keys {
        let writes = writes(history, key);
        for scan in scans {
            let shown = scan.values.get(&key).copied();
            // Whether an acknowledged write is between one that returned then and the scan.
            let is_over = |end: u64| {
                writes.iter().any(|Write(_, called, returned)| {
                    *called > end && returned.is_some_and(|returned| returned < scan.called)
                })
            };
            let is_first =
                shown.is_none() && !writes.iter().any(|w| w.2.is_some_and(|returned| returned < scan.called));
            let is_left = writes.iter().any(|Write(left, called, returned)| {
                *left == shown && *called < scan.returned && !returned.is_some_and(is_over)
            });
            let is_refused = refused.iter().any(|write| {
                (write.key, write.value) == (key, shown)
                    && write.called <= scan.returned
                    && write.returned > scan.called
            });
            if !(is_first || is_left || is_refused) {
                return Err(format!(
                    "a scan from {} to {} shows {shown:?} of key {key}, of whose writes none left that then",
                    scan.called, scan.returned
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(value: Value, called: u64, returned: Option<u64>) -> Call {
        let returned = returned.map(|at| (at, Answer::Done));
        Call { action: Action::One(0, KeyOp::Put(value)), called, returned }
    }

    fn scan(value: Option<Value>, called: u64, returned: u64) -> Shown {
        Shown { values: value.map(|value| (0, value)).into_iter().collect(), called, returned }
    }

    fn may_show(history: &[Call], refused: &[Refused], scan: Shown) -> bool {
        check(1, history, refused, &[scan]).is_ok()
    }

    #[test]
    fn what_was_acknowledged_before_is_shown_and_what_is_under_way_may_be() {
        let history = [put(1, 0, Some(1)), put(2, 4, Some(9))];
        assert!(may_show(&history, &[], scan(Some(1), 5, 6)) && may_show(&history, &[], scan(Some(2), 5, 6)));
        assert!(!may_show(&history, &[], scan(None, 5, 6)), "a lost write");
        assert!(!may_show(&history, &[], scan(Some(1), 10, 11)), "it was written over");
        assert!(!may_show(&history, &[], scan(Some(2), 2, 3)), "nobody had written it");
        assert!(!may_show(&history, &[], scan(Some(7), 5, 6)), "a value from nowhere");
        assert!(may_show(&history, &[], scan(None, 0, 1)) && may_show(&[], &[], scan(None, 0, 1)));
    }

    #[test]
    fn what_failed_may_be_shown_ever_after_and_what_was_refused_while_it_was_tried() {
        let history = [put(1, 0, Some(1)), put(2, 2, None)];
        assert!(may_show(&history, &[], scan(Some(2), 50, 51)) && may_show(&history, &[], scan(Some(1), 50, 51)));
        let refused = [Refused { key: 0, value: Some(3), called: 4, returned: 8 }];
        assert!(may_show(&history, &refused, scan(Some(3), 5, 6)));
        assert!(!may_show(&history, &refused, scan(Some(3), 8, 9)), "it was taken back");
        assert!(!may_show(&history, &refused, scan(Some(3), 2, 3)), "it had not begun");
    }

    #[test]
    fn what_changed_nothing_explains_nothing() {
        let action = Action::One(0, KeyOp::Insert(5));
        let history = [put(1, 0, Some(1)), Call { action, called: 2, returned: Some((3, Answer::Changed(false))) }];
        assert!(may_show(&history, &[], scan(Some(1), 4, 5)) && !may_show(&history, &[], scan(Some(5), 4, 5)));
    }
}
