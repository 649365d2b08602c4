//! Appending to the one log that all threads share, where a fence writes pages ([`crate::commit`]).
//!
//! A record is stored here and nothing more: `commit.rs` makes it durable with its group.
//!
//! Invariants
//! 1. A segment is begun when all before it in the log, that of older memtables included, is durable. So a hole that a crash leaves is in the last
//!    segment of all, and what stands behind it there is dropped by its reader: what is left is a prefix.
//! 2. A record bears the mark *durable* only where all before it in its segment is.

use lodestore_contract::{Error, Result};
use lodestore_media::NvPtr;

use super::log::out_of_reach;
use super::{Memtable, Segment};
use crate::entry::batch::BatchRecord;
use crate::entry::{Op, Payload, encode_header};
use crate::inner::lock;
use crate::reserve::Reserve;
use crate::segment::place;
use crate::table::hash;

/// What is appended as one record.
#[derive(Clone, Copy)]
pub(crate) enum What<'a, 'b> {
    One(&'a Op<'b>),
    /// With whether it may take of the reserve.
    Batch(&'a [Op<'b>], bool),
}

impl What<'_, '_> {
    fn len(&self) -> Option<usize> {
        match self {
            Self::One(op) => Some(op.entry_len()),
            Self::Batch(ops, _) => BatchRecord::len_of(ops),
        }
    }

    /// Whether it makes room, and may take of the reserve.
    fn makes_room(&self) -> bool {
        match self {
            Self::One(op) => op.payload == Payload::Tombstone,
            Self::Batch(ops, spare) => *spare || ops.iter().all(|op| op.payload == Payload::Tombstone),
        }
    }
}

/// Positions of the entries of a record.
pub(crate) enum Places {
    One(u64),
    Batch(Vec<u64>),
}

/// A record that was stored and is not durable.
pub(crate) struct Stored {
    pub(crate) number: u64,
    pub(crate) places: Places,
    /// What must be flushed for it, and is not told of again: the record, what was left out before it, its segment's header.
    pub(crate) range: (NvPtr, usize),
    /// The spare copy of its segment's header and the log count, to flush after a first record that
    /// is durable.
    pub(crate) spare: Option<[(NvPtr, usize); 3]>,
}

/// What an append asks of the log that all threads share.
pub(crate) trait Log {
    /// The next number of the order; called when the record has its place.
    fn next(&self) -> u64;
    /// The highest number that is durable.
    fn durable(&self) -> u64;
    /// Makes all durable that was appended so far.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    fn settle(&self) -> Result<()>;
}

impl Memtable {
    /// Stores a record at the end of the log. One append at a time (`commit.rs`).
    ///
    /// # Errors
    /// [`Error::Full`]; [`Error::Poisoned`] where what stands before could not be made durable.
    pub(crate) fn append_shared(&self, what: What<'_, '_>, log: &dyn Log, reserve: &Reserve) -> Result<Stored> {
        let full = || Error::Full { needed: u64::MAX, capacity: self.pool.options().capacity };
        let len = what.len().ok_or_else(full)?;
        let mut segment = lock(&self.tails[0].0);
        loop {
            if let (Some(slot), Some(frame)) = (place(segment.end, len, segment.room), segment.frame) {
                let number = log.next();
                let durable = segment.last <= log.durable();
                // By then its first record is durable, with its header.
                let is_due = durable && segment.last != 0 && segment.spare.is_some();
                let spare = if is_due { self.store_spare(&mut segment) } else { None };
                let at = segment.at.add(slot.at);
                let places = match what {
                    What::One(op) => {
                        let header = encode_header(frame, slot, number, durable, op).ok_or_else(out_of_reach)?;
                        self.pool.store_parts(at, &[header.as_bytes(), op.key, op.payload.bytes()]);
                        Places::One(at.raw())
                    }
                    What::Batch(ops, _) => {
                        let record = BatchRecord::encode(frame, slot, number, durable, ops).ok_or_else(out_of_reach)?;
                        self.pool.store_parts(at, &record.parts());
                        Places::Batch(record.places().map(|place| segment.at.add(place).raw()).collect())
                    }
                };
                let (before, end) = (segment.end, slot.at + len as u64);
                self.look_behind(before, end);
                return Ok(Stored { number, places, range: segment.take(number, end), spare });
            }
            log.settle()?;
            if segment.last != 0 && segment.last <= log.durable() {
                self.mark_end(&mut segment);
            }
            self.begin_segment(&mut segment, len as u64, reserve, what.makes_room())?;
        }
    }

    /// Stores the end mark of the log, if its last record is that of `number`, which is durable with all before it; whether it is. Where somebody appends meanwhile there is none:
    /// what is appended stands in its place.
    pub(crate) fn mark_shared(&self, number: u64) -> bool {
        // Its holder may wait for this leader, or lead itself.
        let Ok(mut segment) = self.tails[0].0.try_lock() else { return false };
        let is_last = segment.last == number && number != 0;
        if is_last {
            self.mark_end(&mut segment);
        }
        is_last
    }

    /// Makes an entry of this memtable's log the newest version of its key; where the one stands that it takes the place of. One at a time, in the order of the numbers.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where somebody changed the log behind our back.
    pub(crate) fn publish_at(&self, at: u64, keep: bool) -> Result<Option<u64>> {
        let entry = super::Records(&self.pool).entry(at)?;
        Ok(self.publish(entry.key(), hash(entry.key()), at, keep))
    }
}

impl Segment {
    /// Takes note of a record that ends at `end`; the range from where the last one ended, the header included for the first.
    fn take(&mut self, number: u64, end: u64) -> (NvPtr, usize) {
        let from = if self.last == 0 { 0 } else { self.end };
        (self.end, self.last) = (end, number);
        (self.at.add(from), (end - from) as usize)
    }
}
