//! Recovery of a store while gets and puts are served.
//!
//! Before `open` returns, in a store of any size, armed batch logs are redone (`media`) and roots
//! are checked against the headers of their tables. Slots left by an interrupted step of growth are
//! cleared (`growth_repair.rs`). After a crash the allocator's occupancy and the count of keys are
//! rebuilt.
//!
//! The background work has two phases. First the check of each line is compared with its slots, and
//! a line that no crash leaves is marked as damaged (`reconcile.rs`). Then each stripe's range is
//! walked with the stripe held. Its lines are made durable if a killed process may have left them
//! unflushed. Each record is checked and marked. Damage is reported, and stays in place; only a
//! slot whose record is in space that is not its own is freed, and its line marked. Nothing is
//! repaired by guessing: a changed slot may have been written since, and its key stays damaged
//! until it is put. Then the allocator frees unmarked space. The work is idempotent: a crash in it
//! changes nothing for the next open.
//!
//! After a clean stop the open compares root area and tables with the stop's seal, and refuses any
//! difference unless it is a salvage. The allocator reads its occupancy and the roots have the
//! counts: nothing is walked.

use std::ops::Range;
use std::sync::atomic::Ordering;

use lodestore_contract::Result;
use lodestore_contract::threads::lock;
use lodestore_inplace::{PIECE_BYTES, SealedExtent, StripeIndex, share_out, unvouched};
use lodestore_media::{NvPtr, Quiet};

use crate::layout::{CURSOR_MAX, KIND_TABLE, LINE_BYTES, Root, SEAL};
use crate::line::mark_damaged;
use crate::lookup::damaged_line;
use crate::open_store::Inner;
use crate::partition::{Partition, extent_of};
use crate::planted;
use crate::reconcile::Reconciler;
use crate::record::{Placed, Record};
use crate::stripe::{STRIPES, fractions_of};
use crate::table::{PREFETCH_BYTES_MAX, PREFETCH_RECORDS, Table};
use crate::walk::{FoundSlot, duplicate_slot};

/// Lines that are checked under the same stripes.
const CHECK_LINES: u64 = 128;

/// Rebuilds occupancy and counts. `counted`: the roots had the counts of keys.
///
/// # Errors
/// The error that stopped the rebuild.
pub(crate) fn rebuild(inner: &Inner, counted: bool) -> Result<()> {
    let allocator = inner.pool.allocator();
    let trusted = counted && (!allocator.is_recovering() || inner.pool.has_fault(planted::STALE_CHECKPOINT_TRUSTED));
    if !trusted {
        // If the counts were trusted but the occupancy could not be read, the walk counts again.
        inner.partitions.iter().for_each(|part| part.keys_before.store(-1, Ordering::Release));
        walk_all(inner)?;
    } else {
        inner.careful_mode.end();
        inner.recovery.set_keys(inner.keys());
        // Only a sweep can tell whether there are any.
        inner.expiring.store(true, Ordering::Relaxed);
    }
    inner.free_unmarked();
    Ok(())
}

/// Walks all partitions, with `recovery_threads` threads.
fn walk_all(inner: &Inner) -> Result<()> {
    let shares = share_out(
        inner.partitions.len(),
        inner.options.recovery_threads,
        |partition, damaged: &mut Vec<NvPtr>| {
            check_lines(inner, partition)?;
            walk_partition(inner, partition, damaged)
        },
        |_| {},
    )?;
    inner.end_walk::<u32>(shares.into_iter().flatten());
    Ok(())
}

/// Reconciles all lines of a partition that are in use. Its tables do not grow meanwhile.
fn check_lines(inner: &Inner, partition: usize) -> Result<()> {
    let part = &inner.partitions[partition];
    let _growing = lock(&part.growing);
    if inner.is_unsettled() {
        flush_tables(inner, part)?;
    }
    for (table, lines) in lines_in_use(part) {
        check_table(inner, partition, table, lines)?;
    }
    Ok(())
}

/// Makes the tables of a partition durable, as a killed process left them, with their headers and
/// unused lines: the seal of the next stop covers all of it. The partition's tables do not grow
/// meanwhile.
fn flush_tables(inner: &Inner, part: &Partition) -> Result<()> {
    for sealed in tables_of(inner, part) {
        for from in (0..sealed.bytes).step_by(PIECE_BYTES as usize) {
            inner.recovery.check_wanted()?;
            inner.pool.flush(sealed.at.add(from), PIECE_BYTES.min(sealed.bytes - from) as usize);
            inner.pool.fence();
        }
    }
    Ok(())
}

