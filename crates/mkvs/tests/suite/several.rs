//! Groups of four and five devices of which several are out, and come back at different times.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::Matrix;
use crate::common::faulty::{Fault, Switch, Touch};
use crate::common::switched::{Switches, switched};
use lodestore_contract::Store;
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_mkvs::{Acks, Filtering, Inline, Mkvs};

const CAPACITY: u64 = 16 << 20;
const PATIENCE: Duration = HANG_TIMEOUT;

/// A group of `devices` devices with threads of their own and without a filter, with a long
/// timeout.
fn group(name: &'static str, devices: usize, acks: Acks) -> (Matrix, Switches) {
    let (matrix, switches) = switched(name, devices);
    let matrix = matrix.with(|options| {
        (options.acks, options.filter, options.inline) = (acks, Filtering::Off, Inline::Off);
        options.timeout = Duration::from_secs(600);
    });
    (matrix, switches)
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

fn write(store: &Mkvs, keys: u64, round: u64) {
    for i in 0..keys {
        store.put(&key(i), &round.to_le_bytes()).expect("enough are left");
        // No device lags by more than the limit.
        if i % 100 == 99 {
            wait_level(store);
        }
    }
}

fn counter(store: &Mkvs, name: &str) -> u64 {
    store.stats().engine_counters[name]
}

fn wait(what: &str, store: &Mkvs, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", store.status());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is(store: &Mkvs, device: usize, state: &str) -> bool {
    store.status().devices[device].state == state
}

/// Waits until each active device has everything.
fn wait_level(store: &Mkvs) {
    wait("all have everything", store, || {
        store.status().devices.iter().all(|device| device.state != "active" || device.applied == device.last)
    });
}

/// Makes all writes fail for lack of space. Returns the counter of attempts.
fn make_full(switch: &Switch) -> Arc<AtomicU64> {
    let tried = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&tried);
    switch.set(move |touch, _| {
        if touch != Touch::Write {
            return Fault::None;
        }
        counts.fetch_add(1, Ordering::AcqRel);
        Fault::Full
    });
    tried
}

/// Makes a device fall behind: it has no space for a write.
fn put_behind(store: &Mkvs, switches: &Switches, device: usize) -> Arc<AtomicU64> {
    let tried = make_full(&switches.stores[device]);
    store.put(b"behind", b"value").expect("enough are left");
    wait("it is behind", store, || is(store, device, "behind"));
    tried
}

/// Blocks writes until the gate is opened, or the test ends.
struct Gate {
    is_met: Arc<AtomicBool>,
    is_open: Arc<AtomicBool>,
}

impl Gate {
    /// After the gate, writes end in this fault.
    fn at(switch: &Switch, fault: Fault, stops: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        let gate = Self { is_met: Arc::default(), is_open: Arc::default() };
        let (is_met, is_open) = (Arc::clone(&gate.is_met), Arc::clone(&gate.is_open));
        switch.set(move |touch, key| {
            if touch != Touch::Write {
                return Fault::None;
            }
            let stands = stops(key);
            while stands && !is_open.load(Ordering::Acquire) {
                is_met.store(true, Ordering::Release);
                std::thread::sleep(Duration::from_millis(1));
            }
            fault
        });
        gate
    }

    fn wait_met(&self, store: &Mkvs) {
        wait("it stands at the gate", store, || self.is_met.load(Ordering::Acquire));
    }

    fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("list") {
        let entry = entry.expect("list");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().expect("its type").is_dir() {
            copy_directory(&from, &to);
        } else {
            std::fs::copy(&from, &to).expect("copy");
        }
    }
}

fn fails(switch: &Switch, bad: &'static [u8]) {
    switch.set(move |touch, key| if touch == Touch::Write && key == bad { Fault::Io } else { Fault::None });
}

