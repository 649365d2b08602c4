//! Filters: after any operation, refusal, loss or stop, a present key is never reported as absent,
//! and the counts match the keys.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::Matrix;
use crate::common::faulty::{Fault, Faulty, Switch, Touch};
use lodestore_contract::conformance::{Harness, Rng, seed};
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Change, Error, Lifetime, Store, Swap};
use lodestore_mkvs::{Mkvs, Part};

const CAPACITY: u64 = 32 << 20;
const KEYS: usize = 400;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn counter(store: &Mkvs, name: &str) -> u64 {
    store.stats().engine_counters.get(name).copied().unwrap_or(0)
}

/// A random operation, on the store and on the model. Returns false if it was refused.
fn step(store: &Mkvs, model: &mut Model, rng: &mut Rng) -> bool {
    let key = format!("key{}", rng.below(KEYS)).into_bytes();
    let value = format!("value {}", rng.below(1000)).into_bytes();
    let was = model.get(&key).cloned();
    let (answer, after) = match rng.below(6) {
        0 | 1 => (store.put(&key, &value), Some(value)),
        2 => (store.delete(&key).map(|there| assert_eq!(there, was.is_some())), None),
        3 => {
            let after = was.clone().or(Some(value.clone()));
            (store.insert(&key, &value, Lifetime::Forever).map(|done| assert_eq!(done, was.is_none())), after)
        }
        4 => {
            let new = (rng.below(2) == 0).then_some(value);
            let swapped = store.compare_and_swap(&key, was.as_deref(), new.as_deref(), Lifetime::Forever);
            (swapped.map(|swap| assert_eq!(swap, Swap::Done)), new)
        }
        _ => {
            let after = was.as_ref().map_or(Some(value.clone()), |_| None);
            let changed = store.update_with(&key, &mut |old, _| {
                assert_eq!(old, was.as_deref());
                if old.is_some() { Change::Delete } else { Change::Put(value.clone(), Lifetime::Forever) }
            });
            (changed, after)
        }
    };
    match (answer, after) {
        (Ok(()), Some(after)) => drop(model.insert(key, after)),
        (Ok(()), None) => drop(model.remove(&key)),
        (Err(Error::Full { .. }), _) => return false,
        (Err(error), _) => panic!("{error}"),
    }
    true
}

fn assert_seen(store: &Mkvs, model: &Model) {
    for i in 0..KEYS {
        let key = format!("key{i}").into_bytes();
        assert_eq!(store.get(&key).expect("get").as_ref(), model.get(&key), "{}", String::from_utf8_lossy(&key));
        assert_eq!(store.contains(&key).expect("contains"), model.contains_key(&key));
    }
}

#[test]
fn no_mix_of_operations_failures_and_restarts_makes_the_filter_hide_a_key() {
    println!("LODESTORE_SEED={:#x}", seed());
    for (groups, devices) in [(1, 1), (2, 1), (1, 3), (2, 2)] {
        let switch = Switch::new();
        let planted = switch.clone();
        // A device of each group fails now and then.
        let wrap = move |directory: &Path, part: Part, store: Arc<dyn Store>| -> Arc<dyn Store> {
            let is_first = directory.ends_with("group0.device0") || directory.ends_with("group1.device0");
            if part == Part::Device && is_first { Arc::new(Faulty { store, switch: planted.clone() }) } else { store }
        };
        let matrix = Matrix::new("filter", groups, devices).on(|places| places.wrap = Some(Arc::new(wrap)));
        let mut rng = Rng::new(seed() ^ (groups * 8 + devices) as u64);
        let mut model = Model::new();
        let mut store = matrix.create(CAPACITY).expect("create");
        for round in 0..12 {
            let fault = [Fault::None, Fault::Full, Fault::None, Fault::Io][rng.below(4)];
            // A single device may be full, and one of two as well; a failure needs a third one.
            let fault = if devices < 3 && fault == Fault::Io { Fault::Full } else { fault };
            let tenth = Arc::new(std::sync::atomic::AtomicU64::new(0));
            switch.set(move |touch, _| {
                let turn = tenth.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if touch == Touch::Write && turn % 10 == 7 { fault } else { Fault::None }
            });
            for _ in 0..150 {
                step(&store, &mut model, &mut rng);
            }
            assert_seen(&store, &model);
            switch.clear();
            match rng.below(3) {
                0 => {}
                1 => {
                    store.close().expect("close");
                    drop(store);
                    store = matrix.open().expect("open");
                }
                _ => {
                    drop(store);
                    store = matrix.open().expect("open");
                }
            }
            assert_seen(&store, &model);
            assert_eq!(store.len().expect("len"), model.len() as u64, "round {round} of {groups}x{devices}");
        }
    }
}

