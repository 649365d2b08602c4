//! A cell of a run: one store in one round, from creation to the last workload.
//!
//! A cell runs in a separate process, so that each begins with an empty heap and its DRAM is its
//! own. A cell reports its results in [`Message`]s, one JSON object per line.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lodestore_contract::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::args::{Args, Check, Settle};
use crate::peers;
use crate::procfs::{Processes, bytes_of_blocks};
use crate::run::driver::{self, Drive, Room, Stream};
use crate::run::failure::Failure;
use crate::run::outcome::Outcome;
use crate::run::pauses::{self, Machine, Pauses};
use crate::run::phase::Phase;
use crate::run::reopen;
use crate::run::store;
use crate::run::watch::{Progress, Sample, Seen, Watch};
use crate::target::{Account, Facts, Target};
use crate::workload::keys::{Keys, Records};
use crate::workload::stream::{Mix, Op};
use crate::workload::{Turn, Workload};

/// Maximum operations of a repeatable workload: about as many as the fastest store here completes
/// in 0.2 s.
const REPEATABLE_OPS_MAX: u64 = 1 << 20;
/// Number of distinct operations of the warm-up, before it repeats them.
const WARM_OPS: u64 = 1 << 18;
/// Makes the draws of a warm-up differ from the measured draws.
const WARM_UP_SALT: u32 = 1 << 15;
/// Operations of the warm-up between two reads of the clock.
const WARM_UP_CLOCK_OPS: u32 = 8;

/// The task of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Create, load and run the workloads.
    Measure,
    /// Create, load and stop cleanly.
    StopCleanly,
    /// Create, load, and update until killed.
    WriteUntilKilled,
    /// Open a store that another process left.
    Reopen,
}

/// A cell's identity and task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// The store.
    pub(crate) target: String,
    /// Its directory, which the store creates.
    pub(crate) path: PathBuf,
    /// The value of the swept parameter.
    pub(crate) swept: Option<String>,
    /// Its task.
    pub(crate) task: Task,
    /// The control group that its process must join.
    pub(crate) group: Option<PathBuf>,
}

/// A message of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The store's description.
    Facts(Facts),
    /// Work of this name begins.
    Begin(String),
    /// A workload has run.
    Phase(Phase),
    /// Progress of a workload over time.
    Timeline(String, Vec<Sample>),
    /// A part of the load has run, up to this number of records.
    Step(u64, Phase),
    /// Everything is loaded. Writing continues until the process is killed, and its server with
    /// this process id if it has one.
    Writing(Option<u32>),
    /// The store was reopened.
    Reopened(reopen::Reopened),
    /// The cell failed.
    Failed(Failure),
}

/// Receives a cell's messages.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(Message) -> Result<()>;

/// Runs a cell.
///
/// # Errors
/// Errors of the store; a wrong answer as [`Error::Corrupt`].
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

/// Returns the records of a run.
pub(crate) fn records(args: &Args) -> Records {
    Records::new(args.key_size, args.value_size, args.compressible, args.seed, args.check == Check::Full)
}

/// Returns the common part of the streams.
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

/// Returns how the streams are run.
pub(crate) fn drive(args: &Args) -> Drive {
    Drive {
        records: records(args),
        latency_every: args.latency_every,
        gather: 1,
        lasting: None,
        warm: None,
        run: 0,
        greatest: None,
        pace: None,
        full: args.check == Check::Full,
        name: "prepare",
    }
}

/// A store under measurement.
struct Bench<'a> {
    args: &'a Args,
    target: Box<dyn Target>,
    /// Its directory, which does not exist if the store keeps nothing.
    path: &'a Path,
    mix: Mix,
    streams: Vec<Vec<Op>>,
    /// The keys of each stream.
    keys: Vec<Keys>,
    /// Memory for the driver.
    room: RefCell<Room>,
    /// Number of driver runs on the store.
    runs: u8,
    /// The record with the greatest key.
    greatest: u32,
    /// Bytes of the loaded keys and values.
    loaded_bytes: u64,
    /// The processes whose memory and CPU time count.
    processes: Processes,
    /// Their anonymous memory with the store still empty.
    rss_empty: u64,
    /// Creation time of the store.
    begun: Instant,
}

