//! The key's hash, and the partition, directory index and buckets that follow from it.
//!
//! ```text
//! bit 63                                            bit 0
//! | partition | directory index (to the depth) ... | b2: 16 | b1: 16 |
//! ```
//! The signature in an index entry is the hash itself: splits and checks read no record.

use lodestore_inplace::StripeIndex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Maximum directory depth: bits of the hash above the 32 that choose buckets, minus the
/// partition's.
pub(crate) const DEPTH_MAX: u32 = 24;
/// Maximum partitions: their root words fit the pool's root area.
pub(crate) const PARTITIONS_MAX: u32 = 256;

/// A key's 64-bit signature; never 0, which marks a free entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signature(pub(crate) u64);

/// A key's hash with its stripe. Batches are in the order of signatures, and thus of partitions and
/// segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hashed {
    pub(crate) sig: Signature,
    pub(crate) stripe: StripeIndex,
}

/// A key and its hash.
pub(crate) type Target<'k> = lodestore_inplace::Target<'k, Hashed>;

/// Maps hashes to locations; fixed when a store is created.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placement {
    seed: u64,
    partition_bits: u32,
    buckets: u64,
}

impl Placement {
    /// `partitions` is a power of two, `buckets` at least 2 a segment.
    pub(crate) fn new(seed: u64, partitions: u32, buckets: u32) -> Self {
        assert!(partitions.is_power_of_two() && partitions <= PARTITIONS_MAX);
        assert!((2..=1 << 16).contains(&buckets));
        Self { seed, partition_bits: partitions.trailing_zeros(), buckets: u64::from(buckets) }
    }

    /// Returns the signature of `key`.
    #[inline]
    pub(crate) fn sign(self, key: &[u8]) -> Signature {
        Signature(xxh3_64_with_seed(key, self.seed).max(1))
    }

    /// Returns the signature of `key` with its stripe.
    #[inline]
    pub(crate) fn hash(self, key: &[u8]) -> Hashed {
        let sig = self.sign(key);
        Hashed { sig, stripe: self.stripe(sig) }
    }

    /// Returns the partition, 0-based.
    #[inline]
    pub(crate) fn partition(self, sig: Signature) -> usize {
        if self.partition_bits == 0 { 0 } else { (sig.0 >> (64 - self.partition_bits)) as usize }
    }

    /// Returns the index in a directory of this depth; also the prefix of a segment of this depth.
    #[inline]
    pub(crate) fn index(self, sig: Signature, depth: u32) -> u64 {
        debug_assert!(depth <= DEPTH_MAX);
        if depth == 0 { 0 } else { (sig.0 << self.partition_bits) >> (64 - depth) }
    }

    /// Returns whether `other` belongs to the same segment of this depth as `sig`.
    #[inline]
    pub(crate) fn same_segment(self, sig: Signature, other: u64, depth: u32) -> bool {
        let bits = self.partition_bits + depth;
        bits == 0 || (sig.0 ^ other) >> (64 - bits) == 0
    }

    /// Returns whether `sig` belongs to partition `partition` and, at `depth`, to `prefix`.
    #[inline]
    pub(crate) fn belongs(self, sig: u64, partition: usize, depth: u32, prefix: u64) -> bool {
        self.partition(Signature(sig)) == partition && self.index(Signature(sig), depth) == prefix
    }

    /// Returns the stripe: that of the partition and the home bucket.
    #[inline]
    pub(crate) fn stripe(self, sig: Signature) -> StripeIndex {
        StripeIndex { partition: self.partition(sig), stripe: self.buckets(sig).0 }
    }

    /// Returns the home bucket and the other one; they differ.
    #[inline]
    pub(crate) fn buckets(self, sig: Signature) -> (usize, usize) {
        let home = ((sig.0 & 0xffff) * self.buckets) >> 16;
        let other = (((sig.0 >> 16) & 0xffff) * self.buckets) >> 16;
        let other = if other != home {
            other
        } else if home + 1 == self.buckets {
            0
        } else {
            home + 1
        };
        (home as usize, other as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_buckets_differ_and_are_in_the_segment() {
        for buckets in [2, 3, 7, 127] {
            let place = Placement::new(7, 64, buckets);
            for i in 0..10_000u64 {
                let (home, other) = place.buckets(place.sign(&i.to_le_bytes()));
                assert!(home != other && home < buckets as usize && other < buckets as usize);
            }
        }
    }

    #[test]
    fn prefixes_nest_as_depth_grows() {
        let place = Placement::new(1, 64, 127);
        for i in 0..1000u64 {
            let sig = place.sign(&i.to_le_bytes());
            for depth in 0..DEPTH_MAX {
                assert_eq!(place.index(sig, depth + 1) >> 1, place.index(sig, depth));
                assert!(place.belongs(sig.0, place.partition(sig), depth, place.index(sig, depth)));
            }
        }
    }

    #[test]
    fn one_partition_uses_all_upper_bits_for_the_directory() {
        let place = Placement::new(0, 1, 3);
        let sig = Signature(1 << 63);
        assert_eq!((place.partition(sig), place.index(sig, 1), place.index(sig, 0)), (0, 1, 0));
        assert!(place.same_segment(sig, 5, 0) && !place.same_segment(sig, 5, 1));
    }
}
