//! Counts of the operations on the medium, one set per thread slot, so that counting shares no
//! cache line.
//!
//! Invariants: only the owner of its slot writes a set (`slot.rs`, invariant 1), by relaxed loads
//! and stores. Exception: the shared slot's set is written by locked instructions. Any thread may
//! read the sums at any time; they may be slightly old.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::slot::{SHARED_SLOT_INDEX, SLOTS, thread_slot};

/// The counts of one thread slot.
#[derive(Default)]
#[repr(align(128))]
struct Counts {
    flushes: AtomicU64,
    fences: AtomicU64,
    bytes: AtomicU64,
    /// Blocks of 256 bytes flushed since the last fence.
    unfenced: AtomicU64,
}

/// The counts of all slots.
pub(crate) struct Counters {
    slots: Box<[Counts; SLOTS]>,
}

/// A thread's set, and whether other threads share it.
#[derive(Clone, Copy)]
struct ThreadCounts<'a> {
    counts: &'a Counts,
    shared: bool,
}

impl ThreadCounts<'_> {
    #[inline]
    fn add(self, count: impl Fn(&Counts) -> &AtomicU64, more: u64) {
        let count = count(self.counts);
        if self.shared {
            count.fetch_add(more, Ordering::Relaxed);
        } else {
            // Not an atomic addition: only the slot's owner writes.
            count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        }
    }
}

impl Counters {
    pub(crate) fn new() -> Self {
        let slots: Vec<Counts> = std::iter::repeat_with(Counts::default).take(SLOTS).collect();
        match slots.into_boxed_slice().try_into() {
            Ok(slots) => Self { slots },
            Err(_) => unreachable!("as many sets as slots"),
        }
    }

    #[inline]
    fn own(&self) -> ThreadCounts<'_> {
        let slot = thread_slot();
        ThreadCounts { counts: &self.slots[slot], shared: slot == SHARED_SLOT_INDEX }
    }

    /// Counts stored bytes.
    #[inline]
    pub(crate) fn stored(&self, bytes: usize) {
        self.own().add(|counts| &counts.bytes, bytes as u64);
    }

    /// Counts flushed lines (or pages), in `blocks` blocks of 256 bytes.
    #[inline]
    pub(crate) fn flushed(&self, lines: u64, blocks: u64) {
        let own = self.own();
        own.add(|counts| &counts.flushes, lines);
        own.add(|counts| &counts.unfenced, blocks);
    }

    /// Counts a fence. Returns the blocks of 256 bytes that this thread (or all sharers of its
    /// slot) flushed since the last one.
    #[inline]
    pub(crate) fn fenced(&self) -> u64 {
        let own = self.own();
        own.add(|counts| &counts.fences, 1);
        let unfenced = &own.counts.unfenced;
        if own.shared {
            return unfenced.swap(0, Ordering::Relaxed);
        }
        let blocks = unfenced.load(Ordering::Relaxed);
        unfenced.store(0, Ordering::Relaxed);
        blocks
    }

    fn sum(&self, count: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        self.slots.iter().map(|slot| count(slot).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    pub(crate) fn flushes(&self) -> u64 {
        self.sum(|slot| &slot.flushes)
    }

    pub(crate) fn fences(&self) -> u64 {
        self.sum(|slot| &slot.fences)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.sum(|slot| &slot.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_cover_all_threads() {
        let counters = Counters::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        counters.stored(3);
                        counters.flushed(2, 1);
                        counters.flushed(1, 1);
                        assert_eq!(counters.fenced(), 2);
                    }
                });
            }
        });
        assert_eq!((counters.bytes(), counters.flushes(), counters.fences()), (12_000, 12_000, 4000));
    }
}
