//! FastStore (the memtable stage; FluidKV, VLDB 2024): one log per thread slot, under one ordered
//! index in DRAM.
//!
//! Persist order of a write: the whole record, with its checksum, is stored and flushed; **fence:
//! the record is durable**; then its entry goes into the index, where readers find it. The end mark
//! after the record (`wal/segment.rs`) waits for no fence. A read thus never returns data that a
//! crash could lose.
//!
//! Invariants
//! 1. The index names the newest version of each key by number. Writers of one key are serialized
//!    (`tree/sequence.rs`).
//! 2. A tail is changed under its lock, by the threads of its slots. Bytes before its end never
//!    change.
//! 3. If a snapshot may need the version that a write replaces, `older` names that version before
//!    the index forgets it.
//! 4. The segments are freed when the last holder drops a memtable whose tables the manifest names,
//!    and never otherwise.
//! 5. `segments` names a segment before the index names a record in it.
//!
//! With [`Reads::Verified`] a read compares the checksum of the record that it returns. If it
//! returns none, it compares the checksum of each record whose key it reads. A record that changes
//! on the medium therefore gives an error and no wrong value.

mod key_filter;
mod log;
mod lookup;
mod records;
pub(crate) mod separation;
pub(crate) mod shared;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use lodestore_contract::Result;
use lodestore_index::BPlusTree;
use lodestore_media::{NvPtr, Pool, slots_used};

use self::key_filter::KeyFilter;
#[cfg(any(test, feature = "testing"))]
pub(crate) use self::lookup::visits;
pub(crate) use self::records::{Records, damaged};
use self::separation::SeparationState;
use crate::locks::lock;
use crate::space::dram::DramUse;
use crate::space::sizes::Sizes;
use crate::sst::Reads;
use crate::values::Dead;
use crate::wal::entry::Frame;
use crate::wal::segment::SegmentHeader;

/// Logs of a memtable. Threads beyond this number share them.
pub(crate) const TAIL_COUNT: usize = 64;
/// Segments are not made shorter than this for many threads, in bytes.
const THREAD_SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// Most bytes of a shared log's segment, as a multiple of the usual segment's.
const SHARED_SEGMENT_FACTOR: u64 = 16;
/// Segments of a shared log per memtable, unless that makes them shorter than the usual segment.
const SHARED_SEGMENT_COUNT: u64 = 16;
/// Divisor: the index grows by at most this share of the memtable's DRAM.
const INDEX_GROWTH_DIVISOR: u64 = 16;
/// Most bytes of a segment per byte of DRAM that its memtable may use.
const LOG_PER_DRAM_FACTOR: u64 = 4;
/// Bytes of log after which a memtable checks its DRAM.
const DRAM_CHECK_LOG_BYTES: u64 = 4 << 10;
/// Parts of the table of older versions.
const OLDER_MAP_COUNT: usize = 16;
/// DRAM of one older version, approximately.
const OLDER_BYTES: u64 = 40;

/// The log of one thread slot.
#[derive(Default)]
#[repr(align(128))]
struct Tail(Mutex<Segment>);

/// The segment that is being written. While `records_end` is 0 there is none.
#[derive(Default)]
struct Segment {
    at: NvPtr,
    /// End of the space for records. The last record's end mark may be stored here.
    records_end: u64,
    /// Offset of the header's spare copy.
    spare_at: u64,
    end: u64,
    /// The header, until its spare copy is flushed. The copy is stored when the first record is
    /// durable.
    spare: Option<Box<SegmentHeader>>,
    /// The log count of the generation includes this segment.
    is_counted: bool,
    /// The next record after this offset flushes the data that says that the records before it were
    /// durable.
    protect_at: u64,
    /// The number of the next segment of this log.
    next: u32,
    frame: Option<Frame>,
    /// The number of its last record in a shared log; 0: no record.
    last: u64,
}

/// A segment of a memtable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) at: NvPtr,
    pub(crate) capacity: u64,
    pub(crate) frame: Frame,
}

/// Bytes of log, and of DRAM, at which a memtable is full.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemtableLimits {
    pub(crate) log_bytes: u64,
    pub(crate) dram_bytes: u64,
}

/// The parameters of a new memtable.
pub(crate) struct MemtableOptions {
    pub(crate) generation: u64,
    /// The highest number assigned before it: its writes have higher numbers.
    pub(crate) base: u64,
    /// Bytes of a log segment.
    pub(crate) segment_bytes: u64,
    pub(crate) limits: MemtableLimits,
    /// Seed of the nonces.
    pub(crate) seed: u64,
    /// Whether reads compare checksums.
    pub(crate) reads: Reads,
}

