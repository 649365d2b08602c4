//! Writer locks: one stripe for each home bucket of a partition.
//!
//! Invariants, in addition to those of `lodestore_inplace::Stripes`:
//! 4. A split of a segment, and a change of a partition's directory, happens under all stripes of
//!    that partition. They are acquired by a thread that holds none.
//! 5. The content of a stripe is the last sequence given to a record under it, and never decreases.
//!    A sequence identifies the open that wrote a record; nothing depends on the order of
//!    sequences.

use crate::layout::GENERATION_SHIFT;

/// The stripes of all partitions.
pub(crate) type Stripes = lodestore_inplace::Stripes<u64>;

/// Returns a sequence above the last one of a held stripe. After 2^36 in one open, returns the last
/// one again, to stay below the next open's sequences.
#[inline]
pub(crate) fn next_sequence(last: &mut u64) -> u64 {
    const SEQUENCE_MASK: u64 = (1 << GENERATION_SHIFT) - 1;
    if *last & SEQUENCE_MASK != SEQUENCE_MASK {
        *last += 1;
    }
    *last
}

#[cfg(test)]
mod tests {
    use lodestore_inplace::StripeIndex;

    use super::*;

    #[test]
    fn sequences_grow_over_locks_and_threads() {
        let stripes = Stripes::new(1, 1, 10);
        let next = || next_sequence(&mut stripes.lock(StripeIndex { partition: 0, stripe: 0 }));
        let mut seen: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..500).map(|_| next()).collect::<Vec<_>>())).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        seen.sort_unstable();
        assert_eq!(seen, (11..=2010).collect::<Vec<_>>(), "each given once");
    }
}
