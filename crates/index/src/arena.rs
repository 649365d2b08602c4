//! Where leaves live: chunks of many leaves, back to back on cache lines, the large ones on huge pages.
//!
//! The general allocator spends 20 % on aligned blocks of this size, and with small pages most of a leaf access is the walk
//! of page tables. A chunk is given back to the system when its last leaf is free.
//!
//! Invariants (SAFETY.md, Inv 12): a place (chunk, slot) is handed out to one owner at a time; a chunk stays mapped while
//! one of its places is handed out. Any thread may take and give; a mutex guards the books (a leaf comes or goes once in
//! dozens of inserts).

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of the largest chunk: one huge page.
const HUGE: usize = 2 << 20;
/// Leaves in the first chunk.
const FIRST: usize = 4;

/// A place in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    chunk: u32,
    slot: u32,
}

/// One block of memory.
struct Chunk {
    base: NonNull<u8>,
    layout: Layout,
    /// Slots that fit.
    slots: u32,
    /// Slots that were handed out once; those above are fresh.
    touched: u32,
    /// Slots below `touched` that are free.
    free: Vec<u32>,
}

// SAFETY: Inv 12: a chunk is only a block of memory with its books; the mutex lets one thread at a time at these.
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
    /// Numbers of chunks that may have a free slot; may name one that is full, gone or twice.
    open: Vec<u32>,
    /// Numbers that are free in `chunks`.
    vacant: Vec<u32>,
    /// Places in all chunks, and those handed out.
    slots: usize,
    used: usize,
    bytes: usize,
}

/// Memory for nodes of one size.
pub(crate) struct Arena {
    node: Layout,
    /// Most nodes in a chunk.
    most: usize,
    books: Mutex<Books>,
}

impl Arena {
    /// An arena for nodes of this layout, which is padded to cache lines.
    #[cfg(test)]
    pub(crate) fn new(node: Layout) -> Self {
        Self::bounded(node, HUGE)
    }

    /// An arena for nodes of this layout, which is padded to cache lines, in chunks of about so many bytes at most.
    pub(crate) fn bounded(node: Layout, chunk_bytes: usize) -> Self {
        let node = node.align_to(64).expect("a node is small").pad_to_align();
        let most = (chunk_bytes.min(HUGE) / node.size()).max(FIRST);
        Self { node, most, books: Mutex::default() }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of all chunks.
    pub(crate) fn bytes(&self) -> usize {
        self.books().bytes
    }

    /// Whether most places are free: then a few nodes that wait for the collector may hold many chunks.
    pub(crate) fn sparse(&self) -> bool {
        let books = self.books();
        books.used * 4 < books.slots
    }

    /// Memory for one node, of whatever contents.
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

    /// Takes a place back.
    ///
    /// # Safety
    /// The place came from [`Arena::take`], nothing refers to it any more, and it is given back once.
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

    /// A new chunk: half as much again as there is, up to the most.
    fn add_chunk(&self, books: &mut Books) {
        let slots = (books.slots / 2).clamp(FIRST, self.most);
        let layout = if slots == HUGE / self.node.size() {
            Layout::from_size_align(HUGE, HUGE)
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
        // SAFETY: Inv 12: taken with this layout, and no place of it is out.
        unsafe { pages::give(chunk.base, chunk.layout) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let mut books = self.books();
        for chunk in std::mem::take(&mut books.chunks).into_iter().flatten() {
            // SAFETY: Inv 12: the arena goes, so no place is out.
            unsafe { pages::give(chunk.base, chunk.layout) };
        }
    }
}

/// Blocks of memory from the allocator; a block of a huge page's size from the system, on a huge page if it has one.
mod pages {
    use super::{HUGE, Layout, NonNull, alloc, dealloc, handle_alloc_error};

    pub(super) fn take(layout: Layout) -> NonNull<u8> {
        if layout.size() == HUGE
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
        if layout.size() == HUGE && SYSTEM {
            // SAFETY: Inv 12: the caller's.
            unsafe { give_huge(base) };
        } else {
            // SAFETY: Inv 6 and 12: the caller's.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }

    /// Whether huge blocks come from the system.
    const SYSTEM: bool = cfg!(all(target_os = "linux", not(miri)));

    #[cfg(all(target_os = "linux", not(miri)))]
    fn take_huge() -> Option<NonNull<u8>> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: Inv 13: a new anonymous mapping wherever the kernel likes; twice the size, so that an aligned block lies in it,
        // and what lies before and behind is unmapped before anyone knows it.
        unsafe {
            let Ok(raw) = mmap_anonymous(std::ptr::null_mut(), 2 * HUGE, access, flags) else {
                handle_alloc_error(Layout::from_size_align_unchecked(HUGE, HUGE))
            };
            let before = raw.cast::<u8>().align_offset(HUGE);
            let base = raw.cast::<u8>().add(before);
            if before > 0 {
                let _ = munmap(raw, before);
            }
            if before < HUGE {
                let _ = munmap(base.add(HUGE).cast(), HUGE - before);
            }
            // Without huge pages the block is as good, only slower.
            let _ = madvise(base.cast(), HUGE, Advice::LinuxHugepage);
            NonNull::new(base)
        }
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    unsafe fn give_huge(base: NonNull<u8>) {
        // SAFETY: Inv 13: the block is a mapping of this size, and nothing refers to it.
        let result = unsafe { rustix::mm::munmap(base.as_ptr().cast(), HUGE) };
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
            // SAFETY: Inv 12: taken above, given once.
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
                // SAFETY: Inv 12: taken above, given once.
                unsafe { arena.give(place) };
            }
            assert_eq!(arena.bytes(), 0);
        }
    }
}
