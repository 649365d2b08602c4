//! Replacing stored values that are still what somebody read: for a separator's owner, who moves values and then what stands for them.
//!
//! Persist order: none of its own. What is replaced is one record of the log, written as a batch of ordinary writes is, **fence**, or a group's sync; then its entries
//! are published.
//!
//! Invariants
//! 1. The stripes of all keys of a record are held from the look at them until it is stored; it is published before they are let go, or, where writers wait for groups, before
//!    anybody looks at these keys who writes what it read (`commit.rs`, Invariant 3). So no write between the look and the replacement is lost.
//! 2. It waits for no flush and makes no room: a flush may wait for it. Its log may take of the reserve as deletes may, since it makes room elsewhere.

use std::collections::HashSet;
use std::sync::Arc;

use lodestore_contract::{Expiry, Result};
use lodestore_media::Mutant;

use crate::entry::{Op, Payload};
use crate::inner::Inner;
use crate::read::check_key;
use crate::table::{Slot, hash};
use crate::tables::How;
use crate::view::{Known, Ranges, View};

/// Most keys of a record, and bytes of log from which it takes no more of them.
const TOGETHER: (usize, usize) = (256, 64 << 10);

/// A stored value that is to take the place of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replace<'a> {
    /// The key.
    pub key: &'a [u8],
    /// What it must have now, to the byte.
    pub old: &'a [u8],
    /// What it is to have then, until the same time if it expires.
    pub new: &'a [u8],
}

impl<'a> Replace<'a> {
    fn op(&self, expiry: Option<Expiry>) -> Op<'a> {
        Op { key: self.key, payload: Payload::Value(self.new), expiry }
    }
}

/// How many of these go into one record: none that has a key twice.
fn together(moves: &[Replace<'_>], len: impl Fn(&Replace<'_>) -> usize) -> usize {
    let (mut keys, mut bytes) = (HashSet::new(), 0);
    for replace in moves {
        if keys.len() == TOGETHER.0 || bytes >= TOGETHER.1 || !keys.insert(replace.key) {
            break;
        }
        bytes += len(replace);
    }
    keys.len()
}

/// What tables had of keys before their stripes were locked: no writer waits for look-ups in many tables.
struct Ahead {
    ranges: Arc<Ranges>,
    /// Of each move whether the newest version in the tables is a value of just the old bytes, and its expiry; none where only a look-up can tell.
    seen: Vec<Option<Seen>>,
}

#[derive(Debug, Clone, Copy)]
enum Seen {
    Same(Option<u64>),
    Other,
}

