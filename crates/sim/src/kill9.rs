//! A real process under load, killed with SIGKILL, and what its store kept.
//!
//! A child opens the store and lets each of its threads run an endless stream of operations, which follows from seed,
//! round and thread. Before an operation begins nothing is written; after it returned the thread writes its count into an
//! acknowledgement file beside the store (page cache: it survives the child). The parent kills the child at a random moment, opens the store and compares: the keys
//! of each thread must be as after its acknowledged operations, or as after one more; so a batch in flight, of an engine that has them, is there
//! whole or not at all. A counter that all threads increment must lie
//! between the acknowledged increments and those plus one a thread.
//!
//! This shows what survives the process, not what survives power: for that see [`crate::explore`].

use std::fs::{self, File, OpenOptions as FileOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lodestore::{
    Batch, BatchOp, Change, CreateOptions, Direction, Durability, Error, Expiry, Handle, OpenOptions, ScanRange, Swap,
    Visit,
};
use lodestore_media::sim::Rng;

use crate::op::{Held, Op, Outcome, State};
use crate::oracle::show;

/// Bytes between the counts of two threads in the acknowledgement file.
const SLOT: u64 = 64;
/// Slot 0 tells that the store is open.
const OPEN_SLOT: u64 = 0;
/// The key that all threads increment.
const COUNTER: &[u8] = b"~counter of all threads";
/// One in this many operations increments it.
const COUNT_EVERY: u64 = 16;
/// One in this many is a batch, where the engine has them.
const BATCH_EVERY: u64 = 8;
/// Most operations of a batch.
const BATCH_OPS: u64 = 20;
/// A moment that no test sees.
const FAR: u64 = 1 << 52;

/// What is run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Directory for the store and the acknowledgements.
    pub dir: PathBuf,
    /// Engine by name.
    pub engine: String,
    /// Durability asked for.
    pub durability: Durability,
    /// Treat the medium as DAX.
    pub emulate_dax: bool,
    /// Capacity in bytes.
    pub size: u64,
    /// Options of the engine, `name=value`, for each open.
    pub set: Vec<String>,
    /// Options that are fixed when the store is made, for that alone.
    pub shape: Vec<String>,
    /// Governs operations and times.
    pub seed: u64,
    /// Writing threads.
    pub threads: u64,
    /// Keys of each.
    pub keys: u64,
    /// Longest life of a child, in milliseconds.
    pub life_ms: u64,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Rounds.
    pub rounds: u64,
    /// Children killed before their store was open.
    pub early: u64,
    /// Operations acknowledged.
    pub acknowledged: u64,
    /// Operations in flight that had taken effect.
    pub in_flight_done: u64,
    /// Operations in flight that had not.
    pub in_flight_not: u64,
    /// Of both, those that were batches.
    pub in_flight_batches: u64,
    /// Keys compared.
    pub compared: u64,
    /// Longest time until a killed store was open, in microseconds.
    pub open_max_us: u64,
}

/// A step of a thread's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Count,
    Do(Op),
}

/// The operations of one thread in one round.
struct Stream {
    rng: Rng,
    thread: u64,
    keys: u64,
    batches: bool,
}

impl Stream {
    fn new(plan: &Plan, store: &Handle, round: u64, thread: u64) -> Self {
        let rng = Rng::part(plan.seed ^ round.rotate_left(20), thread);
        Self { rng, thread, keys: plan.keys, batches: store.capabilities().batch }
    }

    fn key(&mut self) -> Vec<u8> {
        thread_key(self.thread, self.rng.below(self.keys))
    }

    /// A batch over keys of the thread, some of them perhaps twice.
    fn batch(&mut self) -> Batch {
        let ops = 1 + self.rng.below(BATCH_OPS);
        let op = |_| match self.rng.below(4) {
            0 => BatchOp::Delete { key: self.key() },
            1 => BatchOp::Put { key: self.key(), value: self.value(), expiry: Some(Expiry::at_millis(FAR)) },
            _ => BatchOp::Put { key: self.key(), value: self.value(), expiry: None },
        };
        Batch { ops: (0..ops).map(op).collect() }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.rng.below(40) {
            0 => self.rng.below(6000),
            1..=4 => 0,
            _ => self.rng.below(400),
        };
        let fill = self.rng.next_u64().to_le_bytes();
        fill.iter().copied().cycle().take(len as usize).collect()
    }

