//! Collections with damage, without free space, with expired values, and idle collectors.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::counter;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Error, Expiry, Store};
use lodestore_fluidkv::VerifyReads;
use lodestore_hashkv::{ENGINE, FORMAT, HashKv, HashKvOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::Pool;
use lodestore_media::sim::{SimSpec, Watch};

/// Bytes of a value.
const LARGE: usize = 1000;

/// Options of a store for some hundred of these values.
fn tiny(workers: usize) -> HashKvOptions {
    let mut options = common::tiny(4 << 20, workers);
    options.index.verify_reads = VerifyReads::On;
    options
}

/// Returns a key; keys with the same prefix are adjacent.
fn key(prefix: &str, index: usize) -> Vec<u8> {
    [prefix.as_bytes(), &common::key(index)].concat()
}

fn value(index: usize, version: usize) -> Vec<u8> {
    common::value(index, version as u32, LARGE)
}

/// Overwrites other keys until `more` collections have run.
fn collect(store: &HashKv, more: u64) {
    let before = counter(store, "values_collections");
    for version in 0..20_000 {
        store
            .put(&key("z", version % 40), &value(0, version))
            .unwrap_or_else(|error| panic!("{version}: {error}, {:?}", store.stats()));
        if counter(store, "values_collections") >= before + more {
            return;
        }
    }
    panic!("nothing is collected: {:?}", store.stats().engine_counters);
}

/// Returns files and offsets of these bytes in the pool's region files.
fn places(scratch: &Scratch, wanted: &[u8]) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for file in fs::read_dir(scratch.store()).expect("a directory") {
        let path = file.expect("a file").path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("values")) {
            continue;
        }
        let bytes = fs::read(&path).expect("it is read");
        let at = bytes.windows(wanted.len()).enumerate().filter(|(_, found)| *found == wanted);
        found.extend(at.map(|(at, _)| (path.clone(), at as u64)));
    }
    found
}

/// Inverts one byte at each of these places where `there` is still stored, also of an open store,
/// which has the files mapped. Bytes of a log may have been overwritten meanwhile.
fn invert(places: &[(PathBuf, u64)], there: &[u8]) {
    for (path, at) in places {
        let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("a file");
        let mut bytes = vec![0; there.len()];
        file.read_exact_at(&mut bytes, *at).expect("bytes");
        if bytes == there {
            file.write_all_at(&[!bytes[0]], *at).expect("it is written");
        }
    }
}

/// Returns a key as [`invert`] leaves it.
fn inverted(key: &[u8]) -> Vec<u8> {
    [&[!key[0]], &key[1..]].concat()
}

/// Regression: a collection asked for a key whose entry was unreadable, and failed. Every later
/// flush failed too.
#[test]
fn a_damaged_table_affects_only_its_own_keys() {
    for workers in [0, 2] {
        let scratch = Scratch::new();
        let store = HashKv::create(&scratch.store(), &tiny(workers)).expect("create");
        let keys = 300;
        (0..keys).for_each(|index| store.put(&key("a", index), &value(index, 1)).expect("put"));
        // Small values between damaged and overwritten keys: a range with damaged tables is not
        // compacted any more.
        (0..4000).for_each(|index| store.put(&key("m", index), &[7; 100]).expect("put"));
        store.put(&key("z", 0), &value(0, 0)).expect("put");
        store.settle().expect("settle");
        let places = places(&scratch, &key("a", 7));
        assert!(!places.is_empty());
        invert(&places, &key("a", 7));
        let damaged = |index: usize| match store.get(&key("a", index)) {
            Ok(found) => {
                assert_eq!(found, Some(value(index, 1)));
                false
            }
            Err(Error::Corrupt { .. }) => true,
            Err(error) => panic!("key {index}: {error}"),
        };
        let before: Vec<usize> = (0..keys).filter(|index| damaged(*index)).collect();
        assert!(before.contains(&7) && before.len() < keys / 2, "{before:?}");
        let freed = counter(&store, "values_segments_freed");
        // Then their segments hold mostly garbage, and are worth a collection.
        let others = (0..keys).filter(|index| !before.contains(index));
        others.for_each(|index| store.put(&key("a", index), &value(index, 1)).expect("put"));
        collect(&store, 10);
        assert!(counter(&store, "values_segments_freed") > freed + 100, "{:?}", store.stats().engine_counters);
        assert!(counter(&store, "values_segments_damaged") > 0);
        let after: Vec<usize> = (0..keys).filter(|index| damaged(*index)).collect();
        assert_eq!(before, after);
        // Overwrite a damaged key: its old entry cannot be read.
        store.put(&key("a", 7), &value(7, 1)).expect("put");
        collect(&store, 10);
        assert_eq!(store.get(&key("a", 7)).expect("get"), Some(value(7, 1)));
        // None of their records was dropped.
        invert(&places, &inverted(&key("a", 7)));
        assert!((0..keys).all(|index| !damaged(index)));
        collect(&store, 10);
        assert!((0..keys).all(|index| !damaged(index)));
        assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
        // No copy of their records counts as live.
        (0..40).for_each(|index| store.delete(&key("z", index)).map(drop).expect("delete"));
        store.settle().expect("settle");
        let record = (16 + key("a", 0).len() + LARGE).next_multiple_of(8);
        let live = counter(&store, "values_live_bytes");
        assert!(live <= ((keys + 4) * record) as u64, "{live} bytes count as live");
        let model: BTreeMap<_, _> = (0..keys).map(|index| (key("a", index), value(index, 1))).collect();
        store.close().expect("close");
        drop(store);
        let store = HashKv::open(&scratch.store(), &tiny(workers)).expect("open");
        assert!(model.iter().all(|(key, value)| store.get(key).expect("get").as_ref() == Some(value)));
    }
}

