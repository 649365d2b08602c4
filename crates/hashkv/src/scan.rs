//! Walks and snapshots. Pointers come from a snapshot of the LSM and values from the window
//! (`window.rs`), in the walk's order. A walk holds its moment: no segment that it may read is
//! reused.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use lodestore_contract::{Direction, Entry, Error, Expiry, Pair, Result, Scan, ScanRange, Snapshot, Store, Visit};

use crate::layout::Stored;
use crate::running::Running;
use crate::values::Hold;
use crate::window::{WINDOW_BYTES, Walk};

/// Pairs that an owned walk reads at a time, initially and at most.
const CHUNK_PAIRS: (usize, usize) = (16, 256);

pub(crate) fn scan_each(
    running: &Arc<Running>,
    range: &ScanRange,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
) -> Result<usize> {
    let _hold = Hold::now(&running.values);
    let (mut visited, last) = scan_part(running, range, visit)?;
    let mut last = last.filter(|_| visited < range.limit);
    // Missing pairs do not count against the limit.
    while let Some(key) = last {
        let mut rest = range.clone().limit(range.limit - visited);
        match range.direction {
            Direction::Forward => rest.from = Bound::Excluded(key),
            Direction::Backward => rest.to = Bound::Excluded(key),
        }
        let (more, to) = scan_part(running, &rest, visit)?;
        visited += more;
        last = to.filter(|_| visited < range.limit);
    }
    Ok(visited)
}

