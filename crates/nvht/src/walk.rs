//! Walks over all keys by ranges of their fractions: for the unordered iteration, growth, recovery
//! and verification.
//!
//! A range means a range of fractions. Its stripes are held while its slots are copied: no key of
//! the range is added, removed or moved meanwhile. Each key is therefore in exactly one range,
//! regardless of writes between ranges, and consecutive ranges show every key once.
//!
//! Every slot in a line that may hold keys of the range names a record that is not freed while the
//! caller's guard exists. Such lines contain no slots of keys that have moved away (`growth.rs`).

use std::collections::HashSet;

use lodestore_contract::{Error, Expiry, Pair, Result, Visit};
use lodestore_inplace::{Index, StripeIndex, Stripes, unvouched};
use lodestore_media::NvPtr;

use crate::hash::Hashed;
use crate::layout::{CURSOR_MAX, LINE_BYTES};
use crate::lookup::{broken_seal, damaged_line};
use crate::open_store::Inner;
use crate::partition::Partition;
use crate::record::{Placed, Record};
use crate::slot::Slot;
use crate::stripe::{Counts, Held, Target, stripe_of};
use crate::table::{Hit, PREFETCH_BYTES_MAX, PREFETCH_RECORDS, Table};

/// Home lines of a range in a walk.
const RANGE_LINES: u64 = 32;

/// A range within one table: the fractions in `from..to`.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) table: Table,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The table holds the fractions from here on.
    pub(crate) share_from: u64,
    /// The table holds the fractions before this one.
    pub(crate) share_to: u64,
}

/// A slot of a range.
pub(crate) struct FoundSlot {
    pub(crate) at: NvPtr,
    pub(crate) line: u64,
    pub(crate) slot: Slot,
    /// Position of the record that the slot names.
    pub(crate) record_at: NvPtr,
    /// The fraction in the record's header; `None` without a record, or if the fraction is
    /// impossible here.
    pub(crate) fraction: Option<u32>,
}

impl Index for Inner {
    type Own = u32;
    type Hash = Hashed;
    type Entry = Slot;
    type Stripe = Counts;

    #[inline]
    fn hash_key(&self, key: &[u8]) -> Hashed {
        self.hasher.hash(key)
    }

    #[inline]
    fn stripe_of(hash: Hashed) -> StripeIndex {
        hash.stripe()
    }

    #[inline]
    fn stripes(&self) -> &Stripes<Counts> {
        &self.stripes
    }

    #[inline]
    fn verifies_reads(&self) -> bool {
        self.options.verify_reads
    }

