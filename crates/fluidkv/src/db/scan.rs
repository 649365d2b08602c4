//! Scans and walks.
//!
//! Isolation of a scan: snapshot. A scan shows each key as of one moment between its call and its
//! first pair (`db/snapshot.rs`). The scan includes every write that returned before the call, and
//! never a later write without an earlier one.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use lodestore_contract::{Direction, Entry, EntryChunk, Error, Expiry, Pair as Shown, Result, Scan, ScanRange, Visit};
use lodestore_media::Quiet;

use crate::db::close::Running;
use crate::db::open_store::Inner;
use crate::db::snapshot::Moment;
use crate::planted;
use crate::sst::{Cursor, Slot, hash};
use crate::version::cursor::{MemtableCursor, Merge, Pair, RangesCursor, Source};
use crate::version::known::Known;
use crate::version::view::View;

/// Pairs that an owned scan copies at first.
const CHUNK_PAIRS_MIN: usize = 16;
/// Maximum number of pairs that an owned scan copies, and bytes at which a chunk ends. Each chunk
/// costs a search in every source. A longer chunk leaves the processor's cache.
const CHUNK_PAIRS_MAX: usize = 1024;
const CHUNK_BYTES_MAX: usize = 128 << 10;

/// Visits the live pairs of a range as of a number. Calls `failed` with the error of an unreadable
/// large value: the scan continues after it, or ends with the error that `failed` returns.
pub(crate) fn scan(
    inner: &Inner,
    view: &View,
    number: u64,
    range: &ScanRange,
    failed: &mut dyn FnMut(Error) -> Result<()>,
    visit: &mut impl FnMut(Shown<'_>) -> Visit,
) -> Result<usize> {
    if range.excludes_all() || range.limit == 0 {
        return Ok(0);
    }
    let (from, to) = match range.direction {
        Direction::Forward => (&range.from, &range.to),
        Direction::Backward => (&range.to, &range.from),
    };
    let from = from.as_ref().map(Vec::as_slice);
    let mut sources = Vec::with_capacity(view.frozen.len() + 2);
    for each in view.memtables().filter(|memtable| !memtable.is_empty()) {
        let cursor = MemtableCursor::new(each, number, from, range.direction);
        sources.push(Source::Memtable(cursor.ending(to.as_ref().map(Vec::as_slice))));
    }
    sources.push(Source::Ranges(Box::new(RangesCursor::new(&view.ranges, from, range.direction, inner.reads)?)));
    let (mut visited, mut outcome) = (0, Ok(()));
    Merge::new(range.direction, sources)?.visit(&mut |pair| {
        let inside = match (to, range.direction) {
            (Bound::Unbounded, _) => true,
            (_, Direction::Forward) => range.below_to(pair.key),
            (_, Direction::Backward) => range.above_from(pair.key),
        };
        if !inside {
            return false;
        }
        let value = match pair.known {
            // The common case: nothing to check or to read.
            Known::Value(value, None) => Ok(Some((value, None))),
            known => inner.value_of(pair.key, known),
        };
        match value {
            Ok(Some((value, expiry))) => {
                visited += 1;
                let shown = Shown { key: pair.key, value, expiry: expiry.map(Expiry::at_millis) };
                visit(shown) == Visit::More && visited < range.limit
            }
            Ok(None) => true,
            Err(error) => {
                outcome = failed(error);
                outcome.is_ok()
            }
        }
    })?;
    outcome.map(|()| visited)
}

/// An owned scan, which copies pairs in chunks.
struct Owned {
    moment: Moment,
    range: ScanRange,
    chunk: EntryChunk,
    size: usize,
    ended: bool,
    /// The error that ended the scan, returned after the pairs found before it.
    failed: Option<Error>,
}

impl Owned {
    fn fill(&mut self) -> Result<()> {
        let _guard = self.moment.inner().enter()?;
        let want = self.size.min(self.range.limit);
        self.size = (self.size * 4).min(CHUNK_PAIRS_MAX);
        let part = self.range.clone().limit(want);
        let chunk = &mut self.chunk;
        chunk.clear();
        let (mut bytes, mut is_long) = (0, false);
        let found = self.moment.scan_pairs(&part, &mut |pair| {
            chunk.push(pair);
            bytes += pair.key.len() + pair.value.len();
            is_long = bytes >= CHUNK_BYTES_MAX;
            if is_long { Visit::Stop } else { Visit::More }
        })?;
        self.range.limit -= found;
        self.ended = found < want && !is_long || self.range.limit == 0;
        if let Some(last) = self.chunk.last_key() {
            let bound = Bound::Excluded(last.to_vec());
            match self.range.direction {
                Direction::Forward => self.range.from = bound,
                Direction::Backward => self.range.to = bound,
            }
        }
        Ok(())
    }
}

impl Owned {
    /// Copies the next chunk and returns its first pair.
    #[cold]
    fn next_chunk(&mut self) -> Option<Result<Entry>> {
        if !self.ended
            && let Err(error) = self.fill()
        {
            self.ended = true;
            self.moment.inner().report_corruption(&error);
            self.failed = Some(error);
        }
        self.chunk.pop().map(Ok).or_else(|| self.failed.take().map(Err))
    }
}

impl Iterator for Owned {
    type Item = Result<Entry>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.chunk.pop() {
            Some(entry) => Some(Ok(entry)),
            None => self.next_chunk(),
        }
    }
}

