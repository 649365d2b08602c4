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
mod reads;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod transaction;
mod value;
mod view;
mod walk;
mod writes;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use lodestore_contract::{Durability, Progress, Result, Stats, Store, VerifyReport};

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
        // A drop cannot report an error. A store that cannot be closed is left as after a kill.
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

/// Upkeep.
impl Db {
    /// Returns the statistics of the store.
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

    /// Waits until the recovery that the open began has ended.
    ///
    /// # Errors
    /// As [`Store::wait_recovered`].
    pub fn wait_recovered(&self) -> Result<()> {
        self.store().wait_recovered()
    }
}
