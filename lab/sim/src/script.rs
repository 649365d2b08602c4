//! Scripts: sequences of operations that cover all of an engine's behaviour.

use std::collections::BTreeSet;

use lodestore_contract::{Batch, BatchOp, Condition, Expiry, Lifetime};
use lodestore_media::sim::Rng;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::keyspace_keys::NEXT_ID;
use crate::op::Op;
use crate::shape::Shape;

/// An expiry in the past.
pub(crate) const PAST_MILLIS: u64 = 1;

/// Seed of the hash of simulated stores, so that a script can target a part of an index.
pub const HASH_SEED: u64 = 42;

/// Modes of random scripts; an engine ignores unknown bits.
const MODE_COUNT: u64 = 16;

/// A script of an exploration.
#[derive(Debug, Clone)]
pub struct Script {
    /// The name in reports.
    pub name: String,
    /// The shape of its store.
    pub shape: Shape,
    /// The steps.
    pub ops: Vec<Op>,
    /// One in n operations of ordinary length is explored; long ones (splits, growth) always are.
    pub explore_every: u64,
    /// Sweeps are cut as often as batches, next to any of their fences, and the script continues
    /// from the remains.
    pub cuts_sweeps: bool,
}

impl Script {
    /// Returns every key of the script.
    pub fn universe(&self) -> Vec<Vec<u8>> {
        let mut keys: BTreeSet<Vec<u8>> = self.ops.iter().flat_map(Op::keys).map(<[u8]>::to_vec).collect();
        if self.ops.iter().any(Op::is_of_keyspaces) {
            keys.insert(NEXT_ID.to_vec());
        }
        keys.into_iter().collect()
    }
}

/// Returns a far expiry, the same in all runs: the year 2100.
pub(crate) const fn future() -> u64 {
    4_102_444_800_000
}

pub(crate) fn key(index: u64) -> Vec<u8> {
    // Lengths that cross words and lines, and keys that are prefixes of others.
    match index % 5 {
        0 => format!("k{index}").into_bytes(),
        1 => format!("key/{index:05}").into_bytes(),
        2 => format!("key/{:05}/with a longer tail {index}", index - 1).into_bytes(),
        3 => [b"bin\0\xff".as_slice(), &index.to_le_bytes()].concat(),
        _ => vec![b'a' + (index % 26) as u8; 1 + (index % 90) as usize],
    }
}

fn value(rng: &mut Rng, most: u64) -> Vec<u8> {
    let len = match rng.below(10) {
        0 => 0,
        1..=6 => rng.below(most.min(64) + 1),
        _ => rng.below(most + 1),
    };
    let mut value: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
    // Half of the values compress.
    if len % 2 == 0 {
        let from = value.len() / 4;
        value[from..].fill(b' ');
    }
    value
}

/// Returns the lifetime of a random write of `value`. The length of the value determines it, so
/// that no random number is drawn.
fn lifetime_of(value: &[u8]) -> Lifetime {
    match value.len() % 8 {
        0 | 4 => Lifetime::Forever,
        1 | 3 | 5 => Lifetime::Keep,
        7 => Lifetime::Until(Expiry::at_millis(PAST_MILLIS)),
        _ => Lifetime::Until(Expiry::at_millis(future())),
    }
}

fn swap(key: Vec<u8>, expected: Option<Vec<u8>>, new: Option<Vec<u8>>) -> Op {
    let lifetime = new.as_deref().map_or(Lifetime::Forever, lifetime_of);
    Op::Swap { key, expected, new, lifetime }
}

