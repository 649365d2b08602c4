//! Atomic batches if the engine supports them; otherwise their refusal.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::data::{key, mixed_len, version_of, versioned};
use super::expiring::{FAR, PAST};
use super::threads::EndsOnDrop;
use super::{Case, Harness, Pairs, Rng, Stop, assert_holds, assert_sees, assert_sound};
use crate::limits::{BATCH_OPS_MAX, KEY_MAX, VALUE_MAX};
use crate::{Batch, BatchOp, Error, Expiry, Store};

fn put(key: &[u8], value: &[u8]) -> BatchOp {
    BatchOp::Put { key: key.to_vec(), value: value.to_vec(), expiry: None }
}

fn delete(key: &[u8]) -> BatchOp {
    BatchOp::Delete { key: key.to_vec() }
}

/// Creates a store for these behaviours. Returns `None`, after checking the refusal, if the engine
/// has no batches.
fn create<H: Harness>(case: &Case<H>, capacity: u64) -> Option<H::S> {
    let store = case.create_sized(capacity);
    if store.capabilities().batch {
        return Some(store);
    }
    let refused = store.write(&Batch { ops: vec![put(b"b", b"1")] });
    let Err(Error::Unsupported { engine, .. }) = refused else { panic!("no such capability, but {refused:?}") };
    assert_eq!(engine, store.engine());
    assert_holds(&store, &Pairs::new());
    None
}

/// A batch is written whole and in order, or refused with nothing changed.
pub fn batches_are_all_or_nothing<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case, case.plan.capacity) else { return };
    store.put(b"a", b"0").expect("put");
    store.write(&Batch::default()).expect("a batch of nothing");
    assert_holds(&store, &Pairs::from([(b"a".to_vec(), b"0".to_vec())]));
    let ops = vec![delete(b"a"), put(b"b", b"1"), put(b"c", b"2"), put(b"b", b"3"), delete(b"c"), delete(b"never")];
    store.write(&Batch { ops }).expect("write");
    let mut pairs = Pairs::from([(b"b".to_vec(), b"3".to_vec())]);
    assert_holds(&store, &pairs);
    store.write(&Batch { ops: vec![delete(b"b"), put(b"b", b"4"), delete(b"none")] }).expect("write");
    pairs.insert(b"b".to_vec(), b"4".to_vec());
    assert_holds(&store, &pairs);
    for bad in [put(b"", b"v"), put(&vec![1; KEY_MAX + 1], b"v"), delete(b"")] {
        let refused = store.write(&Batch { ops: vec![put(b"d", b"4"), delete(b"b"), bad, put(b"e", b"5")] });
        assert!(matches!(refused, Err(Error::KeyLength { .. })), "{refused:?}");
        assert_holds(&store, &pairs);
    }
    let many: Vec<BatchOp> = (0..case.plan.keys / 4).map(|i| put(&key("batch", i), b"many")).collect();
    store.write(&Batch { ops: many }).expect("write many");
    pairs.extend((0..case.plan.keys / 4).map(|i| (key("batch", i), b"many".to_vec())));
    assert_holds(&store, &pairs);
    let store = case.reopen(store, Stop::Crash);
    assert_holds(&store, &pairs);
    assert_sound(&store);
}

/// Returns a random batch operation and applies it to `model`. Operations have expiries if
/// `expires`.
fn random_op(rng: &mut Rng, version: u64, expires: bool, model: &mut Pairs) -> BatchOp {
    let name = key("op", rng.below(120));
    if rng.below(3) == 0 {
        model.remove(&name);
        return BatchOp::Delete { key: name };
    }
    let value = versioned(&name, version, mixed_len(rng) / 4);
    let expiry = if expires { *rng.pick(&[None, None, None, Some(PAST), Some(FAR[0])]) } else { None };
    if expiry.is_some_and(Expiry::is_past) {
        model.remove(&name);
    } else {
        model.insert(name.clone(), value.clone());
    }
    BatchOp::Put { key: name, value, expiry }
}

/// Random batches mixed with single writes match the model, also through both kinds of stops. The
/// keys are few, so many are written repeatedly.
pub fn batches_follow_the_model<H: Harness>(case: &Case<H>) {
    let Some(mut store) = create(case, case.plan.capacity) else { return };
    let expires = store.capabilities().expiry;
    let mut rng = case.rng(300);
    let mut model = Pairs::new();
    for round in 0..case.plan.model_ops as u64 {
        let len = *rng.pick(&[1, 2, 3, 8, 40, 150]);
        let mut expected = BTreeMap::new();
        let ops: Vec<BatchOp> = (0..len).map(|_| random_op(&mut rng, round, expires, &mut model)).collect();
        for op in &ops {
            match op {
                BatchOp::Put { key, expiry, .. } => expected.insert(key.clone(), *expiry),
                BatchOp::Delete { key } => expected.remove(key),
            };
        }
        store.write(&Batch { ops }).expect("write");
        for (name, expiry) in expected.into_iter().filter(|(name, _)| model.contains_key(name)) {
            assert_eq!(store.expiry(&name).expect("expiry"), Some(expiry), "the expiry that a batch gave");
        }
        let name = key("op", rng.below(120));
        if rng.below(2) == 0 {
            store.put(&name, b"single").expect("put");
            model.insert(name, b"single".to_vec());
        } else {
            assert_eq!(store.delete(&name).expect("delete"), model.remove(&name).is_some(), "delete behind a batch");
        }
        assert_sees(&store, &model);
        if round % 16 == 15 {
            store = case.reopen(store, if round % 32 == 15 { Stop::Crash } else { Stop::Clean });
            assert_sees(&store, &model);
            assert_sound(&store);
        }
    }
    assert_sound(&store);
}

