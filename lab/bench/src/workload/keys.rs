//! Keys and values derived from a record's number, and the check of returned values.
//!
//! A key is a bijective mix of the number, printed as 16 hexadecimal digits. Records numbered 0, 1,
//! 2... are therefore in random key order, and no two share a key. The keys of a stream of
//! operations are generated before the clock starts ([`Keys`]).
//!
//! A value contains the key's bytes in its first and last words, so that one check of a pair shows
//! whether they belong together. Its body derives from the first word and a version, so a full
//! check covers every byte. The version is not checked on each read, but for some records after
//! each run. A value of less than 24 bytes has no version.

use std::ops::Range;

use crate::workload::sizes::{Of, Size};

/// Minimum bytes of a key: the 8 bytes of the mixed number.
pub(crate) const KEY_BYTES_MIN: usize = 8;
/// Maximum bytes of a key that the bench generates.
pub(crate) const KEY_BYTES_MAX: usize = 1024;
/// Step between the words of a value's body.
const BODY_STEP_MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
/// Makes a record's two sizes independent.
const VALUE_SALT: u64 = 0x5A17_0000_0000_0000;
/// Bytes of a compressible value that have a random beginning and an end of one repeated byte.
const PIECE_BYTES: usize = 32;

/// Sizes of the records, the seed of their keys, and how strictly values are checked.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    key_size: Size,
    value_size: Size,
    /// Percent of a value's body that repeat one byte, in each [`PIECE_BYTES`] of it.
    compressible: usize,
    seed: u64,
    full: bool,
}

