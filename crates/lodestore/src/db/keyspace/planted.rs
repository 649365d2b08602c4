//! Changes of one store's keyspaces for the crash explorer: a planted fault, and a reclaim in
//! steps. Without the feature `testing` every answer is a constant.

#[cfg(feature = "testing")]
use std::sync::Arc;
#[cfg(feature = "testing")]
use std::sync::atomic::{AtomicUsize, Ordering};

/// A planted fault of keyspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A creation puts the slot before the header.
    SlotBeforeHeader,
    /// Only the first creation puts the header.
    HeaderNotRaised,
    /// The reclaim of the newest id gives the id to the next creation.
    IdReused,
    /// A creation uses the id of a dropped keyspace whose records are not removed.
    DeadIdReused,
    /// A drop changes memory only. The slot is put when the records are removed.
    DropNotWritten,
    /// A drop removes the records before it puts the slot.
    RemovedBeforeDrop,
    /// The reclaim frees the slot before it removes the records.
    FreedBeforeRemoval,
    /// The reclaim removes the records of the next id too.
    RangeTooWide,
    /// An open considers a dead slot free.
    DeadFreedByOpen,
    /// An open does not read the slot after the header's count.
    LastSlotNotRead,
    /// Nothing is synced.
    SyncLeftOut,
}

#[cfg(feature = "testing")]
impl Fault {
    /// All faults.
    pub const ALL: [Self; 11] = [
        Self::SlotBeforeHeader,
        Self::HeaderNotRaised,
        Self::IdReused,
        Self::DeadIdReused,
        Self::DropNotWritten,
        Self::RemovedBeforeDrop,
        Self::FreedBeforeRemoval,
        Self::RangeTooWide,
        Self::DeadFreedByOpen,
        Self::LastSlotNotRead,
        Self::SyncLeftOut,
    ];
}

/// Records removed together in a reclaim in steps.
#[cfg(feature = "testing")]
const STEP_RECORDS: usize = 3;

/// The changes for one store; none by default.
#[derive(Clone, Default)]
pub(in crate::db) struct Planted {
    #[cfg(feature = "testing")]
    steps: Option<Arc<Steps>>,
}

/// A reclaim in steps, on the thread of the caller.
#[cfg(feature = "testing")]
struct Steps {
    fault: Option<Fault>,
    /// The reclaim pauses after this many further pieces.
    pieces_left: AtomicUsize,
}

#[cfg(feature = "testing")]
impl Planted {
    /// Returns a reclaim in steps with the fault.
    pub(in crate::db) fn stepped(fault: Option<Fault>) -> Self {
        Self { steps: Some(Arc::new(Steps { fault, pieces_left: AtomicUsize::new(usize::MAX) })) }
    }

    /// Lets the reclaim remove at most `pieces` further pieces.
    pub(in crate::db) fn limit_pieces(&self, pieces: usize) {
        if let Some(steps) = &self.steps {
            steps.pieces_left.store(pieces, Ordering::Relaxed);
        }
    }

    /// Returns whether this fault is planted.
    pub(in crate::db) fn has(&self, fault: Fault) -> bool {
        self.steps.as_ref().is_some_and(|steps| steps.fault == Some(fault))
    }

    /// Returns whether the reclaim has no thread, and a dropped handle leaves the store open.
    pub(in crate::db) fn is_stepped(&self) -> bool {
        self.steps.is_some()
    }

    /// Returns the maximum records that are removed together: `usual`, or fewer in a stepped
    /// reclaim.
    pub(in crate::db) fn piece_records(&self, usual: usize) -> usize {
        if self.is_stepped() { STEP_RECORDS } else { usual }
    }

    /// Counts a removed piece.
    pub(in crate::db) fn count_piece(&self) {
        if let Some(Steps { pieces_left, .. }) = self.steps.as_deref() {
            let left = pieces_left.load(Ordering::Relaxed);
            pieces_left.store(if left == usize::MAX { left } else { left.saturating_sub(1) }, Ordering::Relaxed);
        }
    }

    /// Returns whether the reclaim must pause.
    pub(in crate::db) fn is_paused(&self) -> bool {
        self.steps.as_ref().is_some_and(|steps| steps.pieces_left.load(Ordering::Relaxed) == 0)
    }
}

#[cfg(not(feature = "testing"))]
#[expect(clippy::unused_self, reason = "nothing is planted without the feature")]
impl Planted {
    #[inline]
    pub(in crate::db) fn has(&self, _: Fault) -> bool {
        false
    }

    #[inline]
    pub(in crate::db) fn is_stepped(&self) -> bool {
        false
    }

    #[inline]
    pub(in crate::db) fn piece_records(&self, usual: usize) -> usize {
        usual
    }

    #[inline]
    pub(in crate::db) fn count_piece(&self) {}

    #[inline]
    pub(in crate::db) fn is_paused(&self) -> bool {
        false
    }
}
