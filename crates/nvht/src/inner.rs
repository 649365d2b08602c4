//! What all parts of an open store share.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lodestore_inplace::Base;

use crate::hash::{Hashed, Hasher};
use crate::layout::Superblock;
use crate::options::NvhtOptions;
use crate::partition::Partition;
use crate::slot::SlotForm;
use crate::stripe::Stripes;
use crate::table::{Finding, Reading};

/// Whether keys may be missing from the lines of an open store.
pub(crate) struct Care {
    /// Whether lines may be damaged: after a crash until recovery has checked them all, and for the
    /// rest of this open if one is damaged. While set, a lookup that finds nothing checks the lines
    /// before it answers.
    careful: AtomicBool,
    /// Whether keys may be missing from a line. Then the stop leaves no counts, so that the next
    /// open looks again.
    has_damaged_lines: AtomicBool,
    /// Whether a key may have a second slot: a damaged slot does not name its key, and a put of the
    /// key adds a slot. Then `Store::len` is refused, and the stop leaves no counts.
    has_strays: AtomicBool,
    /// Whether the seal of the last clean stop did not fit. Lines may hold older content then,
    /// which their own checks do not show, so no key counts as absent.
    is_seal_broken: bool,
}

impl Care {
    /// For an open that recovers: careful until recovery has checked the lines.
    pub(crate) fn new(is_seal_broken: bool) -> Self {
        Self {
            careful: AtomicBool::new(true),
            has_damaged_lines: AtomicBool::new(is_seal_broken),
            has_strays: AtomicBool::new(false),
            is_seal_broken,
        }
    }
}

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
    pub(crate) form: SlotForm,
    pub(crate) care: Care,
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
    /// What a lookup needs besides the pool.
    #[inline]
    pub(crate) fn finding(&self) -> Finding<'_> {
        Finding { hasher: self.hasher, form: self.form, reading: &self.reading }
    }

    /// Whether lines may be damaged, so that a key that is not found may have been in one.
    #[inline]
    pub(crate) fn is_careful(&self) -> bool {
        self.care.careful.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn partition(&self, hashed: Hashed) -> &Partition {
        &self.partitions[hashed.partition]
    }

    /// Whether any key may be missing ([`Care::is_seal_broken`]).
    pub(crate) fn is_seal_broken(&self) -> bool {
        self.care.is_seal_broken
    }

    /// Whether damage to the index was found in this open.
    pub(crate) fn has_damaged_lines(&self) -> bool {
        self.care.has_damaged_lines.load(Ordering::Acquire)
    }

    /// Whether a key may have a second slot ([`Care::has_strays`]).
    pub(crate) fn has_strays(&self) -> bool {
        self.care.has_strays.load(Ordering::Acquire)
    }

    /// Notes that a key may have a second slot.
    #[cold]
    pub(crate) fn note_stray(&self) {
        self.care.has_strays.store(true, Ordering::Release);
    }

    /// Notes that keys may be missing from a line.
    #[cold]
    pub(crate) fn note_damaged_line(&self) {
        self.care.has_damaged_lines.store(true, Ordering::Release);
        self.care.careful.store(true, Ordering::Release);
    }

    /// Ends careful mode, unless keys may be missing: recovery has checked every line.
    pub(crate) fn end_careful_mode(&self) {
        self.care.careful.store(false, Ordering::Release);
        // A damaged line that was met meanwhile sets both, in this order.
        if self.care.has_damaged_lines.load(Ordering::Acquire) {
            self.care.careful.store(true, Ordering::Release);
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
