//! The store that a backup is written to.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use lodestore_contract::copy::CopySink;
use lodestore_contract::{Batch, BatchOp, Durability, Error, Pair, Result, Store};

use super::account::Account;
use super::{BackupPhase, BackupProgress};
use crate::choice;
use crate::options::CreateOptions;

/// Operations of one batch.
const BATCH_OPS: usize = 512;
/// Bytes of keys and values at which a batch is full.
const BATCH_BYTES: usize = 512 << 10;
/// Longer values are written separately.
const BATCHED_VALUE_BYTES_MAX: usize = 16 << 10;

/// The contents of a finished target.
pub(super) struct FinishedTarget {
    pub(super) account: Account,
    /// The durability to which the next open must raise the store.
    pub(super) raise: Option<Durability>,
}

/// Writes pairs to a new store, and keeps an account of them.
pub(super) struct Target<'p> {
    store: Arc<dyn Store>,
    account: Account,
    /// As in [`FinishedTarget`].
    raise: Option<Durability>,
    batch: Batch,
    /// The keys of the batch.
    batch_keys: HashSet<Vec<u8>>,
    batch_bytes: usize,
    /// Whether each write waits for the medium, so that batches are faster.
    uses_batches: bool,
    written: u64,
    total: u64,
    progress: &'p mut dyn FnMut(BackupProgress),
}

impl<'p> Target<'p> {
    /// Creates a store in `directory` with the engine, durability, capacity and shape of `source`.
    ///
    /// # Errors
    /// As [`create`](crate::store::create).
    pub(super) fn create(
        directory: &Path,
        source: &dyn Store,
        progress: &'p mut dyn FnMut(BackupProgress),
    ) -> Result<Self> {
        let stats = source.stats();
        let mut options =
            CreateOptions::new().engine(source.engine()).size(stats.space.capacity).durability(stats.durability);
        for (name, value) in source.creation_options().iter() {
            options = options.set(name, value);
        }
        let mut store = crate::store::create(directory, &options)?.into_store();
        // Without batches each pair would wait for the medium. All files are synced at the end.
        let raise =
            Some(stats.durability).filter(|durability| *durability == Durability::Power && !store.capabilities().batch);
        if raise.is_some() {
            // The medium gives this durability, or the creation would have been refused.
            store.close()?;
            drop(store);
            fs::remove_dir_all(directory).map_err(|error| Error::io("removing", directory, error))?;
            store = crate::store::create(directory, &options.durability(Durability::Process))?.into_store();
        }
        // The options of the source's creation are not known as they were given. Without a record,
        // no later open is compared with them.
        choice::file::remove(directory);
        Ok(Self {
            uses_batches: stats.durability == Durability::Power && store.capabilities().batch,
            store,
            account: Account::begin(),
            raise,
            batch: Batch::default(),
            batch_keys: HashSet::new(),
            batch_bytes: 0,
            written: 0,
            total: stats.keys,
            progress,
        })
    }

    /// Writes the rest, and closes the store.
    ///
    /// # Errors
    ///
    /// Errors of writes and of [`Store::close`].
    pub(super) fn finish(mut self) -> Result<FinishedTarget> {
        self.write_batch()?;
        self.store.wait_recovered()?;
        self.store.close()?;
        Ok(FinishedTarget { account: self.account, raise: self.raise })
    }

    fn write_batch(&mut self) -> Result<()> {
        if !self.batch.ops.is_empty() {
            self.store.write(&self.batch)?;
            self.batch.ops.clear();
            self.batch_keys.clear();
            self.batch_bytes = 0;
        }
        Ok(())
    }

    fn write(&mut self, pair: Pair<'_>) -> Result<()> {
        let Pair { key, value, expiry } = pair;
        self.account.add(pair);
        self.written += 1;
        (self.progress)(BackupProgress { phase: BackupPhase::Copying, pairs: self.written, total: self.total });
        if !self.uses_batches || value.len() > BATCHED_VALUE_BYTES_MAX {
            return self.store.put_expiring(key, value, expiry);
        }
        self.add_to_batch(key, value.len(), BatchOp::Put { key: key.to_vec(), value: value.to_vec(), expiry })
    }

    /// Adds an operation to the batch, and writes the batch if it is full.
    fn add_to_batch(&mut self, key: &[u8], value_len: usize, op: BatchOp) -> Result<()> {
        self.batch.ops.push(op);
        self.batch_keys.insert(key.to_vec());
        self.batch_bytes += key.len() + value_len;
        if self.batch.ops.len() < BATCH_OPS && self.batch_bytes < BATCH_BYTES {
            return Ok(());
        }
        self.write_batch()
    }

    /// Removes the pair of a key from the account, if the store has it.
    fn remove_from_account(&mut self, key: &[u8]) -> Result<()> {
        if self.batch_keys.contains(key) {
            self.write_batch()?;
        }
        // Only this process writes to this store. A pair that expires between the two calls is in a
        // group that is not compared any more.
        if let Some(value) = self.store.get(key)?
            && let Some(expiry) = self.store.expiry(key)?
        {
            self.account.remove(Pair { key, value: &value, expiry });
        }
        Ok(())
    }
}

impl CopySink for Target<'_> {
    fn add(&mut self, pair: Pair<'_>) -> Result<()> {
        self.write(pair)
    }

    fn put(&mut self, pair: Pair<'_>) -> Result<()> {
        self.remove_from_account(pair.key)?;
        self.write(pair)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.remove_from_account(key)?;
        if self.uses_batches {
            return self.add_to_batch(key, 0, BatchOp::Delete { key: key.to_vec() });
        }
        self.store.delete(key).map(drop)
    }
}

/// Names the directory of a full backup instead of the store's capacity.
pub(super) fn replace_path(error: Error, directory: &Path) -> Error {
    let no_room = |needed| Error::BackupNoRoom { path: directory.into(), needed };
    match error {
        Error::Full { needed, .. } => no_room(needed),
        Error::NoRoom { needed, free, .. } => no_room(needed.saturating_sub(free)),
        other => other,
    }
}
