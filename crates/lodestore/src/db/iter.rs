//! Lazy walks over a range of keys, from both ends.

use std::collections::VecDeque;
use std::ops::Bound;

use lodestore_contract::{Direction, Result, ScanRange, Visit};

use super::Value;
use super::keyspace::Keyspace;
use super::keyspace::key::Part;

/// Pairs that are read from the store together.
const PAIRS_PER_READ: usize = 128;

/// A lazy walk over the pairs of a range, in the order of their keys, from both ends.
///
/// Pairs are read in groups, each group at a moment of its own. A write that returned before the
/// walk began is shown. A later write may be shown.
pub struct Pairs {
    keyspace: Keyspace,
    /// The parts of the range that were not read yet, in the order of their keys.
    parts: VecDeque<Part>,
    front: VecDeque<(Value, Value)>,
    /// Pairs that were read from the end, the last key first.
    back: VecDeque<(Value, Value)>,
}

impl Pairs {
    /// Begins a walk.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the engine keeps no order;
    /// [`Error::KeyspaceDropped`](crate::Error::KeyspaceDropped).
    pub(super) fn begin(keyspace: Keyspace, range: &ScanRange) -> Result<Self> {
        // An engine without an order says so at once.
        keyspace.store().scan_each(&ScanRange::all().limit(0), &mut |_, _| Visit::Stop)?;
        keyspace.check_alive()?;
        let parts = keyspace.map.split_range(range).into();
        Ok(Self { keyspace, parts, front: VecDeque::new(), back: VecDeque::new() })
    }

    /// Reads the next group from one end, if anything is left there.
    ///
    /// # Errors
    /// Those of a scan. The walk then ends after the pairs that were read before the error.
    fn read(&mut self, direction: Direction) -> Result<()> {
        let (pairs, parts) = match direction {
            Direction::Forward => (&mut self.front, &mut self.parts),
            Direction::Backward => (&mut self.back, &mut self.parts),
        };
        while pairs.is_empty() {
            let part = match direction {
                Direction::Forward => parts.front_mut(),
                Direction::Backward => parts.back_mut(),
            };
            let Some(part) = part else { break };
            match (read_part(&self.keyspace, part, direction, pairs), direction) {
                (Ok(false), _) => {}
                (Ok(true), Direction::Forward) => drop(parts.pop_front()),
                (Ok(true), Direction::Backward) => drop(parts.pop_back()),
                (Err(error), _) => {
                    parts.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// Reads the next group from one end of a part, and shortens the part. Returns whether the whole
/// part is read.
fn read_part(
    keyspace: &Keyspace,
    part: &mut Part,
    direction: Direction,
    pairs: &mut VecDeque<(Value, Value)>,
) -> Result<bool> {
    if part.range.excludes_all() {
        return Ok(true);
    }
    let range = ScanRange { direction, limit: PAIRS_PER_READ, ..part.range.clone() };
    let mut last = Vec::new();
    let read = keyspace.store().scan_each(&range, &mut |key, value| {
        pairs.push_back((Value::from(key[part.prefix_len..].to_vec()), Value::from(value.to_vec())));
        if pairs.len() == PAIRS_PER_READ {
            last = key.to_vec();
        }
        Visit::More
    });
    keyspace.check_alive().inspect_err(|_| pairs.clear())?;
    read?;
    match direction {
        _ if pairs.len() < PAIRS_PER_READ => return Ok(true),
        Direction::Forward => part.range.from = Bound::Excluded(last),
        Direction::Backward => part.range.to = Bound::Excluded(last),
    }
    Ok(false)
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
