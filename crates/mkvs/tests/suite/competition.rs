//! Who answers a read: devices that stand still are overtaken by others, as often as is allowed.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::Matrix;
use crate::common::faulty::{Fault, Switch, Touch};
use lodestore_contract::Store;
use lodestore_contract::conformance::Harness;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_mkvs::{Filtering, Inline, Mkvs, Reads};

const PATIENCE: Duration = HANG_TIMEOUT;

/// Holds back the reads of a device while it is shut.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<Door>, Condvar)>);

#[derive(Default)]
struct Door {
    is_shut: bool,
    waiting: usize,
}

impl Gate {
    fn guard(&self, switch: &Switch) {
        self.0.0.lock().expect("the door").is_shut = true;
        let gate = self.clone();
        switch.set(move |touch, _| {
            if touch == Touch::Read {
                gate.pass();
            }
            Fault::None
        });
    }

    fn pass(&self) {
        let mut door = self.0.0.lock().expect("the door");
        door.waiting += 1;
        self.0.1.notify_all();
        while door.is_shut {
            door = self.0.1.wait(door).expect("the door");
        }
        door.waiting -= 1;
    }

    /// Until a read waits at it.
    fn await_one(&self) {
        let door = self.0.0.lock().expect("the door");
        let (_door, late) = self.0.1.wait_timeout_while(door, PATIENCE, |door| door.waiting == 0).expect("the door");
        assert!(!late.timed_out(), "nobody came");
    }

    fn open(&self) {
        self.0.0.lock().expect("the door").is_shut = false;
        self.0.1.notify_all();
    }

    /// Until no read waits at it.
    fn await_none(&self) {
        while self.0.0.lock().expect("the door").waiting != 0 {
            std::thread::yield_now();
        }
    }
}

/// Attempts to ask a device that does not answer.
const ATTEMPTS_MAX: usize = 100;

/// A group of three with threads of their own and a pair, with a gate for each device.
fn gated(name: &'static str, reads: Reads, hedge_percent: u32) -> (Matrix, Mkvs, Vec<Gate>, Vec<Switch>) {
    let (matrix, switches) = common::switched::switched(name, 3);
    let matrix = matrix.with(move |options| {
        options.inline = Inline::Off;
        options.filter = Filtering::Off;
        options.reads = reads;
        options.hedge_percent = hedge_percent;
        options.timeout = PATIENCE;
    });
    let store = matrix.create(32 << 20).expect("create");
    store.put(b"key", b"value").expect("put");
    (matrix, store, (0..3).map(|_| Gate::default()).collect(), switches.stores)
}

fn get(store: &Mkvs) {
    assert_eq!(store.get(b"key").expect("get").as_deref(), Some(&b"value"[..]));
}

fn counter(store: &Mkvs, name: &str) -> u64 {
    store.stats().engine_counters[name]
}

fn await_counter(store: &Mkvs, name: &str, least: u64) {
    let begun = Instant::now();
    while counter(store, name) < least {
        assert!(begun.elapsed() < PATIENCE, "{name}: {:?}", store.stats().engine_counters);
        std::thread::yield_now();
    }
}

#[test]
fn a_read_goes_on_while_one_of_three_devices_answers() {
    for reads in [Reads::Hedged, Reads::RaceAll] {
        for still in 1..=2 {
            let (_matrix, store, gates, switches) = gated("overtaken", reads, 100);
            // They find a device at once, and give those below an allowance.
            (0..100).for_each(|_| get(&store));
            // No read asks a device that is still at an earlier command: several attempts.
            for attempt in 1..=ATTEMPTS_MAX {
                (0..still).for_each(|at| gates[at].guard(&switches[at]));
                (0..20).for_each(|_| get(&store));
                gates.iter().for_each(Gate::open);
                gates.iter().for_each(Gate::await_none);
                let is_overtaken = counter(&store, "reads_hedges_won") >= 1;
                if reads != Reads::Hedged || is_overtaken {
                    break;
                }
                assert!(attempt < ATTEMPTS_MAX, "{:?}", store.stats().engine_counters);
                (0..20).for_each(|_| get(&store));
            }
        }
    }
}

#[test]
fn without_an_allowance_the_first_device_is_waited_for() {
    for (reads, percent) in [(Reads::Hedged, 0), (Reads::Single, 100)] {
        let (_matrix, store, gates, switches) = gated("waited for", reads, percent);
        (0..3).for_each(|at| gates[at].guard(&switches[at]));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| get(&store));
            while gates.iter().all(|gate| gate.0.0.lock().expect("the door").waiting == 0) {
                assert!(!reader.is_finished());
                std::thread::yield_now();
            }
            // Many times the time after which it would be: it can only be missed, not met by mistake.
            std::thread::sleep(Duration::from_millis(100));
            let came = |gate: &&Gate| gate.0.0.lock().expect("the door").waiting == 1;
            assert_eq!(gates.iter().filter(came).count(), 1, "{reads:?}");
            assert_eq!(counter(&store, "reads_hedged"), 0);
            gates.iter().for_each(Gate::open);
        });
    }
}

#[test]
fn who_comes_too_late_to_a_read_does_nothing_and_costs_nothing() {
    let (_matrix, store, gates, switches) = gated("too late", Reads::Hedged, 100);
    // Reads that find a device at once give the two below an allowance of two devices more each.
    (0..100).for_each(|_| get(&store));
    let before = counter(&store, "reads_hedged");
    (0..3).for_each(|at| gates[at].guard(&switches[at]));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| get(&store));
        gates.iter().for_each(Gate::await_one);
        let second = scope.spawn(|| get(&store));
        await_counter(&store, "reads_hedged", before + 4);
        assert!(!first.is_finished() && !second.is_finished());
        gates[1].open();
        first.join().expect("the first");
        second.join().expect("the second");
        gates.iter().for_each(Gate::open);
    });
    // Of the three that the second read was queued at one answered; of the others one at least was asked again.
    await_counter(&store, "reads_hedges_spared", 1);
    get(&store);
    assert!(counter(&store, "reads_hedges_spared") <= counter(&store, "reads_hedged"));
}
