//! Histories of concurrent operations, and the search for a linearization.
//!
//! Linearizability is local (Herlihy and Wing, TOPLAS 1990): a history is linearizable exactly if
//! that of each object is. An object is a key, or all keys that batches connect, since a batch is
//! one step over its keys. Each object is searched separately, by the algorithm of Wing and Gong
//! (JPDC 1993) with memoized states (Lowe, 2017). An operation that never returned may have taken
//! effect or not.

use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Maximum operations of a history on one key, or on keys that batches connect.
pub const OPS_MAX: usize = 128;

/// A value, by number. Values are unique in a history, so a wrong value cannot look right.
pub type Value = u64;

/// An operation on one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOp {
    /// Sets the value.
    Put(Value),
    /// Sets the value if the key is absent.
    Insert(Value),
    /// Sets the value if the key is present.
    Update(Value),
    /// Removes the value.
    Delete,
    /// Removes the value, and does not report whether it was present.
    Clear,
    /// Reads the value.
    Get,
    /// Asks whether the key is present.
    Contains,
    /// Changes the first value to the second, if the key has the first.
    Swap(Option<Value>, Option<Value>),
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// No information.
    Done,
    /// Whether the operation changed something, or the key is present.
    Changed(bool),
    /// The present value.
    Value(Option<Value>),
}

/// The action of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// An operation on one key.
    One(u64, KeyOp),
    /// Gives each of these keys its value (`None`: absent). Each key occurs once.
    Batch(Vec<(u64, Option<Value>)>),
    /// As `Batch` with `values`, if all keys of `expected` have these values.
    WriteIf {
        /// The required values of keys.
        expected: Vec<(u64, Option<Value>)>,
        /// The new values of keys. Each key occurs once.
        values: Vec<(u64, Option<Value>)>,
        /// Whether `expected` is one range condition, over all keys from its first to its last.
        /// Otherwise each key has its own condition.
        is_range: bool,
    },
    /// Asks whether all of these keys have these values at one moment: single reads when there are
    /// no more writers.
    Are(Vec<(u64, Option<Value>)>),
}

impl Action {
    /// Returns the keys that the action reads or changes.
    fn keys(&self) -> impl Iterator<Item = u64> {
        let (one, expected, values) = match self {
            Self::One(key, _) => (Some(*key), &[][..], &[][..]),
            Self::Batch(values) | Self::Are(values) => (None, &[][..], &values[..]),
            Self::WriteIf { expected, values, .. } => (None, &expected[..], &values[..]),
        };
        one.into_iter().chain(expected.iter().chain(values).map(|(key, _)| *key))
    }

    /// Returns the answer in a state, and the next state. A state has the keys in `keys`, in this
    /// order.
    fn run(&self, keys: &[u64], state: &[Option<Value>]) -> (Answer, Vec<Option<Value>>) {
        let place = |key: &u64| keys.binary_search(key).expect("one of the keys searched together");
        let mut after = state.to_vec();
        match self {
            Self::One(key, op) => {
                let (answer, value) = op.run(state[place(key)]);
                after[place(key)] = value;
                (answer, after)
            }
            Self::Batch(values) => {
                values.iter().for_each(|(key, value)| after[place(key)] = *value);
                (Answer::Done, after)
            }
            Self::WriteIf { expected, values, .. } => {
                let is_met = expected.iter().all(|(key, value)| state[place(key)] == *value);
                if is_met {
                    values.iter().for_each(|(key, value)| after[place(key)] = *value);
                }
                (Answer::Changed(is_met), after)
            }
            Self::Are(values) => {
                (Answer::Changed(values.iter().all(|(key, value)| state[place(key)] == *value)), after)
            }
        }
    }
}

/// One operation of a history. Times are of one clock; a call is before its return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The action.
    pub action: Action,
    /// The time of the call.
    pub called: u64,
    /// The time of the return and the answer; `None` if it did not return by the end of the
    /// history.
    pub returned: Option<(u64, Answer)>,
}

impl KeyOp {
    /// Returns the answer in a state, and the next state.
    pub fn run(self, state: Option<Value>) -> (Answer, Option<Value>) {
        match self {
            Self::Put(value) => (Answer::Done, Some(value)),
            Self::Insert(value) if state.is_none() => (Answer::Changed(true), Some(value)),
            Self::Update(value) if state.is_some() => (Answer::Changed(true), Some(value)),
            Self::Insert(_) | Self::Update(_) => (Answer::Changed(false), state),
            Self::Delete => (Answer::Changed(state.is_some()), None),
            Self::Clear => (Answer::Done, None),
            Self::Get => (Answer::Value(state), state),
            Self::Contains => (Answer::Changed(state.is_some()), state),
            Self::Swap(expected, new) if expected == state => (Answer::Changed(true), new),
            Self::Swap(..) => (Answer::Value(state), state),
        }
    }
}

