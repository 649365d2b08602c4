//! One cell of a run: one store in one round, from creation to the last workload.
//!
//! A cell runs in a process of its own, so that each begins with an empty heap and its DRAM is its own. It
//! tells what it finds in [`Message`]s, one JSON object a line.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::args::{Args, Check, Settle};
use crate::driver::{self, Drive, Stream};
use crate::keys::{Keys, Records};
use crate::measure::{Processes, bytes_of_blocks};
use crate::outcome::Outcome;
use crate::pace::Pace;
use crate::pauses::{self, Machine, Pauses};
use crate::refusal::Refusal;
use crate::store;
use crate::target::{Account, Facts, Target};
use crate::watch::{Progress, Sample, Seen, Watch};
use crate::workload::{Mix, Op, Turn, Workload};
use crate::{peers, plot_latency, reopen};

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
    /// The control group that its process is to join.
    pub(crate) group: Option<PathBuf>,
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
    /// What a workload did by when.
    Timeline(String, Vec<Sample>),
    /// A part of the load has run, to this number of records.
    Step(u64, Phase),
    /// Everything is loaded, and writing goes on until the process is killed, and its server's, of this number, where it has one.
    Writing(Option<u32>),
    /// The store was opened again.
    Reopened(reopen::Reopened),
    /// The cell failed.
    Failed(Refusal),
}

/// What came of one workload in one round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Phase {
    pub(crate) workload: String,
    pub(crate) ops: u64,
    pub(crate) wall_s: f64,
    /// When the last operation of an open loop was due, from the beginning of `wall_s`.
    pub(crate) due_s: f64,
    /// For how long up to then it had something late to do.
    pub(crate) late_for_s: f64,
    pub(crate) settled_s: f64,
    pub(crate) cpu_s: f64,
    pub(crate) serving_cpu_s: f64,
    pub(crate) mean_ns: f64,
    /// Of the calls that only read, and of those that change something.
    pub(crate) read_mean_ns: Option<f64>,
    pub(crate) write_mean_ns: Option<f64>,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) p9999_ns: u64,
    pub(crate) max_ns: u64,
    /// As [`plot_latency::curve`] tells it.
    pub(crate) latency_curve: Vec<u64>,
    pub(crate) scanned: u64,
    pub(crate) flushes: u64,
    pub(crate) fences: u64,
    pub(crate) bytes_written: u64,
    pub(crate) dram_bytes: Option<u64>,
    pub(crate) dram_fixed_bytes: u64,
    pub(crate) rss_anon_bytes: u64,
    pub(crate) medium_bytes: u64,
    pub(crate) medium_used_bytes: u64,
    pub(crate) medium_size_bytes: u64,
    /// Keys and values given to the store.
    pub(crate) put_bytes: u64,
    /// Keys and values in it at the end.
    pub(crate) live_bytes: u64,
    /// What the process had written to a device.
    pub(crate) device_bytes: u64,
    /// What the process had given to files in calls that write.
    pub(crate) called_bytes: u64,
    /// Bytes of the blocks that the store's files take at the end.
    pub(crate) block_bytes: u64,
    pub(crate) peak_rss_bytes: u64,
    /// Calls that lasted long, of those that were timed.
    pub(crate) pauses: Pauses,
    /// What the machine did by itself, where it was watched.
    pub(crate) machine: Option<Machine>,
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
    Records::new(args.key_size, args.value_size, args.compressible, args.seed, args.check == Check::Full)
}

/// The streams' common part.
pub(crate) fn mix(args: &Args) -> Mix {
    Mix {
        records: args.records,
        ops: args.op_count(),
        scan_length: args.scan_length,
        threads: args.threads,
        seed: args.seed,
        before: 0,
    }
}

/// How the streams are run.
pub(crate) fn drive(args: &Args) -> Drive {
    Drive {
        records: records(args),
        latency_every: args.latency_every,
        gather: 1,
        lasting: None,
        least: Duration::ZERO,
        pace: None,
        full: args.check == Check::Full,
        name: "prepare",
    }
}

