//! Named keyspaces: maps of their own in one store.
//!
//! * `key`: the mapping of all keys to the keys of the store.
//! * `catalogue`: the names, and `record`: their bytes.
//! * `named`: a keyspace as its handles share it.
//! * `reclaim`: the removal of the records of dropped keyspaces.
//! * `planted`: what the crash explorer changes.
//!
//! This file has the handle, with all operations on keys. The handle of a store,
//! [`Db`](super::Db), passes its operations on to the default keyspace inside it.

pub(super) mod catalogue;
pub(super) mod key;
pub(super) mod named;
pub(super) mod planted;
pub(super) mod reclaim;
mod record;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use lodestore_contract::{
    Batch, BatchOp, Change, Commit, Condition, Error, Expiry, Lifetime, Pair, RangeCondition, Result, ScanRange, Store,
    Swap, Visit,
};

use super::iter::{Keys, Pairs, scan_range};
use super::{Shared, Value};
use key::{KeyMap, Part};
use named::{Named, Writing};

/// The name of the default keyspace, for errors. No named keyspace can have the name.
const DEFAULT_NAME: &str = "";

/// A named map in a store, with keys of its own. See [`Db::keyspace`](super::Db::keyspace).
///
/// Clones share the keyspace, keep the store open, and may be used from any number of threads.
/// After [`Db::drop_keyspace`](super::Db::drop_keyspace) each operation answers
/// [`Error::KeyspaceDropped`].
///
/// A key has 1 to 65529 bytes.
#[derive(Clone)]
pub struct Keyspace {
    pub(super) shared: Arc<Shared>,
    pub(super) map: KeyMap,
    /// `None` for the default keyspace.
    pub(super) named: Option<Arc<Named>>,
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// The handle itself.
impl Keyspace {
    pub(super) fn of_default(shared: Arc<Shared>) -> Self {
        Self { shared, map: KeyMap::of_default(), named: None }
    }

    pub(super) fn of_named(shared: Arc<Shared>, named: Arc<Named>) -> Self {
        Self { shared, map: KeyMap::of_named(named.id()), named: Some(named) }
    }

    /// Returns the name of the keyspace.
    pub fn name(&self) -> &str {
        self.named.as_ref().map_or(DEFAULT_NAME, |named| named.name())
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.shared.store
    }

    /// # Errors
    /// [`Error::KeyspaceDropped`].
    #[inline]
    pub(super) fn check_alive(&self) -> Result<()> {
        self.named.as_ref().map_or(Ok(()), |named| named.check_alive())
    }

    /// # Errors
    /// [`Error::KeyspaceDropped`].
    #[inline]
    fn begin_write(&self) -> Result<Option<Writing<'_>>> {
        self.named.as_ref().map(|named| named.begin_write()).transpose()
    }

    /// Reads a key. A plain key of the default keyspace costs one compare.
    #[inline]
    fn read<T>(&self, key: &[u8], read: impl FnOnce(&dyn Store, &[u8]) -> Result<T>) -> Result<T> {
        if self.map.is_plain(key) {
            return read(self.store(), key);
        }
        let found = read(self.store(), &self.map.encode_key(key)?);
        self.check_alive()?;
        found
    }

    /// Writes a key. A plain key of the default keyspace costs one compare.
    #[inline]
    fn write<T>(&self, key: &[u8], write: impl FnOnce(&dyn Store, &[u8]) -> Result<T>) -> Result<T> {
        if self.map.is_plain(key) {
            return write(self.store(), key);
        }
        let key = self.map.encode_key(key)?;
        let _writing = self.begin_write()?;
        write(self.store(), &key)
    }
}

