//! The counting Bloom filter of a group (MKVS, Micromachines 2019, section 3.2): what it does not know is absent, and no device is asked.
//!
//! Counters of four bits, 128 of them in a block of one cache line; a key has four counters of one block, so that a look touches one line.
//!
//! Invariants
//! 1. A key's counters are raised before the key is added, and lowered after it is removed: as often as it was really added and removed, by the verdict of
//!    the device. So the filter never calls a present key absent.
//! 2. A counter that has come to 15 stays there: how many keys it stands for is not known any more.
//! 3. Any thread may look, raise and lower. Lowering what was never raised is the caller's fault; it is told, and the filter is not to be trusted then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use crate::route::KeyHash;
use crate::{read, write};

/// Counters of a key: seven let a third fewer absent keys pass, and cost an added key twice as much.
const COUNTERS: u32 = 4;
/// Counters for each key that a filter is made for: about two looks in a hundred for an absent key finds all of its counters raised.
const COUNTERS_PER_KEY: u64 = 10;
/// Words of a block, and counters of a word and of a block.
const WORDS: usize = 8;
const PER_WORD: u32 = 16;
const PER_BLOCK: u64 = 128;
/// Where a counter stays.
const MOST: u64 = 15;

#[derive(Default)]
#[repr(align(64))]
struct Block([AtomicU64; WORDS]);

/// The filter.
pub(crate) struct Filter {
    blocks: Box<[Block]>,
    /// Keys it was made for.
    keys: u64,
}

impl Filter {
    /// An empty filter for so many keys.
    pub(crate) fn new(keys: u64) -> Self {
        let blocks = Self::blocks_of(keys);
        Self { blocks: (0..blocks).map(|_| Block::default()).collect(), keys: keys.max(1) }
    }

    fn blocks_of(keys: u64) -> u64 {
        keys.max(1).saturating_mul(COUNTERS_PER_KEY).div_ceil(PER_BLOCK)
    }

    /// Keys that it was made for: with more of them it lets more absent keys pass.
    pub(crate) fn keys(&self) -> u64 {
        self.keys
    }

