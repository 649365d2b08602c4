//! The counting Bloom filter of a group (MKVS, Micromachines 2019, section 4.2): a key that the
//! filter does not contain is absent, and no device is queried.
//!
//! Counters have four bits; a block of 128 counters is one cache line. A key has four counters in
//! one block, therefore a lookup touches one line.
//!
//! Invariants
//! 1. A key's counters are raised before the key is added, and lowered after it is removed. The
//!    device's answers decide how often it was added and removed. The filter never reports a
//!    present key as absent.
//! 2. A counter that has reached 15 stays there: its number of keys is unknown from then on.
//! 3. Any thread may look up, raise and lower. To lower a key that was never raised is an error of
//!    the caller: `lower` returns false, and the filter must be rebuilt.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use crate::route::KeyHash;
use crate::{read, write};

/// Number of counters of a key. Seven would let a third fewer absent keys pass, but make adding a
/// key twice as expensive.
const KEY_COUNTERS_COUNT: u32 = 4;
/// Counters per planned key. In a full filter, about 2 percent of absent keys find all their
/// counters raised.
const COUNTERS_PER_KEY_RATIO: u64 = 10;
/// Words of a block (`BLOCK_WORDS`), counters of a word (`WORD_COUNTERS_COUNT`) and of a block
/// (`BLOCK_COUNTERS_COUNT`).
const BLOCK_WORDS: usize = 8;
const WORD_COUNTERS_COUNT: u32 = 16;
const BLOCK_COUNTERS_COUNT: u64 = 128;
/// The value at which a counter saturates.
const COUNTER_MAX: u64 = 15;

#[derive(Default)]
#[repr(align(64))]
struct Block([AtomicU64; BLOCK_WORDS]);

/// The filter.
pub(crate) struct Filter {
    blocks: Box<[Block]>,
    /// Planned number of keys.
    keys: u64,
}

impl Filter {
    /// Creates an empty filter for `keys` keys.
    pub(crate) fn new(keys: u64) -> Self {
        let blocks = Self::blocks_of(keys);
        Self { blocks: (0..blocks).map(|_| Block::default()).collect(), keys: keys.max(1) }
    }

    fn blocks_of(keys: u64) -> u64 {
        keys.max(1).saturating_mul(COUNTERS_PER_KEY_RATIO).div_ceil(BLOCK_COUNTERS_COUNT)
    }

    /// Returns the planned number of keys. With more keys, more absent keys pass.
    pub(crate) fn keys(&self) -> u64 {
        self.keys
    }

