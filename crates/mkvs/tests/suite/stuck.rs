//! Devices that are slow, or hang, at a bad moment: operations wait for slow devices, and hanging
//! devices are abandoned.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::common::Matrix;
use crate::common::faulty::{Fault, Switch, Touch};
use crate::common::switched::{Switches, switched};
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Expiry, Store};
use lodestore_mkvs::{Acks, Filtering, Inline, Mkvs, Reads};

const CAPACITY: u64 = 16 << 20;

/// Three devices with threads of their own and without a filter, whose stores, logs and host have
/// these switches.
fn three(name: &'static str, acks: Acks, timeout: Duration) -> (Matrix, Switches) {
    let (matrix, switches) = switched(name, 3);
    let matrix = matrix.with(|options| {
        (options.acks, options.filter, options.inline) = (acks, Filtering::Off, Inline::Off);
        options.timeout = timeout;
    });
    (matrix, switches)
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

fn states(store: &Mkvs) -> Vec<&'static str> {
    store.status().devices.iter().map(|device| device.state).collect()
}

/// Waits until `count` devices are active.
fn wait_active(store: &Mkvs, count: u64) {
    let begun = Instant::now();
    while store.stats().engine_counters["devices_active"] != count {
        assert!(begun.elapsed() < HANG_TIMEOUT, "{:?}", store.status());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until each device has everything: a write is acknowledged when two of three have it.
fn wait_level(store: &Mkvs) {
    let begun = Instant::now();
    while store.status().devices.iter().any(|device| device.applied != device.last) {
        assert!(begun.elapsed() < HANG_TIMEOUT, "{:?}", store.status());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Makes each write last `millis` milliseconds.
fn slow(switch: &Switch, millis: u64) {
    let slow = Fault::Slow(Duration::from_millis(millis));
    switch.set(move |touch, _| if touch == Touch::Write { slow } else { Fault::None });
}

/// Makes every write of this key fail.
fn fail(switch: &Switch, bad: &'static [u8]) {
    switch.set(move |touch, key| if touch == Touch::Write && key == bad { Fault::Io } else { Fault::None });
}

/// Device 0 fails, and a later write meets the failure.
fn write_behind_a_failure(store: &Mkvs, switches: &Switches) {
    fail(&switches.stores[0], b"bad");
    std::thread::scope(|scope| {
        let bad = scope.spawn(|| store.put(b"bad", b"value"));
        let begun = Instant::now();
        while states(store)[0] != "failed" {
            assert!(begun.elapsed() < HANG_TIMEOUT, "{:?}", store.status());
            std::thread::sleep(Duration::from_millis(1));
        }
        store.put(b"next", b"value").expect("the others are left");
        bad.join().expect("a thread that ends").expect("the others are left");
    });
}

#[test]
fn a_lagging_device_does_not_fail_when_another_one_fails() {
    // The queue needs longer than the operation timeout.
    let (matrix, switches) = three("trails", Acks::Majority, Duration::from_secs(1));
    let store = matrix.create(CAPACITY).expect("create");
    slow(&switches.stores[2], 5);
    for i in 0..300 {
        store.put(&key(i), b"value").expect("two are quick");
    }
    write_behind_a_failure(&store, &switches);
    assert_eq!(states(&store), ["failed", "active", "active"], "{:?}", store.status());

    let (matrix, switches) = three("both trail", Acks::One, Duration::from_secs(1));
    let store = matrix.create(CAPACITY).expect("create");
    switches.stores[1..].iter().for_each(|switch| slow(switch, 5));
    for i in 0..300 {
        store.put(&key(i), b"value").expect("one is quick");
    }
    write_behind_a_failure(&store, &switches);
    assert_eq!(states(&store), ["failed", "active", "active"], "{:?}", store.status());
    for i in 0..300 {
        assert!(store.contains(&key(i)).expect("contains"), "acknowledged by the one that failed");
    }
}

#[test]
fn a_hanging_device_fails_when_others_wait_for_it() {
    let (matrix, switches) = three("hangs", Acks::One, Duration::from_secs(1));
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"key", b"value").expect("put");
    wait_level(&store);
    let _hang = Hang::at(&switches.stores[1], Touch::Write, None);
    slow(&switches.stores[2], 20);
    for i in 0..5 {
        store.put(&key(i), b"value").expect("one is quick");
    }
    write_behind_a_failure(&store, &switches);
    wait_active(&store, 1);
    assert_eq!(states(&store), ["failed", "failed", "active"], "{:?}", store.status());
    assert_eq!(store.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
}

/// Calls of a medium that do not return before it is dropped.
struct Hang {
    is_met: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
}

impl Hang {
    /// Makes each call of this kind hang: for this key, or for any.
    fn at(switch: &Switch, wanted: Touch, of: Option<&'static [u8]>) -> Self {
        Self::when(switch, move |touch, key| touch == wanted && of.is_none_or(|of| of == key))
    }

    /// Makes each of these calls hang.
    fn when(switch: &Switch, wanted: impl Fn(Touch, &[u8]) -> bool + Send + Sync + 'static) -> Self {
        let hang = Self { is_met: Arc::default(), ends: Arc::default() };
        let (is_met, ends) = (Arc::clone(&hang.is_met), Arc::clone(&hang.ends));
        switch.set(move |touch, key| {
            if wanted(touch, key) {
                is_met.store(true, Ordering::Release);
                while !ends.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Fault::None
        });
        hang
    }

    fn wait_met(&self) {
        let begun = Instant::now();
        while !self.is_met.load(Ordering::Acquire) {
            assert!(begun.elapsed() < HANG_TIMEOUT, "somebody calls the medium");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
    }
}

/// Returns the result of `work`, although a call hangs.
fn though_it_hangs<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(HANG_TIMEOUT).unwrap_or_else(|_| panic!("{what} waits for what hangs"))
}

#[test]
fn a_write_is_rolled_back_while_a_device_hangs_in_it() {
    let (matrix, switches) = three("hangs in a refused write", Acks::Majority, Duration::from_millis(300));
    let store = Arc::new(matrix.create(CAPACITY).expect("create"));
    store.put(b"k", b"old").expect("put");
    wait_level(&store);
    let _hang = Hang::at(&switches.stores[0], Touch::Write, Some(b"k"));
    switches.stores[2].set(|touch, key| if touch == Touch::Write && key == b"k" { Fault::Full } else { Fault::None });
    let writer = Arc::clone(&store);
    let refused = though_it_hangs("a write", move || writer.put(b"k", b"new"));
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    for _ in 0..50 {
        assert_eq!(store.get(b"k").expect("get").as_deref(), Some(&b"old"[..]));
    }
    though_it_hangs("a close", move || store.close()).expect("close");
}

#[test]
fn a_close_does_not_wait_for_an_undetected_hanging_device() {
    let (matrix, switches) = three("hangs at a close", Acks::Majority, Duration::from_millis(300));
    let store = matrix.create(CAPACITY).expect("create");
    let hang = Hang::at(&switches.stores[2], Touch::Write, None);
    store.put(b"k", b"value").expect("two have it");
    hang.wait_met();
    though_it_hangs("a close", move || store.close()).expect("close");
}

#[test]
fn a_close_does_not_wait_for_a_device_that_hangs_while_it_catches_up() {
    let (matrix, switches) = three("hangs in a replay", Acks::Majority, Duration::from_millis(300));
    let store = matrix.create(CAPACITY).expect("create");
    switches.stores[2].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    for i in 0..100 {
        store.put(&key(i), b"value").expect("two have it");
    }
    wait_active(&store, 2);
    let hang = Hang::at(&switches.stores[2], Touch::Write, None);
    hang.wait_met();
    though_it_hangs("a close", move || store.close()).expect("close");
}

#[test]
fn an_idle_device_does_not_fail_because_of_a_new_command() {
    const PATIENCE: Duration = Duration::from_secs(2);
    let (matrix, switches) = three("idle", Acks::Majority, PATIENCE);
    let matrix = matrix.with(|options| options.reads = Reads::RaceAll);
    let store = Arc::new(matrix.create(CAPACITY).expect("create"));
    store.put(b"k", b"value").expect("put");
    wait_level(&store);
    let hang = Hang::at(&switches.stores[0], Touch::Read, Some(b"k"));
    for switch in &switches.stores[1..] {
        switch.set(|touch, key| match touch {
            Touch::Read if key == b"k" => Fault::Io,
            // Started before a reader that waits for the first device checks again, and not
            // finished then.
            Touch::Write if key == b"slow" => Fault::Slow(PATIENCE * 2 / 5),
            _ => Fault::None,
        });
    }
    let reader = Arc::clone(&store);
    let reader = std::thread::spawn(move || reader.get(b"k"));
    let begun = Instant::now();
    while states(&store)[0] != "failed" {
        assert!(begun.elapsed() < HANG_TIMEOUT, "{:?}", store.status());
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(PATIENCE * 4 / 5);
    store.put(b"slow", b"value").expect("two are left");
    assert_eq!(states(&store), ["failed", "active", "active"], "{:?}", store.status());
    drop(hang);
    drop(reader.join().expect("a thread that ends"));
}

#[test]
fn a_device_whose_store_panics_fails_at_once() {
    for inline in [Inline::Off, Inline::On] {
        let (matrix, switches) = three("panics", Acks::All, Duration::from_secs(3600));
        let matrix = matrix.with(|options| options.inline = inline);
        let store = matrix.create(CAPACITY).expect("create");
        switches.stores[1].set(|touch, key| {
            assert!(touch != Touch::Write || key != b"bad", "planted");
            Fault::None
        });
        let written = catch_unwind(AssertUnwindSafe(|| store.put(b"bad", b"value")));
        assert!(inline == Inline::On || matches!(written, Ok(Ok(()))), "{written:?}: two have it");
        assert_eq!(states(&store), ["active", "failed", "active"], "{:?}", store.status());
        for i in 0..10 {
            store.put(&key(i), b"value").expect("two are left");
            assert!(store.contains(&key(i)).expect("contains"));
        }
        assert_eq!(store.status().devices[1].queued, 0);
        store.close().expect("close");
    }
}

#[test]
fn verify_reports_a_failed_device_without_querying_it() {
    let (matrix, switches) = three("verified", Acks::Majority, Duration::from_millis(300));
    let store = matrix.create(CAPACITY).expect("create");
    fail(&switches.stores[1], b"bad");
    store.put(b"bad", b"value").expect("two have it");
    wait_active(&store, 2);
    let _hang = Hang::at(&switches.stores[1], Touch::Verify, None);
    let report = though_it_hangs("verify", move || store.verify(&mut |_| {})).expect("a report");
    let findings: Vec<_> = report.findings.iter().map(|finding| format!("{finding:?}")).collect();
    assert!(findings.len() == 1 && findings[0].contains("device 1") && findings[0].contains("failed"), "{findings:?}");
}

#[test]
fn a_part_that_cannot_be_verified_is_a_finding_and_the_rest_is_verified() {
    let (matrix, switches) = three("not checked", Acks::Majority, Duration::from_millis(300));
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"k", b"value").expect("put");
    switches.stores[0].set(|touch, _| if touch == Touch::Verify { Fault::Io } else { Fault::None });
    switches.logs[2].set(|touch, _| if touch == Touch::Verify { Fault::Io } else { Fault::None });
    let report = store.verify(&mut |_| {}).expect("a report");
    let places: Vec<_> = report.findings.iter().map(|finding| finding.place.as_str()).collect();
    assert_eq!(places, ["group 0 device 0", "group 0 device 2, operation log"]);
    for switch in &switches.stores {
        fail(switch, b"bad");
    }
    store.put(b"bad", b"value").expect_err("nobody is left");
    let report = store.verify(&mut |_| {}).expect("a report");
    assert!(report.findings.len() >= 3, "{:?}", report.findings);
}

/// Device 2 lacks writes to `keys` keys, and is out.
fn leave_behind(store: &Mkvs, switches: &Switches, keys: u64) {
    switches.stores[2].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    (0..keys).for_each(|i| store.put(&key(i), b"value").expect("two have it"));
    wait_active(store, 2);
}

#[test]
fn a_long_catch_up_is_not_a_failure() {
    let (matrix, switches) = three("catches up slowly", Acks::Majority, Duration::from_secs(1));
    let store = matrix.create(CAPACITY).expect("create");
    leave_behind(&store, &switches, 50);
    slow(&switches.stores[2], 40);
    let begun = Instant::now();
    while states(&store)[2] != "active" {
        assert_ne!(states(&store)[2], "failed", "{:?}", store.status());
        assert!(begun.elapsed() < HANG_TIMEOUT, "{:?}", store.status());
        store.put(b"beside", b"value").expect("two have it");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Replaces device 2 by a new device, although a call hangs.
fn replace(matrix: &Matrix, store: &Arc<Mkvs>) {
    let (store, root, places) = (Arc::clone(store), matrix.path(), matrix.places.clone());
    let replaced = move || store.replace(0, 2, &root.join("new"), &root, &places);
    though_it_hangs("a replacement", replaced).expect("replace");
}

#[test]
fn a_device_that_hangs_is_replaced() {
    let (matrix, switches) = three("hangs and is replaced", Acks::Majority, Duration::from_secs(1));
    let store = Arc::new(matrix.create(CAPACITY).expect("create"));
    let hang = Hang::when(&switches.stores[2], |touch, _| matches!(touch, Touch::Write | Touch::Close));
    store.put(b"k", b"value").expect("two have it");
    hang.wait_met();
    replace(&matrix, &store);
    store.wait_whole(HANG_TIMEOUT).expect("the new one is copied");
    though_it_hangs("a close", move || store.close()).expect("close");
}

#[test]
fn writers_do_not_wait_for_the_log_of_a_rejoining_member() {
    let (matrix, switches) = three("hangs when it joins", Acks::Majority, Duration::from_secs(1));
    let store = Arc::new(matrix.create(CAPACITY).expect("create"));
    leave_behind(&store, &switches, 10);
    let hang = Hang::at(&switches.logs[2], Touch::Write, Some(b"device"));
    switches.stores[2].clear();
    hang.wait_met();
    let writer = Arc::clone(&store);
    though_it_hangs("a write", move || writer.put(b"k", b"value")).expect("two have it");
    though_it_hangs("a close", move || store.close()).expect("close");
}

#[test]
fn a_key_that_expires_while_it_is_compared_is_no_finding() {
    let (matrix, switches) = three("expires", Acks::Majority, Duration::from_secs(60));
    let store = matrix.create(CAPACITY).expect("create");
    store.put_expiring(b"k", b"value", Some(Expiry::after(Duration::from_secs(2)))).expect("put");
    wait_level(&store);
    let slow = Fault::Slow(Duration::from_millis(2500));
    switches.stores[1].set(move |touch, key| if touch == Touch::Read && key == b"k" { slow } else { Fault::None });
    let report = store.verify(&mut |_| {}).expect("a report");
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[test]
fn status_and_stats_do_not_wait_for_a_hanging_device() {
    let (matrix, switches) = three("asked", Acks::Majority, Duration::from_secs(3600));
    let store = Arc::new(matrix.create(CAPACITY).expect("create"));
    store.put(b"k", b"value").expect("put");
    wait_level(&store);
    let whole = Arc::clone(&store);
    let hang = Hang::at(&switches.stores[2], Touch::Count, None);
    though_it_hangs("who waits for all", move || whole.wait_whole(HANG_TIMEOUT)).expect("all are active");
    drop(hang);
    let hang = Hang::when(&switches.stores[2], |touch, _| matches!(touch, Touch::Write | Touch::Count));
    store.put(b"l", b"value").expect("two have it");
    hang.wait_met();
    let asked = Arc::clone(&store);
    let status = though_it_hangs("status", move || asked.status());
    assert_eq!((status.devices[2].state, status.devices[2].queued), ("active", 1));
}

#[test]
fn a_close_does_not_wait_for_a_hanging_call() {
    let (matrix, switches) = three("hangs in a caller", Acks::Majority, Duration::from_secs(1));
    let matrix = matrix.with(|options| options.inline = Inline::On);
    let store = Arc::new(matrix.create(CAPACITY).expect("create"));
    let hang = Hang::at(&switches.stores[1], Touch::Write, Some(b"k"));
    let writer = Arc::clone(&store);
    let writer = std::thread::spawn(move || writer.put(b"k", b"value"));
    hang.wait_met();
    though_it_hangs("a close", move || store.close()).expect("close");
    drop(hang);
    drop(writer.join().expect("a thread that ends"));
}

#[test]
fn without_threads_one_caller_at_a_time_catches_members_up() {
    let (matrix, switches) = three("no threads", Acks::Majority, Duration::from_secs(1));
    let matrix = matrix.with(|options| options.threads = false);
    let store = Arc::new(matrix.create(CAPACITY).expect("create"));
    leave_behind(&store, &switches, 10);
    let hang = Hang::at(&switches.stores[2], Touch::Write, None);
    let (sender, receiver) = mpsc::channel();
    let settle = || {
        let (store, sender) = (Arc::clone(&store), sender.clone());
        std::thread::spawn(move || sender.send(store.settle()))
    };
    let first = settle();
    hang.wait_met();
    let second = settle();
    assert!(receiver.recv_timeout(Duration::from_secs(2)).is_err(), "the second one waits for the first");
    drop(hang);
    for caller in [first, second] {
        caller.join().expect("a thread that ends").expect("somebody hears it");
        receiver.recv().expect("settled").expect("settle");
    }
    assert_eq!(states(&store), ["active"; 3]);
}

#[test]
fn a_device_that_hangs_while_it_catches_up_is_replaced_and_the_new_one_is_copied() {
    let (matrix, switches) = three("hangs in a replay and is replaced", Acks::Majority, Duration::from_secs(1));
    let store = Arc::new(matrix.create(CAPACITY).expect("create"));
    leave_behind(&store, &switches, 10);
    let hang = Hang::at(&switches.stores[2], Touch::Write, None);
    hang.wait_met();
    replace(&matrix, &store);
    store.wait_whole(HANG_TIMEOUT).expect("the new one is copied");
    // A thread that returns from the hanging call does nothing more.
    drop(hang);
    store.put(b"k", b"value").expect("put");
    wait_level(&store);
    assert!(store.verify(&mut |_| {}).expect("verify").is_clean());
    though_it_hangs("a close", move || store.close()).expect("close");
}
