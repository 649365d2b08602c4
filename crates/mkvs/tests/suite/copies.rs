//! Copies of one moment (`Store::copy_all`): of devices without order, next to moves of keys and
//! failing devices.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::Matrix;
use crate::common::faulty::{Fault, Faulty, Switch, Touch};
use crate::common::switched::switched;
use lodestore_contract::conformance::{Case, Harness, copies};
use lodestore_contract::copy::CopySink;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Pair, Result, Store};
use lodestore_mkvs::{Acks, Mkvs, Part};

const CAPACITY: u64 = 32 << 20;
const KEYS: u64 = 3000;

/// A copy in memory, which calls `on_call` with the number and the key of each call.
struct Copied<'a> {
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    calls: u64,
    on_call: &'a dyn Fn(u64, &[u8]),
}

impl<'a> Copied<'a> {
    fn new(on_call: &'a dyn Fn(u64, &[u8])) -> Self {
        Self { pairs: BTreeMap::new(), calls: 0, on_call }
    }

    fn count_call(&mut self, key: &[u8]) {
        self.calls += 1;
        (self.on_call)(self.calls, key);
    }
}

impl CopySink for Copied<'_> {
    fn add(&mut self, pair: Pair<'_>) -> Result<()> {
        self.count_call(pair.key);
        let old = self.pairs.insert(pair.key.to_vec(), pair.value.to_vec());
        assert!(old.is_none(), "{} is shown twice", pair.key.escape_ascii());
        Ok(())
    }

    fn put(&mut self, pair: Pair<'_>) -> Result<()> {
        self.count_call(pair.key);
        self.pairs.insert(pair.key.to_vec(), pair.value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.count_call(key);
        self.pairs.remove(key);
        Ok(())
    }
}

fn copy(store: &Mkvs) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut copied = Copied::new(&|_, _| {});
    store.copy_all(&mut copied).map(|()| copied.pairs)
}

fn key(i: u64) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

fn fill(store: &Mkvs) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut pairs = BTreeMap::new();
    for i in 0..KEYS {
        store.put(&key(i), &i.to_le_bytes()).expect("put");
        pairs.insert(key(i), i.to_le_bytes().to_vec());
    }
    pairs
}

/// Makes reads of these keys end in this fault.
fn spoil(switch: &Switch, keys: &'static [u64], fault: Fault) {
    switch.set(move |touch, name| {
        let is_hit = touch == Touch::Read && keys.iter().any(|i| key(*i) == name);
        if is_hit { fault } else { Fault::None }
    });
    switch.leave_out(if fault == Fault::LeftOut { keys.len() as u64 } else { 0 });
}

#[test]
fn copies_of_unordered_devices_show_one_moment() {
    for (groups, devices) in [(1, 1), (2, 1), (2, 3)] {
        let matrix = || Matrix::new("unordered", groups, devices).on(|places| places.is_unordered = true);
        copies::a_copy_holds_every_live_pair(&Case::new(matrix()));
        copies::a_copy_under_writers_is_of_one_moment(&Case::new(matrix()));
        copies::a_failing_sink_ends_the_copy(&Case::new(matrix()));
    }
}

