//! The parent's checks of a store whose process was killed.

use lodestore::store::{Direction, Handle, ScanRange, Visit};
use lodestore::{Error, Expiry};

use super::work::{Step, Stream, thread_key};
use super::{COUNTER, Known, Plan, Totals};
use crate::op::{Held, Op, State};
use crate::oracle::show;

/// Compares the keys of one thread. Returns the acknowledged increments of the counter, and the
/// maximum.
pub(super) fn judge_thread(
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

/// Checks whether an operation in flight has happened: all of it, or nothing. If it has, `state`
/// follows.
fn settle_in_flight(store: &Handle, state: &mut State, op: &Op, totals: &mut Totals) -> Result<(), String> {
    let mut after = state.clone();
    after.apply(op);
    let (mut done, mut not) = (0, 0);
    for key in op.keys() {
        let (old, new) = (expected(state, key), expected(&after, key));
        if old != new {
            // The caller reports any other value, as a difference to the state.
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
    totals.in_flight_batches += u64::from(done + not > 0 && op.is_batch());
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

/// Checks scan, count and verification after the end of the recovery.
pub(super) fn judge_whole(store: &Handle, known: &Known) -> Result<(), String> {
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
    let mut report = store.verify(&mut |_| ()).map_err(|error| format!("verify: {error}"))?;
    report.findings.retain(|found| !known.losses.explains(found));
    if let Some(found) = report.findings.first() {
        return Err(format!("verify finds {}: {} (and {} more)", found.place, found.what, report.findings.len() - 1));
    }
    Ok(())
}
