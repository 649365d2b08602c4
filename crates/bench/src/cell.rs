//! One cell of a run: one store in one round, from creation to the last workload.
//!
//! A cell runs in a process of its own, so that each begins with an empty heap and its DRAM is its own. It
//! tells what it finds in [`Message`]s, one JSON object a line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::args::{Args, Check};
use crate::driver::{self, Drive, Outcome};
use crate::keys::Records;
use crate::measure::{cpu_seconds, rss_anon};
use crate::target::{Account, Facts, StoreTarget, Target};
use crate::workload::{Mix, Op, Workload};
use crate::{peers, reopen};

/// What a cell is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Create, load and run the workloads.
    Measure,
    /// Create, load and stop cleanly.
    StopCleanly,
    /// Create, load, and update until killed.
    WriteUntilKilled,
    /// Open what another process left.
    Reopen,
}

/// Which cell it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// The store.
    pub(crate) target: String,
    /// Its directory, which the store makes.
    pub(crate) path: PathBuf,
    /// The value of the parameter that is swept.
    pub(crate) swept: Option<String>,
    /// What to do.
    pub(crate) task: Task,
}

/// What a cell tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// What the store says of itself.
    Facts(Facts),
    /// Work of this name begins.
    Begin(String),
    /// A workload has run.
    Phase(Phase),
    /// A part of the load has run, to this number of records.
    Step(u64, Phase),
    /// Everything is loaded, and writing goes on until the process is killed.
    Writing,
    /// The store was opened again.
    Reopened(reopen::Reopened),
    /// The cell failed.
    Failed(Refusal),
}

/// Why a cell failed, so that the bench can say it as its own refusal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// [`Error::Full`].
    Full { needed: u64, capacity: u64 },
    /// [`Error::NoRoom`].
    NoRoom { path: PathBuf, needed: u64, free: u64 },
    /// [`Error::InvalidOption`].
    InvalidOption { name: String, value: String, why: String },
    /// [`Error::DurabilityRefused`], with the durability as text.
    DurabilityRefused { asked: String, medium: String, instead: String },
    /// [`Error::DramBudget`].
    DramBudget { used: u64, budget: u64 },
    /// Any other, as its text.
    Other(String),
}

impl Refusal {
    /// What is told of this error.
    pub(crate) fn of(error: Error) -> Self {
        match error {
            Error::Full { needed, capacity } => Self::Full { needed, capacity },
            Error::NoRoom { path, needed, free } => Self::NoRoom { path, needed, free },
            Error::InvalidOption { name, value, why } => Self::InvalidOption { name, value, why },
            Error::DurabilityRefused { asked, medium, instead } => {
                Self::DurabilityRefused { asked: asked.to_string(), medium, instead }
            }
            Error::DramBudget { used, budget } => Self::DramBudget { used, budget },
            other => Self::Other(other.to_string()),
        }
    }

    /// The error again, which the store of this name met.
    pub(crate) fn into_error(self, target: &str) -> Error {
        match self {
            Self::Full { needed, capacity } => Error::Full { needed, capacity },
            Self::NoRoom { path, needed, free } => Error::NoRoom { path, needed, free },
            Self::InvalidOption { name, value, why } => Error::InvalidOption { name, value, why },
            Self::DurabilityRefused { asked, medium, instead } => match asked.parse() {
                Ok(asked) => Error::DurabilityRefused { asked, medium, instead },
                Err(refused) => refused,
            },
            Self::DramBudget { used, budget } => Error::DramBudget { used, budget },
            Self::Other(text) => Error::io("measuring", target, std::io::Error::other(text)),
        }
    }
}

/// What came of one workload in one round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Phase {
    pub(crate) workload: String,
    pub(crate) ops: u64,
    pub(crate) wall_s: f64,
    pub(crate) settled_s: f64,
    pub(crate) cpu_s: f64,
    pub(crate) serving_cpu_s: f64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) p9999_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) scanned: u64,
    pub(crate) flushes: u64,
    pub(crate) fences: u64,
    pub(crate) bytes_written: u64,
    pub(crate) dram_bytes: Option<u64>,
    pub(crate) dram_fixed_bytes: u64,
    pub(crate) rss_anon_bytes: u64,
    pub(crate) medium_bytes: u64,
    pub(crate) medium_size_bytes: u64,
}