impl MemtableOptions {
    /// Returns the parameters of a memtable of this generation. Its writes have numbers above
    /// `base`.
    pub(crate) fn new(sizes: &Sizes, generation: u64, base: u64, seed: u64, limits: MemtableLimits) -> Self {
        // A memtable is full when its segments reach its log limit, however little is written in
        // them. Each thread has several segments.
        let quarter = (limits.log_bytes / 4).max(1 << 10);
        let each = (quarter / slots_used().clamp(1, TAIL_COUNT) as u64).max(THREAD_SEGMENT_BYTES_MIN);
        let segment_bytes = sizes.segment.min(quarter).min(each);
        Self { generation, base, segment_bytes, limits, seed, reads: sizes.reads }
    }
}

/// One memtable. See the module.
pub(crate) struct Memtable {
    pub(crate) generation: u64,
    pub(crate) tree: BPlusTree,
    keys: KeyFilter,
    pool: Arc<Pool>,
    base: u64,
    segment_bytes: u64,
    seed: u64,
    /// Whether all threads share one log.
    is_shared: bool,
    /// Whether its entries come from several logs, each with its own base, and are older than any
    /// snapshot.
    replayed: bool,
    tails: Box<[Tail]>,
    /// Sorted by position.
    segments: ArcSwap<Vec<Written>>,
    reads: Reads,
    /// Segments with a durable record.
    durable_segments: Mutex<u64>,
    log_bytes: AtomicU64,
    /// Whether it should be frozen. Set by a new segment and by a check of its DRAM.
    full: AtomicBool,
    limits: MemtableLimits,
    older: [Mutex<HashMap<u64, u64>>; OLDER_MAP_COUNT],
    older_count: AtomicU64,
    dead: Mutex<Dead>,
    /// State for a separator.
    pub(crate) separation: SeparationState,
    flushed: AtomicBool,
}

impl Memtable {
    /// Returns the bytes of log at which it is full.
    pub(crate) fn log_limit(&self) -> u64 {
        self.limits.log_bytes
    }

    pub(crate) fn new(pool: &Arc<Pool>, options: &MemtableOptions) -> Self {
        let is_shared = pool.syncs_pages();
        // A shared log is synced at the end of each segment.
        let most = (options.limits.log_bytes / SHARED_SEGMENT_COUNT).max(options.segment_bytes);
        let wanted =
            if is_shared { most.min(SHARED_SEGMENT_FACTOR * options.segment_bytes) } else { options.segment_bytes };
        Self {
            is_shared,
            generation: options.generation,
            tree: BPlusTree::with_chunks((options.limits.dram_bytes / INDEX_GROWTH_DIVISOR) as usize),
            // At most an eighth of the memtable's DRAM.
            keys: KeyFilter::new(options.limits.log_bytes.min(2 * options.limits.dram_bytes)),
            pool: Arc::clone(pool),
            base: options.base,
            segment_bytes: wanted.min(LOG_PER_DRAM_FACTOR * options.limits.dram_bytes),
            seed: options.seed,
            replayed: false,
            tails: (0..if is_shared { 1 } else { TAIL_COUNT }).map(|_| Tail::default()).collect(),
            segments: ArcSwap::default(),
            reads: options.reads,
            durable_segments: Mutex::new(0),
            log_bytes: AtomicU64::new(0),
            full: AtomicBool::new(false),
            limits: options.limits,
            older: Default::default(),
            older_count: AtomicU64::new(0),
            dead: Mutex::default(),
            separation: SeparationState::default(),
            flushed: AtomicBool::new(false),
        }
    }

    /// Creates a memtable for the replay of these segments.
    pub(crate) fn replayed(pool: &Arc<Pool>, options: &MemtableOptions, mut segments: Vec<Written>) -> Self {
        let mut this = Self::new(pool, options);
        this.replayed = true;
        this.log_bytes = AtomicU64::new(segments.iter().map(|segment| segment.capacity).sum());
        segments.sort_unstable_by_key(|segment| segment.at.raw());
        this.segments = ArcSwap::from_pointee(segments);
        this
    }

    /// Returns the bytes at which it is frozen.
    #[cfg(test)]
    pub(crate) fn limits(&self) -> MemtableLimits {
        self.limits
    }