pub(super) fn owned(moment: Moment, range: &ScanRange) -> Scan {
    Box::new(Owned {
        moment,
        range: range.clone(),
        chunk: EntryChunk::default(),
        size: CHUNK_PAIRS_MIN,
        ended: range.excludes_all() || range.limit == 0,
        failed: None,
    })
}

impl Inner {
    /// As [`FluidKv::each_stored`](crate::FluidKv::each_stored).
    #[expect(clippy::type_complexity, reason = "a key, its stored value, and whether it is live")]
    pub(crate) fn each_stored(&self, each: &mut dyn FnMut(&[u8], &[u8], bool)) -> Result<()> {
        let _quiet = Quiet::begin();
        let _guard = self.enter()?;
        let view = self.view.load_full();
        let mut show = |pair: &Pair<'_>| {
            if let Known::Value(value, _) = pair.known {
                each(pair.key, value, pair.known.is_live());
            }
            true
        };
        walk_tables(self, &view, Bound::Unbounded, &mut show)?;
        let left_out = self.pool.has_fault(planted::LOG_POINTERS_NOT_COUNTED);
        for memtable in view.memtables().filter(|memtable| !memtable.is_empty() && !left_out) {
            let mut cursor = MemtableCursor::new(memtable, u64::MAX, Bound::Unbounded, Direction::Forward);
            while let Some(pair) = cursor.next()? {
                show(&pair);
            }
        }
        Ok(())
    }

    /// As [`FluidKv::each_flushed`](crate::FluidKv::each_flushed).
    pub(crate) fn each_flushed(&self, from: Bound<&[u8]>, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<()> {
        let _quiet = Quiet::begin();
        let _guard = self.enter()?;
        let view = self.view.load_full();
        walk_tables(self, &view, from, &mut |pair| match pair.known {
            Known::Value(value, _) if pair.known.is_live() => visit(pair.key, value) == Visit::More,
            _ => true,
        })
    }
}

/// Shows the newest version of each key in the tables, until `show` returns false.
fn walk_tables(inner: &Inner, view: &View, from: Bound<&[u8]>, show: &mut dyn FnMut(&Pair<'_>) -> bool) -> Result<()> {
    let ranges = RangesCursor::new(&view.ranges, from, Direction::Forward, inner.reads)?;
    Merge::new(Direction::Forward, vec![Source::Ranges(Box::new(ranges))])?.visit(show)?;
    Ok(())
}

impl Running {
    pub(crate) fn scan_each(
        self: &Arc<Self>,
        range: &ScanRange,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<usize> {
        let _quiet = Quiet::begin();
        let _guard = self.inner.enter()?;
        let moment = Moment::now(self);
        moment
            .scan_pairs(range, &mut |pair| visit(pair.key, pair.value))
            .inspect_err(|error| self.inner.report_corruption(error))
    }

    pub(crate) fn scan(self: &Arc<Self>, range: &ScanRange) -> Result<Scan> {
        drop(self.inner.enter()?);
        Ok(owned(Moment::now(self), range))
    }

    /// Visits every live pair as of the call. Leaves out unreadable pairs and returns their error.
    pub(crate) fn for_each_pair(self: &Arc<Self>, visit: &mut dyn FnMut(Shown<'_>) -> Visit) -> Result<u64> {
        let _quiet = Quiet::begin();
        let _guard = self.inner.enter()?;
        let moment = Moment::now(self);
        let mut walk = Walk { visit, visited: 0, last: None, stopped: false, first_error: None };
        for index in 0..moment.view.ranges.list.len() {
            moment.walk_range(index, &mut walk);
            if walk.stopped {
                return Ok(walk.visited);
            }
        }
        walk.first_error.map_or(Ok(walk.visited), Err)
    }
}

/// A walk over all data in spite of damage.
struct Walk<'v> {
    visit: &'v mut dyn FnMut(Shown<'_>) -> Visit,
    visited: u64,
    /// The last visited key of the current range; its buffer is reused.
    last: Option<Vec<u8>>,
    stopped: bool,
    first_error: Option<Error>,
}

impl Walk<'_> {
    fn show(&mut self, pair: Shown<'_>) -> Visit {
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(pair.key);
        self.visited += 1;
        let visit = (self.visit)(pair);
        self.stopped = visit == Visit::Stop;
        visit
    }

    fn note(&mut self, inner: &Inner, error: Error) {
        inner.report_corruption(&error);
        self.first_error.get_or_insert(error);
    }
}

