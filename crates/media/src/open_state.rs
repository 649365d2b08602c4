//! Whether something is open, in the process that opened it.
//!
//! A forked process inherits every handle, every mapping and no thread. Its writes would go to the
//! same medium, unseen by the parent. So the word that each operation reads anyway, to see whether
//! the store is open, is in a page that the kernel zeroes in a forked child (`MADV_WIPEONFORK`,
//! Linux 4.14). Zero means "another process". Nothing is added to the hot path, and no fork can be
//! missed, also one by a raw system call.
//!
//! A system without that advice (gVisor, for one) leaves the page out of the child instead
//! (`MADV_DONTFORK`): a child that uses the store dies there, and the parent's data stays right.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lodestore_contract::{Error, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Bytes of the page; also what the kernel maps at least.
const PAGE: usize = 4096;
/// Words of the page.
const WORDS: usize = PAGE / size_of::<AtomicU64>();

/// The process did not open this: the kernel has zeroed the word.
const FOREIGN: u64 = 0;
const OPEN: u64 = 1;
/// Open, and refusing writes.
const POISONED: u64 = 2;
const CLOSED: u64 = 3;

/// A page of words that is zero in a forked process.
struct Page {
    words: NonNull<AtomicU64>,
    used: AtomicUsize,
}

// SAFETY: Inv 10: the page is memory of its own, and its words are atomics.
unsafe impl Send for Page {}
// SAFETY: Inv 10: as above.
unsafe impl Sync for Page {}

impl Page {
    fn new() -> std::io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: Inv 1: without MAP_FIXED the kernel chooses a range that nobody has.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), PAGE, access, flags)? };
        let page =
            Self { words: NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?, used: AtomicUsize::new(0) };
        let advised = [Advice::LinuxWipeOnFork, Advice::LinuxDontFork].into_iter().any(|advice| {
            // SAFETY: Inv 10: the page was mapped above; both advices take effect in a child only.
            unsafe { rustix::mm::madvise(base, PAGE, advice) }.is_ok()
        });
        if advised { Ok(page) } else { Err(std::io::ErrorKind::Unsupported.into()) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: Inv 10: mapped by `new`, freed once; no state that names a word of it is
        // left.
        let _ = unsafe { rustix::mm::munmap(self.words.as_ptr().cast(), PAGE) };
    }
}

/// Whether a pool or a store is open, closed, or another process's. Clones share the word.
#[derive(Clone)]
pub struct OpenState {
    word: NonNull<AtomicU64>,
    page: Arc<Page>,
}

// SAFETY: Inv 10: the word is an atomic in a page that lives as long as this.
unsafe impl Send for OpenState {}
// SAFETY: Inv 10: as above.
unsafe impl Sync for OpenState {}

impl OpenState {
    /// Returns the state of something that is open now, in this process.
    ///
    /// # Errors
    /// [`Error::Io`] if the system gives no page, or none that a fork is seen by.
    pub fn new() -> Result<Self> {
        let page =
            Page::new().map_err(|refused| Error::io("making a page that tells a fork for", "the store", refused))?;
        Ok(Self::in_page(&Arc::new(page)))
    }

    /// Returns the state of something else that is open now, in a page that both share.
    ///
    /// # Panics
    /// If the page's words are used up: the caller makes a few for each pool.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::in_page(&self.page)
    }

    fn in_page(page: &Arc<Page>) -> Self {
        let number = page.used.fetch_add(1, Ordering::Relaxed);
        assert!(number < WORDS, "a pool has few states");
        // SAFETY: Inv 10: the number was just checked, so the word is inside the page.
        let word = unsafe { page.words.add(number) };
        let state = Self { word, page: Arc::clone(page) };
        state.word().store(OPEN, Ordering::Release);
        state
    }

    #[inline]
    fn word(&self) -> &AtomicU64 {
        // SAFETY: Inv 10: the page lives as long as this, and its words are touched as atomics
        // only.
        unsafe { self.word.as_ref() }
    }

    /// Returns whether operations are served: neither closed nor poisoned nor another process's.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.word().load(Ordering::Acquire) == OPEN
    }

    /// Returns whether another process opened it, and this one inherited it by a fork.
    pub fn is_foreign(&self) -> bool {
        self.word().load(Ordering::Acquire) == FOREIGN
    }

    /// Returns whether it is closed, or another process's: no space may be freed then.
    pub fn is_closed(&self) -> bool {
        matches!(self.word().load(Ordering::Acquire), CLOSED | FOREIGN)
    }

    /// Refuses an operation unless it is open.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::ForeignProcess`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.is_open() { Ok(()) } else { Err(self.refusal()) }
    }

    /// Refuses what another process's handle cannot do.
    ///
    /// # Errors
    /// [`Error::ForeignProcess`].
    pub fn check_process(&self) -> Result<()> {
        if self.is_foreign() { Err(Error::ForeignProcess) } else { Ok(()) }
    }

    /// Returns why an operation is refused, where it is not open.
    #[cold]
    pub fn refusal(&self) -> Error {
        if self.is_foreign() { Error::ForeignProcess } else { Error::Closed }
    }

    /// Closes it; whether this call did. In another process nothing is changed.
    pub fn close(&self) -> bool {
        let close = |now| (!matches!(now, FOREIGN | CLOSED)).then_some(CLOSED);
        self.word().fetch_update(Ordering::SeqCst, Ordering::SeqCst, close).is_ok()
    }

    /// Makes it refuse writes, if it is open.
    pub(crate) fn poison(&self) {
        let _ = self.word().compare_exchange(OPEN, POISONED, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Opens it again, as a test that plays a close does.
    #[doc(hidden)]
    pub fn reopen(&self) {
        self.word().store(OPEN, Ordering::SeqCst);
    }

    /// Makes it another process's, as a fork does in the child.
    #[cfg(feature = "sim")]
    #[doc(hidden)]
    pub fn inherit(&self) {
        self.word().store(FOREIGN, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for OpenState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.word().load(Ordering::Acquire) {
            FOREIGN => "foreign",
            OPEN => "open",
            POISONED => "poisoned",
            _ => "closed",
        };
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_goes_from_open_over_poisoned_to_closed_and_stays() {
        let state = OpenState::new().expect("a page");
        assert!(state.is_open() && state.check().is_ok() && !state.is_closed() && !state.is_foreign());
        let other = state.another();
        state.poison();
        assert!(!state.is_open() && !state.is_closed() && other.is_open());
        assert!(state.close() && !state.close() && state.is_closed() && other.is_open());
        state.poison();
        assert!(matches!(state.check(), Err(Error::Closed)) && state.check_process().is_ok());
    }

    #[test]
    fn a_zeroed_word_is_another_processs_and_nothing_changes_it() {
        let state = OpenState::new().expect("a page");
        state.word().store(FOREIGN, Ordering::SeqCst);
        state.poison();
        assert!(!state.close() && state.is_foreign() && state.is_closed() && !state.is_open());
        assert!(matches!(state.check(), Err(Error::ForeignProcess)));
        assert!(matches!(state.check_process(), Err(Error::ForeignProcess)));
    }
}
