//! Extents that the two copies of an extent table contest.
//!
//! Two different words for the same or overlapping chunks, each in one copy, are *contested*. After
//! a crash neither extent is in use: a completed hand-out made both copies of its word equal, and
//! first removed the words of all extents that it overlaps. After damage to one copy an extent of
//! the other copy can be in use, and no word says which copy is older: a stamp counts openings.
//!
//! The engine's marks decide. From the open to the end of recovery no chunk of a contested run is
//! handed out, and its words stay as they are. A mark counts if one of the extents fits it. At the
//! end of recovery a run without a mark is free: a crash left it. A mark proves damage. The copy
//! whose extents fit the marks then counts for the run, and `verify` reports the run. A crash
//! before the new words are durable leaves a contested run again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use lodestore_contract::{Error, Finding, Result};

use super::classes::Classes;
use super::ground::MediumAccess;
use super::records::Freed;
use super::recover::Recovery;
use super::table::Word;
use super::{Allocator, ChunkPosition, ExtentKind, lock, position_name};
use crate::nvptr::NvPtr;
use crate::region_layout::RegionLayout;

/// An extent of one copy of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) chunk: u32,
    pub(super) word: Word,
    pub(super) raw: u64,
    /// The copy that has the word.
    pub(super) copy: usize,
}

impl Candidate {
    pub(super) fn chunks(&self) -> Range<u32> {
        self.chunk..self.chunk + self.word.chunks
    }
}

/// A run of chunks with overlapping candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContestedRun {
    pub(super) chunks: Range<u32>,
    pub(super) candidates: Vec<Candidate>,
}

/// A use of space that the engine named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// A record of this length.
    Record(u64),
    /// An extent of this kind.
    Extent(ExtentKind),
    /// An extent of an unknown kind, which a writer is about to free.
    AnyExtent,
}

/// A contested run during recovery.
#[derive(Debug)]
pub(super) struct Contest {
    layout: RegionLayout,
    run: ContestedRun,
    marks: BTreeMap<NvPtr, Mark>,
    /// Candidates for which the engine asked, with their exact length.
    named: BTreeSet<(u32, u8, u32)>,
}

/// The extents of a contested run that are in use.
struct Settled {
    chosen: Vec<Candidate>,
    /// Marks that fit none of them.
    unexplained: usize,
}

impl Contest {
    pub(super) fn new(layout: RegionLayout, run: ContestedRun) -> Self {
        Self { layout, run, marks: BTreeMap::new(), named: BTreeSet::new() }
    }

    fn has(&self, at: NvPtr) -> bool {
        let chunk = self.layout.chunk_of(at.offset());
        at.region() == self.layout.index && chunk.is_some_and(|chunk| self.run.chunks.contains(&chunk))
    }

    fn candidates(&self, copy: usize) -> impl Iterator<Item = &Candidate> {
        self.run.candidates.iter().filter(move |candidate| candidate.copy == copy)
    }

    /// Returns whether the space named by a mark can be in this extent.
    fn fits(&self, classes: &Classes, candidate: &Candidate, (at, mark): (NvPtr, Mark)) -> bool {
        let start = self.layout.chunk(candidate.chunk);
        let bytes = u64::from(candidate.word.chunks) * u64::from(self.layout.chunk_bytes);
        let Some(offset) = at.offset().checked_sub(start.offset()).filter(|offset| *offset < bytes) else {
            return false;
        };
        match (mark, candidate.word.kind) {
            (Mark::Record(len), ExtentKind::SLAB) => classes.get(candidate.word.class).is_some_and(|class| {
                let size = u64::from(class.size);
                offset % size == 0 && offset / size < u64::from(class.slots) && len <= size
            }),
            (Mark::Record(len), ExtentKind::LARGE) => offset == 0 && len <= bytes,
            (Mark::Record(_), _) => false,
            (Mark::Extent(kind), word_kind) => offset == 0 && kind == word_kind,
            (Mark::AnyExtent, _) => offset == 0,
        }
    }

