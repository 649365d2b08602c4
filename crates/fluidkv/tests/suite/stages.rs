//! Errors of FluidKV's published code, each as a test: follows keys through memtables, buffer runs,
//! stable tables and restarts.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{counter, key, tiny};
use lodestore_contract::{Direction, ScanRange, Snapshot, Store};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;

fn value(index: u64, version: u64) -> Vec<u8> {
    format!("{index}/{version}/{}", "v".repeat((index % 90) as usize)).into_bytes()
}

fn fill(store: &FluidKv, keys: u64, version: u64) {
    for index in 0..keys {
        store.put(&key(index), &value(index, version)).expect("put");
    }
}

#[track_caller]
fn assert_all(store: &FluidKv, keys: u64, version: u64) {
    for index in 0..keys {
        assert_eq!(store.get(&key(index)).expect("get"), Some(value(index, version)), "key {index}");
    }
}

/// The published code searches its buffer runs oldest first.
#[test]
fn the_newest_of_several_buffered_versions_is_read() {
    let scratch = Scratch::new();
    let options = FluidOptions { runs_max: 64, buffer_percent: 1000, ..tiny(0) };
    let store = FluidKv::create(&scratch.store(), &options).expect("created");
    for version in 0..6 {
        fill(&store, 400, version);
        assert_all(&store, 400, version);
    }
    assert!(counter(&store, "flushes") > 3, "versions stand in several runs");
    store.settle().expect("settled");
    assert_eq!(counter(&store, "buffered_bytes"), 0);
    assert_all(&store, 400, 5);
}

/// In the published code, a delete of a flushed key does nothing.
#[test]
fn deletes_of_flushed_keys_hold_in_every_stage_and_after_reopening() {
    let scratch = Scratch::new();
    let mut store = FluidKv::create(&scratch.store(), &tiny(2)).expect("created");
    fill(&store, 1000, 1);
    store.settle().expect("settled");
    for index in (0..1000).step_by(2) {
        assert!(store.delete(&key(index)).expect("delete"), "it was there");
    }
    for stage in ["memtable", "stable", "reopened"] {
        match stage {
            "stable" => store.settle().expect("settled"),
            "reopened" => {
                store.close().expect("closed");
                drop(store);
                store = FluidKv::open(&scratch.store(), &tiny(2)).expect("opened");
            }
            _ => {}
        }
        for index in 0..1000 {
            let expected = (index % 2 == 1).then(|| value(index, 1));
            assert_eq!(store.get(&key(index)).expect("get"), expected, "{stage}, key {index}");
        }
        assert_eq!(store.len().expect("len"), 500, "{stage}");
    }
}

/// In the published code, half of the stable keys, and the open segment of each thread, are lost on
/// a restart.
#[test]
fn nothing_is_lost_when_a_store_is_dropped_in_any_stage() {
    let scratch = Scratch::new();
    let mut store = FluidKv::create(&scratch.store(), &tiny(2)).expect("created");
    for round in 1..6 {
        fill(&store, 1500, round);
        if round % 2 == 0 {
            store.settle().expect("settled");
        }
        drop(store);
        store = FluidKv::open(&scratch.store(), &tiny(2)).expect("opened");
        assert_all(&store, 1500, round);
    }
    assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
}

/// In the published code, two threads crash, or lose writes, where memtables change.
#[test]
fn two_writers_and_a_reader_lose_nothing_while_memtables_change() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &tiny(2)).expect("created");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, done) = (&store, &done);
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                scope.spawn(move || {
                    for round in 0..8 {
                        for index in (writer..3000).step_by(2) {
                            store.put(&key(index), &value(index, round)).expect("put");
                        }
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            let mut seen = vec![None; 3000];
            while !done.load(Ordering::Relaxed) {
                for index in (0..3000).step_by(7) {
                    let found = store.get(&key(index)).expect("get");
                    let version = found.map(|found| {
                        let text = String::from_utf8(found).expect("text");
                        text.split('/').nth(1).and_then(|part| part.parse::<u64>().ok()).expect("a version")
                    });
                    assert!(version >= seen[index as usize], "key {index} went back to {version:?}");
                    seen[index as usize] = version;
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        done.store(true, Ordering::Relaxed);
    });
    assert_all(&store, 3000, 7);
    assert!(counter(&store, "flushes") > 5 && counter(&store, "compactions") > 0);
    assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
}

/// In the published code, scans include neither buffer runs nor values.
#[test]
fn a_scan_sees_all_stages_with_values_both_ways() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &FluidOptions { runs_max: 64, buffer_percent: 1000, ..tiny(0) });
    let store = store.expect("created");
    fill(&store, 900, 1);
    store.settle().expect("settled");
    fill(&store, 300, 2);
    (300..330).for_each(|index| assert!(store.delete(&key(index)).expect("delete")));
    let mut expected: Vec<_> = (0..900)
        .filter(|index| !(300..330).contains(index))
        .map(|index| (key(index), value(index, if index < 300 { 2 } else { 1 })))
        .collect();
    expected.sort();
    for direction in [Direction::Forward, Direction::Backward] {
        let range = ScanRange { direction, ..ScanRange::all() };
        let found: Vec<_> = store
            .scan(&range)
            .expect("scan")
            .map(|entry| entry.expect("entry"))
            .map(lodestore_contract::Entry::into_pair)
            .collect();
        assert!(found == expected, "{direction:?}: {} of {}", found.len(), expected.len());
        expected.reverse();
    }
}

