//! Ranges, walks, counts and snapshots of the default keyspace.

use std::ops::RangeBounds;

#[cfg(doc)]
use lodestore_contract::Store;
use lodestore_contract::{Pair, Result, Visit};

use super::{Db, Keys, Pairs, View};

/// Ranges and walks.
impl Db {
    /// Returns a lazy walk over all keys and their values, in the order of the keys, from both
    /// ends. The walk keeps the store open. [`Db::for_each`] needs no order.
    ///
    /// # Errors
    /// As [`Db::range`].
    pub fn iter(&self) -> Result<Pairs> {
        self.default.iter()
    }

    /// As [`Db::iter`], without the values.
    ///
    /// # Errors
    /// As [`Db::range`].
    pub fn keys(&self) -> Result<Keys> {
        self.default.keys()
    }

    /// Returns a lazy walk over the keys of a range and their values, in the order of the keys,
    /// from both ends. The walk keeps the store open.
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # let db = lodestore::Db::builder(&path).capacity(64 << 20).open()?;
    /// # if db.engine() == "nvht" {
    /// #     return Ok(());
    /// # }
    /// for day in ["2026-11-24", "2026-11-25", "2026-11-26"] {
    ///     db.put(day, "sunny")?;
    /// }
    /// for pair in db.range("2026-11-25"..)? {
    ///     let (day, weather) = pair?;
    ///     println!("{day:?}: {weather:?}");
    /// }
    /// let newest = db.range(.."2026-12-01")?.next_back().transpose()?;
    /// assert_eq!(newest.unwrap().0, "2026-11-26");
    /// assert_eq!(db.iter()?.count(), 3); // all keys: `iter` needs no type of a key
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the engine keeps no order.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Pairs> {
        self.default.range(range)
    }

    /// As [`Db::range`], over the keys that begin with `prefix`.
    ///
    /// # Errors
    /// As [`Db::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Pairs> {
        self.default.prefix(prefix)
    }

    /// As [`Db::range`], without the values.
    ///
    /// # Errors
    /// As [`Db::range`].
    pub fn range_keys<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Keys> {
        self.default.range_keys(range)
    }

    /// As [`Db::prefix`], without the values.
    ///
    /// # Errors
    /// As [`Db::range`].
    pub fn prefix_keys(&self, prefix: impl AsRef<[u8]>) -> Result<Keys> {
        self.default.prefix_keys(prefix)
    }

    /// Calls `visit` with every pair, each key once, in no order. Returns the number of calls.
    /// Pairs of named keyspaces are not shown.
    ///
    /// # Errors
    /// As [`Store::for_each`].
    pub fn for_each(&self, visit: impl FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        self.default.for_each(visit)
    }

    /// Calls `visit` with every pair as [`Self::for_each`] does, with the expiry of its key. The
    /// value and the expiry of a pair are of one moment.
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # use lodestore::Expiry;
    /// # use lodestore::store::Visit;
    /// # use std::time::Duration;
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let db = lodestore::Db::builder(dir.path().join("state")).capacity(64 << 20).open()?;
    /// db.put_expiring("session", "Ada", Expiry::after(Duration::from_secs(60)))?;
    /// db.put("count", "3")?;
    /// let mut lasting = Vec::new();
    /// db.for_each_pair(|pair| {
    ///     if pair.expiry.is_none() {
    ///         lasting.push(pair.key.to_vec());
    ///     }
    ///     Visit::More
    /// })?;
    /// assert_eq!(lasting, [b"count"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Store::for_each`].
    pub fn for_each_pair(&self, visit: impl FnMut(Pair<'_>) -> Visit) -> Result<u64> {
        self.default.for_each_pair(visit)
    }

    /// Counts the keys of the default keyspace.
    ///
    /// Until the first named keyspace is created, the call costs what [`Store::len`] costs, and
    /// expired keys that were not swept yet may be counted. Afterwards the call reads the whole
    /// default keyspace, and the whole store if the engine keeps no order. Expired keys are left
    /// out then. This stays so when all named keyspaces are dropped.
    ///
    /// # Errors
    /// Errors of every operation ([`Store`]).
    pub fn count(&self) -> Result<u64> {
        self.default.count()
    }

    /// Returns the number of keys of the store, in constant time. Keys of all keyspaces count, and
    /// so do expired keys that were not swept yet. The newest writes may not count yet. After an
    /// open the keys count that its recovery has found ([`Db::wait_recovered`]). Engines that write
    /// without a lookup (`fluidkv`, `hashkv`) estimate. [`Db::count`] counts the keys.
    pub fn approximate_len(&self) -> u64 {
        self.store().stats().keys
    }

    /// Returns a fixed view of the store as it is now. The view shows the default keyspace, and
    /// [`View::of`] shows named keyspaces at the same moment.
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # if cfg!(not(feature = "fluidkv")) {
    /// #     return Ok(());
    /// # }
    /// # let builder = lodestore::Db::builder(&path).engine(lodestore::db::Engine::fluidkv());
    /// # let db = builder.capacity(64 << 20).open()?;
    /// let users = db.keyspace("users")?;
    /// users.put("17", "Ada")?;
    /// let view = db.snapshot()?;
    /// users.delete("17")?;
    /// assert_eq!(view.of(&users)?.get("17")?.expect("there before the snapshot"), "Ada");
    /// assert_eq!(view.get("17")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the engine has no snapshots.
    pub fn snapshot(&self) -> Result<View> {
        View::begin(&self.default)
    }
}
