//! The allowed answers of each key of a damaged store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lodestore_contract::BatchOp;

use super::base::Base;
use crate::op::{Op, Outcome, State};
use crate::oracle::show;

/// How an answer breaks the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Breach {
    /// A value that its key never had.
    ForeignValue,
    /// An older value of the key, or the value of a deleted key.
    OldValue,
    /// Plain absence of a key that exists.
    Absent,
    /// A walk without an error omits a key.
    WalkShort,
    /// A walk returns a key twice.
    WalkTwice,
    /// A scan is out of order.
    WalkOrder,
    /// A wrong count without any report of damage.
    Count,
    /// A read reports damage, and `verify` finds nothing.
    VerifyBlind,
    /// No allowed state explains the answer of an operation.
    Operation,
    /// An error that does not say what is damaged.
    Error,
    /// The engine panicked.
    Panic,
    /// Unbounded memory.
    Memory,
    /// A salvage open answers an older value.
    SalvageOld,
    /// A salvage open omits a key and reports nothing.
    SalvageSilent,
    /// A strict open after a salvage breaks the rule.
    SalvageForgotten,
    /// The undamaged history itself failed.
    Undamaged,
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The kind.
    pub breach: Breach,
    /// The step after the damage.
    pub phase: &'static str,
    /// Text for a person.
    pub what: String,
}

/// A live value with its expiry, as a get answers it.
pub type Seen = Option<(Vec<u8>, Option<u64>)>;

/// The allowed states of each key. Clones share their content until one of them changes.
#[derive(Debug, Clone)]
pub struct Model {
    keys: Arc<BTreeMap<Vec<u8>, Vec<State>>>,
    past: Arc<BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>>,
    /// Keys that held an expired pair, if the engine may count these pairs again.
    expired: Option<Arc<BTreeSet<Vec<u8>>>>,
}

/// The state of a key that no history writes.
static ABSENT: [State; 1] = [State::EMPTY];

fn show_value(seen: Option<&[u8]>) -> String {
    seen.map_or_else(|| "nothing".into(), |value| format!("{:?}", show(value)))
}

impl Model {
    /// Returns the model of an undamaged store. `recounts_expired` is [`Engine::recounts_expired`].
    ///
    /// [`Engine::recounts_expired`]: crate::subject::Engine::recounts_expired
    pub fn new(base: &Base, recounts_expired: bool) -> Self {
        let states = |key: &Vec<u8>| {
            let mut states: Vec<State> = base.allowed.iter().map(|state| state.only(key)).collect();
            states.dedup();
            (key.clone(), states)
        };
        let keys = base.universe.iter().map(states).collect();
        let expired = recounts_expired.then(|| Arc::new(base.expired.clone()));
        Self { keys: Arc::new(keys), past: Arc::new(base.past.clone()), expired }
    }

    /// Removes the allowed states of every key; [`Self::allow`] adds new ones.
    pub fn forget_states(&mut self) {
        let keys = self.keys.keys().map(|key| (key.clone(), Vec::new())).collect();
        self.keys = Arc::new(keys);
    }

    /// Also allows the state that `key` has in `state`.
    pub fn allow(&mut self, key: &[u8], state: &State) {
        let own = state.only(key);
        let states = Arc::make_mut(&mut self.keys).entry(key.to_vec()).or_insert_with(|| vec![State::EMPTY]);
        if !states.contains(&own) {
            states.push(own);
        }
    }

    /// Returns every key with its allowed states.
    pub fn keys(&self) -> Arc<BTreeMap<Vec<u8>, Vec<State>>> {
        Arc::clone(&self.keys)
    }

    fn states(&self, key: &[u8]) -> &[State] {
        self.keys.get(key).map_or(&ABSENT, Vec::as_slice)
    }

