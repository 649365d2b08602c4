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
use super::ground::Ground;
use super::shard::{ClassSlabs, ORPHAN_SHARD_INDEX, SHARD_COUNT, Shard};
use super::slab::{HELD_FLAG, KEPT_FLAG, LISTED_FLAG, NO_CLASS_ID, OLD_FLAG, Slab};
use super::space::{Ends, Written, plain_word, read_word};
use super::table::{Found, Word};
use super::{Allocator, ExtentKind, Place, lock};
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
enum Whose {
    /// Slabs found at open, and slabs of threads that have ended.
    Nobodys,
    /// All slabs.
    Anybodys,
}

impl Allocator {
    /// See [`Allocator::alloc`](Self::alloc).
    #[inline]
    pub(crate) fn alloc_on<G: Ground>(&self, ground: &G, len: usize) -> Result<NvPtr> {
        let Some(number) = self.classes.of(len) else { return self.alloc_large(ground, len) };
        let me = slot::thread_slot() % SHARD_COUNT;
        if let Some(at) = self.take_own(ground, me, number) {
            return Ok(at);
        }
        self.alloc_slowly(ground, me, number, len)
    }

    #[inline]
    fn take_current(&self, slabs: &ClassSlabs, number: u16) -> Option<NvPtr> {
        let place = slabs.current?;
        let class = self.classes.get(number)?;
        let region = self.region(place.region)?;
        let taken = region.slab_at(place.chunk)?.take(class)?;
        Some(region.slot(place.chunk, class, taken))
    }

    /// Prefetches the data of the next calls: the slot that is allocated next, and the slabs that
    /// follow. With random replacement a slab has one or two free slots, each on a cold line and
    /// page.
    #[inline]
    fn look_ahead<G: Ground>(&self, ground: &G, slabs: &ClassSlabs, number: u16) {
        let Some(class) = self.classes.get(number) else { return };
        if let Some(slab) = slabs.partial.get(PREFETCHED_SLAB_INDEX).and_then(|place| self.slab(*place)) {
            slab.prefetch();
        }
        for place in slabs.current.iter().chain(slabs.partial.front()) {
            let Some(region) = self.region(place.region) else { return };
            let slab = region.slab_at(place.chunk).filter(|slab| slab.class() == number);
            if let Some(next) = slab.and_then(|slab| slab.next(class)) {
                return ground.soon_written(region.slot(place.chunk, class, next), class.size as usize);
            }
        }
    }

    #[cold]
    fn alloc_slowly<G: Ground>(&self, ground: &G, me: usize, number: u16, len: usize) -> Result<NvPtr> {
        self.freshen(ground, me, number)?;
        // Each round adds a slab. Other threads of the same shard may use it up; the next round
        // then adds another.
        loop {
            if let Some(at) = self.take_own(ground, me, number) {
                return Ok(at);
            }
            if self.take_over(ground, me, number, Whose::Nobodys) {
                continue;
            }
            if !self.fresh_slab(ground, me, number)? {
                break;
            }
        }
        ground.reclaim();
        loop {
            if let Some(at) = self.take_own(ground, me, number) {
                return Ok(at);
            }
            if self.take_over(ground, me, number, Whose::Anybodys) {
                continue;
            }
            self.release_empty(ground);
            if !self.fresh_slab(ground, me, number)? {
                break;
            }
        }
        self.alloc_anyhow(ground, me, number, len)
    }

    /// Allocates from the current slab, or from the shard's first slab with a free slot, which
    /// becomes the current one.
    #[inline]
    fn take_own<G: Ground>(&self, ground: &G, me: usize, number: u16) -> Option<NvPtr> {
        let mut shard = self.shard(me);
        loop {
            let slabs = shard.class(number, self.classes.len());
            if slabs.fresh {
                return None;
            }
            if let Some(at) = self.take_current(slabs, number) {
                self.look_ahead(ground, slabs, number);
                if self.is_tired(slabs, number) {
                    self.rest(ground, &mut shard, number);
                }
                return Some(at);
            }
            let next = self.pop_listed(slabs, me, number);
            self.replace_current(ground, &mut shard, number, next);
            next?;
        }
    }

