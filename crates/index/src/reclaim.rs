//! Memory of the nodes: where they come from, how they are given back, and how much there is.
//!
//! Nothing that a reader may still see is freed at once: it is handed to the epoch collector and freed when all guards of
//! that time are gone (SAFETY.md, Inv 4 and 5). The byte counter says what the tree
//! itself names, and for leaves what the arena holds.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use crossbeam_epoch::Guard;

use crate::arena::Arena;
use crate::leaf::Leaf;

/// What an allocation costs beyond its size (the usual allocator's header).
const OVERHEAD: usize = 8;
/// Shards of the entry counter.
const SHARDS: usize = 16;

/// Memory of one tree.
pub(crate) struct Memory {
    /// Leaves; shared with the collector, which may free after the tree is gone.
    leaves: Arc<Arena>,
    /// Bytes of all else.
    bytes: AtomicUsize,
}

impl Memory {
    /// Of no tree yet, with leaves in chunks of about so many bytes at most.
    pub(crate) fn new(chunk_bytes: usize) -> Self {
        Self { leaves: Arc::new(Arena::bounded(Layout::new::<Leaf>(), chunk_bytes)), bytes: AtomicUsize::new(0) }
    }

    fn grow(&self, bytes: usize) {
        self.bytes.fetch_add(bytes + OVERHEAD, Ordering::Relaxed);
    }

    fn shrink(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes + OVERHEAD, Ordering::Relaxed);
    }

    /// Whether the arena has become sparse, so that waiting leaves should be freed soon.
    pub(crate) fn sparse(&self) -> bool {
        self.leaves.sparse()
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.leaves.bytes()
    }
}

/// What a change of the tree needs: the guard that defers frees, and the books.
#[derive(Clone, Copy)]
pub(crate) struct Space<'g> {
    pub(crate) guard: &'g Guard,
    pub(crate) memory: &'g Memory,
}

/// Takes `layout` bytes from the allocator.
fn take(layout: Layout) -> NonNull<u8> {
    assert!(layout.size() > 0);
    // SAFETY: Inv 6: the layout is not empty.
    let raw = unsafe { alloc(layout) };
    NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout))
}

impl<'g> Space<'g> {
    /// A node of raw bytes.
    pub(crate) fn new_bytes(&self, layout: Layout) -> NonNull<u8> {
        self.memory.grow(layout.size());
        take(layout)
    }

    /// Gives raw bytes back once no guard of now is left.
    ///
    /// # Safety
    /// `at` came from [`Space::new_bytes`] with this layout, the tree no longer leads to it, and this is the only such call.
    pub(crate) unsafe fn retire_bytes(&self, at: NonNull<u8>, layout: Layout) {
        self.memory.shrink(layout.size());
        // SAFETY: Inv 4: unreachable for guards taken from now on, so the last guard of now ends its last use.
        unsafe { self.guard.defer_unchecked(move || dealloc(at.as_ptr(), layout)) };
    }

    /// A new leaf, not yet in the tree.
    pub(crate) fn new_leaf(&self) -> &'g Leaf {
        let (at, place) = self.memory.leaves.take();
        let at = at.cast::<Leaf>();
        // SAFETY: Inv 12: `at` is nobody else's and has the leaf's size and alignment; Inv 4: no leaf is freed while a guard of its
        // time lives.
        unsafe {
            at.write(Leaf::new(place));
            at.as_ref()
        }
    }

    /// Gives a leaf and its prefix back once no guard of now is left.
    ///
    /// # Safety
    /// `leaf` came from [`Space::new_leaf`], the tree no longer leads to it, and this is the only such call.
    pub(crate) unsafe fn retire_leaf(&self, leaf: *const Leaf) {
        // SAFETY: Inv 4: the leaf is still allocated, the caller's guard or latch says so.
        let (blob, place) = unsafe { ((*leaf).take_blob(), (*leaf).place()) };
        if !blob.is_null() {
            // SAFETY: Inv 5: the leaf's blob leaves the tree with the leaf.
            unsafe { self.retire_blob(blob) };
        }
        let arena = Arc::clone(&self.memory.leaves);
        // SAFETY: Inv 4: unreachable for guards taken from now on, so the last guard of now ends its last use; Inv 12: given once.
        unsafe { self.guard.defer_unchecked(move || arena.give(place)) };
    }

    /// A long prefix on the heap.
    pub(crate) fn new_blob(&self, bytes: &[u8]) -> *mut Box<[u8]> {
        self.memory.grow(bytes.len() + size_of::<Box<[u8]>>() + OVERHEAD);
        Box::into_raw(Box::new(Box::from(bytes)))
    }

    /// Gives a prefix back once no guard of now is left.
    ///
    /// # Safety
    /// `blob` came from [`Space::new_blob`], its leaf no longer names it, and this is the only such call.
    pub(crate) unsafe fn retire_blob(&self, blob: *mut Box<[u8]>) {
        // SAFETY: Inv 5: still allocated, this call is the one that ends it.
        let len = unsafe { (&*blob).len() };
        self.memory.shrink(len + size_of::<Box<[u8]>>() + OVERHEAD);
        // SAFETY: Inv 5: unreachable for guards taken from now on.
        unsafe { self.guard.defer_unchecked(move || drop(Box::from_raw(blob))) };
    }
}

/// Asks for a cache line. Any address is allowed.
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

/// Number of entries, counted in shards so that writers do not share a line.
#[derive(Default)]
pub(crate) struct Count([Shard; SHARDS]);

#[repr(align(128))]
#[derive(Default)]
struct Shard(AtomicIsize);

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: usize = NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS;
}

impl Count {
    /// Adds (or takes) some.
    #[inline]
    pub(crate) fn add(&self, change: isize) {
        let shard = SHARD.try_with(|shard| *shard).unwrap_or(0);
        self.0[shard].0.fetch_add(change, Ordering::Relaxed);
    }

    /// The sum; exact when nobody writes.
    pub(crate) fn sum(&self) -> usize {
        let sum: isize = self.0.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum();
        usize::try_from(sum).unwrap_or(0)
    }
}
