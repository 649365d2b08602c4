//! Access to records of the logs by position.

use lodestore_contract::{Error, Result};
use lodestore_index::KeyResolver;
use lodestore_media::{NvPtr, Pool};

use crate::wal::entry::Entry;

/// Bytes of an entry that a descent prefetches.
const FIRST_BYTES: usize = 64;

/// Resolves positions to keys.
pub(crate) struct Records<'a>(pub(crate) &'a Pool);

impl<'a> Records<'a> {
    /// Returns the entry at a position from the index.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if no entry can be there.
    #[inline]
    pub(crate) fn entry(&self, at: u64) -> Result<Entry<'a>> {
        let place = NvPtr::from_raw(at);
        let pool = self.0;
        Entry::read(|len| pool.bytes(place, len))
            .ok_or_else(|| Error::corrupt(format!("log entry at {place:?}"), "the lengths of the entry are invalid"))
    }
}

impl KeyResolver for Records<'_> {
    #[inline]
    fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T {
        // A record that was changed on the medium from outside has no key. The read that follows
        // reports it.
        match self.entry(payload) {
            Ok(entry) => f(entry.key()),
            Err(_) => f(&[]),
        }
    }

    #[inline]
    fn prefetch(&self, payload: u64) {
        self.0.prefetch(NvPtr::from_raw(payload), FIRST_BYTES);
    }
}

#[cold]
pub(crate) fn damaged(at: u64) -> Error {
    let what = "the checksum differs: restore the store from a backup, or open it with salvage and export the \
                readable pairs (`Builder::salvage(true)`, `Db::for_each`)";
    Error::corrupt(format!("log entry at {:?}", NvPtr::from_raw(at)), what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_log_entry_names_the_call_that_reads_the_others() {
        let text = damaged(4096).to_string();
        assert!(text.contains("`Builder::salvage(true)`, `Db::for_each`") && !text.contains("`salvage`"), "{text}");
    }
}
