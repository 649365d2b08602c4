//! Handing out and taking back records and extents.
//!
//! A record comes from the current slab of the thread's shard: one uncontended lock, one bit. When that slab is full, in this
//! order: the shard's own slabs with free slots; those found at open; those of threads that have ended; a fresh slab; a
//! new region; then, before the store counts as full, what waits for readers, slabs of living threads, empty slabs of other
//! classes, a slot of up to twice the length, an extent of its own.
//!
//! A slab whose slots come back as fast as they go would serve for ever, and wear its segment out. So when its slots were handed out
//! [`OVERWRITES`] times, and some segment with room is less worn by more than one overwrite, the next slab is a fresh one.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use lodestore_contract::Result;

use super::classes::Class;
use super::ground::Ground;
use super::shard::{ClassSlabs, ORPHANS, SHARDS, Shard};
use super::slab::{HELD, KEPT, LISTED, NO_CLASS, OLD, Slab};
use super::space::{Ends, Written, plain_word, read_word};
use super::table::{Found, Word};
use super::{Allocator, ExtentKind, Place, lock};
use crate::nvptr::NvPtr;
use crate::slot;

/// Records that are freed under one hold of a shard's lock.
const FREED_AT_ONCE: usize = 16;
/// Slabs of the list between the next and the one that is asked for ahead.
const SLABS_AHEAD: usize = 3;

/// Times that the slots of a current slab are handed out before it is asked whether another place is less worn.
const OVERWRITES: u32 = 8;

/// Something to be freed: a record of `len` bytes, or an extent (`len` = [`Freed::EXTENT`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Freed {
    pub(crate) at: NvPtr,
    pub(crate) len: u32,
}

impl Freed {
    /// The length that says: an extent, not a record. No record is that long.
    pub(crate) const EXTENT: u32 = u32::MAX;
}

/// Whose slabs to look at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// Those found at open, and those of threads that have ended.
    Nobodys,
    /// All.
    Anybodys,
}

