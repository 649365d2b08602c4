//! Range reads of transactions.
//!
//! A range read returns the pairs of the store merged with the transaction's own writes. The
//! transaction records the covered range: all of it, or the part up to the last pair if the read
//! was limited. The commit requires that the covered range still holds the store's keys
//! ([`RangeCondition`]), and that these keys still have their values.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

use lodestore_contract::limits::BATCH_OPS_MAX;
use lodestore_contract::{BatchOp, Direction, Error, Expiry, RangeCondition, Result, ScanRange, Visit};

use super::Transaction;
use crate::db::Value;
use crate::db::batch::{Map, keyspace_in};
use crate::db::iter::scan_range;
use crate::db::keyspace::key::StoredRange;

/// Pairs by their stored keys.
type StoredPairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Range reads.
impl Transaction {
    /// Returns the pairs of a range in the order of their keys: what the store has, and what the
    /// transaction wrote. If another writer adds, removes or changes a key of the range before the
    /// commit, the commit fails.
    ///
    /// All pairs of the range are read into memory. All range reads of a transaction have together
    /// at most 65,536 keys of the store. While the commit checks the ranges, other writes wait.
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # let builder = lodestore::Db::builder(&path).engine(lodestore::db::Engine::fluidkv());
    /// # let db = builder.capacity(64 << 20).open()?;
    /// let bookings = db.keyspace("bookings")?;
    /// db.transaction(|tx| {
    ///     if tx.range(&bookings, "room7/0900".."room7/1100")?.is_empty() {
    ///         tx.put(&bookings, "room7/0930", "Ada")?;
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the engine has no conditions on ranges: `fluidkv` and `hashkv`
    /// have them. [`Error::BatchLength`] if more keys are read; [`Error::KeyspaceDropped`];
    /// [`Error::OtherStore`]; those of every scan ([`Store`](crate::store::Store)).
    pub fn range<K: AsRef<[u8]>>(&mut self, map: &impl Map, range: impl RangeBounds<K>) -> Result<Vec<(Value, Value)>> {
        self.scan(map, &scan_range(range))
    }

    /// As [`Self::range`], for the keys that begin with `prefix`.
    ///
    /// # Errors
    /// As [`Self::range`].
    pub fn prefix(&mut self, map: &impl Map, prefix: impl AsRef<[u8]>) -> Result<Vec<(Value, Value)>> {
        self.scan(map, &ScanRange::prefix(prefix.as_ref()))
    }

    /// As [`Self::range`], with a direction and a limit. A limited read covers the range up to the
    /// last pair that it returns: writes after that pair are no conflict.
    ///
    /// # Errors
    /// As [`Self::range`].
    pub fn scan(&mut self, map: &impl Map, range: &ScanRange) -> Result<Vec<(Value, Value)>> {
        let keyspace = keyspace_in(&self.shared, map)?.clone();
        keyspace.check_alive()?;
        if !self.shared.store.capabilities().range_conditions {
            return Err(Error::Unsupported {
                engine: self.shared.store.engine(),
                what: "range reads in transactions".into(),
                instead: "read single keys, or use engine fluidkv or hashkv",
            });
        }
        if let Some(named) = &keyspace.named {
            self.named.add(named);
        }
        let mut parts = keyspace.map.split_range(range);
        if range.direction == Direction::Backward {
            parts.reverse();
        }
        let mut pairs = Vec::new();
        for StoredRange { mut range, prefix_len } in parts {
            range.limit -= pairs.len();
            if range.limit == 0 {
                break;
            }
            let found = self.read_stored_range(range)?;
            pairs.extend(found.into_iter().map(|(key, value)| (key[prefix_len..].to_vec().into(), value.into())));
        }
        keyspace.check_alive()?;
        Ok(pairs)
    }

