//! Snapshots if the engine supports them; otherwise their refusal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::data::key;
use super::{Case, Harness, Pairs, assert_sound};
use crate::{Entry, Error, ScanRange, Store};

/// A snapshot's get and scan return the state of its moment, whatever is written afterwards.
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
                let seen: Pairs = seen.map(|entry| entry.map(Entry::into_pair).expect("scan")).collect();
                assert!(seen == pairs, "a scan of a snapshot shows {} keys, not its {}", seen.len(), pairs.len());
            }
        }
        drop(ends);
    });
    drop(view);
    assert_sound(&store);
}
