//! Ranges, walks and counts of one keyspace.

use std::ops::RangeBounds;

#[cfg(doc)]
use lodestore_contract::Store;
use lodestore_contract::{Error, Pair, Result, ScanRange, Visit};

use super::Keyspace;
use super::key::StoredRange;
use crate::db::iter::{Keys, Pairs, scan_range};

/// Ranges and walks.
impl Keyspace {
    /// Returns a lazy walk over all keys and their values, in the order of the keys, from both
    /// ends. The walk keeps the store open.
    ///
    /// # Errors
    /// As [`Self::range`].
    pub fn iter(&self) -> Result<Pairs> {
        Pairs::begin(self.clone(), ScanRange::all())
    }

    /// Returns a lazy walk over all keys without their values, as [`Self::iter`].
    ///
    /// # Errors
    /// As [`Self::range`].
    pub fn keys(&self) -> Result<Keys> {
        Keys::begin(self.clone(), &ScanRange::all())
    }

    /// Returns a lazy walk over the keys of a range and their values, in the order of the keys,
    /// from both ends. The walk keeps the store open.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the engine keeps no order; [`Error::KeyspaceDropped`].
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Pairs> {
        Pairs::begin(self.clone(), scan_range(range))
    }

    /// Returns a lazy walk over the keys that begin with `prefix` and their values, as
    /// [`Self::range`].
    ///
    /// # Errors
    /// As [`Self::range`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Pairs> {
        Pairs::begin(self.clone(), ScanRange::prefix(prefix.as_ref()))
    }

    /// Returns a lazy walk over the keys of a range without their values, as [`Self::range`].
    ///
    /// # Errors
    /// As [`Self::range`].
    pub fn range_keys<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Keys> {
        Keys::begin(self.clone(), &scan_range(range))
    }

    /// Returns a lazy walk over the keys that begin with `prefix` without their values, as
    /// [`Self::range`].
    ///
    /// # Errors
    /// As [`Self::range`].
    pub fn prefix_keys(&self, prefix: impl AsRef<[u8]>) -> Result<Keys> {
        Keys::begin(self.clone(), &ScanRange::prefix(prefix.as_ref()))
    }

    /// Calls `visit` with every pair of the keyspace, each key once, in no order. Returns the
    /// number of calls.
    ///
    /// An engine with an order reads this keyspace alone, and an engine without an order reads the
    /// whole store.
    ///
    /// # Errors
    /// As [`Store::for_each`]; [`Error::KeyspaceDropped`].
    pub fn for_each(&self, mut visit: impl FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        let has_order = self.store().capabilities().scan;
        let walked = if has_order && (self.named.is_some() || !self.shared.keyspaces.has_default_only()) {
            self.walk_stored_ranges(&mut visit)
        } else {
            self.walk_store(None, &mut visit)
        };
        self.check_alive()?;
        walked
    }

    /// Calls `visit` with every pair as [`Self::for_each`] does, with the expiry of its key. The
    /// value and the expiry of a pair are of one moment. The call reads the whole store.
    ///
    /// # Errors
    /// As [`Self::for_each`].
    pub fn for_each_pair(&self, mut visit: impl FnMut(Pair<'_>) -> Visit) -> Result<u64> {
        let mut visits = 0;
        let walked = self.store().for_each_pair(&mut |pair| {
            let Some(key) = self.map.decode_key(pair.key) else { return Visit::More };
            visits += 1;
            visit(Pair { key, ..pair })
        });
        self.check_alive()?;
        walked.map(|_| visits)
    }

    /// Counts the keys of the keyspace that have not expired.
    ///
    /// The call reads the whole keyspace, and the whole store if the engine keeps no order.
    ///
    /// # Errors
    /// As [`Self::for_each`].
    pub fn count(&self) -> Result<u64> {
        // Records of other keyspaces exist only after the header of the catalogue, which is never
        // removed. Without a header after the count, the engine counted keys of this keyspace.
        if self.named.is_none() && self.shared.keyspaces.has_default_only() {
            let count = self.store().len()?;
            if self.shared.keyspaces.has_default_only() {
                return Ok(count);
            }
        }
        self.for_each(|_, _| Visit::More)
    }

    /// Visits the pairs of the keyspace in an engine with an order.
    fn walk_stored_ranges(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        let (mut visits, mut last, mut is_stopped) = (0, Vec::new(), false);
        for StoredRange { range, prefix_len } in self.map.split_range(&ScanRange::all()) {
            let scanned = self.store().scan_each(&range, &mut |key, value| {
                visits += 1;
                last.clear();
                last.extend_from_slice(key);
                let verdict = visit(&key[prefix_len..], value);
                is_stopped = verdict == Visit::Stop;
                verdict
            });
            match scanned {
                _ if is_stopped => break,
                Ok(_) => {}
                // A scan stops at damage. The walk skips damage, and continues.
                Err(damage @ Error::Corrupt { .. }) => {
                    let rest = self.walk_store(Some(&last), visit);
                    return rest.and(Err(damage));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(visits)
    }

    /// Visits the pairs of the keyspace by a walk over the whole store: those whose stored keys are
    /// above `after`.
    fn walk_store(&self, after: Option<&[u8]>, visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit) -> Result<u64> {
        let mut visits = 0;
        self.store().for_each(&mut |stored, value| match self.map.decode_key(stored) {
            Some(key) if after.is_none_or(|after| stored > after) => {
                visits += 1;
                visit(key, value)
            }
            _ => Visit::More,
        })?;
        Ok(visits)
    }
}
