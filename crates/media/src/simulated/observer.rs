//! Reports the verbs of a simulated pool to its recorder.
//!
//! A step whose effect other threads can see at once takes effect while the recorder's log is held:
//! the order of the log is the order of the effects.

use std::panic::Location;

use crate::fault::PlantedFault;
use crate::nvptr::NvPtr;
use crate::region_layout::LINE_BYTES;
use crate::sim::{Log, Recorder, SECTOR};

/// The recorder of a simulated pool; empty for other pools.
#[derive(Debug)]
pub(crate) struct Observer(Option<Recorder>);

impl Observer {
    /// Returns the observer of a pool that is not simulated.
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    /// Returns the observer of a simulated pool.
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self(Some(recorder))
    }

    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.0.as_ref()
    }

    #[inline]
    pub(crate) fn is_simulated(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether this fault is planted.
    #[inline]
    pub(crate) fn has_fault(&self, fault: PlantedFault) -> bool {
        self.0.as_ref().is_some_and(|recorder| recorder.has_fault(fault))
    }

    /// Returns whether a planted fault lets the checks of this statement pass.
    pub(crate) fn is_unchecked(&self, site: &Location<'_>) -> bool {
        self.0.as_ref().is_some_and(|recorder| recorder.is_unchecked(site))
    }

    /// Returns whether the simulated medium persists sectors. `None` if the pool is not simulated.
    pub(crate) fn persists_sectors(&self) -> Option<bool> {
        self.0.as_ref().map(|recorder| recorder.grain() >= SECTOR)
    }

    /// Returns the bytes of the simulated medium.
    pub(crate) fn medium_bytes(&self) -> Option<u64> {
        self.0.as_ref().map(Recorder::medium_bytes)
    }

    pub(crate) fn record_region(&self, index: u16, len: u64) {
        if let Some(recorder) = &self.0 {
            recorder.region_added(index, len);
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn record_store(&self, at: NvPtr, bytes: &[u8]) {
        if let Some(recorder) = &self.0 {
            recorder.store(at.region(), at.offset(), bytes);
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn record_parts(&self, at: NvPtr, parts: &[&[u8]]) {
        if let Some(recorder) = &self.0 {
            recorder.store(at.region(), at.offset(), &parts.concat());
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn record_zeros(&self, at: NvPtr, len: usize) {
        if let Some(recorder) = &self.0 {
            recorder.store_zeros(at.region(), at.offset(), len as u64);
        }
    }

    /// Flushes a range of the simulated medium. Returns the number of its lines, or `None` if the
    /// pool is not simulated. The range is not empty.
    #[inline]
    #[track_caller]
    pub(crate) fn flush(&self, at: NvPtr, len: usize) -> Option<u64> {
        let recorder = self.0.as_ref()?;
        recorder.flush(at.region(), at.offset(), len as u64);
        Some((at.offset() + len as u64 - 1) / LINE_BYTES - at.offset() / LINE_BYTES + 1)
    }

    /// Ends a fence. Returns whether it succeeds.
    #[inline]
    #[track_caller]
    pub(crate) fn fence(&self) -> bool {
        match &self.0 {
            Some(recorder) => recorder.fence(),
            None => true,
        }
    }

    /// Calls `change`, which stores `value` at `at` and returns whether it did. The recorder's log
    /// is locked meanwhile, so that it has the order in which threads see the changes.
    #[inline]
    #[track_caller]
    pub(crate) fn change_word(&self, at: NvPtr, value: u64, change: impl FnOnce() -> bool) {
        self.change(change, |log, site| log.store_from(site, at.region(), at.offset(), &value.to_le_bytes()));
    }

    /// As [`change_word`](Self::change_word), for two words.
    #[inline]
    #[track_caller]
    pub(crate) fn change_pair(&self, at: NvPtr, pair: (u64, u64), change: impl FnOnce() -> bool) {
        self.change(change, |log, site| log.store_pair_from(site, at.region(), at.offset(), pair));
    }

    /// Calls `change`, and then `record` if it returns true, as one step of the log.
    #[inline]
    #[track_caller]
    fn change(&self, change: impl FnOnce() -> bool, record: impl FnOnce(&mut Log, &'static Location<'static>)) {
        let Some(recorder) = &self.0 else {
            change();
            return;
        };
        let site = Location::caller();
        recorder.locked(|log| {
            if change() {
                record(log, site);
            }
        });
    }
}
