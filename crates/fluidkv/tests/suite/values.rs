//! Large values: each is stored once, dies when it is overwritten, and its space is freed in spite
//! of concurrent reads, stops and crashes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common;
use crate::common::{counter, key};
use lodestore_contract::{Batch, BatchOp, Change, Error, Expiry, Lifetime, ScanRange, Store, Swap};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;

/// Tiny memtables and value segments, with values of at least 64 bytes in the value log.
fn tiny(workers: usize) -> FluidOptions {
    FluidOptions { value_threshold: 64, value_segment_bytes: 64 << 10, ..common::tiny(workers) }
}

/// Returns a value of 64 bytes to 3 KiB, or sometimes one that has its own segment.
fn value(index: u64, version: u64) -> Vec<u8> {
    let len = if index % 97 == 5 { 40_000 } else { 64 + index * 37 % 3000 };
    format!("{index}/{version}/").bytes().cycle().take(len as usize).collect()
}

fn fill(store: &FluidKv, keys: impl Iterator<Item = u64>, version: u64) {
    keys.for_each(|index| store.put(&key(index), &value(index, version)).expect("put"));
}

#[track_caller]
fn assert_all(store: &FluidKv, keys: impl Iterator<Item = u64>, version: u64) {
    for index in keys {
        let found = store.get(&key(index)).expect("get");
        assert!(found.as_ref() == Some(&value(index, version)), "key {index}: {:?}", found.map(|found| found.len()));
    }
}

#[track_caller]
fn assert_clean(store: &FluidKv) {
    let report = store.verify(&mut |_| ()).expect("verify");
    assert!(report.is_clean(), "{report:?}");
}

fn created(options: &FluidOptions) -> (Scratch, FluidKv) {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), options).expect("created");
    (scratch, store)
}

#[test]
fn large_values_are_written_once_whatever_flushes_and_compactions_follow() {
    let (_scratch, store) = created(&tiny(0));
    fill(&store, 0..1000, 1);
    let written = store.stats().bytes_written;
    store.settle().expect("settled");
    let rewritten = store.stats().bytes_written - written;
    let payload: u64 = (0..1000).map(|index| value(index, 1).len() as u64).sum();
    assert!(rewritten < payload / 10, "a settle of {payload} bytes wrote {rewritten}");
    assert!(counter(&store, "flushed_bytes") + counter(&store, "compacted_bytes") < payload / 5);
    assert_eq!(counter(&store, "value_moved_bytes"), 0);
    assert_all(&store, 0..1000, 1);
    assert_clean(&store);
}

#[test]
fn every_kind_of_write_and_read_handles_large_values() {
    let (scratch, mut store) = created(&tiny(0));
    let (small, large, other) = (vec![1; 63], vec![2; 64], vec![3; 30_000]);
    store.put(b"a", &small).expect("put");
    assert!(
        store.insert(b"b", &large, Lifetime::Forever).expect("insert")
            && !store.insert(b"b", &other, Lifetime::Forever).expect("insert")
    );
    assert!(store.update(b"a", &other, Lifetime::Forever).expect("update"));
    assert_eq!(store.compare_and_swap(b"b", Some(&large), Some(&other), Lifetime::Forever).expect("swap"), Swap::Done);
    assert_eq!(
        store.compare_and_swap(b"b", Some(&large), None, Lifetime::Forever).expect("swap"),
        Swap::Differs(Some(other.clone()))
    );
    store
        .update_with(b"a", &mut |now, _| Change::Put([now.expect("there"), b"!"].concat(), Lifetime::Forever))
        .expect("update_with");
    let far = Expiry::after(Duration::from_secs(1000));
    store.put_expiring(b"c", &large, Some(far)).expect("put");
    let put = |key: &[u8], value: &[u8]| BatchOp::Put { key: key.into(), value: value.into(), expiry: None };
    let ops = vec![put(b"d", &large), put(b"e", &small), put(b"d", &other), BatchOp::Delete { key: b"b".into() }];
    store.write(&Batch { ops }).expect("batch");
    let longer = [&other[..], b"!"].concat();
    for stage in ["memtable", "stable", "reopened", "after a crash"] {
        match stage {
            "stable" => store.settle().expect("settled"),
            "reopened" => store.close().expect("closed"),
            _ => {}
        }
        if stage == "reopened" || stage == "after a crash" {
            drop(store);
            store = FluidKv::open(&scratch.store(), &tiny(0)).expect("opened");
        }
        assert_eq!(store.get(b"a").expect("get"), Some(longer.clone()), "{stage}");
        let found: Vec<_> = store.scan(&ScanRange::all()).expect("scan").map(|entry| entry.expect("entry")).collect();
        let found: Vec<_> = found.iter().map(|entry| (entry.key(), entry.value())).collect();
        assert!(found == [(&b"a"[..], &longer[..]), (b"c", &large), (b"d", &other), (b"e", &small)], "{stage}");
        assert_eq!(store.expiry(b"c").expect("expiry"), Some(Some(far)), "{stage}");
        assert!(!store.contains(b"b").expect("contains") && store.contains(b"d").expect("contains"), "{stage}");
        let mut seen = Vec::new();
        store
            .multi_get(&[b"d", b"b", b"c"], &mut |index, value| seen.push((index, value.map(<[u8]>::len))))
            .expect("gets");
        assert_eq!(seen, [(0, Some(30_000)), (1, None), (2, Some(64))], "{stage}");
        assert_eq!(store.len().expect("len"), 4, "{stage}");
        assert_clean(&store);
    }
}

