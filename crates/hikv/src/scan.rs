//! Ordered and unordered walks.
//!
//! Isolation of a scan: every write that returned before the scan began is included. The scan waits
//! for the queues as of its start, and helps to empty them; writers never stop. Each returned pair
//! was its key's value at some moment between the scan's start and the pair's return. Keys are in
//! order, each at most once. A key that exists throughout is returned exactly once. A scan is not a
//! snapshot: of two writes during the scan it may show the later one without the earlier one.
//!
//! Positions in the tree name durable records: a change is queued after its entry is durable.

use std::collections::{HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use lodestore_contract::{Direction, Entry, EntryChunk, Error, Expiry, Pair, Result, Scan, ScanRange, Visit};
use lodestore_inplace::Running;
use lodestore_media::NvPtr;

use crate::open_store::{Inner, Records};
use crate::record::Record;

use crate::table::{PREFETCH_BYTES, PREFETCH_RECORDS, SegmentLocation, Slot, Verdict};

/// Positions read from the tree at once.
const CHUNK_KEYS: usize = 256;
/// Records that are prefetched together, as in `read.rs`. Here the effect is within noise.
const GROUP_RECORDS: usize = 4;
/// Entries that an owned scan copies at once.
const OWNED_CHUNK_ENTRIES: usize = 64;

impl Inner {
    /// Waits until every write that returned before the call is in the tree.
    pub(crate) fn wait_for_tree(&self) -> Result<()> {
        self.recovery.wait_ordered()?;
        self.backend.drain()
    }

    /// Returns the positions of all keys, in order. Writers must have stopped.
    pub(crate) fn positions(&self) -> Result<Vec<u64>> {
        let _guard = self.pool.epochs().pin();
        let records = &self.records;
        let mut positions: Vec<u64> = Vec::with_capacity(self.backend.trees().len());
        loop {
            let last = match positions.last() {
                None => None,
                Some(last) => Some(Record::read(&self.pool, NvPtr::from_raw(*last))?.key()),
            };
            let from = last.map_or(Bound::Unbounded, Bound::Excluded);
            let before = positions.len();
            let end = self.backend.read_range(records, from, lodestore_index::Direction::Forward, 4096, &mut positions);
            if end || positions.len() == before {
                return Ok(positions);
            }
            if positions.len() > self.backend.trees().len() {
                return Err(Error::corrupt("tree", "the keys of the scan repeat: a record was changed on the medium"));
            }
        }
    }

    /// Returns the live record at a position of the tree or the index; `None` if it has expired.
    fn read_live(&self, position: NvPtr) -> Result<Option<Record<'_>>> {
        let record = Record::read(&self.pool, position)?;
        if self.options.verify_reads {
            record.check(position).inspect_err(|error| self.report_corruption(error))?;
        }
        let expired = record.expiry().is_some_and(Expiry::is_past);
        Ok((!expired).then_some(record))
    }

    pub(crate) fn scan_tree(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        let _timer = self.sampler.scan();
        drop(self.enter()?);
        self.wait_for_tree()?;
        let mut visited = 0;
        let mut walk = TreeWalk::new(self, range.clone());
        let mut stopped = false;
        while visited < range.limit && !stopped {
            let want = (range.limit - visited).min(CHUNK_KEYS);
            let more = walk.visit_chunk(self, want, &mut |pair| {
                let record = pair?;
                visited += 1;
                stopped = visit(record.key(), record.value()) == Visit::Stop;
                Ok(!stopped && visited < range.limit)
            })?;
            if !more {
                break;
            }
        }
        if visited < range.limit && !stopped {
            self.check_tree_complete()?;
        }
        Ok(visited)
    }

    /// Calls `visit` for every live pair in the copied slots of a segment. Stores the first damage
    /// in `wrong`. Returns whether the visitor wants more.
    pub(crate) fn visit_slots(
        &self,
        location: SegmentLocation,
        mut slots: Vec<Slot>,
        verifies: bool,
        wrong: &mut Option<Error>,
        visit: &mut dyn FnMut(Pair<'_>) -> Visit,
    ) -> bool {
        // A key that is deleted and put again while its segment is copied can be in the copy twice.
        slots.sort_unstable_by_key(|slot| slot.entry.sig);
        let mut shown: Vec<Record<'_>> = Vec::new();
        for (index, slot) in slots.iter().enumerate() {
            if let Some(next) = slots.get(index + PREFETCH_RECORDS) {
                self.pool.prefetch(next.entry.position().untagged(), PREFETCH_BYTES);
            }
            if index > 0 && slots[index - 1].entry.sig != slot.entry.sig {
                shown.clear();
            }
            let record = match self.table.judge(&self.pool, location, *slot) {
                Verdict::Free => continue,
                Verdict::Whole(record) => record,
                // As a get does without a check of checksums.
                Verdict::BadRecord(Some(record), _)
                    if !verifies && self.table.placement.sign(record.key()).0 == slot.entry.sig =>
                {
                    record
                }
                Verdict::BadRecord(_, error) => {
                    self.report_corruption(&error);
                    wrong.get_or_insert(error);
                    continue;
                }
                Verdict::Damaged(error) => {
                    self.report_corruption(&error);
                    self.careful_mode.note_damage(&error);
                    wrong.get_or_insert(error);
                    continue;
                }
            };
            let expiry = record.expiry();
            if expiry.is_some_and(Expiry::is_past) || shown.iter().any(|other| other.key() == record.key()) {
                continue;
            }
            let pair = Pair { key: record.key(), value: record.value(), expiry };
            if visit(pair) == Visit::Stop {
                return false;
            }
            shown.push(record);
        }
        true
    }
}

/// A walk over the tree in chunks. Between two chunks it holds only the last key.
struct TreeWalk {
    range: ScanRange,
    records: Records,
    positions: Vec<u64>,
    /// Visited positions at the start of the range. Their records are damaged and give no bound. At
    /// most the number of consecutive damaged records.
    passed: HashSet<u64>,
}

impl TreeWalk {
    fn new(inner: &Inner, range: ScanRange) -> Self {
        Self { range, records: inner.records.clone(), positions: Vec::new(), passed: HashSet::new() }
    }

    /// Visits up to `want` positions. Returns whether there may be more. `visit` gets each pair, or
    /// the error of its record, and returns whether to continue.
    fn visit_chunk(&mut self, inner: &Inner, want: usize, visit: Visitor<'_>) -> Result<bool> {
        let _guard = inner.enter()?;
        self.positions.clear();
        // Twice the passed positions: a long row of damaged records must not be read over and over.
        let want = want.max(self.passed.len()) + self.passed.len();
        self.positions.reserve(want);
        let start = match self.range.direction {
            Direction::Forward => &self.range.from,
            Direction::Backward => &self.range.to,
        };
        let start = start.as_ref().map(Vec::as_slice);
        let direction = match self.range.direction {
            Direction::Forward => lodestore_index::Direction::Forward,
            Direction::Backward => lodestore_index::Direction::Backward,
        };
        let at_end = inner.backend.read_range(&self.records, start, direction, want, &mut self.positions);
        if !self.passed.is_empty() {
            self.positions.retain(|position| !self.passed.contains(position));
        }
        for position in self.positions.iter().take(PREFETCH_RECORDS) {
            inner.pool.prefetch(NvPtr::from_raw(*position).untagged(), PREFETCH_BYTES);
        }
        for (index, position) in self.positions.iter().enumerate() {
            if index % GROUP_RECORDS == 0 {
                for next in self.positions.iter().skip(index + PREFETCH_RECORDS).take(GROUP_RECORDS) {
                    inner.pool.prefetch(NvPtr::from_raw(*next).untagged(), PREFETCH_BYTES);
                }
            }
            let position = NvPtr::from_raw(*position);
            let pair = match inner.read_live(position) {
                Ok(None) => continue,
                Ok(Some(record)) if !self.is_in_range(record.key()) => return Ok(false),
                Ok(Some(record)) => Ok(record),
                Err(error) => Err(error),
            };
            if !visit(pair)? {
                return Ok(false);
            }
        }
        // The next chunk begins at the last valid key; positions after it were visited.
        let valid_record = |at: &u64| {
            let at = NvPtr::from_raw(*at);
            Record::read(&inner.pool, at).ok().filter(|record| record.check(at).is_ok())
        };
        let last = self.positions.iter().enumerate().rev().find_map(|(index, at)| Some((index, valid_record(at)?)));
        let Some((index, last)) = last else {
            self.passed.extend(&self.positions);
            return Ok(!at_end);
        };
        self.passed.clear();
        self.passed.extend(&self.positions[index + 1..]);
        let last = last.key();
        let (bound, ahead) = match self.range.direction {
            Direction::Forward => (&self.range.from, std::cmp::Ordering::Greater),
            Direction::Backward => (&self.range.to, std::cmp::Ordering::Less),
        };
        if let Bound::Included(at) | Bound::Excluded(at) = bound
            && last.cmp(at) == ahead.reverse()
        {
            return Err(Error::corrupt("tree", "the keys are out of order: a record was changed on the medium"));
        }
        let last = Bound::Excluded(last.to_vec());
        match self.range.direction {
            Direction::Forward => self.range.from = last,
            Direction::Backward => self.range.to = last,
        }
        Ok(!at_end)
    }
}

impl TreeWalk {
    /// Returns whether `key` is within the far bound.
    fn is_in_range(&self, key: &[u8]) -> bool {
        match self.range.direction {
            Direction::Forward => self.range.below_to(key),
            Direction::Backward => self.range.above_from(key),
        }
    }
}

/// Callback for the pairs of a walk.
type Visitor<'v> = &'v mut dyn FnMut(Result<Record<'_>>) -> Result<bool>;

/// A scan that owns its data.
pub(crate) struct OwnedScan {
    running: Arc<Running<Inner>>,
    walk: TreeWalk,
    chunk: EntryChunk,
    /// Pairs of the chunk that were shown.
    shown: usize,
    /// Errors of the chunk, each with the number of pairs before it.
    errors: VecDeque<(usize, Error)>,
    left: usize,
    more: bool,
}

impl OwnedScan {
    pub(crate) fn start(running: &Arc<Running<Inner>>, range: &ScanRange) -> Result<Scan> {
        let inner = &running.inner;
        let _timer = inner.sampler.scan();
        drop(inner.enter()?);
        inner.wait_for_tree()?;
        let walk = TreeWalk::new(inner, range.clone());
        let (running, chunk) = (Arc::clone(running), EntryChunk::default());
        let scan = Self { running, walk, chunk, shown: 0, errors: VecDeque::new(), left: range.limit, more: true };
        Ok(Box::new(scan))
    }

    /// Reads the next chunk.
    fn fill(&mut self) {
        let (chunk, errors) = (&mut self.chunk, &mut self.errors);
        chunk.clear();
        self.shown = 0;
        let want = self.left.min(OWNED_CHUNK_ENTRIES);
        let more = self.walk.visit_chunk(&self.running.inner, want, &mut |pair| {
            match pair {
                Ok(record) => {
                    chunk.push(Pair { key: record.key(), value: record.value(), expiry: record.expiry() });
                }
                Err(error) => errors.push_back((chunk.len(), error)),
            }
            Ok(true)
        });
        self.more = matches!(more, Ok(true));
        let end = match more {
            Ok(true) => None,
            Ok(false) if chunk.len() + errors.len() >= self.left => None,
            Ok(false) => self.running.inner.check_tree_complete().err(),
            Err(error) => Some(error),
        };
        errors.extend(end.map(|error| (chunk.len(), error)));
    }

    fn pop(&mut self) -> Option<Result<Entry>> {
        if self.errors.front().is_some_and(|(before, _)| *before == self.shown) {
            return self.errors.pop_front().map(|(_, error)| Err(error));
        }
        self.shown += 1;
        self.chunk.pop().map(Ok)
    }
}

impl Iterator for OwnedScan {
    type Item = Result<Entry>;

    /// Returns the next pair. A damaged record is an error in its place, and the walk continues
    /// after it.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.left > 0
                && let Some(shown) = self.pop()
            {
                self.left -= 1;
                return Some(shown);
            }
            if !self.more || self.left == 0 {
                return None;
            }
            self.fill();
        }
    }
}
