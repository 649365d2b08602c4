//! Salvages that give up acknowledged writes: the description is marked, and no strict open is
//! granted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::Matrix;
use crate::common::faulty::{Fault, Touch};
use crate::common::switched::{Switches, switched};
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Store};
use lodestore_mkvs::{Acks, Mkvs, Part};

const CAPACITY: u64 = 32 << 20;
const KEYS: u64 = 100;
/// A key that only the first device has.
const ALONE: &[u8] = b"alone";
const LINE_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;

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

/// A matrix of three devices whose first device is lost, and alone had an acknowledged key.
fn lost_alone(name: &'static str) -> Matrix {
    lost_alone_with(name, Acks::All).0
}

fn lost_alone_with(name: &'static str, acks: Acks) -> (Matrix, Switches) {
    let (matrix, switches) = switched(name, 3);
    let matrix = matrix.with(|options| options.acks = acks);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    for switch in switches.stores[1..].iter().chain(&switches.logs[1..]) {
        switch.set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
    }
    store.put(ALONE, b"value").expect("the first device has the key");
    drop(store);
    switches.stores.iter().chain(&switches.logs).for_each(|switch| switch.clear());
    std::fs::remove_dir_all(matrix.device(0, 0)).expect("lose the first device");
    assert!(matches!(matrix.open().map(drop), Err(Error::TooFewDevices { .. })));
    (matrix, switches)
}

fn set_salvage(matrix: &mut Matrix, salvage: bool) {
    matrix.options.salvage = salvage;
}

fn salvage(matrix: &mut Matrix) -> Mkvs {
    set_salvage(matrix, true);
    let store = matrix.open().expect("salvage");
    set_salvage(matrix, false);
    store
}

fn assert_marked(matrix: &Matrix) {
    match matrix.open().map(drop) {
        Err(Error::Corrupt { place, what, .. }) => {
            assert!(place.contains("group 0"), "{place}");
            let path = matrix.path();
            let advice = [format!("Db::builder(\"{}\").salvage(true)", path.display()), "`Matrix::replace`".into()];
            assert!(what.contains("an earlier salvage gave up unreadable data"), "{what}");
            assert!(advice.iter().all(|advice| what.contains(advice)), "{what}");
        }
        other => panic!("a strict open of a marked matrix: {other:?}"),
    }
}

fn findings(store: &Mkvs) -> Vec<String> {
    let report = store.verify(&mut |_| ()).expect("verify");
    report.findings.into_iter().map(|finding| finding.what).collect()
}

#[test]
fn a_strict_open_is_refused_when_a_salvage_gave_up_acknowledged_writes() {
    for is_closed in [true, false] {
        let mut matrix = lost_alone("given up");
        let store = salvage(&mut matrix);
        assert_holds(&store);
        assert!(store.status().given_up[0].as_ref().is_some_and(|what| what.contains("newer values may be missing")));
        if is_closed {
            store.close().expect("close");
        }
        drop(store);
        // The two devices have all that the salvage had: only the mark refuses the open.
        (0..3).for_each(|_| assert_marked(&matrix));
        let store = salvage(&mut matrix);
        assert_holds(&store);
        let found = findings(&store);
        assert!(found.iter().any(|what| what.contains("an earlier salvage gave up")), "{found:?}");
        assert!(store.stats().recovery.corrupt > 0);
        drop(store);
        assert_marked(&matrix);
    }
}

#[test]
fn a_salvage_without_losses_leaves_no_mark() {
    let mut matrix = Matrix::new("given back", 1, 3);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    store.close().expect("close");
    drop(store);
    let away = |device: usize| matrix.path().join(format!("away{device}"));
    let moves: Vec<(PathBuf, PathBuf)> = [0, 2].map(|device| (matrix.device(0, device), away(device))).into();
    moves.iter().for_each(|(from, to)| std::fs::rename(from, to).expect("take a device away"));
    let store = salvage(&mut matrix);
    assert_holds(&store);
    assert!(store.put(b"more", b"value").is_err(), "too few for a write");
    store.close().expect("close");
    drop(store);
    moves.iter().for_each(|(from, to)| std::fs::rename(to, from).expect("put a device back"));
    let store = matrix.open().expect("all devices are back");
    assert_holds(&store);
    assert_eq!(store.status().given_up, [None]);
    store.wait_whole(HANG_TIMEOUT).expect("three devices");
    assert_eq!(findings(&store), Vec::<String>::new());
}

