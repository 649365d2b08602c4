//! Memory of the leaves: chunks of consecutive leaves, aligned to cache lines. Large chunks use
//! huge pages.
//!
//! The general allocator wastes 20 % on aligned blocks of this size. With small pages, most of the
//! cost of a leaf access is the page-table walk. A chunk is freed when its last leaf is free.
//!
//! Invariants (SAFETY.md, Inv 12): a slot has one owner at a time. A chunk stays mapped while one
//! of its slots is in use. Any thread may allocate and free. A mutex protects the
//! bookkeeping; a leaf is allocated or freed only once in dozens of inserts.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of the largest chunk: one huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Leaves in the first chunk.
const FIRST_CHUNK_SLOTS: usize = 4;

/// A leaf's position in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId {
    chunk: u32,
    slot: u32,
}

/// A block of memory.
struct Chunk {
    base: NonNull<u8>,
    layout: Layout,
    /// Slots in the chunk.
    slots: u32,
    /// Slots used at least once. The slots above have never been used.
    touched: u32,
    /// Free slots below `touched`.
    free: Vec<u32>,
}

// SAFETY: Inv 12: a chunk is only a block of memory with its bookkeeping. The mutex admits one
// thread at a time.
unsafe impl Send for Chunk {}

impl Chunk {
    fn used_slots(&self) -> usize {
        self.touched as usize - self.free.len()
    }

    fn is_full(&self) -> bool {
        self.touched == self.slots && self.free.is_empty()
    }
}

#[derive(Default)]
struct ArenaState {
    chunks: Vec<Option<Chunk>>,
    /// Chunk numbers that may have a free slot. An entry may be a full chunk, a freed chunk or a
    /// duplicate.
    open: Vec<u32>,
    /// Unused indexes of `chunks`.
    vacant: Vec<u32>,
    /// Slots in all chunks, and the slots in use.
    slots: usize,
    used: usize,
    bytes: usize,
}

/// Memory for nodes of one size.
pub(crate) struct Arena {
    node: Layout,
    /// Maximum number of nodes in a chunk.
    chunk_slots_max: usize,
    state: Mutex<ArenaState>,
}

impl Arena {
    /// Creates an arena for nodes of this layout, padded to cache lines.
    #[cfg(test)]
    pub(crate) fn new(node: Layout) -> Self {
        Self::bounded(node, HUGE_PAGE_BYTES)
    }

    /// Creates an arena for nodes of this layout, padded to cache lines, with chunks of about
    /// `chunk_bytes` at most.
    pub(crate) fn bounded(node: Layout, chunk_bytes: usize) -> Self {
        let node = node.align_to(64).expect("a node is small").pad_to_align();
        let chunk_slots_max = (chunk_bytes.min(HUGE_PAGE_BYTES) / node.size()).max(FIRST_CHUNK_SLOTS);
        Self { node, chunk_slots_max, state: Mutex::default() }
    }

    fn lock_state(&self) -> MutexGuard<'_, ArenaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes of all chunks.
    pub(crate) fn bytes(&self) -> usize {
        self.lock_state().bytes
    }

    /// Returns whether most slots are free. A few nodes that wait for the epoch collector may then
    /// keep many chunks mapped.
    pub(crate) fn is_sparse(&self) -> bool {
        let state = self.lock_state();
        state.used * 4 < state.slots
    }

    /// Allocates uninitialized memory for one node.
    pub(crate) fn allocate(&self) -> (NonNull<u8>, SlotId) {
        let mut state = self.lock_state();
        loop {
            let Some(&number) = state.open.last() else {
                self.add_chunk(&mut state);
                continue;
            };
            let chunk = state.chunks[number as usize].as_mut().filter(|chunk| !chunk.is_full());
            let Some(chunk) = chunk else {
                state.open.pop();
                continue;
            };
            let base = chunk.base;
            let slot = chunk.free.pop().unwrap_or_else(|| {
                chunk.touched += 1;
                chunk.touched - 1
            });
            assert!(slot < chunk.slots);
            state.used += 1;
            // SAFETY: Inv 12: `slot` is below the number of nodes that fit into the chunk.
            let at = unsafe { base.add(slot as usize * self.node.size()) };
            return (at, SlotId { chunk: number, slot });
        }
    }

    /// Frees a slot.
    ///
    /// # Safety
    /// `slot_id` came from [`Arena::allocate`], nothing refers to the slot any more, and the slot
    /// is freed once.
    pub(crate) unsafe fn free(&self, slot_id: SlotId) {
        let mut state = self.lock_state();
        let chunk = state.chunks[slot_id.chunk as usize].as_mut().expect("a chunk stays while a place is out");
        assert!(slot_id.slot < chunk.touched && chunk.used_slots() > 0);
        let was_full = chunk.is_full();
        chunk.free.push(slot_id.slot);
        let empty = chunk.used_slots() == 0;
        state.used -= 1;
        if empty {
            self.drop_chunk(&mut state, slot_id.chunk);
        } else if was_full {
            state.open.push(slot_id.chunk);
        }
    }

    /// Adds a chunk with half as many slots as the arena has, at most `chunk_slots_max`.
    fn add_chunk(&self, state: &mut ArenaState) {
        let slots = (state.slots / 2).clamp(FIRST_CHUNK_SLOTS, self.chunk_slots_max);
        let layout = if slots == HUGE_PAGE_BYTES / self.node.size() {
            Layout::from_size_align(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES)
        } else {
            Layout::from_size_align(slots * self.node.size(), self.node.align())
        }
        .expect("a chunk is at most a huge page");
        let base = pages::allocate(layout);
        let chunk = Chunk { base, layout, slots: slots as u32, touched: 0, free: Vec::new() };
        state.slots += slots;
        state.bytes += layout.size();
        let number = state.vacant.pop().unwrap_or_else(|| {
            state.chunks.push(None);
            state.chunks.len() as u32 - 1
        });
        state.chunks[number as usize] = Some(chunk);
        state.open.push(number);
    }

