//! An inner node: separators and children in one allocation of exact size. The separators never
//! change.
//!
//! A change of separators creates a new node that replaces the old node in its parent. The old node
//! is marked obsolete and retired. Readers therefore search constant memory and need no validation
//! here. A search only checks, after it has the version of a leaf, that the last inner node was not
//! obsolete (tree.rs).
//!
//! Invariants (numbers as in SAFETY.md):
//! * Everything except the latch and the children is written before the node is published, and
//!   never after (Inv 8).
//! * The key range of a node is fixed for its life. Child `i` of `n + 1` holds the keys from
//!   separator `i - 1` (inclusive) to separator `i` (exclusive) (Inv 9). A child slot changes only
//!   under this node's latch, to a node of the same range.
//! * The children of level 1 are leaves, and the slots of level 1 never change.
//!
//! Layout: header, `count` heads (4 bytes after the common prefix; padded to 8), `count + 1`
//! children, `count` ends of tails, prefix bytes, tails (each separator without the prefix). A
//! search reads the front, one child, and seldom the rest.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crossbeam_epoch::Guard;

use crate::bytes::{common, head_at, key_head};
use crate::latch::{Held, Latch};
use crate::leaf::Leaf;
use crate::reclaim::{Space, prefetch_line};
use crate::shape::{INNER_SEPARATORS_MAX, INNER_TAIL_BYTES_MAX};
use crate::sync::{AtomicPtr, Mutant, Ordering, mutant};

/// The front of an inner node.
#[repr(C)]
pub(crate) struct Header {
    latch: Latch,
    /// The first eight prefix bytes.
    prefix_word: u64,
    count: u32,
    prefix_len: u32,
    tail_len: u32,
    level: u32,
}

/// Any node. The level of the parent determines the kind.
pub(crate) type Node = u8;

const HEADS_AT: usize = size_of::<Header>();
const CHILD_SLOT_BYTES: usize = size_of::<AtomicPtr<Node>>();

/// Returns the offset of the children.
#[inline]
const fn slots_at(count: usize) -> usize {
    HEADS_AT + (count * 4).next_multiple_of(8)
}

/// Returns the offset of the ends.
#[inline]
const fn ends_at(count: usize) -> usize {
    slots_at(count) + (count + 1) * CHILD_SLOT_BYTES
}

/// A node that is alive at least as long as the guard.
#[derive(Clone, Copy)]
pub(crate) struct Inner<'g> {
    at: NonNull<Header>,
    live: PhantomData<&'g Guard>,
}

impl PartialEq for Inner<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<'g> Inner<'g> {
    /// Returns the node at a pointer.
    ///
    /// # Safety
    /// * [`NodeBuilder::build`], [`NodeBuilder::build_locked`] or [`Inner::with_child`] made `at`.
    /// * `at` was loaded with acquire from the tree under a guard that is held for `'g`.
    ///   Alternatively, this thread made `at` under that guard and no thread has retired it.
    #[inline]
    pub(crate) unsafe fn from_raw(at: *mut Node) -> Self {
        debug_assert!(!at.is_null());
        // SAFETY: Inv 9: no child and no root is ever null.
        Self { at: unsafe { NonNull::new_unchecked(at.cast()) }, live: PhantomData }
    }

    /// Returns the latch of a locked node that this thread made under `guard`.
    pub(crate) fn hold_new(node: *mut Node, _guard: &'g Guard) -> Held<'g> {
        // SAFETY: Inv 4 and 9: this thread made the node under the guard and holds its latch, so no
        // thread has retired it.
        Held::new(unsafe { Self::from_raw(node) }.latch())
    }

    /// Returns the node's pointer.
    pub(crate) fn as_raw(self) -> *mut Node {
        self.at.as_ptr().cast()
    }

    #[inline]
    fn header(self) -> &'g Header {
        // SAFETY: Inv 4 and 8: allocated while the guard is held; everything except the latch is
        // constant.
        unsafe { &*self.at.as_ptr() }
    }