/// Returns a random operation on one of `keys`.
pub fn random_op(rng: &mut Rng, keys: &[Vec<u8>], most: u64) -> Op {
    let key = keys[rng.index(keys.len())].clone();
    match rng.below(22) {
        20..=21 => random_batch(rng, keys, most),
        0..=4 => Op::Put { key, value: value(rng, most), expiry: None },
        5 => Op::Put { key, value: value(rng, most), expiry: Some(future()) },
        6 => Op::Put { key, value: value(rng, most), expiry: Some(PAST_MILLIS) },
        7..=8 => {
            let value = value(rng, most);
            Op::Insert { key, lifetime: lifetime_of(&value), value }
        }
        9..=11 => {
            let value = value(rng, most);
            Op::Update { key, lifetime: lifetime_of(&value), value }
        }
        12..=14 => Op::Delete { key },
        15 => swap(key, None, Some(value(rng, most))),
        16 => swap(key, Some(value(rng, 2)), None),
        17 => {
            let bytes = value(rng, most.min(16));
            Op::Append { key, lifetime: lifetime_of(&bytes), bytes }
        }
        18 => Op::Remove { key },
        _ => Op::Get { key },
    }
}

/// Returns a random batch over `keys`, which may repeat.
fn random_batch(rng: &mut Rng, keys: &[Vec<u8>], most: u64) -> Op {
    let op = |rng: &mut Rng| {
        let key = keys[rng.index(keys.len())].clone();
        match rng.below(8) {
            0..=4 => BatchOp::Put { key, value: value(rng, most), expiry: None },
            5 => BatchOp::Put { key, value: value(rng, most), expiry: Some(Expiry::at_millis(PAST_MILLIS)) },
            _ => BatchOp::Delete { key },
        }
    };
    let len = 1 + rng.below(9);
    Op::Batch { batch: Batch { ops: (0..len).map(|_| op(rng)).collect() } }
}

/// Adds conditions to one of three batches. The batch determines them, so that no random number is
/// drawn. `known` has pairs that were put and may have changed since.
pub(crate) fn with_conditions(op: Op, known: &[(Vec<u8>, Vec<u8>)]) -> Op {
    let Op::Batch { batch } = op else { return op };
    let key_of = |op: &BatchOp| match op {
        BatchOp::Put { key, .. } | BatchOp::Delete { key } => key.clone(),
    };
    let (Some(first), Some(last)) = (batch.ops.first().map(key_of), batch.ops.last().map(key_of)) else {
        return Op::Batch { batch };
    };
    let conditions = match (batch.ops.len(), known.last().cloned()) {
        (1, _) => vec![Condition::present(last)],
        (4, Some((key, value))) => vec![Condition::value(key, Some(value))],
        (4, None) => vec![Condition::absent(first)],
        (7, _) => vec![Condition::absent(first), Condition::absent(last)],
        _ => return Op::Batch { batch },
    };
    Op::WriteIf { conditions, ranges: Vec::new(), batch }
}

/// Returns a random script: mixed operations on few keys, with stops of each kind.
pub fn random(seed: u64, index: u64) -> Script {
    let mut rng = Rng::part(seed, index);
    let most = [24, 120, 700][rng.index(3)];
    let keys: Vec<Vec<u8>> = (0..4 + rng.below(28)).map(key).collect();
    let mut known: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut ops = Vec::new();
    for _ in 0..30 + rng.below(50) {
        let op = match rng.below(60) {
            0 => Op::Reopen,
            1 => Op::Kill,
            2 => Op::PowerCut,
            3 => Op::Sync,
            4 => Op::Sweep,
            // A swap that is likely to succeed.
            5..=7 if !known.is_empty() => {
                let (key, value_now) = known[rng.index(known.len())].clone();
                let new = (!rng.one_in(3)).then(|| value(&mut rng, most));
                swap(key, Some(value_now), new)
            }
            _ => with_conditions(random_op(&mut rng, &keys, most), &known),
        };
        if let Op::Put { key, value, .. } = &op {
            known.retain(|(known, _)| known != key);
            known.push((key.clone(), value.clone()));
        }
        ops.push(op);
    }
    let partitions = 1 + rng.below(2) as u32;
    // Half of the scripts run the engine with defaults, the others in one of its modes.
    let mode = if rng.one_in(2) { 0 } else { rng.below(MODE_COUNT) as u32 };
    let shape = Shape { partitions, mode, ..Shape::default() };
    Script { name: format!("random {index}"), shape, ops, explore_every: 1, cuts_sweeps: true }
}

