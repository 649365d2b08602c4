//! The crash explorer as a program.
//!
//! ```text
//! explore [--engine hikv|nvht|fluidkv|hashkv|mkvs|allocator|keyspaces-ENGINE] [--images N]
//!         [--seconds S] [--seed N] [--grain 64|512|process] [--prefix] [--threads N] [--out FILE]
//! ```
//!
//! The program explores until a bound is reached, and prints the counts. After a failure it saves
//! the image and exits with 1.
//! The engines `keyspaces-hikv` and so on have keyspaces, and the faults of these: `--fault NAME`.
//! `explore --replay FILE` judges a saved image again.
//! `explore --mutants` and `explore --sites` print the tables of faults.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::{env, fs, path::PathBuf};

use lodestore_sim::allocator::AllocatorEngine;
use lodestore_sim::config::Config;
use lodestore_sim::explore::{explore, replay};
use lodestore_sim::failure::Saved;
use lodestore_sim::faults::named;
use lodestore_sim::fluidkv::FluidEngine;
use lodestore_sim::hashkv::HashEngine;
use lodestore_sim::hikv::HiKvEngine;
use lodestore_sim::keyspaces::{self, KeyspaceFault};
use lodestore_sim::mkvs::MkvsEngine;
use lodestore_sim::mutation::{Row, heading, lost, planted, try_fault};
use lodestore_sim::nvht::NvhtEngine;
use lodestore_sim::subject::Engine;
use lodestore_sim::toy::Toy;

const USAGE: &str = "usage: explore [--engine hikv|nvht|fluidkv|hashkv|mkvs|allocator|toy|keyspaces-ENGINE] [--images N] [--seconds S] [--seed N] [--grain 64|512|process] [--prefix] \
                     [--threads N] [--per-point N] [--script N] [--failing-every N] [--mutant NAME] [--fault NAME] [--out FILE] \
                     [--mutants | --sites | --replay FILE]";

struct Args {
    engine: String,
    fault: Option<KeyspaceFault>,
    mutant: Option<String>,
    config: Config,
    out: PathBuf,
    replay: Option<PathBuf>,
    mutants: bool,
    sites: bool,
}

fn number<T: std::str::FromStr>(name: &str, text: Option<String>) -> Result<T, String> {
    text.and_then(|text| text.replace('_', "").parse().ok()).ok_or_else(|| format!("{name} takes a number; {USAGE}"))
}

fn arguments() -> Result<Args, String> {
    let mut args = Args {
        engine: "hikv".into(),
        fault: None,
        mutant: None,
        config: Config::default(),
        out: "crash-image.txt".into(),
        replay: None,
        mutants: false,
        sites: false,
    };
    let mut given = env::args().skip(1);
    while let Some(name) = given.next() {
        match name.as_str() {
            "--engine" => args.engine = given.next().ok_or(USAGE)?,
            "--images" => args.config.images = number(&name, given.next())?,
            "--seconds" => args.config.seconds = number(&name, given.next())?,
            "--seed" => args.config.seed = number(&name, given.next())?,
            "--threads" => args.config.threads = number(&name, given.next())?,
            "--per-point" => args.config.images_per_point = number(&name, given.next())?,
            "--grain" => match given.next().as_deref() {
                Some("process") => args.config.stores_persist = true,
                text => args.config.grain = number(&name, text.map(String::from))?,
            },
            "--prefix" => args.config.prefix = true,
            "--script" => args.config.only_script = Some(number(&name, given.next())?),
            "--failing-every" => args.config.failing_every = number(&name, given.next())?,
            "--mutant" => args.mutant = Some(given.next().ok_or(USAGE)?),
            "--fault" => {
                let wanted = given.next().ok_or(USAGE)?;
                let known = KeyspaceFault::ALL.into_iter().find(|fault| format!("{fault:?}") == wanted);
                args.fault =
                    Some(known.ok_or_else(|| format!("no fault {wanted}: use one of {:?}", KeyspaceFault::ALL))?);
            }
            "--out" => args.out = given.next().ok_or(USAGE)?.into(),
            "--replay" => args.replay = Some(given.next().ok_or(USAGE)?.into()),
            "--mutants" => args.mutants = true,
            "--sites" => args.sites = true,
            _ => return Err(format!("unknown argument {name}; {USAGE}")),
        }
    }
    Ok(args)
}

fn engine_of(name: &str, fault: Option<KeyspaceFault>) -> Result<Box<dyn Engine>, String> {
    if let Some(engine) = keyspaces::by_name(name, fault) {
        return Ok(engine);
    }
    match name {
        "hikv" => Ok(Box::new(HiKvEngine)),
        "nvht" => Ok(Box::new(NvhtEngine)),
        "fluidkv" => Ok(Box::new(FluidEngine)),
        "hashkv" => Ok(Box::new(HashEngine)),
        "mkvs" => Ok(Box::new(MkvsEngine)),
        "allocator" => Ok(Box::new(AllocatorEngine)),
        "toy" => Ok(Box::new(Toy)),
        _ => Err(format!(
            "no engine {name} here: use hikv, nvht, fluidkv, hashkv, mkvs, allocator or toy, or keyspaces-hikv and so on"
        )),
    }
}

fn run() -> Result<bool, String> {
    let mut args = arguments()?;
    if let Some(path) = &args.replay {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let saved = Saved::from_text(&text)?;
        println!("saved: {}", saved.text);
        let again = replay(&*engine_of(&saved.engine, args.fault)?, &saved);
        match &again {
            Ok(()) => println!("now: passes"),
            Err(wrong) => println!("now: {} oracle: {}", wrong.oracle, wrong.what),
        }
        return Ok(again.is_ok());
    }
    let engine = engine_of(&args.engine, args.fault)?;
    if let Some(name) = &args.mutant {
        args.config.mutant =
            Some(named(&*engine, name).ok_or_else(|| format!("{} has no mutant {name}", engine.name()))?);
    }
    if args.config.prefix && !matches!(engine.name(), "fluidkv" | "keyspaces-fluidkv") {
        return Err(format!("{} keeps no prefix: --prefix is for fluidkv", engine.name()));
    }
    println!("engine {}, seed {}, grain {}", engine.name(), args.config.seed, args.config.grain);
    if args.mutants || args.sites {
        return Ok(table(&*engine, &args));
    }
    let report = explore(&*engine, &args.config);
    let seconds = report.took.as_secs_f64();
    println!("{}", report.counts);
    println!("{:.1} s, {:.0} images/s", seconds, report.counts.total() as f64 / seconds);
    let Some(failure) = report.failure else {
        println!("nothing failed");
        return Ok(true);
    };
    println!("FAILED: {failure}");
    failure.save(&args.out).map_err(|error| format!("{}: {error}", args.out.display()))?;
    println!("saved: explore --replay {}", args.out.display());
    Ok(false)
}

/// Prints the result of each fault. Returns whether all were seen.
fn table(engine: &dyn Engine, args: &Args) -> bool {
    let faults = if args.mutants { planted(engine) } else { lost(&explore(engine, &args.config).sites) };
    println!("{}", heading());
    let mut unseen = 0;
    for fault in faults {
        let row: Row = try_fault(engine, &args.config, fault);
        println!("{row}");
        unseen += usize::from(row.caught.is_none());
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
