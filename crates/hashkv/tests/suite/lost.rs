//! A values file that is missing, cut, or of another store.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::common;
use crate::common::{counter, key, value};
use lodestore_contract::{Error, Expiry, Store, Visit};
use lodestore_hashkv::{HashKv, HashKvOptions};
use lodestore_inplace::testing::Scratch;

const COUNT: usize = 300;

/// Creates a closed store with values in the index, at even numbers, and in the file.
fn store() -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    let store = HashKv::create(&scratch.store(), &options(false)).expect("create");
    (0..COUNT).for_each(|index| store.put(&key(index), &made(index)).expect("put"));
    store.settle().expect("settle");
    assert_eq!(counter(&store, "values_separated"), COUNT as u64 / 2);
    store.close().expect("close");
    let file = scratch.store().join("values.0000");
    (scratch, file)
}

fn made(index: usize) -> Vec<u8> {
    value(index, 1, if index.is_multiple_of(2) { 10 } else { 1000 })
}

fn options(salvage: bool) -> HashKvOptions {
    let mut options = common::tiny(8 << 20, 0);
    options.index.pool.salvage = salvage;
    options
}

fn cut(file: &PathBuf, len: u64) {
    fs::OpenOptions::new().write(true).open(file).expect("opens").set_len(len).expect("cut");
}

/// Returns how many keys can be read. Values that are read are right, and the other keys are
/// reported as damaged.
fn readable(store: &HashKv) -> usize {
    let mut count = 0;
    for index in 0..COUNT {
        match store.get(&key(index)) {
            Ok(found) => {
                assert_eq!(found, Some(made(index)), "key {index}");
                count += 1;
            }
            Err(error) => assert!(matches!(error, Error::Corrupt { .. }) && index % 2 == 1, "key {index}: {error}"),
        }
    }
    let mut shown = 0;
    let walked = store.for_each(&mut |_, _| {
        shown += 1;
        Visit::More
    });
    assert_eq!((shown, walked.is_ok()), (count, count == COUNT));
    let findings = store.verify(&mut |_| ()).expect("verify").findings;
    assert!(findings.len() >= COUNT - count, "{} findings", findings.len());
    count
}

/// Regression: the whole store was refused, in salvage too, and an empty file was created.
#[test]
fn without_the_file_a_salvage_reads_the_index_and_changes_nothing() {
    let (scratch, file) = store();
    let whole = fs::read(&file).expect("a file");
    for left in [None, Some(100), Some(4095)] {
        match left {
            None => fs::remove_file(&file).expect("removed"),
            Some(len) => fs::write(&file, &whole[..len]).expect("written"),
        }
        let found = || fs::read(&file).ok().map(|bytes| bytes.len());
        let refused = HashKv::open(&scratch.store(), &options(false)).map(|_| ());
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{left:?}: {refused:?}");
        assert_eq!(found(), left);
        for workers in [0, 1] {
            let mut options = options(true);
            options.index.workers = workers;
            let store = HashKv::open(&scratch.store(), &options).expect("salvaged");
            assert_eq!(readable(&store), COUNT / 2, "{left:?}");
            let refused = store.put(b"more", &[1; 1000]);
            assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
            store.close().expect("close");
            assert_eq!(found(), left);
        }
    }
    // The file may only have been moved away.
    fs::write(&file, &whole).expect("written");
    let store = HashKv::open(&scratch.store(), &options(false)).expect("open");
    assert_eq!(readable(&store), COUNT);
}

#[test]
fn a_file_with_an_unreadable_superblock_is_only_read_in_salvage() {
    let (scratch, file) = store();
    let mut bytes = fs::read(&file).expect("a file");
    bytes.truncate(4096 + 5000);
    bytes[..4096].fill(7);
    fs::write(&file, &bytes).expect("written");
    let refused = HashKv::open(&scratch.store(), &options(false)).map(|_| ());
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    let store = HashKv::open(&scratch.store(), &options(true)).expect("salvaged");
    // The first block of the first segment holds some values.
    assert!((COUNT / 2 + 1..COUNT).contains(&readable(&store)));
    store.close().expect("close");
    assert_eq!(fs::read(&file).expect("a file"), bytes, "nothing is changed");
}

