//! Writer locks: one stripe for each 256th of a partition's fractions.
//!
//! Invariants, in addition to those of `lodestore_inplace::Stripes`:
//! 4. A writer of any stripe with keys in reach of a line may claim a free slot there. A free slot
//!    is therefore claimed by a compare-and-swap.
//! 5. Under stripes a thread acquires no other lock, except those of the allocator, the epochs, the
//!    recorded changes, and the first damage of careful mode (a leaf lock).
//! 6. A partition's cursor passes a fraction only under that fraction's stripe (`growth.rs`). A
//!    key's table therefore cannot change for the holder of its stripe.

use lodestore_inplace::StripeIndex;

use crate::hash::Hashed;

/// Stripes of a partition.
pub(crate) const STRIPES: usize = 256;
const FRACTION_SHIFT: u32 = 24;
const WRITES_BITS: u32 = 31;
const WRITES_MAX: u32 = (1 << WRITES_BITS) - 1;

/// Returns the stripe of a fraction.
#[inline]
pub(crate) fn stripe_of(fraction: u32) -> usize {
    (fraction >> FRACTION_SHIFT) as usize
}

/// Returns the fractions of a stripe: the first one, and the first one after the stripe.
pub(crate) fn fractions_of(stripe: usize) -> (u64, u64) {
    ((stripe as u64) << FRACTION_SHIFT, (stripe as u64 + 1) << FRACTION_SHIFT)
}

impl Hashed {
    /// Returns the stripe of the key.
    #[inline]
    pub(crate) fn stripe(self) -> StripeIndex {
        StripeIndex { partition: self.partition, stripe: stripe_of(self.fraction) }
    }
}

/// A key and its hash.
pub(crate) type Target<'k> = lodestore_inplace::Target<'k, Hashed>;

/// Counts under a stripe since the open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Keys added minus keys removed since the count was last set.
    keys: i32,
    /// Lines stored, about.
    writes: u32,
}

/// The stripes of all partitions.
pub(crate) type Stripes = lodestore_inplace::Stripes<Counts>;

/// A held stripe.
pub(crate) type Held<'a> = lodestore_inplace::Held<'a, Counts>;

impl Counts {
    /// Returns the keys under this stripe since its count was last set.
    #[inline]
    pub(crate) fn keys(self) -> i32 {
        self.keys
    }

    /// Counts a key that was added (1), removed (-1) or neither (0), and a stored line.
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

impl From<u64> for Counts {
    #[inline]
    fn from(bits: u64) -> Self {
        Self { keys: (bits >> WRITES_BITS) as u32 as i32, writes: bits as u32 & WRITES_MAX }
    }
}

impl From<Counts> for u64 {
    #[inline]
    fn from(counts: Counts) -> Self {
        u64::from(counts.keys as u32) << WRITES_BITS | u64::from(counts.writes)
    }
}

/// Returns the keys added to a partition minus the keys removed since the counts were last set.
pub(crate) fn counted_keys(stripes: &Stripes, partition: usize) -> i64 {
    stripes.contents(partition).map(|counts| i64::from(counts.keys)).sum()
}

/// Returns the approximate number of lines stored in a partition's tables since the open.
pub(crate) fn counted_writes(stripes: &Stripes, partition: usize) -> u64 {
    stripes.contents(partition).map(|counts| u64::from(counts.writes)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_up_and_down_over_threads() {
        let stripes = Stripes::new(1, STRIPES, Counts::default());
        let lock = |stripe| stripes.lock(StripeIndex { partition: 0, stripe });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..3000).for_each(|i| lock(i % 3).count(if i % 3 == 0 { -1 } else { 1 })));
            }
        });
        assert_eq!((counted_keys(&stripes, 0), counted_writes(&stripes, 0)), (4000, 12_000));
        lock(7).set_keys(5);
        assert_eq!(counted_keys(&stripes, 0), 4005);
    }

    #[test]
    fn stripes_divide_the_fractions_equally() {
        for stripe in 0..STRIPES {
            let (first, end) = fractions_of(stripe);
            assert_eq!((stripe_of(first as u32), stripe_of((end - 1) as u32)), (stripe, stripe));
        }
        assert_eq!(fractions_of(STRIPES - 1).1, 1 << 32);
    }
}