pub(crate) fn put(index: u64, value: Vec<u8>) -> Op {
    Op::Put { key: key(index), value, expiry: None }
}

/// Returns the hand-written scripts, each for behaviour that random ones rarely reach. `round`
/// determines keys and values.
pub fn by_hand(seed: u64, round: u64) -> Vec<Script> {
    let mut rng = Rng::part(seed, u64::MAX - round);
    let script = |name: &str, shape: Shape, explore_every: u64, ops: Vec<Op>| Script {
        name: name.into(),
        shape,
        ops,
        explore_every,
        cuts_sweeps: true,
    };
    let small = Shape::default();
    let regions = Shape { capacity: 256 << 10, region_bytes: 64 << 10, ..small };
    // Short scripts first, so that a fault is soon seen.
    vec![
        script("single key through its life", small, 1, single_key()),
        script("expiry", small, 1, expiry()),
        // A half-done sweep shows in the operations after it.
        Script { cuts_sweeps: false, ..script("sweeps beside new keys", small, 1, sweeps(round)) },
        script("settled again and again", small, 8, settled_again_and_again(round)),
        script("stops", small, 1, stops()),
        script("kills, then power cuts", small, 1, kills()),
        script("batches", small, 1, batches(&mut rng)),
        script("batches over splits", Shape { partitions: 2, ..small }, 1, batches_over_splits(&mut rng, round)),
        script("churn of one size", small, 4, churn(&mut rng)),
        script("large and small values", Shape { capacity: 256 << 10, region_bytes: 256 << 10, ..small }, 1, sizes()),
        script("growth by regions", regions, 5, growth(&mut rng)),
        script("splits and doubling", small, 4, splits(&mut rng, round, 420)),
        script("splits with stops", Shape { partitions: 2, ..small }, 6, with_stops(splits(&mut rng, round, 380), 61)),
        script("splits over many directory words", small, 3, skewed_splits(&mut rng, round)),
        script("whole stretches go", Shape { mode: 2, ..small }, 25, stretches(&mut rng, round)),
        script("fill, empty, fill", small, 6, fill_and_empty(&mut rng)),
        script("growth beside churn", Shape { mode: 1, ..small }, 12, growth_beside_churn(&mut rng, round)),
        script("conditional batches", small, 1, conditional_batches()),
    ]
}

fn single_key() -> Vec<Op> {
    let key = b"the key".to_vec();
    let value = |text: &str| text.as_bytes().to_vec();
    vec![
        Op::Get { key: key.clone() },
        Op::Insert { key: key.clone(), value: value("first"), lifetime: Lifetime::Forever },
        Op::Insert { key: key.clone(), value: value("refused"), lifetime: Lifetime::Forever },
        Op::Update {
            key: key.clone(),
            value: value("second, rather longer than the first, over a line and more of it"),
            lifetime: Lifetime::Forever,
        },
        Op::Put { key: key.clone(), value: value("third"), expiry: None },
        Op::Swap {
            key: key.clone(),
            expected: Some(value("third")),
            new: Some(value("fourth")),
            lifetime: Lifetime::Forever,
        },
        Op::Swap {
            key: key.clone(),
            expected: Some(value("third")),
            new: Some(value("refused")),
            lifetime: Lifetime::Forever,
        },
        Op::Append { key: key.clone(), bytes: value(" and more"), lifetime: Lifetime::Keep },
        Op::Delete { key: key.clone() },
        Op::Delete { key: key.clone() },
        Op::Update { key: key.clone(), value: value("refused"), lifetime: Lifetime::Forever },
        Op::Swap { key: key.clone(), expected: None, new: Some(value("again")), lifetime: Lifetime::Forever },
        Op::Swap { key: key.clone(), expected: Some(value("again")), new: None, lifetime: Lifetime::Forever },
        Op::Append { key: key.clone(), bytes: value("from nothing"), lifetime: Lifetime::Keep },
        Op::Remove { key: key.clone() },
        Op::Put { key: key.clone(), value: Vec::new(), expiry: None },
        Op::Put { key, value: Vec::new(), expiry: None },
    ]
}

