//! The handle from the user's point of view.

#![cfg_attr(not(feature = "hikv"), expect(unused_imports, reason = "tests of hikv use them"))]

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Barrier;

use lodestore::db::Engine;
use lodestore::{Db, Durability, Error};
use lodestore_contract::testing::Scratch;

const ENGINES: &[Engine] = &[
    #[cfg(feature = "hikv")]
    Engine::hikv(),
    #[cfg(feature = "nvht")]
    Engine::nvht(),
    #[cfg(feature = "fluidkv")]
    Engine::fluidkv(),
    #[cfg(feature = "hashkv")]
    Engine::hashkv(),
];

/// Returns a temporary directory and a path in it at which no store exists yet.
fn scratch_path() -> (Scratch, PathBuf) {
    let dir = Scratch::new();
    let path = dir.store();
    (dir, path)
}

fn small(path: &PathBuf) -> lodestore::db::Builder {
    Db::builder(path).capacity(32 << 20)
}

#[test]
fn a_second_open_in_one_process_is_distinguished_from_an_open_in_another() {
    let (_dir, path) = scratch_path();
    for engine in ENGINES {
        let path = path.join(engine.name().expect("a name"));
        let db = small(&path).engine(engine.clone()).open().expect("creates");
        let refused = small(&path).open().expect_err("open already");
        assert!(matches!(refused, Error::Locked { .. }), "{refused:?}");
        let says = format!("{} is already open in this process: clone that `Db`", path.display());
        assert_eq!(refused.to_string(), says, "{engine:?}");
        db.close().expect("close");
        drop(db);
        small(&path).open().expect("opens again");
    }
}

#[test]
fn a_store_is_created_by_the_first_open_and_opened_by_the_next() {
    for engine in ENGINES {
        let (_dir, path) = scratch_path();
        for round in 0..3 {
            let db = small(&path).engine(engine.clone()).open().expect("opens or creates");
            assert_eq!(db.count().expect("count"), round, "{engine:?}");
            db.put(format!("key {round}"), "value").expect("put");
            assert_eq!(Some(db.engine()), engine.name());
        }
    }
}

#[test]
fn the_last_handle_that_is_dropped_closes_the_store_cleanly() {
    for engine in ENGINES {
        let (_dir, path) = scratch_path();
        let db = small(&path).engine(engine.clone()).open().expect("creates");
        let clone = db.clone();
        db.put("k", "v").expect("put");
        drop(db);
        assert_eq!(clone.get("k").expect("get").expect("there"), "v");
        drop(clone);
        let header = lodestore::medium::doctor(&path).expect("a diagnosis").store.expect("a store");
        assert!(header.expect("a header").clean, "{engine:?}");
        let db = small(&path).open().expect("opens");
        assert_eq!(db.get("k").expect("get").expect("there"), "v");
    }
}

#[cfg(feature = "hikv")]
#[test]
fn a_walk_keeps_the_store_open_and_comes_from_both_ends() {
    let (_dir, path) = scratch_path();
    let db = small(&path).engine(Engine::hikv()).open().expect("creates");
    let key = |number: u32| format!("key{number:04}");
    for number in 0..1000 {
        db.put(key(number), number.to_le_bytes()).expect("put");
    }
    let mut pairs = db.range(key(10)..key(990)).expect("a range");
    drop(db);
    let mut numbers: Vec<u32> = (10..990).collect();
    // One from the front, two from the end, until they meet.
    while let Some(pair) = pairs.next() {
        assert_eq!(pair.expect("a pair").0, key(numbers.remove(0)).as_str());
        for _ in 0..2 {
            if let Some(pair) = pairs.next_back() {
                assert_eq!(pair.expect("a pair").0, key(numbers.pop().expect("one more")).as_str());
            }
        }
    }
    assert!(numbers.is_empty() && pairs.next_back().is_none());
    drop(pairs);
    let db = small(&path).open().expect("it was closed");
    assert_eq!(db.prefix("key00").expect("a prefix").rev().count(), 100);
    assert_eq!(db.iter().expect("all").count(), 1000);
    let above = (Bound::Excluded(key(998)), Bound::Unbounded);
    assert_eq!(db.range(above).expect("the last").count(), 1);
    assert_eq!(db.range(key(5)..key(5)).expect("none").count(), 0);
}