    /// Adds a mark.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it fits no candidate, or the place was marked before.
    fn mark(&mut self, classes: &Classes, at: NvPtr, mark: Mark) -> Result<()> {
        let wrong = |what: &str| Err(Error::corrupt(position_name(at), what));
        if !self.run.candidates.iter().any(|candidate| self.fits(classes, candidate, (at, mark))) {
            return wrong("neither copy of the extent table has a place like this here");
        }
        if self.marks.insert(at, mark).is_some() {
            return wrong("two owners have the same place");
        }
        Ok(())
    }

    /// Decides which copy's extents are in use: those of the copy that explains the most marks. If
    /// both explain them, the copy counts whose lengths the engine named, then the one with the
    /// longer extents, which holds all that is marked.
    fn settle(&self, classes: &Classes) -> Settled {
        let in_use =
            |candidate: &&Candidate| self.marks.iter().any(|(at, mark)| self.fits(classes, candidate, (*at, *mark)));
        let of_copy = |copy: usize| {
            let mut end = 0;
            let mut chosen: Vec<Candidate> = self.candidates(copy).filter(in_use).copied().collect();
            // Only two extents that are not in use overlap in one copy.
            chosen.retain(|candidate| {
                let is_apart = candidate.chunk >= end;
                end = end.max(candidate.chunks().end);
                is_apart
            });
            let is_explained = |(at, mark): &(&NvPtr, &Mark)| {
                chosen.iter().any(|candidate| self.fits(classes, candidate, (**at, **mark)))
            };
            let unexplained = self.marks.iter().filter(|mark| !is_explained(mark)).count();
            Settled { chosen, unexplained }
        };
        let is_named = |candidate: &&Candidate| {
            self.named.contains(&(candidate.chunk, candidate.word.kind.0, candidate.word.chunks))
        };
        let score = |settled: &Settled| {
            let named = settled.chosen.iter().filter(is_named).count();
            let chunks: u32 = settled.chosen.iter().map(|candidate| candidate.word.chunks).sum();
            (std::cmp::Reverse(settled.unexplained), named, chunks)
        };
        let [first, second] = [0, 1].map(of_copy);
        if score(&second) > score(&first) { second } else { first }
    }

    /// Returns the finding for a run with marks.
    fn finding(&self, settled: &Settled) -> Finding {
        let place = format!("region {} chunk {}", self.layout.index, self.run.chunks.start);
        let lost = match settled.unexplained {
            0 => String::new(),
            count => format!(", except for {count} places that neither copy explains"),
        };
        let what =
            format!("the copies of the extent table differ on extents in use, and were repaired by the index{lost}");
        Finding { place, what }
    }
}

impl Recovery {
    fn contest_at(&mut self, at: NvPtr) -> Option<&mut Contest> {
        self.contests.iter_mut().find(|contest| contest.has(at))
    }

    /// Returns whether a place is in a contested run.
    pub(super) fn is_contested(&self, at: NvPtr) -> bool {
        self.contests.iter().any(|contest| contest.has(at))
    }
}

impl Allocator {
    /// Marks space in a contested run. Returns `None` if the place is in no such run.
    pub(super) fn mark_contested(&self, at: NvPtr, mark: Mark) -> Option<Result<()>> {
        let mut recovery = lock(&self.recovery);
        let contest = recovery.as_mut()?.contest_at(at)?;
        Some(contest.mark(&self.classes, at, mark))
    }

    /// Returns whether a contested run has an extent of this kind and length at this place. Returns
    /// `None` if the place is in no such run.
    pub(super) fn holds_contested(&self, at: NvPtr, bytes: u64, kind: ExtentKind) -> Option<bool> {
        let mut recovery = lock(&self.recovery);
        let contest = recovery.as_mut()?.contest_at(at)?;
        let layout = contest.layout;
        let chunks = bytes.div_ceil(u64::from(layout.chunk_bytes));
        let is_it = |candidate: &&Candidate| {
            let word = candidate.word;
            layout.chunk(candidate.chunk) == at && word.kind == kind && u64::from(word.chunks) == chunks
        };
        let found = contest.run.candidates.iter().find(is_it).copied();
        contest.named.extend(found.map(|candidate| (candidate.chunk, kind.0, candidate.word.chunks)));
        Some(found.is_some())
    }