    #[inline]
    pub(crate) fn latch(self) -> &'g Latch {
        &self.header().latch
    }

    /// Returns the number of separators. The number of children is one higher.
    #[inline]
    pub(crate) fn count(self) -> usize {
        self.header().count as usize
    }

    /// Returns the node's level; level 1 is directly above the leaves.
    #[inline]
    pub(crate) fn level(self) -> u32 {
        self.header().level
    }

    /// Returns `len` values of the allocation that begin at `offset`.
    ///
    /// # Safety
    /// The values are inside the allocation, are of type `T`, and are constant or atomic.
    #[inline]
    unsafe fn slice_at<T>(self, offset: usize, len: usize) -> &'g [T] {
        // SAFETY: Inv 8: the caller names a part of the layout that `NodeBuilder::build` wrote.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().cast::<u8>().add(offset).cast::<T>(), len) }
    }

    #[inline]
    fn slots(self) -> &'g [AtomicPtr<Node>] {
        // SAFETY: Inv 8: `count + 1` slots follow the heads.
        unsafe { self.slice_at(slots_at(self.count()), self.count() + 1) }
    }

    #[inline]
    fn heads(self) -> &'g [u32] {
        // SAFETY: Inv 8: `count` heads follow the header.
        unsafe { self.slice_at(HEADS_AT, self.count()) }
    }

    fn ends(self) -> &'g [u32] {
        let count = self.count();
        // SAFETY: Inv 8: `count` ends follow the slots.
        unsafe { self.slice_at(ends_at(count), count) }
    }

    /// Returns the prefix of all separators.
    pub(crate) fn prefix(self) -> &'g [u8] {
        let count = self.count();
        // SAFETY: Inv 8: the prefix follows the ends.
        unsafe { self.slice_at(ends_at(count) + count * 4, self.header().prefix_len as usize) }
    }

    fn tails(self) -> &'g [u8] {
        let (count, header) = (self.count(), self.header());
        let at = ends_at(count) + count * 4 + header.prefix_len as usize;
        // SAFETY: Inv 8: the tails follow the prefix.
        unsafe { self.slice_at(at, header.tail_len as usize) }
    }

    /// Returns separator `index` without the prefix.
    fn tail(self, index: usize) -> &'g [u8] {
        let ends = self.ends();
        let start = if index == 0 { 0 } else { ends[index - 1] as usize };
        &self.tails()[start..ends[index] as usize]
    }

    /// Returns separator `index` in two parts: prefix and tail.
    pub(crate) fn separator(self, index: usize) -> [&'g [u8]; 2] {
        [self.prefix(), self.tail(index)]
    }

    /// Returns the child for `key`: the number of separators that are at most `key`.
    #[inline]
    pub(crate) fn upper_bound(self, key: &[u8], word: u64) -> usize {
        self.search(key, word, true)
    }

    /// Returns the child for the keys below `key`: the number of separators below `key`.
    pub(crate) fn lower_bound(self, key: &[u8]) -> usize {
        self.search(key, key_head(key), false)
    }

    #[inline]
    fn search(self, key: &[u8], word: u64, inclusive: bool) -> usize {
        let header = self.header();
        let len = header.prefix_len as usize;
        if len > 0 {
            let order = if len <= 8 && key.len() >= len {
                let shift = 64 - 8 * len as u32;
                (word >> shift).cmp(&(header.prefix_word >> shift))
            } else if key.starts_with(self.prefix()) {
                std::cmp::Ordering::Equal
            } else {
                key.cmp(self.prefix())
            };
            match order {
                std::cmp::Ordering::Less => return 0,
                std::cmp::Ordering::Greater => return self.count(),
                std::cmp::Ordering::Equal => {}
            }
        }
        let head = head_at(key, len);
        let heads = self.heads();
        let first = heads.partition_point(|h| *h < head);
        if heads.get(first) != Some(&head) {
            return first;
        }
        let end = first + heads[first..].partition_point(|h| *h == head);
        let rest = &key[len..];
        let (mut low, mut high) = (first, end);
        while low < high {
            let middle = low + (high - low) / 2;
            let tail = self.tail(middle);
            if tail < rest || (inclusive && tail == rest) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the pointer in a child slot.
    #[inline]
    pub(crate) fn child(self, index: usize) -> *mut Node {
        self.slots()[index].load(Ordering::Acquire)
    }

    /// Prefetches the cache line of a child slot.
    #[inline]
    pub(crate) fn prefetch_slot(self, index: usize) {
        prefetch_line((&raw const self.slots()[index]).cast());
    }

    /// Prefetches the cache lines that a search reads: the header and the heads of a node that is
    /// two thirds full.
    #[inline]
    pub(crate) fn prefetch_front(self) {
        for line in 0..(HEADS_AT + INNER_SEPARATORS_MAX * 4 * 2 / 3).div_ceil(64) {
            prefetch_line(self.as_raw().wrapping_add(line * 64));
        }
    }

    /// Stores another node of the same range in a slot. The caller holds the latch.
    pub(crate) fn set_child(self, index: usize, node: *mut Node) {
        debug_assert!(self.level() > 1 && self.latch().is_locked());
        self.slots()[index].store(node, Ordering::Release);
    }

    /// Returns a child that is an inner node.
    #[inline]
    pub(crate) fn inner(self, index: usize) -> Inner<'g> {
        debug_assert!(self.level() > 1);
        // SAFETY: Inv 9: above level 1 all children are inner nodes, published with release and
        // loaded with acquire.
        unsafe { Inner::from_raw(self.child(index)) }
    }

    /// Returns a child that is a leaf.
    #[inline]
    pub(crate) fn leaf(self, index: usize) -> &'g Leaf {
        debug_assert_eq!(self.level(), 1);
        // SAFETY: Inv 4 and 9: at level 1 all children are leaves, and the guard keeps them
        // allocated.
        unsafe { &*self.child(index).cast::<Leaf>() }
    }

    /// Returns the address of a child leaf, for prefetching.
    #[inline]
    pub(crate) fn leaf_address(self, index: usize) -> *const Leaf {
        self.child(index).cast()
    }

    /// Returns the leaf of a node whose only child is a leaf.
    pub(crate) fn leaf_of_single(self) -> Option<&'g Leaf> {
        (self.level() == 1 && self.count() == 0).then(|| self.leaf(0))
    }

    /// Returns a locked copy of the node with `separator` and `right` inserted after child `slot`,
    /// as a split below needs. Returns `None` if the separator lacks the common prefix or the copy
    /// would be too big; then a [`NodeBuilder`] builds the node. The caller holds the latch.
    pub(crate) fn with_child(
        self,
        slot: usize,
        separator: &[u8],
        right: *mut Node,
        space: &Space<'_>,
    ) -> Option<*mut Node> {
        let (count, prefix) = (self.count(), self.prefix());
        let tail = separator.strip_prefix(prefix)?;
        let tails = self.tails();
        let tail_len = tails.len() + tail.len();
        if count == 0 || count >= INNER_SEPARATORS_MAX || tail_len > INNER_TAIL_BYTES_MAX {
            return None;
        }
        let mut heads = [0u32; INNER_SEPARATORS_MAX];
        heads[..slot].copy_from_slice(&self.heads()[..slot]);
        heads[slot] = head_at(tail, 0);
        heads[slot + 1..=count].copy_from_slice(&self.heads()[slot..]);
        let mut ends = [0u32; INNER_SEPARATORS_MAX];
        ends[..slot].copy_from_slice(&self.ends()[..slot]);
        let start = slot.checked_sub(1).map_or(0, |before| ends[before]);
        ends[slot] = start + tail.len() as u32;
        for (to, from) in ends[slot + 1..=count].iter_mut().zip(&self.ends()[slot..]) {
            *to = from + tail.len() as u32;
        }
        let (before, after) = tails.split_at(start as usize);
        let children = (0..=slot).map(|at| self.child(at)).chain([right]);
        let children = children.chain((slot + 1..=count).map(|at| self.child(at)));
        let contents = NodeContents {
            level: self.level(),
            heads: &heads[..=count],
            ends: &ends[..=count],
            prefix,
            tails: [before, tail, after],
            is_locked: true,
        };
        Some(contents.write(children, space))
    }

    fn layout(self) -> Layout {
        let header = self.header();
        layout(self.count(), header.prefix_len as usize, header.tail_len as usize)
    }

    /// Retires the node: its memory is freed when no current guard is left.
    ///
    /// # Safety
    /// The tree no longer leads to the node, and this is the only such call.
    pub(crate) unsafe fn retire(self, space: &Space<'_>) {
        // SAFETY: Inv 4: guaranteed by the caller. The layout is the layout of the allocation.
        unsafe { space.retire_bytes(self.at.cast(), self.layout()) };
    }
}

