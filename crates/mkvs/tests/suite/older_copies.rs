//! A store of the matrix that was replaced by a copy from the same session, while the matrix was in
//! use. Regression: values of the copy were returned, and no open reported it.

use std::fs;
use std::path::PathBuf;

use crate::common::Matrix;
use crate::common::faulty::{Fault, Touch};
use crate::common::switched::switched;
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Result, Store};
use lodestore_mkvs::{Acks, Mkvs, MkvsOptions};

const CAPACITY: u64 = 32 << 20;
const KEYS: u64 = 300;
/// Operations of a log. A quarter of them separates two numbers of a device's store.
const LOG_OPS: u64 = 64;

fn key(i: u64) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

fn put_all(store: &Mkvs, value: &[u8]) {
    (0..KEYS).for_each(|i| store.put(&key(i), value).expect("put"));
}

fn assert_all(store: &Mkvs, value: &[u8]) {
    for i in 0..KEYS {
        assert_eq!(store.get(&key(i)).expect("get").as_deref(), Some(value), "key {i}");
    }
}

/// Sets short logs and this rule of acknowledgement.
fn set_options(options: &mut MkvsOptions, acks: Acks) {
    options.log_ops = LOG_OPS;
    (options.soft_lag, options.hard_lag) = (Some(LOG_OPS / 8), Some(LOG_OPS / 4));
    options.acks = acks;
    options.timeout = HANG_TIMEOUT;
}

fn matrix(name: &'static str, devices: usize, acks: Acks) -> Matrix {
    Matrix::new(name, 1, devices).with(|options| set_options(options, acks))
}

/// The reasons why devices are lost.
fn losses(store: &Mkvs) -> Vec<String> {
    store.status().devices.into_iter().filter_map(|device| device.why).collect()
}

/// Asserts that this open was refused because of an older copy.
fn assert_is_older(opened: Result<()>, open: u32) {
    match opened {
        Err(Error::Corrupt { what, .. }) => assert!(what.contains("older copy"), "open {open}: {what}"),
        other => panic!("open {open}: {other:?}"),
    }
}

fn pairs_of(matrix: &Matrix) -> PathBuf {
    matrix.device(0, 0).join("store/pool.0000")
}

#[test]
fn an_older_copy_of_a_devices_pairs_from_the_same_session_is_refused_at_each_open() {
    for (devices, acks) in [(3, Acks::Majority), (3, Acks::One), (3, Acks::All)] {
        let matrix = matrix("older pairs", devices, acks);
        let store = matrix.create(CAPACITY).expect("create");
        put_all(&store, b"older");
        let older = fs::read(pairs_of(&matrix)).expect("a pool");
        put_all(&store, b"newer");
        drop(store);
        fs::write(pairs_of(&matrix), older).expect("a pool");
        for open in 0..3 {
            match matrix.open() {
                Ok(store) => {
                    let lost = losses(&store);
                    assert!(lost.len() == 1 && lost[0].contains("older copy"), "{acks:?}, open {open}: {lost:?}");
                    assert_all(&store, b"newer");
                }
                // Each device may be the only one with a write.
                Err(Error::TooFewDevices { .. }) if acks == Acks::One => {}
                Err(other) => panic!("{acks:?}, open {open}: {other}"),
            }
        }
    }
}

#[test]
fn an_older_copy_of_a_devices_pairs_gets_the_last_operations_from_its_log() {
    let matrix = matrix("slightly older pairs", 3, Acks::Majority);
    let store = matrix.create(CAPACITY).expect("create");
    put_all(&store, b"older");
    let older = fs::read(pairs_of(&matrix)).expect("a pool");
    (0..3).for_each(|i| store.put(&key(i), b"newer").expect("put"));
    drop(store);
    fs::write(pairs_of(&matrix), older).expect("a pool");
    let store = matrix.open().expect("open");
    assert_eq!(losses(&store), Vec::<String>::new());
    for i in 0..KEYS {
        let value: &[u8] = if i < 3 { b"newer" } else { b"older" };
        assert_eq!(store.get(&key(i)).expect("get").as_deref(), Some(value), "key {i}");
    }
}

