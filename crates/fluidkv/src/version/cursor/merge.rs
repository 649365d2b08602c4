//! Merges several sources into one. The rules are in `cursor.rs`.

use std::cmp::Ordering;

use lodestore_contract::{Direction, Result};
use lodestore_index::key_head;

use super::{CursorStep, Pair, Source, Visitor};
use crate::values::Dead;
use crate::version::known::Known;

/// A source and its current pair.
struct MergeSource<'a> {
    source: Source<'a>,
    head: u64,
    /// `None`: the source has the pair ([`CursorStep::Unpacked`]).
    pair: Option<Pair<'a>>,
    /// Whether only the key of the pair is valid: see [`CursorStep::Newer`].
    is_newer: bool,
}

impl<'a> MergeSource<'a> {
    /// Moves a source to its first pair, if it has one.
    fn first(source: Source<'a>) -> Result<Option<Self>> {
        let mut this = Self { source, head: 0, pair: None, is_newer: false };
        Ok(this.step()?.then_some(this))
    }

    /// Moves to the next pair. Returns whether there is one.
    #[inline]
    fn step(&mut self) -> Result<bool> {
        self.is_newer = false;
        match self.source.next()? {
            CursorStep::Stored(pair) => {
                self.head = key_head(pair.key);
                self.pair = Some(pair);
            }
            CursorStep::Unpacked => {
                self.pair = None;
                self.head = key_head(self.pair().key);
            }
            CursorStep::Newer(key) => {
                self.head = key_head(key);
                self.pair = Some(Pair { key, known: Known::Deleted });
                self.is_newer = true;
            }
            CursorStep::End => return Ok(false),
        }
        Ok(true)
    }

    #[inline]
    fn pair(&self) -> Pair<'_> {
        match self.pair {
            Some(pair) => pair,
            None => self.source.unpacked_pair().expect("a source that says so stands at a pair"),
        }
    }
}

/// Merges several sources: of equal keys the pair of the newest source is shown.
///
/// Invariant: `heap` is a binary heap of the sources that have not ended, by key in the direction
/// of the merge, then by age. The shown pair is at its top. If older versions of that key exist,
/// the top's children have them first.
pub(crate) struct Merge<'a> {
    direction: Direction,
    /// Newest first.
    sources: Vec<MergeSource<'a>>,
    heap: Vec<u32>,
    /// Whether a pair is shown. Its source moves on when the next pair is requested.
    shown: bool,
    dead: Dead,
}

