//! Bytes that change on the medium after they were read once, while their store is open: each read
//! returns the right value or an error.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::ops::{Bound, Range};
use std::os::unix::fs::FileExt;

use crate::common::{counter, key, tiny};
use lodestore_contract::{Direction, Error, ScanRange, Store, Visit};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;

const KEYS: u64 = 240;
/// Bytes of a value in a block, and of a value in the value log.
const VALUE_BYTES: [usize; 2] = [60, 5000];

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn value(index: u64, version: u64) -> Vec<u8> {
    let len = VALUE_BYTES[usize::from(index % 40 == 39)];
    let mut value = format!("{index} version {version} ").into_bytes();
    value.resize(len, b'v');
    value
}

fn options() -> FluidOptions {
    FluidOptions { range_bytes: 1 << 20, buffer_percent: 1000, ..tiny(0) }
}

/// Returns a store of a stable level, a run over it and a memtable over both, each with newer
/// versions and deletes.
fn filled(scratch: &Scratch) -> (FluidKv, Model) {
    let mut model = Model::new();
    let write = |store: &FluidKv, model: &mut Model, (step, version): (usize, u64)| {
        for index in (0..KEYS).step_by(step) {
            if index % (step as u64 * 5) == step as u64 {
                store.delete(&key(index)).expect("delete");
                model.remove(&key(index));
            } else {
                store.put(&key(index), &value(index, version)).expect("put");
                model.insert(key(index), value(index, version));
            }
        }
    };
    let store = FluidKv::create(&scratch.store(), &options()).expect("created");
    write(&store, &mut model, (1, 1));
    store.settle().expect("settled");
    write(&store, &mut model, (3, 2));
    store.close().expect("closed");
    let store = FluidKv::open(&scratch.store(), &options()).expect("opened");
    write(&store, &mut model, (7, 3));
    assert!(counter(&store, "buffered_bytes") > 0 && counter(&store, "log_bytes") > 0);
    (store, model)
}

/// Returns whether some read reported damage. Panics on a wrong result.
fn read_all(store: &FluidKv, model: &Model, why: &str) -> bool {
    let mut reported = false;
    let mut note = |error: Error| {
        assert!(matches!(error, Error::Corrupt { .. }), "{why}: {error}");
        reported = true;
    };
    for index in 0..KEYS + 40 {
        let key = key(index);
        match store.get(&key) {
            Ok(found) => assert!(found.as_ref() == model.get(&key), "{why}: get of {index}: {found:?}"),
            Err(error) => note(error),
        }
    }
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    for group in keys.chunks(16) {
        let group: Vec<_> = group.iter().map(Vec::as_slice).collect();
        let each = &mut |at: usize, found: Option<&[u8]>| {
            assert!(found == model.get(group[at]).map(Vec::as_slice), "{why}: multi_get: {found:?}");
        };
        store.multi_get(&group, each).err().into_iter().for_each(&mut note);
    }
    for direction in [Direction::Forward, Direction::Backward] {
        for from in [Bound::Unbounded, Bound::Included(key(17)), Bound::Excluded(key(40))] {
            let range = match direction {
                Direction::Forward => ScanRange { from, ..ScanRange::all() },
                Direction::Backward => ScanRange { to: from, direction, ..ScanRange::all() },
            };
            let mut right: Vec<_> = model.range((range.from.clone(), range.to.clone())).collect();
            if direction == Direction::Backward {
                right.reverse();
            }
            let mut shown = 0;
            let outcome = store.scan_each(&range, &mut |key, value| {
                assert!(right.get(shown) == Some(&(&key.to_vec(), &value.to_vec())), "{why}: pair {shown} of a scan");
                shown += 1;
                Visit::More
            });
            match outcome {
                Ok(_) => assert_eq!(shown, right.len(), "{why}: a scan leaves out pairs"),
                Err(error) => note(error),
            }
        }
    }
    let mut shown = Model::new();
    let outcome = store.for_each(&mut |key, value| {
        assert!(model.get(key).map(Vec::as_slice) == Some(value), "{why}: for_each");
        assert!(shown.insert(key.to_vec(), value.to_vec()).is_none(), "{why}: for_each shows a key twice");
        Visit::More
    });
    match outcome {
        Ok(_) => assert!(shown == *model, "{why}: for_each leaves out pairs"),
        Err(error) => note(error),
    }
    reported
}

/// The store's first file, opened independently of the store.
struct Medium {
    file: File,
    bytes: Vec<u8>,
}

impl Medium {
    fn of(scratch: &Scratch) -> Self {
        let path = scratch.store().join("pool.0000");
        let bytes = std::fs::read(&path).expect("its bytes");
        Self { file: OpenOptions::new().write(true).open(&path).expect("the store's file"), bytes }
    }

    fn places(&self, sought: &[u8]) -> Vec<usize> {
        let places = self.bytes.windows(sought.len()).enumerate().filter(|(_, window)| *window == sought);
        places.map(|(at, _)| at).collect()
    }

