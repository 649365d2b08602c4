//! `lodestore-bench evaluate`: a list of experiments. They run one after the other, each by
//! `lodestore-bench run`.
//!
//! An experiment has rows (NAME.jsonl), and one over time has a timeline (NAME.csv). `runs.json`
//! holds a record of each run. `lodestore-plots` makes pages and plots of these files. All files
//! are written when an experiment is done, so an interruption leaves the finished experiments. An
//! experiment that measured nothing leaves its earlier files unchanged.

mod list;
mod metric;
mod presets;
mod record;
mod run;
#[cfg(test)]
mod sample;
mod site;

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use lodestore_contract::{Error, Result};

use crate::report::row::Row;
use crate::run::scratch;
pub use list::Scale;
use list::{Draw, Experiment, Medium, experiments};
use record::{About, Record};
use run::{Bench, Found};
use site::Site;

/// The records of the runs whose rows are in the same directory.
const RECORDS: &str = "runs.json";

/// Arguments of `lodestore-bench evaluate`.
#[derive(Debug, Clone, clap::Args)]
pub struct Evaluate {
    /// The amount of measurement.
    #[arg(long, value_enum, default_value_t)]
    pub scale: Scale,
    /// Directory in memory, such as one on tmpfs. New directories are created in it, and removed.
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    pub dir: Option<PathBuf>,
    /// Directory on a disk, for the experiments that sync. Without it these experiments are
    /// skipped.
    #[arg(long, value_name = "DIR")]
    pub disk: Option<PathBuf>,
    /// Directory for the results, created if it is missing. Results of experiments that run are
    /// rewritten.
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    pub out: Option<PathBuf>,
    /// Run only these experiments.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Skip experiments that --out already has with this scale and program, if no run of them
    /// failed and their rows are complete.
    #[arg(long)]
    pub resume: bool,
    /// Print the list of experiments, with the expected time of each; run nothing.
    #[arg(long)]
    pub list: bool,
}

/// Runs the experiments and writes their results. `program` is the version of this program, with
/// its commit if known. An error of a store or a whole experiment is recorded, and ends
/// nothing. Returns the names of the requested experiments that measured nothing.
///
/// # Errors
/// [`Error::InvalidOption`] for an unknown experiment, a path that is not a directory, and an
/// unreadable `runs.json`; [`Error::Io`] for directories that cannot be used, and standard output.
pub fn evaluate(args: &Evaluate, program: &str) -> Result<Vec<String>> {
    let chosen = chosen(&args.only)?;
    let (Some(dir), Some(out), false) = (&args.dir, &args.out, args.list) else {
        return say(&listed(&chosen, args.scale)).map(|()| Vec::new());
    };
    scratch::watch();
    let suite = Suite {
        args,
        program,
        out: out.clone(),
        memory: usable("dir", dir)?,
        disk: args.disk.as_deref().map(|disk| usable("disk", disk)).transpose()?,
        site: Site::here(dir, args.disk.as_deref()),
    };
    // A file at this path is reported as such below.
    if !out.exists() {
        fs::create_dir_all(out).map_err(|source| Error::io("making directory", out, source))?;
    }
    usable("out", out)?;
    let _alone = alone(out)?;
    scratch::tell_of_left(std::iter::once(&suite.memory).chain(&suite.disk));
    suite.run(&chosen)
}

/// Returns the experiments of these names, in the order of the list; all if no name is given.
fn chosen(only: &[String]) -> Result<Vec<Experiment>> {
    let all = experiments();
    if let Some(unknown) = only.iter().find(|name| all.iter().all(|known| known.name != **name)) {
        let names: Vec<_> = all.iter().map(|known| known.name.as_str()).collect();
        let why = format!("give some of {}", names.join(", "));
        return Err(Error::InvalidOption { name: "only".into(), value: unknown.clone(), why });
    }
    Ok(all.into_iter().filter(|known| only.is_empty() || only.contains(&known.name)).collect())
}

