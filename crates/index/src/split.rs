//! Growth: splits a full leaf, and replaces a changed inner node.
//!
//! Order of one split, with the full leaf locked:
//! 1. The new leaf is filled while it is private. Entries leave the old leaf (its optimistic
//!    readers will fail).
//! 2. The level-1 parent is locked. If it is obsolete, a new descent finds its successor.
//! 3. A locked copy of the parent with one separator more is published in the slot above it
//!    (upwards as far as nodes overflow).
//! 4. The old parents are marked obsolete, from the top down to level 1. Then their copies are
//!    unlocked.
//! 5. The leaf is unlocked.
//!
//! A reader that sees the leaf's new version (5) therefore sees the mark of the old parent (4) and
//! descends again (Inv 10). Another leaf of the parent can split only under the unlocked copy, and
//! therefore only after the mark. Without that lock, a reader at the old parent could trust the new
//! version of that other leaf.
//!
//! Records may change under the tree (damaged media). A key is trusted only if it agrees with the
//! leaf's own data, so separators stay in order. A thread that panics nevertheless releases its
//! latches, so no thread waits for it.

use crossbeam_epoch::Guard;

use crate::bytes::{common, separator};
use crate::inner::{Inner, Node, NodeBuilder, Replacement};
use crate::latch::Held;
use crate::leaf::Leaf;
use crate::resolver::KeyResolver;
use crate::shape::LEAF_ENTRIES_MAX;
use crate::sync::{Mutant, Ordering, mutant};
use crate::tree::BPlusTree;

/// Returns the tree pointer of a leaf.
pub(crate) fn leaf_node(leaf: &Leaf) -> *mut Node {
    std::ptr::from_ref(leaf).cast_mut().cast()
}

impl BPlusTree {
    /// Splits a full leaf and adds an entry at `index`. The caller has locked the leaf; this
    /// function unlocks it.
    pub(crate) fn split_leaf<R: KeyResolver>(
        &self,
        r: &R,
        leaf: &Leaf,
        key: &[u8],
        index: usize,
        payload: u64,
        guard: &Guard,
    ) {
        let space = self.space(guard);
        let count = leaf.count();
        debug_assert_eq!(count, LEAF_ENTRIES_MAX);
        let held = Held::new(&leaf.latch);
        let right = space.new_leaf();
        let appended = if index == count && leaf.is_appending() { separator_before(r, leaf, count, key) } else { None };
        let is_appended = appended.is_some();
        let separator = if let Some(separator) = appended {
            right.set_prefix(&key[..separator.len() - 1], &space);
            right.insert(key, 0, payload, &space);
            separator
        } else {
            let (middle, separator) = split_point(r, leaf);
            leaf.copy_tail(middle, right, &space);
            leaf.set_count(middle);
            // Insert on the side where a lookup of the key searches. `index` was found with other
            // records than the separator. If one of them changed, `index` and the separator may
            // disagree.
            if key < separator.as_slice() {
                leaf.insert(key, index.min(middle), payload, &space);
            } else {
                right.insert(key, index.saturating_sub(middle), payload, &space);
            }
            leaf.extend_prefix(r, &space);
            right.extend_prefix(r, &space);
            separator
        };
        let held = if mutant(Mutant::LeafUnlockedEarly) {
            held.unlock();
            None
        } else {
            Some(held)
        };
        let parent = self.lock_inner(key, 1, guard).expect("there is always a level 1");
        let parent_held = Held::new(parent.latch());
        let slot = parent.upper_bound(key, crate::bytes::key_head(key));
        assert!(parent.child(slot) == leaf_node(leaf), "the locked leaf is a child of the live parent");
        let new = match parent.with_child(slot, &separator, leaf_node(right), &space) {
            Some(node) => Replacement::One(node),
            None => {
                let at_end = is_appended && slot == parent.count();
                let mut builder = NodeBuilder::of(parent);
                builder.split_child(slot, leaf_node(leaf), &separator, leaf_node(right));
                builder.finish(at_end, &space)
            }
        };
        self.install(key, parent, parent_held, new, guard);
        if let Some(held) = held {
            held.unlock();
        }
    }

