//! Reads several words of shared, changing memory: index buckets.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::nvptr::NvPtr;
use crate::pool::Pool;

impl Pool {
    /// Loads `N` consecutive 8-byte words from `at` (8-aligned). Each word is loaded atomically
    /// (acquire), not all of them at one moment.
    ///
    /// # Panics
    /// If the range is not inside a region or not aligned.
    #[inline]
    pub fn load_words<const N: usize>(&self, at: NvPtr) -> [u64; N] {
        assert!(at.offset().is_multiple_of(8), "words at an 8-aligned place");
        let address = self.memory.address(at, N * 8).cast::<u64>();
        std::array::from_fn(|word| {
            // SAFETY: in a region (Inv 2), 8-aligned since regions are page-aligned, touched by
            // atomics only (Inv 5).
            unsafe { AtomicU64::from_ptr(address.add(word)) }.load(Ordering::Acquire)
        })
    }

    /// Counts the zero words at the start of `words` 8-byte words from `at` (8-aligned). Each is
    /// loaded atomically (acquire).
    ///
    /// # Panics
    /// Like [`Self::load_words`].
    pub(crate) fn zero_words(&self, at: NvPtr, words: usize) -> usize {
        /// Words of a line, tested together.
        const LINE_WORDS: usize = 8;
        assert!(at.offset().is_multiple_of(8), "words at an 8-aligned place");
        let address = self.memory.address(at, words * 8).cast::<u64>();
        // SAFETY: as in `load_words` (Inv 2, Inv 5); `word` is below `words`.
        let load = |word: usize| unsafe { AtomicU64::from_ptr(address.add(word)) }.load(Ordering::Acquire);
        let mut at = 0;
        while at + LINE_WORDS <= words && (at..at + LINE_WORDS).fold(0, |all, word| all | load(word)) == 0 {
            at += LINE_WORDS;
        }
        (at..words).find(|word| load(*word) != 0).unwrap_or(words)
    }

    /// Compares the first word of each of the `N` pairs of 8-byte words from `at` (8-aligned) with
    /// `first`. Returns a bit per pair, set if equal, the lowest bit for the first pair. Each word
    /// is loaded atomically (acquire), not all at one moment. No branch depends on the data.
    /// Returns `None` if the range is not inside a region or not aligned; accepts any `at`.
    #[inline]
    pub fn pairs_with<const N: usize>(&self, at: NvPtr, first: u64) -> Option<u32> {
        const { assert!(N <= 32, "a bit for each pair") };
        if !at.offset().is_multiple_of(8) {
            return None;
        }
        let address = self.memory.regions.address(at, N * 16)?.cast::<u64>();
        Some((0..N).fold(0, |found, pair| {
            // SAFETY: in a region (Inv 2), 8-aligned since regions are page-aligned, touched by
            // atomics only (Inv 5).
            let word = unsafe { AtomicU64::from_ptr(address.add(pair * 2)) }.load(Ordering::Acquire);
            found | u32::from(word == first) << pair
        }))
    }
}
