//! Segments of the value log as an open store knows them, and what keeps a retired one readable.
//!
//! Invariants
//! 1. What a pointer names is found by the segment's id, in `ValueLog::segments`. A segment is there from before the first pointer to it
//!    until nobody can read one: the last view that was published before it was retired is gone.
//! 2. Views hold a [`Hold`]; each hold holds the next one, and names the segments that were retired when the next took its place. So a
//!    segment goes when all views from before its retirement have gone, and no sooner.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lodestore_media::{NvPtr, Pool};

use super::ValueLog;
use super::record::{Records, SEGMENT_HEADER};
use crate::inner::lock;
use crate::manifest::ValueUse;

/// A segment: see the module.
pub(crate) struct ValueSegment {
    pub(crate) id: u32,
    pub(crate) at: NvPtr,
    /// Bytes, header included.
    pub(crate) bytes: u64,
    /// Where the records end; changed under the lock of its tail.
    pub(crate) written: AtomicU64,
    /// Bytes of records that nothing names any more, as far as is known: never more than there are.
    pub(crate) dead: AtomicU64,
    /// Nothing will be written to it any more; set behind the last change of `written`.
    pub(crate) sealed: AtomicBool,
    /// The manifest knows that it is sealed, and where it ends.
    pub(crate) settled: AtomicBool,
    /// Its records cannot all be found: it is never collected.
    pub(crate) damaged: AtomicBool,
    /// The manifest no longer names it.
    pub(crate) ended: AtomicBool,
}

impl ValueSegment {
    pub(crate) fn new(id: u32, used: &ValueUse) -> Self {
        Self {
            id,
            at: used.at,
            bytes: used.bytes,
            written: AtomicU64::new(used.written.max(SEGMENT_HEADER)),
            dead: AtomicU64::new(used.dead),
            sealed: AtomicBool::new(used.sealed),
            settled: AtomicBool::new(used.sealed),
            damaged: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// Its records.
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

    /// Bytes that a collection would give back. What the last record left free counts only where it is more than any rest can be that a writer leaves: a
    /// segment that was cut short.
    pub(crate) fn garbage(&self) -> u64 {
        let rest = self.bytes.saturating_sub(self.written());
        let short = if rest > self.bytes / super::OWN_PART { rest } else { 0 };
        self.dead.load(Ordering::Relaxed) + short
    }

    /// Whether nothing in it is live.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed) + SEGMENT_HEADER >= self.written()
    }

    /// Whether it may be collected.
    pub(crate) fn is_closed(&self) -> bool {
        let is = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        is(&self.sealed) && !is(&self.damaged) && !is(&self.ended)
    }
}

/// What a view holds of the value log.
pub(crate) struct Hold {
    log: Arc<ValueLog>,
    /// The hold of later views, and the segments that those know nothing of.
    next: Mutex<Option<(Vec<u32>, Arc<Hold>)>>,
}

impl Hold {
    pub(crate) fn new(log: &Arc<ValueLog>) -> Arc<Self> {
        Arc::new(Self { log: Arc::clone(log), next: Mutex::new(None) })
    }

    /// A hold for later views, which name none of these segments.
    pub(crate) fn followed_without(&self, ids: Vec<u32>) -> Arc<Self> {
        let next = Self::new(&self.log);
        let before = lock(&self.next).replace((ids, Arc::clone(&next)));
        debug_assert!(before.is_none(), "one hold follows another");
        next
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // One after the other: a chain may be as long as there were collections while a snapshot lived.
        let mut next = lock(&self.next).take();
        while let Some((ids, hold)) = next {
            ids.into_iter().for_each(|id| self.log.forget(id));
            next = Arc::into_inner(hold).and_then(|hold| lock(&hold.next).take());
        }
    }
}