impl<'a> Merge<'a> {
    /// Creates a merge of these sources, newest first.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    pub(crate) fn new(direction: Direction, sources: Vec<Source<'a>>) -> Result<Self> {
        let mut standing = Vec::with_capacity(sources.len());
        for source in sources {
            standing.extend(MergeSource::first(source)?);
        }
        let heap = (0..standing.len() as u32).collect::<Vec<_>>();
        let mut this = Self { direction, sources: standing, heap, shown: false, dead: Dead::default() };
        (0..this.heap.len() / 2).rev().for_each(|position| this.sift_down(position));
        Ok(this)
    }

    /// Returns the source at a position of the heap.
    #[inline]
    fn at(&self, position: usize) -> &MergeSource<'a> {
        &self.sources[self.heap[position] as usize]
    }

    /// Returns whether the source at heap position `a` comes before the source at `b`.
    #[inline]
    fn before(&self, a: usize, b: usize) -> bool {
        let (one, other) = (self.at(a), self.at(b));
        let forward = one.head.cmp(&other.head).then_with(|| one.pair().key.cmp(other.pair().key));
        let order = if self.direction == Direction::Forward { forward } else { forward.reverse() };
        order.then_with(|| self.heap[a].cmp(&self.heap[b])) == Ordering::Less
    }

    /// Moves the source at a heap position down until the heap is in order.
    #[inline]
    fn sift_down(&mut self, mut position: usize) {
        loop {
            let left = 2 * position + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let least = if right < self.heap.len() && self.before(right, left) { right } else { left };
            if !self.before(least, position) {
                return;
            }
            self.heap.swap(position, least);
            position = least;
        }
    }

    /// Returns the large values of the skipped versions.
    pub(crate) fn into_dead(self) -> Dead {
        self.dead
    }

    /// Returns the next key's newest pair, deleted keys included. Valid until the next call.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`]; the merge cannot be used afterwards.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Pair<'_>>> {
        Ok(if self.step()? { self.pair() } else { None })
    }

    /// Returns the shown pair.
    #[inline]
    pub(super) fn pair(&self) -> Option<Pair<'_>> {
        self.heap.first().map(|top| self.sources[*top as usize].pair())
    }

    /// Returns the shown pair in the form of a source's step.
    pub(super) fn stop(&self) -> CursorStep<'a> {
        match self.heap.first().map(|top| &self.sources[*top as usize]) {
            Some(MergeSource { pair: Some(pair), .. }) => CursorStep::Stored(*pair),
            Some(_) => CursorStep::Unpacked,
            None => CursorStep::End,
        }
    }

    /// Moves to the next key's newest pair and shows it. Returns whether there is one.
    #[inline]
    pub(super) fn step(&mut self) -> Result<bool> {
        if std::mem::take(&mut self.shown) {
            self.step_at(0)?;
        }
        self.resolve_top()?;
        if self.heap.len() > 1 {
            self.pass_older()?;
        }
        self.shown = !self.heap.is_empty();
        Ok(self.shown)
    }

    /// Skips keys at the top that the snapshot does not show. Finds the older version of the first
    /// key that the snapshot shows.
    #[inline]
    fn resolve_top(&mut self) -> Result<()> {
        while let Some(top) = self.heap.first()
            && self.sources[*top as usize].is_newer
        {
            self.resolve_newer(*top as usize)?;
        }
        Ok(())
    }

    /// One step of [`Self::resolve_top`], for the source at the top.
    #[inline(never)]
    fn resolve_newer(&mut self, top: usize) -> Result<()> {
        let standing = &mut self.sources[top];
        let Some(older) = standing.source.older()? else { return self.step_at(0) };
        (standing.pair, standing.is_newer) = (Some(older), false);
        Ok(())
    }

    /// Steps the source at a heap position, which is the top or one of its children. Removes a
    /// source that has ended.
    #[inline]
    fn step_at(&mut self, position: usize) -> Result<()> {
        let index = self.heap[position] as usize;
        if !self.sources[index].step()? {
            self.heap.swap_remove(position);
        }
        // The source that replaced it came from below, so the order above still holds.
        self.sift_down(position);
        Ok(())
    }

    /// Visits the remaining pairs, deleted keys included, until `visit` returns false. Returns
    /// whether it never did. Does the same as repeated [`next`](Self::next), but faster once a
    /// single source is left.
    ///
    /// # Errors
    /// Same as [`next`](Self::next).
    pub(crate) fn visit(&mut self, visit: Visitor<'_>) -> Result<bool> {
        while self.heap.len() > 1 {
            if self.step()? && self.pair().is_some_and(|pair| !visit(&pair)) {
                return Ok(false);
            }
        }
        let shown = std::mem::take(&mut self.shown);
        if !shown {
            self.resolve_top()?;
        }
        match self.heap.first().map(|only| &mut self.sources[*only as usize]) {
            Some(only) => Ok((shown || visit(&only.pair())) && only.source.visit(visit)?),
            None => Ok(true),
        }
    }

    /// Skips older versions of the key at the top.
    fn pass_older(&mut self) -> Result<()> {
        loop {
            let same = |position: &usize| {
                let (top, other) = (self.at(0), self.at(*position));
                top.head == other.head && top.pair().key == other.pair().key
            };
            let Some(position) = (1..self.heap.len().min(3)).find(same) else { return Ok(()) };
            let other = self.sources[self.heap[position] as usize].pair();
            if let Known::Pointer(pointer, _) = other.known {
                self.dead.add(other.key, pointer);
            }
            self.step_at(position)?;
        }
    }
}