    /// Returns whether the current slab was written often enough to compare its wear.
    #[inline]
    fn is_tired(&self, slabs: &ClassSlabs, number: u16) -> bool {
        let slab = slabs.current.and_then(|place| self.slab(place));
        slab.zip(self.classes.get(number)).is_some_and(|(slab, class)| slab.written() >= class.slots * OVERWRITE_COUNT)
    }

    /// Accounts the bytes written to the current slab, and replaces it if another segment is less
    /// worn.
    #[cold]
    fn rest<G: Ground>(&self, ground: &G, shard: &mut Shard, number: u16) {
        let slabs = shard.class(number, self.classes.len());
        let (Some(place), Some(class)) = (slabs.current, self.classes.get(number)) else { return };
        let written = self.slab(place).map_or(0, Slab::take_written);
        self.note_slab(ground, place, u64::from(written) * u64::from(class.size));
        if lock(&self.space).has_cooler_than(place) {
            slabs.fresh = true;
            self.replace_current(ground, shard, number, None);
        }
    }

    /// Allocates a new slab if wear asks for one. Without one, allocation continues as before.
    fn freshen<G: Ground>(&self, ground: &G, me: usize, number: u16) -> Result<()> {
        let wanted = std::mem::take(&mut self.shard(me).class(number, self.classes.len()).fresh);
        // Checked again, so that the store does not grow if the space is gone.
        if wanted && lock(&self.space).has_room_for_a_slab() {
            self.fresh_slab(ground, me, number)?;
        }
        Ok(())
    }

    /// Removes a slab with free slots from the list, skipping stale entries. The slab has
    /// `HELD_FLAG` from now on.
    fn pop_listed(&self, slabs: &mut ClassSlabs, owner: usize, number: u16) -> Option<Place> {
        while let Some(place) = slabs.partial.pop_front() {
            let Some(slab) = self.slab(place) else { continue };
            if slab.class() != number
                || usize::from(slab.owner()) != owner
                || !slab.has(LISTED_FLAG)
                || slab.has(HELD_FLAG)
            {
                continue;
            }
            if slab.has(KEPT_FLAG) {
                slabs.kept -= 1;
            }
            slab.unset(LISTED_FLAG | KEPT_FLAG);
            slab.set(HELD_FLAG);
            return Some(place);
        }
        None
    }

    /// Makes `next`, which has `HELD_FLAG`, the current slab. The previous one, if any, loses the
    /// flag, and is listed if it has free slots.
    fn replace_current<G: Ground>(&self, ground: &G, shard: &mut Shard, number: u16, next: Option<Place>) {
        let slabs = shard.class(number, self.classes.len());
        let before = std::mem::replace(&mut slabs.current, next);
        let Some((place, slab)) = before.and_then(|place| Some((place, self.slab(place)?))) else { return };
        let Some(class) = self.classes.get(number) else { return };
        slab.unset(HELD_FLAG);
        if slab.free_slots() > 0 {
            slab.set(LISTED_FLAG);
            slabs.partial.push_back(place);
        }
        // With random replacement a slab is current often, for a slot or two each: those writes are
        // accumulated in it.
        if slab.written() >= class.slots / 2 {
            let bytes = u64::from(slab.take_written()) * u64::from(class.size);
            self.note_slab(ground, place, bytes);
        }
    }

    /// Acquires a slab of this class from a shard without a living thread, or from any shard.
    /// Returns whether there was one.
    fn take_over<G: Ground>(&self, ground: &G, me: usize, number: u16, whose: Whose) -> bool {
        let orphans = usize::from(ORPHAN_SHARD_INDEX);
        let used = slot::slots_used().min(SHARD_COUNT);
        std::iter::once(orphans).chain(0..used).any(|other| {
            let nobodys = other == orphans || !shard_is_live(other);
            other != me && (nobodys || whose == Whose::Anybodys) && self.take_over_from(ground, me, other, number)
        })
    }