/// Where a cell's messages go.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(Message) -> Result<()>;

/// Runs a cell.
///
/// # Errors
/// What the store met; a wrong answer as [`Error::Corrupt`].
pub(crate) fn run(args: &Args, cell: &Cell, tell: Tell<'_>) -> Result<()> {
    let swept = match (&args.sweep, &cell.swept) {
        (Some(sweep), Some(value)) => Some(args.with(&sweep.name, value)?),
        _ => None,
    };
    let args = swept.as_ref().unwrap_or(args);
    match cell.task {
        Task::Measure => measure(args, cell, tell),
        Task::StopCleanly | Task::WriteUntilKilled => reopen::leave(args, cell, tell),
        Task::Reopen => reopen::reopen(args, cell, tell),
    }
}

/// The records of a run.
pub(crate) fn records(args: &Args) -> Records {
    Records::new(args.key_size, args.value_size, args.seed, args.check == Check::Full)
}

/// The streams' common part.
pub(crate) fn mix(args: &Args) -> Mix {
    Mix {
        records: args.records,
        ops: args.op_count(),
        scan_length: args.scan_length,
        threads: args.threads,
        seed: args.seed,
    }
}

/// How the streams are run.
pub(crate) fn drive(args: &Args) -> Drive {
    Drive {
        records: records(args),
        latency_every: args.latency_every,
        gather: 1,
        full: args.check == Check::Full,
        name: "prepare",
    }
}

/// Every setting of an engine: its options' defaults, and over them what was set.
pub(crate) fn settings(args: &Args, engine: &str) -> BTreeMap<String, String> {
    let known = lodestore::engines().iter().find(|known| known.name == engine);
    let specs = known.map_or(&[][..], |engine| engine.options());
    let mut all: BTreeMap<String, String> =
        specs.iter().map(|spec| (spec.name.to_string(), spec.default.to_string())).collect();
    all.insert("persist-ns".into(), args.persist_ns.to_string());
    all.extend(
        args.set.iter().filter_map(|text| text.split_once('=')).map(|(name, value)| (name.into(), value.into())),
    );
    all.insert("size".into(), args.capacity().to_string());
    all.insert("emulate-dax".into(), args.emulate_dax.to_string());
    all
}

/// Creates an engine's store at `path`.
///
/// # Errors
/// As [`lodestore::create`].
pub(crate) fn create(args: &Args, engine: &str, path: &Path) -> Result<StoreTarget> {
    let mut options = lodestore::CreateOptions::new()
        .engine(engine)
        .size(args.capacity())
        .durability(args.durability)
        .emulate_dax(args.emulate_dax)
        .persist_ns(args.persist_ns);
    for text in &args.set {
        options = options.set_text(text)?;
    }
    Ok(StoreTarget::new(lodestore::create(path, &options)?, settings(args, engine)))
}

fn open(args: &Args, cell: &Cell) -> Result<Box<dyn Target>> {
    if peers::is_peer(&cell.target) {
        peers::open(&cell.target, &cell.path)
    } else {
        Ok(Box::new(create(args, &cell.target, &cell.path)?))
    }
}

/// One store under measurement.
struct Bench<'a> {
    args: &'a Args,
    target: Box<dyn Target>,
    mix: Mix,
    streams: Vec<Vec<Op>>,
    /// Anonymous memory of the process with the store still empty.
    rss_empty: u64,
}

fn measure(args: &Args, cell: &Cell, tell: Tell<'_>) -> Result<()> {
    let mix = mix(args);
    let streams = mix.room();
    let target = open(args, cell)?;
    tell(Message::Facts(target.facts()))?;
    let mut bench = Bench { args, target, mix, streams, rss_empty: rss_anon() };
    tell(Message::Begin(Workload::Load.name().into()))?;
    let load = bench.load(tell)?;
    if args.workloads.contains(&Workload::Load) {
        tell(Message::Phase(load))?;
    }
    for workload in args.workloads.iter().filter(|workload| **workload != Workload::Load) {
        tell(Message::Begin(workload.name().into()))?;
        if bench.target.ordered() || !workload.scans() {
            tell(Message::Phase(bench.phase(*workload)?))?;
        }
    }
    bench.target.close()
}

