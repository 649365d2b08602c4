//! Drops of keyspaces, and the reclaim of their space.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use lodestore::db::Keyspace;
use lodestore::store::{Change, Visit};
use lodestore::{Error, Lifetime, Result};
use lodestore_contract::testing::HANG_TIMEOUT;

use crate::setup::{each, raw, raw_ids, slot, with_raw};

const FREE_SLOT: [u8; 6] = [1, 0, 0, 0, 0, 0];

fn fill(map: &Keyspace, keys: u32) {
    (0..keys).try_for_each(|number| map.put(number.to_le_bytes(), "some value")).expect("puts");
}

/// The outcome of every operation.
fn outcomes(map: &Keyspace) -> Vec<Result<()>> {
    let key = "k";
    vec![
        map.get(key).map(drop),
        map.get_into(key, &mut Vec::new()).map(drop),
        map.contains(key).map(drop),
        map.multi_get([key]).map(drop),
        map.expiry(key).map(drop),
        map.for_each(|_, _| Visit::More).map(drop),
        map.count().map(drop),
        map.put(key, "v"),
        map.put_expiring(key, "v", lodestore::Expiry::at_millis(u64::MAX)),
        map.insert(key, "v", Lifetime::Forever).map(drop),
        map.update(key, "v", Lifetime::Forever).map(drop),
        map.delete(key).map(drop),
        map.compare_and_swap(key, None, Some(b"v"), Lifetime::Forever).map(drop),
        map.update_with(key, |_, _| Change::Delete),
    ]
}

#[test]
fn all_handles_of_a_dropped_keyspace_return_the_error_and_its_name_is_free() {
    each(|setup, path| {
        let db = setup.open(path);
        let users = db.keyspace("users").expect("creates");
        let (clone, second) = (users.clone(), db.keyspace("users").expect("opens"));
        fill(&users, 300);
        let walk = setup.has_order.then(|| users.prefix("").expect("a walk"));
        assert!(db.drop_keyspace("users").expect("drops"));
        assert!(!db.drop_keyspace("users").expect("a drop of nothing"));
        assert!(db.keyspaces().expect("names").is_empty());
        for map in [&users, &clone, &second] {
            for (number, outcome) in outcomes(map).into_iter().enumerate() {
                let is_dropped = matches!(&outcome, Err(Error::KeyspaceDropped { name }) if name == "users");
                assert!(is_dropped, "{}: operation {number}: {outcome:?}", setup.name());
            }
        }
        if let Some(mut walk) = walk {
            assert!(matches!(walk.next(), Some(Err(Error::KeyspaceDropped { .. }))));
            assert!(walk.next().is_none());
            assert!(matches!(users.prefix("").map(drop), Err(Error::KeyspaceDropped { .. })));
        }
        let again = db.keyspace("users").expect("creates");
        assert_eq!(again.count().expect("count"), 0, "{}", setup.name());
        again.put("k", "v").expect("put");
        assert!(matches!(users.get("k"), Err(Error::KeyspaceDropped { .. })));
        assert_eq!(again.get("k").expect("get").expect("there"), "v");
    });
}

#[test]
fn a_settle_frees_the_space_of_dropped_keyspaces_and_no_id_is_reused() {
    each(|setup, path| {
        for round in 0..3_u8 {
            let db = setup.open(path);
            for name in ["one", "two"] {
                fill(&db.keyspace(name).expect("creates"), 300);
            }
            let kept = db.keyspace("kept").expect("opens");
            kept.put([round], "v").expect("put");
            for name in ["one", "two"] {
                assert!(db.drop_keyspace(name).expect("drops"));
            }
            db.settle().expect("a settle");
            assert_eq!((kept.count().expect("count"), db.count().expect("count")), (u64::from(round) + 1, 0));
            let last = db.keyspace("last").expect("creates");
            last.put("k", "v").expect("put");
            drop((kept, last, db));
            // Each round uses three ids; the first one uses another for `kept`.
            assert_eq!(raw_ids(path), [4, 5 + 3 * round], "{}", setup.name());
            let db = setup.open(path);
            assert!(db.drop_keyspace("last").expect("drops"));
            db.settle().expect("a settle");
            drop(db);
            assert_eq!(raw_ids(path), [4], "{}", setup.name());
            // The slots of dropped keyspaces are used again.
            let slots = raw(path).into_iter().filter(|(key, _)| key.starts_with(b"\xff\xff\0\x01"));
            let free = slots.map(|(_, value)| value == FREE_SLOT).collect::<Vec<_>>();
            assert_eq!((free.len(), free.iter().filter(|free| **free).count()), (3, 2), "{}", setup.name());
        }
    });
}

