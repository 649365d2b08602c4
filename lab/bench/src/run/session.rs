//! A whole run: rounds of cells, with the stores interleaved (A B B A), each cell in a separate
//! process.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ChildStdout;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use lodestore_contract::{Error, Result};

use crate::args::Args;
use crate::args::sweep::Variant;
use crate::peers;
use crate::preset::Given;
use crate::report;
use crate::report::timeline::{self, Part};
use crate::run::cell::{self, Cell, Message, Task, broken};
use crate::run::control_group::{self, Group};
use crate::run::failure::{Failure, with_medium};
use crate::run::phase::Phase;
use crate::run::prefault;
use crate::run::process::{self, CELL};
use crate::run::reopen::{KINDS, Reopened};
use crate::run::scratch::{self, Scratch};
use crate::run::stall;
use crate::run::store;
use crate::run::target::Facts;
use crate::workload::Workload;
use crate::workload::dist::Rng;

/// Time of the writes before a process is killed.
const WRITING: Duration = Duration::from_millis(500);
/// The rng streams of the rounds' orders are the numbers just below it.
const ORDER_STREAM: u64 = u64::MAX - 1;

/// All results of a run: by store, in the order of the arguments.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Each store's description, by the variant's label.
    pub(crate) facts: BTreeMap<String, Facts>,
    /// A store's description during the load, if it was reopened after it, by the variant's label.
    pub(crate) load_facts: BTreeMap<String, Facts>,
    /// Phases by the variant's label and the workload, one per round.
    pub(crate) phases: BTreeMap<(String, String), Vec<Phase>>,
    /// Parts of the load by the variant's label and the number of records at their end, one per
    /// round.
    pub(crate) steps: BTreeMap<(String, u64), Vec<Phase>>,
    /// Reopenings by store and kind, one per round.
    pub(crate) reopened: BTreeMap<(String, String), Vec<Reopened>>,
    /// Why a store failed, by the variant's label, if the run continued with the others.
    pub(crate) failed: BTreeMap<String, String>,
    /// Progress over time, in the order in which the workloads ran.
    pub(crate) timeline: Vec<Part>,
}

impl Findings {
    /// Returns whether anything was measured.
    fn has_rows(&self) -> bool {
        !(self.phases.is_empty() && self.steps.is_empty() && self.reopened.is_empty())
    }
}

/// Runs the bench, and prints the results. A run that fails prints its earlier results.
///
/// # Errors
/// [`Error::InvalidOption`] for arguments that cannot be run; errors of a store; a wrong or missing
/// answer as [`Error::Corrupt`]. If the run continues after failures and every store failed, the
/// first error.
pub fn run(given: Given) -> Result<()> {
    let args = given.0.fitted().resolved()?;
    args.check()?;
    if let Ok(text) = std::env::var(CELL) {
        return child(&args, &text);
    }
    args.check_places()?;
    if let Some(preset) = args.preset {
        eprintln!("preset {}, but for what is given beside it: {}", preset.name(), preset.words());
        args.left_out().iter().for_each(|line| eprintln!("{line}"));
    }
    scratch::follow_parent();
    scratch::tell_of_left(&args.dir);
    let needs_dir = args.targets().iter().any(|name| !peers::is_volatile(name));
    let scratch = Scratch::new(args.dir.as_deref().filter(|_| needs_dir), args.keep)?;
    let mut session = Session {
        args: &args,
        scratch: &scratch,
        findings: Findings::default(),
        first_failure: None,
        bar: bar(&args),
        cells: 0,
    };
    let ended = session.rounds();
    session.bar.finish_and_clear();
    let findings = session.findings;
    // Earlier measurements are reported before the failure.
    let told = if ended.is_ok() || findings.has_rows() { tell(&args, &findings) } else { Ok(()) };
    if args.keep && needs_dir {
        eprintln!("kept {}", scratch.path().display());
    }
    ended.and(told)?;
    let failed = |variant: &Variant| findings.failed.contains_key(&variant.label());
    match session.first_failure {
        Some(error) if args.variants()?.iter().all(failed) => Err(error),
        _ => Ok(()),
    }
}

