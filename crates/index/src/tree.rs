//! The concurrent B+-tree: its interface, the descent, and the operations on one key.
//!
//! Keys are not stored. A leaf holds payloads (positions of records elsewhere) and 4-byte heads.
//! Inner nodes hold shortest separators. Where heads are equal, a [`KeyResolver`] reads the key of
//! a payload.
//!
//! Protocol (SAFETY.md):
//! * A descent reads constant separators and atomic child slots under an epoch guard, without
//!   validation. The range of an inner node never changes, so a stale inner node still leads
//!   towards the key. The descent arrives at a level-1 node and a leaf, reads the leaf's version,
//!   and then checks whether the level-1 node is obsolete. If not, the leaf is the leaf for the key
//!   at that version (Inv 10). Entries leave a leaf only under its latch, which is unlocked only
//!   after the old parent is marked.
//! * A writer locks the leaf at that version. A split or merge then locks upwards (split.rs,
//!   merge.rs).
//! * A payload is resolved only after the version was validated, or under the latch (Inv 11).
//!
//! Any thread may call any method at any time. A resolver must not call the tree. Every call,
//! writes included, may resolve a payload that another thread is just removing, so its record must
//! stay readable until the call returns. A record is therefore retired only after the tree has
//! dropped its payload, through an epoch that all callers of the tree hold.

use std::alloc::Layout;
use std::ops::Bound;

use crossbeam_epoch::{Guard, pin};

use crate::bytes::key_head;
use crate::inner::{Inner, Node, NodeBuilder};
use crate::latch::Version;
use crate::leaf::{Access, Leaf};
use crate::reclaim::{Count, Memory, Space};
use crate::resolver::KeyResolver;
use crate::shape::LEAF_ENTRIES_MAX;
use crate::sync::{AtomicPtr, Mutant, Ordering, mutant};

/// Runs `work` with the epoch of the trees pinned, which makes the pins of calls inside `work`
/// almost free. Nodes that leave a tree meanwhile are freed afterwards, so `work` should be one
/// batch of calls.
#[inline]
pub fn pinned<T>(work: impl FnOnce() -> T) -> T {
    let _guard = pin();
    work()
}

/// Keeps the epoch of the trees pinned while it lives. Nodes that leave a tree meanwhile are freed
/// afterwards, so a pin should live for one call or one batch of calls.
pub struct Pin(Guard);

impl Pin {
    /// Pins the epoch. This waits for all earlier stores of the thread.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self(pin())
    }
}

impl Default for Pin {
    fn default() -> Self {
        Self::new()
    }
}

/// The leaf of a key that a caller of [`BPlusTree::seek`] is about to insert.
pub struct Seek<'p> {
    tree: &'p BPlusTree,
    key: &'p [u8],
    parent: Inner<'p>,
    child: usize,
    guard: &'p Guard,
}

impl Seek<'_> {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.key
    }

    /// Does the same as [`BPlusTree::insert`]. The tree may have changed since the descent.
    #[inline]
    pub fn insert<R: KeyResolver>(self, r: &R, payload: u64) -> Option<u64> {
        let found = BPlusTree::leaf_at(self.parent, self.child);
        let found = found.unwrap_or_else(|| self.tree.leaf_for(self.key, self.guard));
        self.tree.insert_from(r, (self.key, payload), found, self.guard)
    }
}

/// Direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// A volatile concurrent ordered map from keys of 1 B to 64 KiB to 8-byte payloads.
pub struct BPlusTree {
    pub(crate) root: AtomicPtr<Node>,
    pub(crate) memory: Memory,
    pub(crate) entries: Count,
}

/// Number of keys whose descents are interleaved.
const PREFETCH_BATCH_KEYS: usize = 16;

/// A leaf found by a descent.
pub(crate) struct FoundLeaf<'g> {
    pub(crate) leaf: &'g Leaf,
    pub(crate) version: Version,
}

impl Default for BPlusTree {
    fn default() -> Self {
        Self::new()
    }
}

