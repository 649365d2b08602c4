//! Transactions and conditional batches over keyspaces, in every engine that has batches.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lodestore::db::Engine;
use lodestore::store::Commit;
use lodestore::{Db, Error, Expiry, Keyspace, Result, Transaction};
use lodestore_contract::conformance::Rng;
use lodestore_contract::testing::{HANG_TIMEOUT, Scratch};

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
/// Accounts in each of the two keyspaces.
const ACCOUNTS: usize = 4;
/// The initial balance of each account.
const BALANCE: u64 = 1000;
/// Set in a process to be killed: the number of its engine and the directory of its store.
const VICTIM: &str = "LODESTORE_TEST_TRANSACTIONS_VICTIM";

fn open(engine: Engine, path: &Path) -> Db {
    let opened = Db::builder(path).engine(engine.clone()).capacity(64 << 20).open();
    opened.unwrap_or_else(|error| panic!("{engine:?}: {error}"))
}

/// Calls `test` with a new store of every engine that has batches, in memory and on disk.
fn each(test: impl Fn(&Db)) {
    for engine in ENGINES {
        for dir in [Scratch::new(), Scratch::on_disk()] {
            let db = open(engine.clone(), &dir.store());
            test(&db);
            db.close().expect("a clean stop");
        }
    }
}

fn text(value: Option<lodestore::Value>) -> Option<String> {
    value.map(|value| value.as_str().expect("text").to_string())
}

#[test]
fn a_transaction_reads_its_own_writes_and_commits_all_of_them() {
    each(|db| {
        let users = db.keyspace("users").expect("creates");
        db.put("left", "1").expect("put");
        let seen = db.transaction(|tx| {
            assert!(tx.insert(&users, "17", "Ada")?);
            assert!(!tx.insert(&users, "17", "Bob")?);
            tx.put(db, "left", "2")?;
            tx.delete(db, "absent")?;
            tx.put_expiring(db, "past", "1", Expiry::at_millis(1))?;
            assert_eq!(text(tx.get(db, "past")?), None, "an expired write");
            assert_eq!(text(tx.get(&users, "17")?).as_deref(), Some("Ada"));
            tx.delete(&users, "18")?;
            assert!(!tx.contains(&users, "18")?);
            // No other reader sees a write before the commit.
            assert_eq!(text(db.get("left")?).as_deref(), Some("1"));
            assert_eq!(text(users.get("17")?), None);
            Ok(text(tx.get(db, "left")?))
        });
        assert_eq!(seen.expect("commits").as_deref(), Some("2"));
        assert_eq!(text(db.get("left").expect("get")).as_deref(), Some("2"));
        assert_eq!(text(users.get("17").expect("get")).as_deref(), Some("Ada"));
        assert_eq!((db.count().expect("count"), users.count().expect("count")), (1, 1));
    });
}

#[test]
fn an_abort_writes_nothing_and_returns_the_reason() {
    each(|db| {
        db.put("name", "taken").expect("put");
        let refused: Result<()> = db.transaction(|tx| {
            tx.put(db, "other", "1")?;
            if tx.contains(db, "name")? {
                return Err(tx.abort("the name is taken"));
            }
            tx.put(db, "name", "mine")
        });
        assert!(matches!(&refused, Err(Error::Aborted { reason }) if reason == "the name is taken"), "{refused:?}");
        assert_eq!(db.count().expect("count"), 1);
        drop(db.begin_transaction().expect("begins").put(db, "other", "1"));
        assert_eq!(db.count().expect("count"), 1);
    });
}

#[test]
fn a_transaction_whose_reads_changed_runs_again() {
    each(|db| {
        db.put("count", "0").expect("put");
        let tries = AtomicU32::new(0);
        let outcome = db.transaction(|tx| {
            let seen = text(tx.get(db, "count")?).expect("a count");
            if tries.fetch_add(1, Ordering::Relaxed) < 5 {
                db.put("count", format!("{seen}+"))?;
                // The earlier read is repeated, although the store has a newer value.
                assert_eq!(text(tx.get(db, "count")?).as_deref(), Some(&seen[..]));
            }
            tx.put(db, "result", seen)
        });
        outcome.expect("commits at last");
        assert_eq!(tries.into_inner(), 6);
        assert_eq!(text(db.get("result").expect("get")).as_deref(), Some("0+++++"));
    });
}

