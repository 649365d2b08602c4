//! Scans and snapshots.
//!
//! Isolation of a scan: snapshot. It shows each key as it was at one moment between its call and its first pair: every write that
//! returned before the call is in it, and of two writes the later is never shown without the earlier. A snapshot is a view and a number:
//! what is written later has a higher number, or stands in memtables that the view does not name.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use lodestore_contract::{Direction, Entry, Error, Result, Scan, ScanRange, Snapshot, Visit};
use lodestore_media::Quiet;

use crate::cursor::{MemtableCursor, Merge, RangesCursor, Source};
use crate::inner::Inner;
use crate::read::check_key;
use crate::store::Running;
use crate::table::{Slot, hash};
use crate::view::{Known, View};

/// Pairs that an owned scan copies at first, and at most.
const OWNED: (usize, usize) = (16, 256);

/// The store as it was at a number: while it lives, what it shows stays.
pub(crate) struct Moment {
    running: Arc<Running>,
    view: Arc<View>,
    number: u64,
}

impl Moment {
    pub(crate) fn now(running: &Arc<Running>) -> Self {
        let inner = &running.inner;
        loop {
            let view = inner.view.load_full();
            let number = match inner.group_log() {
                None => inner.order.begin_snapshot(),
                Some(log) => log.begin_snapshot(&inner.order),
            };
            // Had the view changed in between, a memtable with higher numbers might be among its tables already, or one with lower
            // numbers not be named.
            if Arc::ptr_eq(&view, &inner.view.load()) {
                return Self { running: Arc::clone(running), view, number };
            }
            inner.order.end_snapshot();
        }
    }

    fn inner(&self) -> &Inner {
        &self.running.inner
    }

    fn scan_each(&self, range: &ScanRange, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<usize> {
        scan(self.inner(), &self.view, self.number, range, &mut Err, visit)
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        self.running.inner.order.end_snapshot();
    }
}

/// Visits the live pairs of a range as they were at a number. `failed` is given the error of a large value that cannot be read: the scan goes on
/// behind it, or ends with what that answers.
fn scan(
    inner: &Inner,
    view: &View,
    number: u64,
    range: &ScanRange,
    failed: &mut dyn FnMut(Error) -> Result<()>,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
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
        sources.push(Source::Memtable(MemtableCursor::new(each, number, from, range.direction)));
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
            // Most pairs, and nothing to ask or to read for them.
            Known::Value(value, None) => Ok(Some((value, None))),
            known => inner.value_of(pair.key, known),
        };
        match value {
            Ok(Some((value, _))) => {
                visited += 1;
                visit(pair.key, value) == Visit::More && visited < range.limit
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

/// An owned scan: pairs are copied by the chunk.
struct Owned {
    moment: Moment,
    range: ScanRange,
    chunk: VecDeque<Entry>,
    size: usize,
    ended: bool,
    /// What ended it, behind the pairs that were found before.
    failed: Option<Error>,
}

impl Owned {
    fn fill(&mut self) -> Result<()> {
        let _guard = self.moment.inner().enter()?;
        let want = self.size.min(self.range.limit);
        self.size = (self.size * 4).min(OWNED.1);
        let part = self.range.clone().limit(want);
        let chunk = &mut self.chunk;
        let found = self.moment.scan_each(&part, &mut |key, value| {
            chunk.push_back(Entry { key: key.to_vec(), value: value.to_vec() });
            Visit::More
        })?;
        self.range.limit -= found;
        self.ended = found < want || self.range.limit == 0;
        if let Some(last) = self.chunk.back() {
            let bound = Bound::Excluded(last.key.clone());
            match self.range.direction {
                Direction::Forward => self.range.from = bound,
                Direction::Backward => self.range.to = bound,
            }
        }
        Ok(())
    }
}

impl Iterator for Owned {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.chunk.is_empty()
            && !self.ended
            && let Err(error) = self.fill()
        {
            self.ended = true;
            self.moment.inner().corrupt(&error);
            self.failed = Some(error);
        }
        self.chunk.pop_front().map(Ok).or_else(|| self.failed.take().map(Err))
    }
}

impl Snapshot for Moment {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        let read = || {
            let _guard = self.inner().enter()?;
            let slot = Slot::new();
            let known = self.view.find(key, hash(key), self.number, self.inner().how(), &slot)?;
            let live = known.map_or(Ok(None), |known| self.inner().value_of(key, known))?;
            Ok(live.map(|(value, _)| value.to_vec()))
        };
        read().inspect_err(|error| self.inner().corrupt(error))
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        drop(self.inner().enter()?);
        self.running.inner.order.again();
        let moment = Moment { running: Arc::clone(&self.running), view: Arc::clone(&self.view), number: self.number };
        Ok(owned(moment, range))
    }
}

fn owned(moment: Moment, range: &ScanRange) -> Scan {
    Box::new(Owned {
        moment,
        range: range.clone(),
        chunk: VecDeque::new(),
        size: OWNED.0,
        ended: range.excludes_all() || range.limit == 0,
        failed: None,
    })
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
        moment.scan_each(range, visit).inspect_err(|error| self.inner.corrupt(error))
    }

    pub(crate) fn scan(self: &Arc<Self>, range: &ScanRange) -> Result<Scan> {
        drop(self.inner.enter()?);
        Ok(owned(Moment::now(self), range))
    }

    pub(crate) fn snapshot(self: &Arc<Self>) -> Result<Box<dyn Snapshot>> {
        drop(self.inner.enter()?);
        self.inner.check_snapshot_dram()?;
        Ok(Box::new(Moment::now(self)))
    }

    /// Visits every live pair as it is at the call; a range or large value that cannot be read is left out, and its error is the result.
    pub(crate) fn for_each(self: &Arc<Self>, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        let _quiet = Quiet::begin();
        let _guard = self.inner.enter()?;
        let moment = Moment::now(self);
        let (mut visited, mut wrong, mut stopped) = (0, None::<Error>, false);
        for index in 0..moment.view.ranges.list.len() {
            let upper = moment.view.ranges.upper_of(index);
            let range = ScanRange {
                from: Bound::Included(moment.view.ranges.list[index].lower.to_vec()),
                to: upper.map_or(Bound::Unbounded, |upper| Bound::Excluded(upper.to_vec())),
                ..ScanRange::all()
            };
            let mut note = |error: Error| {
                self.inner.corrupt(&error);
                wrong.get_or_insert(error);
                Ok(())
            };
            let outcome = scan(&self.inner, &moment.view, moment.number, &range, &mut note, &mut |key, value| {
                visited += 1;
                let visit = visit(key, value);
                stopped = visit == Visit::Stop;
                visit
            });
            if stopped {
                return Ok(visited);
            }
            if let Err(error) = outcome {
                self.inner.corrupt(&error);
                wrong.get_or_insert(error);
            }
        }
        wrong.map_or(Ok(visited), Err)
    }
}