#[test]
fn a_replacement_in_salvage_reports_the_loss_and_removes_the_mark() {
    let mut matrix = lost_alone("accepted");
    drop(salvage(&mut matrix));
    assert_marked(&matrix);
    let store = salvage(&mut matrix);
    let new = matrix.path().join("new");
    let replaced = store.replace(0, 0, &new, &matrix.path(), &matrix.places).expect("replace");
    let gave_up = replaced.gave_up.expect("a loss");
    assert!(gave_up.contains("newer values may be missing"), "{gave_up}");
    assert_eq!(store.status().given_up, [None]);
    store.wait_whole(HANG_TIMEOUT).expect("three devices");
    assert_eq!(findings(&store), Vec::<String>::new());
    store.close().expect("close");
    drop(store);
    let store = matrix.open().expect("the loss is accepted");
    assert_holds(&store);
    assert_eq!(store.get(ALONE).expect("get"), None);
    // A replacement in a complete matrix gives nothing up.
    let newer = matrix.path().join("newer");
    let replaced = store.replace(0, 0, &newer, &matrix.path(), &matrix.places).expect("replace");
    assert_eq!(replaced.gave_up, None);
}

#[test]
fn a_replacement_that_is_refused_in_salvage_keeps_the_mark() {
    let mut matrix = lost_alone("not accepted");
    let store = salvage(&mut matrix);
    let there = matrix.device(0, 1);
    let refused = store.replace(0, 0, &there, &matrix.path(), &matrix.places);
    assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
    assert!(store.status().given_up[0].is_some());
    drop(store);
    assert_marked(&matrix);
}

fn refuse_strictly(matrix: &mut Matrix, devices: &'static [usize], of: Part, error: fn(PathBuf) -> Error) {
    let refuse = move |directory: &Path, part: Part| {
        let is_one = devices.iter().any(|device| directory.ends_with(format!("group0.device{device}")));
        (is_one && part == of).then(|| error(directory.into()))
    };
    matrix.places.refuse_strict = Some(Arc::new(refuse));
}

#[test]
fn a_salvage_of_damaged_stores_marks_the_matrix_and_a_salvage_after_a_restart_does_not() {
    let damaged: fn(PathBuf) -> Error = |path| Error::corrupt(path.display().to_string(), "the index is damaged");
    let restarted: fn(PathBuf) -> Error = |path| Error::MachineRestarted { path };
    for part in [Part::Device, Part::Log] {
        for (error, is_marked) in [(damaged, true), (restarted, false)] {
            let mut matrix = Matrix::new("stores in salvage", 1, 3);
            let store = matrix.create(CAPACITY).expect("create");
            fill(&store);
            store.close().expect("close");
            drop(store);
            refuse_strictly(&mut matrix, &[0, 1], part, error);
            assert!(matrix.open().is_err());
            let store = salvage(&mut matrix);
            assert_holds(&store);
            let doubts = findings(&store).into_iter().filter(|what| what.contains("only a salvage can open")).count();
            assert_eq!(doubts, if is_marked { 2 } else { 0 });
            store.close().expect("close");
            drop(store);
            // The open is not refused because of the stores' own marks.
            matrix.places.refuse_strict = None;
            if is_marked {
                assert_marked(&matrix);
            } else {
                assert_holds(&matrix.open().expect("nothing is damaged"));
            }
        }
    }
}

