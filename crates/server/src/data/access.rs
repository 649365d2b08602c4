//! The access of a command to keys: directly, or within `EXEC`.
//!
//! A command that changes one key reads and writes the store. A command that changes several keys,
//! and the commands of `EXEC`, read the store through their own earlier writes. All of their writes
//! are committed as one batch at the end. All hold the stripes of their keys, so nothing changes
//! between two steps.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

pub(crate) mod elements;

use lodestore::store::Change;
use lodestore::{Db, Expiry, Keyspace, Lifetime, Result};

use super::databases::View;
use super::effects::Effects;
use super::stripes::{Held, StripeIndex};
use crate::keyspace_events::class;

/// A value that `EXEC` will write. `None` deletes the key.
type Pending = Option<(Vec<u8>, Option<Expiry>)>;

/// The way from a command to the keys of all databases.
#[derive(Debug)]
pub(crate) struct Access<'a> {
    view: &'a View,
    held: Option<Held<'a>>,
    pending: Option<BTreeMap<(usize, Vec<u8>), Pending>>,
    /// Elements of large collections that the commit will write or (`None`) delete.
    pending_elements: BTreeMap<(usize, Vec<u8>), Option<Vec<u8>>>,
    /// Bytes of all keys and values that were added to the pending writes, replaced ones included.
    pending_bytes: usize,
    /// The effects after the commit.
    pub(crate) effects: Effects,
}

/// The result of a change.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    is_new: bool,
    /// The expiry of the key after the change.
    expiry: Option<Expiry>,
}

impl Outcome {
    /// Returns the outcome of a change of a present value and expiry, or `None` if nothing changes.
    fn of(change: &Change, value: Option<&[u8]>, present: Option<Expiry>) -> Option<Self> {
        match change {
            Change::Keep => None,
            Change::Put(_, lifetime) => Some(Self { is_new: value.is_none(), expiry: lifetime.resolve(present) }),
            Change::Delete => Some(Self { is_new: false, expiry: None }),
        }
    }
}

impl<'a> Access<'a> {
    /// Creates the access of a command that runs alone. `held` are the stripes of the keys that
    /// it changes; a command that only reads holds none.
    pub(crate) fn direct(view: &'a View, held: Option<Held<'a>>) -> Self {
        Self {
            view,
            held,
            pending: None,
            pending_elements: BTreeMap::new(),
            pending_bytes: 0,
            effects: Effects::default(),
        }
    }

    /// Creates the access of a command that changes several keys, or of all commands of one `EXEC`.
    /// The writes are one step when [`Self::commit`] succeeds.
    pub(crate) fn buffered(view: &'a View, held: Held<'a>) -> Self {
        Self { pending: Some(BTreeMap::new()), ..Self::direct(view, Some(held)) }
    }

    /// Lets all later writes wait for [`Self::commit`], as one batch. The caller holds the stripes
    /// of all keys that it changes.
    pub(crate) fn buffer_writes(&mut self) {
        self.pending.get_or_insert_default();
    }

    /// Whether the command holds the stripes of its keys.
    pub(crate) fn holds_stripes(&self) -> bool {
        self.held.is_some()
    }

    /// Whether writes wait for [`Self::commit`].
    pub(crate) fn is_buffered(&self) -> bool {
        self.pending.is_some()
    }

    /// Locks the stripes of further keys. Returns whether all are held now.
    pub(crate) fn try_extend(&mut self, indexes: impl Iterator<Item = StripeIndex>) -> bool {
        self.held.as_mut().is_some_and(|held| held.try_extend(indexes))
    }

    /// Returns the number of writes that wait for [`Self::commit`]: of keys, and of elements of
    /// large collections.
    pub(crate) fn pending_writes(&self) -> usize {
        self.pending.as_ref().map_or(0, BTreeMap::len) + self.pending_elements.len()
    }

