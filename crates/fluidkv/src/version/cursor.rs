//! Ordered walks over memtables and sorted tables, and their merge.
//!
//! A merge gets its sources newest first. Of equal keys it shows the pair of the newest source and
//! skips the others.
//!
//! Most pairs are borrowed from the medium and stay valid. A pair of a compressed block is borrowed
//! from the decompressed bytes of the cursor's current block, and is valid until the cursor's next
//! step. A cursor over tables thus holds the decompressed bytes of at most one block. A merge
//! therefore steps past a pair only when the next pair is requested.
//!
//! A memtable may have newer versions than a snapshot shows. Its cursor shows such a key as
//! [`CursorStep::Newer`] and does not look for an older version. The merge asks for the older
//! version when the key is at its head. An owned scan begins again for each chunk: this way it
//! reads each newer version once, and not once per chunk.

mod merge;

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use lodestore_contract::{Direction, Result};

use crate::memtable::{Memtable, damaged};
use crate::sst::{Item, Reads, SeekPosition, Step, Table, Walk};
use crate::version::known::Known;
use crate::version::range::Ranges;
use crate::version::tables::{Sorted, TableHandle};
use crate::wal::entry::Entry;

pub(crate) use merge::Merge;

/// Positions collected from a memtable for the first chunk, and at most per chunk.
const CHUNK_ENTRIES: (usize, usize) = (8, 256);

/// How many entries ahead an entry's memory is prefetched.
const PREFETCH_ENTRIES: usize = 8;

/// A key and its state in one source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) known: Known<'a>,
}

impl<'a> Pair<'a> {
    fn of_item(item: &Item<'a>) -> Self {
        Self { key: item.key, known: Known::of_item(item) }
    }

    fn of_entry(entry: &Entry<'a>) -> Self {
        Self { key: entry.key(), known: Known::of_entry(entry) }
    }
}

/// Receives pairs. Returns whether to continue.
pub(crate) type Visitor<'v> = &'v mut dyn FnMut(&Pair<'_>) -> bool;

/// The result of a step of a source.
enum CursorStep<'a> {
    /// A pair that stays valid.
    Stored(Pair<'a>),
    /// A pair to read from the source, valid until its next step.
    Unpacked,
    /// A key whose newest version is newer than the snapshot. [`Source::older`] finds the version
    /// to show.
    Newer(&'a [u8]),
    /// No pair is left.
    End,
}

/// Walks the keys of one memtable as of a sequence number.
pub(crate) struct MemtableCursor<'a> {
    memtable: &'a Memtable,
    number: u64,
    direction: Direction,
    chunk: VecDeque<u64>,
    size: usize,
    /// Start of the next chunk. `None`: no chunk is left.
    from: Option<Bound<Vec<u8>>>,
    /// End of the walk. Checked only for keys that the snapshot does not show.
    to: Bound<&'a [u8]>,
    /// The position of the last [`CursorStep::Newer`].
    newer: u64,
    /// Whether each entry's checksum is compared, regardless of the store's option for reads.
    is_checked: bool,
}

impl<'a> MemtableCursor<'a> {
    pub(crate) fn new(memtable: &'a Memtable, number: u64, from: Bound<&[u8]>, direction: Direction) -> Self {
        Self {
            memtable,
            number,
            direction,
            chunk: VecDeque::new(),
            size: CHUNK_ENTRIES.0,
            from: Some(from.map(<[u8]>::to_vec)),
            to: Bound::Unbounded,
            newer: 0,
            is_checked: false,
        }
    }

    /// The same walk, ended at `to`: the upper bound forward, the lower bound backward. The walk
    /// may still show keys past the bound.
    pub(crate) fn ending(self, to: Bound<&'a [u8]>) -> Self {
        Self { to, ..self }
    }

    /// Walks the newest versions of a frozen memtable from a key on, and checks each entry. For a
    /// flush, which must not give damaged bytes a fresh checksum.
    pub(crate) fn checking(memtable: &'a Memtable, from: Bound<&[u8]>) -> Self {
        Self { is_checked: true, ..Self::new(memtable, u64::MAX, from, Direction::Forward) }
    }

    /// Returns the next key's version. A single source needs no [`Merge`].
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Pair<'a>>> {
        Ok(self.next_with_position()?.map(|(_, pair)| pair))
    }

    /// Like [`Self::next`], with the position of the key's newest entry.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn next_with_position(&mut self) -> Result<Option<(u64, Pair<'a>)>> {
        loop {
            let Some((at, entry)) = self.advance()? else { return Ok(None) };
            if !self.memtable.is_newer(&entry, self.number) {
                return Ok(Some((at, Pair::of_entry(&entry))));
            }
            if self.is_past_end(entry.key()) {
                return Ok(None);
            }
            if let Some(entry) = self.memtable.version(at, self.number)? {
                return Ok(Some((at, Pair::of_entry(&entry))));
            }
        }
    }

    /// Returns the next key, without a search for an older version.
    #[inline]
    fn next_stop(&mut self) -> Result<CursorStep<'a>> {
        let Some((at, entry)) = self.advance()? else { return Ok(CursorStep::End) };
        if !self.memtable.is_newer(&entry, self.number) {
            return Ok(CursorStep::Stored(Pair::of_entry(&entry)));
        }
        if self.is_past_end(entry.key()) {
            return Ok(CursorStep::End);
        }
        self.newer = at;
        Ok(CursorStep::Newer(entry.key()))
    }

    /// Returns the version that the snapshot shows of the last [`CursorStep::Newer`], if the
    /// memtable has it.
    fn older(&self) -> Result<Option<Pair<'a>>> {
        Ok(self.memtable.version(self.newer, self.number)?.map(|entry| Pair::of_entry(&entry)))
    }

    /// Returns the next key's newest entry and its position.
    #[inline]
    fn advance(&mut self) -> Result<Option<(u64, Entry<'a>)>> {
        loop {
            if let Some(at) = self.chunk.pop_front() {
                #[cfg(any(test, feature = "testing"))]
                crate::memtable::visits::add();
                if let Some(later) = self.chunk.get(PREFETCH_ENTRIES) {
                    self.memtable.prefetch_entry(*later);
                }
                if self.is_checked {
                    let entry = self.memtable.checked(at).ok_or_else(|| damaged(at))?;
                    return Ok(Some((at, entry)));
                }
                return Ok(Some((at, self.memtable.entry(at)?)));
            }
            let Some(from) = self.from.take() else { return Ok(None) };
            self.fill(from.as_ref().map(Vec::as_slice))?;
        }
    }

    /// Returns whether a key is past the end bound of the walk.
    fn is_past_end(&self, key: &[u8]) -> bool {
        match (self.to, self.direction) {
            (Bound::Unbounded, _) => false,
            (Bound::Included(to), Direction::Forward) => key > to,
            (Bound::Excluded(to), Direction::Forward) => key >= to,
            (Bound::Included(to), Direction::Backward) => key < to,
            (Bound::Excluded(to), Direction::Backward) => key <= to,
        }
    }

    fn fill(&mut self, from: Bound<&[u8]>) -> Result<()> {
        let direction = match self.direction {
            Direction::Forward => lodestore_index::Direction::Forward,
            Direction::Backward => lodestore_index::Direction::Backward,
        };
        let mut chunk = Vec::with_capacity(self.size);
        let all = self.memtable.collect(from, direction, self.size, &mut chunk)?;
        self.size = (self.size * 4).min(CHUNK_ENTRIES.1);
        let last = chunk.last().copied().filter(|_| !all);
        self.chunk.extend(chunk);
        if let Some(last) = last {
            self.from = Some(Bound::Excluded(self.memtable.entry(last)?.key().to_vec()));
        }
        Ok(())
    }
}

