//! Keys and values made from a record's number, and the check of what comes back.
//!
//! Nothing is kept: a key is a bijective mix of the number, printed as 16 hexadecimal digits, so that
//! records numbered 0, 1, 2... come in random key order and no two share a key. A value carries the
//! key's bytes in its first and last words, so that one look at a pair tells whether they belong
//! together; its body follows from the first word and a version, so that a full check sees any byte.

/// Shortest key: the 8 bytes of the mixed number.
pub(crate) const KEY_LEAST: usize = 8;
/// Longest key that the bench makes.
pub(crate) const KEY_MOST: usize = 1024;
/// Step between the words of a value's body.
const BODY_STEP: u64 = 0x9E37_79B9_7F4A_7C15;
/// Bytes of a compressible value that have a random beginning and an end of one byte each.
const PIECE: usize = 32;

/// Sizes of the records, the seed of their keys, and how strictly values are checked.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    key_size: usize,
    value_size: usize,
    /// Hundredths of a value's body that are the same byte everywhere, in each [`PIECE`] of it.
    compressible: usize,
    seed: u64,
    full: bool,
}

/// A bijection of 64 bits that spreads neighbours far apart (the finalizer of splitmix64).
#[inline]
pub(crate) const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(BODY_STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Eight hexadecimal digits of `half`, highest digit first, as the bytes of a little-endian word.
#[inline]
const fn hex(half: u32) -> u64 {
    let mut x = half.swap_bytes() as u64;
    // One byte in each 16 bits, then one digit in each 8 bits with the high digit first.
    x = (x | (x << 16)) & 0x0000_FFFF_0000_FFFF;
    x = (x | (x << 8)) & 0x00FF_00FF_00FF_00FF;
    x = ((x >> 4) & 0x000F_000F_000F_000F) | ((x & 0x000F_000F_000F_000F) << 8);
    // Digits above 9 become letters: 0x27 lies between '9' + 1 and 'a'.
    let letters = ((x + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    x + 0x3030_3030_3030_3030 + letters * 0x27
}

#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_le_bytes)
}

impl Records {
    pub(crate) fn new(key_size: usize, value_size: usize, compressible: u8, seed: u64, full: bool) -> Self {
        assert!((KEY_LEAST..=KEY_MOST).contains(&key_size), "key size was checked with the arguments");
        Self { key_size, value_size, compressible: usize::from(compressible.min(100)), seed: mix(seed), full }
    }

    pub(crate) fn key_size(&self) -> usize {
        self.key_size
    }

    pub(crate) fn value_size(&self) -> usize {
        self.value_size
    }

    /// Writes the key of record `number` over `key`, which has the key size.
    #[inline]
    pub(crate) fn key(&self, number: u32, key: &mut [u8]) {
        let mixed = mix(u64::from(number) ^ self.seed);
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

    /// Writes version `version` of the value that belongs to `key` over `value`, which has the value size.
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
        for part in value[16..].chunks_mut(8) {
            body = body.wrapping_add(BODY_STEP);
            part.copy_from_slice(&body.to_le_bytes()[..part.len()]);
        }
        if self.compressible > 0 {
            for piece in value[16..].chunks_mut(PIECE) {
                let random = piece.len() * (100 - self.compressible) / 100;
                piece[random..].fill(b' ');
            }
        }
        value[..8].copy_from_slice(&first.to_le_bytes());
        value[8..16].copy_from_slice(&version.to_le_bytes());
        value[size - 8..].copy_from_slice(&word(key, key.len() - 8).to_le_bytes());
    }

    /// Whether `value` is some version of the value that belongs to `key`: its length, first and last words,
    /// and with the full check every byte.
    #[inline]
    pub(crate) fn belongs(&self, key: &[u8], value: &[u8]) -> bool {
        if value.len() != self.value_size || key.len() != self.key_size {
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

    fn belongs_wholly(&self, key: &[u8], value: &[u8]) -> bool {
        let mut should = vec![0; value.len()];
        self.value(key, word(value, 8), &mut should);
        should == value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn key_of(records: &Records, number: u32) -> Vec<u8> {
        let mut key = vec![0; records.key_size()];
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
