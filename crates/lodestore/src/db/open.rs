//! Opening a store.

use std::path::Path;
use std::sync::Arc;

use lodestore_contract::{Durability, Result, Store};

use super::keyspace::reclaim::Keyspaces;
use super::read_only::ReadOnly;
use super::{Builder, Choice, Db, Keyspace, Shared};

/// Opening.
impl Db {
    /// Opens the store in the directory `path`, or creates it. Engine and durability of a new store
    /// follow the medium ([`Engine::Auto`](super::Engine::Auto)).
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// use lodestore::Db;
    ///
    /// let db = Db::open(&path)?; // creates the store
    /// db.put("greeting", "hello")?;
    /// db.close()?;
    /// let db = Db::open(&path)?; // opens it
    /// assert_eq!(db.get("greeting")?.unwrap(), "hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).open()
    }

    /// Returns the settings of the store in the directory `path`, which can be changed before the
    /// store is opened or created.
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder::new(path.as_ref())
    }

    pub(super) fn of(store: Arc<dyn Store>, choice: Choice) -> Self {
        let needs_sync = matches!(choice.durability, Durability::Interval(_));
        let keyspaces = Keyspaces::begin(Arc::clone(&store), needs_sync);
        Self { default: Keyspace::of_default(Arc::new(Shared { store, choice, keyspaces, is_read_only: false })) }
    }

    /// Returns a handle that refuses all writes.
    pub(super) fn of_read_only(store: Arc<dyn Store>, choice: Choice) -> Self {
        let store: Arc<dyn Store> = Arc::new(ReadOnly(store));
        let keyspaces = Keyspaces::begin(Arc::clone(&store), false);
        Self { default: Keyspace::of_default(Arc::new(Shared { store, choice, keyspaces, is_read_only: true })) }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.default.shared
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.default.store()
    }
}

/// Returns the engine and durability of an open store. `recorded` is the reason in the record of
/// its creation.
pub(super) fn choice_of(store: &dyn Store, recorded: Option<String>) -> Choice {
    Choice {
        engine: store.engine(),
        durability: store.stats().durability,
        reason: recorded.unwrap_or_else(|| "chosen when the store was created".into()),
    }
}
