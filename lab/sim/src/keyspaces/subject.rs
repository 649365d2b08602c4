//! A store with keyspaces, for the explorer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lodestore::db::Pairs;
use lodestore::db::testing::{self, Fault};
use lodestore::store::Lodestore;
use lodestore::{Db, Keyspace, WriteBatch};
use lodestore_contract::{Batch, BatchOp, Condition, Direction, Error, Expected, Expiry, Result, Store, Visit};
use lodestore_media::sim::Recorder;

use super::records::{self, Records};
use crate::keyspace_keys::{self, NEXT_ID, Place};
use crate::op::{Op, Outcome, PIECES_MAX};
use crate::pool_subject::{apply_to, get_from};
use crate::subject::{Losses, Pair, RecoveryDamage, Subject};

/// The product's handle over the store of an engine.
pub(super) struct KeyspacesSubject {
    inner: Box<dyn Subject>,
    store: Arc<dyn Store>,
    db: Db,
    handles: Mutex<Handles>,
}

/// Handles of named keyspaces, by their names.
#[derive(Default)]
struct Handles {
    live: BTreeMap<String, Keyspace>,
    /// The last handle of each dropped name.
    dropped: BTreeMap<String, Keyspace>,
}

/// The keyspace of a key.
enum Target {
    Default,
    Live(Keyspace),
    /// No keyspace has the name. Holds the handle of a dropped one, if there is one.
    Absent(Option<Keyspace>),
}

fn wrong(what: impl Into<String>) -> Error {
    Error::corrupt("keyspaces", what.into())
}

/// Returns `NoKeyspace` if an operation on a dropped handle was refused.
fn check_refused<T>(name: &str, answer: Result<T>) -> Result<Outcome> {
    match answer {
        Err(Error::KeyspaceDropped { .. }) => Ok(Outcome::NoKeyspace),
        Err(error) => Err(error),
        Ok(_) => Err(wrong(format!("a handle of the dropped keyspace {name:?} works"))),
    }
}

