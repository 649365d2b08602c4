//! The allocator's operations on a pool. `alloc` implements them on any [`MediumAccess`].

use lodestore_contract::{MediumUse, Result, VerifyReport, Wear};

use super::Pool;
use crate::alloc::{Allocator, Ends, ExtentKind, Freed, MediumAccess, SweepReport};
use crate::fault::PlantedFault;
use crate::nvptr::NvPtr;
use crate::region_layout::RegionLayout;

impl Allocator {
    /// Allocates a record of `len` bytes, 16-aligned, with undefined content. Persists nothing,
    /// except one line when a new slab is allocated.
    ///
    /// # Errors
    /// [`Error::Full`](lodestore_contract::Error::Full) if neither capacity nor medium has space
    /// left; [`Error::Io`](lodestore_contract::Error::Io) if a new region cannot be created.
    #[inline]
    pub fn alloc(&self, pool: &Pool, len: usize) -> Result<NvPtr> {
        self.alloc_on(pool, len)
    }

    /// Frees a record of `len` bytes at once. No reader can see it any more (see
    /// [`Epochs::retire`](crate::Epochs::retire)), and the store that unlinked it is durable.
    pub fn free(&self, pool: &Pool, at: NvPtr, len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX).min(Freed::EXTENT_FLAG - 1);
        self.free_all(pool, &[Freed { at, len }]);
    }

    /// Allocates an extent of at least `bytes` bytes, chunk-aligned (at most to 4096), with
    /// undefined content. Its table word is durable on return. `kind` is one of the engine's own,
    /// from [`ExtentKind::ENGINE`] on.
    ///
    /// # Errors
    /// Like [`Self::alloc`].
    pub fn alloc_extent(&self, pool: &Pool, bytes: u64, kind: ExtentKind) -> Result<NvPtr> {
        self.alloc_extent_on(pool, bytes, kind)
    }

    /// Like [`Self::alloc_extent`], but zeroes the extent's first `head` and last `tail` bytes
    /// durably before its table word is stored. Both are multiples of 8; the extent ends at `bytes`
    /// rounded up to whole chunks. For an engine that finds its extents by their kind and a header
    /// in them. An extent whose table word was lost in a crash keeps its content. Without zeroing,
    /// the next owner of the space would find the old header.
    ///
    /// # Errors
    /// Like [`Self::alloc`].
    pub fn alloc_extent_wiped(
        &self,
        pool: &Pool,
        bytes: u64,
        kind: ExtentKind,
        (head, tail): (u64, u64),
    ) -> Result<NvPtr> {
        assert!(head.is_multiple_of(8) && tail.is_multiple_of(8), "whole words");
        self.alloc_wiped_on(pool, bytes, (kind, Ends { head, tail }))
    }

    /// Frees an extent at once; the caller has the same duties as for [`Self::free`].
    pub fn free_extent(&self, pool: &Pool, at: NvPtr) {
        self.free_extent_on(pool, at, false);
    }

    /// Frees every extent of one of the engine's kinds and returns their number; for an engine that
    /// lost track of them. Nothing durable names any of them any more, and none is allocated
    /// meanwhile. Not allowed while
    /// [`Self::is_recovering`]: the sweep then frees the unmarked extents.
    pub fn free_kind(&self, pool: &Pool, kind: ExtentKind) -> usize {
        assert!(kind.0 >= ExtentKind::ENGINE.0 && !self.is_recovering(), "an engine's extents, all of them known");
        let extents = self.extents_of(pool, kind);
        extents.iter().for_each(|at| self.free_extent(pool, *at));
        extents.len()
    }

    /// Returns every extent of one of the engine's kinds that the extent table names, in use or not
    /// yet known to be free. For an engine that finds its extents by their kind at an open.
    pub fn extents_of(&self, pool: &Pool, kind: ExtentKind) -> Vec<NvPtr> {
        self.extents_on(pool, kind).into_iter().map(|(at, _)| at).collect()
    }

    /// Like [`Self::extents_of`], each with its length in bytes.
    pub fn extents_with_bytes(&self, pool: &Pool, kind: ExtentKind) -> Vec<(NvPtr, u64)> {
        self.extents_on(pool, kind)
    }

    /// Marks a record of `len` bytes as reachable. For use while [`Self::is_recovering`], from any
    /// number of threads, with a guard held since before the pointer was read. Records allocated
    /// since the open need no mark.
    ///
    /// # Errors
    /// [`Error::Corrupt`](lodestore_contract::Error::Corrupt) if no record of that length can be
    /// there, or one was marked there before.
    #[inline]
    pub fn mark(&self, pool: &Pool, at: NvPtr, len: usize) -> Result<()> {
        self.mark_on(pool, at, len)
    }

    /// Marks an extent of this kind as reachable and returns its length in bytes (`u64::MAX` if a
    /// damaged table word hides it).
    ///
    /// # Errors
    /// [`Error::Corrupt`](lodestore_contract::Error::Corrupt) if there is no such extent, or it was
    /// marked before.
    pub fn mark_extent(&self, pool: &Pool, at: NvPtr, kind: ExtentKind) -> Result<u64> {
        self.mark_extent_on(pool, at, kind)
    }

    /// Returns whether the extent table has an extent of this kind here, with exactly the chunks
    /// that `bytes` needs. Also true if a damaged word hides the entry. Otherwise the space may be
    /// in use by others. Marks nothing.
    pub fn holds_extent(&self, pool: &Pool, at: NvPtr, bytes: u64, kind: ExtentKind) -> bool {
        self.holds_extent_on(pool, at, bytes, kind)
    }

    /// Announces that a record will be unlinked and freed later. Call it before the unlinking,
    /// while [`Self::is_recovering`]. The marking may pass after the unlinking, and the sweep must
    /// not free the record. Does nothing after recovery. [`Epochs::retire`](crate::Epochs::retire)
    /// calls it too.
    #[inline]
    pub fn exclude_from_sweep(&self, at: NvPtr, len: usize) {
        if self.is_recovering() {
            let len = u32::try_from(len).unwrap_or(u32::MAX).min(Freed::EXTENT_FLAG - 1);
            self.note_kept(Freed { at, len });
        }
    }

    /// Like [`Self::exclude_from_sweep`], for an extent.
    #[inline]
    pub fn exclude_extent_from_sweep(&self, at: NvPtr) {
        if self.is_recovering() {
            self.note_kept(Freed { at, len: Freed::EXTENT_FLAG });
        }
    }

    /// Ends recovery: everything reachable has been marked, and the rest is free from now on. Can
    /// be called again safely, and a crash can interrupt it anywhere.
    pub fn finish_recovery(&self, pool: &Pool) -> SweepReport {
        self.finish_on(pool)
    }

    /// Adds `bytes` stored in place, spread over one of the engine's extents, to the wear of its
    /// segments. Records and extents are counted in full once, when they are allocated; this call
    /// is for later stores. The call acquires a lock shared by all threads, and stores and flushes
    /// a word per segment. Call it for many operations together (for example ten thousand lines),
    /// not for each.
    pub fn note_written(&self, pool: &Pool, extent: NvPtr, bytes: u64) {
        self.note_written_on(pool, extent, bytes);
    }

    /// Returns the bytes written by segment, over the life of the store.
    pub fn wear(&self, pool: &Pool) -> Wear {
        self.wear_on(pool)
    }

    /// Returns the medium use that the pool reports: records that wait for readers count as dead.
    /// Exact while nothing else runs.
    pub(crate) fn space(&self, pool: &Pool) -> MediumUse {
        let (usage, waiting) = (self.usage(), pool.epochs().waiting_bytes());
        let waiting = waiting.min(usage.live);
        MediumUse { live: usage.live - waiting, dead: usage.dead + waiting, free: usage.free, ..MediumUse::default() }
    }

    /// Saves the bitmaps at a clean close, before the header says "clean"; nothing else may run any
    /// more. If this fails (no space, recovery in progress, a guard still held), the next open
    /// finds no bitmaps and the engine marks.
    pub(crate) fn save_for_close(&self, pool: &Pool) {
        pool.epochs().reclaim(pool);
        if pool.epochs().waiting_bytes() == 0 {
            self.save(pool);
        }
    }

    /// Flushes the unflushed words and returns the seals of the tables by region. No word changes
    /// after that. The caller fences.
    pub(crate) fn seal_tables(&self, pool: &Pool) -> Vec<u32> {
        self.seal_tables_on(pool)
    }

    /// Adds a finding for every disagreement of the trees, the extent tables and the slabs. Other
    /// threads wait meanwhile.
    pub fn verify(&self, pool: &Pool, report: &mut VerifyReport) {
        self.verify_on(pool, report);
    }
}

