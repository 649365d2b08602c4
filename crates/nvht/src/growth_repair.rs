//! Repair of a growth that a crash interrupted. Done for each partition before an open serves any
//! request; `growth.rs` says what a crash leaves.

use crate::growth::publish_grown_table;
use crate::layout::{CURSOR_MAX, LINE_BYTES, Root};
use crate::line::free_slot;
use crate::partition::Partition;
use crate::planted;
use crate::reconcile::Reconciler;
use crate::record::{Placed, Record};
use crate::slot::Slot;
use crate::table::Table;

/// Clears slots left by a crash in a step, or in the end of a growth. Called before any record is
/// stored or freed, and after the redo of batches. Idempotent.
pub(crate) fn repair_growth(reconciler: &Reconciler<'_>, part: &Partition, partition: usize) {
    let pool = reconciler.pool;
    let root = Root::of(pool, partition);
    let (current, next_word, cursor) = part.words();
    if next_word == 0 {
        if pool.load_u64(root.next()) != 0 || pool.load_u64(root.cursor()) != root.sealed(0) {
            publish_grown_table(pool, partition, current);
        }
        return;
    }
    let (old, Some(next)) = (part.current(), part.next()) else { return };
    let home = |table: Table| if cursor == CURSOR_MAX { table.lines } else { table.home(cursor as u32) };
    if !pool.has_fault(planted::GROWTH_COPIES_KEPT) {
        clear_stale_slots(reconciler, next, home(next), |fraction| fraction >= cursor);
    }
    if cursor < CURSOR_MAX {
        clear_stale_slots(reconciler, old, home(old), |fraction| fraction < cursor);
    }
    pool.fence();
}

/// Reconciles the lines from `line` on that keys of the line before can reach. Frees their slots
/// whose fractions are `is_stale_fraction`. The fraction of a damaged record is not trusted: its
/// slot stays. All these lines are flushed, and the caller fences. A killed process may have
/// cleared a slot without flushing it, and the ranges of the recovery walk need not reach that far.
fn clear_stale_slots(reconciler: &Reconciler<'_>, table: Table, line: u64, is_stale_fraction: impl Fn(u64) -> bool) {
    let &Reconciler { pool, hasher, form, partition } = reconciler;
    let is_stale = |slot: Slot| {
        let record = Record::read(pool, form.record(slot)).ok().filter(|_| form.is_record(slot));
        let fraction = record.and_then(|record| record.vouched_fraction(hasher, form, slot, partition));
        fraction.is_some_and(|fraction| is_stale_fraction(fraction.into()))
    };
    for line in line..(line + u64::from(table.probe)).min(table.all_lines()) {
        reconciler.reconcile_line(table, line);
        for (index, word) in table.load(pool, line)[1..].iter().enumerate() {
            let slot = Slot(*word);
            if is_stale(slot) {
                free_slot(pool, table.salt, table.slot(line, index), slot);
            }
        }
        pool.flush(table.line(line), LINE_BYTES as usize);
    }
}
