//! Damage to one copy of the extent table, which names the logs of a killed store.

use std::path::PathBuf;

use crate::common;
use crate::common::{counter, key, value};
use lodestore_contract::{Store, Visit};
use lodestore_hashkv::{HashKv, HashKvOptions, Mode};
use lodestore_inplace::testing::Scratch;
use lodestore_media::RegionLayout;

const KEYS: usize = 400;
/// Keys that are put once more after the last flush: their newest records are in a log.
const IN_LOG: usize = 50;
const LINE: usize = 64;

fn options(mode: Mode) -> HashKvOptions {
    HashKvOptions { mode, ..common::tiny(8 << 20, 0) }
}

/// Values of a few bytes, and some that `hash` and `vlog` separate.
fn len_of(index: usize) -> usize {
    if index.is_multiple_of(10) { 2000 } else { 50 }
}

fn newest(index: usize) -> Vec<u8> {
    value(index, if index < IN_LOG { 2 } else { 1 }, len_of(index))
}

/// A store with flushed keys and keys in a log; killed or closed.
fn stopped(scratch: &Scratch, mode: Mode, is_closed: bool) {
    let store = HashKv::create(&scratch.store(), &options(mode)).expect("create");
    (0..KEYS).for_each(|index| store.put(&key(index), &value(index, 1, len_of(index))).expect("put"));
    store.settle().expect("settled");
    assert!(counter(&store, "flushes") > 0);
    let flushes = counter(&store, "flushes");
    (0..IN_LOG).for_each(|index| store.put(&key(index), &newest(index)).expect("put"));
    assert_eq!(counter(&store, "flushes"), flushes, "the newest records are in a log");
    if is_closed {
        store.close().expect("closed");
    }
}

/// A region's file.
struct Region {
    path: PathBuf,
    bytes: Vec<u8>,
    layout: RegionLayout,
}

/// All regions of the store.
fn regions(scratch: &Scratch) -> Vec<Region> {
    let paths = (0..).map(|index| scratch.store().join(format!("pool.{index:04}"))).take_while(|path| path.exists());
    let files: Vec<_> = paths.map(|path| (std::fs::read(&path).expect("its bytes"), path)).collect();
    let chunk_bytes = u32::from_le_bytes(files[0].0[112..116].try_into().expect("four bytes"));
    let region = |(index, (bytes, path)): (usize, (Vec<u8>, PathBuf))| {
        let layout = RegionLayout::new(index as u16, bytes.len() as u64, chunk_bytes).expect("a region");
        Region { path, bytes, layout }
    };
    files.into_iter().enumerate().map(region).collect()
}

/// Opens the store strictly: each key has its newest value.
fn check_all(scratch: &Scratch, mode: Mode, is_closed: bool, what: &str) {
    let store = HashKv::open(&scratch.store(), &options(mode)).unwrap_or_else(|error| panic!("{what}: {error}"));
    for index in 0..KEYS {
        let found = store.get(&key(index)).unwrap_or_else(|error| panic!("{what}, key {index}: {error}"));
        assert!(found.as_ref() == Some(&newest(index)), "{what}: key {index}");
    }
    assert_eq!(store.for_each(&mut |_, _| Visit::More).expect("walked"), KEYS as u64, "{what}");
    let report = store.verify(&mut |_| ()).expect("verified");
    assert!(!is_closed || !report.is_clean(), "{what}: not reported");
}

/// Regression: one line or bit of the table named a log. With that bit damaged, the records of the
/// log were absent without an error.
#[test]
fn damage_of_one_copy_of_the_extent_table_loses_no_key() {
    for (mode, is_closed) in [(Mode::Hash, false), (Mode::Vlog, false), (Mode::Nosep, false), (Mode::Hash, true)] {
        let scratch = Scratch::new();
        stopped(&scratch, mode, is_closed);
        let regions = regions(&scratch);
        // An open can also write to the values file.
        let values_path = scratch.store().join("values.0000");
        let values = std::fs::read(&values_path).ok();
        let mut tried = 0;
        let mut try_damage = |damaged: &Region, what: &str, change: &dyn Fn(&mut [u8])| {
            let mut bytes = damaged.bytes.clone();
            change(&mut bytes);
            regions.iter().for_each(|region| std::fs::write(&region.path, &region.bytes).expect("written"));
            std::fs::write(&damaged.path, &bytes).expect("written");
            values.iter().for_each(|values| std::fs::write(&values_path, values).expect("written"));
            let file = damaged.path.display();
            check_all(&scratch, mode, is_closed, &format!("{mode:?}, closed {is_closed}, {file}, {what}"));
            tried += 1;
        };
        for region in &regions {
            let len = region.layout.chunks as usize * 8;
            for table in [region.layout.extent_table as usize, region.layout.extent_table_copy as usize] {
                let is_used = |from: usize, len: usize| region.bytes[from..from + len].iter().any(|byte| *byte != 0);
                for line in (table..table + len).step_by(LINE).filter(|line| is_used(*line, LINE)) {
                    try_damage(region, &format!("line {line:#x}"), &|bytes| bytes[line..line + LINE].fill(0));
                }
                for word in (table..table + len).step_by(8).filter(|word| is_used(*word, 8)) {
                    let bit = word / 8 * 37 % 64;
                    let flip = |bytes: &mut [u8]| bytes[word + bit / 8] ^= 1 << (bit % 8);
                    try_damage(region, &format!("word {word:#x}, bit {bit}"), &flip);
                }
                if is_used(table, len) {
                    try_damage(region, &format!("the copy at {table:#x}"), &|bytes| bytes[table..table + len].fill(0));
                }
            }
        }
        assert!(tried >= 16, "{mode:?}: {tried} damages");
    }
}
