//! The state that the manifest's records produce, and the rules that each change keeps.
//!
//! Rules of a state, checked by [`ManifestState::apply`] and [`ManifestState::from_parts`]:
//! 1. The ranges are in key order, the first from the empty key. Each ends where the next begins.
//!    No two have the same number.
//! 2. A table is entirely inside its range. Its identity and its extent are its own.
//! 3. The tables of a run are in key order and do not overlap. The same holds for the stable
//!    tables. No run is empty.
//! 4. A value segment has its own extent. Neither its written nor its dead bytes exceed its length.
//!    Dead bytes may be known before the written bytes are. Its id is below the next id, and was
//!    assigned once.
//! 5. Runs are newest first. When a table leaves a run for the stable tables, nothing older of its
//!    keys stays in any run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use lodestore_contract::limits::KEY_MAX;
use lodestore_media::NvPtr;

use super::{Edit, Key, TableDescriptor};
use crate::values::{ValueChange, ValueExtent, ValueUse};
use crate::wal::entry::OFFSET_MAX;

/// DRAM of a table here, approximately: its pointer in a run, and its identity and extent in trees
/// that are two thirds full.
const TABLE_DRAM_BYTES: usize = 8 + (8 + 16) * 3 / 2;
/// DRAM of a value segment here, approximately.
const VALUE_SEGMENT_DRAM_BYTES: usize = (8 + size_of::<ValueUse>() + 16) * 3 / 2;

/// Why a change was refused. The state is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The rule that the change breaks.
    pub(crate) what: &'static str,
    /// The table, range, generation or segment that breaks it.
    pub(crate) id: u64,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.id)
    }
}

fn require(holds: bool, what: &'static str, id: u64) -> Result<(), Refused> {
    if holds { Ok(()) } else { Err(Refused { what, id }) }
}

/// Tables in key order that do not overlap.
pub(crate) type Run = Vec<Arc<TableDescriptor>>;

/// A contiguous part of the key space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RangeState {
    /// Its number.
    pub(crate) id: u64,
    /// Its first key. The range ends at the first key of the next one.
    pub(crate) lower: Key,
    /// Buffer runs, newest first.
    pub(crate) runs: Vec<Run>,
    /// Stable tables.
    pub(crate) stable: Run,
}

impl RangeState {
    /// Returns every table of the range, newest runs first, stable tables last.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableDescriptor>> {
        self.runs.iter().flatten().chain(&self.stable)
    }

    /// Checks Rules 2 and 3, as far as they concern a range that ends at `upper`.
    fn check(&self, upper: Option<&[u8]>) -> Result<(), Refused> {
        for run in self.runs.iter().chain([&self.stable]) {
            check_run(run)?;
        }
        require(self.runs.iter().all(|run| !run.is_empty()), "a run has no tables", self.id)?;
        self.tables().try_for_each(|table| {
            let inside = self.lower <= table.min && upper.is_none_or(|upper| *table.max < *upper);
            require(inside, "a table has keys outside its range", table.identity)
        })
    }
}

fn check_run(run: &[Arc<TableDescriptor>]) -> Result<(), Refused> {
    run.windows(2).try_for_each(|pair| {
        require(pair[0].max < pair[1].min, "tables of a run overlap or are out of order", pair[1].identity)
    })
}

fn check_table(table: &TableDescriptor) -> Result<(), Refused> {
    let is_key = |key: &[u8]| (1..=KEY_MAX).contains(&key.len());
    let keys = is_key(&table.min) && is_key(&table.max) && table.min <= table.max;
    let place = !table.at.is_null() && table.at.tag() == 0 && table.bytes > 0;
    let counts = table.items > 0 && table.tombstones <= table.items;
    require(keys && place && counts, "the description of a table is invalid", table.identity)
}

/// Identities and extents in use, which Rule 2 requires to be unique.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Owned {
    identities: BTreeSet<u64>,
    /// From the extent's first byte to the byte after its last, as raw positions.
    positions: BTreeMap<u64, u64>,
}

impl Owned {
    fn add(&mut self, table: &TableDescriptor) -> Result<(), Refused> {
        check_table(table)?;
        let from = table.at.raw();
        let to = from.saturating_add(table.bytes);
        require(self.is_free(from, to), "the extent of a table also belongs to another owner", table.identity)?;
        require(self.identities.insert(table.identity), "the table already exists", table.identity)?;
        self.positions.insert(from, to);
        Ok(())
    }

