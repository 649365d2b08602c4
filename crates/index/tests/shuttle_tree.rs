//! The whole tree with tiny nodes under random schedules (shuttle), and mutants, which must fail.
//!
//! The sources are the library's own. Only `sync` and `shape` are replaced: every atomic access is
//! a scheduling point, and leaves of four entries split and merge all the time.
#![expect(dead_code, reason = "the models use a part of the tree")]

#[path = "../src/arena.rs"]
mod arena;
#[path = "../src/bytes.rs"]
mod bytes;
#[path = "../src/check.rs"]
mod check;
#[path = "../src/inner.rs"]
mod inner;
#[path = "../src/latch.rs"]
mod latch;
#[path = "../src/leaf.rs"]
mod leaf;
#[path = "../src/merge.rs"]
mod merge;
#[path = "../src/mutant.rs"]
mod mutant;
#[path = "../src/range.rs"]
mod range;
#[path = "../src/reclaim.rs"]
mod reclaim;
#[path = "../src/resolver.rs"]
mod resolver;
#[path = "../src/split.rs"]
mod split;
#[path = "../src/tree.rs"]
mod tree;

/// Tiny nodes.
mod shape {
    pub(crate) const LEAF_ENTRIES_MAX: usize = 4;
    pub(crate) const LEAF_MERGE_STEP_ENTRIES: usize = 1;
    pub(crate) const INNER_SEPARATORS_MAX: usize = 4;
    pub(crate) const INNER_TAIL_BYTES_MAX: usize = 64;
}

/// The tree's dependencies in the model: shuttle's atomics, and mutants that can be switched on.
mod sync {
    use std::cell::Cell;

    pub(crate) use crate::mutant::Mutant;
    pub(crate) use shuttle::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

