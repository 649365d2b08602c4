//! `verify` reports all damage, not only the first.

use std::path::{Path, PathBuf};

use crate::common;
use crate::common::{counter, key, value};
use lodestore_contract::conformance::Pairs;
use lodestore_contract::{Error, Store, Visit};
use lodestore_fluidkv::FluidKv;
use lodestore_hashkv::{ENGINE, FORMAT, HashKv};
use lodestore_inplace::testing::Scratch;
use lodestore_media::Pool;

/// A closed store with separated values, tables of several blocks, and nothing in its logs.
fn store(scratch: &Scratch) -> Pairs {
    let store = HashKv::create(&scratch.store(), &common::tiny(8 << 20, 0)).expect("create");
    let model: Pairs = (0..800).map(|index| (key(index), value(index, 1, 1000))).collect();
    model.iter().for_each(|(key, value)| store.put(key, value).expect("put"));
    store.settle().expect("settle");
    assert_eq!(counter(&store, "values_separated"), 800);
    store.close().expect("close");
    model
}

/// Returns the offsets of these bytes in a file.
fn places(path: &Path, wanted: &[u8]) -> Vec<usize> {
    let bytes = std::fs::read(path).expect("a file of the store");
    (0..bytes.len()).filter(|at| bytes[*at..].starts_with(wanted)).collect()
}

fn damage(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("a file of the store");
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).expect("written");
}

/// Damages the record of a key in the values file.
fn damage_value(values: &Path, key: &[u8]) {
    let places = places(values, key);
    assert!(!places.is_empty(), "its value is separated");
    places.into_iter().for_each(|at| damage(values, at + key.len() + 100));
}

/// Approximate bytes of a table before its first block.
const FIRST_BLOCK: usize = 1024;

/// Damages the first block of every table.
fn damage_tables(pool: &[PathBuf]) -> usize {
    let mut damaged = 0;
    for file in pool {
        for at in places(file, b"LSTABLE\x01") {
            damage(file, at + FIRST_BLOCK + 40);
            damaged += 1;
        }
    }
    damaged
}

/// Regression: the walk to the values ended at the first damaged table.
#[test]
fn damaged_values_are_reported_after_damaged_tables_and_other_damaged_values() {
    let scratch = Scratch::new();
    let model = store(&scratch);
    let values = scratch.store().join("values.0000");
    let files = std::fs::read_dir(scratch.store()).expect("the store").map(|entry| entry.expect("an entry").path());
    let is_region = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pool."));
    assert!(damage_tables(&files.filter(is_region).collect::<Vec<_>>()) > 0, "there are tables");
    // The last keys that a walk shows are after every damaged block.
    let store = HashKv::open(&scratch.store(), &common::tiny(8 << 20, 0)).expect("open");
    let mut last = Vec::new();
    let walked = store.for_each(&mut |key, _| {
        last.push(key.to_vec());
        Visit::More
    });
    walked.expect_err("it tells of damage");
    drop(store);
    last.sort();
    last.drain(..last.len() - 2);
    last.iter().for_each(|key| damage_value(&values, key));

    let store = HashKv::open(&scratch.store(), &common::tiny(8 << 20, 0)).expect("open");
    for key in &last {
        let found = store.get(key);
        assert!(matches!(&found, Err(Error::Corrupt { place, .. }) if place.contains("values.0000")), "{found:?}");
    }
    let report = store.verify(&mut |_| ()).expect("verify");
    let of = |file: &str| report.findings.iter().filter(|found| found.place.contains(file)).count();
    assert_eq!(of("values.0000"), last.len(), "{:?}", report.findings);
    assert!(of("table") >= 1, "{:?}", report.findings);
    // All values that a walk past the damage reaches were checked.
    let mut readable = 0;
    let walked = store.for_each(&mut |key, found| {
        assert!(model[key] == found);
        readable += 1;
        Visit::More
    });
    walked.expect_err("it tells of damage");
    assert!(readable > 100 && report.records >= readable, "{} records were checked, {readable} read", report.records);
}

/// Regression: such an entry was skipped without a report.
#[test]
fn an_entry_that_is_neither_a_value_nor_a_pointer_is_reported() {
    let scratch = Scratch::new();
    let model = store(&scratch);
    let options = common::tiny(8 << 20, 0);
    {
        let (pool, report) = Pool::open(&scratch.store(), ENGINE, FORMAT, options.pool()).expect("its pool");
        let index = FluidKv::start(pool, &report, &options.index).expect("its index");
        for tag in [2, 7] {
            index.put(&[b'w', tag], &[1, tag]).expect("put");
        }
        index.close().expect("close");
    }
    let store = HashKv::open(&scratch.store(), &options).expect("open");
    assert!(matches!(store.get(b"w\x07"), Err(Error::Corrupt { .. })));
    let report = store.verify(&mut |_| ()).expect("verify");
    assert_eq!(report.findings.len(), 2, "{:?}", report.findings);
    assert!(report.records >= model.len() as u64);
}
