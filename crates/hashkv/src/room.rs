//! Room: what the file takes of the capacity and gives back, and collections that make way.

use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};
use lodestore_media::{BlockFile, Mutant};

use crate::space::Gain;
use crate::values::{Counts, Values, lock};

/// The part of all segments that flushes leave to collections, and how many these are, at least and at most.
const SPARE_PART: u32 = 64;
const SPARE: (u32, u32) = (8, 64);
/// Flushes that find room without a collection, where a thread collects behind them.
const AHEAD: u64 = 1;
/// The part of the segments that may be free and keep their space.
const KEPT_PART: u32 = 8;
/// Collections that bring nothing, until a flush does without.
pub(crate) const TRIES: u32 = 16;
/// Bytes that come free for each that is moved, where a collection is worth it although there is room.
const WORTH: f64 = 4.0;
/// How long a settle goes on where writers bring ever more to collect.
const SETTLE: Duration = Duration::from_secs(600);
const GO_ON: &str = "writers bring garbage as fast as it is collected: hold them back, and settle again";

impl Values {
    /// Bytes of the capacity that are the LSM's to take.
    pub(crate) fn leave(&self) -> u64 {
        self.index().map_or(0, |index| index.room_to_leave())
    }

    /// How many segments more than have space there is room for, beside so many bytes.
    pub(crate) fn room_beside(&self, leave: u64) -> u32 {
        let room = self.pool.room_on_medium().saturating_sub(leave) / u64::from(self.sizes.segment_bytes);
        room.min(u64::from(u32::MAX)) as u32
    }

    /// Says what the file takes of the capacity, at an open. Free segments for which there is no room give back their space.
    pub(crate) fn fit_space(&self) {
        let bytes = |segments: u32| BlockFile::BLOCK + u64::from(segments) * u64::from(self.sizes.segment_bytes);
        let (with_space, free) = {
            let space = lock(&self.space);
            (space.with_space(), space.counts().free)
        };
        self.pool.set_beside(bytes(with_space - free));
        let room = self.room_beside(self.leave());
        self.pool.set_beside(bytes(with_space));
        self.give_back(room.min(self.kept()));
    }

    /// Frees the space of free segments, but for `keep` of them. Stores the clock in the
    /// superblock first, durably, so that a zeroed record of a key that expires later is known as
    /// damage.
    pub(crate) fn give_back(&self, keep: u32) {
        let taken = lock(&self.space).take_to_give_back(keep as usize);
        if taken.is_empty() {
            return;
        }
        if self.mark_freed_expiry().is_err() {
            lock(&self.space).keep_space(taken);
            return;
        }
        let segment_bytes = u64::from(self.sizes.segment_bytes);
        // Neighbours together, from the end of the file.
        for run in taken.chunk_by(|one, next| *next + 1 == *one) {
            let first = self.offset(*run.last().expect("a run of one at least"));
            // What cannot be given back is found by whoever writes there.
            let _ = self.file.punch(first, run.len() as u64 * segment_bytes);
        }
        let bytes = taken.len() as u64 * segment_bytes;
        let mut space = lock(&self.space);
        space.gave_back(taken);
        self.pool.give_beside(bytes);
    }

    /// Free segments that keep their space while nobody else needs it.
    fn kept(&self) -> u32 {
        let with_space = lock(&self.space).with_space();
        with_space / KEPT_PART + self.spare()
    }

    /// Returns how many segments flushes leave to collections. The number follows the medium if
    /// the medium is smaller than the capacity.
    pub(crate) fn spare(&self) -> u32 {
        let reachable = self.pool.reachable_bytes() / u64::from(self.sizes.segment_bytes);
        let segments = u64::from(lock(&self.space).limit()).min(reachable) as u32;
        (segments / SPARE_PART).clamp(SPARE.0, SPARE.1)
    }

    /// Segments that may be taken now.
    pub(crate) fn available(&self) -> u32 {
        let room = self.room_beside(self.leave());
        lock(&self.space).available(room)
    }

    /// Collects; whether there are more segments to be taken than before. One that finds no room for what it moves, or meets what the medium refuses, is no error: values stay in the LSM then.
    ///
    /// # Errors
    /// As [`Values::collect`].
    pub(crate) fn gains(&self, gain: &Gain) -> Result<bool> {
        let before = lock(&self.space).counts().free;
        match self.collect(gain) {
            Ok(_) | Err(Error::Full { .. } | Error::Closed | Error::Io { .. } | Error::Corrupt { .. }) => {
                Ok(lock(&self.space).counts().free > before)
            }
            Err(other) => Err(other),
        }
    }

