//! An older record at the position of a newer one is reported, and no scan shows it.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::{Scratch, small_dax};
use lodestore_contract::{ScanRange, Store, Visit};
use lodestore_hikv::HiKv;

const KEYS: u32 = 40;
/// Bytes of a record before its key.
const HEADER: usize = 24;

fn old_key(index: u32) -> Vec<u8> {
    format!("first{index:05}").into_bytes()
}

/// The only key at the end: any key at its position is in order.
const NEW_KEY: &[u8] = b"later00000";

fn file_of(store: &Path) -> std::path::PathBuf {
    store.join("pool.0000")
}

#[test]
fn a_scan_after_a_clean_stop_returns_no_older_record_at_a_reused_position() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let store = HiKv::create(&path, &small_dax()).expect("create");
    (0..KEYS).for_each(|index| store.put(&old_key(index), b"value").expect("put"));
    store.close().expect("close");
    drop(store);
    let older = std::fs::read(file_of(&path)).expect("readable");
    let store = HiKv::open(&path, &small_dax()).expect("open");
    store.wait_recovered().expect("recovered");
    (0..KEYS).for_each(|index| assert!(store.delete(&old_key(index)).expect("delete")));
    // The deleted records' space is free once no reader can see it.
    store.close().expect("close");
    drop(store);
    let store = HiKv::open(&path, &small_dax()).expect("open");
    store.wait_recovered().expect("recovered");
    store.put(NEW_KEY, b"other").expect("put");
    store.close().expect("close");
    drop(store);
    let newest = std::fs::read(file_of(&path)).expect("readable");

    let at = newest.windows(NEW_KEY.len()).position(|bytes| bytes == NEW_KEY).expect("its key");
    assert!(older[at..].starts_with(b"first"), "the position was not used before");
    let mut bytes = newest;
    // The whole record: its header, its key and its value.
    let record = at - HEADER..at + NEW_KEY.len() + 5;
    bytes[record.clone()].copy_from_slice(&older[record]);
    std::fs::write(file_of(&path), &bytes).expect("writable");
    let store = HiKv::open(&path, &small_dax()).expect("open");
    let mut shown = BTreeSet::new();
    let scanned = store.scan_each(&ScanRange::all(), &mut |key, _| {
        shown.insert(key.to_vec());
        Visit::More
    });
    assert_eq!(shown.iter().find(|key| key.starts_with(b"first")), None, "a deleted key is back");
    assert!(scanned.is_err(), "a key is missing, and nothing is reported");
    assert!(!store.verify(&mut |_| ()).expect("verify").findings.is_empty());
}
