//! Writes to the default keyspace.

#[cfg(doc)]
use lodestore_contract::Store;
use lodestore_contract::{Batch, Change, Expiry, Lifetime, Result, Swap};

use super::Db;
use crate::trace;

/// Writes.
impl Db {
    /// Stores `value` under `key`, without an expiry.
    ///
    /// # Errors
    /// Those of every write ([`Store`]).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default.put(key, value)
    }

    /// Stores `value` under `key`, with an expiry.
    ///
    /// # Errors
    /// Those of every write ([`Store`]).
    pub fn put_expiring(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expiry: Expiry) -> Result<()> {
        self.default.put_expiring(key, value, expiry)
    }

    /// Stores `value` under `key` if the key is absent. Returns whether it was.
    ///
    /// With [`Lifetime::Until`] the key expires. With [`Lifetime::Forever`] it does not, nor with
    /// [`Lifetime::Keep`], since an absent key has no expiry to keep.
    ///
    /// # Errors
    /// Those of every write ([`Store`]).
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
    /// Those of every write ([`Store`]).
    pub fn update(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, lifetime: Lifetime) -> Result<bool> {
        self.default.update(key, value, lifetime)
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// Those of every write ([`Store`]).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default.delete(key)
    }

    /// Gives `key` the value `new` (`None`: absent) if it has the value `expected` (`None`:
    /// absent), in one step.
    ///
    /// `lifetime` applies to `new`: [`Lifetime::Keep`] keeps the expiry of `expected`,
    /// [`Lifetime::Forever`] removes it, and [`Lifetime::Until`] sets a new one. If the value
    /// differs, the key keeps its value and its expiry.
    ///
    /// # Errors
    /// Those of every write ([`Store`]).
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        lifetime: Lifetime,
    ) -> Result<Swap> {
        self.default.compare_and_swap(key, expected, new, lifetime)
    }

    /// Changes `key` as `change` answers to its present value and expiry, in one step. See
    /// [`Store::update_with`] for what `change` may do.
    ///
    /// The lifetime in [`Change::Put`] says what happens to the expiry: [`Lifetime::Keep`] keeps
    /// the expiry that `change` was given, [`Lifetime::Forever`] removes it, and
    /// [`Lifetime::Until`] sets a new one.
    ///
    /// # Errors
    /// Those of every write ([`Store`]).
    pub fn update_with(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>, Option<Expiry>) -> Change,
    ) -> Result<()> {
        self.default.update_with(key, change)
    }

    /// Writes all of `batch` to the default keyspace, or nothing. [`Db::batch`] writes to several
    /// keyspaces.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn write(&self, batch: &Batch) -> Result<()> {
        self.default.write_all(batch)
    }

    /// Makes everything that returned before this call survive power loss, if the medium can.
    ///
    /// # Errors
    /// As [`Store::sync`].
    pub fn sync(&self) -> Result<()> {
        trace::sync(self.store(), || self.store().sync())
    }
}