fn measure(args: &Args, cell: &Cell, tell: Tell<'_>) -> Result<()> {
    let mix = mix(args);
    let records = records(args);
    let most = most_to_go_on(args);
    let (streams, keys) = (mix.room(most), mix.room_for_keys(&records, most));
    let room = RefCell::new(Room::new(args.threads, &records));
    let greatest = mix.greatest(&records);
    let target = store::make(args, cell)?;
    tell(Message::Facts(store::facts(args, cell, &*target)))?;
    let processes = Processes::of(&*target);
    let (rss_empty, begun) = (processes.rss_anon(), Instant::now());
    let loaded_bytes = records.bytes(0..args.records);
    let path = &cell.path;
    let runs = 0;
    let mut bench = Bench {
        args,
        target,
        path,
        mix,
        streams,
        keys,
        room,
        runs,
        greatest,
        loaded_bytes,
        processes,
        rss_empty,
        begun,
    };
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

/// Returns the maximum number of operations of a run that is extended to reach the requested
/// duration; 0 if no run is.
fn most_to_go_on(args: &Args) -> u64 {
    let goes_on = args.at_least > 0 && args.rate.is_none() && args.workloads.iter().any(|it| it.can_go_on());
    if goes_on { REPEATABLE_OPS_MAX } else { 0 }
}

/// Statistics at the start of a run, and their time.
struct Begun {
    account: Account,
    device_bytes: u64,
    called_bytes: u64,
    cpu_s: f64,
    at: Instant,
}

/// The results of some streams: of a workload, or of a part of the load.
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
    /// Closes the store, and reopens it at the durability of the workloads after the load.
    fn opened_again(self, cell: &Cell, tell: Tell<'_>) -> Result<Self> {
        let load_durability = Some(self.target.facts().durability);
        self.target.close()?;
        // Releases the store's lock and threads.
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

    /// Returns how the next run of the driver runs.
    fn drive(&mut self, name: &'static str) -> Drive {
        self.runs = self.runs.wrapping_add(1);
        Drive { name, run: self.runs, greatest: Some(self.greatest), ..drive(self.args) }
    }

    /// Loads every record, in parts if the arguments name steps. Statistics are recorded and
    /// reported after each part, outside the load's time.
    fn load(&mut self, tell: Tell<'_>) -> Result<Phase> {
        if self.args.steps.is_empty() {
            return self.phase(Turn::load(), tell);
        }
        self.mix.fill(Workload::Load, &mut self.streams);
        let records = self.args.records;
        let inner = self.args.steps.iter().copied().filter(|step| *step < records);
        let whole = self.begin();
        let mut all = Ran::none(self.room.borrow_mut().take());
        let mut from = 0;
        for to in inner.chain([records]) {
            let drive = self.drive(Workload::Load.name());
            self.make_keys(&drive);
            let loaded = |thread| self.mix.loaded_by(thread, from)..self.mix.loaded_by(thread, to);
            let parts: Vec<_> =
                self.streams().enumerate().map(|(thread, stream)| stream.part(loaded(thread))).collect();
            let begun = self.begin();
            let mut ran = self.watched(Workload::Load, &parts, &drive, &begun, to == records)?;
            ran.live_bytes = drive.records.bytes(0..to);
            tell(Message::Step(to, self.account(Turn::load(), &begun, &ran)))?;
            driver::check_newest(&*self.target, &parts, &drive)?;
            self.tell_timeline(Turn::load(), &mut ran.seen, tell)?;
            all.absorb(&ran);
            from = to;
        }
        Ok(self.account(Turn::load(), &whole, &all))
    }

    /// Runs a workload, and then undoes its changes.
    fn phase(&mut self, turn: Turn, tell: Tell<'_>) -> Result<Phase> {
        let workload = turn.workload;
        let pace = self.args.pace(workload);
        let ops = if workload.can_go_on() { self.warm_up(turn, pace.is_none())? } else { self.args.op_count() };
        (self.mix.before, self.mix.ops) = (turn.before, ops);
        self.mix.fill(workload, &mut self.streams);
        let mut drive = Drive { pace, ..self.drive(workload.name()) };
        match workload {
            Workload::Multiget => drive.gather = self.args.multiget,
            lasting if lasting.lasts() => drive.lasting = Some(Duration::from_secs(self.args.seconds)),
            _ => {}
        }
        self.make_keys(&drive);
        let streams: Vec<_> = self.streams().collect();
        let begun = self.begin();
        let mut ran = self.watched(workload, &streams, &drive, &begun, true)?;
        ran.live_bytes = match workload {
            Workload::D | Workload::E => self.loaded_bytes + ran.outcome.counts.written_bytes,
            Workload::Delete => self.loaded_bytes - ran.outcome.counts.removed_bytes,
            _ => self.loaded_bytes,
        };
        let phase = self.account(turn, &begun, &ran);
        if drive.lasting.is_none() {
            driver::check_newest(&*self.target, &streams, &drive)?;
        }
        self.tell_timeline(turn, &mut ran.seen, tell)?;
        self.room.borrow_mut().give_back(ran.outcome.latency);
        Mix::undo(workload, &mut self.streams);
        if self.streams.iter().any(|stream| !stream.is_empty()) {
            let back = Drive { latency_every: 0, ..self.drive("restore") };
            self.make_keys(&back);
            self.serve(&back)?;
            self.settle(workload, true)?;
        }
        Ok(phase)
    }

    /// Warms up a workload as the arguments ask, with separate draws, and lets the store settle as
    /// after a measured workload. Returns the number of operations to measure: on request, as many
    /// as reach the minimum duration at the rate of the warm-up.
    fn warm_up(&mut self, turn: Turn, goes_on: bool) -> Result<u64> {
        let ops = self.args.op_count();
        if self.args.warm_up == 0 {
            return Ok(ops);
        }
        (self.mix.before, self.mix.ops) = (WARM_UP_SALT | turn.before, ops.max(WARM_OPS.min(most_to_go_on(self.args))));
        self.mix.fill(turn.workload, &mut self.streams);
        let warm = Some(Duration::from_millis(self.args.warm_up));
        let gather = if turn.workload == Workload::Multiget { self.args.multiget } else { 1 };
        let drive = Drive { warm, gather, latency_every: WARM_UP_CLOCK_OPS, ..self.drive("warm-up") };
        self.make_keys(&drive);
        let rate = self.serve(&drive)?;
        self.settle(turn.workload, true)?;
        let wanted = (rate * self.args.at_least as f64 / 1e3) as u64;
        Ok(if goes_on { ops.max(wanted.min(REPEATABLE_OPS_MAX)) } else { ops })
    }

    fn streams(&self) -> impl Iterator<Item = Stream<'_>> {
        self.streams.iter().zip(&self.keys).map(|(ops, keys)| Stream::new(ops, keys))
    }

    fn make_keys(&mut self, drive: &Drive) {
        for (ops, keys) in self.streams.iter().zip(&mut self.keys) {
            keys.fill(&drive.records, ops.iter().map(|op| op.record));
        }
    }

    /// Runs the streams unwatched, and returns operations per second.
    fn serve(&self, drive: &Drive) -> Result<f64> {
        let streams: Vec<_> = self.streams().collect();
        let (progress, mut room) = (Progress::new(streams.len()), self.room.borrow_mut());
        let outcome = driver::run_watched(&*self.target, &streams, drive, &progress, &mut room)?;
        room.give_back(outcome.latency);
        Ok(outcome.counts.ops as f64 / outcome.wall.as_secs_f64().max(1e-9))
    }

    /// Runs streams, waits until the store has settled as far as the arguments ask, and watches
    /// both.
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
            timeline: self.args.timeline.is_some(),
        };
        let serve = || driver::run_watched(&*self.target, streams, drive, &progress, &mut self.room.borrow_mut());
        let work = || {
            let length = match drive.pace {
                Some(pace) => Some(pace.length(self.mix.ops)),
                None => drive.lasting.filter(|_| workload == Workload::Overload),
            };
            let (outcome, machine) = match length {
                // The machine is watched before the run as well, so the store's own time begins
                // later.
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

    /// Waits for the background work of the writes. If the arguments ask for it, also for flushes
    /// and compactions; for the load only at its last part.
    fn settle(&self, workload: Workload, last: bool) -> Result<()> {
        let wanted = match self.args.settle {
            Settle::Never => false,
            Settle::Load => workload == Workload::Load && last,
            Settle::Each => last,
        };
        if wanted { self.target.settle() } else { self.target.catch_up() }
    }

    fn tell_timeline(&self, turn: Turn, seen: &mut Seen, tell: Tell<'_>) -> Result<()> {
        if self.args.timeline.is_none() {
            return Ok(());
        }
        tell(Message::Timeline(turn.name(), std::mem::take(&mut seen.samples)))
    }

    fn account(&self, turn: Turn, before: &Begun, ran: &Ran) -> Phase {
        let after = self.target.account();
        let (outcome, counts) = (&ran.outcome, &ran.outcome.counts);
        let quantile = |q| outcome.latency.value_at_quantile(q);
        Phase {
            workload: turn.name(),
            ops: counts.ops,
            wall_s: outcome.wall.as_secs_f64(),
            due_s: counts.due.as_secs_f64(),
            late_for_s: counts.late_for.as_secs_f64(),
            settled_s: ran.settled.as_secs_f64(),
            cpu_s: ran.cpu_s,
            serving_cpu_s: counts.cpu_s,
            samples: outcome.latency.len(),
            mean_ns: outcome.latency.mean(),
            read_mean_ns: counts.reads.mean_ns(),
            write_mean_ns: counts.writes.mean_ns(),
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
            p9999_ns: quantile(0.9999),
            max_ns: outcome.latency.max(),
            scanned: counts.scanned,
            flushes: after.flushes.saturating_sub(before.account.flushes),
            fences: after.fences.saturating_sub(before.account.fences),
            bytes_written: after.bytes_written.saturating_sub(before.account.bytes_written),
            dram_bytes: after.dram_bytes,
            dram_fixed_bytes: after.dram_fixed_bytes,
            rss_anon_bytes: self.processes.rss_anon().saturating_sub(self.rss_empty),
            medium_bytes: after.medium_bytes,
            medium_used_bytes: after.medium_used_bytes,
            medium_size_bytes: after.medium_size_bytes,
            put_bytes: counts.written_bytes,
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
    /// Returns an empty result.
    fn none(latency: Histogram<u64>) -> Self {
        let (settled, seen) = (Duration::ZERO, Seen::default());
        Self { outcome: Outcome::none(latency), settled, cpu_s: 0.0, seen, machine: None, live_bytes: 0 }
    }

    /// Adds the results of more of the same work, done after this.
    fn absorb(&mut self, more: &Self) {
        self.outcome.absorb(&more.outcome);
        self.settled += more.settled;
        self.cpu_s += more.cpu_s;
        self.seen.peak_rss_bytes = self.seen.peak_rss_bytes.max(more.seen.peak_rss_bytes);
        self.live_bytes = more.live_bytes;
    }
}

/// Returns an error of the bench itself.
pub(crate) fn broken(doing: &'static str, what: impl Into<String>) -> Error {
    Error::io(doing, PathBuf::new(), std::io::Error::other(what.into()))
}
