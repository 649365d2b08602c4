//! Flipped bits in the part of a signature that says which segment it belongs to.

mod common;

use std::path::Path;

use common::{Scratch, small_dax};
use lodestore_contract::{ScanRange, Store, Visit};
use lodestore_hikv::{HiKv, HiKvOptions};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SEED: u64 = 9;
const KEYS: u32 = 3000;

fn options() -> HiKvOptions {
    HiKvOptions { hash_seed: Some(SEED), ..small_dax() }
}

fn key(index: u32) -> Vec<u8> {
    format!("key{index:05}").into_bytes()
}

fn filled(path: &Path) -> HiKv {
    let store = HiKv::create(path, &options()).expect("create");
    for index in 0..KEYS {
        store.put(&key(index), format!("value {index}").as_bytes()).expect("put");
    }
    store
}

/// Flips a bit of every copy of the key's signature; how many there were.
fn flip(path: &Path, index: u32, bit: u32) -> usize {
    let file = path.join("pool.0000");
    let mut bytes = std::fs::read(&file).expect("readable");
    let sig = xxh3_64_with_seed(&key(index), SEED);
    let mut found = 0;
    for entry in bytes.chunks_exact_mut(16).filter(|entry| entry[..8] == sig.to_le_bytes()) {
        entry[..8].copy_from_slice(&(sig ^ 1 << bit).to_le_bytes());
        found += 1;
    }
    std::fs::write(&file, &bytes).expect("writable");
    found
}

#[test]
fn recovery_mends_a_signature_that_went_to_another_partition() {
    let scratch = Scratch::new();
    let path = scratch.store();
    drop(filled(&path));
    for index in [3, 1500, 2999] {
        assert!(flip(&path, index, 63) > 0);
    }
    let store = HiKv::open(&path, &options()).expect("open");
    store.wait_recovered().expect("recovered");
    assert!(store.stats().recovery.corrupt >= 3);
    assert_eq!(store.len().expect("len"), u64::from(KEYS));
    for index in 0..KEYS {
        assert_eq!(store.get(&key(index)).expect("get"), Some(format!("value {index}").into_bytes()), "{index}");
    }
    let report = store.verify(&mut |_| ()).expect("verify");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn verify_finds_a_signature_that_looks_as_if_a_split_had_left_it_behind() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let store = filled(&path);
    let report = store.verify(&mut |_| ()).expect("verify");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    store.close().expect("close");
    drop(store);
    for bit in [61, 60, 59] {
        assert!(flip(&path, 100 + bit, bit) > 0);
    }
    let store = HiKv::open(&path, &options()).expect("open");
    let report = store.verify(&mut |_| ()).expect("verify");
    let told = report.findings.iter().filter(|found| found.what.contains("signature")).count();
    assert_eq!(told, 3, "{:?}", report.findings);
}

#[test]
fn a_long_key_whose_old_record_was_damaged_is_written_again_and_scanned_once() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let long = |index: u32| {
        format!("{index:03} a key that is much longer than what travels in an operation of the tree").into_bytes()
    };
    let store = HiKv::create(&path, &options()).expect("create");
    for index in 0..50 {
        store.put(&long(index), format!("value of {index:03}").as_bytes()).expect("put");
    }
    store.close().expect("close");
    drop(store);
    let file = path.join("pool.0000");
    let mut bytes = std::fs::read(&file).expect("readable");
    for index in [7, 20] {
        let at = bytes.windows(75).position(|part| part == &long(index)[..75]).expect("in the file");
        // The record's header stands in front of the key: lengths out of range make it unreadable.
        bytes[at - 24..at].fill(0xff);
    }
    std::fs::write(&file, &bytes).expect("writable");
    let store = HiKv::open(&path, &options()).expect("open");
    store.put(&long(7), b"again").expect("put");
    assert!(store.delete(&long(20)).expect("delete"));
    let mut keys = Vec::new();
    store
        .scan_each(&ScanRange::all(), &mut |key, _| {
            keys.push(key.to_vec());
            Visit::More
        })
        .expect("scan");
    let expected: Vec<_> = (0..50).filter(|index| *index != 20).map(long).collect();
    assert_eq!(keys, expected);
    assert_eq!(store.get(&long(7)).expect("get"), Some(b"again".to_vec()));
    let report = store.verify(&mut |_| ()).expect("verify");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn a_sorted_run_that_cannot_be_read_is_given_back() {
    let scratch = Scratch::new();
    let path = scratch.store();
    filled(&path).close().expect("close");
    let live = |store: &HiKv| store.stats().space.live;
    let file = path.join("pool.0000");
    let mut sizes = Vec::new();
    for round in 0..3 {
        let mut bytes = std::fs::read(&file).expect("readable");
        let at = bytes.windows(4).position(|part| part == b"LRUN").expect("a run");
        if round > 0 {
            bytes[at + 30] ^= 4;
            std::fs::write(&file, &bytes).expect("writable");
        }
        let store = HiKv::open(&path, &options()).expect("open");
        store.wait_recovered().expect("recovered");
        assert_eq!(store.len().expect("len"), u64::from(KEYS));
        sizes.push(live(&store));
        store.close().expect("close");
    }
    assert!(sizes[1] < sizes[0], "the damaged run's space is free: {sizes:?}");
    assert_eq!(sizes[1], sizes[2]);
}
