//! Memory of the leaves: chunks of consecutive leaves, aligned to cache lines. Large chunks use
//! huge pages.
//!
//! The general allocator wastes 20 % on aligned blocks of this size. With small pages, most of the
//! cost of a leaf access is the page-table walk. A chunk is freed when its last leaf is free.
//!
//! Invariants (SAFETY.md, Inv 12): a place (chunk, slot) has one owner at a time. A chunk stays
//! mapped while one of its places is in use. Any thread may allocate and free. A mutex protects the
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
pub(crate) struct Place {
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
    fn used(&self) -> usize {
        self.touched as usize - self.free.len()
    }

    fn full(&self) -> bool {
        self.touched == self.slots && self.free.is_empty()
    }
}

#[derive(Default)]
struct Books {
    chunks: Vec<Option<Chunk>>,
    /// Chunk numbers that may have a free slot. An entry may be a full chunk, a freed chunk or a
    /// duplicate.
    open: Vec<u32>,
    /// Unused indexes of `chunks`.
    vacant: Vec<u32>,
    /// Places in all chunks, and the places in use.
    slots: usize,
    used: usize,
    bytes: usize,
}

/// Memory for nodes of one size.
pub(crate) struct Arena {
    node: Layout,
    /// Maximum number of nodes in a chunk.
    most: usize,
    books: Mutex<Books>,
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
        let most = (chunk_bytes.min(HUGE_PAGE_BYTES) / node.size()).max(FIRST_CHUNK_SLOTS);
        Self { node, most, books: Mutex::default() }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes of all chunks.
    pub(crate) fn bytes(&self) -> usize {
        self.books().bytes
    }

    /// Returns whether most places are free. A few nodes that wait for the epoch collector may then
    /// keep many chunks mapped.
    pub(crate) fn sparse(&self) -> bool {
        let books = self.books();
        books.used * 4 < books.slots
    }

    /// Allocates uninitialized memory for one node.
    pub(crate) fn take(&self) -> (NonNull<u8>, Place) {
        let mut books = self.books();
        loop {
            let Some(&number) = books.open.last() else {
                self.add_chunk(&mut books);
                continue;
            };
            let chunk = books.chunks[number as usize].as_mut().filter(|chunk| !chunk.full());
            let Some(chunk) = chunk else {
                books.open.pop();
                continue;
            };
            let base = chunk.base;
            let slot = chunk.free.pop().unwrap_or_else(|| {
                chunk.touched += 1;
                chunk.touched - 1
            });
            assert!(slot < chunk.slots);
            books.used += 1;
            // SAFETY: Inv 12: `slot` is below the number of nodes that fit into the chunk.
            let at = unsafe { base.add(slot as usize * self.node.size()) };
            return (at, Place { chunk: number, slot });
        }
    }

    /// Frees a place.
    ///
    /// # Safety
    /// `place` came from [`Arena::take`], nothing refers to it any more, and it is freed once.
    pub(crate) unsafe fn give(&self, place: Place) {
        let mut books = self.books();
        let chunk = books.chunks[place.chunk as usize].as_mut().expect("a chunk stays while a place is out");
        assert!(place.slot < chunk.touched && chunk.used() > 0);
        let was_full = chunk.full();
        chunk.free.push(place.slot);
        let empty = chunk.used() == 0;
        books.used -= 1;
        if empty {
            self.drop_chunk(&mut books, place.chunk);
        } else if was_full {
            books.open.push(place.chunk);
        }
    }

    /// Adds a chunk with half as many slots as the arena has, at most `most`.
    fn add_chunk(&self, books: &mut Books) {
        let slots = (books.slots / 2).clamp(FIRST_CHUNK_SLOTS, self.most);
        let layout = if slots == HUGE_PAGE_BYTES / self.node.size() {
            Layout::from_size_align(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES)
        } else {
            Layout::from_size_align(slots * self.node.size(), self.node.align())
        }
        .expect("a chunk is at most a huge page");
        let base = pages::take(layout);
        let chunk = Chunk { base, layout, slots: slots as u32, touched: 0, free: Vec::new() };
        books.slots += slots;
        books.bytes += layout.size();
        let number = books.vacant.pop().unwrap_or_else(|| {
            books.chunks.push(None);
            books.chunks.len() as u32 - 1
        });
        books.chunks[number as usize] = Some(chunk);
        books.open.push(number);
    }

