//! Histories of concurrent operations, and the search for a linearization.
//!
//! Linearizability is local (Herlihy and Wing, TOPLAS 1990): a history is linearizable exactly if that of each key is. So
//! each key is searched alone, by the algorithm of Wing and Gong (JPDC 1993) with the states
//! that were seen before remembered (Lowe, 2017). An operation that never returned may have taken effect or not.

use std::collections::{BTreeMap, HashSet};

/// Most operations on one key in a history.
pub const OPS_MAX: usize = 128;

/// A value, by number. Values are unique in a history, so that a wrong one cannot look right.
pub type Value = u64;

/// An operation on one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOp {
    /// Sets the value.
    Put(Value),
    /// Sets it if absent.
    Insert(Value),
    /// Sets it if present.
    Update(Value),
    /// Removes it.
    Delete,
    /// Reads it.
    Get,
    /// From this to that, if it is this.
    Swap(Option<Value>, Option<Value>),
}

/// What it answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Nothing to say.
    Done,
    /// Whether it changed something.
    Changed(bool),
    /// What is there.
    Value(Option<Value>),
}

/// One operation of a history. Times are of one clock; a call is before its return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Which key.
    pub key: u64,
    /// What was asked.
    pub op: KeyOp,
    /// When it was called.
    pub called: u64,
    /// When it returned, and what; `None`: not by the end of the history.
    pub returned: Option<(u64, Answer)>,
}

impl KeyOp {
    /// What it answers in a state, and the state after it.
    pub fn run(self, state: Option<Value>) -> (Answer, Option<Value>) {
        match self {
            Self::Put(value) => (Answer::Done, Some(value)),
            Self::Insert(value) if state.is_none() => (Answer::Changed(true), Some(value)),
            Self::Update(value) if state.is_some() => (Answer::Changed(true), Some(value)),
            Self::Insert(_) | Self::Update(_) => (Answer::Changed(false), state),
            Self::Delete => (Answer::Changed(state.is_some()), None),
            Self::Get => (Answer::Value(state), state),
            Self::Swap(expected, new) if expected == state => (Answer::Changed(true), new),
            Self::Swap(..) => (Answer::Value(state), state),
        }
    }
}

/// Checks every key of a history; each begins absent unless `initial` names a value.
///
/// # Errors
/// The first key without a linearization, with its calls in the order of their beginning.
pub fn check(history: &[Call], initial: &BTreeMap<u64, Value>) -> Result<(), String> {
    let mut keys: BTreeMap<u64, Vec<Call>> = BTreeMap::new();
    for call in history {
        keys.entry(call.key).or_default().push(*call);
    }
    for (key, mut calls) in keys {
        calls.sort_by_key(|call| call.called);
        assert!(calls.len() <= OPS_MAX, "{} operations on key {key}: keep it to {OPS_MAX}", calls.len());
        if !has_linearization(&calls, initial.get(&key).copied()) {
            let list: Vec<String> = calls.iter().map(|call| format!("{call:?}")).collect();
            return Err(format!(
                "key {key} (at first {:?}) has no linearization: {}",
                initial.get(&key),
                list.join("; ")
            ));
        }
    }
    Ok(())
}

