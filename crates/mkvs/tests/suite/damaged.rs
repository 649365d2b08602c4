//! Walks over devices that cannot read all of their pairs, or whose recovery left some out or is
//! not complete: scans, moves to a new group, filters, copies.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::common::Matrix;
use crate::common::faulty::{Fault, Switch, Touch};
use crate::common::switched::switched;
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Result, ScanRange, Store, Visit};
use lodestore_mkvs::{Acks, Filtering, Mkvs};

const CAPACITY: u64 = 32 << 20;
const PATIENCE: Duration = HANG_TIMEOUT;
const KEYS: u64 = 1000;

fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

fn fill(store: &Mkvs) {
    for i in 0..KEYS {
        store.put(&key(i), &i.to_le_bytes()).expect("put");
    }
}

/// Makes a device's reads of some keys end in this fault.
fn spoil(switch: &Switch, keys: &[u64], fault: Fault) {
    let spoilt: Vec<Vec<u8>> = keys.iter().map(|i| key(*i)).collect();
    switch.set(move |touch, key| {
        let is_hit = touch == Touch::Read && spoilt.iter().any(|spoilt| spoilt == key);
        if is_hit { fault } else { Fault::None }
    });
    switch.leave_out(if matches!(fault, Fault::LeftOut | Fault::Unseen) { keys.len() as u64 } else { 0 });
}

fn counter(store: &Mkvs, name: &str) -> u64 {
    store.stats().engine_counters.get(name).copied().unwrap_or(0)
}

fn wait(what: &str, store: &Mkvs, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", store.status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_whole(store: &Mkvs) -> bool {
    let status = store.status();
    status.groups == status.settled_groups && status.devices.iter().all(|device| device.state == "active")
}

fn add_group(matrix: &Matrix, store: &Mkvs) {
    store.add_group(&[], &matrix.path(), &matrix.places).expect("add a group");
}

fn assert_all_found(store: &Mkvs) {
    for i in 0..KEYS {
        assert_eq!(store.get(&key(i)).expect("get"), Some(i.to_le_bytes().to_vec()), "key {i}");
    }
}

/// Returns the result of `work`. Fails if it does not end.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(PATIENCE).expect("it ends")
}

/// Returns the keys that a scan shows, and how often it reports damage.
fn scanned(store: &Mkvs, range: &ScanRange) -> (Vec<Vec<u8>>, usize) {
    let (mut keys, mut damage) = (Vec::new(), 0);
    for entry in store.scan(range).expect("scan") {
        match entry {
            Ok(entry) => keys.push(entry.key().to_vec()),
            Err(Error::Corrupt { .. }) => damage += 1,
            Err(error) => panic!("{error}"),
        }
    }
    (keys, damage)
}

/// Returns the keys that an unordered walk shows, and its result.
fn visited(store: &Mkvs) -> (Vec<Vec<u8>>, Result<u64>) {
    let mut keys = Vec::new();
    let visited = store.for_each(&mut |key, _| {
        keys.push(key.to_vec());
        Visit::More
    });
    keys.sort();
    (keys, visited)
}

fn all_but(missing: &[u64]) -> Vec<Vec<u8>> {
    (0..KEYS).filter(|i| !missing.contains(i)).map(key).collect()
}

#[test]
fn a_visitor_may_read_and_a_group_may_be_added_while_all_pairs_are_visited() {
    for (devices, is_unordered) in [(1, false), (1, true), (3, true), (3, false)] {
        let (matrix, _) = switched("visited", devices);
        let matrix = matrix.on(|places| places.is_unordered = is_unordered);
        let keys = in_time(move || {
            let store = matrix.create(CAPACITY).expect("create");
            fill(&store);
            let mut shown = Vec::new();
            let visited = store.for_each(&mut |found, _| {
                shown.push(found.to_vec());
                if shown.len() == 100 {
                    add_group(&matrix, &store);
                    store.wait_whole(PATIENCE).expect("keys move while a walk is under way");
                }
                assert!(store.get(found).expect("get").is_some());
                Visit::More
            });
            assert_eq!(visited.expect("all pairs are visited"), KEYS);
            shown.sort();
            let (again, visited) = self::visited(&store);
            assert!(again == all_but(&[]) && visited.is_ok(), "both groups are visited");
            shown
        });
        assert!(keys == all_but(&[]), "{} keys of {KEYS}, {devices} devices", keys.len());
    }
}

