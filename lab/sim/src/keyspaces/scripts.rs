//! Scripts over keyspaces: names that are created, dropped and recreated, with reclaims in between.

use lodestore_contract::{Batch, BatchOp, Condition, Expiry};
use lodestore_media::sim::Rng;

use crate::keyspace_keys::{exists, is_stored, key_in};
use crate::op::{Op, PIECES_MAX};
use crate::script::{PAST_MILLIS, Script, future, key, random_op, with_conditions};
use crate::shape::Shape;

/// The names of most scripts.
const NAMES: [&str; 4] = ["a", "b", "users", "a/long name of a keyspace, over more than one line of the medium"];
/// The random scripts of a round.
const RANDOM_SCRIPT_COUNT: u64 = 12;
/// Modes that random scripts choose from.
const MODE_COUNT: u64 = 16;
/// Keys of the default keyspace with the prefixes of other keyspaces' stored keys.
const EDGES: [&[u8]; 4] = [b"\xff", b"\xff\xff", b"\xff\xff\x00\x01", b"\xff\xff\x02k"];

/// Returns the scripts of a round, the short ones first. The round determines keys and values.
pub(super) fn all(seed: u64, round: u64) -> Vec<Script> {
    let mut rng = Rng::part(seed, !round ^ 0x6b65_7973);
    let small = Shape::default();
    let script = |name: &str, shape: Shape, explore_every: u64, ops: Vec<Op>| Script {
        name: name.into(),
        shape,
        ops,
        explore_every,
        cuts_sweeps: true,
    };
    let mut all = vec![
        script("a keyspace through its life", small, 1, life()),
        script("a reclaim in steps", small, 1, reclaim_in_steps(round)),
        script("batches over keyspaces", small, 1, batches(&mut rng)),
        script("names come again", Shape { partitions: 2, ..small }, 1, names_come_again(round)),
        script("keyspaces and expiries", small, 1, expiries()),
        script("keys that look like those of other keyspaces", small, 1, edges()),
    ];
    all.extend((0..RANDOM_SCRIPT_COUNT).map(|index| random(seed, round * RANDOM_SCRIPT_COUNT + index)));
    all.push(script("a full store", Shape { capacity: 64 << 10, region_bytes: 64 << 10, ..small }, 6, full(&mut rng)));
    all.push(script("many keyspaces", small, 8, many(round)));
    all.push(script("ids of two bytes", small, 40, long_ids()));
    all
}

fn create(name: &str) -> Op {
    Op::CreateKeyspace { key: exists(name) }
}

fn remove(name: &str) -> Op {
    Op::DropKeyspace { key: exists(name) }
}

fn reclaim(pieces: usize) -> Op {
    Op::Reclaim { pieces }
}

fn put(name: &str, index: u64, value: Vec<u8>) -> Op {
    Op::Put { key: key_in(name, &key(index)), value, expiry: None }
}

fn put_default(index: u64, value: Vec<u8>) -> Op {
    Op::Put { key: key(index), value, expiry: None }
}

fn delete(name: &str, index: u64) -> Op {
    Op::Delete { key: key_in(name, &key(index)) }
}

fn get(name: &str, index: u64) -> Op {
    Op::Get { key: key_in(name, &key(index)) }
}

fn stop(number: u64) -> Op {
    [Op::PowerCut, Op::Kill, Op::Reopen][number as usize % 3].clone()
}

/// A random creation, drop or reclaim.
pub(super) fn keyspace_op(rng: &mut Rng) -> Op {
    let name = NAMES[rng.index(NAMES.len())];
    match rng.below(8) {
        0..=2 => create(name),
        3..=4 => remove(name),
        5 => reclaim(1),
        6 => reclaim(1 + rng.index(3)),
        _ => reclaim(PIECES_MAX),
    }
}

/// Each operation on one keyspace, with the same key in other keyspaces.
fn life() -> Vec<Op> {
    let mut ops = vec![put_default(0, vec![1; 9]), get("a", 0), put("a", 0, vec![2; 9]), create("a"), create("a")];
    ops.extend([put("a", 0, vec![3; 9]), put("a", 1, vec![4; 40]), create("b"), put("b", 0, vec![5; 9])]);
    ops.extend([get("a", 0), get("b", 0), delete("b", 1), Op::Delete { key: key(0) }, put_default(1, vec![6; 70])]);
    ops.extend([Op::Reopen, remove("a"), remove("a"), get("a", 0), put("a", 0, vec![7; 9]), reclaim(1)]);
    ops.extend([Op::Kill, create("a"), get("a", 0), put("a", 2, vec![8; 9]), Op::PowerCut, get("a", 2)]);
    ops.extend([remove("b"), create("b"), reclaim(PIECES_MAX), put("b", 3, vec![9; 9]), remove("b"), remove("a")]);
    ops.extend([reclaim(PIECES_MAX), Op::Sync, Op::Kill, create("b"), put("b", 3, vec![10; 9])]);
    ops
}

