//! Allocates and frees records and extents.
//!
//! A record comes from the current slab of the thread's shard: one uncontended lock, one bit. When
//! that slab is full, the allocator tries in this order:
//! 1. the shard's own slabs with free slots;
//! 2. slabs found at open;
//! 3. slabs of threads that have ended;
//! 4. a new slab;
//! 5. a new region;
//! 6. before the store counts as full: records that wait for readers, slabs of living threads,
//!    empty slabs of other classes, a slot of up to twice the length, an extent of its own.
//!
//! A slab whose slots are freed as fast as they are allocated would serve forever and wear its
//! segment out. Its wear is compared after its slots were allocated [`OVERWRITE_COUNT`] times. The
//! next slab is a new one if some segment with space is less worn by more than one overwrite.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use lodestore_contract::Result;

use super::classes::Class;
use super::medium_access::MediumAccess;
use super::shard::{ClassSlabs, ORPHAN_SHARD_INDEX, SHARD_COUNT, Shard};
use super::slab::{HELD_FLAG, KEPT_FLAG, LISTED_FLAG, NO_CLASS_ID, OLD_FLAG, Slab};
use super::space::{Ends, Written, plain_word, read_word};
use super::table::{Found, Word};
use super::{Allocator, ChunkPosition, ExtentKind, lock};
use crate::nvptr::NvPtr;
use crate::slot;

/// Records that are freed under one hold of a shard's lock.
const FREE_BATCH_RECORDS: usize = 16;
/// Index of the prefetched slab in the list of slabs with free slots.
const PREFETCHED_SLAB_INDEX: usize = 3;

/// Allocations of all slots of a current slab before the search for a less worn segment.
const OVERWRITE_COUNT: u32 = 8;

/// An item to be freed: a record of `len` bytes, or an extent (`len` = [`Freed::EXTENT_FLAG`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Freed {
    pub(crate) at: NvPtr,
    pub(crate) len: u32,
}

impl Freed {
    /// The length that marks an extent. No record is that long.
    pub(crate) const EXTENT_FLAG: u32 = u32::MAX;
}

/// Filter on the owner of slabs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnerFilter {
    /// Slabs found at open, and slabs of threads that have ended.
    Orphaned,
    /// All slabs.
    Any,
}

impl Allocator {
    /// See [`Allocator::alloc`](Self::alloc).
    #[inline]
    pub(crate) fn alloc_on<G: MediumAccess>(&self, medium: &G, len: usize) -> Result<NvPtr> {
        let Some(number) = self.classes.of(len) else { return self.alloc_large(medium, len) };
        let own_shard = slot::thread_slot() % SHARD_COUNT;
        if let Some(at) = self.alloc_from_shard(medium, own_shard, number) {
            return Ok(at);
        }
        self.alloc_slow(medium, own_shard, number, len)
    }

    #[inline]
    fn alloc_from_current(&self, slabs: &ClassSlabs, number: u16) -> Option<NvPtr> {
        let position = slabs.current?;
        let class = self.classes.get(number)?;
        let region = self.region(position.region)?;
        let taken = region.slab_at(position.chunk)?.alloc_slot(class)?;
        Some(region.slot(position.chunk, class, taken))
    }

    /// Prefetches the data of the next calls: the slot that is allocated next, and the slabs that
    /// follow. With random replacement a slab has one or two free slots, each on a cold line and
    /// page.
    #[inline]
    fn prefetch_next<G: MediumAccess>(&self, medium: &G, slabs: &ClassSlabs, number: u16) {
        let Some(class) = self.classes.get(number) else { return };
        if let Some(slab) = slabs.partial.get(PREFETCHED_SLAB_INDEX).and_then(|position| self.slab(*position)) {
            slab.prefetch();
        }
        for position in slabs.current.iter().chain(slabs.partial.front()) {
            let Some(region) = self.region(position.region) else { return };
            let slab = region.slab_at(position.chunk).filter(|slab| slab.class() == number);
            if let Some(next) = slab.and_then(|slab| slab.next_slot(class)) {
                return medium.prefetch_record(region.slot(position.chunk, class, next), class.size as usize);
            }
        }
    }