#[test]
fn keys_that_move_to_an_added_group_during_a_walk_are_visited() {
    let (matrix, switches) = switched("collected", 1);
    let (matrix, switch) = (matrix.on(|places| places.is_unordered = true), switches.stores[0].clone());
    let (keys, moved) = in_time(move || {
        let store = Arc::new(matrix.create(CAPACITY).expect("create"));
        fill(&store);
        let (grown, is_due) = (Arc::clone(&store), AtomicBool::new(true));
        // In the middle of the walk over the only group.
        switch.set(move |touch, _| {
            if touch == Touch::Read && is_due.swap(false, Ordering::AcqRel) {
                add_group(&matrix, &grown);
                wait("keys move", &grown, || grown.status().moved > 200);
            }
            Fault::None
        });
        let (keys, visited) = visited(&store);
        assert_eq!(visited.expect("all pairs are visited"), KEYS);
        switch.clear();
        (keys, store.status().moved)
    });
    assert!(keys == all_but(&[]), "{} keys of {KEYS}, {moved} moved", keys.len());
}

#[test]
fn a_key_in_both_groups_is_shown_once_and_counted_once() {
    for is_unordered in [false, true] {
        let (matrix, switches) = switched("in both", 1);
        let matrix = matrix.on(|places| places.is_unordered = is_unordered);
        let store = matrix.create(CAPACITY).expect("create");
        fill(&store);
        // No pair leaves the old group: a pair put into the new one is in both.
        switches.stores[0].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
        add_group(&matrix, &store);
        wait("a key is in both", &store, || store.status().moved != 0);
        let (keys, visited) = visited(&store);
        assert!(keys == all_but(&[]), "{} keys of {KEYS}", keys.len());
        assert_eq!((visited.expect("for_each"), store.len().expect("len")), (KEYS, KEYS));
    }
}

#[test]
fn walks_show_pairs_that_any_device_can_read_and_continue_after_unreadable_pairs() {
    for cuts in [false, true] {
        let (matrix, switches) = switched("walked over", 2);
        let store = matrix.create(CAPACITY).expect("create");
        fill(&store);
        if cuts {
            switches.stores.iter().for_each(Switch::cut_scans);
        }
        for (first, second, fault, lost) in [
            (&[3, 40, 999][..], &[][..], Fault::Corrupt, &[][..]),
            (&[3, 40], &[41, 500], Fault::Corrupt, &[]),
            (&[3, 40], &[41, 500], Fault::LeftOut, &[]),
            (&[700, 701, 999], &[0, 700, 701, 999], Fault::Corrupt, &[700, 701, 999]),
        ] {
            spoil(&switches.stores[0], first, fault);
            spoil(&switches.stores[1], second, fault);
            for range in [ScanRange::all(), ScanRange::all().reverse()] {
                let (mut keys, damage) = scanned(&store, &range);
                keys.sort();
                assert!(keys == all_but(lost), "{} keys of {KEYS}: {first:?}, {second:?}", keys.len());
                assert_eq!(damage != 0, !lost.is_empty(), "{first:?}, {second:?}");
            }
            let (keys, walked) = visited(&store);
            assert!(keys == all_but(lost), "{} keys of {KEYS}: {first:?}, {second:?}", keys.len());
            assert_eq!(matches!(walked, Err(Error::Corrupt { .. })), !lost.is_empty(), "{walked:?}");
        }
    }
}

