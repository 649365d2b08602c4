//! Undamaged stores: a history of operations, and its final image.

use std::collections::{BTreeMap, BTreeSet};

use lodestore_contract::Error;
use lodestore_media::sim::{LineModel, Rng, SimImage, SimSpec, Trace, What};

use super::fault::LINE_BYTES;
use crate::fluidkv::MODE_INTERVAL;
use crate::op::{Op, Outcome, State};
use crate::oracle::{Oracle, Wrong, judged};
use crate::shape::Shape;
use crate::subject::{Engine, Subject};

/// Maximum number of earlier images per history, besides those of clean stops.
const MOMENTS_MAX: usize = 6;

/// How a history ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// A clean stop.
    Clean,
    /// The process is killed between two operations; every executed store is present.
    Kill,
    /// A crash within the last operation leaves one of the legal images, chosen by this seed.
    Crash(u64),
}

impl End {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean stop",
            Self::Kill => "kill",
            Self::Crash(_) => "crash",
        }
    }
}

/// The operations on a store before it is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The store's size and mode.
    pub shape: Shape,
    /// Its operations.
    pub ops: Vec<Op>,
    /// Its end.
    pub end: End,
}

/// An undamaged store, stopped.
#[derive(Debug, Clone)]
pub struct Base {
    /// The bytes of its files.
    pub image: SimImage,
    /// Earlier images, the oldest first.
    pub moments: Vec<SimImage>,
    /// The contents at each of them, and the session of each.
    pub held: Vec<(State, usize)>,
    /// Number of reopens: the session of `image`.
    pub sessions: usize,
    /// Index of the last clean stop in `moments`.
    pub last_clean: Option<usize>,
    /// The states that the image may hold.
    pub allowed: Vec<State>,
    /// Every key of the history.
    pub universe: Vec<Vec<u8>>,
    /// The lines that the interrupted operation of a crash stored, by file and offset.
    pub crash_lines: BTreeSet<(u16, u64)>,
    /// Keys that ever held an expired pair.
    pub expired: BTreeSet<Vec<u8>>,
    /// Every value that a key ever had.
    pub past: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
}

/// One operation of a history, for an observer.
pub struct Step<'a> {
    /// Its session.
    pub session: usize,
    /// The operation.
    pub op: &'a Op,
    /// The contents before.
    pub before: &'a State,
    /// The medium before.
    pub medium: &'a LineModel,
    /// The stores, flushes and fences of the operation.
    pub trace: &'a Trace,
}

struct Builder<'a> {
    observer: &'a mut dyn FnMut(&Step<'_>),
    engine: &'a dyn Engine,
    history: &'a History,
    model: LineModel,
    state: State,
    rng: Rng,
    base: Base,
}

/// Runs a history.
///
/// # Errors
///
/// A failure before any damage.
pub fn build(engine: &dyn Engine, spec: &SimSpec, history: &History, seed: u64) -> Result<Base, Wrong> {
    observe(engine, spec, history, seed, &mut |_| {})
}

