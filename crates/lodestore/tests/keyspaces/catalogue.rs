//! The catalogue after damage and after each step of a creation and a drop.

use std::path::Path;

use lodestore::{Db, Error, Result};

use crate::setup::{HEADER, each, raw_ids, slot, with_raw};

/// Makes a store with keyspaces `a` and `b`, and a pair in each and in the default keyspace.
fn filled(db: &Db) {
    for name in ["a", "b"] {
        db.keyspace(name).and_then(|map| map.put("k", name)).expect("a keyspace");
    }
    db.put("k", "default").expect("put");
}

#[track_caller]
fn assert_corrupt<T>(outcome: Result<T>, what: &str) {
    match outcome {
        Err(Error::Corrupt { what: told, .. }) => assert!(told.contains(what), "{told}"),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("the damage is not reported"),
    }
}

#[test]
fn a_damaged_header_is_an_error_of_all_names_and_not_an_empty_catalogue() {
    each(|setup, path| {
        filled(&setup.open(path));
        let header = with_raw(path, |store| store.get(HEADER).expect("get").expect("a header"));
        let damages: [(Option<&[u8]>, &str); 3] = [
            (Some(b"\x01odd"), "the header is unreadable"),
            (Some(b""), "the header is unreadable"),
            (None, "header is missing"),
        ];
        for (damaged, what) in damages {
            with_raw(path, |store| match damaged {
                Some(value) => store.put(HEADER, value).expect("put"),
                None => assert!(store.delete(HEADER).expect("delete")),
            });
            let db = setup.open(path);
            for name in ["a", "new"] {
                assert_corrupt(db.keyspace(name), what);
                assert_corrupt(db.drop_keyspace(name), what);
            }
            assert_corrupt(db.keyspaces(), what);
            assert_corrupt(db.settle(), what);
            assert_eq!(db.get("k").expect("get").expect("there"), "default");
            assert_eq!(db.count().expect("count"), 1, "{}", setup.name());
        }
        with_raw(path, |store| store.put(HEADER, &header).expect("put"));
        let db = setup.open(path);
        assert_eq!(db.keyspaces().expect("names"), ["a", "b"]);
    });
}

#[test]
fn a_damaged_slot_hides_no_other_name_and_its_own_name_is_not_created_again() {
    each(|setup, path| {
        filled(&setup.open(path));
        let whole = with_raw(path, |store| store.get(&slot(0)).expect("get").expect("a slot"));
        let never_given = [&[1, 1, 9, 0, 0, 0], &whole[6..]].concat();
        let repeated = [&whole[..6], b"b"].concat();
        let same_id = [&[1, 1, 3, 0, 0, 0], &whole[6..]].concat();
        let damages: [(Option<&[u8]>, &str); 5] = [
            (None, "slot 0 is missing"),
            (Some(b"\x01\x07"), "slot 0 is unreadable"),
            (Some(&never_given), "never assigned"),
            (Some(&repeated), "slots 0 and 1"),
            (Some(&same_id), "slots 0 and 1"),
        ];
        for (damaged, what) in damages {
            with_raw(path, |store| match damaged {
                Some(value) => store.put(&slot(0), value).expect("put"),
                None => assert!(store.delete(&slot(0)).expect("delete")),
            });
            let db = setup.open(path);
            assert_corrupt(db.keyspaces(), what);
            assert_corrupt(db.drop_keyspace("new"), what);
            assert_corrupt(db.keyspace("a"), what);
            match what {
                // The damaged one of the two slots is unknown.
                "slots 0 and 1" => assert_corrupt(db.keyspace("b"), what),
                _ => assert_eq!(db.keyspace("b").expect("opens").get("k").expect("get").expect("there"), "b"),
            }
            assert_eq!(db.count().expect("count"), 1, "{}", setup.name());
        }
        with_raw(path, |store| store.put(&slot(0), &whole).expect("put"));
        let db = setup.open(path);
        assert_eq!(db.keyspace("a").expect("opens").get("k").expect("get").expect("there"), "a");
    });
}

