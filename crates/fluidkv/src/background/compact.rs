//! Migration from BufferStore (runs) to StableStore (the sorted level) (FluidKV, PVLDB 2024), range
//! by range.
//!
//! A compaction merges all runs of one range with the range's stable tables. The ratio of buffered
//! to stable bytes bounds its cost (`background/mod.rs` chooses the range). Deletes and expired
//! keys are dropped, because no older data is below. Runs whose tables overlap nothing are moved
//! without a rewrite. If tables are to be compressed, such runs are rewritten by themselves.
//! Otherwise keys that arrive in ascending order would never be compressed.
//!
//! Small adjacent tables are left by moves of small flushes, and by joins of ranges that deletes
//! have emptied. Each table costs DRAM for its handle, and a header and a chunk on the medium. At
//! least `SMALL_TABLES_MIN` neighbours, none more than half full, are merged once their bytes
//! reach `MERGE_GROWTH_FACTOR` times the largest of them. Each rewrite thus puts a byte into a
//! table with `MERGE_GROWTH_FACTOR` times the bytes. A byte is rewritten at most
//! log4(`table-bytes` / bytes of the smallest table) times before its table is half full and stays.
//! For 256 KiB this is 5 times. At most 16 small neighbours exist for each factor of four in size.
//! Runs added to the range during the merge are newer than all merged data, and stay.
//!
//! A compaction holds its range from its selection until its view is published. No other thread
//! splits or joins the range meanwhile. If a merged table is missing from the range nevertheless,
//! the result is freed and the range is merged again.
//!
//! A range that has grown too large is split. A range that deletes have left small is joined with a
//! small neighbour. Either is one record in the manifest and writes no table.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use lodestore_contract::threads::lock;
use lodestore_contract::{Direction, Error, Result};

use crate::background::scheduler::Background;
use crate::background::table_writer::Output;
use crate::memtable::Memtable;
use crate::sst::Reads;
use crate::tree::counts::Counts;
use crate::values::Dead;
use crate::values::separator::Expired;
use crate::version::cursor::{Merge, SortedCursor, Source};
use crate::version::manifest::{Edit, Key};
use crate::version::publish::{Publisher, publish};
use crate::version::range::Range;
use crate::version::tables::{Sorted, TableHandle};

/// The result of a merge.
pub(crate) struct Merged {
    /// The new tables, durable.
    fresh: Vec<Arc<TableHandle>>,
    /// The tables that they replace, by identity.
    removed: Vec<u64>,
    /// Large values of the dropped versions.
    dead: Dead,
    /// The expired pairs that were dropped.
    expired: Expired,
}

impl Background {
    /// Compacts a range. No other thread compacts it meanwhile.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Poisoned`], [`Error::Corrupt`]: the range is unchanged.
    pub(crate) fn compact(&self, range: &Range) -> Result<()> {
        if let Some(span) = range.stale() {
            return self.merge_stale(range, span);
        }
        if range.runs.is_empty() {
            return self.merge_small_tables(range);
        }
        let movable = tables_to_move(range);
        if let Some(moved) = movable.as_ref().filter(|_| !self.sizes.stable.compress) {
            let edit = Edit::Compaction {
                range_id: range.id,
                removed: Vec::new(),
                added: Vec::new(),
                moved: moved.clone(),
                values: Vec::new(),
            };
            return self.publish_compaction(range, &edit, Vec::new(), &Dead::default()).map(drop);
        }
        let lists: Vec<&Sorted> = range.runs.iter().chain(movable.is_none().then_some(&range.stable)).collect();
        // If the stable tables stay, no new table may span one of them.
        let between = movable.iter().flat_map(|_| &range.stable.tables).map(|table| &table.descriptor.min);
        let mut cuts: Vec<Key> = range.cuts.iter().chain(between).cloned().collect();
        cuts.sort_unstable();
        let merged = self.merge(&lists, &cuts)?;
        self.publish_merged(range, merged)
    }

    /// Merges small adjacent stable tables. No data is older than theirs.
    fn merge_small_tables(&self, range: &Range) -> Result<()> {
        let Some(span) = range.small_tables(self.sizes.stable.table_bytes as u64) else { return Ok(()) };
        let small = Sorted::new(range.stable.tables[span].to_vec());
        let merged = self.merge(&[&small], &range.cuts)?;
        if merged.fresh.len() > small.tables.len() / 2 {
            self.scheduler.small_merges_stopped.store(true, Ordering::Relaxed);
        }
        Counts::add(&self.counts.small_merges, 1);
        self.publish_merged(range, merged)
    }