#[test]
fn keys_missing_on_one_device_move_to_a_new_group_and_stay() {
    for is_unordered in [false, true] {
        let (matrix, switches) = switched("moved", 3);
        let matrix = matrix.on(|places| places.is_unordered = is_unordered);
        let store = matrix.create(CAPACITY).expect("create");
        fill(&store);
        spoil(&switches.stores[0], &(0..50).collect::<Vec<_>>(), Fault::LeftOut);
        spoil(&switches.stores[1], &(50..100).collect::<Vec<_>>(), Fault::Corrupt);
        add_group(&matrix, &store);
        store.wait_whole(PATIENCE).expect("the third device has all");
        assert_all_found(&store);
    }
}

#[test]
fn a_move_is_not_complete_while_no_device_shows_all_keys() {
    let (matrix, switches) = switched("not settled", 3);
    let matrix = matrix.with(|options| options.timeout = Duration::from_millis(500));
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    for (at, switch) in switches.stores.iter().enumerate() {
        spoil(switch, &(at as u64 * 50..at as u64 * 50 + 50).collect::<Vec<_>>(), Fault::LeftOut);
    }
    add_group(&matrix, &store);
    let belong = || store.status().devices.iter().filter(|device| device.group == 1).map(|device| device.keys).min();
    wait("all that one shows has moved", &store, || belong() == Some(store.status().moved) && belong() > Some(300));
    std::thread::sleep(Duration::from_millis(600));
    assert!(!is_whole(&store), "there may be more");
    assert_all_found(&store);
    switches.stores[1].clear();
    switches.stores[1].leave_out(0);
    store.wait_whole(PATIENCE).expect("one device shows all");
    assert_all_found(&store);
}

#[test]
fn a_move_is_not_complete_until_an_unreadable_pair_is_overwritten() {
    for devices in [1, 3] {
        let (matrix, switches) = switched("unread", devices);
        let matrix = matrix.with(|options| options.timeout = Duration::from_millis(500));
        let store = matrix.create(CAPACITY).expect("create");
        fill(&store);
        let bad: Vec<u64> = (0..40).collect();
        switches.stores.iter().for_each(|switch| spoil(switch, &bad, Fault::Corrupt));
        add_group(&matrix, &store);
        wait("the others move", &store, || store.status().moved > 300);
        for i in 0..40 {
            let answer = store.get(&key(i));
            assert!(matches!(answer, Err(Error::Corrupt { .. })), "{answer:?}");
        }
        assert!(!is_whole(&store));
        for i in 0..20 {
            store.put(&key(i), b"new").expect("put over what is damaged");
        }
        for i in 20..40 {
            assert!(store.delete(&key(i)).expect("delete what is damaged"));
        }
        // The pairs left in the old group were written there, and are readable again.
        switches.stores.iter().for_each(Switch::clear);
        store.wait_whole(PATIENCE).expect("all can be read");
        for i in 0..KEYS {
            let expected = if i < 20 { Some(b"new".to_vec()) } else { Some(i.to_le_bytes().to_vec()) };
            assert_eq!(store.get(&key(i)).expect("get"), expected.filter(|_| !(20..40).contains(&i)));
        }
        assert_eq!(store.len().expect("len"), KEYS - 20);
    }
}

#[test]
fn a_filter_counts_keys_missing_or_unreadable_on_one_device() {
    for (is_unordered, fault) in
        [(false, Fault::LeftOut), (false, Fault::Corrupt), (true, Fault::LeftOut), (true, Fault::Corrupt)]
    {
        let (matrix, switches) = switched("counted", 3);
        let matrix = matrix.on(|places| places.is_unordered = is_unordered);
        let store = matrix.create(CAPACITY).expect("create");
        fill(&store);
        drop(store);
        spoil(&switches.stores[0], &(0..100).collect::<Vec<_>>(), fault);
        let store = matrix.open().expect("open");
        wait("a filter is made", &store, || counter(&store, "filter_keys") >= KEYS);
        assert_all_found(&store);
        assert!(counter(&store, "filter_false_per_million") > 0, "there is a filter");
    }
}