#[cfg(feature = "fluidkv")]
#[test]
fn all_pairs_and_all_keys_are_walked_from_both_ends_in_a_store_a_keyspace_and_a_snapshot() {
    let (_dir, path) = scratch_path();
    let db = small(&path).engine(Engine::fluidkv()).open().expect("creates");
    let users = db.keyspace("users").expect("a keyspace");
    for key in ["a", "b", "c"] {
        db.put(key, "of the store").expect("put");
        users.put(key, "of users").expect("put");
    }
    let view = db.snapshot().expect("a snapshot").of(&users).expect("a view");
    users.delete("b").expect("delete");
    let text = |value: &lodestore::Value| value.as_str().expect("text").to_string();
    let pairs = |walk: lodestore::db::Pairs| walk.map(|pair| pair.map(|(key, value)| (text(&key), text(&value))));
    let keys = |walk: lodestore::db::Keys| walk.map(|key| key.map(|key| text(&key)));
    let all: Result<Vec<_>, _> = pairs(db.iter().expect("pairs")).collect();
    assert_eq!(all.expect("a walk"), ["a", "b", "c"].map(|key| (key.to_string(), "of the store".to_string())));
    let back: Result<Vec<_>, _> = keys(db.keys().expect("keys")).rev().collect();
    assert_eq!(back.expect("a walk"), ["c", "b", "a"]);
    let all: Result<Vec<_>, _> = pairs(users.iter().expect("pairs")).collect();
    assert_eq!(all.expect("a walk"), ["a", "c"].map(|key| (key.to_string(), "of users".to_string())));
    let all: Result<Vec<_>, _> = keys(users.keys().expect("keys")).collect();
    assert_eq!(all.expect("a walk"), ["a", "c"]);
    let all: Result<Vec<_>, _> = pairs(view.iter()).rev().collect();
    assert_eq!(all.expect("a walk"), ["c", "b", "a"].map(|key| (key.to_string(), "of users".to_string())));
    let all: Result<Vec<_>, _> = keys(view.keys()).collect();
    assert_eq!(all.expect("a walk"), ["a", "b", "c"]);
    let [above, with]: [Result<Vec<_>, _>; 2] =
        [view.range_keys("b"..), view.prefix_keys("b")].map(|walk| keys(walk).collect());
    assert_eq!((above.expect("a walk"), with.expect("a walk")), (vec!["b".into(), "c".into()], vec!["b".to_string()]));
}

#[test]
fn many_keys_are_read_without_a_copy() {
    for engine in ENGINES {
        let (_dir, path) = scratch_path();
        let db = small(&path).engine(engine.clone()).open().expect("creates");
        let users = db.keyspace("users").expect("a keyspace");
        db.put("a", "1").expect("put");
        users.put("b", "2").expect("put");
        let mut seen = Vec::new();
        let mut see = |index: usize, value: Option<&[u8]>| seen.push((index, value.map(<[u8]>::to_vec)));
        db.multi_get_with(&[b"a", b"b"], &mut see).expect("reads");
        users.multi_get_with(&[b"a", b"b"], &mut see).expect("reads");
        db.multi_get_with(&[b"b", b"a"], &mut see).expect("reads");
        let expected = [(0, Some("1")), (1, None), (0, None), (1, Some("2")), (0, None), (1, Some("1"))];
        let expected = expected.map(|(index, value)| (index, value.map(|value| value.as_bytes().to_vec())));
        assert_eq!(seen, expected, "{engine:?}");
    }
}

#[cfg(feature = "hikv")]
#[test]
fn handles_have_a_text_for_logs_that_shows_no_keys_and_values() {
    let (_dir, path) = scratch_path();
    let builder = small(&path).engine(Engine::hikv()).events(std::sync::Arc::new(|_| {}));
    assert!(
        format!("{builder:?}").contains("capacity: 33554432") && format!("{builder:?}").contains("has_events: true")
    );
    let db = builder.open().expect("creates");
    let users = db.keyspace("users").expect("a keyspace");
    users.put("secret key", "secret value").expect("put");
    let mut batch = db.batch();
    batch.put(&users, "secret key", "secret value").require_absent(&db, "secret key");
    assert_eq!(format!("{batch:?}"), "WriteBatch { operations: 1, requirements: 1, refused: None, .. }");
    let mut tx = db.begin_transaction().expect("begins");
    tx.get(&users, "secret key").expect("get");
    tx.put(&users, "secret key", "secret value").expect("put");
    assert_eq!(format!("{tx:?}"), "Transaction { reads: 1, ranges: 0, writes: 1, .. }");
    assert_eq!(format!("{users:?}"), "Keyspace { name: \"users\", .. }");
    assert_eq!(format!("{:?}", users.keys().expect("keys")), "Keys { keyspace: \"users\", .. }");
    assert!(format!("{:?}", users.iter().expect("pairs")).starts_with("Pairs { keyspace: \"users\", range: "));
}

