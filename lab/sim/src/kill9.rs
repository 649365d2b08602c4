//! A real process under load, killed with SIGKILL, and checks of its store.
//!
//! A child opens the store, and each of its threads runs an endless stream of operations,
//! determined by seed, round and thread. After an operation returns, the thread writes its count
//! into an acknowledgement file next to the store (page cache: it survives the child). Nothing is
//! written before an operation. The parent kills the child at a random moment, usually during its
//! work, otherwise during its open. The run then opens the store and compares:
//!
//! * The keys of each thread must be as after its acknowledged operations, or as after one more. A
//!   batch in flight is therefore whole or absent.
//! * A counter that all threads increment must be between the acknowledged increments and those
//!   plus one per thread.
//!
//! Devices of a matrix can also be lost (`losses.rs`), or replaced, and groups added, while the
//! child writes (`changes.rs`); nothing acknowledged may be lost.
//!
//! This tests survival of the process. For power failures see [`crate::explore`].

mod changes;
mod judge;
mod losses;
mod work;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lodestore::Durability;
use lodestore::options::{CreateOptions, OpenOptions};
use lodestore::store::Handle;
use lodestore_media::sim::Rng;

use crate::op::State;
use changes::Seen;
use judge::{judge_thread, judge_whole};
use losses::{Losses, Opened};
pub use work::child;

/// Bytes between the counts of two threads in the acknowledgement file.
const SLOT_BYTES: u64 = 64;
/// Slot 0 says that the store is open.
const OPEN_SLOT_INDEX: u64 = 0;
/// The time limit for an open of the child.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
/// The key that all threads increment.
const COUNTER: &[u8] = b"~counter of all threads";

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Directory for the store and the acknowledgements.
    pub dir: PathBuf,
    /// Engine by name.
    pub engine: String,
    /// The requested durability.
    pub durability: Durability,
    /// Whether the medium is treated as DAX.
    pub emulate_dax: bool,
    /// Capacity in bytes.
    pub size: u64,
    /// Options of the engine, `name=value`, for each open.
    pub set: Vec<String>,
    /// Options that are fixed at the creation of the store.
    pub shape: Vec<String>,
    /// Seed of operations and times.
    pub seed: u64,
    /// Writing threads.
    pub threads: u64,
    /// Keys of each thread.
    pub keys: u64,
    /// Longest life of a child, in milliseconds, from its start or from the open of its store.
    pub life_ms: u64,
    /// Whether devices of the matrix are lost and replaced.
    pub lose: bool,
    /// Whether the child replaces devices of the matrix and adds groups while it writes.
    pub change: bool,
}

/// Counts of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Rounds.
    pub rounds: u64,
    /// Children killed before their store was open.
    pub early: u64,
    /// Acknowledged operations.
    pub acknowledged: u64,
    /// Operations in flight that had taken effect.
    pub in_flight_done: u64,
    /// Operations in flight that had not taken effect.
    pub in_flight_not: u64,
    /// Batches among both.
    pub in_flight_batches: u64,
    /// Compared keys.
    pub compared: u64,
    /// Longest time to open a killed store, in microseconds.
    pub open_max_us: u64,
    /// Devices of a matrix lost while no process had them open.
    pub lost_stopped: u64,
    /// Devices lost while the child had them open.
    pub lost_running: u64,
    /// Replaced devices: lost ones, or replaced by the child.
    pub replaced: u64,
    /// Groups added by the child.
    pub added: u64,
}

fn store_path(plan: &Plan) -> PathBuf {
    plan.dir.join("store")
}

fn acks_path(plan: &Plan) -> PathBuf {
    plan.dir.join("acks")
}

fn open_options(plan: &Plan) -> lodestore::Result<OpenOptions> {
    plan.set.iter().try_fold(OpenOptions::new(), |options, text| options.set_text(text))
}

fn open_store(plan: &Plan) -> lodestore::Result<Handle> {
    lodestore::store::open(store_path(plan), &open_options(plan)?)
}

fn create_store(plan: &Plan) -> lodestore::Result<Handle> {
    let options = CreateOptions::new()
        .engine(&plan.engine)
        .size(plan.size)
        .durability(plan.durability)
        .emulate_dax(plan.emulate_dax);
    let shape = losses::SHAPE.iter().copied().filter(|_| plan.engine == losses::ENGINE);
    let given = plan.shape.iter().chain(&plan.set).map(String::as_str);
    let options = shape.chain(given).try_fold(options, |options, text| options.set_text(text))?;
    lodestore::store::create(store_path(plan), &options)
}

fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(word)
}

/// The expected contents of the store.
struct Known {
    /// States by thread.
    states: Vec<State>,
    counter: u64,
    losses: Losses,
    devices: Seen,
}

