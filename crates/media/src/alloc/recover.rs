//! Opening: reads the extent tables, accepts the engine's marks and frees the rest.
//!
//! After a crash the tables name a superset of the extents in use ([`space`](super::space)). These
//! extents stay as they are until the engine has marked everything reachable. Meanwhile new space
//! comes from chunks that the tables call free, and from new regions. Then the sweep frees the
//! unmarked extents. The progress is not stored on the medium: after another crash it starts again,
//! from a table that again names a superset.
//!
//! While recovering:
//! * A slab of the table has `OLD_FLAG`: it is owned by the orphan shard and not used for
//!   allocation. Marks set its bits, from any thread, without a lock.
//! * An engine calls [`keep`](Allocator::keep) before it unlinks an old record. The marking may
//!   pass after the unlinking and miss the record. The sweep would then free a record that readers
//!   still use and its owner has yet to free.
//! * A freed old record or extent is freed by the sweep, whether it is marked before or after.
//!   Freed at once, its space could be allocated again and then be marked through the old pointer.
//! * Records and extents allocated since the open need no mark; a mark of one is checked and
//!   otherwise ignored.

use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Finding, Result};

use super::classes::Class;
use super::medium_access::MediumAccess;
use super::records::Freed;
use super::shard::ORPHAN_SHARD_INDEX;
use super::slab::{OLD_FLAG, Slab};
use super::space::{Ranges, Space, read_word};
use super::table::{Found, Word};
use super::table_copies::TableRead;
use super::{Allocator, ChunkPosition, ExtentKind, SweepReport, lock, position_name};
use crate::nvptr::NvPtr;
use crate::planted;
use crate::region_layout::RegionLayout;

/// State that exists only while recovering.
#[derive(Default)]
pub(super) struct Recovery {
    /// By region: chunks at which an extent of the table begins, and the marked ones among them.
    regions: Vec<(Bits, Bits)>,
    /// Old records and extents that may be unlinked: in use until they are freed.
    kept: Vec<Freed>,
    /// Old records and extents that were freed.
    freed: Vec<Freed>,
}

/// A set of chunk numbers.
#[derive(Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, at: u32) -> bool {
        self.0.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Adds a number; returns false if it was present.
    fn add(&mut self, at: u32) -> bool {
        let word = at as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let new = !self.has(at);
        self.0[word] |= 1 << (at % 64);
        new
    }

    fn remove(&mut self, at: u32) {
        if let Some(word) = self.0.get_mut(at as usize / 64) {
            *word &= !(1 << (at % 64));
        }
    }
}

/// The tables of all regions, as read by an open.
#[derive(Default)]
pub(crate) struct Tables {
    regions: Vec<(RegionLayout, TableRead)>,
    /// Damage, repaired or not.
    findings: Vec<Finding>,
    /// Some damage may have destroyed the word of an extent.
    pub(crate) is_damaged: bool,
}

impl Tables {
    pub(crate) fn add_findings(&mut self, findings: Vec<Finding>) {
        self.findings.extend(findings);
    }

    pub(crate) fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

impl Recovery {
    fn is_old(&self, position: ChunkPosition) -> bool {
        self.regions.get(usize::from(position.region)).is_some_and(|(old, _)| old.has(position.chunk))
    }
}

impl Allocator {
    /// Reads the tables and changes nothing. `seals` are the tables' seals by region after a clean
    /// stop.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a region cannot belong to this pool, or if a table is damaged beyond
    /// repair and `medium` does not tolerate damage.
    pub(crate) fn read_tables<G: MediumAccess>(&self, medium: &G, seals: Option<&[u32]>) -> Result<Tables> {
        let mut tables = Tables::default();
        for index in 0..medium.regions() {
            let region_name = || format!("region {index}");
            let layout = u16::try_from(index).ok().and_then(|index| medium.layout(index));
            let layout = layout.filter(|_| index < self.regions.len());
            let layout = layout
                .ok_or_else(|| Error::corrupt(region_name(), "the store has more regions than its capacity allows"))?;
            let seal = seals.map(|seals| seals.get(index).copied().unwrap_or(0));
            let read = self.read_table(medium, &layout, seal);
            if let Some(refusal) = read.refusal().filter(|_| !medium.tolerates_damage()) {
                return Err(refusal);
            }
            tables.is_damaged |= read.lost.is_some();
            tables.findings.extend(read.repaired.iter().chain(&read.lost).cloned());
            tables.regions.push((layout, read));
        }
        Ok(tables)
    }