/// Whether the calls on one key, in order of their beginning, can be put in a line that explains every answer.
fn has_linearization(calls: &[Call], initial: Option<Value>) -> bool {
    let completed = calls.iter().enumerate().filter(|(_, call)| call.returned.is_some());
    let goal: u128 = completed.fold(0, |mask, (index, _)| mask | 1 << index);
    let mut seen: HashSet<(u128, Option<Value>)> = HashSet::new();
    let mut stack = vec![(0u128, initial)];
    while let Some((done, state)) = stack.pop() {
        if done & goal == goal {
            return true;
        }
        if !seen.insert((done, state)) {
            continue;
        }
        // Only calls that began before every open call returned can be next.
        let open = |index: &usize| done >> *index & 1 == 0;
        let first_return =
            (0..calls.len()).filter(open).filter_map(|at| calls[at].returned.map(|(time, _)| time)).min();
        for index in (0..calls.len()).filter(open) {
            if first_return.is_some_and(|time| calls[index].called > time) {
                break;
            }
            let (answer, after) = calls[index].op.run(state);
            if calls[index].returned.is_none_or(|(_, seen)| seen == answer) {
                stack.push((done | 1 << index, after));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(op: KeyOp, called: u64, returned: u64, answer: Answer) -> Call {
        Call { key: 0, op, called, returned: Some((returned, answer)) }
    }

    fn pending(op: KeyOp, called: u64) -> Call {
        Call { key: 0, op, called, returned: None }
    }

    fn is_linearizable(history: &[Call]) -> bool {
        check(history, &BTreeMap::new()).is_ok()
    }

    #[test]
    fn calls_one_after_another_must_see_each_other() {
        let put = call(KeyOp::Put(1), 0, 1, Answer::Done);
        assert!(is_linearizable(&[put, call(KeyOp::Get, 2, 3, Answer::Value(Some(1)))]));
        assert!(!is_linearizable(&[put, call(KeyOp::Get, 2, 3, Answer::Value(None))]), "a lost write");
        assert!(!is_linearizable(&[put, call(KeyOp::Get, 2, 3, Answer::Value(Some(2)))]), "a value from nowhere");
    }

    #[test]
    fn calls_that_overlap_may_go_either_way() {
        let put = call(KeyOp::Put(1), 0, 10, Answer::Done);
        assert!(is_linearizable(&[put, call(KeyOp::Get, 2, 3, Answer::Value(Some(1)))]));
        assert!(is_linearizable(&[put, call(KeyOp::Get, 2, 3, Answer::Value(None))]));
        let new_then_old =
            [put, call(KeyOp::Get, 2, 3, Answer::Value(Some(1))), call(KeyOp::Get, 4, 5, Answer::Value(None))];
        assert!(!is_linearizable(&new_then_old), "what was seen must stay");
    }

    #[test]
    fn a_call_that_never_returned_may_have_happened_or_not() {
        let put = pending(KeyOp::Put(1), 0);
        assert!(is_linearizable(&[put, call(KeyOp::Get, 50, 51, Answer::Value(Some(1)))]));
        assert!(is_linearizable(&[put, call(KeyOp::Get, 50, 51, Answer::Value(None))]));
        let once_seen =
            [put, call(KeyOp::Get, 50, 51, Answer::Value(Some(1))), call(KeyOp::Get, 52, 53, Answer::Value(None))];
        assert!(!is_linearizable(&once_seen));
        assert!(!is_linearizable(&[call(KeyOp::Get, 0, 1, Answer::Value(Some(1))), pending(KeyOp::Put(1), 2)]));
    }

    #[test]
    fn two_swaps_from_one_value_cannot_both_succeed() {
        let put = call(KeyOp::Put(1), 0, 1, Answer::Done);
        let first = call(KeyOp::Swap(Some(1), Some(2)), 2, 9, Answer::Changed(true));
        let second = call(KeyOp::Swap(Some(1), Some(3)), 3, 8, Answer::Changed(true));
        assert!(!is_linearizable(&[put, first, second]));
        let refused = call(KeyOp::Swap(Some(1), Some(3)), 3, 8, Answer::Value(Some(2)));
        assert!(is_linearizable(&[put, first, refused]));
    }

    #[test]
    fn two_deletes_of_one_value_cannot_both_find_it() {
        let put = call(KeyOp::Put(1), 0, 1, Answer::Done);
        let delete = |answer| call(KeyOp::Delete, 2, 9, Answer::Changed(answer));
        assert!(!is_linearizable(&[put, delete(true), delete(true)]));
        assert!(is_linearizable(&[put, delete(true), delete(false)]));
        assert!(!is_linearizable(&[put, delete(false), delete(false)]));
    }

    #[test]
    fn insert_and_update_answer_by_presence() {
        let insert = call(KeyOp::Insert(1), 0, 1, Answer::Changed(true));
        let again = call(KeyOp::Insert(2), 2, 3, Answer::Changed(false));
        let update = call(KeyOp::Update(3), 4, 5, Answer::Changed(true));
        let get = |value| call(KeyOp::Get, 6, 7, Answer::Value(Some(value)));
        assert!(is_linearizable(&[insert, again, update, get(3)]));
        assert!(!is_linearizable(&[insert, again, update, get(2)]));
    }

    #[test]
    fn the_initial_value_counts() {
        let initial = BTreeMap::from([(0, 9)]);
        assert!(check(&[call(KeyOp::Get, 0, 1, Answer::Value(Some(9)))], &initial).is_ok());
        assert!(check(&[call(KeyOp::Get, 0, 1, Answer::Value(None))], &initial).is_err());
    }

    #[test]
    fn a_hard_history_ends_quickly() {
        // 14 overlapping puts, then reads that fix their last one only.
        let mut history: Vec<Call> =
            (0..14).map(|value| call(KeyOp::Put(value), value, 1000 + value, Answer::Done)).collect();
        history.push(call(KeyOp::Get, 2000, 2001, Answer::Value(Some(7))));
        assert!(is_linearizable(&history));
    }
}
