//! Stores whose manifest or extent table is damaged: strict mode rejects them with advice; salvage
//! reads the rest and writes nothing.

use std::path::PathBuf;

use crate::common;
use crate::common::{counter, key};
use lodestore_contract::{Error, Store, Visit};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::{PoolOptions, RegionLayout};

const KEYS: u64 = 600;

fn options(salvage: bool) -> FluidOptions {
    let pool = PoolOptions { capacity: 16 << 20, region_bytes: 4 << 20, salvage, ..PoolOptions::default() };
    FluidOptions { pool, value_threshold: 100, value_segment_bytes: 64 << 10, ..common::tiny(0) }
}

/// Every tenth value is large.
fn value(index: u64, version: u64) -> Vec<u8> {
    let len = if index.is_multiple_of(10) { 200 } else { 50 };
    format!("{index}/{version}/").bytes().cycle().take(len).collect()
}

fn file(scratch: &Scratch) -> PathBuf {
    scratch.store().join("pool.0000")
}

/// Kills a store after `versions` writes of each key and an optional settle, with the first keys
/// written once more to a log. Returns the bytes of its file.
fn killed(scratch: &Scratch, versions: u64, settled: bool) -> Vec<u8> {
    killed_with(scratch, versions, settled, &options(false))
}

fn killed_with(scratch: &Scratch, versions: u64, settled: bool, options: &FluidOptions) -> Vec<u8> {
    let store = FluidKv::create(&scratch.store(), options).expect("created");
    for version in 1..=versions {
        (0..KEYS).for_each(|index| store.put(&key(index), &value(index, version)).expect("put"));
    }
    if settled {
        store.settle().expect("settled");
    }
    assert!(counter(&store, "flushes") > 0);
    (0..50).for_each(|index| store.put(&key(index), &value(index, versions + 1)).expect("put"));
    drop(store);
    std::fs::read(file(scratch)).expect("its bytes")
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"))
}

fn root(bytes: &[u8]) -> usize {
    (0..bytes.len()).step_by(4096).find(|at| bytes[*at..].starts_with(b"LFLUID1\0")).expect("a root")
}

/// Returns where the manifest begins, and each of its records with its length.
fn manifest(bytes: &[u8]) -> (usize, Vec<(usize, usize)>) {
    let at = u64_at(bytes, root(bytes) + 64) as usize & 0xffff_ffff;
    assert!(bytes[at..].starts_with(b"LMAN"), "the root names it");
    let (mut records, mut end) = (Vec::<(usize, usize)>::new(), at + 64);
    loop {
        let words = u32::from_le_bytes(bytes[end + 4..end + 8].try_into().expect("four")) as usize;
        let number = u64_at(bytes, end + 8);
        if number == 0 || !records.is_empty() && number != u64_at(bytes, records[0].0 + 8) + records.len() as u64 {
            return (at, records);
        }
        records.push((end, 24 + words * 8));
        end += 24 + words * 8;
    }
}

/// Opens these bytes: strict mode rejects them with advice, salvage succeeds. Salvage writes
/// nothing.
fn salvaged(scratch: &Scratch, bytes: &[u8], what: &str) -> FluidKv {
    std::fs::write(file(scratch), bytes).expect("written");
    let refused = FluidKv::open(&scratch.store(), &options(false)).err();
    let Some(refused @ Error::Corrupt { .. }) = refused else { panic!("{what}: {refused:?}") };
    let text = refused.to_string();
    assert!(text.contains("salvage") && text.contains("from a backup"), "{what}: {text}");
    assert!(
        text.matches("run `Db::verify`").count() == 1 && !text.contains("close the store"),
        "{what}, nested: {text}"
    );
    let store = FluidKv::open(&scratch.store(), &options(true)).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(store.stats().recovery.corrupt > 0, "{what}: it is told");
    let written = store.put(b"new", b"value");
    assert!(
        matches!(&written, Err(Error::Poisoned { cause }) if cause.contains("export the store")),
        "{what}: {written:?}"
    );
    store
}

