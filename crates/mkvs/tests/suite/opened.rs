//! Opens of a matrix with devices that cannot be opened, for any reason.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::Matrix;
use crate::common::faulty::{Fault, Touch};
use crate::common::switched::switched;
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Durability, Error, Store};
use lodestore_mkvs::{Acks, Mkvs, Part};

const CAPACITY: u64 = 32 << 20;
const KEYS: u64 = 100;
const PATIENCE: Duration = HANG_TIMEOUT;

fn key(i: u64) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

fn assert_holds(store: &Mkvs) {
    for i in 0..KEYS {
        assert_eq!(store.get(&key(i)).expect("get").as_deref(), Some(&i.to_le_bytes()[..]), "key {i}");
    }
}

/// A matrix of one group that was stopped cleanly.
fn stopped(name: &'static str, devices: usize) -> Matrix {
    let matrix = Matrix::new(name, 1, devices);
    let store = matrix.create(CAPACITY).expect("create");
    (0..KEYS).for_each(|i| store.put(&key(i), &i.to_le_bytes()).expect("put"));
    store.close().expect("close");
    matrix
}

/// Makes the opening of these devices' parts end in this error.
fn refusing(mut matrix: Matrix, devices: &'static [usize], of: Part, error: fn(PathBuf) -> Error) -> Matrix {
    let refuse = move |directory: &Path, part: Part| {
        let is_one = devices.iter().any(|device| directory.ends_with(format!("group0.device{device}")));
        (is_one && part == of).then(|| error(directory.into()))
    };
    matrix.places.refuse = Some(Arc::new(refuse));
    matrix
}

fn restarted(path: PathBuf) -> Error {
    Error::MachineRestarted { path }
}

#[test]
fn any_error_at_the_open_of_one_device_loses_only_this_device() {
    let errors: [fn(PathBuf) -> Error; 7] = [
        restarted,
        |_| Error::DurabilityRefused { asked: Durability::Power, medium: "disk".into(), instead: "process".into() },
        |_| Error::WrongEngine { found: "nvht".into(), asked: "hikv".into() },
        |path| Error::Locked { path, holder: "another one".into() },
        |_| Error::Poisoned { cause: "a sync that failed".into() },
        |_| Error::Full { needed: 1, capacity: 1 },
        |_| Error::Unsupported { engine: "hikv", what: "this".into(), instead: "that" },
    ];
    for error in errors {
        for part in [Part::Device, Part::Log] {
            let mut matrix = refusing(stopped("one refuses", 3), &[1], part, error);
            // A matrix is salvaged and locked as a whole: these two errors name the matrix.
            let of_matrix = matches!(error(PathBuf::new()), Error::MachineRestarted { .. } | Error::Locked { .. });
            let named = if of_matrix { matrix.path() } else { matrix.device(0, 1) };
            let said = error(named).to_string();
            let store = matrix.open().unwrap_or_else(|refused| panic!("{said}: {refused}"));
            assert_holds(&store);
            store.put(b"more", b"value").expect("two of three");
            let lost = &store.status().devices[1];
            assert_eq!((lost.state, lost.why.as_ref()), ("failed", Some(&said)));
            drop(store);
            // When it can be opened again, it catches up.
            matrix.places.refuse = None;
            let store = matrix.open().expect("open");
            store.wait_whole(PATIENCE).expect("three devices");
            assert_eq!(store.stats().engine_counters["devices_copied"], 0);
            assert!(store.verify(&mut |_| {}).expect("verify").is_clean());
        }
    }
}

#[test]
fn a_device_with_a_machine_restart_is_replaced() {
    for devices in [2, 3] {
        let matrix = refusing(stopped("restarted", devices), &[1], Part::Device, restarted);
        let store = matrix.open().expect("open");
        assert_holds(&store);
        let new = matrix.path().join("new");
        store.replace(0, 1, &new, &matrix.path(), &matrix.places).expect("replace");
        store.wait_whole(PATIENCE).expect("all devices");
        drop(store);
        std::fs::remove_dir_all(matrix.device(0, 0)).expect("lose another one");
        assert_holds(&matrix.open().expect("open"));
    }
}

#[test]
fn an_open_with_too_few_devices_reports_advice_about_one_of_them() {
    let matrix = refusing(stopped("two restarted", 3), &[0, 2], Part::Device, restarted);
    let refused = matrix.open().err();
    assert!(matches!(&refused, Some(Error::MachineRestarted { path }) if *path == matrix.path()), "{refused:?}");
    let matrix = refusing(matrix, &[2], Part::Log, restarted);
    let away = matrix.path().join("away");
    std::fs::rename(matrix.device(0, 0), &away).expect("lose a device");
    let refused = matrix.open().err();
    assert!(matches!(refused, Some(Error::MachineRestarted { .. })), "{refused:?}");
    // The error for missing devices only contains their number.
    let mut matrix = refusing(matrix, &[2], Part::Log, Error::missing);
    let refused = matrix.open().err();
    assert!(matches!(refused, Some(Error::TooFewDevices { live: 1, needed: 2, .. })), "{refused:?}");
    matrix.options.salvage = true;
    assert_holds(&matrix.open().expect("salvage"));
    (matrix.options.salvage, matrix.places.refuse) = (false, None);
    assert_holds(&matrix.open().expect("two of three"));
}