fn layout(count: usize, prefix: usize, tails: usize) -> Layout {
    let size = ends_at(count) + count * 4 + prefix + tails;
    Layout::from_size_align(size, align_of::<Header>()).expect("an inner node is far below isize::MAX")
}

/// A new node under construction: full separators, concatenated, and children.
pub(crate) struct NodeBuilder {
    level: u32,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    children: Vec<*mut Node>,
}

/// The nodes that replace a node. They are locked.
pub(crate) enum Replacement {
    /// A node of the same range.
    One(*mut Node),
    /// Two nodes and the separator between them.
    Two(*mut Node, Vec<u8>, *mut Node),
}

impl Replacement {
    /// Returns the latches of the new nodes. Dropping them unlocks the nodes.
    pub(crate) fn hold<'g>(&self, guard: &'g Guard) -> [Option<Held<'g>>; 2] {
        let nodes = match self {
            Self::One(node) => [Some(*node), None],
            Self::Two(left, _, right) => [Some(*left), Some(*right)],
        };
        let held = nodes.map(|node| node.map(|node| Inner::hold_new(node, guard)));
        if mutant(Mutant::NewNodeUnlockedEarly) { [None, None] } else { held }
    }
}

impl NodeBuilder {
    /// Creates a plan with one child.
    pub(crate) fn single(level: u32, child: *mut Node) -> Self {
        Self { level, bytes: Vec::new(), ends: Vec::new(), children: vec![child] }
    }

