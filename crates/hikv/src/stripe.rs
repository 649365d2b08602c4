//! Writer locks: one stripe for each home bucket of a partition.
//!
//! Invariants, in addition to those of `lodestore_inplace::Stripes`:
//! 4. A split of a segment, and a change of a partition's directory, happens under all stripes of
//!    that partition. They are acquired by a thread that holds none.
//! 5. A stripe's sequence is the last one given to a record under it, and never decreases. A
//!    sequence identifies the open that wrote a record; nothing depends on the order of sequences.

use crate::layout::GENERATION_SHIFT;

/// The last sequence given to a record under a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence(pub(crate) u64);

/// The stripes of all partitions.
pub(crate) type Stripes = lodestore_inplace::Stripes<Sequence>;

impl Sequence {
    /// Returns a sequence above all earlier ones under this stripe. After 2^36 in one open, returns
    /// the last one again, to stay below the next open's sequences.
    #[inline]
    pub(crate) fn next_sequence(&mut self) -> u64 {
        const SEQUENCE_MASK: u64 = (1 << GENERATION_SHIFT) - 1;
        if self.0 & SEQUENCE_MASK != SEQUENCE_MASK {
            self.0 += 1;
        }
        self.0
    }
}

impl From<u64> for Sequence {
    #[inline]
    fn from(bits: u64) -> Self {
        Self(bits)
    }
}

impl From<Sequence> for u64 {
    #[inline]
    fn from(sequence: Sequence) -> Self {
        sequence.0
    }
}

#[cfg(test)]
mod tests {
    use lodestore_inplace::StripeIndex;

    use super::*;

    #[test]
    fn sequences_grow_over_locks_and_threads() {
        let stripes = Stripes::new(1, 1, Sequence(10));
        let next = || stripes.lock(StripeIndex { partition: 0, stripe: 0 }).next_sequence();
        let mut seen: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..500).map(|_| next()).collect::<Vec<_>>())).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        seen.sort_unstable();
        assert_eq!(seen, (11..=2010).collect::<Vec<_>>(), "each given once");
    }
}
