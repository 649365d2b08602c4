//! Finding versions of keys in a memtable.

use std::cell::Cell;
use std::ops::Bound;

use lodestore_contract::Result;
use lodestore_contract::threads::lock;
use lodestore_index::{Direction, KeyResolver};
use lodestore_media::NvPtr;

use super::Memtable;
use super::records::{Records, damaged};
use crate::sst::Reads;
use crate::wal::entry::Entry;

/// Searches that meet a damaged record before it is reported. A search that runs concurrently with
/// a writer may read a wrong slot.
const DAMAGED_SEARCHES_MAX: usize = 3;

/// Resolves positions to keys, and compares each record's checksum.
struct CheckedRecords<'a> {
    memtable: &'a Memtable,
    /// The position of a record whose checksum fails; 0: none.
    damaged: Cell<u64>,
}

impl<'a> CheckedRecords<'a> {
    fn new(memtable: &'a Memtable) -> Self {
        Self { memtable, damaged: Cell::new(0) }
    }

    /// Runs a search until it meets no damaged record.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if each of [`DAMAGED_SEARCHES_MAX`] searches meets one.
    fn search<T>(&self, mut search: impl FnMut(&Self) -> T) -> Result<T> {
        for _ in 0..DAMAGED_SEARCHES_MAX {
            self.damaged.set(0);
            let found = search(self);
            if self.damaged.get() == 0 {
                return Ok(found);
            }
        }
        Err(damaged(self.damaged.get()))
    }
}

impl KeyResolver for CheckedRecords<'_> {
    fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T {
        match self.memtable.checked(payload) {
            Some(entry) => f(entry.key()),
            None => {
                self.damaged.set(payload);
                f(&[])
            }
        }
    }

    fn prefetch(&self, payload: u64) {
        self.memtable.prefetch_entry(payload);
    }
}

impl Memtable {
    /// Prefetches the entry at a position.
    #[inline]
    pub(crate) fn prefetch_entry(&self, at: u64) {
        Records(&self.pool).prefetch(at);
    }

    /// Returns whether it may have a key of this hash. If not, it has none.
    #[inline]
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        self.keys.may_have(hash)
    }

    /// Returns the newest version of a key up to a number.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn find(&self, key: &[u8], hash: u64, number: u64) -> Result<Option<Entry<'_>>> {
        if !self.may_have(hash) {
            return Ok(None);
        }
        match self.index.get(&Records(&self.pool), key) {
            Some(at) => self.version_of(key, at, number),
            None if self.reads == Reads::Trusted => Ok(None),
            None => self.find_checked(key, number),
        }
    }

    /// Does [`Self::find`] for a key that the index does not have. Compares keys of whole records
    /// only.
    #[cold]
    #[inline(never)]
    fn find_checked(&self, key: &[u8], number: u64) -> Result<Option<Entry<'_>>> {
        match CheckedRecords::new(self).search(|records| self.index.get(records, key))? {
            Some(at) => self.version_of(key, at, number),
            None => Ok(None),
        }
    }

    /// Does [`Self::version`] for this key. Fails if the entry has another key.
    #[inline]
    fn version_of(&self, key: &[u8], at: u64, number: u64) -> Result<Option<Entry<'_>>> {
        match self.version(at, number)? {
            Some(entry) if *entry.key() != *key => Err(damaged(at)),
            found => Ok(found),
        }
    }

    /// Returns the version, up to a number, of the key whose newest version is at `at`.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn version(&self, at: u64, number: u64) -> Result<Option<Entry<'_>>> {
        let mut entry = self.entry(at)?;
        let mut at = at;
        while self.is_newer(&entry, number) {
            #[cfg(any(test, feature = "testing"))]
            visits::add();
            let Some(older) = lock(&self.older[Self::older_map_of(at)]).get(&at).copied() else { return Ok(None) };
            at = older;
            entry = self.entry(at)?;
        }
        Ok(Some(entry))
    }

    /// Returns the entry at a position from the index.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn entry(&self, at: u64) -> Result<Entry<'_>> {
        match self.reads {
            Reads::Trusted => Records(&self.pool).entry(at),
            Reads::Verified => self.checked(at).ok_or_else(|| damaged(at)),
        }
    }

    /// Returns whether a snapshot at `number` hides this version. `u64::MAX` shows every version.
    #[inline]
    pub(crate) fn is_newer(&self, entry: &Entry<'_>, number: u64) -> bool {
        number != u64::MAX && !self.replayed && entry.sequence(self.base) > number
    }

    /// Adds the positions of keys from `from` on, in order, at most `max`. Returns whether no key
    /// is left.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a record that is needed to find the first of them is damaged.
    pub(crate) fn collect(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        max: usize,
        out: &mut Vec<u64>,
    ) -> Result<bool> {
        if from == Bound::Unbounded || self.reads == Reads::Trusted {
            return Ok(self.index.read_range(&Records(&self.pool), from, direction, max, out));
        }
        let before = out.len();
        CheckedRecords::new(self).search(|records| {
            out.truncate(before);
            self.index.read_range(records, from, direction, max, out)
        })
    }

    /// Returns the entry at a position if its checksum is right.
    #[inline]
    pub(crate) fn checked(&self, at: u64) -> Option<Entry<'_>> {
        let segment = self.log.segment_of(at)?;
        let offset = at - segment.at.raw();
        let rest = segment.capacity.checked_sub(offset)?;
        Entry::checked(self.pool.bytes(NvPtr::from_raw(at), rest as usize)?, segment.frame, offset)
    }
}

/// Counts the versions that a thread reads, so that a test can bound the work of a scan.
#[cfg(any(test, feature = "testing"))]
pub(crate) mod visits {
    use std::cell::Cell;

    thread_local! {
        static VISITS: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn add() {
        VISITS.set(VISITS.get() + 1);
    }

    pub(crate) fn count() -> u64 {
        VISITS.get()
    }
}
