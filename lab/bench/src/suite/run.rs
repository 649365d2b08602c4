//! The runs of an experiment. Each is a child process of this program in its own directory, which
//! is removed afterwards.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::{CommandFactory, FromArgMatches, Parser};

use super::list::{Draw, Experiment, Run, Scale};
use super::record::Record;
use super::rows;
use crate::args::command::quoted;
use crate::args::preset::Given;
use crate::peers;
use crate::report::row::Row;
use crate::report::swept_store;
use crate::run::scratch::{self, Scratch};

/// A run that takes this many times the expected time of its whole experiment, plus [`ADDED_TIME`],
/// is ended.
const EXPECTED_TIME_FACTOR: u32 = 4;
/// Time added to that.
const ADDED_TIME: Duration = Duration::from_secs(120);
/// Interval of the updates of the progress bar.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Parses the words of a bench.
pub(super) fn read(words: &str) -> Result<Given, clap::Error> {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        given: Given,
    }
    let matches = Line::command().try_get_matches_from(std::iter::once("bench").chain(words.split_whitespace()))?;
    Line::from_arg_matches(&matches).map(|line| line.given)
}

/// A running experiment.
pub(super) struct Bench<'a> {
    pub(super) experiment: &'a Experiment,
    pub(super) scale: Scale,
    /// The directory on its medium.
    pub(super) dir: &'a Path,
    /// Called now and then.
    pub(super) tick: &'a dyn Fn(),
}

/// The results.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Rows as JSON lines.
    pub(super) lines: String,
    /// The timeline, if the experiment has one.
    pub(super) timeline: String,
}

impl Bench<'_> {
    /// Runs everything. Adds skipped, failed and completed runs to `record`.
    pub(super) fn all(&self, record: &mut Record) -> Found {
        let mut all = Found::default();
        for run in &self.experiment.runs {
            let found = self.words(run, &rows(&all.lines)).and_then(|words| self.run(&words, record));
            match found {
                Ok(found) => {
                    all.lines += &found.lines;
                    all.timeline += &found.timeline;
                }
                Err(why) => record.failed.push(why),
            }
        }
        let failed = rows(&all.lines).into_iter().filter_map(|row| {
            let why = row.failed.clone()?;
            Some((swept_store(&row), why))
        });
        failed.for_each(|out| add(&mut record.left_out, out));
        all
    }

    /// Returns the words of a run at this scale. The words of an open loop derive from the rows
    /// before it.
    fn words(&self, run: &Run, before: &[Row]) -> Result<String, String> {
        let words = self.experiment.words(run, self.scale);
        if !run.open {
            return Ok(words);
        }
        let rate =
            half_of_slowest(before).ok_or("nothing ran in the closed loop before, of which it takes half the rate")?;
        Ok(format!(
            "{} --rate {rate} --ops {}",
            without(&words, "--ops").0,
            (rate * self.scale.open_ms()).div_ceil(1000)
        ))
    }

    /// Does one run. Its rows do not contain the names of directories.
    fn run(&self, words: &str, record: &mut Record) -> Result<Found, String> {
        let (words, left_out) = with_what_is_here(words, self.dir)?;
        left_out.into_iter().for_each(|out| add(&mut record.left_out, out));
        let scratch = Scratch::new(Some(self.dir), false).map_err(|error| error.to_string())?;
        let timeline = (self.experiment.draw == Some(Draw::Timeline)).then(|| format!("{}.csv", self.experiment.name));
        let medium = self.experiment.medium.variable();
        let more = timeline.as_ref().map(|file| format!(" --timeline {file}")).unwrap_or_default();
        record.commands.push(format!("lodestore-bench run --dir \"{medium}\" {words} --go-on{more}"));
        let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
        command.arg("run").arg("--dir").arg(scratch.path()).args(words.split_whitespace()).args(["--go-on", "--json"]);
        if let Some(file) = &timeline {
            command.arg("--timeline").arg(scratch.path().join(file));
        }
        let limit = self.experiment.expected(self.scale) * EXPECTED_TIME_FACTOR + ADDED_TIME;
        let said = self.child(&scratch, command, limit);
        let path = scratch.path();
        let lines = said.map_err(|why| why.replace(&*path.to_string_lossy(), medium))?;
        let timeline = timeline.and_then(|file| fs::read_to_string(path.join(&file)).ok()).unwrap_or_default();
        Ok(Found { lines: unnamed(&lines, path, medium), timeline })
    }

    /// Starts the child, waits for it, and returns its output. `scratch` holds the child, so that a
    /// signal ends it too.
    fn child(&self, scratch: &Scratch, mut command: Command, limit: Duration) -> Result<String, String> {
        scratch::tie(&mut command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("it could not be started: {error}"))?;
        let pipes = child.stdout.take().zip(child.stderr.take());
        scratch.hold_bench(child);
        let (out, err) = pipes.ok_or("it has no output")?;
        let (lines, errors) = readers(out, err);
        let Some(lines) = self.wait(&lines, limit) else {
            scratch.end_child();
            return Err(format!("it was ended when it had taken {} s", limit.as_secs()));
        };
        let ended_well = scratch.wait_child();
        let errors = errors.join().unwrap_or_default();
        let last = errors.lines().last().unwrap_or("it ended early");
        // If all of its stores failed, its rows contain the reasons.
        let told = rows(&lines).iter().any(|row| row.failed.is_some());
        if ended_well || told { Ok(lines) } else { Err(last.trim_start_matches("lodestore: ").to_string()) }
    }

    /// Returns the output from the reader, or `None` after the limit.
    fn wait(&self, lines: &Receiver<String>, limit: Duration) -> Option<String> {
        let began = Instant::now();
        loop {
            match lines.recv_timeout(PROGRESS_INTERVAL) {
                Ok(lines) => return Some(lines),
                Err(RecvTimeoutError::Disconnected) => return Some(String::new()),
                Err(RecvTimeoutError::Timeout) if began.elapsed() > limit => return None,
                Err(RecvTimeoutError::Timeout) => (self.tick)(),
            }
        }
    }
}

