//! The value log: each large value is stored once, in value segments, and entries and tables point
//! to it (WiscKey, FAST 2016). Flushes and compactions copy only the pointer.
//!
//! Persist order of a write: the whole record of the value; **fence**; then the log entry with the
//! pointer, like any other. A crash between the two leaves a record that nothing names. Persist
//! order of a segment: its extent, its header, **fence**; the manifest record that names it,
//! **fence**; then its first record.
//!
//! Invariants
//! 1. A segment is written by one thread slot, or by the collector, under the lock of its tail.
//!    Bytes before `written` never change.
//! 2. A segment that the manifest does not name has no readable value, and is free.
//! 3. A thread that appends a value is an active writer (`tree/sequence.rs`) until the pointer is
//!    published, pending or abandoned. After `quiesce_writes`, every record of a sealed segment is
//!    therefore named by the newest version of its key, or is permanent garbage.
//! 4. Each record that nothing names any more is counted dead at most once. A memtable counts it
//!    when an entry replaces another, a merge when it skips an older version. A flush or compaction
//!    counts it when it drops an expired item, a flush also when it hands the value to a separator.
//!    The counts are durable with the record of the flush or compaction. Counts of unflushed
//!    memtables are rebuilt by the replay of their logs. A crash between value and entry, or a
//!    write that failed there, may leave a record uncounted until its segment is collected.

pub(crate) mod placement;
pub(crate) mod record;
pub(crate) mod segment;
pub(crate) mod separator;
pub(crate) mod writer;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Result};
use lodestore_media::{NvPtr, Pool, crc32c};

use crate::sst::Reads;
use crate::wal::entry::{Entry, POINTER_BYTES, Payload};
use record::{Pointer, name_of};
use segment::ValueSegment;

/// Number of writer tails; more threads share them. The tail after the last one belongs to the
/// collector.
pub(crate) const WRITER_TAIL_COUNT: usize = 64;
/// A record larger than this share of a segment has its own segment.
pub(crate) const OWN_SEGMENT_DIVISOR: u64 = 4;
/// Approximate DRAM of a segment.
const SEGMENT_DRAM_BYTES: u64 = size_of::<ValueSegment>() as u64 + 24;

/// How far pointers in the logs reach into each segment of the value log.
pub(crate) type PointerEnds = BTreeMap<u32, u64>;

/// The usage of a value segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueUse {
    /// Its extent, untagged.
    pub(crate) at: NvPtr,
    /// Bytes of the extent that the segment uses.
    pub(crate) bytes: u64,
    /// Its records reach at least this far, and exactly this far once it is sealed.
    pub(crate) written: u64,
    /// Bytes of records that nothing names any more, as far as counted.
    pub(crate) dead: u64,
    /// No more records will be written to it.
    pub(crate) sealed: bool,
}

/// A change of the usage of a value segment. A change of a missing segment is ignored: a merge may
/// find a pointer to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueChange {
    pub(crate) id: u64,
    /// Dead bytes in addition to those counted before.
    pub(crate) dead: u64,
    /// Its records reach at least this far.
    pub(crate) written: u64,
    /// No more records are written to it.
    pub(crate) sealed: bool,
}

/// A new value segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueExtent {
    /// Its number, above all numbers ever assigned.
    pub(crate) id: u64,
    pub(crate) at: NvPtr,
    pub(crate) bytes: u64,
}

/// Bytes of records that nothing names any more, by segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Dead(BTreeMap<u32, u64>);

impl Dead {
    /// Counts the record that a pointer to the value of this key names.
    pub(crate) fn add(&mut self, key: &[u8], pointer: &[u8; POINTER_BYTES]) {
        let pointer = Pointer::decode(pointer);
        *self.0.entry(pointer.id).or_default() += pointer.record_len(key.len());
    }

    pub(crate) fn add_entry(&mut self, entry: &Entry<'_>) {
        if let Payload::Pointer(pointer) = entry.payload() {
            self.add(entry.key(), pointer);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (id, bytes) in &other.0 {
            *self.0.entry(*id).or_default() += bytes;
        }
    }

    /// Returns the changes for the manifest.
    pub(crate) fn changes(&self) -> Vec<ValueChange> {
        let change =
            |(id, dead): (&u32, &u64)| ValueChange { id: (*id).into(), dead: *dead, written: 0, sealed: false };
        self.0.iter().map(change).collect()
    }
}

#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Tail(pub(crate) Mutex<Option<Arc<ValueSegment>>>);

/// The segments of an open store, and their tails. See the module.
pub(crate) struct ValueLog {
    pool: Arc<Pool>,
    /// By id, ascending.
    segments: ArcSwap<Vec<Arc<ValueSegment>>>,
    tails: Box<[Tail]>,
    used: AtomicBool,
    pub(crate) collected: AtomicU64,
    pub(crate) moved_bytes: AtomicU64,
}

impl ValueLog {
    pub(crate) fn new(pool: &Arc<Pool>, segments: Vec<Arc<ValueSegment>>) -> Arc<Self> {
        Arc::new(Self {
            pool: Arc::clone(pool),
            used: AtomicBool::new(!segments.is_empty()),
            segments: ArcSwap::from_pointee(segments),
            tails: (0..=WRITER_TAIL_COUNT).map(|_| Tail::default()).collect(),
            collected: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
        })
    }