    /// Returns the DRAM that the filter uses, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.blocks) as u64
    }

    /// Returns the block of a key, and its counters there as (word, shift).
    #[inline]
    fn counters_of(&self, hash: KeyHash) -> (&Block, impl Iterator<Item = (usize, u32)> + use<>) {
        let mixed = hash.mixed();
        let at = ((u128::from(mixed) * self.blocks.len() as u128) >> 64) as usize;
        let bits = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(17);
        let counters = (0..KEY_COUNTERS_COUNT).map(move |counter| {
            let index = (bits >> (counter * 7)) as u32 & (BLOCK_COUNTERS_COUNT as u32 - 1);
            ((index / WORD_COUNTERS_COUNT) as usize, index % WORD_COUNTERS_COUNT * 4)
        });
        (&self.blocks[at], counters)
    }

    /// Returns false if the key is certainly absent.
    #[inline]
    pub(crate) fn may_have(&self, hash: KeyHash) -> bool {
        let (block, mut counters) = self.counters_of(hash);
        counters.all(|(word, shift)| block.0[word].load(Ordering::Acquire) >> shift & COUNTER_MAX != 0)
    }

    /// Counts a key before it is added.
    pub(crate) fn raise(&self, hash: KeyHash) {
        let (block, counters) = self.counters_of(hash);
        for (word, shift) in counters {
            // A saturated counter stays as it is; this is not an error.
            let _ = block.0[word].fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                (old >> shift & COUNTER_MAX != COUNTER_MAX).then(|| old + (1 << shift))
            });
        }
    }

    /// Removes a deleted key from the counters. Returns false if the key had not been counted: the
    /// filter must be rebuilt.
    #[must_use]
    pub(crate) fn lower(&self, hash: KeyHash) -> bool {
        let (block, counters) = self.counters_of(hash);
        let mut sound = true;
        for (word, shift) in counters {
            let lowered = block.0[word].fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                let counter = old >> shift & COUNTER_MAX;
                (counter != 0 && counter != COUNTER_MAX).then(|| old - (1 << shift))
            });
            sound &= lowered.is_ok_and(|_| true) || lowered.is_err_and(|old| old >> shift & COUNTER_MAX == COUNTER_MAX);
        }
        sound
    }

    /// Returns the share of absent keys that pass, estimated from how full a sample of the blocks
    /// is.
    pub(crate) fn false_positives(&self) -> f64 {
        const SAMPLE_BLOCKS: usize = 4096;
        let step = (self.blocks.len() / SAMPLE_BLOCKS).max(1);
        let raised = |block: &Block| {
            let words = block.0.iter().map(|word| {
                let word = word.load(Ordering::Relaxed);
                let any = word | word >> 1 | word >> 2 | word >> 3;
                (any & 0x1111_1111_1111_1111).count_ones()
            });
            f64::from(words.sum::<u32>()) / BLOCK_COUNTERS_COUNT as f64
        };
        let passes = self.blocks.iter().step_by(step).map(|block| raised(block).powi(KEY_COUNTERS_COUNT as i32));
        passes.sum::<f64>() / self.blocks.len().div_ceil(step) as f64
    }

    /// Returns the counters as bytes, to be stored while the matrix is closed.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let words = self.blocks.iter().flat_map(|block| &block.0);
        words.flat_map(|word| word.load(Ordering::Acquire).to_le_bytes()).collect()
    }

    /// Returns a filter for `keys` keys from the bytes of [`to_bytes`](Self::to_bytes), or `None`
    /// if the length does not fit.
    pub(crate) fn from_bytes(keys: u64, bytes: &[u8]) -> Option<Self> {
        // Checked before anything of this size is allocated.
        if Self::blocks_of(keys).saturating_mul(size_of::<Block>() as u64) != bytes.len() as u64 {
            return None;
        }
        let filter = Self::new(keys);
        let words = filter.blocks.iter().flat_map(|block| &block.0);
        for (word, bytes) in words.zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        Some(filter)
    }
}

/// A filter that is being built by a walk over the keys in their order, concurrently with writes.
///
/// The walk advances by pages and holds all stripes during each page. A write that adds or removes
/// a key holds the key's stripe. The walk counts a key after its position when it gets there; a
/// write counts a key before it. Each key is counted once. A walk without order has no position: it
/// counts every key that it finds, writes count added keys too, and nothing is lowered. Such a
/// filter may count too much, never too little.
pub(crate) struct Building {
    filter: Arc<Filter>,
    /// Keys that the filter counts.
    keys: AtomicU64,
    /// The position of the walk. Unused without order.
    position: RwLock<WalkPosition>,
    is_ordered: bool,
}

/// The position of a walk.
enum WalkPosition {
    Start,
    /// The last key counted.
    At(Vec<u8>),
    /// All keys were counted.
    End,
}

impl Building {
    pub(crate) fn new(keys: u64, is_ordered: bool) -> Self {
        Self {
            filter: Arc::new(Filter::new(keys)),
            keys: AtomicU64::new(0),
            position: RwLock::new(WalkPosition::Start),
            is_ordered,
        }
    }

    fn is_passed(&self, key: &[u8]) -> bool {
        match &*read(&self.position) {
            WalkPosition::Start => false,
            WalkPosition::At(position) => key <= &position[..],
            WalkPosition::End => true,
        }
    }

    /// As [`Filter::raise`].
    pub(crate) fn raise(&self, key: &[u8], hash: KeyHash) {
        if !self.is_ordered || self.is_passed(key) {
            self.keys.fetch_add(1, Ordering::Relaxed);
            self.filter.raise(hash);
        }
    }

    /// As [`Filter::lower`].
    pub(crate) fn lower(&self, key: &[u8], hash: KeyHash) -> bool {
        if !self.is_ordered || !self.is_passed(key) {
            return true;
        }
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.filter.lower(hash)
    }

