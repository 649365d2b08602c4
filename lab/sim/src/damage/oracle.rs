//! The rule, applied to one damaged image.
//!
//! > A read returns the correct value or an error that says what is damaged.
//! > A read never returns an old value, and a key never disappears silently.

use std::collections::HashSet;

use lodestore_contract::{Error, Result as StoreResult};
use lodestore_media::sim::{Rng, SimImage};

use super::medium::Medium;
use super::model::{Breach, Model, Violation};
use crate::op::Op;
use crate::oracle::show;
use crate::panics::caught;
use crate::script::random_op;
use crate::shape::{SALVAGE_MODE_FLAG, Shape};
use crate::subject::{Engine, Subject, Walk};

/// Largest value of the operations after an open.
const VALUE_MAX: u64 = 120;
/// Keys of the history that these operations use, at most.
const KEYS_MAX: usize = 10;
/// Keys that no history writes.
const STRANGE_KEYS: [&[u8]; 3] = [b"never written", b"x", b"key/99999"];

/// The result of a damaged image without a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Every answer was right, and nothing was reported.
    Correct,
    /// Damage was reported, and every other answer was right.
    Reported,
    /// The strict open was refused.
    Refused,
}

/// The amount of work on an image.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Whether the store is killed and opened once more.
    pub again: bool,
    /// Random operations after the open; then a kill, an open, a clean stop and an open follow.
    pub ops: usize,
    /// Seed of these operations.
    pub seed: u64,
}

fn breach(breach: Breach, phase: &'static str, what: impl Into<String>) -> Violation {
    Violation { breach, phase, what: what.into() }
}

/// Runs engine code; a panic is a violation.
fn guarded<R>(phase: &'static str, work: impl FnOnce() -> R) -> Result<R, Violation> {
    caught(work).map_err(|panic| breach(Breach::Panic, phase, panic))
}

/// Whether an error reports damaged or unreadable bytes.
fn is_report(error: &Error) -> bool {
    matches!(error, Error::Corrupt { .. } | Error::Io { .. } | Error::TooFewDevices { .. } | Error::Poisoned { .. })
}

/// Whether an error is a fair reason to refuse an open.
fn is_refusal(error: &Error) -> bool {
    // A simulated pool without a whole header is missing. For a directory the open reports damage.
    let is_of_header = matches!(error, Error::NewerFormat { .. } | Error::OlderFormat { .. } | Error::Missing { .. });
    // A device of a matrix is foreign at the position of another.
    is_report(error) || is_of_header || matches!(error, Error::WrongEngine { .. } | Error::Foreign { .. })
}

/// Judges one damaged image.
pub struct Judge<'a> {
    /// The engine.
    pub engine: &'a dyn Engine,
    /// The store's size and mode.
    pub shape: Shape,
    /// The allowed answers of each key.
    pub model: Model,
    /// Whether anything was reported so far.
    reported: bool,
    /// Whether the open store refuses writes.
    poisoned: bool,
    /// Whether a salvage open answered an older value, and reported damage.
    pub salvaged_old: bool,
}

impl<'a> Judge<'a> {
    /// Returns the judge of one image.
    pub fn new(engine: &'a dyn Engine, shape: Shape, model: Model) -> Self {
        Self { engine, shape, model, reported: false, poisoned: false, salvaged_old: false }
    }

    /// Applies the rule to `image`.
    ///
    /// # Errors
    /// The first violation.
    pub fn judge(&mut self, image: &SimImage, effort: Effort) -> Result<Class, Violation> {
        let Some(store) = self.open(image, "open")? else {
            self.salvage(image, effort)?;
            return Ok(Class::Refused);
        };
        self.read_all(&*store, "first reads")?;
        if effort.again || effort.ops > 0 {
            self.go_on(store, image, effort)?;
        } else {
            guarded("drop", || drop(store))?;
        }
        Ok(if self.reported { Class::Reported } else { Class::Correct })
    }

    /// Opens the store; `None` if it is refused.
    fn open(&mut self, image: &SimImage, phase: &'static str) -> Result<Option<Box<dyn Subject>>, Violation> {
        match guarded(phase, || self.engine.open(image, &self.shape))? {
            Err(error) if is_refusal(&error) => {
                self.reported = true;
                Ok(None)
            }
            Err(error) => Err(breach(Breach::Error, phase, format!("the open is refused with: {error}"))),
            Ok(store) => {
                let waited = guarded(phase, || store.wait_recovered())?;
                self.note(waited.map(|()| true), phase)?;
                Ok(Some(store))
            }
        }
    }