pub(crate) fn batch_of(ops: impl IntoIterator<Item = (u64, Option<Vec<u8>>)>) -> Op {
    let op = |(index, value): (u64, Option<Vec<u8>>)| match value {
        Some(value) => BatchOp::Put { key: key(index), value, expiry: None },
        None => BatchOp::Delete { key: key(index) },
    };
    Op::Batch { batch: Batch { ops: ops.into_iter().map(op).collect() } }
}

/// Batches mixed with single writes of the same keys, which a late redo of a batch would revert,
/// with stops of each kind.
fn batches(rng: &mut Rng) -> Vec<Op> {
    let mut ops = vec![batch_of([]), batch_of([(0, None)]), batch_of([(0, Some(vec![1; 9]))])];
    for round in 0..24u64 {
        let mark = vec![round as u8; 8 + rng.below(40) as usize];
        ops.push(match round % 4 {
            // Keys that occur twice in a batch, and absent ones.
            0 => batch_of([(1, Some(mark.clone())), (2, None), (1, Some(vec![9; 3])), (3, Some(mark)), (40, None)]),
            1 => batch_of((0..6).map(|index| (index, Some(mark.clone())))),
            2 => batch_of((0..6).map(|index| (index, (index % 2 == 0).then(|| mark.clone())))),
            _ => batch_of([(2, Some(mark.clone())), (2, None), (4, None), (4, Some(mark))]),
        });
        ops.push(put(rng.below(6), vec![100 + round as u8; 12]));
        ops.push(Op::Delete { key: key(rng.below(6)) });
        if round % 2 == 1 {
            ops.push([Op::PowerCut, Op::Kill, Op::Reopen][round as usize / 2 % 3].clone());
        }
    }
    ops
}

/// Batches that each need the value written by the previous one. Each is followed by a batch that
/// needs the older value and is refused. With stops of each kind.
fn conditional_batches() -> Vec<Op> {
    let value = |step: u64| vec![200 + step as u8; 10 + 7 * step as usize];
    let write_if = |conditions: Vec<Condition>, ops: Vec<(u64, Option<Vec<u8>>)>| match batch_of(ops) {
        Op::Batch { batch } => Op::WriteIf { conditions, ranges: Vec::new(), batch },
        other => other,
    };
    let mut ops = vec![batch_of([(0, Some(value(0))), (2, None), (5, None)])];
    for step in 1..4u64 {
        let (before, now) = (Condition::value(key(0), Some(value(step - 1))), value(step));
        let write =
            vec![(0, Some(now.clone())), (1, Some(now.clone())), (2, (step % 2 == 0).then_some(now)), (3, None)];
        ops.push(write_if(vec![before.clone(), Condition::absent(key(5))], write));
        ops.push(write_if(vec![before], vec![(0, None), (5, Some(value(step))), (1, None)]));
        if step % 2 == 0 {
            ops.push(write_if(vec![Condition::present(key(2)), Condition::absent(key(3))], Vec::new()));
        }
        ops.push([Op::PowerCut, Op::Kill, Op::Reopen][step as usize % 3].clone());
    }
    ops
}

