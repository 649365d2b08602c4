//! Reads and writes of single keys of the default keyspace.

#[cfg(doc)]
use lodestore_contract::Store;
use lodestore_contract::{Change, Expiry, Lifetime, Result, Swap};

use super::{Db, Value};

/// Single keys.
impl Db {
    /// Returns the value of `key`, if there is one.
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # let db = lodestore::Db::builder(&path).capacity(64 << 20).open()?;
    /// db.put("user:17", "Ada")?;
    /// if let Some(name) = db.get("user:17")? {
    ///     assert_eq!(name, "Ada"); // compares with texts and with bytes
    ///     println!("{}", name.as_str().unwrap_or("no text"));
    /// }
    /// assert_eq!(db.get("user:18")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of every operation ([`Store`]).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.default.get(key)
    }

    /// Stores `value` under `key`, without an expiry.
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # let db = lodestore::Db::builder(&path).capacity(64 << 20).open()?;
    /// db.put("user:17", "Ada")?; // keys and values are bytes: texts,
    /// db.put(17_u64.to_be_bytes(), vec![1, 2, 3])?; // arrays, slices and vectors
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of every write ([`Store`]).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// Errors of every write ([`Store`]).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default.delete(key)
    }

    /// Returns whether there is a value of `key`.
    ///
    /// # Errors
    /// Errors of every operation ([`Store`]).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default.contains(key)
    }

    /// Stores `value` under `key` if the key is absent. Returns whether it was.
    ///
    /// With [`Lifetime::Until`] the key expires. With [`Lifetime::Forever`] it does not, nor with
    /// [`Lifetime::Keep`], since an absent key has no expiry to keep.
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # let db = lodestore::Db::builder(&path).capacity(64 << 20).open()?;
    /// use std::time::Duration;
    ///
    /// use lodestore::{Expiry, Lifetime};
    ///
    /// let lease = Lifetime::Until(Expiry::after(Duration::from_secs(30)));
    /// assert!(db.insert("leader", "node 1", lease)?);
    /// assert!(!db.insert("leader", "node 2", lease)?); // node 1 has it
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of every write ([`Store`]).
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, lifetime: Lifetime) -> Result<bool> {
        self.default.insert(key, value, lifetime)
    }

    /// Stores `value` under `key` if the key is present. Returns whether it was.
    ///
    /// [`Lifetime::Keep`] keeps the expiry of the key, [`Lifetime::Forever`] removes it, and
    /// [`Lifetime::Until`] sets a new one.
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # let db = lodestore::Db::builder(&path).capacity(64 << 20).open()?;
    /// use std::time::Duration;
    ///
    /// use lodestore::{Expiry, Lifetime};
    ///
    /// let expiry = Expiry::after(Duration::from_secs(1800));
    /// db.put_expiring("session:17", "signed in", expiry)?;
    /// db.update("session:17", "reading", Lifetime::Keep)?;
    /// assert_eq!(db.expiry("session:17")?, Some(Some(expiry)));
    /// db.update("session:17", "remembered", Lifetime::Forever)?;
    /// assert_eq!(db.expiry("session:17")?, Some(None));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of every write ([`Store`]).
    pub fn update(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, lifetime: Lifetime) -> Result<bool> {
        self.default.update(key, value, lifetime)
    }

    /// Stores `value` under `key`, with an expiry.
    ///
    /// # Errors
    /// Errors of every write ([`Store`]).
    pub fn put_expiring(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expiry: Expiry) -> Result<()> {
        self.default.put_expiring(key, value, expiry)
    }

    /// Returns the expiry of `key`: `None` if there is no such key, `Some(None)` if it does not
    /// expire.
    ///
    /// # Errors
    /// Errors of every operation ([`Store`]).
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<Option<Expiry>>> {
        self.default.expiry(key)
    }

    /// Gives `key` the value `new` (`None`: absent) if it has the value `expected` (`None`:
    /// absent), in one step.
    ///
    /// `lifetime` applies to `new`: [`Lifetime::Keep`] keeps the expiry of `expected`,
    /// [`Lifetime::Forever`] removes it, and [`Lifetime::Until`] sets a new one. If the value
    /// differs, the key keeps its value and its expiry.
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # let db = lodestore::Db::builder(&path).capacity(64 << 20).open()?;
    /// use lodestore::Lifetime;
    /// use lodestore::store::Swap;
    ///
    /// db.put("state", "new")?;
    /// let swap = db.compare_and_swap("state", Some(b"new"), Some(b"paid"), Lifetime::Keep)?;
    /// assert_eq!(swap, Swap::Done);
    /// let swap = db.compare_and_swap("state", Some(b"new"), Some(b"sent"), Lifetime::Keep)?;
    /// assert_eq!(swap, Swap::Differs(Some(b"paid".to_vec()))); // the present value
    /// let old = "paid";
    /// db.compare_and_swap("state", Some(old.as_bytes()), None, Lifetime::Keep)?; // removes it
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of every write ([`Store`]).
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        lifetime: Lifetime,
    ) -> Result<Swap> {
        self.default.compare_and_swap(key, expected, new, lifetime)
    }

    /// Calls `change` with the present value and expiry of `key`, and does what it returns, in one
    /// step.
    ///
    /// `change` runs under the key's lock, must be short, and must not call the store. `change`
    /// runs again with the newer value if the write has to start over.
    ///
    /// The lifetime in [`Change::Put`] says what happens to the expiry: [`Lifetime::Keep`] keeps
    /// the expiry that `change` was given, [`Lifetime::Forever`] removes it, and
    /// [`Lifetime::Until`] sets a new one.
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # let db = lodestore::Db::builder(&path).capacity(64 << 20).open()?;
    /// use lodestore::Lifetime;
    /// use lodestore::store::Change;
    ///
    /// let mut is_number = true;
    /// db.update_with("visits", |value, _expiry| {
    ///     let visits = match value.map(<[u8; 8]>::try_from) {
    ///         None => 1,
    ///         Some(Ok(bytes)) => u64::from_le_bytes(bytes) + 1,
    ///         Some(Err(_)) => {
    ///             is_number = false;
    ///             return Change::Keep;
    ///         }
    ///     };
    ///     Change::Put(visits.to_le_bytes().to_vec(), Lifetime::Keep)
    /// })?;
    /// assert!(is_number);
    /// assert_eq!(db.get("visits")?.unwrap(), 1_u64.to_le_bytes());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of every write ([`Store`]).
    pub fn update_with(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>, Option<Expiry>) -> Change,
    ) -> Result<()> {
        self.default.update_with(key, change)
    }

    /// Calls `with` with the value of `key`, if there is one, and returns its result. The value is
    /// copied in `hashkv` and `mkvs` alone.
    ///
    /// The store keeps the value in its place while `with` runs. Keep `with` short, and do not call
    /// the store from it. The value is checked before, as by [`Db::get`].
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # let db = lodestore::Db::builder(&path).capacity(64 << 20).open()?;
    /// db.put("page:7", vec![7; 4096])?;
    /// let len = db.get_with("page:7", |bytes| bytes.len())?;
    /// assert_eq!(len, Some(4096));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors of every operation ([`Store`]).
    pub fn get_with<T>(&self, key: impl AsRef<[u8]>, with: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        self.default.get_with(key, with)
    }

    /// Replaces the contents of `value` by the value of `key`. Returns whether there is one.
    ///
    /// # Errors
    /// Errors of every operation ([`Store`]).
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        self.default.get_into(key, value)
    }

    /// Returns the values of `keys`, in their order. Each key is read at a moment of its own.
    ///
    /// # Errors
    /// Errors of every operation ([`Store`]).
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Vec<Option<Value>>> {
        self.default.multi_get(keys)
    }

    /// Calls `each` with the index of each key and its value, if there is one, in the order of
    /// `keys`. The values are not copied. Each key is read at a moment of its own. The slices are
    /// valid during the call only, and `each` must not call the store.
    ///
    /// # Errors
    /// Errors of every operation ([`Store`]). `each` was called for the keys before the one that
    /// failed.
    pub fn multi_get_with(&self, keys: &[&[u8]], each: impl FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.default.multi_get_with(keys, each)
    }
}
