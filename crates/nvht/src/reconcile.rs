//! Reconciles a line's check after a crash, and distinguishes a crash from damage.
//!
//! A crash leaves occupied slots that the check does not count, one per write that was in progress
//! (`line.rs`). Each of them names a whole record, since the record is durable before the slot is
//! stored, or is a batch's reservation. Any other difference is damage: the line is marked, and
//! keeps its slots. A line that may be another's is not marked: the mark would count its slots as
//! its own.

use lodestore_media::Pool;

use crate::hash::Hasher;
use crate::line::{Verdict, Words, free_slot};
use crate::record::{Placed, Record};
use crate::slot::{Slot, SlotForm};
use crate::table::Table;

/// Reconciles the lines of a partition.
pub(crate) struct Reconciler<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) hasher: Hasher,
    pub(crate) form: SlotForm,
    pub(crate) partition: usize,
}

/// Result of reconciling a line.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reconciled {
    /// The line was stored to. Not flushed.
    pub(crate) changed: bool,
    /// Keys may be missing from the line.
    pub(crate) damaged: bool,
}

impl Reconciler<'_> {
    /// Counts the slots that a crash left uncounted, frees reserved slots, and marks a damaged
    /// line. No other thread may change the line meanwhile. Not flushed.
    pub(crate) fn reconcile_line(&self, table: Table, line: u64) -> Reconciled {
        let (pool, at) = (self.pool, table.line(line));
        let words = table.load(pool, line);
        let hash = table.hash_of(line);
        let mut reconciled = Reconciled::default();
        let is_crash = match hash.judge(&words) {
            Verdict::Whole => true,
            Verdict::Uncounted(slots) => {
                let uncounted = (0..words.len() - 1).filter(|index| slots >> index & 1 == 1);
                uncounted.into_iter().all(|index| self.is_right(table, line, Slot(words[1 + index])))
            }
            Verdict::Damaged => false,
            // The difference stays: each later open finds it again, and no read uses these slots.
            Verdict::Foreign => return Reconciled { changed: false, damaged: true },
        };
        if is_crash && self.all_are_slots(&words) {
            let counting = hash.counting_all(&words);
            reconciled.changed = counting != words[0];
            if reconciled.changed {
                pool.publish_u64(at, counting);
            }
        } else {
            reconciled.damaged = true;
            reconciled.changed = !hash.is_marked(&words);
            if reconciled.changed {
                pool.publish_u64(at, hash.marking(&words, table.probe - 1));
            }
        }
        for (index, word) in words[1..].iter().enumerate() {
            if self.form.is_reserved(Slot(*word)) {
                free_slot(pool, table.salt, table.slot(line, index), Slot(*word));
                reconciled.changed = true;
            }
        }
        reconciled
    }

    /// Returns whether each slot of a line is free, reserved or names a record.
    fn all_are_slots(&self, words: &Words) -> bool {
        words[1..]
            .iter()
            .map(|word| Slot(*word))
            .all(|slot| slot == Slot::FREE || self.form.is_record(slot) || self.form.is_reserved(slot))
    }

    /// Returns whether a write in progress may have stored this slot in this line.
    fn is_right(&self, table: Table, line: u64, slot: Slot) -> bool {
        if self.form.is_reserved(slot) {
            return true;
        }
        let at = self.form.record(slot);
        let record = Record::read(self.pool, at).ok().filter(|record| record.check(at).is_ok());
        let fraction = record.and_then(|record| record.vouched_fraction(self.hasher, self.form, slot, self.partition));
        fraction.is_some_and(|fraction| {
            let home = table.home(fraction);
            (home..home + u64::from(table.probe)).contains(&line)
        })
    }
}