    /// Merges lists, newest first, into tables that end at the cuts. No older data is below the
    /// lists.
    pub(crate) fn merge(&self, lists: &[&Sorted], cuts: &[Key]) -> Result<Merged> {
        let began = Instant::now();
        // A damaged block must not be copied with a fresh checksum.
        let cursor = |sorted| {
            let cursor = SortedCursor::new(sorted, Bound::Unbounded, Direction::Forward, Reads::Verified)?;
            Ok(Source::Sorted(cursor))
        };
        let sources = lists.iter().copied().map(cursor).collect::<Result<_>>()?;
        let mut merge = Merge::new(Direction::Forward, sources)?;
        let mut output = Output::new(self, &self.sizes.stable, cuts, true);
        while let Some(pair) = merge.next()? {
            output.add(&pair)?;
        }
        let (fresh, mut dead, expired) = output.finish()?;
        dead.merge(&merge.into_dead());
        let bytes = fresh.iter().map(|table| table.descriptor.bytes).sum();
        self.scheduler.governor.note_compaction(bytes, began.elapsed());
        let merged = lists.iter().flat_map(|sorted| &sorted.tables);
        Ok(Merged { removed: merged.map(|table| table.descriptor.identity).collect(), fresh, dead, expired })
    }

    pub(crate) fn publish_merged(&self, range: &Range, merged: Merged) -> Result<()> {
        let Merged { removed, fresh, dead, expired } = merged;
        let added = fresh.iter().map(|table| Arc::clone(&table.descriptor)).collect();
        let edit = Edit::Compaction { range_id: range.id, removed, added, moved: Vec::new(), values: dead.changes() };
        if let Some(now) = self.publish_compaction(range, &edit, fresh, &dead)? {
            // Runs added meanwhile are newer: their flushes have reported the values that they
            // hide.
            self.report_expired(&expired, &now.runs);
        }
        Ok(())
    }

    /// Applies a compaction. Returns the range after it, or `None` if the range must be merged
    /// again.
    fn publish_compaction(
        &self,
        range: &Range,
        edit: &Edit,
        fresh: Vec<Arc<TableHandle>>,
        dead: &Dead,
    ) -> Result<Option<Arc<Range>>> {
        let bytes: u64 = fresh.iter().map(|table| table.descriptor.bytes).sum();
        let mut publisher = lock(&self.publisher);
        if !has_merged_tables(&publisher, edit) {
            // The range is merged again from the current view.
            fresh.iter().for_each(|table| table.set_removed());
            self.publish_ranges(&mut publisher, None);
            return Ok(None);
        }
        self.view.load().active.log.flush_ends();
        if let Err(error) = publisher.apply(&self.pool, edit, fresh.clone()) {
            if !matches!(error, Error::Poisoned { .. }) {
                fresh.iter().for_each(|table| table.set_removed());
            }
            return Err(error);
        }
        self.values.note_dead(dead);
        if let Edit::Compaction { moved, .. } = edit {
            Counts::add(&self.counts.moved_tables, moved.len() as u64);
        }
        Counts::add(&self.counts.compactions, 1);
        Counts::add(&self.counts.compacted_bytes, bytes);
        let now = publisher.range(range.id);
        self.plan_cuts(&mut publisher, range.id);
        self.split_and_publish(&mut publisher, Some(range.id), None).map(|()| now)
    }

    /// Joins a range with the next one if both are still small. No other thread works on either.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Poisoned`]: both ranges are unchanged.
    pub(crate) fn join(&self, ids: (u64, u64)) -> Result<()> {
        let mut publisher = lock(&self.publisher);
        if publisher.join_ranges(&self.pool, ids, self.sizes.range)? {
            self.publish_ranges(&mut publisher, None);
            Counts::add(&self.counts.joins, 1);
        }
        Ok(())
    }