    /// Returns the number of damaged places that the open found.
    pub(crate) fn findings_at_open(&self) -> u64 {
        lock(&self.findings).len() as u64
    }

    /// Installs the tables. After a clean stop with readable bitmaps the occupancy is known.
    /// Otherwise, unless the pool is empty, [`Self::is_recovering`] from now on.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a region cannot belong to this pool.
    pub(crate) fn open<G: MediumAccess>(&self, medium: &G, tables: Tables, clean: bool) -> Result<()> {
        let mut recovery = Recovery::default();
        let mut space = lock(&self.space);
        assert!(space.regions.is_empty(), "opened once");
        let mut saved = Vec::new();
        let trusted = clean && !tables.is_damaged;
        *lock(&self.findings) = tables.findings;
        for (layout, read) in tables.regions {
            if !clean {
                // A word that a killed process cleared without a flush could reappear over an
                // extent allocated from now on.
                for copy in layout.extent_words(0) {
                    medium.flush(copy, layout.chunks as usize * 8);
                }
                medium.fence();
            }
            let taken =
                read.extents.iter().map(|(chunk, word)| (*chunk, word.chunks)).chain(read.quarantine.iter().copied());
            let region_name = || format!("region {}", layout.index);
            let tree = self.tree(&layout, taken).ok_or_else(|| Error::corrupt(region_name(), "extents overlap"))?;
            self.add_region(&mut space, layout, tree, read.quarantine);
            space.regions[usize::from(layout.index)].read_wear(medium);
            for (chunk, raw) in &read.rewrites {
                space.store_word(medium, layout.extent_words(*chunk), *raw);
            }
            let mut old = Bits::default();
            for (chunk, word) in read.extents {
                let position = ChunkPosition { region: layout.index, chunk };
                if word.kind == ExtentKind::OCCUPANCY {
                    saved.push((position, word));
                } else {
                    self.register_extent(position, word);
                    old.add(chunk);
                }
            }
            recovery.regions.push((old, Bits::default()));
        }
        let known =
            (trusted || medium.has_fault(planted::STALE_CHECKPOINT_TRUSTED)) && self.load_occupancy(medium, &saved);
        for (position, word) in saved {
            let is_freed = space.free_extent(medium, position, word.chunks);
            debug_assert!(is_freed, "the table's extents are in use");
        }
        drop(space);
        let nothing = recovery.regions.iter().all(|(old, _)| old.0.is_empty());
        *lock(&self.recovery) = Some(recovery);
        if known || nothing {
            self.reconcile(medium, known);
        } else {
            self.recovering.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Returns the extents of a kind that the tables name.
    pub(crate) fn extents_on<G: MediumAccess>(&self, medium: &G, kind: ExtentKind) -> Vec<(NvPtr, u64)> {
        let mut found = Vec::new();
        for region in self.known_regions() {
            let layout = &region.layout;
            let read = self.read_table(medium, layout, None);
            let of_kind = read.extents.iter().filter(|(_, word)| word.kind == kind);
            let bytes = |chunks: u32| u64::from(chunks) * u64::from(layout.chunk_bytes);
            found.extend(of_kind.map(|(chunk, word)| (layout.chunk(*chunk), bytes(word.chunks))));
        }
        found
    }

    fn register_extent(&self, position: ChunkPosition, word: Word) {
        if word.kind == ExtentKind::SLAB
            && let Some(region) = self.region(position.region)
            && let (Some(class), Some(slab)) = (self.classes.get(word.class), region.make_slab(position.chunk))
        {
            slab.format(word.class, class, region.slab_bytes(), ORPHAN_SHARD_INDEX, OLD_FLAG);
        }
    }

    /// See [`Allocator::mark`](Self::mark).
    pub(crate) fn mark_on<G: MediumAccess>(&self, medium: &G, at: NvPtr, len: usize) -> Result<()> {
        let wrong = |what: &str| Err(Error::corrupt(position_name(at), what));
        let Some(region) = self.region(at.region()) else { return wrong("the region of the record does not exist") };
        let Some((_, slab, offset)) = region.locate(at).filter(|(_, slab, _)| self.classes.get(slab.class()).is_some())
        else {
            return self.mark_large(medium, at, len);
        };
        let Some(class) = self.classes.get(slab.class()) else {
            return wrong("the place of the record is not in a slab");
        };
        let slot = offset / class.size;
        if offset % class.size != 0 || slot >= class.slots {
            return wrong("the record does not begin at a slot");
        }
        if len as u64 > u64::from(class.size) {
            return wrong("the record is longer than its slot");
        }
        if !slab.has_flag(OLD_FLAG) {
            // Allocated since the open: in use already.
            return if slab.is_used(class, slot) { Ok(()) } else { wrong("the slot of the record is free") };
        }
        if slab.mark(class, slot, region.slab_bytes()) { Ok(()) } else { wrong("two records have the same place") }
    }

    fn mark_large<G: MediumAccess>(&self, medium: &G, at: NvPtr, len: usize) -> Result<()> {
        let bytes = self.mark_extent_on(medium, at, ExtentKind::LARGE)?;
        let fits = bytes == u64::MAX || len as u64 <= bytes;
        if fits { Ok(()) } else { Err(Error::corrupt(position_name(at), "the record is longer than its extent")) }
    }

    /// See [`Allocator::mark_extent`](Self::mark_extent); returns `u64::MAX` if a damaged word
    /// hides the length.
    pub(crate) fn mark_extent_on<G: MediumAccess>(&self, medium: &G, at: NvPtr, kind: ExtentKind) -> Result<u64> {
        let wrong = |what: &str| Err(Error::corrupt(position_name(at), what));
        let region = self.region(at.region());
        let Some(region) = region else { return wrong("the region of the extent does not exist") };
        if let Some(chunk) = region.layout.chunk_of(at.offset()) {
            let position = ChunkPosition { region: region.layout.index, chunk };
            if lock(&self.space).is_quarantined(position) {
                return Ok(u64::MAX);
            }
        }
        let Some(position) = region.extent_start(at) else { return wrong("no extent begins here") };
        let mut recovery = lock(&self.recovery);
        let word = match read_word(medium, &region.layout, position.chunk) {
            Found::Extent(word) if word.kind == kind => word,
            Found::Extent(_) => return wrong("the extent has another kind"),
            Found::Free | Found::Bad => return wrong("no extent begins here"),
        };
        // An extent allocated since the open is in no set: it is in use already.
        let sets = recovery.as_mut().and_then(|state| state.regions.get_mut(usize::from(position.region)));
        if let Some((old, seen)) = sets
            && old.has(position.chunk)
            && !seen.add(position.chunk)
        {
            return wrong("two owners have the same extent");
        }
        Ok(u64::from(word.chunks) * u64::from(region.layout.chunk_bytes))
    }

    /// See [`Allocator::holds_extent`](Self::holds_extent).
    pub(crate) fn holds_extent_on<G: MediumAccess>(&self, medium: &G, at: NvPtr, bytes: u64, kind: ExtentKind) -> bool {
        let Some(region) = self.region(at.region()) else { return false };
        let Some(chunk) = region.layout.chunk_of(at.offset()) else { return false };
        match read_word(medium, &region.layout, chunk) {
            Found::Extent(word) if word.kind == kind && region.extent_start(at).is_some() => {
                u64::from(word.chunks) == bytes.div_ceil(u64::from(region.layout.chunk_bytes))
            }
            _ => lock(&self.space).is_quarantined(ChunkPosition { region: region.layout.index, chunk }),
        }
    }

    /// Notes that an old item was freed. Returns false if it is not old, or recovery has ended
    /// meanwhile.
    #[cold]
    pub(super) fn note_freed(&self, item: Freed) -> bool {
        self.note(item, |state| &mut state.freed)
    }

    /// See [`Allocator::keep`](Self::keep).
    #[cold]
    pub(crate) fn note_kept(&self, item: Freed) {
        self.note(item, |state| &mut state.kept);
    }

    fn note(&self, item: Freed, list: impl Fn(&mut Recovery) -> &mut Vec<Freed>) -> bool {
        let mut recovery = lock(&self.recovery);
        let Some(state) = recovery.as_mut() else { return false };
        let old = match self.old_slot(item) {
            Some(_) => true,
            None => self.extent_of(item.at).is_some_and(|position| state.is_old(position)),
        };
        if old {
            list(state).push(item);
        }
        old
    }

    /// Returns the slab and slot of a record in a slab that is old.
    fn old_slot(&self, item: Freed) -> Option<(&Slab, Class, u32)> {
        let (_, slab, offset) = self.region(item.at.region())?.locate(item.at)?;
        let class =
            self.classes.get(slab.class()).filter(|_| item.len != Freed::EXTENT_FLAG && slab.has_flag(OLD_FLAG))?;
        Some((slab, class, offset / class.size))
    }

    fn extent_of(&self, at: NvPtr) -> Option<ChunkPosition> {
        self.region(at.region())?.extent_start(at)
    }

    /// See [`Allocator::finish_recovery`](Self::finish_recovery).
    pub(crate) fn finish_on<G: MediumAccess>(&self, medium: &G) -> SweepReport {
        let freed_extents = self.reconcile(medium, false);
        SweepReport { records: self.live_records(), live_bytes: self.live_bytes(), freed_extents }
    }

    /// Ends recovery (reconciles): frees the unmarked old extents (none with `all_live`) and gives
    /// the old slabs to the orphan shard.
    fn reconcile<G: MediumAccess>(&self, medium: &G, all_live: bool) -> u64 {
        // Held to the end: a concurrent free waits, and then finds the final state.
        let mut recovery = lock(&self.recovery);
        let Some(mut state) = recovery.take() else { return 0 };
        self.apply_notes(&mut state);
        let mut freed = 0;
        let mut orphans = self.shard(usize::from(ORPHAN_SHARD_INDEX));
        for (region, (old, seen)) in self.known_regions().zip(&state.regions) {
            let words = old.0.iter().zip(0u32..).filter(|(word, _)| **word != 0);
            for chunk in words.flat_map(|(_, at)| at * 64..at * 64 + 64).filter(|chunk| old.has(*chunk)) {
                let position = ChunkPosition { region: region.layout.index, chunk };
                let slab =
                    region.slab_at(chunk).filter(|slab| slab.has_flag(OLD_FLAG) && chunk % self.slab_chunks == 0);
                freed += u64::from(match slab {
                    Some(slab) => self.reconcile_slab(medium, &mut orphans, position, slab),
                    None => self.reconcile_extent(medium, position, all_live || seen.has(chunk)),
                });
            }
        }
        self.recovering.store(false, Ordering::Release);
        freed
    }

    /// Applies the notes: kept items are in use; freed items are not, even if kept or marked.
    fn apply_notes(&self, state: &mut Recovery) {
        let Recovery { regions, kept, freed } = state;
        let mut apply = |item: &Freed, in_use: bool| {
            if let Some((slab, class, slot)) = self.old_slot(*item) {
                if in_use {
                    slab.mark(class, slot, self.slab_bytes());
                } else {
                    slab.unmark(class, slot);
                }
            } else if let Some(position) = self.extent_of(item.at)
                && let Some((_, seen)) = regions.get_mut(usize::from(position.region))
            {
                if in_use {
                    seen.add(position.chunk);
                } else {
                    seen.remove(position.chunk);
                }
            }
        };
        kept.iter().for_each(|item| apply(item, true));
        freed.iter().for_each(|item| apply(item, false));
    }

    /// Reconciles a slab; returns whether it was freed.
    fn reconcile_slab<G: MediumAccess>(
        &self,
        medium: &G,
        orphans: &mut super::shard::Shard,
        position: ChunkPosition,
        slab: &Slab,
    ) -> bool {
        let number = slab.class();
        let Some(class) = self.classes.get(number) else { return false };
        let taken = slab.recount(class);
        slab.clear_flag(OLD_FLAG);
        if taken == 0 {
            slab.retire();
            return lock(&self.space).free_extent(medium, position, self.slab_chunks);
        }
        if taken < class.slots {
            self.list_or_release(medium, orphans, position, slab, (number, class, class.slots - taken));
        }
        false
    }

    /// Reconciles an extent; returns whether it was freed.
    fn reconcile_extent<G: MediumAccess>(&self, medium: &G, position: ChunkPosition, live: bool) -> bool {
        let mut space = lock(&self.space);
        let Found::Extent(word) = space.word(medium, position) else { return false };
        if !live {
            return space.free_extent(medium, position, word.chunks);
        }
        self.extent_bytes.fetch_add(u64::from(word.chunks) * self.chunk_bytes(), Ordering::Relaxed);
        self.large_records.fetch_add(u64::from(word.kind == ExtentKind::LARGE), Ordering::Relaxed);
        false
    }
}

impl Space {
    /// Returns whether this chunk is under a damaged word.
    pub(super) fn is_quarantined(&self, position: ChunkPosition) -> bool {
        let inside = |(start, len): &(u32, u32)| (*start..start + len).contains(&position.chunk);
        self.regions
            .get(usize::from(position.region))
            .is_some_and(|ranges: &Ranges| ranges.quarantine.iter().any(inside))
    }
}
