//! Walks and snapshots: pointers come from a snapshot of the LSM, values by the window, in the order of their places in the file (HashKV, ATC 2018, section 3.6), and are shown in the
//! walk's order. A walk holds its moment, so that no segment that it may come to is written again.

use std::collections::VecDeque;
use std::sync::Arc;

use lodestore_contract::{Entry, Error, Result, Scan, ScanRange, Snapshot, Store, Visit};

use crate::layout::Stored;
use crate::read::Window;
use crate::store::Running;
use crate::values::Hold;

/// Pairs that an owned walk reads at a time.
const OWNED: usize = 64;

/// A walk's pairs on their way to who visits them.
struct Show<'s> {
    window: Window<'s>,
    visited: usize,
    more: bool,
    outcome: Result<()>,
}

impl<'s> Show<'s> {
    fn new(running: &'s Running) -> Self {
        Self { window: Window::new(&running.values), visited: 0, more: true, outcome: Ok(()) }
    }

    fn flush(
        &mut self,
        failed: &mut dyn FnMut(Error) -> Result<()>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Visit {
        if self.more && self.outcome.is_ok() {
            match self.window.show(failed, visit) {
                Ok((more, visited)) => {
                    self.more = more;
                    self.visited += visited;
                }
                Err(error) => self.outcome = Err(error),
            }
        }
        if self.more && self.outcome.is_ok() { Visit::More } else { Visit::Stop }
    }
}

pub(crate) fn scan_each(
    running: &Arc<Running>,
    range: &ScanRange,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
) -> Result<usize> {
    let _hold = Hold::now(&running.values);
    let mut show = Show::new(running);
    let mut visited = 0;
    let mut counted = |key: &[u8], value: &[u8]| {
        visited += 1;
        visit(key, value)
    };
    let walked = running.index.scan_each(range, &mut |key, stored| {
        show.window.add(key, stored);
        if show.window.is_full() { show.flush(&mut Err, &mut counted) } else { Visit::More }
    });
    show.flush(&mut Err, &mut counted);
    let outcome = show.outcome;
    walked.and(outcome).map(|()| visited)
}

pub(crate) fn for_each(running: &Arc<Running>, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
    let _hold = Hold::now(&running.values);
    let mut show = Show::new(running);
    let (mut visited, mut wrong) = (0u64, None);
    let mut counted = |key: &[u8], value: &[u8]| {
        visited += 1;
        visit(key, value)
    };
    let mut left_out = |error: Error| {
        wrong.get_or_insert(error);
        Ok(())
    };
    let walked = running.index.for_each(&mut |key, stored| {
        show.window.add(key, stored);
        if show.window.is_full() { show.flush(&mut left_out, &mut counted) } else { Visit::More }
    });
    show.flush(&mut left_out, &mut counted);
    let stopped = !show.more;
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
    _hold: Arc<Hold>,
}

impl Owned {
    fn new(running: &Arc<Running>, scan: Scan, hold: Arc<Hold>) -> Self {
        Self { running: Arc::clone(running), scan: Some(scan), ready: VecDeque::new(), _hold: hold }
    }

    fn fill(&mut self) {
        let Some(scan) = &mut self.scan else { return };
        let mut window = Window::new(&self.running.values);
        let mut last = None;
        let mut ended = true;
        for item in scan.take(OWNED) {
            ended = false;
            match item {
                Ok(entry) => window.add(&entry.key, &entry.value),
                Err(error) => last = Some(error),
            }
        }
        self.ready = window.entries();
        if ended || self.ready.iter().any(Result::is_err) {
            self.scan = None;
        } else if let Some(error) = last {
            self.ready.push_back(Err(error));
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
