//! Copies of a whole store ([`Store::copy_all`]), also during writes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::data::key;
use super::expiring::{FAR, PAST};
use super::threads::EndsOnDrop;
use super::{Case, Harness, Pairs, assert_sees, assert_sound};
use crate::copy::CopySink;
use crate::{Batch, BatchOp, Error, Expiry, Pair, Result, Store};

/// Keys that each writer writes in rotation.
const WRITER_KEYS: u64 = 24;
/// Copies made during concurrent writes.
const COPY_COUNT: usize = 6;
/// Calls of a sink between two pauses.
const YIELD_INTERVAL: usize = 64;
/// Keys written together, by batches.
const ACCOUNT_COUNT: usize = 12;

/// A value with its expiry.
type StoredValue = (Vec<u8>, Option<Expiry>);

/// A copy in memory.
#[derive(Default)]
struct CopyInMemory {
    pairs: BTreeMap<Vec<u8>, StoredValue>,
    /// Calls after which the sink fails; `None`: never.
    fails_after: Option<usize>,
    calls: usize,
}

impl CopyInMemory {
    fn count_call(&mut self) -> Result<()> {
        self.calls += 1;
        if self.calls.is_multiple_of(YIELD_INTERVAL) {
            // Lets writers get ahead of the copy.
            thread::yield_now();
        }
        match self.fails_after {
            Some(max) if self.calls > max => Err(Error::corrupt("the sink", "the test fails it")),
            _ => Ok(()),
        }
    }

    fn value(&self, key: &[u8]) -> Option<&[u8]> {
        self.pairs.get(key).map(|(value, _)| &value[..])
    }
}

impl CopySink for CopyInMemory {
    fn add(&mut self, pair: Pair<'_>) -> Result<()> {
        self.count_call()?;
        let old = self.pairs.insert(pair.key.to_vec(), (pair.value.to_vec(), pair.expiry));
        assert!(old.is_none(), "the copy has {} already", pair.key.escape_ascii());
        Ok(())
    }

    fn put(&mut self, pair: Pair<'_>) -> Result<()> {
        self.count_call()?;
        self.pairs.insert(pair.key.to_vec(), (pair.value.to_vec(), pair.expiry));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.count_call()?;
        self.pairs.remove(key);
        Ok(())
    }
}

/// Copies a store. Returns `None` if the engine reports that it makes no copies.
fn copy<S: Store>(store: &S) -> Option<CopyInMemory> {
    let mut copied = CopyInMemory::default();
    match store.copy_all(&mut copied) {
        Ok(()) => Some(copied),
        Err(Error::Unsupported { engine, .. }) => {
            assert_eq!(engine, store.engine());
            assert!(copied.pairs.is_empty(), "a refused copy has pairs");
            None
        }
        Err(error) => panic!("copy_all: {error}"),
    }
}

/// A copy holds every live pair with its expiry, and no expired or deleted pair.
pub fn a_copy_holds_every_live_pair<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let Some(empty) = copy(&store) else { return };
    assert!(empty.pairs.is_empty(), "a copy of an empty store");
    let (long, mut expected) = (vec![7; 5000], BTreeMap::new());
    for i in 0..case.plan.keys {
        let expiry =
            if store.capabilities().expiry { [None, Some(FAR[0]), Some(PAST), Some(FAR[1])][i % 4] } else { None };
        let value: &[u8] = if i.is_multiple_of(7) { &long } else { b"value" };
        store.put_expiring(&key("copied", i), value, expiry).expect("put_expiring");
        if i.is_multiple_of(5) {
            store.delete(&key("copied", i)).expect("delete");
        } else if expiry != Some(PAST) {
            expected.insert(key("copied", i), (value.to_vec(), expiry));
        }
    }
    let copied = copy(&store).expect("a copy");
    let missing = expected.iter().find(|(key, held)| copied.pairs.get(*key) != Some(held));
    assert!(missing.is_none(), "the copy lacks or changes {missing:?}");
    assert_eq!(copied.pairs.len(), expected.len(), "the copy has what the store has not");
    assert_sees(&store, &expected.into_iter().map(|(key, (value, _))| (key, value)).collect::<Pairs>());
    assert_sound(&store);
}

/// Returns the key and the value of a writer's step; no value for a delete.
fn step_of(writer: usize, step: u64) -> (Vec<u8>, Option<Vec<u8>>) {
    let name = key(&format!("writer-{writer}-"), (step % WRITER_KEYS) as usize);
    let len = 8 + (step % 90) as usize;
    let mut value = step.to_le_bytes().to_vec();
    value.resize(len, 1);
    (name, (!step.is_multiple_of(5)).then_some(value))
}

/// Asserts that a copy shows a writer's keys as of the end of one of its steps from `first` to
/// `last`. Steps count from 1.
fn assert_is_prefix(copied: &CopyInMemory, writer: usize, first: u64, last: u64) {
    let matches = |step: u64| {
        let (name, value) = step_of(writer, step);
        copied.value(&name) == value.as_deref()
    };
    let is_absent = |at: u64| copied.value(&key(&format!("writer-{writer}-"), at as usize)).is_none();
    // For each key: whether the copy has the state that the key's last step left.
    let mut right: Vec<bool> = (0..WRITER_KEYS).map(is_absent).collect();
    let mut wrong = right.iter().filter(|right| !**right).count();
    // Earlier steps were overwritten.
    for step in first.saturating_sub(WRITER_KEYS).max(1)..=last {
        let at = (step % WRITER_KEYS) as usize;
        let is_right = matches(step);
        wrong = wrong + usize::from(!is_right) - usize::from(!right[at]);
        right[at] = is_right;
        if step >= first && wrong == 0 {
            return;
        }
    }
    panic!("the copy is no state of writer {writer} between its steps {first} and {last}");
}

