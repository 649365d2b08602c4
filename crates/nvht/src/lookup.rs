//! Lookups if something may be damaged.
//!
//! A lookup returns a record only if the slot vouches for it (`slot.rs`). A key counts as absent
//! only if no slot with its tag is in doubt. In careful mode every line that may hold it must also
//! be whole. Otherwise the result is [`Error::Corrupt`]: the damage may have destroyed the key's
//! slot. In careful mode a slot in a line that may be another's does not count: a table that a
//! growth left names older records, whose space may not have been used again.

use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Result};
use lodestore_inplace::unvouched;
use lodestore_media::NvPtr;

use crate::hash::Hashed;
use crate::line::{SlotLocation, Verdict, Words, free_slot, locate_slot, reach_of, read_line};
use crate::open_store::Inner;
use crate::planted;
use crate::record::{Placed, Record};
use crate::slot::Slot;
use crate::table::{FreeSlot, Hit, Table};

/// Doubtful findings of a search.
#[derive(Default)]
struct Doubts {
    /// A slot with the key's tag that does not vouch for a record.
    stray: Option<NvPtr>,
    /// A damaged line.
    line: Option<NvPtr>,
}

impl Inner {
    /// Returns the slot of `key` in a table, if there is one. The caller holds an epoch guard.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if damage may have destroyed the key's slot.
    #[inline]
    pub(crate) fn find<'a>(&'a self, table: Table, hashed: Hashed, key: &[u8]) -> Result<Option<Hit<'a>>> {
        match table.find(&self.pool, self.lookup_params(), hashed, key) {
            Ok(Some(hit)) if !self.is_foreign(table.salt, locate_slot(hit.at).line) => Ok(Some(hit)),
            Ok(None) if !self.is_careful() => Ok(None),
            _ => self.find_among_damage(table, hashed, key),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_among_damage<'a>(&'a self, table: Table, hashed: Hashed, key: &[u8]) -> Result<Option<Hit<'a>>> {
        let home = table.home(hashed.fraction);
        let mut doubts = Doubts::default();
        let mut unbound = None;
        let mut last = home;
        let mut line = home;
        while line <= last {
            let (words, verdict) = read_line(&self.pool, table.salt, table.line(line));
            if line == home {
                last += u64::from(reach_of_line(table, home, &words, verdict));
            }
            if verdict.is_damaged() {
                doubts.line.get_or_insert(table.line(line));
            }
            let slots = if verdict == Verdict::Foreign { &[][..] } else { &words[1..] };
            for (index, word) in slots.iter().enumerate() {
                let slot = Slot(*word);
                if slot.tag() != hashed.tag || !self.form.is_record(slot) {
                    continue;
                }
                match self.hit((table.slot(line, index), slot), (hashed, key), &mut doubts) {
                    Some(hit) if hit.is_bound => return Ok(Some(hit)),
                    Some(hit) => unbound = Some(hit),
                    None => {}
                }
            }
            line += 1;
        }
        if unbound.is_some() {
            return Ok(unbound);
        }
        self.check_doubts(&doubts).map(|()| None)
    }

    /// Returns the hit of a slot with the key's tag, if its record has the key.
    fn hit<'a>(
        &'a self,
        (at, slot): (NvPtr, Slot),
        (hashed, key): (Hashed, &[u8]),
        doubts: &mut Doubts,
    ) -> Option<Hit<'a>> {
        let record_at = self.form.record(slot);
        let record = Record::read(&self.pool, record_at).ok();
        match record {
            Some(record) if record.key() == key => {
                let is_bound =
                    self.form.is_bound(slot, record.binding()) || self.pool.has_fault(planted::ENTRY_CHECK_IGNORED);
                Some(Hit { at, entry: slot, record_at, record, is_bound })
            }
            Some(record) if record.vouched_fraction(self.hasher, self.form, slot, hashed.partition).is_some() => None,
            _ => {
                doubts.stray.get_or_insert(record_at);
                None
            }
        }
    }

    fn check_doubts(&self, doubts: &Doubts) -> Result<()> {
        if self.is_seal_broken {
            return Err(broken_seal());
        }
        if let Some(line) = doubts.line {
            let error = damaged_line(line);
            self.careful_mode.note_damage(&error);
            return Err(error);
        }
        doubts.stray.map_or(Ok(()), |record| Err(unvouched(record)))
    }

    /// Returns the reach of a home line; checked in careful mode.
    pub(crate) fn reach(&self, table: Table, home: u64) -> u32 {
        if !self.is_careful() {
            return table.reach(&self.pool, home);
        }
        let (words, verdict) = read_line(&self.pool, table.salt, table.line(home));
        reach_of_line(table, home, &words, verdict)
    }

    /// Frees a slot. The caller holds the stripe of its key. Not flushed.
    ///
    /// Before recovery has checked a line, a slot that a crash left there may be uncounted. The
    /// line's check excludes such a slot already. Recovery holds the key's stripe while it counts
    /// the slot.
    #[inline]
    pub(crate) fn free_held_slot(&self, salt: u64, at: NvPtr, slot: Slot) {
        if self.is_careful() && self.is_uncounted(salt, at) {
            self.pool.publish_u64(at, Slot::FREE.0);
        } else {
            free_slot(&self.pool, salt, at, slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn is_uncounted(&self, salt: u64, slot_at: NvPtr) -> bool {
        let SlotLocation { line, index } = locate_slot(slot_at);
        matches!(read_line(&self.pool, salt, line).1, Verdict::Uncounted(slots) if slots >> index & 1 == 1)
    }

    /// Checks that the number of slots is the number of keys: no damage to a line or to the key of
    /// a slot is known. The caller has waited for recovery.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if damage to the index was found in this open.
    pub(crate) fn check_countable(&self) -> Result<()> {
        if self.is_seal_broken {
            return Err(broken_seal());
        }
        let what = match (self.careful_mode.first_damage().is_some(), self.may_have_duplicates.load(Ordering::Acquire))
        {
            (false, false) => return Ok(()),
            (true, _) => "lines are damaged, so the number of keys is unknown",
            (false, true) => "slots with unknown keys are damaged, so the number of keys is unknown",
        };
        Err(Error::corrupt("the store's index", what))
    }

    /// Returns whether a line is damaged or marked as damaged. Writers may change the line
    /// concurrently.
    pub(crate) fn is_damaged(&self, table: Table, line: u64) -> bool {
        read_line(&self.pool, table.salt, table.line(line)).1.is_damaged()
    }

    /// Returns whether the slots of a line may be those of another line. Checks only in careful
    /// mode.
    #[inline]
    pub(crate) fn is_foreign(&self, salt: u64, line: NvPtr) -> bool {
        self.is_careful() && self.has_foreign_slots(salt, line)
    }

    #[cold]
    #[inline(never)]
    fn has_foreign_slots(&self, salt: u64, line: NvPtr) -> bool {
        read_line(&self.pool, salt, line).1 == Verdict::Foreign
    }

    /// Returns the free slot nearest to the key's home, in a line whose slots are its own. A writer
    /// of another stripe may claim it.
    #[inline]
    pub(crate) fn find_free(&self, table: Table, fraction: u32) -> Option<FreeSlot> {
        table.find_free(&self.pool, fraction, |line| !self.is_foreign(table.salt, line))
    }
}

/// Returns the reach of an observed home line: the maximum if the line's first word cannot be
/// trusted.
fn reach_of_line(table: Table, home: u64, words: &Words, verdict: Verdict) -> u32 {
    let is_right = !verdict.is_damaged() || table.hash_of(home).is_marked(words);
    let most = table.probe - 1;
    if is_right { reach_of(words[0], most) } else { most }
}

/// Returns the error of a line whose check differs from its slots, or that is marked.
#[cold]
pub(crate) fn damaged_line(line: NvPtr) -> Error {
    Error::corrupt(
        format!("line {line:?}"),
        "the line is damaged, so it may lack keys: restore the store from a backup, or export the readable pairs",
    )
}

/// Returns the error of a key that is not found if the seal of the last clean stop did not match.
#[cold]
pub(crate) fn broken_seal() -> Error {
    Error::corrupt(
        "the store's index",
        "the index changed since the last clean stop, so any key may be missing: restore the store from a backup, or \
         export the readable pairs",
    )
}
