//! Replacement of devices with few left: a failed device is replaced from a complete one, even with
//! too few for a write. And the state after a refused change.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::Matrix;
use crate::common::faulty::{Fault, Switch, Touch};
use crate::common::switched::switched;
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Expiry, Result, Store};
use lodestore_mkvs::{Acks, Inline, Mkvs};

const CAPACITY: u64 = 32 << 20;
const KEYS: u64 = 300;
const PATIENCE: Duration = HANG_TIMEOUT;

fn key(i: u64) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

fn fill(store: &Mkvs) {
    (0..KEYS).for_each(|i| store.put(&key(i), &i.to_le_bytes()).expect("put"));
}

fn assert_holds(store: &Mkvs) {
    for i in 0..KEYS {
        assert_eq!(store.get(&key(i)).expect("get").as_deref(), Some(&i.to_le_bytes()[..]), "key {i}");
    }
}

fn fail_writes(switch: &Switch) {
    switch.set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
}

fn new(matrix: &Matrix, device: usize) -> PathBuf {
    matrix.path().join(format!("new{device}"))
}

fn replace(matrix: &Matrix, store: &Mkvs, device: usize) -> Result<()> {
    store.replace(0, device, &new(matrix, device), &matrix.path(), &matrix.places).map(drop)
}

fn assert_refuses_writes(store: &Mkvs) {
    let refused = store.put(b"refused", b"value");
    assert!(matches!(refused, Err(Error::TooFewDevices { live: 1, needed: 2, .. })), "{refused:?}");
}

/// Checks that all devices have everything: any of `lost` may be lost now.
fn assert_whole_without(matrix: &Matrix, store: Mkvs, lost: &[PathBuf]) {
    store.wait_whole(PATIENCE).expect("all devices are active");
    store.put(b"written", b"again").expect("there are enough for a write");
    let report = store.verify(&mut |_| {}).expect("verify");
    assert!(report.is_clean(), "{:?}", report.findings);
    drop(store);
    lost.iter().for_each(|lost| std::fs::remove_dir_all(lost).expect("lose a device"));
    let store = matrix.open().expect("open");
    assert_holds(&store);
    assert_eq!(store.get(b"written").expect("get").as_deref(), Some(&b"again"[..]));
}

#[test]
fn the_lost_device_of_a_pair_is_replaced_while_the_group_serves() {
    for acks in [Acks::Majority, Acks::All, Acks::One] {
        let (matrix, switches) = switched("one of two", 2);
        let matrix = matrix.with(|options| options.acks = acks);
        let store = matrix.create(CAPACITY).expect("create");
        fill(&store);
        fail_writes(&switches.stores[1]);
        let written = store.put(b"refused", b"value");
        assert_eq!(written.is_ok(), acks != Acks::Majority, "{acks:?}: {written:?}");
        if acks == Acks::Majority {
            assert_refuses_writes(&store);
        }
        // The remaining device is in use: it must not be replaced as well.
        let refused = replace(&matrix, &store, 0);
        assert!(matches!(refused, Err(Error::TooFewDevices { live: 0, .. })), "{acks:?}: {refused:?}");
        replace(&matrix, &store, 1).unwrap_or_else(|error| panic!("{acks:?}: {error}"));
        assert_holds(&store);
        assert_whole_without(&matrix, store, &if acks == Acks::One { vec![] } else { vec![matrix.device(0, 0)] });
    }
}

#[test]
fn the_lost_device_of_a_pair_is_replaced_after_an_open() {
    let matrix = Matrix::new("one of two, opened", 1, 2);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    store.close().expect("close");
    drop(store);
    std::fs::remove_dir_all(matrix.device(0, 0)).expect("lose a device");
    let store = matrix.open().expect("one of two has everything");
    assert_refuses_writes(&store);
    replace(&matrix, &store, 0).expect("replace");
    assert_whole_without(&matrix, store, &[matrix.device(0, 1)]);
}