    fn word(&self, at: usize) -> usize {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes")) as usize
    }

    /// Runs `read` with other bytes in a range, and restores them.
    fn with(&self, at: usize, bytes: &[u8], read: impl FnOnce() -> bool) -> bool {
        self.file.write_all_at(bytes, at as u64).expect("written");
        let reported = read();
        self.file.write_all_at(&self.bytes[at..at + bytes.len()], at as u64).expect("restored");
        reported
    }

    /// Flips a bit of each byte of a range, one at a time, then zeroes each line of it. Returns how
    /// many were reported.
    fn harm_each(&self, (store, model): (&FluidKv, &Model), range: Range<usize>, step: usize, what: &str) -> usize {
        let mut reported = 0;
        for at in range.clone().step_by(step) {
            let flipped = self.bytes[at] ^ 1 << (at % 8);
            let why = format!("{what}, bit {} of byte {at}", at % 8);
            reported += usize::from(self.with(at, &[flipped], || read_all(store, model, &why)));
        }
        for at in range.clone().step_by(64) {
            let len = (range.end - at).min(64 - at % 64);
            let why = format!("{what}, {len} bytes at {at} zeroed");
            reported += usize::from(self.with(at, &vec![0; len], || read_all(store, model, &why)));
        }
        reported
    }
}

/// Damages one part of each table: `part` returns its place from the table's first byte.
fn harm_tables(part: impl Fn(&Medium, usize) -> Range<usize>, step: usize, what: &str) {
    let scratch = Scratch::new();
    let (store, model) = filled(&scratch);
    assert!(!read_all(&store, &model, "before any damage"));
    let medium = Medium::of(&scratch);
    let tables = medium.places(b"LSTABLE\x01");
    assert!(tables.len() >= 2, "{} tables", tables.len());
    let mut reported = 0;
    for table in tables {
        let range = part(&medium, table);
        reported += medium.harm_each((&store, &model), table + range.start..table + range.end, step, what);
    }
    assert!(reported > 0, "no damage to {what} was reported");
    assert!(!read_all(&store, &model, "all bytes restored"));
}

#[test]
fn a_block_that_changes_after_it_was_read_is_not_returned() {
    harm_tables(|medium, at| medium.word(at + 48)..medium.word(at + 48) + medium.word(at + 52), 37, "a block");
}

#[test]
fn a_block_index_that_changes_after_the_open_hides_no_key() {
    harm_tables(|medium, at| medium.word(at + 56)..medium.word(at + 60), 3, "the index");
}

#[test]
fn a_filter_that_changes_after_the_open_hides_no_key() {
    let len = |medium: &Medium, at: usize| 64 * medium.word(at + 64);
    let part = |medium: &Medium, at| medium.word(at + 60)..medium.word(at + 60) + len(medium, at);
    let scratch = Scratch::new();
    let (store, model) = filled(&scratch);
    let medium = Medium::of(&scratch);
    for table in medium.places(b"LSTABLE\x01") {
        let range = part(&medium, table);
        medium.harm_each((&store, &model), table + range.start..table + range.end, 5, "the filter");
    }
}

#[test]
fn the_keys_of_a_table_that_change_after_the_open_hide_no_key() {
    let scratch = Scratch::new();
    let (store, model) = filled(&scratch);
    let medium = Medium::of(&scratch);
    for table in medium.places(b"LSTABLE\x01") {
        let from = table + medium.word(table + 68);
        let len = medium.word(table + 72) + medium.word(table + 76);
        medium.harm_each((&store, &model), from..from + len, 1, "the keys");
        medium.harm_each((&store, &model), table..table + 128, 1, "the header");
    }
}

#[test]
fn a_log_record_that_changes_under_its_memtable_is_not_returned() {
    let scratch = Scratch::new();
    let (store, model) = filled(&scratch);
    let medium = Medium::of(&scratch);
    let mut reported = 0;
    for index in [14, 21, 28, 133] {
        let record = [&key(index)[..], &value(index, 3)[..20]].concat();
        let all = medium.places(&record);
        let at = *all.last().expect("its record");
        let len = record.len() + VALUE_BYTES[0] - 20;
        reported += medium.harm_each((&store, &model), at - 16..at + len, 3, "a log record");
    }
    assert!(reported > 0);
}

#[test]
fn a_large_value_that_changes_after_it_was_read_is_not_returned() {
    let scratch = Scratch::new();
    let (store, model) = filled(&scratch);
    let medium = Medium::of(&scratch);
    let mut reported = 0;
    for index in [39, 79, 119] {
        let newest = &model[&key(index)];
        let at = *medium.places(&newest[..20]).last().expect("its bytes");
        reported += medium.harm_each((&store, &model), at..at + newest.len(), 701, "a large value");
    }
    assert!(reported > 0);
}
