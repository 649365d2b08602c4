//! A table: lines of seven slots, probed line by line from a key's home (NVHT, JPDC 2018: linear
//! probing with a maximum probing length).
//!
//! Invariants:
//! 1. A slot is one word: free, reserved, or the tag and record of one key. It changes by one
//!    8-byte store. A batch claims a free slot by two stores, reserving it first. The line's first
//!    word counts each slot that is not free (`line.rs`).
//! 2. A key's slot is in its home line, or in a following line within the home line's *reach* (its
//!    probe limit), which is at most `probe_lines - 1`. A lookup reads only the lines within the
//!    reach. A delete stores a free slot. There are neither tombstones nor shifts: a deleted key
//!    cannot be found again, and no other key moves.
//! 3. A home line's reach is durable before a slot that needs it, and never decreases in a table.
//! 4. At most one slot of a table names a record of a given key; writers of a key hold its stripe.
//! 5. The record that a slot names is durable.
//! 6. `probe_lines - 1` lines follow the last home line: no probe wraps around.

use std::sync::atomic::{AtomicUsize, Ordering};

use lodestore_media::{NvPtr, Pool};

use crate::hash::{Hashed, Hasher};
use crate::layout::LINE_BYTES;
use crate::line::{LineHash, Words, reach_of};
use crate::planted;
use crate::record::{Placed, Record};
use crate::slot::{Slot, SlotForm};

/// Maximum bytes of a record that are prefetched together once its position is known.
pub(crate) const PREFETCH_BYTES_MAX: usize = 320;

/// Number of record bytes to prefetch together: the length of the longest record seen, at most
/// [`PREFETCH_BYTES_MAX`]. Measured: lines prefetched in vain cost a small record a tenth of its
/// time. Lines not prefetched cost a large record a fifth.
pub(crate) struct PrefetchLength(AtomicUsize);

impl PrefetchLength {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Notes that a record of `len` bytes was seen.
    #[inline]
    pub(crate) fn note(&self, len: usize) {
        if len > self.0.load(Ordering::Relaxed) {
            self.0.store(len.min(PREFETCH_BYTES_MAX), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
/// Number of records to prefetch ahead in walks.
pub(crate) const PREFETCH_RECORDS: usize = 12;

/// A table of a partition: only its location and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Position of line 0.
    pub(crate) lines_at: NvPtr,
    /// Number of home lines.
    pub(crate) lines: u64,
    /// Maximum lines that are probed.
    pub(crate) probe: u32,
    /// Seed of the checks of its lines.
    pub(crate) salt: u64,
}

/// Parameters of a lookup, besides the pool.
#[derive(Clone, Copy)]
pub(crate) struct LookupParams<'a> {
    pub(crate) hasher: Hasher,
    pub(crate) form: SlotForm,
    pub(crate) prefetch_length: &'a PrefetchLength,
}

/// A lookup found a slot with the key's tag that does not vouch for its record: `lookup.rs`
/// decides.
pub(crate) struct Unvouched;

/// A slot that names a record of the requested key.
pub(crate) type Hit<'a> = lodestore_inplace::Found<'a, Slot, u32>;

/// A free slot, with its distance in lines from the key's home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeSlot {
    pub(crate) at: NvPtr,
    pub(crate) distance: u32,
}

impl Table {
    /// Returns the extent bytes of a table with this number of home lines: header line, home lines,
    /// following lines.
    pub(crate) fn extent_bytes(lines: u64, probe: u32) -> u64 {
        (lines + u64::from(probe)) * LINE_BYTES
    }

    /// Returns the number of all lines, including the lines after the last home line.
    #[inline]
    pub(crate) fn all_lines(&self) -> u64 {
        self.lines + u64::from(self.probe) - 1
    }

    /// Returns the home line of a fraction.
    #[inline]
    pub(crate) fn home(&self, fraction: u32) -> u64 {
        (u64::from(fraction) * self.lines) >> 32
    }

    /// Returns the first fraction whose home is `line` or later; 2^32 if there is none.
    pub(crate) fn first_fraction(&self, line: u64) -> u64 {
        if line >= self.lines { 1 << 32 } else { (line << 32).div_ceil(self.lines) }
    }

    /// Returns the position of a line.
    #[inline]
    pub(crate) fn line(&self, line: u64) -> NvPtr {
        self.lines_at.add(line * LINE_BYTES)
    }