#[test]
fn two_devices_of_three_that_fail_at_once_are_replaced_while_the_third_serves() {
    let (matrix, switches) = switched("two of three", 3);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    switches.stores[1..].iter().for_each(fail_writes);
    assert!(store.put(b"refused", b"value").is_err());
    assert_refuses_writes(&store);
    replace(&matrix, &store, 2).expect("replace the first");
    replace(&matrix, &store, 1).expect("replace the second");
    assert_whole_without(&matrix, store, &[matrix.device(0, 0)]);
}

#[test]
fn in_salvage_two_lost_devices_of_three_are_replaced_from_the_third() {
    let matrix = Matrix::new("salvaged", 1, 3);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    store.close().expect("close");
    drop(store);
    for lost in [0, 2] {
        std::fs::remove_dir_all(matrix.device(0, lost)).expect("lose a device");
    }
    let mut matrix = matrix.with(|options| options.salvage = true);
    let store = matrix.open().expect("salvage");
    assert_refuses_writes(&store);
    for lost in [0, 2] {
        replace(&matrix, &store, lost).expect("replace");
    }
    matrix.options.salvage = false;
    assert_whole_without(&matrix, store, &[matrix.device(0, 1)]);
}

#[test]
fn an_interrupted_replacement_continues_at_the_next_open() {
    let (matrix, switches) = switched("cut short", 2);
    let matrix = matrix.with(|options| options.copy_rate = 4096);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    fail_writes(&switches.stores[1]);
    assert!(store.put(b"refused", b"value").is_err());
    replace(&matrix, &store, 1).expect("replace");
    drop(store);
    let mut matrix = matrix;
    matrix.options.copy_rate = 0;
    let store = matrix.open().expect("the first has everything");
    assert_holds(&store);
    assert_whole_without(&matrix, store, &[matrix.device(0, 0)]);
}

/// Refuses changes of the description.
fn refuse_changes(host: &Switch) {
    host.set(|touch, key| if touch == Touch::Write && key == b"matrix" { Fault::Full } else { Fault::None });
}

#[test]
fn a_refused_replacement_leaves_no_files_and_can_be_repeated() {
    let (matrix, switches) = switched("refused", 3);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    // Existing data is not removed.
    let there = matrix.device(0, 1);
    let refused = store.replace(0, 0, &there, &matrix.path(), &matrix.places);
    assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
    std::fs::create_dir_all(new(&matrix, 2).join("log")).expect("a directory in its way");
    std::fs::write(new(&matrix, 2).join("log/pool.0000"), b"not ours").expect("a file in its way");
    assert!(replace(&matrix, &store, 2).is_err());
    assert!(!new(&matrix, 2).join("store").exists() && new(&matrix, 2).join("log/pool.0000").exists());
    std::fs::remove_dir_all(new(&matrix, 2)).expect("out of the way");
    refuse_changes(&switches.host);
    let refused = replace(&matrix, &store, 2);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    assert!(!new(&matrix, 2).join("store").exists() && !new(&matrix, 2).join("log").exists());
    switches.host.clear();
    replace(&matrix, &store, 2).expect("nothing is in its way");
    assert_holds(&store);
    assert_whole_without(&matrix, store, &[matrix.device(0, 0)]);
}

#[test]
fn a_device_whose_replacement_is_refused_stays_in_use() {
    let (matrix, switches) = switched("used on", 3);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    refuse_changes(&switches.host);
    assert!(replace(&matrix, &store, 2).is_err());
    switches.host.clear();
    store.wait_whole(PATIENCE).expect("the old one catches up");
    assert_eq!(store.status().devices[2].path, matrix.device(0, 2).strip_prefix(matrix.path()).expect("below it"));
    // A device whose medium failed stays out.
    fail_writes(&switches.stores[1]);
    store.put(b"written", b"value").expect("two are left");
    refuse_changes(&switches.host);
    assert!(replace(&matrix, &store, 1).is_err());
    switches.host.clear();
    let old = store.status().devices.swap_remove(1);
    assert!(old.state == "failed" && old.why.as_ref().is_some_and(|why| why.contains("device")), "{old:?}");
    replace(&matrix, &store, 1).expect("nothing is in its way");
    assert_whole_without(&matrix, store, &[matrix.device(0, 0)]);
}

