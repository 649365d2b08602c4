//! Labels: devices that changed places are refused; a filter is not used with an older device; the
//! remains of an interrupted addition are no obstacle.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::Matrix;
use crate::common::faulty::{Fault, Switch, Touch};
use crate::common::switched::switched;
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Result, Store};
use lodestore_mkvs::{Filtering, Mkvs};

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

fn swap(one: &Path, other: &Path) {
    let aside = one.with_extension("aside");
    fs::rename(one, &aside).expect("aside");
    fs::rename(other, one).expect("there");
    fs::rename(&aside, other).expect("back");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("a file");
        }
    }
}

/// The host's store fails to write the description, with an unknown outcome.
fn fail_changes(host: &Switch) {
    host.set(|touch, key| if touch == Touch::Write && key == b"matrix" { Fault::Io } else { Fault::None });
}

#[test]
fn swapped_directories_of_single_device_groups_are_refused() {
    let matrix = Matrix::new("changed places", 2, 1);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    store.close().expect("close");
    drop(store);
    swap(&matrix.device(0, 0), &matrix.device(1, 0));
    let refused = matrix.open().map(drop);
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
    swap(&matrix.device(0, 0), &matrix.device(1, 0));
    assert_holds(&matrix.open().expect("open"));
}

#[test]
fn swapped_pool_files_are_refused_even_with_the_right_labels() {
    for devices in [1, 2] {
        let matrix = Matrix::new("pools changed places", 2, devices);
        let store = matrix.create(CAPACITY).expect("create");
        fill(&store);
        store.close().expect("close");
        drop(store);
        swap(&matrix.device(0, 0).join("store/pool.0000"), &matrix.device(1, 0).join("store/pool.0000"));
        match (devices, matrix.open()) {
            (1, refused) => assert!(matches!(refused.map(drop), Err(Error::Foreign { .. }))),
            (_, opened) => {
                let store = opened.expect("the others are there");
                assert_holds(&store);
                let lost = store.status().devices.into_iter().filter_map(|device| device.why);
                assert_eq!(lost.filter(|why| why.contains("another matrix or device")).count(), 2);
            }
        }
    }
}

#[test]
fn swapped_stores_without_their_logs_count_as_lost_devices() {
    let matrix = Matrix::new("pairs changed places", 2, 2);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    store.close().expect("close");
    drop(store);
    swap(&matrix.device(0, 0).join("store"), &matrix.device(1, 0).join("store"));
    let store = matrix.open().expect("the others are there");
    assert_holds(&store);
    let status = store.status();
    let lost: Vec<_> = status.devices.iter().filter_map(|device| device.why.as_deref()).collect();
    assert_eq!(lost.len(), 2, "{status:?}");
    assert!(lost.iter().all(|why| why.contains("another matrix or device")), "{lost:?}");
}

#[test]
fn an_older_copy_of_a_pool_file_is_refused_at_each_open_and_reported_by_a_salvage() {
    for (devices, is_killed) in [(1, false), (1, true), (2, false), (2, true)] {
        let matrix = Matrix::new("older pool", 1, devices);
        let store = matrix.create(CAPACITY).expect("create");
        (0..KEYS).for_each(|i| store.put(&key(i), b"older").expect("put"));
        store.close().expect("close");
        drop(store);
        let pool = matrix.device(0, 0).join("store/pool.0000");
        let older = fs::read(&pool).expect("a pool");
        let store = matrix.open().expect("open");
        fill(&store);
        if !is_killed {
            store.close().expect("close");
        }
        drop(store);
        fs::write(&pool, older).expect("a pool");
        for open in 0..3 {
            match (devices, matrix.open()) {
                (1, refused) => {
                    let refused = refused.map(drop);
                    assert!(matches!(refused, Err(Error::Corrupt { .. })), "open {open}: {refused:?}");
                }
                (_, opened) => {
                    let store = opened.expect("the other one is there");
                    assert_holds(&store);
                    let lost: Vec<_> = store.status().devices.into_iter().filter_map(|device| device.why).collect();
                    assert!(lost.len() == 1 && lost[0].contains("older copy"), "open {open}: {lost:?}");
                }
            }
        }
        if devices == 1 {
            let salvage = matrix.with(|options| options.salvage = true);
            let store = salvage.open().expect("salvage");
            assert_eq!(store.get(&key(7)).expect("get").as_deref(), Some(&b"older"[..]));
            let findings = store.verify(&mut |_| ()).expect("verify").findings;
            assert!(findings.iter().any(|finding| finding.what.contains("older copy")), "{findings:?}");
            store.close().expect("close");
            drop(store);
            let strict = salvage.with(|options| options.salvage = false);
            assert!(strict.open().is_err(), "a salvage makes nothing newer");
        }
    }
}