    /// Locks and returns the live node of `level` for `key`. Returns `None` if the tree is not that
    /// high.
    fn lock_inner<'g>(&self, key: &[u8], level: u32, guard: &'g Guard) -> Option<Inner<'g>> {
        loop {
            let node = self.inner_for(key, level, guard);
            if node.level() != level {
                return None;
            }
            if node.latch().lock() {
                return Some(node);
            }
        }
    }

    /// Replaces `old`, whose latch is `held`, by `new`; `key` is in its range. Marks `old`, unlocks
    /// `new` and retires `old`.
    pub(crate) fn install(&self, key: &[u8], old: Inner<'_>, held: Held<'_>, new: Replacement, guard: &Guard) {
        let space = self.space(guard);
        let level = old.level();
        let word = crate::bytes::key_head(key);
        let new_held = new.hold(guard);
        loop {
            // Only the holder of the root's latch changes the root. If `old` is the root, it stays
            // the root while it is locked.
            if self.root.load(Ordering::Acquire) == old.as_raw() {
                let root = match new {
                    Replacement::One(node) => node,
                    Replacement::Two(left, separator, right) => {
                        let mut builder = NodeBuilder::single(level + 1, left);
                        builder.push([&separator, &[]], right);
                        builder.build(&space)
                    }
                };
                self.root.store(root, Ordering::Release);
                break;
            }
            // If `old` is not the root, it may become the root now, when the only node above is
            // removed. Check again then.
            let Some(above) = self.lock_inner(key, level + 1, guard) else { continue };
            let above_held = Held::new(above.latch());
            let slot = above.upper_bound(key, word);
            assert!(above.child(slot) == old.as_raw(), "the locked node is a child of the live parent");
            match new {
                Replacement::One(node) => {
                    above.set_child(slot, node);
                    above_held.unlock();
                }
                Replacement::Two(left, separator, right) => {
                    let at_end = slot == above.count();
                    let mut builder = NodeBuilder::of(above);
                    builder.split_child(slot, left, &separator, right);
                    self.install(key, above, above_held, builder.finish(at_end, &space), guard);
                }
            }
            break;
        }
        held.unlock_obsolete();
        drop(new_held);
        // SAFETY: Inv 4: the slot above leads to the new node. `old` was locked and live until now,
        // so this is the only retirement.
        unsafe { old.retire(&space) };
    }
}

/// Returns the split index of a full leaf and the separator. The index is near the middle, where
/// the heads differ at the earliest byte. Separators are then short, and leaves share long
/// prefixes.
///
/// # Panics
/// If no two neighbours differ: all heads are equal, and the records have changed.
fn split_point<R: KeyResolver>(r: &R, leaf: &Leaf) -> (usize, Vec<u8>) {
    let count = leaf.count();
    let middle = count / 2;
    let window = count / 16;
    let best = (middle - window..=middle + window)
        .min_by_key(|at| (first_difference(leaf, *at), at.abs_diff(middle)))
        .expect("the window is not empty");
    if let Some(separator) = separator_at(r, leaf, best) {
        return (best, separator);
    }
    // Of two records with equal heads, one changed since its insert.
    let mut indexes: Vec<usize> = (1..count).collect();
    indexes.sort_by_key(|at| (first_difference(leaf, *at) == HEAD_BYTES, at.abs_diff(middle)));
    let found = indexes.into_iter().find_map(|at| Some((at, separator_at(r, leaf, at)?)));
    found.expect("two neighbours of a full leaf part, or their records are what they were")
}

/// Bytes of a head: also the result of [`first_difference`] for equal heads.
const HEAD_BYTES: u32 = 4;

/// Returns the index of the first byte in which the heads before and at `at` differ.
fn first_difference(leaf: &Leaf, at: usize) -> u32 {
    (leaf.head(at - 1) ^ leaf.head(at)).leading_zeros() / 8
}

/// Returns a separator between the entries before and at `at`. Returns `None` if only their records
/// could distinguish them, and the records have changed.
fn separator_at<R: KeyResolver>(r: &R, leaf: &Leaf, at: usize) -> Option<Vec<u8>> {
    if first_difference(leaf, at) == HEAD_BYTES {
        return r.with_key(leaf.payload(at), |key| {
            if leaf.matches_entry(at, key) { separator_before(r, leaf, at, key) } else { None }
        });
    }
    let (left, right) = (leaf.stored_key_bytes(at - 1), leaf.stored_key_bytes(at));
    let shared = common(&left, &right);
    Some(right[..=shared].to_vec())
}

/// Returns a separator between the entry before `at` and `key`. Returns `None` if the entry's
/// record has changed.
fn separator_before<R: KeyResolver>(r: &R, leaf: &Leaf, at: usize, key: &[u8]) -> Option<Vec<u8>> {
    let before = at - 1;
    r.with_key(leaf.payload(before), |last| {
        (leaf.matches_entry(before, last) && last < key).then(|| separator(last, key))
    })
}