/// Checks every key of a history. Each key is initially absent unless `initial` names a value.
///
/// # Errors
///
/// The first keys without a linearization, with their calls in start order.
pub fn check(history: &[Call], initial: &BTreeMap<u64, Value>) -> Result<(), String> {
    for keys in tied(history) {
        let mut calls: Vec<&Call> =
            history.iter().filter(|call| call.action.keys().any(|key| keys.contains(&key))).collect();
        calls.sort_by_key(|call| call.called);
        assert!(calls.len() <= OPS_MAX, "{} operations on keys {keys:?}: keep it to {OPS_MAX}", calls.len());
        let keys: Vec<u64> = keys.into_iter().collect();
        let first: Vec<Option<Value>> = keys.iter().map(|key| initial.get(key).copied()).collect();
        if !has_linearization(&calls, &keys, first.clone()) {
            let list: Vec<String> = calls.iter().map(|call| format!("{call:?}")).collect();
            return Err(format!("keys {keys:?} (at first {first:?}) have no linearization: {}", list.join("; ")));
        }
    }
    Ok(())
}

/// Returns the keys of a history, grouped by the batches that connect them.
fn tied(history: &[Call]) -> Vec<BTreeSet<u64>> {
    let mut sets: Vec<BTreeSet<u64>> = Vec::new();
    for call in history {
        let mut all: BTreeSet<u64> = call.action.keys().collect();
        sets.retain_mut(|set| {
            let apart = set.is_disjoint(&all);
            if !apart {
                all.append(set);
            }
            apart
        });
        sets.push(all);
    }
    sets
}

