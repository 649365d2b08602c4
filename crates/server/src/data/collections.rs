//! The elements of large collections.
//!
//! A large collection has a number that no other collection ever had or gets. The elements of all
//! collections of a database are in one keyspace, which exists from the first large collection on.
//! The keyspace is flushed, exchanged and dropped with the keyspace of the database's keys.
//!
//! ```text
//! key of a header    00 | collection, u64 big-endian            value: version 1 | owner key
//! key of an element  01 | collection, u64 big-endian | field    value: the field's value
//! ```
//!
//! The record of the owner key names the collection. A change of a collection is one batch: its
//! elements and, if the number of fields changes, the owner's record. A collection that is too long
//! for one batch is written before its owner's record: the header first, then the elements, then
//! the record. The header finds the elements if the record never follows (module `orphans`).
//!
//! Numbers are reserved in groups. The record of the next free group is durable before a number of
//! the group is used, and an open continues at the record. Without a record, an open continues
//! above all numbers in use.

use std::ops::Bound;
use std::sync::{Mutex, OnceLock, PoisonError};

use lodestore::store::HiddenKeys;
use lodestore::{Db, Durability, Error, Keyspace, Result};

/// Number of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CollectionId(pub(crate) u64);

/// First byte of the keys of headers.
const HEADER_KIND_ID: u8 = 0;

/// First byte of the keys of elements.
const ELEMENT_KIND_ID: u8 = 1;

/// Bytes of an element's key before the field.
pub(crate) const ELEMENT_PREFIX_BYTES: usize = 9;

/// Longest field in bytes. A key of a keyspace has at most 65,529 bytes.
pub(crate) const FIELD_BYTES_MAX: usize = 65_500;

/// Version of a header.
const HEADER_VERSION: u8 = 1;

/// Prefix of the names of the keyspaces of elements.
pub(crate) const ELEMENTS_PREFIX: &str = "lodestore-server/elements-";

/// Key of the record of the next free number, in the default keyspace.
const NEXT_KEY: &str = "lodestore-server/collections";

/// Version of the record.
const NEXT_VERSION: u8 = 1;

/// Numbers that one write reserves.
const RESERVED_NUMBER_COUNT: u64 = 1024;

/// Returns the bytes of a number, which sort as the numbers do.
#[expect(clippy::big_endian_bytes, reason = "keys sort by their bytes")]
fn sorted_bytes(id: CollectionId) -> [u8; 8] {
    id.0.to_be_bytes()
}

/// Returns the key of the header of a collection.
pub(crate) fn header_key(id: CollectionId) -> Vec<u8> {
    [&[HEADER_KIND_ID][..], &sorted_bytes(id)].concat()
}

/// Returns the key of an element.
pub(crate) fn element_key(id: CollectionId, field: &[u8]) -> Vec<u8> {
    [&[ELEMENT_KIND_ID][..], &sorted_bytes(id), field].concat()
}

/// Returns the range of the keys of all elements of a collection.
pub(crate) fn elements_range(id: CollectionId) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let end = match id.0.checked_add(1) {
        Some(next) => Bound::Excluded(element_key(CollectionId(next), b"")),
        None => Bound::Unbounded,
    };
    (Bound::Included(element_key(id, b"")), end)
}

/// Returns the range of the keys of all headers.
pub(crate) fn headers_range() -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (Bound::Included(vec![HEADER_KIND_ID]), Bound::Excluded(vec![ELEMENT_KIND_ID]))
}

/// Returns the number in the key of a header or of an element.
#[expect(clippy::big_endian_bytes, reason = "keys sort by their bytes")]
pub(crate) fn collection_of(key: &[u8]) -> Option<CollectionId> {
    let (_, rest) = key.split_first()?;
    rest.first_chunk().map(|id| CollectionId(u64::from_be_bytes(*id)))
}

/// Returns the value of a header.
pub(crate) fn encode_header(owner: &[u8]) -> Vec<u8> {
    [&[HEADER_VERSION][..], owner].concat()
}

/// Returns the owner key that a header names. A header of another version names none.
pub(crate) fn owner_of(header: &[u8]) -> Option<&[u8]> {
    match header {
        [HEADER_VERSION, owner @ ..] => Some(owner),
        _ => None,
    }
}

/// The keyspace of the elements of one database. The first large collection creates the keyspace.
#[derive(Debug)]
pub(crate) struct Elements {
    /// Number of the database's keyspace.
    number: u64,
    keyspace: OnceLock<Keyspace>,
    creation: Mutex<()>,
}

