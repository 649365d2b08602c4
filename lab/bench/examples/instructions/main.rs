//! The guard of the hot paths: compares the instructions of each operation of each engine with
//! `lab/bench/instructions.txt`.
//!
//! `cargo run --release -p lodestore-bench --example instructions` measures and compares, and fails
//! if a path has grown. `-- --bless` rewrites the file. `-- --engine NAME` measures one engine.
//!
//! The guard needs valgrind, and starts itself under valgrind once for each engine. Instruction
//! counts are not times, but they show when a path gets longer. `lodestore-bench run` measures
//! time.
#![forbid(unsafe_code)]

mod callgrind;
mod counts;
mod paths;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;

use counts::{Counts, Kind, Line};
use paths::{SUBJECTS, Subject};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Runs of each engine, of which the fewest instructions count. A blessing uses all of them; a
/// comparison uses more than one only if a path has grown.
const BLESSED_RUN_COUNT: usize = 5;
const COMPARED_RUN_COUNT: usize = 3;
/// Memory file system for the stores.
const MEMORY: &str = "/dev/shm";
const BLESS: &str = "cargo run --release -p lodestore-bench --example instructions -- --bless";

/// Counts the instructions of each engine's hot paths.
#[derive(Debug, Parser)]
struct Args {
    /// Write the counts to the file instead of comparing them
    #[arg(long, conflicts_with = "engine")]
    bless: bool,
    /// Measure only this engine
    #[arg(long, value_name = "NAME")]
    engine: Option<String>,
    /// Directory on tmpfs for the stores
    #[arg(long, value_name = "DIR", default_value = MEMORY)]
    dir: PathBuf,
    /// Run an engine's paths in a new directory: the part under valgrind
    #[arg(long, hide = true, num_args = 2, value_names = ["ENGINE", "DIR"])]
    serve: Option<Vec<String>>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.serve.as_deref() {
        Some([engine, directory]) => serve(engine, directory.as_ref()).map(|()| true),
        _ => guard(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the paths of one engine, and prints a line for each.
fn serve(engine: &str, directory: &Path) -> Result<()> {
    let [subject] = subjects(Some(engine))?[..] else { return Err("one engine is served".into()) };
    Ok(paths::run(subject, directory, &mut |path, count| println!("{path} {count}"))?)
}

/// Returns the engines to measure.
fn subjects(engine: Option<&str>) -> Result<Vec<&'static Subject>> {
    let asked: Vec<_> = SUBJECTS.iter().filter(|subject| engine.is_none_or(|name| name == subject.engine)).collect();
    if asked.is_empty() {
        let known: Vec<_> = SUBJECTS.iter().map(|subject| subject.engine).collect();
        return Err(format!("there is no such engine; those that are guarded: {}", known.join(", ")).into());
    }
    Ok(asked)
}

/// Measures, and writes or compares the counts. Returns whether the guard passes.
fn guard(args: &Args) -> Result<bool> {
    if cfg!(debug_assertions) {
        return Err("only a release build's instructions count: cargo run --release".into());
    }
    if !callgrind::is_installed() {
        return Err("valgrind is missing: apt-get install valgrind, or what your system has for it".into());
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt");
    let subjects = subjects(args.engine.as_deref())?;
    let mut new = Counts { rustc: rustc()?, target: target(), lines: Vec::new() };
    if args.bless {
        for subject in &subjects {
            let runs = (0..BLESSED_RUN_COUNT).map(|_| measure(args, subject)).collect::<Result<Vec<_>>>()?;
            new.lines.extend(fewest(subject, &runs));
        }
        std::fs::write(&file, new.to_string())?;
        print!("{new}");
        return Ok(true);
    }
    let old = Counts::parse(&std::fs::read_to_string(&file)?)?;
    for subject in &subjects {
        let mut runs = Vec::new();
        let lines = loop {
            runs.push(measure(args, subject)?);
            let lines = fewest(subject, &runs);
            let findings = old.compare(&Counts { lines: lines.clone(), ..new.clone() });
            if runs.len() == COMPARED_RUN_COUNT || findings.iter().all(|finding| finding.kind != Kind::Grown) {
                break lines;
            }
        };
        new.lines.extend(lines);
    }
    Ok(judge(&old, &new))
}

/// Prints how `new` differs from `old`. Returns whether the guard passes.
fn judge(old: &Counts, new: &Counts) -> bool {
    let findings = old.compare(new);
    findings.iter().for_each(|finding| println!("{finding}"));
    let is_comparable = (&old.rustc, &old.target) == (&new.rustc, &new.target);
    if !is_comparable {
        println!("NOT JUDGED: the counts are of {}, {}; this is {}, {}.", old.rustc, old.target, new.rustc, new.target);
        println!(
            "Nothing guards the hot paths until they are written anew, from a tree that is known to be good: {BLESS}"
        );
        return true;
    }
    let failures = findings.iter().filter(|finding| finding.is_failure()).count();
    if failures > 0 {
        println!("{failures} of {} paths are not as lab/bench/instructions.txt has them.", new.lines.len());
        println!("Where that is meant, say why in the commit, and take the new figures with it: {BLESS}");
    } else if !findings.is_empty() {
        println!("Take the new figures, or they guard nothing: {BLESS}");
    } else {
        println!(
            "{} paths take as many instructions as they did, within {} %.",
            new.lines.len(),
            counts::TOLERANCE_PERCENT
        );
    }
    failures == 0
}

/// Measures the paths of one engine once.
fn measure(args: &Args, subject: &Subject) -> Result<Vec<(String, u64)>> {
    let name = format!("lodestore-instructions-{}-{}", std::process::id(), subject.engine);
    callgrind::measure(subject, &args.dir.join(name))
}

/// Returns a line for each path of these runs of one engine.
fn fewest(subject: &Subject, runs: &[Vec<(String, u64)>]) -> Vec<Line> {
    let mut found: BTreeMap<usize, (String, u64, u64)> = BTreeMap::new();
    for (at, (path, count)) in runs.iter().flat_map(|run| run.iter().enumerate()) {
        let (_, least, most) = found.entry(at).or_insert_with(|| (path.clone(), *count, *count));
        (*least, *most) = ((*least).min(*count), (*most).max(*count));
    }
    let line = |(path, least, most)| Line {
        engine: subject.engine.into(),
        path,
        instructions: least,
        spread: (most as f64 / least as f64 - 1.0) * 100.0,
    };
    found.into_values().map(line).collect()
}

/// Returns the compiler's version text.
fn rustc() -> Result<String> {
    let told = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())).arg("--version").output()?;
    Ok(String::from_utf8(told.stdout)?.trim().into())
}

/// Returns the compilation target.
fn target() -> String {
    let library = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    format!("{}-{}-{library}", std::env::consts::ARCH, std::env::consts::OS)
}