    /// Records an error that reports damage; returns `Ok(None)` then.
    fn note<R>(&mut self, answer: StoreResult<R>, phase: &'static str) -> Result<Option<R>, Violation> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if is_report(&error) => {
                self.reported = true;
                Ok(None)
            }
            Err(error) => Err(breach(Breach::Error, phase, format!("a read answered: {error}"))),
        }
    }

    /// Reads everything by every kind of read.
    fn read_all(&mut self, store: &dyn Subject, phase: &'static str) -> Result<(), Violation> {
        let (mut unreadable, mut first_error) = (0, String::new());
        let keys = self.model.keys();
        for key in keys.keys().map(Vec::as_slice).chain(STRANGE_KEYS) {
            let seen = guarded(phase, || store.get(key))?;
            if let (0, Err(error)) = (unreadable, &seen) {
                first_error = format!("{:?}: {error}", show(key));
            }
            match self.note(seen, phase)? {
                Some(seen) => {
                    self.model
                        .judge_get(key, &seen)
                        .map_err(|(kind, what)| breach(kind, phase, format!("get: {what}")))?;
                }
                None => unreadable += 1,
            }
            self.read_presence(store, key, phase)?;
        }
        for walk in Walk::ALL {
            self.walk(store, walk, phase)?;
        }
        let found = guarded(phase, || store.verify())?;
        let is_clean = self.note(found, phase)?.is_some_and(|found| found.is_empty());
        self.reported |= !is_clean;
        let count = guarded(phase, || store.len())?;
        if let Some(count) = self.note(count, phase)? {
            let allowed = self.model.count();
            if !allowed.contains(&count) {
                let what = format!("len is {count} with {allowed:?} keys");
                return Err(breach(Breach::Count, phase, what));
            }
        }
        if unreadable > 0 && is_clean {
            let what = format!("{unreadable} keys cannot be read ({first_error}), and verify is clean");
            return Err(breach(Breach::VerifyBlind, phase, what));
        }
        Ok(())
    }

    fn read_presence(&mut self, store: &dyn Subject, key: &[u8], phase: &'static str) -> Result<(), Violation> {
        let contains = guarded(phase, || store.contains(key))?;
        let Some(contains) = self.note(contains, phase)? else { return Ok(()) };
        if contains && !self.model.may_exist(key) {
            return Err(breach(Breach::OldValue, phase, format!("contains: {:?} is back", show(key))));
        }
        if !contains && self.model.must_exist(key) {
            return Err(breach(Breach::Absent, phase, format!("contains: {:?} is absent", show(key))));
        }
        Ok(())
    }

    fn walk(&mut self, store: &dyn Subject, walk: Walk, phase: &'static str) -> Result<(), Violation> {
        let mut pairs = Vec::new();
        let walked = guarded(phase, || store.walk(walk, &mut pairs))?;
        let ended = match self.note(walked, phase)? {
            Some(false) => return Ok(()),
            ended => ended.is_some(),
        };
        let mut seen = HashSet::with_capacity(pairs.len());
        for (key, value) in &pairs {
            self.model
                .judge_value(key, Some(value))
                .map_err(|(kind, what)| breach(kind, phase, format!("{walk:?}: {what}")))?;
            if !seen.insert(key.as_slice()) {
                return Err(breach(Breach::WalkTwice, phase, format!("{walk:?} shows {:?} twice", show(key))));
            }
        }
        let in_order = |ascending: bool| pairs.windows(2).all(|two| (two[0].0 < two[1].0) == ascending);
        let ordered = match walk {
            Walk::ForEach => true,
            Walk::Ascending | Walk::Owned => in_order(true),
            Walk::Descending => in_order(false),
        };
        if !ordered {
            return Err(breach(Breach::WalkOrder, phase, format!("{walk:?} is out of order")));
        }
        let is_export = walk == Walk::Owned;
        let is_told = is_export && store.recovery_damage().left_out > 0;
        if ended && !is_told {
            let keys = self.model.keys();
            let missing = keys.keys().find(|key| self.model.must_exist(key) && !seen.contains(key.as_slice()));
            if let Some(key) = missing {
                return Err(breach(Breach::WalkShort, phase, format!("{walk:?} leaves out {:?}", show(key))));
            }
        }
        Ok(())
    }

    /// A second open, then operations with a kill, an open, a clean stop and an open.
    fn go_on(&mut self, store: Box<dyn Subject>, image: &SimImage, effort: Effort) -> Result<(), Violation> {
        let mut medium = Medium::new(image);
        let mut store = store;
        if effort.again {
            let Some(next) = self.reopen(store, &mut medium, "second open")? else { return Ok(()) };
            store = next;
        }
        if effort.ops == 0 {
            return guarded("drop", || drop(store));
        }
        self.work(&*store, effort)?;
        self.read_all(&*store, "after operations")?;
        let Some(store) = self.reopen(store, &mut medium, "kill after operations")? else { return Ok(()) };
        let closed = guarded("close", || store.close())?;
        self.note(closed, "close")?;
        let Some(store) = self.reopen(store, &mut medium, "open after close")? else { return Ok(()) };
        guarded("drop", || drop(store))
    }

    /// Drops a store, opens what its stores left, and reads all.
    fn reopen(
        &mut self,
        store: Box<dyn Subject>,
        medium: &mut Medium,
        phase: &'static str,
    ) -> Result<Option<Box<dyn Subject>>, Violation> {
        let trace = store.recorder().take();
        guarded(phase, || drop(store))?;
        trace.events.iter().for_each(|event| medium.apply(event));
        // The drop of a store stores nothing: the process was killed.
        let Some(store) = self.open(medium.image(), phase)? else { return Ok(None) };
        self.read_all(&*store, phase)?;
        Ok(Some(store))
    }

    fn work(&mut self, store: &dyn Subject, effort: Effort) -> Result<(), Violation> {
        let phase = "operations";
        self.poisoned = false;
        let mut rng = Rng::new(effort.seed);
        let known: Vec<Vec<u8>> = self.model.keys().keys().cloned().collect();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for _ in 0..KEYS_MAX.min(known.len()) {
            keys.push(known[rng.index(known.len())].clone());
        }
        keys.extend((0..3u8).map(|index| vec![b'n', b'e', b'w', index]));
        for _ in 0..effort.ops {
            let op = random_op(&mut rng, &keys, VALUE_MAX);
            match guarded(phase, || store.apply(&op))? {
                Ok(outcome) => {
                    let followed = self.model.follow(&op, &outcome, self.reported);
                    followed.map_err(|(kind, what)| breach(kind, phase, what))?;
                }
                Err(error) => self.refused_op(&op, &error)?,
            }
        }
        Ok(())
    }

    fn refused_op(&mut self, op: &Op, error: &Error) -> Result<(), Violation> {
        match error {
            Error::Corrupt { .. } => {}
            // Nothing was done.
            Error::TooFewDevices { may_stand: false, .. } => {}
            Error::Poisoned { .. } if self.poisoned => {}
            // The write may have happened or not.
            Error::Poisoned { .. } | Error::Io { .. } | Error::TooFewDevices { .. } => {
                self.poisoned |= matches!(error, Error::Poisoned { .. });
                self.model.follow_doubtful(op);
            }
            Error::IndexFull { .. } | Error::DramBudget { .. } | Error::Unfinished { .. } => {}
            _ => {
                let what = format!("{} answered: {error}", op.name());
                return Err(breach(Breach::Error, "operations", what));
            }
        }
        self.reported = true;
        Ok(())
    }

    /// Opens a refused store in salvage mode, which must give right values or reports. A later
    /// strict open must be refused, or keep the rule: a salvage does not hide its losses.
    fn salvage(&mut self, image: &SimImage, effort: Effort) -> Result<(), Violation> {
        let phase = "salvage";
        let shape = Shape { mode: self.shape.mode | SALVAGE_MODE_FLAG, ..self.shape };
        let store = match guarded(phase, || self.engine.open(image, &shape))? {
            Ok(store) => store,
            Err(error) if is_refusal(&error) => return Ok(()),
            Err(error) => return Err(breach(Breach::Error, phase, format!("refused with: {error}"))),
        };
        let waited = guarded(phase, || store.wait_recovered())?;
        self.note(waited, phase)?;
        let found = guarded(phase, || store.verify())?;
        let told = self.note(found, phase)?.is_none_or(|found| !found.is_empty());
        let told = told || store.recovery_damage() != Default::default();
        let mut is_old = false;
        let mut judged = |kind: Breach, what: String| match kind {
            Breach::OldValue if told => {
                is_old = true;
                None
            }
            Breach::OldValue => Some(breach(Breach::SalvageOld, phase, what)),
            Breach::Absent if told => None,
            Breach::Absent => Some(breach(Breach::SalvageSilent, phase, what)),
            kind => Some(breach(kind, phase, what)),
        };
        for key in self.model.keys().keys() {
            let seen = guarded(phase, || store.get(key))?;
            if let Some(seen) = self.note(seen, phase)?
                && let Err((kind, what)) = self.model.judge_get(key, &seen)
                && let Some(violation) = judged(kind, format!("get: {what}"))
            {
                return Err(violation);
            }
        }
        for walk in Walk::ALL {
            let mut pairs = Vec::new();
            let walked = guarded(phase, || store.walk(walk, &mut pairs))?;
            self.note(walked, phase)?;
            for (key, value) in &pairs {
                if let Err((kind, what)) = self.model.judge_value(key, Some(value))
                    && let Some(violation) = judged(kind, format!("{walk:?}: {what}"))
                {
                    return Err(violation);
                }
            }
        }
        self.salvaged_old = is_old;
        if !effort.again {
            return guarded(phase, || drop(store));
        }
        match guarded("close of a salvage", || store.close())? {
            // Data that a salvage cannot read may use the space that the stop needs.
            Err(Error::Full { .. }) => {}
            closed => drop(self.note(closed, "close of a salvage")?),
        }
        let mut medium = Medium::new(image);
        match self.reopen(store, &mut medium, "open after a salvage") {
            Ok(Some(store)) => guarded("drop", || drop(store)),
            Ok(None) => Ok(()),
            Err(violation) => {
                let forgets = matches!(
                    violation.breach,
                    Breach::OldValue | Breach::Absent | Breach::WalkShort | Breach::Count | Breach::VerifyBlind
                );
                let breach = if forgets { Breach::SalvageForgotten } else { violation.breach };
                Err(Violation { breach, ..violation })
            }
        }
    }
}
