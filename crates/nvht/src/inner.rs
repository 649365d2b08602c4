//! What all parts of an open store share.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestore_inplace::Base;

use crate::hash::{Hashed, Hasher};
use crate::layout::Superblock;
use crate::options::NvhtOptions;
use crate::partition::Partition;
use crate::stripe::Stripes;
use crate::table::Reading;

/// An open store.
pub(crate) struct Inner {
    pub(crate) base: Base,
    pub(crate) shape: Superblock,
    pub(crate) hasher: Hasher,
    pub(crate) partitions: Box<[Partition]>,
    pub(crate) stripes: Stripes,
    pub(crate) options: NvhtOptions,
    pub(crate) growth: GrowthCounts,
    pub(crate) reading: Reading,
    /// What a batch of this open reserves a slot with.
    pub(crate) reserved: u64,
}

impl Deref for Inner {
    type Target = Base;

    #[inline]
    fn deref(&self) -> &Base {
        &self.base
    }
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
    /// What a look-up needs besides the pool.
    #[inline]
    pub(crate) fn finding(&self) -> (Hasher, &Reading) {
        (self.hasher, &self.reading)
    }

    #[inline]
    pub(crate) fn partition(&self, hashed: Hashed) -> &Partition {
        &self.partitions[hashed.partition]
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
