//! What all parts of an open store share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lodestore_contract::{Error, Event, Result};
use lodestore_media::{BatchLogs, Guard, Pool};

use crate::hash::{Hashed, Hasher};
use crate::layout::Superblock;
use crate::options::NvhtOptions;
use crate::partition::Partition;
use crate::recover::Recovery;
use crate::stripe::Stripes;
use crate::table::Reading;

/// An open store.
pub(crate) struct Inner {
    pub(crate) pool: Arc<Pool>,
    pub(crate) shape: Superblock,
    pub(crate) hasher: Hasher,
    pub(crate) partitions: Box<[Partition]>,
    pub(crate) stripes: Stripes,
    pub(crate) logs: BatchLogs,
    pub(crate) recovery: Recovery,
    pub(crate) options: NvhtOptions,
    pub(crate) growth: GrowthCounts,
    pub(crate) reading: Reading,
    /// Batches between their first published slot and their last freed stripe, and those that reserve slots.
    pub(crate) batches: AtomicU64,
    /// What a batch of this open reserves a slot with.
    pub(crate) reserved: u64,
    /// Whether some record may have an expiry, so that sweeps have something to look for.
    pub(crate) expiring: AtomicBool,
    pub(crate) closed: AtomicBool,
    /// Whether a slot may have been stored, but not flushed, by a process that was killed. While it is so, whatever is read is made
    /// durable before it is answered or built on; the walk of the recovery ends it.
    pub(crate) unsettled: AtomicBool,
}

/// What growing has done since the open.
#[derive(Default)]
pub(crate) struct GrowthCounts {
    pub(crate) tables: AtomicU64,
    pub(crate) steps: AtomicU64,
    pub(crate) moved: AtomicU64,
    /// The longest step, in nanoseconds of the clock: what a writer waited for it, other work of the processor included.
    pub(crate) longest_ns: AtomicU64,
    /// All steps together, in nanoseconds.
    pub(crate) all_ns: AtomicU64,
    /// Steps of more than a millisecond.
    pub(crate) over_1_ms: AtomicU64,
}

impl Inner {
    /// Begins an operation: while the guard lives, nothing it reaches is reused and `close` waits.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Guard<'_>> {
        let guard = self.pool.epochs().pin();
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(guard) }
    }

    /// Begins a write.
    #[inline]
    pub(crate) fn enter_write(&self) -> Result<Guard<'_>> {
        let guard = self.enter()?;
        self.pool.check()?;
        Ok(guard)
    }

    /// What a look-up needs besides the pool.
    #[inline]
    pub(crate) fn finding(&self) -> (Hasher, &Reading) {
        (self.hasher, &self.reading)
    }

    #[inline]
    pub(crate) fn partition(&self, hashed: Hashed) -> &Partition {
        &self.partitions[hashed.partition]
    }

    /// Whether what is read may not be durable though nobody is writing it.
    #[inline]
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unsettled.load(Ordering::Acquire)
    }

    /// Tells the owner's event sink.
    pub(crate) fn tell(&self, event: &Event) {
        if let Some(sink) = &self.options.pool.events {
            sink(event);
        }
    }

    #[cold]
    pub(crate) fn corrupt(&self, error: &Error) {
        if let Error::Corrupt { place, what } = error {
            self.tell(&Event::Corruption { place: place.clone(), what: what.clone() });
        }
    }

    /// Keys of a partition; `None` until recovery has counted them.
    pub(crate) fn keys_of(&self, partition: usize) -> Option<u64> {
        let before = self.partitions[partition].keys_before.load(Ordering::Acquire);
        (before >= 0).then(|| u64::try_from(before + self.stripes.keys(partition)).unwrap_or(0))
    }

    /// Keys of all partitions, as far as they are known.
    pub(crate) fn keys(&self) -> u64 {
        (0..self.partitions.len()).filter_map(|partition| self.keys_of(partition)).sum()
    }

    /// DRAM of the store's own structures, and of them what an empty store takes.
    pub(crate) fn dram(&self) -> (u64, u64) {
        let partitions = size_of_val(&*self.partitions) as u64;
        let fixed = self.stripes.dram_bytes() + partitions + self.logs.dram_bytes() + size_of::<Self>() as u64;
        (fixed + self.pool.allocator().dram_bytes() + self.pool.epochs().dram_bytes(), fixed)
    }

    /// Accounts the lines stored in the tables to the segments of the medium that hold them.
    pub(crate) fn account_wear(&self) {
        for partition in 0..self.partitions.len() {
            self.account_wear_of(partition);
        }
    }

    pub(crate) fn account_wear_of(&self, partition: usize) {
        let part = &self.partitions[partition];
        let all = self.stripes.writes(partition);
        let before = part.lines_accounted.swap(all, Ordering::Relaxed);
        let (current, ..) = part.words();
        let bytes = all.saturating_sub(before) * crate::layout::LINE;
        if bytes > 0 {
            let extent = crate::partition::extent_of(current);
            self.pool.allocator().note_written(&self.pool, extent, bytes);
        }
    }
}

/// Results of the hot paths, which fit two registers. A large one is copied in memory on its way out, and such a copy cannot begin before
/// the stores behind the last fence are done: measured, some 150 ns of each put.
pub(crate) type Quick<T> = std::result::Result<T, Box<Error>>;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