/// Drops whose records are removed piece by piece, during writes to the neighbours and to the next
/// keyspace of the name.
fn reclaim_in_steps(round: u64) -> Vec<Op> {
    let first = round * 100;
    let mut ops: Vec<Op> = ["a", "b", "users"].map(create).into();
    for index in 0..10 {
        ops.extend(["a", "b", "users"].map(|name| put(name, first + index, vec![index as u8; 12])));
    }
    for (step, name) in [(0, "a"), (1, "users"), (2, "b"), (3, "a")] {
        ops.extend([remove(name), reclaim(1), put_default(first + step, vec![step as u8; 20]), create(name)]);
        ops.extend((0..8).map(|index| put(name, first + index, vec![100 + step as u8; 10])));
        ops.extend([stop(step), reclaim(1), delete(name, first + 2), reclaim(2), stop(step + 1)]);
        ops.extend([put(name, first + 3, vec![200; 30]), reclaim(PIECES_MAX)]);
    }
    ops
}

/// Batches and conditional batches over three keyspaces, one of which is dropped and recreated.
fn batches(rng: &mut Rng) -> Vec<Op> {
    let all = |value: &[u8]| {
        let put = |key: Vec<u8>| BatchOp::Put { key, value: value.to_vec(), expiry: None };
        let keys = [key(0), key_in("a", &key(0)), key_in("b", &key(0)), key_in("b", &key(1)), key(1)];
        let mut ops: Vec<BatchOp> = keys.into_iter().map(put).collect();
        ops.push(BatchOp::Delete { key: key_in("a", &key(2)) });
        Batch { ops }
    };
    let value = |step: u64| vec![step as u8; 8 + 5 * step as usize];
    let mut ops = vec![create("a"), create("b"), Op::Batch { batch: all(&value(0)) }];
    for step in 1..7u64 {
        let is_new = Condition::value(key_in("a", &key(0)), Some(value(step - 1)));
        let conditions = vec![is_new, Condition::present(key(0)), Condition::absent(key_in("b", &key(7)))];
        ops.push(Op::WriteIf { conditions: conditions.clone(), ranges: Vec::new(), batch: all(&value(step)) });
        ops.push(Op::WriteIf { conditions, ranges: Vec::new(), batch: all(&[]) });
        ops.push(put("a", 2, vec![rng.below(9) as u8; 20]));
        ops.push(stop(step));
        if step % 2 == 0 {
            // Refused while one of its keyspaces is dropped.
            ops.extend([remove("b"), Op::Batch { batch: all(&[7; 9]) }, reclaim(1), create("b"), put("b", 1, vec![1])]);
        }
    }
    ops
}

/// Two names that are dropped and created alternately, also without a reclaim in between.
fn names_come_again(round: u64) -> Vec<Op> {
    let mut ops = Vec::new();
    for step in 0..14u64 {
        let name = NAMES[(step + round) as usize % 2];
        ops.extend([create(name), put(name, step % 3, vec![step as u8; 30])]);
        ops.push(put(name, 3 + step % 2, vec![step as u8; 3]));
        if step % 4 != 3 {
            ops.push(remove(name));
        }
        match step % 5 {
            1 => ops.push(reclaim(PIECES_MAX)),
            3 => ops.push(reclaim(1)),
            _ => {}
        }
        if step % 3 == 2 {
            ops.push(stop(step / 3));
        }
    }
    ops.extend([remove("a"), remove("b"), reclaim(PIECES_MAX), Op::Kill]);
    ops
}

/// Pairs with an expiry, some of which are dropped before they are swept.
fn expiries() -> Vec<Op> {
    let at = |name: &str, index: u64, expiry: u64| Op::Put {
        key: key_in(name, &key(index)),
        value: vec![index as u8; 15],
        expiry: Some(expiry),
    };
    let mut ops = vec![create("a"), create("b")];
    for step in 0..3u64 {
        for index in 0..6 {
            let expiry = if index % 2 == 0 { PAST_MILLIS } else { future() };
            ops.extend([at("a", index, expiry), at("b", index, expiry)]);
        }
        ops.push(Op::Batch {
            batch: Batch {
                ops: vec![BatchOp::Put {
                    key: key_in("b", &key(8)),
                    value: vec![1; 5],
                    expiry: Some(Expiry::at_millis(future())),
                }],
            },
        });
        ops.extend([remove("a"), Op::Sweep, reclaim(1), create("a"), get("a", 1), stop(step), Op::Sweep]);
        ops.extend([put("a", 0, vec![3; 9]), reclaim(PIECES_MAX)]);
    }
    ops
}

