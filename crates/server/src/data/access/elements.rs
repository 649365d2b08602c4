//! The access of a command to the elements of large collections.
//!
//! Reads see the command's own earlier writes. All writes wait for the commit, which writes the
//! owner's record in the same batch. The exception is [`Access::write_staged`], for a collection
//! that no record names yet.

use std::collections::BTreeMap;
use std::ops::Bound;

use lodestore::store::{ScanRange, Visit};
use lodestore::{Result, WriteBatch};

use super::Access;
use crate::data::collections::{
    CollectionId, ELEMENT_PREFIX_BYTES, element_key, elements_range, encode_header, header_key,
};

/// A field and its value.
pub(crate) type FieldValue = (Vec<u8>, Vec<u8>);

/// The size of a step of a walk over elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageLimit {
    /// Most elements, at least 1.
    pub(crate) elements: usize,
    /// Bytes of fields and values after which the step ends.
    pub(crate) bytes: usize,
}

/// The step of walks that show a whole collection.
pub(crate) const WHOLE_STEP: PageLimit = PageLimit { elements: 1024, bytes: 1 << 20 };

/// Elements of a walk, in the order of their fields.
#[derive(Debug)]
pub(crate) struct ElementPage {
    pub(crate) pairs: Vec<FieldValue>,
    /// The field after which the walk continues; `None` at its end.
    pub(crate) next: Option<Vec<u8>>,
}