/// Copies made during puts and deletes are of one moment: each thread's keys are in a state between
/// two of its writes. Deleted keys do not reappear.
pub fn a_copy_under_writers_is_of_one_moment<H: Harness>(case: &Case<H>) {
    let store = case.create();
    if copy(&store).is_none() {
        return;
    }
    for i in 0..case.plan.keys {
        store.put(&key("still", i), b"still").expect("put");
    }
    let (writers, stop) = (case.plan.threads, AtomicBool::new(false));
    let begun: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
    let done: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
    let write = |writer: usize| {
        for step in 1.. {
            let (name, value) = step_of(writer, step);
            begun[writer].store(step, Ordering::SeqCst);
            match value {
                Some(value) => store.put(&name, &value).expect("put"),
                None => drop(store.delete(&name).expect("delete")),
            }
            done[writer].store(step, Ordering::SeqCst);
            if stop.load(Ordering::Acquire) {
                break;
            }
        }
    };
    thread::scope(|scope| {
        let ends = EndsOnDrop(&stop);
        for writer in 0..writers {
            let write = &write;
            scope.spawn(move || write(writer));
        }
        while done.iter().any(|done| done.load(Ordering::SeqCst) == 0) {
            thread::yield_now();
        }
        for _ in 0..COPY_COUNT {
            let before: Vec<u64> = done.iter().map(|done| done.load(Ordering::SeqCst)).collect();
            let copied = copy(&store).expect("a copy");
            for (writer, before) in before.into_iter().enumerate() {
                assert_is_prefix(&copied, writer, before, begun[writer].load(Ordering::SeqCst));
            }
            let still = (0..case.plan.keys).filter(|i| copied.value(&key("still", *i)) == Some(b"still")).count();
            assert_eq!(still, case.plan.keys, "keys that nobody writes");
        }
        drop(ends);
    });
    assert_sound(&store);
}

/// A copy has a batch completely or not at all.
pub fn a_copy_has_batches_whole<H: Harness>(case: &Case<H>) {
    let store = case.create();
    if copy(&store).is_none() || !store.capabilities().batch {
        return;
    }
    let batch = |round: u64| {
        let put = |i| BatchOp::Put { key: key("account", i), value: round.to_le_bytes().to_vec(), expiry: None };
        let delete = |i| BatchOp::Delete { key: key("account", i) };
        // An even round writes the even accounts, an odd round the odd accounts.
        let op = |i: usize| if i as u64 % 2 == round % 2 { put(i) } else { delete(i) };
        Batch { ops: (0..ACCOUNT_COUNT).map(op).collect() }
    };
    store.write(&batch(0)).expect("write");
    for i in 0..case.plan.keys {
        store.put(&key("still", i), b"still").expect("put");
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends = EndsOnDrop(&stop);
        scope.spawn(|| {
            for round in 1.. {
                store.write(&batch(round)).expect("write");
                if stop.load(Ordering::Acquire) {
                    break;
                }
            }
        });
        for _ in 0..COPY_COUNT {
            let copied = copy(&store).expect("a copy");
            let seen: Vec<_> = (0..ACCOUNT_COUNT).map(|i| copied.value(&key("account", i))).collect();
            let value = seen.iter().flatten().next().expect("every round leaves accounts");
            let round = u64::from_le_bytes((*value).try_into().expect("8 bytes"));
            let expected = |i: usize| (i as u64 % 2 == round % 2).then_some(*value);
            assert_eq!(seen, (0..ACCOUNT_COUNT).map(expected).collect::<Vec<_>>(), "of round {round}");
        }
        drop(ends);
    });
    assert_sound(&store);
}

/// A sink's error ends the copy and is returned. The store continues, and can be copied again.
pub fn a_failing_sink_ends_the_copy<H: Harness>(case: &Case<H>) {
    let store = case.create();
    if copy(&store).is_none() {
        return;
    }
    let mut pairs = Pairs::new();
    for i in 0..100 {
        store.put(&key("kept", i), b"value").expect("put");
        pairs.insert(key("kept", i), b"value".to_vec());
    }
    for fails_after in [0, 1, 50] {
        let mut failing = CopyInMemory { fails_after: Some(fails_after), ..CopyInMemory::default() };
        let refused = store.copy_all(&mut failing);
        assert!(matches!(&refused, Err(Error::Corrupt { place, .. }) if place == "the sink"), "{refused:?}");
        assert_eq!(failing.calls, fails_after + 1, "nothing is shown after the error");
        store.put(&key("kept", 0), b"value").expect("put");
        store.delete(b"absent").expect("delete");
    }
    let copied = copy(&store).expect("a copy");
    assert_eq!(copied.pairs.into_iter().map(|(key, (value, _))| (key, value)).collect::<Pairs>(), pairs);
    assert_sound(&store);
}