#[test]
fn a_snapshot_stays_as_it_was_through_overwrites_deletes_flushes_and_compactions() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &tiny(2)).expect("created");
    fill(&store, 500, 1);
    let snapshot: Box<dyn Snapshot> = store.snapshot().expect("snapshot");
    for version in 2..6 {
        fill(&store, 800, version);
    }
    (0..100).for_each(|index| assert!(store.delete(&key(index)).expect("delete")));
    store.settle().expect("settled");
    for index in 0..800 {
        let expected = (index < 500).then(|| value(index, 1));
        assert_eq!(snapshot.get(&key(index)).expect("get"), expected, "key {index}");
    }
    assert_eq!(snapshot.scan(&ScanRange::all()).expect("scan").count(), 500);
    drop(snapshot);
    assert_eq!(store.len().expect("len"), 700);
}

#[test]
fn repeated_overwrites_use_no_more_space() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &tiny(2)).expect("created");
    let mut live = Vec::new();
    for version in 0..8 {
        fill(&store, 2000, version);
        store.settle().expect("settled");
        live.push(store.stats().space.live);
    }
    assert!(live[7] <= live[1] + live[1] / 4, "{live:?}");
    assert_all(&store, 2000, 7);
}

/// A snapshot outlives its store's `close`, and the store is opened again. Dropping the snapshot
/// must not free extents that it no longer owns.
#[test]
fn a_snapshot_dropped_after_a_close_frees_nothing_of_the_next_owner() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &tiny(0)).expect("create");
    fill(&store, 3000, 1);
    store.settle().expect("settle");
    let snapshot = store.snapshot().expect("snapshot");
    fill(&store, 3000, 2);
    store.settle().expect("settle");
    store.close().expect("close");
    drop(store);
    let store = FluidKv::open(&scratch.store(), &tiny(0)).expect("open");
    fill(&store, 6000, 3);
    store.settle().expect("settle");
    drop(snapshot);
    let report = store.verify(&mut |_| ()).expect("verify");
    assert!(report.is_clean(), "{report:?}");
    // As a crash leaves it.
    drop(store);
    let store = FluidKv::open(&scratch.store(), &tiny(0)).expect("open behind the crash");
    store.put(b"another", b"key").expect("put");
    assert_all(&store, 6000, 3);
}

/// Lookups are sampled: a key with all lookups must not always, or never, be in the sample.
#[test]
fn reads_and_absent_keys_are_counted_correctly_if_one_key_is_hot() {
    const READS: u64 = 64_000;
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &tiny(0)).expect("created");
    for hot in 0..50 {
        store.put(&key(hot), b"value").expect("put");
        let before = counter(&store, "reads");
        (0..READS / 50).for_each(|_| assert!(store.contains(&key(hot)).expect("contains")));
        let counted = counter(&store, "reads") - before;
        assert!((READS / 100..READS / 25).contains(&counted), "{counted} of {} reads of key {hot}", READS / 50);
        assert!(counter(&store, "reads_absent_per_mille") < 100);
    }
    let counted = counter(&store, "reads");
    assert!((READS * 9 / 10..READS * 11 / 10).contains(&counted), "{counted} of {READS}");
    (0..READS).for_each(|_| assert!(!store.contains(b"absent").expect("contains")));
    assert!(counter(&store, "reads_absent_per_mille") > 900);
    // Alternating: half of them.
    let (there, mut shares) = (key(1), Vec::new());
    for round in 0..READS {
        assert!(!store.contains(b"absent").expect("contains") && store.contains(&there).expect("contains"));
        if round % 97 == 0 && round > READS / 10 {
            shares.push(counter(&store, "reads_absent_per_mille"));
        }
    }
    let mean = shares.iter().sum::<u64>() / shares.len() as u64;
    assert!((400..600).contains(&mean), "{mean} of a thousand");
}

