//! Clients that record each call, and the search for a linearization of a round.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use lodestore_media::sim::Rng;
use lodestore_wire::Reply;

use super::client::Client;
use crate::history::{self, Action, Answer, Call, KeyOp, Value};

/// Keys with independent calls.
const SINGLE_KEYS: u64 = 12;

/// Keys that `MULTI` writes together, after the single ones. Their calls are one object of the
/// search, which is limited by [`history::OPS_MAX`].
const TIED_KEYS: u64 = 2;

/// Calls of one client in a round.
const CALLS_MAX: u64 = 100;

/// Calls of one client on tied keys in a round.
const TIED_CALLS_MAX: u64 = 20;

fn name_of(key: u64) -> String {
    format!("history:{key}")
}

/// Reads all keys before a round.
pub(super) fn read_all(socket: &Path) -> Result<BTreeMap<u64, Value>, String> {
    let mut client = Client::connect(socket).map_err(|error| error.to_string())?;
    let mut values = BTreeMap::new();
    for key in 0..SINGLE_KEYS + TIED_KEYS {
        let reply = client.call(&["GET", &name_of(key)]).map_err(|error| error.to_string())?;
        if let Some(value) = value_of(&reply)? {
            values.insert(key, value);
        }
    }
    Ok(values)
}

/// Reads all keys after a round, as calls of its history.
pub(super) fn read_calls(socket: &Path, clock: Instant) -> Result<Vec<Call>, String> {
    let values = read_all(socket)?;
    let calls = (0..SINGLE_KEYS + TIED_KEYS).map(|key| {
        let called = now(clock);
        let answer = Answer::Value(values.get(&key).copied());
        Call { action: Action::One(key, KeyOp::Get), called, returned: Some((called + 1, answer)) }
    });
    Ok(calls.collect())
}

/// Searches for a linearization.
pub(super) fn judge(calls: &[Call], initial: &BTreeMap<u64, Value>) -> Result<(), String> {
    history::check(calls, initial)
}

fn now(clock: Instant) -> u64 {
    u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Calls the server until it ends. Returns the calls.
pub(super) fn work(
    socket: &Path,
    number: u64,
    seed: u64,
    clock: Instant,
    ends: &AtomicBool,
) -> Result<Vec<Call>, String> {
    let mut random = Rng::new(seed);
    let mut calls = Vec::new();
    let Ok(mut client) = Client::connect(socket) else { return Ok(calls) };
    let mut tied_calls = 0;
    for step in 0..CALLS_MAX {
        if ends.load(Ordering::SeqCst) {
            break;
        }
        // A value is written once in all rounds: the seed is that of this round.
        let value = (seed << 16) | (number << 12) | step;
        let action = choose(&mut random, value, &mut tied_calls);
        let called = now(clock);
        let Ok(reply) = call(&mut client, &action) else {
            calls.push(Call { action, called, returned: None });
            break;
        };
        let answer = answer_of(&action, &reply)?;
        calls.push(Call { action, called, returned: Some((now(clock), answer)) });
    }
    Ok(calls)
}

fn choose(random: &mut Rng, value: Value, tied_calls: &mut u64) -> Action {
    if random.below(5) == 0 && *tied_calls < TIED_CALLS_MAX {
        *tied_calls += 1;
        let keys = SINGLE_KEYS..SINGLE_KEYS + TIED_KEYS;
        return match random.below(3) {
            0 => Action::One(SINGLE_KEYS + random.below(TIED_KEYS), KeyOp::Get),
            1 => Action::Batch(keys.map(|key| (key, (key > SINGLE_KEYS).then_some(value))).collect()),
            _ => Action::Batch(keys.map(|key| (key, Some(value))).collect()),
        };
    }
    let operation = match random.below(10) {
        0..4 => KeyOp::Put(value),
        4 => KeyOp::Insert(value),
        5 => KeyOp::Update(value),
        6 => KeyOp::Delete,
        7 => KeyOp::Contains,
        _ => KeyOp::Get,
    };
    Action::One(random.below(SINGLE_KEYS), operation)
}

fn call(client: &mut Client, action: &Action) -> std::io::Result<Reply> {
    match action {
        Action::One(key, operation) => {
            let key = name_of(*key);
            match operation {
                KeyOp::Put(value) => client.call(&["SET", &key, &value.to_string()]),
                KeyOp::Insert(value) => client.call(&["SET", &key, &value.to_string(), "NX"]),
                KeyOp::Update(value) => client.call(&["SET", &key, &value.to_string(), "XX"]),
                KeyOp::Delete | KeyOp::Clear => client.call(&["DEL", &key]),
                KeyOp::Contains => client.call(&["EXISTS", &key]),
                KeyOp::Get | KeyOp::Swap(..) => client.call(&["GET", &key]),
            }
        }
        Action::Batch(values) | Action::Are(values) | Action::WriteIf { values, .. } => {
            client.call(&["MULTI"])?;
            for (key, value) in values {
                match value {
                    Some(value) => client.call(&["SET", &name_of(*key), &value.to_string()])?,
                    None => client.call(&["DEL", &name_of(*key)])?,
                };
            }
            client.call(&["EXEC"])
        }
    }
}

fn answer_of(action: &Action, reply: &Reply) -> Result<Answer, String> {
    let unexpected = || Err(format!("{action:?} was answered by {reply:?}"));
    Ok(match (action, reply) {
        (Action::One(_, KeyOp::Put(_)), Reply::Simple(_)) | (Action::Batch(_), Reply::Array(_)) => Answer::Done,
        (Action::One(_, KeyOp::Insert(_) | KeyOp::Update(_)), Reply::Simple(_)) => Answer::Changed(true),
        (Action::One(_, KeyOp::Insert(_) | KeyOp::Update(_)), Reply::Null) => Answer::Changed(false),
        (Action::One(_, KeyOp::Delete | KeyOp::Contains), Reply::Integer(count)) => Answer::Changed(*count == 1),
        (Action::One(_, KeyOp::Get), reply) => Answer::Value(value_of(reply)?),
        _ => return unexpected(),
    })
}

fn value_of(reply: &Reply) -> Result<Option<Value>, String> {
    match reply {
        Reply::Null => Ok(None),
        Reply::Bulk(bytes) => {
            let value = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok());
            value.map(Some).ok_or_else(|| format!("{reply:?} is no value of this test"))
        }
        _ => Err(format!("GET was answered by {reply:?}")),
    }
}
