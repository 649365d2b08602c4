//! Walks and snapshots: pointers come from a snapshot of the LSM, values by the window (`window.rs`), and are shown in the
//! walk's order. A walk holds its moment, so that no segment that it may come to is written again.

use std::collections::VecDeque;
use std::sync::Arc;

use lodestore_contract::{Entry, Error, Result, Scan, ScanRange, Snapshot, Store, Visit};

use crate::layout::Stored;
use crate::store::Running;
use crate::values::Hold;
use crate::window::{WINDOW_BYTES, Walk};

/// Pairs that an owned walk reads at a time, at first and at most.
const OWNED: (usize, usize) = (16, 256);

pub(crate) fn scan_each(
    running: &Arc<Running>,
    range: &ScanRange,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
) -> Result<usize> {
    let _hold = Hold::now(&running.values);
    let mut ends = Err;
    let mut walk = Walk::new(&running.values, &mut ends, visit);
    let walked = running.index.scan_each(range, &mut |key, stored| walk.pair(key, stored));
    let (visited, _, outcome) = walk.end();
    walked.and(outcome).map(|()| visited as usize)
}

pub(crate) fn for_each(running: &Arc<Running>, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
    let _hold = Hold::now(&running.values);
    let mut wrong = None;
    let mut left_out = |error: Error| {
        wrong.get_or_insert(error);
        Ok(())
    };
    let mut walk = Walk::new(&running.values, &mut left_out, visit);
    let walked = running.index.for_each(&mut |key, stored| walk.pair(key, stored));
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
    // Before the LSM's, so that nothing that this shows is let go between the two.
    let hold = Arc::new(Hold::now(&running.values));
    let snapshot = Arc::from(running.index.snapshot()?);
    Ok(Box::new(Moment { running: Arc::clone(running), snapshot, hold }))
}

impl Snapshot for Moment {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(mut stored) = self.snapshot.get(key)? else { return Ok(None) };
        self.running.values.value(key, &mut stored)?;
        Ok(Some(stored))
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        let scan = self.snapshot.scan(range)?;
        Ok(Box::new(Owned::new(&self.running, scan, Arc::clone(&self.hold))))
    }
}

pub(crate) fn scan(running: &Arc<Running>, range: &ScanRange) -> Result<Scan> {
    let hold = Arc::new(Hold::now(&running.values));
    let scan = running.index.scan(range)?;
    Ok(Box::new(Owned::new(running, scan, hold)))
}

/// An owned walk.
struct Owned {
    running: Arc<Running>,
    scan: Option<Scan>,
    ready: VecDeque<Result<Entry>>,
    size: usize,
    _hold: Arc<Hold>,
}

impl Owned {
    fn new(running: &Arc<Running>, scan: Scan, hold: Arc<Hold>) -> Self {
        let ready = VecDeque::new();
        Self { running: Arc::clone(running), scan: Some(scan), ready, size: OWNED.0, _hold: hold }
    }

    fn fill(&mut self) {
        let Some(scan) = &mut self.scan else { return };
        let (mut found, mut bytes, mut is_plain) = (Vec::new(), 0, true);
        let mut failed = None;
        let mut ended = false;
        while !ended && found.len() < self.size && bytes < WINDOW_BYTES {
            match scan.next() {
                Some(Ok(entry)) => {
                    bytes += entry.key.len() + entry.value.len();
                    match Stored::read(&entry.value) {
                        Ok(Stored::Value(_)) => {}
                        Ok(Stored::Pointer(pointer)) => (is_plain, bytes) = (false, bytes + pointer.len as usize),
                        Err(_) => is_plain = false,
                    }
                    found.push(entry);
                }
                Some(Err(error)) => (failed, ended) = (Some(error), true),
                None => ended = true,
            }
        }
        self.size = (self.size * 4).min(OWNED.1);
        if is_plain {
            for mut entry in found {
                entry.value.pop();
                self.ready.push_back(Ok(entry));
            }
        } else {
            let mut values = Vec::with_capacity(found.len());
            let mut visit = |_: &[u8], value: &[u8]| {
                values.push(value.to_vec());
                Visit::More
            };
            let mut ends = Err;
            let mut walk = Walk::new(&self.running.values, &mut ends, &mut visit);
            // It stops where a value cannot be read.
            for entry in &found {
                if walk.pair(&entry.key, &entry.value) == Visit::Stop {
                    break;
                }
            }
            let (_, _, outcome) = walk.end();
            ended |= outcome.is_err();
            // What a value's error ended comes before what ended the LSM's walk.
            failed = outcome.err().or(failed);
            let shown = found.into_iter().zip(values).map(|(entry, value)| Ok(Entry { value, ..entry }));
            self.ready.extend(shown);
        }
        self.ready.extend(failed.map(Err));
        if ended {
            self.scan = None;
        }
    }
}

impl Iterator for Owned {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() {
            self.fill();
        }
        self.ready.pop_front()
    }
}

/// As the contract's: the LSM's answers first, then the values that it points to, each key at a moment of its own.
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
            // It has moved.
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