/// A bijection of 64 bits that spreads neighbours far apart (the finalizer of splitmix64).
#[inline]
pub(crate) const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(BODY_STEP_MULTIPLIER);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns the eight hexadecimal digits of `half`, highest digit first, as the bytes of a
/// little-endian word.
#[inline]
const fn hex(half: u32) -> u64 {
    let mut x = half.swap_bytes() as u64;
    // Puts a byte in each 16 bits, then a digit in each 8 bits with the high digit first.
    x = (x | (x << 16)) & 0x0000_FFFF_0000_FFFF;
    x = (x | (x << 8)) & 0x00FF_00FF_00FF_00FF;
    x = ((x >> 4) & 0x000F_000F_000F_000F) | ((x & 0x000F_000F_000F_000F) << 8);
    // Digits above 9 become letters: 0x27 is the distance between '9' + 1 and 'a'.
    let letters = ((x + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    x + 0x3030_3030_3030_3030 + letters * 0x27
}

/// Returns the number whose eight hexadecimal digits [`hex`] writes as `digits`.
#[inline]
const fn unhex(digits: u64) -> u32 {
    // A letter has a bit that digits do not have, and its low digits begin at 1.
    let mut x = (digits & 0x0F0F_0F0F_0F0F_0F0F) + ((digits >> 6) & 0x0101_0101_0101_0101) * 9;
    x = ((x << 4) | (x >> 8)) & 0x00FF_00FF_00FF_00FF;
    x = (x | (x >> 8)) & 0x0000_FFFF_0000_FFFF;
    ((x | (x >> 16)) as u32).swap_bytes()
}

/// Returns the upper half of the mixed number of the record with this key. The sizes derive from
/// it.
#[inline]
fn half(key: &[u8]) -> u32 {
    let first = word(key, 0);
    if key.len() < 16 { (first.swap_bytes() >> 32) as u32 } else { unhex(first) }
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Records {
    /// Creates records of these sizes, which were checked with the arguments. `compressible`
    /// percent of their values are one repeated byte.
    pub(crate) fn new(
        key_size: impl Into<Size>,
        value_size: impl Into<Size>,
        compressible: u8,
        seed: u64,
        full: bool,
    ) -> Self {
        let (key_size, value_size) = (key_size.into(), value_size.into());
        let [least, most] = key_size.limits(Of::Key);
        assert!(KEY_BYTES_MIN <= least && most <= KEY_BYTES_MAX, "key size was checked with the arguments");
        Self { key_size, value_size, compressible: usize::from(compressible.min(100)), seed: mix(seed), full }
    }

    /// Returns the maximum bytes of a value.
    pub(crate) fn value_most(&self) -> usize {
        self.value_size.limits(Of::Value)[1]
    }

    /// Returns the bytes of a key with this half.
    #[inline]
    fn key_size(&self, half: impl FnOnce() -> u32) -> usize {
        match self.key_size {
            Size::Fixed(bytes) => bytes,
            drawn => drawn.draw(Of::Key, mix(u64::from(half()))),
        }
    }

    /// Returns the bytes of every version of the value that belongs to a key with this half.
    #[inline]
    fn value_size(&self, half: impl FnOnce() -> u32) -> usize {
        match self.value_size {
            Size::Fixed(bytes) => bytes,
            drawn => drawn.draw(Of::Value, mix(u64::from(half()) ^ VALUE_SALT)),
        }
    }

    /// Returns the bytes of every version of the value that belongs to `key`.
    #[inline]
    pub(crate) fn value_size_of(&self, key: &[u8]) -> usize {
        self.value_size(|| half(key))
    }

    /// Returns the bytes of the keys and values of these records.
    pub(crate) fn bytes(&self, numbers: Range<u64>) -> u64 {
        if let (Size::Fixed(key), Size::Fixed(value)) = (self.key_size, self.value_size) {
            return (numbers.end - numbers.start) * (key + value) as u64;
        }
        let record = |number: u64| {
            let half = (mix(number ^ self.seed) >> 32) as u32;
            (self.key_size(|| half) + self.value_size(|| half)) as u64
        };
        numbers.map(record).sum()
    }

    /// Writes the key of record `number` to `key`.
    #[inline]
    pub(crate) fn key(&self, number: u32, key: &mut Vec<u8>) {
        let mixed = mix(u64::from(number) ^ self.seed);
        key.resize(self.key_size(|| (mixed >> 32) as u32), 0);
        if key.len() < 16 {
            key[..8].copy_from_slice(&mixed.swap_bytes().to_le_bytes());
            key[8..].fill(b'.');
            return;
        }
        key[..8].copy_from_slice(&hex((mixed >> 32) as u32).to_le_bytes());
        key[8..16].copy_from_slice(&hex(mixed as u32).to_le_bytes());
        if key.len() > 16 {
            key[16..].fill(b'.');
        }
    }

    /// Writes version `version` of the value that belongs to `key` to `value`, whose size is that
    /// of [`Self::value_size_of`].
    #[inline]
    pub(crate) fn value(&self, key: &[u8], version: u64, value: &mut [u8]) {
        let first = word(key, 0);
        let size = value.len();
        if size < 24 {
            let bytes = first.to_le_bytes();
            value.iter_mut().zip(bytes.iter().cycle()).for_each(|(to, from)| *to = *from);
            return;
        }
        let mut body = first ^ version;
        let (words, rest) = value[16..].as_chunks_mut();
        for word in words {
            body = body.wrapping_add(BODY_STEP_MULTIPLIER);
            *word = body.to_le_bytes();
        }
        let left = rest.len();
        rest.copy_from_slice(&body.wrapping_add(BODY_STEP_MULTIPLIER).to_le_bytes()[..left]);
        if self.compressible > 0 {
            for piece in value[16..].chunks_mut(PIECE_BYTES) {
                let random = piece.len() * (100 - self.compressible) / 100;
                piece[random..].fill(b' ');
            }
        }
        value[..8].copy_from_slice(&first.to_le_bytes());
        value[8..16].copy_from_slice(&version.to_le_bytes());
        value[size - 8..].copy_from_slice(&word(key, key.len() - 8).to_le_bytes());
    }

    /// Returns whether `value` is some version of the value that belongs to `key`. Compares its
    /// length, first and last words, and with the full check every byte.
    #[inline]
    pub(crate) fn belongs(&self, key: &[u8], value: &[u8]) -> bool {
        if value.len() != self.value_size_of(key) || key.len() != self.key_size(|| half(key)) {
            return false;
        }
        if value.len() < 24 {
            let bytes = word(key, 0).to_le_bytes();
            return value.iter().zip(bytes.iter().cycle()).all(|(is, should)| is == should);
        }
        word(value, 0) == word(key, 0)
            && word(value, value.len() - 8) == word(key, key.len() - 8)
            && (!self.full || self.belongs_wholly(key, value))
    }

    /// Returns the version of a value that belongs to its key; `None` if the value is too short for
    /// one.
    pub(crate) fn version(&self, value: &[u8]) -> Option<u64> {
        (value.len() >= 24).then(|| word(value, 8))
    }

    fn belongs_wholly(&self, key: &[u8], value: &[u8]) -> bool {
        let mut should = vec![0; value.len()];
        self.value(key, word(value, 8), &mut should);
        should == value
    }
}

/// The keys of a stream of operations, concatenated in the order of the operations.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    /// Bytes of each key, if all are equal; otherwise `None`, and `ends` has the end of each.
    size: Option<usize>,
    ends: Vec<usize>,
}

impl Keys {
    /// Allocates memory for the keys of `most` records and touches it, so that its use does not
    /// look like memory of the store. If sizes differ, the memory is a quarter larger than their
    /// mean requires.
    pub(crate) fn room(records: &Records, most: usize) -> Self {
        let differ = !matches!(records.key_size, Size::Fixed(_));
        let bytes = (records.key_size.mean(Of::Key) * most as f64).ceil() as usize;
        let bytes = if differ { bytes + bytes / 4 } else { bytes };
        Self { bytes: vec![1; bytes], size: None, ends: vec![1; if differ { most } else { 0 }] }
    }

    /// Returns the keys of these records.
    pub(crate) fn of(records: &Records, numbers: impl Iterator<Item = u32>) -> Self {
        let mut keys = Self::default();
        keys.fill(records, numbers);
        keys
    }

    /// Replaces the keys by those of these records.
    pub(crate) fn fill(&mut self, records: &Records, numbers: impl Iterator<Item = u32>) {
        self.bytes.clear();
        self.ends.clear();
        self.size = match records.key_size {
            Size::Fixed(size) => Some(size),
            _ => None,
        };
        let mut key = Vec::new();
        for number in numbers {
            records.key(number, &mut key);
            self.bytes.extend_from_slice(&key);
            if self.size.is_none() {
                self.ends.push(self.bytes.len());
            }
        }
    }

    /// Returns the key at this index.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> &[u8] {
        match self.size {
            Some(size) => &self.bytes[place * size..][..size],
            None => &self.bytes[place.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[place]],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn key_of(records: &Records, number: u32) -> Vec<u8> {
        let mut key = Vec::new();
        records.key(number, &mut key);
        key
    }

    #[test]
    fn keys_are_the_printed_mix_of_their_number() {
        let records = Records::new(16, 256, 0, 7, false);
        for number in [0, 1, 2, 9, 0xFFFF_FFFF] {
            let text = format!("{:016x}", mix(u64::from(number) ^ mix(7)));
            assert_eq!(key_of(&records, number), text.as_bytes());
        }
    }

    #[test]
    fn the_keys_of_a_stream_are_those_of_its_records_in_its_order() {
        for size in [Size::Fixed(16), Size::Fixed(9), Size::Uniform(8, 40), Size::Facebook] {
            let records = Records::new(size, 8, 0, 3, false);
            let mut keys = Keys::room(&records, 500);
            let before = (keys.bytes.capacity(), keys.ends.capacity());
            for numbers in [vec![5, 1, 1, 0, u32::MAX], (0..500).rev().collect(), vec![]] {
                keys.fill(&records, numbers.iter().copied());
                let all: Vec<_> = (0..numbers.len()).map(|place| keys.at(place).to_vec()).collect();
                assert_eq!(all, numbers.iter().map(|number| key_of(&records, *number)).collect::<Vec<_>>());
            }
            assert_eq!((keys.bytes.capacity(), keys.ends.capacity()), before, "{size}: there was room");
        }
    }

    #[test]
    fn keys_differ_at_every_size() {
        for size in [8, 9, 15, 16, 17, 40] {
            let records = Records::new(size, 8, 0, 1, false);
            let keys: HashSet<_> = (0..10_000).map(|number| key_of(&records, number)).collect();
            assert_eq!(keys.len(), 10_000, "key size {size}");
        }
    }

    #[test]
    fn a_value_belongs_to_its_own_key_only() {
        for size in [1, 7, 8, 16, 23, 24, 25, 100, 256] {
            let records = Records::new(16, size, 40, 1, true);
            let (one, two) = (key_of(&records, 1), key_of(&records, 2));
            let mut value = vec![0; size];
            records.value(&one, 99, &mut value);
            assert!(records.belongs(&one, &value), "value size {size}");
            assert!(size < 8 || !records.belongs(&two, &value), "value size {size}");
            assert!(!records.belongs(&one, &value[1..]), "value size {size}");
        }
    }

    #[test]
    fn what_is_printed_is_read() {
        for number in [0, 1, 0x0123_4567, 0x89AB_CDEF, 0xFEDC_BA98, u32::MAX] {
            assert_eq!(unhex(hex(number)), number, "{number:x}");
        }
    }

    #[test]
    fn sizes_follow_from_seed_and_number_and_stay() {
        let mixed = |seed| Records::new(Size::Uniform(8, 40), Size::Uniform(1, 3000), 0, seed, true);
        let sizes = |records: &Records| -> Vec<_> {
            let size = |number| {
                let key = key_of(records, number);
                (key.len(), records.value_size_of(&key))
            };
            (0..10_000).map(size).collect()
        };
        let records = mixed(1);
        let all = sizes(&records);
        assert_eq!((all.clone(), all == sizes(&mixed(2))), (sizes(&mixed(1)), false));
        let keys: HashSet<_> = (0..10_000).map(|number| key_of(&records, number)).collect();
        assert_eq!(keys.len(), 10_000, "keys of different sizes are different keys");
        let lengths: HashSet<_> = all.iter().map(|(key, _)| *key).collect();
        assert_eq!(lengths.len(), 33);
        let sum: usize = all[500..].iter().map(|(key, value)| key + value).sum();
        assert_eq!(records.bytes(500..10_000), sum as u64);
        // The sizes are independent: short keys have values as long as other keys.
        let of_short: Vec<_> = all.iter().filter(|(key, _)| *key < 16).map(|(_, value)| *value as f64).collect();
        let mean = of_short.iter().sum::<f64>() / of_short.len() as f64;
        assert!((1350.0..1650.0).contains(&mean), "{mean}");
    }

    #[test]
    fn a_value_of_another_size_does_not_belong() {
        let records = Records::new(Size::Facebook, Size::Facebook, 0, 1, false);
        for number in 0..1000 {
            let key = key_of(&records, number);
            let mut value = vec![0; records.value_size_of(&key)];
            for version in [1, 1 << 48 | 7] {
                records.value(&key, version, &mut value);
                assert!(records.belongs(&key, &value), "record {number}");
            }
            let mut longer = vec![0; value.len() + 1];
            records.value(&key, 1, &mut longer);
            assert!(!records.belongs(&key, &longer) && !records.belongs(&key, &value[..value.len() - 1]));
            let other = [&key[..], b"."].concat();
            assert!(!records.belongs(&other, &value), "record {number}: a key of another size");
        }
    }

    #[test]
    fn the_full_check_sees_every_byte_and_the_cheap_one_the_ends() {
        let full = Records::new(16, 256, 0, 1, true);
        let cheap = Records::new(16, 256, 0, 1, false);
        let key = key_of(&full, 5);
        let mut value = vec![0; 256];
        full.value(&key, 3, &mut value);
        for at in 0..256 {
            value[at] ^= 0x10;
            assert!(!full.belongs(&key, &value), "byte {at}");
            assert_eq!(cheap.belongs(&key, &value), (8..248).contains(&at), "byte {at}");
            value[at] ^= 0x10;
        }
    }
}
