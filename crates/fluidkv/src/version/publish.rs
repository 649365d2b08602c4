//! Changes of the store's shape: first the manifest, then the view.
//!
//! Persist order of a change: the tables that it adds, **fence**, by their writer; its manifest
//! record, **fence: the change has happened**; after a flush, the mark of the manifest's reach,
//! **fence** (`layout.rs`); then the view; then the removed extents are freed. A new chain of
//! extents replaces the old one when the records reach [`REWRITE_FACTOR`] times the state, or 1.5
//! times where space is scarce. Its order: headers, **fence**; links and checkpoint, **fence**; the
//! root word, **fence**; the old chain is freed. Each open does the same. If there is no space for
//! the new chain, the old one goes on.
//!
//! Invariants
//! 1. Changes are serial, under the publisher's lock. The lock is never held while waiting for
//!    writers or other changes.
//! 2. `state` is the sum of the manifest's records, plus the value segments known only to the open,
//!    which the next flush records. The ranges of the view are built from it.
//! 3. The active memtable changes under the same lock, without a record: recovery finds logs by
//!    their kind (`db/recover.rs`).
//! 4. Only the holder of a range splits or joins it (`background/mod.rs`). The inputs of a
//!    compaction therefore exist when its record is written.
//! 5. Every change becomes visible: a view is published after each record, even if a later step
//!    failed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use lodestore_contract::{Error, Result};
use lodestore_media::{NvPtr, Pool};

use crate::layout::{Reach, publish_manifest, store_reach};
use crate::memtable::Memtable;
use crate::planted;
use crate::space::reserve::Reserve;
use crate::values::segment::Hold;
use crate::version::manifest::chain::{Chain, Read};
use crate::version::manifest::record::{checkpoint_bytes, encode, encode_checkpoint, range_bytes};
use crate::version::manifest::state::{ManifestState, RangeState};
use crate::version::manifest::{Edit, Key};
use crate::version::range::{Range, Ranges};
use crate::version::tables::{Sorted, TableHandle};
use crate::version::view::View;

/// The manifest is rewritten when its records reach this many times the bytes of its checkpoint,
/// and at least `RECORDS_MIN`.
const REWRITE_FACTOR: u64 = 4;
const RECORDS_MIN: u64 = 4 << 10;
/// After `Error::Full`, retry the rewrite once the records grew by another 1/8.
const RETRY_GROWTH_DIVISOR: u64 = 8;
/// Where space is scarce, rewrite once the records exceed the checkpoint by another 1/2.
const SCARCE_GROWTH_DIVISOR: u64 = 2;
/// Approximate cost of one more range in chunks, for the reserve of a full store.
const SPLIT_COST_CHUNKS: u64 = 4;
/// Minimum chunks of each half of a range that is split although one more range does not fit.
const SPLIT_HALF_CHUNKS: u64 = 8;
/// Chain headers need at most this share of the bytes that follow them.
const HEADERS_DIVISOR: u64 = 8;
/// Shrinks the table of handles when it has this many slots per handle.
const SHRINK_SLOTS_FACTOR: usize = 8;

/// Changes the store's shape. See the module.
pub(crate) struct Publisher {
    pub(crate) state: ManifestState,
    handles: HashMap<u64, Arc<TableHandle>>,
    ranges: Vec<Arc<Range>>,
    reserve: Arc<Reserve>,
    /// Keeps the parts of the value log that new views point to.
    pub(crate) hold: Arc<Hold>,
    chain: Chain,
    /// Bytes of the chain's first checkpoint.
    checkpoint: u64,
    /// Bytes of the records at the last failure to fit a new chain; 0 if none failed.
    failed_rewrite_at: u64,
    nonce: u64,
    /// Whether the chain is from an earlier open.
    is_continued: bool,
    next_number: u64,
    next_range: u64,
    /// Replaced views that readers may still hold.
    past_views: Vec<Weak<View>>,
}