/// Batches of enough new keys to split segments and grow logs, with others that delete them.
fn batches_over_splits(rng: &mut Rng, round: u64) -> Vec<Op> {
    let mut ops = Vec::new();
    let mut next = round * 1000;
    for step in 0..9u64 {
        let len = [3, 20, 45][step as usize % 3];
        ops.push(batch_of((next..next + len).map(|index| (index, Some(value(rng, 12))))));
        ops.push(put(next, vec![step as u8; 5]));
        ops.push(batch_of((next..next + len).step_by(3).map(|index| (index, None))));
        next += len;
        if step % 3 == 2 {
            ops.push([Op::Kill, Op::Reopen, Op::PowerCut][step as usize / 3].clone());
        }
    }
    ops
}

fn splits(rng: &mut Rng, round: u64, keys: u64) -> Vec<Op> {
    let mut ops = Vec::new();
    let first = round * 1000;
    for index in first..first + keys {
        ops.push(put(index, value(rng, 12)));
        // Entries that are inserted and deleted during the splits.
        if index % 7 == 6 {
            ops.push(Op::Delete { key: key(index - 3) });
        }
        if index % 11 == 10 {
            ops.push(Op::Update { key: key(index - 1), value: value(rng, 12), lifetime: Lifetime::Forever });
        }
    }
    ops
}

/// Inserts keys, and deletes them range by range in their order: ranges that were split by growth
/// become empty, next to remaining ones. Twice, with stops.
fn stretches(rng: &mut Rng, round: u64) -> Vec<Op> {
    let first = round * 1000;
    let mut keys: Vec<Vec<u8>> = (first..first + 120).map(key).collect();
    keys.sort();
    let put = |rng: &mut Rng, key: &Vec<u8>| {
        let len = 100 + rng.below(100) as usize;
        Op::Put { key: key.clone(), value: vec![len as u8; len], expiry: None }
    };
    let mut ops = Vec::new();
    for stop in [Op::PowerCut, Op::Reopen] {
        let (from, to) = (rng.index(keys.len() / 4), keys.len() - rng.index(keys.len() / 4));
        ops.extend(keys.iter().map(|key| put(rng, key)));
        ops.push(Op::Sweep);
        ops.extend(keys[from..to].iter().map(|key| Op::Delete { key: key.clone() }));
        ops.extend([Op::Sweep, stop]);
        // Some keys of the range are present again.
        ops.extend(keys[from..to].iter().step_by(7).map(|key| put(rng, key)));
        ops.push(Op::Sweep);
    }
    ops
}

/// Keys whose hashes begin with five zeros make the directory deep; then others split segments that
/// many of its words name.
fn skewed_splits(rng: &mut Rng, round: u64) -> Vec<Op> {
    let is_low = |index: &u64| xxh3_64_with_seed(&key(*index), HASH_SEED) >> 59 == 0;
    let first = round * 100_000;
    let low: Vec<u64> = (first..).filter(is_low).take(60).collect();
    let others: Vec<u64> = (first..).filter(|index| !is_low(index)).take(90).collect();
    low.into_iter().chain(others).map(|index| put(index, value(rng, 12))).collect()
}

/// New keys, so that an index grows, mixed with overwrites of others, so that freed space is reused
/// during the growth.
fn growth_beside_churn(rng: &mut Rng, round: u64) -> Vec<Op> {
    let first = round * 1000;
    let mut ops = Vec::new();
    for index in first..first + 230 {
        ops.push(put(index, vec![index as u8; 20]));
        for _ in 0..3 {
            let other = first + rng.below(index - first + 1);
            ops.push(put(other, vec![other as u8 ^ 0x55; 20]));
        }
    }
    ops
}

fn with_stops(ops: Vec<Op>, every: usize) -> Vec<Op> {
    let kinds = [Op::Reopen, Op::Kill, Op::PowerCut];
    let mut out = Vec::new();
    for (index, op) in ops.into_iter().enumerate() {
        out.push(op);
        if index % every == every - 1 {
            out.push(kinds[index / every % kinds.len()].clone());
        }
    }
    out
}