    /// Collects until so many bytes of values find room, or nothing comes free any more.
    pub(crate) fn make_way(&self, bytes: u64) -> Result<()> {
        let needed = bytes.div_ceil(u64::from(self.sizes.segment_bytes)) as u32 + self.spare();
        // Counts are of what flushes knew: a victim may bring nothing. And the oldest of a log may all be live.
        let mut tries = if self.sizes.circular { lock(&self.space).rounds() } else { TRIES };
        // What one collection takes in vain the next may give back: only more room than there ever was is a gain.
        let mut most = self.available();
        while most < needed && tries > 0 && self.index().is_some_and(|index| !index.is_closed()) {
            let _ = self.gains(&Gain::SOME)? || self.gains(&Gain::ANY)?;
            let now = self.available();
            tries -= u32::from(now <= most);
            most = most.max(now);
        }
        Ok(())
    }

    /// Collects what is mostly garbage, and gives back the space that comes free.
    ///
    /// # Errors
    /// As [`Values::collect`]; [`Error::Unfinished`] where writers bring garbage so fast that it has no end.
    pub(crate) fn settle(&self) -> Result<()> {
        self.settle_within(SETTLE)
    }

    /// As [`Self::settle`], for so long at most.
    fn settle_within(&self, limit: Duration) -> Result<()> {
        let began = Instant::now();
        let go_on = || match began.elapsed() < limit {
            true => Ok(()),
            false => Err(Error::Unfinished { doing: "a settle", after: limit, instead: GO_ON }),
        };
        while self.gains(&Gain { segments: 1, worth: WORTH })? {
            go_on()?;
        }
        while self.separate_late()? {
            go_on()?;
        }
        self.release();
        self.give_back(self.kept());
        Ok(())
    }

    /// One turn of the thread behind, where something has changed since the last; whether there may be more to do. A store that is poisoned or closed is left alone.
    pub(crate) fn tend(&self) -> bool {
        let is_over = self.pool.check().is_err() || self.index().is_none_or(|index| index.is_closed());
        if is_over || !self.take_stirred() {
            return false;
        }
        Counts::add(&self.counts.looks, 1);
        let gained = self.tend_once();
        if gained {
            self.stir();
        } else {
            self.release();
        }
        gained
    }

    fn tend_once(&self) -> bool {
        let flush = self.sizes.flush_bytes / u64::from(self.sizes.segment_bytes);
        let low = u64::from(self.available()) < AHEAD * flush + u64::from(self.spare());
        if !low && self.sizes.circular {
            return false;
        }
        let gain = if low { Gain::SOME } else { Gain { segments: 2, worth: WORTH } };
        // What fails is tried again later, and told by the flush that needs it.
        let gained = self.gains(&gain).unwrap_or(false);
        let gained = gained || (!low && self.separate_late().unwrap_or(false));
        // The LSM's part comes first: a write that finds no room there waits for all that can be flushed and compacted.
        let (room, leave) = (self.pool.room_on_medium(), self.leave());
        let missing = if room < leave / 2 { leave - room } else { 0 };
        let free = lock(&self.space).counts().free;
        let less = free.saturating_sub(missing.div_ceil(u64::from(self.sizes.segment_bytes)) as u32);
        self.give_back(self.kept().min(less).max(self.spare()));
        gained
    }

    /// Lets go of segments without anything live, and frees those that nobody can come to any more; how many.
    pub(crate) fn release(&self) -> usize {
        // Under the account's lock: nothing is let go between the look at who holds what and the freeing.
        let mut space = lock(&self.space);
        let moment = self.moment();
        let oldest = lock(&self.holds).held.keys().next().copied();
        let oldest = oldest.filter(|_| !self.file.mutant(Mutant::HoldsIgnored)).unwrap_or(u64::MAX);
        space.let_go(moment);
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
    use crate::late::tests::to_separate;

    /// Beside writers it went on for ever.
    #[test]
    fn a_settle_that_has_no_end_in_its_time_says_so_and_the_next_one_goes_on() {
        let scratch = Scratch::new();
        let count = 1500;
        let store = to_separate(&scratch, count);
        let late = || store.stats().engine_counters["values_separated_late"];
        let outcome = store.running.values.settle_within(Duration::ZERO);
        assert!(matches!(outcome, Err(Error::Unfinished { .. })), "{outcome:?}");
        assert!(late() > 0 && late() < count as u64, "{} of {count}", late());
        store.settle().expect("settle");
        assert_eq!(late(), count as u64);
    }
}
