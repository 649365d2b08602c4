//! Concurrent writers and scanners. LODESTORE_SEED reproduces the keys, not the timing.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::{Hex, Random, hex, mix};
use lodestore_index::{BPlusTree, Direction, Pin};

/// Keys that stay are even numbers under `mix`; keys that are inserted and removed are odd.
const STAYING: u64 = if cfg!(miri) { 60 } else { 20_000 };
const ROUNDS: u64 = if cfg!(miri) { 1 } else { 12 };

fn staying() -> BTreeSet<u64> {
    (0..STAYING).map(|n| mix(2 * n)).collect()
}

/// Scans everything in pieces of `piece`, continuing after the last key.
fn scan(tree: &BPlusTree, direction: Direction, piece: usize) -> Vec<u64> {
    let mut all = Vec::new();
    let mut from: Option<[u8; 16]> = None;
    loop {
        let bound = from.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
        let before = all.len();
        let end = tree.read_range(&Hex, bound, direction, piece, &mut all);
        assert!(all.len() - before <= piece);
        if end {
            return all;
        }
        from = all.last().map(|n| hex(*n));
    }
}

fn check_scan(seen: &[u64], staying: &BTreeSet<u64>, direction: Direction) {
    let ordered = match direction {
        Direction::Forward => seen.is_sorted_by(|a, b| a < b),
        Direction::Backward => seen.is_sorted_by(|a, b| a > b),
    };
    assert!(ordered, "a scan is in order and sees no key twice");
    let kept = seen.iter().filter(|n| staying.contains(n)).count();
    assert_eq!(kept, staying.len(), "a scan sees every key that stays");
}

/// Inserts and removes whole blocks of keys, so that leaves and inner nodes split and merge during
/// the scans.
fn churn(tree: &BPlusTree, writer: u64, seed: u64) {
    let mut random = Random(seed ^ writer);
    for round in 0..ROUNDS {
        let count = STAYING * 2;
        let start = random.below(count);
        let key = |i: u64| mix(2 * (count * writer + (start + i) % count) + 1);
        for i in 0..count {
            assert_eq!(tree.insert(&Hex, &hex(key(i)), key(i)), None, "round {round}");
        }
        for i in 0..count {
            let payload = (i % 2 == 0).then_some(key(i));
            assert_eq!(tree.remove(&Hex, &hex(key(i)), payload), Some(key(i)), "round {round}");
        }
    }
}

#[test]
fn scans_see_every_key_that_stays_once_and_in_order() {
    let mut random = Random::seeded();
    let seed = random.next();
    let (tree, staying, done) = (BPlusTree::new(), staying(), AtomicBool::new(false));
    for n in &staying {
        tree.insert(&Hex, &hex(*n), *n);
    }
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                scope.spawn({
                    let tree = &tree;
                    move || churn(tree, writer, seed)
                })
            })
            .collect();
        for (direction, piece) in [(Direction::Forward, 70), (Direction::Backward, 70), (Direction::Forward, 100_000)] {
            let (tree, staying, done) = (&tree, &staying, &done);
            scope.spawn(move || {
                let mut runs = 0;
                while runs == 0 || (!cfg!(miri) && !done.load(Ordering::Relaxed)) {
                    check_scan(&scan(tree, direction, piece), staying, direction);
                    runs += 1;
                }
            });
        }
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok));
    });
    tree.check(&Hex).unwrap();
    assert_eq!(tree.len() as u64, STAYING);
    assert_eq!(scan(&tree, Direction::Forward, 1000), staying.iter().copied().collect::<Vec<_>>());
}

#[test]
fn readers_find_every_key_that_stays_while_leaves_come_and_go() {
    let mut random = Random::seeded();
    let seed = random.next();
    let (tree, staying, done) = (BPlusTree::new(), staying(), AtomicBool::new(false));
    for n in &staying {
        tree.insert(&Hex, &hex(*n), *n);
    }
    thread::scope(|scope| {
        let writer = scope.spawn(|| churn(&tree, 0, seed));
        scope.spawn(|| {
            let mut runs = 0;
            while runs == 0 || (!cfg!(miri) && !done.load(Ordering::Relaxed)) {
                for n in &staying {
                    assert_eq!(tree.get(&Hex, &hex(*n)), Some(*n));
                }
                runs += 1;
            }
        });
        let result = writer.join();
        done.store(true, Ordering::Relaxed);
        assert!(result.is_ok());
    });
    tree.check(&Hex).unwrap();
}

#[test]
fn writers_of_the_same_keys_leave_one_entry_each() {
    let mut random = Random::seeded();
    let seed = random.next();
    let tree = BPlusTree::new();
    let keys = STAYING / 20;
    thread::scope(|scope| {
        for writer in 0..3 {
            let tree = &tree;
            scope.spawn(move || {
                let mut random = Random(seed ^ writer);
                for _ in 0..STAYING * 4 {
                    let n = mix(random.below(keys));
                    match random.below(4) {
                        0 => drop(tree.remove(&Hex, &hex(n), None)),
                        1 => drop(tree.replace(&Hex, &hex(n), n, n)),
                        _ => drop(tree.insert(&Hex, &hex(n), n)),
                    }
                }
            });
        }
    });
    tree.check(&Hex).unwrap();
}

/// Another thread changes the leaf between the descent and the insert: the leaf splits, then its
/// upper half, and finally all of it, leaves.
#[test]
fn an_insert_finds_its_leaf_after_a_change_during_its_wait() {
    let count = if cfg!(miri) { 150 } else { 5_000 };
    let tree = BPlusTree::new();
    for (round, late) in (0..20).map(|round| (round, round * count / 20)) {
        let key = hex(2 * late + 1);
        let others = (0..count).map(|n| 2 * n);
        let fill = || others.clone().for_each(|n| assert_eq!(tree.insert(&Hex, &hex(n), n), None));
        let clear = || others.clone().for_each(|n| assert_eq!(tree.remove(&Hex, &hex(n), None), Some(n)));
        if round % 2 == 1 {
            fill();
        }
        let pin = Pin::new();
        let seek = tree.seek(&key, &pin);
        thread::scope(|scope| match round % 2 {
            0 => scope.spawn(fill).join(),
            _ => scope.spawn(clear).join(),
        })
        .expect("the other thread changes the leaf");
        assert_eq!(seek.insert(&Hex, 2 * late + 1), None);
        assert_eq!(tree.get(&Hex, &key), Some(2 * late + 1), "round {round}");
        tree.check(&Hex).expect("sound");
        if round % 2 == 0 {
            clear();
        }
        assert_eq!(tree.remove(&Hex, &key, None), Some(2 * late + 1));
        assert_eq!(tree.len(), 0);
    }
    drop(tree.seek(&hex(1), &Pin::new()));
    assert_eq!(tree.len(), 0, "a caller whose record was not stored inserts nothing");
}