    fn is_free(&self, from: u64, to: u64) -> bool {
        self.positions.range(..to).next_back().is_none_or(|(_, end)| *end <= from)
    }

    /// Adds the extent of a value segment.
    fn add_values(&mut self, id: u64, used: &ValueUse) -> Result<(), Refused> {
        let from = used.at.raw();
        let to = from.saturating_add(used.bytes);
        let place = !used.at.is_null() && used.at.tag() == 0 && (1..=OFFSET_MAX).contains(&used.bytes);
        let counts = used.written <= used.bytes && used.dead <= used.bytes;
        require(place && counts, "the description of a value segment is invalid", id)?;
        require(self.is_free(from, to), "the extent of a value segment also belongs to another owner", id)?;
        self.positions.insert(from, to);
        Ok(())
    }

    fn remove_values(&mut self, at: NvPtr) {
        self.positions.remove(&at.raw());
    }

    fn remove(&mut self, table: &TableDescriptor) {
        self.identities.remove(&table.identity);
        self.positions.remove(&table.at.raw());
    }

    /// Adds all tables, or none.
    fn add_all<'a>(&mut self, tables: impl Iterator<Item = &'a Arc<TableDescriptor>> + Clone) -> Result<(), Refused> {
        for (count, table) in tables.clone().enumerate() {
            if let Err(refused) = self.add(table) {
                tables.take(count).for_each(|table| self.remove(table));
                return Err(refused);
            }
        }
        Ok(())
    }
}

/// The contents of the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestState {
    flushed_generation: u64,
    last_sequence: u64,
    ranges: Vec<RangeState>,
    values: BTreeMap<u64, ValueUse>,
    next_value: u64,
    owned: Owned,
}

impl ManifestState {
    /// Returns the state of a new store: one range, number 0, with all keys.
    pub(crate) fn new() -> Self {
        let all = RangeState { id: 0, lower: Key::default(), runs: Vec::new(), stable: Run::new() };
        Self {
            flushed_generation: 0,
            last_sequence: 0,
            ranges: vec![all],
            values: BTreeMap::new(),
            next_value: 0,
            owned: Owned::default(),
        }
    }

    /// Builds the state of these parts. `values` includes the next segment's id.
    ///
    /// # Errors
    /// If the parts break a rule.
    pub(crate) fn from_parts(
        flushed_generation: u64,
        last_sequence: u64,
        ranges: Vec<RangeState>,
        (values, next_value): (BTreeMap<u64, ValueUse>, u64),
    ) -> Result<Self, Refused> {
        let mut owned = Owned::default();
        ranges.iter().flat_map(RangeState::tables).try_for_each(|table| owned.add(table))?;
        let mut ids = BTreeSet::new();
        require(ranges.first().is_some_and(|range| range.lower.is_empty()), "no range has the least keys", 0)?;
        for (index, range) in ranges.iter().enumerate() {
            require(ids.insert(range.id), "a range is listed twice", range.id)?;
            require(range.lower.len() <= KEY_MAX, "the bound of a range is not a key", range.id)?;
            let upper = ranges.get(index + 1).map(|next| &*next.lower);
            require(upper.is_none_or(|upper| *range.lower < *upper), "the ranges are out of order", range.id)?;
            range.check(upper)?;
        }
        for (id, used) in &values {
            require(*id < next_value, "the id of a value segment was never assigned", *id)?;
            owned.add_values(*id, used)?;
        }
        Ok(Self { flushed_generation, last_sequence, ranges, values, next_value, owned })
    }

    /// Returns the newest generation that was flushed. Generations begin at 1.
    pub(crate) fn flushed_generation(&self) -> u64 {
        self.flushed_generation
    }

    /// Returns the greatest sequence number in a table.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Returns the ranges, in key order.
    pub(crate) fn ranges(&self) -> &[RangeState] {
        &self.ranges
    }

    /// Returns the range with this number.
    pub(crate) fn range(&self, id: u64) -> Option<&RangeState> {
        self.ranges.iter().find(|range| range.id == id)
    }

    /// Returns its DRAM, approximately, without table descriptors, which are counted with their
    /// handles.
    pub(crate) fn dram_bytes(&self) -> u64 {
        let ranges: usize = self.ranges.iter().map(|range| size_of::<RangeState>() + range.lower.len()).sum();
        (ranges + self.owned.identities.len() * TABLE_DRAM_BYTES + self.values.len() * VALUE_SEGMENT_DRAM_BYTES) as u64
    }