/// Starts threads that read a child's output and its errors to their ends, so that it never waits
/// for a reader.
fn readers(mut out: ChildStdout, mut err: ChildStderr) -> (Receiver<String>, JoinHandle<String>) {
    let (send, lines) = channel();
    thread::spawn(move || {
        let mut text = String::new();
        // Output that is not text shows by its missing rows. The receiver may be gone.
        let _ = out.read_to_string(&mut text);
        let _ = send.send(text);
    });
    let errors = thread::spawn(move || {
        let mut text = String::new();
        let _ = err.read_to_string(&mut text);
        text
    });
    (lines, errors)
}

/// Replaces a directory by a variable in JSON lines. Commands have the variable in quotation marks,
/// so that they work with any value.
fn unnamed(lines: &str, dir: &Path, variable: &str) -> String {
    // As JSON writes them, within quotation marks.
    let json = |text: &str| {
        let written = serde_json::to_string(text).unwrap_or_default();
        written.get(1..written.len().saturating_sub(1)).unwrap_or_default().to_string()
    };
    let dir = dir.to_string_lossy();
    let option = |word: &str| json(&format!("--dir {word} "));
    let commands = lines.replace(&option(&quoted(&dir)), &option(&format!("\"{variable}\"")));
    commands.replace(&json(&dir), variable)
}

/// Adds an item that is not present yet.
fn add(all: &mut Vec<(String, String)>, one: (String, String)) {
    if !all.contains(&one) {
        all.push(one);
    }
}

/// Returns half the minimum rate of these rows except the loads, in whole operations per second.
fn half_of_slowest(rows: &[Row]) -> Option<u64> {
    let rates = rows.iter().filter(|row| row.failed.is_none() && row.workload != "load").map(|row| row.ops_per_s);
    rates.filter(|rate| *rate > 0.0).reduce(f64::min).map(|rate| ((rate / 2.0) as u64).max(1))
}

/// Returns the words without an option and its value, and the value.
pub(super) fn without(words: &str, option: &str) -> (String, Option<String>) {
    let (mut left, mut value) = (Vec::new(), None);
    let mut all = words.split_whitespace();
    while let Some(word) = all.next() {
        if word == option {
            value = all.next().map(String::from);
        } else {
            left.push(word);
        }
    }
    (left.join(" "), value)
}

