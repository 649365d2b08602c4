//! Kills `lodestore serve` under load, again and again, and checks what its clients saw.
//!
//! `served --program target/release/lodestore --dir DIR [--rounds N] [--durability D] [--faults]`
//!
//! The directory must not exist. The program removes the directory unless something failed. With
//! `--faults` the program plants faults instead, one after the other, and fails unless the checks
//! find each of them.
#![forbid(unsafe_code)]

use std::env;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lodestore_sim::served::{Fault, Plan, Totals, is_seen, run};

const USAGE: &str = "usage: served --program PATH --dir DIR [--rounds N] [--durability process|power] [--life-ms N] \
                     [--seed N] [--faults] [-- ARGUMENTS...]";

/// Returns the plan, and whether faults are planted.
fn plan() -> Result<(Plan, bool), String> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_micros() as u64);
    let mut plan = Plan {
        program: Default::default(),
        dir: Default::default(),
        durability: "process".into(),
        rounds: 10,
        life: Duration::from_millis(60),
        seed: clock % (1 << 40),
        arguments: Vec::new(),
        fault: None,
    };
    let mut plants_faults = false;
    let mut given = env::args().skip(1);
    while let Some(name) = given.next() {
        if name == "--" {
            plan.arguments = given.collect();
            break;
        }
        if name == "--faults" {
            plants_faults = true;
            continue;
        }
        let value = given.next().ok_or(USAGE)?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} takes a number; {USAGE}"));
        match name.as_str() {
            "--program" => plan.program = value.into(),
            "--dir" => plan.dir = value.into(),
            "--durability" => plan.durability = value,
            "--rounds" => plan.rounds = number()?,
            "--life-ms" => plan.life = Duration::from_millis(number()?.max(1)),
            "--seed" => plan.seed = number()?,
            _ => return Err(format!("unknown argument {name}; {USAGE}")),
        }
    }
    if plan.program.as_os_str().is_empty() || plan.dir.as_os_str().is_empty() {
        return Err(USAGE.into());
    }
    Ok((plan, plants_faults))
}

/// Plants each fault.
///
/// # Errors
///
/// The first fault that the checks do not find.
fn plant_all(plan: &Plan) -> Result<(), String> {
    for fault in Fault::ALL {
        let violation = is_seen(plan, fault)?.ok_or_else(|| format!("the planted fault {fault:?} is not found"))?;
        println!("{fault:?} is found: {violation}");
    }
    Ok(())
}

fn print(totals: &mut Totals) {
    totals.first_answers.sort();
    let answers = &totals.first_answers;
    let at = |part: usize| answers.get((answers.len() * part / 100).min(answers.len().saturating_sub(1)));
    println!(
        "{} kills, {} recorded calls, {} acknowledged writes of streams: nothing lost, nothing half. First answer after \
         {:?} (median), {:?} (longest)",
        totals.rounds,
        totals.calls,
        totals.streamed,
        at(50).copied().unwrap_or_default(),
        answers.last().copied().unwrap_or_default(),
    );
}

fn main() -> ExitCode {
    let (plan, plants_faults) = match plan() {
        Ok(given) => given,
        Err(text) => {
            eprintln!("served: {text}");
            return ExitCode::from(2);
        }
    };
    let result = if plants_faults { plant_all(&plan) } else { run(&plan).map(|mut totals| print(&mut totals)) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("served: FAILED: {text}");
            ExitCode::FAILURE
        }
    }
}