/// Prints the results.
fn tell(args: &Args, findings: &Findings) -> Result<()> {
    let out = std::io::stdout().lock();
    let printed = if args.json { report::json(args, findings, out) } else { report::table(args, findings, out) };
    printed.map_err(|source| Error::io("printing the results", "", source))?;
    if args.json {
        // A table includes this itself.
        let failed = |label: &str| findings.failed.contains_key(label);
        args.unordered(|label| !failed(label)).iter().for_each(|line| eprintln!("{line}"));
    }
    args.timeline.iter().try_for_each(|file| timeline::write(findings, file))
}

/// Creates a progress bar over the workloads of all cells, on a terminal only.
fn bar(args: &Args) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let loads = usize::from(!args.workloads.contains(&Workload::Load));
    let cell = args.workloads.len() + loads;
    let stores = args.targets().len() * args.sweep.as_ref().map_or(1, |sweep| sweep.values.len());
    let survivors = |survives: fn(&str) -> bool| args.targets().iter().filter(|name| survives(name)).count();
    let reopenings =
        if args.reopen { 2 * (survivors(peers::survives_stop) + survivors(peers::survives_kill)) } else { 0 };
    let bar = ProgressBar::new((args.rounds * (cell * stores + reopenings)) as u64);
    let style = ProgressStyle::with_template("{elapsed:>4} [{bar:40}] {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The state of a run.
struct Session<'a> {
    args: &'a Args,
    scratch: &'a Scratch,
    findings: Findings,
    /// The error of the first store that failed, if the run continued with the others.
    first_failure: Option<Error>,
    bar: ProgressBar,
    cells: usize,
}

