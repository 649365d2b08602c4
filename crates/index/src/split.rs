//! Growth: splitting a full leaf, and putting a changed inner node in the place of the old one.
//!
//! Order of one split, the full leaf being locked:
//! 1. the new leaf is filled while nobody knows it; entries leave the old leaf (optimistic readers of it will fail);
//! 2. the level-1 parent is locked; if it is obsolete, a new descent finds its successor;
//! 3. a locked copy of the parent with one separator more is published in the slot above it
//!    (upwards as far as nodes overflow);
//! 4. the old parents are marked obsolete, from the top down to level 1; then their copies are
//!    unlocked;
//! 5. the leaf is let go.
//!
//! A reader that gets the leaf's new version (5) therefore sees the mark of the old parent (4) and descends again (Inv 10).
//! Another leaf of the parent can split only under the unlocked copy, so after the mark. Without
//! that lock a reader at the old parent could believe the new version of that other leaf.
//!
//! Records may change under the tree (a damaged medium): keys are believed only where they agree with what the leaf knows of them, so that separators stay
//! in their order. Whoever panics nevertheless lets its latches go: nobody waits for it.

use crossbeam_epoch::Guard;

use crate::bytes::{common, separator};
use crate::inner::{Inner, Node, Plan, Replacement};
use crate::latch::Held;
use crate::leaf::Leaf;
use crate::shape::LEAF_CAP;
use crate::sync::{Mutant, Ordering, mutant};
use crate::tree::{BPlusTree, KeyResolver};

/// The tree pointer for a leaf.
pub(crate) fn leaf_node(leaf: &Leaf) -> *mut Node {
    std::ptr::from_ref(leaf).cast_mut().cast()
}

impl BPlusTree {
    /// Splits a full leaf and adds an entry at `index`. The leaf is locked by the caller and let go here.
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
        debug_assert_eq!(count, LEAF_CAP);
        let held = Held::new(&leaf.latch);
        let right = space.new_leaf();
        let appended = if index == count && leaf.appending() { separator_before(r, leaf, count, key) } else { None };
        let is_appended = appended.is_some();
        let separator = if let Some(separator) = appended {
            right.set_prefix(&key[..separator.len() - 1], &space);
            right.insert(key, 0, payload, &space);
            separator
        } else {
            let (middle, separator) = split_point(r, leaf);
            leaf.copy_tail(middle, right, &space);
            leaf.set_count(middle);
            // The side is the one where the key is looked for. The place was found by other records than the separator: where one of them changed, the two may disagree.
            if key < separator.as_slice() {
                leaf.insert(key, index.min(middle), payload, &space);
            } else {
                right.insert(key, index.saturating_sub(middle), payload, &space);
            }
            leaf.refine(r, &space);
            right.refine(r, &space);
            separator
        };
        let held = if mutant(Mutant::LeafFreedEarly) {
            held.unlock();
            None
        } else {
            Some(held)
        };
        let parent = self.lock_inner(key, 1, guard).expect("there is always a level 1");
        let parent_held = Held::new(parent.latch());
        let slot = parent.upper(key, crate::bytes::key_head(key));
        assert!(parent.child(slot) == leaf_node(leaf), "the locked leaf is a child of the live parent");
        let new = match parent.with_child(slot, &separator, leaf_node(right), &space) {
            Some(node) => Replacement::One(node),
            None => {
                let at_end = is_appended && slot == parent.count();
                let mut plan = Plan::of(parent);
                plan.split_child(slot, leaf_node(leaf), &separator, leaf_node(right));
                plan.finish(at_end, &space)
            }
        };
        self.install(key, parent, parent_held, new, guard);
        if let Some(held) = held {
            held.unlock();
        }
    }

    /// The live node of `level` for `key`, locked. None: the tree is not that high (any more).
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

    /// Puts `new` in the place of `old`, whose latch is `held`; `key` is in its range. Marks `old`,
    /// unlocks `new` and retires `old`.
    pub(crate) fn install(&self, key: &[u8], old: Inner<'_>, held: Held<'_>, new: Replacement, guard: &Guard) {
        let space = self.space(guard);
        let level = old.level();
        let word = crate::bytes::key_head(key);
        let new_held = new.hold(guard);
        loop {
            // The root is only changed by the holder of its latch: if `old` is the root, it stays that while it is locked.
            if self.root.load(Ordering::Acquire) == old.as_raw() {
                let root = match new {
                    Replacement::One(node) => node,
                    Replacement::Two(left, separator, right) => {
                        let mut plan = Plan::single(level + 1, left);
                        plan.push([&separator, &[]], right);
                        plan.build(&space)
                    }
                };
                self.root.store(root, Ordering::Release);
                break;
            }
            // If it is not, it may become the root right now, when the only node above it is taken off: then look again.
            let Some(above) = self.lock_inner(key, level + 1, guard) else { continue };
            let above_held = Held::new(above.latch());
            let slot = above.upper(key, word);
            assert!(above.child(slot) == old.as_raw(), "the locked node is a child of the live parent");
            match new {
                Replacement::One(node) => {
                    above.set_child(slot, node);
                    above_held.unlock();
                }
                Replacement::Two(left, separator, right) => {
                    let at_end = slot == above.count();
                    let mut plan = Plan::of(above);
                    plan.split_child(slot, left, &separator, right);
                    self.install(key, above, above_held, plan.finish(at_end, &space), guard);
                }
            }
            break;
        }
        held.unlock_obsolete();
        drop(new_held);
        // SAFETY: Inv 4: the slot above leads to the new node; `old` was locked and live until now, so this is the only retirement.
        unsafe { old.retire(&space) };
    }
}

