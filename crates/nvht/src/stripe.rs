//! Writer locks: one volatile word for each 256th of a partition's fractions.
//!
//! Invariants:
//! 1. A key's slot is changed only under the stripe of its fraction. A writer of any stripe with
//!    keys in reach of a line may claim a free slot there. A free slot is therefore claimed by a
//!    compare-and-swap.
//! 2. A thread acquires stripes in ascending order (partition, then fraction). Under them it
//!    acquires no other lock, except those of the allocator, the epochs and the recorded changes.
//! 3. While a stripe is held, a slot stored under it may be visible and not yet durable. Once the
//!    stripe is seen free, every slot stored under it before is durable. Readers rely on this (see
//!    `read.rs`).
//! 4. A partition's cursor passes a fraction only under that fraction's stripe (`resize.rs`). A
//!    key's table therefore cannot change for the holder of its stripe.
//!
//! A word also counts, at the cost of freeing the lock: keys added and removed since the open, and
//! lines stored.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Stripes of a partition.
pub(crate) const STRIPES: usize = 256;
const FRACTION_SHIFT: u32 = 24;

const LOCKED_FLAG: u64 = 1;
const WRITES_MAX: u32 = (1 << 31) - 1;
/// Attempts before the thread yields the processor.
const SPIN_ATTEMPTS: u32 = 128;

/// Returns the stripe of a fraction.
#[inline]
pub(crate) fn stripe_of(fraction: u32) -> usize {
    (fraction >> FRACTION_SHIFT) as usize
}

/// Returns the fractions of a stripe: the first one, and the first one after the stripe.
pub(crate) fn fractions_of(stripe: usize) -> (u64, u64) {
    ((stripe as u64) << FRACTION_SHIFT, (stripe as u64 + 1) << FRACTION_SHIFT)
}

/// The stripes of all partitions.
pub(crate) struct Stripes {
    words: Box<[AtomicU64]>,
}

/// A held stripe. Freed on drop, also if the holder panics.
pub(crate) struct Held<'a> {
    word: &'a AtomicU64,
    keys: i32,
    writes: u32,
}

impl Stripes {
    pub(crate) fn new(partitions: usize) -> Self {
        Self { words: (0..partitions * STRIPES).map(|_| AtomicU64::new(0)).collect() }
    }

    #[inline]
    fn word(&self, partition: usize, stripe: usize) -> &AtomicU64 {
        debug_assert!(stripe < STRIPES);
        &self.words[partition * STRIPES + stripe]
    }

    /// Acquires a stripe. The caller holds no later one.
    #[inline]
    pub(crate) fn lock(&self, partition: usize, stripe: usize) -> Held<'_> {
        let word = self.word(partition, stripe);
        let mut spins = 0;
        loop {
            let now = word.load(Ordering::Relaxed);
            if now & LOCKED_FLAG == 0
                && word.compare_exchange_weak(now, now | LOCKED_FLAG, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Held { word, keys: (now >> 32) as u32 as i32, writes: (now as u32) >> 1 };
            }
            spins += 1;
            if spins < SPIN_ATTEMPTS { hint::spin_loop() } else { thread::yield_now() }
        }
    }

    /// Acquires and frees every stripe, one after the other. The caller holds none.
    pub(crate) fn wait_for_holders(&self) {
        for partition in 0..self.words.len() / STRIPES {
            (0..STRIPES).for_each(|stripe| drop(self.lock(partition, stripe)));
        }
    }

    /// Returns whether a writer holds the stripe: data that was read may not be durable yet.
    #[inline]
    pub(crate) fn is_locked(&self, partition: usize, stripe: usize) -> bool {
        self.word(partition, stripe).load(Ordering::Acquire) & LOCKED_FLAG != 0
    }

    /// Returns the keys added minus the keys removed since the counts were last set.
    pub(crate) fn keys(&self, partition: usize) -> i64 {
        let words = &self.words[partition * STRIPES..(partition + 1) * STRIPES];
        words.iter().map(|word| i64::from((word.load(Ordering::Relaxed) >> 32) as u32 as i32)).sum()
    }

    /// Returns the approximate number of lines stored in the partition's tables since the open.
    pub(crate) fn writes(&self, partition: usize) -> u64 {
        let words = &self.words[partition * STRIPES..(partition + 1) * STRIPES];
        words.iter().map(|word| u64::from((word.load(Ordering::Relaxed) as u32) >> 1)).sum()
    }

    /// Returns the bytes of DRAM.
    pub(crate) fn dram_bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }
}

impl Held<'_> {
    /// Returns the keys under this stripe since its count was last set.
    #[inline]
    pub(crate) fn keys(&self) -> i32 {
        self.keys
    }

    /// Counts a key that was added (1), removed (-1) or neither (0), and a stored line.
    #[inline]
    pub(crate) fn count(&mut self, keys: i32) {
        self.keys = self.keys.wrapping_add(keys);
        self.writes = (self.writes + 1).min(WRITES_MAX);
    }

    /// Sets the count of keys.
    pub(crate) fn set_keys(&mut self, keys: u64) {
        self.keys = i32::try_from(keys).unwrap_or(i32::MAX);
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.word.store(u64::from(self.keys as u32) << 32 | u64::from(self.writes) << 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_stripe_is_visible_and_a_panic_frees_it() {
        let stripes = Stripes::new(2);
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
    fn counts_go_up_and_down_over_threads() {
        let stripes = Stripes::new(1);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 0..3000 {
                        let mut held = stripes.lock(0, i % 3);
                        held.count(if i % 3 == 0 { -1 } else { 1 });
                    }
                });
            }
        });
        assert_eq!((stripes.keys(0), stripes.writes(0)), (4000, 12_000));
        stripes.lock(0, 7).set_keys(5);
        assert_eq!(stripes.keys(0), 4005);
    }

    #[test]
    fn stripes_divide_the_fractions_equally() {
        for stripe in 0..STRIPES {
            let (first, end) = fractions_of(stripe);
            assert_eq!((stripe_of(first as u32), stripe_of((end - 1) as u32)), (stripe, stripe));
        }
        assert_eq!(fractions_of(STRIPES - 1).1, 1 << 32);
    }
}