impl Session<'_> {
    fn rounds(&mut self) -> Result<()> {
        for round in 1..=self.args.rounds {
            for variant in in_order(self.args.variants()?, self.args.seed, round) {
                let label = variant.label();
                if self.findings.failed.contains_key(&label) {
                    continue;
                }
                prefault::touch(variant.args.live_bytes());
                let path = self.fresh_path(&variant.target);
                let cell =
                    Cell { target: variant.target, path, swept: variant.swept, task: Task::Measure, group: None };
                let ran = self.run_cell(&cell, &label, round).map(drop);
                self.settle_failure(&label, None, round, ran)?;
                self.remove(&cell.path)?;
            }
            for (kind, leave) in self.args.reopen.then_some(KINDS).into_iter().flatten() {
                for target in in_order(self.args.targets(), self.args.seed, round) {
                    let survives = match leave {
                        Task::StopCleanly => peers::survives_stop(&target),
                        _ => peers::survives_kill(&target),
                    };
                    if survives && !self.findings.failed.contains_key(&target) {
                        self.reopen(round, kind, leave.clone(), &target)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns a path that no store of the run had.
    fn fresh_path(&mut self, target: &str) -> PathBuf {
        self.cells += 1;
        self.scratch.path().join(format!("{}-{}", store::base(target), self.cells))
    }

    /// Reports why a store failed. If the run continues, the store is left out from then on: its
    /// later rounds would be compared with earlier rounds of the others.
    fn settle_failure(&mut self, label: &str, kind: Option<&str>, round: usize, ran: Result<()>) -> Result<()> {
        let Err(error) = ran else { return Ok(()) };
        let of = kind.map(|kind| format!("{kind}: ")).unwrap_or_default();
        self.findings.failed.insert(label.into(), format!("{of}{error}"));
        if !self.args.go_on {
            kind.iter().for_each(|kind| eprintln!("{kind} of {label} failed in round {round}"));
            return Err(error);
        }
        eprintln!("{label} failed in round {round}: {of}{error}");
        if round < self.args.rounds {
            eprintln!("{label} is left out of later rounds");
        }
        self.first_failure.get_or_insert(error);
        Ok(())
    }

    fn reopen(&mut self, round: usize, kind: &str, leave: Task, target: &str) -> Result<()> {
        let path = self.fresh_path(target);
        let mut cell = Cell { target: target.into(), path, swept: None, task: leave, group: None };
        let done = self.leave_and_open(round, kind, &mut cell);
        self.settle_failure(target, Some(kind), round, done)?;
        self.remove(&cell.path)
    }

    fn leave_and_open(&mut self, round: usize, kind: &str, cell: &mut Cell) -> Result<()> {
        let target = cell.target.clone();
        self.bar.set_message(format!("round {round}: {kind} of {target}: making it"));
        prefault::touch(self.args.live_bytes());
        self.run_cell(cell, &target, round)?;
        self.bar.inc(1);
        cell.task = Task::Reopen;
        self.bar.set_message(format!("round {round}: {kind} of {target}: opening it"));
        for message in self.run_cell(cell, &target, round)? {
            if let Message::Reopened(found) = message {
                self.findings.reopened.entry((target.clone(), kind.into())).or_default().push(found);
            }
        }
        self.bar.inc(1);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        if self.args.keep || !path.exists() {
            return Ok(());
        }
        std::fs::remove_dir_all(path).map_err(|source| Error::io("removing", path, source))
    }

    /// Runs a cell, in this or in a separate process. Returns the messages that do not belong to
    /// its workloads.
    fn run_cell(&mut self, cell: &Cell, label: &str, round: usize) -> Result<Vec<Message>> {
        let ran =
            if self.args.in_process { self.run_here(cell, label, round) } else { self.run_group(cell, label, round) };
        match self.args.dir.as_deref().filter(|_| !peers::is_volatile(store::base(&cell.target))) {
            Some(dir) => ran.map_err(|error| with_medium(error, dir)),
            None => ran,
        }
    }

    fn run_here(&mut self, cell: &Cell, label: &str, round: usize) -> Result<Vec<Message>> {
        let mut rest = Vec::new();
        cell::run(self.args, cell, &mut |message| {
            rest.extend(self.take(cell, label, round, message)?);
            Ok(())
        })?;
        Ok(rest)
    }

    /// Runs a cell in a separate process, and in its own control group if its memory is limited.
    fn run_group(&mut self, cell: &Cell, label: &str, round: usize) -> Result<Vec<Message>> {
        let group = self.args.memory.map(Group::new).transpose()?;
        let cell = Cell { group: group.as_ref().map(|group| group.path().into()), ..cell.clone() };
        self.scratch.hold_group(group);
        let ran = self.run_process(&cell, label, round);
        match self.scratch.leave_group() {
            Some(overrun) if ran.is_err() => Err(overrun),
            _ => ran,
        }
    }

    /// Runs a cell in a separate process, and prints the last lines of its standard error.
    fn run_process(&mut self, cell: &Cell, label: &str, round: usize) -> Result<Vec<Message>> {
        let (id, output, said) = process::start(self.scratch, cell)?;
        let (scratch, dir) = (self.scratch, self.args.dir.clone());
        let (following, ended) = channel();
        let ran = thread::scope(|scope| {
            scope.spawn(move || {
                if dir.is_some_and(|dir| stall::watch(id, &dir, &ended)) {
                    scratch.end_child();
                }
            });
            let ran = self.follow(cell, label, round, output);
            drop::<Sender<()>>(following);
            ran
        });
        // No further messages are read after any result.
        self.scratch.end_child();
        let lines = said.join().unwrap_or_default().lines(label);
        self.bar.suspend(|| lines.iter().for_each(|line| eprintln!("{line}")));
        ran
    }

    /// Reads the messages of a process until it has ended.
    fn follow(&mut self, cell: &Cell, label: &str, round: usize, output: ChildStdout) -> Result<Vec<Message>> {
        let mut rest = Vec::new();
        for line in BufReader::new(output).lines() {
            let line = line.map_err(|source| Error::io("reading from the process of", &cell.path, source))?;
            let message = serde_json::from_str(&line)
                .map_err(|error| broken("reading a process's message", error.to_string()))?;
            if let Message::Writing(server) = message {
                thread::sleep(WRITING);
                let killed = server.map_or(Ok(()), process::kill_server);
                self.scratch.end_child();
                killed?;
                server.map_or(Ok(()), process::wait_ended)?;
                return Ok(rest);
            }
            rest.extend(self.take(cell, label, round, message)?);
        }
        process::ended(&cell.target, self.scratch.wait_status()).map(|()| rest)
    }

    /// Processes a message; returns it if it does not belong to a workload.
    fn take(&mut self, cell: &Cell, label: &str, round: usize, message: Message) -> Result<Option<Message>> {
        match message {
            Message::Facts(facts) => {
                // The second facts of a cell are from after its load.
                let behind = facts.load_durability.is_some();
                if let Some(of_load) = self.findings.facts.insert(label.into(), facts).filter(|_| behind) {
                    self.findings.load_facts.entry(label.into()).or_insert(of_load);
                }
            }
            Message::Begin(name) => {
                let rounds = self.args.rounds;
                self.bar.set_message(format!("round {round} of {rounds}: {label} {name}"));
                self.bar.inc(u64::from(name != Workload::Load.name()));
            }
            Message::Phase(phase) => {
                let place = (label.into(), phase.workload.clone());
                self.findings.phases.entry(place).or_default().push(phase);
            }
            Message::Timeline(workload, samples) => {
                self.findings.timeline.push(Part { store: label.into(), round, workload, samples });
            }
            Message::Step(records, phase) => {
                self.findings.steps.entry((label.into(), records)).or_default().push(phase);
            }
            Message::Failed(refusal) => {
                self.scratch.end_child();
                return Err(refusal.into_error(&cell.target));
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }
}

/// Returns the stores in the order of a round, so that no store always follows the same one: first
/// as named, then reversed, then shuffled, and so on.
fn in_order<T>(mut stores: Vec<T>, seed: u64, round: usize) -> Vec<T> {
    if round.is_multiple_of(2) {
        stores.reverse();
    } else if round > 1 {
        let mut rng = Rng::new(seed, ORDER_STREAM - round as u64);
        for last in (1..stores.len()).rev() {
            stores.swap(last, rng.below(last as u64 + 1) as usize);
        }
    }
    stores
}

/// Runs one cell in a process started by [`process::start`].
fn child(args: &Args, text: &str) -> Result<()> {
    // The parent holds the other end of the input. When the parent ends for any reason, this
    // process ends too.
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    let cell: Cell = serde_json::from_str(text).map_err(|error| broken("reading the cell", error.to_string()))?;
    let mut tell = |message: Message| {
        let line = serde_json::to_string(&message).map_err(|error| broken("writing a message", error.to_string()))?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|source| Error::io("telling the bench", "", source))
    };
    let joined = cell.group.as_deref().map_or(Ok(()), control_group::join);
    joined.and_then(|()| cell::run(args, &cell, &mut tell)).or_else(|error| tell(Message::Failed(Failure::of(error))))
}

#[cfg(test)]
mod tests {
    use super::in_order;

    #[test]
    fn no_store_comes_behind_the_same_in_each_of_three_rounds() {
        for (stores, seed) in (2..20).flat_map(|stores| (1..50).map(move |seed| (stores, seed))) {
            let rounds: Vec<Vec<u32>> = (1..=3).map(|round| in_order((0..stores).collect(), seed, round)).collect();
            assert_eq!(rounds[0], (0..stores).collect::<Vec<_>>());
            for store in 0..stores {
                let before = |round: &Vec<u32>| {
                    let at = round.iter().position(|it| *it == store).expect("each runs in each round");
                    at.checked_sub(1).map(|at| round[at])
                };
                let before: Vec<_> = rounds.iter().map(before).collect();
                assert!(
                    before.iter().any(|it| *it != before[0]),
                    "{stores} stores, seed {seed}: {store} behind {before:?}"
                );
            }
            assert_eq!(in_order((0..stores).collect(), seed, 3), rounds[2]);
        }
    }
}