/// A batch with the maximum number of operations is accepted. A further operation, or an oversized
/// key or value at any position, is refused, and nothing is changed.
pub fn batches_beyond_the_limits_are_refused<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case, case.plan.capacity) else { return };
    let distinct = case.plan.keys;
    let mut ops: Vec<BatchOp> = (0..BATCH_OPS_MAX)
        .map(|i| if i % 5 == 4 { delete(&key("gone", i)) } else { put(&key("limit", i % distinct), b"v") })
        .collect();
    store.put(b"gone/before", b"v").expect("put");
    store.write(&Batch { ops: ops.clone() }).expect("as many as the limit");
    let mut pairs: Pairs = ops
        .iter()
        .filter_map(
            |op| if let BatchOp::Put { key, value, .. } = op { Some((key.clone(), value.clone())) } else { None },
        )
        .collect();
    pairs.insert(b"gone/before".to_vec(), b"v".to_vec());
    assert_sees(&store, &pairs);
    ops.iter_mut().for_each(|op| *op = delete(b"gone/before"));
    ops.push(put(b"new", b"v"));
    let refused = store.write(&Batch { ops });
    assert!(matches!(refused, Err(Error::BatchLength { ops }) if ops == BATCH_OPS_MAX + 1), "{refused:?}");
    // Untouched zeroed memory uses no pages.
    let long = BatchOp::Put { key: b"long".to_vec(), value: vec![0; VALUE_MAX + 1], expiry: None };
    let refused = store.write(&Batch { ops: vec![delete(b"gone/before"), put(b"new", b"v"), long] });
    assert!(matches!(refused, Err(Error::ValueLength { len }) if len == VALUE_MAX + 1), "{refused:?}");
    assert_holds(&store, &pairs);
    assert_sound(&store);
}

/// A batch that does not fit is refused as full and changes nothing, not even the operations that
/// would fit. Once there is free space again, batches succeed.
pub fn a_batch_refused_as_full_changes_nothing<H: Harness>(case: &Case<H>) {
    let Some(mut store) = create(case, case.plan.capacity_small) else { return };
    let mut pairs = Pairs::new();
    for i in 0..40 {
        let (name, value) = (key("small", i), versioned(&key("small", i), 1, 100));
        store.put(&name, &value).expect("put");
        pairs.insert(name, value);
    }
    let mut refused = 0;
    let batch_bytes = case.plan.capacity_small as usize / 10;
    for round in 0..40u64 {
        let mut after = pairs.clone();
        let mut ops = vec![delete(&key("small", round as usize))];
        after.remove(&key("small", round as usize));
        for i in 0..3 {
            let name = key(&format!("large{round}"), i);
            let value = versioned(&name, round, batch_bytes / 3);
            ops.extend([put(&name, &value), put(&key("small", 39), &value[..50])]);
            after.insert(key("small", 39), value[..50].to_vec());
            after.insert(name, value);
        }
        match store.write(&Batch { ops }) {
            Ok(()) => pairs = after,
            Err(Error::Full { needed, capacity }) => {
                assert!(needed > 0 && capacity > 0, "needed {needed}, capacity {capacity}");
                refused += 1;
            }
            Err(error) => panic!("a batch for a store nearly full: {error}"),
        }
        if refused > 0 {
            assert_holds(&store, &pairs);
        }
        if refused == 3 {
            break;
        }
    }
    assert!(refused > 0, "a store of {} bytes took all", case.plan.capacity_small);
    assert_sound(&store);
    for how in [Stop::Crash, Stop::Clean] {
        store = case.reopen(store, how);
        assert_holds(&store, &pairs);
    }
    let deleted: Vec<_> = pairs.keys().filter(|name| name.starts_with(b"large")).cloned().collect();
    for name in &deleted {
        assert!(store.delete(name).expect("delete in a full store"), "present");
        pairs.remove(name);
    }
    store.write(&Batch { ops: vec![put(b"again", b"v"), delete(&key("small", 39))] }).expect("there is room again");
    pairs.insert(b"again".to_vec(), b"v".to_vec());
    pairs.remove(&key("small", 39));
    assert_holds(&store, &pairs);
    assert_sound(&store);
}

/// Returns the version of a key of a group, read in the given way.
fn version<S: Store>(store: &S, name: &[u8], many: bool) -> Option<u64> {
    let mut found = None;
    if many {
        store
            .multi_get(&[b"aside", name], &mut |at, value| {
                if at == 1 {
                    found = value.map(<[u8]>::to_vec);
                }
            })
            .expect("multi_get");
    } else {
        found = store.get(name).expect("get");
    }
    found.map(|value| version_of(name, &value).expect("a value of this key, whole"))
}

