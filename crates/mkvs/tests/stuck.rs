//! Devices that are slow, or hang, at a bad moment: who is slow is waited for, and who hangs is left to itself.

mod common;

use std::time::{Duration, Instant};

use common::Matrix;
use common::faulty::{Fault, Switch, Touch};
use common::switched::{Switches, switched};
use lodestore_contract::Store;
use lodestore_contract::conformance::Harness;
use lodestore_mkvs::{Acks, Filtering, Inline, Mkvs};

const CAPACITY: u64 = 16 << 20;

/// Three devices with threads of their own and without a filter, whose stores, logs and host have these switches.
fn three(name: &'static str, acks: Acks, timeout: Duration) -> (Matrix, Switches) {
    let (matrix, switches) = switched(name, 3);
    let matrix = matrix.with(|options| {
        (options.acks, options.filter, options.inline) = (acks, Filtering::Off, Inline::Off);
        options.timeout = timeout;
    });
    (matrix, switches)
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

fn states(store: &Mkvs) -> Vec<&'static str> {
    store.status().devices.iter().map(|device| device.state).collect()
}

/// Waits until so many devices are active.
fn wait_active(store: &Mkvs, count: u64) {
    let begun = Instant::now();
    while store.stats().engine_counters["devices_active"] != count {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", store.status());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Each write takes so long.
fn slow(switch: &Switch, millis: u64) {
    let slow = Fault::Slow(Duration::from_millis(millis));
    switch.set(move |touch, _| if touch == Touch::Write { slow } else { Fault::None });
}

/// Every write of this key fails.
fn fail(switch: &Switch, bad: &'static [u8]) {
    switch.set(move |touch, key| if touch == Touch::Write && key == bad { Fault::Io } else { Fault::None });
}

/// Device 0 fails, and somebody writes who finds it so.
fn write_behind_a_failure(store: &Mkvs, switches: &Switches) {
    fail(&switches.stores[0], b"bad");
    std::thread::scope(|scope| {
        let bad = scope.spawn(|| store.put(b"bad", b"value"));
        let begun = Instant::now();
        while states(store)[0] != "failed" {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", store.status());
            std::thread::sleep(Duration::from_millis(1));
        }
        store.put(b"next", b"value").expect("the others are left");
        bad.join().expect("a thread that ends").expect("the others are left");
    });
}

#[test]
fn who_trails_has_not_failed_when_another_one_fails() {
    // What they trail by takes longer than an operation may.
    let (matrix, switches) = three("trails", Acks::Majority, Duration::from_millis(500));
    let store = matrix.create(CAPACITY).expect("create");
    slow(&switches.stores[2], 5);
    for i in 0..300 {
        store.put(&key(i), b"value").expect("two are quick");
    }
    write_behind_a_failure(&store, &switches);
    assert_eq!(states(&store), ["failed", "active", "active"], "{:?}", store.status());

    let (matrix, switches) = three("both trail", Acks::One, Duration::from_millis(500));
    let store = matrix.create(CAPACITY).expect("create");
    switches.stores[1..].iter().for_each(|switch| slow(switch, 5));
    for i in 0..300 {
        store.put(&key(i), b"value").expect("one is quick");
    }
    write_behind_a_failure(&store, &switches);
    assert_eq!(states(&store), ["failed", "active", "active"], "{:?}", store.status());
    for i in 0..300 {
        assert!(store.contains(&key(i)).expect("contains"), "acknowledged by the one that failed");
    }
}

#[test]
fn who_hangs_has_failed_when_others_wait_for_it() {
    let (matrix, switches) = three("hangs", Acks::One, Duration::from_millis(300));
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"key", b"value").expect("put");
    slow(&switches.stores[1], 1500);
    slow(&switches.stores[2], 20);
    for i in 0..5 {
        store.put(&key(i), b"value").expect("one is quick");
    }
    write_behind_a_failure(&store, &switches);
    wait_active(&store, 1);
    assert_eq!(states(&store), ["failed", "failed", "active"], "{:?}", store.status());
    assert_eq!(store.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
}
