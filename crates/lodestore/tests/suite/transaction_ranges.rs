//! Range reads of transactions, in the engines that have conditions on ranges.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use lodestore::db::{Engine, Keyspace, Transaction, Value};
use lodestore::store::{Direction, ScanRange};
use lodestore::{Db, Error, Expiry, Result};
use lodestore_contract::conformance::{Rng, seed};
use lodestore_contract::limits::BATCH_OPS_MAX;
use lodestore_contract::testing::Scratch;

const ENGINES: [Engine; 2] = [Engine::fluidkv(), Engine::hashkv()];
/// Bookings that the threads of one test may make for a day.
const BOOKINGS_MAX: usize = 7;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(engine: Engine, path: &Path) -> Db {
    let opened = Db::builder(path).engine(engine.clone()).capacity(64 << 20).open();
    opened.unwrap_or_else(|error| panic!("{engine:?}: {error}"))
}

/// Calls `test` with a new store of every engine, in memory and on disk.
fn each(test: impl Fn(&Db)) {
    for engine in ENGINES {
        for dir in [Scratch::new(), Scratch::on_disk()] {
            let db = open(engine.clone(), &dir.store());
            test(&db);
            db.close().expect("a clean stop");
        }
    }
}

fn texts(pairs: Vec<(Value, Value)>) -> Vec<String> {
    pairs
        .iter()
        .map(|(key, value)| format!("{}={}", key.as_str().expect("text"), value.as_str().expect("text")))
        .collect()
}

#[test]
fn a_range_read_shows_the_store_and_the_writes_of_the_transaction() {
    each(|db| {
        let users = db.keyspace("users").expect("creates");
        for key in ["a", "b", "c", "d"] {
            users.put(key, "old").expect("put");
        }
        db.put("b", "of the default keyspace").expect("put");
        db.transaction(|tx| {
            tx.put(&users, "b", "new")?;
            tx.put(&users, "bb", "new")?;
            tx.delete(&users, "c")?;
            tx.put_expiring(&users, "d", "past", Expiry::at_millis(1))?;
            assert_eq!(texts(tx.range(&users, "a".."z")?), ["a=old", "b=new", "bb=new"]);
            assert_eq!(texts(tx.range(&users, "b"..="b")?), ["b=new"]);
            assert_eq!(texts(tx.prefix(&users, "b")?), ["b=new", "bb=new"]);
            let last = ScanRange::all().reverse().limit(2);
            assert_eq!(texts(tx.scan(&users, &last)?), ["bb=new", "b=new"]);
            assert_eq!(texts(tx.scan(&users, &ScanRange::all().limit(0))?), [""; 0]);
            assert_eq!(texts(tx.range(db, "a".."z")?), ["b=of the default keyspace"]);
            Ok(())
        })
        .expect("commits");
        assert_eq!(users.count().expect("count"), 3);
    });
}

/// The change of another writer between the range read and the commit of a transaction.
type Change = fn(&Keyspace) -> Result<()>;

#[test]
fn each_change_of_a_range_that_was_read_is_a_conflict_and_no_other_change_is() {
    let cases: [(&str, Change, bool); 8] = [
        ("a new key", |map| map.put("b5", "1"), true),
        ("a new first key", |map| map.put("b", "1"), true),
        ("a changed value", |map| map.put("b1", "2"), true),
        ("a removed key", |map| map.delete("b2").map(drop), true),
        ("an expired key", |map| map.put_expiring("b2", "1", Expiry::at_millis(1)), true),
        ("the same value", |map| map.put("b1", "1"), false),
        ("a key below", |map| map.put("a9", "1"), false),
        ("the key at the end", |map| map.put("c", "1"), false),
    ];
    each(|db| {
        let users = db.keyspace("users").expect("creates");
        let others = db.keyspace("others").expect("creates");
        for (what, change, is_conflict) in cases {
            for key in users.range::<&str>(..).expect("range").map(|pair| pair.expect("a pair").0) {
                users.delete(&*key).expect("delete");
            }
            ["b1", "b2"].iter().for_each(|key| users.put(key, "1").expect("put"));
            let mut tx = db.begin_transaction().expect("begins");
            assert_eq!(tx.range(&users, "b".."c").expect("range").len(), 2);
            tx.put(&users, "written", "1").expect("put");
            others.put("b5", "1").expect("put");
            db.put("b5", "1").expect("put");
            change(&users).expect("changes");
            let outcome = tx.commit();
            match is_conflict {
                true => assert!(matches!(outcome, Err(Error::Conflict { .. })), "{what}: {outcome:?}"),
                false => outcome.unwrap_or_else(|error| panic!("{what}: {error}")),
            }
            assert_eq!(users.contains("written").expect("contains"), !is_conflict, "{what}");
        }
    });
}