fn ascending(index: u64) -> Vec<u8> {
    format!("{index:012}").into_bytes()
}

#[track_caller]
fn put_ascending(store: &FluidKv, keys: std::ops::Range<u64>) {
    keys.for_each(|index| store.put(&ascending(index), &value(index, 1)).expect("put"));
}

#[track_caller]
fn delete_ascending(store: &FluidKv, keys: std::ops::Range<u64>) {
    keys.for_each(|index| assert!(store.delete(&ascending(index)).expect("delete"), "key {index}"));
}

fn assert_stretch(store: &FluidKv, keys: std::ops::Range<u64>) {
    let found: Vec<_> = store
        .scan(&ScanRange::all())
        .expect("scan")
        .map(|entry| entry.map(lodestore_contract::Entry::into_pair).expect("an entry"))
        .collect();
    let expected: Vec<_> = keys.map(|index| (ascending(index), value(index, 1))).collect();
    assert!(found == expected, "{} of {}", found.len(), expected.len());
}

#[test]
fn ranges_that_deletes_left_empty_are_joined_and_cost_nothing_more() {
    for workers in [0, 2] {
        let scratch = Scratch::new();
        let mut store = FluidKv::create(&scratch.store(), &tiny(workers)).expect("created");
        put_ascending(&store, 0..20_000);
        store.settle().expect("settled");
        let (ranges, dram) = (counter(&store, "ranges"), store.stats().dram_bytes);
        assert!(ranges > 20, "{ranges} ranges");
        let snapshot = store.snapshot().expect("snapshot");
        delete_ascending(&store, 100..19_900);
        store.settle().expect("settled");
        assert!(counter(&store, "ranges") <= 2, "{:?}", store.stats().engine_counters);
        assert_eq!(counter(&store, "range_joins") + counter(&store, "ranges"), counter(&store, "range_splits") + 1);
        assert_eq!(snapshot.scan(&ScanRange::all()).expect("scan").count(), 20_000, "an older view keeps its ranges");
        drop(snapshot);
        assert!(store.stats().dram_bytes < dram, "{} from {dram}", store.stats().dram_bytes);
        // Puts keys back where others were deleted.
        put_ascending(&store, 100..19_900);
        assert_stretch(&store, 0..20_000);
        delete_ascending(&store, 100..20_000);
        drop(store);
        store = FluidKv::open(&scratch.store(), &tiny(workers)).expect("opened");
        assert_stretch(&store, 0..100);
        store.settle().expect("settled");
        assert!(counter(&store, "ranges") <= 2);
        assert_stretch(&store, 0..100);
        assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
    }
}

/// A queue: its ranges come and go while memtables are flushed, and a flush may find other ranges
/// than at its start.
#[test]
fn ascending_keys_that_are_deleted_leave_few_ranges_and_lose_nothing() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &tiny(2)).expect("created");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, done) = (&store, &done);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let keys: Vec<_> = store
                    .scan(&ScanRange::all())
                    .expect("scan")
                    .map(|entry| entry.expect("an entry").into_pair().0)
                    .collect();
                let number = |key: &[u8]| std::str::from_utf8(key).expect("text").parse::<u64>().expect("a number");
                assert!(keys.windows(2).all(|two| number(&two[0]) + 1 == number(&two[1])), "a hole in the queue");
            }
        });
        for round in 0..12u64 {
            put_ascending(store, round * 3000..(round + 1) * 3000);
            if round > 0 {
                delete_ascending(store, (round - 1) * 3000..round * 3000);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_stretch(&store, 33_000..36_000);
    store.settle().expect("settled");
    let most = counter(&store, "stable_bytes") / (64 << 10) * 4 + 3;
    assert!(counter(&store, "ranges") <= most, "{:?}", store.stats().engine_counters);
    assert!(counter(&store, "range_joins") > 0);
    assert_stretch(&store, 33_000..36_000);
    assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
}
