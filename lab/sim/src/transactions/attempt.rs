//! One attempt of a transaction, with its reads and writes.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use lodestore::{Map, Transaction};
use lodestore_contract::{Direction, Expiry, Result, ScanRange};

use super::plan::{Lasts, Step};
use super::{AnyMap, MAP_KEYS, Maps};
use crate::concurrent::{key_bytes, value_bytes, value_number};
use crate::history::Value;
use crate::script::future;

/// A write of an attempt.
#[derive(Debug, Clone, Copy)]
struct Write {
    /// The value; `None` for a delete, and for a value that has expired when it is written.
    value: Option<Value>,
    /// The expiry, if it passes during the history.
    soon: Option<Expiry>,
}

/// One attempt of a transaction.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The start of the attempt, by the history's clock.
    pub called: u64,
    /// Range reads.
    pub ranges: u64,
    /// The reason against a commit: two of its reads contradict each other, or its own writes.
    pub fault: Option<String>,
    reads: BTreeMap<u64, Option<Value>>,
    writes: BTreeMap<u64, Write>,
}

impl Attempt {
    pub fn begin(called: u64) -> Self {
        Self { called, ranges: 0, fault: None, reads: BTreeMap::new(), writes: BTreeMap::new() }
    }

    /// Returns the values that were read from the store.
    pub fn reads(&self) -> Vec<(u64, Option<Value>)> {
        self.reads.iter().map(|(key, value)| (*key, *value)).collect()
    }

    /// Returns the values that the commit leaves.
    pub fn writes(&self) -> Vec<(u64, Option<Value>)> {
        self.writes.iter().map(|(key, write)| (*key, write.value)).collect()
    }

    /// Returns the keys and values that expire during the history.
    pub fn expiring(&self) -> impl Iterator<Item = (u64, Value, Expiry)> {
        self.writes.iter().filter_map(|(key, write)| Some((*key, write.value?, write.soon?)))
    }

    /// Runs one step of a plan in a transaction; `value` is the value to write.
    ///
    /// # Errors
    ///
    /// Errors of the transaction.
    pub fn run_step(&mut self, tx: &mut Transaction, maps: &Maps, step: &Step, value: Value) -> Result<()> {
        let Some(key) = step.key() else {
            if matches!(step, Step::Abort) {
                return Err(tx.abort("the plan says so"));
            }
            thread::yield_now();
            return Ok(());
        };
        match maps.find(key) {
            (AnyMap::Default(db), name) => self.run_in(tx, db, &name, (key, step), value),
            (AnyMap::Named(keyspace), name) => self.run_in(tx, keyspace, &name, (key, step), value),
        }
    }

    fn run_in(
        &mut self,
        tx: &mut Transaction,
        map: &impl Map,
        name: &[u8],
        (key, step): (u64, &Step),
        value: Value,
    ) -> Result<()> {
        match *step {
            Step::Put(_, lasts) => self.put(tx, map, (key, name), (value, lasts))?,
            Step::Insert(_) => {
                // The call reads the key first.
                let is_absent = tx.insert(map, name, value_bytes(value))?;
                if is_absent {
                    self.note_read(key, None);
                    self.writes.insert(key, Write { value: Some(value), soon: None });
                } else {
                    let found = tx.get(map, name)?;
                    self.note_read(key, found.map(|bytes| value_number(&bytes)));
                }
            }
            Step::Delete(_) => {
                tx.delete(map, name)?;
                self.writes.insert(key, Write { value: None, soon: None });
            }
            Step::Range { is_backward, is_limited, .. } => {
                let direction = if is_backward { Direction::Backward } else { Direction::Forward };
                self.read_range(tx, map, key, direction, is_limited)?;
            }
            _ => {
                let found = tx.get(map, name)?;
                self.note_read(key, found.map(|bytes| value_number(&bytes)));
            }
        }
        Ok(())
    }

    fn put(
        &mut self,
        tx: &mut Transaction,
        map: &impl Map,
        (key, name): (u64, &[u8]),
        (value, lasts): (Value, Lasts),
    ) -> Result<()> {
        let bytes = value_bytes(value);
        let mut write = Write { value: Some(value), soon: None };
        match lasts {
            Lasts::Forever => tx.put(map, name, bytes)?,
            Lasts::Long => tx.put_expiring(map, name, bytes, Expiry::at_millis(future()))?,
            Lasts::Millis(millis) => {
                let expiry = Expiry::after(Duration::from_millis(millis));
                write.soon = Some(expiry);
                tx.put_expiring(map, name, bytes, expiry)?;
            }
            Lasts::Past => {
                write.value = None;
                tx.put_expiring(map, name, bytes, Expiry::at_millis(1))?;
            }
        }
        self.writes.insert(key, write);
        Ok(())
    }

    /// Reads the keyspace of `first`, its first key.
    fn read_range(
        &mut self,
        tx: &mut Transaction,
        map: &impl Map,
        first: u64,
        direction: Direction,
        is_limited: bool,
    ) -> Result<()> {
        let limit = if is_limited { 1 } else { usize::MAX };
        let pairs = tx.scan(map, &ScanRange { direction, limit, ..ScanRange::all() })?;
        self.ranges += 1;
        let mut keys: Vec<u64> = (first..first + MAP_KEYS).collect();
        if direction == Direction::Backward {
            keys.reverse();
        }
        let mut pairs = pairs.into_iter().peekable();
        let mut shown = 0;
        for key in keys {
            if shown == limit {
                return Ok(());
            }
            let is_shown = |(name, _): &(lodestore::Value, lodestore::Value)| **name == key_bytes(key % MAP_KEYS)[..];
            let pair = pairs.next_if(is_shown);
            shown += usize::from(pair.is_some());
            self.note_read(key, pair.map(|(_, bytes)| value_number(&bytes)));
        }
        if let Some((name, _)) = pairs.next() {
            self.fault = Some(format!("a range shows the key {:?} out of order", name.escape_ascii().to_string()));
        }
        Ok(())
    }

    /// Records a value that the transaction returned for a key.
    fn note_read(&mut self, key: u64, value: Option<Value>) {
        if let Some(write) = self.writes.get(&key) {
            let has_expired = value.is_none() && write.soon.is_some_and(Expiry::is_past);
            if write.value != value && !has_expired {
                self.fault = Some(format!("key {key} was read as {value:?} after the write {write:?}"));
            }
            return;
        }
        let first = *self.reads.entry(key).or_insert(value);
        if first != value {
            self.fault = Some(format!("key {key} was read as {first:?} and then as {value:?}"));
        }
    }
}

impl Step {
    /// Returns the key of the step, if it has one.
    fn key(&self) -> Option<u64> {
        match *self {
            Self::Get(key) | Self::Range { key, .. } | Self::Put(key, _) | Self::Insert(key) | Self::Delete(key) => {
                Some(key)
            }
            Self::Yield | Self::Abort => None,
        }
    }
}
