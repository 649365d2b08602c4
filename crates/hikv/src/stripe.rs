//! Writer locks: one volatile word for each (partition, home bucket).
//!
//! Invariants:
//! 1. A key's entry is changed only under the stripe of its partition and home bucket.
//! 2. A split of a segment, and a change of a partition's directory, happens under all stripes of
//!    that partition. They are acquired in ascending order by a thread that holds none.
//! 3. While a stripe is held, an entry stored under it may be visible and not yet durable. Once the
//!    stripe is seen free, every earlier entry store under it is durable. Readers rely on this (see
//!    `read.rs`).
//! 4. The word's upper 63 bits are the last sequence given to a record under it, and never
//!    decrease. A sequence identifies the open that wrote a record; nothing depends on the order of
//!    sequences.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::layout::GENERATION_SHIFT;

const LOCKED_FLAG: u64 = 1;
/// Attempts before the thread yields the processor.
const SPIN_ATTEMPTS: u32 = 128;

/// The stripes of all partitions.
pub(crate) struct Stripes {
    words: Box<[AtomicU64]>,
    per_partition: usize,
}

/// A held stripe. Freed on drop, also if the holder panics.
pub(crate) struct Held<'a> {
    word: &'a AtomicU64,
    sequence: u64,
}

impl Stripes {
    /// `first_sequence` is above every sequence ever stored.
    pub(crate) fn new(partitions: usize, per_partition: usize, first_sequence: u64) -> Self {
        assert!(first_sequence < 1 << 63);
        let words = (0..partitions * per_partition).map(|_| AtomicU64::new(first_sequence << 1)).collect();
        Self { words, per_partition }
    }

    #[inline]
    fn word(&self, partition: usize, home: usize) -> &AtomicU64 {
        debug_assert!(home < self.per_partition);
        &self.words[partition * self.per_partition + home]
    }

    /// Acquires a stripe. The caller holds no other, except in ascending order within one
    /// partition.
    #[inline]
    pub(crate) fn lock(&self, partition: usize, home: usize) -> Held<'_> {
        let word = self.word(partition, home);
        let mut spins = 0;
        loop {
            let now = word.load(Ordering::Relaxed);
            if now & LOCKED_FLAG == 0
                && word.compare_exchange_weak(now, now | LOCKED_FLAG, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Held { word, sequence: now >> 1 };
            }
            spins += 1;
            if spins < SPIN_ATTEMPTS { hint::spin_loop() } else { thread::yield_now() }
        }
    }

    /// Acquires all stripes of a partition. The caller holds none.
    pub(crate) fn lock_partition(&self, partition: usize) -> Vec<Held<'_>> {
        (0..self.per_partition).map(|home| self.lock(partition, home)).collect()
    }

    /// Acquires and frees every stripe, one after the other. The caller holds none.
    pub(crate) fn wait_for_holders(&self) {
        for partition in 0..self.words.len() / self.per_partition {
            (0..self.per_partition).for_each(|home| drop(self.lock(partition, home)));
        }
    }

    /// Returns whether a writer holds the stripe: data that was read may not be durable yet.
    #[inline]
    pub(crate) fn is_locked(&self, partition: usize, home: usize) -> bool {
        self.word(partition, home).load(Ordering::Acquire) & LOCKED_FLAG != 0
    }

    /// Returns the bytes of DRAM.
    pub(crate) fn dram_bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }
}

impl Held<'_> {
    /// Returns a sequence above all earlier ones under this stripe. After 2^36 in one open, returns
    /// the last one again, to stay below the next open's sequences.
    #[inline]
    pub(crate) fn next_sequence(&mut self) -> u64 {
        const SEQUENCE_MASK: u64 = (1 << GENERATION_SHIFT) - 1;
        if self.sequence & SEQUENCE_MASK != SEQUENCE_MASK {
            self.sequence += 1;
        }
        self.sequence
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.word.store(self.sequence << 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_stripe_is_visible_and_a_panic_frees_it() {
        let stripes = Stripes::new(2, 3, 10);
        let held = stripes.lock(1, 2);
        assert!(stripes.is_locked(1, 2) && !stripes.is_locked(1, 1) && !stripes.is_locked(0, 2));
        drop(held);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = stripes.lock(1, 2);
            panic!("in the middle");
        }));
        assert!(panicked.is_err() && !stripes.is_locked(1, 2));
    }

    #[test]
    fn sequences_grow_over_locks_and_threads() {
        let stripes = Stripes::new(1, 1, 10);
        let seen: Vec<u64> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..500).map(|_| stripes.lock(0, 0).next_sequence()).collect::<Vec<_>>()))
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        let mut sorted = seen.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (11..=2010).collect::<Vec<_>>(), "each given once");
    }
}
