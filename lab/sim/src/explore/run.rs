//! One script: run on a live store, crashed at every point of every step.

use std::collections::HashSet;

use lodestore_media::sim::{Event, LineModel, Rng, SimImage, Trace, What};

use crate::config::Config;
use crate::counts::Counts;
use crate::explore::check::{self, Checker, Failed};
use crate::explore::{Shared, Sites};
use crate::failure::Failure;
use crate::fluidkv::MODE_INTERVAL;
use crate::op::{Op, Outcome, State};
use crate::oracle::{self, Oracle, Wrong, judged};
use crate::script::Script;
use crate::subject::{Engine, Subject};

/// A step with more events than this changes the structure, and is always explored.
const SHORT_STEP_EVENTS_MAX: usize = 90;

/// One in this many long steps is cut at a random moment, and the script continues from the
/// remains.
const LONG_CUT_DIVISOR: u64 = 3;
/// The same for batches.
const BATCH_CUT_DIVISOR: u64 = 2;
/// The same for other steps.
const SHORT_CUT_DIVISOR: u64 = 60;
/// The last fences of a batch, those of its log. Most cuts of batches are next to them.
const LAST_FENCE_COUNT: usize = 3;

/// After one in this many operations the running store's account is compared with the reachable
/// data.
const LIVE_ACCOUNT_DIVISOR: u64 = 4;

/// The distance, in fences, up to which a sync fails: those of an ordinary operation, or of one
/// that changes the structure.
const FENCES: [u64; 2] = [4, 24];
/// Operations attempted on a store whose sync has failed.
const REFUSED_OPS: u64 = 4;

/// Largest value of these operations.
const REFUSED_VALUE_BYTES_MAX: u64 = 60;

/// Maximum writes after the last sync.
const RECENT_MAX: usize = 12;

/// Events of a trace that a failure prints.
const TRACE_EVENTS_MAX: usize = 400;

/// The states allowed at the crash points of one step.
struct Step<'a> {
    name: &'static str,
    place: String,
    /// States that a crash within it may leave, the likeliest first.
    during: Vec<&'a State>,
    /// States that a crash after it may leave.
    behind: Vec<&'a State>,
    /// Whether the store is being created.
    creating: bool,
}

struct Run<'a> {
    engine: &'a dyn Engine,
    config: &'a Config,
    shared: &'a Shared,
    script: &'a Script,
    universe: &'a [Vec<u8>],
    checker: Checker<'a>,
    rng: Rng,
    /// For failing syncs.
    fault_rng: Rng,
    model: LineModel,
    state: State,
    /// States since the last sync to which a crash may revert, the newest last; only with
    /// [`Config::prefix`].
    recent: Vec<State>,
    /// Images already judged with only the present state allowed.
    seen: HashSet<u64>,
}

/// Runs `script` and explores it. Returns the counts, the executed call sites, and the result.
pub fn run_script(
    engine: &dyn Engine,
    config: &Config,
    script: &Script,
    index: u64,
    shared: &Shared,
) -> (Counts, Sites, Result<(), Box<Failure>>) {
    let universe = script.universe();
    let mut script = script.clone();
    script.shape.mode |= if config.prefix { MODE_INTERVAL } else { 0 };
    let script = &script;
    let empty = SimImage { spec: config.spec(true), ..SimImage::default() };
    let mut run = Run {
        engine,
        config,
        shared,
        script,
        universe: &universe,
        checker: Checker::new(engine, config, shared, script.shape, &universe),
        rng: Rng::part(config.seed, index ^ 0x5ca1_ab1e),
        fault_rng: Rng::part(config.seed, index ^ 0xfa11_ed5c),
        model: LineModel::new(empty),
        state: State::default(),
        recent: Vec::new(),
        seen: HashSet::new(),
    };
    let result = run.all();
    run.checker.counts.scripts += 1;
    (run.checker.counts, run.checker.sites, result)
}

