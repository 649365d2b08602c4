//! Histories of transactions over several keyspaces, checked for strict serializability.
//!
//! Threads run `Db::transaction` with reads of keys, reads of ranges, writes, deletes and expiries,
//! and single operations between them. A committed transaction is one step of the history
//! ([`Action::WriteIf`]): at one moment all its reads are true and all its writes happen. The
//! moment is between the start of its last attempt and its return. An aborted transaction is a
//! step that only reads. A transaction that was given up after conflicts is no step.
//!
//! An expiry that passes during the history is a removal that may happen at any moment after the
//! start of its write, or never. When all threads have ended and all these expiries have passed,
//! each key is read once more, and none of the expired values may be shown.

mod attempt;
mod plan;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lodestore::db::testing;
use lodestore::{Db, Keyspace};
use lodestore_contract::{Error, Expiry, Lifetime, Result};
use lodestore_media::sim::Rng;

use crate::concurrent::{key_bytes, value_bytes, value_number};
use crate::config::Config;
use crate::history::{self, Action, Answer, Call, KeyOp, Value};
use crate::oracle::{Oracle, Wrong, judged};
use crate::shape::Shape;
use crate::subject::Engine;
use attempt::Attempt;
use plan::{Plan, random_plan};

/// The named keyspaces. The default keyspace is used as well.
const NAMES: [&str; 2] = ["accounts", "bookings"];
/// Keys of each keyspace, with the same names in all of them.
const MAP_KEYS: u64 = 2;
/// Keys of all keyspaces.
pub const KEYS: u64 = (NAMES.len() as u64 + 1) * MAP_KEYS;

/// One in this many stores lets another thread run. Each makes a history longer on a busy machine.
const YIELD_DIVISOR: u32 = 16;

/// The size of a history. Its steps and its expiries are at most [`history::OPS_MAX`].
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Threads.
    pub threads: u64,
    /// Transactions and single operations of each thread.
    pub ops: u64,
}

/// Counts of one or more histories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Transactions that were committed.
    pub committed: u64,
    /// Transactions that were aborted by their closure.
    pub aborted: u64,
    /// Attempts that were repeated after a conflict.
    pub repeated: u64,
    /// Transactions given up after conflicts, or refused by a full store.
    pub given_up: u64,
    /// Range reads of committed transactions.
    pub ranges: u64,
    /// Operations outside of transactions.
    pub single: u64,
    /// Values with an expiry that passed before the end.
    pub expired: u64,
}

impl Counts {
    /// Adds the counts of another history.
    pub fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.aborted += other.aborted;
        self.repeated += other.repeated;
        self.given_up += other.given_up;
        self.ranges += other.ranges;
        self.single += other.single;
        self.expired += other.expired;
    }
}

/// The keyspaces of a store.
struct Maps {
    db: Db,
    named: Vec<Keyspace>,
}

