//! The concurrent B+-tree: its interface, descent, and the operations on one key.
//!
//! Keys are not stored. A leaf holds payloads (positions of records elsewhere) and 4-byte heads; inner nodes hold shortest
//! separators. Where heads tie, a [`KeyResolver`] gives the key behind a payload.
//!
//! Protocol (SAFETY.md):
//! * A descent reads constant separators and atomic child slots under an epoch guard, and validates nothing on the way: the
//!   range of an inner node never changes, so a stale inner node still leads towards the key. It arrives at a level-1 node
//!   and a leaf, takes the leaf's version, and then looks whether the level-1 node is obsolete. If not, the leaf is the one for
//!   the key at that version (Inv 10), because entries leave a leaf only under its latch, and that latch is let go
//!   only after the old parent is marked.
//! * A writer locks the leaf at that version; a split or merge then locks upwards (split.rs, merge.rs).
//! * A payload is resolved only after the version was validated, or under the latch (Inv 11).
//!
//! Any thread may call anything at any time. A resolver must not call the tree. Every caller, writers included, may have a
//! payload resolved that another thread is just taking out: the record behind it must stay readable until the call returns.
//! So a record is retired only after the tree has dropped its payload, through an epoch that all callers of the tree hold.

use std::ops::Bound;

use crossbeam_epoch::{Guard, pin};

pub use crate::bytes::key_head;
use crate::inner::{Inner, Node, Plan};
use crate::latch::Version;
use crate::leaf::{Access, Leaf};
use crate::reclaim::{Count, Memory, Space};
use crate::shape::LEAF_CAP;
use crate::sync::{AtomicPtr, Mutant, Ordering, mutant};

/// Finds the key behind a payload. The tree stores 8-byte payloads and short key heads only.
pub trait KeyResolver {
    /// Calls `f` with the key of the record that `payload` names. Must not call the tree.
    fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T;
    /// Asks the memory system for the record's first line.
    fn prefetch(&self, payload: u64);
    /// Asks for all of the record that a scan will read. The payload may be one that just left the tree.
    #[inline]
    fn prefetch_whole(&self, payload: u64) {
        self.prefetch(payload);
    }
}

/// Runs `work` with the trees' epoch pinned: the calls of trees in it pin anew for next to nothing. Nodes that leave a tree
/// meanwhile are freed after it, so it should be a batch of calls and no more.
#[inline]
pub fn pinned<T>(work: impl FnOnce() -> T) -> T {
    let _guard = pin();
    work()
}

/// Which way a range is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// Concurrent ordered map from keys of 1 B to 64 KiB to 8-byte payloads; volatile.
pub struct BPlusTree {
    pub(crate) root: AtomicPtr<Node>,
    pub(crate) memory: Memory,
    pub(crate) entries: Count,
}

/// Keys that are prefetched side by side.
const BATCH: usize = 16;

/// A leaf as a descent found it.
pub(crate) struct Found<'g> {
    pub(crate) leaf: &'g Leaf,
    pub(crate) version: Version,
}

impl Default for BPlusTree {
    fn default() -> Self {
        Self::new()
    }
}