#[cfg(all(feature = "hikv", feature = "nvht"))]
#[test]
fn a_keyspace_as_a_store_reads_in_place_and_reports_the_options_of_its_store() {
    for engine in [Engine::hikv(), Engine::nvht()] {
        let (_dir, path) = scratch_path();
        let db = small(&path).engine(engine.clone()).set("partitions", "4").open().expect("creates");
        let users = db.keyspace("users").expect("a keyspace");
        users.put("k", "a value in its place").expect("put");
        let address = users.get_with("k", |value| value.as_ptr() as usize).expect("get").expect("a value");
        let mut seen = None;
        assert!(users.as_store().get_with(b"k", &mut |value| seen = Some(value.as_ptr() as usize)).expect("get"));
        assert_eq!(seen, Some(address), "{engine:?}: the value was copied");
        assert!(!users.as_store().get_with(b"l", &mut |_| panic!("there is no value")).expect("get"));
        assert_eq!(users.as_store().get(b"k").expect("get").expect("a value"), b"a value in its place");
        assert_eq!(users.as_store().creation_options().get("partitions"), Some("4"), "{engine:?}");
    }
}

#[cfg(feature = "hikv")]
#[test]
fn a_capacity_that_is_too_small_is_refused_by_the_name_of_its_setting() {
    let (_dir, path) = scratch_path();
    let refused = Db::builder(&path).engine(Engine::hikv()).capacity(4096).open().expect_err("too small").to_string();
    assert!(refused.starts_with("option capacity=4") && refused.contains("`Builder::"), "{refused}");
}

#[cfg(feature = "nvht")]
#[test]
fn an_engine_without_an_order_refuses_a_range_at_once() {
    let (_dir, path) = scratch_path();
    let db = small(&path).engine(Engine::nvht()).open().expect("creates");
    assert!(matches!(db.prefix("k").err(), Some(Error::Unsupported { .. })));
    assert!(matches!(db.iter().err(), Some(Error::Unsupported { .. })));
    assert!(matches!(db.keys().err(), Some(Error::Unsupported { .. })));
}

#[test]
fn a_missing_store_is_an_error_if_it_may_not_be_created() {
    let (_dir, path) = scratch_path();
    assert!(matches!(small(&path).create(false).open().err(), Some(Error::Missing { .. })));
    assert!(!path.exists());
}

#[cfg(all(feature = "hikv", feature = "nvht"))]
#[test]
fn an_engine_that_did_not_create_the_store_is_refused() {
    let (_dir, path) = scratch_path();
    drop(small(&path).engine(Engine::nvht()).open().expect("creates"));
    assert!(matches!(small(&path).engine(Engine::hikv()).open().err(), Some(Error::WrongEngine { .. })));
    assert_eq!(small(&path).open().expect("opens").engine(), "nvht");
}

#[cfg(feature = "hikv")]
#[test]
fn options_that_shape_a_store_apply_only_to_its_creation() {
    let (_dir, path) = scratch_path();
    for _ in 0..2 {
        let open = small(&path).engine(Engine::hikv()).set("partitions", "4").set("scrub-rate", "0").open();
        open.expect("creates, then opens");
    }
    let refused = small(&path).set("frob", "1").open().expect_err("no such option").to_string();
    assert!(refused.starts_with("option frob=1: engine hikv has no such option; its options are "), "{refused}");
    // The medium chooses the engine.
    let (_dir, path) = scratch_path();
    let chosen = lodestore::options::CreateOptions::new().engine("auto").choice(&path).expect("a choice").engine;
    let refused = small(&path).set("frob", "1").open().expect_err("no such option").to_string();
    assert!(refused.starts_with(&format!("option frob=1: engine {chosen} has no such option; ")), "{refused}");
}

#[cfg(feature = "hikv")]
#[test]
fn a_durability_is_raised_by_an_open_and_never_lowered() {
    let dir = Scratch::within(env!("CARGO_TARGET_TMPDIR").as_ref());
    let path = dir.path().join("store");
    let open = |durability| small(&path).engine(Engine::hikv()).durability(durability).open().expect("opens");
    assert_eq!(open(Durability::Process).durability(), Durability::Process);
    assert_eq!(open(Durability::Power).durability(), Durability::Power);
    assert_eq!(open(Durability::Process).durability(), Durability::Power);
}

#[cfg(feature = "hikv")]
#[test]
fn a_directory_with_foreign_files_is_refused_and_unchanged() {
    let (_dir, path) = scratch_path();
    std::fs::create_dir(&path).expect("a directory");
    std::fs::write(path.join("notes.txt"), "not a store").expect("a file");
    let refused = small(&path).engine(Engine::hikv()).open().expect_err("no store can be there");
    assert!(matches!(refused, Error::Exists { .. }), "{refused:?}");
    let names: Vec<_> =
        std::fs::read_dir(&path).expect("it is there").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names, ["notes.txt"]);
}

#[cfg(feature = "hikv")]
#[test]
fn one_of_many_threads_that_open_the_same_new_store_creates_it() {
    for _ in 0..8 {
        let (_dir, path) = scratch_path();
        let barrier = Barrier::new(4);
        let open = || {
            barrier.wait();
            small(&path).engine(Engine::hikv()).open()
        };
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let (there, refused): (Vec<_>, Vec<_>) = opened.into_iter().partition(Result::is_ok);
        assert_eq!(there.len(), 1);
        for refused in refused {
            assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
        }
    }
}