/// Whether the calls on these keys, in start order, have a linearization that explains every
/// answer.
///
/// A call that did not return has no answer to explain. The linearization therefore contains it
/// only if it changes something and, for one key, the next call needs the change. Otherwise the
/// linearization without it is as good.
fn has_linearization(calls: &[&Call], keys: &[u64], first: Vec<Option<Value>>) -> bool {
    let completed = calls.iter().enumerate().filter(|(_, call)| call.returned.is_some());
    let goal: u128 = completed.fold(0, |mask, (index, _)| mask | 1 << index);
    let mut seen: HashSet<(u128, Vec<Option<Value>>, bool)> = HashSet::new();
    let mut stack = vec![(0u128, first, false)];
    while let Some((done, state, is_asked_for)) = stack.pop() {
        if done & goal == goal {
            return true;
        }
        if !seen.insert((done, state.clone(), is_asked_for)) {
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
            let Call { action, returned, .. } = calls[index];
            if is_asked_for && matches!(action, Action::One(_, KeyOp::Put(_))) {
                continue;
            }
            let (answer, after) = action.run(keys, &state);
            let may_stand = returned.map_or(after != state, |(_, seen)| seen == answer);
            if may_stand {
                stack.push((done | 1 << index, after, returned.is_none() && keys.len() == 1));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(op: KeyOp, called: u64, returned: u64, answer: Answer) -> Call {
        Call { action: Action::One(0, op), called, returned: Some((returned, answer)) }
    }

    fn pending(op: KeyOp, called: u64) -> Call {
        Call { action: Action::One(0, op), called, returned: None }
    }

    fn is_linearizable(history: &[Call]) -> bool {
        check(history, &BTreeMap::new()).is_ok()
    }

    #[test]
    fn calls_one_after_another_must_see_each_other() {
        let put = call(KeyOp::Put(1), 0, 1, Answer::Done);
        assert!(is_linearizable(&[put.clone(), call(KeyOp::Get, 2, 3, Answer::Value(Some(1)))]));
        assert!(!is_linearizable(&[put.clone(), call(KeyOp::Get, 2, 3, Answer::Value(None))]), "a lost write");
        assert!(
            !is_linearizable(&[put.clone(), call(KeyOp::Get, 2, 3, Answer::Value(Some(2)))]),
            "a value from nowhere"
        );
    }

    #[test]
    fn calls_that_overlap_may_go_either_way() {
        let put = call(KeyOp::Put(1), 0, 10, Answer::Done);
        assert!(is_linearizable(&[put.clone(), call(KeyOp::Get, 2, 3, Answer::Value(Some(1)))]));
        assert!(is_linearizable(&[put.clone(), call(KeyOp::Get, 2, 3, Answer::Value(None))]));
        let new_then_old =
            [put.clone(), call(KeyOp::Get, 2, 3, Answer::Value(Some(1))), call(KeyOp::Get, 4, 5, Answer::Value(None))];
        assert!(!is_linearizable(&new_then_old), "what was seen must stay");
    }

    #[test]
    fn a_call_that_never_returned_may_have_happened_or_not() {
        let put = pending(KeyOp::Put(1), 0);
        assert!(is_linearizable(&[put.clone(), call(KeyOp::Get, 50, 51, Answer::Value(Some(1)))]));
        assert!(is_linearizable(&[put.clone(), call(KeyOp::Get, 50, 51, Answer::Value(None))]));
        let once_seen = [
            put.clone(),
            call(KeyOp::Get, 50, 51, Answer::Value(Some(1))),
            call(KeyOp::Get, 52, 53, Answer::Value(None)),
        ];
        assert!(!is_linearizable(&once_seen));
        assert!(!is_linearizable(&[call(KeyOp::Get, 0, 1, Answer::Value(Some(1))), pending(KeyOp::Put(1), 2)]));
    }

    #[test]
    fn two_swaps_from_one_value_cannot_both_succeed() {
        let put = call(KeyOp::Put(1), 0, 1, Answer::Done);
        let first = call(KeyOp::Swap(Some(1), Some(2)), 2, 9, Answer::Changed(true));
        let second = call(KeyOp::Swap(Some(1), Some(3)), 3, 8, Answer::Changed(true));
        assert!(!is_linearizable(&[put.clone(), first.clone(), second]));
        let refused = call(KeyOp::Swap(Some(1), Some(3)), 3, 8, Answer::Value(Some(2)));
        assert!(is_linearizable(&[put, first, refused]));
    }

    #[test]
    fn two_deletes_of_one_value_cannot_both_find_it() {
        let put = call(KeyOp::Put(1), 0, 1, Answer::Done);
        let delete = |answer| call(KeyOp::Delete, 2, 9, Answer::Changed(answer));
        assert!(!is_linearizable(&[put.clone(), delete(true), delete(true)]));
        assert!(is_linearizable(&[put.clone(), delete(true), delete(false)]));
        assert!(!is_linearizable(&[put.clone(), delete(false), delete(false)]));
    }

    #[test]
    fn presence_is_asked_for_and_ended() {
        let put = call(KeyOp::Put(1), 0, 1, Answer::Done);
        let contains = |at, is_there| call(KeyOp::Contains, at, at + 1, Answer::Changed(is_there));
        let clear = call(KeyOp::Clear, 4, 5, Answer::Done);
        assert!(is_linearizable(&[put.clone(), contains(2, true), clear.clone(), contains(6, false)]));
        assert!(!is_linearizable(&[put.clone(), contains(2, false)]));
        assert!(!is_linearizable(&[put, clear, contains(6, true)]));
    }

    #[test]
    fn insert_and_update_answer_by_presence() {
        let insert = call(KeyOp::Insert(1), 0, 1, Answer::Changed(true));
        let again = call(KeyOp::Insert(2), 2, 3, Answer::Changed(false));
        let update = call(KeyOp::Update(3), 4, 5, Answer::Changed(true));
        let get = |value| call(KeyOp::Get, 6, 7, Answer::Value(Some(value)));
        assert!(is_linearizable(&[insert.clone(), again.clone(), update.clone(), get(3)]));
        assert!(!is_linearizable(&[insert, again, update, get(2)]));
    }

    /// Reads of keys 0 and 1, one after the other, with the found values.
    fn reads(at: u64, found: [Option<Value>; 2]) -> [Call; 2] {
        let read = |key: u64| Call {
            action: Action::One(key, KeyOp::Get),
            called: at + 2 * key,
            returned: Some((at + 2 * key + 1, Answer::Value(found[key as usize]))),
        };
        [read(0), read(1)]
    }

    #[test]
    fn a_batch_is_seen_whole_or_not_at_all() {
        let batch = |returned| Call { action: Action::Batch(vec![(0, Some(1)), (1, Some(2))]), called: 0, returned };
        let sees = |batch: Call, at, found| is_linearizable(&[&[batch][..], &reads(at, found)].concat());
        for returned in [None, Some((100, Answer::Done))] {
            assert!(sees(batch(returned), 10, [Some(1), Some(2)]));
            assert!(sees(batch(returned), 10, [None, None]));
            assert!(sees(batch(returned), 10, [None, Some(2)]), "it happened between the reads");
            assert!(!sees(batch(returned), 10, [Some(1), None]), "half of a batch");
        }
        let returned = Some((5, Answer::Done));
        assert!(sees(batch(returned), 10, [Some(1), Some(2)]));
        assert!(!sees(batch(returned), 10, [None, Some(2)]) && !sees(batch(returned), 10, [None, None]));
    }

    #[test]
    fn a_conditional_batch_takes_effect_where_its_conditions_hold() {
        let write = |answer| Call {
            action: Action::WriteIf { expected: vec![(0, Some(1))], values: vec![(1, Some(2))], is_range: false },
            called: 20,
            returned: Some((30, Answer::Changed(answer))),
        };
        let put =
            |value| Call { action: Action::One(0, KeyOp::Put(value)), called: 0, returned: Some((5, Answer::Done)) };
        let sees = |value, answer, found| {
            let reads = reads(40, [Some(value), found]);
            is_linearizable(&[&[put(value), write(answer)][..], &reads].concat())
        };
        assert!(sees(1, true, Some(2)) && sees(3, false, None));
        assert!(!sees(1, false, None), "the condition was met");
        assert!(!sees(3, true, Some(2)), "the condition was not met");
        assert!(!sees(1, true, None) && !sees(3, false, Some(2)), "the answer is not what happened");
    }

    #[test]
    fn what_is_found_after_a_crash_has_no_half_of_a_batch() {
        let batch = Call { action: Action::Batch(vec![(0, Some(1)), (1, Some(2))]), called: 0, returned: None };
        let found = |found: [Option<Value>; 2]| {
            let action = Action::Are(vec![(0, found[0]), (1, found[1])]);
            is_linearizable(&[batch.clone(), Call { action, called: 9, returned: Some((10, Answer::Changed(true))) }])
        };
        assert!(found([None, None]) && found([Some(1), Some(2)]));
        assert!(!found([None, Some(2)]) && !found([Some(1), None]));
    }

    #[test]
    fn keys_are_searched_together_where_batches_tie_them_and_alone_elsewhere() {
        let tie = |a, b| Call { action: Action::Batch(vec![(a, None), (b, Some(1))]), called: 0, returned: None };
        let one = |key| Call { action: Action::One(key, KeyOp::Get), called: 0, returned: None };
        let sets = tied(&[one(4), tie(0, 1), one(3), tie(2, 3), tie(3, 0)]);
        assert_eq!(sets, [BTreeSet::from([4]), BTreeSet::from([0, 1, 2, 3])]);
    }

    #[test]
    fn the_initial_value_counts() {
        let initial = BTreeMap::from([(0, 9)]);
        assert!(check(&[call(KeyOp::Get, 0, 1, Answer::Value(Some(9)))], &initial).is_ok());
        assert!(check(&[call(KeyOp::Get, 0, 1, Answer::Value(None))], &initial).is_err());
    }

    #[test]
    fn many_calls_that_never_returned_are_soon_gone_through() {
        let mut history: Vec<Call> = (1..100).map(|value| pending(KeyOp::Put(value), value)).collect();
        let read = |at, value| call(KeyOp::Get, at, at + 1, Answer::Value(Some(value)));
        history.extend([read(200, 40), read(202, 30), read(204, 50)]);
        assert!(is_linearizable(&history));
        history.push(read(206, 30));
        assert!(!is_linearizable(&history), "it was over already");
    }

    #[test]
    fn calls_that_never_returned_can_stand_in_a_row() {
        let delete = pending(KeyOp::Delete, 1);
        let put = call(KeyOp::Put(1), 2, 3, Answer::Done);
        let insert = pending(KeyOp::Insert(2), 4);
        let sees = |value| {
            is_linearizable(&[
                delete.clone(),
                put.clone(),
                insert.clone(),
                call(KeyOp::Get, 5, 6, Answer::Value(Some(value))),
            ])
        };
        assert!(sees(1) && sees(2) && !sees(3));
        let update = call(KeyOp::Update(7), 5, 6, Answer::Changed(false));
        assert!(is_linearizable(&[delete, put, update]));
    }

    #[test]
    fn a_hard_history_ends_quickly() {
        // 14 overlapping puts, then reads that determine only the last one.
        let mut history: Vec<Call> =
            (0..14).map(|value| call(KeyOp::Put(value), value, 1000 + value, Answer::Done)).collect();
        history.push(call(KeyOp::Get, 2000, 2001, Answer::Value(Some(7))));
        assert!(is_linearizable(&history));
    }
}
