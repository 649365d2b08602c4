//! The damage explorer as a program.
//!
//! `damage --engine NAME [--mode NAME|NUMBER] [--images N] [--seed S] [--threads N]` damages the
//! files of stores and judges every answer. The exit code is 1 if the rule is broken. `--case B.I`
//! runs only image I of base B, and prints it as a test. `--table` prints the table of
//! docs/crash.md, and `--table-into FILE` stores the table there. `--known` exits with 0 if all
//! breaches are known ones of the engine. `--mutant NAME` plants a fault; `--mutants` prints which
//! planted faults are seen.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;
use std::{env, fs, process, thread};

use lodestore_sim::damage::fault::Kind;
use lodestore_sim::damage::known_gaps::{are_few, is_known};
use lodestore_sim::damage::minimize::minimize;
use lodestore_sim::damage::planted::seen_case;
use lodestore_sim::damage::{CaseId, Config, Failure, Progress, Report, Signature, explore, print, table};
use lodestore_sim::faults::named;
use lodestore_sim::fluidkv::FluidEngine;
use lodestore_sim::hashkv::{HashEngine, NOSEP_MODE_FLAG};
use lodestore_sim::hikv::HiKvEngine;
use lodestore_sim::mkvs::MkvsEngine;
use lodestore_sim::nvht::NvhtEngine;
use lodestore_sim::subject::Engine;

const USAGE: &str = "usage: damage --engine hikv|nvht|fluidkv|hashkv|mkvs [--mode NAME|NUMBER] [--images N] [--seed S] \
                     [--case B.I] [--threads N] [--ops N] [--only KIND] [--mutant NAME] [--mutants] [--table] [--table-into FILE] [--known] [--stop] [--minimize]";
/// Time after which one image counts as a hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

struct Args {
    engine: String,
    mutant: Option<String>,
    config: Config,
    table: bool,
    table_into: Option<String>,
    known: bool,
    mutants: bool,
    minimize: bool,
}

fn number<T: std::str::FromStr>(name: &str, text: Option<String>) -> Result<T, String> {
    text.and_then(|text| text.replace('_', "").parse().ok()).ok_or_else(|| format!("{name} needs a number; {USAGE}"))
}

/// The modes by name; any other is given by its number.
fn mode(text: &str) -> Result<u32, String> {
    let named = [
        ("hash", 0),
        ("plain", 0),
        ("vlog", 1),
        ("nosep", NOSEP_MODE_FLAG),
        ("changing", 2),
        ("sync", 1),
        ("partitioned", 2),
        ("wal", 4),
        ("lz4", 8),
    ];
    let known = named.iter().find(|(name, _)| *name == text).map(|(_, bits)| *bits);
    known.or_else(|| text.parse().ok()).ok_or_else(|| format!("no mode {text}; {USAGE}"))
}

fn case_id(text: &str) -> Option<CaseId> {
    let (base, image) = text.split_once('.')?;
    Some(CaseId { base: base.parse().ok()?, image: image.parse().ok()? })
}

fn arguments() -> Result<Args, String> {
    let config = Config::default();
    let mut args = Args {
        engine: "hikv".into(),
        mutant: None,
        config,
        table: false,
        table_into: None,
        known: false,
        mutants: false,
        minimize: false,
    };
    let mut given = env::args().skip(1);
    while let Some(name) = given.next() {
        match name.as_str() {
            "--engine" => args.engine = given.next().ok_or(USAGE)?,
            "--mode" => args.config.mode = Some(mode(&given.next().ok_or(USAGE)?)?),
            "--images" => args.config.images = number(&name, given.next())?,
            "--seed" => args.config.seed = number(&name, given.next())?,
            "--threads" => args.config.threads = number(&name, given.next())?,
            "--ops" => args.config.ops = number(&name, given.next())?,
            "--case" => {
                let case = given.next().as_deref().and_then(case_id);
                args.config.case = Some(case.ok_or_else(|| format!("--case needs B.I; {USAGE}"))?);
                args.minimize = true;
            }
            "--mutant" => args.mutant = Some(given.next().ok_or(USAGE)?),
            "--only" => {
                let wanted = given.next().ok_or(USAGE)?;
                let known = Kind::ALL.into_iter().find(|kind| format!("{kind:?}") == wanted);
                args.config.only = Some(known.ok_or_else(|| format!("--only needs one of {:?}", Kind::ALL))?);
            }
            "--table" => args.table = true,
            "--table-into" => args.table_into = Some(given.next().ok_or(USAGE)?),
            "--known" => args.known = true,
            "--mutants" => args.mutants = true,
            "--stop" => args.config.stops = true,
            "--minimize" => args.minimize = true,
            _ => return Err(format!("unknown argument {name}; {USAGE}")),
        }
    }
    Ok(args)
}

fn engine_of(name: &str) -> Result<Box<dyn Engine>, String> {
    match name {
        "hikv" => Ok(Box::new(HiKvEngine)),
        "nvht" => Ok(Box::new(NvhtEngine)),
        "fluidkv" => Ok(Box::new(FluidEngine)),
        "hashkv" => Ok(Box::new(HashEngine)),
        "mkvs" => Ok(Box::new(MkvsEngine)),
        _ => Err(format!("no engine {name}; {USAGE}")),
    }
}