#[test]
fn an_error_by_values_of_different_moments_is_not_reported() {
    each(|db| {
        let set = |value: &str| ["a", "b"].iter().try_for_each(|key| db.put(key, value));
        set("0").expect("put");
        let tries = AtomicU32::new(0);
        let outcome = db.transaction(|tx| {
            let first = text(tx.get(db, "a")?);
            if tries.fetch_add(1, Ordering::Relaxed) == 0 {
                set("1")?;
            }
            if first != text(tx.get(db, "b")?) {
                return Err(tx.abort("a and b differ, which they never did"));
            }
            Ok(first)
        });
        assert_eq!(outcome.expect("commits").as_deref(), Some("1"));
    });
}

#[test]
fn an_error_of_a_closure_is_not_reported_if_its_reads_cannot_be_checked() {
    each(|db| {
        let map = db.keyspace("map").expect("creates");
        let outcome: Result<()> = db.transaction(|tx| {
            tx.get(&map, "a")?;
            tx.get(db, "b")?;
            db.drop_keyspace("map")?;
            Err(tx.abort("a and b do not match"))
        });
        assert!(matches!(outcome, Err(Error::KeyspaceDropped { .. })), "{outcome:?}");
    });
}

/// An error type of a program.
#[derive(Debug)]
enum CountError {
    NoNumber,
    Odd(u64),
    Store(Error),
}

impl From<Error> for CountError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<std::num::ParseIntError> for CountError {
    fn from(_: std::num::ParseIntError) -> Self {
        Self::NoNumber
    }
}

impl From<std::str::Utf8Error> for CountError {
    fn from(_: std::str::Utf8Error) -> Self {
        Self::NoNumber
    }
}

/// Doubles the number of `key` and writes `log`. Refuses odd numbers after its writes.
fn double(tx: &mut Transaction, db: &Db) -> Result<u64, CountError> {
    let number = match tx.get(db, "number")? {
        Some(text) => text.as_str()?.parse::<u64>()?,
        None => 0,
    };
    tx.put(db, "number", (2 * number).to_string())?;
    tx.put(db, "log", "doubled")?;
    if number % 2 == 1 { Err(CountError::Odd(number)) } else { Ok(2 * number) }
}

#[test]
fn a_transaction_with_errors_of_the_program_commits_or_writes_nothing() {
    each(|db| {
        db.put("number", "20").expect("put");
        assert_eq!(db.try_transaction(|tx| double(tx, db)).expect("commits"), 40);
        assert_eq!(text(db.get("number").expect("get")).as_deref(), Some("40"));
        db.delete("log").expect("delete");
        for (value, is_odd) in [("7", true), ("seven", false)] {
            db.put("number", value).expect("put");
            match db.try_transaction(|tx| double(tx, db)) {
                Err(CountError::Odd(7)) => assert!(is_odd),
                Err(CountError::NoNumber) => assert!(!is_odd),
                other => panic!("{value}: {other:?}"),
            }
            assert_eq!(text(db.get("number").expect("get")).as_deref(), Some(value), "rolled back");
            assert!(!db.contains("log").expect("contains"), "rolled back");
        }
        let refused = db.try_transaction(|tx| Ok::<_, CountError>(tx.put(db, "", "")?));
        assert!(matches!(refused, Err(CountError::Store(Error::KeyLength { len: 0, .. }))), "{refused:?}");
        let boxed = db.try_transaction(|tx| -> Result<u64, Box<dyn std::error::Error>> {
            Ok(text(tx.get(db, "number")?).unwrap_or_default().parse::<u64>()?)
        });
        assert!(boxed.expect_err("no number").is::<std::num::ParseIntError>());
    });
}

#[test]
fn a_transaction_with_its_own_error_type_is_repeated_after_a_conflict() {
    each(|db| {
        db.put("number", "2").expect("put");
        let mut tries = 0;
        let outcome = db.try_transaction(|tx| {
            let doubled = double(tx, db)?;
            tries += 1;
            if tries <= 3 {
                // Another writer writes between the read and the commit.
                db.put("number", (10 * tries).to_string())?;
            }
            Ok::<_, CountError>(doubled)
        });
        assert_eq!((outcome.expect("commits"), tries), (60, 4));
        // An error caused by values of different moments is not reported.
        let mut tries = 0;
        let outcome = db.try_transaction(|tx| {
            let first = text(tx.get(db, "number")?);
            tries += 1;
            if tries == 1 {
                db.put("number", "8")?;
                db.put("log", "8")?;
            }
            if first != text(tx.get(db, "log")?) { Err(CountError::NoNumber) } else { Ok(first) }
        });
        assert_eq!((outcome.expect("commits").as_deref(), tries), (Some("8"), 2));
        let mut tries = 0;
        let endless = db.try_transaction(|tx| -> Result<(), CountError> {
            tx.get(db, "number")?;
            tries += 1;
            db.put("number", tries.to_string())?;
            Ok(tx.put(db, "copy", "1")?)
        });
        assert!(matches!(endless, Err(CountError::Store(Error::Conflict { tries: 100 }))), "{endless:?}");
        assert!(tries == 100 && !db.contains("copy").expect("contains"));
        // A conflict of another write in the closure is an error like any other.
        let mut runs = 0;
        let own = db.try_transaction(|_| -> Result<(), CountError> {
            runs += 1;
            Ok(db.batch().require_present(db, "absent").commit()?)
        });
        assert!(matches!(own, Err(CountError::Store(Error::Conflict { tries: 1 }))) && runs == 1, "{own:?}");
    });
}