/// A keyspace by the number of one of its keys.
enum AnyMap<'a> {
    Default(&'a Db),
    Named(&'a Keyspace),
}

impl Maps {
    fn open(db: Db) -> Result<Self> {
        let named = NAMES.iter().map(|name| db.keyspace(name)).collect::<Result<_>>()?;
        Ok(Self { db, named })
    }

    /// Returns the keyspace of a key, and the name of the key in it.
    fn find(&self, key: u64) -> (AnyMap<'_>, Vec<u8>) {
        let map = match (key / MAP_KEYS).checked_sub(1) {
            None => AnyMap::Default(&self.db),
            Some(index) => AnyMap::Named(&self.named[index as usize]),
        };
        (map, key_bytes(key % MAP_KEYS))
    }

    fn get(&self, key: u64) -> Result<Option<Value>> {
        let value = match self.find(key) {
            (AnyMap::Default(db), key) => db.get(key)?,
            (AnyMap::Named(keyspace), key) => keyspace.get(key)?,
        };
        Ok(value.map(|bytes| value_number(&bytes)))
    }

    /// Applies an operation outside of transactions.
    fn apply(&self, key: u64, op: KeyOp) -> Result<Answer> {
        let (map, name) = self.find(key);
        let keyspace = match map {
            AnyMap::Default(db) => db.as_store(),
            AnyMap::Named(keyspace) => keyspace.as_store(),
        };
        match op {
            KeyOp::Put(value) => keyspace.put(&name, &value_bytes(value)).map(|()| Answer::Done),
            KeyOp::Insert(value) => keyspace.insert(&name, &value_bytes(value), Lifetime::Forever).map(Answer::Changed),
            KeyOp::Delete => keyspace.delete(&name).map(Answer::Changed),
            _ => self.get(key).map(Answer::Value),
        }
    }
}

/// The steps of one thread.
#[derive(Default)]
struct Record {
    history: Vec<Call>,
    counts: Counts,
    /// Values with an expiry that passes soon, by their keys.
    expiring: Vec<(u64, Value)>,
    /// The last of these expiries.
    last_expiry: Option<Expiry>,
}

impl Record {
    /// Adds the steps of a transaction that returned.
    fn add_transaction(&mut self, attempt: &Attempt, action: Action, returned: u64) {
        let called = attempt.called;
        self.history.push(Call { action, called, returned: Some((returned, Answer::Changed(true))) });
        for (key, value, expiry) in attempt.expiring() {
            let removal = Action::One(key, KeyOp::Swap(Some(value), None));
            self.history.push(Call { action: removal, called, returned: None });
            self.expiring.push((key, value));
            self.last_expiry = self.last_expiry.max(Some(expiry));
            self.counts.expired += 1;
        }
    }

    fn merge(&mut self, other: Self) {
        self.history.extend(other.history);
        self.counts.add(&other.counts);
        self.expiring.extend(other.expiring);
        self.last_expiry = self.last_expiry.max(other.last_expiry);
    }
}

/// The store of a history.
struct Run<'a> {
    maps: &'a Maps,
    clock: AtomicU64,
    has_ranges: bool,
}

