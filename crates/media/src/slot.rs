//! Thread slots: a small number for each thread that uses a store. A thread keeps its slot until it
//! ends; the slot is then reused.
//!
//! Counters, page lists, epochs and allocator shards are arrays indexed by slot, so that the hot
//! path shares no cache line between threads.
//!
//! There are [`MAX_SLOTS`] of them. Threads that arrive when all are in use share one more,
//! [`SHARED_SLOT_INDEX`], until they end. They work too, but slower: data indexed by the shared
//! slot is changed by locked instructions or under a lock.
//!
//! Invariants
//! 1. At any time a slot number below [`MAX_SLOTS`] belongs to at most one living thread. `TAKEN`
//!    is claimed by compare-and-swap with acquire and freed with release, so the next owner sees
//!    the writes of the previous one.
//! 2. The lowest free slot is claimed first; all slots in use are below [`slots_used`].
//! 3. [`SHARED_SLOT_INDEX`] belongs to any number of threads: no thread may rely on being its only
//!    writer.
//!
//! Any thread may call anything here.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Maximum threads of one process with their own slots at a time; further threads share one.
pub const MAX_SLOTS: usize = if cfg!(feature = "sim") { 128 } else { 1024 };

/// The slot of all threads that found none free.
pub(crate) const SHARED_SLOT_INDEX: usize = MAX_SLOTS;
/// Number of slots, the shared one included.
pub(crate) const SLOTS: usize = MAX_SLOTS + 1;

const NO_SLOT_INDEX: usize = usize::MAX;

static TAKEN: [AtomicBool; MAX_SLOTS] = [const { AtomicBool::new(false) }; MAX_SLOTS];
static USED: AtomicUsize = AtomicUsize::new(0);
/// Living threads that share a slot.
static SHARERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // Const and without a destructor, so that reading it is one load.
    static SLOT: Cell<usize> = const { Cell::new(NO_SLOT_INDEX) };
    static RELEASE: Release = const { Release };
}

/// Frees the thread's slot when the thread ends.
struct Release;

impl Drop for Release {
    fn drop(&mut self) {
        let slot = SLOT.replace(NO_SLOT_INDEX);
        if slot == SHARED_SLOT_INDEX {
            SHARERS.fetch_sub(1, Ordering::Release);
        } else if let Some(taken) = TAKEN.get(slot) {
            taken.store(false, Ordering::Release);
        }
    }
}

/// Returns this thread's slot, constant until the thread ends. The value is below [`MAX_SLOTS`] for
/// an exclusive slot, and [`MAX_SLOTS`] for the slot shared by all threads that found none free.
#[inline]
pub fn thread_slot() -> usize {
    let slot = SLOT.get();
    if slot != NO_SLOT_INDEX { slot } else { claim() }
}

/// Returns a bound above all slots that were ever in use: loops over slots need not go further.
#[inline]
pub fn slots_used() -> usize {
    USED.load(Ordering::Acquire)
}

/// Returns whether a living thread has this slot.
#[inline]
pub(crate) fn is_taken(slot: usize) -> bool {
    match TAKEN.get(slot) {
        Some(taken) => taken.load(Ordering::Acquire),
        None => SHARERS.load(Ordering::Acquire) > 0,
    }
}

/// Returns whether this slot is the calling thread's own; never claims one.
#[inline]
pub(crate) fn is_mine(slot: usize) -> bool {
    SLOT.get() == slot && slot != SHARED_SLOT_INDEX
}

#[cold]
fn claim() -> usize {
    for (slot, taken) in TAKEN.iter().enumerate() {
        if !taken.load(Ordering::Relaxed)
            && taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return own_slot(slot);
        }
    }
    SHARERS.fetch_add(1, Ordering::Relaxed);
    own_slot(SHARED_SLOT_INDEX)
}

fn own_slot(slot: usize) -> usize {
    // Set before the slot is used anywhere: a scan up to `slots_used` then includes it.
    USED.fetch_max(slot + 1, Ordering::SeqCst);
    SLOT.set(slot);
    // The access registers the destructor. In a thread that is already being torn down this fails,
    // and the slot stays in use: safe, and bounded by the limit.
    let _ = RELEASE.try_with(|_| ());
    slot
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn living_threads_have_different_slots_and_ended_threads_free_theirs() {
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
