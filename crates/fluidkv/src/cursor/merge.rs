//! Several sources as one. The rules are in `cursor.rs`.

use std::cmp::Ordering;

use lodestore_contract::{Direction, Result};
use lodestore_index::key_head;

use super::{Pair, Source, Stop, Visitor};
use crate::value_log::Dead;
use crate::view::Known;

/// A source with the pair it stands at.
struct Standing<'a> {
    source: Source<'a>,
    head: u64,
    /// `None`: it is one that passes.
    pair: Option<Pair<'a>>,
}

impl<'a> Standing<'a> {
    /// A source at its first pair, if it has any.
    fn first(source: Source<'a>) -> Result<Option<Self>> {
        let mut this = Self { source, head: 0, pair: None };
        Ok(this.step()?.then_some(this))
    }

    /// Steps on; whether there is a pair.
    #[inline]
    fn step(&mut self) -> Result<bool> {
        match self.source.next()? {
            Stop::Lasting(pair) => {
                self.head = key_head(pair.key);
                self.pair = Some(pair);
            }
            Stop::Passing => {
                self.pair = None;
                self.head = key_head(self.pair().key);
            }
            Stop::End => return Ok(false),
        }
        Ok(true)
    }

    #[inline]
    fn pair(&self) -> Pair<'_> {
        match self.pair {
            Some(pair) => pair,
            None => self.source.passing().expect("a source that says so stands at a pair"),
        }
    }
}

/// Several sources as one: of equal keys the newest source's is shown.
pub(crate) struct Merge<'a> {
    direction: Direction,
    /// Newest first; those that ended are gone.
    sources: Vec<Standing<'a>>,
    /// The source whose pair is shown, and whether one is: it steps on when the next pair is asked for.
    best: usize,
    shown: bool,
    dead: Dead,
}

impl<'a> Merge<'a> {
    /// A merge of these, newest first.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`].
    pub(crate) fn new(direction: Direction, sources: Vec<Source<'a>>) -> Result<Self> {
        let mut standing = Vec::with_capacity(sources.len());
        for source in sources {
            standing.extend(Standing::first(source)?);
        }
        Ok(Self { direction, sources: standing, best: 0, shown: false, dead: Dead::default() })
    }

    /// Whether `a` comes before `b`.
    fn order(&self, a: &Standing<'_>, b: &Standing<'_>) -> Ordering {
        let forward = a.head.cmp(&b.head).then_with(|| a.pair().key.cmp(b.pair().key));
        if self.direction == Direction::Forward { forward } else { forward.reverse() }
    }

    /// Large values of versions that were passed over.
    pub(crate) fn into_dead(self) -> Dead {
        self.dead
    }

    /// The next key's newest pair, deleted ones among them, until the next call.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`]; the merge is of no more use then.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Pair<'_>>> {
        Ok(if self.step()? { self.pair() } else { None })
    }

    /// The pair that is shown.
    #[inline]
    pub(super) fn pair(&self) -> Option<Pair<'_>> {
        self.sources.get(self.best).map(Standing::pair)
    }

    /// The same as a source says it.
    pub(super) fn stop(&self) -> Stop<'a> {
        match self.sources.get(self.best) {
            Some(Standing { pair: Some(pair), .. }) => Stop::Lasting(*pair),
            Some(_) => Stop::Passing,
            None => Stop::End,
        }
    }

    /// Goes to the next key's newest pair, which is shown then; whether there is one.
    #[inline]
    pub(super) fn step(&mut self) -> Result<bool> {
        if std::mem::take(&mut self.shown) {
            self.step_source(self.best)?;
        }
        self.best = 0;
        if self.sources.len() > 1 {
            self.choose()?;
        }
        self.shown = !self.sources.is_empty();
        Ok(self.shown)
    }

    /// Steps a source on, which is taken out at its end.
    #[inline]
    fn step_source(&mut self, index: usize) -> Result<()> {
        if !self.sources[index].step()? {
            self.sources.remove(index);
        }
        Ok(())
    }

    /// Visits what is left, deleted keys among it, until `visit` says false; whether it never did. As [`next`](Self::next) again and
    /// again, and quicker where one source is left.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) fn visit(&mut self, visit: Visitor<'_>) -> Result<bool> {
        while self.sources.len() > 1 {
            if self.step()? && self.pair().is_some_and(|pair| !visit(&pair)) {
                return Ok(false);
            }
        }
        let shown = std::mem::take(&mut self.shown);
        match self.sources.first_mut() {
            Some(only) => Ok((shown || visit(&only.pair())) && only.source.visit(visit)?),
            None => Ok(true),
        }
    }

    /// Finds the source of the next pair, and passes over older versions of its key.
    fn choose(&mut self) -> Result<()> {
        let mut best = 0;
        for index in 1..self.sources.len() {
            if self.order(&self.sources[index], &self.sources[best]) == Ordering::Less {
                best = index;
            }
        }
        self.best = best;
        // From behind, so that those which end can be taken out.
        for index in (best + 1..self.sources.len()).rev() {
            let (first, other) = (&self.sources[best], &self.sources[index]);
            if first.head != other.head {
                continue;
            }
            let (first, other) = (first.pair(), other.pair());
            if first.key != other.key {
                continue;
            }
            if let Known::Pointer(pointer, _) = other.known {
                self.dead.add(first.key, pointer);
            }
            self.step_source(index)?;
        }
        Ok(())
    }
}
