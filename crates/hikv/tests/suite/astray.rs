//! Flipped bits in the part of a signature that selects the segment.

use std::path::Path;

use crate::common::{Scratch, small_dax};
use lodestore_contract::{Error, Lifetime, ScanRange, Store, Visit};
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

/// Flips a bit of every copy of the key's signature. Returns the number of copies.
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

fn is_corrupt<T: std::fmt::Debug>(done: Result<T, Error>) {
    assert!(matches!(done, Err(Error::Corrupt { .. })), "{done:?}");
}

#[test]
fn a_key_whose_signature_was_damaged_is_corrupt_and_the_others_are_found() {
    for bit in [63, 61, 60, 59, 40, 33, 20, 3] {
        let scratch = Scratch::new();
        let path = scratch.store();
        drop(filled(&path));
        for index in [3, 1500, 2999] {
            assert_eq!(flip(&path, index, bit), 1);
        }
        // Twice: the damage stays.
        for round in 0..2 {
            let store = HiKv::open(&path, &options()).expect("open");
            store.wait_recovered().expect("recovered");
            assert!(store.stats().recovery.corrupt >= 3, "bit {bit}");
            for index in 0..KEYS {
                let found = store.get(&key(index));
                if [3, 1500, 2999].contains(&index) {
                    is_corrupt(found);
                } else {
                    assert_eq!(found.expect("get"), Some(format!("value {index}").into_bytes()), "{index}");
                }
            }
            is_corrupt(store.insert(&key(3), b"new", Lifetime::Forever));
            is_corrupt(store.update(&key(3), b"new", Lifetime::Forever));
            is_corrupt(store.delete(&key(3)));
            is_corrupt(store.len());
            is_corrupt(store.for_each(&mut |_, _| Visit::More));
            is_corrupt(store.scan_each(&ScanRange::all(), &mut |_, _| Visit::More));
            let told = store.verify(&mut |_| ()).expect("verify").findings.len();
            assert!(told >= 3, "bit {bit}, round {round}: {told}");
            store.close().expect("close");
        }
        let store = HiKv::open(&path, &options()).expect("open");
        store.put(&key(3), b"again").expect("put");
        assert_eq!(store.get(&key(3)).expect("get"), Some(b"again".to_vec()));
    }
}

#[test]
fn a_deleted_value_does_not_come_back_through_a_damaged_signature() {
    for bit in [63, 60, 40, 33, 17, 3, 0] {
        let scratch = Scratch::new();
        let path = scratch.store();
        drop(filled(&path));
        assert_eq!(flip(&path, 7, bit), 1);
        let store = HiKv::open(&path, &options()).expect("open");
        is_corrupt(store.get(&key(7)));
        store.put(&key(7), b"v2").expect("put");
        assert_eq!(store.get(&key(7)).expect("get"), Some(b"v2".to_vec()));
        assert!(store.delete(&key(7)).expect("delete"));
        is_corrupt(store.get(&key(7)));
        store.put(b"another", b"value").expect("put");
        drop(store);
        for _again in 0..2 {
            let store = HiKv::open(&path, &options()).expect("open");
            store.wait_recovered().expect("recovered");
            is_corrupt(store.get(&key(7)));
            assert!(!store.verify(&mut |_| ()).expect("verify").findings.is_empty());
        }
    }
}

#[test]
fn no_flipped_bit_of_a_hot_keys_entry_returns_an_older_value() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let store = HiKv::create(&path, &options()).expect("create");
    for round in 0..200 {
        store.put(b"hot", format!("value {round:03}").as_bytes()).expect("put");
    }
    drop(store);
    let file = path.join("pool.0000");
    let whole = std::fs::read(&file).expect("readable");
    let sig = xxh3_64_with_seed(b"hot", SEED).to_le_bytes();
    let at = whole.chunks_exact(16).position(|entry| entry[..8] == sig).expect("an entry") * 16;
    let mut old = Vec::new();
    for bit in 0..128 {
        let mut bytes = whole.clone();
        bytes[at + bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&file, &bytes).expect("writable");
        let store = HiKv::open(&path, &options()).expect("open");
        match store.get(b"hot") {
            Err(Error::Corrupt { .. }) => {
                assert!(!store.verify(&mut |_| ()).expect("verify").findings.is_empty(), "bit {bit}");
            }
            Ok(Some(value)) => old.push((bit, value)),
            other => panic!("bit {bit}: {other:?}"),
        }
    }
    // An older record passes the entry's check with probability 2^-15: two of these few bits never
    // do.
    assert!(old.len() <= 1, "{old:?}");
}

#[test]
fn damage_after_a_clean_stop_refuses_the_open_and_a_salvage_returns_the_rest() {
    for bit in [63, 60, 33, 0] {
        let scratch = Scratch::new();
        let path = scratch.store();
        filled(&path).close().expect("close");
        assert_eq!(flip(&path, 100, bit), 1);
        for _again in 0..2 {
            let refused = HiKv::open(&path, &options()).map(|_| ()).expect_err("damaged");
            assert!(refused.to_string().contains("segment"), "{refused}");
            assert!(refused.to_string().contains("`Builder::salvage(true)`"), "{refused}");
        }
        let mut salvage = options();
        salvage.pool.salvage = true;
        let store = HiKv::open(&path, &salvage).expect("salvage");
        let mut seen = 0;
        is_corrupt(store.for_each(&mut |_, _| {
            seen += 1;
            Visit::More
        }));
        assert_eq!(seen, KEYS - 1);
        is_corrupt(store.get(&key(100)));
        assert_eq!(store.get(&key(101)).expect("get"), Some(b"value 101".to_vec()));
        store.close().expect("close");
        is_corrupt(HiKv::open(&path, &options()).map(|_| ()));
    }
}

#[test]
fn a_split_carries_damage_to_both_segments() {
    for bit in [63, 50, 40, 3] {
        let scratch = Scratch::new();
        let path = scratch.store();
        let store = HiKv::create(&path, &options()).expect("create");
        for index in 0..200 {
            store.put(&key(index), b"value").expect("put");
        }
        drop(store);
        for index in 0..20 {
            assert_eq!(flip(&path, index, bit), 1);
        }
        let store = HiKv::open(&path, &options()).expect("open");
        for index in 200..KEYS {
            store.put(&key(index), b"value").expect("put");
        }
        drop(store);
        let store = HiKv::open(&path, &options()).expect("open");
        for index in 0..KEYS {
            match store.get(&key(index)) {
                Err(Error::Corrupt { .. }) if index < 20 => {}
                found => assert_eq!(found.expect("get"), Some(b"value".to_vec()), "{index}, bit {bit}"),
            }
        }
    }
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
        // The record's header precedes the key: lengths out of range make it unreadable.
        bytes[at - 24..at].fill(0xff);
    }
    std::fs::write(&file, &bytes).expect("writable");
    let store = HiKv::open(&path, &options()).expect("open");
    store.put(&long(7), b"again").expect("put");
    assert!(store.delete(&long(20)).expect("delete"));
    // This open has found damage, and reports it until its end.
    is_corrupt(store.scan_each(&ScanRange::all(), &mut |_, _| Visit::More));
    store.close().expect("close");
    drop(store);
    let store = HiKv::open(&path, &options()).expect("open");
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
fn an_unreadable_sorted_run_is_freed() {
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