    /// Returns whether there may be any pointers.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns all segments by id, including retired ones that readers may still use.
    pub(crate) fn all(&self) -> Arc<Vec<Arc<ValueSegment>>> {
        self.segments.load_full()
    }

    pub(crate) fn find(&self, id: u32) -> Option<Arc<ValueSegment>> {
        let segments = self.segments.load();
        let index = segments.binary_search_by_key(&id, |segment| segment.id).ok()?;
        Some(Arc::clone(&segments[index]))
    }

    /// Adds a new segment, before any pointer to it exists.
    pub(crate) fn add(&self, segment: &Arc<ValueSegment>) {
        self.used.store(true, Ordering::Relaxed);
        self.segments.rcu(|segments| {
            let at = segments.partition_point(|other| other.id < segment.id);
            let mut segments = Vec::clone(segments);
            segments.insert(at, Arc::clone(segment));
            segments
        });
    }

    /// Frees a retired segment that no reader can use any more.
    fn free_segment(&self, id: u32) {
        let Some(segment) = self.find(id) else { return };
        self.segments.rcu(|segments| {
            let mut segments = Vec::clone(segments);
            segments.retain(|other| other.id != id);
            segments
        });
        self.pool.allocator().free_extent(&self.pool, segment.at);
    }

    /// Returns the value of `key` that a pointer names, without a copy. The caller holds the view
    /// in which it found the pointer.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the pointer leads nowhere, or, except with `Reads::Trusted`, to other
    /// bytes.
    pub(crate) fn read(&self, key: &[u8], pointer: &[u8; POINTER_BYTES], reads: Reads) -> Result<&[u8]> {
        let pointer = Pointer::decode(pointer);
        let wrong = |what: &str| Error::corrupt(format!("{}, byte {}", name_of(pointer.id), pointer.offset()), what);
        let (at, bytes) = {
            let segments = self.segments.load();
            let index = segments.binary_search_by_key(&pointer.id, |segment| segment.id);
            let segment = index.map(|index| &segments[index]);
            let segment = segment.map_err(|_| wrong("a pointer names this segment, which does not exist"))?;
            (segment.at, segment.bytes)
        };
        let from = pointer.value_offset(key.len());
        if from + u64::from(pointer.len) > bytes {
            return Err(wrong("a pointer names bytes after the end of its segment"));
        }
        let value = self.pool.bytes(at.add(from), pointer.len as usize);
        let value = value.ok_or_else(|| wrong("the segment's position in the manifest is outside the pool"))?;
        if reads != Reads::Trusted && crc32c(&[value]) != pointer.crc {
            return Err(wrong("the checksum of the value differs: restore the key from a backup, or delete the key"));
        }
        Ok(value)
    }

    pub(crate) fn note_dead(&self, dead: &Dead) {
        let segments = self.segments.load();
        for (id, bytes) in &dead.0 {
            if let Ok(index) = segments.binary_search_by_key(id, |segment| segment.id) {
                segments[index].note_dead(*bytes);
            }
        }
    }

    /// Returns the changes of segments that the manifest does not know to be sealed. If the
    /// manifest has them, and all writes of a flush have ended, no pointer in a table leads beyond
    /// a length that it knows.
    pub(crate) fn unsealed_changes(&self) -> Vec<ValueChange> {
        let unsealed_changes = |segment: &Arc<ValueSegment>| {
            let sealed = segment.sealed.load(Ordering::Acquire);
            ValueChange { id: segment.id.into(), dead: 0, written: segment.written(), sealed }
        };
        let segments = self.segments.load();
        segments
            .iter()
            .filter(|segment| !segment.is_end_recorded.load(Ordering::Acquire))
            .map(unsealed_changes)
            .collect()
    }

    /// Records that the manifest has these changes.
    pub(crate) fn mark_recorded(&self, changes: &[ValueChange]) {
        for change in changes.iter().filter(|change| change.sealed) {
            if let Some(segment) = u32::try_from(change.id).ok().and_then(|id| self.find(id)) {
                segment.is_end_recorded.store(true, Ordering::Release);
            }
        }
    }

    /// Seals the segments that writers are filling, so that they can be collected; `all` includes
    /// the collector's.
    pub(crate) fn seal_tails(&self, all: bool) {
        let count = if all { WRITER_TAIL_COUNT + 1 } else { WRITER_TAIL_COUNT };
        for tail in &self.tails[..count] {
            if let Some(segment) = lock(&tail.0).take() {
                segment.sealed.store(true, Ordering::Release);
            }
        }
    }

    /// Returns an error if garbage cannot be collected since its segment is damaged.
    pub(crate) fn kept_garbage(&self) -> Option<Error> {
        let keeps = |segment: &&Arc<ValueSegment>| {
            let is = |flag: &AtomicBool| flag.load(Ordering::Acquire);
            is(&segment.damaged) && !is(&segment.ended) && segment.garbage() > 0
        };
        let segments = self.segments.load();
        let kept = segments.iter().find(keeps)?;
        Some(Error::corrupt(name_of(kept.id), "the segment is damaged, so its garbage is not collected"))
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        self.segments.load().len() as u64 * SEGMENT_DRAM_BYTES
    }

    pub(crate) const fn fixed_dram_bytes() -> u64 {
        (size_of::<Self>() + (WRITER_TAIL_COUNT + 1) * size_of::<Tail>()) as u64
    }
}