    /// Returns the position of a slot of a line.
    #[inline]
    pub(crate) fn slot(&self, line: u64, slot: usize) -> NvPtr {
        self.lines_at.add(line * LINE_BYTES + 8 + slot as u64 * 8)
    }

    /// Returns the hash of a line's place.
    pub(crate) fn hash_of(&self, line: u64) -> LineHash {
        LineHash::of(self.line(line), self.salt)
    }

    /// Returns the words of a line: its first word, then its slots.
    #[inline]
    pub(crate) fn load(&self, pool: &Pool, line: u64) -> Words {
        pool.load_words(self.line(line))
    }

    /// Returns the reach of a home line: the maximum distance in lines of its keys.
    #[inline]
    pub(crate) fn reach(&self, pool: &Pool, line: u64) -> u32 {
        reach_of(pool.load_u64(self.line(line)), self.probe - 1)
    }

    /// Starts to load the home line of a key.
    #[inline]
    pub(crate) fn prefetch(&self, pool: &Pool, fraction: u32) {
        pool.prefetch(self.line(self.home(fraction)), LINE_BYTES as usize);
    }

    /// Starts to make durable all lines where a key of this fraction can be.
    pub(crate) fn flush_window(&self, pool: &Pool, fraction: u32) {
        let home = self.home(fraction);
        let lines = 1 + u64::from(self.reach(pool, home));
        pool.flush(self.line(home), (lines * LINE_BYTES) as usize);
    }

    /// Returns the first slot with the tag of a key, for the prefetch of a batched read. Does not
    /// read the record.
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

    /// Returns the slot of `key`, if there is one. Its record is bound. The caller holds an epoch
    /// guard.
    ///
    /// # Errors
    /// [`Unvouched`] if a slot with the key's tag does not vouch for its record.
    #[inline]
    pub(crate) fn find<'a>(
        &self,
        pool: &'a Pool,
        lookup_params: LookupParams<'_>,
        hashed: Hashed,
        key: &[u8],
    ) -> Result<Option<Hit<'a>>, Unvouched> {
        let home = self.home(hashed.fraction);
        let words = self.load(pool, home);
        if let Some(hit) = self.find_in(pool, lookup_params, hashed, key, (home, &words))? {
            return Ok(Some(hit));
        }
        for distance in 1..=u64::from(reach_of(words[0], self.probe - 1)) {
            let words = self.load(pool, home + distance);
            if let Some(hit) = self.find_in(pool, lookup_params, hashed, key, (home + distance, &words))? {
                return Ok(Some(hit));
            }
        }
        Ok(None)
    }

    #[inline]
    fn find_in<'a>(
        &self,
        pool: &'a Pool,
        LookupParams { hasher, form, prefetch_length }: LookupParams<'_>,
        hashed: Hashed,
        key: &[u8],
        (line, words): (u64, &Words),
    ) -> Result<Option<Hit<'a>>, Unvouched> {
        // No branch before all seven are compared. A free or reserved slot can have the tag too.
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
            pool.prefetch(record_at, prefetch_length.bytes());
            let Ok(record) = Record::read(pool, record_at) else { return Err(Unvouched) };
            if record.key() == key {
                if !form.is_bound(slot, record.binding()) && !pool.has_fault(planted::ENTRY_CHECK_IGNORED) {
                    return Err(Unvouched);
                }
                prefetch_length.note(record.len());
                return Ok(Some(Hit { at: self.slot(line, index), entry: slot, record_at, record, is_bound: true }));
            }
            if is_stray(&record, hasher, form, slot, hashed.partition) {
                return Err(Unvouched);
            }
        }
        Ok(None)
    }

    /// Returns the free slot nearest to the key's home, in a line that `is_usable`. A writer of
    /// another stripe may claim it.
    #[inline]
    pub(crate) fn find_free(&self, pool: &Pool, fraction: u32, is_usable: impl Fn(NvPtr) -> bool) -> Option<FreeSlot> {
        let home = self.home(fraction);
        for distance in 0..self.probe {
            let line = home + u64::from(distance);
            let words = self.load(pool, line);
            if let Some(index) = words[1..].iter().position(|word| *word == Slot::FREE.0)
                && is_usable(self.line(line))
            {
                return Some(FreeSlot { at: self.slot(line, index), distance });
            }
        }
        None
    }
}

/// Returns whether a slot with the requested key's tag names the record of another key and does not
/// vouch for it. Another key with the same tag is rare, and no damage.
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