    fn next(&mut self) -> Step {
        if self.rng.one_in(COUNT_EVERY) {
            return Step::Count;
        }
        if self.batches && self.rng.one_in(BATCH_EVERY) {
            return Step::Do(Op::Batch { batch: self.batch() });
        }
        let key = self.key();
        Step::Do(match self.rng.below(12) {
            0..=3 => Op::Put { key, value: self.value(), expiry: None },
            4 => Op::Put { key, value: self.value(), expiry: Some(FAR) },
            5 => Op::Insert { key, value: self.value() },
            6..=7 => Op::Update { key, value: self.value() },
            8..=9 => Op::Delete { key },
            10 => Op::Swap { key, expected: None, new: Some(self.value()) },
            _ => Op::Append { key, bytes: vec![b'+'; 1 + self.rng.index(9)] },
        })
    }
}

fn thread_key(thread: u64, index: u64) -> Vec<u8> {
    let tail = "x".repeat((index % 23) as usize);
    format!("thread {thread} key {index:06}{tail}").into_bytes()
}

fn store_path(plan: &Plan) -> PathBuf {
    plan.dir.join("store")
}

fn acks_path(plan: &Plan) -> PathBuf {
    plan.dir.join("acks")
}

fn open_store(plan: &Plan) -> lodestore::Result<Handle> {
    plan.set
        .iter()
        .try_fold(OpenOptions::new(), |options, text| options.set_text(text))
        .and_then(|options| lodestore::open(store_path(plan), &options))
}

fn create_store(plan: &Plan) -> lodestore::Result<Handle> {
    let options = CreateOptions::new()
        .engine(&plan.engine)
        .size(plan.size)
        .durability(plan.durability)
        .emulate_dax(plan.emulate_dax);
    let options = plan.shape.iter().chain(&plan.set).try_fold(options, |options, text| options.set_text(text))?;
    lodestore::create(store_path(plan), &options)
}

// ---- the child ----

/// Runs the child: opens the store and works until it is killed.
///
/// # Errors
/// Whatever ends the work before the kill.
pub fn child(plan: &Plan, round: u64) -> Result<(), String> {
    let acks = FileOptions::new().write(true).open(acks_path(plan)).map_err(|error| format!("acks: {error}"))?;
    let store = open_store(plan).map_err(|error| format!("open in the child: {error}"))?;
    acknowledge(&acks, OPEN_SLOT, 1)?;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..plan.threads)
            .map(|thread| {
                let (store, acks) = (&store, &acks);
                scope.spawn(move || work(plan, store, acks, round, thread))
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a thread of the child panicked".to_string())?)
    })
}

fn acknowledge(acks: &File, slot: u64, count: u64) -> Result<(), String> {
    acks.write_all_at(&count.to_le_bytes(), slot * SLOT).map_err(|error| format!("acks: {error}"))
}

fn work(plan: &Plan, store: &Handle, acks: &File, round: u64, thread: u64) -> Result<(), String> {
    let mut stream = Stream::new(plan, store, round, thread);
    for done in 1.. {
        let step = stream.next();
        apply(store, &step).map_err(|error| format!("operation {done} of thread {thread}: {error}"))?;
        acknowledge(acks, thread + 1, done)?;
    }
    Ok(())
}

fn apply(store: &Handle, step: &Step) -> lodestore::Result<Outcome> {
    Ok(match step {
        Step::Count => {
            store.update_with(COUNTER, &mut |value| {
                Change::Put((number(value.unwrap_or_default()) + 1).to_le_bytes().to_vec(), None)
            })?;
            Outcome::Done
        }
        Step::Do(Op::Put { key, value, expiry }) => {
            store.put_expiring(key, value, expiry.map(Expiry::at_millis))?;
            Outcome::Done
        }
        Step::Do(Op::Insert { key, value }) => Outcome::Changed(store.insert(key, value)?),
        Step::Do(Op::Update { key, value }) => Outcome::Changed(store.update(key, value)?),
        Step::Do(Op::Delete { key }) => Outcome::Changed(store.delete(key)?),
        Step::Do(Op::Swap { key, expected, new }) => {
            match store.compare_and_swap(key, expected.as_deref(), new.as_deref())? {
                Swap::Done => Outcome::Changed(true),
                Swap::Differs(there) => Outcome::Value(there),
            }
        }
        Step::Do(Op::Append { key, bytes }) => {
            let expiry = store.expiry(key)?.flatten();
            store.update_with(key, &mut |value| {
                let mut value = value.unwrap_or_default().to_vec();
                value.extend_from_slice(bytes);
                Change::Put(value, expiry)
            })?;
            Outcome::Done
        }
        Step::Do(Op::Batch { batch }) => {
            store.write(batch)?;
            Outcome::Done
        }
        Step::Do(_) => Outcome::Done,
    })
}

fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(word)
}

// ---- the parent ----

/// What the parent knows of the store.
struct Known {
    /// By thread.
    states: Vec<State>,
    counter: u64,
}

/// Runs rounds until `enough` says so; `program` is the child's program, to which `arguments` are given, then `--child ROUND`.
///
/// # Errors
/// The first thing that was lost, or came back, or failed; the directory is left as it is.
pub fn rounds(
    plan: &Plan,
    program: &Path,
    arguments: &[String],
    mut enough: impl FnMut(&Totals) -> bool,
) -> Result<Totals, String> {
    fs::create_dir_all(&plan.dir).map_err(|error| format!("{}: {error}", plan.dir.display()))?;
    // It is removed at the end, with all that is in it: that must be this run's.
    let mut there = fs::read_dir(&plan.dir).map_err(|error| format!("{}: {error}", plan.dir.display()))?;
    if there.next().is_some() {
        return Err(format!("{} is not empty: give a directory of its own", plan.dir.display()));
    }
    let store = create_store(plan).map_err(|error| format!("create: {error}"))?;
    store.close().map_err(|error| format!("close: {error}"))?;
    drop(store);
    let mut known = Known { states: vec![State::default(); plan.threads as usize], counter: 0 };
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
    fs::write(acks_path(plan), vec![0; ((plan.threads + 1) * SLOT) as usize])
        .map_err(|error| format!("acks: {error}"))?;
    let mut command = Command::new(program);
    command.args(arguments).args(["--child", &round.to_string()]).stdin(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| format!("the child does not start: {error}"))?;
    let life = Duration::from_micros(1000 + rng.below(plan.life_ms.max(1) * 1000));
    kill_after(child, life)?;
    let acks = fs::read(acks_path(plan)).map_err(|error| format!("acks: {error}"))?;
    let count = |slot: u64| acks.get((slot * SLOT) as usize..).map_or(0, number);
    totals.early += u64::from(count(OPEN_SLOT) == 0);

    let opened = Instant::now();
    let store = open_store(plan).map_err(|error| format!("open after the kill: {error}"))?;
    totals.open_max_us = totals.open_max_us.max(opened.elapsed().as_micros() as u64);
    // Half of the rounds ask while the recovery is still at work.
    if rng.one_in(2) {
        store.wait_recovered().map_err(|error| format!("recovery: {error}"))?;
    }
    let mut counted = (0, 0);
    for thread in 0..plan.threads {
        let acknowledged = count(thread + 1);
        totals.acknowledged += acknowledged;
        let state = &mut known.states[thread as usize];
        let range = judge_thread(plan, &store, state, round, thread, acknowledged, totals)?;
        counted = (counted.0 + range.0, counted.1 + range.1);
    }
    let counter = store.get(COUNTER).map_err(|error| format!("get of the counter: {error}"))?;
    let counter = counter.map_or(0, |value| number(&value));
    let range = known.counter + counted.0..=known.counter + counted.1;
    if !range.contains(&counter) {
        return Err(format!("the counter is {counter}, not {} to {}", range.start(), range.end()));
    }
    known.counter = counter;
    judge_whole(&store, known)?;
    if rng.one_in(3) {
        store.close().map_err(|error| format!("close: {error}"))?;
    }
    Ok(())
}

