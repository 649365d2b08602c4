//! Moves and copies of keys: `RENAME`, `MOVE` and `COPY`.
//!
//! A value that is one record is written under its new key. A large collection that is renamed
//! within its database keeps its elements, and its header names the new owner. In all other cases
//! the elements are copied to a new collection before the record of the new key is written. The
//! elements of the old key become orphans, which the server removes in the background.

use lodestore::Result;

use super::access::Access;
use super::access::elements::WHOLE_STEP;
use super::hash::{HashRecord, LargeHash};
use super::hash_editor::{KeyLocation, Record, damaged_hash, hash_of};
use super::value::Stored;
use crate::error::CommandResult;

/// The change of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// The source is deleted.
    Move,
    /// The source stays.
    Copy,
}

/// Writes a value under another key. The caller holds the stripes of both keys.
///
/// # Errors
///
/// An error that names the key if a collection is damaged; those of the store.
pub(crate) fn transfer(
    access: &mut Access<'_>,
    from: KeyLocation<'_>,
    to: KeyLocation<'_>,
    record: Record,
    kind: Transfer,
) -> CommandResult {
    let (stored, expiry) = record;
    let large = match Stored::parse(&stored) {
        Stored::Hash(_) => match hash_of(from.key, &stored)? {
            HashRecord::Large(large) => Some(large),
            HashRecord::Small(_) => None,
        },
        _ => None,
    };
    let stored = match large {
        None => stored,
        Some(large) if kind == Transfer::Move && from.database == to.database => {
            access.put_header(to.database, large.id, to.key);
            stored
        }
        Some(large) => copy_elements(access, from, to, large)?.encode(),
    };
    access.put(to.database, to.key, stored, expiry)?;
    if kind == Transfer::Move {
        access.delete(from.database, from.key)?;
    }
    Ok(())
}

/// Copies the elements of a large hash to a new collection.
fn copy_elements(
    access: &Access<'_>,
    from: KeyLocation<'_>,
    to: KeyLocation<'_>,
    source: LargeHash,
) -> CommandResult<LargeHash> {
    let copy = LargeHash { id: access.new_collection()?, count: source.count };
    let mut copied = 0;
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = access.elements_page(from.database, source.id, after.as_deref(), WHOLE_STEP)?;
        copied += page.pairs.len() as u64;
        write_page(access, to, copy, &page.pairs)?;
        match page.next {
            Some(next) => after = Some(next),
            None if copied == source.count => return Ok(copy),
            None => return Err(damaged_hash(from.key, "the hash lacks fields")),
        }
    }
}

fn write_page(access: &Access<'_>, to: KeyLocation<'_>, copy: LargeHash, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
    let pairs = pairs.iter().map(|(field, value)| (&field[..], &value[..]));
    access.write_staged(to.database, copy.id, to.key, pairs)
}
