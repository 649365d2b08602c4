//! Operations of a script, and the model of their results.

use std::collections::BTreeMap;

use lodestore_contract::{Batch, BatchOp, Condition, Expiry, Lifetime, RangeCondition, now_millis};

use crate::keyspace_keys::{self, FIRST_ID, NEXT_ID, Place};

/// Pieces of an [`Op::Reclaim`] that runs to the end.
pub const PIECES_MAX: usize = usize::MAX;

/// One step of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// `put` or `put_expiring` (milliseconds after the epoch).
    Put {
        /// Key.
        key: Vec<u8>,
        /// Value.
        value: Vec<u8>,
        /// Expiry.
        expiry: Option<u64>,
    },
    /// `insert`.
    Insert {
        /// Key.
        key: Vec<u8>,
        /// Value.
        value: Vec<u8>,
        /// The new expiry.
        lifetime: Lifetime,
    },
    /// `update`.
    Update {
        /// Key.
        key: Vec<u8>,
        /// Value.
        value: Vec<u8>,
        /// The new expiry.
        lifetime: Lifetime,
    },
    /// `delete`.
    Delete {
        /// Key.
        key: Vec<u8>,
    },
    /// `compare_and_swap`.
    Swap {
        /// Key.
        key: Vec<u8>,
        /// The required value.
        expected: Option<Vec<u8>>,
        /// The new value.
        new: Option<Vec<u8>>,
        /// The new expiry.
        lifetime: Lifetime,
    },
    /// `update_with`: appends these bytes to the value, or starts a value with them.
    Append {
        /// Key.
        key: Vec<u8>,
        /// Bytes.
        bytes: Vec<u8>,
        /// The new expiry.
        lifetime: Lifetime,
    },
    /// `update_with`: removes the key.
    Remove {
        /// Key.
        key: Vec<u8>,
    },
    /// `get`.
    Get {
        /// Key.
        key: Vec<u8>,
    },
    /// `write`: all or nothing.
    Batch {
        /// The operations.
        batch: Batch,
    },
    /// `write_if`: all or nothing, if all conditions are met.
    WriteIf {
        /// The conditions on keys.
        conditions: Vec<Condition>,
        /// The conditions on ranges.
        ranges: Vec<RangeCondition>,
        /// The operations.
        batch: Batch,
    },
    /// `sync`.
    Sync,
    /// Removes expired pairs, if the engine does so on request.
    Sweep,
    /// Replaces a device by a new one, if the store has several; the numbers wrap around.
    Replace {
        /// Its group.
        group: usize,
        /// Its index in the group.
        device: usize,
    },
    /// Adds a group of devices, if the store has them.
    AddGroup,
    /// Creates a keyspace, or opens it.
    CreateKeyspace {
        /// The keyspace, as [`keyspace_keys::exists`] names it.
        key: Vec<u8>,
    },
    /// Drops a keyspace.
    DropKeyspace {
        /// The keyspace, as [`keyspace_keys::exists`] names it.
        key: Vec<u8>,
    },
    /// Removes records of dropped keyspaces.
    Reclaim {
        /// Maximum pieces to remove.
        pieces: usize,
    },
    /// Clean stop, then open.
    Reopen,
    /// The process is killed and the medium keeps every store; then open.
    Kill,
    /// The power fails and a random image remains; then open.
    PowerCut,
}

