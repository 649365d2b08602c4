//! Reads and writes of single keys of one keyspace.

use lodestore_contract::{Change, Expiry, Lifetime, Result, Swap};
#[cfg(doc)]
use lodestore_contract::{Error, Store};

use super::Keyspace;
use crate::db::Value;

/// Single keys.
impl Keyspace {
    /// Returns the value of `key`, if there is one.
    ///
    /// # Errors
    /// Errors of every operation ([`Store`]); [`Error::KeyspaceDropped`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        Ok(self.read(key.as_ref(), |store, key| store.get(key))?.map(Value::from))
    }

    /// Stores `value` under `key`, without an expiry.
    ///
    /// # Errors
    /// Errors of every write ([`Store`]); [`Error::KeyspaceDropped`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(key.as_ref(), |store, key| store.put(key, value.as_ref()))
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.write(key.as_ref(), |store, key| store.delete(key))
    }

    /// Returns whether there is a value of `key`.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.read(key.as_ref(), |store, key| store.contains(key))
    }

    /// Stores `value` under `key` if the key is absent. Returns whether it was. [`Lifetime::Keep`]
    /// means no expiry here.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, lifetime: Lifetime) -> Result<bool> {
        self.write(key.as_ref(), |store, key| store.insert(key, value.as_ref(), lifetime))
    }

    /// Stores `value` under `key` if the key is present. Returns whether it was. `lifetime` keeps
    /// the expiry of the key, removes it, or sets a new one.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn update(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, lifetime: Lifetime) -> Result<bool> {
        self.write(key.as_ref(), |store, key| store.update(key, value.as_ref(), lifetime))
    }

    /// Stores `value` under `key`, with an expiry.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_expiring(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expiry: Expiry) -> Result<()> {
        self.write(key.as_ref(), |store, key| store.put_expiring(key, value.as_ref(), Some(expiry)))
    }

    /// Returns the expiry of `key`: `None` if there is no such key, `Some(None)` if it does not
    /// expire.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<Option<Expiry>>> {
        self.read(key.as_ref(), |store, key| store.expiry(key))
    }

    /// Gives `key` the value `new` (`None`: absent) if it has the value `expected` (`None`:
    /// absent), in one step. `lifetime` applies to `new`, as in
    /// [`Db::compare_and_swap`](crate::Db::compare_and_swap).
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

    /// Calls `change` with the present value and expiry of `key`, and does what it returns, in one
    /// step. [`Db::update_with`](crate::Db::update_with) has the rules for `change`.
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

    /// Calls `with` with the value of `key`, if there is one, and returns its result. The value is
    /// copied in `hashkv` and `mkvs` alone. Keep `with` short, and do not call the store from it.
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

    /// Replaces the contents of `value` by the value of `key`. Returns whether there is one.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        let found = self.read(key.as_ref(), |store, key| store.get_into(key, value));
        found.inspect_err(|_| value.clear())
    }

    /// Returns the values of `keys`, in their order. Each key is read at a moment of its own.
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

    /// Calls `each` with the index of each key and its value, if there is one, in the order of
    /// `keys`. The values are not copied. The slices are valid during the call only, and `each`
    /// must not call the store.
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
}