/// Returns the full path of the directory of this option, and checks that files can be created in
/// it.
fn usable(option: &str, dir: &Path) -> Result<PathBuf> {
    let real = fs::canonicalize(dir).map_err(|source| Error::io("finding directory", dir, source))?;
    if !real.is_dir() {
        let why = "it is no directory: give one".into();
        return Err(Error::InvalidOption { name: option.into(), value: dir.display().to_string(), why });
    }
    let probe = real.join(format!(".lodestore-probe-{}", std::process::id()));
    let file = probe.join("probe");
    let tried = fs::create_dir(&probe).and_then(|()| fs::write(&file, "probe")).and_then(|()| fs::remove_file(&file));
    let removed = fs::remove_dir_all(&probe);
    tried.and(removed).map_err(|source| Error::io("trying to write in", dir, source))?;
    Ok(real)
}

/// Locks the directory of the results, so that two evaluations do not overwrite each other. The
/// lock is released on drop. Returns `None` without file locks.
fn alone(out: &Path) -> Result<Option<File>> {
    let dir = File::open(out).map_err(|source| Error::io("opening directory", out, source))?;
    match dir.try_lock() {
        Ok(()) => Ok(Some(dir)),
        Err(TryLockError::WouldBlock) => {
            let why = "another evaluation writes there: wait for its end, or give another directory".into();
            Err(Error::InvalidOption { name: "out".into(), value: out.display().to_string(), why })
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Writes to standard output.
fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    said.map_err(|source| Error::io("printing", "", source))
}

/// Returns the list that `--list` prints.
fn listed(chosen: &[Experiment], scale: Scale) -> String {
    let medium = |experiment: &Experiment| if experiment.medium == Medium::Memory { "memory" } else { "disk" };
    let line = |experiment: &Experiment| {
        let seconds = experiment.size(scale).seconds;
        format!("{:20} {:6} {seconds:5} s  {}\n", experiment.name, medium(experiment), experiment.title)
    };
    let lines: String = chosen.iter().map(line).collect();
    let all: u64 = chosen.iter().map(|experiment| experiment.size(scale).seconds).sum();
    format!("{lines}expected at scale {}: {:.1} minutes\n", scale.name(), all as f64 / 60.0)
}

/// A run of the suite.
struct Suite<'a> {
    args: &'a Evaluate,
    program: &'a str,
    out: PathBuf,
    memory: PathBuf,
    disk: Option<PathBuf>,
    site: Site,
}

impl Suite<'_> {
    /// Runs the due experiments. Returns the names of the requested ones that measured nothing.
    fn run(&self, chosen: &[Experiment]) -> Result<Vec<String>> {
        let mut records = self.records()?;
        let mut without = Vec::new();
        let due: Vec<_> = chosen.iter().filter(|experiment| !self.is_done(&records, experiment)).collect();
        let bar = bar(due.iter().map(|experiment| experiment.expected(self.args.scale)).sum());
        let mut before = Duration::ZERO;
        for (place, experiment) in due.iter().enumerate() {
            bar.set_message(format!("{} ({} of {})", experiment.name, place + 1, due.len()));
            let (record, found) = self.one(experiment, &bar, before);
            before += experiment.expected(self.args.scale);
            bar.set_position(before.as_secs());
            let rows = rows(&found.lines);
            let mut told = told(experiment, &record, &rows);
            if !has_figures(&rows) && self.was_asked(experiment) {
                without.push(experiment.name.clone());
            }
            if !has_figures(&rows) && has_figures(&self.rows_there(experiment)) {
                told += "; what --out has of it stays as it was";
            } else {
                self.keep(experiment, &found)?;
                records.insert(experiment.name.clone(), record);
                self.write(RECORDS, &(serde_json::to_string_pretty(&records).unwrap_or_default() + "\n"))?;
            }
            bar.suspend(|| say(&format!("{told}\n")))?;
        }
        bar.finish_and_clear();
        Ok(without)
    }

    /// Returns whether the experiment is requested. Without a disk, an experiment on a disk is
    /// requested only by its name.
    fn was_asked(&self, experiment: &Experiment) -> bool {
        experiment.medium == Medium::Memory || self.disk.is_some() || !self.args.only.is_empty()
    }

    /// Returns the records of the existing results.
    fn records(&self) -> Result<BTreeMap<String, Record>> {
        let path = self.out.join(RECORDS);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(source) => return Err(Error::io("reading", path, source)),
        };
        serde_json::from_str(&text).map_err(|error| {
            let why = format!(
                "{} in it cannot be read ({error}): restore it, or move it away to begin without the results that it describes",
                path.display()
            );
            Error::InvalidOption { name: "out".into(), value: self.out.display().to_string(), why }
        })
    }

    /// Returns whether the experiment need not run again.
    fn is_done(&self, records: &BTreeMap<String, Record>, experiment: &Experiment) -> bool {
        let Some(record) = records.get(&experiment.name).filter(|_| self.args.resume) else { return false };
        let same = record.scale == self.args.scale && record.program == self.program && record.failed.is_empty();
        let is_whole = self.rows_of(experiment, record).is_some_and(|rows| has_figures(&rows));
        let has_timeline = experiment.draw != Some(Draw::Timeline) || self.path(experiment, "csv").exists();
        same && is_whole && has_timeline
    }

    /// Returns the file of an experiment with this extension.
    fn path(&self, experiment: &Experiment, ending: &str) -> PathBuf {
        self.out.join(format!("{}.{ending}", experiment.name))
    }

    /// Returns the readable rows of an experiment.
    fn rows_there(&self, experiment: &Experiment) -> Vec<Row> {
        rows(&fs::read_to_string(self.path(experiment, "jsonl")).unwrap_or_default())
    }

    /// Returns the rows of a recorded run; `None` if their number differs from the recorded one.
    fn rows_of(&self, experiment: &Experiment, record: &Record) -> Option<Vec<Row>> {
        let lines = fs::read_to_string(self.path(experiment, "jsonl")).ok()?;
        let rows = rows(&lines);
        (rows.len() == record.rows && lines.lines().count() == record.rows).then_some(rows)
    }

    /// Writes the files of an experiment.
    fn keep(&self, experiment: &Experiment, found: &Found) -> Result<()> {
        self.write(&format!("{}.jsonl", experiment.name), &found.lines)?;
        if found.timeline.is_empty() {
            Ok(())
        } else {
            self.write(&format!("{}.csv", experiment.name), &found.timeline)
        }
    }

    /// Runs an experiment. Returns its record and its results.
    fn one(&self, experiment: &Experiment, bar: &ProgressBar, before: Duration) -> (Record, Found) {
        let began = Instant::now();
        let scale = self.args.scale;
        let place = experiments().iter().position(|known| known.name == experiment.name).unwrap_or_default();
        let mut record = Record {
            about: About::of(place, experiment, scale),
            scale,
            program: self.program.into(),
            date: site::today(),
            site: self.site.clone(),
            seconds: 0.0,
            expected_seconds: experiment.size(scale).seconds,
            commands: Vec::new(),
            left_out: Vec::new(),
            failed: Vec::new(),
            rows: 0,
        };
        let dir = if experiment.medium == Medium::Memory { Some(&self.memory) } else { self.disk.as_ref() };
        let mut found = Found::default();
        match dir {
            None => record.failed.push("no directory on a disk was given (--disk)".into()),
            Some(dir) => {
                let tick = || {
                    let own = began.elapsed().min(experiment.expected(scale));
                    bar.set_position((before + own).as_secs());
                };
                let bench = Bench { experiment, scale, dir, tick: &tick };
                found = bench.all(&mut record);
            }
        }
        record.seconds = began.elapsed().as_secs_f64();
        record.rows = rows(&found.lines).len();
        (record, found)
    }

    /// Writes a file to the directory of the results. The file gets its name when it is complete.
    fn write(&self, name: &str, text: &str) -> Result<()> {
        let (path, part) = (self.out.join(name), self.out.join(format!(".{name}.part")));
        let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &path));
        written.map_err(|source| {
            // A partial file would keep a full medium full. If the removal fails, the file does not
            // exist.
            let _ = fs::remove_file(&part);
            Error::io("writing", path, source)
        })
    }
}

