//! The key's hash, and the values derived from it.
//!
//! ```text
//! bit 63                                             bit 0
//! | partition: 0 to 6 | fraction: 32 | ...    | tag: 11 |
//! ```
//! The fraction defines the location of a key in its partition's table of any size: line `fraction
//! * lines >> 32`. Adjacent keys of a table stay in order in a larger one.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::murmur3::murmur3_x64_128;

/// Maximum partitions: their root words fit the pool's root area.
pub(crate) const PARTITIONS_MAX: u32 = 64;
/// Bits of a slot's tag.
pub(crate) const TAG_BITS: u32 = 11;

/// Hash functions of the table; fixed when a store is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashKind {
    /// MurmurHash3 x64 128, first half: the paper's family (NVHT, JPDC 2018).
    Murmur3,
    /// XXH3, 64 bits.
    Xxh3,
}

impl HashKind {
    /// Returns its number on the medium.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Murmur3 => 1,
            Self::Xxh3 => 2,
        }
    }

    pub(crate) fn of_number(number: u32) -> Option<Self> {
        [Self::Murmur3, Self::Xxh3].into_iter().find(|kind| kind.number() == number)
    }
}

/// The values derived from a key's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hashed {
    /// The partition, 0-based.
    pub(crate) partition: usize,
    /// The location in the partition, as a fraction of 2^32.
    pub(crate) fraction: u32,
    /// The tag: the first bits of the key's slot.
    pub(crate) tag: u64,
}

/// The hash function with its parameters, fixed when a store is created.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hasher {
    pub(crate) kind: HashKind,
    pub(crate) seed: u64,
    pub(crate) partition_bits: u32,
}

impl Hasher {
    #[inline]
    pub(crate) fn hash(self, key: &[u8]) -> Hashed {
        let hash = match self.kind {
            HashKind::Murmur3 => murmur3_x64_128(key, self.seed).0,
            HashKind::Xxh3 => xxh3_64_with_seed(key, self.seed),
        };
        // Two shifts, since a shift by 64 bits has no effect.
        let partition = hash >> 1 >> (63 - self.partition_bits);
        let fraction = (hash << self.partition_bits) >> 32;
        Hashed { partition: partition as usize, fraction: fraction as u32, tag: hash & ((1 << TAG_BITS) - 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_values_are_in_range_and_evenly_distributed() {
        for kind in [HashKind::Murmur3, HashKind::Xxh3] {
            for bits in 0..=6 {
                let hasher = Hasher { kind, seed: 7, partition_bits: bits };
                let mut counts = vec![0u32; 1 << bits];
                let mut upper = 0;
                for i in 0..6400u64 {
                    let hashed = hasher.hash(&i.to_le_bytes());
                    counts[hashed.partition] += 1;
                    upper += u32::from(hashed.fraction >> 31 == 1);
                    assert!(hashed.tag < 1 << TAG_BITS);
                }
                let mean = 6400 / counts.len() as u32;
                assert!(
                    counts.iter().all(|count| (mean / 2..=mean * 2).contains(count)),
                    "{kind:?} {bits}: {counts:?}"
                );
                assert!((2900..3500).contains(&upper), "{kind:?} {bits}: {upper} of 6400 in the upper half");
            }
        }
    }

    #[test]
    fn the_numbers_of_the_functions_are_fixed() {
        for (kind, number) in [(HashKind::Murmur3, 1), (HashKind::Xxh3, 2)] {
            assert_eq!((kind.number(), HashKind::of_number(number)), (number, Some(kind)));
        }
        assert_eq!(HashKind::of_number(0), None);
    }
}