    /// Returns the bytes of the keys and values that were added to the pending writes.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Returns the keyspace of a database, for walks.
    pub(crate) fn keyspace(&self, database: usize) -> &'a Keyspace {
        self.view.keyspace(database)
    }

    /// Calls `read` with the stored value of a key.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn read<T>(&self, database: usize, key: &[u8], read: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        if let Some(pending) = self.pending_of(database, key) {
            return Ok(read(live_value(pending).map(|(value, _)| value)));
        }
        let mut read = Some(read);
        let mut call = |value: Option<&[u8]>| read.take().map(|read| read(value));
        let found = match self.view.keyspace(database).get_with(key, |value| call(Some(value)))? {
            Some(found) => found,
            None => call(None),
        };
        // The store calls at most once, and answers whether it did.
        found.ok_or(lodestore::Error::Closed)
    }

    /// Calls `read` with the stored value of each key, in the order of the keys. The store looks
    /// them up together.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn read_several(
        &self,
        database: usize,
        keys: &[&[u8]],
        mut read: impl FnMut(Option<&[u8]>),
    ) -> Result<()> {
        if self.pending.as_ref().is_some_and(|pending| !pending.is_empty()) {
            return keys.iter().try_for_each(|key| self.read(database, key, &mut read));
        }
        self.view.keyspace(database).multi_get_with(keys, |_, stored| read(stored))
    }

    /// Whether a key exists.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn contains(&self, database: usize, key: &[u8]) -> Result<bool> {
        match self.pending_of(database, key) {
            Some(pending) => Ok(live_value(pending).is_some()),
            None => self.view.keyspace(database).contains(key),
        }
    }

    /// Returns the expiry of a key. The outer `None` means that there is no key.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn expiry(&self, database: usize, key: &[u8]) -> Result<Option<Option<Expiry>>> {
        match self.pending_of(database, key) {
            Some(pending) => Ok(live_value(pending).map(|(_, expiry)| expiry)),
            None => self.view.keyspace(database).expiry(key),
        }
    }

    /// Stores a value, and replaces the expiry.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn put(&mut self, database: usize, key: &[u8], value: Vec<u8>, expiry: Option<Expiry>) -> Result<()> {
        let is_new = self.effects.wanted.has_event(class::NEW) && !self.contains(database, key)?;
        match (&mut self.pending, expiry) {
            (Some(pending), _) => {
                self.pending_bytes += key.len() + value.len();
                pending.insert((database, key.to_vec()), Some((value, expiry)));
            }
            (None, None) => self.view.keyspace(database).put(key, value)?,
            (None, Some(expiry)) => self.view.keyspace(database).put_expiring(key, value, expiry)?,
        }
        self.mark_changed(database, key, Outcome { is_new, expiry });
        Ok(())
    }

    /// Deletes a key. Returns whether it existed.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn delete(&mut self, database: usize, key: &[u8]) -> Result<bool> {
        let is_deleted = match self.pending {
            None => self.view.keyspace(database).delete(key)?,
            // A key whose record is damaged can be deleted.
            Some(_) => match self.contains(database, key) {
                Err(lodestore::Error::Corrupt { .. }) => true,
                found => found?,
            },
        };
        if is_deleted {
            if let Some(pending) = &mut self.pending {
                pending.insert((database, key.to_vec()), None);
            }
            self.mark_changed(database, key, Outcome { is_new: false, expiry: None });
        }
        Ok(is_deleted)
    }

    /// Changes a key as `change` answers to its value and expiry. The store may call `change`
    /// more than once; the last call counts.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn update(
        &mut self,
        database: usize,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>, Option<Expiry>) -> Change,
    ) -> Result<()> {
        let mut outcome = None;
        if self.pending.is_some() {
            self.load(database, key)?;
            self.update_pending(database, key, |value, expiry| {
                let change = change(value, expiry);
                outcome = Outcome::of(&change, value, expiry);
                change
            });
        } else {
            self.view.keyspace(database).update_with(key, |value, expiry| {
                let change = change(value, expiry);
                outcome = Outcome::of(&change, value, expiry);
                change
            })?;
        }
        if let Some(outcome) = outcome {
            self.mark_changed(database, key, outcome);
        }
        Ok(())
    }

    /// Returns the number of keys of a database. The store counts them one by one.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn count(&self, database: usize) -> Result<u64> {
        let mut count = self.view.keyspace(database).count()?;
        for ((_, key), pending) in self.pending_from(database, &Bound::Unbounded) {
            let is_stored = self.view.keyspace(database).contains(key)?;
            match (is_stored, live_value(pending).is_some()) {
                (true, false) => count -= 1,
                (false, true) => count += 1,
                _ => {}
            }
        }
        Ok(count)
    }

    /// Returns about `count` keys of a database from `from` on, in order, and whether no more keys
    /// follow.
    ///
    /// # Errors
    ///
    /// [`lodestore::Error::Unsupported`] if the engine has no order; those of the store.
    pub(crate) fn keys_page(
        &self,
        database: usize,
        from: Bound<Vec<u8>>,
        count: usize,
    ) -> Result<(Vec<Vec<u8>>, bool)> {
        let mut keys: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut stored = self.view.keyspace(database).range_keys((from.clone(), Bound::Unbounded))?;
        let mut is_last = true;
        for key in stored.by_ref() {
            let key = match key {
                // The next page begins with the error.
                Err(_) if !keys.is_empty() => {
                    is_last = false;
                    break;
                }
                key => key?,
            };
            keys.insert(key.to_vec());
            if keys.len() >= count {
                is_last = false;
                break;
            }
        }
        let end = if is_last { None } else { keys.last().cloned() };
        for ((_, key), pending) in self.pending_from(database, &from) {
            if end.as_ref().is_some_and(|end| key > end) {
                break;
            }
            if live_value(pending).is_some() {
                keys.insert(key.clone());
            } else if end.as_ref() != Some(key) {
                // The last key stays, because the walk continues after it.
                keys.remove(key);
            }
        }
        Ok((keys.into_iter().collect(), is_last))
    }

    /// Tells the clients that watch a key that it changed, because its elements changed.
    pub(crate) fn touch(&mut self, database: usize, key: &[u8]) {
        let is_wanted = self.effects.wanted.has_changes;
        let expiry = is_wanted.then(|| self.expiry(database, key).ok().flatten().flatten()).flatten();
        self.mark_changed(database, key, Outcome { is_new: false, expiry });
    }

    /// Sets the flags of all clients that watch a key of a database that is emptied, or that is
    /// replaced by the database `replacement`. A key that neither database has does not change.
    pub(crate) fn mark_database_changed(&mut self, database: usize, replacement: Option<usize>) {
        self.effects.note_flush();
        let view = self.view;
        // A key that cannot be read counts as changed.
        let has_key = |database: usize, key: &[u8]| view.keyspace(database).contains(key).unwrap_or(true);
        if let Some(held) = &mut self.held {
            held.mark_database_changed(database, |key| {
                has_key(database, key) || replacement.is_some_and(|replacement| has_key(replacement, key))
            });
        }
    }

    fn pending_from(
        &self,
        database: usize,
        from: &Bound<Vec<u8>>,
    ) -> impl Iterator<Item = (&(usize, Vec<u8>), &Pending)> {
        let start = match from {
            Bound::Included(key) => Bound::Included((database, key.clone())),
            Bound::Excluded(key) => Bound::Excluded((database, key.clone())),
            Bound::Unbounded => Bound::Included((database, Vec::new())),
        };
        let end = Bound::Excluded((database + 1, Vec::new()));
        self.pending.iter().flat_map(move |pending| pending.range((start.clone(), end.clone())))
    }

    /// Returns a stored value and its expiry, as they are at one moment. The caller holds the key's
    /// stripe.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn read_record(&self, database: usize, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Expiry>)>> {
        if let Some(pending) = self.pending_of(database, key) {
            return Ok(live_value(pending).map(|(value, expiry)| (value.to_vec(), expiry)));
        }
        self.read_stored(database, key)
    }

    /// Returns the record of a key as the store has it, without the pending writes.
    fn read_stored(&self, database: usize, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Expiry>)>> {
        let mut record = None;
        self.view.keyspace(database).update_with(key, |value, expiry| {
            record = value.map(|value| (value.to_vec(), expiry));
            Change::Keep
        })?;
        Ok(record)
    }

    /// Commits the pending writes as one batch.
    ///
    /// # Errors
    ///
    /// Errors of the store. Nothing is written then.
    pub(crate) fn commit(&mut self, db: &Db) -> Result<()> {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        if self.pending_elements.is_empty() && pending.len() <= 1 {
            // One write needs no batch, which some engines lack.
            return pending.into_iter().try_for_each(|((database, key), value)| {
                let keyspace = self.view.keyspace(database);
                match value {
                    Some((value, None)) => keyspace.put(key, value),
                    Some((value, Some(expiry))) => keyspace.put_expiring(key, value, expiry),
                    None => match keyspace.delete(&key) {
                        // Some engines must read the record for the answer. A batch need not.
                        Err(lodestore::Error::Corrupt { .. }) => {
                            let mut batch = db.batch();
                            batch.delete(keyspace, key);
                            batch.commit()
                        }
                        deleted => deleted.map(drop),
                    },
                }
            });
        }
        let mut batch = db.batch();
        self.add_elements(&mut batch)?;
        for ((database, key), value) in pending {
            let keyspace = self.view.keyspace(database);
            match value {
                Some((value, None)) => batch.put(keyspace, key, value),
                Some((value, Some(expiry))) => batch.put_expiring(keyspace, key, value, expiry),
                None => batch.delete(keyspace, key),
            };
        }
        batch.commit()
    }

    fn pending_of(&self, database: usize, key: &[u8]) -> Option<&Pending> {
        let pending = self.pending.as_ref()?;
        if pending.is_empty() { None } else { pending.get(&(database, key.to_vec())) }
    }

    /// Copies a key of the store to the pending writes. The copy writes the present value.
    fn load(&mut self, database: usize, key: &[u8]) -> Result<()> {
        if self.pending_of(database, key).is_some() {
            return Ok(());
        }
        let loaded = self.read_stored(database, key)?;
        if let Some(pending) = &mut self.pending {
            self.pending_bytes += key.len() + loaded.as_ref().map_or(0, |(value, _)| value.len());
            pending.insert((database, key.to_vec()), loaded);
        }
        Ok(())
    }

    fn update_pending(
        &mut self,
        database: usize,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>, Option<Expiry>) -> Change,
    ) {
        let Some(Entry::Occupied(mut entry)) =
            self.pending.as_mut().map(|pending| pending.entry((database, key.to_vec())))
        else {
            return;
        };
        let present = live_value(entry.get());
        let expiry = present.and_then(|(_, expiry)| expiry);
        match change(present.map(|(value, _)| value), expiry) {
            Change::Keep => {}
            Change::Put(value, lifetime) => {
                self.pending_bytes += value.len();
                entry.insert(Some((value, lifetime.resolve(expiry))));
            }
            Change::Delete => {
                entry.insert(None);
            }
        }
    }

    fn mark_changed(&mut self, database: usize, key: &[u8], outcome: Outcome) {
        self.effects.note_change(database, key, outcome.expiry);
        if outcome.is_new {
            self.effects.note_event(class::NEW, "new", database, key);
        }
        if let Some(held) = &mut self.held {
            held.mark_changed(database, key);
        }
    }
}

/// Returns a pending value that exists now.
fn live_value(pending: &Pending) -> Option<(&[u8], Option<Expiry>)> {
    let (value, expiry) = pending.as_ref()?;
    (!expiry.is_some_and(Expiry::is_past)).then_some((value, *expiry))
}

/// Returns the lifetime with which a change keeps or sets an expiry.
pub(crate) fn lifetime_of(expiry: Option<Expiry>) -> Lifetime {
    expiry.map_or(Lifetime::Forever, Lifetime::Until)
}
