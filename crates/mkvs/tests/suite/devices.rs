//! Devices that fail, lag, refuse, come back or are lost: acknowledged writes stay, and only
//! complete devices answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::Matrix;
use crate::common::faulty::{Fault, Switch, Touch};
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Finding, Lifetime, Store};
use lodestore_mkvs::{Acks, Inline, Mkvs, Reads};

const CAPACITY: u64 = 32 << 20;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A matrix of one group whose devices' stores have these switches.
fn switched(name: &'static str, devices: usize) -> (Matrix, Vec<Switch>) {
    let (matrix, switches) = common::switched::switched(name, devices);
    (matrix, switches.stores)
}

fn key(i: usize) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

/// Writes `count` keys from `from` on, each twice and some deleted; acknowledged writes go to the
/// model.
fn write(store: &Mkvs, model: &mut Model, from: usize, count: usize) {
    for i in from..from + count {
        for round in 0..2 {
            let value = format!("value {i} {round}").into_bytes();
            store.put(&key(i), &value).expect("put");
            model.insert(key(i), value);
        }
        if i % 7 == 3 {
            assert!(store.delete(&key(i)).expect("delete"));
            model.remove(&key(i));
        }
    }
}

fn assert_holds(store: &Mkvs, model: &Model) {
    for i in 0..3000 {
        assert_eq!(store.get(&key(i)).expect("get").as_ref(), model.get(&key(i)), "key {i}");
    }
    assert_eq!(store.len().expect("len"), model.len() as u64);
    let mut shown = Model::new();
    store
        .for_each(&mut |key, value| {
            shown.insert(key.to_vec(), value.to_vec());
            lodestore_contract::Visit::More
        })
        .expect("for_each");
    assert!(shown == *model, "a walk shows {} pairs of {}", shown.len(), model.len());
}

fn counter(store: &Mkvs, name: &str) -> u64 {
    store.stats().engine_counters.get(name).copied().unwrap_or(0)
}