    fn take_over_from<G: Ground>(&self, ground: &G, me: usize, other: usize, number: u16) -> bool {
        let place = {
            let mut shard = self.shard(other);
            if shard.classes.is_empty() {
                return false;
            }
            let slabs = shard.class(number, self.classes.len());
            let listed = self.pop_listed(slabs, other, number);
            let has_room = |place: &Place| self.slab(*place).is_some_and(|slab| slab.free_slots() > 0);
            let Some(place) = listed.or_else(|| slabs.current.take_if(|place| has_room(place))) else { return false };
            let Some(slab) = self.slab(place) else { return false };
            // `HELD_FLAG` is set already: in transfer it is in no list, and threads that free into
            // it do not list it.
            slab.give_to(me as u16);
            place
        };
        self.install(ground, me, number, place);
        true
    }

    /// Makes a slab that has `HELD_FLAG` and is owned by this shard the current one if that is
    /// full; otherwise lists it.
    fn install<G: Ground>(&self, ground: &G, me: usize, number: u16, place: Place) {
        let mut shard = self.shard(me);
        let current = shard.class(number, self.classes.len()).current;
        if current.and_then(|place| self.slab(place)).is_none_or(|slab| slab.free_slots() == 0) {
            self.replace_current(ground, &mut shard, number, Some(place));
        } else if let Some(slab) = self.slab(place) {
            slab.unset(HELD_FLAG);
            slab.set(LISTED_FLAG);
            shard.class(number, self.classes.len()).partial.push_back(place);
        }
    }

    fn fresh_slab<G: Ground>(&self, ground: &G, me: usize, number: u16) -> Result<bool> {
        let Some(class) = self.classes.get(number) else { return Ok(false) };
        let slab_bytes = self.slab_bytes();
        let word = Word { kind: ExtentKind::SLAB, class: number, chunks: self.slab_chunks };
        let found = self.obtain(
            ground,
            |space| {
                let place = space.hand_out(ground, word, (true, Ends::default()))?;
                // Under the space lock, so that `verify` never sees one without the other.
                self.region(place.region)?
                    .make_slab(place.chunk)?
                    .format(number, class, slab_bytes, me as u16, HELD_FLAG);
                Some(place)
            },
            u64::from(slab_bytes),
        )?;
        if let Some(place) = found {
            self.install(ground, me, number, place);
        }
        Ok(found.is_some())
    }

    /// Releases every empty slab of every owner.
    pub(super) fn release_empty<G: Ground>(&self, ground: &G) {
        for index in 0..=SHARD_COUNT {
            let mut shard = self.shard(index);
            for (number, slabs) in (0u16..).zip(&mut shard.classes) {
                let Some(class) = self.classes.get(number) else { continue };
                let is_empty = |place: &Place| self.slab(*place).is_some_and(|slab| slab.free_slots() == class.slots);
                if let Some(place) = slabs.current.take_if(|place| is_empty(place)) {
                    self.release(ground, place);
                }
                let (mut left, mut kept) = (VecDeque::new(), 0);
                for place in slabs.partial.drain(..) {
                    let Some(slab) = self.slab(place) else { continue };
                    if slab.class() != number || usize::from(slab.owner()) != index || !slab.has(LISTED_FLAG) {
                        continue;
                    }
                    if is_empty(&place) {
                        self.release(ground, place);
                    } else {
                        kept += u32::from(slab.has(KEPT_FLAG));
                        left.push_back(place);
                    }
                }
                (slabs.partial, slabs.kept) = (left, kept);
            }
        }
    }