/// Runs rounds until `enough` returns true. `program` is the child's program, called with
/// `arguments`, then `--child ROUND`.
///
/// # Errors
///
/// The first lost, restored or failed operation; the directory stays as it is.
pub fn rounds(
    plan: &Plan,
    program: &Path,
    arguments: &[String],
    mut enough: impl FnMut(&Totals) -> bool,
) -> Result<Totals, String> {
    fs::create_dir_all(&plan.dir).map_err(|error| format!("{}: {error}", plan.dir.display()))?;
    // The directory is removed at the end with its contents, which must belong to this run.
    let mut there = fs::read_dir(&plan.dir).map_err(|error| format!("{}: {error}", plan.dir.display()))?;
    if there.next().is_some() {
        return Err(format!("{} is not empty: give a directory of its own", plan.dir.display()));
    }
    let store = create_store(plan).map_err(|error| format!("create: {error}"))?;
    store.close().map_err(|error| format!("close: {error}"))?;
    drop(store);
    Losses::check(plan)?;
    let mut known = Known {
        states: vec![State::default(); plan.threads as usize],
        counter: 0,
        losses: Losses::default(),
        devices: Seen::default(),
    };
    let mut totals = Totals::default();
    let mut rng = Rng::part(plan.seed, 0xdead);
    while !enough(&totals) {
        let round = totals.rounds;
        round_of(plan, program, arguments, round, &mut rng, &mut known, &mut totals)
            .map_err(|what| format!("round {round}, seed {}: {what}", plan.seed))?;
        totals.rounds += 1;
    }
    Ok(totals)
}

fn round_of(
    plan: &Plan,
    program: &Path,
    arguments: &[String],
    round: u64,
    rng: &mut Rng,
    known: &mut Known,
    totals: &mut Totals,
) -> Result<(), String> {
    fs::write(acks_path(plan), vec![0; ((plan.threads + 1) * SLOT_BYTES) as usize])
        .map_err(|error| format!("acks: {error}"))?;
    let mut command = Command::new(program);
    command.args(arguments).args(["--child", &round.to_string()]).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("the child does not start: {error}"))?;
    // The other children are killed, or lose a device, possibly during the open.
    if !rng.one_in(4) {
        wait_open(plan, &mut child)?;
    }
    let life = Duration::from_micros(1000 + rng.below(plan.life_ms.max(1) * 1000));
    let until_loss = known.losses.is_due().then(|| Duration::from_micros(rng.below(life.as_micros() as u64)));
    kill_after(child, life, until_loss, || known.losses.strike(totals))?;
    let acks = fs::read(acks_path(plan)).map_err(|error| format!("acks: {error}"))?;
    let count = |slot: u64| acks.get((slot * SLOT_BYTES) as usize..).map_or(0, number);
    totals.early += u64::from(count(OPEN_SLOT_INDEX) == 0);

    let begun = Instant::now();
    let opened = Opened::of(plan).map_err(|error| format!("open after the kill: {error}"))?;
    let store = &opened.store;
    totals.open_max_us = totals.open_max_us.max(begun.elapsed().as_micros() as u64);
    // Half of the rounds read while the recovery is still running.
    if rng.one_in(2) {
        store.wait_recovered().map_err(|error| format!("recovery: {error}"))?;
    }
    let mut counted = (0, 0);
    for thread in 0..plan.threads {
        let acknowledged = count(thread + 1);
        totals.acknowledged += acknowledged;
        let state = &mut known.states[thread as usize];
        let range = judge_thread(plan, store, state, round, thread, acknowledged, totals)?;
        counted = (counted.0 + range.0, counted.1 + range.1);
    }
    let counter = store.get(COUNTER).map_err(|error| format!("get of the counter: {error}"))?;
    let counter = counter.map_or(0, |value| number(&value));
    let range = known.counter + counted.0..=known.counter + counted.1;
    if !range.contains(&counter) {
        return Err(format!("the counter is {counter}, not {} to {}", range.start(), range.end()));
    }
    known.counter = counter;
    known.losses.mend(plan, &opened, rng, totals)?;
    judge_whole(store, known)?;
    let status = losses::status(&opened);
    known.devices.look(plan, status.as_ref(), totals)?;
    if rng.one_in(3) {
        store.close().map_err(|error| format!("close: {error}"))?;
    }
    drop(opened);
    known.losses.choose(plan, status.as_ref(), rng, totals)
}

/// Waits until the child has its store open, or has ended.
fn wait_open(plan: &Plan, child: &mut Child) -> Result<(), String> {
    let begun = Instant::now();
    while fs::read(acks_path(plan)).map_or(0, |acks| number(&acks)) == 0 {
        if child.try_wait().map_err(|error| format!("the child: {error}"))?.is_some() {
            break;
        }
        if begun.elapsed() > OPEN_TIMEOUT {
            child.kill().map_err(|error| format!("kill: {error}"))?;
            return Err(format!("the child does not open its store in {OPEN_TIMEOUT:?}"));
        }
        thread::sleep(Duration::from_micros(500));
    }
    Ok(())
}

/// Kills the child after `life`; the child must still run. `strike` is called in between, if it has
/// a time.
fn kill_after(
    mut child: Child,
    life: Duration,
    until_strike: Option<Duration>,
    strike: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let begun = Instant::now();
    let struck = until_strike.map_or(Ok(()), |until_strike| {
        thread::sleep(until_strike);
        strike()
    });
    thread::sleep(life.saturating_sub(begun.elapsed()));
    let ended = child.try_wait().map_err(|error| format!("the child: {error}"))?;
    if ended.is_none() {
        child.kill().map_err(|error| format!("kill: {error}"))?;
    }
    let output = child.wait_with_output().map_err(|error| format!("the child: {error}"))?;
    match ended {
        None => struck,
        Some(status) => {
            Err(format!("the child ended by itself ({status}): {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
    }
}