    /// Returns the value segments.
    pub(crate) fn values(&self) -> &BTreeMap<u64, ValueUse> {
        &self.values
    }

    /// Returns the id of the next value segment. All ids assigned before are lower.
    pub(crate) fn next_value(&self) -> u64 {
        self.next_value
    }

    /// Applies the change, or leaves the state unchanged.
    ///
    /// # Errors
    /// If the change would break a rule, or names something that does not exist.
    pub(crate) fn apply(&mut self, edit: &Edit) -> Result<(), Refused> {
        match edit {
            Edit::Flush { generation, last_sequence, added, values } => {
                self.flush(*generation, *last_sequence, added)?;
                self.note_values(values);
                Ok(())
            }
            Edit::Compaction { range_id, removed, added, moved, values } => {
                self.compact(*range_id, removed, added, moved)?;
                self.note_values(values);
                Ok(())
            }
            Edit::SplitRange { range_id, at, new_id } => self.split(*range_id, at, *new_id),
            Edit::JoinRanges { range_id, next_id } => self.join(*range_id, *next_id),
            Edit::Values { begun, ended } => self.change_values(begun, ended),
        }
    }

    /// Applies changes of value segments. An impossible count is clamped: counts only decide which
    /// segments are worth a collection.
    pub(crate) fn note_values(&mut self, values: &[ValueChange]) {
        for change in values {
            if let Some(used) = self.values.get_mut(&change.id) {
                used.written = used.written.max(change.written).min(used.bytes);
                used.dead = used.dead.saturating_add(change.dead).min(used.bytes);
                used.sealed |= change.sealed;
            }
        }
    }

    fn index_of(&self, id: u64) -> Result<usize, Refused> {
        let found = self.ranges.iter().position(|range| range.id == id);
        found.ok_or(Refused { what: "the range does not exist", id })
    }

    fn upper_of(&self, index: usize) -> Option<&[u8]> {
        self.ranges.get(index + 1).map(|next| &*next.lower)
    }

    fn flush(
        &mut self,
        generation: u64,
        last_sequence: u64,
        added: &[(u64, Arc<TableDescriptor>)],
    ) -> Result<(), Refused> {
        require(generation > self.flushed_generation, "the generation was already flushed", generation)?;
        require(last_sequence >= self.last_sequence, "the sequence numbers decrease", last_sequence)?;
        let mut fresh: BTreeMap<u64, RangeState> = BTreeMap::new();
        for (id, table) in added {
            let index = self.index_of(*id)?;
            let lower = || self.ranges[index].lower.clone();
            let range = fresh.entry(index as u64).or_insert_with(|| RangeState {
                id: *id,
                lower: lower(),
                runs: vec![Run::new()],
                stable: Run::new(),
            });
            range.runs[0].push(Arc::clone(table));
        }
        for (index, range) in &fresh {
            range.check(self.upper_of(*index as usize))?;
        }
        self.owned.add_all(added.iter().map(|(_, table)| table))?;
        for (index, mut range) in fresh {
            self.ranges[index as usize].runs.splice(0..0, range.runs.drain(..));
        }
        (self.flushed_generation, self.last_sequence) = (generation, last_sequence);
        Ok(())
    }

    fn compact(
        &mut self,
        range_id: u64,
        removed: &[u64],
        added: &[Arc<TableDescriptor>],
        moved: &[u64],
    ) -> Result<(), Refused> {
        let index = self.index_of(range_id)?;
        let range = &self.ranges[index];
        let leaving: BTreeSet<u64> = removed.iter().chain(moved).copied().collect();
        require(leaving.len() == removed.len() + moved.len(), "a table is named twice", range_id)?;
        let leaves = |table: &Arc<TableDescriptor>| leaving.contains(&table.identity);
        let gone: Vec<_> = range.tables().filter(|table| leaves(table)).cloned().collect();
        require(gone.len() == leaving.len(), "a named table is not in the range", range_id)?;
        let moving: BTreeSet<u64> = moved.iter().copied().collect();
        let is_moving = |table: &&Arc<TableDescriptor>| moving.contains(&table.identity);
        require(!range.stable.iter().any(|table| is_moving(&table)), "a table to move is already stable", range_id)?;
        check_nothing_older_stays(range, &leaving)?;

        let mut changed = RangeState { id: range_id, lower: range.lower.clone(), runs: Vec::new(), stable: Run::new() };
        for run in &range.runs {
            let rest: Run = run.iter().filter(|table| !leaves(table)).cloned().collect();
            changed.runs.extend((!rest.is_empty()).then_some(rest));
        }
        changed.stable = range.stable.iter().filter(|table| !leaves(table)).chain(added).cloned().collect();
        changed.stable.extend(gone.iter().filter(is_moving).cloned());
        changed.stable.sort_by(|a, b| a.min.cmp(&b.min));
        changed.check(self.upper_of(index))?;
        self.owned.add_all(added.iter())?;
        gone.iter().filter(|table| !is_moving(table)).for_each(|table| self.owned.remove(table));
        self.ranges[index] = changed;
        Ok(())
    }

