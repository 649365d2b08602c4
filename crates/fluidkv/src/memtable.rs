//! FastStore (FluidKV, VLDB 2024): logs that each thread slot writes alone, under one ordered index in DRAM.
//!
//! Persist order of a write: its record, whole, with its checksum; flush; **fence: it is durable**; then its entry in the index,
//! which is what readers find it by, and the end mark behind it (`segment.rs`), which no fence waits for. So a read answers with nothing that a crash could take away.
//!
//! Invariants
//! 1. The index names the newest version of each key by number; writers of one key come one after the other (`locks.rs`).
//! 2. A tail is changed under its lock, by the threads of its slots. What stands before its end never changes.
//! 3. Where a snapshot may want the version that a write replaces, `older` names it before the index forgets it.
//! 4. The segments are freed when the last holder lets go of a memtable whose tables the manifest names, and never else.
//! 5. `segments` names a segment before the index names a record in it.
//!
//! With [`Reads::Verified`] a read compares the checksum of the record that it returns, and of each
//! record that it reads a key of where it returns none. So a record that changes on the medium
//! gives an error and no wrong value.

pub(crate) mod apart;
mod log;
mod lookup;
mod records;
pub(crate) mod shared;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use lodestore_contract::Result;
use lodestore_index::BPlusTree;
use lodestore_media::{NvPtr, Pool};

use self::apart::Apart;
#[cfg(any(test, feature = "testing"))]
pub(crate) use self::lookup::visits;
pub(crate) use self::records::{Records, damaged};
use crate::dram::LOOK;
use crate::entry::Frame;
use crate::inner::lock;
use crate::key_filter::KeyFilter;
use crate::segment::SegmentHeader;
use crate::table::Reads;
use crate::value_log::Dead;

/// Logs of a memtable; threads beyond as many share them.
pub(crate) const TAILS: usize = 64;
/// Segments of a log that all threads share are this many times as long,
const SHARED_TIMES: u64 = 16;
/// but so many of them are in a memtable.
const SHARED_SEGMENTS: u64 = 16;
/// Most parts of what a memtable may take by which its index grows.
const STEPS: u64 = 16;
/// A segment has at most so many bytes for each byte of DRAM that its memtable may take.
const LOG_A_BYTE: u64 = 4;
/// Parts of the table of older versions.
const OLDER: usize = 16;
/// DRAM of one older version, about.
const OLDER_BYTES: u64 = 40;

/// The log of one thread slot.
#[derive(Default)]
#[repr(align(128))]
struct Tail(Mutex<Segment>);

/// The segment that is being written; none while it has no room.
#[derive(Default)]
struct Segment {
    at: NvPtr,
    /// Where records end, and the last one's end mark stands.
    room: u64,
    /// Where the header's spare copy stands.
    spare_at: u64,
    end: u64,
    /// The header, while its spare copy is not flushed: it is stored when the first record is durable.
    spare: Option<Box<SegmentHeader>>,
    /// The log count of the generation includes this segment.
    is_counted: bool,
    /// The next record behind this offset flushes what says of the records before it that they were
    /// durable.
    settle_at: u64,
    /// The number of the next segment of this log.
    next: u32,
    frame: Option<Frame>,
    /// The number of its last record, where the log is shared by all threads; 0: it has none.
    last: u64,
}

/// A segment of a memtable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) at: NvPtr,
    pub(crate) capacity: u64,
    pub(crate) frame: Frame,
}

/// What a new memtable is made with.
pub(crate) struct Make {
    pub(crate) generation: u64,
    /// The highest number given before it: its writes have higher ones.
    pub(crate) base: u64,
    /// Bytes of a log segment.
    pub(crate) segment_bytes: u64,
    /// Bytes of log, and of DRAM, at which it is full.
    pub(crate) limits: (u64, u64),
    /// What nonces are drawn from.
    pub(crate) seed: u64,
    /// Whether reads compare checksums.
    pub(crate) reads: Reads,
}

/// One memtable: see the module.
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
    /// Whether its entries are of several logs with bases of their own, all older than any snapshot.
    replayed: bool,
    tails: Box<[Tail]>,
    /// By position.
    segments: ArcSwap<Vec<Written>>,
    reads: Reads,
    /// Segments with a durable record.
    durable_segments: Mutex<u64>,
    log_bytes: AtomicU64,
    /// Whether it should be frozen: looked at when a segment is begun.
    full: AtomicBool,
    /// Bytes of log, and of DRAM, at which it is.
    limits: (u64, u64),
    older: [Mutex<HashMap<u64, u64>>; OLDER],
    older_count: AtomicU64,
    dead: Mutex<Dead>,
    /// What is remembered for a separator.
    pub(crate) apart: Apart,
    flushed: AtomicBool,
}

impl Memtable {
    /// Bytes of log at which it is full.
    pub(crate) fn log_limit(&self) -> u64 {
        self.limits.0
    }

