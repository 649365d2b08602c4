//! Changes of the store's shape: manifest first, then the view.
//!
//! Persist order of a change: the tables that it adds, **fence**, by who made them; its record in the manifest, **fence: it has happened**;
//! then the view; then what it removed is let go. When the manifest's extent is full the whole state goes into a new one: header
//! and checkpoint, **fence**; the root word, **fence**; the old extent is freed.
//!
//! Invariants
//! 1. Changes are made one after the other, under the publisher's lock, which is held over no wait for writers or other changes.
//! 2. `state` is what the manifest's records come to; the ranges of the view are made from it.
//! 3. The active memtable changes under the same lock, without a record: logs are found by their kind (`recover.rs`).
//! 4. A range is split or joined by who holds it (`migrate.rs`) and by nobody else: what a compaction was made from is there when its record is written.
//! 5. Whatever changed is shown: a view is published behind each record, also where what was to follow it failed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use lodestore_contract::{Error, Result};
use lodestore_media::{Mutant, NvPtr, Pool};

use crate::layout::{KIND_MANIFEST, publish_manifest};
use crate::manifest::record::{EXTENT_HEADER, encode, encode_checkpoint, encode_extent_header};
use crate::manifest::state::{ManifestState, RangeState};
use crate::manifest::{Edit, Key};
use crate::memtable::Memtable;
use crate::reserve::Reserve;
use crate::tables::{Sorted, TableHandle};
use crate::value_log::segment::Hold;
use crate::view::{Range, Ranges, View};

/// Smallest extent of a manifest.
const EXTENT_MIN: u64 = 4 << 10;
/// A manifest's extent has room for its checkpoint this many times.
const ROOM: u64 = 4;
/// Places for each handle from which their table is cut.
const SPARSE: usize = 8;

/// The one who changes the store's shape. See the module.
pub(crate) struct Publisher {
    pub(crate) state: ManifestState,
    handles: HashMap<u64, Arc<TableHandle>>,
    ranges: Vec<Arc<Range>>,
    reserve: Arc<Reserve>,
    /// What new views hold of the value log.
    pub(crate) hold: Arc<Hold>,
    extent: NvPtr,
    capacity: u64,
    nonce: u64,
    end: u64,
    next_number: u64,
    next_range: u64,
    /// Views that others took the place of, while somebody may still hold them.
    past: Vec<Weak<View>>,
    /// How many of them have gone.
    gone: u64,
}

impl Publisher {
    /// One for this state, whose tables are open; it writes a checkpoint into a new extent.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Poisoned`].
    pub(crate) fn new(
        pool: &Pool,
        reserve: &Arc<Reserve>,
        state: ManifestState,
        handles: Vec<Arc<TableHandle>>,
        hold: Arc<Hold>,
        nonce: u64,
    ) -> Result<Self> {
        let handles: HashMap<u64, _> = handles.into_iter().map(|table| (table.descriptor.identity, table)).collect();
        let next_range = state.ranges().iter().map(|range| range.id).max().unwrap_or(0) + 1;
        let mut this = Self {
            state,
            handles,
            ranges: Vec::new(),
            reserve: Arc::clone(reserve),
            hold,
            extent: NvPtr::NULL,
            capacity: 0,
            nonce,
            end: 0,
            next_number: 1,
            next_range,
            past: Vec::new(),
            gone: 0,
        };
        this.ranges = this.state.ranges().iter().map(|range| this.range_of(range, Vec::new())).collect();
        this.checkpoint(pool, 0)?;
        this.note_needs(pool);
        Ok(this)
    }

    /// The manifest's extent.
    pub(crate) fn extent(&self) -> NvPtr {
        self.extent
    }

    /// The ranges as they are now.
    pub(crate) fn ranges(&self) -> Arc<Ranges> {
        Arc::new(Ranges::new(self.ranges.clone()))
    }

    fn range_of(&self, range: &RangeState, cuts: Vec<Key>) -> Arc<Range> {
        let handles = |run: &Vec<Arc<_>>| {
            let of = |table: &Arc<crate::manifest::TableDescriptor>| {
                Arc::clone(self.handles.get(&table.identity).expect("every table of the state is open"))
            };
            Sorted::new(run.iter().map(of).collect())
        };
        Arc::new(Range {
            id: range.id,
            lower: range.lower.clone(),
            runs: range.runs.iter().map(handles).collect(),
            stable: handles(&range.stable),
            cuts,
            crowd: OnceLock::new(),
        })
    }

