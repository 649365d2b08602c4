//! A filter in DRAM over the keys of one memtable. Most lookups of keys that are stored in tables
//! read one word here instead of the index.
//!
//! A key sets three bits of one word. The hash of the key selects the word and the bits; no format
//! depends on them.
//!
//! Invariant: the bits of a key are set before its entry is in the index. If not all of them are
//! set, the memtable has no entry that a reader must see.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of log per word: eight entries of 32 bytes, the size of an entry with 8-byte key and
/// value.
const LOG_BYTES: u64 = 256;
/// Most words: 8 MiB.
const WORDS_MAX: u64 = 1 << 20;

/// The filter of one memtable. See the module.
pub(crate) struct KeyFilter(Box<[AtomicU64]>);

impl KeyFilter {
    /// Creates a filter for a memtable of about this many bytes of log.
    pub(crate) fn new(log_bytes: u64) -> Self {
        let words = (log_bytes / LOG_BYTES).next_power_of_two().clamp(8, WORDS_MAX);
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// Returns the word of a hash and the bits in it.
    #[inline]
    fn word_and_bits(&self, hash: u64) -> (&AtomicU64, u64) {
        // Stripes and the tags of blocks use other bits of the hash.
        let word = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let bits = 1 << (hash & 63) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63);
        (&self.0[word as usize & (self.0.len() - 1)], bits)
    }

    /// Prefetches the cache line of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        lodestore_media::prefetch_value(self.word_and_bits(hash).0);
    }

    /// Adds a key. Called before its entry is in the index.
    #[inline]
    pub(crate) fn add(&self, hash: u64) {
        let (word, bits) = self.word_and_bits(hash);
        if word.load(Ordering::Relaxed) & bits != bits {
            word.fetch_or(bits, Ordering::Release);
        }
    }

    /// Returns whether the key may have been added.
    #[inline]
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        let (word, bits) = self.word_and_bits(hash);
        word.load(Ordering::Acquire) & bits == bits
    }

    pub(crate) fn dram_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sst::hash;

    #[test]
    fn a_filter_has_every_added_key_and_few_others() {
        let count = 100_000u64;
        let filter = KeyFilter::new(count * 32);
        let hash_of = |number: u64| hash(&number.to_le_bytes());
        (0..count).for_each(|number| filter.add(hash_of(number)));
        assert!((0..count).all(|number| filter.may_have(hash_of(number))));
        let wrong = (count..2 * count).filter(|number| filter.may_have(hash_of(*number))).count() as u64;
        assert!(wrong < count / 12, "{wrong} of {count} absent keys look present");
    }

    #[test]
    fn an_empty_filter_has_nothing() {
        let filter = KeyFilter::new(0);
        assert!((0..1000u64).all(|number| !filter.may_have(hash(&number.to_le_bytes()))));
    }
}
