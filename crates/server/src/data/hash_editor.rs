//! Changes of a hash.
//!
//! An editor holds a hash while one command changes it. [`HashEditor::finish`] stores the result:
//! the record of a small hash, or the elements and the record of a large one as one batch. The
//! caller holds the key's stripe from the load to the commit.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use lodestore::{Expiry, Result};

use super::access::Access;
use super::collections::FIELD_BYTES_MAX;
use super::hash::{HashRecord, LargeHash, SMALL_BYTES_MAX, SMALL_FIELDS_MAX, encode_small};
use super::value::Stored;
use crate::error::{CommandError, CommandResult, WRONG_TYPE};

/// Number of fields of a hash from which lookups use an index.
const INDEXED_FIELDS_MIN: usize = 32;

/// Elements of a new large hash that are written in the batch of its record. The elements of a
/// longer one are written before.
pub(crate) const BATCH_ELEMENTS_MAX: usize = 16_384;

/// Bytes of a new large hash that are written in the batch of its record.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// A key of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyLocation<'a> {
    pub(crate) database: usize,
    pub(crate) key: &'a [u8],
}

/// A stored value with its expiry.
pub(crate) type Record = (Vec<u8>, Option<Expiry>);

/// Returns the error for a hash whose bytes do not fit each other.
pub(crate) fn damaged_hash(key: &[u8], damage: &str) -> CommandError {
    CommandError::new(format!("ERR the hash at key '{}' is damaged: {damage}", key.escape_ascii()))
}

/// Reads the record of a hash.
///
/// # Errors
///
/// `WRONGTYPE` if the value is no hash; an error that names the key if the record is malformed.
pub(crate) fn hash_of<'a>(key: &[u8], stored: &'a [u8]) -> CommandResult<HashRecord<'a>> {
    match Stored::parse(stored) {
        Stored::Hash(record) => {
            HashRecord::parse(record).map_err(|_| damaged_hash(key, "its record is unreadable; delete the key"))
        }
        Stored::String(_) | Stored::Unknown => Err(WRONG_TYPE),
    }
}

/// A hash that a command changes.
#[derive(Debug)]
pub(crate) struct HashEditor<'x> {
    location: KeyLocation<'x>,
    expiry: Option<Expiry>,
    fields: Fields<'x>,
    is_changed: bool,
}

#[derive(Debug)]
enum Fields<'x> {
    Small(SmallFields<'x>),
    Large {
        stored: LargeHash,
        /// Number of fields after the changes.
        count: u64,
        /// New values of fields; `None` removes a field. Only `finish` writes them to the store, so
        /// a command that fails within `EXEC` changes nothing.
        changes: BTreeMap<&'x [u8], Option<Cow<'x, [u8]>>>,
    },
}

/// A field of a small hash and its value.
type SmallPair<'x> = (&'x [u8], Cow<'x, [u8]>);

/// The fields of a small hash in their order. A removed field leaves a gap.
#[derive(Debug, Default)]
struct SmallFields<'x> {
    pairs: Vec<Option<SmallPair<'x>>>,
    count: usize,
    index: Option<HashMap<&'x [u8], usize>>,
}

impl<'x> SmallFields<'x> {
    fn position(&mut self, field: &[u8]) -> Option<usize> {
        if self.pairs.len() < INDEXED_FIELDS_MIN {
            return self.pairs.iter().position(|pair| pair.as_ref().is_some_and(|(name, _)| *name == field));
        }
        let pairs = &self.pairs;
        let index = self.index.get_or_insert_with(|| {
            pairs.iter().enumerate().filter_map(|(at, pair)| pair.as_ref().map(|(name, _)| (*name, at))).collect()
        });
        index.get(field).copied()
    }

    fn get(&mut self, field: &[u8]) -> Option<&[u8]> {
        let at = self.position(field)?;
        self.pairs[at].as_ref().map(|(_, value)| &**value)
    }

    /// Returns whether the field is new.
    fn set(&mut self, field: &'x [u8], value: Cow<'x, [u8]>) -> bool {
        if let Some(at) = self.position(field) {
            self.pairs[at] = Some((field, value));
            return false;
        }
        if let Some(index) = &mut self.index {
            index.insert(field, self.pairs.len());
        }
        self.pairs.push(Some((field, value)));
        self.count += 1;
        true
    }

    fn remove(&mut self, field: &[u8]) -> bool {
        let Some(at) = self.position(field) else { return false };
        self.pairs[at] = None;
        self.count -= 1;
        if let Some(index) = &mut self.index {
            index.remove(field);
        }
        true
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.pairs.iter().flatten().map(|(field, value)| (*field, &**value))
    }

    fn bytes(&self) -> usize {
        self.iter().map(|(field, value)| field.len() + value.len()).sum()
    }
}

