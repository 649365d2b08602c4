//! Lazy walks over a range of keys, from both ends.

use std::collections::VecDeque;
use std::ops::Bound;

use lodestore_contract::{Direction, Result, ScanRange, Visit};

use super::{Db, Value};

/// Pairs that are read from the store together.
const PAIRS_PER_READ: usize = 128;

/// A lazy walk over the pairs of a range, in the order of their keys, from both ends.
///
/// Pairs are read in groups, each group at a moment of its own. A write that returned before the
/// walk began is shown. A later write may be shown.
pub struct Pairs {
    db: Db,
    /// The part of the range that was not read yet.
    rest: ScanRange,
    is_at_end: bool,
    front: VecDeque<(Value, Value)>,
    /// Pairs that were read from the end, the last key first.
    back: VecDeque<(Value, Value)>,
}

impl Pairs {
    /// Begins a walk.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the engine keeps no order.
    pub(super) fn begin(db: Db, range: ScanRange) -> Result<Self> {
        // An engine without an order says so at once.
        db.store().scan_each(&ScanRange { limit: 0, ..range.clone() }, &mut |_, _| Visit::Stop)?;
        Ok(Self { db, rest: range, is_at_end: false, front: VecDeque::new(), back: VecDeque::new() })
    }

    /// Reads the next group from one end.
    fn read(&mut self, direction: Direction) -> Result<()> {
        let range = ScanRange { direction, limit: PAIRS_PER_READ, ..self.rest.clone() };
        if self.is_at_end || range.excludes_all() {
            return Ok(());
        }
        let mut pairs = VecDeque::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            pairs.push_back((Value::from(key.to_vec()), Value::from(value.to_vec())));
            Visit::More
        };
        let read = self.db.store().scan_each(&range, &mut visit);
        self.is_at_end = read.is_err() || pairs.len() < PAIRS_PER_READ;
        if let Some((key, _)) = pairs.back() {
            let bound = Bound::Excluded(key.to_vec());
            match direction {
                Direction::Forward => self.rest.from = bound,
                Direction::Backward => self.rest.to = bound,
            }
        }
        match direction {
            Direction::Forward => self.front = pairs,
            Direction::Backward => self.back = pairs,
        }
        read.map(|_| ())
    }
}

impl Iterator for Pairs {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.front.is_empty()
            && let Err(error) = self.read(Direction::Forward)
        {
            return Some(Err(error));
        }
        // Pairs that were read from the end come last.
        self.front.pop_front().or_else(|| self.back.pop_back()).map(Ok)
    }
}

impl DoubleEndedIterator for Pairs {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.back.is_empty()
            && let Err(error) = self.read(Direction::Backward)
        {
            return Some(Err(error));
        }
        self.back.pop_front().or_else(|| self.front.pop_back()).map(Ok)
    }
}