impl Elements {
    pub(crate) fn new(number: u64) -> Self {
        Self { number, keyspace: OnceLock::new(), creation: Mutex::new(()) }
    }

    /// Returns the name of the keyspace.
    pub(crate) fn name(&self) -> String {
        format!("{ELEMENTS_PREFIX}{}", self.number)
    }

    /// Returns the keyspace, if it exists.
    pub(crate) fn find(&self) -> Option<&Keyspace> {
        self.keyspace.get()
    }

    /// Returns the keyspace, and creates it if it does not exist. A caller that writes holds the
    /// stripe of the owner key, so no flush runs.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn open(&self, db: &Db) -> Result<&Keyspace> {
        let _creation = self.creation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keyspace) = self.keyspace.get() {
            return Ok(keyspace);
        }
        let keyspace = db.keyspace(self.name())?;
        Ok(self.keyspace.get_or_init(|| keyspace))
    }
}

/// The source of new numbers of collections.
#[derive(Debug)]
pub(crate) struct CollectionIds {
    state: Mutex<NextNumbers>,
}

#[derive(Debug)]
struct NextNumbers {
    next: u64,
    /// The first number that is not reserved.
    reserved_end: u64,
}

impl CollectionIds {
    /// Reads the next free number.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the record is damaged or of another version; those of the store.
    pub(crate) fn open<'a>(db: &Db, elements: impl Iterator<Item = &'a Keyspace>) -> Result<Self> {
        let mut next = match db.get(NEXT_KEY)? {
            Some(record) => return Ok(Self::after(decode_next(&record)?)),
            None => 0,
        };
        for keyspace in elements {
            let last_header = keyspace.range_keys(headers_range())?.next_back();
            let last = keyspace.range_keys::<&[u8]>(..)?.next_back();
            for last in [last_header, last] {
                if let Some(id) = last.transpose()?.as_deref().and_then(collection_of) {
                    next = next.max(id.0.saturating_add(1));
                }
            }
        }
        Ok(Self::after(next))
    }

    fn after(next: u64) -> Self {
        Self { state: Mutex::new(NextNumbers { next, reserved_end: next }) }
    }

    /// Returns a number that no collection had.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn next(&self, db: &Db) -> Result<CollectionId> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.next >= state.reserved_end {
            let end = state.next.saturating_add(RESERVED_NUMBER_COUNT);
            let record = [&[NEXT_VERSION][..], &end.to_le_bytes()].concat();
            db.put(NEXT_KEY, record)?;
            // At `interval` the logs of two threads may lose different tails. At other levels the
            // put is as durable as each later write, and memory (tmpfs) refuses a sync.
            if matches!(db.durability(), Durability::Interval(_)) {
                db.sync()?;
            }
            state.reserved_end = end;
        }
        let id = CollectionId(state.next);
        state.next += 1;
        Ok(id)
    }
}

fn decode_next(record: &[u8]) -> Result<u64> {
    let damaged =
        |damage: &str| Error::Corrupt { place: NEXT_KEY.into(), what: damage.into(), hidden: HiddenKeys::None };
    match record {
        [NEXT_VERSION, next @ ..] => {
            let next: [u8; 8] = next.try_into().map_err(|_| damaged("the record of collections has a wrong length"))?;
            Ok(u64::from_le_bytes(next))
        }
        [_, ..] => {
            Err(damaged("the record of collections has an unsupported version: serve the store with a newer program"))
        }
        [] => Err(damaged("the record of collections is empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_collection_and_field() {
        let id = |number| CollectionId(number);
        let keys = [
            header_key(id(1)),
            header_key(id(256)),
            element_key(id(1), b""),
            element_key(id(1), b"\xff\xff"),
            element_key(id(2), b"a"),
            element_key(id(256), b""),
        ];
        assert!(keys.is_sorted());
        assert_eq!(
            keys.iter().filter_map(|key| collection_of(key)).map(|id| id.0).collect::<Vec<_>>(),
            [1, 256, 1, 1, 2, 256]
        );
        let (Bound::Included(from), Bound::Excluded(to)) = elements_range(id(1)) else { panic!("bounds") };
        let inside: Vec<usize> = (0..keys.len()).filter(|index| (&from..&to).contains(&&keys[*index])).collect();
        assert_eq!(inside, [2, 3]);
    }

    #[test]
    fn a_header_names_its_owner() {
        assert_eq!(owner_of(&encode_header(b"key")), Some(&b"key"[..]));
        assert_eq!(owner_of(b"\x02key"), None);
        assert_eq!(owner_of(b""), None);
    }
}