/// Waits until `count` devices are active.
fn wait_active(store: &Mkvs, count: u64) {
    let begun = Instant::now();
    while counter(store, "devices_active") != count {
        assert!(
            begun.elapsed() < HANG_TIMEOUT,
            "{} active, not {count}: {:?}",
            counter(store, "devices_active"),
            store.stats().engine_counters
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn assert_sound(store: &Mkvs) {
    let report = store.verify(&mut |_| {}).expect("verify");
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[test]
fn any_one_device_of_three_can_be_lost_while_the_matrix_is_stopped() {
    for (lost, clean) in [(0, true), (1, false), (2, true), (0, false)] {
        let matrix = Matrix::new("lost", 1, 3);
        let mut model = Model::new();
        let store = matrix.create(CAPACITY).expect("create");
        write(&store, &mut model, 0, 500);
        if clean {
            store.close().expect("close");
        }
        drop(store);
        std::fs::remove_dir_all(matrix.device(0, lost)).expect("lose a device");
        let store = matrix.open().expect("open with two of three");
        assert_holds(&store, &model);
        write(&store, &mut model, 500, 200);
        assert_holds(&store, &model);
        assert_eq!(counter(&store, "devices_active"), 2);
    }
}

#[test]
fn with_two_of_three_devices_lost_an_open_is_refused_and_a_salvage_shows_the_rest() {
    let matrix = Matrix::new("two lost", 1, 3);
    let mut model = Model::new();
    let store = matrix.create(CAPACITY).expect("create");
    write(&store, &mut model, 0, 300);
    store.close().expect("close");
    drop(store);
    for lost in [0, 2] {
        std::fs::remove_dir_all(matrix.device(0, lost)).expect("lose a device");
    }
    let refused = matrix.open().err();
    assert!(
        matches!(refused, Some(Error::TooFewDevices { group: 0, live: 1, needed: 2, may_stand: false })),
        "{refused:?}"
    );
    let matrix = matrix.with(|options| options.salvage = true);
    let store = matrix.open().expect("salvage");
    let said = |finding: &Finding| finding.what.contains("newer values may be missing");
    assert!(store.verify(&mut |_| ()).expect("verify").findings.iter().any(said));
    assert!(store.stats().recovery.corrupt > 0);
    assert_holds(&store, &model);
    let refused = store.put(b"more", b"value");
    assert!(matches!(refused, Err(Error::TooFewDevices { .. })), "{refused:?}");
}

#[test]
fn a_failed_device_is_excluded_and_catches_up_at_the_next_open() {
    for inline in [Inline::On, Inline::Off] {
        let (matrix, switches) = switched("fails", 3);
        let matrix = matrix.with(|options| options.inline = inline);
        let mut model = Model::new();
        let store = matrix.create(CAPACITY).expect("create");
        write(&store, &mut model, 0, 100);
        switches[1].set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
        write(&store, &mut model, 100, 100);
        wait_active(&store, 2);
        assert_holds(&store, &model);
        switches[1].clear();
        drop(store);
        let store = matrix.open().expect("open");
        wait_active(&store, 3);
        write(&store, &mut model, 200, 50);
        assert_holds(&store, &model);
        assert_sound(&store);
    }
}

#[test]
fn two_failed_devices_of_three_stop_writes_with_a_typed_error_and_reads_continue() {
    let (matrix, switches) = switched("two fail", 3);
    let mut model = Model::new();
    let store = matrix.create(CAPACITY).expect("create");
    write(&store, &mut model, 0, 100);
    for switch in &switches[..2] {
        switch.set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
    }
    let refused = store.put(b"one", b"more");
    assert!(matches!(refused, Err(Error::Io { .. } | Error::TooFewDevices { .. })), "{refused:?}");
    let refused = store.put(b"two", b"more");
    assert!(
        matches!(refused, Err(Error::TooFewDevices { group: 0, live: 1, needed: 2, may_stand: false })),
        "{refused:?}"
    );
    for (key, value) in &model {
        assert_eq!(store.get(key).expect("get").as_ref(), Some(value));
    }
}

#[test]
fn a_write_that_does_not_fit_on_most_devices_is_refused_and_never_visible() {
    for refusing in [vec![0, 1], vec![1, 2], vec![0, 2], vec![0, 1, 2]] {
        let (matrix, switches) = switched("no room", 3);
        let mut model = Model::new();
        let mut store = matrix.create(CAPACITY).expect("create");
        write(&store, &mut model, 0, 100);
        for at in &refusing {
            switches[*at].set(|touch, key| {
                if touch == Touch::Write && key.starts_with(b"key0001") { Fault::Full } else { Fault::None }
            });
        }
        for i in 5..25 {
            let answer = store.put(&key(i), b"what has no room");
            if (10..20).contains(&i) {
                assert!(matches!(answer, Err(Error::Full { .. })), "{answer:?}");
            } else {
                answer.expect("there is room for this one");
                model.insert(key(i), b"what has no room".to_vec());
            }
            assert_eq!(store.get(&key(i)).expect("get").as_ref(), model.get(&key(i)));
        }
        assert_holds(&store, &model);
        switches.iter().for_each(Switch::clear);
        wait_active(&store, 3);
        assert_sound(&store);
        for _ in 0..2 {
            drop(store);
            store = matrix.open().expect("open");
            wait_active(&store, 3);
            assert_holds(&store, &model);
            assert_sound(&store);
        }
    }
}

#[test]
fn a_full_device_is_excluded_until_the_missing_writes_fit() {
    let (matrix, switches) = switched("one full", 3);
    let mut model = Model::new();
    let store = matrix.create(CAPACITY).expect("create");
    write(&store, &mut model, 0, 100);
    switches[2].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    write(&store, &mut model, 50, 100);
    assert_holds(&store, &model);
    wait_active(&store, 2);
    switches[2].clear();
    wait_active(&store, 3);
    assert_holds(&store, &model);
    assert_sound(&store);
}

#[test]
fn a_slow_device_delays_no_caller_and_catches_up_by_log_or_state_transfer() {
    for (count, copied) in [(300, false), (1500, true)] {
        let (matrix, switches) = switched("slow", 3);
        let matrix = matrix.with(|options| options.inline = Inline::Off);
        let mut model = Model::new();
        let store = matrix.create(CAPACITY).expect("create");
        let gate = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let shut = Arc::clone(&gate);
        switches[0].set(move |touch, _| {
            while touch == Touch::Write && shut.load(std::sync::atomic::Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Fault::None
        });
        write(&store, &mut model, 0, count);
        assert_holds(&store, &model);
        gate.store(false, std::sync::atomic::Ordering::Release);
        wait_active(&store, 3);
        assert_holds(&store, &model);
        assert_eq!(counter(&store, "devices_copied") > 0, copied);
        let last = Instant::now();
        while store.verify(&mut |_| {}).expect("verify").findings.iter().any(|finding| finding.what.contains("differ"))
        {
            assert!(last.elapsed() < HANG_TIMEOUT, "members differ");
        }
        assert_sound(&store);
    }
}

#[test]
fn another_device_answers_for_an_unreadable_pair_and_it_is_repaired() {
    for reads in [Reads::Hedged, Reads::RaceAll, Reads::Single] {
        let (matrix, switches) = switched("damage", 3);
        let matrix = matrix.with(|options| options.reads = reads);
        let mut model = Model::new();
        let store = matrix.create(CAPACITY).expect("create");
        write(&store, &mut model, 0, 100);
        let mended = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = Arc::clone(&mended);
        switches[0].set(move |touch, key| match touch {
            Touch::Read if key == b"key00011" && !seen.load(std::sync::atomic::Ordering::Acquire) => Fault::Corrupt,
            Touch::Write if key == b"key00011" => {
                seen.store(true, std::sync::atomic::Ordering::Release);
                Fault::None
            }
            _ => Fault::None,
        });
        let begun = Instant::now();
        while counter(&store, "keys_repaired") == 0 {
            assert!(begun.elapsed() < HANG_TIMEOUT, "{reads:?}: it is put right");
            assert_eq!(store.get(&key(11)).expect("get").as_ref(), model.get(&key(11)));
        }
        assert_holds(&store, &model);
    }
}

#[test]
fn an_operation_on_one_device_at_a_crash_is_on_all_devices_or_none_after_an_open() {
    // The others fail before they have it; then all come back, or all except the one that had it.
    for with_it in [true, false] {
        let (matrix, switches) = switched("fork", 3);
        let mut model = Model::new();
        let store = matrix.create(CAPACITY).expect("create");
        write(&store, &mut model, 0, 50);
        for switch in &switches[1..] {
            switch.set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
        }
        store.put(&key(1), b"by one alone").expect_err("no majority");
        drop(store);
        switches.iter().for_each(Switch::clear);
        let away = matrix.path().join("away");
        if !with_it {
            std::fs::rename(matrix.device(0, 0), &away).expect("take the device away");
        }
        let store = matrix.open().expect("open");
        let seen = store.get(&key(1)).expect("get");
        assert!(seen.as_deref() == Some(b"by one alone") || seen.as_ref() == model.get(&key(1)), "{seen:?}");
        model.insert(key(1), seen.expect("either value"));
        write(&store, &mut model, 60, 30);
        assert_holds(&store, &model);
        drop(store);
        if !with_it {
            std::fs::rename(&away, matrix.device(0, 0)).expect("bring it back");
        }
        let store = matrix.open().expect("open with all");
        wait_active(&store, 3);
        assert_holds(&store, &model);
        assert_sound(&store);
    }
}

#[test]
fn with_acks_one_any_answering_device_shows_an_acknowledged_write() {
    let (matrix, switches) = switched("one", 3);
    let matrix = matrix.with(|options| {
        options.acks = Acks::One;
        options.inline = Inline::Off;
        options.reads = Reads::RaceAll;
    });
    for (at, switch) in switches.iter().enumerate() {
        switch.set(move |touch, _| {
            if touch == Touch::Write { Fault::Slow(Duration::from_micros(300 * at as u64)) } else { Fault::None }
        });
    }
    let store = matrix.create(CAPACITY).expect("create");
    for i in 0..300 {
        let value = format!("{i}").into_bytes();
        store.put(b"key", &value).expect("put");
        assert_eq!(store.get(b"key").expect("get"), Some(value));
    }
}

#[test]
fn a_dead_device_is_replaced_while_writers_continue() {
    let (matrix, switches) = switched("replaced", 3);
    let mut model = Model::new();
    let store = matrix.create(CAPACITY).expect("create");
    write(&store, &mut model, 0, 400);
    switches[1].set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
    write(&store, &mut model, 400, 50);
    switches[1].clear();
    let directory = matrix.path().join("new");
    let model = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            write(&store, &mut model, 450, 400);
            model
        });
        store.replace(0, 1, &directory, &matrix.path(), &matrix.places).expect("replace");
        writer.join().expect("the writer")
    });
    store.wait_whole(HANG_TIMEOUT).expect("three active devices");
    let status = store.status();
    assert_eq!((status.devices[1].path.as_path(), status.devices[1].state), (directory.as_path(), "active"));
    assert_holds(&store, &model);
    assert_sound(&store);
    drop(store);
    // Another device may be lost now.
    std::fs::remove_dir_all(matrix.device(0, 0)).expect("lose a device");
    let store = matrix.open().expect("open");
    assert_holds(&store, &model);
}

#[test]
fn an_invalid_replacement_is_refused_and_changes_nothing() {
    let (matrix, switches) = switched("no replacement", 3);
    let mut model = Model::new();
    let store = matrix.create(CAPACITY).expect("create");
    write(&store, &mut model, 0, 50);
    let new = matrix.path().join("new");
    let refused = store.replace(1, 0, &new, &matrix.path(), &matrix.places);
    assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{refused:?}");
    switches[1].set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
    write(&store, &mut model, 50, 10);
    wait_active(&store, 2);
    let refused = store.replace(0, 0, &new, &matrix.path(), &matrix.places);
    assert!(matches!(refused, Err(Error::TooFewDevices { live: 1, needed: 2, .. })), "{refused:?}");
    assert_holds(&store, &model);
    let one = Matrix::new("one", 1, 1);
    let store = one.create(CAPACITY).expect("create");
    let refused = store.replace(0, 0, &new, &one.path(), &one.places);
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
}

#[test]
fn an_added_group_gets_its_share_of_keys_while_writers_and_scans_continue() {
    for devices in [1, 3] {
        let matrix = Matrix::new("added", 2, devices);
        let mut model = Model::new();
        let store = matrix.create(CAPACITY).expect("create");
        write(&store, &mut model, 0, 1500);
        let before = model.clone();
        let model = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                write(&store, &mut model, 1500, 700);
                for i in 0..300 {
                    assert_eq!(store.delete(&key(i)).expect("delete"), model.remove(&key(i)).is_some(), "key {i}");
                }
                for i in 100..200 {
                    assert!(store.insert(&key(i), b"again", Lifetime::Forever).expect("insert"));
                    model.insert(key(i), b"again".to_vec());
                }
                model
            });
            let scans = scope.spawn(|| {
                for _ in 0..20 {
                    let mut shown = Vec::new();
                    let visited = store.scan_each(&lodestore_contract::ScanRange::all(), &mut |key, _| {
                        shown.push(key.to_vec());
                        lodestore_contract::Visit::More
                    });
                    assert_eq!(visited.expect("scan"), shown.len());
                    assert!(shown.windows(2).all(|pair| pair[0] < pair[1]), "in order, each once");
                    let stays = before.keys().filter(|name| name.as_slice() >= &key(300)[..]);
                    for name in stays {
                        assert!(shown.binary_search(name).is_ok(), "{} is shown", String::from_utf8_lossy(name));
                    }
                }
            });
            store.add_group(&[], &matrix.path(), &matrix.places).expect("add a group");
            scans.join().expect("the scans");
            writer.join().expect("the writer")
        });
        store.wait_whole(HANG_TIMEOUT).expect("all moved");
        assert_holds(&store, &model);
        assert_sound(&store);
        let status = store.status();
        assert_eq!((status.groups, status.settled_groups), (3, 3));
        let newest =
            status.devices.iter().filter(|device| device.group == 2).map(|device| device.keys).max().unwrap_or(0);
        let share = model.len() as u64 / 3;
        assert!(newest.abs_diff(share) < share / 4, "{newest} of {share}");
        drop(store);
        let store = matrix.open().expect("open");
        assert_holds(&store, &model);
    }
}

#[test]
fn a_move_to_an_added_group_survives_a_stop_at_any_time() {
    let matrix = Matrix::new("stopped", 1, 2).with(|options| options.copy_rate = 256 * 2000);
    let mut model = Model::new();
    let mut store = matrix.create(CAPACITY).expect("create");
    write(&store, &mut model, 0, 1000);
    store.add_group(&[], &matrix.path(), &matrix.places).expect("add a group");
    for round in 0..8 {
        std::thread::sleep(Duration::from_millis(20 + 7 * round));
        write(&store, &mut model, 1000 + 20 * round as usize, 20);
        if round % 2 == 0 {
            store.close().expect("close");
        }
        drop(store);
        store = matrix.open().expect("open");
        assert_holds(&store, &model);
    }
    store.wait_whole(HANG_TIMEOUT).expect("all moved");
    assert_holds(&store, &model);
    assert_sound(&store);
}