    /// Splits ranges that have cuts, where space allows: ranges that no thread works on, and the
    /// caller's `own`. Publishes a view with these frozen memtables, or with the current ones if
    /// `None`. Publishes the view even if a split failed.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn split_and_publish(
        &self,
        publisher: &mut Publisher,
        own: Option<u64>,
        frozen: Option<Vec<Arc<Memtable>>>,
    ) -> Result<()> {
        let held = self.scheduler.hold_idle_ranges(publisher.ranges_to_split());
        let mine = held.iter().copied().chain(own).collect();
        let (made, outcome) = publisher.split_ranges(&self.pool, mine);
        self.publish_ranges(publisher, frozen);
        // After the view is published: the next holder of such a range sees its current state.
        self.scheduler.release_ranges(&held);
        Counts::add(&self.counts.splits, made as u64);
        match outcome {
            // A range that stays large is harmless. The split is retried after the next change.
            Err(Error::Full { .. }) => Ok(()),
            other => other,
        }
    }

    /// Splits the largest range in halves, for lack of space, if less space must be free
    /// afterwards. Returns whether it split the range. Does nothing if another thread works on the
    /// range, or during a flush, which would have to start again.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn halve_largest(&self) -> Result<bool> {
        let mut publisher = lock(&self.publisher);
        let Some((id, cut)) = publisher.plan_halving(&self.pool, self.sizes.range) else { return Ok(false) };
        let held = if self.scheduler.is_flushing() {
            Vec::new()
        } else {
            self.scheduler.hold_idle_ranges(std::iter::once(id))
        };
        if held.is_empty() {
            return Ok(false);
        }
        let before = publisher.range(id).map_or_else(Vec::new, |range| range.cuts.clone());
        publisher.set_cuts(id, vec![cut]);
        let (made, outcome) = publisher.split_ranges(&self.pool, held.clone());
        if made == 0 {
            // Tables span the cut. The earlier cuts are restored: they apply once the range is
            // compacted.
            publisher.set_cuts(id, before);
        }
        self.publish_ranges(&mut publisher, None);
        self.scheduler.release_ranges(&held);
        Counts::add(&self.counts.splits, made as u64);
        match outcome {
            Ok(()) | Err(Error::Full { .. }) => Ok(made > 0),
            Err(other) => Err(other),
        }
    }

    /// Publishes a view of the publisher's ranges with these frozen memtables, or with the current
    /// ones if `None`.
    fn publish_ranges(&self, publisher: &mut Publisher, frozen: Option<Vec<Arc<Memtable>>>) {
        let view = self.view.load_full();
        let frozen = frozen.unwrap_or_else(|| view.frozen.clone());
        publish(&self.view, publisher, Arc::clone(&view.active), frozen);
    }

    /// Plans the cuts of a range that has grown too large: between stable tables, into parts of
    /// half the size limit.
    fn plan_cuts(&self, publisher: &mut Publisher, range_id: u64) {
        let ranges = publisher.ranges();
        let Some(range) = ranges.list.iter().find(|range| range.id == range_id) else { return };
        if range.stable.bytes <= self.sizes.range || !range.cuts.is_empty() {
            return;
        }
        let mut cuts: Vec<Key> = Vec::new();
        let mut part = 0;
        for table in &range.stable.tables {
            if part >= self.sizes.range / 2 {
                cuts.push(table.descriptor.min.clone());
                part = 0;
            }
            part += table.descriptor.bytes;
        }
        publisher.set_cuts(range_id, cuts);
    }
}

/// Returns whether the range of a compaction still has the merged tables.
fn has_merged_tables(publisher: &Publisher, edit: &Edit) -> bool {
    match edit {
        Edit::Compaction { range_id, removed, moved, .. } => {
            publisher.has_tables(*range_id, removed.iter().chain(moved))
        }
        _ => true,
    }
}

/// Returns the tables of all runs if they overlap neither each other nor stable tables, and have no
/// tombstones. The stable tables can then stay.
fn tables_to_move(range: &Range) -> Option<Vec<u64>> {
    let mut all: Vec<&Arc<TableHandle>> = range.sorted().flat_map(|sorted| &sorted.tables).collect();
    all.sort_unstable_by(|a, b| a.descriptor.min.cmp(&b.descriptor.min));
    let disjoint = all.windows(2).all(|pair| pair[0].descriptor.max < pair[1].descriptor.min);
    let runs = || range.runs.iter().flat_map(|run| &run.tables);
    let has_tombstones = runs().any(|table| table.descriptor.tombstones > 0);
    (disjoint && !has_tombstones).then(|| runs().map(|table| table.descriptor.identity).collect())
}