/// Visits the LSM's entries in a range. Returns the number of pairs, and the last key if the limit
/// ended the walk, not the visitor.
fn scan_part(
    running: &Arc<Running>,
    range: &ScanRange,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
) -> Result<(usize, Option<Vec<u8>>)> {
    let (mut ends, mut left, mut last) = (Err, range.limit, None);
    let mut walk = Walk::new(&running.values, &mut ends, |pair: Pair<'_>| visit(pair.key, pair.value));
    let walked = running.index.scan_each(range, &mut |key, stored| {
        left -= 1;
        if left == 0 {
            last = Some(key.to_vec());
        }
        walk.pair(Pair { key, value: stored, expiry: None })
    });
    let (visited, stopped, outcome) = walk.end();
    walked.and(outcome)?;
    Ok((visited as usize, last.filter(|_| !stopped)))
}

pub(crate) fn for_each_pair(running: &Arc<Running>, visit: &mut dyn FnMut(Pair<'_>) -> Visit) -> Result<u64> {
    let _hold = Hold::now(&running.values);
    let mut wrong = None;
    let mut left_out = |error: Error| {
        wrong.get_or_insert(error);
        Ok(())
    };
    let mut walk = Walk::new(&running.values, &mut left_out, visit);
    let walked = running.index.for_each_pair(&mut |stored| walk.pair(stored));
    let (visited, stopped, _) = walk.end();
    walked?;
    match wrong {
        Some(error) if !stopped => Err(error),
        _ => Ok(visited),
    }
}

/// A snapshot with the moment that it holds.
struct Moment {
    running: Arc<Running>,
    snapshot: Arc<dyn Snapshot>,
    hold: Arc<Hold>,
}

pub(crate) fn snapshot(running: &Arc<Running>) -> Result<Box<dyn Snapshot>> {
    // The hold precedes the LSM's snapshot: no record that the snapshot shows is retired in
    // between.
    let hold = Arc::new(Hold::now(&running.values));
    let snapshot = Arc::from(running.index.snapshot()?);
    Ok(Box::new(Moment { running: Arc::clone(running), snapshot, hold }))
}

impl Snapshot for Moment {
    fn get_with_expiry(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Expiry>)>> {
        let Some((mut stored, expiry)) = self.snapshot.get_with_expiry(key)? else { return Ok(None) };
        let there = self.running.values.value(key, &mut stored)?;
        Ok(there.then_some((stored, expiry)))
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        let scan = self.snapshot.scan(&unlimited(range))?;
        Ok(Box::new(Owned::new(&self.running, scan, range.limit, Arc::clone(&self.hold))))
    }
}

pub(crate) fn scan(running: &Arc<Running>, range: &ScanRange) -> Result<Scan> {
    let hold = Arc::new(Hold::now(&running.values));
    let scan = running.index.scan(&unlimited(range))?;
    Ok(Box::new(Owned::new(running, scan, range.limit, hold)))
}

/// Returns the range without limit, for the LSM: missing pairs do not count against the limit.
fn unlimited(range: &ScanRange) -> ScanRange {
    range.clone().limit(usize::MAX)
}

/// Returns the bytes of the record to which an LSM entry points.
fn pointed_bytes(entry: &Entry) -> usize {
    match Stored::read(entry.value()) {
        Ok(Stored::Pointer(pointer)) => pointer.len as usize,
        Ok(Stored::Value(_)) | Err(_) => 0,
    }
}

/// An owned walk.
struct Owned {
    running: Arc<Running>,
    scan: Option<Scan>,
    ready: VecDeque<Result<Entry>>,
    size: usize,
    /// Number of pairs that may still be shown.
    left: usize,
    _hold: Arc<Hold>,
}

impl Owned {
    fn new(running: &Arc<Running>, scan: Scan, left: usize, hold: Arc<Hold>) -> Self {
        let (scan, ready) = (Some(scan).filter(|_| left > 0), VecDeque::new());
        Self { running: Arc::clone(running), scan, ready, size: CHUNK_PAIRS.0, left, _hold: hold }
    }

    /// Reads a window of pairs. The value of the first one is in the values file, or its entry is
    /// damaged.
    fn fill(&mut self, first: Entry) {
        let Some(scan) = &mut self.scan else { return };
        let mut bytes = first.key().len() + first.value().len() + pointed_bytes(&first);
        let mut found = vec![first];
        let mut failed = None;
        let mut ended = false;
        while !ended && found.len() < self.size.min(self.left) && bytes < WINDOW_BYTES {
            match scan.next() {
                Some(Ok(entry)) => {
                    bytes += entry.key().len() + entry.value().len() + pointed_bytes(&entry);
                    found.push(entry);
                }
                Some(Err(error)) => (failed, ended) = (Some(error), true),
                None => ended = true,
            }
        }
        self.size = (self.size * 4).min(CHUNK_PAIRS.1);
        let mut values: Vec<Option<Entry>> = Vec::with_capacity(found.len());
        let visit = |pair: Pair<'_>| {
            // Pairs in between are missing.
            while found[values.len()].key() != pair.key {
                values.push(None);
            }
            values.push(Some(Entry::of_pair(pair)));
            Visit::More
        };
        let mut ends = Err;
        let mut walk = Walk::new(&self.running.values, &mut ends, visit);
        // The walk stops at a value that cannot be read.
        for entry in &found {
            if walk.pair(entry.pair()) == Visit::Stop {
                break;
            }
        }
        let (_, _, outcome) = walk.end();
        ended |= outcome.is_err();
        // A value's error precedes an error that ended the LSM's walk.
        failed = outcome.err().or(failed);
        self.ready.extend(values.into_iter().flatten().map(Ok));
        self.left -= self.ready.len();
        self.ready.extend(failed.map(Err));
        if ended || self.left == 0 {
            self.scan = None;
        }
    }
}

impl Iterator for Owned {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        // All pairs of a window may be missing.
        while self.ready.is_empty() {
            match self.scan.as_mut()?.next() {
                Some(Ok(mut entry)) if matches!(Stored::read(entry.value()), Ok(Stored::Value(_))) => {
                    entry.truncate_value(entry.value().len() - 1);
                    self.left -= 1;
                    if self.left == 0 {
                        self.scan = None;
                    }
                    return Some(Ok(entry));
                }
                Some(Ok(entry)) => self.fill(entry),
                ended => {
                    self.scan = None;
                    return ended;
                }
            }
        }
        self.ready.pop_front()
    }
}

/// As the contract's `multi_get`. The LSM is asked first, then the values are read, each key at its
/// own moment.
pub(crate) fn multi_get(running: &Running, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
    let mut found: Vec<Option<Vec<u8>>> = vec![None; keys.len()];
    running.index.multi_get(keys, &mut |index, stored| found[index] = stored.map(<[u8]>::to_vec))?;
    for (index, (key, stored)) in keys.iter().zip(found).enumerate() {
        let Some(mut value) = stored else {
            each(index, None);
            continue;
        };
        let is_pointer = matches!(Stored::read(&value)?, Stored::Pointer(_));
        if is_pointer && running.values.resolve(key, &mut value)?.is_some() {
            // The record has moved.
            if !running.values.get_into(&running.index, key, &mut value)? {
                each(index, None);
                continue;
            }
        } else if !is_pointer {
            value.pop();
        }
        each(index, Some(&value));
    }
    Ok(())
}