#[test]
fn an_endless_conflict_is_a_typed_error() {
    each(|db| {
        let mut number = 0;
        let outcome = db.transaction(|tx| {
            let seen = tx.get(db, "key")?;
            number += 1;
            db.put("key", number.to_string())?;
            tx.put(db, "copy", seen.map_or_else(Vec::new, Vec::from))
        });
        let Err(Error::Conflict { tries }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(tries, number);
        assert_eq!(text(db.get("copy").expect("get")), None);
        // Without a retry.
        let mut tx = db.begin_transaction().expect("begins");
        tx.get(db, "key").expect("get");
        db.put("key", "changed").expect("put");
        tx.put(db, "copy", "1").expect("put");
        assert!(matches!(tx.commit(), Err(Error::Conflict { tries: 1 })));
        // A write of an unread key conflicts with nothing.
        let mut tx = db.begin_transaction().expect("begins");
        tx.put(db, "key", "blind").expect("put");
        db.put("key", "changed again").expect("put");
        tx.commit().expect("commits");
        assert_eq!(text(db.get("key").expect("get")).as_deref(), Some("blind"));
    });
}

#[test]
fn transactions_of_dropped_keyspaces_and_other_stores_are_refused() {
    each(|db| {
        let (old, other_dir) = (db.keyspace("old").expect("creates"), Scratch::new());
        let other = open(ENGINES[0].clone(), &other_dir.store());
        let mut tx = db.begin_transaction().expect("begins");
        assert!(matches!(tx.get(&other, "key"), Err(Error::OtherStore { .. })));
        tx.put(&old, "key", "value").expect("put");
        assert!(matches!(tx.put(&old, "", "value"), Err(Error::KeyLength { len: 0, .. })));
        db.drop_keyspace("old").expect("drops");
        assert!(matches!(tx.get(&old, "key2"), Err(Error::KeyspaceDropped { .. })));
        assert!(matches!(tx.commit(), Err(Error::KeyspaceDropped { .. })));
    });
}

#[cfg(feature = "mkvs")]
#[test]
fn a_transaction_of_an_engine_without_batches_is_refused() {
    let dir = Scratch::new();
    let matrix = Db::builder(dir.store()).engine(Engine::mkvs()).capacity(256 << 20).open().expect("opens");
    assert!(matches!(matrix.begin_transaction().map(drop), Err(Error::Unsupported { .. })));
}

#[test]
fn a_batch_with_requirements_is_written_if_all_are_met() {
    each(|db| {
        let users = db.keyspace("users").expect("creates");
        users.put("17", "Ada").expect("put");
        let add = |name: &str| {
            let mut batch = db.batch();
            batch.require_value(&users, "17", name).require_absent(db, "18").require_present(&users, "17");
            batch.put(db, "18", "Bob").delete(&users, "17");
            batch.try_commit()
        };
        assert_eq!(add("Eve").expect("refused"), Commit::Unmet(0));
        assert_eq!((db.count().expect("count"), users.count().expect("count")), (0, 1));
        assert_eq!(add("Ada").expect("commits"), Commit::Done);
        assert_eq!((db.count().expect("count"), users.count().expect("count")), (1, 0));
        let refused = db.batch().require_absent(db, "18").put(db, "19", "Cleo").commit();
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
        assert_eq!(db.count().expect("count"), 1);
    });
}

fn account(number: usize) -> String {
    format!("account {number}")
}

/// Returns the balance of an account; 0 if there is none.
fn balance(tx: &mut Transaction, map: &Keyspace, number: usize) -> Result<u64> {
    let value = tx.get(map, account(number))?;
    Ok(value.map_or(0, |value| u64::from_le_bytes(value.as_ref().try_into().expect("8 bytes"))))
}

fn fill(maps: &[Keyspace; 2]) {
    for map in maps {
        (0..ACCOUNTS).try_for_each(|number| map.put(account(number), BALANCE.to_le_bytes())).expect("puts");
    }
}

/// Moves money from a random account to another. An account without money is deleted.
fn transfer(db: &Db, maps: &[Keyspace; 2], rng: &mut Rng) {
    let from = (rng.below(2), rng.below(ACCOUNTS));
    let to = (1 - from.0, rng.below(ACCOUNTS));
    let wanted = rng.below(700) as u64;
    let moved = db.transaction(|tx| {
        let has_from = balance(tx, &maps[from.0], from.1)?;
        let has_to = balance(tx, &maps[to.0], to.1)?;
        let amount = wanted.min(has_from);
        if amount == has_from {
            tx.delete(&maps[from.0], account(from.1))?;
        } else {
            tx.put(&maps[from.0], account(from.1), (has_from - amount).to_le_bytes())?;
        }
        tx.put(&maps[to.0], account(to.1), (has_to + amount).to_le_bytes())
    });
    moved.expect("a transfer");
}

/// Returns the sum of all accounts, at one moment.
fn sum(db: &Db, maps: &[Keyspace; 2]) -> u64 {
    let sum = db.transaction(|tx| {
        let mut sum = 0;
        for map in maps {
            for number in 0..ACCOUNTS {
                sum += balance(tx, map, number)?;
            }
        }
        Ok(sum)
    });
    sum.expect("a sum")
}

fn maps(db: &Db) -> [Keyspace; 2] {
    ["checking", "savings"].map(|name| db.keyspace(name).expect("opens"))
}

#[test]
fn transfers_of_threads_keep_the_sum_at_every_moment() {
    each(|db| {
        let maps = maps(db);
        fill(&maps);
        let (seed, transfers) = (lodestore_contract::conformance::seed(), 150);
        println!("seed {seed}");
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let maps = &maps;
                scope.spawn(move || {
                    let mut rng = Rng::new(seed + thread);
                    for step in 0..transfers {
                        transfer(db, maps, &mut rng);
                        if step % 10 == 0 {
                            assert_eq!(sum(db, maps), 2 * ACCOUNTS as u64 * BALANCE);
                        }
                    }
                });
            }
        });
        assert_eq!(sum(db, &maps), 2 * ACCOUNTS as u64 * BALANCE);
    });
}