impl Ahead {
    /// What the tables of a view have of these.
    fn look(view: &View, how: How, moves: &[Replace<'_>]) -> Self {
        let mut order: Vec<_> = (0..moves.len()).collect();
        order.sort_unstable_by_key(|place| moves[*place].key);
        let keys: Vec<_> = order.iter().map(|place| moves[*place].key).collect();
        let mut seen = vec![Some(Seen::Other); moves.len()];
        view.ranges.find_each(&keys, how, how.reads, &mut |at, known| {
            let place = order[at];
            seen[place] = match known {
                Ok(Known::Value(value, expiry)) if value == moves[place].old => Some(Seen::Same(expiry)),
                Ok(Known::Value(..) | Known::Deleted) => Some(Seen::Other),
                Ok(Known::Pointer(..)) | Err(_) => None,
            };
        });
        Self { ranges: Arc::clone(&view.ranges), seen }
    }

    /// What it says of the move at `place` in a view whose memtables have nothing of that key.
    fn of(&self, view: &View, place: usize) -> Option<Seen> {
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
        let ahead = Ahead::look(&self.view.load(), self.how(), moves);
        let (mut rest, mut replaced) = (moves, Vec::with_capacity(moves.len()));
        while !rest.is_empty() {
            // With room for an expiry, which is not known yet.
            let record;
            (record, rest) =
                rest.split_at(together(rest, |replace| self.logged_len(&replace.op(None)) + size_of::<u64>()));
            replaced.extend(self.replace_together(record, &ahead, replaced.len())?);
        }
        Ok(replaced)
    }

    /// Replaces what is still there of a record's worth, no key twice; the first of it is at place `first` of all.
    fn replace_together(&self, moves: &[Replace<'_>], ahead: &Ahead, first: usize) -> Result<Vec<bool>> {
        let hashes = || moves.iter().map(|replace| hash(replace.key));
        let writing = self.order.writing();
        let stripes = self.order.lock_all(hashes());
        self.log.as_ref().map_or(Ok(()), |log| self.wait_published(log, hashes()))?;
        let view = self.view.load();
        let looked = self.look_and_replace(&view, moves, (ahead, first));
        drop((stripes, view, writing));
        let (replaced, number) = looked?;
        if let (Some(log), Some(number)) = (self.group_log(), number) {
            self.wait_committed(log, number)?;
        }
        let (generation, full) = {
            let view = self.view.load();
            (view.active.generation, view.active.is_full())
        };
        if full {
            self.rotate_or(generation, || ());
        }
        Ok(replaced)
    }

    /// Looks at these keys, whose stripes are held, and stores what takes the place of what is still there; the number of its record, if all threads share a log.
    fn look_and_replace(
        &self,
        view: &View,
        moves: &[Replace<'_>],
        ahead: (&Ahead, usize),
    ) -> Result<(Vec<bool>, Option<u64>)> {
        let (mut replaced, mut ops) = (Vec::with_capacity(moves.len()), Vec::with_capacity(moves.len()));
        for (place, replace) in moves.iter().enumerate() {
            let same = self.has_still(view, replace, (ahead.0, ahead.1 + place))?;
            replaced.push(same.is_some());
            ops.extend(same.map(|expiry| replace.op(expiry.map(Expiry::at_millis))));
        }
        let number = if ops.is_empty() {
            None
        } else {
            self.with_small(&ops, self.sizes.value_threshold, |ops| self.store_moved(view, ops))?
        };
        Ok((replaced, number))
    }

    /// Whether a key, whose stripe is held, has what a move is to replace; its expiry then.
    #[expect(clippy::option_option, reason = "whether, and an expiry that there may be")]
    fn has_still(&self, view: &View, replace: &Replace<'_>, ahead: (&Ahead, usize)) -> Result<Option<Option<u64>>> {
        let (slot, hash) = (Slot::new(), hash(replace.key));
        let known = match view.find_buffered(replace.key, hash, u64::MAX)? {
            Some(known) => Some(known),
            None => match ahead.0.of(view, ahead.1) {
                Some(Seen::Same(expiry)) => Some(Known::Value(replace.old, expiry)),
                Some(Seen::Other) if !self.pool.mutant(Mutant::ReplacedBlindly) => None,
                _ => view.ranges.find(replace.key, hash, self.how(), &slot)?,
            },
        };
        let now = known.map_or(Ok(None), |known| self.value_of(replace.key, known))?;
        let same = now.filter(|(value, _)| *value == replace.old || self.pool.mutant(Mutant::ReplacedBlindly));
        Ok(same.map(|(_, expiry)| expiry))
    }

    /// Writes a record that moves what is stored, and publishes it where no group does.
    fn store_moved(&self, view: &View, ops: &[Op<'_>]) -> Result<Option<u64>> {
        if let Some(log) = &self.log {
            return self.apply_batch_shared(log, ops, true).map(Some);
        }
        let memtable = &view.active;
        let number = self.order.next();
        let places = memtable.append_batch(ops, number, &self.reserve, true)?;
        if self.separator.is_some() {
            memtable.apart.note_moved(&places);
        }
        let keep = self.order.has_snapshots();
        for (op, at) in ops.iter().zip(places) {
            let old = memtable.publish(op.key, hash(op.key), at, keep);
            self.note_replaced(memtable, old);
        }
        memtable.look();
        Ok(None)
    }
}