/// Walks the items of a sorted list of tables.
pub(crate) struct SortedCursor<'a> {
    tables: &'a [Arc<TableHandle>],
    /// Index of the current table. No item is left once it is outside of the list.
    index: usize,
    table: Option<Table<'a, 'a>>,
    walk: Walk,
    direction: Direction,
}

impl<'a> SortedCursor<'a> {
    /// Starts at a bound: the lower bound forward, the upper bound backward.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    pub(crate) fn new(sorted: &'a Sorted, from: Bound<&[u8]>, direction: Direction, reads: Reads) -> Result<Self> {
        let tables = &sorted.tables[..];
        let index = match direction {
            Direction::Forward => sorted.first_from(from),
            Direction::Backward => sorted.count_to(from).wrapping_sub(1),
        };
        let mut this = Self { tables, index, table: None, walk: Walk::new(reads), direction };
        let position = match (from, direction) {
            (Bound::Unbounded, _) => this.edge(),
            (Bound::Included(key), Direction::Forward) | (Bound::Excluded(key), Direction::Backward) => {
                SeekPosition::Before(key)
            }
            (Bound::Excluded(key), Direction::Forward) | (Bound::Included(key), Direction::Backward) => {
                SeekPosition::After(key)
            }
        };
        this.seek(position)?;
        Ok(this)
    }

    /// Returns where a walk enters a table.
    fn edge(&self) -> SeekPosition<'static> {
        match self.direction {
            Direction::Forward => SeekPosition::Start,
            Direction::Backward => SeekPosition::End,
        }
    }

    fn seek(&mut self, position: SeekPosition<'_>) -> Result<()> {
        self.walk.restart(0);
        self.table = self.tables.get(self.index).map(|handle| handle.table()).transpose()?;
        self.table.map_or(Ok(()), |table| self.walk.seek(&table, position))
    }

    #[inline]
    fn next(&mut self) -> Result<CursorStep<'a>> {
        loop {
            let Some(table) = &self.table else { return Ok(CursorStep::End) };
            let step = match self.direction {
                Direction::Forward => self.walk.next(table)?,
                Direction::Backward => self.walk.prev(table)?,
            };
            match step {
                Step::Stored(item) => return Ok(CursorStep::Stored(Pair::of_item(&item))),
                Step::Unpacked => return Ok(CursorStep::Unpacked),
                Step::End => {}
            }
            self.index = match self.direction {
                Direction::Forward => self.index + 1,
                Direction::Backward => self.index.wrapping_sub(1),
            };
            self.seek(self.edge())?;
        }
    }

    /// Returns the current pair after a [`CursorStep::Unpacked`].
    fn unpacked_pair(&self) -> Option<Pair<'_>> {
        self.walk.item().map(|item| Pair::of_item(&item))
    }

    /// Visits the remaining pairs until `visit` returns false. Returns whether it never did.
    fn visit(&mut self, visit: Visitor<'_>) -> Result<bool> {
        if self.direction == Direction::Forward {
            while let Some(table) = self.table {
                if !self.walk.visit(&table, &mut |item| visit(&Pair::of_item(&item)))? {
                    return Ok(false);
                }
                self.index += 1;
                self.seek(SeekPosition::Start)?;
            }
        }
        loop {
            let more = match self.next()? {
                CursorStep::Stored(pair) => visit(&pair),
                CursorStep::Unpacked => self.unpacked_pair().is_none_or(|pair| visit(&pair)),
                // Tables have no [`CursorStep::Newer`].
                CursorStep::Newer(_) | CursorStep::End => return Ok(true),
            };
            if !more {
                return Ok(false);
            }
        }
    }
}