impl Moment {
    fn walk_range(&self, index: usize, walk: &mut Walk<'_>) {
        walk.last = None;
        let ranges = &self.view.ranges;
        let range = ScanRange {
            from: Bound::Included(ranges.list[index].lower.to_vec()),
            to: ranges.upper_of(index).map_or(Bound::Unbounded, |upper| Bound::Excluded(upper.to_vec())),
            ..ScanRange::all()
        };
        let shared = RefCell::new(walk);
        let mut failed = |error: Error| {
            shared.borrow_mut().note(self.inner(), error);
            Ok(())
        };
        let mut show = |pair: Shown<'_>| shared.borrow_mut().show(pair);
        let outcome = scan(self.inner(), &self.view, self.number, &range, &mut failed, &mut show);
        if let Err(error) = outcome {
            let walk = shared.into_inner();
            walk.note(self.inner(), error);
            self.walk_by_keys(index, walk);
        }
    }

    /// Continues a range whose merge hit damage, after the last visited key: key by key, each with
    /// a get. A damaged block therefore costs only its own keys, and no older version of them is
    /// shown. All keys of the range are in DRAM meanwhile.
    fn walk_by_keys(&self, index: usize, walk: &mut Walk<'_>) {
        let (last, upper) = (walk.last.take(), self.view.ranges.upper_of(index));
        let is_left = |key: &[u8]| last.as_deref().is_none_or(|last| key > last);
        let mut keys = BTreeSet::new();
        for table in self.view.ranges.list[index].sorted().flat_map(|sorted| &sorted.tables) {
            let mut cursor = match table.table() {
                Ok(table) => Cursor::new(table, self.inner().reads),
                Err(error) => {
                    walk.note(self.inner(), error);
                    continue;
                }
            };
            // After an error the cursor goes on, and reaches the table's end.
            while let Some(item) = cursor.next().transpose() {
                match item {
                    Ok(item) if is_left(item.key) => drop(keys.insert(item.key.to_vec())),
                    Ok(_) => {}
                    Err(error) => walk.note(self.inner(), error),
                }
            }
        }
        let from = last.as_deref().unwrap_or(&self.view.ranges.list[index].lower);
        for memtable in self.view.memtables() {
            let mut cursor = MemtableCursor::new(memtable, self.number, Bound::Included(from), Direction::Forward);
            loop {
                match cursor.next() {
                    Ok(Some(pair)) if upper.is_none_or(|upper| pair.key < upper) => {
                        if is_left(pair.key) {
                            keys.insert(pair.key.to_vec());
                        }
                    }
                    Ok(_) => break,
                    // The cursor is after the damaged record, or at its end.
                    Err(error) => walk.note(self.inner(), error),
                }
            }
        }
        for key in &keys {
            let slot = Slot::new();
            let known = self.view.find(key, hash(key), self.number, self.inner().lookup_options(), &slot);
            match known.and_then(|known| known.map_or(Ok(None), |known| self.inner().value_of(key, known))) {
                Ok(Some((value, expiry))) => {
                    if walk.show(Shown { key, value, expiry: expiry.map(Expiry::at_millis) }) == Visit::Stop {
                        return;
                    }
                }
                Ok(None) => {}
                Err(error) => walk.note(self.inner(), error),
            }
        }
    }
}
