//! Groups whose devices had no space, or failed, at a bad moment: committed writes are reported as
//! such, and the groups go on with free space.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::Matrix;
use crate::common::faulty::{Fault, Switch, Touch};
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Store};
use lodestore_mkvs::{Acks, DeviceStatus, Filtering, Inline, Mkvs};

const CAPACITY: u64 = 16 << 20;

/// Three devices, whose stores and logs have these switches.
fn switched(name: &'static str, acks: Acks, inline: Inline) -> (Matrix, Vec<Switch>, Vec<Switch>) {
    let (matrix, switches) = common::switched::switched(name, 3);
    let matrix = matrix.with(|options| (options.acks, options.filter, options.inline) = (acks, Filtering::Off, inline));
    (matrix, switches.stores, switches.logs)
}

/// A device that does not write `x` before its gate is opened.
fn gated(switch: &Switch) -> Arc<AtomicBool> {
    let gate = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&gate);
    switch.set(move |touch, key| {
        while touch == Touch::Write && key == b"x" && !opened.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Fault::None
    });
    gate
}

fn wait_device(store: &Mkvs, device: usize, what: &str, is_so: impl Fn(&DeviceStatus) -> bool) {
    let begun = Instant::now();
    while !is_so(&store.status().devices[device]) {
        assert!(begun.elapsed() < HANG_TIMEOUT, "device {device} {what}: {:#?}", store.status());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Device 0 has voted for `x` when its medium fails with `y`. The others apply `x`, and no other
/// device failed. The write must be acknowledged; it was reported as one that too few members have.
fn assert_write_survives_failed_first_voter(acks: Acks) {
    let (matrix, stores, _) = switched("first voter fails", acks, Inline::Off);
    let store = matrix.create(CAPACITY).expect("create");
    stores[0].set(|touch, key| if touch == Touch::Write && key == b"y" { Fault::Io } else { Fault::None });
    let gates = [gated(&stores[1]), gated(&stores[2])];
    std::thread::scope(|scope| {
        let x = scope.spawn(|| store.put(b"x", b"1"));
        wait_device(&store, 0, "has done x", |device| device.applied == 1);
        let y = scope.spawn(|| store.put(b"y", b"1"));
        wait_device(&store, 0, "has failed", |device| device.state == "failed");
        gates[0].store(true, Ordering::Release);
        wait_device(&store, 1, "has done x", |device| device.applied >= 1);
        gates[1].store(true, Ordering::Release);
        let (x, y) = (x.join().expect("x"), y.join().expect("y"));
        assert!(y.is_ok(), "y: {y:?}");
        assert!(x.is_ok(), "x: {x:?}, and two of three devices are active and have it");
    });
}

#[test]
fn with_acks_all_a_write_survives_when_its_first_voter_fails_in_a_later_write() {
    assert_write_survives_failed_first_voter(Acks::All);
}

#[test]
fn with_acks_majority_a_write_survives_when_its_first_voter_fails_in_a_later_write() {
    assert_write_survives_failed_first_voter(Acks::Majority);
}

/// With free space again, all devices must come back.
fn all_come_back(store: &Mkvs) {
    let begun = Instant::now();
    while store.stats().engine_counters["devices_active"] != 3 {
        let counts = store.stats().engine_counters;
        assert!(begun.elapsed() < HANG_TIMEOUT, "for good nobody is active: {:#?}, {counts:?}", store.status());
        std::thread::sleep(Duration::from_millis(5));
    }
    store.put(b"behind", b"v").expect("put");
    assert_eq!(store.get(b"before").expect("get"), Some(b"v".to_vec()));
}

/// All logs are full for a while: they refuse the write and its rollback. All devices are behind,
/// and none is left to catch up from. Only an open helped.
#[test]
fn a_group_continues_after_its_logs_were_full() {
    let (matrix, _, logs) = switched("logs full", Acks::Majority, Inline::On);
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"before", b"v").expect("put");
    for log in &logs {
        log.set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    }
    let refused = store.put(b"k", b"v");
    assert!(refused.is_err());
    logs.iter().for_each(Switch::clear);
    all_come_back(&store);
}

/// With `all`, two devices refuse a write, and the third, which has applied it, has no space to
/// roll it back and falls behind. The two devices with the group's state are behind as well.
#[test]
fn with_acks_all_a_device_too_full_to_roll_back_does_not_stop_the_others() {
    let (matrix, stores, _) = switched("no room to take back", Acks::All, Inline::On);
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"before", b"v").expect("put");
    store.put(b"k", b"old").expect("put");
    for full in &stores[..2] {
        full.set(|touch, key| if touch == Touch::Write && key == b"k" { Fault::Full } else { Fault::None });
    }
    let writes = AtomicUsize::new(0);
    stores[2].set(move |touch, key| {
        let is_second = touch == Touch::Write && key == b"k" && writes.fetch_add(1, Ordering::Relaxed) > 0;
        if is_second { Fault::Full } else { Fault::None }
    });
    let refused = store.put(b"k", b"new");
    assert!(matches!(refused, Err(Error::Full { .. } | Error::TooFewDevices { .. })), "{refused:?}");
    stores.iter().for_each(Switch::clear);
    all_come_back(&store);
}

