//! The handle as its user sees it.

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
fn place() -> (Scratch, PathBuf) {
    let dir = Scratch::new();
    let path = dir.store();
    (dir, path)
}

fn small(path: &PathBuf) -> lodestore::db::Builder {
    Db::builder(path).capacity(32 << 20)
}

#[test]
fn a_second_open_in_one_process_is_told_from_an_open_in_another() {
    let (_dir, path) = place();
    for engine in ENGINES {
        let path = path.join(engine.name().expect("a name"));
        let db = small(&path).engine(engine.clone()).open().expect("creates");
        let refused = small(&path).open().expect_err("open already");
        assert!(matches!(refused, Error::Locked { .. }), "{refused:?}");
        let says = format!("{} is open in this process already: clone that `Db`", path.display());
        assert_eq!(refused.to_string(), says, "{engine:?}");
        db.close().expect("close");
        drop(db);
        small(&path).open().expect("opens again");
    }
}

#[test]
fn a_store_is_created_by_the_first_open_and_opened_by_the_next() {
    for engine in ENGINES {
        let (_dir, path) = place();
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
        let (_dir, path) = place();
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
    let (_dir, path) = place();
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
    assert_eq!(db.range::<&str>(..).expect("all").count(), 1000);
    let above = (Bound::Excluded(key(998)), Bound::Unbounded);
    assert_eq!(db.range(above).expect("the last").count(), 1);
    assert_eq!(db.range(key(5)..key(5)).expect("none").count(), 0);
}

#[cfg(feature = "nvht")]
#[test]
fn an_engine_without_an_order_refuses_a_range_at_once() {
    let (_dir, path) = place();
    let db = small(&path).engine(Engine::nvht()).open().expect("creates");
    assert!(matches!(db.prefix("k").err(), Some(Error::Unsupported { .. })));
}

#[test]
fn without_the_right_to_create_a_store_that_is_not_there_is_missing() {
    let (_dir, path) = place();
    assert!(matches!(small(&path).create(false).open().err(), Some(Error::Missing { .. })));
    assert!(!path.exists());
}

#[cfg(all(feature = "hikv", feature = "nvht"))]
#[test]
fn another_engine_than_the_one_that_made_the_store_is_refused() {
    let (_dir, path) = place();
    drop(small(&path).engine(Engine::nvht()).open().expect("creates"));
    assert!(matches!(small(&path).engine(Engine::hikv()).open().err(), Some(Error::WrongEngine { .. })));
    assert_eq!(small(&path).open().expect("opens").engine(), "nvht");
}

#[cfg(feature = "hikv")]
#[test]
fn options_that_shape_a_store_are_taken_by_the_first_open_alone() {
    let (_dir, path) = place();
    for _ in 0..2 {
        let open = small(&path).engine(Engine::hikv()).set("partitions", "4").set("scrub-rate", "0").open();
        open.expect("creates, then opens");
    }
    assert!(matches!(small(&path).set("frob", "1").open().err(), Some(Error::InvalidOption { .. })));
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
fn a_directory_that_holds_something_else_is_refused_and_stays_as_it_is() {
    let (_dir, path) = place();
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
fn of_many_threads_that_open_the_same_new_store_one_creates_it() {
    for _ in 0..8 {
        let (_dir, path) = place();
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