#[test]
fn the_filter_counts_the_present_keys_after_a_clean_stop_and_after_a_rebuild() {
    for (groups, devices) in [(1, 1), (2, 3)] {
        let matrix = Matrix::new("counted", groups, devices);
        let mut rng = Rng::new(seed());
        let mut model = Model::new();
        let mut store = matrix.create(CAPACITY).expect("create");
        for round in 0..6 {
            for _ in 0..400 {
                assert!(step(&store, &mut model, &mut rng));
            }
            assert_eq!(counter(&store, "filter_keys"), model.len() as u64, "{groups}x{devices}, round {round}");
            if round % 2 == 0 {
                store.close().expect("close");
            }
            drop(store);
            store = matrix.open().expect("open");
            // After a crash it is rebuilt in the background.
            let begun = Instant::now();
            while counter(&store, "filter_keys") != model.len() as u64 {
                assert!(begun.elapsed() < HANG_TIMEOUT, "{} of {}", counter(&store, "filter_keys"), model.len());
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        assert_eq!(counter(&store, "filter_leaked"), 0);
    }
}

#[test]
fn reads_of_absent_keys_query_no_device() {
    let matrix = Matrix::new("absent", 2, 3);
    let store = matrix.create(CAPACITY).expect("create");
    for i in 0..500 {
        store.put(format!("there{i}").as_bytes(), b"value").expect("put");
    }
    for i in 0..10_000 {
        assert_eq!(store.get(format!("absent{i}").as_bytes()).expect("get"), None);
    }
    let asked = counter(&store, "reads");
    assert_eq!(counter(&store, "reads_filtered") + asked, 10_000);
    assert_eq!(counter(&store, "reads_false_positive"), asked);
    assert!(asked < 600, "{asked} of 10000 absent keys asked a device");
}

#[test]
fn a_full_filter_is_rebuilt_while_keys_are_added() {
    let matrix = Matrix::new("full filter", 1, 1);
    let store = matrix.create(CAPACITY).expect("create");
    let name = |i: usize| format!("key{i}").into_bytes();
    for i in 0..12_000 {
        store.put(&name(i), b"value").expect("put");
        if i % 500 == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let begun = Instant::now();
    while counter(&store, "filter_false_per_million") > 60_000 {
        assert!(begun.elapsed() < HANG_TIMEOUT, "{:?}", store.stats().engine_counters);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!((0..12_000).all(|i| store.contains(&name(i)).expect("contains")));
    assert_eq!(counter(&store, "filter_keys"), 12_000);
}

#[test]
fn the_filter_does_not_count_writes_refused_for_too_few_devices() {
    let (matrix, switches) = common::switched::switched("outage", 3);
    let store = matrix.create(CAPACITY).expect("create");
    for switch in &switches.stores[1..] {
        switch.set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
    }
    for _ in 0..100 {
        let put = store.put(b"key", b"value");
        assert!(matches!(put, Err(Error::TooFewDevices { .. })), "{put:?}");
    }
    // Writes that failed with the devices, and are in doubt.
    let leaked = counter(&store, "filter_leaked");
    assert!((1..=2).contains(&leaked), "{leaked}");
    assert_eq!(counter(&store, "filter_keys"), leaked);
}