/// Both devices had no space for a write, all stopped before the rollback, and one device is lost.
/// An open needs one of two; the remaining one rolls the write back alone.
#[test]
fn one_of_two_devices_opens_alone_with_a_write_that_fitted_on_neither() {
    let (matrix, switches) = common::switched::switched("one of two", 2);
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"before", b"v").expect("put");
    store.put(b"k", b"old").expect("put");
    for full in &switches.stores {
        full.set(|touch, key| if touch == Touch::Write && key == b"k" { Fault::Full } else { Fault::None });
    }
    for log in &switches.logs {
        let writes = AtomicUsize::new(0);
        log.set(move |touch, _| {
            let is_later = touch == Touch::Write && writes.fetch_add(1, Ordering::Relaxed) > 0;
            if is_later { Fault::Io } else { Fault::None }
        });
    }
    store.put(b"k", b"new").expect_err("no room, and then the media fail");
    drop(store);
    switches.logs.iter().for_each(Switch::clear);
    std::fs::remove_dir_all(matrix.device(0, 0)).expect("lose a device");
    let store = matrix.open().expect("open with one of two");
    assert_eq!(store.get(b"before").expect("get"), Some(b"v".to_vec()));
    assert_eq!(store.get(b"k").expect("get"), Some(b"old".to_vec()));
}

#[test]
fn verify_reports_an_in_doubt_write() {
    let (matrix, switches) = common::switched::switched("undecided", 2);
    let matrix = matrix.with(|options| options.threads = false);
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"before", b"v").expect("put");
    // The device is behind, and has not failed.
    switches.logs[0].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    let refused = store.put(b"k", b"v");
    assert!(matches!(refused, Err(Error::TooFewDevices { may_stand: true, .. })), "{refused:?}");
    assert!(store.get(b"k").is_err(), "it is not known whether the write stands");
    let found = || store.verify(&mut |_| ()).expect("verify").findings;
    assert!(found().iter().any(|finding| finding.what.contains("1 writes are in doubt")), "{:?}", found());
    switches.logs[0].clear();
    store.settle().expect("what threads would do");
    store.settle().expect("the device is active again");
    store.get(b"k").expect("the write is decided");
    assert_eq!(found(), []);
}

/// An entry of a device's log is damaged while the matrix is closed: the device is copied. The walk
/// that empties its log met the damage each time.
#[test]
fn a_device_whose_log_is_damaged_is_copied() {
    let matrix = Matrix::new("damaged log", 1, 3);
    let store = matrix.create(CAPACITY).expect("create");
    for i in 0..50 {
        store.put(format!("key{i}").as_bytes(), format!("value number {i}").as_bytes()).expect("put");
    }
    store.close().expect("close");
    drop(store);
    let mut flipped = 0;
    for file in matrix.files().iter().filter(|file| file.contains("group0.device1/log/")) {
        matrix.alter(file, &mut |bytes| {
            let value = b"value number 49";
            let places: Vec<_> = (0..bytes.len() - value.len()).filter(|at| bytes[*at..].starts_with(value)).collect();
            places.iter().for_each(|at| bytes[*at] ^= 1);
            flipped += places.len();
        });
    }
    assert!(flipped > 0, "the entry is in the log");
    let store = matrix.open().expect("open");
    store.wait_whole(HANG_TIMEOUT).expect("all three are back");
    assert_eq!(store.stats().engine_counters["devices_copied"], 1);
}
