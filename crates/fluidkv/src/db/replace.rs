//! Replaces stored values that are unchanged since they were read: for a separator's owner, which
//! moves values and then their stored answers.
//!
//! Persist order: none of its own. The replacements are one log record, written like a batch of
//! ordinary writes, **fence**, or a group's sync; then its entries are published.
//!
//! Invariants
//! 1. The stripes of all keys of a record are held from their lookup until the record is stored.
//!    The record is published before the stripes are released. Where writers wait for groups, it is
//!    published before any writer that read first looks up these keys (`tree/group_commit.rs`,
//!    Invariant 3). No write between the lookup and the replacement is lost.
//! 2. A replacement waits for no flush and frees no space: a flush may wait for it. Its log may use
//!    the reserve as deletes may, since it frees space elsewhere.

use std::collections::HashSet;
use std::sync::Arc;

use lodestore_contract::{Expiry, Result};

use crate::db::open_store::Inner;
use crate::db::read::check_key;
use crate::planted;
use crate::sst::{Slot, hash};
use crate::version::known::Known;
use crate::version::range::Ranges;
use crate::version::tables::LookupOptions;
use crate::version::view::View;
use crate::wal::entry::{Op, Payload};

/// Maximum number of keys of a record, and bytes of log at which no more keys are added.
const REPLACED_TOGETHER_MAX: (usize, usize) = (256, 64 << 10);

/// A stored value that replaces another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replace<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The exact bytes that the key must have now.
    pub old: &'a [u8],
    /// The new bytes, with the same expiry.
    pub new: &'a [u8],
}

impl<'a> Replace<'a> {
    fn op(&self, expiry: Option<Expiry>) -> Op<'a> {
        Op { key: self.key, payload: Payload::Value(self.new), expiry }
    }
}

/// Returns how many of these go into one record: no key twice.
fn count_together(moves: &[Replace<'_>], len: impl Fn(&Replace<'_>) -> usize) -> usize {
    let (mut keys, mut bytes) = (HashSet::new(), 0);
    for replace in moves {
        if keys.len() == REPLACED_TOGETHER_MAX.0 || bytes >= REPLACED_TOGETHER_MAX.1 || !keys.insert(replace.key) {
            break;
        }
        bytes += len(replace);
    }
    keys.len()
}

/// The versions of keys in the tables, looked up before their stripes are locked: no writer then
/// waits for lookups in many tables.
struct Prelookup {
    ranges: Arc<Ranges>,
    /// For each move, whether the newest version in the tables equals the old bytes, and its
    /// expiry; `None` if only a lookup can decide.
    seen: Vec<Option<TableVersion>>,
}

#[derive(Debug, Clone, Copy)]
enum TableVersion {
    Same(Option<u64>),
    Other,
}