/// Replaces and deletes records of one size class, so that freed space is reused at once.
fn churn(rng: &mut Rng) -> Vec<Op> {
    let mut ops: Vec<Op> = (0..6).map(|index| put(index, vec![index as u8; 40])).collect();
    for round in 0..120u64 {
        let index = rng.below(6);
        ops.push(match rng.below(4) {
            0 => Op::Delete { key: key(index) },
            _ => put(index, vec![round as u8; 40]),
        });
        if round % 40 == 39 {
            ops.push(Op::PowerCut);
        }
    }
    ops
}

fn growth(rng: &mut Rng) -> Vec<Op> {
    let mut ops: Vec<Op> = (0..150).map(|index| put(index, vec![index as u8; 500 + rng.below(500) as usize])).collect();
    ops.push(Op::Kill);
    ops.extend((0..150).step_by(3).map(|index| Op::Delete { key: key(index) }));
    ops.push(Op::Reopen);
    ops.extend((150..200).map(|index| put(index, vec![index as u8; 900])));
    ops
}

fn fill_and_empty(rng: &mut Rng) -> Vec<Op> {
    let mut ops = Vec::new();
    for round in 0..3u64 {
        ops.extend((0..110).map(|index| put(index, vec![round as u8; 300 + 200 * rng.below(4) as usize])));
        ops.extend((0..110).filter(|index| round == 2 || index % 8 != 0).map(|index| Op::Delete { key: key(index) }));
        ops.push([Op::Kill, Op::Reopen, Op::PowerCut][round as usize].clone());
    }
    ops
}

fn sizes() -> Vec<Op> {
    let mut ops = Vec::new();
    for (index, len) in [0, 1, 7, 8, 15, 16, 63, 64, 65, 200, 511, 512, 1000, 2000, 5000, 9000].into_iter().enumerate()
    {
        ops.push(put(index as u64 % 4, vec![index as u8; len]));
    }
    ops.push(Op::Put { key: vec![7; 3000], value: vec![9; 100], expiry: None });
    ops.push(Op::Delete { key: vec![7; 3000] });
    ops.push(Op::PowerCut);
    ops.push(put(1, vec![1; 12000]));
    ops.push(Op::Delete { key: key(1) });
    ops
}

/// Records of one size expire, are swept, and others reuse their space at once, with slots in other
/// lines than the swept ones.
fn sweeps(round: u64) -> Vec<Op> {
    let mut ops = Vec::new();
    for part in 0..4u64 {
        let first = round * 1000 + part * 100;
        let expiring =
            |index: u64, at: u64| Op::Put { key: key(index), value: vec![index as u8; 30], expiry: Some(at) };
        ops.extend((first..first + 6).map(|index| expiring(index, PAST_MILLIS)));
        ops.push(Op::Sweep);
        ops.extend((first + 50..first + 58).map(|index| expiring(index, future())));
    }
    ops
}

/// A few writes, then all background work at once: in an engine with tables a flush each time, so
/// that many crashes hit the manifest's change.
fn settled_again_and_again(round: u64) -> Vec<Op> {
    let mut ops = Vec::new();
    for part in 0..32u64 {
        let first = round * 1000 + part % 4 * 3;
        ops.extend((first..first + 3).map(|index| put(index, vec![part as u8; 20])));
        ops.push(Op::Sweep);
    }
    ops
}