    #[cold]
    fn alloc_slow<G: MediumAccess>(&self, medium: &G, own_shard: usize, number: u16, len: usize) -> Result<NvPtr> {
        self.replace_worn_slab(medium, own_shard, number)?;
        // Each round adds a slab. Other threads of the same shard may use it up; the next round
        // then adds another.
        loop {
            if let Some(at) = self.alloc_from_shard(medium, own_shard, number) {
                return Ok(at);
            }
            if self.acquire_slab(medium, own_shard, number, OwnerFilter::Orphaned) {
                continue;
            }
            if !self.alloc_slab(medium, own_shard, number)? {
                break;
            }
        }
        medium.reclaim();
        loop {
            if let Some(at) = self.alloc_from_shard(medium, own_shard, number) {
                return Ok(at);
            }
            if self.acquire_slab(medium, own_shard, number, OwnerFilter::Any) {
                continue;
            }
            self.release_empty_slabs(medium);
            if !self.alloc_slab(medium, own_shard, number)? {
                break;
            }
        }
        self.alloc_last_resort(medium, own_shard, number, len)
    }

    /// Allocates from the current slab, or from the shard's first slab with a free slot, which
    /// becomes the current one.
    #[inline]
    fn alloc_from_shard<G: MediumAccess>(&self, medium: &G, own_shard: usize, number: u16) -> Option<NvPtr> {
        let mut shard = self.shard(own_shard);
        loop {
            let slabs = shard.class(number, self.classes.len());
            if slabs.wants_new_slab {
                return None;
            }
            if let Some(at) = self.alloc_from_current(slabs, number) {
                self.prefetch_next(medium, slabs, number);
                if self.is_wear_check_due(slabs, number) {
                    self.rotate_current(medium, &mut shard, number);
                }
                return Some(at);
            }
            let next = self.pop_listed(slabs, own_shard, number);
            self.replace_current(medium, &mut shard, number, next);
            next?;
        }
    }

    /// Returns whether the current slab was written often enough to compare its wear.
    #[inline]
    fn is_wear_check_due(&self, slabs: &ClassSlabs, number: u16) -> bool {
        let slab = slabs.current.and_then(|position| self.slab(position));
        slab.zip(self.classes.get(number)).is_some_and(|(slab, class)| slab.written() >= class.slots * OVERWRITE_COUNT)
    }

    /// Accounts the bytes written to the current slab, and replaces it if another segment is less
    /// worn.
    #[cold]
    fn rotate_current<G: MediumAccess>(&self, medium: &G, shard: &mut Shard, number: u16) {
        let slabs = shard.class(number, self.classes.len());
        let (Some(position), Some(class)) = (slabs.current, self.classes.get(number)) else { return };
        let written = self.slab(position).map_or(0, Slab::take_written);
        self.note_slab_wear(medium, position, u64::from(written) * u64::from(class.size));
        if lock(&self.space).has_less_worn_segment(position) {
            slabs.wants_new_slab = true;
            self.replace_current(medium, shard, number, None);
        }
    }

    /// Allocates a new slab if wear asks for one. Without one, allocation continues as before.
    fn replace_worn_slab<G: MediumAccess>(&self, medium: &G, own_shard: usize, number: u16) -> Result<()> {
        let wanted = std::mem::take(&mut self.shard(own_shard).class(number, self.classes.len()).wants_new_slab);
        // Checked again, so that the store does not grow if the space is gone.
        if wanted && lock(&self.space).has_free_slab() {
            self.alloc_slab(medium, own_shard, number)?;
        }
        Ok(())
    }