/// Regression: a flipped bit of the version was taken for a newer format, and the store was
/// refused.
#[test]
fn a_flipped_bit_of_the_superblock_is_repaired_and_is_no_other_format() {
    const SUPERBLOCK: usize = 28;
    let (scratch, file) = store();
    let whole = fs::read(&file).expect("a file");
    for bit in 0..SUPERBLOCK * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&file, &bytes).expect("written");
        match HashKv::open(&scratch.store(), &options(false)) {
            Ok(store) => {
                for index in [0, 1, COUNT - 2, COUNT - 1] {
                    assert_eq!(store.get(&key(index)).expect("get"), Some(made(index)), "bit {bit}, key {index}");
                }
                store.close().expect("close");
            }
            Err(error) => panic!("bit {bit}: {error}"),
        }
    }
}

/// Regression: one missing byte made the whole file unreadable.
#[test]
fn a_file_cut_inside_a_block_loses_the_values_after_the_cut() {
    for len in [5000, 100_000] {
        let (scratch, file) = store();
        assert!(fs::metadata(&file).expect("a file").len() > len);
        cut(&file, len);
        let store = HashKv::open(&scratch.store(), &options(false)).expect("open");
        let before = readable(&store);
        assert!((COUNT / 2..COUNT).contains(&before) && (before > COUNT / 2) == (len > 5000), "{before}");
        // Overwritten keys are readable again, in a file that grows.
        (0..COUNT).for_each(|index| store.put(&key(index), &made(index)).expect("put"));
        store.settle().expect("settle");
        assert_eq!(readable(&store), COUNT);
        store.close().expect("close");
        drop(store);
        let store = HashKv::open(&scratch.store(), &options(false)).expect("open");
        assert_eq!(readable(&store), COUNT);
    }
}

/// Creates a closed store with keys that expire far in the future. Returns that expiry.
fn expiring_store() -> (Scratch, Option<Expiry>) {
    let scratch = Scratch::new();
    let expiry = Some(Expiry::after(Duration::from_secs(1 << 30)));
    let store = HashKv::create(&scratch.store(), &options(false)).expect("create");
    (0..COUNT).for_each(|index| store.put_expiring(&key(index), &made(index), expiry).expect("put"));
    store.settle().expect("settle");
    store.close().expect("close");
    drop(store);
    (scratch, expiry)
}

/// Regression: segments that were cut off were reused. A key that expires later was then taken for
/// expired.
#[test]
fn a_key_that_expires_and_whose_value_was_cut_off_stays_damaged_when_space_is_used_again() {
    let (scratch, _) = expiring_store();
    let file = scratch.store().join("values.0000");
    let len = fs::metadata(&file).expect("a file").len();
    cut(&file, len / 4 / 4096 * 4096);
    let store = HashKv::open(&scratch.store(), &options(false)).expect("opens");
    let lost: Vec<usize> = (0..COUNT).filter(|index| store.get(&key(*index)).is_err()).collect();
    assert!(lost.len() > COUNT / 8, "{}", lost.len());
    let mut refused = false;
    for index in COUNT..3 * COUNT {
        refused |= store.put(&key(index), &made(index)).is_err();
    }
    store.settle().expect("settle");
    assert!(!refused, "there is room for the new values");
    for index in lost {
        let found = store.get(&key(index));
        assert!(matches!(found, Err(Error::Corrupt { .. })), "key {index}: {found:?}");
    }
}

fn pool_files(scratch: &Scratch) -> Vec<PathBuf> {
    let files = fs::read_dir(scratch.store()).expect("a directory").map(|entry| entry.expect("an entry").path());
    files.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pool."))).collect()
}

/// Returns the pool's files, without the values file.
fn read_pool(scratch: &Scratch) -> Vec<(PathBuf, Vec<u8>)> {
    pool_files(scratch).into_iter().map(|path| (path.clone(), fs::read(path).expect("reads"))).collect()
}

fn write_pool(scratch: &Scratch, files: &[(PathBuf, Vec<u8>)]) {
    pool_files(scratch).iter().for_each(|path| fs::remove_file(path).expect("removed"));
    files.iter().for_each(|(path, bytes)| fs::write(path, bytes).expect("written"));
}

/// Regression: a salvage freed the space of all values that the older index does not name.
#[test]
fn a_salvage_of_an_older_index_changes_nothing_of_the_values_of_the_newer_one() {
    const MANY: usize = 4000;
    let scratch = Scratch::new();
    HashKv::create(&scratch.store(), &options(false)).expect("create").close().expect("close");
    let older = read_pool(&scratch);
    let store = HashKv::open(&scratch.store(), &options(false)).expect("opens");
    (0..MANY).for_each(|index| store.put(&key(index), &value(index, 1, 1000)).expect("put"));
    store.settle().expect("settle");
    store.close().expect("close");
    drop(store);
    let newer = read_pool(&scratch);
    let values = scratch.store().join("values.0000");
    let bytes = fs::read(&values).expect("reads");
    write_pool(&scratch, &older);
    let store = HashKv::open(&scratch.store(), &options(true)).expect("opens in salvage");
    assert_eq!(store.get(&key(1)).expect("get"), None, "the older index does not have it");
    let _ = store.close();
    drop(store);
    assert!(fs::read(&values).expect("reads") == bytes, "the file of values was changed");
    write_pool(&scratch, &newer);
    let store = HashKv::open(&scratch.store(), &options(false)).expect("opens");
    (0..MANY).for_each(|index| assert!(store.get(&key(index)).expect("get") == Some(value(index, 1, 1000)), "{index}"));
}