impl Prelookup {
    /// Looks up these keys in the tables of a view.
    fn look_up(view: &View, how: LookupOptions, moves: &[Replace<'_>]) -> Self {
        let mut order: Vec<_> = (0..moves.len()).collect();
        order.sort_unstable_by_key(|place| moves[*place].key);
        let keys: Vec<_> = order.iter().map(|place| moves[*place].key).collect();
        let mut seen = vec![Some(TableVersion::Other); moves.len()];
        view.ranges.find_each(&keys, how, how.reads, &mut |at, known| {
            let place = order[at];
            seen[place] = match known {
                Ok(Known::Value(value, expiry)) if value == moves[place].old => Some(TableVersion::Same(expiry)),
                Ok(Known::Value(..) | Known::Deleted) => Some(TableVersion::Other),
                Ok(Known::Pointer(..)) | Err(_) => None,
            };
        });
        Self { ranges: Arc::clone(&view.ranges), seen }
    }

    /// Returns the result for the move at `place` in a view whose memtables do not have that key.
    fn of(&self, view: &View, place: usize) -> Option<TableVersion> {
        if Arc::ptr_eq(&self.ranges, &view.ranges) { self.seen[place] } else { None }
    }
}

impl Inner {
    /// See [`crate::FluidKv::replace`].
    pub(crate) fn replace(&self, moves: &[Replace<'_>]) -> Result<Vec<bool>> {
        for replace in moves {
            check_key(replace.key)?;
            self.check_value(replace.new)?;
        }
        let _guard = self.enter_write()?;
        let prelookup = Prelookup::look_up(&self.view.load(), self.lookup_options(), moves);
        let (mut rest, mut replaced) = (moves, Vec::with_capacity(moves.len()));
        while !rest.is_empty() {
            // Includes bytes for an expiry, which is not known yet.
            let record;
            (record, rest) =
                rest.split_at(count_together(rest, |replace| self.logged_len(&replace.op(None)) + size_of::<u64>()));
            replaced.extend(self.replace_together(record, &prelookup, replaced.len())?);
        }
        Ok(replaced)
    }

    /// Replaces the unchanged values of one record, no key twice. Its first move is at index
    /// `first` of all.
    fn replace_together(&self, moves: &[Replace<'_>], prelookup: &Prelookup, first: usize) -> Result<Vec<bool>> {
        let hashes = || moves.iter().map(|replace| hash(replace.key));
        let writing = self.order.writing();
        let stripes = self.order.lock_all(hashes());
        self.log.as_ref().map_or(Ok(()), |log| self.wait_published(log, hashes()))?;
        let view = self.view.load();
        let looked = self.check_and_replace(&view, moves, (prelookup, first));
        drop((stripes, view, writing));
        let (replaced, number) = looked?;
        if let (Some(log), Some(number)) = (self.group_log(), number) {
            self.wait_committed(log, number)?;
        }
        let full = self.view.load().full_generation();
        if let Some(generation) = full {
            self.rotate_or(generation, || ());
        }
        Ok(replaced)
    }

    /// Looks up these keys, whose stripes are held, and stores replacements for unchanged values.
    /// Returns the number of the record if all threads share a log.
    fn check_and_replace(
        &self,
        view: &View,
        moves: &[Replace<'_>],
        prelookup: (&Prelookup, usize),
    ) -> Result<(Vec<bool>, Option<u64>)> {
        let (mut replaced, mut ops) = (Vec::with_capacity(moves.len()), Vec::with_capacity(moves.len()));
        for (place, replace) in moves.iter().enumerate() {
            let same = self.has_old_bytes(view, replace, (prelookup.0, prelookup.1 + place))?;
            replaced.push(same.is_some());
            ops.extend(same.map(|expiry| replace.op(expiry.map(Expiry::at_millis))));
        }
        let number = if ops.is_empty() {
            None
        } else {
            self.with_small(&ops, self.sizes.value_threshold, |ops| self.write_moved(&view.active, ops))?
        };
        Ok((replaced, number))
    }

    /// Returns the expiry of a key, whose stripe is held, if it has the bytes that a move replaces.
    #[expect(clippy::option_option, reason = "whether, and an expiry that there may be")]
    fn has_old_bytes(
        &self,
        view: &View,
        replace: &Replace<'_>,
        prelookup: (&Prelookup, usize),
    ) -> Result<Option<Option<u64>>> {
        let (slot, hash) = (Slot::new(), hash(replace.key));
        let known = match view.find_buffered(replace.key, hash, u64::MAX)? {
            Some(known) => Some(known),
            None => match prelookup.0.of(view, prelookup.1) {
                Some(TableVersion::Same(expiry)) => Some(Known::Value(replace.old, expiry)),
                Some(TableVersion::Other) if !self.pool.has_fault(planted::REPLACED_BLINDLY) => None,
                _ => view.ranges.find(replace.key, hash, self.lookup_options(), &slot)?,
            },
        };
        let now = known.map_or(Ok(None), |known| self.value_of(replace.key, known))?;
        let same = now.filter(|(value, _)| *value == replace.old || self.pool.has_fault(planted::REPLACED_BLINDLY));
        Ok(same.map(|(_, expiry)| expiry))
    }
}