fn expiry() -> Vec<Op> {
    let expiring = |index: u64, at: u64| Op::Put { key: key(index), value: vec![3; 30], expiry: Some(at) };
    vec![
        expiring(0, future()),
        expiring(1, PAST_MILLIS),
        Op::Get { key: key(1) },
        Op::Insert { key: key(1), value: vec![1; 9], lifetime: Lifetime::Forever },
        expiring(1, PAST_MILLIS),
        Op::Update { key: key(1), value: vec![2; 9], lifetime: Lifetime::Forever },
        Op::Delete { key: key(1) },
        put(0, vec![4; 30]),
        expiring(0, future()),
        Op::Append { key: key(0), bytes: vec![5; 5], lifetime: Lifetime::Keep },
        expiring(2, PAST_MILLIS),
        expiring(4, PAST_MILLIS),
        put(5, vec![8; 30]),
        Op::Sweep,
        put(6, vec![9; 30]),
        // Records of one size: space freed by a sweep is reused at once.
        expiring(11, PAST_MILLIS),
        expiring(16, PAST_MILLIS),
        Op::Sweep,
        expiring(21, future()),
        expiring(26, future()),
        expiring(31, future()),
        expiring(36, future()),
        expiring(2, PAST_MILLIS),
        Op::Kill,
        Op::Swap { key: key(2), expected: None, new: Some(vec![6; 6]), lifetime: Lifetime::Forever },
        expiring(3, PAST_MILLIS),
        Op::Sweep,
        Op::Reopen,
        Op::Append { key: key(3), bytes: vec![7; 7], lifetime: Lifetime::Keep },
        expiring(3, future()),
        Op::Delete { key: key(3) },
    ]
    .into_iter()
    .chain(lifetimes())
    .collect()
}

/// Writes with each lifetime over keys that expire, have expired, are absent, or do not expire.
fn lifetimes() -> Vec<Op> {
    let until = Lifetime::Until(Expiry::at_millis(future()));
    let mut ops = Vec::new();
    for (round, lifetime) in [Lifetime::Keep, until, Lifetime::Forever].into_iter().enumerate() {
        for (index, before) in (7..10).zip([Some(Some(future())), Some(Some(PAST_MILLIS)), Some(None)]) {
            let before = |value: u8| before.map(|expiry| Op::Put { key: key(index), value: vec![value; 12], expiry });
            ops.extend(before(1));
            ops.push(Op::Update { key: key(index), value: vec![2; 20], lifetime });
            ops.extend(before(3));
            ops.push(Op::Swap { key: key(index), expected: Some(vec![3; 12]), new: Some(vec![4; 12]), lifetime });
            ops.extend(before(5));
            ops.push(Op::Append { key: key(index), bytes: vec![6; 7], lifetime });
            ops.push(Op::Append { key: key(index), bytes: vec![7; 4], lifetime });
            ops.push(Op::Delete { key: key(index) });
            ops.push(Op::Insert { key: key(index), value: vec![8; 12], lifetime });
        }
        ops.push([Op::Kill, Op::PowerCut, Op::Reopen][round].clone());
    }
    ops
}

/// The next process sees unflushed stores of a killed one, and may build on them; then power fails.
/// Most are words of freed extents, here far from those allocated later, which would flush the
/// line.
fn kills() -> Vec<Op> {
    let large = |index: u64| put(index, vec![index as u8; 3000]);
    let mut ops: Vec<Op> = (20..27).map(large).collect();
    ops.push(Op::Delete { key: key(20) });
    for index in 0..6 {
        ops.extend([large(index), Op::Delete { key: key(index) }]);
        // The first recovery frees the deleted record's extent, the second finds it free.
        ops.extend([Op::Kill, Op::Kill]);
        ops.push(if index % 2 == 0 { Op::Reopen } else { Op::PowerCut });
        ops.push(put(index + 12, vec![index as u8; 40]));
    }
    ops
}

fn stops() -> Vec<Op> {
    let mut ops = vec![Op::Reopen, Op::Reopen, Op::Kill, Op::PowerCut];
    for index in 0..8 {
        ops.push(put(index, vec![index as u8; 20]));
        ops.push(Op::Reopen);
        ops.push(put(index, vec![index as u8; 21]));
        ops.push([Op::Kill, Op::PowerCut, Op::Reopen][index as usize % 3].clone());
        if index % 2 == 1 {
            ops.push(Op::Delete { key: key(index - 1) });
        }
    }
    ops
}
