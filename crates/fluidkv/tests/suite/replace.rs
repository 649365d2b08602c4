//! Replaces stored values that are unchanged since they were read.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::common::{counter, key, tiny};
use lodestore_contract::{Change, Durability, Error, Expiry, Lifetime, Store};
use lodestore_fluidkv::embedding::Replace;
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

/// Stores in which each thread has its own log, and in which all share one: with groups, and with
/// intervals.
fn media() -> [(Scratch, Durability); 3] {
    let file = || Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let interval = Durability::Interval(Duration::from_millis(5));
    [(Scratch::new(), Durability::Process), (file(), Durability::Power), (file(), interval)]
}

fn create(scratch: &Scratch, durability: Durability, options: FluidOptions) -> (FluidKv, FluidOptions) {
    let pool = PoolOptions { durability, ..options.pool.clone() };
    let options = FluidOptions { pool, ..options };
    (FluidKv::create(&scratch.store(), &options).expect("created"), options)
}

fn replace_one(store: &FluidKv, key: &[u8], old: &[u8], new: &[u8]) -> bool {
    store.replace(&[Replace { key, old, new }]).expect("replaced")[0]
}

fn in_millis(millis: u64) -> Expiry {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_millis() as u64;
    Expiry::at_millis(now + millis)
}

#[test]
fn only_unchanged_values_are_replaced_in_every_stage() {
    for (scratch, durability) in media() {
        // Some values are in the value log.
        let (mut store, options) = create(&scratch, durability, FluidOptions { value_threshold: 64, ..tiny(0) });
        let old = |index: u64| vec![index as u8; 1 + index as usize % 100];
        for stage in ["memtable", "stable", "reopened"] {
            (0..200).for_each(|index| store.put(&key(index), &old(index)).expect("put"));
            store.put(b"changed", b"newer").expect("put");
            store.put_expiring(b"expired", b"old", Some(in_millis(0))).expect("put");
            let later = in_millis(3_600_000);
            store.put_expiring(b"expires", b"old", Some(later)).expect("put");
            store.put(b"deleted", b"old").expect("put");
            match stage {
                "stable" => store.settle().expect("settled"),
                "reopened" => {
                    drop(store);
                    store = FluidKv::open(&scratch.store(), &options).expect("opened");
                }
                _ => {}
            }
            store.delete(b"deleted").expect("delete");
            std::thread::sleep(Duration::from_millis(2));
            let new = |index: u64| [b"new", &old(199 - index)[..]].concat();
            let pairs: Vec<_> = (0..200).map(|index| (key(index), old(index), new(index))).collect();
            let mut moves: Vec<_> = pairs.iter().map(|(key, old, new)| Replace { key, old, new }).collect();
            for key in [b"changed", b"expired", b"deleted", b"missing"] {
                moves.push(Replace { key, old: b"old", new: b"new" });
            }
            moves.push(Replace { key: b"expires", old: b"old", new: b"new" });
            // Each move sees the moves before it.
            moves.push(Replace { key: b"expires", old: b"old", new: b"another" });
            moves.push(Replace { key: b"expires", old: b"new", new: b"newest" });
            let replaced = store.replace(&moves).expect("replaced");
            let expected = [[true; 200].as_slice(), &[false; 4], &[true, false, true]].concat();
            assert_eq!(replaced, expected, "{stage}");
            for index in 0..200 {
                assert_eq!(store.get(&key(index)).expect("get"), Some(new(index)), "{stage}, key {index}");
            }
            assert_eq!(store.get(b"changed").expect("get").as_deref(), Some(&b"newer"[..]));
            assert_eq!(store.get(b"expires").expect("get").as_deref(), Some(&b"newest"[..]));
            assert_eq!(store.expiry(b"expires").expect("expiry"), Some(Some(later)), "{stage}");
            for key in [&b"expired"[..], b"deleted", b"missing"] {
                assert_eq!(store.get(key).expect("get"), None, "{stage}");
            }
        }
        assert_eq!(store.replace(&[]).expect("nothing"), [false; 0]);
        let empty = store.replace(&[Replace { key: b"", old: b"", new: b"" }]);
        assert!(matches!(empty, Err(Error::KeyLength { len: 0, .. })), "{empty:?}");
        drop(store);
        let store = FluidKv::open(&scratch.store(), &options).expect("opened");
        assert_eq!(store.get(b"expires").expect("get").as_deref(), Some(&b"newest"[..]));
        assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
    }
}

#[test]
fn many_keys_are_replaced_with_few_syncs() {
    let (scratch, durability) = (Scratch::within(Path::new(env!("CARGO_TARGET_TMPDIR"))), Durability::Power);
    let (store, _) = create(&scratch, durability, FluidOptions { memtable_bytes: 4 << 20, ..tiny(0) });
    let keys: Vec<_> = (0..1024).map(key).collect();
    let ops = keys.iter().map(|key| lodestore_contract::BatchOp::Put {
        key: key.clone(),
        value: b"old".to_vec(),
        expiry: None,
    });
    store.write(&lodestore_contract::Batch { ops: ops.collect() }).expect("written");
    let commits = counter(&store, "group_commits");
    let moves: Vec<_> = keys.iter().map(|key| Replace { key, old: b"old", new: b"new" }).collect();
    assert!(store.replace(&moves).expect("replaced").iter().all(|replaced| *replaced));
    assert_eq!(counter(&store, "group_commits") - commits, 4, "256 keys a record");
}

