//! The rule for damaged stores: a read returns the right value or an error, and no key disappears
//! without a report.
//!
//! The tests know where tables are, and damage every word or line of them in turn.

use std::os::unix::fs::FileExt;
use std::path::Path;

use lodestore_contract::{Error, Store, Visit};
use lodestore_inplace::testing::Scratch;
use lodestore_nvht::{Nvht, NvhtOptions};

use crate::rule::{
    LINE, Medium, Model, PAGE, ROOT_AREA, ROOTS, Stop, check, key, options, salvaging, stop, with_keys_put_again,
};

/// Opens a store, in salvage if the strict open refuses it.
fn open_any(path: &Path) -> Option<Nvht> {
    Nvht::open(path, &options()).or_else(|_| Nvht::open(path, &salvaging())).ok()
}

/// Creates a store of a few keys, with one that is put often; stopped.
fn with_a_hot_key(path: &Path, how: Stop) -> Model {
    let store = Nvht::create(path, &options()).expect("create");
    let mut model = Model::new();
    for round in 0..40 {
        for index in 0..6 {
            if round == 0 || index == 0 {
                let value = format!("value {round} of {index}").into_bytes();
                store.put(&key(index), &value).expect("put");
                model.insert(key(index), Some(value));
            }
        }
    }
    assert!(store.delete(&key(5)).expect("delete"));
    model.insert(key(5), None);
    stop(store, how);
    model
}

#[test]
fn a_flipped_bit_of_a_table_returns_no_older_value_and_loses_no_key_silently() {
    for how in [Stop::Kill, Stop::Clean] {
        let scratch = Scratch::new();
        let path = scratch.store();
        let model = with_a_hot_key(&path, how);
        let medium = Medium::of(&path);
        let mut silent = 0;
        for (at, bit) in medium.table_words().into_iter().flat_map(|at| (0..64).map(move |bit| (at, bit))) {
            medium.write(|bytes| bytes[at + bit / 8] ^= 1 << (bit % 8));
            match check(&path, &model) {
                Ok(reported) => silent += usize::from(!reported),
                Err(wrong) => panic!("{how:?}, bit {bit} of the word at {at}: {wrong}"),
            }
        }
        assert_eq!(silent, 0, "{how:?}: every flipped bit is reported");
    }
}

#[test]
fn a_flipped_bit_restores_no_deleted_value() {
    for how in [Stop::Kill, Stop::Clean] {
        let scratch = Scratch::new();
        let path = scratch.store();
        let store = Nvht::create(&path, &options()).expect("create");
        (0..4).for_each(|index| store.put(&key(index), b"first").expect("put"));
        stop(store, how);
        let medium = Medium::of(&path);
        for (at, bit) in medium.table_words().into_iter().flat_map(|at| (0..64).map(move |bit| (at, bit))) {
            medium.write(|bytes| bytes[at + bit / 8] ^= 1 << (bit % 8));
            let Some(store) = open_any(&path) else { continue };
            let put: Vec<u32> = (0..4).filter(|index| store.put(&key(*index), b"second").is_ok()).collect();
            let deleted: Vec<u32> = put.iter().copied().filter(|index| store.delete(&key(*index)).is_ok()).collect();
            let _ = store.put(b"another key", b"value");
            drop(store);
            let Some(store) = open_any(&path) else { continue };
            store.wait_recovered().expect("recovered");
            for index in deleted {
                let found = store.get(&key(index));
                assert!(
                    !matches!(found, Ok(Some(_))),
                    "{how:?}, bit {bit} of the word at {at}: key {index} is {found:?} after a put and a delete"
                );
            }
        }
    }
}

