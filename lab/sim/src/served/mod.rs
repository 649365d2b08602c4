//! Kills a server repeatedly, and checks what its clients saw.
//!
//! Each round starts the program `lodestore serve` on a unix socket, lets clients write, and kills
//! the server by SIGKILL. Two kinds of clients run concurrently:
//!
//! * `histories`: clients that record each call on few keys. The calls of a round, with the reads
//!   before and after it, must have a linearization. A call without a reply may have taken effect
//!   or not. The search finds lost acknowledged writes, halves of a `MULTI`, and old values.
//! * `streams`: clients that send long pipelines of rising numbers. After the kill each key has a
//!   number that was sent and that is not older than the last acknowledged one.

mod client;
mod faults;
mod histories;
mod streams;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::Client;
pub use faults::{Fault, is_seen};
use lodestore_media::sim::Rng;

/// Longest wait for a starting server.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Arguments of the server: a small store, no TCP, and a log of errors only.
const SETTINGS: [&str; 9] = ["--create", "--port", "0", "--size", "256M", "--threads", "2", "--log-level", "error"];

/// Clients of each kind.
const HISTORY_CLIENT_COUNT: u64 = 4;
const STREAM_CLIENT_COUNT: u64 = 2;

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program `lodestore`.
    pub program: PathBuf,
    /// A directory for the store, which must not exist.
    pub dir: PathBuf,
    /// `process`, `power` or `interval:MS`.
    pub durability: String,
    /// Rounds.
    pub rounds: u64,
    /// Longest time from the first write to the kill.
    pub life: Duration,
    /// Seed of the clients' choices and of the moments of the kills.
    pub seed: u64,
    /// Further arguments of `lodestore serve`.
    pub arguments: Vec<String>,
    /// A fault that the checks must find, planted in each round except the first.
    pub fault: Option<Fault>,
}

/// The totals of a run.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Rounds, each with one kill.
    pub rounds: u64,
    /// Calls in histories.
    pub calls: u64,
    /// Acknowledged writes of the streams.
    pub streamed: u64,
    /// Time from the start of each process to its first answer.
    pub first_answers: Vec<Duration>,
}

/// A running server, killed when it is dropped.
#[derive(Debug)]
struct Served {
    child: Child,
    first_answer: Duration,
}

impl Served {
    /// Starts the server and waits for its first answer.
    fn start(plan: &Plan, socket: &Path) -> Result<Self, String> {
        let start = Instant::now();
        let mut command = Command::new(&plan.program);
        command.arg("serve").arg(plan.dir.join("store")).arg("--unix").arg(socket);
        command.args(SETTINGS).args(["--durability", &plan.durability]);
        command.args(&plan.arguments).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| format!("{}: {error}", plan.program.display()))?;
        let mut served = Self { child, first_answer: Duration::ZERO };
        loop {
            if let Ok(mut client) = Client::connect(socket)
                && client.call(&["GET", "first"]).is_ok()
            {
                served.first_answer = start.elapsed();
                return Ok(served);
            }
            if let Ok(Some(status)) = served.child.try_wait() {
                return Err(format!("the server ended before it answered: {status}"));
            }
            if start.elapsed() > START_TIMEOUT {
                return Err("the server does not answer".into());
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs all rounds.
///
/// # Errors
///
/// The first violation, with its round. The store stays for inspection.
pub fn run(plan: &Plan) -> Result<Totals, String> {
    std::fs::create_dir(&plan.dir).map_err(|error| format!("{}: {error}", plan.dir.display()))?;
    let socket = plan.dir.join("socket");
    let mut random = Rng::new(plan.seed);
    let mut totals = Totals::default();
    let mut streams: Vec<streams::Stream> = (0..STREAM_CLIENT_COUNT).map(streams::Stream::new).collect();
    for round in 0..plan.rounds {
        let wrong = |text: String| format!("round {round}, seed {}: {text}", plan.seed);
        let fault = plan.fault.filter(|_| round > 0);
        run_round(plan, fault, &mut random, &mut streams, &mut totals).map_err(wrong)?;
        totals.rounds += 1;
    }
    // The remains of the last kill.
    let served = Served::start(plan, &socket)?;
    streams.iter_mut().try_for_each(|stream| stream.check(&socket))?;
    drop(served);
    std::fs::remove_dir_all(&plan.dir).map_err(|error| format!("{}: {error}", plan.dir.display()))?;
    Ok(totals)
}

fn run_round(
    plan: &Plan,
    fault: Option<Fault>,
    random: &mut Rng,
    streams: &mut [streams::Stream],
    totals: &mut Totals,
) -> Result<(), String> {
    let socket = &plan.dir.join("socket");
    if fault == Some(Fault::OlderStore) {
        faults::copy_store(plan)?;
    }
    let mut served = Served::start(plan, socket)?;
    totals.first_answers.push(served.first_answer);
    streams.iter_mut().try_for_each(|stream| stream.check(socket))?;
    let initial = histories::read_all(socket)?;
    let life = plan.life.mul_f64((random.below(1000) + 1) as f64 / 1000.0);
    let ends = AtomicBool::new(false);
    let clock = Instant::now();
    let seeds: Vec<u64> = (0..HISTORY_CLIENT_COUNT).map(|_| random.next_u64() >> 20).collect();
    let mut calls = std::thread::scope(|scope| {
        let ends = &ends;
        let histories: Vec<_> = (0..HISTORY_CLIENT_COUNT)
            .zip(seeds)
            .map(|(number, seed)| scope.spawn(move || histories::work(socket, number, seed, clock, ends)))
            .collect();
        for stream in streams.iter_mut() {
            scope.spawn(move || stream.work(socket, ends));
        }
        std::thread::sleep(life);
        drop(served.child.kill());
        ends.store(true, Ordering::SeqCst);
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().map_err(|_| "a client panicked");
        histories.into_iter().map(join).collect::<Result<Vec<_>, _>>()
    })?
    .into_iter()
    .collect::<Result<Vec<_>, String>>()?
    .concat();
    drop(served);
    totals.calls += calls.len() as u64;
    totals.streamed = streams.iter().map(streams::Stream::acknowledged).sum();
    if fault == Some(Fault::OlderStore) {
        faults::put_back_store(plan)?;
    }
    let served = Served::start(plan, socket)?;
    if let Some(fault) = fault {
        streams.iter().try_for_each(|stream| stream.plant(socket, fault))?;
    }
    calls.extend(histories::read_calls(socket, clock)?);
    drop(served);
    histories::judge(&calls, &initial)
}
