//! The memory of a region of a simulated pool.

use std::alloc::Layout;

use crate::region_layout::PAGE_BYTES;

/// Page-aligned heap memory.
#[derive(Debug)]
pub(crate) struct Heap {
    base: *mut u8,
    layout: Layout,
}

impl Heap {
    /// Allocates memory that holds `image`, or zeros. Returns `None` if the length is not a
    /// multiple of a page.
    pub(crate) fn new(len: u64, image: Option<&[u8]>) -> Option<Self> {
        let length = usize::try_from(len).ok().filter(|length| *length > 0 && len.is_multiple_of(PAGE_BYTES))?;
        let layout = Layout::from_size_align(length, PAGE_BYTES as usize).ok()?;
        // SAFETY: the layout is not empty (Inv 1).
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        if base.is_null() {
            return None;
        }
        let heap = Self { base, layout };
        if let Some(bytes) = image {
            assert!(bytes.len() == length, "an image as long as its region");
            // SAFETY: both are `length` bytes long, and nothing else uses the new memory (Inv 1).
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base, length) };
        }
        Some(heap)
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout and freed here once (Inv 1, Inv 2).
        unsafe { std::alloc::dealloc(self.base, self.layout) };
    }
}
