//! Writer locks: one volatile word for each stripe of a partition's keys.
//!
//! Invariants, to which each engine adds its own (`stripe.rs` there):
//! 1. A key's index entry is changed only under the stripe of the key.
//! 2. A thread acquires stripes in ascending order (partition, then stripe).
//! 3. While a stripe is held, an entry stored under it may be visible and not yet durable. Once the
//!    stripe is seen free, every earlier entry store under it is durable. Readers rely on this (see
//!    `read.rs`).

use std::hint;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const LOCKED_FLAG: u64 = 1;
/// Attempts before the thread yields the processor.
const SPIN_ATTEMPTS: u32 = 128;

/// The location of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StripeIndex {
    /// The partition, 0-based.
    pub partition: usize,
    /// The stripe in the partition, 0-based.
    pub stripe: usize,
}

/// The stripes of all partitions. Next to its lock, a stripe's word holds a content of 63 bits.
/// Only the holder changes it, at no cost: the word is stored when the stripe is freed.
pub struct Stripes<C> {
    words: Box<[AtomicU64]>,
    per_partition: usize,
    content: PhantomData<C>,
}

/// A held stripe. Freed on drop, also if the holder panics.
pub struct Held<'a, C: Copy + Into<u64>> {
    word: &'a AtomicU64,
    content: C,
}

impl<C: Copy + From<u64> + Into<u64>> Stripes<C> {
    /// Creates free stripes with this content.
    ///
    /// # Panics
    /// If the content has more than 63 bits.
    pub fn new(partitions: usize, per_partition: usize, content: C) -> Self {
        let bits: u64 = content.into();
        assert!(bits < 1 << 63);
        let words = (0..partitions * per_partition).map(|_| AtomicU64::new(bits << 1)).collect();
        Self { words, per_partition, content: PhantomData }
    }

    #[inline]
    fn word(&self, StripeIndex { partition, stripe }: StripeIndex) -> &AtomicU64 {
        debug_assert!(stripe < self.per_partition);
        &self.words[partition * self.per_partition + stripe]
    }

    /// Acquires a stripe. The caller holds no later one.
    #[inline]
    pub fn lock(&self, index: StripeIndex) -> Held<'_, C> {
        let word = self.word(index);
        let mut spins = 0;
        loop {
            let now = word.load(Ordering::Relaxed);
            if now & LOCKED_FLAG == 0
                && word.compare_exchange_weak(now, now | LOCKED_FLAG, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Held { word, content: C::from(now >> 1) };
            }
            spins += 1;
            if spins < SPIN_ATTEMPTS { hint::spin_loop() } else { thread::yield_now() }
        }
    }

    /// Acquires all stripes of a partition. The caller holds none of it, and none of a later one.
    pub fn lock_partition(&self, partition: usize) -> Vec<Held<'_, C>> {
        (0..self.per_partition).map(|stripe| self.lock(StripeIndex { partition, stripe })).collect()
    }

    /// Acquires all stripes. The caller holds none.
    pub fn lock_all(&self) -> Vec<Held<'_, C>> {
        (0..self.partitions()).flat_map(|partition| self.lock_partition(partition)).collect()
    }

    /// Acquires and frees every stripe, one after the other. The caller holds none.
    pub fn wait_for_holders(&self) {
        for partition in 0..self.partitions() {
            (0..self.per_partition).for_each(|stripe| drop(self.lock(StripeIndex { partition, stripe })));
        }
    }

    /// Returns whether a writer holds the stripe: data that was read may not be durable yet.
    #[inline]
    pub fn is_locked(&self, index: StripeIndex) -> bool {
        self.word(index).load(Ordering::Acquire) & LOCKED_FLAG != 0
    }

    /// Returns the contents of a partition's stripes. Holders may be changing them.
    pub fn contents(&self, partition: usize) -> impl Iterator<Item = C> {
        let words = &self.words[partition * self.per_partition..(partition + 1) * self.per_partition];
        words.iter().map(|word| C::from(word.load(Ordering::Relaxed) >> 1))
    }

    fn partitions(&self) -> usize {
        self.words.len() / self.per_partition
    }

    /// Returns the bytes of DRAM.
    pub fn dram_bytes(&self) -> u64 {
        size_of_val(&*self.words) as u64
    }
}

impl<C: Copy + Into<u64>> Deref for Held<'_, C> {
    type Target = C;

    #[inline]
    fn deref(&self) -> &C {
        &self.content
    }
}

impl<C: Copy + Into<u64>> DerefMut for Held<'_, C> {
    #[inline]
    fn deref_mut(&mut self) -> &mut C {
        &mut self.content
    }
}

impl<C: Copy + Into<u64>> Drop for Held<'_, C> {
    #[inline]
    fn drop(&mut self) {
        self.word.store(self.content.into() << 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_stripe_is_visible_and_a_panic_frees_it() {
        let stripes = Stripes::new(2, 3, 10_u64);
        let index = |partition, stripe| StripeIndex { partition, stripe };
        let held = stripes.lock(index(1, 2));
        assert!(stripes.is_locked(index(1, 2)));
        assert!(!stripes.is_locked(index(1, 1)) && !stripes.is_locked(index(0, 2)));
        drop(held);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = stripes.lock(index(1, 2));
            panic!("in the middle");
        }));
        assert!(panicked.is_err() && !stripes.is_locked(index(1, 2)));
    }

    #[test]
    fn each_holder_sees_the_content_of_the_one_before() {
        let stripes = Stripes::new(1, 3, 10_u64);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..3000 {
                        *stripes.lock(StripeIndex { partition: 0, stripe: round % 3 }) += 1;
                    }
                });
            }
        });
        assert_eq!(stripes.contents(0).collect::<Vec<_>>(), [4010; 3]);
    }
}