/// Regression: expired values counted as live until the next open, were never collected, and filled
/// the store.
#[test]
fn expired_values_free_space_for_as_many_again() {
    for workers in [0, 2] {
        let scratch = Scratch::new();
        let store = HashKv::create(&scratch.store(), &tiny(workers)).expect("create");
        let keys = 2000;
        for round in 0..3 {
            let expiry = Expiry::after(Duration::from_millis(400));
            for index in 0..keys {
                let key = key("a", 3 * index + round);
                store.put_expiring(&key, &value(index, round), Some(expiry)).unwrap_or_else(|error| {
                    panic!("round {round}, {index}: {error}, {:?}", store.stats());
                });
            }
            while !expiry.is_past() {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        // Keys between the expired ones: compactions meet all of these.
        (0..keys).for_each(|index| store.put(&key("a", 3 * index), &[1; 8]).expect("put"));
        store.settle().expect("settle");
        let live = counter(&store, "values_live_bytes");
        assert!(live < (keys * LARGE / 10) as u64, "{live} bytes count as live, {:?}", store.stats().engine_counters);
        assert!((0..keys).all(|index| store.get(&key("a", 3 * index)).expect("get") == Some(vec![1; 8])));
        assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
    }
}

/// Regression: an open with damage cannot count live bytes. All segments counted as full, and no
/// collection ran any more.
#[test]
fn a_store_whose_index_was_damaged_when_it_was_opened_is_collected_all_the_same() {
    for workers in [0, 2] {
        let scratch = Scratch::new();
        let keys = 300;
        let store = HashKv::create(&scratch.store(), &tiny(workers)).expect("create");
        // Segments in reuse have records of earlier uses after those of the current use.
        for version in 0..8 {
            (0..keys).for_each(|index| store.put(&key("a", index), &value(index, version)).expect("put"));
        }
        (0..4000).for_each(|index| store.put(&key("m", index), &[7; 100]).expect("put"));
        store.put(&key("z", 0), &value(0, 0)).expect("put");
        store.settle().expect("settle");
        store.close().expect("close");
        drop(store);
        let places = places(&scratch, &key("a", 7));
        assert!(!places.is_empty());
        invert(&places, &key("a", 7));
        let store = HashKv::open(&scratch.store(), &tiny(workers)).expect("open");
        let damaged = |store: &HashKv, index: usize| match store.get(&key("a", index)) {
            Ok(found) => {
                assert_eq!(found, Some(value(index, 7)), "key {index}");
                false
            }
            Err(Error::Corrupt { .. }) => true,
            Err(error) => panic!("key {index}: {error}"),
        };
        let before: Vec<usize> = (0..keys).filter(|index| damaged(&store, *index)).collect();
        assert!(before.contains(&7) && before.len() < keys / 2, "{before:?}");
        collect(&store, 20);
        assert!(counter(&store, "values_segments_freed") > 200, "{:?}", store.stats().engine_counters);
        let after: Vec<usize> = (0..keys).filter(|index| damaged(&store, *index)).collect();
        assert_eq!(before, after);
        drop(store);
        invert(&places, &inverted(&key("a", 7)));
        let store = HashKv::open(&scratch.store(), &tiny(workers)).expect("open");
        assert!((0..keys).all(|index| !damaged(&store, index)));
        assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
    }
}

/// Waits until the background thread stops looking for work.
fn wait_until_quiet(store: &HashKv) {
    let (mut looks, mut since) = (counter(store, "values_looks"), Instant::now());
    let began = Instant::now();
    while since.elapsed() < Duration::from_millis(500) {
        assert!(began.elapsed() < HANG_TIMEOUT, "it goes on looking: {looks} times");
        std::thread::sleep(Duration::from_millis(20));
        let now = counter(store, "values_looks");
        if now != looks {
            (looks, since) = (now, Instant::now());
        }
    }
}

/// Regression: the background thread examined all segments, up to a million, twenty times a second.
#[test]
fn the_background_thread_checks_for_work_after_changes_and_not_in_a_poisoned_store() {
    let (scratch, options) = (Scratch::new(), tiny(2));
    let (pool, report) = Pool::create(&scratch.store(), ENGINE, FORMAT, options.pool()).expect("a pool");
    let store = HashKv::start(Arc::clone(&pool), &report, &options).expect("a store");
    for version in 0..6 {
        (0..400).for_each(|index| store.put(&key("a", index), &value(index, version)).expect("put"));
    }
    store.settle().expect("settle");
    wait_until_quiet(&store);
    let looks = counter(&store, "values_looks");
    assert!(looks > 0);
    // New writes wake it up.
    (0..400).for_each(|index| store.put(&key("a", index), &value(index, 7)).expect("put"));
    store.settle().expect("settle");
    let began = Instant::now();
    while counter(&store, "values_looks") == looks {
        assert!(began.elapsed() < HANG_TIMEOUT, "it has gone to sleep for good");
        std::thread::sleep(Duration::from_millis(5));
    }
    (0..400).for_each(|index| store.put(&key("a", index), &value(index, 8)).expect("put"));
    pool.poison(lodestore_contract::PoisonReason::Write, "a test");
    wait_until_quiet(&store);
    assert!((0..400).all(|index| store.get(&key("a", index)).expect("get") == Some(value(index, 8))));
}

/// Regression: new uses of segments got the numbers of uses named by pointers beyond the file's
/// end. When these were overwritten, new values counted as dead, and a collection dropped them.
#[test]
fn new_values_after_a_truncation_of_the_file_survive_overwrites_of_lost_ones() {
    let scratch = Scratch::new();
    let write = |store: &HashKv, prefix: &str, version: usize| {
        (0..60).for_each(|index| store.put(&key(prefix, index), &value(index, version)).expect("put"));
        store.settle().expect("settle");
    };
    let store = HashKv::create(&scratch.store(), &tiny(0)).expect("create");
    write(&store, "old", 1);
    store.close().expect("close");
    drop(store);
    let file = fs::File::options().write(true).open(scratch.store().join("values.0000")).expect("the file");
    file.set_len(4096).expect("cut");
    let store = HashKv::open(&scratch.store(), &tiny(0)).expect("open");
    write(&store, "new", 2);
    (0..60).for_each(|index| store.put(&key("old", index), b"small").expect("put"));
    store.settle().expect("settle");
    // Retired segments are reused.
    (0..4).for_each(|version| write(&store, "more", 3 + version));
    for index in 0..60 {
        assert_eq!(store.get(&key("new", index)).expect("get"), Some(value(index, 2)), "value {index}");
        assert_eq!(store.get(&key("old", index)).expect("get").as_deref(), Some(&b"small"[..]));
    }
}

/// Regression: the thread ended without a report, and the segments of its collection were never
/// collected again.
#[test]
fn a_panic_of_the_thread_that_collects_poisons_the_store() {
    let (options, spec) = (tiny(2), SimSpec { record: false, ..SimSpec::default() });
    let (pool, report) = Pool::create_sim(&spec, ENGINE, FORMAT, options.pool()).expect("a pool");
    let store = HashKv::start(Arc::clone(&pool), &report, &options).expect("a store");
    let panicked = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&panicked);
    // The copies of a collection are about to be durable.
    let watch = Watch(Arc::new(move |_| {
        if std::thread::current().name() == Some("lodestore-hash-collect") {
            noted.store(true, Ordering::SeqCst);
            panic!("a test");
        }
    }));
    pool.recorder().expect("a simulation").watch_fences(Some(watch));
    let began = Instant::now();
    let refused = (0..).find_map(|version| {
        let has = if panicked.load(Ordering::SeqCst) { "ended in silence" } else { "never collected" };
        assert!(began.elapsed() < HANG_TIMEOUT, "the thread has {has}");
        store.put(&key("a", version % 200), &value(0, version)).err()
    });
    assert!(matches!(refused, Some(Error::Poisoned { .. })), "{refused:?}");
    assert!(panicked.load(Ordering::SeqCst));
}