impl Allocator {
    /// See [`Allocator::alloc`](Self::alloc).
    #[inline]
    pub(crate) fn alloc_on<G: Ground>(&self, ground: &G, len: usize) -> Result<NvPtr> {
        let Some(number) = self.classes.of(len) else { return self.alloc_large(ground, len) };
        let me = slot::thread_slot() % SHARDS;
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

    /// Asks for what the next calls will touch: the slot that is taken next, and the slabs from which those after it come. Where
    /// records are replaced at random, a slab has one or two free slots, and each is a line and a page not seen for long.
    #[inline]
    fn look_ahead<G: Ground>(&self, ground: &G, slabs: &ClassSlabs, number: u16) {
        let Some(class) = self.classes.get(number) else { return };
        if let Some(slab) = slabs.partial.get(SLABS_AHEAD).and_then(|place| self.slab(*place)) {
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
        // Each round takes a slab in; other threads of the same shard may use it up, then the next round takes another.
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

    /// From the current slab, else from the first of the shard's own that has a free slot, which becomes the current one.
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

    /// Whether the current slab was written so often that its place is to be looked at.
    #[inline]
    fn is_tired(&self, slabs: &ClassSlabs, number: u16) -> bool {
        let slab = slabs.current.and_then(|place| self.slab(place));
        slab.zip(self.classes.get(number)).is_some_and(|(slab, class)| slab.written() >= class.slots * OVERWRITES)
    }

    /// Counts what was written to the current slab, and lets it go where another place is less worn.
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

    /// A fresh slab where one is wanted for wear; without one all goes on as before.
    fn freshen<G: Ground>(&self, ground: &G, me: usize, number: u16) -> Result<()> {
        let wanted = std::mem::take(&mut self.shard(me).class(number, self.classes.len()).fresh);
        // Asked again, so that the store does not grow where the room is gone.
        if wanted && lock(&self.space).has_room_for_a_slab() {
            self.fresh_slab(ground, me, number)?;
        }
        Ok(())
    }

    /// Takes a slab with free slots from the list, dropping stale entries; it is `HELD` from now on.
    fn pop_listed(&self, slabs: &mut ClassSlabs, owner: usize, number: u16) -> Option<Place> {
        while let Some(place) = slabs.partial.pop_front() {
            let Some(slab) = self.slab(place) else { continue };
            if slab.class() != number || usize::from(slab.owner()) != owner || !slab.has(LISTED) || slab.has(HELD) {
                continue;
            }
            if slab.has(KEPT) {
                slabs.kept -= 1;
            }
            slab.unset(LISTED | KEPT);
            slab.set(HELD);
            return Some(place);
        }
        None
    }

    /// Makes `next` (`HELD`) the current slab; the one before, which is full or there is none, is let go.
    fn replace_current<G: Ground>(&self, ground: &G, shard: &mut Shard, number: u16, next: Option<Place>) {
        let slabs = shard.class(number, self.classes.len());
        let before = std::mem::replace(&mut slabs.current, next);
        let Some((place, slab)) = before.and_then(|place| Some((place, self.slab(place)?))) else { return };
        let Some(class) = self.classes.get(number) else { return };
        slab.unset(HELD);
        if slab.free_slots() > 0 {
            slab.set(LISTED);
            slabs.partial.push_back(place);
        }
        // Where records are replaced at random a slab comes by often with a slot or two: those are gathered in it.
        if slab.written() >= class.slots / 2 {
            let bytes = u64::from(slab.take_written()) * u64::from(class.size);
            self.note_slab(ground, place, bytes);
        }
    }

    /// Takes a slab of this class over from a shard whose threads are gone, or from any; true if there was one.
    fn take_over<G: Ground>(&self, ground: &G, me: usize, number: u16, whose: Whose) -> bool {
        let orphans = usize::from(ORPHANS);
        let used = slot::slots_used().min(SHARDS);
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
            // HELD already: on its way it is in no list, and whoever frees into it leaves it alone.
            slab.give_to(me as u16);
            place
        };
        self.install(ground, me, number, place);
        true
    }

    /// A slab that is `HELD` and this shard's: the current one if that is full, else listed.
    fn install<G: Ground>(&self, ground: &G, me: usize, number: u16, place: Place) {
        let mut shard = self.shard(me);
        let current = shard.class(number, self.classes.len()).current;
        if current.and_then(|place| self.slab(place)).is_none_or(|slab| slab.free_slots() == 0) {
            self.replace_current(ground, &mut shard, number, Some(place));
        } else if let Some(slab) = self.slab(place) {
            slab.unset(HELD);
            slab.set(LISTED);
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
                // Under the space lock, so that `verify` never sees the one without the other.
                self.region(place.region)?.make_slab(place.chunk)?.format(number, class, slab_bytes, me as u16, HELD);
                Some(place)
            },
            u64::from(slab_bytes),
        )?;
        if let Some(place) = found {
            self.install(ground, me, number, place);
        }
        Ok(found.is_some())
    }

    /// Gives every slab back that is empty, whoever has it.
    pub(super) fn release_empty<G: Ground>(&self, ground: &G) {
        for index in 0..=SHARDS {
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
                    if slab.class() != number || usize::from(slab.owner()) != index || !slab.has(LISTED) {
                        continue;
                    }
                    if is_empty(&place) {
                        self.release(ground, place);
                    } else {
                        kept += u32::from(slab.has(KEPT));
                        left.push_back(place);
                    }
                }
                (slabs.partial, slabs.kept) = (left, kept);
            }
        }
    }

    /// An empty slab becomes free chunks. The owner's lock is held.
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

    /// The last resorts.
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
            // Under the lock: a verify beside it compares the count with the tables.
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

    /// See [`Allocator::free_extent`](Self::free_extent). `record`: it held a record.
    pub(crate) fn free_extent_on<G: Ground>(&self, ground: &G, at: NvPtr, record: bool) {
        // Any length but that of an extent says: a record.
        let len = if record { 0 } else { Freed::EXTENT };
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
            // Behind a damaged word: what lies there stays where it is.
            _ if space.is_quarantined(place) => {}
            _ => self.misfree(),
        }
    }

    /// Waits until nobody is giving back an extent that began to before this call.
    pub(crate) fn await_givers(&self) {
        drop(lock(&self.space));
    }

    /// Frees many, some at a time.
    pub(crate) fn free_all<G: Ground>(&self, ground: &G, items: &[Freed]) {
        for some in items.chunks(FREED_AT_ONCE) {
            self.free_some(ground, some);
        }
    }

    /// Frees a few, holding a shard's lock as long as they are of one shard: what one thread wrote is mostly freed together.
    fn free_some<G: Ground>(&self, ground: &G, items: &[Freed]) {
        // The lock is somebody's way to the next record: nothing is waited for under it that could be asked for before.
        for item in items {
            if let Some((_, slab, _)) = self.region(item.at.region()).and_then(|region| region.locate(item.at)) {
                slab.prefetch();
            }
        }
        let mut held: Option<(u16, MutexGuard<'_, Shard>)> = None;
        for item in items {
            let located = self.region(item.at.region()).and_then(|region| region.locate(item.at));
            let located = located.filter(|(_, slab, _)| item.len != Freed::EXTENT && slab.class() != NO_CLASS);
            let Some((place, slab, offset)) = located else {
                held = None;
                self.free_extent_on(ground, item.at, item.len != Freed::EXTENT);
                continue;
            };
            if slab.has(OLD) {
                held = None;
                if self.note_freed(*item) {
                    continue;
                }
            }
            loop {
                let owner = slab.owner();
                if held.as_ref().is_none_or(|(shard, _)| *shard != owner) {
                    // The old guard goes first: never two shards at once.
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
        if slab.has(HELD) {
            return;
        }
        self.list_or_release(ground, shard, place, slab, (number, class, before + 1));
    }

    /// A slab that is not `HELD` has `free` free slots now: it is listed, and released when empty, but for one a class.
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
            slab.set(KEPT);
        }
        if !slab.has(LISTED) {
            slab.set(LISTED);
            slabs.partial.push_back(place);
        }
    }

    /// Bytes that freeing this will give back; for accounts.
    #[inline]
    pub(crate) fn bytes_of<G: Ground>(&self, ground: &G, item: Freed) -> u64 {
        if item.len != Freed::EXTENT {
            return self.rounded(item.len as usize);
        }
        let Some(region) = self.region(item.at.region()) else { return 0 };
        match region.extent_start(item.at).map(|place| read_word(ground, &region.layout, place.chunk)) {
            Some(Found::Extent(word)) => u64::from(word.chunks) * u64::from(region.layout.chunk_bytes),
            _ => 0,
        }
    }

    /// The slab at a place known to hold one.
    #[inline]
    pub(super) fn slab(&self, place: Place) -> Option<&Slab> {
        self.region(place.region)?.slab_at(place.chunk)
    }

    pub(super) fn misfree(&self) {
        self.misfrees.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether a living thread uses this shard.
fn shard_is_live(shard: usize) -> bool {
    (shard..slot::slots_used()).step_by(SHARDS).any(slot::is_taken)
}
