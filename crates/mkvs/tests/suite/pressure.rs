//! Concurrent events: copies during writes, devices that are slow or hang, groups that are added
//! during reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::Matrix;
use crate::common::faulty::{Fault, Switch, Touch};
use lodestore_contract::conformance::Harness;
use lodestore_contract::{Error, ScanRange, Store, Visit};
use lodestore_mkvs::{Inline, Mkvs, Reads};

const CAPACITY: u64 = 32 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// A group of three, whose devices' stores and host have these switches.
fn switched(name: &'static str) -> (Matrix, Vec<Switch>, Switch) {
    let (matrix, switches) = common::switched::switched(name, 3);
    (matrix, switches.stores, switches.host)
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

fn active(store: &Mkvs) -> u64 {
    store.stats().engine_counters["devices_active"]
}

/// Waits until `count` devices are active.
fn wait_active(store: &Mkvs, count: u64) {
    let begun = Instant::now();
    while active(store) != count {
        assert!(begun.elapsed() < PATIENCE, "{:?}", store.status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn assert_sound(store: &Mkvs) {
    let report = store.verify(&mut |_| {}).expect("verify");
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[test]
fn a_state_transfer_ends_under_continuous_writes() {
    for inline in [Inline::On, Inline::Off] {
        let (matrix, ..) = switched("copied under load");
        let matrix = matrix.with(|options| options.inline = inline);
        let store = matrix.create(CAPACITY).expect("create");
        for i in 0..4000 {
            store.put(&key(i), &[0; 100]).expect("put");
        }
        let directory = matrix.path().join("new");
        let (stops, written) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for writer in 0..2_u64 {
                let (store, stops, written) = (&store, &stops, &written);
                scope.spawn(move || {
                    for round in 0_u64.. {
                        if stops.load(Ordering::Acquire) {
                            return;
                        }
                        let key = key((round * 2 + writer) % 5000);
                        if round % 5 == 4 {
                            store.delete(&key).expect("delete");
                        } else {
                            let put = store.put(&key, &round.to_le_bytes());
                            put.unwrap_or_else(|error| panic!("{error}: {:?}", store.status()));
                        }
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let before = written.load(Ordering::Relaxed);
            // Refused while one of the others lags.
            let begun = Instant::now();
            while let Err(refused) = store.replace(0, 1, &directory, &matrix.path(), &matrix.places) {
                assert!(matches!(refused, Error::TooFewDevices { .. }) && begun.elapsed() < PATIENCE, "{refused:?}");
            }
            let whole = store.wait_whole(PATIENCE);
            let meanwhile = written.load(Ordering::Relaxed) - before;
            // Also some time after it, to check that later writes arrive too.
            std::thread::sleep(Duration::from_millis(100));
            stops.store(true, Ordering::Release);
            whole.unwrap_or_else(|error| panic!("{error}: {meanwhile} writes meanwhile, {:?}", store.status()));
        });
        assert_sound(&store);
        assert!(store.stats().engine_counters["devices_copied"] >= 1);
    }
}

#[test]
fn a_copied_device_has_all_pairs_when_it_becomes_active() {
    let (matrix, switches, _) = switched("copied slowly");
    let matrix = matrix.with(|options| options.inline = Inline::Off);
    let store = matrix.create(CAPACITY).expect("create");
    for i in 0..200 {
        store.put(&key(i), b"value").expect("put");
    }
    switches[2].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    // More than the logs hold.
    for i in 0..1500 {
        store.put(&key(i % 200), &i.to_le_bytes()).expect("two have it");
    }
    wait_active(&store, 2);
    switches[2].set(|touch, _| if touch == Touch::Write { Fault::Slow(Duration::from_millis(1)) } else { Fault::None });
    wait_active(&store, 3);
    assert!(store.status().devices.iter().all(|device| device.keys == 200), "{:?}", store.status());
    assert_sound(&store);
    assert_eq!(store.stats().engine_counters["devices_copied"], 1);
}

/// All writes wait at one gate; then each lasts a twentieth of the operation timeout. With many of
/// them, the last one waits longer than the timeout.
#[test]
fn a_device_that_is_full_at_the_end_of_its_copy_is_copied_again() {
    const KEYS: u64 = 200;
    let (matrix, switches, _) = switched("copied and full");
    let matrix = matrix.with(|options| options.inline = Inline::Off);
    let store = matrix.create(CAPACITY).expect("create");
    switches[2].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    // More than the logs hold.
    for i in 0..1500 {
        store.put(&key(i % KEYS), &i.to_le_bytes()).expect("two have it");
    }
    wait_active(&store, 2);
    // Some pairs before its end, the copy finds no space once, after all of it is queued. The rest
    // of the queue is dropped, but no operation is lost.
    let is_met = AtomicBool::new(false);
    switches[2].set(move |touch, touched| {
        if touch != Touch::Write || touched != key(KEYS - 9) || is_met.swap(true, Ordering::AcqRel) {
            return Fault::None;
        }
        std::thread::sleep(Duration::from_millis(50));
        Fault::Full
    });
    wait_active(&store, 3);
    assert!(store.status().devices.iter().all(|device| device.keys == KEYS), "{:?}", store.status());
    assert_sound(&store);
}

#[test]
fn a_device_that_lags_after_its_copy_is_not_copied_again() {
    const KEYS: u64 = 200;
    let (matrix, switches, _) = switched("copied and trails");
    let matrix = matrix.with(|options| options.inline = Inline::Off);
    let store = matrix.create(CAPACITY).expect("create");
    switches[2].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    // More than the logs hold.
    for i in 0..1500 {
        store.put(&key(i % KEYS), &i.to_le_bytes()).expect("two have it");
    }
    wait_active(&store, 2);
    // The device pauses at the last pair of the copy until writes are queued after it, and then at
    // the first of these.
    let (is_last, goes_on, is_free) = <(Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let (at_last, goes, free) = (Arc::clone(&is_last), Arc::clone(&goes_on), Arc::clone(&is_free));
    switches[2].set(move |touch, touched| {
        let gate = if touched == key(KEYS - 1) { &goes } else { &free };
        let stands = touch == Touch::Write && (touched == key(KEYS - 1) || touched == b"behind");
        at_last.fetch_or(stands, Ordering::AcqRel);
        while stands && !gate.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Fault::None
    });
    let begun = Instant::now();
    let wait = |what: &dyn Fn() -> bool| {
        while !what() {
            assert!(begun.elapsed() < PATIENCE, "{:?}", store.stats().engine_counters);
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let write = |count: u64| (0..count).for_each(|i| store.put(b"behind", &i.to_le_bytes()).expect("two have it"));
    wait(&|| is_last.load(Ordering::Acquire));
    write(100);
    goes_on.store(true, Ordering::Release);
    wait(&|| store.stats().engine_counters["devices_copied"] == 1);
    assert_eq!(active(&store), 2, "it has not joined");
    // By more than the lag limit.
    write(500);
    is_free.store(true, Ordering::Release);
    wait_active(&store, 3);
    let counts = store.stats().engine_counters;
    assert_eq!((counts["devices_copied"], counts["devices_caught_up"]), (1, 1));
    assert_sound(&store);
}

#[test]
fn a_state_transfer_continues_while_writes_are_refused_for_lack_of_space() {
    const KEYS: u64 = 600;
    let (matrix, switches, _) = switched("copied and full");
    let matrix = matrix.with(|options| options.inline = Inline::Off);
    let store = matrix.create(CAPACITY).expect("create");
    switches[2].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    // More than the logs hold.
    for i in 0..2 * KEYS {
        store.put(&key(i % KEYS), &i.to_le_bytes()).expect("two have it");
    }
    wait_active(&store, 2);
    let is_refused = |touch, touched: &[u8]| touch == Touch::Write && touched == b"refused";
    for switch in &switches[..2] {
        switch.set(move |touch, touched| if is_refused(touch, touched) { Fault::Full } else { Fault::None });
    }
    // The device pauses at the first pair of the copy, before all of it is queued.
    let (is_begun, goes_on, refused) = <(Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicU64>)>::default();
    let (begun, goes, refuses) = (Arc::clone(&is_begun), Arc::clone(&goes_on), Arc::clone(&refused));
    switches[2].set(move |touch, touched| {
        begun.fetch_or(touch == Touch::Write, Ordering::AcqRel);
        while touch == Touch::Write && !goes.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if is_refused(touch, touched) {
            refuses.fetch_add(1, Ordering::AcqRel);
            return Fault::Full;
        }
        Fault::None
    });
    let since = Instant::now();
    while !is_begun.load(Ordering::Acquire) {
        assert!(since.elapsed() < PATIENCE, "{:?}", store.status());
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..10 {
        let answer = store.put(b"refused", b"value");
        assert!(matches!(answer, Err(Error::Full { .. })), "{answer:?}");
    }
    goes_on.store(true, Ordering::Release);
    wait_active(&store, 3);
    assert_eq!(refused.load(Ordering::Acquire), 10, "it went on behind each of them");
    assert_eq!(store.stats().engine_counters["devices_copied"], 1);
    assert!(!store.contains(b"refused").expect("contains"));
    assert_sound(&store);
}

#[test]
fn a_slow_device_that_makes_progress_does_not_fail() {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let (matrix, switches, _) = switched("slow");
    let matrix = matrix.with(|options| (options.inline, options.timeout) = (Inline::Off, TIMEOUT));
    let gate = Arc::new(AtomicBool::new(false));
    for switch in &switches {
        let opened = Arc::clone(&gate);
        switch.set(move |touch, _| {
            while touch == Touch::Write && !opened.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            if touch == Touch::Write { Fault::Slow(TIMEOUT / 20) } else { Fault::None }
        });
    }
    let store = matrix.create(CAPACITY).expect("create");
    std::thread::scope(|scope| {
        for writer in 0..26 {
            let store = &store;
            scope.spawn(move || store.put(&key(writer), b"value").expect("put"));
        }
        while store.status().devices[0].last < 26 {
            std::thread::sleep(Duration::from_millis(1));
        }
        gate.store(true, Ordering::Release);
    });
    assert_eq!(active(&store), 3, "{:?}", store.status());
}

#[test]
fn a_hanging_device_delays_reads_once_and_blocks_no_caller() {
    for (reads, question) in [(Reads::Single, 0), (Reads::RaceAll, 0), (Reads::Hedged, 0), (Reads::Single, 1)] {
        let (matrix, switches, _) = switched("hangs");
        let matrix = matrix.with(|options| {
            (options.inline, options.reads) = (Inline::Off, reads);
            options.timeout = Duration::from_millis(200);
        });
        let store = matrix.create(CAPACITY).expect("create");
        store.put(b"key", b"value").expect("put");
        let goes_on = Arc::new(AtomicBool::new(false));
        let waits = Arc::clone(&goes_on);
        switches[0].set(move |_, _| {
            while !waits.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Fault::None
        });
        for _ in 0..50 {
            if question == 0 {
                assert_eq!(store.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
            } else {
                assert!(store.contains(b"key").expect("contains"));
            }
        }
        for i in 0..10 {
            store.put(&key(i), b"value").expect("two go on");
        }
        wait_active(&store, 2);
        store.verify(&mut |_| {}).expect("verify");
        store.close().expect("what hangs is left to itself");
        goes_on.store(true, Ordering::Release);
    }
}

#[test]
fn an_open_excludes_a_device_that_cannot_replay_its_log() {
    let (matrix, switches, _) = switched("not redone");
    let store = matrix.create(CAPACITY).expect("create");
    for i in 0..100 {
        store.put(&key(i), b"value").expect("put");
    }
    drop(store);
    switches[..2].iter().for_each(|switch| switch.set(|_, _| Fault::Io));
    let refused = matrix.open().err();
    assert!(matches!(refused, Some(Error::TooFewDevices { live: 1, needed: 2, .. })), "{refused:?}");
    switches[1].clear();
    let store = matrix.open().expect("two of three");
    assert_eq!(active(&store), 2);
    for i in 0..100 {
        assert_eq!(store.get(&key(i)).expect("get").as_deref(), Some(&b"value"[..]));
    }
    drop(store);
    switches[0].clear();
    let store = matrix.open().expect("all three");
    store.wait_whole(PATIENCE).expect("three active devices");
    assert_sound(&store);
}

#[test]
fn a_filter_that_does_not_fit_in_the_host_is_rebuilt() {
    let (matrix, _, host) = switched("no room for filters");
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"key", b"value").expect("put");
    host.set(|touch, key| if touch == Touch::Write && key.starts_with(b"filter/") { Fault::Full } else { Fault::None });
    store.close().expect("close without a filter");
    drop(store);
    host.clear();
    let store = matrix.open().expect("open");
    assert!(store.contains(b"key").expect("contains"));
}

#[test]
fn a_damaged_clean_stop_record_is_treated_as_a_crash() {
    let (matrix, _, host) = switched("damaged record");
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"key", b"value").expect("put");
    store.close().expect("close");
    drop(store);
    host.set(|touch, key| if touch == Touch::Read && key == b"clean" { Fault::Corrupt } else { Fault::None });
    let store = matrix.open().expect("open");
    assert!(store.contains(b"key").expect("contains"));
}

/// A matrix of one group with one device and keys.
fn sole(name: &'static str, keys: u64) -> (Matrix, Mkvs) {
    let matrix = Matrix::new(name, 1, 1).with(|options| options.filter = lodestore_mkvs::Filtering::Off);
    let store = matrix.create(CAPACITY).expect("create");
    for i in 0..keys {
        store.put(&key(i), b"value").expect("put");
    }
    (matrix, store)
}

fn add_group(matrix: &Matrix, store: &Mkvs) {
    store.add_group(&[], &matrix.path(), &matrix.places).expect("add a group");
    store.wait_whole(PATIENCE).expect("all keys have moved");
}

#[test]
fn a_scan_shows_each_key_once_while_a_group_is_added() {
    const KEYS: u64 = 3000;
    let all: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let (matrix, store) = sole("scanned", KEYS);
    let mut scan = store.scan(&ScanRange::all()).expect("scan");
    let mut shown: Vec<Vec<u8>> =
        scan.by_ref().take(1000).map(|entry| entry.expect("an entry").into_pair().0).collect();
    add_group(&matrix, &store);
    shown.extend(scan.map(|entry| entry.expect("an entry").into_pair().0));
    assert!(shown == all, "{} keys of {KEYS}", shown.len());

    let (matrix, store) = sole("visited", KEYS);
    let (mut shown, mut at) = (Vec::new(), 0);
    let visited = store.scan_each(&ScanRange::all(), &mut |key, _| {
        shown.push(key.to_vec());
        at += 1;
        if at == 1000 {
            add_group(&matrix, &store);
        }
        Visit::More
    });
    assert_eq!(visited.expect("scan"), all.len());
    assert!(shown == all, "{} keys of {KEYS}", shown.len());

    let (matrix, store) = sole("visited to a stop", KEYS);
    let mut at = 0;
    let visited = store.scan_each(&ScanRange::all(), &mut |_, _| {
        at += 1;
        if at == 10 {
            add_group(&matrix, &store);
            return Visit::Stop;
        }
        Visit::More
    });
    assert_eq!((visited.expect("scan"), at), (10, 10));
}

#[test]
fn a_multi_get_finds_keys_that_move_to_a_new_group_concurrently() {
    const KEYS: u64 = 500;
    let (matrix, store) = sole("asked", KEYS);
    let keys: Vec<Vec<u8>> = (0..KEYS + 10).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut found = Vec::new();
    let answer = store.multi_get(&keys, &mut |index, value| {
        assert_eq!(index, found.len(), "in order");
        found.push(value.is_some());
        if index == 100 {
            add_group(&matrix, &store);
        }
    });
    answer.expect("multi_get");
    assert_eq!(found.iter().filter(|found| **found).count(), KEYS as usize);
}

#[test]
fn pages_of_large_values_end_early_and_lose_nothing() {
    let matrix = Matrix::new("large values", 2, 2);
    let store = matrix.create(64 << 20).expect("create");
    for i in 0..40 {
        store.put(&key(i), &vec![i as u8; 300_000 + 1000 * i as usize]).expect("put");
    }
    for range in [ScanRange::all(), ScanRange { limit: 17, ..ScanRange::all() }] {
        let expected: Vec<_> = (0..40).map(key).take(range.limit).collect();
        let mut shown = Vec::new();
        let visited = store.scan_each(&range, &mut |key, value| {
            assert_eq!(value.len(), 300_000 + 1000 * shown.len());
            shown.push(key.to_vec());
            Visit::More
        });
        assert_eq!(visited.expect("scan"), expected.len());
        assert_eq!(shown, expected);
    }
}
