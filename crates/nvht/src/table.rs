//! A table: lines of seven slots, probed line by line from a key's home (NVHT, JPDC 2018: linear probing with a maximum probing
//! length).
//!
//! Invariants:
//! 1. A slot is one word: free, reserved, or the tag and record of one key. It changes by one
//!    8-byte store; a batch takes a free one in two, reserved first. The line's first word counts
//!    each slot that is not free (`line.rs`).
//! 2. A key's slot stands in its home line, or in one of the lines behind it as far as the home line's *reach* tells, and at most
//!    `probe_lines - 1` behind. So a look-up reads as many lines as the reach says, deleting is storing a free slot, and there are neither
//!    tombstones nor shifts: nothing that was deleted can be found again, and no other key moves.
//! 3. A home line's reach is durable before a slot that needs it, and is never lowered in a table.
//! 4. At most one slot of a table names a record of a given key; writers of a key hold its stripe.
//! 5. The record that a slot names is durable.
//! 6. Behind the last home line stand `probe_lines - 1` lines more, so that no probe turns round.

use std::sync::atomic::{AtomicUsize, Ordering};

use lodestore_media::{Mutant, NvPtr, Pool};

use crate::hash::{Hashed, Hasher};
use crate::layout::LINE;
use crate::line::{LineHash, Words, reach_of};
use crate::record::{Placed, Record};
use crate::slot::{Slot, SlotForm};

/// Most bytes of a record that are asked for together once its position is known.
pub(crate) const READ_AHEAD: usize = 320;

/// How many bytes of a record are asked for together: as many as the longest record met has, and not more than [`READ_AHEAD`]. Lines that are
/// asked for in vain cost a small record a tenth of its time, lines not asked for a large one a fifth (measured).
pub(crate) struct Reading(AtomicUsize);

impl Reading {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// A record of so many bytes was met.
    #[inline]
    pub(crate) fn met(&self, len: usize) {
        if len > self.0.load(Ordering::Relaxed) {
            self.0.store(len.min(READ_AHEAD), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn ahead(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
/// Records asked for ahead of the one that is read, in walks.
pub(crate) const AHEAD: usize = 12;

/// A table of a partition; nothing but where it is and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Table {
    /// Line 0.
    pub(crate) lines_at: NvPtr,
    /// Home lines.
    pub(crate) lines: u64,
    /// Most lines that are probed.
    pub(crate) probe: u32,
    /// What the checks of its lines begin with.
    pub(crate) salt: u64,
}

/// What a lookup needs besides the pool.
#[derive(Clone, Copy)]
pub(crate) struct Finding<'a> {
    pub(crate) hasher: Hasher,
    pub(crate) form: SlotForm,
    pub(crate) reading: &'a Reading,
}

/// A lookup met a slot with the key's tag that does not vouch for its record: `search.rs` decides.
pub(crate) struct Unsure;

/// A slot that names a record of the key looked for.
#[derive(Clone, Copy)]
pub(crate) struct Hit<'a> {
    /// Where the slot stands.
    pub(crate) at: NvPtr,
    pub(crate) slot: Slot,
    /// Where the record is.
    pub(crate) record_at: NvPtr,
    pub(crate) record: Record<'a>,
    /// Whether the slot vouches for the record. Only such a record may be answered.
    pub(crate) is_bound: bool,
}

/// A free slot and how many lines it is behind the key's home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) at: NvPtr,
    pub(crate) distance: u32,
}

impl Table {
    /// Bytes of the extent of a table of so many home lines: a header line, the lines, those behind.
    pub(crate) fn extent_bytes(lines: u64, probe: u32) -> u64 {
        (lines + u64::from(probe)) * LINE
    }

    /// All lines, those behind the last home line included.
    #[inline]
    pub(crate) fn all_lines(&self) -> u64 {
        self.lines + u64::from(self.probe) - 1
    }

    /// The home line of a fraction.
    #[inline]
    pub(crate) fn home(&self, fraction: u32) -> u64 {
        (u64::from(fraction) * self.lines) >> 32
    }

    /// The first fraction whose home is `line` or behind it; 2^32 where there is none.
    pub(crate) fn first_fraction(&self, line: u64) -> u64 {
        if line >= self.lines { 1 << 32 } else { (line << 32).div_ceil(self.lines) }
    }

    /// Where a line begins.
    #[inline]
    pub(crate) fn line(&self, line: u64) -> NvPtr {
        self.lines_at.add(line * LINE)
    }

    /// Where a slot of a line stands.
    #[inline]
    pub(crate) fn slot(&self, line: u64, slot: usize) -> NvPtr {
        self.lines_at.add(line * LINE + 8 + slot as u64 * 8)
    }

    /// The hash of a line's place.
    pub(crate) fn hash_of(&self, line: u64) -> LineHash {
        LineHash::of(self.line(line), self.salt)
    }

    /// The words of a line: its first word, its slots.
    #[inline]
    pub(crate) fn load(&self, pool: &Pool, line: u64) -> Words {
        pool.load_words(self.line(line))
    }

    /// How many lines behind `line` keys may stand whose home it is.
    #[inline]
    pub(crate) fn reach(&self, pool: &Pool, line: u64) -> u32 {
        reach_of(pool.load_u64(self.line(line)), self.probe - 1)
    }

    /// Starts to load the home line of a key.
    #[inline]
    pub(crate) fn prefetch(&self, pool: &Pool, fraction: u32) {
        pool.prefetch(self.line(self.home(fraction)), LINE as usize);
    }

