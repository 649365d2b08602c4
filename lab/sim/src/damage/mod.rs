//! The damage explorer: stores whose files are damaged, judged by one rule.
//!
//! * [`base`] runs a history of operations: it ends in a clean stop, a kill or a crash image.
//! * [`fault`] and [`plan`] damage its files.
//! * [`oracle`] opens the damaged image, reads and writes, and judges each answer.
//!
//! A seed and a case number reproduce every image on any machine.

pub mod base;
pub mod fault;
pub mod known_gaps;
pub mod legal;
pub mod map;
pub mod medium;
pub mod minimize;
pub mod model;
pub mod oracle;
pub mod plan;
pub mod planted;
mod prefix;
pub mod print;
pub mod scripts;
pub mod table;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lodestore_media::PlantedFault;
use lodestore_media::sim::{Rng, SimImage, SimSpec};

use crate::subject::Engine;
use base::{Base, History};
use fault::{Fault, Kind, kind_of};
use model::{Breach, Model, Violation};
use oracle::{Class, Effort, Judge};
use plan::Planner;

/// Damaged images of one base.
pub const BASE_IMAGE_COUNT: u64 = 64;
/// Address space of the process, in KiB, above which an image counts as the cause of unbounded
/// memory.
const MEMORY_MAX_KIB: u64 = 8 << 20;

/// Bounds of an exploration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Seed of everything random.
    pub seed: u64,
    /// Damaged images.
    pub images: u64,
    /// Mode of every store; `None` lets each history choose.
    pub mode: Option<u32>,
    /// Runs only this image of this base.
    pub case: Option<CaseId>,
    /// Histories that run in parallel.
    pub threads: usize,
    /// Random operations after an open, for one in `ops_every` images.
    pub ops: usize,
    /// See `ops`.
    pub ops_every: u64,
    /// One in this many images is killed and opened once more after the first reads.
    pub again_every: u64,
    /// The planted fault.
    pub mutant: Option<PlantedFault>,
    /// Only damage of this kind.
    pub only: Option<Kind>,
    /// Stops at the first violation.
    pub stops: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 1,
            images: 10_000,
            mode: None,
            case: None,
            threads: 2,
            ops: 100,
            ops_every: 8,
            again_every: 3,
            mutant: None,
            only: None,
            stops: false,
        }
    }
}

/// Names one damaged image of an exploration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CaseId {
    /// Index of the base.
    pub base: u64,
    /// Index of the image.
    pub image: u64,
}

/// A damaged image with everything needed to reproduce it.
#[derive(Debug, Clone)]
pub struct Case {
    /// The history of the store.
    pub history: History,
    /// Seed of the history's crashes.
    pub history_seed: u64,
    /// The damage.
    pub faults: Vec<Fault>,
    /// The amount of work on the image.
    pub effort: Effort,
}

/// A violation with its case.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The case's number.
    pub id: CaseId,
    /// The case.
    pub case: Case,
    /// The damaged structures.
    pub structures: String,
    /// The broken rule.
    pub violation: Violation,
}

/// Counts of the images of one row of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Row {
    /// Every answer was right.
    pub correct: u64,
    /// Damage was reported, and no answer was wrong.
    pub reported: u64,
    /// The strict open was refused.
    pub refused: u64,
    /// Older content that is a legal crash state.
    pub indistinguishable: u64,
    /// The rule was broken.
    pub violations: u64,
}