/// Returns the extents of the tables of a partition.
fn tables_of(inner: &Inner, part: &Partition) -> impl Iterator<Item = SealedExtent> {
    let (current, next, _) = part.words();
    [current, next].into_iter().filter(|word| *word != 0).map(|word| SealedExtent {
        at: extent_of(word),
        bytes: Table::extent_bytes(part.table_of(word).lines, inner.shape.probe_lines),
        kind: KIND_TABLE,
    })
}

/// Returns the lines that are in use, by table. The partition's tables do not grow meanwhile.
fn lines_in_use(part: &Partition) -> Vec<(Table, Range<u64>)> {
    let cursor = if part.is_growing() { part.cursor() } else { 0 };
    let mut in_use = Vec::new();
    if let Some(next) = part.next() {
        let home = if cursor == CURSOR_MAX { next.lines } else { next.home(cursor as u32) };
        in_use.push((next, 0..(home + u64::from(next.probe)).min(next.all_lines())));
    }
    if cursor < CURSOR_MAX {
        let table = part.current();
        in_use.push((table, table.home(cursor as u32)..table.all_lines()));
    }
    in_use
}

fn check_table(inner: &Inner, partition: usize, table: Table, lines: Range<u64>) -> Result<()> {
    let (pool, form) = (&*inner.pool, inner.form);
    let reconciler = Reconciler { pool, hasher: inner.hasher, form, partition };
    for first in lines.clone().step_by(CHECK_LINES as usize) {
        inner.recovery.check_wanted()?;
        let end = (first + CHECK_LINES).min(lines.end);
        let _quiet = Quiet::begin();
        let _guard = pool.epochs().pin();
        // A line changes only under the stripe of a key that may be in it.
        let first_home = first.saturating_sub(u64::from(table.probe) - 1);
        let _held = inner.lock_range(partition, table.first_fraction(first_home), table.first_fraction(end));
        let mut flushed = false;
        for line in first..end {
            let reconciled = reconciler.reconcile_line(table, line);
            if reconciled.damaged {
                inner.count_damage(&damaged_line(table.line(line)));
            }
            if reconciled.changed {
                pool.flush(table.line(line), LINE_BYTES as usize);
                flushed = true;
            }
        }
        if flushed {
            pool.fence();
        }
    }
    Ok(())
}

fn walk_partition(inner: &Inner, partition: usize, damaged: &mut Vec<NvPtr>) -> Result<()> {
    let part = &inner.partitions[partition];
    for stripe in 0..STRIPES {
        inner.recovery.check_wanted()?;
        let _quiet = Quiet::begin();
        let _guard = inner.pool.epochs().pin();
        let (from, to) = fractions_of(stripe);
        let mut held = inner.stripes.lock(StripeIndex { partition, stripe });
        let mut keys = 0;
        for piece in Inner::tables_of(part, from, to) {
            if inner.is_unsettled() {
                inner.persist_range(piece.table, piece.from, piece.to);
            }
            let mut found = inner.find_slots(partition, piece, |_| true);
            // A damaged slot may belong to several stripes. The stripe where its line begins counts
            // it, and the last stripe counts the lines after the last home line.
            let first = |found: &FoundSlot| piece.table.first_fraction(found.line).min(piece.share_to - 1);
            found.retain(|found| found.fraction.is_some() || (piece.from..piece.to).contains(&first(found)));
            keys += found.len() as u64;
            keys -= mark_records(inner, (partition, piece.table), &found, damaged);
            report_duplicates(inner, found);
        }
        held.set_keys(keys);
        drop(held);
        inner.recovery.count_part();
    }
    part.keys_before.store(0, Ordering::Release);
    Ok(())
}

/// Reports keys with two slots: one slot is older than the other.
fn report_duplicates(inner: &Inner, mut found: Vec<FoundSlot>) {
    let key = |found: &FoundSlot| Record::read(&inner.pool, found.record_at).ok().map(|record| record.key());
    found.sort_unstable_by_key(|found| found.fraction);
    for same in found.chunk_by(|a, b| a.fraction == b.fraction).filter(|same| same[0].fraction.is_some()) {
        for (index, found) in same.iter().enumerate() {
            if same[..index].iter().any(|other| key(other).is_some() && key(other) == key(found)) {
                inner.count_damage(&duplicate_slot(found.record_at));
            }
        }
    }
}

