//! Lazy walks over a range of keys, from both ends: the common part of all iterators.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use lodestore_contract::{Direction, Error, Result, ScanRange, Snapshot, Visit};

use super::keyspace::Keyspace;
use super::keyspace::key::StoredRange;

/// Pairs per read of the store.
const READ_PAIRS_MAX: usize = 128;
/// Bytes of keys and values after which a read ends.
const READ_BYTES_MAX: usize = 1 << 20;

/// A lazy walk over a range. `T` is its copy of each pair.
pub(super) struct Walk<T> {
    keyspace: Keyspace,
    /// `None`: the present state at each read.
    snapshot: Option<Arc<dyn Snapshot>>,
    /// Copies the user's key and the value.
    copy: fn(&[u8], &[u8]) -> T,
    /// The unread parts of the range, in key order.
    parts: VecDeque<StoredRange>,
    front: VecDeque<T>,
    /// Pairs that were read from the end, the last key first.
    back: VecDeque<T>,
    /// The reason why the pairs between `front` and `back` cannot be read. The walk returns the
    /// error once.
    failure: Option<Error>,
}

impl<T> Walk<T> {
    /// Begins a walk over a store.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the engine keeps no order;
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
    pub(super) fn begin(keyspace: Keyspace, range: &ScanRange, copy: fn(&[u8], &[u8]) -> T) -> Result<Self> {
        // An engine without an order returns its error at once.
        keyspace.store().scan_each(&ScanRange::all().limit(0), &mut |_, _| Visit::Stop)?;
        keyspace.check_alive()?;
        Ok(Self::over(keyspace, None, range, copy))
    }

    /// Begins a walk over a snapshot. The walk stays valid after a drop of the keyspace.
    pub(super) fn over_snapshot(
        keyspace: Keyspace,
        snapshot: Arc<dyn Snapshot>,
        range: &ScanRange,
        copy: fn(&[u8], &[u8]) -> T,
    ) -> Self {
        Self::over(keyspace, Some(snapshot), range, copy)
    }

    fn over(
        keyspace: Keyspace,
        snapshot: Option<Arc<dyn Snapshot>>,
        range: &ScanRange,
        copy: fn(&[u8], &[u8]) -> T,
    ) -> Self {
        let parts = keyspace.map.split_range(range).into();
        Self { keyspace, snapshot, copy, parts, front: VecDeque::new(), back: VecDeque::new(), failure: None }
    }

    /// Returns the name of the keyspace that is walked over.
    pub(super) fn keyspace_name(&self) -> &str {
        self.keyspace.name()
    }

    /// Begins a walk over another range of the same source.
    ///
    /// # Errors
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
    pub(super) fn over_range(&self, range: &ScanRange) -> Result<Self> {
        if self.snapshot.is_none() {
            self.keyspace.check_alive()?;
        }
        Ok(Self::over(self.keyspace.clone(), self.snapshot.clone(), range, self.copy))
    }

    /// Returns the next pair from the start. An error comes after the pairs before it.
    pub(super) fn next(&mut self) -> Option<Result<T>> {
        if self.front.is_empty() {
            self.read(Direction::Forward);
        }
        if let Some(pair) = self.front.pop_front() {
            return Some(Ok(pair));
        }
        // Pairs that were read from the end come last.
        self.failure.take().map(Err).or_else(|| self.back.pop_back().map(Ok))
    }

    /// Returns the next pair from the end. An error comes after the later pairs.
    pub(super) fn next_back(&mut self) -> Option<Result<T>> {
        if self.back.is_empty() {
            self.read(Direction::Backward);
        }
        if let Some(pair) = self.back.pop_front() {
            return Some(Ok(pair));
        }
        self.failure.take().map(Err).or_else(|| self.front.pop_back().map(Ok))
    }

    /// Reads the next group from one end, if anything is left there. An error ends the reading at
    /// both ends, because the end of the unreadable part is unknown.
    fn read(&mut self, direction: Direction) {
        let (parts, is_forward) = (&mut self.parts, direction == Direction::Forward);
        let pairs = if is_forward { &mut self.front } else { &mut self.back };
        while pairs.is_empty() {
            let Some(part) = (if is_forward { parts.front_mut() } else { parts.back_mut() }) else { break };
            let source = (&self.keyspace, self.snapshot.as_deref());
            match read_stored_range(source, self.copy, part, direction, pairs) {
                Ok(false) => {}
                Ok(true) if is_forward => drop(parts.pop_front()),
                Ok(true) => drop(parts.pop_back()),
                Err(error) => {
                    parts.clear();
                    self.failure = Some(error);
                }
            }
        }
    }
}

/// Reads the next group from one end of a part, and shortens the part. Returns whether the whole
/// part is read.
fn read_stored_range<T>(
    (keyspace, snapshot): (&Keyspace, Option<&dyn Snapshot>),
    copy: fn(&[u8], &[u8]) -> T,
    part: &mut StoredRange,
    direction: Direction,
    pairs: &mut VecDeque<T>,
) -> Result<bool> {
    if part.range.excludes_all() {
        return Ok(true);
    }
    let range = ScanRange { direction, limit: READ_PAIRS_MAX, ..part.range.clone() };
    let (mut last, mut bytes) = (None, 0);
    // Returns whether the group is full.
    let mut add = |key: &[u8], value: &[u8]| {
        pairs.push_back(copy(&key[part.prefix_len..], value));
        bytes += key.len() + value.len();
        let is_full = pairs.len() == READ_PAIRS_MAX || bytes >= READ_BYTES_MAX;
        if is_full {
            last = Some(key.to_vec());
        }
        is_full
    };
    match snapshot {
        Some(snapshot) => {
            for entry in snapshot.scan(&range)? {
                let entry = entry?;
                if add(entry.key(), entry.value()) {
                    break;
                }
            }
        }
        None => {
            let read = keyspace.store().scan_each(&range, &mut |key, value| {
                if add(key, value) { Visit::Stop } else { Visit::More }
            });
            keyspace.check_alive().inspect_err(|_| pairs.clear())?;
            read?;
        }
    }
    let Some(last) = last else { return Ok(true) };
    match direction {
        Direction::Forward => part.range.from = Bound::Excluded(last),
        Direction::Backward => part.range.to = Bound::Excluded(last),
    }
    Ok(false)
}
