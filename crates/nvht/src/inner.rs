//! Shared state of an open store.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lodestore_contract::{Error, Pair, Result, Visit};
use lodestore_inplace::{Base, Index, StripeIndex};

use crate::hash::{Hashed, Hasher};
use crate::layout::Superblock;
use crate::options::NvhtOptions;
use crate::partition::Partition;
use crate::search::broken_seal;
use crate::slot::{Slot, SlotForm};
use crate::stripe::{Counts, Stripes, Target, counted_keys, counted_writes};
use crate::table::{Hit, LookupParams, PrefetchLength};

/// State of careful mode: keys may be missing from the lines of an open store.
pub(crate) struct CarefulMode {
    /// Lines may be damaged: set after a crash until recovery has checked them all, and for the
    /// rest of this open if one is damaged. While set, a lookup that finds nothing checks the lines
    /// before it returns.
    is_on: AtomicBool,
    /// Keys may be missing from a line. Then the stop stores no counts, and the next open checks
    /// again.
    has_damaged_lines: AtomicBool,
    /// A key may have a second slot: a damaged slot does not name its key, and a put of the key
    /// adds a slot. Then `Store::len` is refused, and the stop stores no counts.
    may_have_duplicates: AtomicBool,
    /// The seal of the last clean stop did not match. Lines may hold older content, which their own
    /// checks do not detect. No key counts as absent then.
    is_seal_broken: bool,
}

impl CarefulMode {
    /// Creates the state for an open that recovers: careful until recovery has checked the lines.
    pub(crate) fn new(is_seal_broken: bool) -> Self {
        Self {
            is_on: AtomicBool::new(true),
            has_damaged_lines: AtomicBool::new(is_seal_broken),
            may_have_duplicates: AtomicBool::new(false),
            is_seal_broken,
        }
    }
}

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
    pub(crate) careful_mode: CarefulMode,
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

impl Index for Inner {
    type Own = u32;
    type Hash = Hashed;
    type Entry = Slot;
    type Stripe = Counts;

    #[inline]
    fn hash_key(&self, key: &[u8]) -> Hashed {
        self.hasher.hash(key)
    }

    #[inline]
    fn stripe_of(hash: Hashed) -> StripeIndex {
        hash.stripe()
    }

    #[inline]
    fn stripes(&self) -> &Stripes {
        &self.stripes
    }

    #[inline]
    fn verifies_reads(&self) -> bool {
        self.options.verify_reads
    }

    fn find_held(&self, target: Target<'_>) -> Result<Option<Hit<'_>>> {
        let table = self.partition(target.hash).table_for(target.hash.fraction);
        self.find(table, target.hash, target.key).inspect_err(|error| self.corrupt(error))
    }

    /// A piece is a range of fractions. Its stripes are held while its slots are copied: no key
    /// moves or changes meanwhile.
    fn visit_piece(
        &self,
        partition: usize,
        from: u64,
        _verifies: bool,
        wrong: &mut Option<Error>,
        visit: &mut dyn FnMut(Pair<'_>) -> Visit,
    ) -> Result<Option<u64>> {
        self.visit_range(partition, from, wrong, visit)
    }

    fn check_complete(&self) -> Result<()> {
        if self.is_seal_broken() { Err(broken_seal()) } else { Ok(()) }
    }
}

impl Inner {
    /// Returns the parameters of a lookup.
    #[inline]
    pub(crate) fn lookup_params(&self) -> LookupParams<'_> {
        LookupParams { hasher: self.hasher, form: self.form, prefetch_length: &self.prefetch_length }
    }

    /// Returns whether lines may be damaged: a key that is not found may have been in one.
    #[inline]
    pub(crate) fn is_careful(&self) -> bool {
        self.careful_mode.is_on.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn partition(&self, hashed: Hashed) -> &Partition {
        &self.partitions[hashed.partition]
    }

    /// Returns whether any key may be missing ([`CarefulMode::is_seal_broken`]).
    pub(crate) fn is_seal_broken(&self) -> bool {
        self.careful_mode.is_seal_broken
    }

    /// Returns whether damage to the index was found in this open.
    pub(crate) fn has_damaged_lines(&self) -> bool {
        self.careful_mode.has_damaged_lines.load(Ordering::Acquire)
    }

    /// Returns whether a key may have a second slot ([`CarefulMode::may_have_duplicates`]).
    pub(crate) fn may_have_duplicates(&self) -> bool {
        self.careful_mode.may_have_duplicates.load(Ordering::Acquire)
    }

    /// Notes that a key may have a second slot.
    #[cold]
    pub(crate) fn note_possible_duplicate(&self) {
        self.careful_mode.may_have_duplicates.store(true, Ordering::Release);
    }

    /// Notes that keys may be missing from a line.
    #[cold]
    pub(crate) fn note_damaged_line(&self) {
        self.careful_mode.has_damaged_lines.store(true, Ordering::Release);
        self.careful_mode.is_on.store(true, Ordering::Release);
    }

    /// Ends careful mode, unless keys may be missing: recovery has checked every line.
    pub(crate) fn end_careful_mode(&self) {
        self.careful_mode.is_on.store(false, Ordering::Release);
        // A damaged line found meanwhile sets both flags, in this order.
        if self.careful_mode.has_damaged_lines.load(Ordering::Acquire) {
            self.careful_mode.is_on.store(true, Ordering::Release);
        }
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
