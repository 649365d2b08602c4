//! Shrinking: merges leaves and inner nodes that hold little, and removes levels.
//!
//! A merge locks the left node, the right node, then their parent. The merge publishes a locked
//! copy of the parent without the separator, and marks the old parent and the emptied nodes
//! obsolete. Then the merge unlocks the copy and the leaves (Inv 10). A leaf merge keeps the left
//! leaf and retires the right leaf. An inner merge creates a new node and retires both.

use crossbeam_epoch::Guard;

use crate::bytes::key_head;
use crate::inner::{Inner, NodeBuilder, Replacement};
use crate::latch::Held;
use crate::leaf::Leaf;
use crate::shape::{INNER_SEPARATORS_MAX, LEAF_ENTRIES_MAX, LEAF_MERGE_STEP_ENTRIES};
use crate::split::leaf_node;
use crate::sync::{Mutant, Ordering, mutant};
use crate::tree::BPlusTree;

/// Maximum number of entries of a merged leaf, so that it does not split at once.
const MERGED_LEAF_ENTRIES_MAX: usize = LEAF_ENTRIES_MAX * 3 / 4;
/// Maximum number of separators of a merged inner node.
const MERGED_INNER_SEPARATORS_MAX: usize = INNER_SEPARATORS_MAX * 3 / 4;

impl BPlusTree {
    /// Returns whether a leaf that has just shrunk to `count` entries should look for a neighbour
    /// to merge with. Not every count qualifies, because the neighbours may be full.
    pub(crate) fn should_merge(count: usize) -> bool {
        count < LEAF_ENTRIES_MAX / 4 && count.is_multiple_of(LEAF_MERGE_STEP_ENTRIES)
    }

    /// Merges around `key` as long as merging makes progress.
    pub(crate) fn rebalance(&self, key: &[u8], guard: &Guard) {
        loop {
            let merged = self.merge_leaves(key, guard);
            if !self.merge_inners(key, guard) && !merged {
                return;
            }
        }
    }

    /// Merges the leaf of `key` with a neighbour under the same parent. Returns `false` if there is
    /// nothing to do.
    fn merge_leaves(&self, key: &[u8], guard: &Guard) -> bool {
        let parent = self.inner_for(key, 1, guard);
        let slot = parent.upper_bound(key, key_head(key));
        let fits = |at: &usize| {
            let (a, b) = (parent.leaf(*at).count(), parent.leaf(at + 1).count());
            a.min(b) < LEAF_ENTRIES_MAX / 4 && can_merge(a, b)
        };
        let pairs = slot.saturating_sub(1)..(slot + 1).min(parent.count());
        let Some(at) = pairs.rev().find(fits) else { return false };
        let (left, right) = (parent.leaf(at), parent.leaf(at + 1));
        if !left.latch.lock() {
            return true;
        }
        if !right.latch.lock() {
            left.latch.unlock_unchanged();
            return true;
        }
        if !parent.latch().lock() {
            right.latch.unlock_unchanged();
            left.latch.unlock_unchanged();
            return true;
        }
        if !can_merge(left.count(), right.count()) {
            parent.latch().unlock_unchanged();
            right.latch.unlock_unchanged();
            left.latch.unlock_unchanged();
            return false;
        }
        self.join_leaves(key, parent, at, guard);
        true
    }

    /// Merges leaves `at` and `at + 1` of `parent`. The caller has locked all three; this function
    /// unlocks them.
    fn join_leaves(&self, key: &[u8], parent: Inner<'_>, at: usize, guard: &Guard) {
        let space = self.space(guard);
        let (left, right): (&Leaf, &Leaf) = (parent.leaf(at), parent.leaf(at + 1));
        let held = [&right.latch, &left.latch, parent.latch()].map(Held::new);
        left.absorb(right, &space);
        let mut builder = NodeBuilder::of(parent);
        builder.merge_children(at, leaf_node(left));
        let [right_held, left_held, parent_held] = held;
        let new = Replacement::One(builder.build_locked(&space));
        if mutant(Mutant::MergedParentKept) {
            right_held.unlock();
            left_held.unlock();
            self.install(key, parent, parent_held, new, guard);
            return;
        }
        self.install(key, parent, parent_held, new, guard);
        right_held.unlock_obsolete();
        left_held.unlock();
        // SAFETY: Inv 4: the new parent does not lead to `right`, which was locked and live until
        // now.
        unsafe { space.retire_leaf(right) };
        if self.memory.is_sparse() {
            guard.flush();
        }
    }