/// Copies a matrix to which a group is added while the copy is made, and in which a thread writes.
fn assert_copied_while_keys_move(devices: usize, is_unordered: bool) {
    let what = format!("{devices} devices, unordered: {is_unordered}");
    let matrix = Matrix::new("moving", 1, devices).on(|places| places.is_unordered = is_unordered);
    let store = matrix.create(CAPACITY).expect("create");
    let mut expected = fill(&store);
    let (step, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let wait = |is_so: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < HANG_TIMEOUT, "{what}: {:?}", store.status());
            thread::sleep(Duration::from_millis(1));
        }
    };
    let on_call = |call, _: &[u8]| match call {
        50 => {
            store.add_group(&[], &matrix.path(), &matrix.places).expect("add a group");
            wait(&|| store.status().moved > KEYS / 8);
        }
        1000 => wait(&|| store.status().groups == store.status().settled_groups),
        _ => {}
    };
    let mut copied = Copied::new(&on_call);
    let before = thread::scope(|scope| {
        scope.spawn(|| {
            for i in 1_u64.. {
                store.put(b"first", &i.to_le_bytes()).expect("put");
                store.put(b"second", &i.to_le_bytes()).expect("put");
                step.store(i, Ordering::SeqCst);
                if stop.load(Ordering::Acquire) {
                    break;
                }
            }
        });
        wait(&|| step.load(Ordering::SeqCst) > 2);
        let before = step.load(Ordering::SeqCst);
        let done = store.copy_all(&mut copied);
        stop.store(true, Ordering::Release);
        done.unwrap_or_else(|error| panic!("{what}: {error}"));
        before
    });
    let number = |name: &[u8]| u64::from_le_bytes(copied.pairs[name][..].try_into().expect("8 bytes"));
    let (first, second) = (number(b"first"), number(b"second"));
    assert!(second >= before && (first == second || first == second + 1), "{what}: {before}, {first}, {second}");
    expected.insert(b"first".to_vec(), first.to_le_bytes().to_vec());
    expected.insert(b"second".to_vec(), second.to_le_bytes().to_vec());
    let missing = expected.iter().find(|(key, value)| copied.pairs.get(*key) != Some(value));
    assert!(missing.is_none(), "{what}: {} of {} keys; no {missing:?}", copied.pairs.len(), expected.len());
    assert_eq!(copied.pairs.len(), expected.len(), "{what}");
    assert!(store.status().moved > KEYS / 4, "{what}: keys moved while the copy was made");
}

#[test]
fn a_copy_has_each_key_once_while_keys_move_to_a_new_group() {
    for devices in [1, 2] {
        for is_unordered in [false, true] {
            assert_copied_while_keys_move(devices, is_unordered);
        }
    }
}

#[test]
fn a_copy_has_keys_whose_move_to_a_new_group_failed() {
    for devices in [1, 2] {
        let switch = Switch::new();
        let of_new = switch.clone();
        let wrap = move |directory: &Path, part: Part, store: Arc<dyn Store>| -> Arc<dyn Store> {
            let is_new = part == Part::Device && directory.to_string_lossy().contains("group1.");
            if is_new { Arc::new(Faulty { store, switch: of_new.clone() }) } else { store }
        };
        let matrix = Matrix::new("full", 1, devices).on(|places| places.wrap = Some(Arc::new(wrap)));
        let store = matrix.create(CAPACITY).expect("create");
        let expected = fill(&store);
        switch.set(|touch, _| if touch == Touch::Write { Fault::Full } else { Fault::None });
        let on_call = |call, _: &[u8]| {
            if call == 50 {
                store.add_group(&[], &matrix.path(), &matrix.places).expect("add a group");
                let changed = (0..KEYS).filter(|i| store.put(&key(*i), &i.to_le_bytes()).is_ok()).count() as u64;
                assert!(changed < KEYS, "no key is of the new group");
            }
        };
        let mut copied = Copied::new(&on_call);
        store.copy_all(&mut copied).expect("a copy");
        assert!(copied.pairs == expected, "{devices} devices: {} of {KEYS} keys", copied.pairs.len());
    }
}

