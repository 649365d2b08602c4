//! Background work goes on while a device is copied, for any duration.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::Matrix;
use crate::common::faulty::{Fault, Faulty, Switch, Touch};
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Event, Store};
use lodestore_mkvs::{Acks, Inline, MatrixStatus, Mkvs, Part, Relay};

const CAPACITY: u64 = 64 << 20;
const PATIENCE: Duration = HANG_TIMEOUT;

/// A matrix in which a copy lasts longer than any test, with the switch of the store of one device.
fn matrix(name: &'static str, groups: usize, of: &'static str) -> (Matrix, Switch) {
    let switch = Switch::new();
    let one = switch.clone();
    let wrap = move |directory: &Path, part: Part, store: Arc<dyn Store>| -> Arc<dyn Store> {
        let is_one = directory.ends_with(of) && part == Part::Device;
        if is_one { Arc::new(Faulty { store, switch: one.clone() }) } else { store }
    };
    let matrix = Matrix::new(name, groups, 3)
        .on(|places| places.wrap = Some(Arc::new(wrap)))
        .with(|options| (options.copy_rate, options.inline) = (1, Inline::Off));
    (matrix, switch)
}

fn write(store: &Mkvs, round: u64) {
    (0..300_u64).for_each(|i| store.put(format!("key{i}").as_bytes(), &[round as u8; 100]).expect("put"));
}

