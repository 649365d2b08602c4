//! Kills a writing process repeatedly, and checks what its store kept.
//!
//! ```text
//! kill9 --dir DIR [--rounds N] [--seconds S] [--threads 2] [--keys 2000] [--life-ms 300]
//!       [--engine hikv|nvht|fluidkv|hashkv|mkvs] [--durability process|power|interval:MS]
//!       [--emulate-dax] [--size BYTES] [--seed N] [--set name=value]... [--shape name=value]...
//!       [--lose | --change]
//! ```
//!
//! `--shape` sets options that are fixed at the creation of the store. A matrix of devices (`mkvs`)
//! has 2 groups of 3 by default. With `--lose` it sometimes loses a device, between two rounds or
//! while the child has it open; the device is replaced before the next one is lost. With `--change`
//! the child itself replaces devices and adds groups, up to four, while it writes. The directory
//! must not hold a store. The program removes it at the end unless something failed.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs};

use lodestore::Durability;
use lodestore_sim::kill9::{Plan, Totals, child, rounds};

const USAGE: &str = "usage: kill9 --dir DIR [--rounds N] [--seconds S] [--threads N] [--keys N] [--life-ms N] [--engine hikv|nvht|fluidkv|hashkv|mkvs] \
                     [--durability process|power|interval:MS] [--emulate-dax] [--size BYTES] [--seed N] [--set name=value]... [--shape name=value]... [--lose | --change]";

struct Args {
    plan: Plan,
    rounds: u64,
    seconds: u64,
    child: Option<u64>,
}

fn number(name: &str, text: Option<String>) -> Result<u64, String> {
    text.and_then(|text| text.replace('_', "").parse().ok()).ok_or_else(|| format!("{name} takes a number; {USAGE}"))
}

fn arguments() -> Result<Args, String> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_micros() as u64);
    let plan = Plan {
        dir: Default::default(),
        engine: "hikv".into(),
        durability: Durability::Process,
        emulate_dax: false,
        size: 64 << 20,
        set: Vec::new(),
        shape: Vec::new(),
        seed: clock,
        threads: 2,
        keys: 2000,
        life_ms: 300,
        lose: false,
        change: false,
    };
    let mut args = Args { plan, rounds: 0, seconds: 0, child: None };
    let mut given = env::args().skip(1);
    while let Some(name) = given.next() {
        let plan = &mut args.plan;
        match name.as_str() {
            "--dir" => plan.dir = given.next().ok_or(USAGE)?.into(),
            "--engine" => plan.engine = given.next().ok_or(USAGE)?,
            "--durability" => {
                plan.durability = given.next().ok_or(USAGE)?.parse().map_err(|error| format!("{error}"))?;
            }
            "--lose" => plan.lose = true,
            "--change" => plan.change = true,
            "--emulate-dax" => plan.emulate_dax = true,
            "--set" => plan.set.push(given.next().ok_or(USAGE)?),
            "--shape" => plan.shape.push(given.next().ok_or(USAGE)?),
            "--size" => plan.size = number(&name, given.next())?,
            "--seed" => plan.seed = number(&name, given.next())?,
            "--threads" => plan.threads = number(&name, given.next())?.clamp(1, 64),
            "--keys" => plan.keys = number(&name, given.next())?.max(1),
            "--life-ms" => plan.life_ms = number(&name, given.next())?.max(1),
            "--rounds" => args.rounds = number(&name, given.next())?,
            "--seconds" => args.seconds = number(&name, given.next())?,
            "--child" => args.child = Some(number(&name, given.next())?),
            _ => return Err(format!("unknown argument {name}; {USAGE}")),
        }
    }
    if args.plan.dir.as_os_str().is_empty() {
        return Err(USAGE.into());
    }
    if (args.plan.lose || args.plan.change) && args.plan.engine != "mkvs" {
        return Err(format!("--lose and --change take --engine mkvs: other stores have no devices; {USAGE}"));
    }
    if args.plan.lose && args.plan.change {
        return Err(format!(
            "--lose or --change: a device that is lost while another one is copied is one too many; {USAGE}"
        ));
    }
    if args.rounds == 0 && args.seconds == 0 {
        args.rounds = 20;
    }
    Ok(args)
}

/// The child gets the same arguments, and the seed in case it came from the clock.
fn child_arguments(plan: &Plan) -> Vec<String> {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    arguments.extend(["--seed".into(), plan.seed.to_string()]);
    arguments
}

fn run() -> Result<(), String> {
    let args = arguments()?;
    let plan = &args.plan;
    if let Some(round) = args.child {
        return child(plan, round);
    }
    println!("seed {}, engine {}, durability {}, {} threads", plan.seed, plan.engine, plan.durability, plan.threads);
    let program = env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let started = Instant::now();
    let limit = (args.seconds > 0).then(|| Duration::from_secs(args.seconds));
    let enough = |totals: &Totals| {
        (args.rounds > 0 && totals.rounds >= args.rounds) || limit.is_some_and(|limit| started.elapsed() >= limit)
    };
    let totals = rounds(plan, &program, &child_arguments(plan), enough)?;
    println!(
        "{} rounds in {:.1} s ({} before the store was open), {} operations acknowledged, in flight {} done and {} not ({} of them batches), \
         {} keys compared, slowest open {} us: nothing lost",
        totals.rounds,
        started.elapsed().as_secs_f64(),
        totals.early,
        totals.acknowledged,
        totals.in_flight_done,
        totals.in_flight_not,
        totals.in_flight_batches,
        totals.compared,
        totals.open_max_us
    );
    if plan.lose {
        println!(
            "devices: {} lost while stopped and {} while in use, {} replaced",
            totals.lost_stopped, totals.lost_running, totals.replaced
        );
    }
    if plan.change {
        println!("devices: {} replaced and {} groups added by the child", totals.replaced, totals.added);
    }
    fs::remove_dir_all(&plan.dir).map_err(|error| format!("removing {}: {error}", plan.dir.display()))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("kill9: {message}");
            ExitCode::FAILURE
        }
    }
}