/// Ends the process if one image takes too long, and names the image.
fn watch(progress: &'static Progress) {
    thread::spawn(move || {
        loop {
            thread::sleep(Duration::from_secs(1));
            let slots = progress.lock().map(|slots| slots.clone()).unwrap_or_default();
            for (id, since) in slots.into_iter().flatten() {
                if since.elapsed() > HANG_TIMEOUT {
                    println!(
                        "HANG_TIMEOUT: case {}.{} takes more than {} s",
                        id.base,
                        id.image,
                        HANG_TIMEOUT.as_secs()
                    );
                    process::exit(1);
                }
            }
        }
    });
}

fn show(engine: &str, args: &Args, failure: &Failure, count: u64) {
    let case = &failure.case;
    let faults: Vec<String> = case.faults.iter().map(ToString::to_string).collect();
    println!(
        "{count} x {:?} ({}), {} after {}: {}\n    {}\n    damage --engine {engine}{} --seed {} --case {}.{}",
        failure.violation.breach,
        failure.violation.phase,
        failure.structures,
        case.history.end.name(),
        failure.violation.what,
        faults.join("; "),
        args.config.mode.map(|mode| format!(" --mode {mode}")).unwrap_or_default(),
        args.config.seed,
        failure.id.base,
        failure.id.image
    );
}

fn show_report(engine: &dyn Engine, args: &Args, report: &Report) {
    print!("{}", table::summary(report));
    let rate = report.images as f64 / report.took.as_secs_f64();
    println!(
        "{} images, {} of them worked on, {:.1} s, {rate:.0} images/s",
        report.images,
        report.worked_on,
        report.took.as_secs_f64()
    );
    if report.salvaged_old > 0 {
        println!("{} refused stores: a salvage open reports damage and answers older values", report.salvaged_old);
    }
    if args.table {
        println!("{}", table::markdown(engine.name(), report));
    }
    for (failure, count) in report.failures.values() {
        show(engine.name(), args, failure, *count);
        if args.minimize {
            let small = minimize(engine, failure, args.config.mutant);
            show(engine.name(), args, &small, 1);
            println!("{}", print::test(engine.name(), &small, args.config.mutant));
        }
    }
    println!("{} violations of {} kinds", report.violations(), report.failures.len());
}

fn run() -> Result<bool, String> {
    let mut args = arguments()?;
    let engine = engine_of(&args.engine)?;
    if let Some(name) = &args.mutant {
        args.config.mutant =
            Some(named(&*engine, name).ok_or_else(|| format!("{} has no mutant {name}", engine.name()))?);
    }
    let progress: &'static Progress = Box::leak(Box::new(Mutex::new(vec![None; args.config.threads.max(1)])));
    watch(progress);
    println!("engine {}, seed {}", engine.name(), args.config.seed);
    if args.mutants {
        return Ok(mutants(&*engine, &args, progress));
    }
    let report = explore(&*engine, &args.config, Some(progress));
    show_report(&*engine, &args, &report);
    if let Some(file) = &args.table_into {
        store_table(file, engine.name(), &report)?;
    }
    let is_unknown = |signature: &&Signature| !args.known || !is_known(engine.name(), signature);
    let unknown: Vec<_> = report.failures.keys().filter(is_unknown).collect();
    for signature in &unknown {
        let (breach, structure, kind, end) = signature;
        let known = if is_known(engine.name(), signature) { "a known breach" } else { "not a known breach" };
        println!("{known}: {breach:?}, {structure}, {kind} after {end}");
    }
    let are_few = are_few(engine.name(), &report);
    if !are_few {
        println!("more violations than the known breaches explain");
    }
    Ok(unknown.is_empty() && (are_few || !args.known))
}

/// Stores the engine's table between its markers in a page.
fn store_table(file: &str, engine: &str, report: &Report) -> Result<(), String> {
    let page = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let page = table::replace_in(&page, engine, report)
        .ok_or_else(|| format!("{file} has no markers for {engine}'s table"))?;
    fs::write(file, page).map_err(|error| format!("{file}: {error}"))
}

/// Prints which planted faults are seen. Returns whether all are.
fn mutants(engine: &dyn Engine, args: &Args, progress: &'static Progress) -> bool {
    let mut unseen = 0;
    let without = explore(engine, &args.config, Some(progress));
    for mutant in engine.damage_mutants() {
        let seen = seen_case(engine, &args.config, *mutant, &without, Some(progress));
        let what = seen.as_ref().map_or_else(
            || "NOT SEEN".into(),
            |(id, violation)| format!("case {}.{}: {}", id.base, id.image, violation.what),
        );
        println!("{:<24} {what}", format!("{mutant:?}"));
        unseen += usize::from(seen.is_none());
    }
    println!("{unseen} not seen");
    unseen == 0
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}
