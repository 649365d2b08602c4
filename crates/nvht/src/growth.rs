//! Growth of a table without stopping: keys move range by range to a table twice as long, while
//! reads and writes continue.
//!
//! Adjacent keys of a table stay in order in a longer one (`hash.rs`). A single number, the cursor,
//! therefore describes the keys that have moved: keys with fractions below it are in the next
//! table. Records do not move. The writers of new keys do the work, a step of 16 lines each. A key
//! without a free slot waits until its range has moved, which is many steps. A table therefore
//! begins to grow at its load factor, or when a key's slot is half a probe from its home. Short
//! probes (under 56 slots) have no such warning, and batches grow their tables completely
//! beforehand.
//!
//! Persist order, all under `growing`:
//! * begin: the next table's extent, its header, its first lines without slots, **fence**; the
//!   root's cursor 0 and next word (one line, in this order), flush, **fence**.
//! * a step from fraction a to b, under their stripes: empty lines are stored where keys up to b
//!   can be; the slots are copied, with their reaches; flush; **fence**; the root's cursor b;
//!   flush; **fence**. Copied slots in old lines that are still in use become 0, flush, **fence**.
//!   The stripes are freed last.
//! * end: the root's current word, next to 0, cursor to 0 (one line, in this order); flush;
//!   **fence**; the old table is retired, to be freed after its readers end.
//!
//! After each fence of the root, a table's header records the stage (`layout.rs`), without a fence
//! of its own. The next open refuses a root that is older than a stage.
//!
//! A crash in a step, before the cursor is durable, leaves copies in the next table with fractions
//! not below the cursor. The old table names the same records, since the stripes prevented changes.
//! The next open clears these copies (`growth_repair.rs`), and old slots left by a crash after the
//! cursor. Both happen before it serves any request. Its earlier stores (its header, redone
//! batches) neither free nor allocate a record. Every slot in a line in use therefore names a live
//! record. Each step is published by one store, and none needs a log.

use std::sync::atomic::Ordering;
use std::time::Instant;

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Result};
use lodestore_media::{NvPtr, Pool};

use crate::hash::Hashed;
use crate::layout::{CURSOR_MAX, KIND_TABLE, LINE_BYTES, LINE_SLOTS, Root, TableHeader, TableStage};
use crate::line::{count_slot, free_slot, mark_damaged};
use crate::lookup::damaged_line;
use crate::open_store::Inner;
use crate::options::INDEX_FULL;
use crate::partition::{Partition, doublings_of, extent_of, table_word};
use crate::planted;
use crate::record::{Placed, Record};
use crate::slot::Slot;
use crate::table::Table;
use crate::walk::FoundSlot;

/// Home lines that a step moves.
const STEP_LINES: u64 = 16;
/// Minimum probe lines for which a slot half a probe from its home is a warning.
const CROWDED_PROBE_LINES_MIN: u32 = 8;
/// Maximum slots per key with which a table is doubled for a key without a free slot. Above it the
/// hash is at fault, not the table.
const SLOTS_PER_KEY_MAX: u64 = 64;

/// Lines that are stored together.
const STORE_LINES: u64 = 64;

/// Creates a table's extent: header, and the first `lines` lines without slots; durable after the
/// caller's fence. `table_at` returns the table with its extent at a position.
///
/// # Errors
/// [`Error::Full`], [`Error::Io`].
pub(crate) fn create_table(
    pool: &Pool,
    header: TableHeader,
    probe: u32,
    table_at: impl FnOnce(NvPtr) -> Table,
    lines: u64,
) -> Result<NvPtr> {
    let at = pool.allocator().alloc_extent(pool, Table::extent_bytes(header.lines, probe), KIND_TABLE)?;
    pool.store(at, &header.bytes_at(pool, at));
    pool.flush(at, LINE_BYTES as usize);
    let table = table_at(at);
    store_empty_lines(pool, table, 0, lines);
    pool.flush(table.line(0), (lines * LINE_BYTES) as usize);
    Ok(at)
}