#[test]
fn overwritten_values_free_their_space_and_the_newest_version_survives() {
    for workers in [0, 2] {
        let (_scratch, store) = created(&tiny(workers));
        let payload: u64 = (0..600).map(|index| value(index, 1).len() as u64).sum();
        for version in 1..12 {
            fill(&store, 0..600, version);
            // Some keys stay unchanged, so that segments hold live and dead values.
            fill(&store, (0..600).filter(|index| index % 3 == 0), version);
        }
        store.settle().expect("settled");
        assert!(counter(&store, "value_collected_segments") > 10, "{:?}", store.stats().engine_counters);
        let bytes = counter(&store, "value_bytes");
        assert!(bytes < payload * 2, "{bytes} bytes for {payload} of live values, {workers} workers");
        assert_all(&store, 0..600, 11);
        assert_clean(&store);
    }
}

#[test]
fn live_values_move_out_of_segments_that_are_mostly_dead_and_stay_across_stops() {
    let (scratch, mut store) = created(&tiny(0));
    fill(&store, 0..800, 1);
    // Every fourth key stays: all segments are mostly dead.
    fill(&store, (0..800).filter(|index| index % 4 != 0), 2);
    store.settle().expect("settled");
    fill(&store, (0..800).filter(|index| index % 4 != 0), 3);
    store.settle().expect("settled");
    assert!(counter(&store, "value_moved_bytes") > 0);
    for stop in 0..3 {
        assert_all(&store, (0..800).filter(|index| index % 4 == 0), 1);
        assert_all(&store, (0..800).filter(|index| index % 4 != 0), 3);
        assert_clean(&store);
        if stop == 1 {
            store.close().expect("closed");
        }
        drop(store);
        store = FluidKv::open(&scratch.store(), &tiny(0)).expect("opened");
    }
}

#[test]
fn deleted_and_expired_values_are_collected_to_the_last_byte() {
    let (_scratch, store) = created(&tiny(0));
    fill(&store, 0..300, 1);
    let soon = Expiry::after(Duration::from_millis(30));
    (300..400).for_each(|index| store.put_expiring(&key(index), &value(index, 1), Some(soon)).expect("put"));
    (0..300).for_each(|index| assert!(store.delete(&key(index)).expect("delete")));
    std::thread::sleep(Duration::from_millis(40));
    store.settle().expect("settled");
    assert_eq!(counter(&store, "value_segments"), 0, "{:?}", store.stats().engine_counters);
    assert!(store.is_empty().expect("is_empty"));
    assert_clean(&store);
}

#[test]
fn a_snapshot_keeps_its_segments_until_it_is_dropped() {
    let (_scratch, store) = created(&tiny(2));
    fill(&store, 0..300, 1);
    let snapshot = store.snapshot().expect("snapshot");
    let mut scan = store.scan(&ScanRange::all()).expect("scan");
    let first = scan.next().expect("a pair").expect("read");
    for version in 2..8 {
        fill(&store, 0..300, version);
        store.settle().expect("settled");
    }
    assert!(counter(&store, "value_collected_segments") > 0);
    for index in 0..300 {
        assert!(snapshot.get(&key(index)).expect("get") == Some(value(index, 1)), "key {index}");
    }
    let rest: Vec<_> = scan.map(|entry| entry.expect("entry")).collect();
    let right = |entry: &lodestore_contract::Entry| {
        (0..300).any(|index| key(index) == entry.key() && value(index, 1) == entry.value())
    };
    assert!(rest.len() == 299 && right(&first) && rest.iter().all(right));
    let held = counter(&store, "value_bytes");
    drop(snapshot);
    store.settle().expect("settled");
    assert!(counter(&store, "value_bytes") < held, "what only the snapshot saw is free");
    assert_all(&store, 0..300, 7);
    assert_clean(&store);
}

