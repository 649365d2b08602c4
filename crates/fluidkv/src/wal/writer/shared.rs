//! Appends to the log that all threads share, on media whose fence writes pages
//! (`tree/group_commit.rs`).
//!
//! A record is only stored here. `tree/group_commit.rs` makes it durable with its group.
//!
//! Invariants
//! 1. A segment begins only when everything before it in the log is durable, including the log of
//!    older memtables. A hole that a crash leaves is therefore in the very last segment. The reader
//!    of that segment drops the records after the hole. The remaining records are a prefix.
//! 2. A record has the flag *durable* only if everything before it in its segment is durable.

use lodestore_contract::Result;
use lodestore_media::{NvPtr, Pool};

use super::segments::OpenSegment;
use super::{DRAM_CHECK_LOG_BYTES, LogWriter, OpenLog, Reserved, number_out_of_range};
use crate::wal::entry::batch::{BatchRecord, batch_len, only_deletes};
use crate::wal::entry::{Op, encode_header};

/// The contents of one record.
#[derive(Clone, Copy)]
pub(crate) enum RecordContent<'a, 'b> {
    One(&'a Op<'b>),
    /// With whether it may use the reserve.
    Batch(&'a [Op<'b>], bool),
}

impl RecordContent<'_, '_> {
    /// Returns the bytes of the record.
    ///
    /// # Errors
    /// [`Error::Full`] if no record can have them.
    pub(crate) fn len(&self, pool: &Pool) -> Result<usize> {
        match self {
            Self::One(op) => Ok(op.entry_len()),
            Self::Batch(ops, _) => batch_len(pool, ops),
        }
    }

    /// Returns whether it frees space and may use the reserve.
    pub(crate) fn frees_space(&self) -> bool {
        match self {
            Self::One(op) => op.is_delete(),
            Self::Batch(ops, frees_space) => *frees_space || only_deletes(ops),
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
    pub(crate) positions: Positions,
    /// The range to flush for it, reported once: the record and the steps skipped before it. For
    /// the first record of a segment, also the header.
    pub(crate) range: (NvPtr, usize),
    /// The spare copy of its segment's header and the log count, to flush after a first record that
    /// is durable.
    pub(crate) spare: Option<[(NvPtr, usize); 3]>,
    /// Whether the memtable should check its DRAM.
    pub(crate) checks_dram: bool,
}

impl OpenLog<'_> {
    /// Stores the end mark of the current segment if its last record is durable: a new segment
    /// follows. `durable`: the highest durable number.
    pub(crate) fn mark_durable_end(&mut self, durable: u64) {
        if self.segment.last != 0 && self.segment.last <= durable {
            self.writer.mark_end(&mut self.segment);
        }
    }

    /// Stores the reserved record under a number, and ends the log after it. One append runs at a
    /// time (`tree/group_commit.rs`). `durable`: the highest durable number.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`] if the number is out of the segment's range.
    pub(crate) fn store_shared(
        &mut self,
        reserved: &Reserved,
        content: RecordContent<'_, '_>,
        (number, durable): (u64, u64),
    ) -> Result<Stored> {
        let (segment, pool) = (&mut *self.segment, &self.writer.pool);
        let is_durable = segment.last <= durable;
        // Its first record is durable by now, with its header.
        let is_due = is_durable && segment.last != 0 && segment.spare.is_some();
        let spare = if is_due { self.writer.store_spare(segment) } else { None };
        let positions = match content {
            RecordContent::One(op) => {
                let header = encode_header(reserved.frame, reserved.slot, number, is_durable, op);
                let header = header.ok_or_else(number_out_of_range)?;
                pool.store_parts(reserved.at, &[header.as_bytes(), op.key, op.payload.bytes()]);
                Positions::One(reserved.position())
            }
            RecordContent::Batch(ops, _) => {
                let record = BatchRecord::encode(reserved.frame, reserved.slot, number, is_durable, ops);
                let record = record.ok_or_else(number_out_of_range)?;
                pool.store_parts(reserved.at, &record.parts());
                Positions::Batch(record.positions().map(|place| segment.at.add(place).raw()).collect())
            }
        };
        let checks_dram = reserved.checked_to / DRAM_CHECK_LOG_BYTES != reserved.end / DRAM_CHECK_LOG_BYTES;
        Ok(Stored { positions, range: segment.append_record(number, reserved.end), spare, checks_dram })
    }
}

impl LogWriter {
    /// Stores the end mark of the log if the last record has this number, which is durable with all
    /// before it. Returns whether it did. Stores none during a concurrent append: the appended
    /// record is stored at its position.
    pub(crate) fn mark_shared_end(&self, number: u64) -> bool {
        // The lock's holder may wait for this leader, or lead itself.
        let Ok(mut segment) = self.logs[0].0.try_lock() else { return false };
        let is_last = segment.last == number && number != 0;
        if is_last {
            self.mark_end(&mut segment);
        }
        is_last
    }
}

impl OpenSegment {
    /// Records the end of a record. Returns the range from the end of the record before, or from
    /// the header for the first record.
    fn append_record(&mut self, number: u64, end: u64) -> (NvPtr, usize) {
        let from = if self.last == 0 { 0 } else { self.end };
        (self.end, self.last) = (end, number);
        (self.at.add(from), (end - from) as usize)
    }
}
