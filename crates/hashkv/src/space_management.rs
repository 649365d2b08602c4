//! Space management: the file's share of the capacity, the release of space, and collections that
//! make space.

use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};
use lodestore_media::BlockFile;

use crate::planted;
use crate::space::{Gain, Victim};
use crate::values::{Counts, Values, lock};

/// Flushes leave 1/64 of all segments to collections, within this minimum and maximum.
const SPARE_SEGMENTS_DIVISOR: u32 = 64;
const SPARE_SEGMENTS: (u32, u32) = (8, 64);
/// Number of flushes that must fit without a collection. Below it the background thread collects.
const FREE_FLUSHES_MIN: u64 = 1;
/// At most 1/8 of the segments stay free with their space.
const KEPT_SEGMENTS_DIVISOR: u32 = 8;
/// Number of collections without gain after which a flush stops collecting.
pub(crate) const FUTILE_COLLECTIONS_MAX: u32 = 16;
/// Minimum bytes freed per byte moved for a collection while space is free.
const FREED_PER_MOVED_RATIO: f64 = 4.0;
/// Time limit of `collect_all` while writers keep producing garbage.
const COLLECT_ALL_TIMEOUT: Duration = Duration::from_secs(600);
const HOLD_WRITERS_ADVICE: &str = "writers produce garbage as fast as it is collected: pause the writers, and repeat \
                                   the call";