/// Makes the first device lack an acknowledged key, and the others fail. The first device leads
/// then.
fn lose_all_but_the_first(store: &Mkvs, switches: &Switches) {
    let fail = |device: usize, fault: Fault| {
        switches.stores[device].set(move |touch, _| if touch == Touch::Write { fault } else { Fault::None });
    };
    fail(0, Fault::Full);
    // Without threads the first device does not execute each write.
    let is_behind = |i: &u64| {
        store.put(ALONE, &i.to_le_bytes()).expect("two devices have the key");
        store.status().devices[0].state == "behind"
    };
    assert!((0..100).any(|i| is_behind(&i)));
    [1, 2].iter().for_each(|device| fail(*device, Fault::Io));
    store.put(b"more", b"value").expect_err("no device does it");
    switches.stores[0].clear();
    store.settle().expect("what threads would do");
    let states: Vec<_> = store.status().devices.iter().map(|device| device.state).collect();
    assert_eq!(states, ["active", "failed", "failed"]);
}

#[test]
fn devices_that_fail_in_a_salvage_mark_the_matrix_also_after_a_replacement() {
    for is_replaced in [false, true] {
        let (mut matrix, switches) = if is_replaced {
            lost_alone_with("lost again", Acks::One)
        } else {
            let (matrix, switches) = switched("lost in a salvage", 3);
            let matrix = matrix.with(|options| options.acks = Acks::One);
            fill(&matrix.create(CAPACITY).expect("create"));
            (matrix, switches)
        };
        matrix.options.threads = false;
        let store = salvage(&mut matrix);
        if is_replaced {
            let directory = matrix.device(0, 0);
            let replaced = store.replace(0, 0, &directory, &matrix.path(), &matrix.places).expect("replace");
            assert!(replaced.gave_up.is_some());
            store.settle().expect("what threads would do");
        }
        assert_eq!(findings(&store), Vec::<String>::new());
        assert_eq!(store.status().given_up, [None]);
        lose_all_but_the_first(&store, &switches);
        let found = findings(&store);
        assert!(found.iter().any(|what| what.contains("newer values may be missing")), "{found:?}");
        assert!(store.status().given_up[0].is_some());
        drop(store);
        switches.stores.iter().for_each(|switch| switch.clear());
        assert_marked(&matrix);
    }
}

#[test]
fn a_salvage_after_a_restart_waits_for_the_damage_that_a_recovery_finds() {
    let (mut matrix, switches) = switched("found by recovery", 3);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    store.close().expect("close");
    drop(store);
    refuse_strictly(&mut matrix, &[0, 1], Part::Device, |path| Error::MachineRestarted { path });
    switches.stores[0].find_at_end(1);
    let store = salvage(&mut matrix);
    let doubts = findings(&store).into_iter().filter(|what| what.contains("only a salvage can open the pairs")).count();
    assert_eq!(doubts, 1);
    drop(store);
    matrix.places.refuse_strict = None;
    assert_marked(&matrix);
}

#[test]
fn a_salvage_of_a_damaged_description_marks_the_matrix_and_a_salvage_after_a_restart_does_not() {
    for is_damaged in [true, false] {
        let mut matrix = Matrix::new("description in salvage", 1, 3);
        let store = matrix.create(CAPACITY).expect("create");
        fill(&store);
        store.close().expect("close");
        drop(store);
        matrix.places.refuse_strict = Some(Arc::new(move |path: &Path, part| match (part, is_damaged) {
            (Part::Host, true) => Some(Error::corrupt(path.display().to_string(), "the index is damaged")),
            (Part::Host, false) => Some(Error::MachineRestarted { path: path.into() }),
            _ => None,
        }));
        let store = salvage(&mut matrix);
        assert_holds(&store);
        let found = findings(&store);
        let is_reported = found.iter().any(|what| what.contains("only a salvage can open the description"));
        assert_eq!(is_reported, is_damaged, "{found:?}");
        drop(store);
        matrix.places.refuse_strict = None;
        if is_damaged {
            assert_marked(&matrix);
        } else {
            assert_holds(&matrix.open().expect("nothing is damaged"));
        }
    }
}

