//! Threads on few keys: their operations as a history, with or without a crash at its end.
//!
//! Without a crash the history must be linearizable, whether or not some operations fail. With a
//! crash, on a simulated medium, the recorder's log gives the order of stores, flushes, fences,
//! calls and returns of all threads. The log is cut at a crash point, an image of that moment is
//! recovered, and one read of every key is added to the history. The history must be linearizable,
//! which is durable linearizability (Izraelevitz et al., DISC 2016): the effects of all returned
//! operations, reads included, remain.

use std::collections::BTreeMap;
use std::ops::Bound::{self, Included};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lodestore_contract::{Batch, BatchOp, Condition, Expiry, Lifetime, RangeCondition, Result};
use lodestore_media::sim::{LineModel, Rng, SimImage, Trace, What};

use crate::config::Config;
use crate::history::{self, Action, Answer, Call, KeyOp};
use crate::op::{Op, Outcome};
use crate::oracle::{Oracle, Wrong, judged};
use crate::scans::{self, Refused, Shown};
use crate::script::future;
use crate::shape::Shape;
use crate::subject::{Engine, Pair, Subject};

/// Size of a run.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Threads.
    pub threads: u64,
    /// Keys that they share.
    pub keys: u64,
    /// Operations of each thread.
    pub ops: u64,
    /// Whether some operations are batches. Batches connect the keys, so all operations of all
    /// threads must stay under [`history::OPS_MAX`].
    pub batches: bool,
    /// Whether some conditions of batches are on ranges.
    pub ranges: bool,
}

/// The prefix of all keys.
const KEY: &str = "shared key ";
/// The pause between two scans.
const SCAN_PAUSE: Duration = Duration::from_millis(1);

/// Returns the bytes of a key.
pub fn key_bytes(key: u64) -> Vec<u8> {
    format!("{KEY}{key}").into_bytes()
}

/// Returns the bytes of a value: its number, then a tail whose length depends on it.
pub fn value_bytes(value: u64) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(8 + (value % 7 * 9) as usize, value as u8);
    bytes
}

/// Returns the number of a value; for other bytes a number that no value has.
pub fn value_number(bytes: &[u8]) -> u64 {
    let mut head = [0; 8];
    let len = bytes.len().min(8);
    head[..len].copy_from_slice(&bytes[..len]);
    let number = u64::from_le_bytes(head);
    if value_bytes(number) == bytes { number } else { u64::MAX }
}

fn op_of(action: &Action) -> Op {
    match action {
        Action::One(key, op) => key_op_of(key_bytes(*key), *op),
        Action::Batch(values) => Op::Batch { batch: batch_of(values) },
        Action::WriteIf { expected, values, is_range } => {
            let condition =
                |(key, value): &(u64, Option<u64>)| Condition::value(key_bytes(*key), value.map(value_bytes));
            // A range condition also lists absent keys.
            let is_asked = |(_, value): &&(u64, Option<u64>)| !is_range || value.is_some();
            let conditions = expected.iter().filter(is_asked).map(condition).collect();
            let ranges = if *is_range { vec![range_of(expected)] } else { Vec::new() };
            Op::WriteIf { conditions, ranges, batch: batch_of(values) }
        }
        Action::Are(_) => unreachable!("threads do not ask this: it is what is found after them"),
    }
}

/// Returns the condition that exactly the keys with a value are present between the first and the
/// last key.
fn range_of(expected: &[(u64, Option<u64>)]) -> RangeCondition {
    let bound = |end: Option<&(u64, Option<u64>)>| end.map_or(Bound::Unbounded, |(key, _)| Included(key_bytes(*key)));
    let present = expected.iter().filter(|(_, value)| value.is_some());
    RangeCondition {
        from: bound(expected.first()),
        to: bound(expected.last()),
        keys: present.map(|(key, _)| key_bytes(*key)).collect(),
    }
}

fn batch_of(values: &[(u64, Option<u64>)]) -> Batch {
    let op = |(key, value): &(u64, Option<u64>)| match value {
        Some(value) => BatchOp::Put { key: key_bytes(*key), value: value_bytes(*value), expiry: None },
        None => BatchOp::Delete { key: key_bytes(*key) },
    };
    Batch { ops: values.iter().map(op).collect() }
}