/// Starts a copy of device 0 of group 0, and waits until it has some of the pairs.
fn copy_for_ever(matrix: &Matrix, store: &Mkvs) {
    let new = matrix.path().join("new");
    store.replace(0, 0, &new, &matrix.path(), &matrix.places).expect("replace");
    let begun = Instant::now();
    while store.status().devices[0].keys == 0 {
        assert!(begun.elapsed() < PATIENCE, "the copy begins");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn state(store: &Mkvs, group: usize, device: usize) -> &'static str {
    let status = store.status();
    status.devices.iter().find(|other| (other.group, other.device) == (group, device)).expect("a device").state
}

fn wait(store: &Mkvs, group: usize, device: usize, wanted: &str) {
    let begun = Instant::now();
    while state(store, group, device) != wanted {
        assert!(begun.elapsed() < PATIENCE, "it is to be {wanted}: {:#?}", store.status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a device has all writes. A device that fell behind before it hangs would hang in
/// catch-up, and be reported as behind.
fn wait_for_all(store: &Mkvs, device: usize) {
    let begun = Instant::now();
    let has_all = |status: &MatrixStatus| {
        let found = &status.devices[device];
        found.state == "active" && found.applied == found.last
    };
    while !has_all(&store.status()) {
        assert!(begun.elapsed() < PATIENCE, "it is to have all: {:#?}", store.status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Releases hanging calls when the test ends.
#[derive(Default)]
struct GoesOn(Arc<AtomicBool>);

impl Drop for GoesOn {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn make_full(switch: &Switch) {
    switch.set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
}

#[test]
fn a_device_of_another_group_catches_up_during_a_state_transfer() {
    let (matrix, switch) = matrix("two groups", 2, "group1.device2");
    let store = matrix.create(CAPACITY).expect("create");
    write(&store, 0);
    copy_for_ever(&matrix, &store);
    make_full(&switch);
    write(&store, 1);
    wait(&store, 1, 2, "behind");
    switch.clear();
    wait(&store, 1, 2, "active");
    assert_eq!(state(&store, 0, 0), "behind", "it is copied still");
    write(&store, 2);
}

#[test]
fn another_device_of_the_group_catches_up_during_a_state_transfer() {
    let (matrix, switch) = matrix("one group", 1, "group0.device2");
    let matrix = matrix.with(|options| options.acks = Acks::One);
    let store = matrix.create(CAPACITY).expect("create");
    write(&store, 0);
    copy_for_ever(&matrix, &store);
    for round in 1..4 {
        make_full(&switch);
        write(&store, round);
        wait(&store, 0, 2, "behind");
        switch.clear();
        wait(&store, 0, 2, "active");
        assert_eq!(state(&store, 0, 0), "behind", "it is copied still");
    }
}

#[test]
fn a_pair_of_the_group_is_repaired_during_a_state_transfer() {
    let (matrix, switch) = matrix("repaired", 1, "group0.device2");
    let store = matrix.create(CAPACITY).expect("create");
    write(&store, 0);
    copy_for_ever(&matrix, &store);
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = Arc::clone(&is_mended);
    switch.set(move |touch, key| {
        if key == b"key7" && touch == Touch::Write {
            mended.store(true, Ordering::Release);
        }
        let is_damaged = key == b"key7" && !mended.load(Ordering::Acquire);
        if is_damaged { Fault::Corrupt } else { Fault::None }
    });
    let begun = Instant::now();
    while !is_mended.load(Ordering::Acquire) {
        assert_eq!(store.get(b"key7").expect("another one can read it"), Some(vec![0; 100]));
        assert!(begun.elapsed() < PATIENCE, "it is put right");
    }
    assert_eq!(state(&store, 0, 0), "behind", "it is copied still");
}

#[test]
fn a_hanging_device_is_detected_and_reported_during_a_state_transfer() {
    let (matrix, switch) = matrix("hangs", 2, "group1.device2");
    let received = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&received);
    let owner = move |event: &Event| sink.lock().expect("what was told").push(event.clone());
    let matrix = matrix.with(|options| {
        options.timeout = Duration::from_millis(200);
        options.relay = Some(Relay::new(Arc::new(owner)));
    });
    let store = matrix.create(CAPACITY).expect("create");
    write(&store, 0);
    copy_for_ever(&matrix, &store);
    let goes_on = GoesOn::default();
    let waits = Arc::clone(&goes_on.0);
    switch.set(move |touch, _| {
        while touch == Touch::Write && !waits.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Fault::None
    });
    write(&store, 1);
    wait(&store, 1, 2, "failed");
    let is_it = |event: &Event| match event {
        Event::DeviceFailed { group: 1, device: 2, is_late, cause } => {
            assert!(*is_late && cause.contains("did not answer"), "{event}");
            true
        }
        _ => false,
    };
    let begun = Instant::now();
    while !received.lock().expect("what was told").iter().any(is_it) {
        assert!(begun.elapsed() < PATIENCE, "the owner is told");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(state(&store, 0, 0), "behind", "it is copied still");
}

#[test]
fn a_late_device_rejoins_when_it_answers_and_a_failed_one_does_not() {
    for copied in [false, true] {
        let (matrix, switch) = matrix("answers again", 1, "group0.device2");
        let matrix = matrix.with(|options| {
            (options.timeout, options.acks) = (Duration::from_millis(100), Acks::One);
        });
        let store = matrix.create(CAPACITY).expect("create");
        write(&store, 0);
        if copied {
            copy_for_ever(&matrix, &store);
        }
        for round in 1..3 {
            wait_for_all(&store, 2);
            let goes_on = GoesOn::default();
            let waits = Arc::clone(&goes_on.0);
            switch.set(move |touch, _| {
                while touch == Touch::Write && !waits.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Fault::None
            });
            write(&store, round);
            wait(&store, 0, 2, "failed");
            assert!(store.status().devices[2].why.is_some());
            write(&store, round + 10);
            drop(goes_on);
            wait(&store, 0, 2, "active");
            assert_eq!(store.status().devices[2].why, None);
            assert_eq!(store.get(b"key1").expect("get"), Some(vec![round as u8 + 10; 100]));
        }
        if !copied {
            assert!(store.verify(&mut |_| {}).expect("verify").is_clean());
        }
        // A device that reports a failure itself is used no more.
        switch.set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
        write(&store, 9);
        wait(&store, 0, 2, "failed");
        switch.clear();
        std::thread::sleep(Duration::from_millis(1000));
        assert_eq!(state(&store, 0, 2), "failed");
    }
}

#[test]
fn closing_the_matrix_in_an_event_callback_does_not_deadlock() {
    let store: Arc<Mutex<Option<Mkvs>>> = Arc::default();
    let is_closed = Arc::new(AtomicBool::new(false));
    let (owned, closed) = (Arc::clone(&store), Arc::clone(&is_closed));
    let owner = move |event: &Event| {
        if matches!(event, Event::DeviceFailed { .. })
            && let Some(store) = owned.lock().expect("the store").take()
        {
            store.close().expect("close");
            drop(store);
            closed.store(true, Ordering::Release);
        }
    };
    let (matrix, switch) = matrix("closed by its owner", 1, "group0.device2");
    let matrix = matrix.with(|options| options.relay = Some(Relay::new(Arc::new(owner))));
    let mut held = store.lock().expect("the store");
    let made = held.insert(matrix.create(CAPACITY).expect("create"));
    write(made, 0);
    switch.set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
    write(made, 1);
    drop(held);
    let begun = Instant::now();
    while !is_closed.load(Ordering::Acquire) {
        assert!(begun.elapsed() < PATIENCE, "it is closed");
        std::thread::sleep(Duration::from_millis(5));
    }
}
