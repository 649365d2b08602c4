//! Batches and snapshots, where the engine has them; else their refusal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::data::key;
use super::{Case, Harness, Pairs, Stop, assert_holds, assert_sound};
use crate::limits::KEY_MAX;
use crate::{Batch, BatchOp, Error, ScanRange, Store};

fn put(key: &[u8], value: &[u8]) -> BatchOp {
    BatchOp::Put { key: key.to_vec(), value: value.to_vec(), expiry: None }
}

fn delete(key: &[u8]) -> BatchOp {
    BatchOp::Delete { key: key.to_vec() }
}

/// A batch is written whole and in order, or refused with nothing changed.
pub fn batches_are_all_or_nothing<H: Harness>(case: &Case<H>) {
    let store = case.create();
    store.put(b"a", b"0").expect("put");
    if !store.capabilities().batch {
        let refused = store.write(&Batch { ops: vec![put(b"b", b"1")] });
        let Err(Error::Unsupported { engine, .. }) = refused else { panic!("not Unsupported: {refused:?}") };
        assert_eq!(engine, store.engine());
        assert_holds(&store, &Pairs::from([(b"a".to_vec(), b"0".to_vec())]));
        return;
    }
    store.write(&Batch::default()).expect("a batch of nothing");
    let ops = vec![delete(b"a"), put(b"b", b"1"), put(b"c", b"2"), put(b"b", b"3"), delete(b"c"), delete(b"never")];
    store.write(&Batch { ops }).expect("write");
    let mut pairs = Pairs::from([(b"b".to_vec(), b"3".to_vec())]);
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

/// A snapshot answers get and scan as of its moment, whatever is written afterwards.
pub fn snapshots_stand_still<H: Harness>(case: &Case<H>) {
    let store = case.create();
    store.put(b"a", b"0").expect("put");
    if !store.capabilities().snapshot {
        let refused = store.snapshot().err();
        let Some(Error::Unsupported { engine, .. }) = refused else { panic!("not Unsupported: {refused:?}") };
        assert_eq!(engine, store.engine());
        return;
    }
    let mut pairs = Pairs::new();
    for i in 0..200 {
        store.put(&key("snap", i), b"before").expect("put");
        pairs.insert(key("snap", i), b"before".to_vec());
    }
    store.delete(b"a").expect("delete");
    let view = store.snapshot().expect("snapshot");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends = super::threads::EndsOnDrop(&stop);
        scope.spawn(|| {
            for i in 0.. {
                match i % 3 {
                    0 => store.put(&key("snap", i % 200), b"after").expect("put"),
                    1 => drop(store.delete(&key("snap", i % 200)).expect("delete")),
                    _ => store.put(&key("late", i % 200), b"after").expect("put"),
                }
                if stop.load(Ordering::Acquire) {
                    break;
                }
            }
        });
        for _ in 0..20 {
            for (name, value) in &pairs {
                assert_eq!(view.get(name).expect("get of a snapshot").as_ref(), Some(value));
            }
            assert_eq!(view.get(b"a").expect("get of a snapshot"), None);
            if store.capabilities().scan {
                let seen = view.scan(&ScanRange::all()).expect("scan of a snapshot");
                let seen: Pairs =
                    seen.map(|entry| entry.map(|entry| (entry.key, entry.value)).expect("scan")).collect();
                assert!(seen == pairs, "a scan of a snapshot shows {} keys, not its {}", seen.len(), pairs.len());
            }
        }
        drop(ends);
    });
    drop(view);
    assert_sound(&store);
}