/// Damages every line that is not empty, one at a time. Returns the number of damaged lines, and
/// descriptions of the violations.
fn line_by_line(how: Stop, damage: impl Fn(&mut [u8], &[u8])) -> (usize, Vec<String>) {
    let scratch = Scratch::new();
    let path = scratch.store();
    let (model, older) = with_keys_put_again(&path, how);
    let medium = Medium::of(&path);
    let (mut damaged, mut wrong) = (0, Vec::new());
    // The pool's own headers do not belong to the engine.
    for at in (ROOT_AREA..medium.bytes.len()).step_by(LINE) {
        let mut line = medium.bytes[at..at + LINE].to_vec();
        damage(&mut line, &older[at..at + LINE]);
        if line == medium.bytes[at..at + LINE] {
            continue;
        }
        damaged += 1;
        medium.write(|bytes| bytes[at..at + LINE].copy_from_slice(&line));
        if let Err(what) = check(&path, &model) {
            wrong.push(format!("line at {at}: {what}"));
        }
    }
    (damaged, wrong)
}

#[test]
fn a_zeroed_line_loses_no_key_silently() {
    for how in [Stop::Kill, Stop::Clean] {
        let (damaged, wrong) = line_by_line(how, |line, _| line.fill(0));
        println!("{how:?}: {} of {damaged} zeroed lines break the rule", wrong.len());
        assert!(damaged > 80 && wrong.is_empty(), "{how:?}, {} of {damaged}: {wrong:#?}", wrong.len());
    }
}

#[test]
fn an_older_line_in_a_sealed_store_returns_no_older_value() {
    let (damaged, wrong) = line_by_line(Stop::Clean, |line, older| line.copy_from_slice(older));
    println!("{} of {damaged} older lines break the rule", wrong.len());
    assert!(damaged > 40 && wrong.is_empty(), "{} of {damaged}: {wrong:#?}", wrong.len());
}

#[test]
fn keys_of_a_zeroed_line_are_reported_after_their_table_grew_until_they_are_put() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let store = Nvht::create(&path, &options()).expect("create");
    (0..200).for_each(|index| store.put(&key(index), b"value").expect("put"));
    drop(store);
    let medium = Medium::of(&path);
    let line = medium.table_words()[40] / LINE * LINE;
    medium.write(|bytes| bytes[line..line + LINE].fill(0));
    let store = Nvht::open(&path, &options()).expect("open");
    store.wait_recovered().expect("recovered");
    let outcomes = |store: &Nvht| -> Vec<u32> {
        let absent = (0..200).filter(|index| matches!(store.get(&key(*index)), Ok(None))).count();
        assert_eq!(absent, 0, "a key of the zeroed line is not absent");
        (0..200).filter(|index| store.get(&key(*index)).is_err()).collect()
    };
    let lost = outcomes(&store);
    assert!((1..=7).contains(&lost.len()), "{lost:?}");
    let grown = store.stats().engine_counters["tables_grown"];
    (200..1000).for_each(|index| store.put(&key(index), b"more").expect("put"));
    assert!(store.stats().engine_counters["tables_grown"] > grown + 1);
    assert_eq!(outcomes(&store), lost);
    store.close().expect("close");
    drop(store);
    let store = Nvht::open(&path, &options()).expect("the marks are part of what the stop sealed");
    store.wait_recovered().expect("recovered");
    assert_eq!(outcomes(&store), lost);
    assert!(store.for_each(&mut |_, _| Visit::More).is_err());
    lost.iter().for_each(|index| store.put(&key(*index), b"again").expect("put"));
    assert_eq!(outcomes(&store), [0; 0]);
}

#[test]
fn an_older_or_zeroed_page_in_a_sealed_store_returns_no_older_value() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let (model, older) = with_keys_put_again(&path, Stop::Clean);
    let medium = Medium::of(&path);
    let mut damaged = 0;
    for at in (ROOT_AREA..medium.bytes.len()).step_by(PAGE) {
        for page in [&older[at..at + PAGE], &[0; PAGE]] {
            if *page != medium.bytes[at..at + PAGE] {
                damaged += 1;
                medium.write(|bytes| bytes[at..at + PAGE].copy_from_slice(page));
                // A page of the pool may be unnecessary after a clean stop.
                let outcome = check(&path, &model);
                assert!(outcome.is_ok(), "page at {at}: {outcome:?}");
            }
        }
    }
    assert!(damaged > 6, "{damaged} pages");
}