/// Returns the duration of the repeated kills of each engine: `LODESTORE_KILL_SECONDS` sets it.
fn kill_time() -> Duration {
    let given = std::env::var("LODESTORE_KILL_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(0))
}

/// Moves money endlessly, from two threads.
fn be_killed(engine: Engine, path: &Path) -> ! {
    let db = open(engine.clone(), path);
    let maps = maps(&db);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (db, maps) = (&db, &maps);
            scope.spawn(move || {
                let mut rng = Rng::new(u64::from(std::process::id()) << 8 | thread);
                loop {
                    transfer(db, maps, &mut rng);
                }
            });
        }
    });
    unreachable!("the parent kills this process")
}

#[test]
fn transfers_that_a_kill_interrupts_keep_the_sum() {
    if let Ok(victim) = std::env::var(VICTIM) {
        let (engine, path) = victim.split_once(' ').expect("an engine and a path");
        be_killed(ENGINES[engine.parse::<usize>().expect("a number")].clone(), Path::new(path));
    }
    for (number, engine) in ENGINES.iter().enumerate() {
        let dir = Scratch::new();
        let path = dir.store();
        let db = open(engine.clone(), &path);
        fill(&maps(&db));
        db.close().expect("a clean stop");
        drop(db);
        let (mut moved, begun) = (false, Instant::now());
        for kill in 0_u32.. {
            if kill >= 3 && moved && begun.elapsed() >= kill_time() {
                println!("{engine:?}: {kill} kills");
                break;
            }
            assert!(begun.elapsed() < kill_time() + HANG_TIMEOUT, "{engine:?}: nothing is moved");
            let mut victim = Command::new(std::env::current_exe().expect("this program"))
                .args(["transfers_that_a_kill_interrupts_keep_the_sum", "--exact"])
                .env(VICTIM, format!("{number} {}", path.display()))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("starts");
            std::thread::sleep(Duration::from_millis(150 + 50 * u64::from(kill % 8)));
            assert!(victim.try_wait().expect("a state").is_none(), "{engine:?}: the process ended by itself");
            victim.kill().expect("a kill");
            victim.wait().expect("an end");
            let db = open(engine.clone(), &path);
            let maps = maps(&db);
            assert_eq!(sum(&db, &maps), 2 * ACCOUNTS as u64 * BALANCE, "{engine:?}");
            let all = |map: &Keyspace| {
                (0..ACCOUNTS).all(|n| map.get(account(n)).expect("get").is_some_and(|v| *v == BALANCE.to_le_bytes()))
            };
            moved |= !maps.iter().all(all);
        }
    }
}