impl Publisher {
    /// Creates a publisher for this state, whose tables are open, and writes a checkpoint into a
    /// new extent.
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
        let mut this = Self::read_only(reserve, state, handles, hold, nonce);
        this.checkpoint(pool)?;
        this.update_reserve(pool);
        Ok(this)
    }

    /// Like [`Self::new`], for a state that was read from `old`, which is freed. If the checkpoint
    /// does not fit, `old` stays in use, provided that its records are whole.
    ///
    /// # Errors
    /// Those of [`Self::new`]. [`Error::Full`] leaves everything unchanged.
    pub(crate) fn continued(
        pool: &Pool,
        reserve: &Arc<Reserve>,
        (state, old): (ManifestState, Read),
        handles: Vec<Arc<TableHandle>>,
        hold: Arc<Hold>,
        nonce: u64,
    ) -> Result<Self> {
        let mut this = Self::read_only(reserve, state, handles, hold, nonce);
        let is_kept = pool.has_fault(planted::MANIFEST_KEPT) || pool.has_fault(planted::MANIFEST_NOT_WIPED);
        let full = || Error::Full { needed: 0, capacity: pool.options().capacity };
        let made = if is_kept && old.ends.is_some() { Err(full()) } else { this.checkpoint(pool) };
        match (made, old.ends) {
            (Ok(()), _) => old.chain.free_extents(pool),
            (Err(Error::Full { .. }), Some(ends)) => {
                this.chain = old.chain;
                this.chain.continue_at(pool, ends.end)?;
                (this.checkpoint, this.next_number, this.is_continued) = (ends.checkpoint, ends.next_number, true);
            }
            (Err(error), _) => return Err(error),
        }
        this.update_reserve(pool);
        Ok(this)
    }

    /// Returns whether the manifest is still from an earlier open, its number of extents, and the
    /// bytes of its records.
    pub(crate) fn manifest(&self) -> (bool, u64, u64) {
        (self.is_continued, self.chain.extents().count() as u64, self.chain.end())
    }

    /// Like [`Self::new`], for a read-only store: nothing is written, and no change is allowed.
    pub(crate) fn read_only(
        reserve: &Arc<Reserve>,
        state: ManifestState,
        handles: Vec<Arc<TableHandle>>,
        hold: Arc<Hold>,
        nonce: u64,
    ) -> Self {
        let handles: HashMap<u64, _> = handles.into_iter().map(|table| (table.descriptor.identity, table)).collect();
        let next_range = state.ranges().iter().map(|range| range.id).max().unwrap_or(0) + 1;
        let mut this = Self {
            state,
            handles,
            ranges: Vec::new(),
            reserve: Arc::clone(reserve),
            hold,
            chain: Chain::default(),
            checkpoint: 0,
            failed_rewrite_at: 0,
            nonce,
            is_continued: false,
            next_number: 1,
            next_range,
            past_views: Vec::new(),
        };
        this.ranges = this.state.ranges().iter().map(|range| this.range_of(range, Vec::new())).collect();
        this
    }

    pub(crate) fn table_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.bytes()).sum()
    }

    pub(crate) fn extents(&self) -> impl Iterator<Item = NvPtr> {
        self.chain.extents()
    }

    pub(crate) fn ranges(&self) -> Arc<Ranges> {
        Arc::new(Ranges::new(self.ranges.clone()))
    }

    pub(crate) fn range(&self, range_id: u64) -> Option<Arc<Range>> {
        self.ranges.iter().find(|range| range.id == range_id).cloned()
    }

    fn range_of(&self, range: &RangeState, cuts: Vec<Key>) -> Arc<Range> {
        let handles = |run: &Vec<Arc<_>>| {
            let of = |table: &Arc<crate::version::manifest::TableDescriptor>| {
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
            small_tables: OnceLock::new(),
        })
    }

    /// Applies a change, which is durable on return. `fresh` has the handles of the tables that it
    /// adds. The caller publishes a view.
    ///
    /// # Errors
    /// [`Error::Full`]: nothing is changed. [`Error::Poisoned`]: `state` may have the change, and a
    /// crash may keep it or not; nothing is published from `state` any more. [`Error::Corrupt`] if
    /// the state refuses the change.
    pub(crate) fn apply(&mut self, pool: &Pool, edit: &Edit, fresh: Vec<Arc<TableHandle>>) -> Result<()> {
        // A state that is ahead of the manifest would refuse correct changes.
        pool.check()?;
        self.ensure_space(pool, encode(edit, 0, 0).len() as u64)?;
        self.state.apply(edit).map_err(|refused| {
            Error::corrupt("manifest", format!("the manifest cannot apply the change: {refused}"))
        })?;
        if pool.has_fault(planted::TABLE_FREED_EARLY) {
            self.free_removed(pool, edit);
        }
        let record = encode(edit, self.chain.nonce(), self.next_number);
        if pool.has_fault(planted::REACH_EARLY) {
            self.store_reach(pool, (self.chain.end() + record.len() as u64, self.next_number + 1));
        }
        self.chain.append(pool, &record)?;
        self.next_number += 1;
        if matches!(edit, Edit::Flush { .. }) {
            self.mark_reach(pool)?;
        }
        self.handles.extend(fresh.into_iter().map(|table| (table.descriptor.identity, table)));
        self.update_ranges(edit);
        self.update_reserve(pool);
        Ok(())
    }

    /// Stores the reach of the manifest durably: after a flush, whose logs are then freed, and at
    /// the end of a clean stop.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn mark_reach(&self, pool: &Pool) -> Result<()> {
        self.store_reach(pool, (self.chain.end(), self.next_number));
        pool.fence();
        pool.check()
    }

    fn store_reach(&self, pool: &Pool, (end, next_number): (u64, u64)) {
        store_reach(pool, &Reach { at: self.chain.first(), nonce: self.chain.nonce(), end, next_number });
    }

    /// Reports to the reserve the space that a compaction and the next checkpoint may need.
    fn update_reserve(&self, pool: &Pool) {
        let chunk = u64::from(pool.options().chunk_bytes);
        let largest = self.ranges.iter().map(|range| range.bytes_with_chunks(chunk)).max();
        self.reserve.note_ranges(pool, largest.unwrap_or(0), self.ranges.len());
        // Records hold keys, which may be long. The next record is of a flush or of a compaction:
        // one table in each range, or as many as one range has.
        let tables = |range: &Arc<Range>| range.sorted().map(|sorted| sorted.tables.len()).sum::<usize>();
        let most = self.ranges.iter().map(tables).max().unwrap_or(0);
        let whole = self.checkpoint_bytes();
        let each = whole / self.handles.len().max(1) as u64;
        let record = (each * self.ranges.len().max(most) as u64).min(whole);
        let with_headers = |bytes: u64| bytes + bytes / HEADERS_DIVISOR;
        if !self.reserve.can_grow(pool, 0) {
            self.reserve.note_value_bytes(self.state.values().values().map(|used| used.bytes).sum());
        }
        self.reserve.note_manifest(with_headers(whole), with_headers(record));
    }

    /// Returns the bytes of a checkpoint of the state that the ranges show.
    fn checkpoint_bytes(&self) -> u64 {
        let lists = |range: &Arc<Range>| range.runs.len() as u64;
        let described = |range: &Arc<Range>| range.sorted().map(|sorted| sorted.described).sum::<u64>();
        let range = |range: &Arc<Range>| range_bytes(range.lower.len() as u64, lists(range), described(range));
        checkpoint_bytes(self.ranges.iter().map(range).sum(), self.state.values().len() as u64)
    }

    /// Returns whether a range still has all these tables. False if the range was split during
    /// their merge.
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

    /// Updates handles and ranges to the state after an edit.
    fn update_ranges(&mut self, edit: &Edit) {
        if matches!(edit, Edit::Values { .. }) {
            return;
        }
        if let Edit::Compaction { removed, .. } = edit {
            for identity in removed {
                if let Some(table) = self.handles.remove(identity) {
                    table.set_removed();
                }
            }
            if self.handles.capacity() > SHRINK_SLOTS_FACTOR * self.handles.len() {
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

    pub(crate) fn set_cuts(&mut self, range_id: u64, cuts: Vec<Key>) {
        let Some(index) = self.ranges.iter().position(|range| range.id == range_id) else { return };
        let Some(state) = self.state.range(range_id) else { return };
        self.ranges[index] = self.range_of(state, cuts);
    }

    /// Returns the largest range, with a cut, if a split in halves reduces the required free space.
    /// The halves must also stay separate where ranges of more than `full` bytes are split.
    pub(crate) fn plan_halving(&self, pool: &Pool, full: u64) -> Option<(u64, Key)> {
        let chunk = u64::from(pool.options().chunk_bytes);
        let range = self.ranges.iter().max_by_key(|range| range.bytes_with_chunks(chunk))?;
        if range.bytes() < full / 2 {
            return None;
        }
        // Ranges of about that size come next: each costs what a flush needs for one more range.
        let (largest, half) = (range.bytes_with_chunks(chunk), range.bytes_with_chunks(chunk) / 2);
        let large = self.ranges.iter().filter(|range| range.bytes_with_chunks(chunk) > half).count() as u64;
        if large * SPLIT_COST_CHUNKS * chunk >= half {
            return None;
        }
        let (mut below, mut best) = (0, None::<(u64, &Key)>);
        for table in &range.stable.tables {
            let difference = largest.abs_diff(2 * below);
            if below > 0 && best.is_none_or(|(least, _)| difference < least) {
                best = Some((difference, &table.descriptor.min));
            }
            below += table.descriptor.bytes;
        }
        best.map(|(_, cut)| (range.id, cut.clone()))
    }

    /// Returns the ranges that are to be split.
    pub(crate) fn ranges_to_split(&self) -> impl Iterator<Item = u64> {
        self.ranges.iter().filter(|range| !range.cuts.is_empty()).map(|range| range.id)
    }

    /// Splits ranges of `held`, which the caller may change, at their cuts where no table crosses
    /// the cut. A split needs space for one more range in a flush, or must reduce the required free
    /// space. Returns the number of splits before the first failure. Cuts that the state refuses
    /// are dropped: the next compaction sets new ones.
    ///
    /// # Errors
    /// Those of [`Self::apply`], together with the splits that were made.
    pub(crate) fn split_ranges(&mut self, pool: &Pool, mut held: Vec<u64>) -> (usize, Result<()>) {
        let mut made = 0;
        while let Some((range_id, at, rest)) = self.next_split(pool, &held) {
            let new_id = self.next_range;
            self.next_range += 1;
            match self.apply(pool, &Edit::SplitRange { range_id, at, new_id }, Vec::new()) {
                Ok(()) => {
                    self.set_cuts(new_id, rest);
                    // No view has the new range yet.
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

    /// Returns a range of `held` that can be split at its first cut, and the cuts after it.
    fn next_split(&self, pool: &Pool, held: &[u64]) -> Option<(u64, Key, Vec<Key>)> {
        let room = self.reserve.has_space_for_range(pool);
        self.ranges.iter().filter(|range| held.contains(&range.id)).find_map(|range| {
            let (first, rest) = range.cuts.split_first()?;
            let crosses =
                |table: &Arc<TableHandle>| *table.descriptor.min < **first && *table.descriptor.max >= **first;
            let whole = !range.sorted().flat_map(|sorted| &sorted.tables).any(crosses);
            (whole && (room || self.reduces_needed_space(pool, range, first)))
                .then(|| (range.id, first.clone(), rest.to_vec()))
        })
    }

    /// Returns whether a split of this range there reduces the required free space. The range must
    /// be the largest, and both parts must exceed the cost of a range by itself. Waiting for space
    /// would let the range grow, and with it the required free space.
    fn reduces_needed_space(&self, pool: &Pool, range: &Range, at: &Key) -> bool {
        let chunk = u64::from(pool.options().chunk_bytes);
        let tables = range.sorted().flat_map(|sorted| &sorted.tables);
        let below: u64 = tables.filter(|table| table.descriptor.min < *at).map(|table| table.descriptor.bytes).sum();
        range.bytes_with_chunks(chunk) == self.reserve.largest_range()
            && below.min(range.bytes() - below) >= SPLIT_HALF_CHUNKS * chunk
    }

    /// Joins a range with the next one if both are small enough for [`Range::may_join`]. Returns
    /// whether they were.
    ///
    /// # Errors
    /// Those of [`Self::apply`].
    pub(crate) fn join_ranges(&mut self, pool: &Pool, (range_id, next_id): (u64, u64), full: u64) -> Result<bool> {
        let joins =
            |pair: &[Arc<Range>]| (pair[0].id, pair[1].id) == (range_id, next_id) && pair[0].may_join(&pair[1], full);
        if !self.ranges.windows(2).any(joins) {
            return Ok(false);
        }
        self.apply(pool, &Edit::JoinRanges { range_id, next_id }, Vec::new())?;
        Ok(true)
    }

    /// Ensures space in the manifest for a record of this length, with a new chain if the current
    /// one is long.
    fn ensure_space(&mut self, pool: &Pool, len: u64) -> Result<()> {
        let most = if self.reserve.can_grow(pool, 0) {
            self.checkpoint * REWRITE_FACTOR
        } else {
            self.checkpoint + self.checkpoint / SCARCE_GROWTH_DIVISOR
        };
        if self.chain.end() + len
            > most.max(RECORDS_MIN).max(self.failed_rewrite_at + self.failed_rewrite_at / RETRY_GROWTH_DIVISOR)
        {
            match self.checkpoint(pool) {
                Ok(()) => {}
                // The current chain may still have space.
                Err(Error::Full { .. }) => self.failed_rewrite_at = self.chain.end(),
                Err(other) => return Err(other),
            }
        }
        match self.chain.ensure_space(pool, &self.reserve, len) {
            Err(Error::Full { .. }) => {
                self.checkpoint(pool)?;
                self.chain.ensure_space(pool, &self.reserve, len)
            }
            other => other,
        }
    }

    /// Rewrites the manifest if that makes it much shorter and there is space. Less must then be
    /// free.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    pub(crate) fn rewrite_if_long(&mut self, pool: &Pool) -> Result<()> {
        let bytes = self.checkpoint_bytes();
        if self.chain.end() < bytes + bytes / SCARCE_GROWTH_DIVISOR + RECORDS_MIN {
            return Ok(());
        }
        match self.checkpoint(pool) {
            Ok(()) => self.update_reserve(pool),
            Err(Error::Full { .. }) => {}
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Writes the whole state into a new chain and makes it the manifest.
    fn checkpoint(&mut self, pool: &Pool) -> Result<()> {
        let nonce = self.nonce.wrapping_add(1);
        let bytes = encode_checkpoint(&self.state, nonce, self.next_number);
        assert_eq!(bytes.len() as u64, self.checkpoint_bytes(), "what was to be free for it");
        let mut chain = Chain::new(nonce);
        chain.ensure_space(pool, &self.reserve, bytes.len() as u64)?;
        if pool.has_fault(planted::ROOT_EARLY) {
            publish_manifest(pool, chain.first());
            pool.fence();
        }
        chain.append(pool, &bytes)?;
        publish_manifest(pool, chain.first());
        pool.fence();
        pool.check()?;
        std::mem::replace(&mut self.chain, chain).free_extents(pool);
        (self.nonce, self.checkpoint, self.is_continued, self.failed_rewrite_at) =
            (nonce, bytes.len() as u64, false, 0);
        self.next_number += 1;
        Ok(())
    }

    /// Returns the replaced views that readers still hold. Extents that only these views name are
    /// not free yet.
    pub(crate) fn past_views(&mut self) -> Vec<Weak<View>> {
        self.past_views.retain(|view| view.strong_count() > 0);
        self.past_views.clone()
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        (self.handles.capacity() * 24 + self.ranges.capacity() * 8) as u64 + self.state.dram_bytes()
    }
}

/// Publishes a view with these memtables and the publisher's ranges. The caller holds the
/// publisher's lock.
pub(crate) fn publish(
    view: &ArcSwap<View>,
    publisher: &mut Publisher,
    active: Arc<Memtable>,
    frozen: Vec<Arc<Memtable>>,
) {
    let hold = Arc::clone(&publisher.hold);
    let old = view.swap(Arc::new(View { active, frozen, ranges: publisher.ranges(), hold }));
    publisher.past_views.retain(|view| view.strong_count() > 0);
    publisher.past_views.push(Arc::downgrade(&old));
}