    /// Refuses a clean stop while a run is contested: recovery has not ended, and the seal of a
    /// table is that of equal copies.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn check_settled(&self) -> Result<()> {
        match lock(&self.recovery).as_ref().and_then(|state| state.contests.first()) {
            None => Ok(()),
            Some(contest) => Err(Error::corrupt(
                position_name(contest.layout.chunk(contest.run.chunks.start)),
                "the copies of the extent table differ, and the recovery did not find which one is right",
            )),
        }
    }

    /// Settles all contested runs: stores the words of the extents in use in both copies, and frees
    /// the other chunks. The extents in use become old ones with their marks.
    pub(super) fn settle_contests<G: MediumAccess>(&self, medium: &G, state: &mut Recovery) {
        for mut contest in std::mem::take(&mut state.contests) {
            for Freed { at, len } in &state.kept {
                if contest.has(*at) {
                    let is_extent = *len == Freed::EXTENT_FLAG;
                    let mark = if is_extent { Mark::AnyExtent } else { Mark::Record(u64::from(*len)) };
                    contest.marks.entry(*at).or_insert(mark);
                }
            }
            let settled = contest.settle(&self.classes);
            if !contest.marks.is_empty() {
                lock(&self.findings).push(contest.finding(&settled));
            }
            self.store_settled(medium, &contest, &settled.chosen);
            for candidate in &settled.chosen {
                let position = ChunkPosition { region: contest.layout.index, chunk: candidate.chunk };
                self.register_extent(position, candidate.word);
                state.add_old(position);
            }
            for (at, mark) in &contest.marks {
                let fits = |candidate: &&Candidate| contest.fits(&self.classes, candidate, (*at, *mark));
                let Some(candidate) = settled.chosen.iter().find(fits) else { continue };
                let position = ChunkPosition { region: contest.layout.index, chunk: candidate.chunk };
                self.mark_settled(state, position, *at);
            }
        }
    }

    /// Stores the words of a settled run, to be flushed with the next allocation, and frees the
    /// chunks that no chosen extent has.
    fn store_settled<G: MediumAccess>(&self, medium: &G, contest: &Contest, chosen: &[Candidate]) {
        let (layout, run) = (&contest.layout, &contest.run);
        let mut space = lock(&self.space);
        let chunks: BTreeSet<u32> = run.candidates.iter().map(|candidate| candidate.chunk).collect();
        for chunk in chunks {
            let raw = chosen.iter().find(|candidate| candidate.chunk == chunk).map_or(0, |candidate| candidate.raw);
            space.store_word(medium, layout.extent_words(chunk), raw);
        }
        let Some(ranges) = space.regions.get_mut(usize::from(layout.index)) else { return };
        ranges.contested.retain(|chunks| *chunks != run.chunks);
        let mut from = run.chunks.start;
        let end = run.chunks.end;
        for used in chosen.iter().map(Candidate::chunks).chain(std::iter::once(end..end)) {
            if from < used.start {
                let is_freed = ranges.tree.free_range(from, used.start - from);
                debug_assert!(is_freed, "the chunks of a contested run are in use");
            }
            from = used.end;
        }
    }

    /// Marks a place of a settled extent.
    fn mark_settled(&self, state: &mut Recovery, position: ChunkPosition, at: NvPtr) {
        let Some(region) = self.region(position.region) else { return };
        let located =
            region.locate(at).and_then(|(_, slab, offset)| Some((slab, self.classes.get(slab.class())?, offset)));
        match located {
            Some((slab, class, offset)) => {
                slab.mark(class, offset / class.size, region.slab_bytes());
            }
            None => state.add_seen(position),
        }
    }
}
