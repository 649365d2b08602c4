//! Thread slots: a small number for each thread that uses a store, its own until the thread ends, then used again.
//!
//! Counters, page lists, epochs and allocator shards are arrays indexed by it, so that the hot path shares no cache line
//! between threads.
//!
//! Invariants
//! 1. At any time a slot number belongs to at most one living thread (`TAKEN` is claimed by compare-and-swap with
//!    acquire and given back with release, so what one owner wrote is seen by the next).
//! 2. Slots are given out lowest first; all slots in use are below [`slots_used`].
//!
//! Anybody may call anything here, from any thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Most threads that may use stores at once in one process.
pub const MAX_SLOTS: usize = if cfg!(feature = "sim") { 128 } else { 1024 };

const NONE: usize = usize::MAX;

static TAKEN: [AtomicBool; MAX_SLOTS] = [const { AtomicBool::new(false) }; MAX_SLOTS];
static USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // Const and without a destructor, so that reading it is one load.
    static SLOT: Cell<usize> = const { Cell::new(NONE) };
    static RELEASE: Release = const { Release };
}

/// Gives the thread's slot back when the thread ends.
struct Release;

impl Drop for Release {
    fn drop(&mut self) {
        let slot = SLOT.replace(NONE);
        if slot != NONE {
            TAKEN[slot].store(false, Ordering::Release);
        }
    }
}

/// This thread's slot, below [`MAX_SLOTS`]; the same until the thread ends.
///
/// # Panics
/// If [`MAX_SLOTS`] other threads hold slots.
#[inline]
pub fn thread_slot() -> usize {
    let slot = SLOT.get();
    if slot != NONE { slot } else { claim() }
}

/// All slots that were ever in use are below this number: loops over slots need to go no further.
#[inline]
pub fn slots_used() -> usize {
    USED.load(Ordering::Acquire)
}

/// Whether a living thread has this slot.
#[inline]
pub(crate) fn is_taken(slot: usize) -> bool {
    TAKEN.get(slot).is_some_and(|taken| taken.load(Ordering::Acquire))
}

/// Whether this slot is the calling thread's; never claims one.
#[inline]
pub(crate) fn is_mine(slot: usize) -> bool {
    SLOT.get() == slot
}

#[cold]
fn claim() -> usize {
    for (slot, taken) in TAKEN.iter().enumerate() {
        if !taken.load(Ordering::Relaxed)
            && taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            // Before the slot is used anywhere, so that whoever scans up to `slots_used` meets it.
            USED.fetch_max(slot + 1, Ordering::SeqCst);
            SLOT.set(slot);
            // Touching it registers its destructor. In a thread that is already being torn down this fails, and the
            // slot then stays taken: safe, and bounded by the limit.
            let _ = RELEASE.try_with(|_| ());
            return slot;
        }
    }
    panic!("more than {MAX_SLOTS} threads use lodestore at once: let fewer threads call it");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn living_threads_have_different_slots_and_dead_ones_give_theirs_back() {
        for _round in 0..40 {
            let barrier = Arc::new(Barrier::new(16));
            let threads: Vec<_> = (0..16)
                .map(|_| {
                    let barrier = Arc::clone(&barrier);
                    std::thread::spawn(move || {
                        let slot = thread_slot();
                        barrier.wait();
                        assert_eq!(thread_slot(), slot);
                        slot
                    })
                })
                .collect();
            let slots: BTreeSet<_> =
                threads.into_iter().map(|thread| thread.join().expect("thread ends well")).collect();
            assert_eq!(slots.len(), 16);
            assert!(slots.iter().all(|slot| *slot < slots_used()));
        }
    }
}