#[test]
fn no_filter_is_built_while_no_device_shows_all_keys() {
    for fault in [Fault::LeftOut, Fault::Corrupt] {
        let (matrix, switches) = switched("not counted", 1);
        let store = matrix.create(CAPACITY).expect("create");
        fill(&store);
        drop(store);
        spoil(&switches.stores[0], &[7], fault);
        let store = matrix.open().expect("open");
        std::thread::sleep(Duration::from_millis(300));
        let answer = store.get(&key(7));
        assert!(matches!(answer, Err(Error::Corrupt { .. })), "not absent: {answer:?}");
        assert_eq!(store.get(&key(8)).expect("get"), Some(8_u64.to_le_bytes().to_vec()));
    }
}

#[test]
fn reads_and_writes_continue_while_a_filter_waits_for_recovery() {
    for is_unordered in [false, true] {
        for devices in [1, 3] {
            let (matrix, switches) = switched("recovers", devices);
            let matrix = matrix.on(|places| places.is_unordered = is_unordered);
            let store = matrix.create(CAPACITY).expect("create");
            fill(&store);
            drop(store);
            switches.stores.iter().for_each(|switch| switch.recover(true));
            let store = Arc::new(matrix.open().expect("open"));
            let used = Arc::clone(&store);
            in_time(move || {
                for round in 0..40 {
                    used.put(&key(round), &round.to_le_bytes()).expect("put");
                    assert!(used.get(&key(KEYS - 1 - round)).expect("get").is_some());
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
            switches.stores.iter().for_each(|switch| switch.recover(false));
            wait("a filter is made", &store, || counter(&store, "filter_keys") >= KEYS);
            assert_all_found(&store);
        }
    }
}

#[test]
fn a_state_transfer_omits_only_pairs_that_no_device_can_read() {
    for is_unordered in [false, true] {
        let (matrix, switches) = switched("copied", 3);
        let matrix = matrix.on(|places| places.is_unordered = is_unordered).with(|options| {
            options.filter = Filtering::Off;
        });
        let store = matrix.create(CAPACITY).expect("create");
        fill(&store);
        spoil(&switches.stores[0], &(0..30).collect::<Vec<_>>(), Fault::LeftOut);
        spoil(&switches.stores[1], &(30..60).collect::<Vec<_>>(), Fault::LeftOut);
        let replace = |directory: &str| {
            let directory = matrix.path().join(directory);
            store.replace(0, 2, &directory, &matrix.path(), &matrix.places).expect("replace");
            store.wait_whole(PATIENCE).expect("it is copied");
        };
        replace("new");
        let keys = |store: &Mkvs| store.status().devices.iter().map(|device| device.keys).collect::<BTreeSet<_>>();
        assert_eq!(keys(&store), BTreeSet::from([KEYS]));
        // From here on no device can read one of them.
        let third = |fault| {
            move |touch, key: &[u8]| if touch == Touch::Read && key == b"key000100" { fault } else { Fault::None }
        };
        switches.stores[0].leave_out(0);
        switches.stores[1].leave_out(0);
        switches.stores[0].set(third(Fault::Corrupt));
        switches.stores[1].set(third(Fault::Corrupt));
        let before = counter(&store, "pairs_not_copied");
        replace("newer");
        assert_eq!(counter(&store, "pairs_not_copied") - before, 1);
        assert_eq!(keys(&store), BTreeSet::from([KEYS - 1, KEYS]));
    }
}

#[test]
fn a_state_transfer_removes_the_devices_older_pair_of_an_unreadable_key() {
    for fault in [Fault::Corrupt, Fault::LeftOut, Fault::Unseen] {
        let (matrix, switches) = switched("older", 2);
        let matrix = matrix.with(|options| (options.filter, options.acks) = (Filtering::Off, Acks::One));
        let store = matrix.create(CAPACITY).expect("create");
        fill(&store);
        store.wait_whole(PATIENCE).expect("both have it");
        switches.stores[1].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
        // More than the logs hold.
        for i in (0..KEYS).chain(0..KEYS) {
            store.put(&key(i), b"new").expect("one has it");
        }
        wait("it is behind", &store, || !is_whole(&store));
        spoil(&switches.stores[0], &[100, 101], fault);
        switches.stores[1].clear();
        store.wait_whole(PATIENCE).expect("it is copied");
        assert_eq!(counter(&store, "devices_copied"), 1);
        assert!(counter(&store, "pairs_not_copied") >= 1, "the owner is told");
        let findings = store.verify(&mut |_| ()).expect("verify").findings;
        assert!(findings.iter().any(|finding| finding.what.contains("the copy may lack pairs")), "{findings:?}");
        for i in 0..KEYS {
            // More than once: each device is queried, and damage is repaired.
            for _ in 0..4 {
                match (i, store.get(&key(i))) {
                    (100 | 101, found) => {
                        assert!(matches!(found, Err(Error::Corrupt { .. })), "{fault:?}, key {i}: {found:?}")
                    }
                    (_, found) => assert_eq!(found.expect("get").as_deref(), Some(&b"new"[..]), "{fault:?}, key {i}"),
                }
            }
        }
    }
}

/// Regression: the answer was that the key had not existed.
#[test]
fn a_delete_of_a_key_that_a_copy_may_lack_is_refused() {
    let (matrix, switches) = switched("deleted", 2);
    let matrix = matrix.with(|options| (options.filter, options.acks) = (Filtering::Off, Acks::One));
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    store.wait_whole(PATIENCE).expect("both have it");
    spoil(&switches.stores[0], &[100], Fault::Corrupt);
    store.replace(0, 1, &matrix.path().join("new"), &matrix.path(), &matrix.places).expect("replace");
    store.wait_whole(PATIENCE).expect("it is copied");
    let refused = |deleted: Result<bool>| matches!(deleted, Err(Error::Corrupt { .. }));
    assert!(refused(store.delete(&key(100))), "no device can tell");
    switches.stores[0].set(|_, _| Fault::Io);
    store.put(&key(5), b"new").expect("one device is left");
    wait("the other one has failed", &store, || !is_whole(&store));
    assert!(refused(store.delete(&key(100))), "the copy cannot tell");
    assert!(store.delete(&key(5)).expect("a key that the copy has"));
    store.put(&key(100), b"new").expect("put");
    assert!(store.delete(&key(100)).expect("the copy has it now"));
}

/// Regression: the count was too high.
#[test]
fn a_damaged_pair_of_a_deleted_key_is_not_counted() {
    let (matrix, switches) = switched("surplus", 2);
    let matrix = matrix.with(|options| (options.filter, options.acks) = (Filtering::Off, Acks::One));
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    store.wait_whole(PATIENCE).expect("both have it");
    switches.stores[0].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    assert!(store.delete(&key(100)).expect("one has it"));
    // More than the logs hold.
    for i in (0..2 * KEYS).map(|i| i % KEYS).filter(|i| *i != 100) {
        store.put(&key(i), b"new").expect("one has it");
    }
    wait("it is behind", &store, || !is_whole(&store));
    spoil(&switches.stores[0], &[100], Fault::Corrupt);
    store.wait_whole(PATIENCE).expect("it is copied");
    assert_eq!(counter(&store, "devices_copied"), 1);
    assert_eq!(store.len().expect("len"), KEYS - 1);
    store.close().expect("close");
    drop(store);
    assert_eq!(matrix.open().expect("open").len().expect("len"), KEYS - 1);
}