/// Returns the lifetime with which a value is inserted, updated or swapped. No expiry passes while
/// a history runs, so the lifetime does not change a history.
fn lifetime_of(value: u64) -> Lifetime {
    match value % 3 {
        0 => Lifetime::Forever,
        1 => Lifetime::Keep,
        _ => Lifetime::Until(Expiry::at_millis(future())),
    }
}

fn key_op_of(key: Vec<u8>, op: KeyOp) -> Op {
    match op {
        KeyOp::Put(value) => Op::Put { key, value: value_bytes(value), expiry: None },
        KeyOp::Insert(value) => Op::Insert { key, value: value_bytes(value), lifetime: lifetime_of(value) },
        KeyOp::Update(value) => Op::Update { key, value: value_bytes(value), lifetime: lifetime_of(value) },
        KeyOp::Delete | KeyOp::Clear => Op::Delete { key },
        KeyOp::Get | KeyOp::Contains => Op::Get { key },
        KeyOp::Swap(expected, new) => {
            let lifetime = new.map_or(Lifetime::Forever, lifetime_of);
            Op::Swap { key, expected: expected.map(value_bytes), new: new.map(value_bytes), lifetime }
        }
    }
}

/// Returns the answer; `None` if nothing was done.
fn answer_of(outcome: Outcome) -> Option<Answer> {
    match outcome {
        Outcome::Done => Some(Answer::Done),
        Outcome::Full | Outcome::NoKeyspace | Outcome::IdLost => None,
        Outcome::Changed(changed) => Some(Answer::Changed(changed)),
        Outcome::Value(value) => Some(Answer::Value(value.map(|bytes| value_number(&bytes)))),
    }
}

/// Applies an operation to a store. `None` means that it failed with an unknown effect.
type Try<'a> = &'a (dyn Fn(&Op) -> Result<Option<Outcome>> + Sync);

/// Returns the action as answered. A store may answer a read with the key's presence only, and a
/// remove without the previous presence.
fn as_answered(action: Action, outcome: Option<&Outcome>) -> Action {
    match (action, outcome) {
        (Action::One(key, KeyOp::Get), Some(Outcome::Changed(_))) => Action::One(key, KeyOp::Contains),
        (Action::One(key, KeyOp::Delete), Some(Outcome::Done)) => Action::One(key, KeyOp::Clear),
        (action, _) => action,
    }
}

/// Returns the call of an action. A failed action is an open call: it may take effect at any later
/// time, or never. `None` if nothing was done.
fn call_of(action: Action, called: u64, returned: u64, outcome: Option<Outcome>) -> Option<Call> {
    let action = as_answered(action, outcome.as_ref());
    match outcome {
        Some(outcome) => answer_of(outcome).map(|answer| Call { action, called, returned: Some((returned, answer)) }),
        // A failed read has no effect.
        None if matches!(action, Action::One(_, KeyOp::Get)) => None,
        None => Some(Call { action, called, returned: None }),
    }
}

/// Returns a random step. `value` is a fresh number, `seen` the last seen value of each key.
fn random_action(rng: &mut Rng, load: Load, value: u64, seen: &[Option<u64>]) -> Action {
    if load.batches && rng.one_in(4) {
        // All keys of a batch have the same value, which is as good as different ones.
        let left_out = rng.below(load.keys + 1);
        let keys = (0..load.keys).filter(|key| *key != left_out);
        let values: Vec<_> = keys.map(|key| (key, (!rng.one_in(4)).then_some(value))).collect();
        if value.is_multiple_of(3) {
            return Action::Batch(values);
        }
        if load.ranges && value.is_multiple_of(2) {
            let first = value / 2 % load.keys;
            let keys = first..load.keys.min(first + 1 + value % 3);
            let expected = keys.map(|key| (key, seen[key as usize])).collect();
            return Action::WriteIf { expected, values, is_range: true };
        }
        // Conditions on one or two keys, of which one may not be written.
        let pair = [value % load.keys, (value + 1) % load.keys];
        let expected = pair[..1 + value as usize % 2].iter().map(|key| (*key, seen[*key as usize])).collect();
        return Action::WriteIf { expected, values, is_range: false };
    }
    let key = rng.below(load.keys);
    Action::One(key, random_key_op(rng, value, seen[key as usize]))
}