/// The first three devices acknowledge a write that is queued at the fourth. Two of them fail,
/// which leaves too few to record it. Then the fifth comes back, which makes them enough again.
#[test]
fn a_rejoining_device_is_not_counted_before_the_others_have_the_removed_members_writes() {
    let (matrix, switches) = group("counted too early", 5, Acks::Majority);
    let (crashed, _) = group("counted too early, crashed", 5, Acks::Majority);
    let store = matrix.create(CAPACITY).expect("create");
    put_behind(&store, &switches, 4);
    wait_level(&store);
    let gate = Gate::at(&switches.logs[3], Fault::None, |key| key.first() == Some(&b'o'));
    store.put(b"k", b"v").expect("the first three have it");
    (1..3).for_each(|at| fails(&switches.stores[at], b"bad"));
    std::thread::scope(|scope| {
        let bad = scope.spawn(|| store.put(b"bad", b"v"));
        wait("two have failed", &store, || is(&store, 1, "failed") && is(&store, 2, "failed"));
        switches.stores[4].clear();
        // Waits until the fifth is in use, or was tried and is not in use yet.
        let begun = Instant::now();
        while !is(&store, 4, "active") && begun.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(Duration::from_millis(2));
        }
        copy_directory(&matrix.path(), &crashed.path());
        gate.open();
        let _ = bad.join().expect("a thread that ends");
    });
    wait("it comes back when the fourth has everything", &store, || is(&store, 4, "active"));
    assert_eq!(store.get(b"k").expect("get").as_deref(), Some(&b"v"[..]));
    // A crash before the fourth has executed anything, and the loss of two of five.
    [0, 4].iter().for_each(|at| std::fs::remove_dir_all(crashed.device(0, *at)).expect("it is lost"));
    let store = crashed.open().expect("two of five are lost");
    assert_eq!(store.get(b"k").expect("get").as_deref(), Some(&b"v"[..]), "it was acknowledged by three");
}

#[test]
fn catch_up_uses_a_donor_whose_log_reaches_back_far_enough() {
    let (matrix, switches) = group("donors", 5, Acks::Majority);
    let store = matrix.create(CAPACITY).expect("create");
    write(&store, 100, 0);
    wait_level(&store);
    put_behind(&store, &switches, 2);
    // Its log is started again.
    let new = matrix.path().join("new");
    store.replace(0, 4, &new, &matrix.path(), &matrix.places).expect("replace");
    wait("it is copied", &store, || is(&store, 4, "active"));
    write(&store, 10, 1);
    wait_level(&store);
    let before = (counter(&store, "devices_copied"), counter(&store, "devices_caught_up"));
    switches.stores[2].clear();
    wait("it comes back", &store, || is(&store, 2, "active"));
    let behind = (counter(&store, "devices_copied"), counter(&store, "devices_caught_up"));
    assert_eq!(behind, (before.0, before.1 + 1), "others' logs have what it lacks");
    assert!(store.verify(&mut |_| {}).expect("verify").is_clean());
}

/// Two devices need a copy. During the copy of the first one, the other's donor comes back, and
/// then the other catches up from it.
#[test]
fn a_device_that_caught_up_during_another_state_transfer_is_not_copied() {
    const KEYS: u64 = 500;
    let (matrix, switches) = group("copied in use", 4, Acks::One);
    let store = matrix.create(CAPACITY).expect("create");
    write(&store, KEYS, 0);
    wait_level(&store);
    let tried = put_behind(&store, &switches, 2);
    // More than the logs hold.
    (1..4).for_each(|round| write(&store, KEYS, round));
    put_behind(&store, &switches, 3);
    let new = matrix.path().join("new");
    store.replace(0, 0, &new, &matrix.path(), &matrix.places).expect("replace");
    wait("it is copied", &store, || is(&store, 0, "active"));
    // The keeper has done everything possible, and sleeps.
    let before = tried.load(Ordering::Acquire);
    wait("it is tried", &store, || tried.load(Ordering::Acquire) > before);
    // The device refuses the write, and blocks when the keeper catches it up. The only other
    // device left has its log started again.
    let touched = AtomicU64::new(0);
    let donor = Gate::at(&switches.stores[1], Fault::Full, move |_| touched.fetch_add(1, Ordering::AcqRel) != 0);
    store.put(b"behind", b"value").expect("enough are left");
    donor.wait_met(&store);
    let gate = Gate::at(&switches.stores[2], Fault::None, |_| true);
    donor.open();
    gate.wait_met(&store);
    switches.stores[1].clear();
    wait("the donor comes back", &store, || is(&store, 1, "active"));
    switches.stores[3].clear();
    wait("it follows the donor", &store, || is(&store, 3, "active"));
    assert!(is(&store, 2, "behind"), "the copy goes on");
    let copied = counter(&store, "devices_copied");
    gate.open();
    wait("the copy ends", &store, || is(&store, 2, "active"));
    // The keeper goes on.
    std::thread::sleep(Duration::from_millis(200));
    write(&store, KEYS, 9);
    wait_level(&store);
    assert!((0..4).all(|at| is(&store, at, "active")), "{:?}", store.status());
    assert_eq!(counter(&store, "devices_copied"), copied + 1);
    drop(store);
    let store = matrix.open().expect("an open takes all that were active, where one acknowledges");
    assert!((0..4).all(|at| is(&store, at, "active")), "{:?}", store.status());
    assert_eq!(store.get(&key(7)).expect("get"), Some(9_u64.to_le_bytes().to_vec()));
}