/// One store under measurement.
struct Bench<'a> {
    args: &'a Args,
    target: Box<dyn Target>,
    /// Its directory; nothing is there where it keeps nothing.
    path: &'a Path,
    mix: Mix,
    streams: Vec<Vec<Op>>,
    /// The keys of each stream.
    keys: Vec<Keys>,
    /// Bytes of the keys and values that are loaded.
    loaded_bytes: u64,
    /// Whose memory and processor time it takes.
    processes: Processes,
    /// Their anonymous memory with the store still empty.
    rss_empty: u64,
    /// When the store was made.
    begun: Instant,
}

fn measure(args: &Args, cell: &Cell, tell: Tell<'_>) -> Result<()> {
    let mix = mix(args);
    let (streams, keys) = (mix.room(), mix.room_for_keys(&records(args)));
    let target = store::make(args, cell)?;
    tell(Message::Facts(store::facts(args, cell, &*target)))?;
    let processes = Processes::of(&*target);
    let (rss_empty, begun) = (processes.rss_anon(), Instant::now());
    let loaded_bytes = records(args).bytes(0..args.records);
    let path = &cell.path;
    let mut bench = Bench { args, target, path, mix, streams, keys, loaded_bytes, processes, rss_empty, begun };
    tell(Message::Begin(Workload::Load.name().into()))?;
    let load = bench.load(tell)?;
    if args.workloads.contains(&Workload::Load) {
        tell(Message::Phase(load))?;
    }
    let behind: Vec<_> =
        Turn::all(&args.workloads).into_iter().filter(|turn| turn.workload != Workload::Load).collect();
    if args.load_durability.is_some() && !behind.is_empty() && !peers::is_volatile(&cell.target) {
        bench = bench.opened_again(cell, tell)?;
    }
    for turn in behind {
        tell(Message::Begin(turn.name()))?;
        if bench.target.ordered() || !turn.workload.scans() {
            let phase = bench.phase(turn, tell)?;
            tell(Message::Phase(phase))?;
        }
    }
    bench.target.close()
}

/// An account, and when it was taken.
struct Begun {
    account: Account,
    device_bytes: u64,
    called_bytes: u64,
    cpu_s: f64,
    at: Instant,
}

/// What came of some streams: of a workload, or of a part of the load.
struct Ran {
    outcome: Outcome,
    settled: Duration,
    cpu_s: f64,
    seen: Seen,
    machine: Option<Machine>,
    /// Bytes of the keys and values in the store at the end.
    live_bytes: u64,
}