impl BPlusTree {
    /// An empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self::with_chunks(usize::MAX)
    }

    /// An empty tree that takes DRAM in steps of half of what it has, and of about so many bytes at most.
    #[must_use]
    pub fn with_chunks(chunk_bytes: usize) -> Self {
        let memory = Memory::new(chunk_bytes);
        let root = {
            let guard = pin();
            let space = Space { guard: &guard, memory: &memory };
            let leaf = std::ptr::from_ref(space.new_leaf()).cast_mut().cast::<Node>();
            Plan::single(1, leaf).build(&space)
        };
        Self { root: AtomicPtr::new(root), memory, entries: Count::default() }
    }

    #[inline]
    pub(crate) fn space<'g>(&'g self, guard: &'g Guard) -> Space<'g> {
        Space { guard, memory: &self.memory }
    }

    #[inline]
    pub(crate) fn root<'g>(&self, _guard: &'g Guard) -> Inner<'g> {
        // SAFETY: Inv 9: the root is always an inner node, stored with release.
        unsafe { Inner::from_raw(self.root.load(Ordering::Acquire)) }
    }

    /// The node of `level` on the way to `key`; the root if the tree is not that high. It may be obsolete.
    #[inline]
    pub(crate) fn inner_for<'g>(&self, key: &[u8], level: u32, guard: &'g Guard) -> Inner<'g> {
        let word = key_head(key);
        let mut node = self.root(guard);
        while node.level() > level {
            node = node.inner(node.upper(key, word));
        }
        node
    }

    /// The leaf for `key`, with a version at which it was that.
    #[inline]
    pub(crate) fn leaf_for<'g>(&self, key: &[u8], guard: &'g Guard) -> Found<'g> {
        let word = key_head(key);
        loop {
            let parent = self.inner_for(key, 1, guard);
            if let Some(found) = Self::arrive(parent, parent.upper(key, word)) {
                return found;
            }
        }
    }

    /// The leaf at a slot of a level-1 node, which was found on the way to a key however long ago, with a version at which it was the key's; none where it was
    /// not, or is being changed.
    #[inline]
    fn arrive(parent: Inner<'_>, slot: usize) -> Option<Found<'_>> {
        let leaf = parent.leaf(slot);
        let version = leaf.latch.read()?;
        let stale = parent.latch().is_obsolete() && !mutant(Mutant::ParentUnchecked);
        (!stale).then_some(Found { leaf, version })
    }

    /// Adds an entry, or gives the key a new payload. Returns the old payload.
    pub fn insert<R: KeyResolver>(&self, r: &R, key: &[u8], payload: u64) -> Option<u64> {
        let guard = pin();
        self.insert_from(r, (key, payload), self.leaf_for(key, &guard), &guard)
    }

    /// As [`BPlusTree::insert`], and calls `meanwhile` while the lines of the leaf are on their way: there the caller waits for its record. Where that
    /// fails nothing is inserted. It must not call the tree.
    ///
    /// # Errors
    /// Those of `meanwhile`.
    pub fn insert_after<R: KeyResolver, E>(
        &self,
        r: &R,
        (key, payload): (&[u8], u64),
        meanwhile: impl FnOnce() -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        let guard = pin();
        let parent = self.inner_for(key, 1, &guard);
        let child = parent.upper(key, key_head(key));
        Leaf::prefetch(parent.leaf_address(child));
        meanwhile()?;
        let found = Self::arrive(parent, child).unwrap_or_else(|| self.leaf_for(key, &guard));
        Ok(self.insert_from(r, (key, payload), found, &guard))
    }

    fn insert_from<R: KeyResolver>(
        &self,
        r: &R,
        (key, payload): (&[u8], u64),
        found: Found<'_>,
        guard: &Guard,
    ) -> Option<u64> {
        let mut found = Some(found);
        loop {
            let Found { leaf, version } = found.take().unwrap_or_else(|| self.leaf_for(key, guard));
            let Some(spot) = leaf.locate(r, key, Access::Optimistic(version)) else { continue };
            if !leaf.latch.try_upgrade(version) {
                continue;
            }
            if let Some(old) = spot.payload {
                leaf.set_payload(spot.index, payload);
                leaf.latch.unlock();
                return Some(old);
            }
            if leaf.count() < LEAF_CAP {
                leaf.insert(key, spot.index, payload, &self.space(guard));
                leaf.latch.unlock();
            } else {
                self.split_leaf(r, leaf, key, spot.index, payload, guard);
            }
            self.entries.add(1);
            return None;
        }
    }

    /// Gives an entry that is known by key and payload a new payload. The entry is found by head and payload, no record is
    /// touched. False: the key is not there with that payload.
    pub fn replace<R: KeyResolver>(&self, _r: &R, key: &[u8], old: u64, new: u64) -> bool {
        let guard = pin();
        loop {
            let Found { leaf, version } = self.leaf_for(key, &guard);
            let Some(index) = leaf.locate_payload(key, old, Access::Optimistic(version)) else { continue };
            let Some(index) = index else {
                if leaf.latch.validate(version) {
                    return false;
                }
                continue;
            };
            if leaf.latch.try_upgrade(version) {
                leaf.set_payload(index, new);
                leaf.latch.unlock();
                return true;
            }
        }
    }

    /// Takes an entry out and returns its payload. With the payload given, only an entry with that payload is taken, and no
    /// record is touched.
    pub fn remove<R: KeyResolver>(&self, r: &R, key: &[u8], payload: Option<u64>) -> Option<u64> {
        let guard = pin();
        loop {
            let Found { leaf, version } = self.leaf_for(key, &guard);
            let access = Access::Optimistic(version);
            let found = match payload {
                Some(payload) => leaf.locate_payload(key, payload, access).map(|at| at.map(|index| (index, payload))),
                None => leaf.locate(r, key, access).map(|spot| spot.payload.map(|payload| (spot.index, payload))),
            };
            let Some(found) = found else { continue };
            let Some((index, payload)) = found else {
                if leaf.latch.validate(version) {
                    return None;
                }
                continue;
            };
            if !leaf.latch.try_upgrade(version) {
                continue;
            }
            leaf.remove(index);
            let left = leaf.count();
            leaf.latch.unlock();
            self.entries.add(-1);
            if Self::worth_merging(left) {
                self.rebalance(key, &guard);
            }
            return Some(payload);
        }
    }

    /// The payload of a key.
    pub fn get<R: KeyResolver>(&self, r: &R, key: &[u8]) -> Option<u64> {
        let guard = pin();
        loop {
            let Found { leaf, version } = self.leaf_for(key, &guard);
            let Some(spot) = leaf.locate(r, key, Access::Optimistic(version)) else { continue };
            if leaf.latch.validate(version) {
                return spot.payload;
            }
        }
    }

    /// Asks for the lines of the leaf that `key` belongs to. For several keys use [`BPlusTree::prefetch_batch`].
    #[inline]
    pub fn prefetch(&self, key: &[u8]) {
        let guard = pin();
        let parent = self.inner_for(key, 1, &guard);
        Leaf::prefetch(parent.leaf_address(parent.upper(key, key_head(key))));
    }

    /// Asks for the lines of the leaves that the keys belong to, for callers with a batch: first this, then the work. The
    /// descents go level by level side by side, so that their cache misses overlap. About 16 keys at a time are best.
    pub fn prefetch_batch<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) {
        let guard = pin();
        let mut keys = keys.into_iter().map(|key| (key, key_head(key)));
        loop {
            let mut batch = [(&[][..], 0); BATCH];
            let filled = batch.iter_mut().zip(&mut keys).map(|(place, key)| *place = key).count();
            if filled == 0 {
                return;
            }
            self.prefetch_some(&batch[..filled], &guard);
        }
    }

    fn prefetch_some(&self, batch: &[(&[u8], u64)], guard: &Guard) {
        let root = self.root(guard);
        let mut nodes = [root; BATCH];
        let mut slots = [0; BATCH];
        for level in (1..=root.level()).rev() {
            for ((slot, node), (key, word)) in slots.iter_mut().zip(&nodes).zip(batch) {
                *slot = node.upper(key, *word);
                node.prefetch_slot(*slot);
            }
            for (node, slot) in nodes.iter_mut().zip(&slots).take(batch.len()) {
                if level == 1 {
                    Leaf::prefetch(node.leaf_address(*slot));
                } else {
                    *node = node.inner(*slot);
                    node.prefetch_front();
                }
            }
        }
    }

    /// Appends to `out` up to `max` payloads in key order (or against it) from the bound on. True: the end was reached.
    ///
    /// Each leaf is read as of one moment, the leaves one after the other: every key that is there throughout is seen exactly
    /// once and in order; of keys that come or go meanwhile, any part may be seen.
    pub fn collect<R: KeyResolver>(
        &self,
        r: &R,
        from: Bound<&[u8]>,
        direction: Direction,
        max: usize,
        out: &mut Vec<u64>,
    ) -> bool {
        let guard = pin();
        match direction {
            Direction::Forward => self.collect_forward(r, from, max, out, &guard),
            Direction::Backward => self.collect_backward(r, from, max, out, &guard),
        }
    }

    /// Number of entries; exact when nobody writes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.sum()
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of DRAM that the tree's nodes take, allocator headers included.
    #[must_use]
    pub fn dram_bytes(&self) -> usize {
        size_of::<Self>() + self.memory.bytes()
    }
}

impl Drop for BPlusTree {
    fn drop(&mut self) {
        let guard = pin();
        let space = self.space(&guard);
        let mut todo = vec![self.root(&guard)];
        while let Some(node) = todo.pop() {
            for index in 0..=node.count() {
                if node.level() > 1 {
                    todo.push(node.inner(index));
                } else {
                    // SAFETY: Inv 4: `&mut self`: no other thread can reach the tree, and each node has one parent.
                    unsafe { space.retire_leaf(node.leaf(index)) };
                }
            }
            // SAFETY: Inv 4: as above.
            unsafe { node.retire(&space) };
        }
    }
}
