//! HashKV with a permanently broken place of the values file: values elsewhere are written and
//! collected as before, and values at this place are reported.

use std::sync::Arc;

use lodestore_contract::{Error, Store};
use lodestore_hashkv::{ENGINE, FORMAT, HashKv};
use lodestore_media::Pool;
use lodestore_media::sim::{BrokenPlace, FailingCall, FileCall, FileFault, SimSpec};
use lodestore_sim::hashkv::options;
use lodestore_sim::shape::Shape;

/// Keys that stay, and keys that are overwritten.
const KEYS: [u8; 2] = [12, 4];
/// Bytes of a value, and of a sector.
const VALUE: usize = 300;
const SECTOR: u64 = 512;

fn key(index: u8) -> Vec<u8> {
    vec![b'k', index]
}

/// Returns a value that can be found in the file.
fn value(index: u8, round: u8) -> Vec<u8> {
    [&[index, round][..], &[index ^ 0xa5; VALUE]].concat()
}

struct Simulated {
    pool: Arc<Pool>,
    store: HashKv,
}

impl Simulated {
    /// Returns a store in which all keys have values in the file.
    fn filled() -> Self {
        let options = options(&Shape::default());
        let spec = SimSpec { record: false, ..SimSpec::default() };
        let (pool, report) = Pool::create_sim(&spec, ENGINE, FORMAT, options.pool()).expect("a pool");
        let store = HashKv::start(Arc::clone(&pool), &report, &options).expect("a store");
        (0..KEYS[0] + KEYS[1]).for_each(|index| store.put(&key(index), &value(index, 0)).expect("put"));
        store.settle().expect("settle");
        Self { pool, store }
    }

    fn counter(&self, name: &str) -> u64 {
        self.store.stats().engine_counters[name]
    }

    /// Breaks the first sector of a key's value.
    fn break_value_of(&self, index: u8, call: FileCall) {
        let recorder = self.pool.recorder().expect("a simulation");
        let (bytes, wanted) = (recorder.values(), value(index, 0));
        let at = bytes.windows(wanted.len()).position(|found| found == wanted).expect("it stands in the file");
        let from = at as u64 / SECTOR * SECTOR;
        recorder.break_place(Some(BrokenPlace { call, bytes: from..from + SECTOR }));
    }

    fn mend(&self) {
        self.pool.recorder().expect("a simulation").break_place(None);
    }

    /// Overwrites other keys until there were `more` collections.
    fn collect(&self, more: u64) {
        let before = self.counter("values_collections");
        for round in 1..=200 {
            for index in KEYS[0]..KEYS[0] + KEYS[1] {
                self.store.put(&key(index), &value(index, round)).expect("put");
            }
            self.store.settle().expect("settle");
            if self.counter("values_collections") >= before + more {
                return;
            }
        }
        panic!("nothing is collected: {:?}", self.store.stats().engine_counters);
    }
}

/// The first collection that reached the place failed, and so did every later flush: the same
/// segments were chosen again.
#[test]
fn a_place_that_cannot_be_read_costs_what_stands_there_and_nothing_else() {
    let simulated = Simulated::filled();
    let broken = 5;
    simulated.break_value_of(broken, FileCall::Read);
    let freed = simulated.counter("values_segments_freed");
    simulated.collect(20);
    assert!(simulated.counter("values_segments_freed") > freed + 20);
    assert_eq!(simulated.counter("values_segments_damaged"), 1);
    let (mut told, mut whole) = (0, 0);
    for index in 0..KEYS[0] {
        match simulated.store.get(&key(index)) {
            Ok(found) => {
                assert_eq!(found, Some(value(index, 0)));
                whole += 1;
            }
            // Other values may be partly in that sector.
            Err(Error::Io { .. }) => told += 1,
            Err(error) => panic!("key {index}: {error}"),
        }
    }
    assert!((1..=3).contains(&told) && whole >= KEYS[0] - 3, "{told} told, {whole} whole");
    assert!(matches!(simulated.store.get(&key(broken)), Err(Error::Io { .. })));
    assert!(!simulated.store.verify(&mut |_| ()).expect("verify").is_clean());
    // Unreadable values were not freed.
    simulated.mend();
    (0..KEYS[0]).for_each(|index| {
        assert_eq!(simulated.store.get(&key(index)).expect("it can be read again"), Some(value(index, 0)));
    });
    // When the value dies, its segment is usable again.
    (0..KEYS[0]).for_each(|index| simulated.store.put(&key(index), &value(index, 1)).expect("put"));
    simulated.collect(20);
    assert_eq!(simulated.counter("values_segments_damaged"), 0);
    assert!(simulated.store.verify(&mut |_| ()).expect("verify").is_clean());
}

