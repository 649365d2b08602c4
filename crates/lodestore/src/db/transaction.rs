//! Optimistic transactions over any keyspaces of a store.
//!
//! A transaction records the values that it reads, and collects its writes. Its commit is one
//! conditional batch ([`Store::write_if`](crate::store::Store::write_if)): the writes take effect
//! if each read key still has its read value.
//!
//! Isolation. Transactions are strictly serializable: at the moment of the commit all reads are
//! true and all writes happen. The commit compares values, not write counts: a key that was changed
//! and changed back is no conflict. A key that was read as absent must still be absent.
//!
//! A range that was read (`range_reads`) must hold the read keys and no others. A key that another
//! writer adds to the range is therefore a conflict.
//!
//! Before the commit a transaction may see values of different moments. Such a transaction is
//! refused, and a closure that fails because of them runs again
//! ([`Db::transaction`](super::Db::transaction)).

mod range_reads;

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use lodestore_contract::{Batch, BatchOp, Commit, Condition, Error, Expiry, RangeCondition, Result};

use super::batch::{Map, stored_key};
use super::keyspace::named::NamedKeyspaces;
use super::{Shared, Value};

/// Maximum runs of a transaction before its conflict is reported.
const TRIES_MAX: u32 = 100;
/// Attempts that follow each other without a pause.
const IMMEDIATE_ATTEMPTS: u32 = 3;
/// The upper bound of the first random pause. The bound doubles with each try.
const FIRST_PAUSE_MAX: Duration = Duration::from_micros(20);
/// The upper bound of all pauses.
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// Reads and writes of one transaction. See [`Db::transaction`](super::Db::transaction).
///
/// Nothing is written before the commit. A transaction that is dropped writes nothing.
#[must_use = "a transaction writes nothing until it is committed"]
pub struct Transaction {
    shared: Arc<Shared>,
    /// The read values, by their stored keys.
    reads: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// The read ranges, with the store's keys in them.
    ranges: Vec<RangeCondition>,
    /// The last write of each stored key.
    writes: BTreeMap<Vec<u8>, BatchOp>,
    /// The named keyspaces of reads and writes.
    named: NamedKeyspaces,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Transaction");
        shown.field("reads", &self.reads.len()).field("ranges", &self.ranges.len());
        shown.field("writes", &self.writes.len()).finish_non_exhaustive()
    }
}

impl Transaction {
    /// Begins a transaction.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the engine has no atomic batches.
    pub(super) fn begin(shared: Arc<Shared>) -> Result<Self> {
        if !shared.store.capabilities().batch {
            return Err(Error::Unsupported {
                engine: shared.store.engine(),
                what: "transactions".into(),
                instead: "use compare_and_swap and update_with, which change one key",
            });
        }
        let (reads, writes) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { shared, reads, ranges: Vec::new(), writes, named: NamedKeyspaces::default() })
    }

    /// Returns the value of `key`, if there is one: what the transaction wrote last, or else what
    /// the store has. A second read of the store returns the same value.
    ///
    /// # Errors
    /// Errors of every read ([`Store`](crate::store::Store)); [`Error::KeyspaceDropped`];
    /// [`Error::OtherStore`] if `map` is of another store.
    pub fn get(&mut self, map: &impl Map, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let stored = self.stored_key(map, key.as_ref())?;
        match self.writes.get(&stored) {
            Some(BatchOp::Put { value, expiry, .. }) if !expiry.is_some_and(Expiry::is_past) => {
                return Ok(Some(value.clone().into()));
            }
            Some(_) => return Ok(None),
            None => {}
        }
        if let Some(value) = self.reads.get(&stored) {
            return Ok(value.clone().map(Value::from));
        }
        let value = self.shared.store.get(&stored)?;
        map.keyspace_of().check_alive()?;
        self.reads.insert(stored, value.clone());
        Ok(value.map(Value::from))
    }

    /// Returns whether there is a value of `key`, as [`Self::get`].
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn contains(&mut self, map: &impl Map, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(map, key)?.is_some())
    }

    /// Stores `value` under `key`, without an expiry. The key is not read, so the put conflicts
    /// with no other write.
    ///
    /// # Errors
    /// [`Error::KeyLength`]; [`Error::KeyspaceDropped`]; [`Error::OtherStore`].
    pub fn put(&mut self, map: &impl Map, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(map, key.as_ref(), value.as_ref(), None)
    }

    /// As [`Self::put`], with an expiry.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_expiring(
        &mut self,
        map: &impl Map,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: Expiry,
    ) -> Result<()> {
        self.put_with(map, key.as_ref(), value.as_ref(), Some(expiry))
    }

    fn put_with(&mut self, map: &impl Map, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        let key = self.stored_key(map, key)?;
        self.writes.insert(key.clone(), BatchOp::Put { key, value: value.to_vec(), expiry });
        Ok(())
    }

    /// Stores `value` under `key`, without an expiry, if the key is absent. Returns whether it was.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn insert(&mut self, map: &impl Map, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        let is_absent = !self.contains(map, key.as_ref())?;
        if is_absent {
            self.put(map, key, value)?;
        }
        Ok(is_absent)
    }

    /// Removes `key`. The key may be absent, and is not read. Unlike `Db::delete` the call does not
    /// report whether the key was there: ask [`Self::contains`] first.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn delete(&mut self, map: &impl Map, key: impl AsRef<[u8]>) -> Result<()> {
        let key = self.stored_key(map, key.as_ref())?;
        self.writes.insert(key.clone(), BatchOp::Delete { key });
        Ok(())
    }

    /// Returns the error that ends the transaction without a write, to be returned by its closure.
    #[must_use = "the closure of the transaction returns the error"]
    pub fn abort(&self, reason: impl Into<String>) -> Error {
        Error::Aborted { reason: reason.into() }
    }

    /// Writes all writes of the transaction, or nothing.
    ///
    /// # Errors
    /// [`Error::Conflict`] if another writer changed a key or a range that was read;
    /// [`Error::KeyspaceDropped`]; those of [`Store::write`](crate::store::Store::write).
    pub fn commit(self) -> Result<()> {
        if self.writes.is_empty() && self.has_at_most_one_read() {
            return Ok(());
        }
        let batch = Batch { ops: self.writes.values().cloned().collect() };
        match self.write_if_unchanged(&batch)? {
            Commit::Done => Ok(()),
            Commit::Unmet(_) => Err(Error::Conflict { tries: 1 }),
        }
    }

    /// Returns whether all reads are true at this moment.
    fn check_reads(&self) -> Result<bool> {
        if self.has_at_most_one_read() {
            return Ok(true);
        }
        self.write_if_unchanged(&Batch::default()).map(Commit::is_done)
    }

    /// Returns whether the transaction read at most one key, and no range. A single read was true
    /// when it was made.
    fn has_at_most_one_read(&self) -> bool {
        self.reads.len() < 2 && self.ranges.is_empty()
    }

    /// Writes `batch` if all reads are true.
    fn write_if_unchanged(&self, batch: &Batch) -> Result<Commit> {
        let _writing = self.named.begin_write()?;
        self.shared.store.write_if_ranges(&conditions_of(&self.reads), &self.ranges, batch)
    }

    /// As [`stored_key`](super::batch::stored_key).
    fn stored_key(&mut self, map: &impl Map, key: &[u8]) -> Result<Vec<u8>> {
        stored_key(&self.shared, &mut self.named, map, key)
    }
}