/// Keys of a group, written by one batch.
const GROUP_KEYS: usize = 6;

/// For each group, a thread writes batches of rising version to its keys, sometimes with deletes.
/// After a reader has seen one key, it sees no older version of another key. Single writes to other
/// keys run concurrently.
pub fn batches_are_seen_in_one_step<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case, case.plan.capacity) else { return };
    let rounds = case.plan.thread_ops as u64 / 4;
    let (groups, stop) = (case.plan.threads / 2, AtomicBool::new(false));
    let name = |group: usize, i: usize| key(&format!("group{group}"), i);
    thread::scope(|scope| {
        let ends = EndsOnDrop(&stop);
        let writers: Vec<_> = (0..groups)
            .map(|group| {
                let (store, mut rng) = (&store, case.rng(400 + group as u64));
                scope.spawn(move || {
                    for round in 1..=rounds {
                        // Key 0 is in every version; each other key may be deleted in a version.
                        let op = |i: usize, rng: &mut Rng| {
                            let name = name(group, i);
                            let is_present = i == 0 || rng.below(4) > 0;
                            if is_present {
                                put(&name, &versioned(&name, round, rng.below(300)))
                            } else {
                                delete(&name)
                            }
                        };
                        let mut ops: Vec<BatchOp> = (0..GROUP_KEYS).map(|i| op(i, &mut rng)).collect();
                        let shift = rng.below(GROUP_KEYS);
                        ops.rotate_left(shift);
                        store.write(&Batch { ops }).expect("write");
                        let single = key(&format!("single{group}"), rng.below(50));
                        store.put(&single, &versioned(&single, round, 20)).expect("put");
                    }
                })
            })
            .collect();
        for reader in 0..2 {
            let (store, stop, mut rng) = (&store, &stop, case.rng(500 + reader));
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    let (group, many) = (rng.below(groups), rng.below(3) == 0);
                    let mut newest = 0;
                    for _ in 0..2 * GROUP_KEYS {
                        let name = name(group, rng.below(GROUP_KEYS));
                        if let Some(seen) = version(store, &name, many) {
                            assert!(seen >= newest, "version {seen} of a key after version {newest} of another");
                            newest = seen;
                        }
                    }
                }
            });
        }
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        drop(ends);
        ended.into_iter().for_each(|ended| ended.unwrap_or_else(|payload| std::panic::resume_unwind(payload)));
    });
    for group in 0..groups {
        assert_eq!(version(&store, &name(group, 0), false), Some(rounds));
        let left: Vec<_> = (0..GROUP_KEYS).filter_map(|i| version(&store, &name(group, i), false)).collect();
        assert!(left.iter().all(|version| *version == rounds), "versions {left:?} at the end");
    }
    assert_sound(&store);
}

/// Several threads write batches to the same keys, each in its own order, and some keys by single
/// writes. Readers and the final state see the batches one after another.
pub fn batches_over_the_same_keys_are_never_mixed<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case, case.plan.capacity) else { return };
    let (threads, rounds) = (case.plan.threads as u64, case.plan.thread_ops as u64 / 8);
    let (start, stop) = (Barrier::new(case.plan.threads), AtomicBool::new(false));
    let name = |i: usize| key("same", i);
    thread::scope(|scope| {
        let ends = EndsOnDrop(&stop);
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                let (store, start, mut rng) = (&store, &start, case.rng(600 + thread));
                scope.spawn(move || {
                    start.wait();
                    for round in 0..rounds {
                        let token = round * threads + thread + 1;
                        let shift = rng.below(GROUP_KEYS);
                        let names = (0..GROUP_KEYS).map(|i| name((i + shift) % GROUP_KEYS));
                        let ops = names.map(|name| put(&name, &versioned(&name, token, 40))).collect();
                        store.write(&Batch { ops }).expect("write");
                    }
                })
            })
            .collect();
        let (reader, mut rng) = ((&store, &stop), case.rng(700));
        scope.spawn(move || {
            let (store, stop) = reader;
            while !stop.load(Ordering::Acquire) {
                let (one, other) = (name(rng.below(GROUP_KEYS)), name(rng.below(GROUP_KEYS)));
                let seen = [&one, &other, &one].map(|name| version(store, name, false));
                let [first, between, again] = seen;
                assert!(first != again || between == first, "{between:?} of a key between {first:?} of another, twice");
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        drop(ends);
        ended.into_iter().for_each(|ended| ended.unwrap_or_else(|payload| std::panic::resume_unwind(payload)));
    });
    let left: Vec<_> = (0..GROUP_KEYS).map(|i| version(&store, &name(i), false)).collect();
    assert!(left[0].is_some() && left.iter().all(|version| *version == left[0]), "{left:?} at the end");
    assert_sound(&store);
    let store = case.reopen(store, Stop::Crash);
    let kept: Vec<_> = (0..GROUP_KEYS).map(|i| version(&store, &name(i), false)).collect();
    assert_eq!(kept, left, "after a crash");
}
