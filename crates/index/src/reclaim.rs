//! Memory of the nodes: allocation, reclamation and accounting.
//!
//! Memory that a reader may still access is not freed at once. The epoch collector frees it when
//! all guards of that time are gone (SAFETY.md, Inv 4 and 5). The byte counter covers the memory
//! that the tree names and, for leaves, the memory of the arena.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use crossbeam_epoch::Guard;

use crate::arena::{Arena, SlotId};

/// Bytes that an allocation costs beyond its size (the usual allocator's header).
const ALLOCATION_OVERHEAD_BYTES: usize = 8;
/// Shards of the entry counter.
const SHARD_COUNT: usize = 16;

/// Memory of one tree.
pub(crate) struct Memory {
    /// Arena of the leaves, shared with the collector, which may free leaves after the tree
    /// is dropped.
    leaves: Arc<Arena>,
    /// Bytes of all other nodes.
    bytes: AtomicUsize,
}

impl Memory {
    /// Creates the memory of a new tree, whose leaves have the layout `leaf` and are in chunks of
    /// about `chunk_bytes` at most.
    pub(crate) fn new(leaf: Layout, chunk_bytes: usize) -> Self {
        Self { leaves: Arc::new(Arena::bounded(leaf, chunk_bytes)), bytes: AtomicUsize::new(0) }
    }

    fn grow(&self, bytes: usize) {
        self.bytes.fetch_add(bytes + ALLOCATION_OVERHEAD_BYTES, Ordering::Relaxed);
    }

    fn shrink(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes + ALLOCATION_OVERHEAD_BYTES, Ordering::Relaxed);
    }

    /// Returns whether the arena has become sparse. Retired leaves should then be freed soon.
    pub(crate) fn is_sparse(&self) -> bool {
        self.leaves.is_sparse()
    }

    /// Returns the bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.leaves.bytes()
    }
}

/// Resources for a change of the tree: the guard that defers frees, and the memory accounting.
#[derive(Clone, Copy)]
pub(crate) struct Space<'g> {
    pub(crate) guard: &'g Guard,
    pub(crate) memory: &'g Memory,
}

/// Allocates memory of this layout.
fn allocate(layout: Layout) -> NonNull<u8> {
    assert!(layout.size() > 0);
    // SAFETY: Inv 6: the layout is not empty.
    let raw = unsafe { alloc(layout) };
    NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout))
}

impl Space<'_> {
    /// Allocates a node of raw bytes.
    pub(crate) fn new_bytes(&self, layout: Layout) -> NonNull<u8> {
        self.memory.grow(layout.size());
        allocate(layout)
    }

    /// Retires raw bytes: they are freed when no current guard is left.
    ///
    /// # Safety
    /// `at` came from [`Space::new_bytes`] with this layout, the tree no longer leads to it, and
    /// this is the only such call.
    pub(crate) unsafe fn retire_bytes(&self, at: NonNull<u8>, layout: Layout) {
        self.memory.shrink(layout.size());
        // SAFETY: Inv 4: unreachable for guards created from now on, so the last use ends with the
        // last current guard.
        unsafe { self.guard.defer_unchecked(move || dealloc(at.as_ptr(), layout)) };
    }

    /// Allocates uninitialized memory for one leaf.
    pub(crate) fn allocate_leaf(&self) -> (NonNull<u8>, SlotId) {
        self.memory.leaves.allocate()
    }

    /// Retires the memory of a leaf: it is freed when no current guard is left.
    ///
    /// # Safety
    /// `slot_id` came from [`Space::allocate_leaf`], the tree no longer leads to the leaf, and this
    /// is the only such call.
    pub(crate) unsafe fn retire_leaf_memory(&self, slot_id: SlotId) {
        let arena = Arc::clone(&self.memory.leaves);
        // SAFETY: Inv 4: unreachable for guards created from now on, so the last use ends with the
        // last current guard. Inv 12: freed once.
        unsafe { self.guard.defer_unchecked(move || arena.free(slot_id)) };
    }

    /// Allocates a long prefix on the heap.
    pub(crate) fn new_blob(&self, bytes: &[u8]) -> *mut Box<[u8]> {
        self.memory.grow(bytes.len() + size_of::<Box<[u8]>>() + ALLOCATION_OVERHEAD_BYTES);
        Box::into_raw(Box::new(Box::from(bytes)))
    }

    /// Retires a prefix: it is freed when no current guard is left.
    ///
    /// # Safety
    /// `blob` came from [`Space::new_blob`], its leaf no longer names it, and this is the only such
    /// call.
    pub(crate) unsafe fn retire_blob(&self, blob: *mut Box<[u8]>) {
        // SAFETY: Inv 5: still allocated, because this call retires it.
        let len = unsafe { (&*blob).len() };
        self.memory.shrink(len + size_of::<Box<[u8]>>() + ALLOCATION_OVERHEAD_BYTES);
        // SAFETY: Inv 5: unreachable for guards created from now on.
        unsafe { self.guard.defer_unchecked(move || drop(Box::from_raw(blob))) };
    }
}

/// Prefetches a cache line. Any address is allowed.
#[inline(always)]
pub(crate) fn prefetch_line(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: Inv 7: a prefetch reads nothing and cannot fault.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Number of entries, counted in shards so that writers do not share a cache line.
#[derive(Default)]
pub(crate) struct Count([Shard; SHARD_COUNT]);

#[repr(align(128))]
#[derive(Default)]
struct Shard(AtomicIsize);

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: usize = NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARD_COUNT;
}

impl Count {
    /// Adds `change`, which may be negative.
    #[inline]
    pub(crate) fn add(&self, change: isize) {
        let shard = SHARD.try_with(|shard| *shard).unwrap_or(0);
        self.0[shard].0.fetch_add(change, Ordering::Relaxed);
    }

    /// Returns the sum, which is exact when no thread writes.
    pub(crate) fn sum(&self) -> usize {
        let sum: isize = self.0.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum();
        usize::try_from(sum).unwrap_or(0)
    }
}