    pub(crate) fn new(pool: &Arc<Pool>, make: &Make) -> Self {
        let is_shared = pool.syncs_pages();
        // A shared log is synced wherever a segment ends.
        let most = (make.limits.0 / SHARED_SEGMENTS).max(make.segment_bytes);
        let wanted = if is_shared { most.min(SHARED_TIMES * make.segment_bytes) } else { make.segment_bytes };
        Self {
            is_shared,
            generation: make.generation,
            tree: BPlusTree::with_chunks((make.limits.1 / STEPS) as usize),
            // At most an eighth of what the memtable may take.
            keys: KeyFilter::new(make.limits.0.min(2 * make.limits.1)),
            pool: Arc::clone(pool),
            base: make.base,
            segment_bytes: wanted.min(LOG_A_BYTE * make.limits.1),
            seed: make.seed,
            replayed: false,
            tails: (0..if is_shared { 1 } else { TAILS }).map(|_| Tail::default()).collect(),
            segments: ArcSwap::default(),
            reads: make.reads,
            durable_segments: Mutex::new(0),
            log_bytes: AtomicU64::new(0),
            full: AtomicBool::new(false),
            limits: make.limits,
            older: Default::default(),
            older_count: AtomicU64::new(0),
            dead: Mutex::default(),
            apart: Apart::default(),
            flushed: AtomicBool::new(false),
        }
    }

    /// One for what is replayed from these segments.
    pub(crate) fn replayed(pool: &Arc<Pool>, make: &Make, mut segments: Vec<Written>) -> Self {
        let mut this = Self::new(pool, make);
        this.replayed = true;
        this.log_bytes = AtomicU64::new(segments.iter().map(|segment| segment.capacity).sum());
        segments.sort_unstable_by_key(|segment| segment.at.raw());
        this.segments = ArcSwap::from_pointee(segments);
        this
    }

    /// Bytes of log, and of DRAM, at which it is frozen.
    #[cfg(test)]
    pub(crate) fn limits(&self) -> (u64, u64) {
        self.limits
    }

    /// Asks for what a write of a key of this hash will change.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.keys.prefetch(hash);
    }

    /// Looks whether its DRAM is used up.
    #[cold]
    pub(crate) fn look(&self) {
        if !self.has_dram(0) {
            self.full.store(true, Ordering::Relaxed);
        }
    }

    /// Looks where a log has come so much further that it is worth it.
    #[inline]
    fn look_behind(&self, before: u64, end: u64) {
        if before / LOOK != end / LOOK {
            self.look();
        }
    }

    /// Whether it may take so much more DRAM.
    pub(crate) fn has_dram(&self, more: u64) -> bool {
        self.dram_bytes() + more < self.limits.1
    }

    /// Makes `at` the newest version of `key`, whose hash is given; where the one stands that it takes the place of here. With the stripe of the key held.
    /// `keep`: a snapshot may want what is replaced.
    #[inline]
    pub(crate) fn publish(&self, key: &[u8], hash: u64, at: u64, keep: bool) -> Option<u64> {
        self.publish_behind(key, hash, (at, keep), || Ok::<_, Infallible>(())).unwrap_or_else(|never| match never {})
    }

    /// As [`Self::publish`], behind what is called `before` while the index's memory is on its way.
    #[inline]
    fn publish_behind<E>(
        &self,
        key: &[u8],
        hash: u64,
        (at, keep): (u64, bool),
        before: impl FnOnce() -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        let records = Records(&self.pool);
        if keep && let Some(old) = self.tree.get(&records, key) {
            lock(&self.older[Self::part_of(at)]).insert(at, old);
            self.older_count.fetch_add(1, Ordering::Relaxed);
        }
        self.tree.insert_after(&records, (key, at), || {
            before()?;
            self.keys.add(hash);
            Ok(())
        })
    }

    /// Counts large values that entries here no longer name.
    pub(crate) fn note_dead(&self, dead: &Dead) {
        lock(&self.dead).merge(dead);
    }

    /// Large values that entries here no longer name.
    pub(crate) fn dead(&self) -> Dead {
        lock(&self.dead).clone()
    }

    fn part_of(at: u64) -> usize {
        (at >> 3) as usize % OLDER
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// Whether it is as large as it may be.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Bytes of its segments.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        let fixed = size_of::<Self>() + size_of_val(&*self.tails);
        (fixed + self.keys.dram_bytes() + self.tree.dram_bytes()) as u64
            + self.older_count.load(Ordering::Relaxed) * OLDER_BYTES
            + self.apart.dram_bytes()
    }

    /// Says that its tables are durable and named: its logs go with its last holder.
    pub(crate) fn set_flushed(&self) {
        self.flushed.store(true, Ordering::Release);
    }

    /// Uses its logs' space for something else: a planted fault.
    pub(crate) fn spoil(&self) {
        for segment in self.segments.load().iter() {
            self.pool.zero(segment.at, segment.capacity as usize);
            self.pool.flush(segment.at, segment.capacity as usize);
            self.pool.fence();
        }
    }

    /// Its segments by position.
    pub(crate) fn segments(&self) -> Arc<Vec<Written>> {
        self.segments.load_full()
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