    thread_local! {
        pub(crate) static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    pub(crate) fn mutant(which: Mutant) -> bool {
        PLANTED.with(|planted| planted.get() == Some(which))
    }

    pub(crate) fn relax(_round: u32) {
        shuttle::thread::yield_now();
    }
}

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

use resolver::KeyResolver;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::Arc;
use shuttle::{Config, Runner, thread};
use sync::{Mutant, PLANTED};
use tree::{BPlusTree, Direction, Pin};

/// Payloads that are their own two-byte keys.
struct Small;

fn key(n: u64) -> [u8; 2] {
    [(n >> 8) as u8, n as u8]
}

impl KeyResolver for Small {
    fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T {
        f(&key(payload))
    }
    fn prefetch(&self, _payload: u64) {}
}

/// Keys that stay while other keys between them are inserted and removed.
const STAYING: [u64; 5] = [10, 20, 30, 40, 50];

fn prepared() -> Arc<BPlusTree> {
    let tree = Arc::new(BPlusTree::new());
    for n in STAYING {
        tree.insert(&Small, &key(n), n);
    }
    tree
}

fn insert_all(tree: &BPlusTree, keys: &[u64]) {
    for n in keys {
        let old = match n % 2 {
            0 => tree.insert(&Small, &key(*n), *n),
            // Lets other threads run in between.
            _ => {
                let (key, pin) = (key(*n), Pin::new());
                let seek = tree.seek(&key, &pin);
                thread::yield_now();
                seek.insert(&Small, *n)
            }
        };
        assert_eq!(old, None);
    }
}

fn remove_all(tree: &BPlusTree, keys: &[u64]) {
    for n in keys {
        assert_eq!(tree.remove(&Small, &key(*n), n.is_multiple_of(2).then_some(*n)), Some(*n));
    }
}

/// Scans everything: in order, each staying key once.
fn scan(tree: &BPlusTree, direction: Direction) {
    let mut seen = Vec::new();
    assert!(tree.read_range(&Small, Bound::Unbounded, direction, 1000, &mut seen));
    if direction == Direction::Backward {
        seen.reverse();
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "in order and none twice: {seen:?}");
    seen.retain(|n| STAYING.contains(n));
    assert_eq!(seen, STAYING, "every key that stays");
}

/// Runs the parts concurrently on a prepared tree, then checks it against the keys that must be
/// left.
fn run_concurrently(before: &[u64], parts: &[fn(&BPlusTree)], after: &[u64]) {
    let tree = prepared();
    insert_all(&tree, before);
    let threads: Vec<_> = parts
        .iter()
        .map(|part| {
            let (tree, part) = (tree.clone(), *part);
            thread::spawn(move || part(&tree))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    tree.check(&Small).unwrap();
    let mut expected: Vec<u64> = STAYING.iter().chain(after).copied().collect();
    expected.sort_unstable();
    let mut left = Vec::new();
    tree.read_range(&Small, Bound::Unbounded, Direction::Forward, 1000, &mut left);
    assert_eq!(left, expected);
}

fn splits_under_scans() {
    run_concurrently(
        &[],
        &[
            |tree| insert_all(tree, &[11, 12, 13, 14, 31, 32, 33, 34]),
            |tree| scan(tree, Direction::Forward),
            |tree| scan(tree, Direction::Backward),
        ],
        &[11, 12, 13, 14, 31, 32, 33, 34],
    );
}

fn merges_under_scans() {
    run_concurrently(
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 21, 22, 23, 24, 25, 26, 27, 28],
        &[
            |tree| remove_all(tree, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 21, 22, 23, 24, 25, 26, 27, 28]),
            |tree| scan(tree, Direction::Forward),
            |tree| scan(tree, Direction::Backward),
        ],
        &[],
    );
}

fn splits_and_merges_together() {
    run_concurrently(
        &[21, 22, 23, 24, 25, 26, 27, 28],
        &[
            |tree| remove_all(tree, &[21, 22, 23, 24, 25, 26, 27, 28]),
            |tree| insert_all(tree, &[11, 29, 12, 31, 13, 32, 14, 33, 15]),
            |tree| {
                for n in STAYING {
                    assert_eq!(tree.get(&Small, &key(n)), Some(n));
                }
            },
        ],
        &[11, 12, 13, 14, 15, 29, 31, 32, 33],
    );
}

/// Two full leaves of one parent split at the same time.
fn two_splits_and_a_get() {
    run_concurrently(
        &[11, 12, 31, 32],
        &[
            |tree| insert_all(tree, &[13]),
            |tree| insert_all(tree, &[33]),
            |tree| assert_eq!(tree.get(&Small, &key(40)), Some(40)),
        ],
        &[11, 12, 13, 31, 32, 33],
    );
}

/// Two inner nodes merge while a full leaf below them splits.
fn an_inner_merge_and_a_split() {
    let tree = Arc::new(BPlusTree::new());
    let even = |numbers: std::ops::RangeInclusive<u64>| numbers.map(|n| 2 * n).collect::<Vec<_>>();
    // Two inner nodes: one for the leaves of 18 to 40, and one for [42, 44, 46, 48] and [50].
    insert_all(&tree, &even(1..=25));
    remove_all(&tree, &even(1..=8));
    let parts: [fn(&BPlusTree); 3] = [
        |tree| remove_all(tree, &[50]),
        |tree| insert_all(tree, &[29]),
        |tree| assert_eq!(tree.get(&Small, &key(32)), Some(32)),
    ];
    let threads: Vec<_> = parts
        .into_iter()
        .map(|part| {
            let tree = tree.clone();
            thread::spawn(move || part(&tree))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    tree.check(&Small).unwrap();
}

fn two_writers_in_one_leaf() {
    run_concurrently(
        &[],
        &[
            |tree| insert_all(tree, &[11, 13, 15, 17, 19]),
            |tree| insert_all(tree, &[12, 14, 16, 18]),
            |tree| assert!(tree.replace(&Small, &key(10), 10, 10)),
        ],
        &[11, 12, 13, 14, 15, 16, 17, 18, 19],
    );
}

/// Each model with the number of rounds needed to find a planted fault, in multiples of [`ROUNDS`].
const MODELS: [(fn(), usize); 6] = [
    (splits_under_scans, 4),
    (merges_under_scans, 4),
    (splits_and_merges_together, 4),
    (two_splits_and_a_get, 40),
    (an_inner_merge_and_a_split, 150),
    (two_writers_in_one_leaf, 4),
];

fn explore(model: fn(), rounds: usize) {
    let config = || {
        let mut config = Config::new();
        config.silence_warnings = true;
        config.failure_persistence = shuttle::FailurePersistence::None;
        config
    };
    Runner::new(RandomScheduler::new_from_seed(7, rounds), config()).run(model);
    Runner::new(PctScheduler::new_from_seed(7, 3, rounds), config()).run(model);
}

/// Returns whether one of the models fails with the mutant on.
fn caught(mutant: Mutant) -> bool {
    PLANTED.with(|planted| planted.set(Some(mutant)));
    let fails = |model, rounds| catch_unwind(AssertUnwindSafe(|| explore(model, rounds))).is_err();
    let caught = MODELS.iter().any(|(model, times)| fails(*model, times * ROUNDS));
    PLANTED.with(|planted| planted.set(None));
    caught
}

const ROUNDS: usize = 400;

#[test]
fn splits_under_scans_hold() {
    explore(splits_under_scans, ROUNDS);
}

#[test]
fn merges_under_scans_hold() {
    explore(merges_under_scans, ROUNDS);
}

#[test]
fn splits_and_merges_together_hold() {
    explore(splits_and_merges_together, ROUNDS);
}

#[test]
fn two_splits_and_a_get_hold() {
    explore(two_splits_and_a_get, 10 * ROUNDS);
}

#[test]
fn an_inner_merge_and_a_split_hold() {
    explore(an_inner_merge_and_a_split, 10 * ROUNDS);
}

#[test]
fn two_writers_in_one_leaf_hold() {
    explore(two_writers_in_one_leaf, ROUNDS);
}

#[test]
fn every_mutant_is_caught() {
    let mutants = [
        Mutant::ReadUnvalidated,
        Mutant::VersionKept,
        Mutant::ParentUnchecked,
        Mutant::LeafUnlockedEarly,
        Mutant::MergedParentKept,
        Mutant::NewNodeUnlockedEarly,
        Mutant::JoinedNodeUnlockedEarly,
        Mutant::ScanSkipsLeaf,
    ];
    let missed: Vec<_> = mutants.into_iter().filter(|mutant| !caught(*mutant)).collect();
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