    /// Removes a slab with free slots from the list, skipping stale entries. The slab has
    /// `HELD_FLAG` from now on.
    fn pop_listed(&self, slabs: &mut ClassSlabs, owner: usize, number: u16) -> Option<ChunkPosition> {
        while let Some(position) = slabs.partial.pop_front() {
            let Some(slab) = self.slab(position) else { continue };
            if slab.class() != number
                || usize::from(slab.owner()) != owner
                || !slab.has_flag(LISTED_FLAG)
                || slab.has_flag(HELD_FLAG)
            {
                continue;
            }
            if slab.has_flag(KEPT_FLAG) {
                slabs.kept -= 1;
            }
            slab.clear_flag(LISTED_FLAG | KEPT_FLAG);
            slab.set_flag(HELD_FLAG);
            return Some(position);
        }
        None
    }

    /// Makes `next`, which has `HELD_FLAG`, the current slab. The previous one, if any, loses the
    /// flag, and is listed if it has free slots.
    fn replace_current<G: MediumAccess>(
        &self,
        medium: &G,
        shard: &mut Shard,
        number: u16,
        next: Option<ChunkPosition>,
    ) {
        let slabs = shard.class(number, self.classes.len());
        let before = std::mem::replace(&mut slabs.current, next);
        let Some((position, slab)) = before.and_then(|position| Some((position, self.slab(position)?))) else { return };
        let Some(class) = self.classes.get(number) else { return };
        slab.clear_flag(HELD_FLAG);
        if slab.free_slots() > 0 {
            slab.set_flag(LISTED_FLAG);
            slabs.partial.push_back(position);
        }
        // With random replacement a slab is current often, for a slot or two each: those writes are
        // accumulated in it.
        if slab.written() >= class.slots / 2 {
            let bytes = u64::from(slab.take_written()) * u64::from(class.size);
            self.note_slab_wear(medium, position, bytes);
        }
    }

    /// Acquires a slab of this class from a shard without a living thread, or from any shard.
    /// Returns whether there was one.
    fn acquire_slab<G: MediumAccess>(&self, medium: &G, own_shard: usize, number: u16, owners: OwnerFilter) -> bool {
        let orphans = usize::from(ORPHAN_SHARD_INDEX);
        let used = slot::slots_used().min(SHARD_COUNT);
        std::iter::once(orphans).chain(0..used).any(|other| {
            let is_orphaned = other == orphans || !is_shard_live(other);
            other != own_shard
                && (is_orphaned || owners == OwnerFilter::Any)
                && self.acquire_slab_from(medium, own_shard, other, number)
        })
    }

    fn acquire_slab_from<G: MediumAccess>(&self, medium: &G, own_shard: usize, other: usize, number: u16) -> bool {
        let position = {
            let mut shard = self.shard(other);
            if shard.classes.is_empty() {
                return false;
            }
            let slabs = shard.class(number, self.classes.len());
            let listed = self.pop_listed(slabs, other, number);
            let has_free_slot =
                |position: &ChunkPosition| self.slab(*position).is_some_and(|slab| slab.free_slots() > 0);
            let Some(position) = listed.or_else(|| slabs.current.take_if(|position| has_free_slot(position))) else {
                return false;
            };
            let Some(slab) = self.slab(position) else { return false };
            // `HELD_FLAG` is set already: in transfer it is in no list, and threads that free into
            // it do not list it.
            slab.set_owner(own_shard as u16);
            position
        };
        self.install(medium, own_shard, number, position);
        true
    }

    /// Makes a slab that has `HELD_FLAG` and is owned by this shard the current one if that is
    /// full; otherwise lists it.
    fn install<G: MediumAccess>(&self, medium: &G, own_shard: usize, number: u16, position: ChunkPosition) {
        let mut shard = self.shard(own_shard);
        let current = shard.class(number, self.classes.len()).current;
        if current.and_then(|position| self.slab(position)).is_none_or(|slab| slab.free_slots() == 0) {
            self.replace_current(medium, &mut shard, number, Some(position));
        } else if let Some(slab) = self.slab(position) {
            slab.clear_flag(HELD_FLAG);
            slab.set_flag(LISTED_FLAG);
            shard.class(number, self.classes.len()).partial.push_back(position);
        }
    }