impl KeyspacesSubject {
    pub(super) fn start(inner: Box<dyn Subject>, store: Arc<dyn Store>, fault: Option<Fault>) -> Result<Self> {
        let db = testing::open_stepped(Arc::clone(&store), fault);
        let subject = Self { inner, store, db, handles: Mutex::default() };
        for name in subject.db.keyspaces()? {
            let keyspace = subject.db.keyspace(&name)?;
            subject.handles().live.insert(name, keyspace);
        }
        Ok(subject)
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_keyspace(&self, name: &str) -> Result<bool> {
        Ok(self.db.keyspaces()?.iter().any(|found| found == name))
    }

    /// Returns the keyspace of this name.
    fn find(&self, name: &str) -> Result<Target> {
        if let Some(keyspace) = self.handles().live.get(name) {
            return Ok(Target::Live(keyspace.clone()));
        }
        if self.has_keyspace(name)? {
            let keyspace = self.db.keyspace(name)?;
            self.handles().live.insert(name.into(), keyspace.clone());
            return Ok(Target::Live(keyspace));
        }
        Ok(Target::Absent(self.handles().dropped.get(name).cloned()))
    }

    fn create(&self, name: &str) -> Result<Outcome> {
        if self.has_keyspace(name)? {
            return self.db.keyspace(name).map(|_| Outcome::Changed(false));
        }
        let before = records::next_id(&*self.store)?;
        match self.db.keyspace(name) {
            Ok(keyspace) => {
                self.handles().live.insert(name.into(), keyspace);
                Ok(Outcome::Changed(true))
            }
            Err(Error::Full { .. }) if records::next_id(&*self.store)? != before => Ok(Outcome::IdLost),
            Err(error) => Err(error),
        }
    }

    fn drop_keyspace(&self, name: &str) -> Result<Outcome> {
        // After an error the handle may be refused permanently, and the next use opens another one.
        let handle = self.handles().live.remove(name);
        let was_there = self.db.drop_keyspace(name)?;
        if let Some(handle) = handle {
            self.handles().dropped.insert(name.into(), handle);
        }
        Ok(Outcome::Changed(was_there))
    }

    fn reclaim(&self, pieces: usize) -> Result<Outcome> {
        testing::reclaim(&self.db, pieces)?;
        let dead = if pieces == PIECES_MAX { Records::read(&*self.store)?.dead } else { Vec::new() };
        if dead.is_empty() {
            return Ok(Outcome::Done);
        }
        // If the sync of a drop failed, the medium may have the drop, and the open store does not.
        // Such a store refuses every write, and this sync.
        self.store.sync()?;
        Err(wrong(format!("the reclaim left the ids {dead:?}")))
    }

    /// Applies an operation on one key.
    fn apply_one(&self, op: &Op, key: &[u8]) -> Result<Outcome> {
        match keyspace_keys::place(key) {
            Place::Default(_) => apply_to(&*self.db.as_store(), op),
            Place::Named(name, key) => {
                let op = op.clone().with_key(key);
                match self.find(name)? {
                    Target::Live(keyspace) => apply_to(&*keyspace.as_store(), &op),
                    Target::Absent(Some(dropped)) => check_refused(name, apply_to(&*dropped.as_store(), &op)),
                    Target::Absent(None) | Target::Default => Ok(Outcome::NoKeyspace),
                }
            }
            Place::Exists(_) | Place::NextId => Err(wrong(format!("{} on no key of the store", op.name()))),
        }
    }

    /// Commits a batch over keyspaces.
    fn commit(&self, conditions: &[Condition], ops: &Batch) -> Result<Outcome> {
        let (mut batch, mut is_refused, mut is_absent) = (self.db.batch(), false, false);
        let of_conditions = conditions.iter().map(|condition| (&condition.key, Change::Require(&condition.expected)));
        let of_ops = ops.ops.iter().map(|op| match op {
            BatchOp::Put { key, value, expiry } => (key, Change::Put(value, *expiry)),
            BatchOp::Delete { key } => (key, Change::Delete),
        });
        for (key, change) in of_conditions.chain(of_ops) {
            let (target, key) = match keyspace_keys::place(key) {
                Place::Named(name, key) => (self.find(name)?, key),
                _ => (Target::Default, &key[..]),
            };
            match target {
                Target::Default => change.add(&mut batch, &self.db, key)?,
                Target::Live(keyspace) => change.add(&mut batch, &keyspace, key)?,
                Target::Absent(Some(dropped)) => {
                    is_refused = true;
                    change.add(&mut batch, &dropped, key)?;
                }
                Target::Absent(None) => is_absent = true,
            }
        }
        if is_refused {
            return check_refused("of a batch", batch.try_commit());
        }
        if is_absent {
            return Ok(Outcome::NoKeyspace);
        }
        batch.try_commit().map(|commit| Outcome::Changed(commit.is_done()))
    }

    fn apply_all(&self, op: &Op) -> Result<Outcome> {
        match op {
            Op::CreateKeyspace { key } | Op::DropKeyspace { key } => {
                let Place::Exists(name) = keyspace_keys::place(key) else { return Err(wrong("no name")) };
                if matches!(op, Op::CreateKeyspace { .. }) { self.create(name) } else { self.drop_keyspace(name) }
            }
            Op::Reclaim { pieces } => self.reclaim(*pieces),
            Op::Batch { batch } => match self.commit(&[], batch)? {
                Outcome::Changed(true) => Ok(Outcome::Done),
                outcome => Ok(outcome),
            },
            Op::WriteIf { conditions, batch, .. } => self.commit(conditions, batch),
            Op::Sync => self.db.sync().map(|()| Outcome::Done),
            _ => match op.key() {
                Some(key) => self.apply_one(op, key),
                None => self.inner.apply(op),
            },
        }
    }

    /// Returns every keyspace with its name, the default one last, and the pairs of the model
    /// before it.
    fn each_part(&self) -> Result<Vec<Part>> {
        let records = Records::read(&*self.store)?;
        let mut parts = Vec::new();
        for name in self.db.keyspaces()? {
            if let Target::Live(keyspace) = self.find(&name)? {
                parts.push(Part::Named(name, keyspace));
            }
        }
        let number = |id: u32| id.to_le_bytes().to_vec();
        parts.extend(records.next_id.map(|next_id| Part::Pair(NEXT_ID.to_vec(), number(next_id))));
        for name in self.db.keyspaces()? {
            let id = records.live.get(&name).copied().unwrap_or(0);
            parts.push(Part::Pair(keyspace_keys::exists(&name), number(id)));
        }
        parts.push(Part::Default);
        Ok(parts)
    }
}

/// A part of the model's map.
enum Part {
    Named(String, Keyspace),
    Pair(Vec<u8>, Vec<u8>),
    Default,
}

/// The change of a key by a batch.
enum Change<'a> {
    Require(&'a Expected),
    Put(&'a [u8], Option<Expiry>),
    Delete,
}

impl Change<'_> {
    fn add(&self, batch: &mut WriteBatch, map: &impl lodestore::Map, key: &[u8]) -> Result<()> {
        match self {
            Self::Require(Expected::Absent) => batch.require_absent(map, key),
            Self::Require(Expected::Present) => batch.require_present(map, key),
            Self::Require(Expected::Value(value)) => batch.require_value(map, key, value),
            Self::Require(Expected::Entry(..)) => return Err(wrong("no script has such a condition")),
            Self::Put(value, None) => batch.put(map, key, value),
            Self::Put(value, Some(expiry)) => batch.put_expiring(map, key, value, *expiry),
            Self::Delete => batch.delete(map, key),
        };
        Ok(())
    }
}

fn collect(pairs: Pairs, direction: Direction, into: &mut Vec<Pair>, to_key: impl Fn(&[u8]) -> Vec<u8>) -> Result<()> {
    let mut add = |pair: Result<(lodestore::Value, lodestore::Value)>| {
        let (key, value) = pair?;
        into.push((to_key(&key), value.to_vec()));
        Ok(())
    };
    match direction {
        Direction::Forward => pairs.into_iter().try_for_each(&mut add),
        Direction::Backward => pairs.rev().try_for_each(&mut add),
    }
}

impl Subject for KeyspacesSubject {
    fn recorder(&self) -> &Recorder {
        self.inner.recorder()
    }