/// Walks all tables of the ranges, range by range.
pub(crate) struct RangesCursor<'a> {
    ranges: &'a Ranges,
    index: usize,
    merge: Merge<'a>,
    direction: Direction,
    reads: Reads,
}

impl<'a> RangesCursor<'a> {
    /// Like [`SortedCursor::new`].
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    pub(crate) fn new(ranges: &'a Ranges, from: Bound<&[u8]>, direction: Direction, reads: Reads) -> Result<Self> {
        let index = match (from, direction) {
            (Bound::Included(key) | Bound::Excluded(key), _) => ranges.index_of(key),
            (Bound::Unbounded, Direction::Forward) => 0,
            (Bound::Unbounded, Direction::Backward) => ranges.list.len() - 1,
        };
        let mut this = Self { ranges, index, merge: Merge::new(direction, Vec::new())?, direction, reads };
        this.enter(from)?;
        Ok(this)
    }

    fn enter(&mut self, from: Bound<&[u8]>) -> Result<()> {
        let Some(range) = self.ranges.list.get(self.index) else { return Ok(()) };
        let cursor = |sorted| Ok(Source::Sorted(SortedCursor::new(sorted, from, self.direction, self.reads)?));
        let sources = range.sorted().filter(|sorted| !sorted.tables.is_empty()).map(cursor);
        self.merge = Merge::new(self.direction, sources.collect::<Result<_>>()?)?;
        Ok(())
    }

    fn next(&mut self) -> Result<CursorStep<'a>> {
        loop {
            if self.merge.step()? {
                return Ok(self.merge.stop());
            }
            if !self.enter_next()? {
                return Ok(CursorStep::End);
            }
        }
    }

    /// Enters the next range. Returns whether there is one.
    fn enter_next(&mut self) -> Result<bool> {
        let next = match self.direction {
            Direction::Forward => self.index + 1,
            Direction::Backward => self.index.wrapping_sub(1),
        };
        if next >= self.ranges.list.len() {
            return Ok(false);
        }
        self.index = next;
        self.enter(Bound::Unbounded)?;
        Ok(true)
    }

    /// Like [`SortedCursor::visit`].
    fn visit(&mut self, visit: Visitor<'_>) -> Result<bool> {
        loop {
            if !self.merge.visit(visit)? {
                return Ok(false);
            }
            if !self.enter_next()? {
                return Ok(true);
            }
        }
    }
}

/// A source of pairs.
pub(crate) enum Source<'a> {
    Memtable(MemtableCursor<'a>),
    Sorted(SortedCursor<'a>),
    Ranges(Box<RangesCursor<'a>>),
}

impl<'a> Source<'a> {
    #[inline]
    fn next(&mut self) -> Result<CursorStep<'a>> {
        match self {
            Self::Memtable(cursor) => cursor.next_stop(),
            Self::Sorted(cursor) => cursor.next(),
            Self::Ranges(cursor) => cursor.next(),
        }
    }

    /// Returns the version of a [`CursorStep::Newer`] to show. `None`: the source has no older
    /// version.
    fn older(&self) -> Result<Option<Pair<'a>>> {
        match self {
            Self::Memtable(cursor) => cursor.older(),
            Self::Sorted(_) | Self::Ranges(_) => Ok(None),
        }
    }

    /// Returns the current pair after a [`CursorStep::Unpacked`].
    fn unpacked_pair(&self) -> Option<Pair<'_>> {
        match self {
            Self::Memtable(_) => None,
            Self::Sorted(cursor) => cursor.unpacked_pair(),
            Self::Ranges(cursor) => cursor.merge.pair(),
        }
    }

    /// Like [`SortedCursor::visit`].
    fn visit(&mut self, visit: Visitor<'_>) -> Result<bool> {
        match self {
            Self::Sorted(cursor) => cursor.visit(visit),
            Self::Ranges(cursor) => cursor.visit(visit),
            Self::Memtable(cursor) => {
                while let Some(pair) = cursor.next()? {
                    if !visit(&pair) {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }
}
