//! Scripts for separated values: flushes to groups, GC, splits, and values that cross the
//! threshold.

use lodestore_contract::Lifetime;
use lodestore_media::sim::Rng;

use super::{CHANGING_MODE_FLAG, THRESHOLD_BYTES, VLOG_MODE_FLAG};
use crate::op::Op;
use crate::script::{Script, batch_of, future, key, put};
use crate::shape::Shape;

const PAST_MILLIS: u64 = 1;
/// Values whose segments are about as many as those that are freed.
const HOLED_COUNT: u64 = 240;

/// Returns the scripts of a round, which determines keys and values.
pub(super) fn all(seed: u64, round: u64) -> Vec<Script> {
    let mut rng = Rng::part(seed, !round ^ 0xa54);
    let script = |name: &str, mode: u32, explore_every: u64, ops: Vec<Op>| Script {
        name: name.into(),
        shape: Shape { mode, ..Shape::default() },
        ops,
        explore_every,
        cuts_sweeps: true,
    };
    vec![
        script("values over the threshold and under it", 0, 3, crossings(&mut rng, round)),
        script("values are collected", 0, 4, collected(&mut rng, round)),
        script("collections beside what is in the log", 0, 4, beside_the_log(&mut rng, round)),
        script("groups split", 0, 8, splits(&mut rng, round)),
        script("one log of values is collected", VLOG_MODE_FLAG, 4, collected(&mut rng, round)),
        script("each open has another mode", CHANGING_MODE_FLAG, 3, reopened(&mut rng, round)),
        script("segments give back their space and take it again", 0, 6, holes(&mut rng, round)),
    ]
}

fn large(rng: &mut Rng, mark: u64, most: u64) -> Vec<u8> {
    vec![mark as u8; THRESHOLD_BYTES + rng.below(most) as usize]
}

fn small(mark: u64) -> Vec<u8> {
    vec![mark as u8; 9]
}

fn stop(number: u64) -> Op {
    [Op::PowerCut, Op::Kill, Op::Reopen][number as usize % 3].clone()
}

/// Few keys, whose values are separated, then small, then deleted, and separated again, with a
/// flush after every few.
fn crossings(rng: &mut Rng, round: u64) -> Vec<Op> {
    let first = round * 1000;
    let mut ops = Vec::new();
    for step in 0..72u64 {
        let at = first + rng.below(6);
        ops.push(match (step / 6 + at) % 4 {
            0 => put(at, small(step)),
            1 if step % 5 == 0 => Op::Delete { key: key(at) },
            1 => Op::Put {
                key: key(at),
                value: large(rng, step, 300),
                expiry: Some([PAST_MILLIS, future()][step as usize % 2]),
            },
            _ => put(at, large(rng, step, 300)),
        });
        if step % 6 == 5 {
            ops.push(Op::Sweep);
        }
        if step % 24 == 23 {
            ops.push(stop(round + step / 24));
        }
    }
    ops
}

/// Some keys are rewritten repeatedly, so that segments hold few live values; others stay and are
/// moved.
fn collected(rng: &mut Rng, round: u64) -> Vec<Op> {
    let first = round * 1000;
    let mut ops: Vec<Op> = (0..8).map(|index| put(first + index, large(rng, index, 700))).collect();
    for step in 0..84u64 {
        let at = first + rng.below(5);
        ops.push(if step % 9 == 8 {
            batch_of([(at, Some(large(rng, step, 400))), (at + 1, None), (at + 2, Some(small(step)))])
        } else {
            put(at, large(rng, step, 700))
        });
        if step % 6 == 5 {
            ops.push(Op::Sweep);
        }
        if step % 28 == 27 {
            ops.push(stop(round + step / 28));
        }
    }
    ops
}

/// Values that a flush collects have newer versions in the log that is written meanwhile: small
/// ones, large ones, deletes.
fn beside_the_log(rng: &mut Rng, round: u64) -> Vec<Op> {
    let first = round * 1000;
    let mut ops = Vec::new();
    for step in 0..150u64 {
        let at = first + rng.below(14);
        ops.push(match rng.below(6) {
            0 => put(at, small(step)),
            1 => Op::Delete { key: key(at) },
            2 => Op::Append { key: key(at), bytes: vec![step as u8; 40], lifetime: Lifetime::Keep },
            _ => put(at, large(rng, step, 900)),
        });
        if step % 50 == 49 {
            ops.push(stop(round + step / 50));
        }
    }
    ops
}

/// More keys than a group may have, updated in their own order, with stops.
fn splits(rng: &mut Rng, round: u64) -> Vec<Op> {
    let first = round * 1000;
    let mut ops: Vec<Op> = (0..60).map(|index| put(first + index, large(rng, index, 700))).collect();
    for step in 0..140u64 {
        ops.push(put(first + rng.below(60), large(rng, step, 700)));
        if step % 20 == 19 {
            ops.push(Op::Sweep);
        }
        if step % 47 == 46 {
            ops.push(stop(round + step / 47));
        }
    }
    ops
}

/// Values of all lengths, with a stop after every few: an open separates what an earlier one did
/// not, and collects what was separated otherwise.
fn reopened(rng: &mut Rng, round: u64) -> Vec<Op> {
    let first = round * 1000;
    let mut ops: Vec<Op> = (0..12).map(|index| put(first + index, large(rng, index, 700))).collect();
    for step in 0..96u64 {
        ops.push(match step % 8 {
            3 => Op::Delete { key: key(first + rng.below(12)) },
            5 => put(first + rng.below(12), small(step)),
            _ => put(first + rng.below(12), large(rng, step, 700)),
        });
        if step % 8 == 7 {
            ops.push(Op::Sweep);
        }
        if step % 12 == 11 {
            ops.push(stop(round + step / 12));
        }
    }
    ops
}

/// Fills most of the capacity, deletes almost all, and fills again: then more segments are free
/// than keep their space.
fn holes(rng: &mut Rng, round: u64) -> Vec<Op> {
    let first = round * 1000;
    let mut ops = Vec::new();
    for turn in 0..3u64 {
        ops.extend((0..HOLED_COUNT).map(|index| put(first + index, large(rng, turn + index, 470))));
        ops.extend(
            (0..HOLED_COUNT).filter(|index| index % 16 != turn).map(|index| Op::Delete { key: key(first + index) }),
        );
        ops.extend([Op::Sweep, Op::Sweep, stop(round + turn)]);
    }
    ops
}
