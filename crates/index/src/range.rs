//! Range scans, forward and backward, without links between leaves.
//!
//! A scan visits the children of a level-1 node in order. The node's separators are constant, so
//! child `i` ends exactly where child `i + 1` begins. For each leaf the scan reads the version,
//! checks that the node is not obsolete, copies payloads, and validates the version. The copy is
//! then the leaf's contents at one moment, at which the leaf held exactly the keys between its two
//! separators (Inv 10). If the node has become obsolete, or ends, the scan descends again from the
//! bound of the next leaf. The copied parts are therefore adjacent ranges, and a key that stays is
//! seen exactly once.

use std::ops::Bound;

use crossbeam_epoch::Guard;

use crate::bytes::key_head;
use crate::inner::Inner;
use crate::leaf::{Access, Leaf};
use crate::resolver::KeyResolver;
use crate::sync::{Mutant, mutant};
use crate::tree::BPlusTree;

/// A separator on the path of a descent: the node and the separator's index.
type SeparatorRef<'g> = Option<(Inner<'g>, usize)>;

/// A level-1 node, the child to begin with, and the bounds of the node's range (`None`: unbounded).
struct ScanPosition<'g> {
    node: Inner<'g>,
    child: usize,
    low: SeparatorRef<'g>,
    high: SeparatorRef<'g>,
}

/// Number of records to prefetch while the scan still searches for its first record.
const SEEK_PREFETCH_RECORDS: usize = 8;

fn separator_key((node, index): (Inner<'_>, usize)) -> Vec<u8> {
    node.separator(index).concat()
}

impl<'g> ScanPosition<'g> {
    /// Returns the separator below child `index`.
    fn low_of(&self, index: usize) -> SeparatorRef<'g> {
        if index > 0 { Some((self.node, index - 1)) } else { self.low }
    }

    /// Returns the separator above child `index`.
    fn high_of(&self, index: usize) -> SeparatorRef<'g> {
        if index < self.node.count() { Some((self.node, index)) } else { self.high }
    }
}