impl Values {
    /// Returns the bytes of the capacity that are reserved for the LSM.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.index().map_or(0, |index| index.reserved_bytes())
    }

    /// Returns how many segments more can get space, with `reserved` bytes left free.
    pub(crate) fn segments_outside_reserve(&self, reserved: u64) -> u32 {
        let room = self.pool.room_on_medium().saturating_sub(reserved) / u64::from(self.sizes.segment_bytes);
        room.min(u64::from(u32::MAX)) as u32
    }

    /// Reports the file's share of the capacity to the pool, at an open. Releases the space of free
    /// segments that do not fit.
    pub(crate) fn fit_space(&self) {
        let bytes = |segments: u32| BlockFile::BLOCK + u64::from(segments) * u64::from(self.sizes.segment_bytes);
        let (with_space, free) = {
            let space = lock(&self.space);
            (space.with_space(), space.counts().free)
        };
        self.pool.set_beside(bytes(with_space - free));
        let room = self.segments_outside_reserve(self.reserved_bytes());
        self.pool.set_beside(bytes(with_space));
        self.release_space(room.min(self.kept()));
    }

    /// Releases the space of all but `keep` free segments. Stores the clock in the superblock
    /// first, durably: a zeroed record of a key that expires later is then known as damage.
    pub(crate) fn release_space(&self, keep: u32) {
        let taken = lock(&self.space).take_for_release(keep as usize);
        if taken.is_empty() {
            return;
        }
        if self.mark_freed_expiry().is_err() {
            lock(&self.space).keep_space(taken);
            return;
        }
        let segment_bytes = u64::from(self.sizes.segment_bytes);
        // Neighbours are punched together, from the end of the file.
        for run in taken.chunk_by(|one, next| *next + 1 == *one) {
            let first = self.offset(*run.last().expect("a run of one at least"));
            // A failed punch needs no handling: the next writer of the segment will report errors.
            let _ = self.file.punch(first, run.len() as u64 * segment_bytes);
        }
        let bytes = taken.len() as u64 * segment_bytes;
        let mut space = lock(&self.space);
        space.mark_holes(taken);
        self.pool.give_beside(bytes);
    }

    /// Returns the number of free segments that keep their space while no other component needs it.
    fn kept(&self) -> u32 {
        let with_space = lock(&self.space).with_space();
        with_space / KEPT_SEGMENTS_DIVISOR + self.gc_reserve_segments()
    }

    /// Returns how many segments flushes leave to collections. The number is based on the medium if
    /// the medium is smaller than the capacity.
    pub(crate) fn gc_reserve_segments(&self) -> u32 {
        let reachable = self.pool.reachable_bytes() / u64::from(self.sizes.segment_bytes);
        let segments = u64::from(lock(&self.space).limit()).min(reachable) as u32;
        (segments / SPARE_SEGMENTS_DIVISOR).clamp(SPARE_SEGMENTS.0, SPARE_SEGMENTS.1)
    }

    /// Returns the number of segments that can be allocated now.
    pub(crate) fn available(&self) -> u32 {
        let room = self.segments_outside_reserve(self.reserved_bytes());
        lock(&self.space).available(room)
    }

    /// Chooses the segments of the next collection, whose survivors fit into `room` segments.
    pub(crate) fn next_victim(&self, gain: &Gain, room: u32) -> Option<Victim> {
        let mut space = lock(&self.space);
        #[cfg(feature = "lab")]
        if self.sizes.circular {
            return space.choose_oldest_segments(room);
        }
        space.choose_victim(gain, room)
    }

    /// Collects. Returns whether more segments are free than before. Survivors that do not fit, and
    /// errors of the medium, are not errors here: values stay in the LSM.
    ///
    /// # Errors
    /// As [`Values::collect_best_victim`].
    pub(crate) fn collect_gain(&self, gain: &Gain) -> Result<bool> {
        let before = lock(&self.space).counts().free;
        match self.collect_best_victim(gain) {
            Ok(_) | Err(Error::Full { .. } | Error::Closed | Error::Io { .. } | Error::Corrupt { .. }) => {
                Ok(lock(&self.space).counts().free > before)
            }
            Err(other) => Err(other),
        }
    }

    /// Collects until `bytes` of values fit, or no more segments can be freed.
    pub(crate) fn collect_until_fits(&self, bytes: u64) -> Result<()> {
        let needed = bytes.div_ceil(u64::from(self.sizes.segment_bytes)) as u32 + self.gc_reserve_segments();
        // Counts are as of the last flush: a victim may free nothing.
        let mut tries = FUTILE_COLLECTIONS_MAX;
        // The oldest segments of a circular log may all be live.
        #[cfg(feature = "lab")]
        if self.sizes.circular {
            tries = lock(&self.space).rounds();
        }
        // The next collection may return the space that a failed one used: only a new maximum of
        // available segments is a gain.
        let mut most = self.available();
        while most < needed && tries > 0 && self.index().is_some_and(|index| !index.is_closed()) {
            let _ = self.collect_gain(&Gain::EIGHT_SEGMENTS)? || self.collect_gain(&Gain::ONE_SEGMENT)?;
            let now = self.available();
            tries -= u32::from(now <= most);
            most = most.max(now);
        }
        Ok(())
    }

    /// Collects segments that are mostly garbage, and releases the freed space.
    ///
    /// # Errors
    /// As [`Values::collect_best_victim`]; [`Error::Unfinished`] if writers produce garbage as fast
    /// as it is collected.
    pub(crate) fn collect_all(&self) -> Result<()> {
        self.collect_all_within(COLLECT_ALL_TIMEOUT)
    }

    /// As [`Self::collect_all`], for at most `limit`.
    fn collect_all_within(&self, limit: Duration) -> Result<()> {
        let began = Instant::now();
        let check_time = || match began.elapsed() < limit {
            true => Ok(()),
            false => Err(Error::Unfinished {
                doing: "flushing and collecting the store",
                after: limit,
                instead: HOLD_WRITERS_ADVICE,
            }),
        };
        while self.collect_gain(&Gain { segments: 1, benefit_min: FREED_PER_MOVED_RATIO })? {
            check_time()?;
        }
        while self.separate_late()? {
            check_time()?;
        }
        self.free_retired();
        self.release_space(self.kept());
        Ok(())
    }

    /// Runs one step of the background thread if something has changed since the last step. Returns
    /// whether there may be more to do. Does nothing in a store that is poisoned or closed.
    pub(crate) fn run_background_step(&self) -> bool {
        let is_over = self.pool.check().is_err() || self.index().is_none_or(|index| index.is_closed());
        if is_over || !self.take_has_work() {
            return false;
        }
        Counts::add(&self.counts.work_checks, 1);
        let gained = self.collect_or_separate();
        if gained {
            self.signal_work();
        } else {
            self.free_retired();
        }
        gained
    }

    fn collect_or_separate(&self) -> bool {
        let flush = self.sizes.flush_bytes / u64::from(self.sizes.segment_bytes);
        let low = u64::from(self.available()) < FREE_FLUSHES_MIN * flush + u64::from(self.gc_reserve_segments());
        if !low && self.sizes.circular {
            return false;
        }
        let gain = if low { Gain::EIGHT_SEGMENTS } else { Gain { segments: 2, benefit_min: FREED_PER_MOVED_RATIO } };
        // Failures are retried later, and are reported by the flush that needs the space.
        let gained = self.collect_gain(&gain).unwrap_or(false);
        let gained = gained || (!low && self.separate_late().unwrap_or(false));
        // The LSM's reserve has priority: a write that does not fit there waits for all flushes and
        // compactions.
        let (room, reserved) = (self.pool.room_on_medium(), self.reserved_bytes());
        let missing = if room < reserved / 2 { reserved - room } else { 0 };
        let free = lock(&self.space).counts().free;
        let less = free.saturating_sub(missing.div_ceil(u64::from(self.sizes.segment_bytes)) as u32);
        self.release_space(self.kept().min(less).max(self.gc_reserve_segments()));
        gained
    }

    /// Retires segments without live bytes, and frees retired segments that no reader can access.
    /// Returns the number freed.
    pub(crate) fn free_retired(&self) -> usize {
        // Under the account's lock: no segment is retired between the check of the holds and the
        // release.
        let mut space = lock(&self.space);
        let moment = self.moment();
        let oldest = lock(&self.holds).held.keys().next().copied();
        let oldest = oldest.filter(|_| !self.file.has_fault(planted::HOLDS_IGNORED)).unwrap_or(u64::MAX);
        space.retire_dead(moment);
        let freed = space.release_until(oldest);
        Counts::add(&self.counts.freed, freed as u64);
        freed
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::Store;
    use lodestore_inplace::testing::Scratch;

    use super::*;
    use crate::late_separation::tests::store_with_late_values;

    /// Regression: a `settle` concurrent with writers never ended.
    #[test]
    fn an_unfinished_settle_says_so_and_the_next_one_continues() {
        let scratch = Scratch::new();
        let count = 1500;
        let store = store_with_late_values(&scratch, count);
        let late = || store.stats().engine_counters["values_separated_late"];
        let outcome = store.running.values.collect_all_within(Duration::ZERO);
        assert!(matches!(outcome, Err(Error::Unfinished { .. })), "{outcome:?}");
        assert!(late() > 0 && late() < count as u64, "{} of {count}", late());
        store.settle().expect("settle");
        assert_eq!(late(), count as u64);
    }
}
