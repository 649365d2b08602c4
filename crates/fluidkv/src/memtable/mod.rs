//! FastStore (the memtable stage; FluidKV, PVLDB 2024): an ordered index in DRAM over the positions
//! of records in the logs of one generation (`wal/writer.rs`).
//!
//! A record is durable before its position goes into the index, where readers find it. A read thus
//! never returns data that a crash could lose. The writers keep this order: `db/write.rs`,
//! `tree/batch_append.rs` and `tree/group_commit.rs`.
//!
//! Invariants
//! 1. The index names the newest version of each key by number. Writers of one key are serialized
//!    (`tree/sequence.rs`).
//! 2. If a snapshot may need the version that a write replaces, `older` names that version before
//!    the index forgets it.
//! 3. The segments are freed when the last holder drops a memtable whose tables the manifest names,
//!    and never otherwise.
//!
//! With [`Reads::Verified`] a read compares the checksum of the record that it returns. If it
//! returns none, it compares the checksum of each record whose key it reads. A record that changes
//! on the medium therefore gives an error and no wrong value.

mod key_filter;
mod lookup;
mod records;
pub(crate) mod separation;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lodestore_contract::Result;
use lodestore_contract::threads::lock;
use lodestore_index::{BPlusTree, Pin, Seek};
use lodestore_media::Pool;

use self::key_filter::KeyFilter;
#[cfg(any(test, feature = "testing"))]
pub(crate) use self::lookup::visits;
pub(crate) use self::records::{Records, damaged};
use self::separation::SeparationState;
use crate::space::dram::DramUse;
use crate::space::sizes::Sizes;
use crate::sst::{Reads, hash};
use crate::values::Dead;
use crate::wal::writer::{LogOptions, LogWriter, Written};

/// Divisor: the index grows by at most this share of the memtable's DRAM.
const INDEX_GROWTH_DIVISOR: u64 = 16;
/// Parts of the table of older versions.
const OLDER_MAP_COUNT: usize = 16;
/// DRAM of one older version, approximately.
const OLDER_BYTES: u64 = 40;

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
        let segment_bytes = LogOptions::segment_bytes(sizes.segment, limits.log_bytes);
        Self { generation, base, segment_bytes, limits, seed, reads: sizes.reads }
    }
}

/// One memtable. See the module.
pub(crate) struct Memtable {
    pub(crate) generation: u64,
    pub(crate) index: BPlusTree,
    keys: KeyFilter,
    pool: Arc<Pool>,
    base: u64,
    /// Its logs, whose records the index names.
    pub(crate) log: LogWriter,
    /// Whether its entries come from several logs, each with its own base, and are older than any
    /// snapshot.
    replayed: bool,
    reads: Reads,
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
        self.log.bytes_max()
    }

    pub(crate) fn new(pool: &Arc<Pool>, options: &MemtableOptions) -> Self {
        let log = LogOptions {
            generation: options.generation,
            base: options.base,
            segment_bytes: options.segment_bytes,
            bytes_max: options.limits.log_bytes,
            seed: options.seed,
        };
        Self {
            log: LogWriter::new(pool, log, options.limits.dram_bytes),
            generation: options.generation,
            index: BPlusTree::with_chunks((options.limits.dram_bytes / INDEX_GROWTH_DIVISOR) as usize),
            // At most an eighth of the memtable's DRAM.
            keys: KeyFilter::new(options.limits.log_bytes.min(2 * options.limits.dram_bytes)),
            pool: Arc::clone(pool),
            base: options.base,
            replayed: false,
            reads: options.reads,
            limits: options.limits,
            older: Default::default(),
            older_count: AtomicU64::new(0),
            dead: Mutex::default(),
            separation: SeparationState::default(),
            flushed: AtomicBool::new(false),
        }
    }

    /// Creates a memtable for the replay of these segments.
    pub(crate) fn replayed(pool: &Arc<Pool>, options: &MemtableOptions, segments: Vec<Written>) -> Self {
        let mut this = Self::new(pool, options);
        this.replayed = true;
        this.log.add_earlier(segments);
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
    pub(crate) fn mark_full_over_dram_limit(&self) {
        if !self.has_dram(0) {
            self.log.set_full();
        }
    }

    /// Returns whether it may use this much more DRAM.
    pub(crate) fn has_dram(&self, more: u64) -> bool {
        self.dram_bytes() + more < self.limits.dram_bytes
    }

    /// Finds the place of a key in the index and prefetches it, for [`Self::publish_sought`].
    #[inline]
    pub(crate) fn seek<'m>(&'m self, key: &'m [u8], pin: &'m Pin) -> Seek<'m> {
        self.index.seek(key, pin)
    }

    /// Makes `at` the newest version of the key that was sought, whose hash is given. Returns the
    /// position of the version that it replaces here. The caller holds the stripe of the key.
    /// `keep`: a snapshot may need the replaced version.
    #[inline]
    pub(crate) fn publish_sought(&self, sought: Seek<'_>, hash: u64, at: u64, keep: bool) -> Option<u64> {
        if keep {
            self.keep_older(sought.key(), at);
        }
        self.keys.add(hash);
        sought.insert(&Records(&self.pool), at)
    }

    /// Like [`Self::publish_sought`], with its own search.
    #[inline]
    pub(crate) fn publish(&self, key: &[u8], hash: u64, at: u64, keep: bool) -> Option<u64> {
        self.publish_sought(self.seek(key, &Pin::new()), hash, at, keep)
    }

    /// Records the version that the one at `at` is about to replace.
    fn keep_older(&self, key: &[u8], at: u64) {
        if let Some(old) = self.index.get(&Records(&self.pool), key) {
            lock(&self.older[Self::older_map_of(at)]).insert(at, old);
            self.older_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes an entry of this memtable's log the newest version of its key. Returns the position of
    /// the version that it replaces. Called by one thread at a time, in the order of the numbers.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the log was changed from outside.
    pub(crate) fn publish_at(&self, at: u64, keep: bool) -> Result<Option<u64>> {
        let entry = Records(&self.pool).entry(at)?;
        Ok(self.publish(entry.key(), hash(entry.key()), at, keep))
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
        self.index.is_empty()
    }

    /// Returns whether it has reached its largest size.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.log.is_full()
    }

    /// Returns the bytes of its segments.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log.bytes()
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        let fixed = size_of::<Self>() + self.log.dram_bytes();
        (fixed + self.keys.dram_bytes() + self.index.dram_bytes()) as u64
            + self.older_count.load(Ordering::Relaxed) * OLDER_BYTES
            + self.separation.dram_bytes()
    }

    /// Records that its tables are durable and in the manifest: the last holder frees its logs.
    pub(crate) fn set_flushed(&self) {
        self.flushed.store(true, Ordering::Release);
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
            self.log.free_segments();
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
            assert!(made <= limit / 4 && made >= (limit / 4).min(64 << 10), "{made} of {limit}");
        }
        let usual = Sizes::of(&FluidOptions::default(), 64 << 30);
        assert_eq!(
            MemtableOptions::new(&usual, 1, 0, 0, MemtableLimits { log_bytes: 64 << 10, dram_bytes: 1 << 20 })
                .segment_bytes,
            16 << 10
        );
    }
}
