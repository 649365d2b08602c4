//! Epochs: media space is reused only when no reader can still see it.
//!
//! Readers hold a [`Guard`] while they follow pointers of the medium. A thread that unlinks a
//! record (durably) retires it. The record waits in that thread's limbo. Records are freed in bags
//! of about 64, when every guard of the retirement's time is gone (`protocol` has the proof). Other
//! threads empty the limbos of ended threads. Once a limbo exceeds [`Epochs::LIMIT_BYTES`] (or 1/64
//! of a smaller pool), each further bag tries harder to free. Only long-held guards can make it
//! longer.
//!
//! Threads that share a slot (`slot.rs`) also share `SHARED_SEAT_COUNT` seats. A seat is the word
//! in which a thread announces its epoch. A guard joins a shared seat that is announced at the
//! present epoch, or acquires a free one. Seats of older epochs only empty, so the clock advances
//! with any number of these threads.
//!
//! Invariants
//! 1. Only the slot's thread writes `depth` of a slot; for a shared seat, under its lock. While
//!    `depth` is above 0 the seat is announced.
//! 2. A guard dropped by any thread except its slot's present owner leaves the slot pinned forever.
//!    (A thread that is being torn down frees its slot first.) Space is then lost until the store
//!    is reopened; safety is not.
//! 3. A limbo is changed under its own lock. Nothing is freed while a limbo lock is held.
//!
//! Any thread may call anything. A guard must not be kept while waiting for other threads.

#[cfg(test)]
mod model;
mod protocol;

use std::cell::Cell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::alloc::{Allocator, Freed, MediumAccess};
use crate::mutex::lock;
use crate::slot::{self, SHARED_SLOT_INDEX};

use protocol::{Clock, Seat};

/// The processor's atomics, under the names that the protocol uses.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};

    /// A store with a full fence after it.
    #[inline]
    pub(super) fn announce(seat: &AtomicU64, epoch: u64) {
        if cfg!(target_arch = "x86_64") {
            // A locked exchange orders like the fence, in a third of its time.
            seat.swap(epoch, Ordering::SeqCst);
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            seat.store(epoch, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }
}

/// Maximum items of a bag.
const BAG_ITEMS_MAX: usize = 64;
/// Bags between two checks of the limbos of ended threads.
const COLLECT_BAG_INTERVAL: u32 = 32;
/// Maximum emptied vectors kept for the next bags.
const SPARE_BAGS_MAX: usize = 4;
/// Seats of the threads that share a slot. The clock cannot advance while a seat announces an older
/// epoch, so seats show at most two epochs. Two seats suffice; the others serve announcements of a
/// clock that has just advanced.
const SHARED_SEAT_COUNT: usize = 4;

thread_local! {
    /// Guards that this thread holds on shared seats.
    static HELD_SHARED_SEATS: Cell<[u32; SHARED_SEAT_COUNT]> = const { Cell::new([0; SHARED_SEAT_COUNT]) };
}

/// Items retired at about the same time.
struct Bag {
    stamp: u64,
    items: Vec<Freed>,
    bytes: u64,
}

#[derive(Default)]
struct Limbo {
    open: Vec<Freed>,
    open_bytes: u64,
    /// Oldest first.
    sealed: VecDeque<Bag>,
    spare: Vec<Vec<Freed>>,
    bags: u32,
}

#[repr(align(128))]
struct Slot {
    seat: Seat,
    depth: AtomicU64,
    /// Bytes in the limbo; written under its lock.
    waiting: AtomicU64,
    limbo: Mutex<Limbo>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Limbo> {
        lock(&self.limbo)
    }
}

/// The epochs of one pool.
pub struct Epochs {
    clock: Clock<2>,
    slots: Box<[Slot]>,
    /// Bytes that may wait in one limbo before it tries harder to free.
    limit: u64,
}

/// Prevents the reuse of everything visible now. See [`Epochs::pin`].
#[must_use = "nothing is protected once the guard is dropped"]
pub struct Guard<'a> {
    slot: &'a Slot,
    number: usize,
    /// A guard belongs to its thread's slot.
    not_send: PhantomData<*const ()>,
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !slot::is_mine(self.number) {
            return self.leave_shared_seat();
        }
        let depth = self.slot.depth.load(Ordering::Relaxed) - 1;
        self.slot.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            self.slot.seat.unpin();
        }
    }
}

impl Guard<'_> {
    /// Leaves a shared seat.
    #[cold]
    fn leave_shared_seat(&self) {
        let Some(seat) = self.number.checked_sub(SHARED_GUARD_NUMBER_MIN) else { return };
        let _limbo = self.slot.lock();
        let depth = self.slot.depth.load(Ordering::Relaxed) - 1;
        self.slot.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            self.slot.seat.unpin();
        }
        count_shared_guard(seat, |held| held.saturating_sub(1));
    }
}

