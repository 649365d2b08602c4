//! The ordered index: one B+-tree over all keys or, as in the paper's HiKV_par (feature `lab`), one
//! per partition, merged by scans.
//!
//! Any thread may call everything; the trees do their own concurrency control.

use std::ops::Bound;

use lodestore_contract::{Error, Result};
use lodestore_index::{BPlusTree, Direction, KeyResolver};

use crate::tree_op::TreeOp;

/// Maximum trees: an operation in the queue names its tree in a byte.
pub const TREES_MAX: usize = 256;

/// The trees: a single one, or one per range of hashes.
pub struct Trees(Box<[BPlusTree]>);

impl Trees {
    /// Creates `count` trees, 1 to [`TREES_MAX`].
    pub fn new(count: usize) -> Self {
        Self((0..count.clamp(1, TREES_MAX)).map(|_| BPlusTree::new()).collect())
    }

    /// Returns the number of the tree for keys of this hash. Trees have equal shares of the hash's
    /// range. With as many trees as partitions, each partition has its own tree.
    #[inline]
    pub fn number_of(&self, hash: u64) -> usize {
        share_of(hash, self.0.len())
    }

    /// Returns a tree by its number.
    #[inline]
    pub fn get(&self, number: usize) -> &BPlusTree {
        &self.0[number]
    }

    /// Returns whether each partition has a tree: never in a build without the feature `lab`.
    #[inline]
    fn has_several(&self) -> bool {
        cfg!(feature = "lab") && self.0.len() > 1
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.0.iter().map(BPlusTree::len).sum()
    }

    /// Prefetches the paths to the keys of operations together, for operations with inline keys.
    pub(crate) fn prefetch(&self, ops: &[TreeOp]) {
        if !self.has_several() {
            return self.0[0].prefetch_batch(ops.iter().filter_map(TreeOp::inline_key));
        }
        for op in ops {
            if let Some(key) = op.inline_key() {
                self.get(op.tree()).prefetch(key);
            }
        }
    }

    /// Returns the bytes of DRAM.
    pub fn dram_bytes(&self) -> usize {
        self.0.iter().map(BPlusTree::dram_bytes).sum()
    }

    /// Loads empty trees with payloads sorted by key, with `threads` threads. `hash` is the store's
    /// hash.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a tree is not empty, or the payloads are out of order.
    pub fn load<R: KeyResolver + Sync>(
        &self,
        records: &R,
        sorted: &[u64],
        threads: usize,
        hash: impl Fn(&[u8]) -> u64,
    ) -> Result<()> {
        let refused = |error| Error::corrupt("ordered index", format!("the bulk load failed: {error:?}"));
        if !self.has_several() {
            return self.0[0].bulk_load(records, sorted, threads).map_err(refused);
        }
        let mut shares = vec![Vec::new(); self.0.len()];
        for &payload in sorted {
            shares[records.with_key(payload, |key| self.number_of(hash(key)))].push(payload);
        }
        for (tree, share) in self.0.iter().zip(&shares) {
            tree.bulk_load(records, share, threads).map_err(refused)?;
        }
        Ok(())
    }

    /// Appends to `out` up to `max` payloads from `from` on, in key order of `direction`. Returns
    /// whether the end was reached. Each of several trees is asked for `max`, and the results are
    /// merged: the cost of HiKV_par.
    pub fn read_range<R: KeyResolver>(
        &self,
        records: &R,
        from: Bound<&[u8]>,
        direction: Direction,
        max: usize,
        out: &mut Vec<u64>,
    ) -> bool {
        if !self.has_several() {
            return self.0[0].read_range(records, from, direction, max, out);
        }
        let mut at_end = true;
        let mut payloads = Vec::new();
        for tree in &self.0 {
            at_end &= tree.read_range(records, from, direction, max, &mut payloads);
        }
        let mut found: Vec<(Vec<u8>, u64)> =
            payloads.into_iter().map(|payload| (records.with_key(payload, <[u8]>::to_vec), payload)).collect();
        match direction {
            Direction::Forward => found.sort_unstable(),
            Direction::Backward => found.sort_unstable_by(|a, b| b.cmp(a)),
        }
        at_end &= found.len() <= max;
        out.extend(found.iter().take(max).map(|(_, payload)| payload));
        at_end
    }
}

/// Returns the share of `count` equal shares of the hash's range that contains `hash`, by its top
/// 32 bits.
#[inline]
pub(crate) fn share_of(hash: u64, count: usize) -> usize {
    (((hash >> 32) * count as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resolves payload `n` to the key of its six decimal digits.
    struct Digits;
    impl KeyResolver for Digits {
        fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T {
            f(format!("{payload:06}").as_bytes())
        }
        fn prefetch(&self, _: u64) {}
    }

    fn hash(key: &[u8]) -> u64 {
        key.iter()
            .fold(7, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23))
    }

    #[test]
    fn shares_are_the_top_bits_for_powers_of_two() {
        for hash in [0, 1 << 58, u64::MAX, 0x8000_0000_0000_0000] {
            assert_eq!(share_of(hash, 64), (hash >> 58) as usize);
        }
        assert_eq!((share_of(u64::MAX, 3), share_of(0, 3), share_of(u64::MAX, 1)), (2, 0, 0));
    }

    #[test]
    fn several_trees_answer_as_one() {
        let sorted: Vec<u64> = (1..1000).map(|number| number * 3).collect();
        let (one, many) = (Trees::new(1), Trees::new(16));
        one.load(&Digits, &sorted, 1, hash).expect("sorted");
        many.load(&Digits, &sorted, 1, hash).expect("sorted");
        assert_eq!((one.len(), many.len()), (999, 999));
        assert!(many.0.iter().all(|tree| tree.len() > 10), "spread over all trees");
        for direction in [Direction::Forward, Direction::Backward] {
            for from in [Bound::Unbounded, Bound::Included(&b"000300"[..]), Bound::Excluded(&b"000300"[..])] {
                for max in [1, 50, 2000] {
                    let (mut a, mut b) = (Vec::new(), Vec::new());
                    let ends = [
                        one.read_range(&Digits, from, direction, max, &mut a),
                        many.read_range(&Digits, from, direction, max, &mut b),
                    ];
                    assert_eq!(a, b, "{direction:?} {from:?} {max}");
                    assert_eq!(ends[0], ends[1], "{direction:?} {from:?} {max}");
                }
            }
        }
    }
}
