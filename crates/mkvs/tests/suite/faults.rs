//! Faults that the model of the protocol (`protocol.rs`) convicted, repeated with the engine
//! itself.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::Matrix;
use crate::common::faulty::{Fault, Switch, Touch};
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Store};
use lodestore_mkvs::{Filtering, Inline, Mkvs};

const CAPACITY: u64 = 16 << 20;

/// Three devices without a filter, whose stores and logs have these switches.
fn switched(name: &'static str) -> (Matrix, Vec<Switch>, Vec<Switch>) {
    let (matrix, switches) = common::switched::switched(name, 3);
    let matrix = matrix.with(|options| (options.filter, options.inline) = (Filtering::Off, Inline::On));
    (matrix, switches.stores, switches.logs)
}

/// Makes writes of this key fail for lack of space.
fn fill(switch: &Switch, full: &'static [u8]) {
    switch.set(move |touch, key| if touch == Touch::Write && key == full { Fault::Full } else { Fault::None });
}

fn wait_active(store: &Mkvs, count: u64) {
    let begun = Instant::now();
    while store.stats().engine_counters["devices_active"] != count {
        assert!(begun.elapsed() < HANG_TIMEOUT, "{count} devices are active in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until each device has everything: a write is acknowledged when two of three have it.
fn wait_level(store: &Mkvs) {
    let begun = Instant::now();
    while store.status().devices.iter().any(|device| device.applied != device.last) {
        assert!(begun.elapsed() < HANG_TIMEOUT, "all devices have everything in time");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the value of a key, which is the same on every device.
fn same_everywhere(store: &Mkvs, key: &[u8]) -> Option<Vec<u8>> {
    let value = store.get(key).expect("get");
    for _ in 0..60 {
        assert_eq!(store.get(key).expect("get"), value, "all devices have the same");
    }
    value
}

#[test]
fn a_device_that_rejoins_before_the_next_write_receives_each_operation_once() {
    let (matrix, stores, _) = switched("comes back at once");
    let store = matrix.create(CAPACITY).expect("create");
    fill(&stores[2], b"k");
    store.put(b"k", b"v").expect("two have it");
    wait_active(&store, 2);
    stores[2].clear();
    wait_active(&store, 3);
    for i in 0..50 {
        store.put(format!("more {i}").as_bytes(), b"v").expect("put");
    }
    wait_active(&store, 3);
    assert_eq!(same_everywhere(&store, b"more 49"), Some(b"v".to_vec()));
    assert!(store.verify(&mut |_| {}).expect("verify").findings.is_empty());
}

#[test]
fn a_write_refused_by_two_devices_is_not_applied_by_the_third_when_it_rejoins() {
    let (matrix, stores, _) = switched("comes back with room");
    let store = matrix.create(CAPACITY).expect("create");
    fill(&stores[2], b"first");
    store.put(b"first", b"v").expect("two have it");
    wait_active(&store, 2);
    fill(&stores[0], b"k");
    fill(&stores[1], b"k");
    assert!(matches!(store.put(b"k", b"refused"), Err(Error::Full { .. })));
    stores.iter().for_each(Switch::clear);
    wait_active(&store, 3);
    assert_eq!(same_everywhere(&store, b"k"), None, "it was refused");
    assert_eq!(same_everywhere(&store, b"first"), Some(b"v".to_vec()));
}

/// Makes each of these logs fail at every entry from its `first` on.
fn fail_from(logs: &[Switch], first: usize) {
    for log in logs {
        let entries = AtomicUsize::new(0);
        log.set(move |touch, key| {
            let is_entry = touch == Touch::Write && key.first() == Some(&b'o');
            let fails = is_entry && entries.fetch_add(1, Ordering::Relaxed) >= first;
            if fails { Fault::Io } else { Fault::None }
        });
    }
}

#[test]
fn a_full_device_with_the_newest_log_does_not_lead() {
    let (matrix, stores, logs) = switched("newest without room");
    let store = matrix.create(CAPACITY).expect("create");
    fill(&stores[0], b"k");
    fail_from(&logs[1..], 0);
    assert!(store.put(b"k", b"v").is_err(), "one has it in its log, and nobody in its store");
    drop(store);
    logs.iter().for_each(Switch::clear);
    let store = matrix.open().expect("open");
    same_everywhere(&store, b"k");
    store.put(b"other", b"v").expect("put");
    stores[0].clear();
    wait_active(&store, 3);
    same_everywhere(&store, b"k");
}

#[test]
fn an_open_rolls_back_a_write_that_fits_on_no_device() {
    let (matrix, stores, logs) = switched("all without room");
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"k", b"old").expect("put");
    wait_level(&store);
    stores.iter().for_each(|store| fill(store, b"k"));
    fail_from(&logs, 1);
    assert!(store.put(b"k", b"new").is_err(), "all have it in their logs");
    drop(store);
    logs.iter().for_each(Switch::clear);
    let store = matrix.open().expect("devices without room can be opened");
    assert_eq!(same_everywhere(&store, b"k"), Some(b"old".to_vec()));
    store.put(b"other", b"v").expect("put");
    assert_eq!(store.stats().engine_counters["devices_active"], 3);
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("list") {
        let entry = entry.expect("list");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().expect("its type").is_dir() {
            copy_directory(&from, &to);
        } else {
            std::fs::copy(&from, &to).expect("copy");
        }
    }
}

#[test]
fn a_device_is_not_removed_while_a_remaining_one_lacks_a_write_it_voted_for() {
    let (mut matrix, stores, logs) = switched("taken out too early");
    matrix.options.inline = Inline::Off;
    let (crashed, ..) = switched("taken out too early, crashed");
    let store = matrix.create(CAPACITY).expect("create");
    let goes_on = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&goes_on);
    logs[1].set(move |touch, key| {
        while touch == Touch::Write && key.first() == Some(&b'o') && !waits.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Fault::None
    });
    stores[2].set(|touch, key| if touch == Touch::Write && key == b"bad" { Fault::Io } else { Fault::None });
    store.put(b"k", b"v").expect("the first and the last have it");
    std::thread::scope(|scope| {
        let bad = scope.spawn(|| store.put(b"bad", b"v"));
        wait_active(&store, 2);
        let next = scope.spawn(|| store.put(b"next", b"v"));
        // Meanwhile a concurrent writer would remove the last one.
        std::thread::sleep(Duration::from_millis(200));
        copy_directory(&matrix.path(), &crashed.path());
        goes_on.store(true, Ordering::Release);
        let _ = bad.join().expect("a thread that ends");
        let _ = next.join().expect("a thread that ends");
    });
    std::fs::remove_dir_all(crashed.device(0, 0)).expect("one device is lost");
    let store = crashed.open().expect("one of three is lost");
    assert_eq!(same_everywhere(&store, b"k"), Some(b"v".to_vec()), "it was acknowledged by two");
}

/// Returns the key of an operation's entry in a log of 1024 slots.
fn entry_of(seq: u64) -> Vec<u8> {
    let mut key = vec![b'o'];
    key.extend((seq & 1023).to_le_bytes());
    key
}

#[test]
fn a_full_log_records_that_the_device_lacks_an_operation() {
    // The full logs, and how often each fails to write the entry.
    for (full, times) in [(vec![1], 2), (vec![0, 1, 2], 2), (vec![1], 1), (vec![0, 2], 2)] {
        let (matrix, _, logs) = switched("a log is full");
        let mut store = matrix.create(CAPACITY).expect("create");
        for i in 0..20 {
            store.put(format!("before {i}").as_bytes(), b"v").expect("put");
        }
        for at in &full {
            let left = AtomicUsize::new(times);
            logs[*at].set(move |touch, key| {
                let is_hit = touch == Touch::Write && key == entry_of(21);
                let hits = is_hit
                    && left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok();
                if hits { Fault::Full } else { Fault::None }
            });
        }
        let answer = store.put(b"k", b"large");
        let refused = full.len() > 1;
        assert_eq!(answer.is_err(), refused, "{answer:?}");
        assert!(answer.is_ok() || matches!(answer, Err(Error::Full { .. })), "{answer:?}");
        logs.iter().for_each(Switch::clear);
        for i in 0..20 {
            store.put(format!("behind {i}").as_bytes(), b"v").expect("put");
        }
        for round in 0..3 {
            wait_active(&store, 3);
            assert_eq!(same_everywhere(&store, b"k").is_some(), !refused, "{full:?}, round {round}");
            assert_eq!(same_everywhere(&store, b"behind 19"), Some(b"v".to_vec()));
            assert!(store.verify(&mut |_| {}).expect("verify").findings.is_empty());
            drop(store);
            store = matrix.open().expect("open");
        }
    }
}

#[test]
fn an_in_doubt_write_is_decided_without_further_writes_once_enough_devices_are_active() {
    for value in [Some(&b"by one alone"[..]), None] {
        let (matrix, stores, _) = switched("decided");
        let store = matrix.create(CAPACITY).expect("create");
        store.put(b"k", b"old").expect("put");
        wait_level(&store);
        for switch in &stores[1..] {
            switch.set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
        }
        let refused = value.map_or_else(|| store.delete(b"k").map(drop), |value| store.put(b"k", value));
        assert!(matches!(refused, Err(Error::TooFewDevices { may_stand: true, .. })), "{refused:?}");
        for device in [1, 2] {
            let new = matrix.path().join(format!("new{device}"));
            store.replace(0, device, &new, &matrix.path(), &matrix.places).expect("replace");
        }
        let begun = std::time::Instant::now();
        let answer = loop {
            match store.get(b"k") {
                Err(Error::TooFewDevices { .. }) if begun.elapsed() < HANG_TIMEOUT => std::thread::yield_now(),
                answer => break answer,
            }
        };
        assert_eq!(answer.expect("it is decided").as_deref(), value);
    }
}

#[test]
fn an_in_doubt_write_is_not_readable_until_it_is_decided() {
    let (matrix, stores, _) = switched("undecided");
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"k", b"old").expect("put");
    wait_level(&store);
    for switch in &stores[1..] {
        switch.set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
    }
    let put = store.put(b"k", b"by one alone");
    assert!(matches!(put, Err(Error::TooFewDevices { may_stand: true, .. })), "{put:?}");
    let next = store.put(b"another", b"value");
    assert!(matches!(next, Err(Error::TooFewDevices { may_stand: false, .. })), "{next:?}");
    for _ in 0..20 {
        let answer = store.get(b"k");
        assert!(matches!(answer, Err(Error::TooFewDevices { .. })), "{answer:?}");
        assert!(matches!(store.contains(b"k"), Err(Error::TooFewDevices { .. })));
    }
    drop(store);
    stores.iter().for_each(Switch::clear);
    std::fs::remove_dir_all(matrix.device(0, 0)).expect("the one that has it is lost");
    let store = matrix.open().expect("two of three");
    // Another member's log may have it.
    let decided = same_everywhere(&store, b"k").expect("one of both");
    assert!(decided == b"old" || decided == b"by one alone");
}