    fn alloc_slab<G: MediumAccess>(&self, medium: &G, own_shard: usize, number: u16) -> Result<bool> {
        let Some(class) = self.classes.get(number) else { return Ok(false) };
        let slab_bytes = self.slab_bytes();
        let word = Word { kind: ExtentKind::SLAB, class: number, chunks: self.slab_chunks };
        let found = self.alloc_or_grow(
            medium,
            |space| {
                let position = space.alloc_extent(medium, word, (true, Ends::default()))?;
                // Under the space lock, so that `verify` never sees one without the other.
                self.region(position.region)?.make_slab(position.chunk)?.format(
                    number,
                    class,
                    slab_bytes,
                    own_shard as u16,
                    HELD_FLAG,
                );
                Some(position)
            },
            u64::from(slab_bytes),
        )?;
        if let Some(position) = found {
            self.install(medium, own_shard, number, position);
        }
        Ok(found.is_some())
    }

    /// Releases every empty slab of every owner.
    pub(super) fn release_empty_slabs<G: MediumAccess>(&self, medium: &G) {
        for index in 0..=SHARD_COUNT {
            let mut shard = self.shard(index);
            for (number, slabs) in (0u16..).zip(&mut shard.classes) {
                let Some(class) = self.classes.get(number) else { continue };
                let is_empty = |position: &ChunkPosition| {
                    self.slab(*position).is_some_and(|slab| slab.free_slots() == class.slots)
                };
                if let Some(position) = slabs.current.take_if(|position| is_empty(position)) {
                    self.release_slab(medium, position);
                }
                let (mut left, mut kept) = (VecDeque::new(), 0);
                for position in slabs.partial.drain(..) {
                    let Some(slab) = self.slab(position) else { continue };
                    if slab.class() != number || usize::from(slab.owner()) != index || !slab.has_flag(LISTED_FLAG) {
                        continue;
                    }
                    if is_empty(&position) {
                        self.release_slab(medium, position);
                    } else {
                        kept += u32::from(slab.has_flag(KEPT_FLAG));
                        left.push_back(position);
                    }
                }
                (slabs.partial, slabs.kept) = (left, kept);
            }
        }
    }

    /// Frees the chunks of an empty slab. The owner's lock is held.
    fn release_slab<G: MediumAccess>(&self, medium: &G, position: ChunkPosition) {
        let Some(slab) = self.slab(position) else { return };
        let mut space = lock(&self.space);
        if let Some(class) = self.classes.get(slab.class()) {
            let bytes = u64::from(slab.take_written()) * u64::from(class.size);
            space.wear(medium, &[Written { position, chunks: self.slab_chunks, bytes }]);
        }
        slab.retire();
        let is_freed = space.free_extent(medium, position, self.slab_chunks);
        debug_assert!(is_freed, "a slab's chunks are in use");
    }

    /// Tries the last resorts.
    fn alloc_last_resort<G: MediumAccess>(
        &self,
        medium: &G,
        own_shard: usize,
        number: u16,
        len: usize,
    ) -> Result<NvPtr> {
        let size_max = self.classes.get(number).map_or(0, |class| 2 * class.size);
        for larger in number + 1..self.classes.len() as u16 {
            if self.classes.get(larger).is_none_or(|class| class.size > size_max) {
                break;
            }
            loop {
                if let Some(at) = self.alloc_from_shard(medium, own_shard, larger) {
                    return Ok(at);
                }
                if !self.acquire_slab(medium, own_shard, larger, OwnerFilter::Any) {
                    break;
                }
            }
        }
        self.alloc_large(medium, len)
    }

