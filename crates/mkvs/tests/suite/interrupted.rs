//! Half-done work in logs and opens after a crash causes no copy and loses no member. Without
//! threads, so that each run is the same.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::Matrix;
use crate::common::faulty::{Fault, Faulty, Switch, Touch};
use lodestore_contract::conformance::Harness;
use lodestore_contract::{Error, Store};
use lodestore_mkvs::{Acks, Inline, Mkvs, Part};

const CAPACITY: u64 = 32 << 20;
const LOG_BYTES: u64 = 4096;

/// A group of three, with switches for its devices' stores, for the log of device 1, and for the
/// host's store. Logs hold few operations.
fn matrix(name: &'static str, acks: Acks) -> (Matrix, [Switch; 3]) {
    let switches = [Switch::new(), Switch::new(), Switch::new()];
    let [store, log, host] = switches.clone();
    let wrap = move |directory: &Path, part: Part, inner: Arc<dyn Store>| -> Arc<dyn Store> {
        let is_second = directory.ends_with("group0.device1");
        let switch = match part {
            Part::Device => &store,
            Part::Log if is_second => &log,
            Part::Host => &host,
            _ => return inner,
        };
        Arc::new(Faulty { store: inner, switch: switch.clone() })
    };
    let matrix = Matrix::new(name, 1, 3).on(|places| places.wrap = Some(Arc::new(wrap))).with(|options| {
        options.acks = acks;
        options.inline = Inline::On;
        options.threads = false;
        (options.soft_lag, options.hard_lag) = (Some(4), Some(8));
        (options.log_ops, options.log_bytes) = (16, LOG_BYTES);
    });
    (matrix, switches)
}

fn counter(store: &Mkvs, name: &str) -> u64 {
    store.stats().engine_counters.get(name).copied().unwrap_or(0)
}

fn fail_from(switch: &Switch, nth: usize) {
    let writes = AtomicUsize::new(0);
    switch.set(move |touch, _| {
        let is_late = touch == Touch::Write && writes.fetch_add(1, Ordering::Relaxed) >= nth;
        if is_late { Fault::Io } else { Fault::None }
    });
}

/// An operation replaces several entries, or all. A failure in between made the log look like one
/// with a hole, or of another epoch, and the device was copied.
#[test]
fn a_device_whose_log_fails_during_an_eviction_catches_up_from_another_log() {
    for large in [2500, 4000] {
        // The first write stores `applied`.
        for nth in 1..24 {
            let (matrix, [_, log, _]) = matrix("evicts", Acks::All);
            let store = matrix.create(CAPACITY).expect("create");
            for i in 0..40u32 {
                store.put(format!("key{}", i % 7).as_bytes(), &[i as u8; 100]).expect("put");
            }
            fail_from(&log, nth);
            store.put(b"large", &vec![7; large]).expect("the others have it");
            drop(store);
            log.clear();
            matrix_is_whole(&matrix, &format!("{large} bytes, write {nth}"));
        }
    }
}

fn matrix_is_whole(matrix: &Matrix, what: &str) {
    let store = matrix.open().expect("open");
    store.wait_recovered().expect("recovers");
    let counts = ["devices_active", "devices_copied"].map(|name| counter(&store, name));
    assert_eq!(counts, [3, 0], "{what}");
    assert!(store.verify(&mut |_| {}).expect("verify").is_clean(), "{what}");
}

/// Two members needed a copy, and the first was partial before the description said that it lacked
/// operations. An open interrupted there left too few members for the next one.
#[test]
fn an_open_interrupted_before_its_epoch_keeps_the_former_members() {
    let mut copied = 0;
    // The most advanced member changes every few operations.
    for last in 30..42u8 {
        let (matrix, [devices, _, host]) = matrix("cut off", Acks::One);
        let store = matrix.create(CAPACITY).expect("create");
        // Each log holds one of them: a member that lags by more needs a copy.
        for i in 0..=last {
            store.put(b"key", &[i; 3000]).expect("put");
        }
        drop(store);
        for switch in [&devices, &host] {
            fail_from(switch, 0);
        }
        assert!(matches!(matrix.open().err(), Some(Error::Io { .. })), "the epoch cannot be begun");
        [devices, host].iter().for_each(Switch::clear);
        let store = matrix.open().expect("open again");
        store.wait_recovered().expect("recovers");
        copied += counter(&store, "devices_copied");
        assert_eq!(counter(&store, "devices_active"), 3);
        assert_eq!(store.get(b"key").expect("get"), Some(vec![last; 3000]));
    }
    assert!(copied > 0, "somebody was to be copied");
}

#[test]
fn a_matrix_without_a_description_does_not_exist() {
    let (matrix, [.., host]) = matrix("undescribed", Acks::Majority);
    fail_from(&host, 0);
    assert!(matches!(matrix.create(CAPACITY).err(), Some(Error::Io { .. })));
    host.clear();
    assert!(matches!(matrix.open().err(), Some(Error::Missing { .. })));
}
