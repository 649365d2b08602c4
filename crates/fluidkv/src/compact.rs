//! From BufferStore to StableStore (FluidKV, VLDB 2024), range by range.
//!
//! A compaction merges all runs of one range with its stable tables. What it costs is bounded by how much was buffered against what is
//! stable there (`migrate.rs` chooses). Deletes and expired keys end here: nothing older is beneath.
//! Runs whose tables overlap nothing are moved as they are; but where tables are to be compressed they are written anew, by themselves: else keys
//! that come in ascending order would never be compressed.
//! Runs that come to the range meanwhile are newer than all that is merged, and stay.
//!
//! A compaction holds its range from when it was chosen until its view is published, so that nobody splits or joins it meanwhile. Should its tables not be there all
//! the same, what was merged is given back, and the range is merged anew.
//!
//! A range that grew too large is split, and one that deletes have left small is joined with a small neighbour: each by one record in the manifest, without
//! writing a table.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use lodestore_contract::{Direction, Error, Result};

use crate::cursor::{Merge, SortedCursor, Source};
use crate::inner::{Counts, Inner, lock};
use crate::manifest::{Edit, Key};
use crate::memtable::Memtable;
use crate::output::Output;
use crate::publisher::{Publisher, publish};
use crate::table::Reads;
use crate::tables::TableHandle;
use crate::value_log::Dead;
use crate::view::Range;

impl Inner {
    /// Compacts a range that nobody else compacts.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Poisoned`], [`Error::Corrupt`]: the range is as before.
    pub(crate) fn compact(&self, range: &Range) -> Result<()> {
        let apart = apart(range);
        if let Some(moved) = apart.as_ref().filter(|_| !self.sizes.stable.compress) {
            let edit = Edit::Compaction {
                range_id: range.id,
                removed: Vec::new(),
                added: Vec::new(),
                moved: moved.clone(),
                values: Vec::new(),
            };
            return self.publish_compaction(range, &edit, Vec::new(), &Dead::default());
        }
        let began = Instant::now();
        // A damaged block must not be copied with a fresh checksum.
        let cursor = |sorted| {
            let cursor = SortedCursor::new(sorted, Bound::Unbounded, Direction::Forward, Reads::Verified)?;
            Ok(Source::Sorted(cursor))
        };
        let merged = || range.runs.iter().chain(apart.is_none().then_some(&range.stable));
        let sources = merged().map(cursor).collect::<Result<_>>()?;
        let mut merge = Merge::new(Direction::Forward, sources)?;
        // Where stable tables stay as they are, what is written between them must not reach across one.
        let between = apart.iter().flat_map(|_| &range.stable.tables).map(|table| &table.descriptor.min);
        let mut cuts: Vec<Key> = range.cuts.iter().chain(between).cloned().collect();
        cuts.sort_unstable();
        let mut output = Output::new(self, &self.sizes.stable, &cuts, true);
        while let Some(pair) = merge.next()? {
            output.add(&pair)?;
        }
        let (fresh, mut dead) = output.finish()?;
        dead.merge(&merge.into_dead());
        let bytes = fresh.iter().map(|table| table.descriptor.bytes).sum();
        self.migration.governor.note_compaction(bytes, began.elapsed());
        let removed = merged().flat_map(|sorted| &sorted.tables).map(|table| table.descriptor.identity).collect();
        let added = fresh.iter().map(|table| Arc::clone(&table.descriptor)).collect();
        let edit = Edit::Compaction { range_id: range.id, removed, added, moved: Vec::new(), values: dead.changes() };
        self.publish_compaction(range, &edit, fresh, &dead)
    }