/// Checks and marks the records of a range, whose stripe the caller holds. Returns the number of
/// slots that it freed because their records are in space that is not their own.
fn mark_records(
    inner: &Inner,
    (partition, table): (usize, Table),
    found: &[FoundSlot],
    damaged: &mut Vec<NvPtr>,
) -> u64 {
    let mut disowned = 0;
    for (index, slot) in found.iter().enumerate() {
        if let Some(next) = found.get(index + PREFETCH_RECORDS) {
            inner.pool.prefetch(next.record_at, PREFETCH_BYTES_MAX);
        }
        match check_record(inner, partition, slot) {
            Ok(record) => {
                if let Err(error) = mark_record(inner, slot.record_at, &record) {
                    inner.count_damage(&error);
                    damaged.push(slot.record_at);
                    disowned += u64::from(disown_record(inner, table, slot));
                }
            }
            Err(error) => {
                inner.recovery.count_corrupt();
                inner.report_corruption(&error);
                damaged.push(slot.record_at);
            }
        }
        inner.recovery.count_key();
    }
    disowned
}

/// Marks the space of a record as used, if the occupancy is being rebuilt.
///
/// # Errors
/// [`Error::Corrupt`](lodestore_contract::Error::Corrupt) if the space is not the record's.
fn mark_record(inner: &Inner, at: NvPtr, record: &Record<'_>) -> Result<()> {
    let pool = &inner.pool;
    if pool.allocator().is_recovering() && !pool.has_fault(planted::RECORD_NOT_MARKED) {
        pool.allocator().mark(pool, at, record.len())?;
    }
    Ok(())
}

/// Frees a slot whose record is in space that is not its own, and marks the line as damaged. No
/// crash leaves such a slot, and other records may be stored there: a later put of the key would
/// free their space. A salvage keeps the slot, because its record may be the last copy. Returns
/// whether the slot was freed.
#[cold]
fn disown_record(inner: &Inner, table: Table, found: &FoundSlot) -> bool {
    let pool = &inner.pool;
    if pool.options().salvage || pool.load_u64(found.at) != found.slot.0 {
        return false;
    }
    // Stores to one line persist in order: the line is marked before the slot is free.
    mark_damaged(pool, table.salt, table.line(found.line));
    inner.free_held_slot(table.salt, found.at, found.slot);
    pool.flush(table.line(found.line), LINE_BYTES as usize);
    pool.fence();
    true
}

/// Checks the record that a slot names, and returns it. Notes a slot that does not name its key.
fn check_record<'a>(inner: &'a Inner, partition: usize, found: &FoundSlot) -> Result<Record<'a>> {
    let (pool, at) = (&inner.pool, found.record_at);
    let record = Record::read(pool, at).inspect_err(|_| inner.note_possible_duplicate())?;
    let vouched = record.vouched_fraction(inner.hasher, inner.form, found.slot, partition);
    let names_key = found.fraction.is_some() && vouched == found.fraction;
    if !names_key {
        inner.note_possible_duplicate();
    }
    record.check(at)?;
    let expires = record.expiry().is_some();
    if !names_key || found.slot.expires() != expires {
        return Err(unvouched(at));
    }
    if expires {
        inner.expiring.store(true, Ordering::Relaxed);
    }
    Ok(record)
}

impl Inner {
    /// Seals the root area and the tables, for the next open to find any change. All threads have
    /// stopped.
    ///
    /// # Errors
    /// `Corrupt` if a line was damaged since the open, which the seal would hide. Otherwise as
    /// [`Seal::save`](lodestore_inplace::Seal::save).
    pub(crate) fn save_seal(&self) -> Result<()> {
        for (table, lines) in self.partitions.iter().flat_map(lines_in_use) {
            for line in lines.filter(|line| self.is_damaged(table, *line)) {
                let words = table.load(&self.pool, line);
                // A marked line is known as damaged, and stays marked. A line that may be another's
                // stays as it is: in careful mode no counts are saved, and the next open checks
                // all lines.
                if !table.hash_of(line).is_marked(&words) && !self.is_foreign(table.salt, table.line(line)) {
                    return Err(damaged_line(table.line(line)));
                }
            }
        }
        let tables = self.partitions.iter().flat_map(|part| tables_of(self, part));
        SEAL.save(&self.pool, &tables.collect::<Vec<_>>())
    }

    /// Stores the counts of keys for the next open. All threads have stopped.
    pub(crate) fn save_counts(&self) {
        let is_unsure = self.is_careful() || self.may_have_duplicates.load(Ordering::Acquire);
        for partition in 0..self.partitions.len() {
            let root = Root::of(&self.pool, partition);
            // After damage the next open counts and checks again.
            let keys = self.keys_of(partition).filter(|keys| *keys < Root::NUMBER_MAX && !is_unsure);
            let word = root.sealed(keys.map_or(0, |keys| keys + 1));
            self.pool.publish_u64(root.keys(), word);
            self.pool.flush(root.keys(), 8);
        }
        self.pool.fence();
    }
}