/// Stores the lines `from..to` without slots. They are not in use.
#[track_caller]
fn store_empty_lines(pool: &Pool, table: Table, from: u64, to: u64) {
    let mut bytes = [0; (STORE_LINES * LINE_BYTES) as usize];
    for first in (from..to).step_by(STORE_LINES as usize) {
        let end = (first + STORE_LINES).min(to);
        for (line, bytes) in (first..end).zip(bytes.chunks_exact_mut(LINE_BYTES as usize)) {
            bytes[..8].copy_from_slice(&table.hash_of(line).empty().to_le_bytes());
        }
        pool.store(table.line(first), &bytes[..((end - first) * LINE_BYTES) as usize]);
    }
}

impl Inner {
    /// Called after a new key: runs a step if its table grows, and begins to grow if the load is
    /// high enough. The caller holds a guard and no stripe. Errors are only reported here; the
    /// write that needs the space returns them.
    #[inline]
    pub(crate) fn grow_if_due(&self, partition: usize, keys_of_stripe: i32, is_far: bool) {
        let part = &self.partitions[partition];
        if part.is_growing() || is_far || part.may_be_due(keys_of_stripe) {
            self.run_due_growth(partition, is_far);
        }
    }

    /// Returns whether a key's slot is so far from its home that the next key may find none. Then
    /// the table must grow first, since a key without a slot waits until its range has moved. Short
    /// probes have no such warning.
    #[inline]
    pub(crate) fn is_far_from_home(&self, distance: u32) -> bool {
        let probe = self.shape.probe_lines;
        probe >= CROWDED_PROBE_LINES_MIN && distance >= probe / 2
    }

    #[cold]
    fn run_due_growth(&self, partition: usize, is_far: bool) {
        let part = &self.partitions[partition];
        let Ok(_growing) = part.growing.try_lock() else { return };
        let outcome = if part.is_growing() {
            if !self.is_retry_due(partition) {
                return;
            }
            self.run_step(partition)
        } else if is_far && self.is_retry_due(partition) && self.check_not_sparse(partition, 0).is_ok()
            || self.is_due(partition)
        {
            self.begin_growth(partition)
        } else {
            return;
        };
        if let Err(error) = outcome {
            self.report_corruption(&error);
        }
    }

    fn is_due(&self, partition: usize) -> bool {
        let part = &self.partitions[partition];
        let Some(keys) = self.keys_of(partition) else { return false };
        let slots = part.current().lines * LINE_SLOTS as u64;
        keys * 100 >= slots * u64::from(self.shape.load) && self.is_retry_due(partition)
    }

    /// Returns whether a new attempt is useful after the last one found no space.
    fn is_retry_due(&self, partition: usize) -> bool {
        let retry_at = self.partitions[partition].retry_at_keys.load(Ordering::Relaxed);
        retry_at == 0 || self.keys_of(partition).unwrap_or(0) >= retry_at
    }

    /// Delays the next attempt to grow: while space is short, not every new key starts one.
    #[cold]
    fn delay_retry(&self, partition: usize) {
        let keys = self.keys_of(partition).unwrap_or(0);
        self.partitions[partition].retry_at_keys.store(keys + keys / 16 + 1, Ordering::Relaxed);
    }

    /// Grows the key's table until there is a free slot for it. The caller holds a guard and no
    /// stripe.
    #[cold]
    pub(crate) fn grow_until_free(&self, hashed: Hashed) -> Result<()> {
        let part = self.partition(hashed);
        let _growing = lock(&part.growing);
        while self.find_free(part.table_for(hashed.fraction), hashed.fraction).is_none() {
            self.pool.check()?;
            if part.is_growing() {
                self.run_step(hashed.partition)?;
                continue;
            }
            self.check_not_sparse(hashed.partition, 0)?;
            self.begin_growth(hashed.partition)?;
        }
        Ok(())
    }