#[test]
fn a_full_operation_log_does_not_fail_an_open() {
    let (matrix, switches) = switched("log full", 3);
    let matrix = matrix.with(|options| options.threads = false);
    let store = matrix.create(CAPACITY).expect("create");
    (0..KEYS).for_each(|i| store.put(&key(i), &i.to_le_bytes()).expect("put"));
    // Two devices have it only in their logs, the third nowhere; then the host stops. There is no
    // space in the replay either, neither its own nor the leader's.
    let has_no_room = |most: usize| {
        for at in [0, 2] {
            let writes = AtomicUsize::new(0);
            switches.stores[at].set(move |touch, key| {
                let is_put = touch == Touch::Write && key == b"new";
                if is_put && writes.fetch_add(1, Ordering::Relaxed) < most { Fault::Full } else { Fault::None }
            });
        }
    };
    has_no_room(usize::MAX);
    let fails = |touch, _: &[u8]| if touch == Touch::Write { Fault::Io } else { Fault::None };
    switches.logs[1].set(fails);
    switches.host.set(fails);
    assert!(store.put(b"new", b"value").is_err());
    drop(store);
    switches.host.clear();
    has_no_room(2);
    switches.logs[1].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    let store = matrix.open().expect("two of three");
    assert_eq!(store.get(b"new").expect("get"), None);
    assert_holds(&store);
    assert_eq!(
        store.status().devices.iter().map(|device| device.state).collect::<Vec<_>>(),
        ["active", "behind", "active"]
    );
    switches.logs[1].clear();
    store.settle().expect("settle");
    store.wait_whole(PATIENCE).expect("three devices");
    assert!(store.verify(&mut |_| {}).expect("verify").is_clean());
}

#[test]
fn the_devices_of_a_group_replay_their_logs_concurrently() {
    let (matrix, switches) = switched("redone", 3);
    let store = matrix.create(CAPACITY).expect("create");
    (0..KEYS).for_each(|i| store.put(&key(i), &i.to_le_bytes()).expect("put"));
    drop(store);
    // Each device waits for the others at its first call.
    let begun = Arc::new(AtomicUsize::new(0));
    for switch in &switches.stores {
        let (begun, is_first) = (Arc::clone(&begun), AtomicBool::new(true));
        switch.set(move |_, _| {
            if is_first.swap(false, Ordering::AcqRel) {
                begun.fetch_add(1, Ordering::AcqRel);
                let waits = Instant::now();
                while begun.load(Ordering::Acquire) < 3 {
                    if waits.elapsed() > PATIENCE {
                        return Fault::Io;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Fault::None
        });
    }
    let store = matrix.open().expect("open");
    store.wait_whole(PATIENCE).expect("nobody waited in vain");
    assert_holds(&store);
}

#[test]
fn a_salvage_shows_writes_that_only_inactive_devices_have() {
    for is_partial in [false, true] {
        let (matrix, switches) = switched("out", 3);
        let mut matrix = matrix.with(|options| {
            options.acks = Acks::One;
            options.log_ops = 1024;
            (options.hard_lag, options.soft_lag) = (Some(512), Some(64));
        });
        let store = matrix.create(CAPACITY).expect("create");
        (0..KEYS).for_each(|i| store.put(&key(i), &i.to_le_bytes()).expect("put"));
        for switch in &switches.stores[1..] {
            switch.set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
        }
        // The first device is left alone, and the description says so. A device that the logs do
        // not reach needs a copy again.
        (0..if is_partial { 2000 } else { 1 }).for_each(|_| store.put(b"alone", b"value").expect("put"));
        drop(store);
        if is_partial {
            // They have no space for the copy.
            for switch in &switches.stores[1..] {
                switch.set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
            }
            drop(matrix.open().expect("open"));
        }
        switches.stores.iter().for_each(|switch| switch.clear());
        std::fs::remove_dir_all(matrix.device(0, 0)).expect("lose the one that was left");
        assert!(matches!(matrix.open().map(drop), Err(Error::TooFewDevices { .. })));
        matrix.options.salvage = true;
        let store = matrix.open().unwrap_or_else(|error| panic!("partial {is_partial}: {error}"));
        assert_holds(&store);
        let findings = store.verify(&mut |_| ()).expect("verify").findings;
        let says_so = findings.iter().any(|finding| finding.what.contains("newer values may be missing"));
        assert!(says_so && store.stats().recovery.corrupt > 0, "partial {is_partial}: {findings:?}");
    }
}
