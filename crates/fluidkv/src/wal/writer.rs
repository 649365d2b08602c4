//! Appends to the logs of one generation: one log per thread slot, or one that all threads share.
//!
//! An append has four steps, and its caller makes the second one durable:
//! 1. [`LogWriter::lock`] and [`OpenLog::reserve`]: the lock of the log, and the place of a record.
//! 2. [`OpenLog::store_entry`] or [`OpenLog::store_batch`]: the record is stored and flushed.
//! 3. **Fence**, by the caller: the record is durable. In a shared log, the fence of its group.
//! 4. [`OpenLog::advance`] and [`OpenLog::end_record`]: the log ends after the record, and has an
//!    end mark there. The mark waits for no fence (`wal/segment.rs`).
//!
//! Invariants
//! 1. A log is changed under its lock, by the threads of its slots. Bytes before its end never
//!    change.
//! 2. `segments` names a segment before any record in it has a position.
//! 3. The writer frees no segment: its owner does ([`LogWriter::free_segments`]).

mod segments;
pub(crate) mod shared;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::ArcSwap;
use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Result};
use lodestore_media::{NvPtr, Pool, slots_used, thread_slot};

use self::segments::OpenSegment;
use crate::space::reserve::Reserve;
use crate::wal::entry::batch::BatchRecord;
use crate::wal::entry::{Frame, Op, Slot, encode_header};
use crate::wal::segment::place_record;

/// Logs of a generation, a power of two. Threads beyond this number share them.
const LOG_COUNT: usize = 64;
/// Segments are not made shorter than this for many threads, in bytes.
const THREAD_SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// Most bytes of a shared log's segment, as a multiple of the usual segment's.
const SHARED_SEGMENT_FACTOR: u64 = 16;
/// Segments of a shared log per generation, unless that makes them shorter than the usual segment.
const SHARED_SEGMENT_COUNT: u64 = 16;
/// Bytes of log after which the owner checks its DRAM.
const DRAM_CHECK_LOG_BYTES: u64 = 4 << 10;
/// Most bytes of a segment per byte of DRAM that its memtable may use.
const LOG_PER_DRAM_FACTOR: u64 = 4;

/// The log of one thread slot.
#[derive(Default)]
#[repr(align(128))]
struct Log(Mutex<OpenSegment>);

/// A segment of a generation's logs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) at: NvPtr,
    pub(crate) capacity: u64,
    pub(crate) frame: Frame,
}

/// The parameters of the logs of a generation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogOptions {
    pub(crate) generation: u64,
    /// The highest number assigned before it: its writes have higher numbers.
    pub(crate) base: u64,
    /// Bytes of a log segment.
    pub(crate) segment_bytes: u64,
    /// Bytes of all logs at which they are full.
    pub(crate) bytes_max: u64,
    /// Seed of the nonces.
    pub(crate) seed: u64,
}

impl LogOptions {
    /// Returns the bytes of a segment, where `usual` is the most. Logs are full when their segments
    /// reach `bytes_max`, however little is written in them. Each thread has several segments.
    pub(crate) fn segment_bytes(usual: u64, bytes_max: u64) -> u64 {
        let quarter = (bytes_max / 4).max(1 << 10);
        let each = (quarter / slots_used().clamp(1, LOG_COUNT) as u64).max(THREAD_SEGMENT_BYTES_MIN);
        usual.min(quarter).min(each)
    }
}

/// The logs of one generation. See the module.
pub(crate) struct LogWriter {
    pool: Arc<Pool>,
    options: LogOptions,
    /// Whether all threads share one log.
    is_shared: bool,
    logs: Box<[Log]>,
    /// Sorted by position.
    segments: ArcSwap<Vec<Written>>,
    /// Segments with a durable record.
    durable_segments: Mutex<u64>,
    bytes: AtomicU64,
    /// Whether later writes should go to a new generation. Set by a new segment and by the owner.
    full: AtomicBool,
}

/// A log that is locked for one append.
pub(crate) struct OpenLog<'w> {
    writer: &'w LogWriter,
    segment: MutexGuard<'w, OpenSegment>,
}

/// The place of a record at the end of an [`OpenLog`].
pub(crate) struct Reserved {
    slot: Slot,
    frame: Frame,
    /// Where the record is stored.
    at: NvPtr,
    /// Offset of its end in the segment.
    end: u64,
    /// End of the log at the last check of DRAM, or after it. `u64::MAX` for a new segment.
    checked_to: u64,
}

impl Reserved {
    /// Returns the position of an entry that is the record.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.at.raw()
    }
}

impl LogWriter {
    pub(crate) fn new(pool: &Arc<Pool>, options: LogOptions, dram_bytes: u64) -> Self {
        let is_shared = pool.syncs_pages();
        // A shared log is synced at the end of each segment.
        let most = (options.bytes_max / SHARED_SEGMENT_COUNT).max(options.segment_bytes);
        let wanted =
            if is_shared { most.min(SHARED_SEGMENT_FACTOR * options.segment_bytes) } else { options.segment_bytes };
        Self {
            pool: Arc::clone(pool),
            options: LogOptions { segment_bytes: wanted.min(LOG_PER_DRAM_FACTOR * dram_bytes), ..options },
            is_shared,
            logs: (0..if is_shared { 1 } else { LOG_COUNT }).map(|_| Log::default()).collect(),
            segments: ArcSwap::default(),
            durable_segments: Mutex::new(0),
            bytes: AtomicU64::new(0),
            full: AtomicBool::new(false),
        }
    }

    /// Adds segments that an earlier process wrote. Their logs are not continued.
    pub(crate) fn add_earlier(&mut self, mut segments: Vec<Written>) {
        self.bytes = AtomicU64::new(segments.iter().map(|segment| segment.capacity).sum());
        segments.sort_unstable_by_key(|segment| segment.at.raw());
        self.segments = ArcSwap::from_pointee(segments);
    }