    /// Frees the chunks of an empty slab. The owner's lock is held.
    fn release<G: Ground>(&self, ground: &G, place: Place) {
        let Some(slab) = self.slab(place) else { return };
        let mut space = lock(&self.space);
        if let Some(class) = self.classes.get(slab.class()) {
            let bytes = u64::from(slab.take_written()) * u64::from(class.size);
            space.wear(ground, &[Written { place, chunks: self.slab_chunks, bytes }]);
        }
        slab.retire();
        let given = space.give_back(ground, place, self.slab_chunks);
        debug_assert!(given, "a slab's chunks are in use");
    }

    /// Tries the last resorts.
    fn alloc_anyhow<G: Ground>(&self, ground: &G, me: usize, number: u16, len: usize) -> Result<NvPtr> {
        let most = self.classes.get(number).map_or(0, |class| 2 * class.size);
        for larger in number + 1..self.classes.len() as u16 {
            if self.classes.get(larger).is_none_or(|class| class.size > most) {
                break;
            }
            loop {
                if let Some(at) = self.take_own(ground, me, larger) {
                    return Ok(at);
                }
                if !self.take_over(ground, me, larger, Whose::Anybodys) {
                    break;
                }
            }
        }
        self.alloc_large(ground, len)
    }

    fn alloc_large<G: Ground>(&self, ground: &G, len: usize) -> Result<NvPtr> {
        let at = self.alloc_extent_on(ground, len as u64, ExtentKind::LARGE)?;
        self.large_records.fetch_add(1, Ordering::Relaxed);
        Ok(at)
    }

    /// See [`Allocator::alloc_extent`](Self::alloc_extent).
    pub(crate) fn alloc_extent_on<G: Ground>(&self, ground: &G, bytes: u64, kind: ExtentKind) -> Result<NvPtr> {
        self.alloc_wiped_on(ground, bytes, (kind, Ends::default()))
    }

    /// See [`Allocator::alloc_extent_wiped`](Self::alloc_extent_wiped).
    pub(crate) fn alloc_wiped_on<G: Ground>(
        &self,
        ground: &G,
        bytes: u64,
        (kind, ends): (ExtentKind, Ends),
    ) -> Result<NvPtr> {
        let full = || Self::full(ground, bytes);
        let chunks = self.chunks_of(bytes).ok_or_else(full)?;
        let word = plain_word(kind, chunks);
        let rounded = u64::from(chunks) * self.chunk_bytes();
        let hand_out = |space: &mut super::Space, aligned: bool| {
            let place = space.hand_out(ground, word, (aligned, ends));
            // Under the lock: a concurrent verify compares the count with the tables.
            self.extent_bytes.fetch_add(if place.is_some() { rounded } else { 0 }, Ordering::Relaxed);
            place
        };
        let attempt = |aligned: bool| self.obtain(ground, |space| hand_out(space, aligned), bytes);
        let place = match attempt(true)? {
            Some(place) => place,
            None => {
                ground.reclaim();
                self.release_empty(ground);
                attempt(false)?.ok_or_else(full)?
            }
        };
        let region = self.region(place.region).ok_or_else(full)?;
        lock(&self.space).wear(ground, &[Written { place, chunks, bytes: rounded }]);
        Ok(region.layout.chunk(place.chunk))
    }

    /// See [`Allocator::free_extent`](Self::free_extent). `record` says that it held a record.
    pub(crate) fn free_extent_on<G: Ground>(&self, ground: &G, at: NvPtr, record: bool) {
        // Any length except that of an extent denotes a record.
        let len = if record { 0 } else { Freed::EXTENT_FLAG };
        if self.is_recovering() && self.note_freed(Freed { at, len }) {
            return;
        }
        let Some(place) = self.region(at.region()).and_then(|region| region.extent_start(at)) else {
            return self.misfree();
        };
        let mut space = lock(&self.space);
        match space.word(ground, place) {
            Found::Extent(word) if word.kind != ExtentKind::SLAB && (word.kind == ExtentKind::LARGE) == record => {
                if space.give_back(ground, place, word.chunks) {
                    self.extent_bytes.fetch_sub(u64::from(word.chunks) * self.chunk_bytes(), Ordering::Relaxed);
                    self.large_records.fetch_sub(u64::from(record), Ordering::Relaxed);
                } else {
                    self.misfree();
                }
            }
            // Under a damaged word: the space stays quarantined.
            _ if space.is_quarantined(place) => {}
            _ => self.misfree(),
        }
    }

