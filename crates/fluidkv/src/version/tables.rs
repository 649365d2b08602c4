//! Tables of the store: handles that share their descriptor with the manifest, and sorted lists of
//! them.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use lodestore_contract::{Error, Result};
use lodestore_index::key_head;
use lodestore_media::Pool;

use crate::space::gauge::Gauge;
use crate::sst::{Block, Item, Reads, Slot, Table, TableMeta};
use crate::version::manifest::TableDescriptor;

/// The time of a table that is never merged for expired pairs.
pub(crate) const NEVER_STALE_MILLIS: u64 = u64::MAX;

/// Unique identities for tables.
pub(crate) struct Identities(AtomicU64);

impl Identities {
    /// Starts above all identities ever used: in the state with these tables, and in this opening
    /// of the pool.
    pub(crate) fn above<'a>(tables: impl Iterator<Item = &'a Arc<TableDescriptor>>, opening: u64) -> Self {
        // Each opening has its own block, whatever happened to the tables of earlier openings.
        let last_block = tables.map(|table| table.identity >> 32).max().unwrap_or(0);
        Self(AtomicU64::new((last_block + 1).max(opening) << 32))
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct LookupOptions {
    pub(crate) reads: Reads,
    /// Whether the filter is used. A filter costs a cache line, and saves some if the key is
    /// absent.
    pub(crate) filtered: bool,
}

/// A table that some view names.
///
/// Invariant: its extent holds its bytes while the handle lives. The extent is freed with the last
/// handle, and only if the manifest no longer names it.
pub(crate) struct TableHandle {
    pub(crate) descriptor: Arc<TableDescriptor>,
    /// `None` if the table was found damaged: each read of it fails.
    meta: Option<TableMeta>,
    pool: Arc<Pool>,
    gauge: Arc<Gauge>,
    removed: AtomicBool,
    /// When much of it has expired, in milliseconds, if that was examined
    /// (`background/merge_expired.rs`).
    pub(crate) stale_from: OnceLock<u64>,
}

impl TableHandle {
    /// Returns the handle of a table that was just written.
    pub(crate) fn new(
        (pool, gauge): (&Arc<Pool>, &Arc<Gauge>),
        descriptor: Arc<TableDescriptor>,
        meta: Option<TableMeta>,
    ) -> Self {
        let (pool, gauge, removed) = (Arc::clone(pool), Arc::clone(gauge), AtomicBool::new(false));
        let this = Self { descriptor, meta, pool, gauge, removed, stale_from: OnceLock::new() };
        this.gauge.add(this.dram_bytes());
        this
    }

    /// Returns the handle of a table that the manifest names, with its header, index, filter and
    /// keys checked. If they are damaged, each read of the handle fails, and the error is also
    /// returned here.
    pub(crate) fn open(
        (pool, gauge): (&Arc<Pool>, &Arc<Gauge>),
        descriptor: &Arc<TableDescriptor>,
    ) -> (Self, Option<Error>) {
        let bytes = usize::try_from(descriptor.bytes).ok().and_then(|len| pool.bytes(descriptor.at, len));
        let meta = bytes
            .ok_or_else(|| Error::corrupt(name_of(descriptor), "the position in the manifest is outside the pool"))
            .and_then(|bytes| TableMeta::open(bytes, descriptor.identity));
        let (meta, error) = match meta {
            Ok(meta) => (Some(meta), None),
            Err(error) => (None, Some(error)),
        };
        (Self::new((pool, gauge), Arc::clone(descriptor), meta), error)
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.pool.bytes(self.descriptor.at, self.descriptor.bytes as usize).unwrap_or_default()
    }

    /// Returns the reader of the table.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn table(&self) -> Result<Table<'_, '_>> {
        match &self.meta {
            Some(meta) => meta.table(self.bytes()),
            None => Err(self.damaged()),
        }
    }

    /// Returns the item of `key`; `slot` belongs to this get.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn get<'v>(
        &'v self,
        key: &[u8],
        hash: u64,
        how: LookupOptions,
        slot: &'v Slot,
    ) -> Result<Option<Item<'v>>> {
        let table = self.table()?;
        if how.filtered && !table.may_have(hash, how.reads) {
            return Ok(None);
        }
        match table.locate(key)? {
            Some(block) => table.get_in(&block, key, hash, how.reads, slot),
            None => table.get_below(key, hash, how.reads, slot),
        }
    }

    /// Returns the block that has `key` if the table does, and prefetches its bytes. `None` if the
    /// table does not have the key or cannot be read, which [`Self::get`] reports.
    pub(crate) fn locate_ahead(&self, key: &[u8]) -> Option<(Table<'_, '_>, Block)> {
        let table = self.table().ok()?;
        let block = table.locate(key).ok().flatten()?;
        let near = self.bytes().get(block.near());
        lodestore_media::prefetch_bytes(near.unwrap_or_default());
        Some((table, block))
    }

    /// Returns the bytes of its blocks, as stored and decompressed, if some are compressed.
    pub(crate) fn compressed(&self) -> Option<(u64, u64)> {
        self.meta.as_ref().filter(|meta| meta.is_compressed()).map(TableMeta::block_bytes)
    }

    /// Prefetches the index lines that a get of `key` reads.
    pub(crate) fn prefetch_index(&self, key: &[u8]) {
        if let Ok(table) = self.table() {
            let range = table.index_range(key);
            self.pool.prefetch(self.descriptor.at.add(range.start as u64), range.len());
        }
    }

    /// Prefetches the filter line that a get of a key with this hash reads.
    pub(crate) fn prefetch_filter(&self, hash: u64) {
        if let Ok(table) = self.table() {
            let range = table.filter_range(hash);
            self.pool.prefetch(self.descriptor.at.add(range.start as u64), range.len());
        }
    }

    #[cold]
    fn damaged(&self) -> Error {
        let what = "the open found the table damaged: restore the store from a backup, or export the readable pairs \
                    and import them into a new store";
        Error::corrupt(name_of(&self.descriptor), what)
    }

    /// Marks the table as no longer named by the manifest: its extent is freed with the last
    /// handle.
    pub(crate) fn set_removed(&self) {
        self.removed.store(true, Ordering::Release);
    }

    /// Returns its DRAM with the keys, which is constant.
    fn dram_bytes(&self) -> u64 {
        let descriptor = &self.descriptor;
        (size_of::<Self>() + size_of::<TableDescriptor>() + descriptor.min.len() + descriptor.max.len() + 48) as u64
    }
}