/// Where to split a full leaf, and the separator: near the middle, where the heads part at the earliest byte, so that
/// separators are short and leaves share long prefixes.
///
/// # Panics
/// No two neighbours part: all their heads tie, and the records are not what they were.
fn split_point<R: KeyResolver>(r: &R, leaf: &Leaf) -> (usize, Vec<u8>) {
    let count = leaf.count();
    let middle = count / 2;
    let reach = count / 16;
    let best = (middle - reach..=middle + reach)
        .min_by_key(|at| (parting(leaf, *at), at.abs_diff(middle)))
        .expect("the window is not empty");
    if let Some(made) = separator_at(r, leaf, best) {
        return (best, made);
    }
    // Of two records whose heads tie, one changed since it was put here.
    let mut places: Vec<usize> = (1..count).collect();
    places.sort_by_key(|at| (parting(leaf, *at) == TIE, at.abs_diff(middle)));
    let found = places.into_iter().find_map(|at| Some((at, separator_at(r, leaf, at)?)));
    found.expect("two neighbours of a full leaf part, or their records are what they were")
}

/// [`parting`] of heads that are equal.
const TIE: u32 = 4;

/// The first byte in which the heads before and at `at` differ.
fn parting(leaf: &Leaf, at: usize) -> u32 {
    (leaf.head(at - 1) ^ leaf.head(at)).leading_zeros() / 8
}

/// A separator between the entries before and at `at`. None: only their records could tell, and are not what they were.
fn separator_at<R: KeyResolver>(r: &R, leaf: &Leaf, at: usize) -> Option<Vec<u8>> {
    if parting(leaf, at) == TIE {
        return r.with_key(leaf.payload(at), |key| {
            if leaf.knows(at, key) { separator_before(r, leaf, at, key) } else { None }
        });
    }
    let (left, right) = (leaf.known_bytes(at - 1), leaf.known_bytes(at));
    let shared = common(&left, &right);
    Some(right[..=shared].to_vec())
}

/// A separator between the entry before `at` and `key`. None: the entry's record is not what it was.
fn separator_before<R: KeyResolver>(r: &R, leaf: &Leaf, at: usize, key: &[u8]) -> Option<Vec<u8>> {
    let before = at - 1;
    r.with_key(leaf.payload(before), |last| (leaf.knows(before, last) && last < key).then(|| separator(last, key)))
}
