//! A read-only mapping of the values file: a copy of what the page cache holds takes a tenth of what a call of the system does, since no call is made and the processor can be asked for the
//! bytes ahead.
//!
//! ## Invariants
//! * Nothing is lent of a view: bytes are copied out, and the copy is looked at (SAFETY.md, Inv 9).
//! * A load from a mapping has nobody to tell that it failed: the kernel raises SIGBUS where the medium is broken or the file was cut. So a handler stands before the one that was there
//!   ([`watch`]). It marks the view as broken, puts a page of zeros where the load failed, and lets the load go on; whoever copied sees the mark and reads by a call, which tells the error.
//!   A view that is broken once is not used again. What is raised elsewhere goes to the handler that was there before.
//! * The mark is set before the zeros are there, and looked at behind the copy: who copies zeros finds it.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Mutex, OnceLock};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::mutex::lock;
use crate::region_layout::PAGE_BYTES;
use crate::x86::prefetch_lines;

/// Most views of a process at a time; files beyond are read by calls.
const VIEWS_MAX: usize = 64;

/// What the handler knows of a view. Where `len` is 0 there is none.
struct Watch {
    base: AtomicUsize,
    len: AtomicUsize,
    broken: AtomicBool,
}

static WATCHES: [Watch; VIEWS_MAX] =
    [const { Watch { base: AtomicUsize::new(0), len: AtomicUsize::new(0), broken: AtomicBool::new(false) } };
        VIEWS_MAX];
/// Held by whoever changes which views there are.
static CHANGING: Mutex<()> = Mutex::new(());
/// The handler that was there before; none where ours could not be set.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

/// The mapping; unmapped when dropped.
pub(super) struct View {
    base: *const u8,
    len: usize,
    watch: &'static Watch,
}

// SAFETY: the mapping is memory of its own, given back once in drop (Inv 1), and is copied from only (Inv 9).
unsafe impl Send for View {}
// SAFETY: as above; nobody writes through it.
unsafe impl Sync for View {}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("len", &self.len).finish_non_exhaustive()
    }
}

impl View {
    /// Maps the first `len` bytes of a file, which may be shorter as yet. None where the system refuses, or there are too many views.
    pub(super) fn of(file: &File, len: u64) -> Option<Self> {
        let len = usize::try_from(len).ok().filter(|len| *len > 0)?;
        if !watch() {
            return None;
        }
        let _held = lock(&CHANGING);
        let watch = WATCHES.iter().find(|watch| watch.len.load(Ordering::Acquire) == 0)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED the kernel chooses a range that nobody has (Inv 1).
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), len, ProtFlags::READ, flags, file, 0) }.ok()?;
        // What lies around a value is not wanted with it. A wish only.
        // SAFETY: the range was mapped on the line above, and this advice changes no byte of it (Inv 1).
        let _ = unsafe { rustix::mm::madvise(base, len, Advice::Random) };
        watch.base.store(base as usize, Ordering::Relaxed);
        watch.broken.store(false, Ordering::Relaxed);
        watch.len.store(len, Ordering::Release);
        Some(Self { base: base.cast_const().cast(), len, watch })
    }

    fn is_inside(&self, at: u64, len: usize) -> bool {
        at <= self.len as u64 && len <= self.len - at as usize
    }

    /// Whether a copy has failed: the view is of no more use.
    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        self.watch.broken.load(Ordering::Acquire)
    }

    /// Copies the bytes at `at`; false where they are not all in the view, or it is broken: then `into` holds anything.
    #[inline]
    pub(super) fn copy(&self, at: u64, into: &mut [u8]) -> bool {
        if !self.is_inside(at, into.len()) || self.is_broken() {
            return false;
        }
        // SAFETY: the range is inside the mapping, whose pages the handler makes readable where the file's are not (Inv 9).
        unsafe { ptr::copy_nonoverlapping(self.base.add(at as usize), into.as_mut_ptr(), into.len()) };
        // The handler runs on this thread, or its zeros came through the kernel: only the compiler is to be kept in order.
        compiler_fence(Ordering::SeqCst);
        !self.is_broken()
    }

    /// Asks the processor for the first bytes at `at`: a hint, which neither waits nor fails.
    #[inline]
    pub(super) fn prefetch(&self, at: u64, len: usize) {
        if self.is_inside(at, len) {
            prefetch_lines(self.base.wrapping_add(at as usize), len);
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let _held = lock(&CHANGING);
        self.watch.len.store(0, Ordering::Release);
        // SAFETY: made by `of` and given back here once; nobody copies from it any more (Inv 1).
        let _ = unsafe { rustix::mm::munmap(self.base.cast_mut().cast(), self.len) };
    }
}

/// Sets the handler, once a process; whether it stands.
fn watch() -> bool {
    let before = BEFORE.get_or_init(|| {
        let how = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        // SAFETY: all bytes zero are a value of this type: plain numbers, an empty set and no function.
        let (mut ours, mut before): (libc::sigaction, libc::sigaction) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        (ours.sa_sigaction, ours.sa_flags) = (on_fault as *const () as usize, how);
        // SAFETY: both are values of this frame, and `on_fault` calls nothing that a handler may not (Inv 9).
        (unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut before) } == 0).then_some(before)
    });
    before.is_some()
}

/// Puts a page of zeros where a copy from a view failed.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO the signal's description (Inv 9).
    let (at, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // One that a process has sent has no address, and no code above 0.
    for watch in WATCHES.iter().filter(|_| code > 0) {
        let len = watch.len.load(Ordering::Acquire);
        if at.wrapping_sub(watch.base.load(Ordering::Relaxed)) < len {
            watch.broken.store(true, Ordering::SeqCst);
            let page = (at / PAGE_BYTES as usize * PAGE_BYTES as usize) as *mut c_void;
            let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            // SAFETY: the page is one of a view, which is mapped while its watch has a length; nobody has a reference into it (Inv 9).
            let put = unsafe { libc::mmap(page, PAGE_BYTES as usize, libc::PROT_READ, how, -1, 0) };
            if put != libc::MAP_FAILED {
                return;
            }
        }
    }
    // SAFETY: called with what the kernel gave (Inv 9).
    unsafe { pass_on(signal, info, context) };
}

/// Does what would be done were our handler not there.
///
/// # Safety
/// From a handler of this signal, with what the kernel gave it.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = BEFORE.get().and_then(Option::as_ref);
    match before {
        Some(before) if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN => {
            if before.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: whoever set it with SA_SIGINFO gave a function of this type (Inv 9).
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { std::mem::transmute(before.sa_sigaction) };
                handler(signal, info, context);
            } else {
                // SAFETY: whoever set it without SA_SIGINFO gave a function of this type (Inv 9).
                let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(before.sa_sigaction) };
                handler(signal);
            }
        }
        // The load is done again, and ends the process.
        _ => {
            // SAFETY: sets what the system began with, which a handler may do (Inv 9).
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}
