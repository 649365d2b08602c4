//! The numbers of keys of all databases, for `INFO`.
//!
//! The store counts keys one by one. While a count of all databases needs less than
//! [`INLINE_TIME_MAX`], `INFO` counts, and its numbers are exact. Otherwise the server counts in
//! the background, and `INFO` returns the last count. A count uses at most about one percent of the
//! time of one processor.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lodestore::store::{ScanRange, Visit};
use lodestore::{Keyspace, Result};

use super::databases::{Databases, View};
use crate::clock::now_milliseconds;

/// Longest count that `INFO` makes itself.
const INLINE_TIME_MAX: Duration = Duration::from_millis(10);

/// Keys of one step of a count.
const STEP_KEYS: usize = 4096;

/// A background count pauses for this many times its own length.
const PAUSE_FACTOR: u32 = 100;

/// Shortest pause between two background counts.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// The numbers of one database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Keys that have not expired.
    pub(crate) keys: u64,
    /// Keys among them with an expiry.
    pub(crate) expires: u64,
    /// Sum of the times to the expiries, in milliseconds.
    ttl_sum_ms: u128,
}

impl Figures {
    /// Returns the average time to the expiry of the keys that have one, in milliseconds.
    pub(crate) fn average_ttl_ms(self) -> u64 {
        let average = self.ttl_sum_ms.checked_div(u128::from(self.expires)).unwrap_or(0);
        u64::try_from(average).unwrap_or(u64::MAX)
    }

    fn add(&mut self, expiry: Option<lodestore::Expiry>, now: u64) {
        self.keys += 1;
        if let Some(expiry) = expiry {
            self.expires += 1;
            self.ttl_sum_ms += u128::from(expiry.millis().saturating_sub(now));
        }
    }
}

/// The last count.
#[derive(Debug, Clone)]
struct Count {
    /// By database.
    figures: Vec<Figures>,
    ended: Instant,
    duration: Duration,
}

/// The numbers of keys of all databases, as they were last counted.
#[derive(Debug, Default)]
pub(crate) struct Census {
    last: Mutex<Option<Count>>,
    /// Whether a client requested counts since the last background count.
    is_wanted: AtomicBool,
}

impl Census {
    /// Returns the numbers by database. There are none before the first count of a store with many
    /// keys has ended.
    pub(crate) fn figures(&self, databases: &Databases, is_stopping: &AtomicBool) -> Option<Vec<Figures>> {
        self.is_wanted.store(true, Ordering::Relaxed);
        let last = self.last().clone();
        if last.as_ref().is_none_or(|last| last.duration < INLINE_TIME_MAX)
            && is_recovered(databases)
            && let Ok(Some(count)) = count(databases, is_stopping, Some(INLINE_TIME_MAX))
        {
            *self.last() = Some(count.clone());
            return Some(count.figures);
        }
        last.map(|last| last.figures)
    }

    /// Counts in the background, if a client requested it and the pause has passed.
    pub(crate) fn refresh(&self, databases: &Databases, is_stopping: &AtomicBool) {
        let pause = |last: &Count| PAUSE_MIN.max(last.duration.saturating_mul(PAUSE_FACTOR));
        let is_due = self
            .last()
            .as_ref()
            .is_none_or(|last| last.duration >= INLINE_TIME_MAX && last.ended.elapsed() >= pause(last));
        if is_due && is_recovered(databases) && self.is_wanted.swap(false, Ordering::Relaxed) {
            // The next request repeats a failed count.
            if let Ok(Some(count)) = count(databases, is_stopping, None) {
                *self.last() = Some(count);
            }
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Count>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a walk needs not wait for the recovery of the store.
fn is_recovered(databases: &Databases) -> bool {
    databases.db().stats().recovery.done
}

/// Counts the keys of all databases. Returns `None` after `longest`, or if the server stops, which
/// sets `is_stopping`.
fn count(databases: &Databases, is_stopping: &AtomicBool, longest: Option<Duration>) -> Result<Option<Count>> {
    let begun = Instant::now();
    let view = databases.view();
    let mut figures = Vec::with_capacity(view.count());
    for database in 0..view.count() {
        let mut may_continue =
            || !is_stopping.load(Ordering::SeqCst) && longest.is_none_or(|longest| begun.elapsed() < longest);
        match count_database(&view, database, &mut may_continue) {
            Ok(Some(of_database)) => figures.push(of_database),
            Ok(None) => return Ok(None),
            // A flush has emptied the database.
            Err(lodestore::Error::KeyspaceDropped { .. }) => figures.push(Figures::default()),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(Count { figures, ended: Instant::now(), duration: begun.elapsed() }))
}

fn count_database(view: &View, database: usize, may_continue: &mut dyn FnMut() -> bool) -> Result<Option<Figures>> {
    let keyspace = view.keyspace(database);
    if view.has_order() { count_ordered(keyspace, may_continue) } else { count_unordered(keyspace, may_continue) }
}

/// Counts in steps, so that no walk keeps old data of the store for long.
fn count_ordered(keyspace: &Keyspace, may_continue: &mut dyn FnMut() -> bool) -> Result<Option<Figures>> {
    let store = keyspace.as_store();
    let mut figures = Figures::default();
    let mut from = Bound::Unbounded;
    loop {
        if !may_continue() {
            return Ok(None);
        }
        let now = u64::try_from(now_milliseconds()).unwrap_or(0);
        let range = ScanRange { from, limit: STEP_KEYS, ..ScanRange::all() };
        let (mut count, mut last) = (0, None);
        for entry in store.scan(&range)? {
            let entry = entry?;
            figures.add(entry.expiry(), now);
            count += 1;
            last = Some(entry);
        }
        match last {
            Some(last) if count == STEP_KEYS => from = Bound::Excluded(last.key().to_vec()),
            _ => return Ok(Some(figures)),
        }
    }
}

fn count_unordered(keyspace: &Keyspace, may_continue: &mut dyn FnMut() -> bool) -> Result<Option<Figures>> {
    let mut figures = Figures::default();
    let mut is_complete = true;
    let now = u64::try_from(now_milliseconds()).unwrap_or(0);
    keyspace.for_each_pair(|pair| {
        figures.add(pair.expiry, now);
        is_complete = !figures.keys.is_multiple_of(STEP_KEYS as u64) || may_continue();
        if is_complete { Visit::More } else { Visit::Stop }
    })?;
    Ok(is_complete.then_some(figures))
}