/// An account, and when it was taken.
struct Begun {
    account: Account,
    cpu_s: f64,
    at: Instant,
}

impl Bench<'_> {
    fn begin(&self) -> Begun {
        Begun { account: self.target.account(), cpu_s: cpu_seconds(), at: Instant::now() }
    }

    /// Loads every record, in parts where the arguments name steps. The account is taken, and told, behind each part; that
    /// is no part of the load's own time.
    fn load(&mut self, tell: Tell<'_>) -> Result<Phase> {
        if self.args.steps.is_empty() {
            return self.phase(Workload::Load);
        }
        self.mix.fill(Workload::Load, &mut self.streams);
        let drive = Drive { name: Workload::Load.name(), ..drive(self.args) };
        let records = self.args.records;
        let inner = self.args.steps.iter().copied().filter(|step| *step < records);
        let whole = self.begin();
        let (mut all, mut settled, mut cpu_s, mut from) = (Outcome::none(), Duration::ZERO, 0.0, 0);
        for to in inner.chain([records]) {
            let parts: Vec<&[Op]> = self
                .streams
                .iter()
                .enumerate()
                .map(|(thread, stream)| &stream[self.mix.loaded_by(thread, from)..self.mix.loaded_by(thread, to)])
                .collect();
            let begun = self.begin();
            let outcome = driver::run(&*self.target, &parts, &drive)?;
            self.target.settle()?;
            let (took, used) = (begun.at.elapsed(), cpu_seconds() - begun.cpu_s);
            tell(Message::Step(to, self.account(Workload::Load, &begun.account, &outcome, took, used)))?;
            all.absorb(&outcome);
            (settled, cpu_s, from) = (settled + took, cpu_s + used, to);
        }
        Ok(self.account(Workload::Load, &whole.account, &all, settled, cpu_s))
    }

    /// Runs `workload`, and then undoes what it changed.
    fn phase(&mut self, workload: Workload) -> Result<Phase> {
        self.mix.fill(workload, &mut self.streams);
        let mut drive = Drive { name: workload.name(), ..drive(self.args) };
        if workload == Workload::Multiget {
            drive.gather = self.args.multiget;
        }
        let begun = self.begin();
        let outcome = driver::run(&*self.target, &self.streams, &drive)?;
        self.target.settle()?;
        let (settled, cpu_s) = (begun.at.elapsed(), cpu_seconds() - begun.cpu_s);
        let phase = self.account(workload, &begun.account, &outcome, settled, cpu_s);
        Mix::undo(workload, &mut self.streams);
        if self.streams.iter().any(|stream| !stream.is_empty()) {
            driver::run(
                &*self.target,
                &self.streams,
                &Drive { latency_every: 0, gather: 1, name: "restore", ..drive },
            )?;
            self.target.settle()?;
        }
        Ok(phase)
    }

    fn account(&self, workload: Workload, before: &Account, outcome: &Outcome, settled: Duration, cpu_s: f64) -> Phase {
        let after = self.target.account();
        let quantile = |q| outcome.latency.value_at_quantile(q);
        Phase {
            workload: workload.name().into(),
            ops: outcome.ops,
            wall_s: outcome.wall.as_secs_f64(),
            settled_s: settled.as_secs_f64(),
            cpu_s,
            serving_cpu_s: outcome.cpu_s,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            p9999_ns: quantile(0.9999),
            max_ns: outcome.latency.max(),
            scanned: outcome.scanned,
            flushes: after.flushes.saturating_sub(before.flushes),
            fences: after.fences.saturating_sub(before.fences),
            bytes_written: after.bytes_written.saturating_sub(before.bytes_written),
            dram_bytes: after.dram_bytes,
            dram_fixed_bytes: after.dram_fixed_bytes,
            rss_anon_bytes: rss_anon().saturating_sub(self.rss_empty),
            medium_bytes: after.medium_bytes,
            medium_size_bytes: after.medium_size_bytes,
        }
    }
}

/// An error of the bench itself.
pub(crate) fn broken(doing: &'static str, what: impl Into<String>) -> Error {
    Error::io(doing, PathBuf::new(), std::io::Error::other(what.into()))
}