    fn publish_compaction(&self, range: &Range, edit: &Edit, fresh: Vec<Arc<TableHandle>>, dead: &Dead) -> Result<()> {
        let bytes: u64 = fresh.iter().map(|table| table.descriptor.bytes).sum();
        let mut publisher = lock(&self.publisher);
        if !names_what_is_there(&publisher, edit) {
            // It is merged anew from what the view shows now.
            fresh.iter().for_each(|table| table.set_gone());
            self.publish_shape(&publisher, None);
            return Ok(());
        }
        if let Err(error) = publisher.apply(&self.pool, edit, fresh.clone()) {
            if !matches!(error, Error::Poisoned { .. }) {
                fresh.iter().for_each(|table| table.set_gone());
            }
            return Err(error);
        }
        self.values.note_dead(dead);
        if let Edit::Compaction { moved, .. } = edit {
            Counts::add(&self.counts.moved_tables, moved.len() as u64);
        }
        Counts::add(&self.counts.compactions, 1);
        Counts::add(&self.counts.compacted_bytes, bytes);
        self.plan_cuts(&mut publisher, range.id);
        self.split_and_publish(&mut publisher, Some(range.id), None)
    }

    /// Joins a range with the one behind it, which nobody else works on, if both are still small.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Poisoned`]: they are as before.
    pub(crate) fn join(&self, ids: (u64, u64)) -> Result<()> {
        let mut publisher = lock(&self.publisher);
        if publisher.join_ranges(&self.pool, ids, self.sizes.range)? {
            self.publish_shape(&publisher, None);
            Counts::add(&self.counts.joins, 1);
        }
        Ok(())
    }

    /// Splits what can be split, of the ranges that nobody works on and the caller's `own`, where space allows it, and publishes a view with these frozen
    /// memtables, or those that there are; also where a split failed.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn split_and_publish(
        &self,
        publisher: &mut Publisher,
        own: Option<u64>,
        frozen: Option<Vec<Arc<Memtable>>>,
    ) -> Result<()> {
        let held = self.migration.hold_free(publisher.to_split());
        let mine = held.iter().copied().chain(own).collect();
        let (made, outcome) = publisher.split_ranges(&self.pool, mine);
        self.publish_shape(publisher, frozen);
        // Behind the view: whoever takes one of them next sees what it is now.
        self.migration.let_go(&held);
        Counts::add(&self.counts.splits, made as u64);
        match outcome {
            // A range that stays large is no harm; it is tried again behind the next change.
            Err(Error::Full { .. }) => Ok(()),
            other => other,
        }
    }

    /// Publishes a view of the publisher's ranges, with these frozen memtables or those that there are.
    fn publish_shape(&self, publisher: &Publisher, frozen: Option<Vec<Arc<Memtable>>>) {
        let view = self.view.load_full();
        let frozen = frozen.unwrap_or_else(|| view.frozen.clone());
        publish(&self.view, publisher, Arc::clone(&view.active), frozen);
    }

    /// Says where a range that has become too large is to be split: between stable tables, into parts of half the size.
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

/// Whether a compaction's range has the tables that it merged.
fn names_what_is_there(publisher: &Publisher, edit: &Edit) -> bool {
    match edit {
        Edit::Compaction { range_id, removed, moved, .. } => {
            publisher.has_tables(*range_id, removed.iter().chain(moved))
        }
        _ => true,
    }
}

/// The tables of all runs, where they overlap neither each other nor stable ones and hold nothing that ends here: stable ones can stay as they are.
fn apart(range: &Range) -> Option<Vec<u64>> {
    let mut all: Vec<&Arc<TableHandle>> = range.sorted().flat_map(|sorted| &sorted.tables).collect();
    all.sort_unstable_by(|a, b| a.descriptor.min.cmp(&b.descriptor.min));
    let apart = all.windows(2).all(|pair| pair[0].descriptor.max < pair[1].descriptor.min);
    let runs = || range.runs.iter().flat_map(|run| &run.tables);
    let ends_here = runs().any(|table| table.descriptor.tombstones > 0);
    (apart && !ends_here).then(|| runs().map(|table| table.descriptor.identity).collect())
}