/// Runs a history and shows each acknowledged operation to `observer`.
///
/// # Errors
///
/// A failure before any damage.
pub fn observe(
    engine: &dyn Engine,
    spec: &SimSpec,
    history: &History,
    seed: u64,
    observer: &mut dyn FnMut(&Step<'_>),
) -> Result<Base, Wrong> {
    let keys: BTreeSet<Vec<u8>> = history.ops.iter().flat_map(Op::keys).map(<[u8]>::to_vec).collect();
    let base = Base {
        image: SimImage::default(),
        moments: Vec::new(),
        held: Vec::new(),
        sessions: 0,
        last_clean: None,
        allowed: Vec::new(),
        universe: keys.into_iter().collect(),
        crash_lines: BTreeSet::new(),
        expired: BTreeSet::new(),
        past: BTreeMap::new(),
    };
    let empty = SimImage { spec: spec.clone(), ..SimImage::default() };
    let model = LineModel::new(empty);
    let (state, rng) = (State::default(), Rng::new(seed));
    let mut builder = Builder { observer, engine, history, model, state, rng, base };
    builder.run(spec)?;
    Ok(builder.base)
}

impl Builder<'_> {
    fn take(&mut self, store: &dyn Subject) {
        store.recorder().take().events.iter().for_each(|event| self.model.apply(event));
    }

    fn run(&mut self, spec: &SimSpec) -> Result<(), Wrong> {
        let mut store = judged(Oracle::Live, || self.engine.create(spec, &self.history.shape))?;
        self.take(&*store);
        let count = self.history.ops.len();
        let every = count / MOMENTS_MAX + 1;
        for (index, op) in self.history.ops.iter().enumerate() {
            let is_last = index + 1 == count;
            if let (true, End::Crash(seed)) = (is_last && is_of_data(op), self.history.end) {
                return self.crash(store, op, seed);
            }
            store = self.one(store, op)?;
            if index % every == every / 2 && !is_last {
                self.keep(self.model.newest());
            }
        }
        if self.history.end == End::Clean {
            judged(Oracle::Live, || store.close())?;
            self.take(&*store);
        }
        drop(store);
        self.base.image = self.model.newest();
        self.base.allowed = vec![self.state.clone()];
        Ok(())
    }

    fn keep(&mut self, image: SimImage) {
        self.base.moments.push(image);
        self.base.held.push((self.state.clone(), self.base.sessions));
    }

    fn open(&mut self, image: &SimImage) -> Result<Box<dyn Subject>, Wrong> {
        let store = judged(Oracle::Live, || {
            let store = self.engine.open(image, &self.history.shape)?;
            store.wait_recovered()?;
            Ok(store)
        })?;
        self.base.sessions += 1;
        self.take(&*store);
        Ok(store)
    }

    fn one(&mut self, store: Box<dyn Subject>, op: &Op) -> Result<Box<dyn Subject>, Wrong> {
        let is_interval = self.history.shape.mode & MODE_INTERVAL != 0 && self.engine.name() == "fluidkv";
        match op {
            Op::Reopen => {
                judged(Oracle::Live, || store.close())?;
                self.take(&*store);
                drop(store);
                let image = self.model.newest();
                self.base.last_clean = Some(self.base.moments.len());
                self.keep(image.clone());
                self.open(&image)
            }
            Op::PowerCut if !is_interval => {
                drop(store);
                let image = self.crash_image(4);
                self.model = LineModel::new(image.clone());
                self.open(&image)
            }
            Op::Kill | Op::PowerCut => {
                drop(store);
                let image = self.model.newest();
                self.open(&image)
            }
            _ => {
                let before = self.state.clone();
                self.apply(&*store, op)?;
                let trace = store.recorder().take();
                let (session, medium) = (self.base.sessions, &self.model);
                (self.observer)(&Step { session, op, before: &before, medium, trace: &trace });
                trace.events.iter().for_each(|event| self.model.apply(event));
                Ok(store)
            }
        }
    }

    /// Returns one of the images that a crash may leave now.
    fn crash_image(&mut self, choices: usize) -> SimImage {
        let set = self.model.crash_set();
        let choices = set.select(choices, &mut self.rng);
        let choice = &choices[self.rng.index(choices.len())];
        self.model.with_image(&set, choice, Clone::clone)
    }

    fn apply(&mut self, store: &dyn Subject, op: &Op) -> Result<Outcome, Wrong> {
        let outcome = judged(Oracle::Live, || match store.apply(op) {
            // An index without space for a key like this one is full, and nothing changed.
            Err(Error::IndexFull { .. }) => Ok(Outcome::Full),
            outcome => outcome,
        })?;
        if outcome == Outcome::Full {
            return Ok(outcome);
        }
        let expected = self.state.apply(op);
        if outcome != expected {
            return Err(Wrong::new(Oracle::Live, format!("{} answered {outcome:?}, not {expected:?}", op.name())));
        }
        for key in op.keys() {
            if let Some(held) = self.state.get(key) {
                self.base.past.entry(key.to_vec()).or_default().insert(held.value.clone());
            } else if self.state.held(key).is_some() {
                self.base.expired.insert(key.to_vec());
            }
        }
        Ok(outcome)
    }

    /// Runs the last operation, cut at a random store, flush or fence.
    fn crash(&mut self, store: Box<dyn Subject>, op: &Op, seed: u64) -> Result<(), Wrong> {
        let before = self.state.clone();
        let outcome = self.apply(&*store, op)?;
        let trace = store.recorder().take();
        drop(store);
        self.rng = Rng::new(seed);
        let fences: Vec<usize> = (0..trace.events.len())
            .filter(|at| matches!(trace.events[*at].what, What::Fence { .. } | What::Sync { .. }))
            .collect();
        let mut at = self.rng.index(trace.events.len() + 1);
        if !fences.is_empty() && self.rng.one_in(2) {
            at = fences[self.rng.index(fences.len())];
        }
        for event in &trace.events[..at] {
            if let What::Word { region, offset, .. } = event.what {
                self.base.crash_lines.insert((region, offset / LINE_BYTES * LINE_BYTES));
            }
            self.model.apply(event);
        }
        self.base.image = self.crash_image(6);
        self.base.allowed = vec![self.state.clone(), before.clone()];
        if outcome == Outcome::Full && self.engine.takes_back() {
            let mut done = before;
            done.apply(op);
            self.base.allowed.push(done);
        }
        Ok(())
    }
}

/// Whether an operation changes or reads data, and does not stop the store.
fn is_of_data(op: &Op) -> bool {
    !matches!(op, Op::Reopen | Op::Kill | Op::PowerCut)
}