/// Returns a random operation. `value` is a fresh number, `seen` a value that may be present.
fn random_key_op(rng: &mut Rng, value: u64, seen: Option<u64>) -> KeyOp {
    match rng.below(10) {
        0..=2 => KeyOp::Put(value),
        3 => KeyOp::Insert(value),
        4 => KeyOp::Update(value),
        5 => KeyOp::Delete,
        6 => KeyOp::Swap(seen, (!rng.one_in(4)).then_some(value)),
        _ => KeyOp::Get,
    }
}

/// Records the values that a call read, or wrote on a condition.
fn note_seen(call: &Call, seen: &mut [Option<u64>]) {
    match (&call.action, call.returned) {
        (Action::One(key, _), Some((_, Answer::Value(value)))) => seen[*key as usize] = value,
        (Action::WriteIf { values, .. }, Some((_, Answer::Changed(true)))) => {
            values.iter().for_each(|(key, value)| seen[*key as usize] = *value);
        }
        _ => {}
    }
}

/// Runs `load` on `apply` from several threads and returns the history. `clock` gives the times: it
/// is called with the index of the call, before (false) and after (true) it.
fn run_threads(
    load: Load,
    seed: u64,
    apply: Try<'_>,
    clock: &(dyn Fn(u64, bool) -> u64 + Sync),
) -> Result<Vec<Call>, Wrong> {
    let start = Barrier::new(load.threads as usize);
    let history = Mutex::new(Ok(Vec::new()));
    thread::scope(|scope| {
        for thread in 0..load.threads {
            let (start, history) = (&start, &history);
            scope.spawn(move || {
                let mut rng = Rng::part(seed, thread);
                let mut seen = vec![None; load.keys as usize];
                let mut mine = Vec::new();
                start.wait();
                for step in 0..load.ops {
                    let index = thread * load.ops + step;
                    let action = random_action(&mut rng, load, index + 1, &seen);
                    let called = clock(index, false);
                    let outcome = judged(Oracle::History, || apply(&op_of(&action)));
                    let returned = clock(index, true);
                    match outcome {
                        Ok(outcome) => {
                            let Some(call) = call_of(action, called, returned, outcome) else { continue };
                            note_seen(&call, &mut seen);
                            mine.push(call);
                        }
                        Err(wrong) => {
                            *history.lock().unwrap_or_else(PoisonError::into_inner) = Err(wrong);
                            return;
                        }
                    }
                }
                if let Ok(all) = history.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                    all.extend(mine);
                }
            });
        }
    });
    history.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs threads on a store whose keys are absent at first, and checks their history.
///
/// # Errors
/// [`Oracle::History`].
pub fn check_live(load: Load, seed: u64, apply: &(dyn Fn(&Op) -> Result<Outcome> + Sync)) -> Result<usize, Wrong> {
    let clock = AtomicU64::new(0);
    let apply = |op: &Op| apply(op).map(Some);
    let history = run_threads(load, seed, &apply, &|_, _| clock.fetch_add(1, Ordering::SeqCst))?;
    history::check(&history, &BTreeMap::new()).map_err(|what| Wrong::new(Oracle::History, what))?;
    Ok(history.len())
}

/// Counts of a check of a failing store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FailingCounts {
    /// Operations with an answer.
    pub answered: u64,
    /// Operations that failed with an unknown effect.
    pub failed: u64,
    /// Operations that were refused without an effect.
    pub refused: u64,
    /// Concurrent scans.
    pub scans: u64,
}

/// Checks as [`check_live`] a store of which some operations fail in the middle.
///
/// If `apply` returns an error, the operation has taken effect, takes effect later, or never.
/// [`Outcome::Full`] means no effect. When all threads have ended, `behind` is called, and then
/// each key is read, which must not fail.
///
/// # Errors
///
/// [`Oracle::History`].
pub fn check_failing(
    load: Load,
    seed: u64,
    apply: &(dyn Fn(&Op) -> Result<Outcome> + Sync),
    behind: impl FnOnce(),
) -> Result<FailingCounts, Wrong> {
    check_scanned(load, seed, apply, &|| None, behind)
}

