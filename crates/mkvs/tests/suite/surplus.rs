//! A device with damaged pairs of deleted keys, and one whose copy may lack pairs: their votes tell
//! nothing about a key. Regression: an acknowledged put was absent, since the filter did not count
//! its key, and a repeated delete removed other keys from the filter.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::common::Matrix;
use crate::common::faulty::{Fault, Touch};
use crate::common::switched::{Switches, switched};
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Store, Visit};
use lodestore_mkvs::{Acks, Filtering, Mkvs};

const CAPACITY: u64 = 64 << 20;
/// The start of each value, before the number of its key.
const VALUE_TAG: &[u8] = b"<<value of key ";

fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

fn value(i: u64) -> Vec<u8> {
    [VALUE_TAG, format!("{i:06} {}", "x".repeat(100)).as_bytes()].concat()
}

fn wait_until_behind(store: &Mkvs) {
    let begun = Instant::now();
    while store.status().devices.iter().all(|device| device.state == "active") {
        assert!(begun.elapsed() < HANG_TIMEOUT, "{:?}", store.status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Flips a byte in each value on device 0 whose key has a number below `deleted`.
fn damage_values(matrix: &Matrix, deleted: u64) {
    for entry in fs::read_dir(matrix.device(0, 0).join("store")).expect("a directory") {
        let path = entry.expect("an entry").path();
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pool.")) {
            continue;
        }
        let bytes = fs::read(&path).expect("a pool");
        let file = fs::OpenOptions::new().write(true).open(&path).expect("a pool");
        let tags = bytes.windows(VALUE_TAG.len()).enumerate().filter(|(_, window)| *window == VALUE_TAG);
        for (at, _) in tags {
            let digits = &bytes[at + VALUE_TAG.len()..at + VALUE_TAG.len() + 6];
            let number: u64 = String::from_utf8_lossy(digits).parse().expect("a number");
            if number < deleted {
                file.write_at(b"!", (at + 50) as u64).expect("written");
            }
        }
    }
}

/// Returns a matrix whose device 0 has damaged pairs of the keys below `deleted`, which the group
/// has deleted. All other of `keys` keys exist.
fn with_surplus(
    is_unordered: bool,
    (devices, acks): (usize, Acks),
    keys: u64,
    deleted: u64,
) -> (Matrix, Switches, Mkvs) {
    let (matrix, switches) = switched("surplus", devices);
    let matrix = matrix.on(|places| places.is_unordered = is_unordered);
    let matrix = matrix.with(|options| (options.filter, options.acks) = (Filtering::On, acks));
    let store = matrix.create(CAPACITY).expect("create");
    (0..keys).for_each(|i| store.put(&key(i), &value(i)).expect("put"));
    store.wait_whole(HANG_TIMEOUT).expect("all have it");
    switches.stores[0].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    (0..deleted).for_each(|i| assert!(store.delete(&key(i)).expect("delete")));
    // More than the logs hold.
    (deleted..keys).for_each(|i| store.put(&key(i), &value(i)).expect("put"));
    wait_until_behind(&store);
    damage_values(&matrix, deleted);
    switches.stores[0].clear();
    store.wait_whole(HANG_TIMEOUT).expect("it is copied");
    assert_eq!(store.stats().engine_counters["devices_copied"], 1);
    assert_eq!(store.len().expect("len"), keys - deleted);
    (matrix, switches, store)
}

#[test]
fn a_put_of_a_key_whose_damaged_pair_a_device_still_has_is_counted_by_the_filter() {
    for is_unordered in [false, true] {
        for group in [(2, Acks::One), (3, Acks::Majority)] {
            let (matrix, _switches, store) = with_surplus(is_unordered, group, 2000, 100);
            (0..100).for_each(|i| store.put(&key(i), b"again").expect("put"));
            let assert_found = |store: &Mkvs| {
                for i in 0..100 {
                    assert_eq!(store.get(&key(i)).expect("get").as_deref(), Some(&b"again"[..]), "{group:?}, key {i}");
                }
            };
            assert_found(&store);
            store.close().expect("close");
            drop(store);
            assert_found(&matrix.open().expect("open"));
        }
    }
}

#[test]
fn a_repeated_delete_removes_no_other_key_from_the_filter() {
    let (_matrix, switches, store) = with_surplus(false, (2, Acks::One), 8000, 4000);
    // The device with the surplus votes first.
    let slow =
        |touch, _: &[u8]| if touch == Touch::Write { Fault::Slow(Duration::from_millis(1)) } else { Fault::None };
    switches.stores[1].set(slow);
    (0..4000).for_each(|i| assert!(!store.delete(&key(i)).expect("delete"), "key {i} was deleted"));
    (4000..8000).for_each(|i| assert!(store.get(&key(i)).expect("get").is_some(), "key {i}"));
}

/// Returns a matrix of two devices. Device 1 was copied while no device could read `unread`.
fn with_gaps(unread: &'static [u64]) -> (Matrix, Switches, Mkvs) {
    let (matrix, switches) = switched("gaps", 2);
    let matrix = matrix.on(|places| places.is_memory = false);
    let matrix = matrix.with(|options| (options.filter, options.acks) = (Filtering::Off, Acks::One));
    let store = matrix.create(CAPACITY).expect("create");
    (0..300).for_each(|i| store.put(&key(i), b"value").expect("put"));
    store.wait_whole(HANG_TIMEOUT).expect("both have it");
    let is_unread = |found: &[u8]| unread.iter().any(|i| key(*i) == found);
    switches.stores[0].set(
        move |touch, found| {
            if touch == Touch::Read && is_unread(found) { Fault::Corrupt } else { Fault::None }
        },
    );
    store.replace(0, 1, &matrix.path().join("new"), &matrix.path(), &matrix.places).expect("replace");
    store.wait_whole(HANG_TIMEOUT).expect("it is copied");
    (matrix, switches, store)
}

#[test]
fn a_vote_of_a_device_with_gaps_does_not_answer_a_delete() {
    let (_matrix, switches, store) = with_gaps(&[100]);
    // The pair can be read again, and its device votes last.
    switches.stores[0].set(
        |touch, _| {
            if touch == Touch::Write { Fault::Slow(Duration::from_millis(200)) } else { Fault::None }
        },
    );
    assert!(store.delete(&key(100)).expect("delete"), "the key existed");
}

#[test]
fn no_delete_of_a_key_that_never_existed_answers_that_it_did_while_keys_move() {
    let (matrix, switches, store) = with_gaps(&[100]);
    switches.stores[0].set(|_, _| Fault::Io);
    store.put(&key(5), b"new").expect("one device is left");
    wait_until_behind(&store);
    store.add_group(&[], &matrix.path(), &matrix.places).expect("a group");
    for i in 1000..1040 {
        let deleted = store.delete(&key(i));
        assert!(matches!(deleted, Ok(false) | Err(Error::Corrupt { .. })), "key {i}: {deleted:?}");
    }
}

#[test]
fn a_group_whose_devices_have_gaps_or_a_surplus_is_counted_by_a_walk() {
    let (matrix, switches, store) = with_surplus(false, (2, Acks::One), 2000, 1);
    switches.stores[0].set(
        |touch, found| {
            if touch == Touch::Read && found == key(7) { Fault::Corrupt } else { Fault::None }
        },
    );
    store.replace(0, 1, &matrix.path().join("new"), &matrix.path(), &matrix.places).expect("replace");
    store.wait_whole(HANG_TIMEOUT).expect("it is copied");
    switches.stores[0].clear();
    // No damaged pair is left.
    [0, 7].into_iter().for_each(|i| store.put(&key(i), b"value").expect("put"));
    assert_eq!(store.for_each(&mut |_, _| Visit::More).expect("walk"), 2000);
    assert_eq!(store.len().expect("len"), 2000);
}
