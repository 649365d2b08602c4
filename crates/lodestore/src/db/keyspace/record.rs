//! The records of the catalogue, as bytes. See docs/format/keyspaces.md.

use lodestore_contract::{Error, Result};

use super::key::{CATALOGUE_ID, NAMED_ID_MIN, prefix_of};

/// The version of all records of the catalogue.
const VERSION: u8 = 1;
/// The name of the format that [`VERSION`] is of, for errors.
const FORMAT_NAME: &str = "keyspaces";
/// The location of damage, for errors.
pub(in crate::db) const LOCATION: &str = "the catalogue of keyspaces";

/// Kinds of catalogue keys: the byte after the prefix.
const HEADER_KIND_ID: u8 = 0;
const SLOT_KIND_ID: u8 = 1;

/// States of a slot.
const FREE_STATE_ID: u8 = 0;
const LIVE_STATE_ID: u8 = 1;
const DEAD_STATE_ID: u8 = 2;

/// The record that bounds all ids and slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) struct Header {
    /// All ids below were or are in use.
    pub(in crate::db) next_id: u32,
    /// Slots that exist. One more may exist: the slot of the last creation.
    pub(in crate::db) slots: u32,
}

/// The content of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::db) enum SlotRecord {
    /// No keyspace.
    Free,
    /// A keyspace.
    Live { id: u32, name: String },
    /// A dropped keyspace whose records are not all removed.
    Dead { id: u32, name: String },
}

/// Returns the stored key of the header.
pub(in crate::db) fn header_key() -> Vec<u8> {
    [&prefix_of(CATALOGUE_ID)[..], &[HEADER_KIND_ID]].concat()
}

/// Returns the stored key of a slot.
pub(in crate::db) fn slot_key(number: u32) -> Vec<u8> {
    [&prefix_of(CATALOGUE_ID)[..], &[SLOT_KIND_ID], &number.to_le_bytes()].concat()
}

impl Header {
    pub(in crate::db) fn encode(self) -> Vec<u8> {
        [&[VERSION][..], &self.next_id.to_le_bytes(), &self.slots.to_le_bytes()].concat()
    }

    /// # Errors
    /// [`Error::NewerFormat`]; [`Error::Corrupt`].
    pub(in crate::db) fn decode(value: &[u8]) -> Result<Self> {
        let damaged = || Error::corrupt(LOCATION, "the header is unreadable");
        let rest = check_version(value).ok_or_else(damaged)??;
        let (next_id, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let slots = rest.try_into().map_err(|_| damaged())?;
        let header = Self { next_id: u32::from_le_bytes(*next_id), slots: u32::from_le_bytes(slots) };
        // Each slot was created for a different id.
        let ids = header.next_id.checked_sub(NAMED_ID_MIN).ok_or_else(damaged)?;
        if header.slots <= ids { Ok(header) } else { Err(damaged()) }
    }
}

impl SlotRecord {
    pub(in crate::db) fn encode(&self) -> Vec<u8> {
        let (state, id, name) = match self {
            Self::Free => (FREE_STATE_ID, 0, ""),
            Self::Live { id, name } => (LIVE_STATE_ID, *id, &name[..]),
            Self::Dead { id, name } => (DEAD_STATE_ID, *id, &name[..]),
        };
        [&[VERSION, state][..], &id.to_le_bytes(), name.as_bytes()].concat()
    }

    /// # Errors
    /// [`Error::NewerFormat`]; [`Error::Corrupt`].
    pub(in crate::db) fn decode(number: u32, value: &[u8]) -> Result<Self> {
        let damaged = || Error::corrupt(LOCATION, format!("slot {number} is unreadable"));
        let rest = check_version(value).ok_or_else(damaged)??;
        let (&state, rest) = rest.split_first().ok_or_else(damaged)?;
        let (id, name) = rest.split_first_chunk().ok_or_else(damaged)?;
        let id = u32::from_le_bytes(*id);
        let name = String::from_utf8(name.to_vec()).map_err(|_| damaged())?;
        match state {
            FREE_STATE_ID => Ok(Self::Free),
            LIVE_STATE_ID => Ok(Self::Live { id, name }),
            DEAD_STATE_ID => Ok(Self::Dead { id, name }),
            _ => Err(damaged()),
        }
    }
}

/// Returns the bytes after the version; `None` if there are none.
fn check_version(value: &[u8]) -> Option<Result<&[u8]>> {
    let (&found, rest) = value.split_first()?;
    match found {
        VERSION => Some(Ok(rest)),
        0 => None,
        _ => Some(Err(Error::NewerFormat { part: FORMAT_NAME.into(), found: found.into(), known: VERSION.into() })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_decoded_as_they_were_encoded() {
        let header = Header { next_id: 0x0102_0304, slots: 7 };
        assert_eq!(Header::decode(&header.encode()).expect("a header"), header);
        assert_eq!(header.encode(), [1, 4, 3, 2, 1, 7, 0, 0, 0]);
        let name = || "n\u{e4}me".to_string();
        for slot in
            [SlotRecord::Free, SlotRecord::Live { id: 2, name: name() }, SlotRecord::Dead { id: 3, name: name() }]
        {
            assert_eq!(SlotRecord::decode(0, &slot.encode()).expect("a slot"), slot);
        }
        assert_eq!(slot_key(1), [0xFF, 0xFF, 0, 1, 1, 0, 0, 0]);
    }

    #[test]
    fn a_header_with_more_slots_than_ids_or_an_id_of_the_catalogue_is_refused() {
        for (next_id, slots, is_whole) in [(2, 0, true), (5, 3, true), (5, 4, false), (1, 0, false), (0, 0, false)] {
            let decoded = Header::decode(&Header { next_id, slots }.encode());
            assert_eq!(decoded.is_ok(), is_whole, "{next_id} {slots}: {decoded:?}");
        }
    }

    #[test]
    fn short_odd_and_newer_records_are_refused() {
        let slot = SlotRecord::Live { id: 2, name: "a".into() }.encode();
        for value in [&[][..], &[0; 9], &[1; 8], &[1; 10]] {
            assert!(matches!(Header::decode(value), Err(Error::Corrupt { .. })), "{value:?}");
        }
        for value in [&slot[..5], &[1, 3, 2, 0, 0, 0], &[1, 1, 2, 0, 0, 0, 0xFF]] {
            assert!(matches!(SlotRecord::decode(0, value), Err(Error::Corrupt { .. })), "{value:?}");
        }
        assert!(matches!(Header::decode(&[2; 9]), Err(Error::NewerFormat { found: 2, known: 1, .. })));
        assert!(matches!(SlotRecord::decode(0, &[9; 9]), Err(Error::NewerFormat { found: 9, .. })));
    }
}
