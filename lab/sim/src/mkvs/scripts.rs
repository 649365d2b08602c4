//! Scripts for a matrix: logs that wrap around, devices that trail and catch up, missing devices,
//! filters of clean stops.

use lodestore_contract::Lifetime;
use lodestore_media::sim::Rng;

use super::{
    ACKS_ALL_INDEX, ACKS_ONE_INDEX, LOSSES_MODE_FLAG, SOLE_DEVICES_INDEX, TWO_GROUPS_INDEX, TWO_OF_THREE_INDEX,
};
use crate::op::Op;
use crate::script::{Script, key, put};
use crate::shape::Shape;

/// Bytes of a device's store: small, because an image has several.
const DEVICE_BYTES: u64 = 64 << 10;

/// Returns the scripts of a round, which determines keys and values.
pub(super) fn all(seed: u64, round: u64) -> Vec<Script> {
    let mut rng = Rng::part(seed, !round ^ 0x3a7);
    let shape = Shape { capacity: DEVICE_BYTES, region_bytes: DEVICE_BYTES, ..Shape::default() };
    let script = |name: &str, mode: u32, ops: Vec<Op>| Script {
        name: name.into(),
        shape: Shape { mode, ..shape },
        ops,
        explore_every: 2,
        cuts_sweeps: true,
    };
    vec![
        script("one device of three is taken away", LOSSES_MODE_FLAG, trailing(&mut rng, round, 60, 15, 30)),
        script("devices trail and catch up", 0, trailing(&mut rng, round, 90, 30, 30)),
        script("logs turn", 0, turning(&mut rng, round)),
        script("one acknowledges", ACKS_ONE_INDEX, trailing(&mut rng, round, 70, 14, 30)),
        script("both acknowledge", ACKS_ALL_INDEX, trailing(&mut rng, round, 70, 14, 30)),
        script("filters that a clean stop leaves", SOLE_DEVICES_INDEX, left(&mut rng, round)),
        script("two groups", TWO_GROUPS_INDEX, trailing(&mut rng, round, 70, 14, 30)),
        script(
            "two groups of three, of which one is taken away",
            TWO_OF_THREE_INDEX | LOSSES_MODE_FLAG,
            trailing(&mut rng, round, 60, 12, 30),
        ),
        script("one device of three is taken away, and logs turn", LOSSES_MODE_FLAG, turning(&mut rng, round)),
        script(
            "operations that the device taken away alone has",
            LOSSES_MODE_FLAG,
            trailing(&mut rng, round, 60, 20, 400),
        ),
        script("full devices", 0, full(&mut rng, round)),
        script("devices are replaced", 0, replaced(&mut rng, round)),
        script("devices are replaced, and one of three is taken away", LOSSES_MODE_FLAG, replaced(&mut rng, round)),
        script("both acknowledge, and are replaced", ACKS_ALL_INDEX, replaced(&mut rng, round)),
        script(
            "both acknowledge, and one is taken away",
            ACKS_ALL_INDEX | LOSSES_MODE_FLAG,
            trailing(&mut rng, round, 60, 12, 30),
        ),
        script("groups of one device are added", SOLE_DEVICES_INDEX, grown(&mut rng, round)),
        script("a group is added, and one device of three is taken away", LOSSES_MODE_FLAG, grown(&mut rng, round)),
        script("groups are added and their devices replaced", TWO_OF_THREE_INDEX, reshaped(&mut rng, round)),
    ]
}

fn stop(number: u64) -> Op {
    [Op::PowerCut, Op::Kill, Op::Reopen][number as usize % 3].clone()
}

/// Writes and removes of few keys, occasional keeper runs, and a stop after every few. Long values
/// make long steps, which are often cut.
fn trailing(rng: &mut Rng, round: u64, steps: u64, stop_every: u64, most: u64) -> Vec<Op> {
    let first = round * 1000;
    let mut ops = Vec::new();
    for step in 0..steps {
        let at = first + rng.below(7);
        ops.push(match rng.below(8) {
            0 | 1 => Op::Delete { key: key(at) },
            2 => Op::Insert { key: key(at), value: vec![step as u8; 5], lifetime: Lifetime::Forever },
            3 => Op::Append { key: key(at), bytes: vec![step as u8; 8], lifetime: Lifetime::Keep },
            _ => put(at, vec![step as u8; 1 + rng.below(most) as usize]),
        });
        if rng.one_in(9) {
            ops.push(Op::Sweep);
        }
        if step % stop_every == stop_every - 1 {
            ops.push(stop(rng.below(3)));
        }
    }
    ops
}

/// Values of which a log keeps few, between small ones of which it keeps many.
fn turning(rng: &mut Rng, round: u64) -> Vec<Op> {
    let first = round * 1000;
    let mut ops = Vec::new();
    for step in 0..84u64 {
        let most = if step / 12 % 2 == 0 { 12 } else { 700 };
        ops.push(put(first + rng.below(9), vec![step as u8; 1 + rng.below(most) as usize]));
        if step % 21 == 20 {
            ops.push(stop(round + step / 21));
        }
        if rng.one_in(15) {
            ops.push(Op::Sweep);
        }
    }
    ops
}

/// A change of the devices after every few steps; then a keeper run, a stop, both, or neither.
fn changed(rng: &mut Rng, round: u64, steps: u64, mut change: impl FnMut(&mut Rng) -> Op) -> Vec<Op> {
    let mut ops = Vec::new();
    for (step, op) in trailing(rng, round, steps, 13, 40).into_iter().enumerate() {
        ops.push(op);
        if step % 14 == 9 {
            if !rng.one_in(3) {
                // All devices have caught up.
                ops.push(Op::Sweep);
            }
            ops.push(change(rng));
            if rng.one_in(2) {
                ops.push(Op::Sweep);
            }
            if rng.one_in(2) {
                ops.push(stop(rng.below(3)));
            }
        }
    }
    ops
}

fn replace(rng: &mut Rng) -> Op {
    Op::Replace { group: rng.index(3), device: rng.index(3) }
}

fn replaced(rng: &mut Rng, round: u64) -> Vec<Op> {
    changed(rng, round, 56, replace)
}

fn grown(rng: &mut Rng, round: u64) -> Vec<Op> {
    changed(rng, round, 42, |_| Op::AddGroup)
}

fn reshaped(rng: &mut Rng, round: u64) -> Vec<Op> {
    changed(rng, round, 56, |rng| if rng.one_in(2) { Op::AddGroup } else { replace(rng) })
}

/// Clean stops, followed by new keys that are not in the stored filters.
fn left(rng: &mut Rng, round: u64) -> Vec<Op> {
    let first = round * 1000;
    let mut ops = Vec::new();
    for step in 0..12u64 {
        ops.extend((0..3).map(|more| put(first + 3 * step + more, vec![step as u8; 9])));
        ops.push(Op::Delete { key: key(first + rng.below(3 * step + 1)) });
        ops.push([Op::Reopen, Op::PowerCut, Op::Reopen, Op::Kill][step as usize % 4].clone());
    }
    ops
}

/// More data than fits: a write that some devices refuse is reverted, or the device is behind.
fn full(rng: &mut Rng, round: u64) -> Vec<Op> {
    let first = round * 1000;
    let mut ops = Vec::new();
    for step in 0..130u64 {
        ops.push(match step % 9 {
            8 => Op::Delete { key: key(first + rng.below(60)) },
            _ => put(first + rng.below(60), vec![step as u8; 300 + rng.below(1300) as usize]),
        });
        if step % 40 == 39 {
            ops.extend([Op::Sweep, stop(round + step / 40)]);
        }
    }
    ops
}