/// Returns the conditions on keys, absent keys first. A key may expire between two
/// checks: an absent key stays absent, so all reads are true when the first present key is checked.
fn conditions_of(reads: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Vec<Condition> {
    let of_absent = reads.iter().filter(|(_, value)| value.is_none());
    let of_present = reads.iter().filter(|(_, value)| value.is_some());
    of_absent.chain(of_present).map(|(key, value)| Condition::value(key.clone(), value.clone())).collect()
}

/// Runs `work` in transactions until one of them is committed.
///
/// Not the error of `work` but its reads decide whether `work` runs again, so the error may be of
/// any type.
///
/// # Errors
///
/// See [`Db::transaction`](super::Db::transaction).
pub(super) fn run<T, E: From<Error>>(
    shared: &Arc<Shared>,
    mut work: impl FnMut(&mut Transaction) -> Result<T, E>,
) -> Result<T, E> {
    for tries in 1..=TRIES_MAX {
        let mut transaction = Transaction::begin(Arc::clone(shared))?;
        match work(&mut transaction) {
            Ok(result) => match transaction.commit() {
                Err(Error::Conflict { .. }) => {}
                committed => return Ok(committed.map(|()| result)?),
            },
            // Values of different moments can make a closure fail that succeeds with every state of
            // the store.
            Err(error) => {
                if transaction.check_reads()? {
                    return Err(error);
                }
            }
        }
        if tries < TRIES_MAX {
            pause(tries);
        }
    }
    Err(Error::Conflict { tries: TRIES_MAX }.into())
}

/// Waits after a conflict, for a random time that grows with the number of tries.
fn pause(tries: u32) {
    let Some(doublings) = tries.checked_sub(IMMEDIATE_ATTEMPTS) else { return };
    let longest = PAUSE_MAX.min(FIRST_PAUSE_MAX * (1 << doublings.min(16)));
    let random = RandomState::new().hash_one(tries) as u32;
    std::thread::sleep(longest.mul_f64(f64::from(random) / f64::from(u32::MAX)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_on_absent_keys_are_checked_first() {
        let read = |key: &str, value: Option<&str>| (key.as_bytes().to_vec(), value.map(|value| value.into()));
        let reads = BTreeMap::from([read("a", Some("1")), read("b", None), read("c", Some("2")), read("d", None)]);
        let keys: Vec<Vec<u8>> = conditions_of(&reads).into_iter().map(|condition| condition.key).collect();
        assert_eq!(keys, [b"b", b"d", b"a", b"c"]);
    }
}
