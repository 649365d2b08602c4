//! Admission: checks whether a value fits into the file before it is logged.
//!
//! A flush without a free segment leaves values in the LSM, whose tables then use the space that
//! the file releases, and keep it. A store above the file's limit would therefore have an ever
//! smaller file. Puts of long values are refused when live bytes come near to the file's maximum.
//! Deletes and puts of short values continue. Long values are admitted again after enough of them
//! were deleted.
//!
//! The file's maximum depends on the medium and on the capacity, whichever is smaller.
//!
//! Free space inside the LSM's regions is available to the LSM only. While much of it is free, for
//! example after deletes, values that find no segment stay in the LSM.

use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Result, Store};

use crate::values::{Values, lock};

/// Long values are admitted while at least 1/8 of the capacity is free inside the LSM's regions.
const FREE_SHARE_DIVISOR: u64 = 8;
/// Share of the segments, without the spare ones, that values may fill. The rest is garbage that
/// makes collections effective.
const FILL_SHARE: (u64, u64) = (15, 16);

impl Values {
    /// Computes, stores and returns whether live bytes exceed the file's limit.
    pub(crate) fn note_full(&self) -> bool {
        let (room, spare) = (self.segments_outside_reserve(self.reserved_bytes()), self.gc_reserve_segments());
        let (segments, live) = {
            // Segments held by readers are freed when the readers end, and count as available.
            let space = lock(&self.space);
            (space.segments_max(room).saturating_sub(spare), space.live_bytes())
        };
        let limit = u64::from(segments) * u64::from(self.sizes.segment_bytes) / FILL_SHARE.1 * FILL_SHARE.0;
        let within = || self.index().map_or(0, |index| index.free_bytes_in_regions());
        let full =
            self.sizes.threshold > 0 && live > limit && within() < self.pool.options().capacity / FREE_SHARE_DIVISOR;
        if full && !self.full.swap(true, Ordering::AcqRel) {
            self.has_changed.store(true, Ordering::Release);
        } else if !full {
            self.full.store(false, Ordering::Release);
        }
        full
    }

    /// Records a write or delete whose flush may free space. Called after the write, for a
    /// concurrent check not to miss it.
    #[inline]
    pub(crate) fn note_change(&self) {
        if self.full.load(Ordering::Acquire) {
            self.has_changed.store(true, Ordering::Release);
        }
    }

    /// Refuses a value, as it is stored, if the file probably cannot hold it.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Poisoned`], [`Error::Closed`].
    #[inline]
    pub(crate) fn admit(&self, key: &[u8], stored: &[u8]) -> Result<()> {
        if self.refuses(key, stored) { self.recheck_space(stored.len() as u64) } else { Ok(()) }
    }

    /// Returns whether a stored value belongs into the file while the file is full.
    #[inline]
    pub(crate) fn refuses(&self, key: &[u8], stored: &[u8]) -> bool {
        self.full.load(Ordering::Acquire) && stored.len() < self.sizes.longest && self.may_separate(key, stored)
    }

    /// Checks again whether the file has space, after flushing all writes since the last check. The
    /// caller holds no stripe.
    ///
    /// # Errors
    /// As [`Self::admit`].
    #[cold]
    pub(crate) fn recheck_space(&self, needed: u64) -> Result<()> {
        self.pool.check_process()?;
        let _lock = lock(&self.admission_lock);
        self.free_retired();
        if !self.note_full() {
            return Ok(());
        }
        // Flushes report overwritten and deleted values dead. Merges of their tables report expired
        // values.
        let had_changed = self.has_changed.swap(false, Ordering::AcqRel);
        if let Some(index) = self.index() {
            let settled = if had_changed { index.settle() } else { Ok(()) };
            // Damage or lack of space concerns other keys: the rest was flushed.
            for done in [settled, index.merge_expired().map(drop)] {
                if let Err(error @ (Error::Poisoned { .. } | Error::Closed)) = done {
                    return Err(error);
                }
            }
            self.free_retired();
            if !self.note_full() {
                return Ok(());
            }
        }
        Err(Error::Full { needed, capacity: self.pool.options().capacity })
    }
}