    fn split(&mut self, range_id: u64, at: &[u8], new_id: u64) -> Result<(), Refused> {
        let index = self.index_of(range_id)?;
        let range = &self.ranges[index];
        let inside = *range.lower < *at && self.upper_of(index).is_none_or(|upper| at < upper) && at.len() <= KEY_MAX;
        require(inside, "the split key is outside the range", range_id)?;
        require(self.range(new_id).is_none(), "a range with this number already exists", new_id)?;
        let part = |run: &Run, high: bool| -> Run {
            run.iter().filter(|table| (*table.min >= *at) == high).cloned().collect()
        };
        let half = |id: u64, lower: Key, high: bool| RangeState {
            id,
            lower,
            runs: range.runs.iter().map(|run| part(run, high)).filter(|run| !run.is_empty()).collect(),
            stable: part(&range.stable, high),
        };
        let low = half(range_id, range.lower.clone(), false);
        low.check(Some(at))?;
        let high = half(new_id, at.into(), true);
        self.ranges.splice(index..=index, [low, high]);
        Ok(())
    }

    /// The ranges share no key, so their runs are combined pairwise by age, regardless of their
    /// memtables.
    fn join(&mut self, range_id: u64, next_id: u64) -> Result<(), Refused> {
        let index = self.index_of(range_id)?;
        let next = self.ranges.get(index + 1).filter(|next| next.id == next_id);
        require(next.is_some(), "the joined ranges are not adjacent", range_id)?;
        let next = self.ranges.remove(index + 1);
        let range = &mut self.ranges[index];
        range.runs.resize(range.runs.len().max(next.runs.len()), Run::new());
        range.runs.iter_mut().zip(next.runs).for_each(|(run, more)| run.extend(more));
        range.stable.extend(next.stable);
        Ok(())
    }

    fn change_values(&mut self, begun: &[ValueExtent], ended: &[u64]) -> Result<(), Refused> {
        let gone: BTreeSet<u64> = ended.iter().copied().collect();
        require(gone.len() == ended.len(), "the value segment already ended", 0)?;
        let missing = gone.iter().find(|id| !self.values.contains_key(id));
        require(missing.is_none(), "the value segment does not exist", missing.copied().unwrap_or(0))?;
        let mut next = self.next_value;
        for (count, fresh) in begun.iter().enumerate() {
            let given = require(
                (next..u64::MAX).contains(&fresh.id),
                "the id of the value segment was already assigned",
                fresh.id,
            );
            if let Err(refused) = given.and_then(|()| self.owned.add_values(fresh.id, &used_of(fresh))) {
                begun[..count].iter().for_each(|fresh| self.owned.remove_values(fresh.at));
                return Err(refused);
            }
            next = fresh.id + 1;
        }
        for used in gone.iter().filter_map(|id| self.values.remove(id)) {
            self.owned.remove_values(used.at);
        }
        self.values.extend(begun.iter().map(|fresh| (fresh.id, used_of(fresh))));
        self.next_value = next;
        Ok(())
    }
}

fn used_of(fresh: &ValueExtent) -> ValueUse {
    ValueUse { at: fresh.at, bytes: fresh.bytes, written: 0, dead: 0, sealed: false }
}

/// Checks Rule 5: an older table that stayed in a run would hide newer keys that became stable.
fn check_nothing_older_stays(range: &RangeState, leaving: &BTreeSet<u64>) -> Result<(), Refused> {
    let leaves = |table: &TableDescriptor| leaving.contains(&table.identity);
    for (age, run) in range.runs.iter().enumerate() {
        for table in run.iter().filter(|table| leaves(table)) {
            let mut older = range.runs[age + 1..].iter().flatten();
            let hides = older.any(|older| !leaves(older) && older.overlaps(table));
            require(!hides, "an older table would hide a table that becomes stable", table.identity)?;
        }
    }
    Ok(())
}