/// The key of a row: structure, damage, end of the history.
pub type RowKey = (String, Kind, &'static str);
/// A kind of violation: breach, structure, damage, end of the history.
pub type Signature = (Breach, String, Kind, &'static str);

/// The result of an exploration.
#[derive(Debug, Default)]
pub struct Report {
    /// Damaged images.
    pub images: u64,
    /// Opens with further work.
    pub worked_on: u64,
    /// Refused stores whose salvage open reports damage and answers an older value.
    pub salvaged_old: u64,
    /// The table.
    pub rows: BTreeMap<RowKey, Row>,
    /// The first failure of each signature and the number of images with it.
    pub failures: BTreeMap<Signature, (Failure, u64)>,
    /// The violation of every case that breaks the rule.
    pub broken: BTreeMap<CaseId, Violation>,
    /// Elapsed time.
    pub took: Duration,
}

impl Report {
    /// Number of images that break the rule.
    pub fn violations(&self) -> u64 {
        self.rows.values().map(|row| row.violations).sum()
    }

    fn add(&mut self, key: RowKey, verdict: Result<Verdict, Box<Failure>>) {
        let row = self.rows.entry(key.clone()).or_default();
        match verdict {
            Ok(Verdict::Class { class: Class::Correct, .. }) => row.correct += 1,
            Ok(Verdict::Class { class: Class::Reported, .. }) => row.reported += 1,
            Ok(Verdict::Class { class: Class::Refused, salvaged_old }) => {
                row.refused += 1;
                self.salvaged_old += u64::from(salvaged_old);
            }
            Ok(Verdict::Indistinguishable) => row.indistinguishable += 1,
            Err(failure) => {
                row.violations += 1;
                self.broken.insert(failure.id, failure.violation.clone());
                let signature = (failure.violation.breach, key.0, key.1, key.2);
                let known = self.failures.entry(signature).or_insert_with(|| ((*failure).clone(), 0));
                if failure.id < known.0.id {
                    known.0 = *failure;
                }
                known.1 += 1;
            }
        }
    }
}

enum Verdict {
    Class { class: Class, salvaged_old: bool },
    Indistinguishable,
}

/// An undamaged store with its model and structures.
pub struct Known<'a> {
    /// The store.
    pub base: &'a Base,
    /// The allowed answers of its keys.
    pub model: Model,
    /// Its structures.
    pub parts: &'a [map::Part],
    /// The planted fault.
    pub mutant: Option<PlantedFault>,
}

/// The current case of each worker, for a watchdog.
pub type Progress = Mutex<Vec<Option<(CaseId, Instant)>>>;

/// Explores `engine`.
pub fn explore(engine: &dyn Engine, config: &Config, progress: Option<&Progress>) -> Report {
    let started = Instant::now();
    let total = Mutex::new(Report::default());
    let next = AtomicU64::new(0);
    let bases = config.images.div_ceil(BASE_IMAGE_COUNT);
    thread::scope(|scope| {
        for worker in 0..config.threads.max(1) {
            let (total, next) = (&total, &next);
            scope.spawn(move || {
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    let index = match config.case {
                        Some(case) if turn == 0 => case.base,
                        None if turn < bases => turn,
                        _ => return,
                    };
                    if config.stops && lock(total).violations() > 0 {
                        return;
                    }
                    explore_base(engine, config, index, total, &|id| {
                        if let Some(progress) = progress {
                            lock(progress)[worker] = id.map(|id| (id, Instant::now()));
                        }
                    });
                }
            });
        }
    });
    let mut report = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.took = started.elapsed();
    report
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the specification of every simulated store here.
pub fn spec(mutant: Option<PlantedFault>) -> SimSpec {
    SimSpec { mutant, ..SimSpec::default() }
}

fn explore_base(
    engine: &dyn Engine,
    config: &Config,
    index: u64,
    total: &Mutex<Report>,
    note: &dyn Fn(Option<CaseId>),
) {
    let history = scripts::history(engine, config.seed, index, config.mode);
    let history_seed = Rng::part(config.seed ^ 0xba5e, index).next_u64();
    let first = CaseId { base: index, image: 0 };
    note(Some(first));
    let base = match base::build(engine, &spec(config.mutant), &history, history_seed) {
        Ok(base) => base,
        Err(wrong) => {
            let what = format!("{} oracle: {}", wrong.oracle, wrong.what);
            let violation = Violation { breach: Breach::Undamaged, phase: "history", what };
            let effort = Effort { again: false, ops: 0, seed: 0 };
            let case = Case { history: history.clone(), history_seed, faults: Vec::new(), effort };
            let failure = Failure { id: first, case, structures: "none".into(), violation };
            let key = ("none".to_owned(), Kind::Mixed, history.end.name());
            lock(total).add(key, Err(Box::new(failure)));
            return;
        }
    };
    let parts = map::map_of(&base.image, engine.name());
    let known = Known {
        model: Model::new(&base, engine.recounts_expired()),
        mutant: config.mutant,
        parts: &parts,
        base: &base,
    };
    let planner = Planner::new(&base, &parts, scripts::page_bytes(engine, history.shape));
    for image in 0..BASE_IMAGE_COUNT {
        let id = CaseId { base: index, image };
        if config.case.is_some_and(|case| case != id) {
            continue;
        }
        note(Some(id));
        let mut rng = Rng::part(config.seed ^ (index << 20), image);
        let effort = Effort {
            again: rng.one_in(config.again_every),
            ops: if rng.one_in(config.ops_every) { config.ops } else { 0 },
            seed: rng.next_u64(),
        };
        let Some((faults, damaged)) = planner.damage(&mut rng, config.only) else { continue };
        let case = Case { history: history.clone(), history_seed, faults, effort };
        let names = structures(&parts, &case.faults);
        let key = (names.clone(), kind_of(&case.faults), history.end.name());
        let verdict = judge_image(engine, &case, &known, &damaged)
            .map_err(|violation| Box::new(Failure { id, case: case.clone(), structures: names, violation }));
        let mut total = lock(total);
        total.images += 1;
        total.worked_on += u64::from(effort.ops > 0);
        total.add(key, verdict);
        if config.stops && total.violations() > 0 {
            break;
        }
    }
    note(None);
}

/// Returns the names of the damaged structures; for a whole file its name.
fn structures(parts: &[map::Part], faults: &[Fault]) -> String {
    let name = |fault: &Fault| match fault.kind() {
        Kind::StaleFile | Kind::Truncated | Kind::Swapped => "a whole file".to_owned(),
        _ => map::name_of(parts, fault.place()).to_owned(),
    };
    let mut names: Vec<String> = faults.iter().map(name).collect();
    names.sort();
    names.dedup();
    if names.len() > 1 { "several structures".into() } else { names.pop().unwrap_or_default() }
}

fn judge_image(engine: &dyn Engine, case: &Case, known: &Known, damaged: &SimImage) -> Result<Verdict, Violation> {
    let judged = judge_with(engine, case, known.model.clone(), damaged);
    let Err(violation) = judged else { return judged };
    let is_of_content = matches!(
        violation.breach,
        Breach::OldValue
            | Breach::Absent
            | Breach::WalkShort
            | Breach::Operation
            | Breach::Count
            | Breach::SalvageOld
            | Breach::SalvageForgotten
            | Breach::SalvageSilent
    );
    if !is_of_content {
        return Err(violation);
    }
    // One crash state must explain every answer, not the first violation alone.
    let explains = |model| judge_with(engine, case, model, damaged).is_ok();
    if legal::models_of_crashes(engine, case, known).any(explains) {
        Ok(Verdict::Indistinguishable)
    } else {
        Err(violation)
    }
}

fn judge_with(engine: &dyn Engine, case: &Case, model: Model, damaged: &SimImage) -> Result<Verdict, Violation> {
    let mut judge = Judge::new(engine, case.history.shape, model);
    let class = judge.judge(damaged, case.effort)?;
    let used = memory_used();
    if used > MEMORY_MAX_KIB {
        let what = format!("the process uses {used} KiB of address space");
        return Err(Violation { breach: Breach::Memory, phase: "open", what });
    }
    Ok(Verdict::Class { class, salvaged_old: judge.salvaged_old })
}

/// Returns the greatest address space that the process has used, in KiB; 0 if unknown.
fn memory_used() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Builds and judges one case. Returns the class of its image, or `None` for a legal crash state.
///
/// # Errors
///
/// The violation.
pub fn run_case(engine: &dyn Engine, case: &Case, mutant: Option<PlantedFault>) -> Result<Option<Class>, Violation> {
    let base = base::build(engine, &spec(mutant), &case.history, case.history_seed).map_err(|wrong| Violation {
        breach: Breach::Undamaged,
        phase: "history",
        what: format!("{} oracle: {}", wrong.oracle, wrong.what),
    })?;
    let mut damaged = base.image.clone();
    case.faults.iter().for_each(|fault| fault.apply(&mut damaged, &base.moments));
    let parts = map::map_of(&base.image, engine.name());
    let known = Known { model: Model::new(&base, engine.recounts_expired()), mutant, parts: &parts, base: &base };
    match judge_image(engine, case, &known, &damaged)? {
        Verdict::Class { class, .. } => Ok(Some(class)),
        Verdict::Indistinguishable => Ok(None),
    }
}