impl<'x> HashEditor<'x> {
    /// Begins a change of a hash, or of a new hash if there is no record.
    ///
    /// # Errors
    ///
    /// As [`hash_of`].
    pub(crate) fn begin(location: KeyLocation<'x>, record: Option<&'x Record>) -> CommandResult<Self> {
        let mut editor =
            Self { location, expiry: None, fields: Fields::Small(SmallFields::default()), is_changed: false };
        let Some((stored, expiry)) = record else { return Ok(editor) };
        editor.expiry = *expiry;
        editor.fields = match hash_of(location.key, stored)? {
            HashRecord::Large(stored) => Fields::Large { stored, count: stored.count, changes: BTreeMap::new() },
            HashRecord::Small(hash) => {
                let mut pairs = Vec::with_capacity(hash.len() + 1);
                pairs.extend(hash.pairs().map(|(field, value)| Some((field, Cow::Borrowed(value)))));
                Fields::Small(SmallFields { count: pairs.len(), pairs, index: None })
            }
        };
        Ok(editor)
    }

    /// Calls `read` with the value of a field.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn read<T>(
        &mut self,
        access: &Access<'_>,
        field: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<T> {
        match &mut self.fields {
            Fields::Small(fields) => Ok(read(fields.get(field))),
            Fields::Large { stored, changes, .. } => match changes.get(field) {
                Some(value) => Ok(read(value.as_deref())),
                None => access.read_element(self.location.database, stored.id, field, read),
            },
        }
    }

    /// Sets a field. Returns whether the field is new.
    ///
    /// # Errors
    ///
    /// If the field is too long; those of the store.
    pub(crate) fn set(
        &mut self,
        access: &mut Access<'_>,
        field: &'x [u8],
        value: Cow<'x, [u8]>,
    ) -> CommandResult<bool> {
        if field.len() > FIELD_BYTES_MAX {
            return Err(CommandError::new(format!("ERR a field of a hash has at most {FIELD_BYTES_MAX} bytes")));
        }
        let is_new = match &self.fields {
            Fields::Small(_) => false,
            Fields::Large { .. } => self.read(access, field, |value| value.is_none())?,
        };
        self.is_changed = true;
        match &mut self.fields {
            Fields::Small(fields) => Ok(fields.set(field, value)),
            Fields::Large { count, changes, .. } => {
                changes.insert(field, Some(value));
                *count += u64::from(is_new);
                Ok(is_new)
            }
        }
    }

    /// Removes a field. Returns whether it existed.
    ///
    /// # Errors
    ///
    /// Errors of the store; an error that names the key if the hash has more fields than its record
    /// says.
    pub(crate) fn remove(&mut self, access: &Access<'_>, field: &'x [u8]) -> CommandResult<bool> {
        let exists = self.read(access, field, |value| value.is_some())?;
        match &mut self.fields {
            Fields::Small(fields) => drop(fields.remove(field)),
            Fields::Large { count, changes, .. } if exists => {
                *count = count.checked_sub(1).ok_or_else(|| {
                    damaged_hash(
                        self.location.key,
                        "the hash has more fields than its record says; copy the hash, and delete the key",
                    )
                })?;
                changes.insert(field, None);
            }
            Fields::Large { .. } => {}
        }
        self.is_changed |= exists;
        Ok(exists)
    }

    /// Whether the changes have removed all fields.
    pub(crate) fn is_emptied(&self) -> bool {
        let count = match &self.fields {
            Fields::Small(fields) => fields.count as u64,
            Fields::Large { count, .. } => *count,
        };
        self.is_changed && count == 0
    }

    /// Stores the changed hash. A hash without fields is deleted.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn finish(self, access: &mut Access<'_>) -> CommandResult {
        if !self.is_changed {
            return Ok(());
        }
        let KeyLocation { database, key } = self.location;
        match self.fields {
            Fields::Small(fields) if fields.count == 0 => {
                access.delete(database, key)?;
            }
            Fields::Small(fields) => {
                let is_large = fields.count > SMALL_FIELDS_MAX || fields.bytes() > SMALL_BYTES_MAX;
                if is_large && access.has_order() {
                    let large = make_large(access, self.location, &fields)?;
                    access.put(database, key, large.encode(), self.expiry)?;
                } else {
                    access.put(database, key, encode_small(fields.iter()), self.expiry)?;
                }
            }
            Fields::Large { stored, count, changes } => {
                access.buffer_writes();
                match count {
                    0 => drop(access.delete(database, key)?),
                    count if count == stored.count => access.touch(database, key),
                    count => access.put(database, key, LargeHash { id: stored.id, count }.encode(), self.expiry)?,
                }
                for (field, value) in changes {
                    match value {
                        Some(value) => access.put_element(database, stored.id, field, value.into_owned()),
                        None => access.delete_element(database, stored.id, field),
                    }
                }
                if count == 0 {
                    access.delete_header(database, stored.id);
                }
            }
        }
        Ok(())
    }
}

/// Writes the elements of a hash that becomes large. Returns its new record.
fn make_large(access: &mut Access<'_>, location: KeyLocation<'_>, fields: &SmallFields<'_>) -> Result<LargeHash> {
    let id = access.new_collection()?;
    if fields.count > BATCH_ELEMENTS_MAX || fields.bytes() > BATCH_BYTES_MAX {
        access.write_staged(location.database, id, location.key, fields.iter())?;
    } else {
        access.put_header(location.database, id, location.key);
        for (field, value) in fields.iter() {
            access.put_element(location.database, id, field, value.to_vec());
        }
    }
    Ok(LargeHash { id, count: fields.count as u64 })
}