    /// Makes a change happen: durable when this returns. `fresh` are the handles of the tables it adds. The caller publishes a view.
    ///
    /// # Errors
    /// [`Error::Full`]; nothing is changed then. [`Error::Poisoned`]: `state` may have the change, which may turn out to be there after a crash;
    /// nothing is published from it any more. [`Error::Corrupt`] where the state refuses the change.
    pub(crate) fn apply(&mut self, pool: &Pool, edit: &Edit, fresh: Vec<Arc<TableHandle>>) -> Result<()> {
        // A state that may have more than the manifest would refuse what is right.
        pool.check()?;
        let len = encode(edit, self.nonce, self.next_number).len() as u64;
        if self.end + len > self.capacity {
            self.checkpoint(pool, len)?;
        }
        self.state
            .apply(edit)
            .map_err(|refused| Error::corrupt("manifest", format!("a change is refused: {refused}")))?;
        if pool.mutant(Mutant::TableFreedEarly) {
            self.free_removed(pool, edit);
        }
        pool.store_durable(self.extent.add(self.end), &[&encode(edit, self.nonce, self.next_number)]);
        if !pool.mutant(Mutant::EditNotFenced) {
            pool.fence();
        }
        pool.check()?;
        (self.end, self.next_number) = (self.end + len, self.next_number + 1);
        self.handles.extend(fresh.into_iter().map(|table| (table.descriptor.identity, table)));
        self.take_in(edit);
        self.note_needs(pool);
        Ok(())
    }

    /// Tells the reserve what a compaction and the next checkpoint may take.
    fn note_needs(&self, pool: &Pool) {
        let largest = self.ranges.iter().map(|range| range.bytes()).max();
        self.reserve.note_ranges(pool, largest.unwrap_or(0), self.ranges.len());
        // A state is not longer than the records that came to it, and one more may come.
        self.reserve.note_manifest((self.end + self.end / 8).next_power_of_two());
    }