    /// Prefetches the memory that a write of a key with this hash will change.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.keys.prefetch(hash);
    }

    /// Marks the memtable as full if its DRAM is used up.
    #[cold]
    pub(crate) fn check_dram_limit(&self) {
        if !self.has_dram(0) {
            self.full.store(true, Ordering::Relaxed);
        }
    }

    /// Checks the DRAM if the end of a log has passed a multiple of `DRAM_CHECK_LOG_BYTES` bytes.
    #[inline]
    fn check_dram_after(&self, before: u64, end: u64) {
        if before / DRAM_CHECK_LOG_BYTES != end / DRAM_CHECK_LOG_BYTES {
            self.check_dram_limit();
        }
    }

    /// Returns whether it may use this much more DRAM.
    pub(crate) fn has_dram(&self, more: u64) -> bool {
        self.dram_bytes() + more < self.limits.dram_bytes
    }

    /// Makes `at` the newest version of `key`, whose hash is given. Returns the position of the
    /// version that it replaces here. The caller holds the stripe of the key. `keep`: a snapshot
    /// may need the replaced version.
    #[inline]
    pub(crate) fn publish(&self, key: &[u8], hash: u64, at: u64, keep: bool) -> Option<u64> {
        self.publish_after(key, hash, (at, keep), || Ok::<_, Infallible>(())).unwrap_or_else(|never| match never {})
    }

    /// Like [`Self::publish`], after a call of `before`, which runs while the index's memory is
    /// fetched.
    #[inline]
    fn publish_after<E>(
        &self,
        key: &[u8],
        hash: u64,
        (at, keep): (u64, bool),
        before: impl FnOnce() -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        let records = Records(&self.pool);
        if keep && let Some(old) = self.tree.get(&records, key) {
            lock(&self.older[Self::older_map_of(at)]).insert(at, old);
            self.older_count.fetch_add(1, Ordering::Relaxed);
        }
        self.tree.insert_after(&records, (key, at), || {
            before()?;
            self.keys.add(hash);
            Ok(())
        })
    }

    /// Adds large values that its entries no longer name.
    pub(crate) fn note_dead(&self, dead: &Dead) {
        lock(&self.dead).merge(dead);
    }

    /// Returns the large values that its entries no longer name.
    pub(crate) fn dead(&self) -> Dead {
        lock(&self.dead).clone()
    }

    fn older_map_of(at: u64) -> usize {
        (at >> 3) as usize % OLDER_MAP_COUNT
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// Returns whether it has reached its largest size.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Returns the bytes of its segments.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        let fixed = size_of::<Self>() + size_of_val(&*self.tails);
        (fixed + self.keys.dram_bytes() + self.tree.dram_bytes()) as u64
            + self.older_count.load(Ordering::Relaxed) * OLDER_BYTES
            + self.separation.dram_bytes()
    }

    /// Records that its tables are durable and in the manifest: the last holder frees its logs.
    pub(crate) fn set_flushed(&self) {
        self.flushed.store(true, Ordering::Release);
    }

    /// Overwrites its logs: a planted fault.
    pub(crate) fn overwrite_logs(&self) {
        for segment in self.segments.load().iter() {
            self.pool.zero(segment.at, segment.capacity as usize);
            self.pool.flush(segment.at, segment.capacity as usize);
            self.pool.fence();
        }
    }

    /// Returns its segments, sorted by position.
    pub(crate) fn segments(&self) -> Arc<Vec<Written>> {
        self.segments.load_full()
    }
}

impl DramUse for Memtable {
    fn dram_bytes(&self) -> u64 {
        Self::dram_bytes(self)
    }
}

impl Drop for Memtable {
    fn drop(&mut self) {
        if self.flushed.load(Ordering::Acquire) && !self.pool.is_foreign() {
            for segment in self.segments.load().iter() {
                self.pool.allocator().free_extent(&self.pool, segment.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::FluidOptions;

    const MIB: u64 = 1 << 20;

    /// Regression: segments sized for a large memtable filled a small one at its first put. The
    /// memtable was frozen and flushed empty.
    #[test]
    fn segments_are_short_compared_with_their_memtable() {
        let long = FluidOptions { segment_bytes: 64 * MIB, memtable_bytes: 1 << 30, ..FluidOptions::default() };
        let sizes = Sizes::of(&long, 64 << 30);
        for limit in [MIB, 16 * MIB, 1 << 30] {
            let made = MemtableOptions::new(&sizes, 1, 0, 0, MemtableLimits { log_bytes: limit, dram_bytes: 1 << 30 })
                .segment_bytes;
            assert!(made <= limit / 4 && made >= (limit / 4).min(THREAD_SEGMENT_BYTES_MIN), "{made} of {limit}");
        }
        let usual = Sizes::of(&FluidOptions::default(), 64 << 30);
        assert_eq!(
            MemtableOptions::new(&usual, 1, 0, 0, MemtableLimits { log_bytes: 64 << 10, dram_bytes: 1 << 20 })
                .segment_bytes,
            16 << 10
        );
    }
}