/// Keys of the default keyspace adjacent to the stored keys of the other ones.
fn edges() -> Vec<Op> {
    let mut ops: Vec<Op> =
        EDGES.map(|key| Op::Put { key: key.to_vec(), value: b"before".to_vec(), expiry: None }).into();
    ops.extend([create("a"), create("b")]);
    for (step, edge) in (0..).zip(EDGES) {
        ops.push(Op::Put { key: key_in("a", edge), value: vec![step as u8; 9], expiry: None });
        ops.push(Op::Put { key: key_in("b", edge), value: vec![step as u8; 9], expiry: None });
        ops.extend([Op::Delete { key: EDGES[(step as usize + 1) % EDGES.len()].to_vec() }, stop(step)]);
        ops.push(Op::Put { key: edge.to_vec(), value: vec![step as u8; 30], expiry: None });
    }
    ops.extend([remove("a"), reclaim(PIECES_MAX), Op::Kill, remove("b"), reclaim(1), create("a"), Op::PowerCut]);
    ops
}

/// A store that refuses writes, including creations, drops and the reclaim.
fn full(rng: &mut Rng) -> Vec<Op> {
    let mut ops = vec![create("a"), put("a", 0, vec![1; 60]), put("a", 1, vec![2; 60])];
    for step in 0..3u64 {
        for index in 0..45 {
            let value = vec![index as u8; [30, 300, 1400][rng.index(3)]];
            ops.push(if index % 3 == 0 { put("b", index, value) } else { put_default(index, value) });
        }
        ops.extend([create("b"), put("b", 0, vec![1; 700]), create("users"), remove("a"), get("a", 0)]);
        ops.extend([reclaim(1), put("a", 1, vec![3; 50]), create("a"), put("a", 0, vec![4; 50]), stop(step)]);
        ops.extend([remove("users"), reclaim(PIECES_MAX), remove("b"), reclaim(PIECES_MAX)]);
        ops.extend((0..45).step_by(2).map(|index| Op::Delete { key: key(index) }));
        ops.push(stop(step + 1));
    }
    ops
}

/// More names than slots per piece, dropped in another order.
fn many(round: u64) -> Vec<Op> {
    let name = |index: u64| format!("keyspace {index} of round {round}");
    let mut ops = Vec::new();
    for index in 0..12 {
        ops.extend([create(&name(index)), put(&name(index), index % 4, vec![index as u8; 12])]);
    }
    for step in 0..12u64 {
        let gone = name(step * 5 % 12);
        ops.push(remove(&gone));
        match step % 4 {
            1 => ops.extend([reclaim(1), stop(step)]),
            3 => ops.extend([create(&gone), put(&gone, 9, vec![step as u8; 9]), reclaim(PIECES_MAX)]),
            _ => {}
        }
    }
    ops
}

/// Creations of one name until its ids get longer, with neighbours on both sides.
fn long_ids() -> Vec<Op> {
    let mut ops = vec![create("b"), put("b", 0, vec![9; 9])];
    for step in 0..252u64 {
        ops.extend([create("a"), put("a", step % 3, vec![step as u8; 9]), remove("a")]);
        if step % 9 == 8 {
            ops.extend([reclaim(PIECES_MAX), Op::Sweep]);
        }
        if step >= 240 {
            let name = NAMES[step as usize % 2];
            ops.extend([remove("b"), create(name), put(name, step % 5, vec![step as u8; 20]), stop(step)]);
            ops.extend([create("b"), put("b", step % 4, vec![step as u8; 9])]);
        }
    }
    ops
}

/// A random script: operations on few keys of some keyspaces, which are created and dropped.
fn random(seed: u64, index: u64) -> Script {
    let mut rng = Rng::part(seed ^ 0x6e61_6d65, index);
    let most = [24, 120, 700][rng.index(3)];
    let names = &NAMES[..2 + rng.index(NAMES.len() - 1)];
    let user_keys: Vec<Vec<u8>> = (0..3 + rng.below(8)).map(key).chain(EDGES.map(<[u8]>::to_vec)).collect();
    let in_names = names.iter().flat_map(|name| user_keys.iter().map(|key| key_in(name, key)));
    let keys: Vec<Vec<u8>> = in_names.chain(user_keys.iter().cloned()).collect();
    let mut known: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut ops: Vec<Op> = names.iter().map(|name| create(name)).collect();
    for _ in 0..40 + rng.below(50) {
        let op = match rng.below(60) {
            number @ 0..=2 => stop(number),
            3 => Op::Sync,
            4 => Op::Sweep,
            5..=16 => keyspace_op(&mut rng),
            _ => with_conditions(random_op(&mut rng, &keys, most), &known),
        };
        if let Op::Put { key, value, .. } = &op {
            known.retain(|(known, _)| known != key);
            known.push((key.clone(), value.clone()));
        }
        ops.push(op);
    }
    debug_assert!(keys.iter().all(|key| is_stored(key)), "keys of the store");
    let partitions = 1 + rng.below(2) as u32;
    let mode = if rng.one_in(2) { 0 } else { rng.below(MODE_COUNT) as u32 };
    let shape = Shape { partitions, mode, ..Shape::default() };
    Script { name: format!("random keyspaces {index}"), shape, ops, explore_every: 1, cuts_sweeps: true }
}
