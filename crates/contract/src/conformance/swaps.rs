//! Read-modify-write as one step: `compare_and_swap`, `update_with`, and races for one key.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::{Case, Harness, Pairs, assert_holds, assert_sound};
use crate::{Change, Lifetime, Store, Swap};

/// Expected and new, each a value or absent: all combinations, met and not met.
pub fn compare_and_swap_all_cases<H: Harness>(case: &Case<H>) {
    type Value = Option<&'static [u8]>;
    let table: [(Value, Value, Value); 18] = [
        // current value, expected, new
        (None, None, None),
        (None, None, Some(b"n")),
        (None, Some(b"x"), None),
        (None, Some(b"x"), Some(b"n")),
        (None, Some(b""), Some(b"n")),
        (None, Some(b""), None),
        (Some(b"x"), None, None),
        (Some(b"x"), None, Some(b"n")),
        (Some(b"x"), Some(b"x"), None),
        (Some(b"x"), Some(b"x"), Some(b"n")),
        (Some(b"x"), Some(b"x"), Some(b"x")),
        (Some(b"x"), Some(b"y"), None),
        (Some(b"x"), Some(b"y"), Some(b"n")),
        (Some(b"x"), Some(b"xx"), Some(b"n")),
        (Some(b"xx"), Some(b"x"), Some(b"n")),
        (Some(b""), None, Some(b"n")),
        (Some(b""), Some(b""), Some(b"n")),
        (Some(b"x"), Some(b""), None),
    ];
    let store = case.create();
    store.put(b"other", b"stays").expect("put");
    for (row, (now, expected, new)) in table.into_iter().enumerate() {
        match now {
            Some(value) => store.put(b"k", value).expect("put"),
            None => drop(store.delete(b"k").expect("delete")),
        }
        let answer = store.compare_and_swap(b"k", expected, new, Lifetime::Forever).expect("compare_and_swap");
        let (right, after) =
            if now == expected { (Swap::Done, new) } else { (Swap::Differs(now.map(<[u8]>::to_vec)), now) };
        assert_eq!(answer, right, "row {row}: {now:?} {expected:?} {new:?}");
        let mut pairs = Pairs::from([(b"other".to_vec(), b"stays".to_vec())]);
        pairs.extend(after.map(|value| (b"k".to_vec(), value.to_vec())));
        assert_holds(&store, &pairs);
    }
    assert_sound(&store);
}

fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |bytes| std::str::from_utf8(bytes).expect("text").parse().expect("a number"))
}

/// Threads that count by compare-and-swap lose no count.
pub fn compare_and_swap_counts_under_race<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let (threads, each) = (case.plan.threads, case.plan.thread_ops / 4);
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                start.wait();
                for _ in 0..each {
                    let mut now = store.get(b"count").expect("get");
                    loop {
                        let next = (number(now.as_deref()) + 1).to_string();
                        match store.compare_and_swap(b"count", now.as_deref(), Some(next.as_bytes()), Lifetime::Forever)
                        {
                            Ok(Swap::Done) => break,
                            Ok(Swap::Differs(other)) => now = other,
                            Err(error) => panic!("compare_and_swap: {error}"),
                        }
                    }
                }
            });
        }
    });
    let total = (threads * each).to_string().into_bytes();
    assert_holds(&store, &Pairs::from([(b"count".to_vec(), total)]));
    assert_sound(&store);
}

/// Runs `act` on all threads at once for each key. Returns the number of successes per key.
fn winners<H: Harness>(case: &Case<H>, keys: usize, act: impl Fn(usize, &[u8]) -> bool + Sync) -> Vec<u64> {
    let threads = case.plan.threads;
    let start = Barrier::new(threads);
    let won: Vec<AtomicU64> = (0..keys).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for thread in 0..threads {
            let (start, won, act) = (&start, &won, &act);
            scope.spawn(move || {
                for (i, won) in won.iter().enumerate() {
                    start.wait();
                    won.fetch_add(u64::from(act(thread, &super::data::key("race", i))), Ordering::Relaxed);
                }
            });
        }
    });
    won.into_iter().map(AtomicU64::into_inner).collect()
}