#[test]
fn a_salvage_reports_an_unreadable_label_without_a_loss() {
    for place in ["label", "store/label"] {
        let mut matrix = Matrix::new("label fails", 1, 3).with(|options| options.acks = Acks::One);
        let store = matrix.create(CAPACITY).expect("create");
        fill(&store);
        store.close().expect("close");
        drop(store);
        let label = matrix.device(0, 0).join(place);
        let kept = std::fs::read(&label).expect("a label");
        std::fs::remove_file(&label).expect("remove the label");
        std::fs::create_dir(&label).expect("no file is there");
        assert!(matrix.open().is_err(), "an open takes all three devices");
        let store = salvage(&mut matrix);
        assert_holds(&store);
        store.settle().expect("what threads would do");
        let active = store.status().devices.iter().filter(|device| device.state == "active").count();
        assert_eq!(active, 3);
        let found = findings(&store);
        assert!(found.len() == 1 && found[0].contains("label"), "{found:?}");
        assert_eq!(store.status().given_up, [None]);
        store.close().expect("close");
        drop(store);
        std::fs::remove_dir(&label).expect("remove what is there");
        std::fs::write(&label, kept).expect("put the label back");
        let store = matrix.open().expect("no write was given up");
        assert_holds(&store);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("list").map(|entry| entry.expect("list")) {
        let to = to.join(entry.file_name());
        if entry.file_type().expect("its type").is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).expect("copy");
        }
    }
}

#[test]
fn a_salvage_that_lacks_keys_of_a_group_does_not_complete_the_move() {
    let mut matrix = Matrix::new("moved in salvage", 1, 3).with(|options| options.threads = false);
    let store = matrix.create(CAPACITY).expect("create");
    store.close().expect("close");
    drop(store);
    let older = matrix.path().join("older");
    copy(&matrix.device(0, 2), &older);
    (0..3).for_each(|_| matrix.open().expect("open").close().expect("close"));
    let store = matrix.open().expect("open");
    fill(&store);
    store.add_group(&[], &matrix.path(), &matrix.places).expect("add a group");
    drop(store);
    let away = |device: usize| matrix.path().join(format!("away{device}"));
    let moves: Vec<(PathBuf, PathBuf)> = [0, 1, 2].map(|device| (matrix.device(0, device), away(device))).into();
    moves.iter().for_each(|(from, to)| std::fs::rename(from, to).expect("take a device away"));
    copy(&older, &matrix.device(0, 2));
    let store = salvage(&mut matrix);
    assert_eq!(store.get(&key(7)).ok().flatten(), None, "the older copy has no key");
    store.settle().expect("what threads would do");
    assert_eq!((store.status().groups, store.status().settled_groups), (2, 1));
    drop(store);
    std::fs::remove_dir_all(matrix.device(0, 2)).expect("remove the older copy");
    moves.iter().for_each(|(from, to)| std::fs::rename(to, from).expect("put a device back"));
    assert_holds(&matrix.open().expect("two of three are as they were"));
}

/// The files of the host's store.
fn host_pools(matrix: &Matrix) -> Vec<String> {
    matrix.files().into_iter().filter(|file| file.starts_with("host/")).collect()
}

#[test]
fn no_zeroed_line_or_page_of_the_host_hides_a_mark() {
    for is_closed in [true, false] {
        let mut matrix = lost_alone("zeroed");
        matrix.options.threads = false;
        let store = salvage(&mut matrix);
        if is_closed {
            store.close().expect("close");
        }
        drop(store);
        let mut zeroed = 0;
        for file in host_pools(&matrix) {
            let mut kept = Vec::new();
            matrix.alter(&file, &mut |bytes| kept.clone_from(bytes));
            for unit in [LINE_BYTES, PAGE_BYTES] {
                let is_filled = |at: &usize| kept[*at..*at + unit].iter().any(|byte| *byte != 0);
                for at in (0..kept.len()).step_by(unit).filter(is_filled) {
                    matrix.alter(&file, &mut |bytes| bytes[at..at + unit].fill(0));
                    let opened = matrix.open().map(drop);
                    assert!(opened.is_err(), "closed {is_closed}: {unit} bytes at {at} of {file} hide the mark");
                    matrix.alter(&file, &mut |bytes| bytes.clone_from(&kept));
                    zeroed += 1;
                }
            }
        }
        assert!(zeroed > 20, "{zeroed} places");
    }
}
