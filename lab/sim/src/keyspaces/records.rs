//! The records of keyspaces in a store, read by docs/format/keyspaces.md and without the product's
//! code.

use std::collections::BTreeMap;

use lodestore_contract::{Error, Result, Store, Visit};

use crate::keyspace_keys::FIRST_ID;

/// The first bytes of all records that are not plain keys of the default keyspace.
const RESERVED: &[u8] = b"\xff\xff";
const HEADER_KEY: &[u8] = b"\xff\xff\x00\x00";
const SLOT_KEY: &[u8] = b"\xff\xff\x00\x01";
/// The id of the last keys of the default keyspace.
const DEFAULT_ID: u32 = 1;
/// The largest first byte of an id of one byte.
const ONE_BYTE_MAX: u8 = 0xF7;

/// The catalogue of a store.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// `None` without a header.
    pub(super) next_id: Option<u32>,
    /// Ids of live keyspaces by their names.
    pub(super) live: BTreeMap<String, u32>,
    /// Ids of dropped keyspaces whose slot is not free.
    pub(super) dead: Vec<u32>,
}

fn damaged(what: impl Into<String>) -> Error {
    Error::corrupt("the records of keyspaces", what.into())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

/// Returns the next id; `None` if there is no header.
pub(super) fn next_id(store: &dyn Store) -> Result<Option<u32>> {
    Ok(read_header(store)?.map(|(next_id, _)| next_id))
}

/// Returns the next id and the number of slots.
fn read_header(store: &dyn Store) -> Result<Option<(u32, u32)>> {
    let Some(header) = store.get(HEADER_KEY)? else { return Ok(None) };
    match (header.first(), u32_at(&header, 1), u32_at(&header, 5), header.len()) {
        (Some(1), Some(next_id), Some(slots), 9) => Ok(Some((next_id, slots))),
        _ => Err(damaged(format!("a header of the bytes {header:?}"))),
    }
}

impl Records {
    /// Reads the catalogue.
    ///
    /// # Errors
    ///
    /// Errors of a read; [`Error::Corrupt`] if a record does not match the format.
    pub(super) fn read(store: &dyn Store) -> Result<Self> {
        let mut records = Self::default();
        let header = read_header(store)?;
        records.next_id = header.map(|(next_id, _)| next_id);
        let (next_id, slots) = header.unwrap_or((FIRST_ID, 0));
        for number in 0..=slots {
            match store.get(&[SLOT_KEY, &number.to_le_bytes()].concat())? {
                Some(slot) => records.add(&slot, next_id)?,
                None if number == slots => {}
                None => return Err(damaged(format!("slot {number} of {slots} is missing"))),
            }
        }
        Ok(records)
    }

    fn add(&mut self, slot: &[u8], next_id: u32) -> Result<()> {
        let (&[version, state], Some(id)) = (slot.first_chunk().unwrap_or(&[0; 2]), u32_at(slot, 2)) else {
            return Err(damaged("a slot is too short"));
        };
        let name = String::from_utf8_lossy(&slot[6..]).into_owned();
        let is_known = |id: u32| self.dead.contains(&id) || self.live.values().any(|live| *live == id);
        match (version, state) {
            (1, 0) if (id, &name[..]) == (0, "") => return Ok(()),
            (1, 1 | 2) if is_known(id) => return Err(damaged(format!("two slots have id {id}"))),
            (1, 1 | 2) if !(FIRST_ID..next_id).contains(&id) => {
                return Err(damaged(format!("a slot has id {id}, and the next id is {next_id}")));
            }
            (1, 2) => self.dead.push(id),
            (1, 1) => {
                if self.live.insert(name.clone(), id).is_some() {
                    return Err(damaged(format!("two slots have the name {name:?}")));
                }
            }
            _ => return Err(damaged(format!("a slot of the bytes {slot:?}"))),
        }
        Ok(())
    }

    /// Adds to `wrong` each stored record that belongs to no keyspace.
    pub(super) fn check_owners(&self, store: &dyn Store, wrong: &mut Vec<String>) -> Result<()> {
        let is_owned = |key: &[u8]| match id_of(key) {
            Id::None => true,
            Id::Of(id) => id <= DEFAULT_ID || self.dead.contains(&id) || self.live.values().any(|live| *live == id),
            Id::Wrong => false,
        };
        store.for_each(&mut |key, _| {
            if !is_owned(key) {
                wrong.push(format!("the record {key:?} belongs to no keyspace"));
            }
            Visit::More
        })?;
        Ok(())
    }
}

enum Id {
    /// A plain key.
    None,
    Of(u32),
    Wrong,
}

/// Returns the id in a stored key.
fn id_of(key: &[u8]) -> Id {
    let Some(rest) = key.strip_prefix(RESERVED) else { return Id::None };
    match rest.split_first() {
        Some((first, _)) if *first <= ONE_BYTE_MAX => Id::Of((*first).into()),
        Some((first, rest)) => {
            let digits = rest.get(..usize::from(first - ONE_BYTE_MAX)).filter(|digits| digits.len() <= 4);
            digits.map_or(Id::Wrong, |digits| Id::Of(digits.iter().fold(0, |id, digit| id << 8 | u32::from(*digit))))
        }
        None => Id::Wrong,
    }
}