#[test]
fn a_place_that_cannot_be_written_is_gone_round() {
    let simulated = Simulated::filled();
    simulated.break_value_of(5, FileCall::Write);
    (0..KEYS[0]).for_each(|index| simulated.store.put(&key(index), &value(index, 1)).expect("put"));
    simulated.collect(40);
    (0..KEYS[0]).for_each(|index| {
        assert_eq!(simulated.store.get(&key(index)).expect("get"), Some(value(index, 1)));
    });
    assert!(simulated.store.verify(&mut |_| ()).expect("verify").is_clean());
}

/// Each refused write left a segment that was not reused before the next open.
#[test]
fn segments_that_could_not_be_written_are_taken_again_when_they_can() {
    let simulated = Simulated::filled();
    let held = || {
        let free = simulated.counter("values_segments_free") + simulated.counter("values_segments_holes");
        simulated.counter("values_segments") - free
    };
    let before = held();
    let recorder = simulated.pool.recorder().expect("a simulation");
    recorder.break_place(Some(BrokenPlace { call: FileCall::Write, bytes: 0..u64::MAX }));
    for round in 0..40 {
        let put = (0..KEYS[0]).try_for_each(|index| simulated.store.put(&key(index), &value(index, round)));
        let settled = put.and_then(|()| simulated.store.settle());
        assert!(matches!(settled, Err(Error::Io { .. })), "round {round}: {settled:?}");
    }
    simulated.mend();
    for round in 40..44 {
        (0..KEYS[0]).for_each(|index| simulated.store.put(&key(index), &value(index, round)).expect("put"));
        simulated.store.settle().expect("settle");
    }
    (0..KEYS[0]).for_each(|index| {
        assert_eq!(simulated.store.get(&key(index)).expect("get"), Some(value(index, 43)));
    });
    assert!(held() <= before + 1, "{} segments are taken, {before} were", held());
    assert_eq!(simulated.counter("values_segments_damaged"), 0);
    assert!(simulated.store.verify(&mut |_| ()).expect("verify").is_clean());
}

/// The flush failed, and so did each later put when the log was full.
#[test]
fn a_write_for_which_the_medium_has_no_room_leaves_values_in_the_lsm_until_there_is_some() {
    let simulated = Simulated::filled();
    let recorder = simulated.pool.recorder().expect("a simulation");
    for nth in 1..=4 {
        (0..KEYS[0]).for_each(|index| simulated.store.put(&key(index), &value(index, nth)).expect("put"));
        let kept = simulated.counter("values_kept_inline");
        let nth = u64::from(nth);
        recorder.fail_call(Some(FailingCall { call: FileCall::Write, nth, fault: FileFault::NoSpace }));
        simulated.store.settle().expect("values stay where they are");
        assert!(nth > 1 || simulated.counter("values_kept_inline") > kept);
        recorder.fail_call(None);
        (0..KEYS[0]).for_each(|index| {
            assert_eq!(simulated.store.get(&key(index)).expect("get"), Some(value(index, nth as u8)));
        });
    }
    simulated.store.settle().expect("settle");
    assert!(simulated.counter("values_separated_late") > 0);
    assert!(simulated.store.verify(&mut |_| ()).expect("verify").is_clean());
}
