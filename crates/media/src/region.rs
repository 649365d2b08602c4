//! Regions in memory: their mappings, and the table that translates an [`NvPtr`] into an address.
//!
//! Invariants (SAFETY.md, Inv 1 to 3)
//! * A table slot is filled at most once, base before length (release), and never changes
//!   afterwards. Its mapping lives as long as the table. A thread that loads a length (acquire) may
//!   therefore use any base + offset below it.
//! * Slots are filled in index order, by one thread at a time (the pool's growth lock).

use std::ffi::c_void;
use std::fs::File;
use std::io::IoSlice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use crate::mutex::lock;
use crate::nvptr::NvPtr;
use crate::region_layout::MAX_REGIONS;
use crate::simulated::Heap;

/// Maximum parts of one write (`IOV_MAX`).
const SLICES_MAX: usize = 1024;
/// Bytes of a huge page. Mappings of at least this length are aligned to it if the address space
/// allows.
pub(crate) const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// The storage of a region's bytes.
#[derive(Debug)]
enum Backing {
    /// A shared mapping of this file.
    File { file: File },
    /// Memory of a simulated pool, which frees itself.
    Heap(Heap),
}

/// The memory of one region; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: *mut u8,
    len: usize,
    backing: Backing,
}

// SAFETY: the mapping is memory of its own, freed once in drop (Inv 1). Its content is shared under
// Inv 3 to 5, whichever thread holds the handle.
unsafe impl Send for Mapping {}
// SAFETY: a shared handle writes only in `write_parts`, through the kernel, to ranges private to
// its caller (Inv 3).
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` shared and writable. The mapping is aligned to huge pages if it
    /// is long enough and the address space allows. `sync` asks for MAP_SYNC, which only DAX files
    /// grant. The file must be at least that long.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn of_file(file: File, len: u64, sync: bool) -> rustix::io::Result<Self> {
        let length = usize::try_from(len).map_err(|_| rustix::io::Errno::NOMEM)?;
        let mut base = map_shared(std::ptr::null_mut(), length, &file, sync)?;
        for _ in 0..ALIGNED_ATTEMPTS {
            if len < HUGE_PAGE_BYTES || base.cast::<u8>().align_offset(HUGE_PAGE_BYTES as usize) == 0 {
                break;
            }
            // If the address space is too small for a second mapping, the first one is used.
            let Ok(aligned) = aligned_gap(length).and_then(|hint| map_shared(hint, length, &file, sync)) else { break };
            // SAFETY: mapped above with this length, and no other code has its address (Inv 1).
            let _ = unsafe { rustix::mm::munmap(base, length) };
            base = aligned;
        }
        Ok(Self { base: base.cast(), len: length, backing: Backing::File { file } })
    }

    /// Allocates the memory of a simulated region, which holds `image` or zeros. Returns `None` if
    /// the length is not a multiple of a page.
    pub(crate) fn of_heap(len: u64, image: Option<&[u8]>) -> Option<Self> {
        let heap = Heap::new(len, image)?;
        Some(Self { base: heap.base(), len: heap.len(), backing: Backing::Heap(heap) })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn len(&self) -> u64 {
        self.len as u64
    }

    /// Advises the kernel about part of the mapping; the advice changes no byte.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn advise(&self, offset: u64, len: u64, advice: Advice) -> std::io::Result<()> {
        assert!(offset <= self.len() && len <= self.len() - offset, "advice inside the mapping");
        let number = match advice {
            Advice::HugePage => libc::MADV_HUGEPAGE,
            Advice::PopulateRead => libc::MADV_POPULATE_READ,
            Advice::PopulateWrite => libc::MADV_POPULATE_WRITE,
            Advice::Collapse => COLLAPSE_ADVICE_ID,
            Advice::Random => libc::MADV_RANDOM,
        };
        // SAFETY: the range is inside this mapping, and these advices change no byte of it (Inv 1).
        let refused = unsafe { libc::madvise(self.base.add(offset as usize).cast(), len as usize, number) };
        if refused == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    /// Makes these bytes of the mapping durable across power loss, as far as the file system can
    /// (`msync`).
    ///
    /// # Errors
    /// Those of the kernel; any subset of the pages may then be written.
    pub(crate) fn sync_range(&self, offset: u64, len: u64) -> std::io::Result<()> {
        assert!(offset <= self.len() && len <= self.len() - offset, "a sync inside the mapping");
        // SAFETY: the range is inside this mapping, and msync changes no byte of it (Inv 1).
        let done = unsafe {
            rustix::mm::msync(self.base.add(offset as usize).cast(), len as usize, rustix::mm::MsyncFlags::SYNC)
        };
        done.map_err(Into::into)
    }

    /// Writes these parts, one after the other, to the file at `offset`. Returns false if the
    /// region has no file. The mapping shows the bytes afterwards: Linux keeps both in one page
    /// cache. The range is private to the caller (Inv 3).
    ///
    /// # Errors
    /// Those of the kernel; part of the bytes may then be written.
    pub(crate) fn write_parts(&self, mut offset: u64, parts: &[&[u8]]) -> std::io::Result<bool> {
        let Some(file) = self.file() else { return Ok(false) };
        let len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        assert!(offset <= self.len() && len <= self.len() - offset, "a write inside the mapping");
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut slices[..];
        // Skips empty leading parts.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let batch = rest.len().min(SLICES_MAX);
            let count = match rustix::io::pwritev(file, &rest[..batch], offset) {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Ok(count) => count,
                Err(rustix::io::Errno::INTR) => continue,
                Err(refused) => return Err(refused.into()),
            };
            offset += count as u64;
            IoSlice::advance_slices(&mut rest, count);
        }
        Ok(true)
    }

    /// Returns the file under the mapping, if there is one.
    pub(crate) fn file(&self) -> Option<&File> {
        match &self.backing {
            Backing::File { file } => Some(file),
            Backing::Heap(_) => None,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match &self.backing {
            Backing::File { .. } => {
                // SAFETY: mapped by `of_file` and unmapped here once; nothing holds its addresses
                // any more (Inv 2).
                let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
            }
            // It frees itself.
            Backing::Heap(heap) => debug_assert_eq!(heap.base(), self.base),
        }
    }
}

/// Attempts to remap an unaligned mapping at an aligned address. Another thread may use the address
/// first.
const ALIGNED_ATTEMPTS: u32 = 4;

/// Maps a file shared and writable, at `hint` if that range is free.
///
/// Never uses `MAP_FIXED`. If the file system refuses such a mapping (for example MAP_SYNC outside
/// DAX), the kernel has already unmapped the old one. Another thread's next mapping may then use
/// that range, and unmapping "our" range would destroy it.
fn map_shared(hint: *mut c_void, length: usize, file: &File, sync: bool) -> rustix::io::Result<*mut c_void> {
    let flags = if sync { MapFlags::SHARED_VALIDATE | MapFlags::SYNC } else { MapFlags::SHARED };
    // SAFETY: without MAP_FIXED the kernel chooses an unused range, whatever the hint (Inv 1).
    unsafe { rustix::mm::mmap(hint, length, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0) }
}

/// Returns a huge-page-aligned address with `length` free bytes after it a moment ago. A hint:
/// nothing is reserved.
fn aligned_gap(length: usize) -> rustix::io::Result<*mut c_void> {
    let wider = length.checked_add(HUGE_PAGE_BYTES as usize).ok_or(rustix::io::Errno::NOMEM)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice replaces no memory (Inv 1).
    let found = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), wider, ProtFlags::empty(), flags)? };
    // SAFETY: mapped on the line above, whole, and no other code has its address (Inv 1).
    unsafe { rustix::mm::munmap(found, wider)? };
    Ok(found.cast::<u8>().wrapping_add(found.cast::<u8>().align_offset(HUGE_PAGE_BYTES as usize)).cast())
}

/// `MADV_COLLAPSE` (Linux 6.1): makes the pages huge now, despite the system's setting for shared
/// memory.
const COLLAPSE_ADVICE_ID: i32 = 25;

/// Advice that changes no byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    HugePage,
    PopulateRead,
    PopulateWrite,
    Collapse,
    /// No read-ahead.
    Random,
}

/// A region as the hot path reads it.
struct Slot {
    base: AtomicPtr<u8>,
    len: AtomicU64,
}

pub(crate) struct Regions {
    slots: Box<[Slot; MAX_REGIONS]>,
    count: AtomicUsize,
    mappings: Mutex<Vec<std::sync::Arc<Mapping>>>,
}

impl Regions {
    pub(crate) fn new() -> Self {
        let empty = || Slot { base: AtomicPtr::new(std::ptr::null_mut()), len: AtomicU64::new(0) };
        let slots: Vec<Slot> = std::iter::repeat_with(empty).take(MAX_REGIONS).collect();
        match slots.into_boxed_slice().try_into() {
            Ok(slots) => Self { slots, count: AtomicUsize::new(0), mappings: Mutex::new(Vec::new()) },
            Err(_) => unreachable!("as many slots as regions"),
        }
    }

    /// Adds the next region and returns its index. One thread at a time.
    ///
    /// # Panics
    /// If there are [`MAX_REGIONS`] already.
    pub(crate) fn add(&self, mapping: std::sync::Arc<Mapping>) -> u16 {
        let mut mappings = lock(&self.mappings);
        let index = mappings.len();
        assert!(index < MAX_REGIONS, "the caller has checked that there is a free index");
        let slot = &self.slots[index];
        slot.base.store(mapping.base(), Ordering::Relaxed);
        slot.len.store(mapping.len(), Ordering::Release);
        mappings.push(mapping);
        self.count.store(index + 1, Ordering::Release);
        index as u16
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns the length of a region; 0 if it does not exist.
    #[inline]
    pub(crate) fn len_of(&self, region: u16) -> u64 {
        self.slots.get(usize::from(region)).map_or(0, |slot| slot.len.load(Ordering::Acquire))
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        (0..self.count() as u16).map(|region| self.len_of(region)).sum()
    }

    /// Returns the address of `len` bytes at `at`, if all of them are in one region.
    #[inline]
    pub(crate) fn address(&self, at: NvPtr, len: usize) -> Option<*mut u8> {
        let slot = self.slots.get(usize::from(at.region()))?;
        let size = slot.len.load(Ordering::Acquire);
        let offset = at.offset();
        if offset >= size || len as u64 > size - offset {
            return None;
        }
        // In bounds, so the sum stays inside the mapping (Inv 2); `wrapping_add` has no safety
        // condition.
        Some(slot.base.load(Ordering::Relaxed).wrapping_add(offset as usize))
    }

    pub(crate) fn mapping(&self, region: u16) -> Option<std::sync::Arc<Mapping>> {
        lock(&self.mappings).get(usize::from(region)).cloned()
    }

    /// Returns all mappings, by index.
    pub(crate) fn mappings(&self) -> Vec<std::sync::Arc<Mapping>> {
        lock(&self.mappings).clone()
    }
}