#[test]
fn a_reclaim_that_a_close_interrupts_continues_after_the_next_open() {
    each(|setup, path| {
        let db = setup.open(path);
        let users = db.keyspace("users").expect("creates");
        fill(&users, 800);
        db.put("k", "v").expect("put");
        drop((users, db));
        // The slot after a drop: dead, with all records present.
        let live = with_raw(path, |store| store.get(&slot(0)).expect("get").expect("a slot"));
        let dead = [&[1, 2], &live[2..]].concat();
        with_raw(path, |store| store.put(&slot(0), &dead).expect("put"));
        assert_eq!(raw_ids(path), [2]);
        let (begun, mut open_ms) = (Instant::now(), 1);
        while raw(path).iter().any(|(key, value)| key.starts_with(b"\xff\xff\x02") || *value == dead) {
            assert!(begun.elapsed() < HANG_TIMEOUT, "{}", setup.name());
            let db = setup.open(path);
            assert!(db.keyspaces().expect("names").is_empty());
            std::thread::sleep(Duration::from_millis(open_ms));
            open_ms *= 4;
        }
        let db = setup.open(path);
        assert_eq!((db.count().expect("count"), db.get("k").expect("get").is_some()), (1, true), "{}", setup.name());
    });
}

#[test]
fn writers_that_race_with_a_drop_leave_no_record() {
    each(|setup, path| {
        let db = setup.open(path);
        for round in 0..6_u8 {
            let (users, barrier) = (db.keyspace("users").expect("creates"), Barrier::new(4));
            let write = |thread: u8| {
                barrier.wait();
                for number in 0_u32.. {
                    let key = [&[thread][..], &number.to_le_bytes()].concat();
                    let written = match thread {
                        0 if setup.has_batches => db.batch().put(&users, &key, "v").commit(),
                        1 => users.update_with(&key, |_, _| Change::Put(b"v".to_vec(), Lifetime::Forever)),
                        _ => users.put(&key, "v"),
                    };
                    match written {
                        Ok(()) => {}
                        Err(Error::KeyspaceDropped { .. }) => break,
                        Err(error) => panic!("{}: {error}", setup.name()),
                    }
                }
            };
            std::thread::scope(|scope| {
                let write = &write;
                (0..3).for_each(|thread| drop(scope.spawn(move || write(thread))));
                barrier.wait();
                std::thread::sleep(Duration::from_millis(u64::from(round)));
                assert!(db.drop_keyspace("users").expect("drops"));
                // The reclaim ends before a record of a late writer would arrive.
                db.settle().expect("a settle");
            });
        }
        db.settle().expect("a settle");
        drop(db);
        assert_eq!(raw_ids(path), [], "{}", setup.name());
    });
}

#[test]
fn a_drop_that_waits_for_a_writer_blocks_no_other_operation() {
    each(|setup, path| {
        let db = setup.open(path);
        let map = db.keyspace("slow").expect("creates");
        let is_dropping = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                map.update_with("key", |_, _| {
                    is_dropping.wait();
                    // The drop is most likely waiting by now. Each call still returns.
                    std::thread::sleep(Duration::from_millis(20));
                    assert_eq!(db.keyspaces().expect("names"), ["slow"], "{}", setup.name());
                    Change::Keep
                })
                .expect("an update");
            });
            is_dropping.wait();
            assert!(db.drop_keyspace("slow").expect("drops"));
        });
        assert!(db.keyspaces().expect("names").is_empty());
    });
}

#[test]
fn a_closed_store_has_no_names() {
    each(|setup, path| {
        let db = setup.open(path);
        db.keyspace("map").expect("creates");
        db.close().expect("a clean stop");
        assert!(matches!(db.keyspaces(), Err(Error::Closed)), "{}", setup.name());
        assert!(matches!(db.keyspace("map").map(drop), Err(Error::Closed)), "{}", setup.name());
        assert!(matches!(db.drop_keyspace("none"), Err(Error::Closed)), "{}", setup.name());
    });
}