impl BPlusTree {
    /// Descends with `choose`, which selects the child of a node.
    fn descend<'g>(&self, guard: &'g Guard, choose: impl Fn(Inner<'g>) -> usize) -> ScanPosition<'g> {
        let (mut low, mut high) = (None, None);
        let mut node = self.root(guard);
        loop {
            let child = choose(node);
            if node.level() == 1 {
                return ScanPosition { node, child, low, high };
            }
            if child > 0 {
                low = Some((node, child - 1));
            }
            if child < node.count() {
                high = Some((node, child));
            }
            node = node.inner(child);
        }
    }

    /// Implements an ascending collect.
    pub(crate) fn read_forward<R: KeyResolver>(
        &self,
        r: &R,
        from: Bound<&[u8]>,
        max: usize,
        out: &mut Vec<u64>,
        guard: &Guard,
    ) -> bool {
        let limit = out.len() + max;
        let mut bound = from.map(<[u8]>::to_vec);
        loop {
            let mut position = self.descend(guard, |node| match bound.as_ref() {
                Bound::Included(key) | Bound::Excluded(key) => node.upper_bound(key, key_head(key)),
                Bound::Unbounded => 0,
            });
            let mut seek = true;
            loop {
                let from = if seek { bound.as_ref().map(Vec::as_slice) } else { Bound::Unbounded };
                let Some(more) = read_leaf_forward(r, &position, from, limit, out) else {
                    // The node has left the tree: descend again to the leaf that was to be read.
                    if !seek && let Some(separator) = position.low_of(position.child) {
                        bound = Bound::Included(separator_key(separator));
                    }
                    if mutant(Mutant::ScanSkipsLeaf)
                        && let Some(separator) = position.high_of(position.child)
                    {
                        bound = Bound::Included(separator_key(separator));
                    }
                    break;
                };
                let Some(separator) = position.high_of(position.child) else { return !more };
                if out.len() == limit {
                    return false;
                }
                if position.child == position.node.count() {
                    bound = Bound::Included(separator_key(separator));
                    break;
                }
                position.child += 1;
                seek = false;
            }
        }
    }

    /// Implements a descending collect.
    pub(crate) fn read_backward<R: KeyResolver>(
        &self,
        r: &R,
        from: Bound<&[u8]>,
        max: usize,
        out: &mut Vec<u64>,
        guard: &Guard,
    ) -> bool {
        let limit = out.len() + max;
        let mut bound = from.map(<[u8]>::to_vec);
        loop {
            let mut position = self.descend(guard, |node| match bound.as_ref() {
                Bound::Included(key) => node.upper_bound(key, key_head(key)),
                Bound::Excluded(key) => node.lower_bound(key),
                Bound::Unbounded => node.count(),
            });
            let mut seek = true;
            loop {
                let from = if seek { bound.as_ref().map(Vec::as_slice) } else { Bound::Unbounded };
                let Some(more) = read_leaf_backward(r, &position, from, limit, out) else {
                    if !seek && let Some(separator) = position.high_of(position.child) {
                        bound = Bound::Excluded(separator_key(separator));
                    }
                    break;
                };
                let Some(separator) = position.low_of(position.child) else { return !more };
                if out.len() == limit {
                    return false;
                }
                if position.child == 0 {
                    bound = Bound::Excluded(separator_key(separator));
                    break;
                }
                position.child -= 1;
                seek = false;
            }
        }
    }
}

/// Appends the payloads of one leaf, starting at the bound. Returns `None` if the node is obsolete
/// and nothing was appended. Otherwise returns whether the leaf has more payloads than the limit.
fn read_leaf_forward<R: KeyResolver>(
    r: &R,
    position: &ScanPosition<'_>,
    from: Bound<&[u8]>,
    limit: usize,
    out: &mut Vec<u64>,
) -> Option<bool> {
    let leaf = position.node.leaf(position.child);
    let is_seek = !matches!(from, Bound::Unbounded);
    if is_seek {
        Leaf::prefetch(leaf);
    }
    if position.child < position.node.count() {
        Leaf::prefetch_scan(position.node.leaf_address(position.child + 1));
    }
    let before = out.len();
    loop {
        let version = leaf.latch.read()?;
        if position.node.latch().is_obsolete() && !mutant(Mutant::ParentUnchecked) {
            return None;
        }
        let access = Access::Optimistic(version);
        if is_seek {
            prefetch_records(r, leaf, from, false, limit - before, access);
        }
        let Some(start) = boundary_index(r, leaf, from, false, access) else { continue };
        let count = leaf.count();
        let end = count.min(start.saturating_add(limit - before));
        out.extend((start..end).map(|index| leaf.payload(index)));
        if leaf.latch.validate(version) {
            return Some(end < count);
        }
        out.truncate(before);
    }
}

/// Does the same as [`read_leaf_forward`], in descending order.
fn read_leaf_backward<R: KeyResolver>(
    r: &R,
    position: &ScanPosition<'_>,
    from: Bound<&[u8]>,
    limit: usize,
    out: &mut Vec<u64>,
) -> Option<bool> {
    let leaf = position.node.leaf(position.child);
    let is_seek = !matches!(from, Bound::Unbounded);
    if is_seek {
        Leaf::prefetch(leaf);
    }
    if position.child > 0 {
        Leaf::prefetch_scan(position.node.leaf_address(position.child - 1));
    }
    let before = out.len();
    loop {
        let version = leaf.latch.read()?;
        if position.node.latch().is_obsolete() && !mutant(Mutant::ParentUnchecked) {
            return None;
        }
        let access = Access::Optimistic(version);
        if is_seek {
            prefetch_records(r, leaf, from, true, limit - before, access);
        }
        let Some(end) = boundary_index(r, leaf, from, true, access) else { continue };
        let end = end.min(leaf.count());
        let start = end.saturating_sub(limit - before);
        out.extend((start..end).rev().map(|index| leaf.payload(index)));
        if leaf.latch.validate(version) {
            return Some(start > 0);
        }
        out.truncate(before);
    }
}

/// Prefetches the first records of a range, when the first index is known except for the comparison
/// of whole keys.
fn prefetch_records<R: KeyResolver>(
    r: &R,
    leaf: &Leaf,
    from: Bound<&[u8]>,
    backward: bool,
    max: usize,
    access: Access,
) {
    let (Bound::Included(key) | Bound::Excluded(key)) = from else { return };
    let (Some(estimate), Access::Optimistic(version)) = (leaf.estimate_index(key, access), access) else { return };
    if !leaf.latch.validate(version) {
        return;
    }
    let (first, count) = (estimate.min(leaf.count()), max.min(SEEK_PREFETCH_RECORDS));
    if backward {
        (first.saturating_sub(count)..leaf.count().min(first + 1))
            .rev()
            .for_each(|index| r.prefetch_whole(leaf.payload(index)));
    } else {
        (first..leaf.count().min(first + count)).for_each(|index| r.prefetch_whole(leaf.payload(index)));
    }
}

/// Returns the index at which a range begins (forward) or before which it ends (backward). Returns
/// `None` if the read is torn.
fn boundary_index<R: KeyResolver>(
    r: &R,
    leaf: &Leaf,
    from: Bound<&[u8]>,
    backward: bool,
    access: Access,
) -> Option<usize> {
    let (key, past_equal) = match from {
        Bound::Unbounded => return Some(if backward { leaf.count() } else { 0 }),
        Bound::Included(key) => (key, backward),
        Bound::Excluded(key) => (key, !backward),
    };
    let position = leaf.locate(r, key, access)?;
    Some(position.index + usize::from(past_equal && position.payload.is_some()))
}