/// Offsets of the headers of the records that have these keys, by the keys' bytes.
fn records_of(medium: &Medium, model: &Model) -> Vec<usize> {
    let at_key = |key: &[u8]| medium.bytes.windows(key.len()).position(|bytes| bytes == key);
    model.keys().filter_map(|key| at_key(key)).map(|at| at - 16).collect()
}

/// Returns the number of slots in the lines after the last home line of the only partition's table.
fn slots_after_home_lines(medium: &Medium) -> usize {
    let root = medium.word(ROOTS);
    let first = (root & !63) as usize + LINE + (2 << (root & 63)) * LINE;
    (first..first + 3 * LINE).step_by(8).filter(|at| at % LINE != 0 && medium.word(*at) != 0).count()
}

#[test]
fn a_zeroed_record_is_an_error_of_a_walk_also_after_the_last_home_line() {
    let mut tried = 0;
    for first in (0..400).step_by(20) {
        let scratch = Scratch::new();
        let path = scratch.store();
        let store = Nvht::create(&path, &NvhtOptions { load_percent: 95, ..options() }).expect("create");
        let mut model = Model::new();
        for index in first..first + 13 {
            store.put(&key(index), b"value").expect("put");
            model.insert(key(index), Some(b"value".to_vec()));
        }
        drop(store);
        let medium = Medium::of(&path);
        if slots_after_home_lines(&medium) == 0 {
            continue;
        }
        tried += 1;
        for at in records_of(&medium, &model) {
            medium.write(|bytes| bytes[at..at + 16].fill(0));
            match check(&path, &model) {
                Ok(reported) => assert!(reported, "record at {at}: nothing is reported"),
                Err(wrong) => panic!("record at {at}: {wrong}"),
            }
        }
    }
    assert!(tried > 0, "no slot stands behind the last home line");
}

#[test]
fn a_line_of_another_partition_is_an_error_of_a_walk_and_shows_no_key_twice() {
    let scratch = Scratch::new();
    let path = scratch.store();
    let two = NvhtOptions { partitions: 2, initial_capacity: 28, ..options() };
    let store = Nvht::create(&path, &two).expect("create");
    (0..20).for_each(|index| store.put(&key(index), b"value").expect("put"));
    drop(store);
    let medium = Medium::of(&path);
    let lines_of = |partition: usize| (medium.word(ROOTS + 32 * partition) & !63) as usize + LINE;
    for (from, to) in [(lines_of(0), lines_of(1)), (lines_of(1), lines_of(0))] {
        for line in 0..3 {
            let (from, to) = (from + line * LINE, to + line * LINE);
            medium.write(|bytes| bytes.copy_within(from..from + LINE, to));
            let Ok(store) = Nvht::open(&path, &two) else { continue };
            let mut shown = std::collections::BTreeSet::new();
            let walked = store.for_each(&mut |key, _| {
                assert!(shown.insert(key.to_vec()), "line {line}: {} is shown twice", String::from_utf8_lossy(key));
                Visit::More
            });
            assert!(walked.is_err() || shown.len() == 20, "line {line}: {} keys without an error", shown.len());
        }
    }
}

