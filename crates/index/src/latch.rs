//! The version latch of a node. Writers exclude each other; readers validate optimistically.
//!
//! The latch is a 64-bit word: bit 0 = locked, bit 1 = obsolete, the rest = a count that grows with
//! every change.
//!
//! Protocol (SAFETY.md, Inv 1 and 2):
//! 1. A reader calls [`Latch::read`], reads data with relaxed loads, then calls
//!    [`Latch::validate`]. Only if validation succeeds was the data one state of the node. Before
//!    validation, the reader neither follows nor trusts anything it read.
//! 2. A writer changes data only between a lock and an unlock. The release fence after the lock
//!    orders the lock before the data. The release store of the unlock orders the data before the
//!    new version.
//! 3. The obsolete mark is permanent. An obsolete node is no longer in the tree and can be neither
//!    read nor locked.
//!
//! Locks are acquired from lower levels to higher, and from left to right within a level. The order
//! has no cycle, so there is no deadlock.

use crate::sync::{AtomicU64, Mutant, Ordering, fence, mutant, relax};

const LOCKED_FLAG: u64 = 1;
const OBSOLETE_FLAG: u64 = 2;
/// Bits below the count of changes.
const VERSION_SHIFT: u32 = 2;

/// A version that a reader saw: unlocked and not obsolete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

/// The latch word.
#[derive(Debug)]
pub(crate) struct Latch(AtomicU64);

impl Latch {
    /// Creates an unlocked latch.
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Creates a latch that its creator holds.
    pub(crate) fn locked() -> Self {
        Self(AtomicU64::new(LOCKED_FLAG))
    }

    /// Returns the version to read under, and waits while a writer holds the latch. Returns `None`
    /// if the node has left the tree.
    #[inline]
    pub(crate) fn read(&self) -> Option<Version> {
        let mut round = 0;
        loop {
            let word = self.0.load(Ordering::Acquire);
            if word & OBSOLETE_FLAG != 0 {
                return None;
            }
            if word & LOCKED_FLAG == 0 {
                return Some(Version(word));
            }
            relax(round);
            round += 1;
        }
    }

    /// Returns whether all data read since [`Latch::read`] returned `version` was one state of the
    /// node.
    #[inline]
    pub(crate) fn validate(&self, version: Version) -> bool {
        if mutant(Mutant::ReadUnvalidated) {
            return true;
        }
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == version.0
    }

    /// Locks the latch if the node is still at `version`.
    #[inline]
    pub(crate) fn try_upgrade(&self, version: Version) -> bool {
        let locked = version.0 | LOCKED_FLAG;
        let won = self.0.compare_exchange(version.0, locked, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if won && !mutant(Mutant::LockUnfenced) {
            fence(Ordering::Release);
        }
        won
    }

    /// Locks the latch, and waits for other writers. Returns `false`, without a lock, if the node
    /// has left the tree.
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

    /// Unlocks with a new version. The caller holds the lock.
    #[inline]
    pub(crate) fn unlock(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & (LOCKED_FLAG | OBSOLETE_FLAG), LOCKED_FLAG, "unlock of a latch that is not held");
        let step = if mutant(Mutant::VersionKept) { 0 } else { 1 << VERSION_SHIFT };
        self.0.store((word & !LOCKED_FLAG).wrapping_add(step), Ordering::Release);
    }

    /// Unlocks with the old version, for a holder that changed no data.
    pub(crate) fn unlock_unchanged(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & (LOCKED_FLAG | OBSOLETE_FLAG), LOCKED_FLAG, "unlock of a latch that is not held");
        self.0.store(word & !LOCKED_FLAG, Ordering::Release);
    }

    /// Unlocks a node that has left the tree, and marks it obsolete. The caller holds the lock.
    pub(crate) fn unlock_obsolete(&self) {
        let word = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(word & (LOCKED_FLAG | OBSOLETE_FLAG), LOCKED_FLAG, "unlock of a latch that is not held");
        self.0.store(((word & !LOCKED_FLAG) | OBSOLETE_FLAG).wrapping_add(1 << VERSION_SHIFT), Ordering::Release);
    }

    /// Returns whether the node has left the tree.
    #[inline]
    pub(crate) fn is_obsolete(&self) -> bool {
        self.0.load(Ordering::Acquire) & OBSOLETE_FLAG != 0
    }

    /// Returns whether a writer holds the latch; for checks of an idle tree.
    pub(crate) fn is_locked(&self) -> bool {
        self.0.load(Ordering::Acquire) & LOCKED_FLAG != 0
    }
}

/// A latch that the caller has locked. If the caller panics, the latch is unlocked, so that no
/// thread waits forever. The guarded data can then still be read and freed (each field is an
/// atomic), but its contents may be wrong. A caller that catches the panic must not use the tree
/// any more.
pub(crate) struct Held<'a>(&'a Latch);

impl<'a> Held<'a> {
    /// Wraps a latch that the caller holds and unlocks only through this value.
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
