//! The work of a child's threads: endless streams of operations, each acknowledged in a file next
//! to the store.

use std::fs::{File, OpenOptions as FileOptions};
use std::os::unix::fs::FileExt;
use std::thread;

use lodestore::store::{Batch, BatchOp, Change, Handle, Swap};
use lodestore::{Expiry, Lifetime};
use lodestore_media::sim::Rng;

use super::changes::change;
use super::losses::Opened;
use super::{COUNTER, OPEN_SLOT_INDEX, Plan, SLOT_BYTES, acks_path, number};
use crate::op::{Op, Outcome, append_lifetime};

/// One in this many operations increments the counter.
const COUNT_DIVISOR: u64 = 16;
/// One in this many operations is a batch, if the engine has batches.
const BATCH_DIVISOR: u64 = 8;
/// Maximum operations of a batch.
const BATCH_OPS: u64 = 20;
/// An expiry that no test reaches.
const FAR_MILLIS: u64 = 1 << 52;

/// A step of a thread's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Count,
    Do(Op),
}

/// The operations of one thread in one round.
pub(super) struct Stream {
    rng: Rng,
    thread: u64,
    keys: u64,
    batches: bool,
}

impl Stream {
    pub(super) fn new(plan: &Plan, store: &Handle, round: u64, thread: u64) -> Self {
        let rng = Rng::part(plan.seed ^ round.rotate_left(20), thread);
        Self { rng, thread, keys: plan.keys, batches: store.capabilities().batch }
    }

    fn key(&mut self) -> Vec<u8> {
        thread_key(self.thread, self.rng.below(self.keys))
    }

    /// Returns a batch over keys of the thread, which may repeat.
    fn batch(&mut self) -> Batch {
        let ops = 1 + self.rng.below(BATCH_OPS);
        let op = |_| match self.rng.below(4) {
            0 => BatchOp::Delete { key: self.key() },
            1 => BatchOp::Put { key: self.key(), value: self.value(), expiry: Some(Expiry::at_millis(FAR_MILLIS)) },
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

    fn lifetime(&mut self) -> Lifetime {
        match self.rng.below(4) {
            0 => Lifetime::Forever,
            1 => Lifetime::Until(Expiry::at_millis(FAR_MILLIS)),
            _ => Lifetime::Keep,
        }
    }

    pub(super) fn next(&mut self) -> Step {
        if self.rng.one_in(COUNT_DIVISOR) {
            return Step::Count;
        }
        if self.batches && self.rng.one_in(BATCH_DIVISOR) {
            return Step::Do(Op::Batch { batch: self.batch() });
        }
        let key = self.key();
        Step::Do(match self.rng.below(12) {
            0..=3 => Op::Put { key, value: self.value(), expiry: None },
            4 => Op::Put { key, value: self.value(), expiry: Some(FAR_MILLIS) },
            5 => Op::Insert { key, value: self.value(), lifetime: self.lifetime() },
            6..=7 => Op::Update { key, value: self.value(), lifetime: self.lifetime() },
            8..=9 => Op::Delete { key },
            10 => Op::Swap { key, expected: None, new: Some(self.value()), lifetime: self.lifetime() },
            _ => Op::Append { key, bytes: vec![b'+'; 1 + self.rng.index(9)], lifetime: self.lifetime() },
        })
    }
}

pub(super) fn thread_key(thread: u64, index: u64) -> Vec<u8> {
    let tail = "x".repeat((index % 23) as usize);
    format!("thread {thread} key {index:06}{tail}").into_bytes()
}

/// Runs the child: opens the store and works until it is killed.
///
/// # Errors
///
/// Any error that ends the work before the kill.
pub fn child(plan: &Plan, round: u64) -> Result<(), String> {
    let acks = FileOptions::new().write(true).open(acks_path(plan)).map_err(|error| format!("acks: {error}"))?;
    let opened = Opened::of(plan).map_err(|error| format!("open in the child: {error}"))?;
    acknowledge(&acks, OPEN_SLOT_INDEX, 1)?;
    thread::scope(|scope| {
        let workers = (0..plan.threads).map(|thread| {
            let (store, acks) = (&opened.store, &acks);
            scope.spawn(move || work(plan, store, acks, round, thread))
        });
        let changed = opened.matrix.as_ref().filter(|_| plan.change);
        let changes = changed.map(|matrix| scope.spawn(move || change(plan, matrix, round)));
        workers
            .chain(changes)
            .collect::<Vec<_>>()
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| "a thread of the child panicked".to_string())?)
    })
}

fn acknowledge(acks: &File, slot: u64, count: u64) -> Result<(), String> {
    acks.write_all_at(&count.to_le_bytes(), slot * SLOT_BYTES).map_err(|error| format!("acks: {error}"))
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
            store.update_with(COUNTER, &mut |value, _| {
                Change::Put((number(value.unwrap_or_default()) + 1).to_le_bytes().to_vec(), Lifetime::Forever)
            })?;
            Outcome::Done
        }
        Step::Do(Op::Put { key, value, expiry }) => {
            store.put_expiring(key, value, expiry.map(Expiry::at_millis))?;
            Outcome::Done
        }
        Step::Do(Op::Insert { key, value, lifetime }) => Outcome::Changed(store.insert(key, value, *lifetime)?),
        Step::Do(Op::Update { key, value, lifetime }) => Outcome::Changed(store.update(key, value, *lifetime)?),
        Step::Do(Op::Delete { key }) => Outcome::Changed(store.delete(key)?),
        Step::Do(Op::Swap { key, expected, new, lifetime }) => {
            match store.compare_and_swap(key, expected.as_deref(), new.as_deref(), *lifetime)? {
                Swap::Done => Outcome::Changed(true),
                Swap::Differs(there) => Outcome::Value(there),
            }
        }
        Step::Do(Op::Append { key, bytes, lifetime }) => {
            store.update_with(key, &mut |value, expiry| {
                let mut value = value.unwrap_or_default().to_vec();
                value.extend_from_slice(bytes);
                Change::Put(value, append_lifetime(bytes, *lifetime, expiry))
            })?;
            Outcome::Done
        }
        Step::Do(Op::Batch { batch }) => {
            store.write(batch)?;
            Outcome::Done
        }
        Step::Do(Op::WriteIf { conditions, ranges, batch }) => {
            Outcome::Changed(store.write_if_ranges(conditions, ranges, batch)?.is_done())
        }
        Step::Do(_) => Outcome::Done,
    })
}
