//! Appends to the log of a thread slot, and its segments. The persist order is in
//! `memtable/mod.rs`.

use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Result};
use lodestore_media::{Mutant, NvPtr, thread_slot};

use super::{Memtable, Segment, TAIL_COUNT, Written};
use crate::layout::{KIND_LOG, LogCount, log_count_ranges, store_log_count};
use crate::locks::lock;
use crate::space::reserve::Reserve;
use crate::wal::entry::batch::BatchRecord;
use crate::wal::entry::{Frame, Op, Payload, encode_header};
use crate::wal::segment::{
    SEGMENT_HEADER_BYTES, SegmentHeader, capacity_for, end_hint, end_hint_at, end_mark, place_record, records_end_of,
    spare_at,
};

/// Divisor: when space is scarce, a segment for deletes has at least this share of the usual bytes.
const DELETE_SEGMENT_DIVISOR: u64 = 16;
/// Bytes of a page of the medium.
const PAGE_BYTES: u64 = 4096;

impl Memtable {
    /// Appends one write and makes it the newest version of its key. Durable on return. Returns the
    /// position of the version that it replaces here. The caller holds the stripe of the key.
    /// Deletes may use the reserve. `keep`: a snapshot may need the replaced version.
    ///
    /// # Errors
    /// [`Error::Full`]; [`Error::Poisoned`] if a sync failed.
    #[inline]
    pub(crate) fn append(
        &self,
        op: &Op<'_>,
        hash: u64,
        (number, keep): (u64, bool),
        reserve: &Reserve,
    ) -> Result<Option<u64>> {
        let len = op.entry_len();
        let mut segment = lock(&self.tails[thread_slot() % TAIL_COUNT].0);
        loop {
            if let (Some(slot), Some(frame)) = (place_record(segment.end, len, segment.records_end), segment.frame) {
                let Some(header) = encode_header(frame, slot, number, true, op) else {
                    return Err(sequence_out_of_range());
                };
                if segment.end > segment.protect_at {
                    self.protect_records(&mut segment);
                }
                let at = segment.at.add(slot.at);
                if self.pool.mutant(Mutant::RecordNotFlushed) {
                    self.pool.store(at, &[header.as_bytes(), op.key, op.payload.bytes()].concat());
                } else {
                    self.pool.store_durable(at, &[header.as_bytes(), op.key, op.payload.bytes()]);
                }
                // The durable fence of the write. `publish_after` runs it when the index has found
                // the entry's place, before readers see the entry.
                let fence = || {
                    if !self.pool.mutant(Mutant::NoFenceBeforePublish) {
                        self.pool.fence();
                    }
                    self.pool.check()
                };
                let (before, end) = (segment.end, slot.at + len as u64);
                let old = self.publish_after(op.key, hash, (at.raw(), keep), || fence().map(|()| segment.end = end))?;
                self.mark_end(&mut segment);
                self.check_dram_after(before, end);
                return Ok(old);
            }
            let deletes = op.payload == Payload::Tombstone;
            self.begin_segment(&mut segment, len as u64, reserve, deletes)?;
        }
    }

