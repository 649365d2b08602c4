//! Named keyspaces: separate maps in one store.
//!
//! * `key`: the mapping of all keys to the keys of the store.
//! * `catalogue`: the names, and `record`: their bytes.
//! * `named`: the shared state of a keyspace's handles.
//! * `reclaim`: the removal of the records of dropped keyspaces.
//! * `planted`: changes for the crash explorer.
//! * `single_keys`, `ranges`, `batches`: the operations on keys.
//!
//! This file has the handle. The handle of a store, [`Db`](super::Db), passes its operations on to
//! the default keyspace inside it.

// Each of the first modules has a block of methods, in the order of the documentation.
mod single_keys;

mod ranges;

mod batches;
pub(super) mod catalogue;
pub(super) mod key;
pub(super) mod named;
pub(super) mod planted;
pub(super) mod reclaim;
mod record;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

#[cfg(doc)]
use lodestore_contract::Error;
use lodestore_contract::{Result, Store};

use super::Shared;
use key::KeyMap;
use named::{NamedKeyspace, WriteGuard};

/// The name of the default keyspace, for errors. No named keyspace can have the name.
const DEFAULT_NAME: &str = "";

/// A named map in a store, with its own keys. See [`Db::keyspace`](super::Db::keyspace).
///
/// Clones share the keyspace, keep the store open, and may be used from any number of threads.
/// After [`Db::drop_keyspace`](super::Db::drop_keyspace) each operation answers
/// [`Error::KeyspaceDropped`].
///
/// A key has 1 to 65529 bytes.
///
/// ```
/// # fn main() -> lodestore::Result<()> {
/// # let dir = lodestore_contract::testing::Scratch::on_disk();
/// # let path = dir.path().join("state");
/// # let db = lodestore::Db::builder(&path).capacity(64 << 20).open()?;
/// let users = db.keyspace("users")?; // opens the keyspace, or creates it
/// users.put("17", "Ada")?;
/// users.put("18", "Bob")?;
/// # if db.engine() == "nvht" {
/// #     return Ok(());
/// # }
/// for pair in users.iter()? {
///     let (key, name) = pair?;
///     println!("{key:?}: {name:?}");
/// }
/// assert_eq!(users.count()?, 2);
/// assert_eq!(db.count()?, 0); // the default keyspace has keys of its own
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Keyspace {
    pub(super) shared: Arc<Shared>,
    pub(super) map: KeyMap,
    /// `None` for the default keyspace.
    pub(super) named: Option<Arc<NamedKeyspace>>,
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

    pub(super) fn of_named(shared: Arc<Shared>, named: Arc<NamedKeyspace>) -> Self {
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
    fn begin_write(&self) -> Result<Option<WriteGuard<'_>>> {
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