#[test]
fn a_copy_waits_for_writes_that_share_a_stripe_before_it_reads_their_keys() {
    let (matrix, switches) = switched("shared stripes", 1);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    let (is_under_way, has_returned) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let flag = Arc::clone(&is_under_way);
    switches.stores[0].set(move |touch, name| {
        if touch != Touch::Write || name != key(1) {
            return Fault::None;
        }
        flag.store(true, Ordering::SeqCst);
        Fault::Slow(Duration::from_millis(300))
    });
    let wait = |flag: &AtomicBool| {
        let begun = Instant::now();
        while !flag.load(Ordering::SeqCst) {
            assert!(begun.elapsed() < HANG_TIMEOUT, "the write goes on");
            thread::yield_now();
        }
    };
    let is_due = AtomicBool::new(true);
    let copied = thread::scope(|scope| {
        let on_call = |call, name: &[u8]| {
            if call == 50 {
                // Too many to be read in the last pause.
                (1000..2000).for_each(|i| store.put(&key(i), b"changed").expect("put"));
                scope.spawn(|| {
                    store.put(&key(1), b"slow").expect("put");
                    has_returned.store(true, Ordering::SeqCst);
                });
                wait(&is_under_way);
            } else if name == key(1) && call > KEYS && is_due.swap(false, Ordering::SeqCst) {
                // The copy has read the key that is written slowly.
                wait(&has_returned);
                store.put(&key(2), b"later").expect("put");
            }
        };
        let mut copied = Copied::new(&on_call);
        store.copy_all(&mut copied).expect("a copy");
        copied.pairs
    });
    assert_eq!(copied[&key(2)], b"later");
    assert_eq!(copied[&key(1)], b"slow", "the earlier write is missing, and the later one is there");
}

#[test]
fn a_copy_is_complete_while_one_device_can_read_a_pair_and_fails_when_none_can() {
    for is_unordered in [false, true] {
        let (matrix, switches) = switched("damaged", 2);
        let matrix = matrix.on(|places| places.is_unordered = is_unordered);
        let store = matrix.create(CAPACITY).expect("create");
        let expected = fill(&store);
        for fault in [Fault::Corrupt, Fault::LeftOut] {
            spoil(&switches.stores[0], &[3, 40, KEYS - 1], fault);
            assert!(copy(&store).expect("the other device has all") == expected, "{fault:?}");
            spoil(&switches.stores[1], &[40], fault);
            let refused = copy(&store);
            assert!(matches!(refused, Err(Error::Corrupt { .. })), "{fault:?}");
            spoil(&switches.stores[1], &[], fault);
        }
    }
}

#[test]
fn a_copy_is_complete_after_the_loss_of_a_device_and_fails_without_devices() {
    let (matrix, switches) = switched("lost", 3);
    let matrix = matrix.with(|options| options.acks = Acks::One);
    let store = matrix.create(CAPACITY).expect("create");
    let mut expected = fill(&store);
    let fails = |touch, _: &[u8]| if touch == Touch::Write { Fault::Io } else { Fault::None };
    switches.stores[1].set(fails);
    store.put(b"later", b"value").expect("two devices are left");
    expected.insert(b"later".to_vec(), b"value".to_vec());
    assert!(copy(&store).expect("two devices are left") == expected);
    switches.stores.iter().for_each(|switch| switch.set(fails));
    (0..3).for_each(|_| drop(store.put(b"more", b"value")));
    let refused = copy(&store).map(|pairs| pairs.len());
    assert!(matches!(refused, Err(Error::TooFewDevices { .. })), "{refused:?}");
}

#[test]
fn a_copy_with_an_in_doubt_write_fails() {
    let (matrix, switches) = switched("undecided", 3);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    for switch in &switches.stores[1..] {
        switch.set(|touch, _| if touch == Touch::Write { Fault::Io } else { Fault::None });
    }
    let put = store.put(&key(7), b"by one alone");
    assert!(matches!(put, Err(Error::TooFewDevices { may_stand: true, .. })), "{put:?}");
    let refused = copy(&store).map(|pairs| pairs.len());
    assert!(matches!(refused, Err(Error::TooFewDevices { .. })), "{refused:?}");
}

#[test]
fn a_copy_of_a_salvage_with_losses_is_refused() {
    let matrix = Matrix::new("salvaged", 1, 3);
    let store = matrix.create(CAPACITY).expect("create");
    fill(&store);
    store.close().expect("close");
    drop(store);
    [0, 2].iter().for_each(|lost| std::fs::remove_dir_all(matrix.device(0, *lost)).expect("lose a device"));
    let matrix = matrix.with(|options| options.salvage = true);
    let store = Arc::new(matrix.open().expect("salvage"));
    let refused = copy(&store).map(|pairs| pairs.len());
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
}