    fn alloc_large<G: MediumAccess>(&self, medium: &G, len: usize) -> Result<NvPtr> {
        let at = self.alloc_extent_on(medium, len as u64, ExtentKind::LARGE)?;
        self.large_records.fetch_add(1, Ordering::Relaxed);
        Ok(at)
    }

    /// See [`Allocator::alloc_extent`](Self::alloc_extent).
    pub(crate) fn alloc_extent_on<G: MediumAccess>(&self, medium: &G, bytes: u64, kind: ExtentKind) -> Result<NvPtr> {
        self.alloc_wiped_on(medium, bytes, (kind, Ends::default()))
    }

    /// See [`Allocator::alloc_extent_wiped`](Self::alloc_extent_wiped).
    pub(crate) fn alloc_wiped_on<G: MediumAccess>(
        &self,
        medium: &G,
        bytes: u64,
        (kind, ends): (ExtentKind, Ends),
    ) -> Result<NvPtr> {
        let full = || Self::full(medium, bytes);
        let chunks = self.chunks_of(bytes).ok_or_else(full)?;
        let word = plain_word(kind, chunks);
        let rounded = u64::from(chunks) * self.chunk_bytes();
        let alloc_extent = |space: &mut super::Space, aligned: bool| {
            let position = space.alloc_extent(medium, word, (aligned, ends));
            // Under the lock: a concurrent verify compares the count with the tables.
            self.extent_bytes.fetch_add(if position.is_some() { rounded } else { 0 }, Ordering::Relaxed);
            position
        };
        let attempt = |aligned: bool| self.alloc_or_grow(medium, |space| alloc_extent(space, aligned), bytes);
        let position = match attempt(true)? {
            Some(position) => position,
            None => {
                medium.reclaim();
                self.release_empty_slabs(medium);
                attempt(false)?.ok_or_else(full)?
            }
        };
        let region = self.region(position.region).ok_or_else(full)?;
        lock(&self.space).wear(medium, &[Written { position, chunks, bytes: rounded }]);
        Ok(region.layout.chunk(position.chunk))
    }

    /// See [`Allocator::free_extent`](Self::free_extent). `record` says that it held a record.
    pub(crate) fn free_extent_on<G: MediumAccess>(&self, medium: &G, at: NvPtr, record: bool) {
        // Any length except that of an extent denotes a record.
        let len = if record { 0 } else { Freed::EXTENT_FLAG };
        if self.is_recovering() && self.note_freed(Freed { at, len }) {
            return;
        }
        let Some(position) = self.region(at.region()).and_then(|region| region.extent_start(at)) else {
            return self.count_misfree();
        };
        let mut space = lock(&self.space);
        match space.word(medium, position) {
            Found::Extent(word) if word.kind != ExtentKind::SLAB && (word.kind == ExtentKind::LARGE) == record => {
                if space.free_extent(medium, position, word.chunks) {
                    self.extent_bytes.fetch_sub(u64::from(word.chunks) * self.chunk_bytes(), Ordering::Relaxed);
                    self.large_records.fetch_sub(u64::from(record), Ordering::Relaxed);
                } else {
                    self.count_misfree();
                }
            }
            // Under a damaged word: the space stays quarantined.
            _ if space.is_quarantined(position) => {}
            _ => self.count_misfree(),
        }
    }

    /// Waits until all extent frees that began before this call have ended.
    pub(crate) fn wait_for_frees(&self) {
        drop(lock(&self.space));
    }

    /// Frees many items, in batches.
    pub(crate) fn free_all<G: MediumAccess>(&self, medium: &G, items: &[Freed]) {
        for batch in items.chunks(FREE_BATCH_RECORDS) {
            self.free_batch(medium, batch);
        }
    }