impl Run<'_> {
    fn all(&mut self) -> Result<(), Box<Failure>> {
        let mut store = self.create()?;
        for (index, op) in self.script.ops.iter().enumerate() {
            if self.shared.is_over() {
                break;
            }
            store = self.one(store, index, op)?;
            if self.recent.len() >= RECENT_MAX {
                store = self.one(store, index, &Op::Sync)?;
            }
        }
        let place = format!("script {:?}, at its end", self.script.name);
        self.judge_live(&*store, &place)?;
        self.checker.add_sites(&*store);
        Ok(())
    }

    fn fail_live(&self, wrong: Wrong, place: &str, trace: &Trace) -> Box<Failure> {
        let failed = Failed { wrong, image: SimImage::default(), depth: 0, allowed: vec![self.state.clone()] };
        Box::new(Failure { image: None, ..self.failure(failed, place, false, trace) })
    }

    fn failure(&self, failed: Failed, place: &str, may_be_missing: bool, trace: &Trace) -> Failure {
        let shown = Trace { events: trace.events.iter().take(TRACE_EVENTS_MAX).copied().collect() };
        Failure {
            engine: self.engine.name().into(),
            seed: self.config.seed,
            place: place.into(),
            depth: failed.depth,
            wrong: failed.wrong,
            shape: self.script.shape,
            image: Some(failed.image),
            allowed: failed.allowed,
            may_be_missing,
            universe: self.universe.to_vec(),
            trace: shown.to_string(),
        }
    }

    /// Judges contents and verification of the running store.
    fn judge_live(&mut self, store: &dyn Subject, place: &str) -> Result<(), Box<Failure>> {
        let judged = oracle::contents(store, &[&self.state], self.universe).and_then(|_| oracle::verified(store));
        let stores = store.recorder().take();
        stores.events.iter().for_each(|event| self.model.apply(event));
        judged.map_err(|wrong| self.fail_live(wrong.by(Oracle::Live), place, &stores))
    }

    /// Compares the live bytes of the running store with the reachable bytes of a recovery.
    fn judge_account(&mut self, store: &dyn Subject, place: &str) -> Result<(), Box<Failure>> {
        let Some(kept) = store.live_bytes() else { return Ok(()) };
        let stores = store.recorder().take();
        stores.events.iter().for_each(|event| self.model.apply(event));
        self.seen.clear();
        let image = SimImage { spec: self.config.spec(false), ..self.model.newest() };
        let again = judged(Oracle::Open, || {
            let again = self.engine.open(&image, &self.script.shape)?;
            again.wait_recovered()?;
            Ok(again)
        });
        let again = again.map_err(|wrong| self.fail_live(wrong, place, &Trace::default()))?;
        self.checker.counts.leak_checks += 1;
        check::same_account(kept, store.checkpoint_bytes(), &*again)
            .map_err(|wrong| self.fail_live(wrong, place, &stores))
    }

    fn create(&mut self) -> Result<Box<dyn Subject>, Box<Failure>> {
        let place = format!("script {:?}, create", self.script.name);
        let spec = self.config.spec(true);
        let store = judged(Oracle::Live, || self.engine.create(&spec, &self.script.shape))
            .map_err(|wrong| self.fail_live(wrong, &place, &Trace::default()))?;
        let trace = store.recorder().take();
        let empty = State::default();
        let step = Step { name: "create", place, during: vec![&empty], behind: vec![&empty], creating: true };
        self.explore(&step, &trace)?;
        Ok(store)
    }

    fn one(&mut self, store: Box<dyn Subject>, index: usize, op: &Op) -> Result<Box<dyn Subject>, Box<Failure>> {
        let key = op.key().map(oracle::show).unwrap_or_default();
        let place = format!("script {:?}, step {index} ({} {key:?})", self.script.name, op.name());
        match op {
            Op::Reopen => {
                self.plan_failure(&*store);
                let closed = judged(Oracle::Live, || store.close());
                let trace = store.recorder().take();
                if !self.has_failed(&*store) || closed.as_ref().is_err_and(|wrong| wrong.oracle == Oracle::Panic) {
                    closed.clone().map_err(|wrong| self.fail_live(wrong, &place, &trace))?;
                }
                self.checker.add_sites(&*store);
                drop(store);
                let state = self.state.clone();
                let during = self.or_recent(std::slice::from_ref(&state));
                let during: Vec<&State> = during.iter().collect();
                let behind = if closed.is_ok() { vec![&state] } else { during.clone() };
                let step = Step { name: "close", place: place.clone(), during, behind, creating: false };
                self.explore(&step, &trace)?;
                self.open(self.model.newest(), "open after close", &place, &[state])
            }
            Op::Kill => {
                self.checker.add_sites(&*store);
                drop(store);
                let state = self.state.clone();
                self.open(self.model.newest(), "open after kill", &place, &[state])
            }
            Op::PowerCut => {
                self.checker.add_sites(&*store);
                drop(store);
                let set = self.model.crash_set();
                let choices = set.select(6, &mut self.rng);
                let choice = &choices[self.rng.index(choices.len())];
                let image = self.model.with_image(&set, choice, Clone::clone);
                self.model = LineModel::new(image.clone());
                let allowed = self.or_recent(std::slice::from_ref(&self.state));
                self.open(image, "open after power cut", &place, &allowed)
            }
            _ => self.apply(store, op, place),
        }
    }

    /// Returns a moment of a step. For a batch it is usually next to one of its last fences, for
    /// other steps next to any fence, where cuts find most.
    fn moment(&mut self, op: &Op, events: &[Event]) -> usize {
        let is_fence = |at: &usize| matches!(events[*at].what, What::Fence { .. } | What::Sync { .. });
        let fences: Vec<usize> = (0..events.len()).filter(is_fence).collect();
        if fences.is_empty() || self.rng.one_in(3) {
            return self.rng.index(events.len() + 1);
        }
        let count = if op.is_batch() { LAST_FENCE_COUNT } else { fences.len() };
        let last = &fences[fences.len().saturating_sub(count)..];
        (last[self.rng.index(last.len())] + 1).saturating_sub(self.rng.index(3))
    }

    /// Returns the medium after `events` of a step. After a power failure it is one of the possible
    /// images, with nothing pending. After a kill the next process sees every store, and pending
    /// ones stay pending.
    fn cut(&mut self, events: &[Event]) -> LineModel {
        let mut model = self.model.clone();
        events.iter().for_each(|event| model.apply(event));
        if self.rng.one_in(2) {
            // A dead process can no longer fence its flushed stores.
            model.forget_flushes();
            return model;
        }
        let set = model.crash_set();
        let choices = set.select(6, &mut self.rng);
        let choice = &choices[self.rng.index(choices.len())];
        LineModel::new(model.with_image(&set, choice, Clone::clone))
    }

    /// Opens `image`, which may hold one of `allowed`, and continues from it.
    fn open(
        &mut self,
        image: SimImage,
        name: &'static str,
        place: &str,
        allowed: &[State],
    ) -> Result<Box<dyn Subject>, Box<Failure>> {
        let fail = |run: &Self, wrong: Wrong| {
            let failed = Failed { wrong, image: image.clone(), depth: 1, allowed: allowed.to_vec() };
            Box::new(run.failure(failed, place, false, &Trace::default()))
        };
        let opened = judged(Oracle::Open, || {
            let store = self.engine.open(&image, &self.script.shape)?;
            store.wait_recovered()?;
            Ok(store)
        });
        let store = opened.map_err(|wrong| fail(self, wrong))?;
        let trace = store.recorder().take();
        let states: Vec<&State> = allowed.iter().collect();
        let found = oracle::contents(&*store, &states, self.universe).map_err(|wrong| fail(self, wrong))?;
        self.state = allowed[found].clone();
        let place_of = format!("{place}, {name}");
        // The found state is durable at the end of the open. Before, a power failure may still lose
        // stores that a killed process did not sync.
        let during = self.or_recent(&[&allowed[found..=found], allowed].concat());
        self.recent.clear();
        let during = during.iter().collect();
        let step = Step { name, place: place_of, during, behind: vec![states[found]], creating: false };
        self.explore(&step, &trace)?;
        self.judge_live(&*store, place)?;
        Ok(store)
    }

    /// Applies one operation, explores it, and sometimes continues from one of its crashes.
    fn apply(&mut self, store: Box<dyn Subject>, op: &Op, place: String) -> Result<Box<dyn Subject>, Box<Failure>> {
        self.plan_failure(&*store);
        let outcome = judged(Oracle::Live, || store.apply(op));
        let trace = store.recorder().take();
        if self.has_failed(&*store) {
            return self.after_failure(store, op, &place, (outcome, trace));
        }
        let outcome = outcome.map_err(|wrong| self.fail_live(wrong, &place, &trace))?;
        let before = self.state.clone();
        let mut after = before.clone();
        if outcome != Outcome::Full {
            let expected = after.apply_answered(op, &outcome);
            if outcome != expected {
                let wrong = Wrong::new(Oracle::Live, format!("answered {outcome:?}, not {expected:?}"));
                return Err(self.fail_live(wrong, &place, &trace));
            }
        }
        self.state = after.clone();
        let is_long = trace.events.len() > SHORT_STEP_EVENTS_MAX;
        let has_steps = op.has_steps() || (self.script.cuts_sweeps && *op == Op::Sweep);
        let one_in = [SHORT_CUT_DIVISOR, LONG_CUT_DIVISOR][usize::from(is_long)];
        let cut = self.rng.one_in(if has_steps { BATCH_CUT_DIVISOR } else { one_in }).then(|| {
            let at = if has_steps { self.moment(op, &trace.events) } else { self.rng.index(trace.events.len() + 1) };
            self.cut(&trace.events[..at])
        });
        let (name, place_of) = (op.name(), place.clone());
        let mut within = vec![after.clone(), before.clone()];
        within.extend(before.without_keyspace(op));
        if outcome == Outcome::Full && self.engine.takes_back() {
            let mut done = before.clone();
            done.apply(op);
            within.push(done);
        }
        let allowed = self.or_recent(&within);
        let during: Vec<&State> = allowed.iter().collect();
        let is_synced = op.is_synced(&outcome);
        let behind = if self.config.prefix && !is_synced { during.clone() } else { vec![&after] };
        let step = Step { name, place: place_of, during, behind, creating: false };
        let is_chosen = is_long || self.rng.one_in(self.script.explore_every);
        if op.is_of_devices() || (is_chosen && !self.config.only_device_changes) {
            self.explore(&step, &trace)?;
        } else {
            trace.events.iter().for_each(|event| self.model.apply(event));
            self.seen.clear();
        }
        self.note_recent(is_synced, &before);
        if self.rng.one_in(LIVE_ACCOUNT_DIVISOR) {
            self.judge_account(&*store, &place)?;
        }
        let Some(cut) = cut else { return Ok(store) };
        self.checker.add_sites(&*store);
        drop(store);
        self.seen.clear();
        self.model = cut;
        self.open(self.model.newest(), "open after a cut", &place, &allowed)
    }

    /// Returns these states, and those to which a crash may revert, each once.
    fn or_recent(&self, states: &[State]) -> Vec<State> {
        let mut all: Vec<State> = Vec::new();
        for state in states.iter().chain(self.recent.iter().rev()) {
            if !all.contains(state) {
                all.push(state.clone());
            }
        }
        all
    }

    /// Records the state to which a crash may revert after an operation.
    fn note_recent(&mut self, is_synced: bool, before: &State) {
        if is_synced {
            self.recent.clear();
        } else if self.config.prefix && *before != self.state {
            self.recent.push(before.clone());
        }
    }

    /// Sometimes lets one of the next fences fail, in this operation or in a later one.
    fn plan_failure(&mut self, store: &dyn Subject) {
        if !self.config.stores_persist
            && self.engine.sees_failed_syncs()
            && self.fault_rng.one_in(self.config.failing_every)
        {
            let most = FENCES[self.fault_rng.index(FENCES.len())];
            store.recorder().fail_fence(1 + self.fault_rng.below(most));
        }
    }

    /// Whether a fence has failed.
    fn has_failed(&mut self, store: &dyn Subject) -> bool {
        let failed = store.recorder().has_failed();
        self.checker.counts.failed_syncs += u64::from(failed);
        failed
    }

    /// Checks a store after an operation in which a sync failed. An unacknowledged operation may
    /// have happened, the store refuses writes, and every crash image holds the acknowledged
    /// operations.
    fn after_failure(
        &mut self,
        store: Box<dyn Subject>,
        op: &Op,
        place: &str,
        (outcome, mut trace): (Result<Outcome, Wrong>, Trace),
    ) -> Result<Box<dyn Subject>, Box<Failure>> {
        let place = format!("{place}, a sync of it failed");
        let before = self.state.clone();
        let mut after = before.clone();
        let between = before.without_keyspace(op);
        let expected = match &outcome {
            Ok(outcome) => after.apply_answered(op, outcome),
            Err(_) => after.apply(op),
        };
        let refused = match &outcome {
            Ok(Outcome::Full) => {
                after = before.clone();
                false
            }
            Ok(outcome) if *outcome == expected => false,
            Err(wrong) if wrong.poisoned => true,
            Ok(outcome) => {
                let wrong = Wrong::new(Oracle::Live, format!("answered {outcome:?}, not {expected:?}"));
                return Err(self.fail_live(wrong, &place, &trace));
            }
            Err(wrong) => return Err(self.fail_live(wrong.clone(), &place, &trace)),
        };
        let mut allowed =
            if refused && before != after { vec![after.clone(), before.clone()] } else { vec![after.clone()] };
        allowed.extend(between.clone().filter(|_| refused));
        for _ in 0..REFUSED_OPS {
            let op = self.engine.random_op(&mut self.fault_rng, self.universe, REFUSED_VALUE_BYTES_MAX);
            let answer = judged(Oracle::Live, || store.apply(&op));
            let is_right = match &answer {
                Err(wrong) => wrong.poisoned,
                // A read, or an operation that found nothing to change.
                Ok(outcome) => allowed.iter().any(|state| {
                    let mut changed = state.clone();
                    *outcome == changed.apply(&op) && changed == *state
                }),
            };
            if !is_right {
                let what = format!("{} answered {answer:?} where a sync has failed", op.name());
                return Err(self.fail_live(Wrong::new(Oracle::Live, what), &place, &trace));
            }
        }
        trace.events.append(&mut store.recorder().take().events);
        let mut during = vec![after.clone(), before.clone()];
        during.extend(between);
        let during = self.or_recent(&during);
        let allowed = if self.config.prefix { during.clone() } else { allowed };
        let behind: Vec<&State> = if refused { during.iter().collect() } else { allowed.iter().collect() };
        let during = during.iter().collect();
        let step = Step { name: "a failed sync", place: place.clone(), during, behind, creating: false };
        self.explore(&step, &trace)?;
        self.checker.add_sites(&*store);
        drop(store);
        self.seen.clear();
        self.model = self.cut(&[]);
        self.open(self.model.newest(), "open after a failed sync", &place, &allowed)
    }

    /// Applies the events of a step and judges the images of its crash points.
    fn explore(&mut self, step: &Step<'_>, trace: &Trace) -> Result<(), Box<Failure>> {
        let op = self.checker.counts.ops.entry(step.name).or_default();
        op.runs += 1;
        self.checker.counts.events += trace.events.len() as u64;
        for (at, event) in trace.events.iter().enumerate() {
            let crash_here = match event.what {
                What::Fence { .. }
                | What::FailedFence { .. }
                | What::Region { .. }
                | What::Size { .. }
                | What::Sync { .. } => true,
                What::Word { .. } => self.rng.one_in(self.config.store_point_every),
                What::Flush { .. } | What::Mark(_) => false,
            };
            if crash_here {
                self.crash_at(step, trace, at, &step.during, step.creating)?;
            }
            self.model.apply(event);
        }
        self.seen.clear();
        self.crash_at(step, trace, trace.events.len(), &step.behind, false)
    }

    fn crash_at(
        &mut self,
        step: &Step<'_>,
        trace: &Trace,
        at: usize,
        allowed: &[&State],
        may_be_missing: bool,
    ) -> Result<(), Box<Failure>> {
        if self.shared.is_over() || self.model.durable().regions.is_empty() {
            return Ok(());
        }
        let set = self.model.crash_set();
        let choices = set.select(self.config.images_per_point, &mut self.rng);
        let before = self.checker.counts.total();
        for choice in choices {
            let hash = set.hash(&choice);
            if !self.seen.insert(hash) {
                self.checker.counts.repeated += 1;
                continue;
            }
            let Self { model, checker, .. } = self;
            let judged =
                model.with_image(&set, &choice, |image| checker.check(image, hash, allowed, may_be_missing, 1));
            if let Err(failed) = judged {
                let place = format!("{}, crash before event {at} of {}", step.place, trace.events.len());
                return Err(Box::new(self.failure(*failed, &place, may_be_missing, trace)));
            }
        }
        let images = self.checker.counts.total() - before;
        let op = self.checker.counts.ops.entry(step.name).or_default();
        op.points += 1;
        op.images += images;
        Ok(())
    }
}