    /// Counts keys that the walk has reached; `are_last` ends the walk. All stripes are held,
    /// except without order.
    pub(crate) fn count(&self, keys: &[Vec<u8>], are_last: bool, hash: impl Fn(&[u8]) -> KeyHash) {
        self.keys.fetch_add(keys.len() as u64, Ordering::Relaxed);
        keys.iter().for_each(|key| self.filter.raise(hash(key)));
        let mut position = write(&self.position);
        match keys.last() {
            _ if are_last => *position = WalkPosition::End,
            Some(last) => *position = WalkPosition::At(last.clone()),
            None => {}
        }
    }

    /// Returns the last key that was counted.
    pub(crate) fn position(&self) -> Option<Vec<u8>> {
        match &*read(&self.position) {
            WalkPosition::At(position) => Some(position.clone()),
            WalkPosition::Start | WalkPosition::End => None,
        }
    }

    /// Returns the number of counted keys.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns the filter, which is complete after the walk's end.
    pub(crate) fn filter(&self) -> &Arc<Filter> {
        &self.filter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(key: u64) -> KeyHash {
        KeyHash::of(&key.to_le_bytes(), 3)
    }

    #[test]
    fn a_raised_key_may_be_present_until_it_is_lowered_as_often() {
        let filter = Filter::new(1000);
        for key in 0..1000 {
            filter.raise(hash(key));
            filter.raise(hash(key));
        }
        assert!((0..1000).all(|key| filter.may_have(hash(key))));
        assert!((0..1000).all(|key| filter.lower(hash(key))));
        assert!((0..1000).all(|key| filter.may_have(hash(key))), "each was raised twice");
    }

    #[test]
    fn an_emptied_filter_has_only_saturated_counters() {
        let filter = Filter::new(1000);
        (0..1000).for_each(|key| filter.raise(hash(key)));
        assert!((0..1000).all(|key| filter.lower(hash(key))));
        assert!((0..1000).all(|key| !filter.may_have(hash(key))));
        assert!(filter.false_positives() == 0.0);
    }

    #[test]
    fn about_two_absent_keys_in_a_hundred_pass_a_full_filter() {
        let filter = Filter::new(20_000);
        (0..20_000).for_each(|key| filter.raise(hash(key)));
        let passed = (20_000..220_000).filter(|key| filter.may_have(hash(*key))).count() as f64 / 200_000.0;
        let estimate = filter.false_positives();
        assert!(passed < 0.03 && (passed - estimate).abs() < 0.005, "{passed} passed, {estimate} estimate");
    }

    #[test]
    fn a_saturated_counter_stays() {
        let filter = Filter::new(1);
        (0..40).for_each(|_| filter.raise(hash(1)));
        assert!((0..40).all(|_| filter.lower(hash(1))));
        assert!(filter.may_have(hash(1)), "how often it was raised is not known");
    }

    #[test]
    fn a_filter_build_counts_each_key_once_by_the_walk_or_by_its_writer() {
        let name = |key: u8| vec![key];
        let hashed = |key: &[u8]| KeyHash::of(key, 3);
        let building = Building::new(1000, true);
        let raise = |key: u8| building.raise(&name(key), hashed(&name(key)));
        raise(5);
        building.count(&[name(1), name(5)], false, hashed);
        raise(3);
        raise(7);
        assert!(building.lower(&name(7), hashed(&name(7))), "the walk has not come there");
        raise(8);
        building.count(&[name(8)], true, hashed);
        raise(9);
        let filter = building.filter();
        for key in [1, 3, 5, 8, 9] {
            assert!(filter.may_have(hashed(&name(key))), "{key} is counted");
            assert!(filter.lower(hashed(&name(key))));
            assert!(!filter.may_have(hashed(&name(key))), "{key} is counted once");
        }
        assert!(!filter.may_have(hashed(&name(7))));
    }

    #[test]
    fn lowering_a_key_that_was_not_raised_is_reported() {
        assert!(!Filter::new(100).lower(hash(1)));
    }

    #[test]
    fn bytes_give_the_same_filter_and_other_lengths_none() {
        let filter = Filter::new(500);
        (0..500).for_each(|key| filter.raise(hash(key)));
        let bytes = filter.to_bytes();
        let again = Filter::from_bytes(500, &bytes).expect("its own bytes");
        assert!((0..5000).all(|key| filter.may_have(hash(key)) == again.may_have(hash(key))));
        assert!(Filter::from_bytes(5000, &bytes).is_none() && Filter::from_bytes(500, &bytes[8..]).is_none());
    }
}
