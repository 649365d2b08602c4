//! Salvage of a store whose manifest is damaged. Such a store can be read and exported. Nothing is
//! written to it, since the owners of its extents are not known.
//!
//! The state is the sum of the manifest's whole records (`version/manifest/salvage.rs`), restricted
//! to tables that the extents confirm. Then tables that no record names are added: their headers
//! have their identities and keys. Nothing says how old they are. Identities do not: a compaction
//! concurrent with a flush may have the higher ones with older data. Only tables that overlap no
//! other table are therefore added: then the order does not matter. All other tables are left out,
//! counted and reported.
//!
//! Logs hide all tables. Logs of the newest generations without a gap are replayed, and none that
//! was flushed: an older log that a snapshot kept may be older than a table.
//!
//! Reads return data that the store once had, which may be outdated: replaced or deleted entries
//! may be back.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use lodestore_contract::{Error, Result};
use lodestore_media::{NvPtr, Pool};

use crate::layout::{KIND_LOG, KIND_TABLE, KIND_VALUES, manifest};
use crate::sst::TableMeta;
use crate::values::ValueUse;
use crate::values::record::{SEGMENT_HEADER_BYTES as VALUE_HEADER, find_segment};
use crate::version::manifest::TableDescriptor;
use crate::version::manifest::chain::Chain;
use crate::version::manifest::salvage::{Kept, salvage};
use crate::version::manifest::state::{ManifestState, RangeState, Run};
use crate::wal::segment::SegmentHeader;

/// The kept state, and counts of the rest.
pub(super) struct Salvaged {
    pub(super) state: ManifestState,
    pub(super) damage: Error,
    /// Number of things that were left out.
    pub(super) corrupt: u64,
    /// Number of table items among them.
    pub(super) items: u64,
}

/// Counts of tables and items that are left out.
#[derive(Default)]
struct LeftOut {
    tables: u64,
    items: u64,
}

impl LeftOut {
    fn add(&mut self, table: &TableDescriptor) {
        self.tables += 1;
        self.items += table.items;
    }
}

/// Returns the rest of a store whose manifest cannot be read as a whole because of `why`.
///
/// # Errors
/// [`Error::NewerFormat`]; `why` if even the rest is not a valid state.
pub(super) fn salvage_state(pool: &Pool, why: &Error) -> Result<Salvaged> {
    let kept = records(pool)?;
    let whole = kept.is_some();
    let kept = kept.unwrap_or_else(|| Kept {
        state: ManifestState::new(),
        flushed: 0,
        last_sequence: 0,
        damaged: 1,
        refused: 0,
    });
    let mut left = LeftOut::default();
    let mut ranges: Vec<_> =
        kept.state.ranges().iter().map(|range| without_missing_tables(pool, range, &mut left)).collect();
    let found = add_separate_tables(unnamed_tables(pool, &ranges), &mut ranges, &mut left);
    let (values, next) = value_segments(pool, &kept.state);
    let flushed = kept.flushed.max(before_newest_logs(pool));
    let state = ManifestState::from_parts(flushed, kept.last_sequence, ranges, (values, next));
    let (place, what) = text_of(why);
    let state = state.map_err(|refused| Error::corrupt(place.clone(), format!("{what}; salvage: {refused}")))?;
    let begins = if whole { "" } else { "no record was readable, " };
    let what = format!(
        "{what}: {begins}{} damaged records, {} records that depend on them, and {} tables with {} items were left \
         out; {found} tables that the manifest does not name were added. Replaced or deleted pairs may be visible \
         again",
        kept.damaged, kept.refused, left.tables, left.items
    );
    let corrupt = kept.damaged + kept.refused + left.tables;
    Ok(Salvaged { state, damage: Error::corrupt(place, what), corrupt, items: left.items })
}

fn text_of(why: &Error) -> (String, String) {
    match why {
        Error::Corrupt { place, what, .. } => (place.clone(), what.clone()),
        other => ("manifest".into(), other.to_string()),
    }
}

/// Returns the state that the whole records of the manifest add up to.
fn records(pool: &Pool) -> Result<Option<Kept>> {
    let records = Chain::salvage(pool, manifest(pool).ok())?;
    Ok(records.and_then(|(nonce, records)| salvage(&records, nonce)))
}

/// Returns the range without its missing tables: a lost record may have replaced them, and their
/// space may be reused.
fn without_missing_tables(pool: &Pool, range: &RangeState, left: &mut LeftOut) -> RangeState {
    let mut there = |run: &Run| -> Run {
        let (there, missing) = run.iter().cloned().partition(|table| is_table_whole(pool, table));
        let missing: Run = missing;
        missing.iter().for_each(|table| left.add(table));
        there
    };
    let runs: Vec<_> = range.runs.iter().map(&mut there).filter(|run| !run.is_empty()).collect();
    RangeState { id: range.id, lower: range.lower.clone(), runs, stable: there(&range.stable) }
}

fn is_table_whole(pool: &Pool, table: &TableDescriptor) -> bool {
    let bytes = usize::try_from(table.bytes).ok().and_then(|len| pool.bytes(table.at, len));
    pool.allocator().holds_extent(pool, table.at, table.bytes, KIND_TABLE)
        && bytes.is_some_and(|bytes| TableMeta::open(bytes, table.identity).is_ok())
}

