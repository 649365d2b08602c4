//! The version latch of a node: writers exclude each other, readers look and look again.
//!
//! One 64-bit word: bit 0 = locked, bit 1 = obsolete, the rest = a count that grows with every change.
//!
//! Protocol (SAFETY.md, Inv 1 and 2):
//! 1. A reader calls [`Latch::read`], reads data with relaxed loads, then [`Latch::validate`]. Only if that says yes was the
//!    data one state of the node; before it, nothing read may be followed or believed.
//! 2. A writer changes data only between a lock and an unlock. The release fence after the lock orders the lock before the
//!    data, the release store of the unlock orders the data before the new version.
//! 3. Obsolete is for ever: such a node is no longer in the tree and can be neither read nor locked.
//!
//! Locks are taken from lower levels to higher, and from left to right within a level: no cycle, so no deadlock.

use crate::sync::{AtomicU64, Mutant, Ordering, fence, mutant, relax};

const LOCKED: u64 = 1;
const OBSOLETE: u64 = 2;
const STEP: u64 = 4;

/// A version as a reader saw it: unlocked and not obsolete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

/// The latch word.
#[derive(Debug)]
pub(crate) struct Latch(AtomicU64);

impl Latch {
    /// An unlocked latch.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A latch that its maker holds.
    pub(crate) fn locked() -> Self {
        Self(AtomicU64::new(LOCKED))
    }

    /// The version to read under; waits while a writer is inside. None: the node has left the tree.
    #[inline]
    pub(crate) fn read(&self) -> Option<Version> {
        let mut round = 0;
        loop {
            let word = self.0.load(Ordering::Acquire);
            if word & OBSOLETE != 0 {
                return None;
            }
            if word & LOCKED == 0 {
                return Some(Version(word));
            }
            relax(round);
            round += 1;
        }
    }

    /// Whether all that was read since [`Latch::read`] gave `version` was one state of the node.
    #[inline]
    pub(crate) fn validate(&self, version: Version) -> bool {
        if mutant(Mutant::ReadUnvalidated) {
            return true;
        }
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == version.0
    }

    /// Locks if the node is still at `version`.
    #[inline]
    pub(crate) fn try_upgrade(&self, version: Version) -> bool {
        let locked = version.0 | LOCKED;
        let won = self.0.compare_exchange(version.0, locked, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if won && !mutant(Mutant::LockUnfenced) {
            fence(Ordering::Release);
        }
        won
    }

    /// Locks, waiting for other writers. False: the node has left the tree, nothing is locked.
    pub(crate) fn lock(&self) -> bool {
        let mut round = 0;
        loop {
            match self.read() {
                None => return false,
                Some(version) if self.try_upgrade(version) => return true,
                Some(_) => {
                    relax(round);
                    round += 1;
                }
            }
        }
    }

    /// Lets go with a new version. The caller holds the lock.
    #[inline]
    pub(crate) fn unlock(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & (LOCKED | OBSOLETE), LOCKED, "unlock of a latch that is not held");
        let step = if mutant(Mutant::VersionKept) { 0 } else { STEP };
        self.0.store((word & !LOCKED).wrapping_add(step), Ordering::Release);
    }

    /// Lets go with the old version: for a holder that changed no data.
    pub(crate) fn unlock_unchanged(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & (LOCKED | OBSOLETE), LOCKED, "unlock of a latch that is not held");
        self.0.store(word & !LOCKED, Ordering::Release);
    }

    /// Lets go of a node that has left the tree. The caller holds the lock.
    pub(crate) fn unlock_obsolete(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & (LOCKED | OBSOLETE), LOCKED, "unlock of a latch that is not held");
        self.0.store(((word & !LOCKED) | OBSOLETE).wrapping_add(STEP), Ordering::Release);
    }

    /// Whether the node has left the tree.
    #[inline]
    pub(crate) fn is_obsolete(&self) -> bool {
        self.0.load(Ordering::Acquire) & OBSOLETE != 0
    }

    /// Whether a writer is inside; for checks of a quiet tree.
    pub(crate) fn is_locked(&self) -> bool {
        self.0.load(Ordering::Acquire) & LOCKED != 0
    }
}

/// A latch that the caller has locked. If the caller panics it is let go, so that nobody waits for it for ever; what it guards is whole enough to be read and
/// freed (each field is an atomic), and wrong: who catches the panic uses the tree no more.
pub(crate) struct Held<'a>(&'a Latch);

impl<'a> Held<'a> {
    /// Of a latch that the caller holds and lets go by this value alone.
    #[inline]
    pub(crate) fn new(latch: &'a Latch) -> Self {
        debug_assert!(latch.is_locked());
        Self(latch)
    }

    /// [`Latch::unlock`].
    #[inline]
    pub(crate) fn unlock(self) {
        self.0.unlock();
        std::mem::forget(self);
    }

    /// [`Latch::unlock_obsolete`].
    #[inline]
    pub(crate) fn unlock_obsolete(self) {
        self.0.unlock_obsolete();
        std::mem::forget(self);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}