impl Op {
    /// Returns the name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Put { expiry: None, .. } => "put",
            Self::Put { expiry: Some(_), .. } => "put_expiring",
            Self::Insert { .. } => "insert",
            Self::Update { .. } => "update",
            Self::Delete { .. } => "delete",
            Self::Swap { .. } => "compare_and_swap",
            Self::Append { .. } => "update_with",
            Self::Remove { .. } => "update_with remove",
            Self::Get { .. } => "get",
            Self::Batch { .. } => "batch",
            Self::WriteIf { .. } => "conditional batch",
            Self::Sync => "sync",
            Self::Sweep => "sweep",
            Self::Replace { .. } => "replace a device",
            Self::AddGroup => "add a group",
            Self::CreateKeyspace { .. } => "create a keyspace",
            Self::DropKeyspace { .. } => "drop a keyspace",
            Self::Reclaim { .. } => "reclaim",
            Self::Reopen => "close and open",
            Self::Kill => "kill and open",
            Self::PowerCut => "power cut and open",
        }
    }

    /// Whether it changes the set of devices.
    pub fn is_of_devices(&self) -> bool {
        matches!(self, Self::Replace { .. } | Self::AddGroup)
    }

    /// Whether it has steps, some of which a crash may leave done.
    pub fn has_steps(&self) -> bool {
        self.is_batch() || self.is_of_devices() || self.is_of_keyspaces()
    }

    /// Whether it creates, drops or reclaims keyspaces.
    pub fn is_of_keyspaces(&self) -> bool {
        matches!(self, Self::CreateKeyspace { .. } | Self::DropKeyspace { .. } | Self::Reclaim { .. })
    }

    /// Whether all earlier operations are durable after this outcome, also in a store of
    /// `interval`.
    pub fn is_synced(&self, outcome: &Outcome) -> bool {
        let is_of_catalogue = matches!(self, Self::CreateKeyspace { .. } | Self::DropKeyspace { .. });
        *self == Self::Sync || (is_of_catalogue && *outcome == Outcome::Changed(true))
    }

    /// Returns the same operation on another key, if it has one.
    #[must_use]
    pub fn with_key(mut self, to: &[u8]) -> Self {
        match &mut self {
            Self::Put { key, .. }
            | Self::Insert { key, .. }
            | Self::Update { key, .. }
            | Self::Delete { key }
            | Self::Swap { key, .. }
            | Self::Append { key, .. }
            | Self::Remove { key }
            | Self::Get { key } => *key = to.to_vec(),
            _ => {}
        }
        self
    }

    /// Whether it is a batch, with or without conditions.
    pub fn is_batch(&self) -> bool {
        matches!(self, Self::Batch { .. } | Self::WriteIf { .. })
    }

    /// Returns every key that it may change or read.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let (conditions, ops) = match self {
            Self::Batch { batch } => (&[][..], &batch.ops[..]),
            Self::WriteIf { conditions, batch, .. } => (&conditions[..], &batch.ops[..]),
            _ => (&[][..], &[][..]),
        };
        let of_conditions = conditions.iter().map(|condition| condition.key.as_slice());
        self.key().into_iter().chain(of_conditions).chain(ops.iter().map(batch_key))
    }

    /// Returns the one key that it may change or read.
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Put { key, .. }
            | Self::Insert { key, .. }
            | Self::Update { key, .. }
            | Self::Delete { key }
            | Self::Swap { key, .. }
            | Self::Append { key, .. }
            | Self::Remove { key }
            | Self::Get { key }
            | Self::CreateKeyspace { key }
            | Self::DropKeyspace { key } => Some(key),
            Self::Batch { .. } | Self::WriteIf { .. } | Self::Sync | Self::Sweep | Self::Reclaim { .. } => None,
            Self::Replace { .. } | Self::AddGroup | Self::Reopen | Self::Kill | Self::PowerCut => None,
        }
    }
}

fn batch_key(op: &BatchOp) -> &[u8] {
    match op {
        BatchOp::Put { key, .. } | BatchOp::Delete { key } => key,
    }
}

/// Returns the lifetime that an [`Op::Append`] of `bytes` writes. `present` is the expiry that
/// `update_with` shows: every second `Lifetime::Keep` writes that expiry, which means the same.
pub fn append_lifetime(bytes: &[u8], lifetime: Lifetime, present: Option<Expiry>) -> Lifetime {
    let is_shown = lifetime == Lifetime::Keep && bytes.len().is_multiple_of(2);
    if is_shown { present.into() } else { lifetime }
}

/// The answer of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// No information.
    Done,
    /// Whether it changed something.
    Changed(bool),
    /// The value found: of a `get`, or of a swap that differs.
    Value(Option<Vec<u8>>),
    /// The data does not fit, or the engine lacks the operation: nothing changed.
    Full,
    /// A keyspace of the operation does not exist: nothing changed.
    NoKeyspace,
    /// A keyspace did not fit, and its id is lost.
    IdLost,
}

