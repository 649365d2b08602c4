//! Batches and transactions of a store.

use std::sync::Arc;

#[cfg(doc)]
use lodestore_contract::Store;
use lodestore_contract::{Batch, Error, Result};

use super::{Db, Transaction, WriteBatch, transaction};

/// Batches and transactions.
impl Db {
    /// Runs `work` in a transaction over any keyspaces of this store, and commits it. Returns what
    /// `work` returned. [`Db::try_transaction`] takes a closure with an error type of yours.
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
    /// Errors of `work`; [`Error::Conflict`] after 100 tries; [`Error::KeyspaceDropped`];
    /// [`Error::Unsupported`] if the engine has no atomic batches; those of [`Store::write`].
    /// [`Error::BatchLength`] means that more than 65,536 keys were read, or were written.
    pub fn transaction<T>(&self, work: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        transaction::run(self.shared(), work)
    }

    /// As [`Db::transaction`], with an error type of yours. An error of the library becomes one of
    /// yours (`E: From<Error>`), so `?` works in `work` for both.
    ///
    /// `work` runs again after a conflict with another writer, whatever its error type is: the
    /// commit decides, and not the error. If `work` returns an error, its reads are checked first.
    /// If all of them are still true, the error is returned; else `work` runs again.
    ///
    /// ```
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # let db = lodestore::Db::builder(&path).capacity(64 << 20).open()?;
    /// use std::error::Error;
    ///
    /// db.put("visits", "41")?;
    /// let visits = db.try_transaction(|tx| -> Result<u64, Box<dyn Error>> {
    ///     let visits = match tx.get(&db, "visits")? {
    ///         Some(text) => text.as_str()?.parse::<u64>()? + 1,
    ///         None => 1,
    ///     };
    ///     tx.put(&db, "visits", visits.to_string())?;
    ///     Ok(visits)
    /// })?;
    /// assert_eq!(visits, 42);
    /// # Ok::<(), Box<dyn Error>>(())
    /// ```
    ///
    /// # Errors
    /// Errors of `work`; errors of [`Db::transaction`], as `E`.
    pub fn try_transaction<T, E: From<Error>>(
        &self,
        work: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        transaction::run(self.shared(), work)
    }

    /// Begins a transaction that the caller commits, and repeats after a conflict.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the engine has no atomic batches.
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
    /// [`Error::Unsupported`].
    pub fn batch(&self) -> WriteBatch {
        WriteBatch::of(Arc::clone(self.shared()))
    }

    /// Writes all of `batch` to the default keyspace, or nothing. [`Db::batch`] writes to several
    /// keyspaces.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn write(&self, batch: &Batch) -> Result<()> {
        self.default.write_all(batch)
    }
}