impl Access<'_> {
    /// Whether the engine keeps keys in order, so that collections may be large.
    pub(crate) fn has_order(&self) -> bool {
        self.view.has_order()
    }

    /// Returns a number that no collection had.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn new_collection(&self) -> Result<CollectionId> {
        self.view.new_collection()
    }

    /// Calls `read` with the value of a field of a large collection.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn read_element<T>(
        &self,
        database: usize,
        id: CollectionId,
        field: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<T> {
        let key = element_key(id, field);
        if !self.pending_elements.is_empty() {
            let location = (database, key);
            return match self.pending_elements.get(&location) {
                Some(value) => Ok(read(value.as_deref())),
                None => self.read_stored_element(database, &location.1, read),
            };
        }
        self.read_stored_element(database, &key, read)
    }

    fn read_stored_element<T>(&self, database: usize, key: &[u8], read: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        let mut read = Some(read);
        let mut call = |value: Option<&[u8]>| read.take().map(|read| read(value));
        let found = match self.view.elements(database).find() {
            Some(keyspace) => keyspace.get_with(key, |value| call(Some(value)))?,
            None => None,
        };
        let found = match found {
            Some(found) => found,
            None => call(None),
        };
        // The store calls at most once, and answers whether it did.
        found.ok_or(lodestore::Error::Closed)
    }

    /// Writes a field of a large collection at the commit.
    pub(crate) fn put_element(&mut self, database: usize, id: CollectionId, field: &[u8], value: Vec<u8>) {
        self.buffer_writes();
        self.pending_bytes += field.len() + value.len();
        self.pending_elements.insert((database, element_key(id, field)), Some(value));
    }

    /// Deletes a field of a large collection at the commit.
    pub(crate) fn delete_element(&mut self, database: usize, id: CollectionId, field: &[u8]) {
        self.buffer_writes();
        self.pending_elements.insert((database, element_key(id, field)), None);
    }

    /// Names the owner of a large collection at the commit.
    pub(crate) fn put_header(&mut self, database: usize, id: CollectionId, owner: &[u8]) {
        self.buffer_writes();
        self.pending_elements.insert((database, header_key(id)), Some(encode_header(owner)));
    }

    /// Deletes the header of a large collection that has no elements, at the commit.
    pub(crate) fn delete_header(&mut self, database: usize, id: CollectionId) {
        self.buffer_writes();
        self.pending_elements.insert((database, header_key(id)), None);
    }

    /// Writes elements of a collection that no record names, and its header, at once. The caller
    /// holds the stripe of the owner key until the record is committed, so that the elements do not
    /// count as orphans.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn write_staged<'p>(
        &self,
        database: usize,
        id: CollectionId,
        owner: &[u8],
        pairs: impl Iterator<Item = (&'p [u8], &'p [u8])>,
    ) -> Result<()> {
        let keyspace = self.view.elements(database).open(self.view.db())?;
        let mut batch = self.view.db().batch();
        batch.put(keyspace, header_key(id), encode_header(owner));
        let (mut count, mut bytes) = (0, 0);
        for (field, value) in pairs {
            batch.put(keyspace, element_key(id, field), value);
            count += 1;
            bytes += field.len() + value.len();
            if count >= WHOLE_STEP.elements || bytes >= WHOLE_STEP.bytes {
                batch.commit()?;
                (count, bytes) = (0, 0);
            }
        }
        batch.commit()
    }

    /// Returns the next elements of a large collection after a field. Each step reads further, so
    /// walks end. A step may be empty if the command itself deleted the elements.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn elements_page(
        &self,
        database: usize,
        id: CollectionId,
        after: Option<&[u8]>,
        limit: PageLimit,
    ) -> Result<ElementPage> {
        let (first, end) = elements_range(id);
        let from = after.map_or(first, |field| Bound::Excluded(element_key(id, field)));
        let mut pairs: Vec<FieldValue> = Vec::new();
        let (mut bytes, mut is_full) = (0, false);
        if let Some(keyspace) = self.view.elements(database).find() {
            let range = ScanRange { from: from.clone(), to: end.clone(), ..ScanRange::all() };
            keyspace.as_store().scan_each(&range, &mut |key, value| {
                bytes += key.len() + value.len();
                pairs.push((key.get(ELEMENT_PREFIX_BYTES..).unwrap_or_default().to_vec(), value.to_vec()));
                is_full = pairs.len() >= limit.elements || bytes >= limit.bytes;
                if is_full { Visit::Stop } else { Visit::More }
            })?;
        }
        let next = pairs.last().filter(|_| is_full).map(|(field, _)| field.clone());
        if !self.pending_elements.is_empty() {
            let end = next.as_ref().map_or(end, |field| Bound::Included(element_key(id, field)));
            pairs = self.merge_pending(database, (from, end), pairs);
        }
        Ok(ElementPage { pairs, next })
    }

    /// Applies the pending writes of a range to the stored elements of the range.
    fn merge_pending(
        &self,
        database: usize,
        range: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        stored: Vec<FieldValue>,
    ) -> Vec<FieldValue> {
        let mut merged: BTreeMap<Vec<u8>, Vec<u8>> = stored.into_iter().collect();
        let of_database = |bound: Bound<Vec<u8>>, unbounded: Bound<(usize, Vec<u8>)>| match bound {
            Bound::Included(key) => Bound::Included((database, key)),
            Bound::Excluded(key) => Bound::Excluded((database, key)),
            Bound::Unbounded => unbounded,
        };
        let from = of_database(range.0, Bound::Included((database, Vec::new())));
        let to = of_database(range.1, Bound::Excluded((database + 1, Vec::new())));
        for ((_, key), value) in self.pending_elements.range((from, to)) {
            let field = key.get(ELEMENT_PREFIX_BYTES..).unwrap_or_default();
            match value {
                Some(value) => merged.insert(field.to_vec(), value.clone()),
                None => merged.remove(field),
            };
        }
        merged.into_iter().collect()
    }

    /// Moves the pending elements to a batch.
    pub(super) fn add_elements(&mut self, batch: &mut WriteBatch) -> Result<()> {
        for ((database, key), value) in std::mem::take(&mut self.pending_elements) {
            let keyspace = self.view.elements(database).open(self.view.db())?;
            match value {
                Some(value) => batch.put(keyspace, key, value),
                None => batch.delete(keyspace, key),
            };
        }
        Ok(())
    }
}