#[test]
fn a_newer_catalogue_is_refused_as_such() {
    each(|setup, path| {
        filled(&setup.open(path));
        with_raw(path, |store| store.put(HEADER, &[2; 9]).expect("put"));
        let refused = setup.open(path).keyspace("a").map(drop);
        assert!(matches!(&refused, Err(Error::NewerFormat { part, found: 2, known: 1 }) if part == "keyspaces"));
    });
}

#[test]
fn a_creation_that_stopped_after_its_header_lost_an_id_and_nothing_else() {
    each(|setup, path| {
        filled(&setup.open(path));
        // Two slots, ids 2 and 3. A creation raised the next id to 5, and stopped.
        with_raw(path, |store| store.put(HEADER, &[1, 5, 0, 0, 0, 2, 0, 0, 0]).expect("put"));
        let db = setup.open(path);
        assert_eq!(db.keyspaces().expect("names"), ["a", "b"], "{}", setup.name());
        db.keyspace("c").and_then(|map| map.put("k", "v")).expect("creates");
        drop(db);
        assert_eq!(raw_ids(path), [2, 3, 5], "{}", setup.name());
        let header = with_raw(path, |store| store.get(HEADER).expect("get").expect("a header"));
        assert_eq!(header, [1, 6, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(setup.open(path).keyspaces().expect("names"), ["a", "b", "c"], "the slot after the counted ones");
    });
}

#[test]
fn the_last_id_is_never_given() {
    each(|setup, path| {
        filled(&setup.open(path));
        with_raw(path, |store| store.put(HEADER, &[1, 0xFE, 0xFF, 0xFF, 0xFF, 2, 0, 0, 0]).expect("put"));
        let db = setup.open(path);
        let last = db.keyspace("c").expect("creates");
        last.put("k", "v").expect("put");
        assert_eq!((last.count().expect("count"), db.count().expect("count")), (1, 1), "{}", setup.name());
        for _ in 0..2 {
            assert!(matches!(db.keyspace("d").map(drop), Err(Error::KeyspacesExhausted)));
        }
        assert!(db.drop_keyspace("c").expect("drops"));
        assert!(matches!(db.keyspace("c").map(drop), Err(Error::KeyspacesExhausted)));
        assert_eq!(db.keyspace("a").expect("opens").get("k").expect("get").expect("there"), "a");
    });
}

/// Flips a bit in each occurrence of `bytes` in the files below `dir`. Returns the number of them.
fn flip(dir: &Path, bytes: &[u8]) -> usize {
    let mut flips = 0;
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            flips += flip(&path, bytes);
            continue;
        }
        let mut content = std::fs::read(&path).expect("a file");
        let places: Vec<usize> =
            content.windows(bytes.len()).enumerate().filter(|(_, at)| *at == bytes).map(|(at, _)| at).collect();
        places.iter().for_each(|at| content[*at] ^= 1);
        if !places.is_empty() {
            std::fs::write(&path, content).expect("a write");
        }
        flips += places.len();
    }
    flips
}

#[test]
fn a_flipped_bit_in_a_name_is_reported_and_the_name_is_not_taken_for_missing() {
    each(|setup, path| {
        let (name, setup_name) = ("zebra-keyspace", setup.name());
        let db = setup.open(path);
        db.keyspace(name).and_then(|map| map.put("k", "v")).expect("a keyspace");
        (0..100_u8).try_for_each(|number| db.put([number], "v")).expect("puts");
        drop(db);
        assert!(flip(path, name.as_bytes()) > 0, "{setup_name}: the name is in no file");
        match setup.builder(path).open() {
            Ok(db) => {
                assert_corrupt(db.keyspace(name), "");
                assert_corrupt(db.drop_keyspace(name), "");
                assert_corrupt(db.keyspaces(), "");
            }
            // A matrix whose only device is damaged has too few.
            Err(Error::Corrupt { .. } | Error::TooFewDevices { .. }) => {}
            Err(error) => panic!("{setup_name}: {error}"),
        }
    });
}
