//! A read-only mapping of the values file. Copying cached bytes from it costs a tenth of a read
//! call: no system call is made, and the processor can prefetch the bytes.
//!
//! ## Invariants
//! * No reference into a view is lent: bytes are copied out, and only the copy is examined
//!   (SAFETY.md, Inv 9).
//! * A load from a mapping cannot return an error: the kernel raises SIGBUS if the medium is broken
//!   or the file was cut. [`install_once`] therefore installs a handler in front of the previous
//!   one. The handler marks the view as broken, maps a page of zeros where the load failed, and
//!   lets the load continue. The copying thread sees the mark and reads by a call, which reports
//!   the error. A broken view is never used again. Faults at other addresses go to the previous
//!   handler.
//! * A signal sent by a process (`kill`) has its original effect, and our handler stays installed.
//!   The previous handler is recorded before ours is installed. A previous handler that uninstalls
//!   itself when called (Rust's runtime has one) removes ours as well. [`reinstall`] then installs
//!   ours again, in front of the default action.
//! * The mark is set before the zeros are mapped, and checked after the copy: a thread that copied
//!   zeros sees the mark.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Mutex, OnceLock};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::mutex::lock;
use crate::region_layout::PAGE_BYTES;
use crate::x86::prefetch_lines;

/// Maximum number of views per process; further files are read by calls.
const VIEWS_MAX: usize = 64;

/// A view as the signal handler sees it; no view if `len` is 0.
struct Watch {
    /// Odd while `base` and `len` change. A reader that sees the same even number before and after
    /// has read a matching pair.
    version: AtomicUsize,
    base: AtomicUsize,
    len: AtomicUsize,
    broken: AtomicBool,
}

impl Watch {
    const fn none() -> Self {
        let (version, base, len) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        Self { version, base, len, broken: AtomicBool::new(false) }
    }

    /// Sets the range; one caller at a time.
    fn set(&self, base: usize, len: usize) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.base.store(base, Ordering::SeqCst);
        self.len.store(len, Ordering::SeqCst);
        self.broken.store(false, Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns whether the address is in the view. Returns false for a view that changes meanwhile:
    /// a copying thread keeps its view unchanged.
    fn has(&self, at: usize) -> bool {
        let version = self.version.load(Ordering::SeqCst);
        let (base, len) = (self.base.load(Ordering::SeqCst), self.len.load(Ordering::SeqCst));
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::SeqCst) == version;
        is_whole && at.wrapping_sub(base) < len
    }
}

static WATCHES: [Watch; VIEWS_MAX] = [const { Watch::none() }; VIEWS_MAX];
/// Held while the set of views changes.
static CHANGING: Mutex<()> = Mutex::new(());
/// Whether our handler could be installed; empty before the first attempt.
static IS_INSTALLED: OnceLock<bool> = OnceLock::new();
/// The handler after ours (a function, or `SIG_DFL` or `SIG_IGN`), and its flags.
static PREVIOUS: (AtomicUsize, AtomicI32) = (AtomicUsize::new(libc::SIG_DFL), AtomicI32::new(0));

/// The mapping; unmapped on drop.
pub(super) struct View {
    base: *const u8,
    len: usize,
    watch: &'static Watch,
}

// SAFETY: the mapping is memory of its own, freed once in drop (Inv 1), and is copied from only
// (Inv 9).
unsafe impl Send for View {}
// SAFETY: as above (Inv 1); nothing writes through it (Inv 9).
unsafe impl Sync for View {}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("len", &self.len).finish_non_exhaustive()
    }
}

impl View {
    /// Maps the first `len` bytes of a file, which may still be shorter. Returns `None` if the
    /// system refuses or there are too many views.
    pub(super) fn of(file: &File, len: u64) -> Option<Self> {
        let len = usize::try_from(len).ok().filter(|len| *len > 0)?;
        if !install_once() {
            return None;
        }
        let _held = lock(&CHANGING);
        let watch = WATCHES.iter().find(|watch| watch.len.load(Ordering::SeqCst) == 0)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED the kernel chooses an unused range (Inv 1).
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), len, ProtFlags::READ, flags, file, 0) }.ok()?;
        // Pages around a value are not wanted with it. Only a hint.
        // SAFETY: the range was mapped on the line above, and this advice changes no byte (Inv 1).
        let _ = unsafe { rustix::mm::madvise(base, len, Advice::Random) };
        watch.set(base as usize, len);
        Some(Self { base: base.cast_const().cast(), len, watch })
    }

    fn is_inside(&self, at: u64, len: usize) -> bool {
        at <= self.len as u64 && len <= self.len - at as usize
    }

    /// Returns whether a copy has failed: the view is unusable then.
    #[inline]
    pub(super) fn is_broken(&self) -> bool {
        self.watch.broken.load(Ordering::Acquire)
    }

    /// Copies the bytes at `at`. Returns false if they are not all in the view or it is broken;
    /// `into` then has undefined content.
    #[inline]
    pub(super) fn copy(&self, at: u64, into: &mut [u8]) -> bool {
        if !self.is_inside(at, into.len()) || self.is_broken() {
            return false;
        }
        // SAFETY: the range is inside the mapping; the handler maps readable pages where the file
        // has none (Inv 9).
        unsafe { ptr::copy_nonoverlapping(self.base.add(at as usize), into.as_mut_ptr(), into.len()) };
        // The handler runs on this thread, or the kernel did the access: only the compiler must not
        // reorder.
        compiler_fence(Ordering::SeqCst);
        !self.is_broken()
    }

    /// Prefetches the first bytes at `at` into the processor's cache: a hint that neither waits nor
    /// fails.
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
        self.watch.set(0, 0);
        // SAFETY: mapped by `of` and unmapped here once; no thread copies from it any more (Inv 1).
        let _ = unsafe { rustix::mm::munmap(self.base.cast_mut().cast(), self.len) };
    }
}

