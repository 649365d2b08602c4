//! Damage in a record's key or expiry is reported, and never taken for an absent or expired key.

use std::path::Path;
use std::time::Duration;

use crate::common::{Scratch, small_dax};
use lodestore_contract::{Error, Expiry, Lifetime, ScanRange, Store, Visit};
use lodestore_hikv::{HiKv, HiKvOptions};

fn change(path: &Path, pattern: &[u8], change: impl Fn(&mut [u8], usize)) {
    let file = path.join("pool.0000");
    let mut bytes = std::fs::read(&file).expect("readable");
    let at = bytes.windows(pattern.len()).position(|part| part == pattern).expect("in the file");
    change(&mut bytes, at);
    std::fs::write(&file, &bytes).expect("writable");
}

fn is_corrupt<T: std::fmt::Debug>(done: Result<T, Error>) {
    assert!(matches!(done, Err(Error::Corrupt { .. })), "{done:?}");
}

#[test]
fn a_flipped_bit_in_a_key_is_reported_as_corruption() {
    for clean in [true, false] {
        let scratch = Scratch::new();
        let path = scratch.store();
        let store = HiKv::create(&path, &small_dax()).expect("create");
        for index in 1..=5 {
            store.put(format!("uniquekey{index}").as_bytes(), b"value").expect("put");
        }
        if clean {
            store.close().expect("close");
        }
        drop(store);
        change(&path, b"uniquekey3", |bytes, at| bytes[at + 2] ^= 1);
        // Again after a clean stop of a store that recovered: found damage is not forgotten.
        for _again in 0..2 {
            let store = HiKv::open(&path, &small_dax()).expect("open");
            is_corrupt(store.get(b"uniquekey3"));
            is_corrupt(store.insert(b"uniquekey3", b"new", Lifetime::Forever));
            is_corrupt(store.update(b"uniquekey3", b"new", Lifetime::Forever));
            is_corrupt(store.compare_and_swap(b"uniquekey3", None, Some(b"new"), Lifetime::Forever));
            assert!(clean || store.stats().recovery.left_out == 1);
            store.close().expect("close");
        }
        let store = HiKv::open(&path, &small_dax()).expect("open");
        store.put(b"uniquekey3", b"new").expect("a put takes its place");
        assert_eq!(store.get(b"uniquekey3").expect("get"), Some(b"new".to_vec()));
        // An open that found damage reports it until its end in answers about all keys.
        store.close().expect("close");
        drop(store);
        let store = HiKv::open(&path, &small_dax()).expect("open");
        assert_eq!(store.len().expect("len"), 5);
        assert!(store.verify(&mut |_| ()).expect("verify").findings.is_empty());
    }
}

#[test]
fn a_damaged_expiry_does_not_make_a_record_expire() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let store = HiKv::create(&path, &small_dax()).expect("create");
    store.put_expiring(b"longlived", b"precious", Some(Expiry::after(Duration::from_secs(1 << 30)))).expect("put");
    drop(store);
    change(&path, b"longlivedprecious", |bytes, at| bytes[at - 8..at - 1].fill(0));
    let store = HiKv::open(&path, &small_dax()).expect("open");
    assert_eq!(store.sweep_expired().expect("sweep"), 0);
    is_corrupt(store.get(b"longlived"));
    is_corrupt(store.update(b"longlived", b"new", Lifetime::Forever));
    is_corrupt(store.insert(b"longlived", b"new", Lifetime::Forever));
    assert!(!store.verify(&mut |_| ()).expect("verify").findings.is_empty());
}

#[test]
fn keys_that_expire_while_the_store_is_closed_are_swept_after_it_is_opened() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let options = HiKvOptions { sweep_ms: 0, ..small_dax() };
    let store = HiKv::create(&path, &options).expect("create");
    for index in 0..100 {
        let expiry = Expiry::at_millis(lodestore_contract::now_millis() + 20);
        store.put_expiring(format!("key{index}").as_bytes(), b"value", Some(expiry)).expect("put");
    }
    store.close().expect("close");
    drop(store);
    std::thread::sleep(Duration::from_millis(40));
    let store = HiKv::open(&path, &options).expect("open");
    assert_eq!(store.sweep_expired().expect("sweep"), 100);
    assert_eq!(store.len().expect("len"), 0);
}

#[test]
fn verify_during_writes_finds_no_damage() {
    let scratch = Scratch::new();
    let options = HiKvOptions { backends: lodestore_hikv::Backends::Fixed(1), ..small_dax() };
    let store = HiKv::create(&scratch.store(), &options).expect("create");
    for index in 0..1000 {
        store.put(format!("key{index}").as_bytes(), b"value").expect("put");
    }
    std::thread::scope(|scope| {
        let checker = scope.spawn(|| {
            for round in 0..200 {
                let report = store.verify(&mut |_| ()).expect("verify");
                assert!(report.findings.is_empty(), "round {round}: {:?}", report.findings);
            }
        });
        let mut index = 0;
        while !checker.is_finished() {
            index += 1;
            let key = format!("other{}", index / 2);
            if index % 2 == 0 {
                store.put(key.as_bytes(), b"value").expect("put");
            } else {
                store.delete(key.as_bytes()).expect("delete");
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    });
}

/// Regression: the damaged record read as the key that was put. The put took its place in the
/// ordered index, and the damaged key was missing from scans without an error.
#[test]
fn a_put_of_the_key_that_a_damaged_record_reads_as_hides_no_key_from_a_scan() {
    for clean in [true, false] {
        let scratch = Scratch::new();
        let path = scratch.store();
        let store = HiKv::create(&path, &small_dax()).expect("create");
        for key in [&b"first key"[..], b"uniquekey3", b"very last key"] {
            store.put(key, b"value").expect("put");
        }
        if clean {
            store.close().expect("close");
        }
        drop(store);
        change(&path, b"uniquekey3", |bytes, at| bytes[at + 9] = b'4');
        let store = HiKv::open(&path, &small_dax()).expect("open");
        is_corrupt(store.scan_each(&ScanRange::all(), &mut |_, _| Visit::More));
        store.put(b"uniquekey4", b"new").expect("put");
        is_corrupt(store.scan_each(&ScanRange::all(), &mut |_, _| Visit::More));
        is_corrupt(store.get(b"uniquekey3"));
        assert_eq!(store.get(b"uniquekey4").expect("get"), Some(b"new".to_vec()));
    }
}