#[test]
fn a_limited_read_covers_the_range_up_to_its_last_pair() {
    each(|db| {
        let fill = || ["b", "d", "f"].iter().for_each(|key| db.put(key, "1").expect("put"));
        let read = |tx: &mut Transaction, range: &ScanRange| tx.scan(db, range).map(texts);
        for (range, inside, outside) in [
            (ScanRange::all().limit(2), "a", "e"),
            (ScanRange::all().limit(2), "c", "z"),
            (ScanRange::all().limit(2).reverse(), "e", "c"),
            (ScanRange::all().limit(2).reverse(), "g", "a"),
            (ScanRange::all().limit(9), "z", ""),
        ] {
            for (key, is_conflict) in [(inside, true), (outside, false)] {
                if key.is_empty() {
                    continue;
                }
                fill();
                let mut tx = db.begin_transaction().expect("begins");
                read(&mut tx, &range).expect("reads");
                db.put(key, "1").expect("put");
                let outcome = tx.commit();
                assert_eq!(outcome.is_err(), is_conflict, "{range:?} {key}: {outcome:?}");
                db.delete(key).expect("delete");
            }
        }
    });
}

/// Returns a random key of one or two bytes, from few. Some are in the reserved part of the store's
/// keys.
fn random_key(rng: &mut Rng) -> Vec<u8> {
    let bytes = [0, b'a', b'b', 0xFE, 0xFF];
    (0..1 + rng.below(3)).map(|_| bytes[rng.below(bytes.len())]).collect()
}

fn random_range(rng: &mut Rng) -> ScanRange {
    let mut bound = || match rng.below(4) {
        0 => Bound::Unbounded,
        1 => Bound::Excluded(random_key(rng)),
        _ => Bound::Included(random_key(rng)),
    };
    let (from, to) = (bound(), bound());
    let direction = if rng.below(2) == 0 { Direction::Forward } else { Direction::Backward };
    let limit = if rng.below(2) == 0 { usize::MAX } else { rng.below(6) };
    ScanRange { from, to, direction, limit }
}

fn model_scan(model: &Model, range: &ScanRange) -> Vec<(Vec<u8>, Vec<u8>)> {
    let found = model.iter().filter(|(key, _)| range.contains(key)).map(|(key, value)| (key.clone(), value.clone()));
    let found: Vec<_> = found.collect();
    match range.direction {
        Direction::Forward => found.into_iter().take(range.limit).collect(),
        Direction::Backward => found.into_iter().rev().take(range.limit).collect(),
    }
}

