//! Random operations of a thread.

use lodestore_media::sim::Rng;

use super::{KEYS, MAP_KEYS};
use crate::history::{KeyOp, Value};

/// Maximum reads and writes of a transaction.
const STEPS_MAX: u64 = 5;
/// Maximum milliseconds until an expiry that passes during the history.
const SOON_MAX_MILLIS: u64 = 2;

/// One operation of a thread.
#[derive(Debug, Clone)]
pub(super) enum Plan {
    /// An operation outside of transactions.
    Single(u64, KeyOp),
    /// The reads and writes of a transaction.
    Transaction(Vec<Step>),
}

/// The expiry of a value that a transaction writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasts {
    /// The value has no expiry.
    Forever,
    /// The expiry is after the end of the history.
    Long,
    /// The expiry passes after this many milliseconds.
    Millis(u64),
    /// The expiry is past when the value is written.
    Past,
}

/// A read or a write of a transaction.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// Reads a key.
    Get(u64),
    /// Reads the range of all keys of the keyspace of this key; with `is_limited` only the first
    /// key in this direction.
    Range { key: u64, is_backward: bool, is_limited: bool },
    /// Writes a key.
    Put(u64, Lasts),
    /// Writes a key if it is absent.
    Insert(u64),
    /// Removes a key.
    Delete(u64),
    /// Lets another thread run.
    Yield,
    /// Fails the closure.
    Abort,
}

/// Returns a random operation; `value` is its fresh value.
pub(super) fn random_plan(rng: &mut Rng, value: Value, has_ranges: bool) -> Plan {
    if rng.one_in(5) {
        let op = match rng.below(5) {
            0 => KeyOp::Put(value),
            1 => KeyOp::Insert(value),
            2 => KeyOp::Delete,
            _ => KeyOp::Get,
        };
        return Plan::Single(rng.below(KEYS), op);
    }
    let mut steps: Vec<Step> = (0..2 + rng.below(STEPS_MAX - 1)).map(|_| random_step(rng, has_ranges)).collect();
    // Lets another thread run between the reads and the commit.
    steps.insert(rng.index(steps.len() + 1), Step::Yield);
    if rng.one_in(10) {
        steps.push(Step::Abort);
    }
    Plan::Transaction(steps)
}

fn random_step(rng: &mut Rng, has_ranges: bool) -> Step {
    let key = rng.below(KEYS);
    match rng.below(10) {
        0..=2 => Step::Get(key),
        3 if has_ranges => {
            let key = key / MAP_KEYS * MAP_KEYS;
            Step::Range { key, is_backward: rng.one_in(2), is_limited: rng.one_in(3) }
        }
        3 | 4 => Step::Get(key),
        5 | 6 => Step::Put(key, random_lasts(rng)),
        7 => Step::Insert(key),
        8 => Step::Delete(key),
        _ => Step::Put(key, Lasts::Forever),
    }
}

fn random_lasts(rng: &mut Rng) -> Lasts {
    match rng.below(6) {
        0 => Lasts::Long,
        1 => Lasts::Millis(rng.below(SOON_MAX_MILLIS + 1)),
        2 => Lasts::Past,
        _ => Lasts::Forever,
    }
}