    /// DRAM it takes, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.blocks) as u64
    }

    /// The block of a key, and its counters there as (word, shift).
    #[inline]
    fn places(&self, hash: KeyHash) -> (&Block, impl Iterator<Item = (usize, u32)> + use<>) {
        let mixed = hash.mixed();
        let at = ((u128::from(mixed) * self.blocks.len() as u128) >> 64) as usize;
        let bits = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(17);
        let places = (0..COUNTERS).map(move |counter| {
            let place = (bits >> (counter * 7)) as u32 & (PER_BLOCK as u32 - 1);
            ((place / PER_WORD) as usize, place % PER_WORD * 4)
        });
        (&self.blocks[at], places)
    }

    /// False where the key is absent for sure.
    #[inline]
    pub(crate) fn may_have(&self, hash: KeyHash) -> bool {
        let (block, mut places) = self.places(hash);
        places.all(|(word, shift)| block.0[word].load(Ordering::Acquire) >> shift & MOST != 0)
    }

    /// Counts a key that is about to be added.
    pub(crate) fn raise(&self, hash: KeyHash) {
        let (block, places) = self.places(hash);
        for (word, shift) in places {
            // A counter at its most stays there: nothing to change is no error.
            let _ = block.0[word].fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                (old >> shift & MOST != MOST).then(|| old + (1 << shift))
            });
        }
    }

    /// Counts a key that was removed; false where it had not been counted, and the filter is not to be trusted any more.
    #[must_use]
    pub(crate) fn lower(&self, hash: KeyHash) -> bool {
        let (block, places) = self.places(hash);
        let mut sound = true;
        for (word, shift) in places {
            let lowered = block.0[word].fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
                let counter = old >> shift & MOST;
                (counter != 0 && counter != MOST).then(|| old - (1 << shift))
            });
            sound &= lowered.is_ok_and(|_| true) || lowered.is_err_and(|old| old >> shift & MOST == MOST);
        }
        sound
    }

    /// The share of absent keys that it takes for present ones, by how full its blocks are; of a sample of the blocks.
    pub(crate) fn false_positives(&self) -> f64 {
        const SAMPLE: usize = 4096;
        let step = (self.blocks.len() / SAMPLE).max(1);
        let raised = |block: &Block| {
            let words = block.0.iter().map(|word| {
                let word = word.load(Ordering::Relaxed);
                let any = word | word >> 1 | word >> 2 | word >> 3;
                (any & 0x1111_1111_1111_1111).count_ones()
            });
            f64::from(words.sum::<u32>()) / PER_BLOCK as f64
        };
        let passes = self.blocks.iter().step_by(step).map(|block| raised(block).powi(COUNTERS as i32));
        passes.sum::<f64>() / self.blocks.len().div_ceil(step) as f64
    }

    /// The counters as bytes, to be kept while the store is closed.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let words = self.blocks.iter().flat_map(|block| &block.0);
        words.flat_map(|word| word.load(Ordering::Acquire).to_le_bytes()).collect()
    }

    /// A filter for `keys` keys from what [`to_bytes`](Self::to_bytes) gave. `None` where the length is another.
    pub(crate) fn from_bytes(keys: u64, bytes: &[u8]) -> Option<Self> {
        // Before anything is made of that size.
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

/// A filter that is being made by a walk over the keys in their order, while they come and go.
///
/// The walk goes on by pages, each with all stripes held; who adds or removes a key holds its stripe. So a key behind the walk's place is counted by
/// the walk when it comes there, and one before it by who adds or removes it: each is counted once. A walk without order has no place: it counts what it finds, who adds a
/// key counts it too, and nobody lowers; such a filter may count too much, and never too little.
pub(crate) struct Building {
    filter: Arc<Filter>,
    /// Keys that it counts.
    keys: AtomicU64,
    /// Meaningless without order.
    place: RwLock<Place>,
    is_ordered: bool,
}

/// How far a walk has come.
enum Place {
    Start,
    /// This key was counted last.
    At(Vec<u8>),
    /// All were.
    End,
}

impl Building {
    pub(crate) fn new(keys: u64, is_ordered: bool) -> Self {
        Self {
            filter: Arc::new(Filter::new(keys)),
            keys: AtomicU64::new(0),
            place: RwLock::new(Place::Start),
            is_ordered,
        }
    }

    fn is_passed(&self, key: &[u8]) -> bool {
        match &*read(&self.place) {
            Place::Start => false,
            Place::At(place) => key <= &place[..],
            Place::End => true,
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

    /// The walk has come to these keys, and to its end if they are the last: all stripes are held, unless there is no order.
    pub(crate) fn count(&self, keys: &[Vec<u8>], are_last: bool, hash: impl Fn(&[u8]) -> KeyHash) {
        self.keys.fetch_add(keys.len() as u64, Ordering::Relaxed);
        keys.iter().for_each(|key| self.filter.raise(hash(key)));
        let mut place = write(&self.place);
        match keys.last() {
            _ if are_last => *place = Place::End,
            Some(last) => *place = Place::At(last.clone()),
            None => {}
        }
    }

    /// The last key that was counted.
    pub(crate) fn place(&self) -> Option<Vec<u8>> {
        match &*read(&self.place) {
            Place::At(place) => Some(place.clone()),
            Place::Start | Place::End => None,
        }
    }

    /// Keys that it counts.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// The filter, once the walk has come to its end.
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
    fn what_was_raised_may_be_there_until_it_is_lowered_as_often() {
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
    fn an_emptied_filter_knows_nothing_but_what_is_saturated() {
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
        let told = filter.false_positives();
        assert!(passed < 0.03 && (passed - told).abs() < 0.005, "{passed} passed, {told} told");
    }

    #[test]
    fn a_counter_at_its_most_stays() {
        let filter = Filter::new(1);
        (0..40).for_each(|_| filter.raise(hash(1)));
        assert!((0..40).all(|_| filter.lower(hash(1))));
        assert!(filter.may_have(hash(1)), "how often it was raised is not known");
    }

    #[test]
    fn while_a_filter_is_made_each_key_is_counted_once_by_the_walk_or_by_who_adds_it() {
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
    fn lowering_what_was_not_raised_is_told() {
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