#[test]
fn random_range_reads_match_a_model() {
    let seed = seed();
    println!("LODESTORE_SEED={seed:#x}");
    each(|db| {
        let named = db.keyspace("named").expect("creates");
        let mut rng = Rng::new(seed);
        let mut models = [Model::new(), Model::new()];
        for round in 0..60 {
            let mut tx = db.begin_transaction().expect("begins");
            let mut after = models.clone();
            for _ in 0..rng.below(12) {
                let (at, key) = (rng.below(2), random_key(&mut rng));
                let value = format!("{round}").into_bytes();
                let is_delete = rng.below(3) == 0;
                match (at, is_delete) {
                    (0, false) => tx.put(db, &key, &value),
                    (_, false) => tx.put(&named, &key, &value),
                    (0, true) => tx.delete(db, &key),
                    (_, true) => tx.delete(&named, &key),
                }
                .expect("a write");
                if is_delete {
                    after[at].remove(&key)
                } else {
                    after[at].insert(key, value)
                };
                let range = random_range(&mut rng);
                let (first, second) = (tx.scan(db, &range).expect("scan"), tx.scan(&named, &range).expect("scan"));
                for (model, found) in after.iter().zip([first, second]) {
                    let found: Vec<_> =
                        found.into_iter().map(|(key, value)| (key.into_vec(), value.into_vec())).collect();
                    assert_eq!(found, model_scan(model, &range), "seed {seed:#x} round {round} {range:?}");
                }
            }
            if rng.below(4) > 0 {
                tx.commit().expect("nobody else writes");
                models = after;
            }
        }
    });
}

/// Books a slot unless the day has its maximum of bookings. Returns whether it did.
fn book(db: &Db, day: &Keyspace, name: &str) -> bool {
    let booked = db.transaction(|tx| {
        let bookings = tx.range::<&str>(day, ..)?;
        if bookings.len() >= BOOKINGS_MAX {
            return Ok(false);
        }
        tx.put(day, format!("{:03} {name}", bookings.len()), "booked")?;
        Ok(true)
    });
    booked.expect("books")
}

#[test]
fn threads_that_count_a_range_before_they_add_to_it_never_exceed_its_limit() {
    each(|db| {
        let days: Vec<Keyspace> =
            (0..12).map(|number| db.keyspace(format!("day {number}")).expect("creates")).collect();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let days = &days;
                scope.spawn(move || {
                    for day in days {
                        let mut number = 0;
                        while book(db, day, &format!("{thread} {number}")) {
                            number += 1;
                        }
                    }
                });
            }
        });
        for day in &days {
            assert_eq!(day.count().expect("count"), BOOKINGS_MAX as u64, "{}", day.name());
        }
    });
}

#[test]
fn engines_without_range_conditions_and_foreign_or_dropped_keyspaces_are_refused() {
    for engine in [Engine::hikv(), Engine::nvht()] {
        let dir = Scratch::new();
        let db = open(engine.clone(), &dir.store());
        let refused = db.transaction(|tx| tx.range(&db, "a".."b"));
        match refused {
            Err(Error::Unsupported { what, instead, .. }) => {
                assert_eq!(what, "range reads in transactions");
                assert!(instead.contains("fluidkv"), "{instead}");
            }
            other => panic!("{engine:?}: {other:?}"),
        }
    }
    each(|db| {
        let dir = Scratch::new();
        let other = open(Engine::fluidkv(), &dir.store());
        let dropped = db.keyspace("dropped").expect("creates");
        db.drop_keyspace("dropped").expect("drops");
        let mut tx = db.begin_transaction().expect("begins");
        assert!(matches!(tx.range(&other, "a".."b"), Err(Error::OtherStore { .. })));
        assert!(matches!(tx.range(&dropped, "a".."b"), Err(Error::KeyspaceDropped { .. })));
    });
}

#[test]
fn more_keys_than_a_transaction_can_record_are_refused() {
    let dir = Scratch::new();
    let db = open(Engine::fluidkv(), &dir.store());
    for number in 0..BATCH_OPS_MAX as u32 {
        db.put(format!("{number:08}"), "1").expect("put");
    }
    let mut tx = db.begin_transaction().expect("begins");
    assert!(matches!(tx.range::<&[u8]>(&db, ..), Err(Error::BatchLength { .. })));
    let limited = ScanRange::all().limit(BATCH_OPS_MAX - 1);
    assert_eq!(tx.scan(&db, &limited).expect("as many as the limit").len(), BATCH_OPS_MAX - 1);
    assert!(matches!(tx.range(&db, "a".."b"), Err(Error::BatchLength { .. })), "nothing is left");
    tx.put(&db, "written", "1").expect("put");
    tx.commit().expect("commits");
}