/// Of threads that insert the same key at once, one succeeds, and its value is stored.
pub fn one_insert_of_many_wins<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let keys = case.plan.thread_ops / 8;
    let won = winners(case, keys, |thread, name| {
        store.insert(name, thread.to_string().as_bytes(), Lifetime::Forever).expect("insert")
    });
    assert!(won.iter().all(|won| *won == 1), "winners a key: {won:?}");
    assert_eq!(store.len().expect("len"), keys as u64);
    assert_sound(&store);
}

/// Of threads that delete the same key at once, one succeeds.
pub fn one_delete_of_many_wins<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let keys = case.plan.thread_ops / 8;
    for i in 0..keys {
        store.put(&super::data::key("race", i), b"v").expect("put");
    }
    let won = winners(case, keys, |_, name| store.delete(name).expect("delete"));
    assert!(won.iter().all(|won| *won == 1), "winners a key: {won:?}");
    assert_holds(&store, &Pairs::new());
    assert_sound(&store);
}

/// Without other threads, `update_with` runs its closure once with the current value, and applies
/// its result.
pub fn update_with_keeps_puts_and_deletes<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let step = |expected: Option<&[u8]>, change: Change| {
        let mut runs = 0;
        let done = store.update_with(b"k", &mut |now, _| {
            runs += 1;
            assert_eq!(now, expected, "what the closure sees before {change:?}");
            change.clone()
        });
        done.expect("update_with");
        assert_eq!(runs, 1, "the closure runs once");
    };
    let holds = |value: Option<&[u8]>| {
        assert_holds(&store, &value.map(|value| (b"k".to_vec(), value.to_vec())).into_iter().collect());
    };
    step(None, Change::Keep);
    holds(None);
    step(None, Change::Delete);
    holds(None);
    step(None, Change::Put(b"one".to_vec(), Lifetime::Forever));
    holds(Some(b"one"));
    step(Some(b"one"), Change::Keep);
    holds(Some(b"one"));
    step(Some(b"one"), Change::Put(Vec::new(), Lifetime::Forever));
    holds(Some(b""));
    step(Some(b""), Change::Put(vec![3; 5000], Lifetime::Forever));
    holds(Some(&[3; 5000]));
    step(Some(&[3; 5000]), Change::Delete);
    holds(None);
    assert_sound(&store);
}

/// Threads that count by `update_with`, on a few keys, some of which are deleted and recreated,
/// lose no count.
pub fn update_with_counts_under_race<H: Harness>(case: &Case<H>) {
    const KEYS: usize = 4;
    // A key that reaches this count is removed; the carry is counted separately.
    const CARRY_AT: u64 = 50;
    let store = case.create();
    let (threads, each) = (case.plan.threads, case.plan.thread_ops / 2);
    let carried = AtomicU64::new(0);
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        for thread in 0..threads {
            let mut rng = case.rng(7 + thread as u64);
            let (store, start, carried) = (&store, &start, &carried);
            scope.spawn(move || {
                start.wait();
                for _ in 0..each {
                    let name = [b'c', u8::try_from(rng.below(KEYS)).expect("few")];
                    // The closure may run again. Only its last run counts.
                    let mut carry = 0;
                    let done = store.update_with(&name, &mut |now, _| {
                        let next = number(now) + 1;
                        carry = if next == CARRY_AT { CARRY_AT } else { 0 };
                        if next == CARRY_AT {
                            Change::Delete
                        } else {
                            Change::Put(next.to_string().into_bytes(), Lifetime::Forever)
                        }
                    });
                    done.expect("update_with");
                    carried.fetch_add(carry, Ordering::Relaxed);
                }
            });
        }
    });
    let left: u64 = (0..KEYS).map(|i| number(store.get(&[b'c', i as u8]).expect("get").as_deref())).sum();
    assert_eq!(carried.into_inner() + left, (threads * each) as u64, "counts");
    assert_sound(&store);
}