/// Returns the rows of JSON lines. Skips other lines, such as lines of another version.
fn rows(lines: &str) -> Vec<Row> {
    lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns whether any row has results of a store.
fn has_figures(rows: &[Row]) -> bool {
    rows.iter().any(|row| row.failed.is_none())
}

/// Returns the line to print for an experiment that has run.
fn told(experiment: &Experiment, record: &Record, rows: &[Row]) -> String {
    let (name, seconds, expected) = (&experiment.name, record.seconds, record.expected_seconds);
    if has_figures(rows) {
        let failed = if record.failed.is_empty() { "" } else { ", failed in part" };
        return format!("{name}: {seconds:.0} s, {expected} s expected{failed}");
    }
    let stores = record.left_out.iter().map(|(store, why)| format!("{store}: {why}"));
    let why: Vec<_> = record.failed.iter().cloned().chain(stores).collect();
    let first = why.first().map_or("it has no row", String::as_str).replace('\n', " ");
    let more = if why.len() > 1 { format!(" (and {} more)", why.len() - 1) } else { String::new() };
    format!("{name}: it measured nothing: {first}{more}")
}

/// Creates a progress bar over the expected time, on a terminal only.
fn bar(expected: Duration) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(expected.as_secs());
    let style = ProgressStyle::with_template("{elapsed:>4} [{bar:40}] {pos}/{len} s expected, {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use lodestore_contract::testing::Scratch;

    fn expected(scale: Scale) -> Duration {
        experiments().iter().map(|experiment| experiment.expected(scale)).sum()
    }

    #[test]
    fn two_evaluations_do_not_write_into_one_directory() {
        let scratch = Scratch::on_disk();
        let out = scratch.path();
        let first = alone(out).expect("nobody else writes there");
        let second = alone(out);
        // Without file locks no evaluation is refused.
        assert_eq!(first.is_some(), second.is_err());
        drop(first);
        alone(out).expect("it is free again");
    }

    #[test]
    fn the_small_scale_is_expected_to_end_well_within_15_minutes_and_the_full_one_within_two_hours() {
        assert!(expected(Scale::Small) < Duration::from_secs(13 * 60), "{:?}", expected(Scale::Small));
        assert!(expected(Scale::Full) < Duration::from_secs(100 * 60), "{:?}", expected(Scale::Full));
        assert!(expected(Scale::Tiny) <= Duration::from_secs(2 * 60), "{:?}", expected(Scale::Tiny));
    }

    #[test]
    fn every_experiment_can_be_read_at_every_scale_and_has_a_name_of_its_own() {
        let all = experiments();
        for experiment in &all {
            assert_eq!(all.iter().filter(|other| other.name == experiment.name).count(), 1, "{}", experiment.name);
            for scale in Scale::value_variants() {
                for own in &experiment.runs {
                    let words = experiment.words(own, *scale);
                    run::read(&words).unwrap_or_else(|error| panic!("{}: {error}", experiment.name));
                }
            }
        }
    }

    #[test]
    fn every_row_of_the_small_and_the_full_scale_but_the_longest_has_a_spread() {
        for experiment in experiments() {
            for scale in [Scale::Small, Scale::Full] {
                for own in &experiment.runs {
                    let words = experiment.words(own, scale);
                    let rounds = run::read(&words).expect("they can be read").0.rounds;
                    let once = experiment.name == "hashkv-p123" && scale == Scale::Full;
                    assert!(rounds >= 3 || once, "{} at {}: {rounds}", experiment.name, scale.name());
                }
            }
        }
    }

    #[test]
    fn every_preset_has_an_experiment_but_for_those_that_ours_cover() {
        let all = experiments();
        for preset in crate::args::preset::Preset::value_variants() {
            let has_one =
                all.iter().any(|experiment| experiment.runs[0].words == format!("--preset {}", preset.name()));
            assert_eq!(has_one, !list::COVERED.contains(preset), "{}", preset.name());
        }
    }

    #[test]
    fn experiments_are_chosen_by_name_and_a_name_that_is_none_is_refused() {
        let names = |only: &[&str]| -> Result<Vec<String>> {
            let only: Vec<_> = only.iter().map(|name| (*name).to_string()).collect();
            Ok(chosen(&only)?.into_iter().map(|experiment| experiment.name).collect())
        };
        assert_eq!(names(&["ycsb", "micro"]).expect("they are known"), ["micro", "ycsb"]);
        assert!(names(&[]).expect("all").len() > 10);
        assert!(names(&["frob"]).expect_err("there is none").to_string().contains("micro, ycsb"));
    }

    #[test]
    fn the_list_says_what_each_takes() {
        let listed = listed(&chosen(&["micro".into()]).expect("it is known"), Scale::Small);
        assert!(
            listed.starts_with("micro                memory") && listed.contains("expected at scale small: "),
            "{listed}"
        );
    }
}