/// Returns how many keys have their newest version. Each key must have one of its versions, or
/// none.
fn newest(store: &FluidKv, versions: u64, what: &str) -> u64 {
    let walked = store.for_each(&mut |_, _| Visit::More).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(walked <= KEYS, "{what}");
    let mut newest = 0;
    for index in 0..KEYS {
        let last = versions + u64::from(index < 50);
        let found = store.get(&key(index)).unwrap_or_else(|error| panic!("{what}, key {index}: {error}"));
        assert!(
            found.is_none() || (1..=last).any(|version| found == Some(value(index, version))),
            "{what}, key {index}"
        );
        let is_newest = found == Some(value(index, last));
        assert!(is_newest || index >= 50, "{what}: key {index}, whose newest version is in a log");
        newest += u64::from(is_newest);
    }
    newest
}

#[test]
fn a_damaged_record_of_the_manifest_leaves_the_others_readable() {
    for (versions, settled) in [(1, true), (6, true), (6, false)] {
        let scratch = Scratch::new();
        let bytes = killed(&scratch, versions, settled);
        let (_, records) = manifest(&bytes);
        assert!(records.len() > 3, "some flushes");
        let mut best = 0;
        for (index, (at, len)) in records[..records.len() - 1].iter().enumerate() {
            let what = format!("{versions} versions, settled {settled}, record {index} of {}", records.len());
            let mut damaged = bytes.clone();
            damaged[at + len / 2] ^= 3;
            let store = salvaged(&scratch, &damaged, &what);
            best = best.max(newest(&store, versions, &what));
            store.close().expect("nothing is left undone");
            drop(store);
            let after = std::fs::read(file(&scratch)).expect("its bytes");
            let root = root(&bytes);
            assert!(after[root..] == damaged[root..], "{what}: something was written");
        }
        println!("{versions} versions, settled {settled}: {best} of {KEYS} keys have their newest version at best");
        assert!(best > 50, "{versions} versions, settled {settled}: {best}");
    }
}

/// The headers of tables identify them.
#[test]
fn a_settled_store_without_a_manifest_is_read_from_its_tables_and_logs() {
    let scratch = Scratch::new();
    let bytes = killed(&scratch, 5, true);
    let (at, records) = manifest(&bytes);
    let root = root(&bytes);
    for (what, place) in [("header", at + 16), ("checkpoint", records[0].0 + 24)] {
        let mut damaged = bytes.clone();
        damaged[place] ^= 3;
        assert_eq!(newest(&salvaged(&scratch, &damaged, what), 5, what), KEYS, "{what}");
    }
    let mut damaged = bytes.clone();
    damaged[root + 64..root + 72].fill(0);
    assert_eq!(newest(&salvaged(&scratch, &damaged, "root word"), 5, "root word"), KEYS);
}

/// Regression: the store could not be opened at all, although the error said to export it.
#[test]
fn a_bad_line_of_the_extent_table_leaves_the_store_readable() {
    for closed in [false, true] {
        let scratch = Scratch::new();
        let mut bytes = killed(&scratch, 3, true);
        if closed {
            let store = FluidKv::open(&scratch.store(), &options(false)).expect("open");
            store.close().expect("closed");
            drop(store);
            bytes = std::fs::read(file(&scratch)).expect("its bytes");
        }
        let lost = lines_of_the_extent_table(&scratch, &bytes);
        assert!(lost > 0, "closed {closed}: some lines are the extent table's");
    }
}

fn layout(bytes: &[u8]) -> RegionLayout {
    let chunk_bytes = u32::from_le_bytes(bytes[112..116].try_into().expect("four"));
    RegionLayout::new(0, bytes.len() as u64, chunk_bytes).expect("region 0")
}