    /// Merges inner nodes on the path to `key` that hold little, from level 1 up. Returns `false`
    /// if there is nothing to do.
    fn merge_inners(&self, key: &[u8], guard: &Guard) -> bool {
        let mut progress = false;
        let mut level = 1;
        loop {
            let node = self.inner_for(key, level, guard);
            if self.root.load(Ordering::Acquire) == node.as_raw() {
                return self.lower_root(node, guard) || progress;
            }
            if node.level() != level {
                return progress;
            }
            if node.count() < INNER_SEPARATORS_MAX / 4 && self.merge_inner(key, level, guard) {
                progress = true;
            } else {
                level += 1;
            }
        }
    }

    /// Removes a root with one child, if the child is an inner node.
    fn lower_root(&self, root: Inner<'_>, guard: &Guard) -> bool {
        if root.count() > 0 || root.level() == 1 || !root.latch().lock() {
            return false;
        }
        assert!(self.root.load(Ordering::Acquire) == root.as_raw(), "a live node without a parent is the root");
        self.root.store(root.child(0), Ordering::Release);
        root.latch().unlock_obsolete();
        // SAFETY: Inv 4: the tree's root pointer was the only path to the node, which was locked
        // and live until now.
        unsafe { root.retire(&self.space(guard)) };
        true
    }

    /// Merges the node of `level` for `key` with a neighbour under the same parent. Returns `false`
    /// if there is nothing to do.
    fn merge_inner(&self, key: &[u8], level: u32, guard: &Guard) -> bool {
        let above = self.inner_for(key, level + 1, guard);
        if above.level() != level + 1 {
            return false;
        }
        let slot = above.upper_bound(key, key_head(key));
        let fits = |at: &usize| above.inner(*at).count() + above.inner(at + 1).count() < MERGED_INNER_SEPARATORS_MAX;
        let pairs = slot.saturating_sub(1)..(slot + 1).min(above.count());
        let Some(at) = pairs.rev().find(fits) else { return false };
        let (left, right) = (above.inner(at), above.inner(at + 1));
        if !left.latch().lock() {
            return true;
        }
        if !right.latch().lock() {
            left.latch().unlock_unchanged();
            return true;
        }
        if !above.latch().lock() {
            right.latch().unlock_unchanged();
            left.latch().unlock_unchanged();
            return true;
        }
        let held = [left, right].map(|node| Held::new(node.latch()));
        let above_held = Held::new(above.latch());
        // Both are live and locked, and `above` is live, so they are still its children `at` and
        // `at + 1`.
        assert!(above.inner(at) == left && above.inner(at + 1) == right, "live children of a live parent");
        let space = self.space(guard);
        let mut joined = NodeBuilder::of(left);
        joined.append(above.separator(at), right);
        let mut builder = NodeBuilder::of(above);
        let joined = joined.build_locked(&space);
        let joined_held = Some(Inner::hold_new(joined, guard)).filter(|_| !mutant(Mutant::JoinedNodeUnlockedEarly));
        builder.merge_children(at, joined);
        self.install(key, above, above_held, Replacement::One(builder.build_locked(&space)), guard);
        for (old, held) in [left, right].into_iter().zip(held) {
            held.unlock_obsolete();
            // SAFETY: Inv 4: the new parent leads to the joined node; `old` was locked and live
            // until now.
            unsafe { old.retire(&space) };
        }
        drop(joined_held);
        true
    }
}

/// Returns whether two leaves may be merged.
fn can_merge(a: usize, b: usize) -> bool {
    a + b <= if a == 0 || b == 0 { LEAF_ENTRIES_MAX } else { MERGED_LEAF_ENTRIES_MAX }
}