/// Fills a matrix of two devices and puts an older copy of the first device's log in its place.
/// Returns the matrix, and the directory of the second device, which is moved away.
fn with_older_log(is_closed: bool) -> (Matrix, PathBuf) {
    let matrix = matrix("older log", 2, Acks::Majority);
    let pool = matrix.device(0, 0).join("log/pool.0000");
    let store = matrix.create(CAPACITY).expect("create");
    put_all(&store, b"older");
    let older = fs::read(&pool).expect("a pool");
    put_all(&store, b"newer");
    if is_closed {
        store.close().expect("close");
    }
    drop(store);
    fs::write(&pool, older).expect("a pool");
    let away = matrix.path().join("away");
    fs::rename(matrix.device(0, 1), &away).expect("moved");
    (matrix, away)
}

#[test]
fn an_older_copy_of_a_log_is_refused_also_without_the_other_devices() {
    for is_closed in [false, true] {
        let (matrix, away) = with_older_log(is_closed);
        for open in 0..3 {
            assert_is_older(matrix.open().map(drop), open);
        }
        fs::rename(away, matrix.device(0, 1)).expect("moved");
        let store = matrix.open().expect("open");
        assert_all(&store, b"newer");
        let lost = losses(&store);
        assert!(lost.len() == 1 && lost[0].contains("older copy"), "{lost:?}");
    }
}

#[test]
fn a_salvage_makes_no_older_log_acceptable_and_undoes_no_pair() {
    let (matrix, away) = with_older_log(false);
    let salvage = matrix.with(|options| options.salvage = true);
    for _ in 0..3 {
        let store = salvage.open().expect("salvage");
        let findings = store.verify(&mut |_| ()).expect("verify").findings;
        assert!(findings.iter().any(|finding| finding.what.contains("older copy")), "{findings:?}");
        assert_all(&store, b"newer");
    }
    let matrix = salvage.with(|options| options.salvage = false);
    assert_is_older(matrix.open().map(drop), 0);
    fs::rename(away, matrix.device(0, 1)).expect("moved");
    assert_all(&matrix.open().expect("open"), b"newer");
}

#[test]
fn a_salvage_that_fails_makes_no_older_copy_acceptable() {
    let matrix = Matrix::new("failed salvage", 2, 1);
    let store = matrix.create(CAPACITY).expect("create");
    put_all(&store, b"older");
    store.close().expect("close");
    drop(store);
    let older = fs::read(pairs_of(&matrix)).expect("a pool");
    let store = matrix.open().expect("open");
    put_all(&store, b"newer");
    store.close().expect("close");
    drop(store);
    fs::write(pairs_of(&matrix), older).expect("a pool");
    let away = matrix.path().join("away");
    fs::rename(matrix.device(1, 0), &away).expect("moved");
    let salvage = matrix.with(|options| options.salvage = true);
    (0..3).for_each(|_| assert!(salvage.open().is_err(), "the only device of a group is missing"));
    fs::rename(away, salvage.device(1, 0)).expect("moved");
    let strict = salvage.with(|options| options.salvage = false);
    assert_is_older(strict.open().map(drop), 0);
}