#[test]
fn a_snapshot_shows_the_values_from_before_a_replacement() {
    for (scratch, durability) in media() {
        let (store, _) = create(&scratch, durability, tiny(0));
        store.put(b"key", b"old").expect("put");
        let snapshot = store.snapshot().expect("snapshot");
        assert!(replace_one(&store, b"key", b"old", b"new"));
        assert_eq!(snapshot.get(b"key").expect("get").as_deref(), Some(&b"old"[..]));
        assert_eq!(store.get(b"key").expect("get").as_deref(), Some(&b"new"[..]));
    }
}

fn parts(value: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("eight bytes"));
    (word(0), word(8))
}

fn joined(count: u64, moves: u64) -> Vec<u8> {
    [count.to_le_bytes(), moves.to_le_bytes()].concat()
}

/// Writers count in one half of each value while a collector changes the other half.
#[test]
fn no_update_is_lost_while_stored_values_move() {
    const KEYS: u64 = 8;
    for (scratch, durability) in media() {
        let counts = if durability == Durability::Process { 20_000 } else { 150 };
        let (store, options) = create(&scratch, durability, tiny(2));
        (0..KEYS).for_each(|index| store.put(&key(index), &joined(0, 0)).expect("put"));
        let (done, mut moved) = (AtomicBool::new(false), 0);
        std::thread::scope(|scope| {
            let (store, done) = (&store, &done);
            let writers: Vec<_> = (0..3u64)
                .map(|writer| {
                    scope.spawn(move || {
                        for round in 0..counts {
                            let change = &mut |now: Option<&[u8]>, _: Option<Expiry>| {
                                let (count, moves) = parts(now.expect("it is there"));
                                Change::Put(joined(count + 1, moves), Lifetime::Forever)
                            };
                            store.update_with(&key((round + writer) % KEYS), change).expect("updated");
                        }
                    })
                })
                .collect();
            let mover = scope.spawn(move || {
                let mut moved = 0;
                while !done.load(Ordering::Relaxed) {
                    let olds: Vec<_> =
                        (0..KEYS).map(|index| store.get(&key(index)).expect("get").expect("there")).collect();
                    let news: Vec<_> =
                        olds.iter().map(|old| parts(old)).map(|(count, moves)| joined(count, moves + 1)).collect();
                    let keys: Vec<_> = (0..KEYS).map(key).collect();
                    let moves = (0..KEYS as usize).map(|at| Replace { key: &keys[at], old: &olds[at], new: &news[at] });
                    let replaced = store.replace(&moves.collect::<Vec<_>>()).expect("replaced");
                    moved += replaced.into_iter().filter(|replaced| *replaced).count() as u64;
                }
                moved
            });
            writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
            done.store(true, Ordering::Relaxed);
            moved = mover.join().expect("the mover");
        });
        let sum = |store: &FluidKv| {
            let halves = (0..KEYS).map(|index| parts(&store.get(&key(index)).expect("get").expect("there")));
            halves.fold((0, 0), |sum, (count, moves)| (sum.0 + count, sum.1 + moves))
        };
        assert_eq!(sum(&store), (3 * counts, moved), "{durability:?}");
        drop(store);
        let store = FluidKv::open(&scratch.store(), &options).expect("opened");
        assert_eq!(sum(&store), (3 * counts, moved), "{durability:?}");
    }
}

#[test]
fn a_full_store_refuses_a_replacement_and_keeps_what_it_has() {
    let scratch = Scratch::new();
    let pool = PoolOptions { capacity: 8 << 20, region_bytes: 4 << 20, ..PoolOptions::default() };
    let store = FluidKv::create(&scratch.store(), &FluidOptions { pool, ..tiny(0) }).expect("created");
    let value = |index: u64, version: u64| [&index.to_le_bytes()[..], &[version as u8; 200]].concat();
    let full = (0..).find(|index| store.put(&key(*index), &value(*index, 0)).is_err()).expect("it fills");
    let mut kept: Vec<u64> = vec![0; full as usize];
    // Some space is free in addition to the reserve; nothing is flushed.
    let refused = (1..100).find_map(|version| {
        (0..full / 200).find_map(|part| {
            let indexes: Vec<_> = (200 * part..200 * (part + 1)).collect();
            let pairs: Vec<_> = indexes
                .iter()
                .map(|index| (key(*index), value(*index, kept[*index as usize]), value(*index, version)))
                .collect();
            let moves: Vec<_> = pairs.iter().map(|(key, old, new)| Replace { key, old, new }).collect();
            let outcome = store.replace(&moves);
            for (index, (key, old, new)) in indexes.iter().zip(&pairs) {
                let now = store.get(key).expect("get").expect("there");
                assert!(now == *new || outcome.is_err() && now == *old, "key {index}");
                kept[*index as usize] = if now == *new { version } else { kept[*index as usize] };
            }
            outcome.err()
        })
    });
    assert!(matches!(refused, Some(Error::Full { .. })), "{refused:?}");
    store.delete(&key(0)).expect("a delete");
    store.settle().expect("settled");
    for index in 1..full {
        assert_eq!(store.get(&key(index)).expect("get"), Some(value(index, kept[index as usize])), "key {index}");
    }
    assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
}
