//! Expired keys are removed automatically, in every mode of the tree.

use std::time::{Duration, Instant};

use crate::common::{Scratch, small_dax};
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Expiry, Store};
use lodestore_hikv::{Backends, HiKv, HiKvOptions};

#[test]
fn the_sweeper_runs_with_and_without_backend_threads() {
    for backends in [Backends::Fixed(0), Backends::Fixed(1)] {
        let scratch = Scratch::new();
        let options = HiKvOptions { backends, sweep_ms: 1, ..small_dax() };
        let store = HiKv::create(&scratch.store(), &options).expect("create");
        store.put(b"stays", b"v").expect("put");
        store.put_expiring(b"goes", b"v", Some(Expiry::at_millis(1))).expect("put");
        // `len` counts a key until it is swept. The timeout detects a missing sweeper.
        let begin = Instant::now();
        while store.len().expect("len") > 1 {
            assert!(begin.elapsed() < HANG_TIMEOUT, "nobody sweeps with {backends:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(store.contains(b"stays").expect("contains"));
        store.close().expect("close");
    }
}
