//! Writes while the host's own store fails, and the calls that the host's store receives.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::Matrix;
use crate::common::faulty::{Fault, Switch, Touch};
use crate::common::switched::{Switches, switched};
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Store};
use lodestore_mkvs::{Acks, Filtering, Inline, Mkvs};

const CAPACITY: u64 = 16 << 20;

fn three(name: &'static str, acks: Acks) -> (Matrix, Switches) {
    let (matrix, switches) = switched(name, 3);
    let matrix =
        matrix.with(|options| (options.acks, options.filter, options.inline) = (acks, Filtering::Off, Inline::On));
    (matrix, switches)
}

/// Makes every write of this key end in this fault.
fn plan(switch: &Switch, key: &'static [u8], fault: Fault) {
    switch.set(move |touch, written| if touch == Touch::Write && written == key { fault } else { Fault::None });
}

/// Waits until each device has everything: a write is acknowledged when two of three have it.
fn wait_level(store: &Mkvs) {
    while store.status().devices.iter().any(|device| device.applied != device.last) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_full_host_store_makes_a_write_in_doubt_and_not_refused() {
    for acks in [Acks::Majority, Acks::All] {
        let (matrix, switches) = three("host without room", acks);
        let matrix = matrix.with(|options| options.inline = Inline::Off);
        let store = matrix.create(CAPACITY).expect("create");
        store.put(b"k", b"old").expect("put");
        wait_level(&store);
        // The first device has it, one has no space for it, one fails, and this cannot be recorded.
        plan(&switches.host, b"matrix", Fault::Full);
        plan(&switches.stores[1], b"k", Fault::Full);
        plan(&switches.stores[2], b"k", Fault::Io);
        let error = store.put(b"k", b"new").expect_err("it cannot be noted who failed");
        assert!(!matches!(error, Error::Full { .. }), "{error:?}: a refusal says that nobody has it");
        assert!(matches!(store.get(b"k"), Err(Error::TooFewDevices { .. })), "nobody knows whether it stands");
        switches.stores[1].clear();
        switches.host.clear();
        while store.put(b"other", b"value").is_err() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let decided = store.get(b"k").expect("get");
        for _ in 0..200 {
            assert_eq!(store.get(b"k").expect("get"), decided, "{acks:?}");
        }
    }
}

#[test]
fn the_filter_does_not_count_a_write_that_no_device_received() {
    let (matrix, switches) = three("not counted", Acks::Majority);
    let matrix = matrix.with(|options| options.filter = Filtering::On);
    let store = matrix.create(CAPACITY).expect("create");
    for switch in &switches.stores[1..] {
        plan(switch, b"first", Fault::Io);
    }
    store.put(b"first", b"value").expect_err("one alone has it");
    let counted =
        |store: &Mkvs| (store.stats().engine_counters["filter_keys"], store.stats().engine_counters["filter_leaked"]);
    assert_eq!(counted(&store), (1, 1));
    for _ in 0..20 {
        let refused = store.put(b"again", b"value");
        assert!(matches!(refused, Err(Error::TooFewDevices { .. })), "{refused:?}");
    }
    assert_eq!(counted(&store), (1, 1));
}

#[test]
fn only_members_that_the_description_calls_active_are_active() {
    let (matrix, switches) = three("revived", Acks::Majority);
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"k", b"old").expect("put");
    wait_level(&store);
    switches.host.set(|touch, key| if touch == Touch::Write && key == b"matrix" { Fault::Io } else { Fault::None });
    for log in &switches.logs {
        log.set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
    }
    store.put(b"k", b"new").expect_err("no log has room");
    switches.logs.iter().for_each(Switch::clear);
    // The keeper tries several times.
    for _ in 0..150 {
        assert!(store.get(b"k").is_err(), "whoever leads has not been noted");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    switches.host.clear();
    store.wait_whole(HANG_TIMEOUT).expect("all come back");
    assert_eq!(store.get(b"k").expect("get").as_deref(), Some(&b"old"[..]));
}

#[test]
fn a_sync_syncs_the_host_too() {
    let (matrix, switches) = three("synced", Acks::Majority);
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"k", b"value").expect("put");
    let asked = Arc::new(AtomicU64::new(0));
    let every = [&switches.stores[..], &switches.logs[..], std::slice::from_ref(&switches.host)].concat();
    for switch in &every {
        let asked = Arc::clone(&asked);
        switch.set(move |touch, _| {
            asked.fetch_add(u64::from(touch == Touch::Sync), Ordering::Relaxed);
            Fault::None
        });
    }
    // Memory needs no sync: each store is called anyway.
    let _ = store.sync();
    assert_eq!(asked.load(Ordering::Relaxed), every.len() as u64, "three stores, three logs and the host's");
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("list") {
        let entry = entry.expect("list");
        let to = to.join(entry.file_name());
        if entry.file_type().expect("its type").is_dir() {
            copy_directory(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).expect("copy");
        }
    }
}

#[test]
fn a_salvage_finds_keys_that_an_older_filter_lacks() {
    let matrix = Matrix::new("an older filter", 1, 1);
    let store = matrix.create(CAPACITY).expect("create");
    store.put(b"before", b"value").expect("put");
    store.close().expect("close");
    drop(store);
    // As after a power loss that lost the newest writes of the host's store, and none of the
    // device's.
    let (host, aside) = (matrix.path().join("host"), matrix.path().join("aside"));
    copy_directory(&host, &aside);
    let store = matrix.open().expect("open");
    store.put(b"since", b"value").expect("put");
    store.close().expect("close");
    drop(store);
    std::fs::remove_dir_all(&host).expect("the newer one");
    std::fs::rename(&aside, &host).expect("the older one");
    let store = matrix.with(|options| options.salvage = true).open().expect("salvage");
    assert_eq!(store.get(b"since").expect("get").as_deref(), Some(&b"value"[..]));
}