/// Returns why a server's socket cannot be at its path in a run in `dir`, or `None` if it can.
fn no_room_for_a_socket(peer: &str, dir: &Path) -> Option<String> {
    // The names that this process, its bench and the cells use.
    let run = format!("lodestore-bench-{}-0", std::process::id());
    let cell = dir.join(&run).join(&run).join(format!("{peer}-99"));
    peers::fits_in(peer, &cell).err().map(|_| "the path of its socket would be too long: give a shorter --dir".into())
}

/// Removes the peers that cannot run on this machine from the words, and returns them with the
/// reasons. The engine that is measured first is in every build.
///
/// # Errors
/// Words that cannot be parsed.
fn with_what_is_here(words: &str, dir: &Path) -> Result<(String, Vec<(String, String)>), String> {
    let args = read(words).map_err(|error| error.to_string().lines().next().unwrap_or_default().to_string())?.0;
    let mut left_out = Vec::new();
    let all = args.targets().split_off(1);
    let here: Vec<_> = all
        .iter()
        .filter(|peer| {
            let why = peers::missing(peer, args.durability).or_else(|| no_room_for_a_socket(peer, dir));
            left_out.extend(why.clone().map(|why| ((*peer).clone(), why)));
            why.is_none()
        })
        .cloned()
        .collect();
    if left_out.is_empty() {
        return Ok((words.into(), left_out));
    }
    let peers = if here.is_empty() { "none".into() } else { here.join(",") };
    Ok((format!("{} --peers {peers}", without(words, "--peers").0), left_out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::sample::{experiment, record, row};

    #[test]
    fn an_option_is_taken_out_of_words_with_its_value() {
        assert_eq!(without("--ops 5 --rounds 2", "--ops"), ("--rounds 2".into(), Some("5".into())));
        assert_eq!(without("--rounds 2", "--ops"), ("--rounds 2".into(), None));
    }

    #[test]
    fn half_the_rate_is_that_of_the_slowest_that_ran_and_not_of_a_load() {
        let failed = Row { failed: Some("full".into()), ..row("nvht", "failed", 0.0) };
        let rows = [row("hikv", "load", 10.0), row("hikv", "a", 5000.0), row("lmdb", "a", 2001.0), failed];
        assert_eq!((half_of_slowest(&rows), half_of_slowest(&rows[..1])), (Some(1000), None));
    }

    #[test]
    fn an_open_loop_takes_half_the_rate_for_its_seconds_and_none_where_nothing_ran() {
        let experiment = Experiment {
            small: crate::suite::list::Size { words: "--records 10 --ops 7", seconds: 1 },
            ..experiment()
        };
        let bench = Bench { experiment: &experiment, scale: Scale::Small, dir: Path::new("."), tick: &|| () };
        let run = Run { open: true, ..Run::new("--workloads a") };
        let words = bench.words(&run, &[row("hikv", "a", 4000.0)]).expect("there is a rate");
        assert_eq!(words, "--workloads a --records 10 --rate 2000 --ops 800");
        let full = Bench { scale: Scale::Full, ..bench };
        let words = full.words(&run, &[row("hikv", "a", 4000.0)]).expect("there is a rate");
        assert!(words.ends_with("--rate 2000 --ops 6000"), "{words}");
        let tiny = Bench { scale: Scale::Tiny, ..bench };
        let words = tiny.words(&run, &[row("hikv", "a", 4001.0)]).expect("there is a rate");
        assert!(words.ends_with("--rate 2000 --ops 200"), "{words}");
        full.words(&run, &[]).expect_err("there is none");
    }

    #[test]
    fn the_commands_of_rows_can_be_pasted_whatever_the_directory_is_called() {
        for dir in ["/dev/shm/lodestore-1", "/tmp/a b's \"c\"/lodestore-1"] {
            let command = format!("lodestore-bench run --dir {} --engine hikv", quoted(dir));
            let found =
                Row { repeat: command, failed: Some(format!("{dir}/hikv-1 is full")), ..row("hikv", "get", 1.0) };
            let lines = serde_json::to_string(&found).expect("JSON");
            let read: Row = serde_json::from_str(&unnamed(&lines, Path::new(dir), "$MEMORY")).expect("a row");
            assert_eq!(read.repeat, "lodestore-bench run --dir \"$MEMORY\" --engine hikv");
            assert_eq!(read.failed.as_deref(), Some("$MEMORY/hikv-1 is full"));
        }
    }

    #[test]
    fn peers_that_cannot_run_are_left_out_and_told_of() {
        let (words, out) =
            with_what_is_here("--engine hikv --peers nvht:region=64M,frob,btreemap --records 5", Path::new("/"))
                .expect("words");
        assert_eq!(words, "--engine hikv --records 5 --peers nvht:region=64M,btreemap");
        assert_eq!(out, [("frob".to_string(), "not in this build, but in one with --features peers".to_string())]);
        let (words, out) = with_what_is_here("--engine hikv --peers frob", Path::new("/")).expect("words");
        assert_eq!((words.as_str(), out.len()), ("--engine hikv --peers none", 1));
        let same = "--engine hikv --peers nvht";
        assert_eq!(with_what_is_here(same, Path::new("/")).expect("words"), (same.into(), Vec::new()));
        with_what_is_here("--frob", Path::new("/")).expect_err("there is no such option");
    }

    #[cfg(feature = "peers")]
    #[test]
    fn a_peer_that_cannot_give_the_durability_is_left_out() {
        let (words, out) =
            with_what_is_here("--engine hikv --peers hashmap,bdb-hash --durability process", Path::new("/"))
                .expect("words");
        assert!(words.ends_with("--peers hashmap") && out[0].1.contains("bdb-hash-paper"), "{words} {out:?}");
    }

    #[cfg(feature = "peers")]
    #[test]
    fn a_server_whose_socket_has_too_long_a_path_is_left_out() {
        let words = "--engine hikv --peers hashmap,redis";
        let (left, out) = with_what_is_here(words, &Path::new("/").join("d".repeat(100))).expect("words");
        assert!(left.ends_with("--peers hashmap"), "{left}");
        assert!(out[0].0 == "redis" && out[0].1.contains("a shorter --dir"), "{out:?}");
    }

    #[cfg(feature = "peers")]
    #[test]
    fn only_servers_are_left_out_where_a_path_is_too_long() {
        let words = "--engine hikv --peers hashmap,redb";
        let (left, _) = with_what_is_here(words, &Path::new("/").join("d".repeat(100))).expect("words");
        assert_eq!(left, words);
    }

    #[test]
    fn a_run_that_fails_or_lasts_too_long_is_told_of() {
        let directory = lodestore_contract::testing::Scratch::on_disk();
        let dir = directory.path().to_path_buf();
        let experiment = experiment();
        let bench = Bench { experiment: &experiment, scale: Scale::Small, dir: &dir, tick: &|| () };
        let scratch = Scratch::new(None, false).expect("none is made");
        let shell = |text: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", text]);
            command
        };
        let long = Duration::from_secs(60);
        assert_eq!(bench.child(&scratch, shell("echo row; echo noise >&2"), long), Ok("row\n".into()));
        let why = bench.child(&scratch, shell("echo row; echo 'lodestore: no room' >&2; exit 6"), long);
        assert_eq!(why, Err("no room".into()));
        let failed = Row { failed: Some("no room".into()), ..row("hikv", "failed", 0.0) };
        let failed = serde_json::to_string(&failed).expect("JSON");
        let told = bench.child(&scratch, shell(&format!("echo '{failed}'; exit 6")), long);
        assert_eq!(told, Ok(format!("{failed}\n")), "its rows say why");
        let begun = Instant::now();
        let late = bench.child(&scratch, shell("exec sleep 60"), Duration::from_millis(100));
        assert!(late.is_err_and(|why| why.starts_with("it was ended when it had taken")));
        assert!(begun.elapsed() < Duration::from_secs(50), "it was ended");
        let (reader, lines) = channel::<String>();
        assert_eq!(bench.wait(&lines, Duration::ZERO), None, "it is not at the end");
        drop(reader);
        assert_eq!(bench.wait(&lines, Duration::ZERO), Some(String::new()), "there is no more to come");
        // A run whose words cannot be parsed fails as a whole; earlier runs are kept.
        let broken = Experiment { runs: vec![Run::new("--frob")], ..experiment.clone() };
        let mut record = record();
        assert_eq!(Bench { experiment: &broken, ..bench }.all(&mut record), Found::default());
        assert!(record.failed[0].contains("--frob"), "{:?}", record.failed);
    }
}