#[test]
fn writers_and_a_reader_agree_while_segments_are_collected() {
    let (_scratch, store) = created(&FluidOptions { value_garbage: 5, ..tiny(2) });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, done) = (&store, &done);
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                scope.spawn(move || {
                    for version in 1..9 {
                        fill(store, (writer..400).step_by(2), version);
                        fill(store, (writer..400).step_by(2).filter(|index| index % 5 != 0), version);
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            let mut seen = vec![0; 400];
            while !done.load(Ordering::Relaxed) {
                for index in (0..400).step_by(3) {
                    let Some(found) = store.get(&key(index)).expect("get") else { continue };
                    let version = (1..9).rev().find(|version| found == value(index, *version)).expect("a whole value");
                    assert!(version >= seen[index as usize], "key {index} went back to {version}");
                    seen[index as usize] = version;
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        done.store(true, Ordering::Relaxed);
    });
    assert_all(&store, 0..400, 8);
    assert!(counter(&store, "value_collected_segments") > 0);
    assert_clean(&store);
}

/// The counts of dead bytes are restored from the manifest, and by the replay of unflushed logs.
#[test]
fn a_crash_loses_no_count_of_dead_values() {
    let options = FluidOptions { value_garbage: 99, memtable_bytes: 1 << 20, segment_bytes: 64 << 10, ..tiny(0) };
    let (scratch, mut store) = created(&options);
    fill(&store, 0..300, 1);
    store.settle().expect("settled");
    fill(&store, 0..150, 2);
    store.settle().expect("settled");
    fill(&store, 100..200, 3);
    fill(&store, 100..200, 4);
    let dead = counter(&store, "value_dead_bytes");
    assert!(dead > 0);
    for _ in 0..2 {
        drop(store);
        store = FluidKv::open(&scratch.store(), &options).expect("opened");
        assert_eq!(counter(&store, "value_dead_bytes"), dead);
        assert_clean(&store);
    }
}

#[test]
fn a_damaged_value_is_an_error_and_hides_no_other() {
    let (scratch, store) = created(&tiny(0));
    fill(&store, 0..200, 1);
    store.settle().expect("settled");
    store.close().expect("closed");
    drop(store);
    let mut harmed = 0;
    for file in std::fs::read_dir(scratch.store()).expect("the store").map(|file| file.expect("a file").path()) {
        let mut bytes = std::fs::read(&file).expect("read");
        let text = value(7, 1);
        let at = bytes.windows(text.len().min(300)).position(|window| window == &text[..text.len().min(300)]);
        if let Some(at) = at {
            bytes[at + 100] ^= 4;
            std::fs::write(&file, bytes).expect("written");
            harmed += 1;
        }
    }
    assert_eq!(harmed, 1, "the value stands somewhere, once");
    // Makes its segment due for a collection.
    let eager = FluidOptions { value_garbage: 1, ..tiny(0) };
    let store = FluidKv::open(&scratch.store(), &eager).expect("opened");
    assert!(matches!(store.get(&key(7)), Err(Error::Corrupt { .. })), "no wrong bytes");
    assert_all(&store, (0..200).filter(|index| *index != 7), 1);
    let mut seen = 0;
    assert!(matches!(
        store.for_each(&mut |_, _| {
            seen += 1;
            lodestore_contract::Visit::More
        }),
        Err(Error::Corrupt { .. })
    ));
    assert_eq!(seen, 199);
    assert!(!store.verify(&mut |_| ()).expect("verify").is_clean());
    // Collections leave the damaged value where it is, and the others readable.
    fill(&store, (0..200).filter(|index| index % 3 != 1), 2);
    for asked in ["once", "again"] {
        let settled = store.settle();
        assert!(matches!(settled, Err(Error::Corrupt { .. })), "{settled:?}: asked {asked}, its garbage stays");
    }
    assert_all(&store, (0..200).filter(|index| index % 3 == 1 && *index != 7), 1);
    assert!(matches!(store.get(&key(7)), Err(Error::Corrupt { .. })), "it did not become another value");
    assert!(store.delete(&key(7)).expect("a delete needs no value"));
    assert_eq!(store.get(&key(7)).expect("get"), None);
}

/// Regression: `verify` looked for their headers in space that was reused.
#[test]
fn verify_reports_nothing_about_segments_freed_meanwhile() {
    let (_scratch, store) = created(&FluidOptions { value_garbage: 1, ..tiny(0) });
    fill(&store, 0..200, 1);
    let mut snapshot = Some(store.snapshot().expect("snapshot"));
    let before = counter(&store, "value_segments");
    fill(&store, 0..200, 2);
    store.settle().expect("settled");
    assert!(counter(&store, "value_collected_segments") > 0 && counter(&store, "value_segments") > before);
    let mut steps = 0;
    let report = store.verify(&mut |_| {
        steps += 1;
        if steps == 2 {
            // Retired segments are freed and overwritten.
            snapshot = None;
            fill(&store, 200..500, 1);
        }
    });
    let report = report.expect("verify");
    assert!(report.is_clean(), "{report:?}");
    assert_clean(&store);
}