#[test]
fn a_newer_filter_is_not_used_for_an_older_device() {
    let matrix = Matrix::new("older", 1, 1).with(|options| options.filter = Filtering::On);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    store.close().expect("close");
    drop(store);
    let older = matrix.path().join("older");
    copy(&matrix.device(0, 0), &older);
    let store = matrix.open().expect("open");
    assert_eq!(store.delete(&key(7)).ok(), Some(true));
    store.close().expect("close");
    drop(store);
    fs::remove_dir_all(matrix.device(0, 0)).expect("lost");
    fs::rename(&older, matrix.device(0, 0)).expect("the older one in its place");
    assert!(matches!(matrix.open().map(drop), Err(Error::Corrupt { .. })), "an older device");
    // A salvage shows the device's pairs: the filter of the newer device is not used.
    assert_holds(&matrix.with(|options| options.salvage = true).open().expect("salvage"));
}

#[test]
fn a_close_writes_the_label_into_a_renamed_device_directory() {
    const OTHER_LABEL: &[u8] = b"the label of a device of another matrix";
    let matrix = Matrix::new("renamed", 1, 1).with(|options| options.filter = Filtering::On);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    let label_of = |device: &Path| fs::read(device.join("store/label")).expect("a label");
    let (device, renamed) = (matrix.device(0, 0), matrix.path().join("renamed"));
    let before = label_of(&device);
    fs::rename(&device, &renamed).expect("renamed");
    fs::create_dir_all(device.join("store")).expect("a directory");
    fs::write(device.join("store/label"), OTHER_LABEL).expect("a label");
    store.close().expect("close");
    drop(store);
    assert_eq!(label_of(&device), OTHER_LABEL, "the close touches no device of another matrix");
    assert_ne!(label_of(&renamed), before, "the device's own label names the clean stop");
    fs::remove_dir_all(&device).expect("removed");
    fs::rename(&renamed, &device).expect("back in its place");
    assert_holds(&matrix.open().expect("open"));
}

#[test]
fn a_missing_or_damaged_label_is_ignored_and_rewritten() {
    for devices in [1, 2] {
        let matrix = Matrix::new("labels", 1, devices).with(|options| options.filter = Filtering::On);
        let mut store = matrix.create(CAPACITY).expect("create");
        fill(&store);
        for damage in [None, Some(&b"damaged"[..]), Some(&[0; 48][..])] {
            store.close().expect("close");
            drop(store);
            labels(&matrix, devices).iter().for_each(|label| match damage {
                None => fs::remove_file(label).expect("a label"),
                Some(bytes) => fs::write(label, bytes).expect("a label"),
            });
            store = matrix.open().expect("open");
            assert_holds(&store);
            assert_eq!(store.stats().engine_counters["devices_active"], devices as u64);
            let is_whole = |label: &PathBuf| fs::read(label).expect("a label").starts_with(b"LODELABL");
            assert!(labels(&matrix, devices).iter().all(is_whole));
        }
    }
}

/// Returns the labels of the devices of the only group, and of their pairs.
fn labels(matrix: &Matrix, devices: usize) -> Vec<PathBuf> {
    (0..devices).flat_map(|at| [matrix.device(0, at).join("label"), matrix.device(0, at).join("store/label")]).collect()
}

#[test]
fn remains_of_an_interrupted_change_do_not_prevent_its_repetition() {
    let (matrix, switches) = switched("left over", 3);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    let new = matrix.path().join("new");
    let replace = |store: &Mkvs| store.replace(0, 2, &new, &matrix.path(), &matrix.places);
    let add = |store: &Mkvs| store.add_group(&[], &matrix.path(), &matrix.places);
    fail_changes(&switches.host);
    assert!(add(&store).is_err());
    drop(store);
    assert!(matrix.device(1, 2).join("store").exists(), "it may be in the description");
    switches.host.clear();
    let store = matrix.open().expect("open");
    assert_eq!(store.status().groups, 1);
    add(&store).expect("what is left of it is made anew");
    store.wait_whole(PATIENCE).expect("whole");
    // The state after an interruption: labelled as coming, half created.
    copy(&matrix.device(0, 2), &new);
    let label = fs::read(new.join("label")).expect("a label");
    fs::write(new.join("label"), coming(&label)).expect("a label");
    fs::remove_dir_all(new.join("log")).expect("half of it");
    replace(&store).expect("what is left of it is made anew");
    store.wait_whole(PATIENCE).expect("whole");
    assert_holds(&store);
}

/// The label of another device of the same matrix, which is coming.
fn coming(label: &[u8]) -> Vec<u8> {
    let mut label = label.to_vec();
    label[10] = 1;
    label[24] ^= 0xff;
    let sum = xxhash_rust::xxh3::xxh3_64(&label[..40]);
    label[40..].copy_from_slice(&sum.to_le_bytes());
    label
}

#[test]
fn the_directory_of_a_present_or_former_device_is_not_removed_as_a_remain() {
    let matrix = Matrix::new("in use", 1, 3);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    let replace = |device: usize, to: &Path| -> Result<()> {
        store.replace(0, device, to, &matrix.path(), &matrix.places).map(drop)
    };
    replace(2, &matrix.path().join("new")).expect("replace");
    store.wait_whole(PATIENCE).expect("whole");
    for there in [matrix.device(0, 2), matrix.device(0, 1), matrix.path().join("new")] {
        let refused = replace(0, &there);
        assert!(matches!(refused, Err(Error::Exists { .. })), "{there:?}: {refused:?}");
        assert!(there.join("store/pool.0000").exists() && there.join("label").exists());
    }
    assert_holds(&store);
}