    fn store(&self) -> Option<Arc<dyn Store>> {
        Some(Lodestore::into_store(self.db.as_store()))
    }

    fn wait_recovered(&self) -> Result<()> {
        self.db.wait_recovered()
    }

    fn apply(&self, op: &Op) -> Result<Outcome> {
        match self.apply_all(op) {
            Err(Error::Full { .. }) => Ok(Outcome::Full),
            Err(Error::Unsupported { .. }) if op.is_batch() => Ok(Outcome::Full),
            other => other,
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<u64>)>> {
        let number = |id: u32| (id.to_le_bytes().to_vec(), None);
        match keyspace_keys::place(key) {
            Place::NextId => Ok(records::next_id(&*self.store)?.map(number)),
            Place::Exists(name) if self.has_keyspace(name)? => {
                let id = Records::read(&*self.store)?.live.get(name).copied();
                Ok(Some(number(id.ok_or_else(|| wrong(format!("{name:?} is in no slot")))?)))
            }
            Place::Exists(_) => Ok(None),
            Place::Default(key) => get_from(&*self.db.as_store(), key),
            Place::Named(name, key) => match self.find(name)? {
                Target::Live(keyspace) => get_from(&*keyspace.as_store(), key),
                Target::Absent(Some(dropped)) => check_refused(name, dropped.get(key)).map(|_| None),
                Target::Absent(None) | Target::Default => Ok(None),
            },
        }
    }

    fn scan(&self, direction: Direction) -> Result<Option<Vec<Pair>>> {
        if !self.store.capabilities().scan {
            return Ok(None);
        }
        let (mut parts, mut pairs) = (self.each_part()?, Vec::new());
        if direction == Direction::Backward {
            parts.reverse();
        }
        for part in parts {
            match part {
                Part::Pair(key, value) => pairs.push((key, value)),
                Part::Default => collect(self.db.range::<&[u8]>(..)?, direction, &mut pairs, <[u8]>::to_vec)?,
                Part::Named(name, keyspace) => {
                    collect(keyspace.range::<&[u8]>(..)?, direction, &mut pairs, |key| {
                        keyspace_keys::key_in(&name, key)
                    })?;
                }
            }
        }
        Ok(Some(pairs))
    }

    fn pairs(&self) -> Result<Vec<Pair>> {
        let mut pairs = Vec::new();
        for part in self.each_part()? {
            match part {
                Part::Pair(key, value) => pairs.push((key, value)),
                Part::Default => self
                    .db
                    .for_each(|key, value| {
                        pairs.push((key.to_vec(), value.to_vec()));
                        Visit::More
                    })
                    .map(drop)?,
                Part::Named(name, keyspace) => keyspace
                    .for_each(|key, value| {
                        pairs.push((keyspace_keys::key_in(&name, key), value.to_vec()));
                        Visit::More
                    })
                    .map(drop)?,
            }
        }
        Ok(pairs)
    }

    fn recovery_damage(&self) -> RecoveryDamage {
        self.inner.recovery_damage()
    }

    fn len(&self) -> Result<u64> {
        self.each_part()?.into_iter().try_fold(0, |sum, part| {
            Ok(sum
                + match part {
                    Part::Pair(..) => 1,
                    Part::Default => self.db.count()?,
                    Part::Named(_, keyspace) => keyspace.count()?,
                })
        })
    }

    fn verify(&self) -> Result<Vec<String>> {
        let mut wrong = self.inner.verify()?;
        let records = Records::read(&*self.store)?;
        let names: Vec<String> = records.live.keys().cloned().collect();
        let shown = self.db.keyspaces()?;
        if shown != names {
            wrong.push(format!("the keyspaces are {shown:?}, and the records say {names:?}"));
        }
        records.check_owners(&*self.store, &mut wrong)?;
        Ok(wrong)
    }

    fn live_bytes(&self) -> Option<u64> {
        self.inner.live_bytes()
    }

    fn checkpoint_bytes(&self) -> u64 {
        self.inner.checkpoint_bytes()
    }

    fn counter(&self, name: &str) -> u64 {
        self.inner.counter(name)
    }

    fn losses(&self) -> Losses {
        self.inner.losses()
    }

    fn close(&self) -> Result<()> {
        self.db.close()
    }
}
