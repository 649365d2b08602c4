//! Appends to the log that all threads share, on media whose fence writes pages
//! ([`crate::tree::commit`]).
//!
//! This module only stores a record. `tree/commit.rs` makes it durable with its group.
//!
//! Invariants
//! 1. A segment begins only when everything before it in the log is durable, including the log of
//!    older memtables. A hole that a crash leaves is therefore in the very last segment. The reader
//!    of that segment drops the records after the hole. The remaining records are a prefix.
//! 2. A record has the flag *durable* only if everything before it in its segment is durable.

use lodestore_contract::{Error, Result};
use lodestore_media::NvPtr;

use super::log::sequence_out_of_range;
use super::{Memtable, Segment};
use crate::locks::lock;
use crate::space::reserve::Reserve;
use crate::sst::hash;
use crate::wal::entry::batch::BatchRecord;
use crate::wal::entry::{Op, Payload, encode_header};
use crate::wal::segment::place_record;

/// The contents of one record.
#[derive(Clone, Copy)]
pub(crate) enum RecordContent<'a, 'b> {
    One(&'a Op<'b>),
    /// With whether it may use the reserve.
    Batch(&'a [Op<'b>], bool),
}

impl RecordContent<'_, '_> {
    fn len(&self) -> Option<usize> {
        match self {
            Self::One(op) => Some(op.entry_len()),
            Self::Batch(ops, _) => BatchRecord::len_of(ops),
        }
    }

    /// Returns whether it frees space and may use the reserve.
    fn frees_space(&self) -> bool {
        match self {
            Self::One(op) => op.payload == Payload::Tombstone,
            Self::Batch(ops, frees_space) => *frees_space || ops.iter().all(|op| op.payload == Payload::Tombstone),
        }
    }
}

/// Positions of the entries of a record.
pub(crate) enum Positions {
    One(u64),
    Batch(Vec<u64>),
}

/// A record that is stored and not yet durable.
pub(crate) struct Stored {
    pub(crate) number: u64,
    pub(crate) positions: Positions,
    /// The range to flush for it, reported once: the record and the steps skipped before it. For
    /// the first record of a segment, also the header.
    pub(crate) range: (NvPtr, usize),
    /// The spare copy of its segment's header and the log count, to flush after a first record that
    /// is durable.
    pub(crate) spare: Option<[(NvPtr, usize); 3]>,
}

/// The calls of an append to the log that all threads share.
pub(crate) trait Log {
    /// Returns the next number. Called when the record has its position.
    fn next(&self) -> u64;
    /// Returns the highest durable number.
    fn durable(&self) -> u64;
    /// Makes all earlier appends durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    fn commit_pending(&self) -> Result<()>;
}

impl Memtable {
    /// Stores a record at the end of the log. One append runs at a time (`tree/commit.rs`).
    ///
    /// # Errors
    /// [`Error::Full`]; [`Error::Poisoned`] if earlier records could not be made durable.
    pub(crate) fn append_shared(
        &self,
        content: RecordContent<'_, '_>,
        log: &dyn Log,
        reserve: &Reserve,
    ) -> Result<Stored> {
        let full = || Error::Full { needed: u64::MAX, capacity: self.pool.options().capacity };
        let len = content.len().ok_or_else(full)?;
        let mut segment = lock(&self.tails[0].0);
        loop {
            if let (Some(slot), Some(frame)) = (place_record(segment.end, len, segment.records_end), segment.frame) {
                let number = log.next();
                let durable = segment.last <= log.durable();
                // Its first record is durable by now, with its header.
                let is_due = durable && segment.last != 0 && segment.spare.is_some();
                let spare = if is_due { self.store_spare(&mut segment) } else { None };
                let at = segment.at.add(slot.at);
                let positions = match content {
                    RecordContent::One(op) => {
                        let header =
                            encode_header(frame, slot, number, durable, op).ok_or_else(sequence_out_of_range)?;
                        self.pool.store_parts(at, &[header.as_bytes(), op.key, op.payload.bytes()]);
                        Positions::One(at.raw())
                    }
                    RecordContent::Batch(ops, _) => {
                        let record =
                            BatchRecord::encode(frame, slot, number, durable, ops).ok_or_else(sequence_out_of_range)?;
                        self.pool.store_parts(at, &record.parts());
                        Positions::Batch(record.positions().map(|place| segment.at.add(place).raw()).collect())
                    }
                };
                let (before, end) = (segment.end, slot.at + len as u64);
                self.check_dram_after(before, end);
                return Ok(Stored { number, positions, range: segment.append_record(number, end), spare });
            }
            log.commit_pending()?;
            if segment.last != 0 && segment.last <= log.durable() {
                self.mark_end(&mut segment);
            }
            self.begin_segment(&mut segment, len as u64, reserve, content.frees_space())?;
        }
    }

    /// Stores the end mark of the log if the last record has this number, which is durable with all
    /// before it. Returns whether it did. Stores none during a concurrent append: the appended
    /// record is stored at its position.
    pub(crate) fn mark_shared(&self, number: u64) -> bool {
        // The lock's holder may wait for this leader, or lead itself.
        let Ok(mut segment) = self.tails[0].0.try_lock() else { return false };
        let is_last = segment.last == number && number != 0;
        if is_last {
            self.mark_end(&mut segment);
        }
        is_last
    }

    /// Makes an entry of this memtable's log the newest version of its key. Returns the position of
    /// the version that it replaces. Called by one thread at a time, in the order of the numbers.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the log was changed from outside.
    pub(crate) fn publish_at(&self, at: u64, keep: bool) -> Result<Option<u64>> {
        let entry = super::Records(&self.pool).entry(at)?;
        Ok(self.publish(entry.key(), hash(entry.key()), at, keep))
    }
}

impl Segment {
    /// Records the end of a record. Returns the range from the end of the record before, or from
    /// the header for the first record.
    fn append_record(&mut self, number: u64, end: u64) -> (NvPtr, usize) {
        let from = if self.last == 0 { 0 } else { self.end };
        (self.end, self.last) = (end, number);
        (self.at.add(from), (end - from) as usize)
    }
}
