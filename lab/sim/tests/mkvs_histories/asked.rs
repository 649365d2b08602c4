//! The threads' operations on a matrix, each by one of several equivalent or partial calls.

use std::collections::BTreeSet;

use lodestore_contract::{Change, Direction, Expiry, Lifetime, Result, ScanRange, Store, Swap, Visit};
use lodestore_mkvs::Mkvs;
use lodestore_sim::concurrent::{key_bytes, value_bytes, value_number};
use lodestore_sim::op::{Op, Outcome};
use lodestore_sim::subject::Pair;

/// A far expiry. Expiring values have this expiry plus their value's number.
const FAR: u64 = 1 << 52;
/// An expiry in the past.
const PAST: u64 = 1;
/// One in this many values has an expiry.
const EXPIRING: u64 = 4;

/// Returns the expiry that a value is written with.
fn expiry_of(value: &[u8]) -> Option<Expiry> {
    let number = value_number(value);
    number.is_multiple_of(EXPIRING).then(|| Expiry::at_millis(FAR + number))
}

/// Returns it as a lifetime.
fn lifetime_of(value: &[u8]) -> Lifetime {
    expiry_of(value).into()
}

/// Applies `op`. A read may only ask whether the key is present, and a remove may set a past expiry
/// instead.
pub fn apply(store: &Mkvs, op: &Op, way: u64) -> Result<Outcome> {
    Ok(match op {
        Op::Put { key, value, .. } => {
            let expiry = expiry_of(value);
            if way.is_multiple_of(3) {
                store.update_with(key, &mut |_, _| Change::Put(value.clone(), expiry.into()))?;
            } else {
                store.put_expiring(key, value, expiry)?;
            }
            Outcome::Done
        }
        Op::Insert { key, value, .. } => Outcome::Changed(store.insert(key, value, lifetime_of(value))?),
        Op::Update { key, value, .. } => Outcome::Changed(store.update(key, value, lifetime_of(value))?),
        Op::Delete { key } if way.is_multiple_of(3) => {
            store.put_expiring(key, b"over", Some(Expiry::at_millis(PAST)))?;
            Outcome::Done
        }
        Op::Delete { key } => Outcome::Changed(store.delete(key)?),
        Op::Swap { key, expected, new, .. } => {
            let lifetime = new.as_deref().map_or(Lifetime::Forever, lifetime_of);
            match store.compare_and_swap(key, expected.as_deref(), new.as_deref(), lifetime)? {
                Swap::Done => Outcome::Changed(true),
                Swap::Differs(found) => Outcome::Value(found),
            }
        }
        Op::Get { key } => read(store, key, way)?,
        other => panic!("{other:?} is not asked"),
    })
}

fn read(store: &Mkvs, key: &[u8], way: u64) -> Result<Outcome> {
    Ok(match way % 6 {
        0 => {
            let mut seen = None;
            store.update_with(key, &mut |value, _| {
                seen = value.map(<[u8]>::to_vec);
                Change::Keep
            })?;
            Outcome::Value(seen)
        }
        1 => {
            let mut seen = None;
            store.multi_get(&[&key_bytes(way % 5), key, &key_bytes(7)], &mut |at, value| {
                if at == 1 {
                    seen = value.map(<[u8]>::to_vec);
                }
            })?;
            Outcome::Value(seen)
        }
        2 => Outcome::Changed(store.contains(key)?),
        // The expiry determines the value.
        3 => match store.expiry(key)? {
            Some(Some(expiry)) => Outcome::Value(Some(value_bytes(expiry.millis() - FAR))),
            found => Outcome::Changed(found.is_some()),
        },
        _ => Outcome::Value(store.get(key)?),
    })
}

/// Scans all pairs in ascending or descending order. `None` if the scan failed.
///
/// # Panics
///
/// If the pairs are out of order.
pub fn scan(store: &Mkvs, way: u64) -> Option<Vec<Pair>> {
    let direction = if way.is_multiple_of(2) { Direction::Forward } else { Direction::Backward };
    let mut pairs: Vec<Pair> = Vec::new();
    let visited = store.scan_each(&ScanRange { direction, ..ScanRange::all() }, &mut |key, value| {
        pairs.push((key.to_vec(), value.to_vec()));
        Visit::More
    });
    visited.ok()?;
    let is_ordered = |two: &[Pair]| (two[0].0 < two[1].0) == (direction == Direction::Forward);
    assert!(pairs.windows(2).all(is_ordered), "a scan is in order");
    Some(pairs)
}

/// Returns the number of the value with an expiry that an operation writes, if any.
pub fn expiring(op: &Op) -> Option<u64> {
    let value = match op {
        Op::Put { value, .. } | Op::Insert { value, .. } | Op::Update { value, .. } => value,
        Op::Swap { new: Some(value), .. } => value,
        _ => return None,
    };
    expiry_of(value).map(|expiry| expiry.millis() - FAR)
}

/// Checks that each value has the expiry that it was written with, after the last write. `expiring`
/// has the numbers of the values that expire.
pub fn check_expiries(store: &Mkvs, keys: u64, expiring: &BTreeSet<u64>) {
    for key in (0..keys).map(key_bytes) {
        let number = store.get(&key).expect("get").map(|value| value_number(&value));
        let expected = number.map(|number| expiring.contains(&number).then_some(FAR + number));
        let found = store.expiry(&key).expect("expiry").map(|expiry| expiry.map(Expiry::millis));
        assert_eq!(found, expected, "the expiry of {number:?}");
    }
}
