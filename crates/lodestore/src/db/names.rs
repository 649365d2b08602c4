//! The named keyspaces of a store.

use std::sync::Arc;

#[cfg(doc)]
use lodestore_contract::Store;
use lodestore_contract::{Error, Result};

use super::{Db, Keyspace};

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
    /// keyspaces is damaged; [`Error::KeyspaceMissing`] if the handle is for reading only and there
    /// is no such keyspace; those of every write ([`Store`]).
    pub fn keyspace(&self, name: impl AsRef<str>) -> Result<Keyspace> {
        let named = self.shared().keyspaces.with_catalogue(|catalogue| match self.is_read_only() {
            true => catalogue
                .find_named(name.as_ref())?
                .ok_or_else(|| Error::KeyspaceMissing { name: name.as_ref().into() }),
            false => catalogue.open_or_create(name.as_ref()),
        })?;
        Ok(Keyspace::of_named(Arc::clone(self.shared()), named))
    }

    /// Returns the names of all keyspaces, sorted. The default keyspace has no name.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the list is damaged; those of every operation
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
    pub fn drop_keyspace(&self, name: impl AsRef<str>) -> Result<bool> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        self.shared().keyspaces.drop_named(name.as_ref())
    }
}