/// Returns whole tables that these ranges do not name.
fn unnamed_tables(pool: &Pool, ranges: &[RangeState]) -> Vec<Arc<TableDescriptor>> {
    let named: HashSet<u64> = ranges.iter().flat_map(RangeState::tables).map(|table| table.at.raw()).collect();
    let extents = pool.allocator().extents_of(pool, KIND_TABLE);
    let unnamed = extents.into_iter().filter(|at| !named.contains(&at.raw()));
    unnamed.filter_map(|at| describe(pool, at).map(Arc::new)).collect()
}

fn describe(pool: &Pool, at: NvPtr) -> Option<TableDescriptor> {
    let len = TableMeta::len_of(pool.bytes(at, VALUE_HEADER as usize)?)?;
    let bytes = pool.bytes(at, len).filter(|_| pool.allocator().holds_extent(pool, at, len as u64, KIND_TABLE))?;
    let meta = TableMeta::find(bytes)?;
    let (min, max) = meta.table(bytes).ok()?.keys().ok()?;
    let [items, tombstones, pointers] = meta.counts();
    let (min, max, identity) = (min.into(), max.into(), meta.identity());
    // Only whether there are pointers matters here, not their bytes.
    Some(TableDescriptor { at, bytes: len as u64, identity, items, tombstones, pointer_bytes: pointers, min, max })
}

/// Adds the tables that overlap no other one and are within one range. Returns their number.
fn add_separate_tables(unnamed: Vec<Arc<TableDescriptor>>, ranges: &mut [RangeState], left: &mut LeftOut) -> u64 {
    let named: Run = ranges.iter().flat_map(RangeState::tables).cloned().collect();
    let identities: HashSet<u64> = named.iter().map(|table| table.identity).collect();
    let mut all: Vec<_> = named.into_iter().map(|table| (table, true)).collect();
    all.extend(unnamed.into_iter().map(|table| (table, false)));
    all.sort_by(|(a, _), (b, _)| a.min.cmp(&b.min));
    let alone = overlap_none(&all);
    let (mut found, mut taken) = (0, BTreeSet::new());
    for ((table, is_named), alone) in all.iter().zip(alone) {
        if *is_named {
            continue;
        }
        let index = ranges.partition_point(|range| range.lower <= table.min).saturating_sub(1);
        let upper = ranges.get(index + 1).map(|next| next.lower.clone());
        let inside = upper.is_none_or(|upper| table.max < upper) && table.min <= table.max;
        let new = !identities.contains(&table.identity) && taken.insert(table.identity);
        if alone && inside && new {
            let stable = &mut ranges[index].stable;
            let at = stable.partition_point(|other| other.min < table.min);
            stable.insert(at, Arc::clone(table));
            found += 1;
        } else {
            left.add(table);
        }
    }
    found
}

/// Returns which of these, in the order of their smallest keys, overlap no other.
fn overlap_none(all: &[(Arc<TableDescriptor>, bool)]) -> Vec<bool> {
    let mut alone = vec![true; all.len()];
    // The table before this one that reaches furthest.
    let mut furthest: Option<usize> = None;
    for (index, (table, _)) in all.iter().enumerate() {
        if let Some(before) = furthest.filter(|before| all[*before].0.max >= table.min) {
            (alone[before], alone[index]) = (false, false);
        }
        if furthest.is_none_or(|before| all[before].0.max < table.max) {
            furthest = Some(index);
        }
    }
    alone
}

/// Returns the value segments by their own headers, merged with the state's entries, and an id
/// above all of them.
fn value_segments(pool: &Pool, state: &ManifestState) -> (BTreeMap<u64, ValueUse>, u64) {
    let mut values = BTreeMap::new();
    let by_place: BTreeMap<u64, (u64, ValueUse)> =
        state.values().iter().map(|(id, used)| (used.at.raw(), (*id, *used))).collect();
    for at in pool.allocator().extents_of(pool, KIND_VALUES) {
        let named = by_place.get(&at.raw()).copied();
        let header = pool.bytes(at, VALUE_HEADER as usize).and_then(find_segment);
        let held = |bytes: u64| pool.allocator().holds_extent(pool, at, bytes, KIND_VALUES);
        let (id, used) = match (header, named) {
            (None, Some(named)) => named,
            (Some((id, _)), Some(named)) if u64::from(id) == named.0 => named,
            (Some((id, bytes)), _) => (id.into(), ValueUse { at, bytes, written: 0, dead: 0, sealed: false }),
            (None, None) => continue,
        };
        if held(used.bytes) {
            values.insert(id, used);
        }
    }
    let next = values.last_key_value().map_or(0, |(id, _)| id + 1);
    (values, next.max(state.next_value()))
}

/// Returns the generation before the newest generations that have logs without a gap.
fn before_newest_logs(pool: &Pool) -> u64 {
    let mut generations = BTreeSet::new();
    for (at, extent) in pool.allocator().extents_with_bytes(pool, KIND_LOG) {
        let bytes = usize::try_from(extent).ok().and_then(|len| pool.bytes(at, len)).unwrap_or_default();
        if let Ok(Some(found)) = SegmentHeader::decode(bytes) {
            generations.insert(found.header.generation);
        }
    }
    let Some(newest) = generations.last().copied() else { return 0 };
    let mut oldest = newest;
    while oldest > 0 && generations.contains(&(oldest - 1)) {
        oldest -= 1;
    }
    oldest.saturating_sub(1)
}