/// Regression: the root named a table that a growth had left, or had an earlier cursor. Old values
/// were returned again.
#[test]
fn an_older_root_of_a_killed_store_is_refused() {
    let dir = Scratch::new();
    let path = dir.path().join("store");
    let store = Nvht::create(&path, &options()).expect("create");
    let mut model = Model::new();
    let mut older: Vec<[u8; 32]> = Vec::new();
    let root_of = |bytes: &[u8]| -> [u8; 32] { bytes[ROOTS..ROOTS + 32].try_into().expect("32 bytes") };
    for index in 0..400 {
        for round in 0..2 {
            let value = format!("value {round} of {index}").into_bytes();
            store.put(&key(index), &value).expect("put");
            model.insert(key(index), Some(value));
        }
        let value = format!("new value of {}", index / 2).into_bytes();
        store.put(&key(index / 2), &value).expect("put");
        model.insert(key(index / 2), Some(value));
        let root = root_of(&Medium::of(&path).bytes);
        if older.last() != Some(&root) {
            older.push(root);
        }
    }
    stop(store, Stop::Kill);
    let medium = Medium::of(&path);
    assert_eq!(older.pop(), Some(root_of(&medium.bytes)));
    assert!(older.len() >= 10, "{}", older.len());
    let mut salvages = 0;
    for (index, root) in older.iter().enumerate() {
        medium.write(|bytes| bytes[ROOTS..ROOTS + 32].copy_from_slice(root));
        assert_eq!(check(&path, &model), Ok(true), "root {index} of {}", older.len());
        // The space of an early table was reused.
        let Ok(salvaged) = Nvht::open(&path, &salvaging()) else { continue };
        salvages += 1;
        assert!(salvaged.wait_recovered().is_ok() && salvaged.stats().recovery.corrupt > 0);
        assert!(!salvaged.verify(&mut |_| ()).expect("verifies").is_clean());
    }
    assert!(salvages > 0);
    medium.write(|_| ());
    assert_eq!(check(&path, &model), Ok(false), "the newest root");
}

/// A damaged stage is reported, and an older one changes nothing.
#[test]
fn a_damaged_stage_of_a_table_is_refused_and_an_older_one_is_not() {
    let dir = Scratch::new();
    let path = dir.path().join("store");
    let store = Nvht::create(&path, &options()).expect("create");
    let mut model = Model::new();
    let mut index = 0;
    // Until a growth is in progress.
    while index < 60 || Medium::of(&path).word(ROOTS + 8) == 0 {
        let value = format!("value of {index}").into_bytes();
        store.put(&key(index), &value).expect("put");
        model.insert(key(index), Some(value));
        index += 1;
    }
    stop(store, Stop::Kill);
    let medium = Medium::of(&path);
    for table in [ROOTS, ROOTS + 8] {
        let stage_at = (medium.word(table) & !63) as usize + 24;
        medium.write(|bytes| bytes[stage_at..stage_at + 8].fill(0));
        assert_eq!(check(&path, &model), Ok(false), "no stage");
        for bit in 0..64 {
            medium.write(|bytes| bytes[stage_at + bit / 8] ^= 1 << (bit % 8));
            let is_zero = medium.word(stage_at) == 0;
            assert_eq!(check(&path, &model), Ok(true), "bit {bit}, {is_zero}");
        }
    }
}

/// Regression: the stop sealed a table that was damaged since the open. Keys were then absent
/// without an error.
#[test]
fn a_stop_seals_no_table_that_was_damaged_while_the_store_was_open() {
    let dir = Scratch::new();
    let path = dir.path().join("store");
    let (model, _) = with_keys_put_again(&path, Stop::Clean);
    let lines: Vec<usize> = Medium::of(&path).table_words().into_iter().filter(|at| at % LINE == 0).collect();
    let sound = Medium::of(&path);
    for line in lines {
        sound.write(|_| ());
        let store = Nvht::open(&path, &options()).expect("open");
        // In place: the open store has the file mapped.
        let file = std::fs::File::options().write(true).open(&sound.file).expect("writable");
        file.write_all_at(&[0; LINE], line as u64).expect("written");
        assert!(matches!(store.close(), Err(Error::Corrupt { .. })), "line at {line}");
        drop(store);
        assert_eq!(check(&path, &model), Ok(true), "line at {line}");
    }
}