    /// Copies a node. The caller holds its latch, so no child slot changes any more.
    pub(crate) fn of(node: Inner<'_>) -> Self {
        let count = node.count();
        // Includes space for one more separator.
        let bytes = (count + 1) * (node.prefix().len() + 16) + node.tails().len();
        let mut builder = Self {
            level: node.level(),
            bytes: Vec::with_capacity(bytes),
            ends: Vec::with_capacity(count + 1),
            children: Vec::with_capacity(count + 2),
        };
        builder.children.push(node.child(0));
        for index in 0..count {
            builder.push(node.separator(index), node.child(index + 1));
        }
        builder
    }

    /// Appends a separator and the child after it.
    pub(crate) fn push(&mut self, separator: [&[u8]; 2], child: *mut Node) {
        self.bytes.extend_from_slice(separator[0]);
        self.bytes.extend_from_slice(separator[1]);
        self.ends.push(self.bytes.len());
        self.children.push(child);
    }

    /// Appends a separator, then a node's separators and children.
    pub(crate) fn append(&mut self, separator: [&[u8]; 2], node: Inner<'_>) {
        self.push(separator, node.child(0));
        for index in 0..node.count() {
            self.push(node.separator(index), node.child(index + 1));
        }
    }

    fn start(&self, index: usize) -> usize {
        if index == 0 { 0 } else { self.ends[index - 1] }
    }

    fn separator(&self, index: usize) -> &[u8] {
        &self.bytes[self.start(index)..self.ends[index]]
    }

    /// Replaces child `index` by `left`, `separator`, `right`.
    pub(crate) fn split_child(&mut self, index: usize, left: *mut Node, separator: &[u8], right: *mut Node) {
        let start = self.start(index);
        self.bytes.splice(start..start, separator.iter().copied());
        self.ends.insert(index, start);
        for end in &mut self.ends[index..] {
            *end += separator.len();
        }
        self.children[index] = left;
        self.children.insert(index + 1, right);
    }

    /// Replaces children `index` and `index + 1` by `child`.
    pub(crate) fn merge_children(&mut self, index: usize, child: *mut Node) {
        let (start, end) = (self.start(index), self.ends[index]);
        self.bytes.drain(start..end);
        self.ends.remove(index);
        for later in &mut self.ends[index..] {
            *later -= end - start;
        }
        self.children[index] = child;
        self.children.remove(index + 1);
    }

    /// Returns the length of the prefix of all separators.
    fn prefix_len(&self) -> usize {
        match self.ends.len() {
            0 => 0,
            count => common(self.separator(0), self.separator(count - 1)),
        }
    }

    /// Returns the number of separators.
    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    fn is_too_big(&self) -> bool {
        let count = self.count();
        count > INNER_SEPARATORS_MAX
            || (count >= 4 && self.bytes.len() - count * self.prefix_len() > INNER_TAIL_BYTES_MAX)
    }