    /// Grows a table until it holds `more` additional keys at its load. Called before a batch,
    /// whose keys would otherwise trigger growth one by one. The caller holds a guard and no
    /// stripe.
    pub(crate) fn grow_for_batch(&self, partition: usize, more: u64) -> Result<()> {
        let part = &self.partitions[partition];
        let holds = || {
            let slots = part.current().lines * LINE_SLOTS as u64;
            self.keys_of(partition).is_none_or(|keys| (keys + more) * 100 <= slots * u64::from(self.shape.load))
        };
        let _growing = lock(&part.growing);
        while !holds() {
            self.double_table(partition)?;
        }
        Ok(())
    }

    /// Doubles the key's table completely, for a batch of `keys` keys in its partition without a
    /// free slot for this key.
    #[cold]
    pub(crate) fn double_for_batch(&self, hashed: Hashed, keys: u64) -> Result<()> {
        let part = self.partition(hashed);
        let _growing = lock(&part.growing);
        if !part.is_growing() {
            self.check_not_sparse(hashed.partition, keys)?;
        }
        self.double_table(hashed.partition)
    }

    /// Completes the current growth, or begins one and completes it. The caller holds `growing` and
    /// a guard.
    fn double_table(&self, partition: usize) -> Result<()> {
        let part = &self.partitions[partition];
        if !part.is_growing() {
            self.begin_growth(partition)?;
        }
        while part.is_growing() {
            self.pool.check()?;
            self.run_step(partition)?;
        }
        Ok(())
    }

    /// Refuses to double a table that is nearly empty: the keys' hashes are at fault, not the
    /// table.
    fn check_not_sparse(&self, partition: usize, more: u64) -> Result<()> {
        let part = &self.partitions[partition];
        let slots = part.current().lines * LINE_SLOTS as u64;
        let is_sparse = |keys| slots > SLOTS_PER_KEY_MAX * (keys + more + u64::from(self.shape.probe_lines));
        if self.keys_of(partition).is_some_and(is_sparse) { Err(self.index_full(part)) } else { Ok(()) }
    }

    #[cold]
    fn index_full(&self, part: &Partition) -> Error {
        Error::IndexFull { depth: self.hasher.partition_bits + part.current().lines.ilog2(), instead: INDEX_FULL }
    }

    /// Begins to grow a table that is not growing. The caller holds `growing`.
    fn begin_growth(&self, partition: usize) -> Result<()> {
        let (part, pool) = (&self.partitions[partition], &self.pool);
        let (current, next, _) = part.words();
        assert!(next == 0, "the table does not grow yet");
        let doublings = doublings_of(current) + 1;
        let lines = part.lines_of(doublings).ok_or_else(|| self.index_full(part))?;
        let header = TableHeader { partition: partition as u32, doublings, lines };
        let probe = self.shape.probe_lines;
        let table_at = |at| part.table_of(table_word(at, doublings));
        let at = create_table(pool, header, probe, table_at, u64::from(probe)).inspect_err(|_| {
            self.delay_retry(partition);
        })?;
        pool.fence_checked()?;
        let (root, word) = (Root::of(pool, partition), table_word(at, doublings));
        pool.publish_u64(root.cursor(), root.sealed(0));
        pool.publish_u64(root.next(), word);
        pool.flush(root.at, Root::BYTES);
        pool.fence_checked()?;
        TableStage::GROWING.store(pool, extent_of(current));
        part.retry_at_keys.store(0, Ordering::Relaxed);
        part.set_next(word);
        Ok(())
    }