    /// Waits until all extent frees that began before this call have ended.
    pub(crate) fn await_givers(&self) {
        drop(lock(&self.space));
    }

    /// Frees many items, in batches.
    pub(crate) fn free_all<G: Ground>(&self, ground: &G, items: &[Freed]) {
        for some in items.chunks(FREE_BATCH_RECORDS) {
            self.free_some(ground, some);
        }
    }

    /// Frees a few items. Holds a shard's lock while they belong to one shard: records that one
    /// thread wrote are mostly freed together.
    fn free_some<G: Ground>(&self, ground: &G, items: &[Freed]) {
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
            let Some((place, slab, offset)) = located else {
                held = None;
                self.free_extent_on(ground, item.at, item.len != Freed::EXTENT_FLAG);
                continue;
            };
            if slab.has(OLD_FLAG) {
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
                self.free_slot(ground, shard, place, slab, offset);
            }
        }
    }

    /// Frees one slot; the lock of the slab's owner is held.
    fn free_slot<G: Ground>(&self, ground: &G, shard: &mut Shard, place: Place, slab: &Slab, offset: u32) {
        let number = slab.class();
        let Some(class) = self.classes.get(number) else { return self.misfree() };
        let before = if offset.is_multiple_of(class.size) { slab.give(class, offset / class.size) } else { None };
        let Some(before) = before else { return self.misfree() };
        if slab.has(HELD_FLAG) {
            return;
        }
        self.list_or_release(ground, shard, place, slab, (number, class, before + 1));
    }

    /// Lists a slab without `HELD_FLAG` that now has `free` free slots. Releases it if it is empty
    /// and its class already keeps an empty slab.
    pub(super) fn list_or_release<G: Ground>(
        &self,
        ground: &G,
        shard: &mut Shard,
        place: Place,
        slab: &Slab,
        (number, class, free): (u16, Class, u32),
    ) {
        let slabs = shard.class(number, self.classes.len());
        if free == class.slots {
            if slabs.kept > 0 {
                // Its entry in the list, if any, is stale from now on.
                return self.release(ground, place);
            }
            slabs.kept += 1;
            slab.set(KEPT_FLAG);
        }
        if !slab.has(LISTED_FLAG) {
            slab.set(LISTED_FLAG);
            slabs.partial.push_back(place);
        }
    }

    /// Returns the bytes that freeing this item releases; for statistics.
    #[inline]
    pub(crate) fn bytes_of<G: Ground>(&self, ground: &G, item: Freed) -> u64 {
        if item.len != Freed::EXTENT_FLAG {
            return self.rounded(item.len as usize);
        }
        let Some(region) = self.region(item.at.region()) else { return 0 };
        match region.extent_start(item.at).map(|place| read_word(ground, &region.layout, place.chunk)) {
            Some(Found::Extent(word)) => u64::from(word.chunks) * u64::from(region.layout.chunk_bytes),
            _ => 0,
        }
    }

    /// Returns the slab at a position known to hold one.
    #[inline]
    pub(super) fn slab(&self, place: Place) -> Option<&Slab> {
        self.region(place.region)?.slab_at(place.chunk)
    }

    pub(super) fn misfree(&self) {
        self.misfrees.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns whether a living thread uses this shard.
fn shard_is_live(shard: usize) -> bool {
    (shard..slot::slots_used()).step_by(SHARD_COUNT).any(slot::is_taken)
}
