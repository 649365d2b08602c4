//! Segments of the value log in an open store, and how a retired one stays readable.
//!
//! Invariants
//! 1. Pointers find a segment by its id, in `ValueLog::segments`. A segment is in that list from
//!    before its first pointer until no reader can use one: the last view published before its
//!    retirement is dropped.
//! 2. Views hold a [`Hold`]. Each hold holds the next one, and names the segments that were retired
//!    when the next one replaced it. A segment is freed exactly when all views from before its
//!    retirement are dropped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lodestore_contract::threads::lock;
use lodestore_media::{NvPtr, Pool};

use super::ValueLog;
use super::ValueUse;
use super::record::{Records, SEGMENT_HEADER_BYTES};

/// A segment: see the module.
pub(crate) struct ValueSegment {
    pub(crate) id: u32,
    pub(crate) at: NvPtr,
    /// Bytes with the header.
    pub(crate) bytes: u64,
    /// Where the records end; changed under the lock of its tail.
    pub(crate) written: AtomicU64,
    /// Known bytes of records that nothing names any more: never more than there are.
    pub(crate) dead: AtomicU64,
    /// Whether it is complete; set after the last change of `written`.
    pub(crate) sealed: AtomicBool,
    /// Whether the manifest knows that it is sealed, and where it ends.
    pub(crate) is_end_recorded: AtomicBool,
    /// Whether some of its records cannot be found: it is never collected.
    pub(crate) damaged: AtomicBool,
    /// Whether the manifest no longer names it.
    pub(crate) ended: AtomicBool,
}

impl ValueSegment {
    pub(crate) fn new(id: u32, used: &ValueUse) -> Self {
        Self {
            id,
            at: used.at,
            bytes: used.bytes,
            written: AtomicU64::new(used.written.max(SEGMENT_HEADER_BYTES)),
            dead: AtomicU64::new(used.dead),
            sealed: AtomicBool::new(used.sealed),
            is_end_recorded: AtomicBool::new(used.sealed),
            damaged: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    pub(crate) fn records<'p>(&self, pool: &'p Pool) -> Records<'p> {
        let bytes = usize::try_from(self.bytes).ok().and_then(|len| pool.bytes(self.at, len)).unwrap_or_default();
        Records::new(bytes, self.id, 0, self.written())
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    pub(crate) fn note_dead(&self, bytes: u64) {
        self.dead.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes that a collection would free. The free rest after the last record counts
    /// only if it exceeds any rest that a writer leaves: the segment was then ended early.
    pub(crate) fn garbage(&self) -> u64 {
        let rest = self.bytes.saturating_sub(self.written());
        let short = if rest > self.bytes / super::OWN_SEGMENT_DIVISOR { rest } else { 0 };
        self.dead.load(Ordering::Relaxed) + short
    }

    /// Returns whether it has no live value.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed) + SEGMENT_HEADER_BYTES >= self.written()
    }

    /// Returns whether it may be collected.
    pub(crate) fn is_closed(&self) -> bool {
        let is = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        is(&self.sealed) && !is(&self.damaged) && !is(&self.ended)
    }
}

/// Keeps the value log's segments for a view.
pub(crate) struct Hold {
    log: Arc<ValueLog>,
    /// The hold of later views, and the segments that those views do not know.
    next: Mutex<Option<(Vec<u32>, Arc<Hold>)>>,
}

impl Hold {
    pub(crate) fn new(log: &Arc<ValueLog>) -> Arc<Self> {
        Arc::new(Self { log: Arc::clone(log), next: Mutex::new(None) })
    }

    /// Creates a hold for later views, which name none of these segments.
    pub(crate) fn followed_without(&self, ids: Vec<u32>) -> Arc<Self> {
        let next = Self::new(&self.log);
        let before = lock(&self.next).replace((ids, Arc::clone(&next)));
        debug_assert!(before.is_none(), "one hold follows another");
        next
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Iterative: a chain may be as long as the number of collections during the life of a
        // snapshot.
        let mut next = lock(&self.next).take();
        while let Some((ids, hold)) = next {
            ids.into_iter().for_each(|id| self.log.free_segment(id));
            next = Arc::into_inner(hold).and_then(|hold| lock(&hold.next).take());
        }
    }
}