/// The pool's files of an earlier clean stop name values in space that was reused since.
#[test]
fn an_older_index_is_refused_and_in_salvage_answers_no_absence_of_a_key_whose_expiry_is_far_away() {
    let (scratch, expiry) = expiring_store();
    let older = read_pool(&scratch);
    let store = HashKv::open(&scratch.store(), &options(false)).expect("opens");
    for round in 2..30 {
        (0..COUNT).for_each(|index| store.put_expiring(&key(index), &value(index, round, 1000), expiry).expect("put"));
    }
    store.settle().expect("settle");
    store.close().expect("close");
    drop(store);
    write_pool(&scratch, &older);
    for _ in 0..2 {
        let refused = HashKv::open(&scratch.store(), &options(false)).err().expect("the pool is older than its values");
        assert!(matches!(&refused, Error::Corrupt { place, .. } if place == "values.0000"), "{refused}");
    }
    let store = HashKv::open(&scratch.store(), &options(true)).expect("opens");
    let mut damaged = 0;
    for index in 0..COUNT {
        match store.get(&key(index)) {
            Ok(found) => assert!(found == Some(made(index)), "key {index}: {}", found.is_some()),
            Err(error) => {
                assert!(matches!(error, Error::Corrupt { .. }), "key {index}: {error}");
                damaged += 1;
            }
        }
    }
    assert!(damaged > COUNT / 8, "{damaged} of the older values were written over");
}

/// Creates a store with other values for the same keys, at the same lengths and offsets.
fn store_of(version: u32) -> Scratch {
    let scratch = Scratch::new();
    let store = HashKv::create(&scratch.store(), &options(false)).expect("create");
    (0..COUNT).for_each(|index| store.put(&key(index), &value(index, version, 1000)).expect("put"));
    store.settle().expect("settle");
    store.close().expect("close");
    scratch
}

/// Opens the store strictly and in salvage: no value of the other version may be returned.
fn assert_no_foreign_value(scratch: &Scratch, foreign: u32) {
    let refused = HashKv::open(&scratch.store(), &options(false)).err().expect("the values are not of this pool");
    assert!(matches!(&refused, Error::Corrupt { place, .. } if place == "values.0000"), "{refused}");
    let store = HashKv::open(&scratch.store(), &options(true)).expect("opens in salvage");
    for index in 0..COUNT {
        let answer = store.get(&key(index));
        assert!(!matches!(&answer, Ok(Some(found)) if *found == value(index, foreign, 1000)), "key {index}");
        assert!(!matches!(answer, Ok(None)), "key {index} is absent");
    }
}

/// Regression: values of another store were returned, and `verify` was clean.
#[test]
fn the_values_file_of_another_store_is_refused_and_none_of_its_values_is_answered() {
    let (own, other) = (store_of(1), store_of(2));
    fs::copy(other.store().join("values.0000"), own.store().join("values.0000")).expect("copied");
    assert_no_foreign_value(&own, 2);
}

/// Two copies of a store, with values then overwritten separately.
#[test]
fn the_values_file_of_a_copy_that_was_used_separately_is_refused() {
    let (own, other) = (store_of(1), Scratch::new());
    fs::create_dir_all(other.store()).expect("a directory");
    for entry in fs::read_dir(own.store()).expect("a directory") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), other.store().join(entry.file_name())).expect("copied");
    }
    for (scratch, version) in [(&own, 3), (&other, 4)] {
        let store = HashKv::open(&scratch.store(), &options(false)).expect("opens");
        (0..COUNT).for_each(|index| store.put(&key(index), &value(index, version, 1000)).expect("put"));
        store.settle().expect("settle");
        store.close().expect("close");
    }
    fs::copy(other.store().join("values.0000"), own.store().join("values.0000")).expect("copied");
    let refused = HashKv::open(&own.store(), &options(false)).err().expect("the values are of the other copy");
    assert!(matches!(&refused, Error::Corrupt { place, .. } if place == "values.0000"), "{refused}");
}
