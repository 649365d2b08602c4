//! The handle of a store, with all operations as its own methods.
//!
//! ```
//! # fn main() -> lodestore::Result<()> {
//! # let dir = lodestore_contract::testing::Scratch::on_disk();
//! # let path = dir.path().join("state");
//! use lodestore::Db;
//!
//! let db = Db::builder(&path).capacity(64 << 20).open()?; // opens the store, or creates it
//! # if db.engine() == "nvht" {
//! #     return Ok(());
//! # }
//! db.put("user:17", "Ada")?;
//! if let Some(name) = db.get("user:17")? {
//!     assert_eq!(name, "Ada");
//! }
//! for pair in db.prefix("user:")? {
//!     let (key, value) = pair?;
//!     println!("{key:?} {value:?}");
//! }
//! # Ok(())
//! # }
//! ```

mod as_store;
mod backup;
mod batch;
mod builder;
mod choice;
mod iter;
mod keyspace;
mod page;
mod read_only;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod transaction;
mod value;
mod view;
mod walk;

use std::fmt;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

use lodestore_contract::{
    Batch, Change, Durability, Expiry, Lifetime, Pair, Progress, Result, Stats, Store, Swap, VerifyReport, Visit,
};

pub use batch::{Map, WriteBatch};
pub use builder::Builder;
pub use choice::{Choice, Engine};
pub use iter::{Keys, Pairs};
pub use keyspace::Keyspace;
use keyspace::reclaim::Keyspaces;
pub use page::{Cursor, Page, ParseCursorError};
use read_only::ReadOnly;
pub use transaction::Transaction;
pub use value::Value;
pub use view::View;

use crate::trace;

/// An open store. Clones share it, and may be used from any number of threads.
///
/// The last clone that is dropped closes the store cleanly. [`Db::close`] does the same and
/// reports errors. A process that is killed loses nothing that was acknowledged.
///
/// The operations on keys are those of the default keyspace, which has no name. Other keyspaces
/// ([`Db::keyspace`]) have keys of their own.
#[derive(Clone)]
pub struct Db {
    default: Keyspace,
}

/// The state of an open store, shared by all handles.
struct Shared {
    store: Arc<dyn Store>,
    choice: Choice,
    keyspaces: Arc<Keyspaces>,
    is_read_only: bool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.keyspaces.stop();
        if !self.keyspaces.closes_store() {
            return;
        }
        // There is nobody to tell. A store that cannot be closed is left as after a kill.
        let _ = trace::close(&*self.store, || self.store.close());
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("engine", &self.engine()).finish_non_exhaustive()
    }
}

/// Opening and closing.
impl Db {
    /// Opens the store in the directory `path`, or creates it. Engine and durability of a new store
    /// follow the medium ([`Engine::Auto`]).
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).open()
    }

    /// Returns what can be set before the store in the directory `path` is opened or created.
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder::new(path.as_ref())
    }

    fn of(store: Arc<dyn Store>, choice: Choice) -> Self {
        let needs_sync = matches!(choice.durability, Durability::Interval(_));
        let keyspaces = Keyspaces::begin(Arc::clone(&store), needs_sync);
        Self { default: Keyspace::of_default(Arc::new(Shared { store, choice, keyspaces, is_read_only: false })) }
    }

    /// A handle that refuses all writes.
    fn of_read_only(store: Arc<dyn Store>, choice: Choice) -> Self {
        let store: Arc<dyn Store> = Arc::new(ReadOnly(store));
        let keyspaces = Keyspaces::begin(Arc::clone(&store), false);
        Self { default: Keyspace::of_default(Arc::new(Shared { store, choice, keyspaces, is_read_only: true })) }
    }

    /// Returns whether the handle refuses all writes ([`Builder::read_only`]).
    pub fn is_read_only(&self) -> bool {
        self.shared().is_read_only
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.default.shared
    }

    fn store(&self) -> &dyn Store {
        self.default.store()
    }

    /// Returns the engine's name.
    pub fn engine(&self) -> &'static str {
        self.store().engine()
    }

    /// Returns the engine and durability that the store was created with or found with, and why.
    pub fn choice(&self) -> &Choice {
        &self.shared().choice
    }

    /// Returns what an acknowledged write survives.
    pub fn durability(&self) -> Durability {
        self.shared().choice.durability
    }

    /// Closes the store cleanly, for all clones. Later calls answer [`Error::Closed`].
    ///
    /// # Errors
    /// As [`Store::close`]. The store is closed in any case, and nothing acknowledged is lost.
    ///
    /// [`Error::Closed`]: crate::Error::Closed
    pub fn close(&self) -> Result<()> {
        self.shared().keyspaces.stop();
        trace::close(self.store(), || self.store().close())
    }
}