/// Regression: one line or bit of the table named a log, and without it the log's records were
/// missing without a report.
#[test]
fn damage_of_one_copy_of_the_extent_table_loses_no_key() {
    for closed in [false, true] {
        let scratch = Scratch::new();
        let mut bytes = killed(&scratch, 2, false);
        if closed {
            FluidKv::open(&scratch.store(), &options(false)).expect("open").close().expect("closed");
            bytes = std::fs::read(file(&scratch)).expect("its bytes");
        }
        let layout = layout(&bytes);
        let is_whole = |damaged: &[u8], what: &str| {
            std::fs::write(file(&scratch), damaged).expect("written");
            let store =
                FluidKv::open(&scratch.store(), &options(false)).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(newest(&store, 2, what), KEYS, "{what}");
            assert!(!store.verify(&mut |_| ()).expect("verified").is_clean() || !closed, "{what}: reported");
        };
        let table_bytes = layout.chunks as usize * 8;
        for table in [layout.extent_table as usize, layout.extent_table_copy as usize] {
            let used = |from: usize, len: usize| bytes[from..from + len].iter().any(|byte| *byte != 0);
            for line in (table..table + table_bytes).step_by(64).filter(|line| used(*line, 64)) {
                let mut damaged = bytes.clone();
                damaged[line..line + 64].fill(0);
                is_whole(&damaged, &format!("closed {closed}, line {line:#x}"));
            }
            for word in (table..table + table_bytes).step_by(8).filter(|word| used(*word, 8)) {
                let mut damaged = bytes.clone();
                let bit = word / 8 * 37 % 64;
                damaged[word + bit / 8] ^= 1 << (bit % 8);
                is_whole(&damaged, &format!("closed {closed}, word {word:#x}, bit {bit}"));
            }
            let mut damaged = bytes.clone();
            damaged[table..table + table_bytes].fill(0);
            is_whole(&damaged, &format!("closed {closed}, all of the copy at {table:#x}"));
        }
    }
}

fn lines_of_the_extent_table(scratch: &Scratch, bytes: &[u8]) -> u64 {
    let tables: Vec<_> = (0..bytes.len()).step_by(4096).filter(|at| bytes[*at..].starts_with(b"LSTABLE")).collect();
    let (first, _) = manifest(bytes);
    let first = tables.iter().copied().min().unwrap_or(first).min(first);
    let mut lost = 0;
    // The extent table is before the first extent: the loss of its lines is reported as damage of
    // the table itself.
    let lines = (0..first / 64).filter(|line| bytes[line * 64..line * 64 + 64].iter().any(|byte| *byte != 0));
    let layout = layout(bytes);
    for line in lines {
        let mut damaged = bytes.to_vec();
        damaged[line * 64..line * 64 + 64].fill(0);
        // Damages the other copy as well, or the open repairs the line.
        let offset = (line * 64).checked_sub(layout.extent_table as usize);
        if let Some(offset) = offset.filter(|offset| *offset < layout.chunks as usize * 8) {
            damaged[layout.extent_table_copy as usize + offset..][..64].fill(0);
        }
        std::fs::write(file(scratch), &damaged).expect("written");
        match FluidKv::open(&scratch.store(), &options(false)) {
            // After a kill the manifest misses its extents; after a clean stop the table fails its
            // seal.
            Err(Error::Corrupt { place, .. }) if place == "the extent table" || place.starts_with("region 0 chunk") => {
                lost += 1;
                let what = format!("line {line}");
                let store = salvaged(scratch, &damaged, &what);
                let mut values = 0;
                store
                    .for_each(&mut |_, _| {
                        values += 1;
                        Visit::More
                    })
                    .expect("walked");
                // Both copies are damaged: missing keys are counted.
                let left_out = store.stats().recovery.left_out;
                assert!(values == KEYS || left_out > 0, "{what}: {values} keys, {left_out} left out");
                store.close().expect("closed");
            }
            Ok(_) | Err(_) => {}
        }
    }
    lost
}

/// The manifest continues from extent to extent.
#[test]
fn a_damaged_header_or_link_of_an_extent_of_the_manifest_leaves_the_others() {
    let scratch = Scratch::new();
    // Many flushes, whose runs are not merged.
    let many = FluidOptions { runs_max: 64, buffer_percent: 1000, ..options(false) };
    let bytes = killed_with(&scratch, 48, false, &many);
    let (first, _) = manifest(&bytes);
    let nonce = u64_at(&bytes, first + 16);
    let is_one = |at: &usize| bytes[*at..].starts_with(b"LMAN") && u64_at(&bytes, at + 16) == nonce;
    let extents: Vec<_> = (0..bytes.len()).step_by(4096).filter(is_one).collect();
    assert!(extents.len() > 1, "{} extents", extents.len());
    for (at, offset) in extents.iter().flat_map(|at| [(*at, 17), (*at, 33)]) {
        let what = format!("{} extents, byte {offset} of the one at {at:#x}", extents.len());
        let mut damaged = bytes.clone();
        damaged[at + offset] ^= 1;
        newest(&salvaged(&scratch, &damaged, &what), 48, &what);
    }
}