    fn find_held(&self, target: Target<'_>) -> Result<Option<Hit<'_>>> {
        let table = self.partition(target.hash).table_for(target.hash.fraction);
        self.find(table, target.hash, target.key).inspect_err(|error| self.report_corruption(error))
    }

    /// A piece is a range of fractions. Its stripes are held while its slots are copied: no key
    /// moves or changes meanwhile.
    fn visit_piece(
        &self,
        partition: usize,
        from: u64,
        _verifies: bool,
        wrong: &mut Option<Error>,
        visit: &mut dyn FnMut(Pair<'_>) -> Visit,
    ) -> Result<Option<u64>> {
        let _guard = self.enter()?;
        let part = &self.partitions[partition];
        let to = Self::range_end(part, from);
        let mut seen = HashSet::new();
        let found = self.copy_range(partition, from, to, |_| true);
        if let Some(line) = self.damaged_line_of(part, from, to) {
            let error = damaged_line(line);
            self.report_corruption(&error);
            wrong.get_or_insert(error);
        }
        for found in found {
            let record = match self.read_live(partition, &found) {
                Ok(Some(record)) => record,
                Ok(None) => continue,
                Err(error) => {
                    wrong.get_or_insert(error);
                    continue;
                }
            };
            if self.is_careful() && !seen.insert(record.key()) {
                let error = duplicate_slot(found.record_at);
                self.report_corruption(&error);
                wrong.get_or_insert(error);
                continue;
            }
            let pair = Pair { key: record.key(), value: record.value(), expiry: record.expiry() };
            if visit(pair) == Visit::Stop {
                return Ok(None);
            }
        }
        Ok(Some(to))
    }

    fn check_complete(&self) -> Result<()> {
        if self.is_seal_broken { Err(broken_seal()) } else { Ok(()) }
    }
}

impl Inner {
    /// Acquires the stripes of the fractions `from..to`, in order. The caller holds none.
    pub(crate) fn lock_range(&self, partition: usize, from: u64, to: u64) -> Vec<Held<'_>> {
        debug_assert!(from < to && to <= CURSOR_MAX);
        let (first, last) = (stripe_of(from as u32), stripe_of((to - 1) as u32));
        (first..=last).map(|stripe| self.stripes.lock(StripeIndex { partition, stripe })).collect()
    }

    /// Returns the tables that hold a range, each with its share of the fractions. The caller holds
    /// the stripes.
    pub(crate) fn tables_of(part: &Partition, from: u64, to: u64) -> impl Iterator<Item = Piece> {
        let cursor = if part.is_growing() { part.cursor() } else { 0 };
        let cut = cursor.clamp(from, to);
        [(from, cut, 0..cursor), (cut, to, cursor..CURSOR_MAX)].into_iter().filter(|(from, to, _)| from < to).map(
            |(from, to, share)| {
                let (share_from, share_to) = (share.start, share.end);
                Piece { table: part.table_for(from as u32), from, to, share_from, share_to }
            },
        )
    }

    /// Returns the last line that may hold keys of the fractions before `to`.
    pub(crate) fn last_line(&self, table: Table, from: u64, to: u64) -> u64 {
        let (first, last) = (table.home(from as u32), table.home((to - 1) as u32));
        (first..=last).map(|home| home + u64::from(self.reach(table, home))).max().unwrap_or(last)
    }

    /// Returns the home lines to which a slot of `line` may belong, by their reaches.
    pub(crate) fn homes_of(&self, table: Table, line: u64) -> impl Iterator<Item = u64> {
        let first = line.saturating_sub(u64::from(table.probe) - 1);
        (first..=line.min(table.lines - 1))
            .filter(move |home| *home == line || line - home <= u64::from(self.reach(table, *home)))
    }

    /// Returns whether a key of this fraction can be found in `line`.
    fn is_in_reach(&self, table: Table, fraction: u32, line: u64) -> bool {
        let home = table.home(fraction);
        line == home || line > home && line - home <= u64::from(self.reach(table, home))
    }

    /// Returns the `wanted` slots of a piece: slots with records of the piece's fractions, and
    /// slots in its lines with records of unknown fraction. The lines after the home lines of a
    /// table's share belong to the last piece. The caller holds the stripes and a guard.
    pub(crate) fn find_slots(&self, partition: usize, piece: Piece, wanted: impl Fn(Slot) -> bool) -> Vec<FoundSlot> {
        let Piece { table, from, to, share_from, share_to } = piece;
        let last_home = if to == share_to { u64::MAX } else { table.home((to - 1) as u32) };
        let mut found = self.find_slots_in_range(table, from, to, wanted);
        found.retain_mut(|found| {
            let is_elsewhere = |fraction: &u32| !(share_from..share_to).contains(&u64::from(*fraction));
            // No piece searches this table for a damaged fraction of the other table's share.
            if found.fraction.filter(is_elsewhere).is_some() && !self.is_vouched(partition, found) {
                found.fraction = None;
            }
            match found.fraction {
                Some(fraction) => (from..to).contains(&fraction.into()),
                None => found.line <= last_home,
            }
        });
        found
    }

    /// Returns whether key, header and slot of a record agree.
    fn is_vouched(&self, partition: usize, found: &FoundSlot) -> bool {
        let record = Record::read(&self.pool, found.record_at).ok();
        record.is_some_and(|record| record.vouched_fraction(self.hasher, self.form, found.slot, partition).is_some())
    }

    /// Returns all `wanted` slots in the lines that may hold keys of a range. The caller holds the
    /// stripes and a guard.
    pub(crate) fn find_slots_in_range(
        &self,
        table: Table,
        from: u64,
        to: u64,
        wanted: impl Fn(Slot) -> bool,
    ) -> Vec<FoundSlot> {
        let (first, last_home) = (table.home(from as u32), table.home((to - 1) as u32));
        let mut found = Vec::with_capacity(((last_home - first + 1) * 6) as usize);
        for line in first..=self.last_line(table, from, to) {
            let words = table.load(&self.pool, line);
            for (index, word) in words[1..].iter().enumerate() {
                let slot = Slot(*word);
                if self.form.is_record(slot) && wanted(slot) {
                    let record_at = self.form.record(slot);
                    self.pool.prefetch(record_at, Record::HEADER);
                    found.push(FoundSlot { at: table.slot(line, index), line, slot, record_at, fraction: None });
                }
            }
        }
        for found in &mut found {
            let record = Record::read(&self.pool, found.record_at).ok();
            let fraction = record.map(|record| record.fraction());
            found.fraction = fraction.filter(|fraction| self.is_in_reach(table, *fraction, found.line));
        }
        found
    }

    /// Returns the first fraction of the range after the range that begins at `from`, in walks.
    pub(crate) fn range_end(part: &Partition, from: u64) -> u64 {
        let table = part.current();
        table.first_fraction(table.home(from as u32) + RANGE_LINES)
    }

    /// Copies the `wanted` slots of a range, without those of lines that may be another's. On
    /// return they are durable, and no stripe is held. The caller holds a guard.
    pub(crate) fn copy_range(
        &self,
        partition: usize,
        from: u64,
        to: u64,
        wanted: impl Fn(Slot) -> bool,
    ) -> Vec<FoundSlot> {
        let part = &self.partitions[partition];
        let _held = self.lock_range(partition, from, to);
        let mut all = Vec::new();
        for piece in Self::tables_of(part, from, to) {
            if self.is_unsettled() {
                self.persist_range(piece.table, piece.from, piece.to);
            }
            let mut found = self.find_slots(partition, piece, &wanted);
            if self.is_careful() {
                found.retain(|found| !self.is_foreign(piece.table.salt, piece.table.line(found.line)));
            }
            all.append(&mut found);
        }
        for (index, found) in all.iter().enumerate() {
            if index < PREFETCH_RECORDS {
                self.pool.prefetch(found.record_at, PREFETCH_BYTES_MAX);
            }
        }
        all
    }

    /// Makes the lines of a range durable.
    pub(crate) fn persist_range(&self, table: Table, from: u64, to: u64) {
        let first = table.home(from as u32);
        let lines = self.last_line(table, from, to) - first + 1;
        self.pool.flush(table.line(first), (lines * LINE_BYTES) as usize);
        self.pool.fence();
    }

    /// Returns a damaged line that may have held keys of these fractions, if there is one. Checks
    /// only in careful mode.
    fn damaged_line_of(&self, part: &Partition, from: u64, to: u64) -> Option<NvPtr> {
        if !self.is_careful() {
            return None;
        }
        Self::tables_of(part, from, to).find_map(|Piece { table, from, to, .. }| {
            let lines = table.home(from as u32)..=self.last_line(table, from, to);
            lines.into_iter().find(|line| self.is_damaged(table, *line)).map(|line| table.line(line))
        })
    }

    /// Returns the record of a copied slot, if the slot vouches for it, and it is whole and has not
    /// expired.
    fn read_live(&self, partition: usize, found: &FoundSlot) -> Result<Option<Record<'_>>> {
        let at = found.record_at;
        let record = Record::read(&self.pool, at).inspect_err(|error| self.report_corruption(error))?;
        record.check(at).inspect_err(|error| self.report_corruption(error))?;
        let vouched = record.vouched_fraction(self.hasher, self.form, found.slot, partition);
        if found.fraction.is_none() || vouched != found.fraction {
            return Err(unvouched(at)).inspect_err(|error| self.report_corruption(error));
        }
        Ok(Some(record).filter(|record| !record.expiry().is_some_and(Expiry::is_past)))
    }
}

/// Returns the error of a slot whose key has another slot too.
#[cold]
pub(crate) fn duplicate_slot(record: NvPtr) -> Error {
    Error::corrupt(format!("slot of record {record:?}"), "another slot names a record of its key")
}