#[test]
fn a_refused_group_addition_leaves_no_files_and_can_be_repeated() {
    let (matrix, switches) = switched("no group", 2);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    let add = || store.add_group(&[], &matrix.path(), &matrix.places);
    refuse_changes(&switches.host);
    let refused = add();
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    switches.host.clear();
    // The second device's directory is not empty.
    std::fs::create_dir_all(matrix.device(1, 1).join("store")).expect("a directory in its way");
    std::fs::write(matrix.device(1, 1).join("store/pool.0000"), b"not ours").expect("a file in its way");
    assert!(add().is_err());
    std::fs::remove_dir_all(matrix.device(1, 1)).expect("out of the way");
    assert!(!matrix.device(1, 0).join("store").exists() && !matrix.device(1, 0).join("log").exists());
    assert_eq!((store.status().groups, store.status().settled_groups), (1, 1));
    assert_holds(&store);
    add().expect("nothing is in its way");
    store.wait_whole(PATIENCE).expect("all keys have moved");
    assert_holds(&store);
    drop(store);
    let store = matrix.open().expect("open");
    assert_eq!((store.status().groups, store.status().settled_groups), (2, 2));
    assert_holds(&store);
}

#[test]
fn a_refused_creation_leaves_no_files_and_can_be_repeated() {
    let matrix = Matrix::new("not made", 2, 2);
    std::fs::create_dir_all(matrix.device(1, 1).join("log")).expect("a directory in its way");
    std::fs::write(matrix.device(1, 1).join("log/pool.0000"), b"not ours").expect("a file in its way");
    assert!(matrix.create(CAPACITY).is_err());
    std::fs::remove_dir_all(matrix.device(1, 1)).expect("out of the way");
    assert_eq!(matrix.files(), Vec::<String>::new());
    let store = matrix.create(CAPACITY).expect("nothing is in its way");
    fill(&store);
    assert_holds(&store);
}

#[test]
fn a_key_that_expires_while_it_is_copied_is_not_copied_without_its_expiry() {
    let (matrix, switches) = switched("expired", 3);
    let store = matrix.create(CAPACITY).expect("create");
    let expiry = Expiry::after(Duration::from_secs(3600));
    store.put_expiring(b"session", b"value", Some(expiry)).expect("put");
    switches.stores.iter().for_each(Switch::expire);
    replace(&matrix, &store, 2).expect("replace");
    store.wait_whole(PATIENCE).expect("all devices are active");
    for switch in &switches.stores[..2] {
        switch.set(|touch, _| if touch == Touch::Read { Fault::Io } else { Fault::None });
    }
    assert_eq!(store.get(b"session").expect("get"), None);
}

#[test]
fn a_rejoined_devices_vote_counts_in_place_of_a_replaced_device() {
    let (matrix, switches) = switched("came back meanwhile", 3);
    let matrix = matrix.with(|options| options.inline = Inline::Off);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    switches.stores[2].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    store.put(b"refused by one", b"value").expect("two have it");
    let is_active = |device: usize| store.status().devices[device].state == "active";
    let wait = |done: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < PATIENCE, "{:?}", store.status());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait(&|| !is_active(2));
    let slow = |touch, key: &[u8]| match touch {
        Touch::Write if key == b"slow" => Fault::Slow(Duration::from_secs(2)),
        _ => Fault::None,
    };
    switches.stores[1].set(slow);
    std::thread::scope(|scope| {
        let last = store.status().devices[0].applied;
        // The write needs the first two devices, and the second one is executing it.
        let writer = scope.spawn(|| store.put(b"slow", b"value"));
        wait(&|| store.status().devices[0].applied > last);
        switches.stores[2].set(|_, _| Fault::None);
        wait(&|| is_active(2));
        replace(&matrix, &store, 1).expect("the other two have everything");
        writer.join().expect("the writer").expect("two of those that are left have it");
    });
    assert_eq!(store.get(b"slow").expect("get").as_deref(), Some(&b"value"[..]));
    assert_holds(&store);
    assert_whole_without(&matrix, store, &[matrix.device(0, 0)]);
}