/// Checks as [`check_failing`], with one more thread that scans. `scan` returns keys with their
/// values, or `None` if it failed. The calls continue until the other threads have ended.
///
/// # Errors
///
/// As [`check_failing`].
pub fn check_scanned(
    load: Load,
    seed: u64,
    apply: &(dyn Fn(&Op) -> Result<Outcome> + Sync),
    scan: &(dyn Fn() -> Option<Vec<Pair>> + Sync),
    behind: impl FnOnce(),
) -> Result<FailingCounts, Wrong> {
    let (clock, failed, ended) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let refused = Mutex::new(Vec::new());
    let tries = |op: &Op| {
        let called = clock.load(Ordering::SeqCst);
        let outcome = apply(op).ok();
        failed.fetch_add(u64::from(outcome.is_none()), Ordering::Relaxed);
        if outcome == Some(Outcome::Full) {
            let returned = clock.load(Ordering::SeqCst);
            let (key, value) = refused_of(op);
            let write = Refused { key, value, called, returned };
            refused.lock().unwrap_or_else(PoisonError::into_inner).push(write);
        }
        Ok(outcome)
    };
    let (history, scans) = thread::scope(|scope| {
        let scans = scope.spawn(|| scan_until(&ended, &clock, scan));
        let history = run_threads(load, seed, &tries, &|_, _| clock.fetch_add(1, Ordering::SeqCst));
        ended.store(true, Ordering::Release);
        (history, scans.join())
    });
    let mut history = history?;
    let told = |what| Wrong::new(Oracle::History, what);
    let scans = scans.unwrap_or_else(|_| Err("a scan panicked".into())).map_err(told)?;
    behind();
    let end = clock.into_inner();
    for key in 0..load.keys {
        let outcome = judged(Oracle::History, || apply(&key_op_of(key_bytes(key), KeyOp::Get)))?;
        history.extend(call_of(Action::One(key, KeyOp::Get), end, end + 1, Some(outcome)));
    }
    history::check(&history, &BTreeMap::new()).map_err(|what| Wrong::new(Oracle::History, what))?;
    let refused = refused.into_inner().unwrap_or_else(PoisonError::into_inner);
    scans::check(load.keys, &history, &refused, &scans).map_err(told)?;
    let (failed, refused) = (failed.into_inner(), refused.len() as u64);
    let answered = load.threads * load.ops - failed - refused;
    Ok(FailingCounts { answered, failed, refused, scans: scans.len() as u64 })
}

/// Returns the number of a key; for other bytes a number that no key has.
fn key_number(key: &[u8]) -> u64 {
    let number = std::str::from_utf8(key).ok().and_then(|text| text.strip_prefix(KEY)?.parse().ok());
    number.unwrap_or(u64::MAX)
}

/// Returns the key of a refused operation, and the value that it would have left.
fn refused_of(op: &Op) -> (u64, Option<u64>) {
    let value = match op {
        Op::Put { value, .. } | Op::Insert { value, .. } | Op::Update { value, .. } => Some(value),
        Op::Swap { new, .. } => new.as_ref(),
        _ => None,
    };
    (op.key().map_or(u64::MAX, key_number), value.map(|value| value_number(value)))
}

/// Scans until the other threads have ended.
fn scan_until(
    ended: &AtomicBool,
    clock: &AtomicU64,
    scan: &(dyn Fn() -> Option<Vec<Pair>> + Sync),
) -> Result<Vec<Shown>, String> {
    let mut scans = Vec::new();
    while !ended.load(Ordering::Acquire) {
        let called = clock.fetch_add(1, Ordering::SeqCst);
        let shown = scan();
        let returned = clock.fetch_add(1, Ordering::SeqCst);
        if let Some(shown) = shown {
            let pairs = shown.len();
            let values: BTreeMap<u64, u64> =
                shown.iter().map(|(key, value)| (key_number(key), value_number(value))).collect();
            if values.len() != pairs {
                return Err(format!("a scan from {called} to {returned} shows {pairs} pairs of {} keys", values.len()));
            }
            scans.push(Shown { values, called, returned });
        }
        thread::sleep(SCAN_PAUSE);
    }
    Ok(scans)
}

/// Counts of a durable check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DurableCounts {
    /// Operations in the history.
    pub calls: u64,
    /// Images recovered.
    pub images: u64,
}

