//! The handle of a store, with all operations as its own methods.
//!
//! ```
//! # fn main() -> lodestore::Result<()> {
//! # let dir = lodestore_contract::testing::Scratch::on_disk();
//! # let path = dir.path().join("state");
//! use lodestore::Db;
//!
//! let db = Db::builder(&path).capacity(64 << 20).open()?; // opens the store, or creates it
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

mod builder;
mod choice;
mod iter;
mod value;

use std::fmt;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

use lodestore_contract::{
    Batch, Change, Durability, Expiry, Lifetime, Progress, Result, ScanRange, Snapshot, Stats, Store, Swap,
    VerifyReport, Visit,
};

pub use builder::Builder;
pub use choice::{Choice, Engine};
pub use iter::Pairs;
pub use value::Value;

/// An open store. Clones share it, and may be used from any number of threads.
///
/// The last clone that is dropped closes the store cleanly. [`Db::close`] does the same and
/// reports errors. A process that is killed loses nothing that was acknowledged.
#[derive(Clone)]
pub struct Db {
    shared: Arc<Shared>,
}

/// What the clones share.
struct Shared {
    store: Arc<dyn Store>,
    choice: Choice,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // There is nobody to tell. A store that cannot be closed is left as after a kill.
        let _ = self.store.close();
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
        Self { shared: Arc::new(Shared { store, choice }) }
    }

    fn store(&self) -> &dyn Store {
        &*self.shared.store
    }

    /// Returns the engine's name.
    pub fn engine(&self) -> &'static str {
        self.store().engine()
    }

    /// Returns the engine and durability that the store was created with or found with, and why.
    pub fn choice(&self) -> &Choice {
        &self.shared.choice
    }

    /// Returns what an acknowledged write survives.
    pub fn durability(&self) -> Durability {
        self.shared.choice.durability
    }

    /// Closes the store cleanly, for all clones. Later calls answer [`Error::Closed`].
    ///
    /// # Errors
    /// As [`Store::close`]. The store is closed in any case, and nothing acknowledged is lost.
    ///
    /// [`Error::Closed`]: crate::Error::Closed
    pub fn close(&self) -> Result<()> {
        self.store().close()
    }
}

/// Reads.
impl Db {
    /// Returns the value of `key`, if there is one.
    ///
    /// # Errors
    /// Those of every operation ([`Store`]).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        Ok(self.store().get(key.as_ref())?.map(Value::from))
    }

    /// Replaces the contents of `value` by the value of `key`. Returns whether there is one.
    ///
    /// # Errors
    /// Those of every operation ([`Store`]).
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        self.store().get_into(key.as_ref(), value)
    }

    /// Returns whether there is a value of `key`.
    ///
    /// # Errors
    /// Those of every operation ([`Store`]).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.store().contains(key.as_ref())
    }

    /// Returns the values of `keys`, in their order. Each key is read at a moment of its own.
    ///
    /// # Errors
    /// Those of every operation ([`Store`]).
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<Vec<Option<Value>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let slices: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let mut values = Vec::with_capacity(slices.len());
        self.store().multi_get(&slices, &mut |_, value| values.push(value.map(|value| Value::from(value.to_vec()))))?;
        Ok(values)
    }

    /// Returns the expiry of `key`: `None` if there is no such key, `Some(None)` if it does not
    /// expire.
    ///
    /// # Errors
    /// Those of every operation ([`Store`]).
    pub fn expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<Option<Expiry>>> {
        self.store().expiry(key.as_ref())
    }

    /// Returns a lazy walk over the keys of a range and their values, from both ends. The walk
    /// keeps the store open.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the engine keeps no order.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Pairs> {
        let bound = |bound: std::ops::Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let (from, to) = (bound(range.start_bound()), bound(range.end_bound()));
        Pairs::begin(self.clone(), ScanRange { from, to, ..ScanRange::all() })
    }

    /// As [`Db::range`], over the keys that begin with `prefix`.
    ///
    /// # Errors
    /// As [`Db::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Pairs> {
        Pairs::begin(self.clone(), ScanRange::prefix(prefix.as_ref()))
    }

    /// Calls `visit` with every pair, each key once, in no order. Returns the number of calls.
    ///
    /// # Errors
    /// As [`Store::for_each`].
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        self.store().for_each(&mut visit)
    }

    /// Counts the keys that have not expired or were not swept yet. The call may read the whole
    /// store.
    ///
    /// # Errors
    /// Those of every operation ([`Store`]).
    pub fn count(&self) -> Result<u64> {
        self.store().len()
    }

    /// Returns a fixed view of the store as it is now.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the engine has no snapshots.
    pub fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.store().snapshot()
    }
}

/// Writes.
impl Db {
    /// Stores `value` under `key`, without an expiry.
    ///
    /// # Errors
    /// Those of every write ([`Store`]).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.store().put(key.as_ref(), value.as_ref())
    }

    /// Stores `value` under `key`, with an expiry.
    ///
    /// # Errors
    /// Those of every write ([`Store`]).
    pub fn put_expiring(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expiry: Expiry) -> Result<()> {
        self.store().put_expiring(key.as_ref(), value.as_ref(), Some(expiry))
    }

    /// Stores `value` under `key` if the key is absent. Returns whether it was.
    ///
    /// With [`Lifetime::Until`] the key expires. With [`Lifetime::Forever`] it does not, nor with
    /// [`Lifetime::Keep`], since an absent key has no expiry to keep.
    ///
    /// # Errors
    /// Those of every write ([`Store`]).
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, lifetime: Lifetime) -> Result<bool> {
        self.store().insert(key.as_ref(), value.as_ref(), lifetime)
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
        self.store().update(key.as_ref(), value.as_ref(), lifetime)
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// Those of every write ([`Store`]).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.store().delete(key.as_ref())
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
        self.store().compare_and_swap(key.as_ref(), expected, new, lifetime)
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
        mut change: impl FnMut(Option<&[u8]>, Option<Expiry>) -> Change,
    ) -> Result<()> {
        self.store().update_with(key.as_ref(), &mut change)
    }

    /// Writes all of `batch` or nothing.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn write(&self, batch: &Batch) -> Result<()> {
        self.store().write(batch)
    }

    /// Makes everything that returned before this call survive power loss, if the medium can.
    ///
    /// # Errors
    /// As [`Store::sync`].
    pub fn sync(&self) -> Result<()> {
        self.store().sync()
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
        self.store().verify(&mut progress)
    }

    /// Does the background work of earlier writes now.
    ///
    /// # Errors
    /// As [`Store::settle`].
    pub fn settle(&self) -> Result<()> {
        self.store().settle()
    }

    /// Waits until the recovery behind the open has ended.
    ///
    /// # Errors
    /// As [`Store::wait_recovered`].
    pub fn wait_recovered(&self) -> Result<()> {
        self.store().wait_recovered()
    }
}
