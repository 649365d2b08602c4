//! The number of groups that each device knows of: crashes, failing and hanging devices, and
//! salvages around the addition of a group.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::Matrix;
use crate::common::faulty::{Fault, Touch};
use crate::common::switched::{Switches, switched};
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Store};
use lodestore_mkvs::{Acks, Mkvs};

const CAPACITY: u64 = 32 << 20;
const KEYS: u64 = 300;

fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

fn put_all(store: &Mkvs, value: &[u8]) {
    (0..KEYS).for_each(|i| store.put(&key(i), value).expect("put"));
}

fn add_group(matrix: &Matrix, store: &Mkvs) -> lodestore_contract::Result<()> {
    store.add_group(&[], &matrix.path(), &matrix.places)
}

fn host_pool(matrix: &Matrix) -> PathBuf {
    matrix.path().join("host/pool.0000")
}

/// The pool that has a device's number of groups.
fn counting_pool(matrix: &Matrix, devices: usize, device: usize) -> PathBuf {
    matrix.device(0, device).join(if devices == 1 { "store/pool.0000" } else { "log/pool.0000" })
}

fn assert_older(opened: lodestore_contract::Result<()>, devices: usize) {
    let refusal = opened.expect_err("an older description").to_string();
    assert!(refusal.contains("older copy") || refusal.contains("gave up"), "{devices} devices: {refusal}");
}

/// Returns a matrix that was closed after the addition of a group, with its description from
/// before that.
fn with_older_description(devices: usize, acks: Acks) -> Matrix {
    let matrix = Matrix::new("older", 1, devices).with(|options| options.acks = acks);
    let store = matrix.create(CAPACITY).expect("create");
    put_all(&store, b"older");
    let older = fs::read(host_pool(&matrix)).expect("a pool");
    add_group(&matrix, &store).expect("a group");
    store.wait_whole(HANG_TIMEOUT).expect("it is whole");
    put_all(&store, b"newer");
    store.close().expect("close");
    drop(store);
    fs::write(host_pool(&matrix), older).expect("a pool");
    matrix
}

#[test]
fn no_group_is_added_in_a_salvage_with_an_older_description() {
    for devices in [1, 3] {
        let matrix = with_older_description(devices, Acks::Majority).with(|options| options.salvage = true);
        let store = matrix.open().expect("salvage");
        let elsewhere: Vec<_> = (0..devices).map(|device| matrix.path().join(format!("new{device}"))).collect();
        let added = store.add_group(&elsewhere, &matrix.path(), &matrix.places);
        assert!(matches!(added, Err(Error::Unsupported { .. })), "{added:?}");
        store.close().expect("close");
        drop(store);
        assert_older(matrix.with(|options| options.salvage = false).open().map(drop), devices);
    }
}

#[test]
fn a_salvage_without_doubts_notes_the_number_of_groups() {
    for devices in [1, 3] {
        let matrix = Matrix::new("noted", 1, devices);
        let store = matrix.create(CAPACITY).expect("create");
        store.wait_whole(HANG_TIMEOUT).expect("it is whole");
        let older = fs::read(host_pool(&matrix)).expect("a pool");
        let pools: Vec<_> = (0..devices).map(|device| counting_pool(&matrix, devices, device)).collect();
        let counts: Vec<_> = pools.iter().map(|pool| fs::read(pool).expect("a pool")).collect();
        add_group(&matrix, &store).expect("a group");
        drop(store);
        // As after a crash between the description and the devices.
        pools.iter().zip(counts).for_each(|(pool, bytes)| fs::write(pool, bytes).expect("a pool"));
        let matrix = matrix.with(|options| options.salvage = true);
        put_all(&matrix.open().expect("salvage"), b"value");
        fs::write(host_pool(&matrix), older).expect("a pool");
        assert_older(matrix.with(|options| options.salvage = false).open().map(drop), devices);
    }
}

#[test]
fn a_refused_open_leaves_an_older_copy_of_all_files_acceptable() {
    for devices in [1, 3] {
        let matrix = Matrix::new("all older", 1, devices);
        let store = matrix.create(CAPACITY).expect("create");
        put_all(&store, b"value");
        let copy: Vec<_> = matrix.files().into_iter().map(|file| matrix.path().join(file)).collect();
        let copy: Vec<_> = copy.into_iter().map(|file| (fs::read(&file).expect("a file"), file)).collect();
        let restore = |part: &dyn Fn(&PathBuf) -> bool| {
            let chosen = copy.iter().filter(|(_, file)| part(file));
            chosen.for_each(|(bytes, file)| fs::write(file, bytes).expect("a file"));
        };
        add_group(&matrix, &store).expect("a group");
        drop(store);
        let is_hosts = |file: &PathBuf| file.starts_with(matrix.path().join("host"));
        restore(&|file| !is_hosts(file));
        let away = matrix.path().join("away");
        fs::create_dir(&away).expect("a directory");
        (0..devices).for_each(|device| {
            fs::rename(matrix.device(1, device), away.join(device.to_string())).expect("moved");
        });
        assert!(matrix.open().is_err(), "the devices of the new group are missing");
        restore(&is_hosts);
        matrix.open().expect("all files are of one moment");
    }
}

