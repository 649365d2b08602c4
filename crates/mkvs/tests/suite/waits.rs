//! A wait for a device, or for keys to move, waits for nothing else, and ends at once if it cannot
//! succeed.

use std::time::Duration;

use crate::common::Matrix;
use crate::common::faulty::{Fault, Touch};
use crate::common::switched::switched;
use lodestore_contract::conformance::Harness;
use lodestore_contract::{Error, Store};
use lodestore_mkvs::{Acks, Mkvs};

const CAPACITY: u64 = 64 << 20;
const KEYS: u64 = 400;
/// Longer than any of these operations: an immediate result comes before.
const PATIENCE: Duration = Duration::from_secs(60);

fn key(i: u64) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

fn filled(matrix: &Matrix) -> Mkvs {
    let store = matrix.create(CAPACITY).expect("create");
    (0..KEYS).for_each(|i| store.put(&key(i), &i.to_le_bytes()).expect("put"));
    store
}

/// Closes the matrix and opens it without these devices.
fn reopened_without(matrix: &Matrix, store: Mkvs, lost: &[(usize, usize)]) -> Mkvs {
    store.close().expect("close");
    drop(store);
    lost.iter().for_each(|(group, device)| {
        std::fs::remove_dir_all(matrix.device(*group, *device)).expect("lose a device");
    });
    matrix.open().expect("open")
}

fn replace(matrix: &Matrix, store: &Mkvs, device: usize) {
    store.replace(0, device, &matrix.path().join("new"), &matrix.path(), &matrix.places).expect("replace");
}

fn add_group(matrix: &Matrix, store: &Mkvs) {
    store.add_group(&[], &matrix.path(), &matrix.places).expect("a group is added");
}

fn assert_holds(store: &Mkvs) {
    for i in 0..KEYS {
        assert_eq!(store.get(&key(i)).expect("get").as_deref(), Some(&i.to_le_bytes()[..]), "key {i}");
    }
}

#[test]
fn wait_device_ignores_failures_of_other_groups() {
    let matrix = Matrix::new("waits-device", 2, 3);
    let store = reopened_without(&matrix, filled(&matrix), &[(0, 1), (1, 0)]);
    assert!(matches!(store.wait_device(1, 0, PATIENCE), Err(Error::Unfinished { .. })), "one that is lost");
    assert!(matches!(store.wait_device(0, 3, PATIENCE), Err(Error::InvalidOption { .. })), "one that there is not");
    replace(&matrix, &store, 1);
    store.wait_device(0, 1, PATIENCE).expect("the new device is active");
    assert!(matches!(store.wait_whole(Duration::ZERO), Err(Error::Unfinished { .. })), "another is dead");
    add_group(&matrix, &store);
    store.wait_moved(PATIENCE).expect("a dead device of three keeps no key from moving");
    assert!(store.status().moved > 0);
    assert_holds(&store);
}

#[test]
fn wait_device_fails_when_the_last_donor_fails() {
    let (matrix, switches) = switched("waits-donor", 2);
    // Too slow to end within the test; one device is enough for a write.
    let matrix = matrix.with(|options| (options.copy_rate, options.acks) = (64, Acks::All));
    let store = reopened_without(&matrix, filled(&matrix), &[(0, 1)]);
    replace(&matrix, &store, 1);
    assert!(
        matches!(store.wait_device(0, 1, Duration::from_millis(50)), Err(Error::Unfinished { .. })),
        "it is copied"
    );
    switches.stores[0].set(|touch, _| if touch == Touch::Read { Fault::None } else { Fault::Io });
    store.put(b"more", b"value").expect_err("the one that has all fails");
    let result = store.wait_device(0, 1, PATIENCE);
    assert!(matches!(result, Err(Error::TooFewDevices { group: 0, live: 0, needed: 1, .. })), "{result:?}");
}

#[test]
fn wait_moved_fails_when_a_group_has_too_few_devices() {
    let matrix = Matrix::new("waits-few", 1, 2).with(|options| options.acks = Acks::Majority);
    let store = reopened_without(&matrix, filled(&matrix), &[(0, 1)]);
    store.wait_moved(Duration::ZERO).expect("nothing is on its way");
    add_group(&matrix, &store);
    let result = store.wait_moved(PATIENCE);
    assert!(matches!(result, Err(Error::TooFewDevices { group: 0, live: 1, needed: 2, .. })), "{result:?}");
    assert_holds(&store);
    replace(&matrix, &store, 1);
    store.wait_device(0, 1, PATIENCE).expect("the new device is active");
    store.wait_moved(PATIENCE).expect("as many as a write takes are there");
    assert_holds(&store);
}

#[test]
fn wait_moved_reports_pairs_that_no_device_can_read() {
    let (matrix, switches) = switched("waits-damage", 1);
    let matrix = matrix.with(|options| options.timeout = Duration::from_millis(200));
    let store = filled(&matrix);
    let hurt = |touch, found: &[u8]| {
        let is_hurt = touch == Touch::Read && (0..20).any(|i| key(i) == found);
        if is_hurt { Fault::Corrupt } else { Fault::None }
    };
    switches.stores[0].set(hurt);
    add_group(&matrix, &store);
    let result = store.wait_moved(PATIENCE);
    assert!(matches!(result, Err(Error::Corrupt { .. })), "{result:?}");
    switches.stores[0].set(|_, _| Fault::None);
    store.wait_moved(PATIENCE).expect("what was damaged can be read again");
    assert_holds(&store);
}

#[test]
fn stats_count_epochs_since_the_open_and_distinguish_filling_from_behind() {
    let matrix = Matrix::new("waits-account", 1, 3).with(|options| options.copy_rate = 64);
    let store = filled(&matrix);
    let count = |store: &Mkvs, name: &str| store.stats().engine_counters[name];
    let counts = |store: &Mkvs| ["active", "filling", "behind"].map(|name| count(store, &format!("devices_{name}")));
    assert_eq!((count(&store, "epoch_changes"), counts(&store)), (0, [3, 0, 0]), "a new matrix");
    let store = reopened_without(&matrix, store, &[]);
    assert_eq!((count(&store, "epoch_changes"), counts(&store)), (0, [3, 0, 0]), "an open is no change");
    replace(&matrix, &store, 1);
    assert_eq!(count(&store, "epoch_changes"), 1, "one was taken out");
    while counts(&store) != [2, 1, 0] {
        std::thread::sleep(Duration::from_millis(5));
    }
}
