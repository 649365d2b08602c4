//! The immutable view that readers share: memtables newest first, then the ranges.
//!
//! Invariants
//! 1. A view never changes. A change creates a new view and publishes it with one store. Readers
//!    that loaded an older view may finish on it; everything it names exists until then.
//! 2. Everything that a view shows is durable before it is published, as far as the store's
//!    durability goes.
//! 3. From new to old: the active memtable, the frozen ones, the runs of a range, its stable
//!    tables. The first of them that knows a key decides.

use std::sync::Arc;

use lodestore_contract::Result;

use crate::memtable::Memtable;
use crate::sst::Slot;
use crate::values::segment::Hold;
use crate::version::known::Known;
use crate::version::range::Ranges;
use crate::version::tables::LookupOptions;

/// See the module.
pub(crate) struct View {
    pub(crate) active: Arc<Memtable>,
    /// Newest first.
    pub(crate) frozen: Vec<Arc<Memtable>>,
    pub(crate) ranges: Arc<Ranges>,
    /// Keeps the parts of the value log that the view points to.
    #[expect(dead_code, reason = "it is there to be dropped with the last reader")]
    pub(crate) hold: Arc<Hold>,
}

impl View {
    /// Returns all memtables, newest first.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// Returns the generation of the active memtable if it is full.
    #[inline]
    pub(crate) fn full_generation(&self) -> Option<u64> {
        self.active.is_full().then_some(self.active.generation)
    }

    /// Returns the newest version of a key up to `number`. `slot` belongs to this lookup, for
    /// decompressed bytes.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    #[inline]
    pub(crate) fn find<'v>(
        &'v self,
        key: &[u8],
        hash: u64,
        number: u64,
        how: LookupOptions,
        slot: &'v Slot,
    ) -> Result<Option<Known<'v>>> {
        match self.find_buffered(key, hash, number)? {
            None => self.ranges.find(key, hash, how, slot),
            buffered => Ok(buffered),
        }
    }

    /// Returns the newest version of a key up to `number` in the memtables.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    #[inline]
    pub(crate) fn find_buffered(&self, key: &[u8], hash: u64, number: u64) -> Result<Option<Known<'_>>> {
        for memtable in self.memtables() {
            if let Some(entry) = memtable.find(key, hash, number)? {
                return Ok(Some(Known::of_entry(&entry)));
            }
        }
        Ok(None)
    }
}
