//! Events are reported after the locks of their operation were freed.

use lodestore_contract::{Store, Visit};
use lodestore_hikv::{Backends, HiKv, HiKvOptions};
use lodestore_inplace::testing::{
    Scratch, check_sink_may_drop_the_store, check_sink_may_panic_in_recovery, check_sink_may_use_the_store,
    small_dax_pool,
};

use crate::common::KIND;

#[test]
fn a_sink_can_use_the_store_in_every_event() {
    let options = HiKvOptions { pool: small_dax_pool(), partitions: 4, sweep_ms: 0, ..HiKvOptions::default() };
    check_sink_may_use_the_store(&KIND, options, HiKv::sweep_expired);
}

#[test]
fn a_sink_that_panics_in_the_recovery_poisons_nothing() {
    for recovery_threads in [0, 1, 3] {
        let options = HiKvOptions { partitions: 4, sweep_ms: 0, recovery_threads, ..HiKvOptions::default() };
        check_sink_may_panic_in_recovery(&KIND, options);
    }
}

#[test]
fn a_sink_on_the_sweeping_thread_may_drop_the_last_handle() {
    let options = HiKvOptions { partitions: 4, sweep_ms: 1, ..HiKvOptions::default() };
    check_sink_may_drop_the_store(&KIND, options);
}

#[test]
fn a_store_that_waits_to_free_accepts_writes_from_another_stores_walk() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let mut options = HiKvOptions { pool: small_dax_pool(), partitions: 4, sweep_ms: 0, ..HiKvOptions::default() };
    let walked = HiKv::create(&other.store(), &options).expect("create");
    walked.put(b"key", b"v").expect("put");
    options.backends = Backends::Fixed(0);
    let store = HiKv::create(&scratch.store(), &options).expect("create");
    let full = (0..u32::MAX).find(|number| store.put(&number.to_le_bytes(), &[1; 1 << 20]).is_err()).expect("full");
    assert!((0..full).all(|number| store.delete(&number.to_le_bytes()).expect("delete")));
    let mut wrote = Vec::new();
    walked
        .for_each(&mut |_, _| {
            wrote.push(store.put(b"more", &[2; 1 << 20]));
            Visit::More
        })
        .expect("for_each");
    assert!(matches!(wrote[..], [Ok(())]), "{wrote:?}");
}
