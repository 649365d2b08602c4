//! Whether a value that is put will find room in the file, asked before it is in the log.
//!
//! A flush that finds no segment leaves values in the LSM, whose tables then take of the capacity what the file gives back, and keep it: a store that takes more than the file holds
//! has ever less of a file. So long values are refused once what is live there comes near to what the file may be; deletes and short values go on, and so do long ones again when enough of those is gone.
//!
//! The file is no longer than the medium lets it be, whatever the capacity.
//!
//! What the LSM's regions have and do not need nobody else can have: while that is much, as behind deletes, values that find no segment stay there.

use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Result, Store};

use crate::values::{Values, lock};

/// The part of the capacity that is much.
const WITHIN_PART: u64 = 8;
/// The part of the segments that values may fill, beside those that are spare: what collections need to bring something.
const FILL: (u64, u64) = (15, 16);

impl Values {
    /// Whether more is live in the file than is to be; it is kept for puts.
    pub(crate) fn note_full(&self) -> bool {
        let (room, spare) = (self.room_beside(self.leave()), self.spare());
        let (segments, live) = {
            // What readers hold comes free when they end: nobody is refused for it.
            let space = lock(&self.space);
            (space.most(room).saturating_sub(spare), space.live_bytes())
        };
        let limit = u64::from(segments) * u64::from(self.sizes.segment_bytes) / FILL.1 * FILL.0;
        let within = || self.index().map_or(0, |index| index.room_within());
        let full = self.sizes.threshold > 0 && live > limit && within() < self.pool.options().capacity / WITHIN_PART;
        if full && !self.full.swap(true, Ordering::AcqRel) {
            self.touched.store(true, Ordering::Release);
        } else if !full {
            self.full.store(false, Ordering::Release);
        }
        full
    }

    /// Says that something was written or deleted, whose flush may make room: behind it, so that who looks does not miss it.
    #[inline]
    pub(crate) fn touch(&self) {
        if self.full.load(Ordering::Acquire) {
            self.touched.store(true, Ordering::Release);
        }
    }

    /// Refuses a value, as it is stored, for which the file will hardly have room.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Poisoned`], [`Error::Closed`].
    #[inline]
    pub(crate) fn admit(&self, key: &[u8], stored: &[u8]) -> Result<()> {
        if self.refuses(key, stored) { self.look_for_room(stored.len() as u64) } else { Ok(()) }
    }

    /// Whether a value, as it is stored, is one for the file and was found to have no room there.
    #[inline]
    pub(crate) fn refuses(&self, key: &[u8], stored: &[u8]) -> bool {
        self.full.load(Ordering::Acquire) && stored.len() < self.sizes.longest && self.may_separate(key, stored)
    }

    /// Looks whether there is room by now, with all flushed that was written since somebody looked. The caller holds no stripe.
    ///
    /// # Errors
    /// As [`Self::admit`].
    #[cold]
    pub(crate) fn look_for_room(&self, needed: u64) -> Result<()> {
        self.pool.check_process()?;
        let _turn = lock(&self.admitting);
        self.release();
        if !self.note_full() {
            return Ok(());
        }
        // What was deleted and written over since is not told before its flush. Values that have
        // expired are told when their tables are merged.
        let is_touched = self.touched.swap(false, Ordering::AcqRel);
        if let Some(index) = self.index() {
            let settled = if is_touched { index.settle() } else { Ok(()) };
            // What met damage, or found no room, is another key's: the rest was flushed.
            for done in [settled, index.merge_expired().map(drop)] {
                if let Err(error @ (Error::Poisoned { .. } | Error::Closed)) = done {
                    return Err(error);
                }
            }
            self.release();
            if !self.note_full() {
                return Ok(());
            }
        }
        Err(Error::Full { needed, capacity: self.pool.options().capacity })
    }
}