/// Returns a matrix whose device 0 has this fault when it stores the number of groups.
fn create_with_mark_fault(devices: usize, fault: Fault) -> (Matrix, Switches, Arc<Mkvs>) {
    let (matrix, switches) = switched("faulty", devices);
    let matrix = matrix.with(|options| options.timeout = Duration::from_millis(500));
    let store = Arc::new(matrix.create(CAPACITY).expect("create"));
    put_all(&store, b"value");
    store.wait_whole(HANG_TIMEOUT).expect("it is whole");
    let switch = if devices == 1 { &switches.stores[0] } else { &switches.logs[0] };
    switch.set(move |touch, _| if touch == Touch::Mark { fault } else { Fault::None });
    (matrix, switches, store)
}

#[test]
fn a_device_that_hangs_blocks_neither_the_addition_of_a_group_nor_its_replacement() {
    let (matrix, _switches, store) = create_with_mark_fault(3, Fault::Slow(HANG_TIMEOUT * 2));
    let (sender, receiver) = mpsc::channel();
    let path = matrix.path();
    std::thread::spawn(move || {
        let changed = add_group(&matrix, &store)
            .and_then(|()| store.replace(0, 0, &matrix.path().join("new"), &matrix.path(), &matrix.places).map(drop));
        // The receiver has stopped waiting if the test failed.
        let _ = sender.send(changed);
    });
    receiver.recv_timeout(HANG_TIMEOUT).expect("it ends").unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

#[test]
fn a_device_that_cannot_store_the_number_fails_alone() {
    let (matrix, switches, store) = create_with_mark_fault(3, Fault::Io);
    add_group(&matrix, &store).expect("the other devices are enough");
    let failed = |store: &Mkvs| store.status().devices.iter().filter(|device| device.state == "failed").count();
    assert_eq!(failed(&store), 1);
    drop(store);
    let store = matrix.open().expect("the other devices are enough");
    assert_eq!(failed(&store), 1, "its fault lasts");
    switches.logs[0].clear();
}

#[test]
fn no_group_is_used_of_which_the_only_device_of_another_cannot_know() {
    let (matrix, switches, store) = create_with_mark_fault(1, Fault::Io);
    assert!(matches!(add_group(&matrix, &store), Err(Error::Io { .. })));
    assert_eq!(store.status().groups, 1);
    switches.stores[0].clear();
    // The description names the group already.
    let elsewhere = [matrix.path().join("elsewhere")];
    let again = store.add_group(&elsewhere, &matrix.path(), &matrix.places);
    assert!(matches!(again, Err(Error::Unsupported { .. })), "{again:?}");
    assert_eq!(store.get(&key(1)).expect("get").as_deref(), Some(&b"value"[..]));
    drop(store);
    let store = matrix.open().expect("open");
    store.wait_whole(HANG_TIMEOUT).expect("the open continues the move");
    assert_eq!((store.status().groups, store.len().expect("len")), (2, KEYS));
}

#[test]
fn a_device_that_was_lost_when_a_group_was_given_up_may_return() {
    let matrix = with_older_description(3, Acks::One);
    let away = matrix.path().join("away");
    fs::rename(matrix.device(0, 2), &away).expect("moved");
    let matrix = matrix.with(|options| options.salvage = true);
    let store = matrix.open().expect("salvage");
    let active = |store: &Mkvs| store.status().devices.iter().filter(|device| device.state == "active").count();
    while active(&store) < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let replaced = store.replace(0, 0, &matrix.path().join("new"), &matrix.path(), &matrix.places);
    assert!(replaced.expect("replace").gave_up.is_some());
    while active(&store) < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    store.close().expect("close");
    drop(store);
    fs::rename(away, matrix.device(0, 2)).expect("moved");
    let store = matrix.with(|options| options.salvage = false).open().expect("a strict open");
    store.wait_whole(HANG_TIMEOUT).expect("it catches up");
}