/// Numbers of guards on shared seats begin here: no slot has such a number.
const SHARED_GUARD_NUMBER_MIN: usize = SHARED_SLOT_INDEX + 1;

fn count_shared_guard(seat: usize, change: impl Fn(u32) -> u32) {
    let mut held = HELD_SHARED_SEATS.get();
    held[seat] = change(held[seat]);
    HELD_SHARED_SEATS.set(held);
}

impl Epochs {
    /// Bytes that may wait in a thread's limbo of a large pool.
    pub const LIMIT_BYTES: u64 = 16 << 20;

    /// Creates the epochs of a pool of this capacity, in bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        let slot = || Slot {
            seat: Seat::new(),
            depth: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            limbo: Mutex::new(Limbo::default()),
        };
        let limit = (capacity / 64).min(Self::LIMIT_BYTES);
        Self { clock: Clock::new(), slots: (0..SHARED_SLOT_INDEX + SHARED_SEAT_COUNT).map(|_| slot()).collect(), limit }
    }

    /// Creates a guard: while it lives, nothing reachable now or later is reused. Reentrant; about
    /// 8 ns.
    #[inline]
    pub fn pin(&self) -> Guard<'_> {
        let number = slot::thread_slot();
        if number == SHARED_SLOT_INDEX {
            return self.pin_shared();
        }
        let slot = &self.slots[number];
        let depth = slot.depth.load(Ordering::Relaxed);
        slot.depth.store(depth + 1, Ordering::Relaxed);
        if depth == 0 {
            self.clock.pin(&slot.seat);
        }
        Guard { slot, number, not_send: PhantomData }
    }

    /// Joins or acquires a shared seat. A thread that joins an announced seat is as safe as its
    /// announcer. The announcement was made with a fence before, and stays until the last thread
    /// leaves.
    #[cold]
    fn pin_shared(&self) -> Guard<'_> {
        let mut seat = 0;
        loop {
            let slot = &self.slots[SHARED_SLOT_INDEX + seat];
            let _limbo = slot.lock();
            let depth = slot.depth.load(Ordering::Relaxed);
            if depth == 0 {
                self.clock.pin(&slot.seat);
            }
            if depth == 0 || slot.seat.announced() == Some(self.clock.stamp()) || seat + 1 == SHARED_SEAT_COUNT {
                slot.depth.store(depth + 1, Ordering::Relaxed);
                std::sync::atomic::fence(Ordering::SeqCst);
                count_shared_guard(seat, |held| held + 1);
                return Guard { slot, number: SHARED_GUARD_NUMBER_MIN + seat, not_send: PhantomData };
            }
            seat += 1;
        }
    }

    /// Returns whether the calling thread holds a guard. On a shared seat, guards of other threads
    /// count too.
    pub fn is_pinned(&self) -> bool {
        let number = slot::thread_slot();
        let holds = |slot: usize| self.slots[slot].depth.load(Ordering::Relaxed) > 0;
        if number == SHARED_SLOT_INDEX {
            (0..SHARED_SEAT_COUNT).any(|seat| HELD_SHARED_SEATS.get()[seat] > 0 && holds(SHARED_SLOT_INDEX + seat))
        } else {
            holds(number)
        }
    }

    /// Waits until every guard of other threads that exists now is gone.
    pub fn synchronize(&self) {
        // The fence in `stamp` makes visible here every guard that may have read the state before
        // the caller's changes.
        let stamp = self.clock.stamp();
        let (own_slot, held_seats) = (slot::thread_slot(), HELD_SHARED_SEATS.get());
        for (number, slot) in self
            .used_slots()
            .iter()
            .enumerate()
            .filter(|(number, _)| *number != own_slot || own_slot == SHARED_SLOT_INDEX)
        {
            let announced_epoch = slot.seat.announced();
            // The caller's own guards on a shared seat.
            let own = number
                .checked_sub(SHARED_SLOT_INDEX)
                .and_then(|seat| held_seats.get(seat))
                .map_or(0, |held| u64::from(*held));
            let others = || slot.depth.load(Ordering::Relaxed) > own;
            // A thread that pins again shows a newer epoch once the clock has advanced.
            while announced_epoch.is_some_and(|announced_epoch| announced_epoch <= stamp)
                && slot.seat.announced() == announced_epoch
                && (own == 0 || others())
            {
                self.advance();
                std::thread::yield_now();
            }
        }
        // The reads under those guards come before everything after this fence.
        std::sync::atomic::fence(Ordering::Acquire);
    }

    /// Returns the bytes that wait for guards to end.
    pub fn waiting_bytes(&self) -> u64 {
        self.used_slots().iter().map(|slot| slot.waiting.load(Ordering::Relaxed)).sum()
    }

    /// Returns the DRAM of the epochs, in bytes.
    pub fn dram_bytes(&self) -> u64 {
        let limbos = self.used_slots().iter().map(|slot| {
            let limbo = slot.lock();
            let bags = limbo.sealed.iter().map(|bag| bag.items.capacity()).chain(limbo.spare.iter().map(Vec::capacity));
            (bags.sum::<usize>() + limbo.open.capacity()) * size_of::<Freed>()
                + limbo.sealed.capacity() * size_of::<Bag>()
        });
        (limbos.sum::<usize>() + size_of_val(&*self.slots)) as u64
    }

    pub(crate) fn retire_on<G: MediumAccess>(&self, alloc: &Allocator, medium: &G, item: Freed) {
        if alloc.is_recovering() {
            alloc.note_kept(item);
        }
        let bytes = alloc.bytes_of(medium, item);
        let slot = &self.slots[slot::thread_slot()];
        let checks_others = {
            let mut limbo = slot.lock();
            limbo.open.push(item);
            limbo.open_bytes += bytes;
            let waiting = slot.waiting.load(Ordering::Relaxed) + bytes;
            slot.waiting.store(waiting, Ordering::Relaxed);
            if limbo.open.len() < BAG_ITEMS_MAX && limbo.open_bytes <= self.limit / 16 {
                return;
            }
            self.seal(&mut limbo);
            limbo.bags = limbo.bags.wrapping_add(1);
            limbo.bags.is_multiple_of(COLLECT_BAG_INTERVAL) || waiting > self.limit
        };
        self.advance();
        self.free_expired(alloc, medium, slot);
        if checks_others {
            let own_slot = slot::thread_slot();
            self.reclaim_on(alloc, medium, |number| number == own_slot || !slot::is_taken(number));
        }
    }

    pub(crate) fn reclaim_on<G: MediumAccess>(&self, alloc: &Allocator, medium: &G, selects: impl Fn(usize) -> bool) {
        // Bags stamped now are free after two steps; a third step covers a clock that another
        // thread advanced.
        for _ in 0..3 {
            let mut has_rest = false;
            for (_, slot) in self.used_slots().iter().enumerate().filter(|(number, _)| selects(*number)) {
                if slot.waiting.load(Ordering::Relaxed) > 0 {
                    self.seal(&mut slot.lock());
                    self.free_expired(alloc, medium, slot);
                    has_rest |= slot.waiting.load(Ordering::Relaxed) > 0;
                }
            }
            if !has_rest || !self.advance() {
                break;
            }
        }
        for (_, slot) in self.used_slots().iter().enumerate().filter(|(number, _)| selects(*number)) {
            if slot.waiting.load(Ordering::Relaxed) > 0 {
                self.free_expired(alloc, medium, slot);
            }
        }
    }

    fn used_slots(&self) -> &[Slot] {
        let used = slot::slots_used();
        if used > SHARED_SLOT_INDEX { &self.slots } else { &self.slots[..used] }
    }

    fn advance(&self) -> bool {
        self.clock.advance(|| self.used_slots().iter().map(|slot| &slot.seat))
    }

    fn seal(&self, limbo: &mut Limbo) {
        if limbo.open.is_empty() {
            return;
        }
        let next = limbo.spare.pop().unwrap_or_else(|| Vec::with_capacity(BAG_ITEMS_MAX));
        let items = std::mem::replace(&mut limbo.open, next);
        let bag = Bag { stamp: self.clock.stamp(), items, bytes: std::mem::take(&mut limbo.open_bytes) };
        limbo.sealed.push_back(bag);
    }

    /// Frees this slot's bags whose grace period is over.
    fn free_expired<G: MediumAccess>(&self, alloc: &Allocator, medium: &G, slot: &Slot) {
        loop {
            let mut limbo = slot.lock();
            if limbo.sealed.front().is_none_or(|bag| !self.clock.is_expired(bag.stamp)) {
                return;
            }
            let Some(mut bag) = limbo.sealed.pop_front() else { return };
            slot.waiting.store(slot.waiting.load(Ordering::Relaxed).saturating_sub(bag.bytes), Ordering::Relaxed);
            drop(limbo);
            alloc.free_all(medium, &bag.items);
            bag.items.clear();
            let mut limbo = slot.lock();
            if limbo.spare.len() < SPARE_BAGS_MAX {
                limbo.spare.push(bag.items);
            }
        }
    }
}
