//! The state of an open matrix, and the locks of a key for a call.

use std::sync::Arc;

use lodestore_contract::limits::check_key;
use lodestore_contract::{Change, Error, Result};
use lodestore_media::OpenState;

use crate::command::Query;
use crate::host::Host;
use crate::keeper::Keeper;
use crate::options::MkvsOptions;
use crate::route::KeyHash;
use crate::topology::{Owned, Shape, Shared};
use crate::walk::StoredValue;

/// State shared by the threads.
pub(crate) struct Inner {
    pub(crate) options: Arc<MkvsOptions>,
    pub(crate) host: Arc<Host>,
    pub(crate) shape: Shape,
    pub(crate) seed: u64,
    pub(crate) keeper: Keeper,
    pub(crate) open: OpenState,
}

/// A key to write.
pub(crate) enum WriteLock<'a> {
    /// Its group has a single store, which decides.
    Sole(Shared<'a>),
    /// Its stripe is locked exclusively.
    Owned(Owned<'a>),
}

impl Inner {
    pub(crate) fn check_open(&self) -> Result<()> {
        self.open.check()
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> Result<KeyHash> {
        check_key(key)?;
        self.check_open()?;
        Ok(KeyHash::of(key, self.seed))
    }

    /// Locks a key for a read.
    #[inline]
    pub(crate) fn lock_shared(&self, key: &[u8]) -> Result<Shared<'_>> {
        let shared = self.shape.lock_shared(self.hash(key)?);
        // A close waits for the stripes of calls in progress.
        self.check_open()?;
        Ok(shared)
    }

    /// Reads the value and the expiry of a key at one moment.
    ///
    /// # Errors
    /// Errors of the devices.
    pub(crate) fn read_pair(&self, key: &[u8]) -> Result<Option<StoredValue>> {
        let at = self.lock_shared(key)?;
        // Writers share the stripe of a sole store, and hold all other stripes exclusively.
        if let Some(store) = at.group.sole().filter(|_| at.old.is_none()) {
            let mut stored = None;
            let read = store.update_with(key, &mut |value, expiry| {
                stored = value.map(|value| StoredValue { value: value.to_vec(), expiry });
                Change::Keep
            });
            match read {
                // Such a store accepts almost no write that could come between two reads.
                Err(error) if error.is_for_space() || matches!(error, Error::Poisoned { .. }) => {}
                read => return read.map(|()| stored),
            }
        }
        let mut value = Vec::new();
        let found = at.find(key, Query::Pair, &mut value)?;
        Ok(found.is_present.then_some(StoredValue { value, expiry: found.expiry }))
    }

    /// Locks a key for a write.
    pub(crate) fn lock_for_write(&self, key: &[u8]) -> Result<WriteLock<'_>> {
        let hash = self.hash(key)?;
        let changes = &self.shape.changes;
        if changes.is_crowded() {
            changes.wait_for_copier();
        }
        let shared = self.shape.lock_shared(hash);
        self.check_open()?;
        if shared.group.sole().is_some() && shared.old.is_none() {
            if changes.is_active() {
                changes.record(key);
            }
            return Ok(WriteLock::Sole(shared));
        }
        drop(shared);
        let owned = self.shape.lock_exclusive(key, hash)?;
        self.check_open()?;
        Ok(WriteLock::Owned(owned))
    }
}