impl BPlusTree {
    /// Creates an empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self::with_chunks(usize::MAX)
    }

    /// Creates an empty tree that grows its DRAM in steps of half its size, but of about
    /// `chunk_bytes` at most.
    #[must_use]
    pub fn with_chunks(chunk_bytes: usize) -> Self {
        let memory = Memory::new(Layout::new::<Leaf>(), chunk_bytes);
        let root = {
            let guard = pin();
            let space = Space { guard: &guard, memory: &memory };
            let leaf = std::ptr::from_ref(space.new_leaf()).cast_mut().cast::<Node>();
            NodeBuilder::single(1, leaf).build(&space)
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

    /// Returns the node of `level` on the path to `key`, or the root if the tree is not that high.
    /// The node may be obsolete.
    #[inline]
    pub(crate) fn inner_for<'g>(&self, key: &[u8], level: u32, guard: &'g Guard) -> Inner<'g> {
        let word = key_head(key);
        let mut node = self.root(guard);
        while node.level() > level {
            node = node.inner(node.upper_bound(key, word));
        }
        node
    }

    /// Returns the leaf for `key`, and a version at which it was that leaf.
    #[inline]
    pub(crate) fn leaf_for<'g>(&self, key: &[u8], guard: &'g Guard) -> FoundLeaf<'g> {
        let word = key_head(key);
        loop {
            let parent = self.inner_for(key, 1, guard);
            if let Some(found) = Self::leaf_at(parent, parent.upper_bound(key, word)) {
                return found;
            }
        }
    }

    /// Returns the leaf at `slot` of `parent`, which an earlier descent to a key found. The version
    /// is one at which the leaf was responsible for the key. Returns `None` if it was not, or if it
    /// is being changed.
    #[inline]
    fn leaf_at(parent: Inner<'_>, slot: usize) -> Option<FoundLeaf<'_>> {
        let leaf = parent.leaf(slot);
        let version = leaf.latch.read()?;
        let stale = parent.latch().is_obsolete() && !mutant(Mutant::ParentUnchecked);
        (!stale).then_some(FoundLeaf { leaf, version })
    }

    /// Inserts an entry, or replaces the key's payload. Returns the old payload.
    pub fn insert<R: KeyResolver>(&self, r: &R, key: &[u8], payload: u64) -> Option<u64> {
        let guard = pin();
        self.insert_from(r, (key, payload), self.leaf_for(key, &guard), &guard)
    }

    /// Descends to the leaf of `key` and prefetches it, for a caller that waits for its record
    /// before it inserts the key.
    #[inline]
    #[must_use]
    pub fn seek<'p>(&'p self, key: &'p [u8], pin: &'p Pin) -> Seek<'p> {
        let parent = self.inner_for(key, 1, &pin.0);
        let child = parent.upper_bound(key, key_head(key));
        Leaf::prefetch(parent.leaf_address(child));
        Seek { tree: self, key, parent, child, guard: &pin.0 }
    }

    fn insert_from<R: KeyResolver>(
        &self,
        r: &R,
        (key, payload): (&[u8], u64),
        found: FoundLeaf<'_>,
        guard: &Guard,
    ) -> Option<u64> {
        let mut found = Some(found);
        loop {
            let FoundLeaf { leaf, version } = found.take().unwrap_or_else(|| self.leaf_for(key, guard));
            let Some(position) = leaf.locate(r, key, Access::Optimistic(version)) else { continue };
            if !leaf.latch.try_upgrade(version) {
                continue;
            }
            if let Some(old) = position.payload {
                leaf.set_payload(position.index, payload);
                leaf.latch.unlock();
                return Some(old);
            }
            if leaf.count() < LEAF_ENTRIES_MAX {
                leaf.insert(key, position.index, payload, &self.space(guard));
                leaf.latch.unlock();
            } else {
                self.split_leaf(r, leaf, key, position.index, payload, guard);
            }
            self.entries.add(1);
            return None;
        }
    }

    /// Replaces the payload `old` of a key by `new`. The entry is found by head and payload,
    /// without reading a record. Returns `false` if the key is not present with payload `old`.
    pub fn replace<R: KeyResolver>(&self, _r: &R, key: &[u8], old: u64, new: u64) -> bool {
        let guard = pin();
        loop {
            let FoundLeaf { leaf, version } = self.leaf_for(key, &guard);
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

    /// Removes an entry and returns its payload. If `payload` is given, removes only an entry with
    /// that payload, without reading a record.
    pub fn remove<R: KeyResolver>(&self, r: &R, key: &[u8], payload: Option<u64>) -> Option<u64> {
        let guard = pin();
        loop {
            let FoundLeaf { leaf, version } = self.leaf_for(key, &guard);
            let access = Access::Optimistic(version);
            let found = match payload {
                Some(payload) => leaf.locate_payload(key, payload, access).map(|at| at.map(|index| (index, payload))),
                None => leaf
                    .locate(r, key, access)
                    .map(|position| position.payload.map(|payload| (position.index, payload))),
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
            if Self::should_merge(left) {
                self.rebalance(key, &guard);
            }
            return Some(payload);
        }
    }

    /// Returns the payload of a key.
    pub fn get<R: KeyResolver>(&self, r: &R, key: &[u8]) -> Option<u64> {
        let guard = pin();
        loop {
            let FoundLeaf { leaf, version } = self.leaf_for(key, &guard);
            let Some(position) = leaf.locate(r, key, Access::Optimistic(version)) else { continue };
            if leaf.latch.validate(version) {
                return position.payload;
            }
        }
    }

    /// Prefetches the leaf that `key` belongs to. For several keys use
    /// [`BPlusTree::prefetch_batch`].
    #[inline]
    pub fn prefetch(&self, key: &[u8]) {
        let guard = pin();
        let parent = self.inner_for(key, 1, &guard);
        Leaf::prefetch(parent.leaf_address(parent.upper_bound(key, key_head(key))));
    }

    /// Prefetches the leaves that the keys belong to. A caller with a batch calls this first, then
    /// does the work. The descents proceed level by level together, so that their cache misses
    /// overlap. Batches of about 16 keys are best.
    pub fn prefetch_batch<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) {
        let guard = pin();
        let mut keys = keys.into_iter().map(|key| (key, key_head(key)));
        loop {
            let mut batch = [(&[][..], 0); PREFETCH_BATCH_KEYS];
            let filled = batch.iter_mut().zip(&mut keys).map(|(slot, key)| *slot = key).count();
            if filled == 0 {
                return;
            }
            self.prefetch_together(&batch[..filled], &guard);
        }
    }

    fn prefetch_together(&self, batch: &[(&[u8], u64)], guard: &Guard) {
        let root = self.root(guard);
        let mut nodes = [root; PREFETCH_BATCH_KEYS];
        let mut slots = [0; PREFETCH_BATCH_KEYS];
        for level in (1..=root.level()).rev() {
            for ((slot, node), (key, word)) in slots.iter_mut().zip(&nodes).zip(batch) {
                *slot = node.upper_bound(key, *word);
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

    /// Appends up to `max` payloads to `out`, in the order of `direction`, starting at the bound.
    /// Returns whether the end was reached.
    ///
    /// Each leaf is read as of one moment, one leaf after the other. A key that is present
    /// throughout is seen exactly once and in order. Of the keys that are inserted or removed
    /// meanwhile, any subset may be seen.
    pub fn read_range<R: KeyResolver>(
        &self,
        r: &R,
        from: Bound<&[u8]>,
        direction: Direction,
        max: usize,
        out: &mut Vec<u64>,
    ) -> bool {
        let guard = pin();
        match direction {
            Direction::Forward => self.read_forward(r, from, max, out, &guard),
            Direction::Backward => self.read_backward(r, from, max, out, &guard),
        }
    }

    /// Returns the number of entries, which is exact when no thread writes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.sum()
    }

    /// Returns whether the tree has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of DRAM that the tree's nodes use, allocator headers included.
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
                    // SAFETY: Inv 4: `&mut self`: no other thread can reach the tree, and each node
                    // has one parent.
                    unsafe { space.retire_leaf(node.leaf(index)) };
                }
            }
            // SAFETY: Inv 4: as above.
            unsafe { node.retire(&space) };
        }
    }
}