    /// Whether a range still has all these tables: not where it was split under who merges them.
    pub(crate) fn has_tables<'a>(&self, range_id: u64, mut identities: impl Iterator<Item = &'a u64>) -> bool {
        let range = self.state.range(range_id);
        let there: HashSet<u64> = range.iter().flat_map(|range| range.tables()).map(|table| table.identity).collect();
        identities.all(|identity| there.contains(identity))
    }

    /// For a planted fault.
    fn free_removed(&self, pool: &Pool, edit: &Edit) {
        let Edit::Compaction { removed, .. } = edit else { return };
        for table in removed.iter().filter_map(|identity| self.handles.get(identity)) {
            pool.zero(table.descriptor.at, table.descriptor.bytes as usize);
            pool.flush(table.descriptor.at, table.descriptor.bytes as usize);
            pool.fence();
        }
    }

    /// Brings handles and ranges up to the state, behind an edit.
    fn take_in(&mut self, edit: &Edit) {
        if matches!(edit, Edit::Values { .. }) {
            return;
        }
        if let Edit::Compaction { removed, .. } = edit {
            for identity in removed {
                if let Some(table) = self.handles.remove(identity) {
                    table.set_gone();
                }
            }
            if self.handles.capacity() > SPARSE * self.handles.len() {
                self.handles.shrink_to(2 * self.handles.len());
            }
        }
        let touched: Vec<u64> = match edit {
            Edit::Flush { added, .. } => added.iter().map(|(range, _)| *range).collect(),
            Edit::Compaction { range_id, .. } => vec![*range_id],
            Edit::SplitRange { range_id, new_id, .. } => vec![*range_id, *new_id],
            Edit::JoinRanges { range_id, .. } => vec![*range_id],
            Edit::Values { .. } => Vec::new(),
        };
        let mut before: HashMap<u64, Arc<Range>> = self.ranges.drain(..).map(|range| (range.id, range)).collect();
        self.ranges = Vec::with_capacity(self.state.ranges().len());
        for range in self.state.ranges() {
            let old = before.remove(&range.id);
            let made = match old {
                Some(old) if !touched.contains(&range.id) => old,
                old => self.range_of(range, old.map_or_else(Vec::new, |old| old.cuts.clone())),
            };
            self.ranges.push(made);
        }
    }

    /// Sets where a range is to be split.
    pub(crate) fn set_cuts(&mut self, range_id: u64, cuts: Vec<Key>) {
        let Some(index) = self.ranges.iter().position(|range| range.id == range_id) else { return };
        let Some(state) = self.state.range(range_id) else { return };
        self.ranges[index] = self.range_of(state, cuts);
    }

    /// The ranges that are to be split.
    pub(crate) fn to_split(&self) -> impl Iterator<Item = u64> {
        self.ranges.iter().filter(|range| !range.cuts.is_empty()).map(|range| range.id)
    }

    /// Splits those of `held`, the ranges that the caller may change, at their cuts where no table reaches across; how many splits were made before the
    /// first that failed. Cuts that the state refuses are forgotten: the next compaction says anew where they are to be.
    ///
    /// # Errors
    /// As [`Self::apply`], beside the splits that were made.
    pub(crate) fn split_ranges(&mut self, pool: &Pool, mut held: Vec<u64>) -> (usize, Result<()>) {
        let mut made = 0;
        while let Some((range_id, at, rest)) = self.next_split(&held) {
            let new_id = self.next_range;
            self.next_range += 1;
            match self.apply(pool, &Edit::SplitRange { range_id, at, new_id }, Vec::new()) {
                Ok(()) => {
                    self.set_cuts(new_id, rest);
                    // No view has it yet.
                    held.push(new_id);
                    made += 1;
                }
                Err(Error::Corrupt { .. }) => {}
                Err(error) => return (made, Err(error)),
            }
            self.set_cuts(range_id, Vec::new());
        }
        (made, Ok(()))
    }

    /// A range of these that can be split at its first cut, and the cuts behind it.
    fn next_split(&self, held: &[u64]) -> Option<(u64, Key, Vec<Key>)> {
        self.ranges.iter().filter(|range| held.contains(&range.id)).find_map(|range| {
            let (first, rest) = range.cuts.split_first()?;
            let crosses =
                |table: &Arc<TableHandle>| *table.descriptor.min < **first && *table.descriptor.max >= **first;
            let whole = !range.sorted().flat_map(|sorted| &sorted.tables).any(crosses);
            whole.then(|| (range.id, first.clone(), rest.to_vec()))
        })
    }

    /// Joins a range with the one behind it, if both are as small as [`Range::may_join`] says; whether they were.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub(crate) fn join_ranges(&mut self, pool: &Pool, (range_id, next_id): (u64, u64), full: u64) -> Result<bool> {
        let joins =
            |pair: &[Arc<Range>]| (pair[0].id, pair[1].id) == (range_id, next_id) && pair[0].may_join(&pair[1], full);
        if !self.ranges.windows(2).any(joins) {
            return Ok(false);
        }
        self.apply(pool, &Edit::JoinRanges { range_id, next_id }, Vec::new())?;
        Ok(true)
    }

    /// Writes the whole state into a new extent, with room for a record of this length, and makes it the manifest.
    fn checkpoint(&mut self, pool: &Pool, room: u64) -> Result<()> {
        let nonce = self.nonce.wrapping_add(1);
        let bytes = encode_checkpoint(&self.state, nonce, self.next_number);
        let least = (EXTENT_HEADER + bytes.len()) as u64 + room;
        let wanted = (least + bytes.len() as u64 * (ROOM - 1)).max(EXTENT_MIN);
        let (at, capacity) = self.extent_of(pool, wanted).or_else(|_| self.extent_of(pool, least))?;
        if pool.mutant(Mutant::RootEarly) {
            publish_manifest(pool, at, capacity);
            pool.fence();
        }
        pool.store_durable(at, &[&encode_extent_header(nonce), &bytes]);
        if !pool.mutant(Mutant::ManifestNotFenced) {
            pool.fence();
        }
        pool.check()?;
        publish_manifest(pool, at, capacity);
        pool.fence();
        pool.check()?;
        let old = std::mem::replace(&mut self.extent, at);
        if !old.is_null() {
            pool.allocator().free_extent(pool, old);
        }
        (self.capacity, self.nonce) = (capacity, nonce);
        (self.end, self.next_number) = (EXTENT_HEADER as u64 + bytes.len() as u64, self.next_number + 1);
        Ok(())
    }

    /// An extent for a manifest of at least these bytes, and its own.
    fn extent_of(&self, pool: &Pool, bytes: u64) -> Result<(NvPtr, u64)> {
        let capacity = bytes.max(u64::from(pool.options().chunk_bytes)).next_power_of_two();
        Ok((self.reserve.alloc(pool, capacity, KIND_MANIFEST)?, capacity))
    }

    /// How many views that are past somebody still holds, and how many have gone since the open: what the first alone name is not free yet.
    pub(crate) fn past_views(&mut self) -> (usize, u64) {
        let before = self.past.len();
        self.past.retain(|view| view.strong_count() > 0);
        self.gone += (before - self.past.len()) as u64;
        (self.past.len(), self.gone)
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        (self.handles.capacity() * 24 + self.ranges.capacity() * 8) as u64 + self.state.dram_bytes()
    }
}

/// Publishes a view with these memtables and the publisher's ranges; with the publisher's lock held.
pub(crate) fn publish(
    view: &ArcSwap<View>,
    publisher: &mut Publisher,
    active: Arc<Memtable>,
    frozen: Vec<Arc<Memtable>>,
) {
    let hold = Arc::clone(&publisher.hold);
    let old = view.swap(Arc::new(View { active, frozen, ranges: publisher.ranges(), hold }));
    publisher.past_views();
    publisher.past.push(Arc::downgrade(&old));
}
