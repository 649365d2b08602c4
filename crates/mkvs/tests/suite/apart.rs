//! Separate value records in an operation log, while the log goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::faulty::{Fault, Touch};
use crate::common::switched::switched;
use lodestore_contract::Store;
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_mkvs::{Filtering, Inline};

const PATIENCE: Duration = HANG_TIMEOUT;

fn wait(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_replay_never_reads_the_value_of_a_later_operation_in_its_slot() {
    const SLOTS: u64 = 1024;
    let (matrix, switches) = switched("slot taken", 3);
    let matrix = matrix.with(|options| {
        (options.filter, options.inline) = (Filtering::Off, Inline::Off);
        (options.log_ops, options.log_bytes) = (SLOTS, 32 << 20);
    });
    let store = matrix.create(32 << 20).expect("create");
    let is_active = |count| store.stats().engine_counters["devices_active"] == count;
    switches.stores[2].set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    store.put(b"first", b"value").expect("two have it");
    wait("the third is behind", || is_active(2));
    store.put(b"large", &vec![1; 2 << 20]).expect("operation 2");
    let (met, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for log in &switches.logs[..2] {
        let (met, ends) = (Arc::clone(&met), Arc::clone(&ends));
        log.set(move |touch, key| {
            // Between the entry and its value.
            if touch == Touch::Read && key.first() == Some(&b'v') {
                met.store(true, Ordering::Release);
                let begun = Instant::now();
                while !ends.load(Ordering::Acquire) && begun.elapsed() < PATIENCE {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Fault::None
        });
    }
    switches.stores[2].clear();
    wait("the third reads operation 2", || met.load(Ordering::Acquire));
    for i in 3..2 + SLOTS {
        store.put(format!("key{:03}", i % 100).as_bytes(), &i.to_le_bytes()).expect("two have it");
    }
    store.put(b"other", &vec![2; 2 << 20]).expect("the operation that takes its slot");
    let is_level = || store.status().devices[..2].iter().all(|device| device.applied == 2 + SLOTS);
    wait("both logs have it", is_level);
    ends.store(true, Ordering::Release);
    store.wait_whole(PATIENCE).expect("three active devices");
    let report = store.verify(&mut |_| {}).expect("verify");
    assert!(report.is_clean(), "{:?}", report.findings);
}