    /// Makes a locked node, or two if one would be too big. If `appended`, the newest separator is
    /// the last, so the left node stays full.
    pub(crate) fn finish(mut self, appended: bool, space: &Space<'_>) -> Replacement {
        if !self.is_too_big() {
            return Replacement::One(self.build_locked(space));
        }
        let count = self.count();
        let middle = if appended { (count - 2).max(count * 15 / 16) } else { count / 2 };
        let middle = middle.min(count - 1);
        let separator = self.separator(middle).to_vec();
        let cut = self.ends[middle];
        let right = Self {
            level: self.level,
            bytes: self.bytes.split_off(cut),
            ends: self.ends.split_off(middle + 1).into_iter().map(|end| end - cut).collect(),
            children: self.children.split_off(middle + 1),
        };
        self.ends.pop();
        let start = cut - separator.len();
        self.bytes.truncate(start);
        Replacement::Two(self.build_locked(space), separator, right.build_locked(space))
    }

    /// Writes the node to newly allocated memory.
    pub(crate) fn build(&self, space: &Space<'_>) -> *mut Node {
        self.write(false, space)
    }

    /// Does the same as [`NodeBuilder::build`], but the new node is locked.
    pub(crate) fn build_locked(&self, space: &Space<'_>) -> *mut Node {
        self.write(true, space)
    }

    fn write(&self, is_locked: bool, space: &Space<'_>) -> *mut Node {
        let count = self.count();
        assert_eq!(self.children.len(), count + 1);
        let prefix_len = self.prefix_len();
        let tail_len = self.bytes.len() - count * prefix_len;
        let prefix = if count == 0 { &[][..] } else { &self.separator(0)[..prefix_len] };
        let heads: Vec<u32> = (0..count).map(|i| head_at(self.separator(i), prefix_len)).collect();
        let ends: Vec<u32> = (0..count).map(|i| (self.ends[i] - (i + 1) * prefix_len) as u32).collect();
        assert!(u32::try_from(self.bytes.len()).is_ok(), "an inner node's separators are below 4 GiB");
        let mut tails = Vec::with_capacity(tail_len);
        (0..count).for_each(|index| tails.extend_from_slice(&self.separator(index)[prefix_len..]));
        let contents = NodeContents {
            level: self.level,
            heads: &heads,
            ends: &ends,
            prefix,
            tails: [&tails, &[], &[]],
            is_locked,
        };
        contents.write(self.children.iter().copied(), space)
    }
}

/// Contents of a node except its children.
struct NodeContents<'a> {
    level: u32,
    /// Each separator has one head, and one end among the tails.
    heads: &'a [u32],
    ends: &'a [u32],
    prefix: &'a [u8],
    /// The tails, concatenated, in three pieces.
    tails: [&'a [u8]; 3],
    is_locked: bool,
}

impl NodeContents<'_> {
    /// Writes the node to newly allocated memory. The number of children is one higher than the
    /// number of heads.
    fn write(&self, children: impl Iterator<Item = *mut Node>, space: &Space<'_>) -> *mut Node {
        let count = self.heads.len();
        let tail_len = self.tails.iter().map(|tails| tails.len()).sum::<usize>();
        assert!(self.ends.len() == count && self.ends.last().map_or(0, |end| *end as usize) == tail_len);
        let header = Header {
            latch: if self.is_locked { Latch::locked() } else { Latch::new() },
            prefix_word: key_head(self.prefix),
            count: count as u32,
            prefix_len: self.prefix.len() as u32,
            tail_len: tail_len as u32,
            level: self.level,
        };
        let at = space.new_bytes(layout(count, self.prefix.len(), tail_len));
        let mut written = 0;
        // SAFETY: Inv 8: newly allocated memory of exactly the parts written here, in the order in
        // which the accessors read them. Each part is aligned because the heads are padded to 8
        // bytes. At most `count + 1` children are written.
        unsafe {
            at.cast::<Header>().write(header);
            at.add(HEADS_AT).cast::<u32>().copy_from_nonoverlapping(NonNull::from(self.heads).cast(), count);
            let mut to = at.add(slots_at(count));
            for child in children.take(count + 1) {
                to.cast::<AtomicPtr<Node>>().write(AtomicPtr::new(child));
                to = to.add(CHILD_SLOT_BYTES);
                written += 1;
            }
            assert_eq!(written, count + 1, "a node has one child more than separators");
            to.cast::<u32>().copy_from_nonoverlapping(NonNull::from(self.ends).cast(), count);
            to = to.add(count * 4);
            let [before, middle, after] = self.tails;
            for bytes in [self.prefix, before, middle, after] {
                to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
                to = to.add(bytes.len());
            }
        }
        at.as_ptr()
    }
}