    /// Locks the log of this thread, or the shared one.
    #[inline]
    pub(crate) fn lock(&self) -> OpenLog<'_> {
        // One log, or `LOG_COUNT` of them: both are powers of two.
        OpenLog { writer: self, segment: lock(&self.logs[thread_slot() & (self.logs.len() - 1)].0) }
    }

    /// Returns whether later writes should go to a new generation.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    pub(crate) fn set_full(&self) {
        self.full.store(true, Ordering::Relaxed);
    }

    /// Returns the bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of all segments at which the logs are full.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.options.bytes_max
    }

    /// Returns the segments, sorted by position.
    pub(crate) fn segments(&self) -> Arc<Vec<Written>> {
        self.segments.load_full()
    }

    /// Returns the segment that holds a position.
    #[inline]
    pub(crate) fn segment_of(&self, at: u64) -> Option<Written> {
        let segments = self.segments.load();
        let above = segments.partition_point(|segment| segment.at.raw() <= at);
        segments.get(above.checked_sub(1)?).copied()
    }

    /// Frees the extents of all segments, which nothing reads any more.
    pub(crate) fn free_segments(&self) {
        for segment in self.segments.load().iter() {
            self.pool.allocator().free_extent(&self.pool, segment.at);
        }
    }

    /// Overwrites all segments: a planted fault.
    pub(crate) fn overwrite(&self) {
        for segment in self.segments.load().iter() {
            self.pool.zero(segment.at, segment.capacity as usize);
            self.pool.flush(segment.at, segment.capacity as usize);
            self.pool.fence();
        }
    }

    /// Returns the DRAM of its fixed part, without the writer itself.
    pub(crate) fn dram_bytes(&self) -> usize {
        size_of_val(&*self.logs)
    }
}

impl OpenLog<'_> {
    /// Returns the place of a record of `len` bytes in the current segment, if it fits.
    #[inline]
    fn place(&self, len: usize) -> Option<Reserved> {
        let slot = place_record(self.segment.end, len, self.segment.records_end)?;
        let at = self.segment.at.add(slot.at);
        Some(Reserved { slot, frame: self.segment.frame?, at, end: slot.at + len as u64, checked_to: self.segment.end })
    }

    /// Returns whether a record of `len` bytes fits into the current segment.
    pub(crate) fn fits(&self, len: usize) -> bool {
        self.place(len).is_some()
    }

    /// Reserves the place of a record of `len` bytes, in a new segment if necessary.
    /// `frees_space`: the record frees space, so a new segment may use the reserve.
    ///
    /// # Errors
    /// [`Error::Full`]; [`Error::Poisoned`] if a sync failed.
    #[inline]
    pub(crate) fn reserve(&mut self, len: usize, frees_space: bool, space: &Reserve) -> Result<Reserved> {
        match self.place(len) {
            Some(reserved) => Ok(reserved),
            None => self.reserve_in_new_segment(len, frees_space, space),
        }
    }

    #[cold]
    fn reserve_in_new_segment(&mut self, len: usize, frees_space: bool, space: &Reserve) -> Result<Reserved> {
        self.writer.begin_segment(&mut self.segment, len as u64, space, frees_space)?;
        let reserved = self.place(len).expect("a new segment has space for its first record");
        Ok(Reserved { checked_to: u64::MAX, ..reserved })
    }

    /// Stores one write as the reserved record. Durable after the next fence.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the number is out of the segment's range.
    #[inline]
    pub(crate) fn store_entry(&mut self, reserved: &Reserved, number: u64, op: &Op<'_>) -> Result<()> {
        let Some(header) = encode_header(reserved.frame, reserved.slot, number, true, op) else {
            return Err(number_out_of_range());
        };
        self.protect_earlier();
        self.writer.pool.store_and_flush(reserved.at, &[header.as_bytes(), op.key, op.payload.bytes()]);
        Ok(())
    }

    /// Stores a batch as the reserved record. Durable after the next fence. Returns the positions
    /// of its operations.
    ///
    /// # Errors
    /// Same as [`Self::store_entry`].
    pub(crate) fn store_batch(&mut self, reserved: &Reserved, number: u64, ops: &[Op<'_>]) -> Result<Vec<u64>> {
        let record = BatchRecord::encode(reserved.frame, reserved.slot, number, true, ops);
        let record = record.ok_or_else(number_out_of_range)?;
        self.protect_earlier();
        self.writer.pool.store_and_flush(reserved.at, &record.parts());
        Ok(record.positions().map(|place| self.segment.at.add(place).raw()).collect())
    }

    #[inline]
    fn protect_earlier(&mut self) {
        if self.segment.end > self.segment.protect_at {
            self.writer.protect_records(&mut self.segment);
        }
    }

    /// Moves the end of the log after the reserved record, which is durable. Called before the
    /// record is published: a published record is never overwritten, even after a panic.
    #[inline]
    pub(crate) fn advance(&mut self, reserved: &Reserved) {
        self.segment.end = reserved.end;
    }

    /// Marks the end of the log after the reserved record ([`Self::advance`]). Returns whether the
    /// owner should check its DRAM.
    #[inline]
    pub(crate) fn end_record(&mut self, reserved: &Reserved) -> bool {
        self.writer.mark_end(&mut self.segment);
        reserved.checked_to / DRAM_CHECK_LOG_BYTES != reserved.end / DRAM_CHECK_LOG_BYTES
    }
}

#[cold]
fn number_out_of_range() -> Error {
    Error::corrupt("log", "a sequence number or length exceeds the limit of its log segment")
}