    /// Frees a few items. Holds a shard's lock while they belong to one shard: records that one
    /// thread wrote are mostly freed together.
    fn free_batch<G: MediumAccess>(&self, medium: &G, items: &[Freed]) {
        // Other threads need the lock for their next record: lines are prefetched before it is
        // acquired.
        for item in items {
            if let Some((_, slab, _)) = self.region(item.at.region()).and_then(|region| region.locate(item.at)) {
                slab.prefetch();
            }
        }
        let mut held: Option<(u16, MutexGuard<'_, Shard>)> = None;
        for item in items {
            let located = self.region(item.at.region()).and_then(|region| region.locate(item.at));
            let located = located.filter(|(_, slab, _)| item.len != Freed::EXTENT_FLAG && slab.class() != NO_CLASS_ID);
            let Some((position, slab, offset)) = located else {
                held = None;
                self.free_extent_on(medium, item.at, item.len != Freed::EXTENT_FLAG);
                continue;
            };
            if slab.has_flag(OLD_FLAG) {
                held = None;
                if self.note_freed(*item) {
                    continue;
                }
            }
            loop {
                let owner = slab.owner();
                if held.as_ref().is_none_or(|(shard, _)| *shard != owner) {
                    // The old guard is dropped first: never two shards at once.
                    drop(held.take());
                    held = Some((owner, self.shard(usize::from(owner))));
                }
                if slab.owner() == owner {
                    break;
                }
                held = None;
            }
            if let Some((_, shard)) = &mut held {
                self.free_slot(medium, shard, position, slab, offset);
            }
        }
    }

    /// Frees one slot; the lock of the slab's owner is held.
    fn free_slot<G: MediumAccess>(
        &self,
        medium: &G,
        shard: &mut Shard,
        position: ChunkPosition,
        slab: &Slab,
        offset: u32,
    ) {
        let number = slab.class();
        let Some(class) = self.classes.get(number) else { return self.count_misfree() };
        let before = if offset.is_multiple_of(class.size) { slab.free_slot(class, offset / class.size) } else { None };
        let Some(before) = before else { return self.count_misfree() };
        if slab.has_flag(HELD_FLAG) {
            return;
        }
        self.list_or_release(medium, shard, position, slab, (number, class, before + 1));
    }

    /// Lists a slab without `HELD_FLAG` that now has `free` free slots. Releases it if it is empty
    /// and its class already keeps an empty slab.
    pub(super) fn list_or_release<G: MediumAccess>(
        &self,
        medium: &G,
        shard: &mut Shard,
        position: ChunkPosition,
        slab: &Slab,
        (number, class, free): (u16, Class, u32),
    ) {
        let slabs = shard.class(number, self.classes.len());
        if free == class.slots {
            if slabs.kept > 0 {
                // Its entry in the list, if any, is stale from now on.
                return self.release_slab(medium, position);
            }
            slabs.kept += 1;
            slab.set_flag(KEPT_FLAG);
        }
        if !slab.has_flag(LISTED_FLAG) {
            slab.set_flag(LISTED_FLAG);
            slabs.partial.push_back(position);
        }
    }

    /// Returns the bytes that freeing this item releases; for statistics.
    #[inline]
    pub(crate) fn bytes_of<G: MediumAccess>(&self, medium: &G, item: Freed) -> u64 {
        if item.len != Freed::EXTENT_FLAG {
            return self.rounded(item.len as usize);
        }
        let Some(region) = self.region(item.at.region()) else { return 0 };
        match region.extent_start(item.at).map(|position| read_word(medium, &region.layout, position.chunk)) {
            Some(Found::Extent(word)) => u64::from(word.chunks) * u64::from(region.layout.chunk_bytes),
            _ => 0,
        }
    }

    /// Returns the slab at a position known to hold one.
    #[inline]
    pub(super) fn slab(&self, position: ChunkPosition) -> Option<&Slab> {
        self.region(position.region)?.slab_at(position.chunk)
    }

    pub(super) fn count_misfree(&self) {
        self.misfrees.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns whether a living thread uses this shard.
fn is_shard_live(shard: usize) -> bool {
    (shard..slot::slots_used()).step_by(SHARD_COUNT).any(slot::is_taken)
}
