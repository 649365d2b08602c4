//! The open state of a pool or store, in the process that opened it.
//!
//! A forked process inherits every handle and every mapping, but no thread. Its writes would go to
//! the same medium, unseen by the parent. Each operation reads one word to check that the store is
//! open. This word is in a page that the kernel zeroes in a forked child (`MADV_WIPEONFORK`, Linux
//! 4.14). Zero means "another process". The hot path has no extra cost, and no fork can be missed,
//! not even one by a raw system call.
//!
//! A system without that advice (for example gVisor) leaves the page out of the child instead
//! (`MADV_DONTFORK`). A child that uses the store dies there, and the parent's data stays correct.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lodestore_contract::{Error, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Bytes of the page; also the minimum mapping of the kernel.
const PAGE_BYTES: usize = 4096;
/// Words of the page.
const PAGE_WORDS: usize = PAGE_BYTES / size_of::<AtomicU64>();

/// This process did not open the store: the kernel has zeroed the word.
const FOREIGN_STATE_ID: u64 = 0;
const OPEN_STATE_ID: u64 = 1;
/// Open, and refusing writes.
const POISONED_STATE_ID: u64 = 2;
const CLOSED_STATE_ID: u64 = 3;

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
        // SAFETY: Inv 1: without MAP_FIXED the kernel chooses an unused range.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), PAGE_BYTES, access, flags)? };
        let page =
            Self { words: NonNull::new(base.cast()).ok_or(rustix::io::Errno::NOMEM)?, used: AtomicUsize::new(0) };
        let advised = [Advice::LinuxWipeOnFork, Advice::LinuxDontFork].into_iter().any(|advice| {
            // SAFETY: Inv 10: the page was mapped above; both advices take effect in a child only.
            unsafe { rustix::mm::madvise(base, PAGE_BYTES, advice) }.is_ok()
        });
        if advised { Ok(page) } else { Err(std::io::ErrorKind::Unsupported.into()) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: Inv 10: mapped by `new`, freed once; no state that names a word of it is left.
        let _ = unsafe { rustix::mm::munmap(self.words.as_ptr().cast(), PAGE_BYTES) };
    }
}

/// Whether a pool or a store is open, closed, or belongs to another process. Clones share the word.
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
    /// Creates the state of a pool or store that is open now, in this process.
    ///
    /// # Errors
    /// [`Error::Io`] if the system provides no page, or none that detects a fork.
    pub fn new() -> Result<Self> {
        let page = Page::new()
            .map_err(|refused| Error::io("allocating the page that detects a fork, for", "the store", refused))?;
        Ok(Self::in_page(&Arc::new(page)))
    }

    /// Creates another open state, in the same page.
    ///
    /// # Panics
    /// If the page's words are used up: the caller creates a few for each pool.
    #[must_use]
    pub fn another(&self) -> Self {
        Self::in_page(&self.page)
    }

    fn in_page(page: &Arc<Page>) -> Self {
        let number = page.used.fetch_add(1, Ordering::Relaxed);
        assert!(number < PAGE_WORDS, "a pool has few states");
        // SAFETY: Inv 10: the number was just checked, so the word is inside the page.
        let word = unsafe { page.words.add(number) };
        let state = Self { word, page: Arc::clone(page) };
        state.word().store(OPEN_STATE_ID, Ordering::Release);
        state
    }

    #[inline]
    fn word(&self) -> &AtomicU64 {
        // SAFETY: Inv 10: the page lives as long as this, and its words are accessed as atomics
        // only.
        unsafe { self.word.as_ref() }
    }

    /// Returns whether operations are served: neither closed nor poisoned nor in another process.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.word().load(Ordering::Acquire) == OPEN_STATE_ID
    }

    /// Returns whether another process opened the store, and this one inherited it by a fork.
    pub fn is_foreign(&self) -> bool {
        self.word().load(Ordering::Acquire) == FOREIGN_STATE_ID
    }

    /// Returns whether the store is closed, or belongs to another process: no space may be freed
    /// then.
    pub fn is_closed(&self) -> bool {
        matches!(self.word().load(Ordering::Acquire), CLOSED_STATE_ID | FOREIGN_STATE_ID)
    }

    /// Refuses an operation unless the store is open.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::ForeignProcess`].
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.is_open() { Ok(()) } else { Err(self.refusal()) }
    }

    /// Refuses an operation in a process that inherited the store by a fork.
    ///
    /// # Errors
    /// [`Error::ForeignProcess`].
    pub fn check_process(&self) -> Result<()> {
        if self.is_foreign() { Err(Error::ForeignProcess) } else { Ok(()) }
    }

    /// Returns why an operation is refused if the store is not open.
    #[cold]
    pub fn refusal(&self) -> Error {
        if self.is_foreign() { Error::ForeignProcess } else { Error::Closed }
    }

    /// Closes the store; returns whether this call did. Changes nothing in another process.
    pub fn close(&self) -> bool {
        let close = |now| (!matches!(now, FOREIGN_STATE_ID | CLOSED_STATE_ID)).then_some(CLOSED_STATE_ID);
        self.word().fetch_update(Ordering::SeqCst, Ordering::SeqCst, close).is_ok()
    }

    /// Makes the store refuse writes, if it is open.
    pub(crate) fn poison(&self) {
        let _ = self.word().compare_exchange(OPEN_STATE_ID, POISONED_STATE_ID, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Opens the store again, for tests that simulate a close.
    #[doc(hidden)]
    pub fn reopen(&self) {
        self.word().store(OPEN_STATE_ID, Ordering::SeqCst);
    }

    /// Marks the store as another process's, as a fork does in the child.
    #[cfg(feature = "sim")]
    #[doc(hidden)]
    pub fn inherit(&self) {
        self.word().store(FOREIGN_STATE_ID, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for OpenState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.word().load(Ordering::Acquire) {
            FOREIGN_STATE_ID => "foreign",
            OPEN_STATE_ID => "open",
            POISONED_STATE_ID => "poisoned",
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
        state.word().store(FOREIGN_STATE_ID, Ordering::SeqCst);
        state.poison();
        assert!(!state.close() && state.is_foreign() && state.is_closed() && !state.is_open());
        assert!(matches!(state.check(), Err(Error::ForeignProcess)));
        assert!(matches!(state.check_process(), Err(Error::ForeignProcess)));
    }
}
