//! Fixed views of a store.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use lodestore_contract::{Direction, Entry, Expiry, Pair, Result, Scan, ScanRange, Snapshot};

use super::Value;
use super::batch::{Map, keyspace_in};
use super::iter::{Keys, Pairs, scan_range};
use super::keyspace::Keyspace;

/// A fixed view of one keyspace of a store. See [`Db::snapshot`](super::Db::snapshot).
///
/// The view keeps the store open. Clones share it.
#[derive(Clone)]
pub struct View {
    keyspace: Keyspace,
    snapshot: Arc<dyn Snapshot>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("keyspace", &self.keyspace.name()).finish_non_exhaustive()
    }
}

impl View {
    /// Takes a snapshot of the store, and shows a keyspace of it.
    pub(super) fn begin(keyspace: &Keyspace) -> Result<Self> {
        let snapshot = Arc::from(keyspace.store().snapshot()?);
        Ok(Self { keyspace: keyspace.clone(), snapshot })
    }

    /// Returns the view of another keyspace in the same snapshot: all views of a snapshot show the
    /// store at one moment. A keyspace that was created later is empty.
    ///
    /// A returned view stays valid after a drop of its keyspace.
    ///
    /// # Errors
    /// [`Error::OtherStore`](crate::Error::OtherStore) if the keyspace is of another store;
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped) if it is dropped by now.
    pub fn of(&self, map: &impl Map) -> Result<Self> {
        let keyspace = keyspace_in(&self.keyspace.shared, map)?.clone();
        // A keyspace that is alive now was alive when the snapshot was taken, or did not exist.
        keyspace.check_alive()?;
        Ok(Self { keyspace, snapshot: Arc::clone(&self.snapshot) })
    }

    /// Returns the value of `key` in this view, if there is one.
    ///
    /// # Errors
    /// Errors of every operation ([`Store`](crate::store::Store)).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = self.keyspace.map.encode_key(key.as_ref())?;
        Ok(self.snapshot.get(&key)?.map(Value::from))
    }

    /// Returns whether there is a value of `key` in this view.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Returns a lazy walk over all keys and their values in this view, from both ends.
    pub fn iter(&self) -> Pairs {
        self.pairs(ScanRange::all())
    }

    /// As [`Self::iter`], without the values.
    pub fn keys(&self) -> Keys {
        self.keys_of(&ScanRange::all())
    }

    /// Returns a lazy walk over the keys of a range and their values in this view, from both ends.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Pairs {
        self.pairs(scan_range(range))
    }

    /// As [`Self::range`], over the keys that begin with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Pairs {
        self.pairs(ScanRange::prefix(prefix.as_ref()))
    }

    /// As [`Self::range`], without the values.
    pub fn range_keys<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Keys {
        self.keys_of(&scan_range(range))
    }

    /// As [`Self::prefix`], without the values.
    pub fn prefix_keys(&self, prefix: impl AsRef<[u8]>) -> Keys {
        self.keys_of(&ScanRange::prefix(prefix.as_ref()))
    }

    fn keys_of(&self, range: &ScanRange) -> Keys {
        Keys::over_snapshot(self.keyspace.clone(), Arc::clone(&self.snapshot), range)
    }

    fn pairs(&self, range: ScanRange) -> Pairs {
        Pairs::over_snapshot(self.keyspace.clone(), Arc::clone(&self.snapshot), range)
    }

    /// Returns the value of `key` in this view, with its expiry.
    ///
    /// # Errors
    ///
    /// Errors of every operation ([`Store`](crate::store::Store)).
    pub fn get_with_expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<(Value, Option<Expiry>)>> {
        let key = self.keyspace.map.encode_key(key.as_ref())?;
        Ok(self.snapshot.get_with_expiry(&key)?.map(|(value, expiry)| (Value::from(value), expiry)))
    }

    /// Returns a walk over the pairs of a range in this view. Its entries report the expiry.
    ///
    /// # Errors
    /// As [`Store::scan`](crate::store::Store::scan).
    pub fn scan(&self, range: &ScanRange) -> Result<Scan> {
        let mut parts = self.keyspace.map.split_range(range);
        if range.direction == Direction::Backward {
            parts.reverse();
        }
        let mut scans = Vec::with_capacity(parts.len());
        for part in parts {
            let scan = self.snapshot.scan(&part.range)?;
            let to_user = move |entry: Entry| match part.prefix_len {
                0 => entry,
                prefix_len => Entry::of_pair(Pair { key: &entry.key()[prefix_len..], ..entry.pair() }),
            };
            // The scan keeps the store open.
            let open = Arc::clone(&self.keyspace.shared);
            scans.push(scan.map(move |entry| {
                let _open = &open;
                entry.map(to_user)
            }));
        }
        Ok(Box::new(scans.into_iter().flatten().take(range.limit)))
    }
}

impl Snapshot for View {
    fn get_with_expiry(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Option<Expiry>)>> {
        Ok(Self::get_with_expiry(self, key)?.map(|(value, expiry)| (Vec::from(value), expiry)))
    }

    fn scan(&self, range: &ScanRange) -> Result<Scan> {
        Self::scan(self, range)
    }
}
