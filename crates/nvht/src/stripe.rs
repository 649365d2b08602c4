//! Writer locks: one volatile word for each 256th part of a partition's fractions.
//!
//! Invariants:
//! 1. A key's slot is changed only under the stripe of its fraction. A free slot may be taken by a writer of any stripe whose keys reach
//!    its line, so a free slot is taken by a compare-and-swap.
//! 2. A thread takes stripes in ascending order (partition, then fraction), and no other lock under them but those of
//!    the allocator, the epochs and the recorded changes.
//! 3. While a stripe is held, the store of a slot under it may be visible and not yet durable; once it is seen free, every slot
//!    stored under it before is durable. Readers rely on this (see `read.rs`).
//! 4. A partition's cursor passes a fraction only under that fraction's stripe (`resize.rs`): where a key belongs cannot change for who
//!    holds its stripe.
//!
//! A word also counts, for the cost of freeing the lock: keys that came and went since the open, and lines stored.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Stripes of a partition.
pub(crate) const STRIPES: usize = 256;
const FRACTION_SHIFT: u32 = 24;

const LOCKED: u64 = 1;
const WRITES_MAX: u32 = (1 << 31) - 1;
/// Tries before the processor is given to another thread.
const SPINS: u32 = 128;

/// The stripe of a fraction.
#[inline]
pub(crate) fn stripe_of(fraction: u32) -> usize {
    (fraction >> FRACTION_SHIFT) as usize
}

/// The fractions of a stripe: the first, and the first behind it.
pub(crate) fn fractions_of(stripe: usize) -> (u64, u64) {
    ((stripe as u64) << FRACTION_SHIFT, (stripe as u64 + 1) << FRACTION_SHIFT)
}

/// The stripes of all partitions.
pub(crate) struct Stripes {
    words: Box<[AtomicU64]>,
}

/// A held stripe; freed on drop, also when the holder panics.
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

    /// Takes a stripe. The caller holds none that comes behind it.
    #[inline]
    pub(crate) fn lock(&self, partition: usize, stripe: usize) -> Held<'_> {
        let word = self.word(partition, stripe);
        let mut spins = 0;
        loop {
            let now = word.load(Ordering::Relaxed);
            if now & LOCKED == 0
                && word.compare_exchange_weak(now, now | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Held { word, keys: (now >> 32) as u32 as i32, writes: (now as u32) >> 1 };
            }
            spins += 1;
            if spins < SPINS { hint::spin_loop() } else { thread::yield_now() }
        }
    }

    /// Acquires and frees every stripe, one after the other. The caller holds none.
    pub(crate) fn pass_all(&self) {
        for partition in 0..self.words.len() / STRIPES {
            (0..STRIPES).for_each(|stripe| drop(self.lock(partition, stripe)));
        }
    }

    /// Whether a writer is at work there, so that what was read may not be durable yet.
    #[inline]
    pub(crate) fn is_locked(&self, partition: usize, stripe: usize) -> bool {
        self.word(partition, stripe).load(Ordering::Acquire) & LOCKED != 0
    }

    /// Keys that came, less those that went, since the counts were last set.
    pub(crate) fn keys(&self, partition: usize) -> i64 {
        let words = &self.words[partition * STRIPES..(partition + 1) * STRIPES];
        words.iter().map(|word| i64::from((word.load(Ordering::Relaxed) >> 32) as u32 as i32)).sum()
    }

    /// Lines stored in the partition's tables since the open, about.
    pub(crate) fn writes(&self, partition: usize) -> u64 {
        let words = &self.words[partition * STRIPES..(partition + 1) * STRIPES];
        words.iter().map(|word| u64::from((word.load(Ordering::Relaxed) as u32) >> 1)).sum()
    }

    /// Bytes of DRAM.
    pub(crate) fn dram_bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }
}

impl Held<'_> {
    /// Keys under this stripe since its count was last set.
    #[inline]
    pub(crate) fn keys(&self) -> i32 {
        self.keys
    }

    /// A key has come (1) or gone (-1), or neither (0), and a line was stored for it.
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
    fn a_held_stripe_is_seen_and_freed_by_a_panic() {
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
    fn stripes_cut_the_fractions_into_equal_parts() {
        for stripe in 0..STRIPES {
            let (first, end) = fractions_of(stripe);
            assert_eq!((stripe_of(first as u32), stripe_of((end - 1) as u32)), (stripe, stripe));
        }
        assert_eq!(fractions_of(STRIPES - 1).1, 1 << 32);
    }
}