    /// Moves the next range of a growing table, or ends the growth if all has moved. The caller
    /// holds `growing` and a guard.
    fn run_step(&self, partition: usize) -> Result<()> {
        let begun = Instant::now();
        let part = &self.partitions[partition];
        let (Some(next), from) = (part.next(), part.cursor()) else { return Ok(()) };
        self.pool.check()?;
        if from == CURSOR_MAX {
            return self.end_growth(partition);
        }
        let old = part.current();
        let to = old.first_fraction(old.home(from as u32) + STEP_LINES);
        self.move_range(partition, old, next, from, to)?;
        if to == CURSOR_MAX {
            self.end_growth(partition)?;
        }
        let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.growth.longest_step_ns.fetch_max(took, Ordering::Relaxed);
        self.growth.steps.fetch_add(1, Ordering::Relaxed);
        self.growth.all_ns.fetch_add(took, Ordering::Relaxed);
        self.growth.over_1_ms.fetch_add(u64::from(took > 1_000_000), Ordering::Relaxed);
        Ok(())
    }

    /// Runs one step; see the module docs.
    fn move_range(&self, partition: usize, old: Table, next: Table, from: u64, to: u64) -> Result<()> {
        let (part, pool) = (&self.partitions[partition], &self.pool);
        let held = self.lock_range(partition, from, to);
        let probe = u64::from(old.probe);
        let home_of = |fraction: u64| if fraction == CURSOR_MAX { next.lines } else { next.home(fraction as u32) };
        let first = home_of(from);
        let (zero_from, zero_to) = (first + probe, (home_of(to) + probe).min(next.all_lines()));
        if zero_from < zero_to {
            store_empty_lines(pool, next, zero_from, zero_to);
        }
        let ClassifiedSlots { moving, damaged } = self.classify_slots(partition, old, from, to);
        let mut copied = Copied { end: zero_to.max(first + 1), slots: Vec::with_capacity(moving.len()) };
        for (found, fraction) in &moving {
            if !self.copy_to(next, next.home(*fraction), found.slot, &mut copied) {
                return Err(self.remove_copies(partition, next, &copied));
            }
        }
        self.mark_homes_of_damage(old, next, (from, to), &damaged);
        pool.flush(next.line(first), ((copied.end - first) * LINE_BYTES) as usize);
        pool.fence_checked()?;
        self.publish_cursor(partition, to);
        // While the cursor may be lost in a crash, no writer may build on it and no old slot may be
        // cleared.
        self.pool.check()?;
        TableStage::of_cursor(to).store(pool, extent_of(part.words().1));
        part.set_cursor(to);
        self.clear_moved_slots(old, to, &moving);
        drop(held);
        part.retry_at_keys.store(0, Ordering::Relaxed);
        self.growth.moved.fetch_add(moving.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn publish_cursor(&self, partition: usize, cursor: u64) {
        let root = Root::of(&self.pool, partition);
        self.pool.publish_u64(root.cursor(), root.sealed(cursor));
        self.pool.flush(root.cursor(), 8);
        self.pool.fence();
    }

    /// Sorts the slots in the lines that may hold keys of a range: slots to move, with their
    /// fractions, and lines in which slots of the range's keys may be damaged.
    fn classify_slots(&self, partition: usize, old: Table, from: u64, to: u64) -> ClassifiedSlots {
        let mut classified = ClassifiedSlots { moving: Vec::new(), damaged: Vec::new() };
        for found in self.find_slots_in_range(old, from, to, |_| true) {
            if self.is_foreign(old.salt, old.line(found.line)) {
                continue;
            }
            let record = Record::read(&self.pool, found.record_at).ok().filter(|_| found.fraction.is_some());
            match record.and_then(|record| record.vouched_fraction(self.hasher, self.form, found.slot, partition)) {
                Some(fraction) if (from..to).contains(&fraction.into()) => classified.moving.push((found, fraction)),
                Some(_) => {}
                None => classified.damaged.push(found.line),
            }
        }
        if self.is_careful() {
            let lines = old.home(from as u32)..=self.last_line(old, from, to);
            classified.damaged.extend(lines.into_iter().filter(|line| self.is_damaged(old, *line)));
        }
        classified
    }

    /// Marks the lines of the next table to which keys of damaged old lines belong. Damaged slots,
    /// and those of a line that may be another's, are not copied.
    fn mark_homes_of_damage(&self, old: Table, next: Table, (from, to): (u64, u64), damaged: &[u64]) {
        let (first, last) = (old.home(from as u32), old.home((to - 1) as u32));
        for line in damaged {
            for home in self.homes_of(old, *line).filter(|home| (first..=last).contains(home)) {
                for line in [home * 2, home * 2 + 1] {
                    mark_damaged(&self.pool, next.salt, next.line(line));
                }
                let error = damaged_line(old.line(*line));
                self.careful_mode.note_damage(&error);
                self.report_corruption(&error);
            }
        }
    }

    fn copy_to(&self, next: Table, home: u64, slot: Slot, copied: &mut Copied) -> bool {
        loop {
            // Any fraction of this home is valid.
            let Some(free) = self.find_free(next, next.first_fraction(home) as u32) else { return false };
            if self.pool.cas_u64(free.at, Slot::FREE.0, slot.0).is_err() {
                continue;
            }
            count_slot(&self.pool, next.salt, free.at, slot);
            if free.distance > 0 {
                self.raise_reach_of(next, home, free.distance);
            }
            copied.slots.push((free.at, slot));
            copied.end = copied.end.max(home + u64::from(free.distance) + 1);
            return true;
        }
    }

    /// Removes the copies of a step that did not all fit: the hashes of too many keys are alike for
    /// a table of twice the length.
    #[cold]
    fn remove_copies(&self, partition: usize, next: Table, copied: &Copied) -> Error {
        for (at, slot) in &copied.slots {
            free_slot(&self.pool, next.salt, *at, *slot);
            self.pool.flush(*at, 8);
        }
        self.pool.fence();
        self.delay_retry(partition);
        self.index_full(&self.partitions[partition])
    }

    /// Clears the slots of moved keys in lines of keys not yet moved, after the last home line of
    /// the range.
    fn clear_moved_slots(&self, old: Table, to: u64, moved: &[(FoundSlot, u32)]) {
        if to == CURSOR_MAX || self.pool.has_fault(planted::GROWTH_LEFT_KEPT) {
            return;
        }
        let first = old.home(to as u32);
        let left: Vec<_> = moved.iter().filter(|(found, _)| found.line >= first).collect();
        for (found, _) in &left {
            // The stripe of its key is held: no other thread changes it.
            self.free_held_slot(old.salt, found.at, found.slot);
            self.pool.flush(found.at, 8);
        }
        if !left.is_empty() {
            self.pool.fence();
        }
    }

    /// Ends a growth. `growing` is held, and all keys have moved.
    fn end_growth(&self, partition: usize) -> Result<()> {
        let (part, pool) = (&self.partitions[partition], &self.pool);
        let (current, next, cursor) = part.words();
        assert!(next != 0 && cursor == CURSOR_MAX, "all keys have moved");
        self.account_wear_of(partition);
        pool.allocator().exclude_extent_from_sweep(extent_of(current));
        publish_grown_table(pool, partition, next);
        self.pool.check()?;
        TableStage::REPLACED.store(pool, extent_of(current));
        part.set_current(next);
        pool.epochs().retire_extent(pool, extent_of(current));
        self.growth.tables.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The copies of a step.
struct Copied {
    /// The first line after all copies, and after the emptied lines.
    end: u64,
    slots: Vec<(NvPtr, Slot)>,
}

/// The slots and the damaged lines of a range that moves.
struct ClassifiedSlots {
    moving: Vec<(FoundSlot, u32)>,
    damaged: Vec<u64>,
}

/// Makes the next table the only one, in the root.
pub(crate) fn publish_grown_table(pool: &Pool, partition: usize, word: u64) {
    let root = Root::of(pool, partition);
    pool.publish_u64(root.current(), word);
    pool.publish_u64(root.next(), 0);
    pool.publish_u64(root.cursor(), root.sealed(0));
    pool.flush(root.at, Root::BYTES);
    pool.fence();
}