/// Installs the handler once per process; returns whether it is installed.
fn install_once() -> bool {
    *IS_INSTALLED.get_or_init(|| {
        let mut previous = empty_action();
        // SAFETY: a value of this frame; nothing is set (Inv 9).
        if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) } != 0 {
            return false;
        }
        // A signal may arrive as soon as our handler is installed.
        save_previous(&previous);
        install()
    })
}

/// Returns an all-zero value: no function, no flags and an empty set.
fn empty_action() -> libc::sigaction {
    // SAFETY: plain numbers, an empty set and no function are a value of this type (Inv 9).
    unsafe { std::mem::zeroed() }
}

fn save_previous(previous: &libc::sigaction) {
    PREVIOUS.1.store(previous.sa_flags, Ordering::SeqCst);
    PREVIOUS.0.store(previous.sa_sigaction, Ordering::SeqCst);
}

/// Installs our handler in front of the current one; returns whether this succeeded.
fn install() -> bool {
    let (mut ours, mut before) = (empty_action(), empty_action());
    ours.sa_sigaction = on_fault as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: both are values of this frame, and `on_fault` is async-signal-safe (Inv 9).
    let done = unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut before) } == 0;
    if done && before.sa_sigaction != ours.sa_sigaction {
        save_previous(&before);
    }
    done
}

/// Installs our handler again if a handler after ours has uninstalled the current one. If the
/// current handler is a function, it stays: it may have been installed before ours and call ours.
fn reinstall() {
    let mut now = empty_action();
    // SAFETY: a value of this frame; nothing is set (Inv 9).
    let known = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut now) } == 0;
    if known && (now.sa_sigaction == libc::SIG_DFL || now.sa_sigaction == libc::SIG_IGN) {
        install();
    }
}

/// Maps a page of zeros where a copy from a view failed.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO the signal's description (Inv 9).
    let (at, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // A signal sent by a process has no address, and no code above 0.
    let is_sent = code <= 0;
    for watch in WATCHES.iter().filter(|watch| !is_sent && watch.has(at)) {
        watch.broken.store(true, Ordering::SeqCst);
        let page = (at / PAGE_BYTES as usize * PAGE_BYTES as usize) as *mut c_void;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page belongs to a view, which is mapped while its watch has a length; no
        // reference points into it (Inv 9).
        let put = unsafe { libc::mmap(page, PAGE_BYTES as usize, libc::PROT_READ, how, -1, 0) };
        if put != libc::MAP_FAILED {
            return;
        }
    }
    // SAFETY: called with the kernel's arguments (Inv 9).
    unsafe { call_previous(signal, info, context, is_sent) };
}

/// Does what would happen without our handler.
///
/// # Safety
/// Only from a handler of this signal, with the kernel's arguments.
unsafe fn call_previous(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_sent: bool) {
    let (previous, flags) = (PREVIOUS.0.load(Ordering::SeqCst), PREVIOUS.1.load(Ordering::SeqCst));
    match previous {
        libc::SIG_IGN if is_sent => {}
        // A failed load ends the process, ignored or not: the load is repeated after the handler
        // returns.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: restores the default action, which a handler may do (Inv 9).
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            if is_sent {
                // SAFETY: the signal is not blocked here, and ends the process (Inv 9).
                unsafe { libc::raise(signal) };
            }
        }
        _ => {
            if flags & libc::SA_SIGINFO != 0 {
                // SAFETY: a handler installed with SA_SIGINFO has this type (Inv 9).
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { std::mem::transmute(previous) };
                handler(signal, info, context);
            } else {
                // SAFETY: a handler installed without SA_SIGINFO has this type (Inv 9).
                let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(previous) };
                handler(signal);
            }
            reinstall();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_between_an_earlier_view_of_a_slot_and_the_next_is_in_neither() {
        const MIB: usize = 1 << 20;
        let (watch, over) = (Watch::none(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2_000_000 {
                    watch.set(1024, MIB);
                    watch.set(MIB * 4, 1024);
                }
                over.store(true, Ordering::SeqCst);
            });
            while !over.load(Ordering::SeqCst) {
                assert!(!watch.has(MIB * 4 + MIB / 2), "the base of one, and the length of another");
            }
        });
        watch.set(1024, MIB);
        assert!(watch.has(MIB) && !watch.has(2 * MIB));
    }
}