/// Runs threads on a simulated store, crashes it at `points` random points, and checks the history
/// of each crash.
///
/// # Errors
///
/// [`Oracle::History`], or the oracle of another failure.
pub fn check_durable(
    engine: &dyn Engine,
    config: &Config,
    shape: &Shape,
    load: Load,
    points: usize,
) -> Result<DurableCounts, Wrong> {
    let store = judged(Oracle::Live, || engine.create(&config.spec(true), shape))?;
    let recorder = store.recorder();
    recorder.set_jitter(3);
    let created = recorder.take();
    let clock = |index: u64, is_return: bool| {
        recorder.mark(index << 1 | u64::from(is_return));
        index
    };
    let history = run_threads(load, config.seed, &|op| store.apply(op).map(Some), &clock)?;
    let trace = recorder.take();
    drop(store);
    let calls = by_log(&history, &trace, load.ops);
    let mut model = LineModel::new(SimImage { spec: config.spec(false), ..SimImage::default() });
    created.events.iter().for_each(|event| model.apply(event));
    crash(engine, config, shape, load, &Run { trace: &trace, calls: &calls }, model, points)
}

/// Returns the history with log positions of calls and returns as times.
fn by_log(history: &[Call], trace: &Trace, ops: u64) -> Vec<Call> {
    let mut times: BTreeMap<u64, u64> = BTreeMap::new();
    for (at, event) in trace.events.iter().enumerate() {
        if let What::Mark(label) = event.what {
            times.insert(label, at as u64);
        }
    }
    debug_assert!(ops > 0);
    let place = |call: &Call| {
        let index = call.called;
        let returned = call.returned.map(|(_, answer)| (times[&(index << 1 | 1)], answer));
        Call { called: times[&(index << 1)], returned, action: call.action.clone() }
    };
    history.iter().map(place).collect()
}

struct Run<'a> {
    trace: &'a Trace,
    calls: &'a [Call],
}

fn crash(
    engine: &dyn Engine,
    config: &Config,
    shape: &Shape,
    load: Load,
    run: &Run<'_>,
    mut model: LineModel,
    points: usize,
) -> Result<DurableCounts, Wrong> {
    let mut rng = Rng::part(config.seed, 77);
    let end = run.trace.events.len();
    let mut at: Vec<usize> = (0..points).map(|_| rng.index(end + 1)).collect();
    at.sort_unstable();
    at.dedup();
    let mut counts = DurableCounts { calls: run.calls.len() as u64, images: 0 };
    let mut next = 0;
    for crash_at in at {
        run.trace.events[next..crash_at].iter().for_each(|event| model.apply(event));
        next = crash_at;
        let set = model.crash_set();
        for choice in set.select(config.images_per_point, &mut rng) {
            let found = model.with_image(&set, &choice, |image| final_reads(engine, image, shape, load.keys))?;
            counts.images += 1;
            let cut = cut_history(run.calls, crash_at as u64, end as u64, found_calls(&found, load.batches));
            history::check(&cut, &BTreeMap::new())
                .map_err(|what| Wrong::new(Oracle::History, format!("crash before event {crash_at}: {what}")))?;
        }
    }
    Ok(counts)
}

/// Recovers an image and reads every key.
fn final_reads(engine: &dyn Engine, image: &SimImage, shape: &Shape, keys: u64) -> Result<Vec<Option<u64>>, Wrong> {
    let store: Box<dyn Subject> = judged(Oracle::Open, || {
        let store = engine.open(image, shape)?;
        store.wait_recovered()?;
        Ok(store)
    })?;
    (0..keys)
        .map(|key| {
            let value = judged(Oracle::Contents, || store.get(&key_bytes(key)))?;
            Ok(value.map(|(bytes, _)| value_number(&bytes)))
        })
        .collect()
}

/// Returns the pairs found after a crash as steps. If batches connect the keys, they are one step,
/// which no other may interrupt.
fn found_calls(found: &[Option<u64>], batches: bool) -> Vec<(Action, Answer)> {
    let found = found.iter().enumerate().map(|(key, value)| (key as u64, *value));
    if batches {
        return vec![(Action::Are(found.collect()), Answer::Changed(true))];
    }
    found.map(|(key, value)| (Action::One(key, KeyOp::Get), Answer::Value(value))).collect()
}

/// Returns the calls before the crash with their returns by then, and the pairs found after it.
fn cut_history(calls: &[Call], crash: u64, end: u64, found: Vec<(Action, Answer)>) -> Vec<Call> {
    let before = calls
        .iter()
        .filter(|call| call.called < crash)
        .map(|call| Call { returned: call.returned.filter(|(time, _)| *time < crash), ..call.clone() });
    let after = |(action, answer)| Call { action, called: end + 1, returned: Some((end + 2, answer)) };
    before.chain(found.into_iter().map(after)).collect()
}