/// A value with its expiry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The value.
    pub value: Vec<u8>,
    /// Milliseconds after the epoch.
    pub expiry: Option<u64>,
}

impl Held {
    fn is_live(&self) -> bool {
        self.expiry.is_none_or(|at| at > now_millis())
    }
}

/// The expected contents of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    held: BTreeMap<Vec<u8>, Held>,
}

impl State {
    /// A store without keys.
    pub const EMPTY: Self = Self { held: BTreeMap::new() };

    /// Returns the pair of a key, also if it has expired.
    pub fn held(&self, key: &[u8]) -> Option<&Held> {
        self.held.get(key)
    }

    /// Returns the live value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&Held> {
        self.held.get(key).filter(|held| held.is_live())
    }

    /// Returns the live pairs in order.
    pub fn live(&self) -> impl DoubleEndedIterator<Item = (&Vec<u8>, &Held)> {
        self.held.iter().filter(|(_, held)| held.is_live())
    }

    /// Returns live pairs, and expired pairs that may or may not have been swept.
    pub fn all(&self) -> impl Iterator<Item = (&Vec<u8>, &Held)> {
        self.held.iter()
    }

    /// Returns the state of this key alone.
    pub fn only(&self, key: &[u8]) -> Self {
        let held = self.held(key).map(|held| (key.to_vec(), held.clone()));
        Self { held: held.into_iter().collect() }
    }

    /// Sets a pair, to restore a saved state.
    pub fn set(&mut self, key: Vec<u8>, held: Held) {
        self.held.insert(key, held);
    }

    fn put(&mut self, key: &[u8], value: &[u8], expiry: Option<u64>) {
        self.held.insert(key.to_vec(), Held { value: value.to_vec(), expiry });
    }

    /// As [`Self::put`], with the expiry of `lifetime`.
    fn put_for(&mut self, key: &[u8], value: &[u8], lifetime: Lifetime) {
        let present = self.get(key).and_then(|held| held.expiry);
        self.put(key, value, lifetime.resolve(present.map(Expiry::at_millis)).map(Expiry::millis));
    }

    /// Applies `op`, which has answered `outcome`. Returns the required answer.
    pub fn apply_answered(&mut self, op: &Op, outcome: &Outcome) -> Outcome {
        match self.without_keyspace(op) {
            Some(id_lost) if *outcome == Outcome::IdLost => {
                *self = id_lost;
                Outcome::IdLost
            }
            _ => self.apply(op),
        }
    }

    /// Returns the state that a crash may leave between the two writes of a creation: the id is
    /// used, and the keyspace does not exist.
    pub fn without_keyspace(&self, op: &Op) -> Option<Self> {
        let Op::CreateKeyspace { key } = op else { return None };
        let mut state = self.clone();
        state.get(key).is_none().then(|| state.raise_next_id())?;
        Some(state)
    }

    /// Uses the next id, and returns it.
    fn raise_next_id(&mut self) -> u32 {
        let held = self.get(NEXT_ID).and_then(|held| held.value.first_chunk());
        let id = held.map_or(FIRST_ID, |bytes| u32::from_le_bytes(*bytes));
        self.put(NEXT_ID, &(id + 1).to_le_bytes(), None);
        id
    }

    /// Returns whether a keyspace of the operation does not exist.
    fn lacks_keyspace(&self, op: &Op) -> bool {
        let is_absent = |key: &[u8]| match keyspace_keys::place(key) {
            Place::Named(name, _) => self.get(&keyspace_keys::exists(name)).is_none(),
            _ => false,
        };
        op.keys().any(is_absent)
    }

    /// Removes a keyspace with all of its pairs.
    fn drop_keyspace(&mut self, key: &[u8]) {
        let Place::Exists(name) = keyspace_keys::place(key) else { return };
        self.held
            .retain(|held, _| held != key && !matches!(keyspace_keys::place(held), Place::Named(of, _) if of == name));
    }

    /// Applies `op`. Returns the required answer.
    pub fn apply(&mut self, op: &Op) -> Outcome {
        if self.lacks_keyspace(op) {
            return Outcome::NoKeyspace;
        }
        let there = op.key().and_then(|key| self.get(key)).map(|held| held.value.clone());
        match op {
            Op::Put { key, value, expiry } => {
                self.put(key, value, *expiry);
                Outcome::Done
            }
            Op::Insert { key, value, lifetime } => {
                if there.is_none() {
                    self.put_for(key, value, *lifetime);
                }
                Outcome::Changed(there.is_none())
            }
            Op::Update { key, value, lifetime } => {
                if there.is_some() {
                    self.put_for(key, value, *lifetime);
                }
                Outcome::Changed(there.is_some())
            }
            Op::Delete { key } => {
                if there.is_some() {
                    self.held.remove(key);
                }
                Outcome::Changed(there.is_some())
            }
            Op::Swap { key, expected, new, lifetime } => {
                self.swap(key, (there, expected.as_deref()), new.as_deref(), *lifetime)
            }
            Op::Append { key, bytes, lifetime } => {
                let mut value = there.unwrap_or_default();
                value.extend_from_slice(bytes);
                self.put_for(key, &value, *lifetime);
                Outcome::Done
            }
            Op::Remove { key } => {
                if there.is_some() {
                    self.held.remove(key);
                }
                Outcome::Done
            }
            Op::Get { .. } => Outcome::Value(there),
            Op::Batch { batch } => {
                batch.ops.iter().for_each(|op| self.apply_batch_op(op));
                Outcome::Done
            }
            Op::WriteIf { conditions, ranges, batch } => {
                let is_met = conditions.iter().all(|condition| self.meets(condition))
                    && ranges.iter().all(|range| self.has_exactly(range));
                if is_met {
                    batch.ops.iter().for_each(|op| self.apply_batch_op(op));
                }
                Outcome::Changed(is_met)
            }
            Op::CreateKeyspace { key } => {
                if there.is_none() {
                    let id = self.raise_next_id();
                    self.put(key, &id.to_le_bytes(), None);
                }
                Outcome::Changed(there.is_none())
            }
            Op::DropKeyspace { key } => {
                self.drop_keyspace(key);
                Outcome::Changed(there.is_some())
            }
            Op::Sync | Op::Sweep | Op::Replace { .. } | Op::AddGroup | Op::Reclaim { .. } => Outcome::Done,
            Op::Reopen | Op::Kill | Op::PowerCut => Outcome::Done,
        }
    }

    /// Returns whether the key of a condition is as the condition requires.
    pub fn meets(&self, condition: &Condition) -> bool {
        let held = self.get(&condition.key);
        let expiry = held.and_then(|held| held.expiry).map(Expiry::at_millis);
        condition.is_met(held.map(|held| held.value.as_slice()), expiry)
    }

    /// Returns whether exactly the keys of a condition are present in its range.
    fn has_exactly(&self, condition: &RangeCondition) -> bool {
        let range = condition.scan_range();
        let present = self.held.keys().filter(|key| range.contains(key) && self.get(key).is_some());
        present.eq(&condition.keys)
    }

    fn apply_batch_op(&mut self, op: &BatchOp) {
        match op {
            BatchOp::Put { key, value, expiry } => self.put(key, value, expiry.map(Expiry::millis)),
            // An expired pair may or may not have been swept.
            BatchOp::Delete { key } if self.get(key).is_some() => drop(self.held.remove(key)),
            BatchOp::Delete { .. } => {}
        }
    }

    fn swap(
        &mut self,
        key: &[u8],
        (there, expected): (Option<Vec<u8>>, Option<&[u8]>),
        new: Option<&[u8]>,
        lifetime: Lifetime,
    ) -> Outcome {
        if there.as_deref() != expected {
            return Outcome::Value(there);
        }
        match new {
            Some(value) => self.put_for(key, value, lifetime),
            None if there.is_some() => {
                self.held.remove(key);
            }
            None => {}
        }
        Outcome::Changed(true)
    }
}
