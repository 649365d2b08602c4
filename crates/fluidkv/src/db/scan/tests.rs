//! The work of an owned scan while a writer adds versions that the scan does not show.

use std::ops::Bound;
use std::sync::Arc;

use lodestore_contract::{Direction, Scan, ScanRange, Store};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

use crate::memtable::visits;
use crate::{FluidKv, FluidOptions};

/// Pairs that the snapshot shows.
const PAIRS: u64 = 4000;
/// Versions that are written after the snapshot.
const NEWER: u64 = 4000;
/// Log entries that a scan may read, for each pair and each newer version.
const VISITS_PER_ENTRY_MAX: u64 = 3;

/// Creates a store without workers, with space for all newer versions in one memtable.
fn created(scratch: &Scratch) -> FluidKv {
    let options = FluidOptions {
        pool: PoolOptions { capacity: 128 << 20, region_bytes: 16 << 20, ..PoolOptions::default() },
        memtable_bytes: 8 << 20,
        workers: 0,
        ..FluidOptions::default()
    };
    FluidKv::create(&scratch.store(), &options).expect("a store")
}

fn key(index: u64) -> Vec<u8> {
    format!("k{index:08}").into_bytes()
}

fn filled(scratch: &Scratch) -> FluidKv {
    let store = created(scratch);
    (0..PAIRS).for_each(|index| store.put(&key(index), b"old").expect("put"));
    store
}

/// Reads a whole scan and returns the number of log entries that it visited.
#[track_caller]
fn visits_of(scan: Scan, direction: Direction) -> u64 {
    let before = visits::count();
    let found: Vec<_> = scan.map(|entry| entry.expect("readable")).collect();
    let mut keys: Vec<_> = (0..PAIRS).map(key).collect();
    if direction == Direction::Backward {
        keys.reverse();
    }
    assert!(found.iter().map(|entry| entry.key()).eq(&keys), "the scan shows the snapshot's keys in order");
    assert!(found.iter().all(|entry| entry.value() == b"old"), "the scan shows the snapshot's values");
    visits::count() - before
}

fn all(direction: Direction) -> ScanRange {
    ScanRange { direction, ..ScanRange::all() }
}

#[test]
fn an_owned_scan_passes_newer_keys_once() {
    for direction in [Direction::Forward, Direction::Backward] {
        let scratch = Scratch::new();
        let store = filled(&scratch);
        store.settle().expect("settled");
        let scan = store.scan(&all(direction)).expect("a scan");
        let prefix = if direction == Direction::Forward { "z" } else { "a" };
        (0..NEWER).for_each(|index| store.put(format!("{prefix}{index:08}").as_bytes(), b"new").expect("put"));
        let visits = visits_of(scan, direction);
        assert!(visits <= VISITS_PER_ENTRY_MAX * NEWER, "{direction:?}: {visits} visits");
    }
}

#[test]
fn an_owned_scan_follows_the_versions_of_a_hot_key_once() {
    for direction in [Direction::Forward, Direction::Backward] {
        let scratch = Scratch::new();
        let store = filled(&scratch);
        store.settle().expect("settled");
        let hot = key(if direction == Direction::Forward { PAIRS - 1 } else { 0 });
        store.put(&hot, b"old").expect("put");
        let scan = store.scan(&all(direction)).expect("a scan");
        (0..NEWER).for_each(|_| store.put(&hot, b"new").expect("put"));
        let visits = visits_of(scan, direction);
        assert!(visits <= VISITS_PER_ENTRY_MAX * NEWER, "{direction:?}: {visits} visits");
    }
}

#[test]
fn an_owned_scan_of_overwritten_keys_reads_each_version_once() {
    for direction in [Direction::Forward, Direction::Backward] {
        let scratch = Scratch::new();
        let store = filled(&scratch);
        let snapshot = store.snapshot().expect("a snapshot");
        (0..PAIRS).for_each(|index| store.put(&key(index), b"new").expect("put"));
        let scan = snapshot.scan(&all(direction)).expect("a scan");
        let visits = visits_of(scan, direction);
        assert!(visits <= VISITS_PER_ENTRY_MAX * (PAIRS + NEWER), "{direction:?}: {visits} visits");
    }
}

#[test]
fn a_scan_ends_at_its_bound_among_newer_keys() {
    let scratch = Scratch::new();
    let store = Arc::new(filled(&scratch));
    store.settle().expect("settled");
    let snapshot = store.snapshot().expect("a snapshot");
    (0..NEWER).for_each(|index| store.put(format!("z{index:08}").as_bytes(), b"new").expect("put"));
    (0..NEWER).for_each(|index| store.put(format!("a{index:08}").as_bytes(), b"new").expect("put"));
    for direction in [Direction::Forward, Direction::Backward] {
        let range =
            ScanRange { from: Bound::Included(key(0)), to: Bound::Excluded(key(PAIRS)), direction, ..ScanRange::all() };
        let visits = visits_of(snapshot.scan(&range).expect("a scan"), direction);
        assert!(visits <= PAIRS, "{direction:?}: {visits} visits of keys outside of the range");
    }
}