impl MediumAccess for Pool {
    fn is_closed(&self) -> bool {
        Self::is_closed(self)
    }

    fn regions(&self) -> usize {
        usize::from(Self::regions(self))
    }

    fn layout(&self, region: u16) -> Option<RegionLayout> {
        Self::layout(self, region)
    }

    fn capacity(&self) -> u64 {
        self.options().capacity
    }

    fn found_generation(&self) -> u64 {
        self.generation_found()
    }

    fn next_generation(&self) -> u64 {
        self.generation_of_session() + 1
    }

    fn stamp(&self) -> u8 {
        self.generation_of_session() as u8
    }

    fn tolerates_damage(&self) -> bool {
        self.options().salvage
    }

    fn load(&self, at: NvPtr) -> u64 {
        self.load_u64(at)
    }

    fn zero_words(&self, at: NvPtr, words: usize) -> usize {
        Self::zero_words(self, at, words)
    }

    #[track_caller]
    fn put(&self, at: NvPtr, word: u64) {
        self.publish_u64(at, word);
    }

    #[track_caller]
    fn store(&self, at: NvPtr, bytes: &[u8]) {
        Self::store(self, at, bytes);
    }

    #[track_caller]
    fn flush(&self, at: NvPtr, len: usize) {
        Self::flush(self, at, len);
    }

    #[track_caller]
    fn fence(&self) {
        Self::fence(self);
    }

    fn has_failed(&self) -> bool {
        self.memory.is_poisoned()
    }

    fn grow(&self, seen: usize, bytes: u64) -> Result<u16> {
        self.grow_from(u16::try_from(seen).unwrap_or(u16::MAX), bytes)
    }

    fn hint_free(&self, bytes: u64) {
        Self::hint_free(self, bytes);
    }

    #[inline]
    fn prefetch_record(&self, at: NvPtr, len: usize) {
        self.memory.prefetch_write(at, len);
    }

    fn reclaim(&self) {
        self.epochs().reclaim_patiently(self);
    }

    fn has_fault(&self, fault: PlantedFault) -> bool {
        Self::has_fault(self, fault)
    }
}