/// Reads.
impl Keyspace {
    /// Returns the value of `key`, if there is one.
    ///
    /// # Errors
    /// Those of every operation ([`Store`]); [`Error::KeyspaceDropped`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        Ok(self.read(key.as_ref(), |store, key| store.get(key))?.map(Value::from))
    }

    /// As [`Db::get_into`](super::Db::get_into).
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        let found = self.read(key.as_ref(), |store, key| store.get_into(key, value));
        found.inspect_err(|_| value.clear())
    }

    /// As [`Db::get_with`](super::Db::get_with).
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_with<T>(&self, key: impl AsRef<[u8]>, with: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let (mut with, mut result) = (Some(with), None);
        self.read(key.as_ref(), |store, key| {
            store.get_with(key, &mut |value| result = with.take().map(|with| with(value)))
        })?;
        Ok(result)
    }

    /// As [`Db::contains`](super::Db::contains).
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.read(key.as_ref(), |store, key| store.contains(key))
    }

    /// As [`Db::multi_get`](super::Db::multi_get).
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Vec<Option<Value>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let slices: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let mut values = Vec::with_capacity(keys.len());
        self.multi_get_with(&slices, |_, value| values.push(value.map(|value| Value::from(value.to_vec()))))?;
        Ok(values)
    }

    /// As [`Db::multi_get_with`](super::Db::multi_get_with).
    ///
    /// # Errors
    /// As [`Self::get`]. `each` was called for the keys before the one that failed.
    pub fn multi_get_with(&self, keys: &[&[u8]], mut each: impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        if keys.iter().all(|key| self.map.is_plain(key)) {
            return self.store().multi_get(keys, &mut each);
        }
        let mut stored = Vec::with_capacity(keys.len());
        for key in keys {
            stored.push(self.map.encode_key(key)?);
        }
        let slices: Vec<&[u8]> = stored.iter().map(|key| &**key).collect();
        let found = self.store().multi_get(&slices, &mut each);
        self.check_alive()?;
        found
    }

    /// As [`Db::expiry`](super::Db::expiry).
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<Option<Expiry>>> {
        self.read(key.as_ref(), |store, key| store.expiry(key))
    }

    /// As [`Db::range`](super::Db::range).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the engine keeps no order; [`Error::KeyspaceDropped`].
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Pairs> {
        Pairs::begin(self.clone(), scan_range(range))
    }

    /// As [`Db::prefix`](super::Db::prefix).
    ///
    /// # Errors
    /// As [`Self::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Pairs> {
        Pairs::begin(self.clone(), ScanRange::prefix(prefix.as_ref()))
    }

    /// As [`Db::range_keys`](super::Db::range_keys).
    ///
    /// # Errors
    /// As [`Self::range`].
    pub fn range_keys<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Keys> {
        Keys::begin(self.clone(), &scan_range(range))
    }

    /// As [`Db::prefix_keys`](super::Db::prefix_keys).
    ///
    /// # Errors
    /// As [`Self::range`].
    pub fn prefix_keys(&self, prefix: impl AsRef<[u8]>) -> Result<Keys> {
        Keys::begin(self.clone(), &ScanRange::prefix(prefix.as_ref()))
    }

    /// As [`Db::for_each`](super::Db::for_each). An engine with an order reads this keyspace alone,
    /// and an engine without an order reads the whole store.
    ///
    /// # Errors
    /// As [`Store::for_each`]; [`Error::KeyspaceDropped`].
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        let has_order = self.store().capabilities().scan;
        let walked = if has_order && (self.named.is_some() || !self.shared.keyspaces.has_default_only()) {
            self.walk_parts(&mut visit)
        } else {
            self.walk_store(None, &mut visit)
        };
        self.check_alive()?;
        walked
    }

    /// As [`Db::for_each_pair`](super::Db::for_each_pair). The call reads the whole store.
    ///
    /// # Errors
    /// As [`Self::for_each`].
    pub fn for_each_pair(&self, mut visit: impl FnMut(Pair<'_>) -> Visit) -> Result<u64> {
        let mut visits = 0;
        let walked = self.store().for_each_pair(&mut |pair| {
            let Some(key) = self.map.decode_key(pair.key) else { return Visit::More };
            visits += 1;
            visit(Pair { key, ..pair })
        });
        self.check_alive()?;
        walked.map(|_| visits)
    }

    /// Visits the pairs of the keyspace in an engine with an order.
    fn walk_parts(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        let (mut visits, mut last, mut is_stopped) = (0, Vec::new(), false);
        for Part { range, prefix_len } in self.map.split_range(&ScanRange::all()) {
            let scanned = self.store().scan_each(&range, &mut |key, value| {
                visits += 1;
                last.clear();
                last.extend_from_slice(key);
                let wish = visit(&key[prefix_len..], value);
                is_stopped = wish == Visit::Stop;
                wish
            });
            match scanned {
                _ if is_stopped => break,
                Ok(_) => {}
                // A scan stops at damage. The walk leaves damage out, and goes on.
                Err(damage @ Error::Corrupt { .. }) => {
                    let rest = self.walk_store(Some(&last), visit);
                    return rest.and(Err(damage));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(visits)
    }

    /// Visits the pairs of the keyspace by a walk over the whole store: those whose stored keys are
    /// above `after`.
    fn walk_store(&self, after: Option<&[u8]>, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        let mut visits = 0;
        self.store().for_each(&mut |stored, value| match self.map.decode_key(stored) {
            Some(key) if after.is_none_or(|after| stored > after) => {
                visits += 1;
                visit(key, value)
            }
            _ => Visit::More,
        })?;
        Ok(visits)
    }

    /// Counts the keys of the keyspace that have not expired.
    ///
    /// The call reads the whole keyspace, and the whole store if the engine keeps no order.
    ///
    /// # Errors
    /// As [`Self::for_each`].
    pub fn count(&self) -> Result<u64> {
        // Records of other keyspaces exist only after the header of the catalogue, which is never
        // removed: if there is none after the count, the engine counted keys of this keyspace.
        if self.named.is_none() && self.shared.keyspaces.has_default_only() {
            let count = self.store().len()?;
            if self.shared.keyspaces.has_default_only() {
                return Ok(count);
            }
        }
        self.for_each(|_, _| Visit::More)
    }
}

/// Writes.
impl Keyspace {
    /// Stores `value` under `key`, without an expiry.
    ///
    /// # Errors
    /// Those of every write ([`Store`]); [`Error::KeyspaceDropped`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(key.as_ref(), |store, key| store.put(key, value.as_ref()))
    }

    /// Stores `value` under `key`, with an expiry.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_expiring(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expiry: Expiry) -> Result<()> {
        self.write(key.as_ref(), |store, key| store.put_expiring(key, value.as_ref(), Some(expiry)))
    }

    /// As [`Db::insert`](super::Db::insert).
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, lifetime: Lifetime) -> Result<bool> {
        self.write(key.as_ref(), |store, key| store.insert(key, value.as_ref(), lifetime))
    }

    /// As [`Db::update`](super::Db::update).
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn update(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, lifetime: Lifetime) -> Result<bool> {
        self.write(key.as_ref(), |store, key| store.update(key, value.as_ref(), lifetime))
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.write(key.as_ref(), |store, key| store.delete(key))
    }

    /// As [`Db::compare_and_swap`](super::Db::compare_and_swap).
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        lifetime: Lifetime,
    ) -> Result<Swap> {
        self.write(key.as_ref(), |store, key| store.compare_and_swap(key, expected, new, lifetime))
    }

    /// As [`Db::update_with`](super::Db::update_with).
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn update_with(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&[u8]>, Option<Expiry>) -> Change,
    ) -> Result<()> {
        self.write(key.as_ref(), |store, key| store.update_with(key, &mut change))
    }

    /// Writes all of `batch` to this keyspace, or nothing.
    pub(super) fn write_all(&self, batch: &Batch) -> Result<()> {
        let batch = self.encode_batch(batch)?;
        let _writing = self.begin_write()?;
        self.store().write(&batch)
    }

    /// Writes all of `batch` to this keyspace if every condition is met, else nothing.
    pub(super) fn write_all_if(
        &self,
        conditions: &[Condition],
        ranges: &[RangeCondition],
        batch: &Batch,
    ) -> Result<Commit> {
        let stored = |condition: &Condition| -> Result<Condition> {
            Ok(Condition { key: self.map.encode_key(&condition.key)?.to_vec(), ..condition.clone() })
        };
        let conditions = conditions.iter().map(stored).collect::<Result<Vec<_>>>()?;
        let batch = self.encode_batch(batch)?;
        let _writing = self.begin_write()?;
        if ranges.is_empty() {
            return self.store().write_if(&conditions, &batch);
        }
        let (ranges, owners) = self.encode_ranges(ranges)?;
        let count = conditions.len();
        Ok(match self.store().write_if_ranges(&conditions, &ranges, &batch)? {
            // Several ranges of stored keys may be of one condition.
            Commit::Unmet(index) if index >= count => Commit::Unmet(count + owners[index - count]),
            commit => commit,
        })
    }

    /// Returns conditions on ranges of stored keys, and for each the index of its condition in
    /// `ranges`: a range of the default keyspace may be two ranges of the store.
    fn encode_ranges(&self, ranges: &[RangeCondition]) -> Result<(Vec<RangeCondition>, Vec<usize>)> {
        let (mut encoded, mut owners) = (Vec::new(), Vec::new());
        for (index, condition) in ranges.iter().enumerate() {
            let range = condition.scan_range();
            let is_possible = condition.keys.is_sorted_by(|first, second| first < second)
                && condition.keys.iter().all(|key| range.contains(key));
            if !is_possible {
                // No key is inside these bounds, so the condition is never met.
                let (from, to) = (Bound::Included(vec![0]), Bound::Excluded(vec![0]));
                encoded.push(RangeCondition { from, to, keys: vec![vec![0]] });
                owners.push(index);
                continue;
            }
            let stored = |key: &Vec<u8>| self.map.encode_key(key).map(|key| key.to_vec());
            let keys = condition.keys.iter().map(stored).collect::<Result<Vec<_>>>()?;
            for Part { range, .. } in self.map.split_range(&range) {
                let keys = keys.iter().filter(|key| range.contains(key)).cloned().collect();
                encoded.push(RangeCondition { from: range.from, to: range.to, keys });
                owners.push(index);
            }
        }
        Ok((encoded, owners))
    }

    /// Returns a batch with the stored keys of its keys.
    fn encode_batch<'a>(&self, batch: &'a Batch) -> Result<Cow<'a, Batch>> {
        let is_plain = |op: &BatchOp| match op {
            BatchOp::Put { key, .. } | BatchOp::Delete { key } => self.map.is_plain(key),
        };
        if batch.ops.iter().all(is_plain) {
            return Ok(Cow::Borrowed(batch));
        }
        let mut batch = batch.clone();
        for op in &mut batch.ops {
            let (BatchOp::Put { key, .. } | BatchOp::Delete { key }) = op;
            if !self.map.is_plain(key) {
                *key = self.map.encode_key(key)?.to_vec();
            }
        }
        Ok(Cow::Owned(batch))
    }
}