    /// Appends a batch as one record. Returns the positions of its operations.
    /// `frees_space`: the batch frees space and may use the reserve.
    ///
    /// # Errors
    /// Same as [`Self::append`].
    pub(crate) fn append_batch(
        &self,
        ops: &[Op<'_>],
        number: u64,
        reserve: &Reserve,
        frees_space: bool,
    ) -> Result<Vec<u64>> {
        let full = || Error::Full { needed: u64::MAX, capacity: self.pool.options().capacity };
        let len = BatchRecord::len_of(ops).ok_or_else(full)?;
        let mut segment = lock(&self.tails[thread_slot() % TAIL_COUNT].0);
        loop {
            if let (Some(slot), Some(frame)) = (place_record(segment.end, len, segment.records_end), segment.frame) {
                let record = BatchRecord::encode(frame, slot, number, true, ops).ok_or_else(sequence_out_of_range)?;
                if segment.end > segment.protect_at {
                    self.protect_records(&mut segment);
                }
                self.pool.store_durable(segment.at.add(slot.at), &record.parts());
                if !self.pool.mutant(Mutant::BatchNotLogged) {
                    self.pool.fence();
                }
                self.pool.check()?;
                segment.end = slot.at + len as u64;
                self.mark_end(&mut segment);
                return Ok(record.positions().map(|place| segment.at.add(place).raw()).collect());
            }
            let deletes = frees_space || ops.iter().all(|op| op.payload == Payload::Tombstone);
            self.begin_segment(&mut segment, len as u64, reserve, deletes)?;
        }
    }

    /// Begins a new segment of a log, with space for a record of this length. The header becomes
    /// durable with the first record: without a whole header, no write in the segment was
    /// acknowledged.
    #[cold]
    pub(super) fn begin_segment(
        &self,
        segment: &mut Segment,
        len: u64,
        reserve: &Reserve,
        deletes: bool,
    ) -> Result<()> {
        if !self.is_shared {
            // The fence of the new extent makes the end mark and the end hint durable.
            self.flush_end(segment);
        }
        let least = capacity_for(len).max(self.segment_bytes / DELETE_SEGMENT_DIVISOR);
        let chunks = |bytes: u64| bytes.next_multiple_of(u64::from(self.pool.options().chunk_bytes));
        let (least, wanted) = (chunks(least), chunks(least.max(self.segment_bytes)));
        let (at, capacity) = if deletes {
            reserve.alloc_log_for_delete(&self.pool, (least, wanted))?
        } else {
            (reserve.alloc_for_put(&self.pool, wanted, KIND_LOG)?, wanted)
        };
        let nonce = xxhash_rust::xxh3::xxh3_64_with_seed(&at.raw().to_le_bytes(), self.seed ^ self.generation << 20);
        let frame = Frame { nonce, base: self.base };
        let slot = if self.is_shared { 0 } else { (thread_slot() % TAIL_COUNT) as u16 };
        let header = SegmentHeader {
            generation: self.generation,
            slot,
            number: segment.next,
            frame,
            capacity,
            previous_end: segment.end,
        };
        if self.is_shared {
            self.pool.store_parts(at, &[&header.encode()]);
        } else {
            self.pool.store_durable(at, &[&header.encode()]);
        }
        self.add_segment(Written { at, capacity, frame });
        let log = self.log_bytes.fetch_add(capacity, Ordering::Relaxed) + capacity;
        if log >= self.limits.log_bytes {
            self.full.store(true, Ordering::Relaxed);
        }
        self.check_dram_limit();
        *segment = Segment {
            at,
            records_end: records_end_of(capacity),
            spare_at: spare_at(capacity),
            end: SEGMENT_HEADER_BYTES as u64,
            spare: Some(Box::new(header)),
            is_counted: false,
            protect_at: SEGMENT_HEADER_BYTES as u64,
            next: segment.next + 1,
            frame: Some(frame),
            last: 0,
        };
        Ok(())
    }

    pub(super) fn add_segment(&self, segment: Written) {
        self.segments.rcu(|segments| {
            let place = segments.partition_point(|other| other.at.raw() < segment.at.raw());
            let (before, after) = segments.split_at(place);
            [before, &[segment], after].concat()
        });
    }

    /// Stores and flushes the spare copy of a header after the first record, which is durable, and
    /// the log count of the generation. The next record's fence makes both durable. Returns the
    /// ranges, which a shared log flushes with its group.
    #[cold]
    pub(super) fn store_spare(&self, segment: &mut Segment) -> Option<[(NvPtr, usize); 3]> {
        let copy = segment.spare.take()?.copy();
        let at = segment.at.add(segment.spare_at);
        self.count_segment(segment);
        let [first, second] = log_count_ranges(&self.pool, self.generation);
        let ranges = [(at, copy.len()), first, second];
        if self.is_shared {
            self.pool.store_parts(at, &[&copy]);
        } else {
            self.pool.store_durable(at, &[&copy]);
            ranges[1..].iter().for_each(|(at, len)| self.pool.flush(*at, *len));
        }
        Some(ranges)
    }

    /// Flushes the end hint of the earlier records. After the first record, also does
    /// [`Self::store_spare`]. The next record's fence makes all of this durable. Done for the
    /// second record that ends in each page. The loss of a log page in a power failure is thus
    /// detected.
    #[cold]
    pub(super) fn protect_records(&self, segment: &mut Segment) {
        self.store_spare(segment);
        let hint_at = segment.at.add(end_hint_at(segment.end, segment.spare_at));
        self.pool.flush(hint_at, size_of::<u64>());
        let start = segment.at.offset();
        segment.protect_at = (start + segment.end).next_multiple_of(PAGE_BYTES) - start;
    }

    /// Adds a segment whose first record is durable to the log count of the generation, once.
    pub(super) fn count_segment(&self, segment: &mut Segment) {
        if !std::mem::replace(&mut segment.is_counted, true) {
            let mut segments = lock(&self.durable_segments);
            *segments += 1;
            store_log_count(&self.pool, LogCount { generation: self.generation, segments: *segments });
        }
    }

    /// Stores the end mark after the last record of a log: the record is durable, with all before
    /// it. Damage to the record is then not mistaken for a record that was cut off. The mark is not
    /// flushed: no promise depends on it after a power failure.
    #[inline]
    pub(super) fn mark_end(&self, segment: &mut Segment) {
        if let Some(frame) = segment.frame {
            let mark = end_mark(frame, segment.end);
            self.pool.publish_u64(segment.at.add(segment.end), mark);
            let hint_at = segment.at.add(end_hint_at(segment.end, segment.spare_at));
            self.pool.publish_u64(hint_at, end_hint(mark, segment.end));
            if segment.spare.is_some() {
                self.store_early_spare(segment);
            }
        }
    }

    /// Stores the spare copy of a header and the log count as soon as the first record is durable,
    /// without a flush: [`Self::store_spare`] makes them durable.
    #[cold]
    pub(super) fn store_early_spare(&self, segment: &mut Segment) {
        if let Some(header) = &segment.spare {
            self.pool.store_parts(segment.at.add(segment.spare_at), &[&header.copy()]);
        }
        self.count_segment(segment);
    }

    /// Flushes the last end mark and end hint of each log. The caller's next fence makes them
    /// durable. Leaves out logs that are being written, and shared logs, whose groups sync whole
    /// pages. Called when the memtable is frozen, because no later record of these logs makes them
    /// durable. Also called before each record of the manifest: a log that has lost all records
    /// from an earlier one on is then known to be damaged.
    pub(crate) fn flush_ends(&self) {
        if self.is_shared {
            return;
        }
        for segment in self.tails.iter().filter_map(|tail| tail.0.try_lock().ok()) {
            self.flush_end(&segment);
        }
    }

    /// Flushes the end mark and the end hint of a segment. The caller's next fence makes them
    /// durable.
    pub(super) fn flush_end(&self, segment: &Segment) {
        if segment.frame.is_some() && segment.end > SEGMENT_HEADER_BYTES as u64 {
            self.pool.flush(segment.at.add(segment.end), size_of::<u64>());
            let hint_at = segment.at.add(end_hint_at(segment.end, segment.spare_at));
            self.pool.flush(hint_at, size_of::<u64>());
        }
    }
}

#[cold]
pub(super) fn sequence_out_of_range() -> Error {
    Error::corrupt("log", "a number or a length is out of its segment's reach")
}
