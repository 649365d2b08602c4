//! Iterators over pairs and over keys.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use lodestore_contract::{Result, ScanRange, Snapshot};

use super::Value;
use super::keyspace::Keyspace;
use super::page::{Cursor, Page};
use super::walk::Walk;

/// A lazy walk over the pairs of a range, in the order of their keys, from both ends.
///
/// Pairs of a store are read in groups, each group at its own moment. A write that returned
/// before the walk began is shown. A later write may be shown. Pairs of a [`View`](super::View) are
/// all of its moment.
pub struct Pairs {
    walk: Walk<(Value, Value)>,
    range: ScanRange,
}

impl fmt::Debug for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Pairs");
        shown.field("keyspace", &self.walk.keyspace_name()).field("range", &self.range).finish_non_exhaustive()
    }
}

fn copy_pair(key: &[u8], value: &[u8]) -> (Value, Value) {
    (Value::from(key.to_vec()), Value::from(value.to_vec()))
}

fn copy_key(key: &[u8], _: &[u8]) -> Value {
    Value::from(key.to_vec())
}

/// Converts the bounds of a range to a scan range.
pub(super) fn scan_range<K: AsRef<[u8]>>(range: impl RangeBounds<K>) -> ScanRange {
    let bound = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    let (from, to) = (bound(range.start_bound()), bound(range.end_bound()));
    ScanRange { from, to, ..ScanRange::all() }
}

impl Pairs {
    /// # Errors
    /// As [`Walk::begin`].
    pub(super) fn begin(keyspace: Keyspace, range: ScanRange) -> Result<Self> {
        Ok(Self { walk: Walk::begin(keyspace, &range, copy_pair)?, range })
    }

    pub(super) fn over_snapshot(keyspace: Keyspace, snapshot: Arc<dyn Snapshot>, range: ScanRange) -> Self {
        Self { walk: Walk::over_snapshot(keyspace, snapshot, &range, copy_pair), range }
    }

    /// Returns a walk over the part of the range after the cursor.
    ///
    /// # Errors
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
    pub fn after(mut self, cursor: &Cursor) -> Result<Self> {
        if self.range.above_from(cursor.key()) {
            self.range.from = Bound::Excluded(cursor.key().to_vec());
        }
        Ok(Self { walk: self.walk.over_range(&self.range)?, range: self.range })
    }

    /// Returns a walk over the part of the range before the cursor.
    ///
    /// # Errors
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
    pub fn before(mut self, cursor: &Cursor) -> Result<Self> {
        if self.range.below_to(cursor.key()) {
            self.range.to = Bound::Excluded(cursor.key().to_vec());
        }
        Ok(Self { walk: self.walk.over_range(&self.range)?, range: self.range })
    }

    /// Returns at most `pairs_max` pairs, in the order of their keys, and the cursor of the next
    /// page for [`Self::after`]. At least one pair is read, so that pages come to an end.
    ///
    /// A cursor stays valid during other writes. Nothing is kept open between two pages.
    ///
    /// ```
    /// # fn main() -> lodestore::Result<()> {
    /// # let dir = lodestore_contract::testing::Scratch::on_disk();
    /// # let path = dir.path().join("state");
    /// # let db = lodestore::Db::builder(&path).capacity(64 << 20).open()?;
    /// # if db.engine() == "nvht" {
    /// #     return Ok(());
    /// # }
    /// for number in 0..50 {
    ///     db.put(format!("user:{number:02}"), "Ada")?;
    /// }
    /// let first = db.prefix("user:")?.page(20)?;
    /// assert_eq!(first.pairs.len(), 20);
    /// let text = first.next.expect("30 more").to_string(); // for the client
    ///
    /// let cursor = text.parse().expect("a cursor that was printed");
    /// let second = db.prefix("user:")?.after(&cursor)?.page(20)?;
    /// assert_eq!(second.pairs[0].0, "user:20");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The first error of the walk. Pairs before it are not returned.
    pub fn page(mut self, pairs_max: usize) -> Result<Page> {
        Page::read(pairs_max, || self.walk.next())
    }

    /// As [`Self::page`], from the end of the range, the last key first. The cursor of the next
    /// page is for [`Self::before`].
    ///
    /// # Errors
    /// As [`Self::page`].
    pub fn page_back(mut self, pairs_max: usize) -> Result<Page> {
        Page::read(pairs_max, || self.walk.next_back())
    }
}

impl Iterator for Pairs {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.walk.next()
    }
}

impl DoubleEndedIterator for Pairs {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.walk.next_back()
    }
}

/// A lazy walk over the keys of a range, in their order, from both ends. See [`Pairs`].
pub struct Keys {
    walk: Walk<Value>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("keyspace", &self.walk.keyspace_name()).finish_non_exhaustive()
    }
}

impl Keys {
    /// # Errors
    /// As [`Walk::begin`].
    pub(super) fn begin(keyspace: Keyspace, range: &ScanRange) -> Result<Self> {
        Ok(Self { walk: Walk::begin(keyspace, range, copy_key)? })
    }

    pub(super) fn over_snapshot(keyspace: Keyspace, snapshot: Arc<dyn Snapshot>, range: &ScanRange) -> Self {
        Self { walk: Walk::over_snapshot(keyspace, snapshot, range, copy_key) }
    }
}

impl Iterator for Keys {
    type Item = Result<Value>;

    fn next(&mut self) -> Option<Self::Item> {
        self.walk.next()
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.walk.next_back()
    }
}
