//! Batches over several keyspaces of a store.

use std::fmt;
use std::sync::Arc;

use lodestore_contract::limits::check_key;
use lodestore_contract::{Batch, BatchOp, Commit, Condition, Error, Expected, Expiry, Result};

use super::keyspace::Keyspace;
use super::keyspace::named::NamedKeyspaces;
use super::{Db, Shared};

/// A map that a [`WriteBatch`] can write to, and a [`View`](super::View) can read: a [`Db`], which
/// is its default keyspace, or a [`Keyspace`].
pub trait Map: sealed::HasKeyspace {}

impl Map for Db {}
impl Map for Keyspace {}

pub(super) mod sealed {
    use crate::db::keyspace::Keyspace;

    /// Keeps other crates from implementing [`Map`](super::Map).
    pub trait HasKeyspace {
        /// Returns the keyspace of the map.
        fn keyspace_of(&self) -> &Keyspace;
    }
}

impl sealed::HasKeyspace for Db {
    fn keyspace_of(&self) -> &Keyspace {
        &self.default
    }
}

impl sealed::HasKeyspace for Keyspace {
    fn keyspace_of(&self) -> &Keyspace {
        self
    }
}

/// Returns the keyspace of `map`.
///
/// # Errors
/// [`Error::OtherStore`] if the map is not of the store `shared`.
pub(super) fn keyspace_in<'a>(shared: &Arc<Shared>, map: &'a impl Map) -> Result<&'a Keyspace> {
    let keyspace = map.keyspace_of();
    if Arc::ptr_eq(shared, &keyspace.shared) {
        return Ok(keyspace);
    }
    Err(Error::OtherStore { keyspace: keyspace.name().into() })
}

/// Returns the stored key of a user's key in `map`, and adds the keyspace of `map` to `named`.
///
/// # Errors
/// [`Error::OtherStore`]; [`Error::KeyspaceDropped`]; [`Error::KeyLength`].
pub(super) fn stored_key(
    shared: &Arc<Shared>,
    named: &mut NamedKeyspaces,
    map: &impl Map,
    key: &[u8],
) -> Result<Vec<u8>> {
    let keyspace = keyspace_in(shared, map)?;
    keyspace.check_alive()?;
    let stored = keyspace.map.encode_key(key)?.to_vec();
    check_key(&stored)?;
    if let Some(of_map) = &keyspace.named {
        named.add(of_map);
    }
    Ok(stored)
}

/// An atomic batch over any keyspaces of one store. See [`Db::batch`](super::Db::batch).
///
/// [`commit`](Self::commit) applies all operations in order if every `require_*` condition holds,
/// else none. The conditions see the store before the batch, wherever they were added. An operation
/// that is refused (a key's length, a keyspace of another store) is reported by the commit, and
/// nothing is written. The commit empties the batch, also after an error. The batch keeps the store
/// open.
#[must_use = "a batch does nothing until it is committed"]
pub struct WriteBatch {
    shared: Arc<Shared>,
    batch: Batch,
    conditions: Vec<Condition>,
    /// The named keyspaces that the batch writes to or has conditions on.
    named: NamedKeyspaces,
    /// The reason of the first refusal.
    refused: Option<Error>,
}

impl fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("WriteBatch");
        shown.field("operations", &self.batch.ops.len()).field("requirements", &self.conditions.len());
        shown.field("refused", &self.refused).finish_non_exhaustive()
    }
}

impl WriteBatch {
    pub(super) fn of(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            batch: Batch::default(),
            conditions: Vec::new(),
            named: NamedKeyspaces::default(),
            refused: None,
        }
    }

    /// Adds a put of `value` under `key`, without an expiry.
    pub fn put(&mut self, map: &impl Map, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        let value = value.as_ref().to_vec();
        self.add(map, key.as_ref(), |key| BatchOp::Put { key, value, expiry: None })
    }

    /// Adds a put of `value` under `key`, with an expiry.
    pub fn put_expiring(
        &mut self,
        map: &impl Map,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Expiry,
    ) -> &mut Self {
        let value = value.as_ref().to_vec();
        self.add(map, key.as_ref(), |key| BatchOp::Put { key, value, expiry: Some(expiry) })
    }

    /// Adds a delete of `key`. The key may be absent.
    pub fn delete(&mut self, map: &impl Map, key: impl AsRef<[u8]>) -> &mut Self {
        self.add(map, key.as_ref(), |key| BatchOp::Delete { key })
    }

    /// Requires that `key` is absent when the batch is committed.
    pub fn require_absent(&mut self, map: &impl Map, key: impl AsRef<[u8]>) -> &mut Self {
        self.require(map, key.as_ref(), Expected::Absent)
    }

    /// Requires that `key` is present when the batch is committed, with any value.
    pub fn require_present(&mut self, map: &impl Map, key: impl AsRef<[u8]>) -> &mut Self {
        self.require(map, key.as_ref(), Expected::Present)
    }

    /// Requires that `key` has this value when the batch is committed.
    pub fn require_value(&mut self, map: &impl Map, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.require(map, key.as_ref(), Expected::Value(value.as_ref().to_vec()))
    }

    fn require(&mut self, map: &impl Map, key: &[u8], expected: Expected) -> &mut Self {
        match stored_key(&self.shared, &mut self.named, map, key) {
            Ok(key) => self.conditions.push(Condition { key, expected }),
            Err(error) => {
                self.refused.get_or_insert(error);
            }
        }
        self
    }

    fn add(&mut self, map: &impl Map, key: &[u8], op: impl FnOnce(Vec<u8>) -> BatchOp) -> &mut Self {
        match stored_key(&self.shared, &mut self.named, map, key) {
            Ok(stored) => self.batch.ops.push(op(stored)),
            Err(error) => {
                self.refused.get_or_insert(error);
            }
        }
        self
    }

    /// Writes all operations in their order, or nothing. The batch is empty afterwards, also after
    /// an error.
    ///
    /// # Errors
    /// [`Error::Conflict`] if a requirement is not met; [`Error::OtherStore`] if a keyspace is of
    /// another store; [`Error::KeyspaceDropped`]; those of
    /// [`Store::write`](crate::store::Store::write).
    pub fn commit(&mut self) -> Result<()> {
        match self.try_commit()? {
            Commit::Done => Ok(()),
            Commit::Unmet(_) => Err(Error::Conflict { tries: 1 }),
        }
    }

    /// As [`Self::commit`], but a requirement that is not met is no error. [`Commit::Unmet`] counts
    /// the `require_*` calls from 0.
    ///
    /// # Errors
    /// As [`Self::commit`], without [`Error::Conflict`].
    pub fn try_commit(&mut self) -> Result<Commit> {
        let batch = std::mem::take(&mut self.batch);
        let conditions = std::mem::take(&mut self.conditions);
        let named = std::mem::take(&mut self.named);
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        let _writing = named.begin_write()?;
        self.shared.store.write_if(&conditions, &batch)
    }
}