/// Returns where a table is, for errors.
pub(crate) fn name_of(descriptor: &TableDescriptor) -> String {
    format!("table {:#x} at {:?}", descriptor.identity, descriptor.at)
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        self.gauge.sub(self.dram_bytes());
        if self.removed.load(Ordering::Acquire) && !self.pool.is_foreign() {
            self.pool.allocator().free_extent(&self.pool, self.descriptor.at);
        }
    }
}

/// Tables in key order without overlaps, with the heads of their smallest keys side by side.
#[derive(Default)]
pub(crate) struct Sorted {
    pub(crate) tables: Vec<Arc<TableHandle>>,
    heads: Vec<u64>,
    pub(crate) bytes: u64,
    /// Bytes that the manifest needs to describe them.
    pub(crate) described: u64,
}

impl Sorted {
    pub(crate) fn new(tables: Vec<Arc<TableHandle>>) -> Self {
        let heads = tables.iter().map(|table| key_head(&table.descriptor.min)).collect();
        let bytes = tables.iter().map(|table| table.descriptor.bytes).sum();
        let described = tables.iter().map(|table| table.descriptor.described()).sum();
        Self { tables, heads, bytes, described }
    }

    /// Returns how many tables begin at or below `key`: only the last of them may have it.
    #[inline]
    fn not_above(&self, key: &[u8]) -> usize {
        let head = key_head(key);
        let mut at = self.heads.partition_point(|other| *other <= head);
        while at > 0 && self.heads[at - 1] == head && *self.tables[at - 1].descriptor.min > *key {
            at -= 1;
        }
        at
    }

    /// Returns the table that may have `key`: the last that begins at or below it.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<&TableHandle> {
        Some(&self.tables[self.not_above(key).checked_sub(1)?])
    }

    /// Like [`TableHandle::get`].
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn get<'v>(
        &'v self,
        key: &[u8],
        hash: u64,
        how: LookupOptions,
        slot: &'v Slot,
    ) -> Result<Option<Item<'v>>> {
        match self.find(key) {
            Some(table) => table.get(key, hash, how, slot),
            None => Ok(None),
        }
    }

    /// Returns a searcher for ascending keys.
    pub(crate) fn ascending(&self) -> Ascending<'_> {
        Ascending { tables: &self.tables, here: None }
    }

    /// Returns the first table with keys at or after a lower bound.
    pub(crate) fn first_from(&self, from: Bound<&[u8]>) -> usize {
        let (Bound::Included(key) | Bound::Excluded(key)) = from else { return 0 };
        let at = self.not_above(key);
        let reaches = at > 0 && *self.tables[at - 1].descriptor.max >= *key;
        if reaches { at - 1 } else { at }
    }

    /// Returns how many tables have keys at or before an upper bound.
    pub(crate) fn count_to(&self, to: Bound<&[u8]>) -> usize {
        let (Bound::Included(key) | Bound::Excluded(key)) = to else { return self.tables.len() };
        self.not_above(key)
    }

    /// Returns the DRAM of the list; its tables are counted separately.
    pub(crate) fn dram_bytes(&self) -> u64 {
        let own = self.heads.capacity() * size_of::<u64>() + self.tables.capacity() * size_of::<Arc<TableHandle>>();
        own as u64
    }
}

/// Looks up ascending keys: each table is found once for all its keys.
pub(crate) struct Ascending<'a> {
    /// The tables after `here`.
    tables: &'a [Arc<TableHandle>],
    /// The table that may have the last key, and its reader; no reader if it is damaged.
    here: Option<(&'a TableHandle, Option<Table<'a, 'a>>)>,
}

impl<'a> Ascending<'a> {
    /// Returns the table that may have `key`, by its keys and its filter: no other table has it. A
    /// damaged table may.
    #[inline]
    pub(crate) fn may_have(&mut self, key: &[u8], hash: u64, reads: Reads) -> Option<&'a TableHandle> {
        while let Some((next, rest)) = self.tables.split_first()
            && *next.descriptor.min <= *key
        {
            self.here = Some((next, next.table().ok()));
            self.tables = rest;
        }
        let (handle, table) = self.here.as_ref()?;
        table.as_ref().is_none_or(|table| table.may_have(hash, reads)).then_some(*handle)
    }
}