    /// Starts to make durable all lines where a key of this fraction can be.
    pub(crate) fn flush_window(&self, pool: &Pool, fraction: u32) {
        let home = self.home(fraction);
        let lines = 1 + u64::from(self.reach(pool, home));
        pool.flush(self.line(home), (lines * LINE) as usize);
    }

    /// The first slot with the tag of a key, without a look at its record: what a batch of reads prefetches.
    #[inline]
    pub(crate) fn candidate(&self, pool: &Pool, form: SlotForm, hashed: Hashed) -> Option<(NvPtr, Slot)> {
        let home = self.home(hashed.fraction);
        let words = self.load(pool, home);
        for distance in 0..=u64::from(reach_of(words[0], self.probe - 1)) {
            let words = if distance == 0 { words } else { self.load(pool, home + distance) };
            for (index, word) in words[1..].iter().enumerate() {
                let slot = Slot(*word);
                if slot.tag() == hashed.tag && form.is_record(slot) {
                    return Some((self.slot(home + distance, index), slot));
                }
            }
        }
        None
    }

    /// The slot of `key`, if there is one. Its record is bound. The caller holds an epoch guard.
    ///
    /// # Errors
    /// [`Unsure`] where a slot with the key's tag does not vouch for its record.
    #[inline]
    pub(crate) fn find<'a>(
        &self,
        pool: &'a Pool,
        finding: Finding<'_>,
        hashed: Hashed,
        key: &[u8],
    ) -> Result<Option<Hit<'a>>, Unsure> {
        let home = self.home(hashed.fraction);
        let words = self.load(pool, home);
        if let Some(hit) = self.find_in(pool, finding, hashed, key, (home, &words))? {
            return Ok(Some(hit));
        }
        for distance in 1..=u64::from(reach_of(words[0], self.probe - 1)) {
            let words = self.load(pool, home + distance);
            if let Some(hit) = self.find_in(pool, finding, hashed, key, (home + distance, &words))? {
                return Ok(Some(hit));
            }
        }
        Ok(None)
    }

    #[inline]
    fn find_in<'a>(
        &self,
        pool: &'a Pool,
        Finding { hasher, form, reading }: Finding<'_>,
        hashed: Hashed,
        key: &[u8],
        (line, words): (u64, &Words),
    ) -> Result<Option<Hit<'a>>, Unsure> {
        // No branch until all seven are compared. A free or reserved slot can have the tag too.
        let mut same = words[1..]
            .iter()
            .enumerate()
            .fold(0u32, |same, (index, word)| same | u32::from(Slot(*word).tag() == hashed.tag) << index);
        while same != 0 {
            let index = same.trailing_zeros() as usize;
            same &= same - 1;
            let slot = Slot(words[1 + index]);
            if !form.is_record(slot) {
                continue;
            }
            let record_at = form.record(slot);
            pool.prefetch(record_at, reading.ahead());
            let Ok(record) = Record::read(pool, record_at) else { return Err(Unsure) };
            if record.key() == key {
                if !form.is_bound(slot, record.binding()) && !pool.mutant(Mutant::EntryCheckIgnored) {
                    return Err(Unsure);
                }
                reading.met(record.len());
                return Ok(Some(Hit { at: self.slot(line, index), slot, record_at, record, is_bound: true }));
            }
            if is_stray(&record, hasher, form, slot, hashed.partition) {
                return Err(Unsure);
            }
        }
        Ok(None)
    }

    /// The first free slot for a key, nearest to its home. A writer of another stripe may take it.
    #[inline]
    pub(crate) fn free(&self, pool: &Pool, fraction: u32) -> Option<Free> {
        let home = self.home(fraction);
        for distance in 0..self.probe {
            let line = home + u64::from(distance);
            let words = self.load(pool, line);
            if let Some(index) = words[1..].iter().position(|word| *word == Slot::FREE) {
                return Some(Free { at: self.slot(line, index), distance });
            }
        }
        None
    }
}

/// Returns whether a slot with the tag of the key looked for names the record of another key and
/// does not vouch for it. That another key has the same tag is rare, and right.
#[cold]
fn is_stray(record: &Record<'_>, hasher: Hasher, form: SlotForm, slot: Slot, partition: usize) -> bool {
    record.vouched_fraction(hasher, form, slot, partition).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_and_first_fractions_are_each_others_inverse() {
        for lines in [1u64, 2, 7, 19, 4096, 12_345, 1 << 31] {
            let table = Table { lines_at: NvPtr::new(0, 64), lines, probe: 16, salt: 0 };
            for line in [0, 1, lines / 3, lines / 2, lines - 1].into_iter().filter(|line| *line < lines) {
                let first = table.first_fraction(line);
                assert_eq!(table.home(first as u32), line);
                assert!(first == 0 || table.home((first - 1) as u32) == line - 1);
            }
            assert_eq!(table.first_fraction(lines), 1 << 32);
        }
    }

    #[test]
    fn a_key_of_home_h_has_home_2h_or_the_next_in_a_table_twice_as_long() {
        let table = Table { lines_at: NvPtr::new(0, 64), lines: 19, probe: 16, salt: 0 };
        let twice = Table { lines: 38, ..table };
        for fraction in (0..u32::MAX - 70_000).step_by(65_537) {
            assert_eq!(twice.home(fraction) / 2, table.home(fraction));
        }
    }
}