    fn drop_chunk(&self, state: &mut ArenaState, number: u32) {
        let chunk = state.chunks[number as usize].take().expect("named by a place");
        state.slots -= chunk.slots as usize;
        state.bytes -= chunk.layout.size();
        state.vacant.push(number);
        // SAFETY: Inv 12: allocated with this layout, and none of its slots is in use.
        unsafe { pages::free(chunk.base, chunk.layout) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let mut state = self.lock_state();
        for chunk in std::mem::take(&mut state.chunks).into_iter().flatten() {
            // SAFETY: Inv 12: the arena is dropped, so no slot is in use.
            unsafe { pages::free(chunk.base, chunk.layout) };
        }
    }
}

/// Memory blocks from the allocator. A block of a huge page's size comes from the system, on a huge
/// page if one is available.
mod pages {
    use super::{HUGE_PAGE_BYTES, Layout, NonNull, alloc, dealloc, handle_alloc_error};

    pub(super) fn allocate(layout: Layout) -> NonNull<u8> {
        if layout.size() == HUGE_PAGE_BYTES
            && let Some(block) = map_huge_page()
        {
            return block;
        }
        // SAFETY: Inv 6: the layout is not empty.
        NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// # Safety
    /// `base` came from [`allocate`] with this layout, and nothing refers to it.
    pub(super) unsafe fn free(base: NonNull<u8>, layout: Layout) {
        if layout.size() == HUGE_PAGE_BYTES && MAPS_HUGE_PAGES {
            // SAFETY: Inv 12: guaranteed by the caller.
            unsafe { unmap_huge_page(base) };
        } else {
            // SAFETY: Inv 6 and 12: guaranteed by the caller.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }

    /// Whether huge blocks come from the system.
    const MAPS_HUGE_PAGES: bool = cfg!(all(target_os = "linux", not(miri)));

    #[cfg(all(target_os = "linux", not(miri)))]
    fn map_huge_page() -> Option<NonNull<u8>> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: Inv 13: a new anonymous mapping at an address that the kernel chooses. The
        // mapping has twice the size, so it contains an aligned block. The parts before and after
        // the block are unmapped before the block is published.
        unsafe {
            let Ok(raw) = mmap_anonymous(std::ptr::null_mut(), 2 * HUGE_PAGE_BYTES, access, flags) else {
                handle_alloc_error(Layout::from_size_align_unchecked(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES))
            };
            let before = raw.cast::<u8>().align_offset(HUGE_PAGE_BYTES);
            let base = raw.cast::<u8>().add(before);
            if before > 0 {
                let _ = munmap(raw, before);
            }
            if before < HUGE_PAGE_BYTES {
                let _ = munmap(base.add(HUGE_PAGE_BYTES).cast(), HUGE_PAGE_BYTES - before);
            }
            // Without huge pages the block works the same, only slower.
            let _ = madvise(base.cast(), HUGE_PAGE_BYTES, Advice::LinuxHugepage);
            NonNull::new(base)
        }
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    unsafe fn unmap_huge_page(base: NonNull<u8>) {
        // SAFETY: Inv 13: the block is a mapping of this size, and nothing refers to it.
        let result = unsafe { rustix::mm::munmap(base.as_ptr().cast(), HUGE_PAGE_BYTES) };
        assert!(result.is_ok(), "a block that was mapped can be unmapped");
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn map_huge_page() -> Option<NonNull<u8>> {
        None
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    unsafe fn unmap_huge_page(_base: NonNull<u8>) {
        unreachable!("no block comes from the system here")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap_and_are_aligned() {
        let arena = Arena::new(Layout::from_size_align(832, 8).unwrap());
        let count = if cfg!(miri) { 50 } else { 20_000 };
        let mut slots: Vec<_> = (0..count).map(|_| arena.allocate()).collect();
        slots.sort_by_key(|(at, _)| at.as_ptr());
        assert!(slots.windows(2).all(|pair| pair[0].0.as_ptr().addr() + 832 <= pair[1].0.as_ptr().addr()));
        assert!(slots.iter().all(|(at, _)| at.as_ptr().addr() % 64 == 0));
        assert!(arena.bytes() >= count * 832);
        for (_, slot_id) in slots.drain(..).step_by(2).collect::<Vec<_>>() {
            // SAFETY: Inv 12: allocated above, freed once.
            unsafe { arena.free(slot_id) };
        }
        let reused: Vec<_> = (0..count / 2).map(|_| arena.allocate()).collect();
        assert!(reused.iter().all(|(at, _)| at.as_ptr().addr() % 64 == 0));
    }

    #[test]
    fn an_arena_whose_slots_are_all_freed_uses_no_memory() {
        let arena = Arena::new(Layout::from_size_align(100, 8).unwrap());
        for count in [1, 5, if cfg!(miri) { 60 } else { 100_000 }] {
            let slots: Vec<_> = (0..count).map(|_| arena.allocate().1).collect();
            assert!(arena.bytes() >= count * 100);
            for slot_id in slots {
                // SAFETY: Inv 12: allocated above, freed once.
                unsafe { arena.free(slot_id) };
            }
            assert_eq!(arena.bytes(), 0);
        }
    }
}