/// Named keyspaces.
impl Db {
    /// Opens the keyspace `name` of the store, or creates it. A keyspace is a map of its own: its
    /// keys are neither in the default keyspace nor in any other one. A name has 1 to 255 bytes.
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # let db = lodestore::Db::builder(&path).capacity(64 << 20).open()?;
    /// let users = db.keyspace("users")?;
    /// let emails = db.keyspace("emails")?;
    /// users.put("17", "Ada")?;
    /// assert_eq!(emails.get("17")?, None);
    ///
    /// let mut batch = db.batch(); // all of it, or nothing
    /// batch.put(&users, "18", "Bob").put(&emails, "bob@x.org", "18").put(&db, "users", "2");
    /// batch.commit()?;
    ///
    /// assert_eq!(db.keyspaces()?, ["emails", "users"]);
    /// db.drop_keyspace("emails")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The key of a named keyspace is 3 to 7 bytes longer in the store. Therefore its keys have at
    /// most 65529 bytes, and longer keys are refused. The same holds for keys of the default
    /// keyspace that begin with the bytes FF FF.
    ///
    /// A creation makes two small writes one after the other, and is durable when it returns.
    ///
    /// # Errors
    /// [`Error::KeyspaceName`]; [`Error::KeyspacesExhausted`]; [`Error::Corrupt`] if the list of
    /// keyspaces is damaged; those of every write ([`Store`]).
    ///
    /// [`Error::KeyspaceName`]: crate::Error::KeyspaceName
    /// [`Error::KeyspacesExhausted`]: crate::Error::KeyspacesExhausted
    /// [`Error::Corrupt`]: crate::Error::Corrupt
    pub fn keyspace(&self, name: impl AsRef<str>) -> Result<Keyspace> {
        let named = self.shared().keyspaces.with_catalogue(|catalogue| match self.is_read_only() {
            true => catalogue.find_named(name.as_ref())?.ok_or(crate::Error::ReadOnly),
            false => catalogue.open_or_create(name.as_ref()),
        })?;
        Ok(Keyspace::of_named(Arc::clone(self.shared()), named))
    }

    /// Returns the names of all keyspaces, sorted. The default keyspace has no name.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) if the list is damaged; those of every operation
    /// ([`Store`]).
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        self.shared().keyspaces.with_catalogue(|catalogue| catalogue.names())
    }

    /// Drops the keyspace `name` with all of its pairs. Returns whether there was one.
    ///
    /// The call waits for the writes to the keyspace that are under way, and makes one small write.
    /// Afterwards all handles of the keyspace answer [`Error::KeyspaceDropped`], and the name may
    /// be given to a new keyspace. A background thread frees the space. If the store is closed
    /// first, the next open continues the removal. [`Db::settle`] waits until the pairs are
    /// removed. The engine removes pairs that had expired before the drop, as it does elsewhere.
    ///
    /// A full store may refuse the drop with [`Error::Full`]: then delete some pairs first.
    ///
    /// # Errors
    /// As [`Db::keyspace`]; [`Error::Full`]. After an error the keyspace still exists, and its
    /// handles work. If the store also refuses to restore the list of keyspaces, the handles answer
    /// [`Error::KeyspaceDropped`] for good. Then open a new one with [`Db::keyspace`], which
    /// restores the list. If the process ends first, the next open may find the keyspace dropped.
    ///
    /// [`Error::Full`]: crate::Error::Full
    /// [`Error::KeyspaceDropped`]: crate::Error::KeyspaceDropped
    pub fn drop_keyspace(&self, name: impl AsRef<str>) -> Result<bool> {
        if self.is_read_only() {
            return Err(crate::Error::ReadOnly);
        }
        self.shared().keyspaces.drop_named(name.as_ref())
    }
}

/// Batches and transactions.
impl Db {
    /// Runs `work` in a transaction over any keyspaces of this store, and commits it. Returns what
    /// `work` returned.
    ///
    /// If another writer changed a key that was read, nothing is written, and `work` runs again
    /// with the newer values, after a short pause. `work` may run up to 100 times, so it must have
    /// no side effects. Use only `tx` inside `work`. Operations on `Db` or `Keyspace` are not part
    /// of the transaction: their reads are not checked and do not see its writes, and their writes
    /// take effect at once, in every run.
    ///
    /// Reads through `tx` come from no snapshot: two reads may see different moments, and the
    /// commit then fails. If `work` returns an error, its reads are checked first. If all of them
    /// are still true, the error is returned; else `work` runs again. Nothing is written after an
    /// error.
    ///
    /// Transactions are strictly serializable. Range reads ([`Transaction::range`]) need the engine
    /// `fluidkv` or `hashkv`. A transaction keeps a copy of every value that it reads or writes. A
    /// concurrent walk over a range outside of a transaction may show a part of a commit
    /// ([`Store::write`]).
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # let db = lodestore::Db::builder(&path).capacity(64 << 20).open()?;
    /// let (users, emails) = (db.keyspace("users")?, db.keyspace("emails")?);
    /// db.transaction(|tx| {
    ///     if tx.contains(&emails, "ada@example.org")? {
    ///         return Err(tx.abort("the address is taken"));
    ///     }
    ///     tx.put(&users, "17", "Ada")?;
    ///     tx.put(&emails, "ada@example.org", "17")
    /// })?;
    /// assert!(users.contains("17")? && emails.contains("ada@example.org")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `work`; [`Error::Conflict`] after 100 tries; [`Error::KeyspaceDropped`];
    /// [`Error::Unsupported`] if the engine has no atomic batches; those of [`Store::write`].
    /// [`Error::BatchLength`] means that more than 65,536 keys were read, or were written.
    ///
    /// [`Error::BatchLength`]: crate::Error::BatchLength
    /// [`Error::Conflict`]: crate::Error::Conflict
    /// [`Error::KeyspaceDropped`]: crate::Error::KeyspaceDropped
    /// [`Error::Unsupported`]: crate::Error::Unsupported
    pub fn transaction<T>(&self, work: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        transaction::run(self.shared(), work)
    }