impl Bench<'_> {
    /// The same with the store closed, and opened again at the durability of the workloads behind the load.
    fn opened_again(self, cell: &Cell, tell: Tell<'_>) -> Result<Self> {
        let load_durability = Some(self.target.facts().durability);
        self.target.close()?;
        // Its lock and its threads go with it.
        drop(self.target);
        let target = store::open_loaded(self.args, cell)?;
        tell(Message::Facts(Facts { load_durability, ..store::facts(self.args, cell, &*target) }))?;
        Ok(Self { processes: Processes::of(&*target), target, ..self })
    }

    fn begin(&self) -> Begun {
        Begun {
            account: self.target.account(),
            device_bytes: self.processes.bytes_to_devices(),
            called_bytes: self.processes.bytes_given_to_files(),
            cpu_s: self.processes.cpu_seconds(),
            at: Instant::now(),
        }
    }

    /// Loads every record, in parts where the arguments name steps. The account is taken, and told, behind each part; that
    /// is no part of the load's own time.
    fn load(&mut self, tell: Tell<'_>) -> Result<Phase> {
        if self.args.steps.is_empty() {
            return self.phase(Turn::load(), tell);
        }
        self.mix.fill(Workload::Load, &mut self.streams);
        let drive = Drive { name: Workload::Load.name(), ..drive(self.args) };
        self.make_keys(&drive);
        let records = self.args.records;
        let inner = self.args.steps.iter().copied().filter(|step| *step < records);
        let whole = self.begin();
        let mut all = Ran::none();
        let mut from = 0;
        for to in inner.chain([records]) {
            let loaded = |thread| self.mix.loaded_by(thread, from)..self.mix.loaded_by(thread, to);
            let parts: Vec<_> =
                self.streams().enumerate().map(|(thread, stream)| stream.part(loaded(thread))).collect();
            let begun = self.begin();
            let mut ran = self.watched(Workload::Load, &parts, &drive, &begun, to == records)?;
            ran.live_bytes = drive.records.bytes(0..to);
            tell(Message::Step(to, self.account(Turn::load(), &begun, &ran)))?;
            self.tell_timeline(Turn::load(), &mut ran.seen, tell)?;
            all.absorb(&ran);
            from = to;
        }
        Ok(self.account(Turn::load(), &whole, &all))
    }

    /// Runs a workload, and then undoes what it changed.
    fn phase(&mut self, turn: Turn, tell: Tell<'_>) -> Result<Phase> {
        let workload = turn.workload;
        self.mix.before = turn.before;
        self.mix.fill(workload, &mut self.streams);
        let mut drive = Drive { name: workload.name(), pace: Pace::of(self.args, workload), ..drive(self.args) };
        match workload {
            Workload::Multiget => drive.gather = self.args.multiget,
            lasting if lasting.lasts() => drive.lasting = Some(Duration::from_secs(self.args.seconds)),
            _ => {}
        }
        self.make_keys(&drive);
        if workload.can_go_on() {
            drive.least = Duration::from_millis(self.args.at_least);
            self.warm_up(workload, &drive)?;
        }
        let streams: Vec<_> = self.streams().collect();
        let begun = self.begin();
        let mut ran = self.watched(workload, &streams, &drive, &begun, true)?;
        ran.live_bytes = match workload {
            Workload::D | Workload::E => self.loaded_bytes + ran.outcome.written_bytes,
            Workload::Delete => self.loaded_bytes - ran.outcome.removed_bytes,
            _ => self.loaded_bytes,
        };
        let phase = self.account(turn, &begun, &ran);
        self.tell_timeline(turn, &mut ran.seen, tell)?;
        Mix::undo(workload, &mut self.streams);
        if self.streams.iter().any(|stream| !stream.is_empty()) {
            let back = Drive { latency_every: 0, name: "restore", ..self::drive(self.args) };
            self.make_keys(&back);
            self.serve(&back)?;
            self.settle(workload, true)?;
        }
        Ok(phase)
    }

    fn streams(&self) -> impl Iterator<Item = Stream<'_>> {
        self.streams.iter().zip(&self.keys).map(|(ops, keys)| Stream::new(ops, keys))
    }

    fn make_keys(&mut self, drive: &Drive) {
        for (ops, keys) in self.streams.iter().zip(&mut self.keys) {
            keys.fill(&drive.records, ops.iter().map(|op| op.record));
        }
    }

    /// Runs the streams as they are, unwatched.
    fn serve(&self, drive: &Drive) -> Result<()> {
        let streams: Vec<_> = self.streams().collect();
        driver::run_watched(&*self.target, &streams, drive, &Progress::new(streams.len())).map(drop)
    }

    /// Does of a workload, before it is measured, what the arguments ask for, and lets the store come to rest as behind one that is measured.
    fn warm_up(&self, workload: Workload, drive: &Drive) -> Result<()> {
        if self.args.warm_up == 0 {
            return Ok(());
        }
        let lasting = Some(Duration::from_millis(self.args.warm_up));
        self.serve(&Drive { lasting, pace: None, name: "warm-up", ..drive.clone() })?;
        self.settle(workload, true)
    }

    /// Runs streams, waits until the store has settled as far as the arguments ask, and watches both.
    fn watched(
        &self,
        workload: Workload,
        streams: &[Stream<'_>],
        drive: &Drive,
        begun: &Begun,
        last: bool,
    ) -> Result<Ran> {
        let progress = Progress::new(streams.len());
        let watch = Watch {
            target: &*self.target,
            progress: &progress,
            begun: self.begun,
            rss_empty: self.rss_empty,
            processes: self.processes,
            timeline: !self.args.timeline.is_empty(),
        };
        let serve = || driver::run_watched(&*self.target, streams, drive, &progress);
        let work = || {
            let length = match drive.pace {
                Some(pace) => Some(pace.length(self.mix.ops)),
                None => drive.lasting.filter(|_| workload == Workload::Overload),
            };
            let (outcome, machine) = match length {
                // The machine is watched before the run as well, so the store's own time begins later.
                Some(length) => {
                    let (outcome, machine) = pauses::beside(length, serve);
                    (outcome?, Some(machine))
                }
                None => (serve()?, None),
            };
            self.settle(workload, last)?;
            Ok((outcome, machine))
        };
        let (done, seen) = watch.over(work);
        let (outcome, machine) = done?;
        let (before, before_cpu) = machine.map_or((0.0, 0.0), |machine| (machine.before_s, machine.before_cpu_s));
        let settled = begun.at.elapsed().saturating_sub(Duration::from_secs_f64(before));
        let cpu_s = self.processes.cpu_seconds() - begun.cpu_s - before_cpu;
        Ok(Ran { outcome, settled, cpu_s, seen, machine, live_bytes: 0 })
    }

    /// Waits for what is behind the writes; where the arguments ask for it, and at the last part of the load, for flushes and compactions too.
    fn settle(&self, workload: Workload, last: bool) -> Result<()> {
        let wanted = match self.args.settle {
            Settle::Never => false,
            Settle::Load => workload == Workload::Load && last,
            Settle::Each => last,
        };
        if wanted { self.target.settle() } else { self.target.catch_up() }
    }

    fn tell_timeline(&self, turn: Turn, seen: &mut Seen, tell: Tell<'_>) -> Result<()> {
        if self.args.timeline.is_empty() {
            return Ok(());
        }
        tell(Message::Timeline(turn.name(), std::mem::take(&mut seen.samples)))
    }

    fn account(&self, turn: Turn, before: &Begun, ran: &Ran) -> Phase {
        let after = self.target.account();
        let outcome = &ran.outcome;
        let quantile = |q| outcome.latency.value_at_quantile(q);
        Phase {
            workload: turn.name(),
            ops: outcome.ops,
            wall_s: outcome.wall.as_secs_f64(),
            due_s: outcome.due.as_secs_f64(),
            late_for_s: outcome.late_for.as_secs_f64(),
            settled_s: ran.settled.as_secs_f64(),
            cpu_s: ran.cpu_s,
            serving_cpu_s: outcome.cpu_s,
            mean_ns: outcome.latency.mean(),
            read_mean_ns: outcome.reads.mean_ns(),
            write_mean_ns: outcome.writes.mean_ns(),
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            p9999_ns: quantile(0.9999),
            max_ns: outcome.latency.max(),
            latency_curve: plot_latency::curve(&outcome.latency),
            scanned: outcome.scanned,
            flushes: after.flushes.saturating_sub(before.account.flushes),
            fences: after.fences.saturating_sub(before.account.fences),
            bytes_written: after.bytes_written.saturating_sub(before.account.bytes_written),
            dram_bytes: after.dram_bytes,
            dram_fixed_bytes: after.dram_fixed_bytes,
            rss_anon_bytes: self.processes.rss_anon().saturating_sub(self.rss_empty),
            medium_bytes: after.medium_bytes,
            medium_used_bytes: after.medium_used_bytes,
            medium_size_bytes: after.medium_size_bytes,
            put_bytes: outcome.written_bytes,
            live_bytes: ran.live_bytes,
            device_bytes: self.processes.bytes_to_devices().saturating_sub(before.device_bytes),
            called_bytes: self.processes.bytes_given_to_files().saturating_sub(before.called_bytes),
            block_bytes: bytes_of_blocks(self.path),
            peak_rss_bytes: ran.seen.peak_rss_bytes,
            pauses: Pauses::of(&outcome.latency),
            machine: ran.machine,
        }
    }
}

impl Ran {
    /// Nothing yet.
    fn none() -> Self {
        let (settled, seen) = (Duration::ZERO, Seen::default());
        Self { outcome: Outcome::none(), settled, cpu_s: 0.0, seen, machine: None, live_bytes: 0 }
    }

    /// Adds what came of more of the same work, done behind this.
    fn absorb(&mut self, more: &Self) {
        self.outcome.absorb(&more.outcome);
        self.settled += more.settled;
        self.cpu_s += more.cpu_s;
        self.seen.peak_rss_bytes = self.seen.peak_rss_bytes.max(more.seen.peak_rss_bytes);
        self.live_bytes = more.live_bytes;
    }
}

/// An error of the bench itself.
pub(crate) fn broken(doing: &'static str, what: impl Into<String>) -> Error {
    Error::io(doing, PathBuf::new(), std::io::Error::other(what.into()))
}
