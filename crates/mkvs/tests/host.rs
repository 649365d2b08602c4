//! What becomes of writes while the host's own store fails, and what it is asked for.

mod common;

use common::Matrix;
use common::faulty::{Fault, Switch, Touch};
use common::switched::{Switches, switched};
use lodestore_contract::conformance::Harness;
use lodestore_contract::{Error, Store};
use lodestore_mkvs::{Acks, Filtering, Inline, Mkvs};

const CAPACITY: u64 = 16 << 20;

fn three(name: &'static str, acks: Acks) -> (Matrix, Switches) {
    let (matrix, switches) = switched(name, 3);
    let matrix =
        matrix.with(|options| (options.acks, options.filter, options.inline) = (acks, Filtering::Off, Inline::On));
    (matrix, switches)
}

/// Every write of this key ends so.
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
fn a_write_is_not_taken_for_refused_where_the_host_has_no_room() {
    for acks in [Acks::Majority, Acks::All] {
        let (matrix, switches) = three("host without room", acks);
        let matrix = matrix.with(|options| options.inline = Inline::Off);
        let store = matrix.create(CAPACITY).expect("create");
        store.put(b"k", b"old").expect("put");
        wait_level(&store);
        // One has it, one has no room for it, one fails by it, and that cannot be noted.
        plan(&switches.host, b"matrix", Fault::Full);
        plan(&switches.stores[1], b"k", Fault::Full);
        plan(&switches.stores[2], b"k", Fault::Io);
        let told = store.put(b"k", b"new").expect_err("it cannot be noted who failed");
        assert!(!matches!(told, Error::Full { .. }), "{told:?}: a refusal says that nobody has it");
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
fn a_write_that_nobody_was_given_is_not_counted() {
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