    fn live_values<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = Option<&'a [u8]>> {
        self.states(key).iter().map(|state| state.get(key).map(|held| held.value.as_slice()))
    }

    /// Whether the key exists in every allowed state.
    pub fn must_exist(&self, key: &[u8]) -> bool {
        self.live_values(key).all(|value| value.is_some())
    }

    /// Whether the key exists in some allowed state.
    pub fn may_exist(&self, key: &[u8]) -> bool {
        self.live_values(key).any(|value| value.is_some())
    }

    /// Returns the bounds of the number of keys.
    pub fn count(&self) -> std::ops::RangeInclusive<u64> {
        let least = self.keys.keys().filter(|key| self.must_exist(key)).count() as u64;
        // Expired pairs count until they are swept.
        let may_count = |(key, states): &(&Vec<u8>, &Vec<State>)| {
            let is_recounted = self.expired.as_ref().is_some_and(|expired| expired.contains(*key));
            is_recounted || states.iter().any(|state| state.all().next().is_some()) || self.may_exist(key)
        };
        least..=self.keys.iter().filter(may_count).count() as u64
    }

    /// Judges the value that a read returns; `None` is absence.
    pub fn judge_value(&self, key: &[u8], seen: Option<&[u8]>) -> Result<(), (Breach, String)> {
        if self.live_values(key).any(|value| value == seen) {
            return Ok(());
        }
        let breach = match seen {
            None => Breach::Absent,
            Some(value) if self.past.get(key).is_some_and(|past| past.contains(value)) => Breach::OldValue,
            Some(_) => Breach::ForeignValue,
        };
        let expected: Vec<String> = self.live_values(key).map(show_value).collect();
        Err((breach, format!("key {:?} holds {}, not {}", show(key), show_value(seen), expected.join(" or "))))
    }

    /// Judges the answer of a get.
    pub fn judge_get(&self, key: &[u8], seen: &Seen) -> Result<(), (Breach, String)> {
        self.judge_value(key, seen.as_ref().map(|(value, _)| value.as_slice()))?;
        let Some((_, expiry)) = seen else { return Ok(()) };
        let is_right = |state: &State| state.get(key).is_some_and(|held| held.expiry == *expiry);
        if self.states(key).iter().any(is_right) {
            return Ok(());
        }
        Err((Breach::OldValue, format!("key {:?} expires at {expiry:?}", show(key))))
    }

    fn note(&mut self, key: &[u8], states: Vec<State>) {
        for state in &states {
            if let Some(held) = state.get(key) {
                Arc::make_mut(&mut self.past).entry(key.to_vec()).or_default().insert(held.value.clone());
            } else if let (Some(expired), Some(_)) = (&mut self.expired, state.held(key)) {
                Arc::make_mut(expired).insert(key.to_vec());
            }
        }
        Arc::make_mut(&mut self.keys).insert(key.to_vec(), states);
    }

    /// Applies an operation that answered `outcome`. After a report of damage, a delete may find an
    /// expired pair: the engine cannot know whether an unreadable record has expired.
    pub fn follow(&mut self, op: &Op, outcome: &Outcome, is_reported: bool) -> Result<(), (Breach, String)> {
        if *outcome == Outcome::Full {
            return Ok(());
        }
        if let Op::Batch { batch } = op {
            batch.ops.iter().for_each(|op| self.follow_batch_op(op));
            return Ok(());
        }
        let Some(key) = op.key() else { return Ok(()) };
        let before = self.states(key).to_vec();
        let after = |mut state: State| (state.apply(op) == *outcome).then_some(state);
        let mut explained: Vec<State> = before.iter().cloned().filter_map(after).collect();
        explained.dedup();
        let is_held = |state: &State| state.all().any(|(held, _)| held == key);
        let deletes_held = matches!(op, Op::Delete { .. }) && *outcome == Outcome::Changed(true);
        if explained.is_empty() && is_reported && deletes_held && before.iter().any(is_held) {
            explained.push(State::default());
        }
        if explained.is_empty() {
            let held: Vec<String> = self.live_values(key).map(show_value).collect();
            let text = format!("{} of {:?}, which holds {}: {outcome:?}", op.name(), show(key), held.join(" or "));
            return Err((Breach::Operation, text));
        }
        self.note(key, explained);
        Ok(())
    }

    fn follow_batch_op(&mut self, op: &BatchOp) {
        let (BatchOp::Put { key, .. } | BatchOp::Delete { key }) = op;
        let one = Op::Batch { batch: lodestore_contract::Batch { ops: vec![op.clone()] } };
        let mut states = self.states(key).to_vec();
        states.iter_mut().for_each(|state| drop(state.apply(&one)));
        states.dedup();
        self.note(key, states);
    }

    /// Applies an operation whose failure leaves it done or not.
    pub fn follow_doubtful(&mut self, op: &Op) {
        for key in op.keys() {
            let mut states = self.states(key).to_vec();
            let mut done = states.clone();
            let outcome = |state: &mut State| drop(state.apply(op));
            done.iter_mut().for_each(outcome);
            for state in done.iter().map(|state| state.only(key)) {
                if !states.contains(&state) {
                    states.push(state);
                }
            }
            self.note(key, states);
        }
    }
}
