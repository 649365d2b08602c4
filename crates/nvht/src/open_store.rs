//! Shared state of an open store.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lodestore_inplace::Base;

use crate::hash::{Hashed, Hasher};
use crate::layout::Superblock;
use crate::options::NvhtOptions;
use crate::partition::Partition;
use crate::slot::SlotForm;
use crate::stripe::{Stripes, counted_keys, counted_writes};
use crate::table::{LookupParams, PrefetchLength};

/// An open store.
pub struct Inner {
    pub(crate) base: Base,
    pub(crate) shape: Superblock,
    pub(crate) hasher: Hasher,
    pub(crate) partitions: Box<[Partition]>,
    pub(crate) stripes: Stripes,
    pub(crate) options: NvhtOptions,
    pub(crate) growth: GrowthCounts,
    pub(crate) prefetch_length: PrefetchLength,
    pub(crate) form: SlotForm,
    /// The seal of the last clean stop did not match. Lines may hold older content, which their own
    /// checks do not detect. No key counts as absent then.
    pub(crate) is_seal_broken: bool,
    /// A key may have a second slot: a damaged slot does not name its key, and a put of the key
    /// adds a slot. Then `Store::len` is refused, and the stop stores no counts.
    pub(crate) may_have_duplicates: AtomicBool,
}

impl Deref for Inner {
    type Target = Base;

    #[inline]
    fn deref(&self) -> &Base {
        &self.base
    }
}

/// Counters of growth since the open.
#[derive(Default)]
pub(crate) struct GrowthCounts {
    pub(crate) tables: AtomicU64,
    pub(crate) steps: AtomicU64,
    pub(crate) moved: AtomicU64,
    /// The longest step in nanoseconds of wall time: a writer's wait, including other work of the
    /// processor.
    pub(crate) longest_step_ns: AtomicU64,
    /// Total time of all steps, in nanoseconds.
    pub(crate) all_ns: AtomicU64,
    /// Steps of more than a millisecond.
    pub(crate) over_1_ms: AtomicU64,
}

impl Inner {
    /// Returns the parameters of a lookup.
    #[inline]
    pub(crate) fn lookup_params(&self) -> LookupParams<'_> {
        LookupParams { hasher: self.hasher, form: self.form, prefetch_length: &self.prefetch_length }
    }

    #[inline]
    pub(crate) fn partition(&self, hashed: Hashed) -> &Partition {
        &self.partitions[hashed.partition]
    }

    /// Notes that a key may have a second slot.
    #[cold]
    pub(crate) fn note_possible_duplicate(&self) {
        self.may_have_duplicates.store(true, Ordering::Release);
    }

    /// Returns the keys of a partition; `None` before recovery has counted them.
    pub(crate) fn keys_of(&self, partition: usize) -> Option<u64> {
        let before = self.partitions[partition].keys_before.load(Ordering::Acquire);
        (before >= 0).then(|| u64::try_from(before + counted_keys(&self.stripes, partition)).unwrap_or(0))
    }

    /// Returns the keys of all partitions, as far as known.
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
        let all = counted_writes(&self.stripes, partition);
        let before = part.lines_accounted.swap(all, Ordering::Relaxed);
        let (current, ..) = part.words();
        let bytes = all.saturating_sub(before) * crate::layout::LINE_BYTES;
        if bytes > 0 {
            let extent = crate::partition::extent_of(current);
            self.pool.allocator().note_written(&self.pool, extent, bytes);
        }
    }
}
