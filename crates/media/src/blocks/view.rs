//! A read-only mapping of the values file: a copy of what the page cache holds takes a tenth of what a call of the system does, since no call is made and the processor can be asked for the
//! bytes ahead.
//!
//! ## Invariants
//! * Nothing is lent of a view: bytes are copied out, and the copy is looked at (SAFETY.md, Inv 9).
//! * A load from a mapping has nobody to tell that it failed: the kernel raises SIGBUS where the medium is broken or the file was cut. So a handler stands before the one that was there
//!   ([`watch`]). It marks the view as broken, puts a page of zeros where the load failed, and lets the load go on; whoever copied sees the mark and reads by a call, which tells the error.
//!   A view that is broken once is not used again. What is raised elsewhere goes to the handler that was there before.
//! * What somebody has sent (`kill`) does what it would have done, and ours stands behind it all the same: what was there before is known before ours is set, and a handler that takes
//!   itself away (that of Rust's runtime does) has changed what is behind ours.
//! * The mark is set before the zeros are there, and looked at behind the copy: who copies zeros finds it.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Mutex, OnceLock};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::mutex::lock;
use crate::region_layout::PAGE_BYTES;
use crate::x86::prefetch_lines;

/// Most views of a process at a time; files beyond are read by calls.
const VIEWS_MAX: usize = 64;

/// What the handler knows of a view. Where `len` is 0 there is none.
struct Watch {
    /// Odd while the next two change: who sees the same even number before and behind them has read what belongs together.
    turn: AtomicUsize,
    base: AtomicUsize,
    len: AtomicUsize,
    broken: AtomicBool,
}

impl Watch {
    const fn none() -> Self {
        let (turn, base, len) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        Self { turn, base, len, broken: AtomicBool::new(false) }
    }

    /// One at a time.
    fn set(&self, base: usize, len: usize) {
        self.turn.fetch_add(1, Ordering::SeqCst);
        self.base.store(base, Ordering::SeqCst);
        self.len.store(len, Ordering::SeqCst);
        self.broken.store(false, Ordering::SeqCst);
        self.turn.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether the address is in the view. One that changes meanwhile has it not: whoever copies keeps the view that it copies from.
    fn has(&self, at: usize) -> bool {
        let turn = self.turn.load(Ordering::SeqCst);
        let (base, len) = (self.base.load(Ordering::SeqCst), self.len.load(Ordering::SeqCst));
        let is_whole = turn.is_multiple_of(2) && self.turn.load(Ordering::SeqCst) == turn;
        is_whole && at.wrapping_sub(base) < len
    }
}

static WATCHES: [Watch; VIEWS_MAX] = [const { Watch::none() }; VIEWS_MAX];
/// Held by whoever changes which views there are.
static CHANGING: Mutex<()> = Mutex::new(());
/// Whether our handler could be set, once somebody has tried.
static STANDS: OnceLock<bool> = OnceLock::new();
/// What is behind our handler: a function, or what stands for one, and its flags.
static BEHIND: (AtomicUsize, AtomicI32) = (AtomicUsize::new(libc::SIG_DFL), AtomicI32::new(0));

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
        let watch = WATCHES.iter().find(|watch| watch.len.load(Ordering::SeqCst) == 0)?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED the kernel chooses a range that nobody has (Inv 1).
        let base = unsafe { rustix::mm::mmap(ptr::null_mut(), len, ProtFlags::READ, flags, file, 0) }.ok()?;
        // What lies around a value is not wanted with it. A wish only.
        // SAFETY: the range was mapped on the line above, and this advice changes no byte of it (Inv 1).
        let _ = unsafe { rustix::mm::madvise(base, len, Advice::Random) };
        watch.set(base as usize, len);
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
        self.watch.set(0, 0);
        // SAFETY: made by `of` and given back here once; nobody copies from it any more (Inv 1).
        let _ = unsafe { rustix::mm::munmap(self.base.cast_mut().cast(), self.len) };
    }
}

/// Sets the handler, once a process; whether it stands.
fn watch() -> bool {
    *STANDS.get_or_init(|| {
        let mut behind = none();
        // SAFETY: a value of this frame; nothing is set (Inv 9).
        if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut behind) } != 0 {
            return false;
        }
        // A signal may come as soon as ours stands.
        note_behind(&behind);
        set_ours()
    })
}

/// All bytes zero: no function, no flags and an empty set.
fn none() -> libc::sigaction {
    // SAFETY: plain numbers, an empty set and no function are a value of this type (Inv 9).
    unsafe { std::mem::zeroed() }
}

fn note_behind(behind: &libc::sigaction) {
    BEHIND.1.store(behind.sa_flags, Ordering::SeqCst);
    BEHIND.0.store(behind.sa_sigaction, Ordering::SeqCst);
}

/// Sets our handler before what is there; whether that could be done.
fn set_ours() -> bool {
    let (mut ours, mut before) = (none(), none());
    ours.sa_sigaction = on_fault as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: both are values of this frame, and `on_fault` calls nothing that a handler may not (Inv 9).
    let done = unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut before) } == 0;
    if done && before.sa_sigaction != ours.sa_sigaction {
        note_behind(&before);
    }
    done
}

/// Sets ours again where a handler behind it has taken away what is there. A function that is there may be one that was set before ours and calls it.
fn keep_ours() {
    let mut now = none();
    // SAFETY: a value of this frame; nothing is set (Inv 9).
    let known = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut now) } == 0;
    if known && (now.sa_sigaction == libc::SIG_DFL || now.sa_sigaction == libc::SIG_IGN) {
        set_ours();
    }
}

/// Puts a page of zeros where a copy from a view failed.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO the signal's description (Inv 9).
    let (at, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // One that a process has sent has no address, and no code above 0.
    let is_sent = code <= 0;
    for watch in WATCHES.iter().filter(|watch| !is_sent && watch.has(at)) {
        watch.broken.store(true, Ordering::SeqCst);
        let page = (at / PAGE_BYTES as usize * PAGE_BYTES as usize) as *mut c_void;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page is one of a view, which is mapped while its watch has a length; nobody has a reference into it (Inv 9).
        let put = unsafe { libc::mmap(page, PAGE_BYTES as usize, libc::PROT_READ, how, -1, 0) };
        if put != libc::MAP_FAILED {
            return;
        }
    }
    // SAFETY: called with what the kernel gave (Inv 9).
    unsafe { pass_on(signal, info, context, is_sent) };
}

/// Does what would be done were our handler not there.
///
/// # Safety
/// From a handler of this signal, with what the kernel gave it.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_sent: bool) {
    let (behind, flags) = (BEHIND.0.load(Ordering::SeqCst), BEHIND.1.load(Ordering::SeqCst));
    match behind {
        libc::SIG_IGN if is_sent => {}
        // A load that fails ends the process, ignored or not: it is done again behind this.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: sets what the system began with, which a handler may do (Inv 9).
            unsafe { libc::signal(signal, libc::SIG_DFL) };
            if is_sent {
                // SAFETY: the signal is not blocked here, and ends the process (Inv 9).
                unsafe { libc::raise(signal) };
            }
        }
        _ => {
            if flags & libc::SA_SIGINFO != 0 {
                // SAFETY: whoever set it with SA_SIGINFO gave a function of this type (Inv 9).
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { std::mem::transmute(behind) };
                handler(signal, info, context);
            } else {
                // SAFETY: whoever set it without SA_SIGINFO gave a function of this type (Inv 9).
                let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(behind) };
                handler(signal);
            }
            keep_ours();
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