impl Run<'_> {
    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Runs the operations of one thread.
    fn run_thread(&self, load: Load, seed: u64, thread: u64) -> std::result::Result<Record, Wrong> {
        let mut rng = Rng::part(seed, thread);
        let mut record = Record::default();
        for step in 0..load.ops {
            let value = thread * load.ops + step + 1;
            match random_plan(&mut rng, value, self.has_ranges) {
                Plan::Single(key, op) => self.run_single(&mut record, key, op)?,
                Plan::Transaction(steps) => self.run_transaction(&mut record, &steps, value)?,
            }
        }
        Ok(record)
    }

    fn run_single(&self, record: &mut Record, key: u64, op: KeyOp) -> std::result::Result<(), Wrong> {
        let called = self.tick();
        let answer = judged(Oracle::History, || match self.maps.apply(key, op) {
            Err(Error::Full { .. }) => Ok(None),
            answer => answer.map(Some),
        })?;
        let returned = self.tick();
        if let Some(answer) = answer {
            record.history.push(Call { action: Action::One(key, op), called, returned: Some((returned, answer)) });
            record.counts.single += 1;
        }
        Ok(())
    }

    /// Runs a transaction until it is committed, aborted or given up, and records its last attempt.
    fn run_transaction(
        &self,
        record: &mut Record,
        steps: &[plan::Step],
        value: Value,
    ) -> std::result::Result<(), Wrong> {
        let (mut attempts, mut last) = (0, Attempt::begin(0));
        let ended = judged(Oracle::History, || {
            let ended = self.maps.db.transaction(|tx| {
                attempts += 1;
                last = Attempt::begin(self.tick());
                steps.iter().try_for_each(|step| last.run_step(tx, self.maps, step, value))
            });
            match ended {
                Err(Error::Conflict { .. } | Error::Full { .. }) => Ok(None),
                Err(Error::Aborted { .. }) => Ok(Some(false)),
                ended => ended.map(|()| Some(true)),
            }
        })?;
        let returned = self.tick();
        let counts = &mut record.counts;
        counts.repeated += attempts - 1;
        let Some(is_committed) = ended else {
            counts.given_up += 1;
            return Ok(());
        };
        if let Some(fault) = &last.fault {
            return Err(Wrong::new(Oracle::History, format!("a transaction ended although {fault}: {last:?}")));
        }
        if !is_committed {
            counts.aborted += 1;
            let action = Action::Are(last.reads());
            record.history.push(Call {
                action,
                called: last.called,
                returned: Some((returned, Answer::Changed(true))),
            });
            return Ok(());
        }
        counts.committed += 1;
        counts.ranges += last.ranges;
        let action = Action::WriteIf { expected: last.reads(), values: last.writes(), is_range: false };
        record.add_transaction(&last, action, returned);
        Ok(())
    }

    /// Waits until all expiries have passed, and reads each key.
    fn read_all(&self, record: &Record) -> std::result::Result<Call, Wrong> {
        while record.last_expiry.is_some_and(|expiry| !expiry.is_past()) {
            thread::sleep(Duration::from_millis(1));
        }
        let called = self.tick();
        let read = |key| judged(Oracle::History, || self.maps.get(key)).map(|value| (key, value));
        let found = (0..KEYS).map(read).collect::<std::result::Result<Vec<_>, _>>()?;
        let expired =
            found.iter().find(|(key, value)| value.is_some_and(|value| record.expiring.contains(&(*key, value))));
        if let Some((key, value)) = expired {
            return Err(Wrong::new(Oracle::History, format!("key {key} has {value:?}, which has expired")));
        }
        Ok(Call { action: Action::Are(found), called, returned: Some((self.tick(), Answer::Changed(true))) })
    }
}

/// Runs threads with transactions on a new store of `engine`, and checks their history.
///
/// # Errors
/// [`Oracle::History`] if no order of the transactions explains all answers.
pub fn check(engine: &dyn Engine, config: &Config, load: Load) -> std::result::Result<Counts, Wrong> {
    let subject = judged(Oracle::Live, || engine.create(&config.spec(false), &Shape::default()))?;
    subject.recorder().set_jitter(YIELD_DIVISOR);
    let store = subject.store().ok_or_else(|| Wrong::new(Oracle::Live, format!("{} shows no store", engine.name())))?;
    let has_ranges = store.capabilities().range_conditions;
    let maps = judged(Oracle::Live, || Maps::open(testing::open_stepped(store, None)))?;
    let run = Run { maps: &maps, clock: AtomicU64::new(0), has_ranges };
    let mut record = run_threads(&run, load, config.seed)?;
    let found = run.read_all(&record)?;
    record.history.push(found);
    history::check(&record.history, &BTreeMap::new()).map_err(|what| Wrong::new(Oracle::History, what))?;
    let wrong = judged(Oracle::Live, || subject.verify())?;
    if wrong.is_empty() { Ok(record.counts) } else { Err(Wrong::new(Oracle::Live, wrong.join("; "))) }
}

/// Runs all threads, and returns their records.
fn run_threads(run: &Run<'_>, load: Load, seed: u64) -> std::result::Result<Record, Wrong> {
    let start = Barrier::new(load.threads as usize);
    let records = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for thread in 0..load.threads {
            let (start, records) = (&start, &records);
            scope.spawn(move || {
                start.wait();
                let record = run.run_thread(load, seed, thread);
                records.lock().unwrap_or_else(PoisonError::into_inner).push(record);
            });
        }
    });
    let mut all = Record::default();
    for record in records.into_inner().unwrap_or_else(PoisonError::into_inner) {
        all.merge(record?);
    }
    Ok(all)
}
