//! Thread slots: a small number for each thread that uses a store, its own until the thread ends, then used again.
//!
//! Counters, page lists, epochs and allocator shards are arrays indexed by it, so that the hot path shares no cache line
//! between threads.
//!
//! There are [`MAX_SLOTS`] of them. Threads that come when all are taken share one more, [`SHARED`], for as long as they live: they work
//! as well, only slower, since whatever is indexed by it is changed by locked instructions or under a lock.
//!
//! Invariants
//! 1. At any time a slot number below [`MAX_SLOTS`] belongs to at most one living thread (`TAKEN` is claimed by compare-and-swap
//!    with acquire and given back with release, so what one owner wrote is seen by the next).
//! 2. Slots are given out lowest first; all slots in use are below [`slots_used`].
//! 3. [`SHARED`] belongs to any number of threads: nobody may rely on being its only writer.
//!
//! Anybody may call anything here, from any thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Most threads of one process that have slots of their own at once; more than these share one.
pub const MAX_SLOTS: usize = if cfg!(feature = "sim") { 128 } else { 1024 };

/// The slot of all threads that found none free.
pub(crate) const SHARED: usize = MAX_SLOTS;
/// Numbers of slots, the shared one included.
pub(crate) const SLOTS: usize = MAX_SLOTS + 1;

const NONE: usize = usize::MAX;

static TAKEN: [AtomicBool; MAX_SLOTS] = [const { AtomicBool::new(false) }; MAX_SLOTS];
static USED: AtomicUsize = AtomicUsize::new(0);
/// Living threads that share a slot.
static SHARERS: AtomicUsize = AtomicUsize::new(0);

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
        if slot == SHARED {
            SHARERS.fetch_sub(1, Ordering::Release);
        } else if let Some(taken) = TAKEN.get(slot) {
            taken.store(false, Ordering::Release);
        }
    }
}

/// This thread's slot, the same until the thread ends: its own and below [`MAX_SLOTS`], or [`MAX_SLOTS`], which it shares with all others
/// that found none free.
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
    match TAKEN.get(slot) {
        Some(taken) => taken.load(Ordering::Acquire),
        None => SHARERS.load(Ordering::Acquire) > 0,
    }
}

/// Whether this slot is the calling thread's own; never claims one.
#[inline]
pub(crate) fn is_mine(slot: usize) -> bool {
    SLOT.get() == slot && slot != SHARED
}

#[cold]
fn claim() -> usize {
    for (slot, taken) in TAKEN.iter().enumerate() {
        if !taken.load(Ordering::Relaxed)
            && taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return take(slot);
        }
    }
    SHARERS.fetch_add(1, Ordering::Relaxed);
    take(SHARED)
}

fn take(slot: usize) -> usize {
    // Before the slot is used anywhere, so that whoever scans up to `slots_used` meets it.
    USED.fetch_max(slot + 1, Ordering::SeqCst);
    SLOT.set(slot);
    // Touching it registers its destructor. In a thread that is already being torn down this fails, and the
    // slot then stays taken: safe, and bounded by the limit.
    let _ = RELEASE.try_with(|_| ());
    slot
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
