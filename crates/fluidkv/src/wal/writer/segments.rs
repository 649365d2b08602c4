//! The segments of the logs of a generation: their begin, and the data that proves their end.

use std::sync::atomic::Ordering;

use lodestore_contract::Result;
use lodestore_contract::threads::lock;
use lodestore_media::{NvPtr, thread_slot};

use super::{LOG_COUNT, LogWriter, Written};
use crate::layout::{KIND_LOG, LogCount, log_count_ranges, store_log_count};
use crate::space::reserve::Reserve;
use crate::wal::entry::Frame;
use crate::wal::segment::{
    SEGMENT_HEADER_BYTES, SegmentHeader, capacity_for, end_hint, end_hint_at, end_mark, records_end_of, spare_at,
};

/// Divisor: when space is scarce, a segment for deletes has at least this share of the usual bytes.
const DELETE_SEGMENT_DIVISOR: u64 = 16;
/// Bytes of a page of the medium.
const PAGE_BYTES: u64 = 4096;

/// The segment that is being written. While `records_end` is 0 there is none.
#[derive(Default)]
pub(super) struct OpenSegment {
    pub(super) at: NvPtr,
    /// End of the space for records. The last record's end mark may be stored here.
    pub(super) records_end: u64,
    /// Offset of the header's spare copy.
    pub(super) spare_at: u64,
    pub(super) end: u64,
    /// The header, until its spare copy is flushed. The copy is stored when the first record is
    /// durable.
    pub(super) spare: Option<Box<SegmentHeader>>,
    /// The log count of the generation includes this segment.
    pub(super) is_counted: bool,
    /// The next record after this offset flushes the data that says that the records before it were
    /// durable.
    pub(super) protect_at: u64,
    /// The number of the next segment of this log.
    pub(super) next: u32,
    pub(super) frame: Option<Frame>,
    /// The number of its last record in a shared log; 0: no record.
    pub(super) last: u64,
}

impl LogWriter {
    /// Begins a new segment of a log, with space for a record of this length. The header becomes
    /// durable with the first record: without a whole header, no write in the segment was
    /// acknowledged.
    #[cold]
    pub(super) fn begin_segment(
        &self,
        segment: &mut OpenSegment,
        len: u64,
        reserve: &Reserve,
        frees_space: bool,
    ) -> Result<()> {
        if !self.is_shared {
            // The fence of the new extent makes the end mark and the end hint durable.
            self.flush_end(segment);
        }
        let least = capacity_for(len).max(self.options.segment_bytes / DELETE_SEGMENT_DIVISOR);
        let chunks = |bytes: u64| bytes.next_multiple_of(u64::from(self.pool.options().chunk_bytes));
        let (least, wanted) = (chunks(least), chunks(least.max(self.options.segment_bytes)));
        let (at, capacity) = if frees_space {
            reserve.alloc_log_for_delete(&self.pool, (least, wanted))?
        } else {
            (reserve.alloc_for_put(&self.pool, wanted, KIND_LOG)?, wanted)
        };
        let nonce = xxhash_rust::xxh3::xxh3_64_with_seed(
            &at.raw().to_le_bytes(),
            self.options.seed ^ self.options.generation << 20,
        );
        let frame = Frame { nonce, base: self.options.base };
        let slot = if self.is_shared { 0 } else { (thread_slot() % LOG_COUNT) as u16 };
        let header = SegmentHeader {
            generation: self.options.generation,
            slot,
            number: segment.next,
            frame,
            capacity,
            previous_end: segment.end,
        };
        if self.is_shared {
            self.pool.store_parts(at, &[&header.encode()]);
        } else {
            self.pool.store_and_flush(at, &[&header.encode()]);
        }
        self.add_segment(Written { at, capacity, frame });
        if self.bytes.fetch_add(capacity, Ordering::Relaxed) + capacity >= self.options.bytes_max {
            self.set_full();
        }
        *segment = OpenSegment {
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

    fn add_segment(&self, segment: Written) {
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
    pub(super) fn store_spare(&self, segment: &mut OpenSegment) -> Option<[(NvPtr, usize); 3]> {
        let copy = segment.spare.take()?.copy();
        let at = segment.at.add(segment.spare_at);
        self.count_segment(segment);
        let [first, second] = log_count_ranges(&self.pool, self.options.generation);
        let ranges = [(at, copy.len()), first, second];
        if self.is_shared {
            self.pool.store_parts(at, &[&copy]);
        } else {
            self.pool.store_and_flush(at, &[&copy]);
            ranges[1..].iter().for_each(|(at, len)| self.pool.flush(*at, *len));
        }
        Some(ranges)
    }

    /// Flushes the end hint of the earlier records. After the first record, also does
    /// [`Self::store_spare`]. The next record's fence makes all of this durable. Done for the
    /// second record that ends in each page. The loss of a log page in a power failure is thus
    /// detected.
    #[cold]
    pub(super) fn protect_records(&self, segment: &mut OpenSegment) {
        self.store_spare(segment);
        let hint_at = segment.at.add(end_hint_at(segment.end, segment.spare_at));
        self.pool.flush(hint_at, size_of::<u64>());
        let start = segment.at.offset();
        segment.protect_at = (start + segment.end).next_multiple_of(PAGE_BYTES) - start;
    }

    /// Adds a segment whose first record is durable to the log count of the generation, once.
    fn count_segment(&self, segment: &mut OpenSegment) {
        if !std::mem::replace(&mut segment.is_counted, true) {
            let mut segments = lock(&self.durable_segments);
            *segments += 1;
            store_log_count(&self.pool, LogCount { generation: self.options.generation, segments: *segments });
        }
    }

    /// Stores the end mark after the last record of a log: the record is durable, with all before
    /// it. Damage to the record is then not mistaken for a record that was cut off. The mark is not
    /// flushed: no promise depends on it after a power failure.
    #[inline]
    pub(super) fn mark_end(&self, segment: &mut OpenSegment) {
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
    fn store_early_spare(&self, segment: &mut OpenSegment) {
        if let Some(header) = &segment.spare {
            self.pool.store_parts(segment.at.add(segment.spare_at), &[&header.copy()]);
        }
        self.count_segment(segment);
    }

    /// Flushes the last end mark and end hint of each log. The caller's next fence makes them
    /// durable. Leaves out logs that are being written, and shared logs, whose groups sync whole
    /// pages. Called when the generation ends, because no later record of these logs makes them
    /// durable. Also called before each record of the manifest: a log that has lost all records
    /// from an earlier one on is then known to be damaged.
    pub(crate) fn flush_ends(&self) {
        if self.is_shared {
            return;
        }
        for segment in self.logs.iter().filter_map(|log| log.0.try_lock().ok()) {
            self.flush_end(&segment);
        }
    }

    /// Flushes the end mark and the end hint of a segment. The caller's next fence makes them
    /// durable.
    fn flush_end(&self, segment: &OpenSegment) {
        if segment.frame.is_some() && segment.end > SEGMENT_HEADER_BYTES as u64 {
            self.pool.flush(segment.at.add(segment.end), size_of::<u64>());
            let hint_at = segment.at.add(end_hint_at(segment.end, segment.spare_at));
            self.pool.flush(hint_at, size_of::<u64>());
        }
    }
}