    fn drop_chunk(&self, books: &mut Books, number: u32) {
        let chunk = books.chunks[number as usize].take().expect("named by a place");
        books.slots -= chunk.slots as usize;
        books.bytes -= chunk.layout.size();
        books.vacant.push(number);
        // SAFETY: Inv 12: allocated with this layout, and none of its places is in use.
        unsafe { pages::give(chunk.base, chunk.layout) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let mut books = self.books();
        for chunk in std::mem::take(&mut books.chunks).into_iter().flatten() {
            // SAFETY: Inv 12: the arena is dropped, so no place is in use.
            unsafe { pages::give(chunk.base, chunk.layout) };
        }
    }
}

/// Memory blocks from the allocator. A block of a huge page's size comes from the system, on a huge
/// page if one is available.
mod pages {
    use super::{HUGE_PAGE_BYTES, Layout, NonNull, alloc, dealloc, handle_alloc_error};

    pub(super) fn take(layout: Layout) -> NonNull<u8> {
        if layout.size() == HUGE_PAGE_BYTES
            && let Some(block) = take_huge()
        {
            return block;
        }
        // SAFETY: Inv 6: the layout is not empty.
        NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// # Safety
    /// `base` came from [`take`] with this layout, and nothing refers to it.
    pub(super) unsafe fn give(base: NonNull<u8>, layout: Layout) {
        if layout.size() == HUGE_PAGE_BYTES && SYSTEM {
            // SAFETY: Inv 12: guaranteed by the caller.
            unsafe { give_huge(base) };
        } else {
            // SAFETY: Inv 6 and 12: guaranteed by the caller.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }

    /// Whether huge blocks come from the system.
    const SYSTEM: bool = cfg!(all(target_os = "linux", not(miri)));

    #[cfg(all(target_os = "linux", not(miri)))]
    fn take_huge() -> Option<NonNull<u8>> {
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
    unsafe fn give_huge(base: NonNull<u8>) {
        // SAFETY: Inv 13: the block is a mapping of this size, and nothing refers to it.
        let result = unsafe { rustix::mm::munmap(base.as_ptr().cast(), HUGE_PAGE_BYTES) };
        assert!(result.is_ok(), "a block that was mapped can be unmapped");
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn take_huge() -> Option<NonNull<u8>> {
        None
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    unsafe fn give_huge(_base: NonNull<u8>) {
        unreachable!("no block comes from the system here")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap_and_memory_falls_to_nothing() {
        let arena = Arena::new(Layout::from_size_align(832, 8).unwrap());
        let count = if cfg!(miri) { 50 } else { 20_000 };
        let mut places: Vec<_> = (0..count).map(|_| arena.take()).collect();
        places.sort_by_key(|(at, _)| at.as_ptr());
        assert!(places.windows(2).all(|pair| pair[0].0.as_ptr().addr() + 832 <= pair[1].0.as_ptr().addr()));
        assert!(places.iter().all(|(at, _)| at.as_ptr().addr() % 64 == 0));
        assert!(arena.bytes() >= count * 832);
        for (_, place) in places.drain(..).step_by(2).collect::<Vec<_>>() {
            // SAFETY: Inv 12: allocated above, freed once.
            unsafe { arena.give(place) };
        }
        let again: Vec<_> = (0..count / 2).map(|_| arena.take()).collect();
        assert!(again.iter().all(|(at, _)| at.as_ptr().addr() % 64 == 0));
    }

    #[test]
    fn an_arena_whose_places_are_all_given_back_holds_no_memory() {
        let arena = Arena::new(Layout::from_size_align(100, 8).unwrap());
        for count in [1, 5, if cfg!(miri) { 60 } else { 100_000 }] {
            let places: Vec<_> = (0..count).map(|_| arena.take().1).collect();
            assert!(arena.bytes() >= count * 100);
            for place in places {
                // SAFETY: Inv 12: allocated above, freed once.
                unsafe { arena.give(place) };
            }
            assert_eq!(arena.bytes(), 0);
        }
    }
}
