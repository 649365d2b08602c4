//! Damage to the index of an open store: no write removes the evidence, and each damage is counted
//! once.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Scratch, small_dax};
use lodestore_contract::{Batch, BatchOp, Error, Event, Store, Visit};
use lodestore_hikv::{HiKv, HiKvOptions};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SEED: u64 = 9;
/// Keys before the damage.
const KEYS: u32 = 1000;
/// Keys afterwards.
const ALL_KEYS: u32 = 4000;
const DAMAGED: [u32; 3] = [3, 500, 999];
const BATCH: usize = 50;

fn options() -> HiKvOptions {
    HiKvOptions { hash_seed: Some(SEED), scrub_rate: 0, ..small_dax() }
}

fn key(index: u32) -> Vec<u8> {
    format!("key{index:05}").into_bytes()
}

fn value(index: u32) -> Vec<u8> {
    format!("value {index}").into_bytes()
}

fn filled(path: &Path, options: &HiKvOptions) -> HiKv {
    let store = HiKv::create(path, options).expect("create");
    (0..KEYS).for_each(|index| store.put(&key(index), &value(index)).expect("put"));
    store
}

/// Flips a bit of the key's signature in the open store's index.
fn flip(path: &Path, index: u32, bit: u32) {
    let file = path.join("pool.0000");
    let bytes = std::fs::read(&file).expect("readable");
    let sig = xxh3_64_with_seed(&key(index), SEED);
    let at = bytes.chunks_exact(16).position(|entry| entry[..8] == sig.to_le_bytes()).expect("an entry") * 16;
    let file = OpenOptions::new().write(true).open(file).expect("writable");
    file.write_all_at(&(sig ^ 1 << bit).to_le_bytes(), at as u64).expect("written");
}

/// Flips a bit of three signatures, lets `write` write the other keys, and checks that the three
/// keys are corrupt, also after a kill.
fn check_evidence_stays(bit: u32, write: impl Fn(&HiKv)) {
    let scratch = Scratch::new();
    let path = scratch.store();
    let store = filled(&path, &options());
    DAMAGED.iter().for_each(|index| flip(&path, *index, bit));
    write(&store);
    let findings = store.verify(&mut |_| ()).expect("verify").findings.len();
    assert!(findings >= DAMAGED.len(), "bit {bit}: {findings}");
    check_values(&store, bit);
    drop(store);
    let store = HiKv::open(&path, &options()).expect("open");
    check_values(&store, bit);
}

fn check_values(store: &HiKv, bit: u32) {
    for index in 0..ALL_KEYS {
        let found = store.get(&key(index));
        if DAMAGED.contains(&index) {
            assert!(matches!(found, Err(Error::Corrupt { .. })), "bit {bit}, key {index}: {found:?}");
        } else {
            assert_eq!(found.expect("get"), Some(value(index)), "bit {bit}, key {index}");
        }
    }
}

/// Bits of the partition, and the last of the segment's prefix.
#[test]
fn a_put_reuses_no_slot_whose_signature_was_damaged() {
    for bit in [63, 62, 61] {
        check_evidence_stays(bit, |store| {
            (KEYS..ALL_KEYS).for_each(|index| store.put(&key(index), &value(index)).expect("put"));
        });
    }
}

#[test]
fn a_batch_reuses_no_slot_whose_signature_was_damaged() {
    for bit in [63, 62, 61] {
        check_evidence_stays(bit, |store| {
            let indexes: Vec<u32> = (KEYS..ALL_KEYS).collect();
            for part in indexes.chunks(BATCH) {
                let put = |index: &u32| BatchOp::Put { key: key(*index), value: value(*index), expiry: None };
                store.write(&Batch { ops: part.iter().map(put).collect() }).expect("a batch");
            }
        });
    }
}

/// Three slots with a damaged signature count as three damages, however often they are read.
#[test]
fn damage_is_counted_by_the_walk_and_not_by_each_reader() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let mut options = options();
    options.pool.events = Some(Arc::new(move |event| {
        if matches!(event, Event::Corruption { .. }) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }));
    let store = filled(&path, &options);
    DAMAGED.iter().for_each(|index| flip(&path, *index, 40));
    drop(store);
    let store = HiKv::open(&path, &options).expect("open");
    store.wait_recovered().expect("recovered");
    let damaged = DAMAGED.len() as u64;
    assert_eq!((store.stats().recovery.corrupt, told.load(Ordering::SeqCst)), (damaged, damaged));
    for _again in 0..3 {
        assert_eq!(store.verify(&mut |_| ()).expect("verify").findings.len() as u64, damaged);
    }
    assert_eq!(told.load(Ordering::SeqCst), damaged, "a report of verify is no event");
    for _again in 0..3 {
        let walked = store.for_each(&mut |_, _| Visit::More);
        assert!(matches!(walked, Err(Error::Corrupt { .. })), "{walked:?}");
    }
    assert_eq!(store.stats().recovery.corrupt, damaged);
}

/// Regression: the stop sealed an index that was damaged since the open. Keys were then absent
/// without an error.
#[test]
fn a_stop_seals_no_index_that_was_damaged_while_the_store_was_open() {
    let scratch = Scratch::new();
    let path = scratch.store();
    filled(&path, &options()).close().expect("close");
    let store = HiKv::open(&path, &options()).expect("open");
    let file = path.join("pool.0000");
    let bytes = std::fs::read(&file).expect("readable");
    let segment = bytes.chunks_exact(64).position(|line| line.starts_with(b"LSEG")).expect("a segment") * 64;
    // The line of entries after the header's 128 bytes.
    let file = OpenOptions::new().write(true).open(file).expect("writable");
    file.write_all_at(&[0; 64], segment as u64 + 128).expect("written");
    assert!(matches!(store.close(), Err(Error::Corrupt { .. })));
    drop(store);
    let store = HiKv::open(&path, &options()).expect("open");
    let found: Vec<_> = (0..KEYS).map(|index| store.get(&key(index))).collect();
    assert!(found.iter().all(|found| !matches!(found, Ok(None))));
    assert!(found.iter().any(|found| matches!(found, Err(Error::Corrupt { .. }))));
}