#[test]
fn an_older_copy_of_the_description_is_refused_if_a_later_epoch_has_operations() {
    let (matrix, switches) = switched("older host", 3);
    let matrix = matrix.with(|options| set_options(options, Acks::Majority));
    let pool = matrix.path().join("host/pool.0000");
    let store = matrix.create(CAPACITY).expect("create");
    put_all(&store, b"older");
    let older = fs::read(&pool).expect("a pool");
    switches.stores[0].set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
    put_all(&store, b"newer");
    drop(store);
    switches.stores[0].clear();
    // Each open begins an epoch.
    (0..3).for_each(|_| put_all(&matrix.open().expect("open"), b"newer"));
    fs::write(&pool, older).expect("a pool");
    for open in 0..3 {
        assert_is_older(matrix.open().map(drop), open);
    }
    let salvage = matrix.with(|options| options.salvage = true);
    let store = salvage.open().expect("salvage");
    let findings = store.verify(&mut |_| ()).expect("verify").findings;
    assert!(findings.iter().any(|finding| finding.what.contains("older copy")), "{findings:?}");
    // A replacement accepts the loss.
    let new = salvage.path().join("new");
    store.replace(0, 0, &new, &salvage.path(), &salvage.places).expect("replace");
    store.settle().expect("what threads would do");
    store.close().expect("close");
    drop(store);
    let strict = salvage.with(|options| options.salvage = false);
    assert_all(&strict.open().expect("a strict open"), b"newer");
}

/// Adds a group to a matrix with groups of this many devices, and puts the description from before
/// that in its place.
fn with_description_before_group(devices: usize, is_closed: bool) -> Matrix {
    let matrix = matrix("fewer groups", devices, Acks::Majority);
    let pool = matrix.path().join("host/pool.0000");
    let store = matrix.create(CAPACITY).expect("create");
    put_all(&store, b"older");
    let older = fs::read(&pool).expect("a pool");
    store.add_group(&[], &matrix.path(), &matrix.places).expect("a group");
    store.settle().expect("what threads would do");
    put_all(&store, b"newer");
    if is_closed {
        store.close().expect("close");
    }
    drop(store);
    fs::write(&pool, older).expect("a pool");
    matrix
}

/// Regression: the keys of the added group were plainly absent.
#[test]
fn an_older_copy_of_the_description_that_names_fewer_groups_is_refused() {
    for (devices, is_closed) in [(1, false), (1, true), (2, false), (2, true)] {
        let matrix = with_description_before_group(devices, is_closed);
        (0..3).for_each(|open| assert_is_older(matrix.open().map(drop), open));
        let salvage = matrix.with(|options| options.salvage = true);
        let store = salvage.open().expect("salvage");
        let findings = store.verify(&mut |_| ()).expect("verify").findings;
        assert!(findings.iter().any(|finding| finding.what.contains("older copy")), "{findings:?}");
        drop(store);
        let strict = salvage.with(|options| options.salvage = false);
        assert!(matches!(strict.open(), Err(Error::Corrupt { .. })), "{devices} devices, closed {is_closed}");
    }
}

#[test]
fn a_replacement_in_a_salvage_accepts_the_loss_of_a_group() {
    let matrix = with_description_before_group(3, true).with(|options| options.salvage = true);
    let store = matrix.open().expect("salvage");
    store.wait_whole(HANG_TIMEOUT).expect("all devices are in use");
    store.replace(0, 0, &matrix.path().join("new"), &matrix.path(), &matrix.places).expect("replace");
    store.settle().expect("what threads would do");
    store.close().expect("close");
    drop(store);
    let store = matrix.with(|options| options.salvage = false).open().expect("a strict open");
    let found = (0..KEYS).filter(|i| store.get(&key(*i)).expect("get").as_deref() == Some(b"newer")).count() as u64;
    assert!(found > 0 && found < KEYS, "{found} keys of the first group");
}

/// The description is durable before the devices know of the group.
#[test]
fn an_open_after_a_group_was_added_notes_the_number_of_groups_again() {
    let matrix = matrix("noted again", 1, Acks::Majority);
    let pool = matrix.path().join("host/pool.0000");
    let store = matrix.create(CAPACITY).expect("create");
    put_all(&store, b"value");
    let before = fs::read(&pool).expect("a pool");
    let device = fs::read(pairs_of(&matrix)).expect("a pool");
    store.add_group(&[], &matrix.path(), &matrix.places).expect("a group");
    drop(store);
    // As after a crash between both.
    fs::write(pairs_of(&matrix), device).expect("a pool");
    drop(matrix.open().expect("open"));
    fs::write(&pool, before).expect("a pool");
    assert_is_older(matrix.open().map(drop), 0);
}