    /// Reads one range of stored keys, and records its covered part. Returns the pairs in the
    /// direction of the range.
    fn read_stored_range(&mut self, mut range: ScanRange) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let limit = range.limit;
        let own = self.own_writes(&range);
        // A write of the transaction can hide a pair of the store.
        range.limit = limit.saturating_add(own.len());
        let stored = self.read_stored(&range)?;
        if stored.len() == range.limit {
            let last = last_key(&stored, range.direction);
            shorten_to(&mut range, last);
        }
        let mut shown = self.merge(&range, &stored, own);
        if shown.len() > limit {
            let ends_at = key_at(&shown, range.direction, limit - 1);
            shorten_to(&mut range, ends_at);
            shown.retain(|key, _| range.contains(key));
        }
        self.record_range(&range, stored);
        let shown = shown.into_iter();
        Ok(match range.direction {
            Direction::Forward => shown.collect(),
            Direction::Backward => shown.rev().collect(),
        })
    }

    /// Returns the transaction's writes in a range: `None` for keys that it removed.
    fn own_writes(&self, range: &ScanRange) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let in_range = self.writes.iter().filter(|(key, _)| range.contains(key));
        let of = |op: &BatchOp| match op {
            BatchOp::Put { value, expiry, .. } if !expiry.is_some_and(Expiry::is_past) => Some(value.clone()),
            _ => None,
        };
        in_range.map(|(key, op)| (key.clone(), of(op))).collect()
    }

    /// Reads the store's pairs in a range.
    fn read_stored(&self, range: &ScanRange) -> Result<StoredPairs> {
        let recorded: usize = self.ranges.iter().map(|range| 1 + range.keys.len()).sum();
        let too_many = Error::BatchLength { ops: BATCH_OPS_MAX + 1 };
        let Some(keys_max) = BATCH_OPS_MAX.checked_sub(recorded + 1) else { return Err(too_many) };
        let mut stored = StoredPairs::new();
        let mut is_over = false;
        self.shared.store.scan_each(range, &mut |key, value| {
            is_over = stored.len() == keys_max;
            if is_over {
                return Visit::Stop;
            }
            stored.insert(key.to_vec(), value.to_vec());
            Visit::More
        })?;
        if is_over {
            return Err(too_many);
        }
        Ok(stored)
    }

    /// Returns the merged pairs of a range. A key that was read before has the value of that read:
    /// if the store has another one now, the commit fails.
    fn merge(&self, range: &ScanRange, stored: &StoredPairs, own: BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> StoredPairs {
        let mut shown = StoredPairs::new();
        for (key, value) in stored {
            let read_before = self.reads.get(key);
            if let Some(value) = read_before.unwrap_or(&Some(value.clone())) {
                shown.insert(key.clone(), value.clone());
            }
        }
        for (key, value) in own.into_iter().filter(|(key, _)| range.contains(key)) {
            match value {
                Some(value) => shown.insert(key, value),
                None => shown.remove(&key),
            };
        }
        shown
    }

    /// Records the store's keys in a covered range.
    fn record_range(&mut self, range: &ScanRange, mut stored: StoredPairs) {
        stored.retain(|key, _| range.contains(key));
        let keys = stored.keys().cloned().collect();
        self.ranges.push(RangeCondition { from: range.from.clone(), to: range.to.clone(), keys });
        for (key, value) in stored {
            self.reads.entry(key).or_insert(Some(value));
        }
    }
}

/// Shortens a range so that it ends with this key, in its direction.
fn shorten_to(range: &mut ScanRange, key: Option<Vec<u8>>) {
    let Some(key) = key else { return };
    match range.direction {
        Direction::Forward => range.to = Bound::Included(key),
        Direction::Backward => range.from = Bound::Included(key),
    }
}

/// Returns the last key in this direction.
fn last_key(pairs: &StoredPairs, direction: Direction) -> Option<Vec<u8>> {
    let last = match direction {
        Direction::Forward => pairs.last_key_value(),
        Direction::Backward => pairs.first_key_value(),
    };
    last.map(|(key, _)| key.clone())
}

/// Returns the key with this index in this direction.
fn key_at(pairs: &StoredPairs, direction: Direction, index: usize) -> Option<Vec<u8>> {
    let key = match direction {
        Direction::Forward => pairs.keys().nth(index),
        Direction::Backward => pairs.keys().rev().nth(index),
    };
    key.cloned()
}