    /// Begins a transaction that the caller commits, and repeats after a conflict.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the engine has no atomic batches.
    pub fn begin_transaction(&self) -> Result<Transaction> {
        Transaction::begin(Arc::clone(self.shared()))
    }

    /// Returns an empty batch of writes to any keyspaces of this store.
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # let db = lodestore::Db::builder(&path).capacity(64 << 20).open()?;
    /// let (users, emails) = (db.keyspace("users")?, db.keyspace("emails")?);
    /// let mut batch = db.batch();
    /// batch.require_absent(&emails, "ada@example.org");
    /// batch.put(&users, "17", "Ada").put(&emails, "ada@example.org", "17");
    /// batch.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The engine `mkvs` has no atomic batches: the commit answers
    /// [`Error::Unsupported`](crate::Error::Unsupported).
    pub fn batch(&self) -> WriteBatch {
        WriteBatch::of(Arc::clone(self.shared()))
    }
}

/// Reads.
impl Db {
    /// Returns the value of `key`, if there is one.
    ///
    /// # Errors
    /// Those of every operation ([`Store`]).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.default.get(key)
    }

    /// Replaces the contents of `value` by the value of `key`. Returns whether there is one.
    ///
    /// # Errors
    /// Those of every operation ([`Store`]).
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        self.default.get_into(key, value)
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
    /// Those of every operation ([`Store`]).
    pub fn get_with<T>(&self, key: impl AsRef<[u8]>, with: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        self.default.get_with(key, with)
    }

    /// Returns whether there is a value of `key`.
    ///
    /// # Errors
    /// Those of every operation ([`Store`]).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default.contains(key)
    }

    /// Returns the values of `keys`, in their order. Each key is read at a moment of its own.
    ///
    /// # Errors
    /// Those of every operation ([`Store`]).
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Vec<Option<Value>>> {
        self.default.multi_get(keys)
    }

    /// Returns the expiry of `key`: `None` if there is no such key, `Some(None)` if it does not
    /// expire.
    ///
    /// # Errors
    /// Those of every operation ([`Store`]).
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<Option<Expiry>>> {
        self.default.expiry(key)
    }

    /// Returns a lazy walk over the keys of a range and their values, from both ends. The walk
    /// keeps the store open.
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
    /// # use lodestore::{Expiry, Visit};
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
    /// Those of every operation ([`Store`]).
    pub fn count(&self) -> Result<u64> {
        self.default.count()
    }

    /// Returns the number of keys of the store, in constant time. Keys of all keyspaces count, and
    /// so do expired keys that were not swept yet. The newest writes may not count yet. After an
    /// open the keys count that its recovery has found ([`Db::wait_recovered`]). Engines that write
    /// without a lookup (`fluidkv`, `hashkv`) estimate. [`Db::count`] is exact.
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
    /// # let builder = lodestore::Db::builder(&path).engine(lodestore::Engine::fluidkv());
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

/// Upkeep.
impl Db {
    /// Returns the store's account of itself.
    pub fn stats(&self) -> Stats {
        self.store().stats()
    }

    /// Reads and checks everything. `progress` is called now and then.
    ///
    /// # Errors
    /// As [`Store::verify`]. Damage is in the report.
    pub fn verify(&self, mut progress: impl FnMut(Progress)) -> Result<VerifyReport> {
        trace::verify(self.store(), || self.store().verify(&mut progress))
    }

    /// Does the background work of earlier writes now, and frees the space of dropped keyspaces.
    ///
    /// # Errors
    /// As [`Store::settle`].
    pub fn settle(&self) -> Result<()> {
        trace::settle(self.store(), || {
            let reclaimed = self.shared().keyspaces.reclaim();
            self.store().settle().and(reclaimed)
        })
    }

    /// Waits until the recovery behind the open has ended.
    ///
    /// # Errors
    /// As [`Store::wait_recovered`].
    pub fn wait_recovered(&self) -> Result<()> {
        self.store().wait_recovered()
    }
}