/// Kills the child after `life`; it must still be there.
fn kill_after(mut child: Child, life: Duration) -> Result<(), String> {
    thread::sleep(life);
    let ended = child.try_wait().map_err(|error| format!("the child: {error}"))?;
    if ended.is_none() {
        child.kill().map_err(|error| format!("kill: {error}"))?;
    }
    let output = child.wait_with_output().map_err(|error| format!("the child: {error}"))?;
    match ended {
        None => Ok(()),
        Some(status) => {
            Err(format!("the child ended by itself ({status}): {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
    }
}

/// Compares the keys of one thread; how many increments of the counter were acknowledged, and were at most done.
fn judge_thread(
    plan: &Plan,
    store: &Handle,
    state: &mut State,
    round: u64,
    thread: u64,
    acknowledged: u64,
    totals: &mut Totals,
) -> Result<(u64, u64), String> {
    let mut stream = Stream::new(plan, store, round, thread);
    let mut counted = 0;
    for _ in 0..acknowledged {
        match stream.next() {
            Step::Count => counted += 1,
            Step::Do(op) => {
                state.apply(&op);
            }
        }
    }
    let in_flight = stream.next();
    let mut most = counted;
    match &in_flight {
        Step::Count => most += 1,
        Step::Do(op) => settle_in_flight(store, state, op, totals)?,
    }
    for index in 0..plan.keys {
        let key = thread_key(thread, index);
        let (seen, wanted) = (read(store, &key)?, expected(state, &key));
        totals.compared += 1;
        if seen != wanted {
            return Err(format!(
                "after {acknowledged} acknowledged operations key {:?} holds {}, not {}; in flight was {in_flight:?}",
                show(&key),
                text(&seen),
                text(&wanted)
            ));
        }
    }
    Ok((counted, most))
}

/// Looks whether an operation that was in flight has happened: all of it, or nothing. If it has, `state` follows.
fn settle_in_flight(store: &Handle, state: &mut State, op: &Op, totals: &mut Totals) -> Result<(), String> {
    let mut after = state.clone();
    after.apply(op);
    let (mut done, mut not) = (0, 0);
    for key in op.keys() {
        let (old, new) = (expected(state, key), expected(&after, key));
        if old != new {
            // What is neither is told by the caller, as a difference to the state.
            let seen = read(store, key)?;
            done += u64::from(seen == new);
            not += u64::from(seen == old);
        }
    }
    if done > 0 && not > 0 {
        return Err(format!(
            "a batch in flight is there by half: {done} of its keys as after it, {not} as before: {op:?}"
        ));
    }
    totals.in_flight_done += u64::from(done > 0);
    totals.in_flight_not += u64::from(not > 0);
    totals.in_flight_batches += u64::from(done + not > 0 && matches!(op, Op::Batch { .. }));
    if done > 0 {
        *state = after;
    }
    Ok(())
}

type Seen = Option<(Vec<u8>, Option<u64>)>;

fn text(seen: &Seen) -> String {
    seen.as_ref().map_or_else(|| "nothing".into(), |(value, at)| format!("{:?} ({at:?})", show(value)))
}

fn expected(state: &State, key: &[u8]) -> Seen {
    state.get(key).map(|Held { value, expiry }| (value.clone(), *expiry))
}

fn read(store: &Handle, key: &[u8]) -> Result<Seen, String> {
    let told = |error: Error| format!("get of {:?}: {error}", show(key));
    let Some(value) = store.get(key).map_err(told)? else { return Ok(None) };
    let expiry = store.expiry(key).map_err(told)?.flatten();
    Ok(Some((value, expiry.map(Expiry::millis))))
}

/// Scan, count and verification, once the recovery has ended.
fn judge_whole(store: &Handle, known: &Known) -> Result<(), String> {
    store.wait_recovered().map_err(|error| format!("recovery: {error}"))?;
    let counter = (known.counter > 0).then(|| (COUNTER.to_vec(), known.counter.to_le_bytes().to_vec()));
    let mut wanted: Vec<(Vec<u8>, Vec<u8>)> = known
        .states
        .iter()
        .flat_map(State::live)
        .map(|(key, held)| (key.clone(), held.value.clone()))
        .chain(counter)
        .collect();
    wanted.sort();
    if store.capabilities().scan {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut seen = Vec::with_capacity(wanted.len());
            let range = ScanRange { direction, ..ScanRange::all() };
            let walk = store.scan_each(&range, &mut |key, value| {
                seen.push((key.to_vec(), value.to_vec()));
                Visit::More
            });
            walk.map_err(|error| format!("scan: {error}"))?;
            if seen != wanted {
                let at = seen.iter().zip(&wanted).position(|(seen, wanted)| seen != wanted);
                return Err(format!(
                    "scan {direction:?}: {} pairs, not {}; first difference at {at:?}",
                    seen.len(),
                    wanted.len()
                ));
            }
            wanted.reverse();
        }
    }
    let len = store.len().map_err(|error| format!("len: {error}"))?;
    if len != wanted.len() as u64 {
        return Err(format!("len is {len}, not {}", wanted.len()));
    }
    let report = store.verify(&mut |_| ()).map_err(|error| format!("verify: {error}"))?;
    if let Some(found) = report.findings.first() {
        return Err(format!("verify finds {}: {} (and {} more)", found.place, found.what, report.findings.len() - 1));
    }
    Ok(())
}
