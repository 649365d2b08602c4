//! Several threads at once, each checked against the states it may see.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::check::show;
use super::data::{key, mixed_len, version_of, versioned};
use super::{Case, Harness, Pairs, Rng, Stop, assert_holds, assert_sound};
use crate::{Change, Lifetime, ScanRange, Store, Swap, Visit};

/// Sets its flag when dropped, also by a panic, so that no thread waits forever.
pub(super) struct EndsOnDrop<'a>(pub(super) &'a AtomicBool);

impl Drop for EndsOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Does one operation on the thread's own keys and compares it with a model.
fn step<S: Store>(store: &S, rng: &mut Rng, family: &str, round: u64, model: &mut Pairs) {
    let name = key(family, rng.below(300));
    let value = versioned(&name, round, mixed_len(rng) / 4);
    let present = model.get(&name).cloned();
    let what = || format!("{} in round {round}", show(&name));
    match rng.below(9) {
        0 | 1 => {
            store.put(&name, &value).expect("put");
            model.insert(name, value);
        }
        2 => {
            assert_eq!(
                store.insert(&name, &value, Lifetime::Forever).expect("insert"),
                present.is_none(),
                "insert {}",
                what()
            );
            model.entry(name).or_insert(value);
        }
        3 => {
            assert_eq!(
                store.update(&name, &value, Lifetime::Forever).expect("update"),
                present.is_some(),
                "update {}",
                what()
            );
            model.entry(name).and_modify(|old| *old = value);
        }
        4 => {
            assert_eq!(store.delete(&name).expect("delete"), present.is_some(), "delete {}", what());
            model.remove(&name);
        }
        5 => {
            let swap = store
                .compare_and_swap(&name, present.as_deref(), Some(&value), Lifetime::Forever)
                .expect("compare_and_swap");
            assert_eq!(swap, Swap::Done, "compare_and_swap {}", what());
            model.insert(name, value);
        }
        6 => {
            let change =
                if round.is_multiple_of(2) { Change::Delete } else { Change::Put(value.clone(), Lifetime::Forever) };
            let done = store.update_with(&name, &mut |now, _| {
                assert!(now == present.as_deref(), "update_with {}", what());
                change.clone()
            });
            done.expect("update_with");
            if round.is_multiple_of(2) {
                model.remove(&name)
            } else {
                model.insert(name, value)
            };
        }
        7 if store.capabilities().scan => {
            let range = ScanRange::from(name).to(key(family, 300)).limit(5);
            let range = if round.is_multiple_of(2) { range } else { range.reverse() };
            let expected = super::scans::expected(model, &range);
            let found = store.scan(&range).expect("scan").map(|entry| entry.expect("scan")).collect::<Vec<_>>();
            super::check::assert_order(&format!("scan in round {round}"), &found, expected.into_iter());
        }
        _ => {
            let found = store.get(&name).expect("get");
            assert!(found == present, "get {}: {found:?}", what());
        }
    }
}

/// Threads with separate keys in one store: each sees exactly its own writes, and all writes are
/// present at the end.
pub fn disjoint_keys_follow_their_models<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let mut all = Pairs::new();
    for part in 0..2 {
        let start = Barrier::new(case.plan.threads);
        let models = thread::scope(|scope| {
            let workers: Vec<_> = (0..case.plan.threads)
                .map(|thread| {
                    let (store, start, mut rng) = (&store, &start, case.rng(100 + part * 50 + thread as u64));
                    scope.spawn(move || {
                        let family = format!("t{part}{thread}");
                        let mut model = Pairs::new();
                        start.wait();
                        for round in 0..case.plan.thread_ops as u64 {
                            step(store, &mut rng, &family, round, &mut model);
                        }
                        model
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join()).collect::<Vec<_>>()
        });
        for model in models {
            all.extend(model.unwrap_or_else(|payload| std::panic::resume_unwind(payload)));
        }
        assert_holds(&store, &all);
    }
    assert_sound(&store);
    let store = case.reopen(store, Stop::Crash);
    assert_holds(&store, &all);
}

/// Ways to read one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    GetInto,
    MultiGet,
    Scan,
    ScanBack,
}

impl Way {
    /// Returns a random way that `store` supports.
    fn any<S: Store>(store: &S, rng: &mut Rng) -> Self {
        let ways = [Self::GetInto, Self::GetInto, Self::MultiGet, Self::Scan, Self::ScanBack];
        *rng.pick(&ways[..if store.capabilities().scan { 5 } else { 3 }])
    }

    fn is_scan(self) -> bool {
        matches!(self, Self::Scan | Self::ScanBack)
    }
}

/// Reads `name` in this way and returns its version.
fn read<S: Store>(store: &S, name: &[u8], way: Way, buffer: &mut Vec<u8>) -> Option<u64> {
    buffer.clear();
    let mut present = false;
    match way {
        Way::GetInto => present = store.get_into(name, buffer).expect("get_into"),
        Way::MultiGet => {
            let mut each = |index: usize, value: Option<&[u8]>| {
                if let (1, Some(value)) = (index, value) {
                    present = true;
                    buffer.extend_from_slice(value);
                }
            };
            store.multi_get(&[b"other", name, b"another"], &mut each).expect("multi_get");
        }
        Way::Scan | Way::ScanBack => {
            let mut visit = |found: &[u8], value: &[u8]| {
                present = found == name;
                buffer.extend_from_slice(value);
                Visit::Stop
            };
            let to = Bound::Included(name.to_vec());
            let range = match way {
                Way::Scan => ScanRange::from(name).limit(1),
                _ => ScanRange { to, ..ScanRange::all() }.reverse().limit(1),
            };
            store.scan_each(&range, &mut visit).expect("scan_each");
        }
    }
    present.then(|| {
        version_of(name, buffer).unwrap_or_else(|| panic!("{way:?}: {} has a torn value, {}", show(name), show(buffer)))
    })
}

/// Keys whose values only grow. No reader sees a torn value, or a value older than one acknowledged
/// before the read. No get sees a value older than one its thread has seen. (A scan may: a get sees
/// a write that has not returned yet, and a scan contains only writes that have returned.)
pub fn readers_never_see_time_go_back<H: Harness>(case: &Case<H>) {
    const KEYS: usize = 12;
    let store = case.create();
    let acknowledged: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    for i in 0..KEYS {
        store.put(&key("grow", i), &versioned(&key("grow", i), 0, 10)).expect("put");
    }
    let writers = case.plan.threads / 2;
    thread::scope(|scope| {
        for writer in 0..writers {
            let (store, acknowledged, done, mut rng) = (&store, &acknowledged, &done, case.rng(200 + writer as u64));
            scope.spawn(move || {
                let ends = EndsOnDrop(done);
                for version in 1..=case.plan.thread_ops as u64 {
                    let i = writer + writers * rng.below(KEYS / writers);
                    let name = key("grow", i);
                    let value = versioned(&name, version, rng.below(700));
                    match version % 3 {
                        0 => assert!(store.update(&name, &value, Lifetime::Forever).expect("update"), "it is there"),
                        1 => store.put(&name, &value).expect("put"),
                        _ => store
                            .update_with(&name, &mut |_, _| Change::Put(value.clone(), Lifetime::Forever))
                            .expect("update_with"),
                    }
                    acknowledged[i].store(version, Ordering::Release);
                }
                drop(ends);
            });
        }
        for reader in 0..case.plan.threads - writers {
            let (store, acknowledged, done, mut rng) = (&store, &acknowledged, &done, case.rng(300 + reader as u64));
            scope.spawn(move || {
                let (mut seen, mut buffer) = ([0; KEYS], Vec::new());
                while !done.load(Ordering::Acquire) {
                    let i = rng.below(KEYS);
                    let way = Way::any(store, &mut rng);
                    let acknowledged = acknowledged[i].load(Ordering::Acquire);
                    let least = if way.is_scan() { acknowledged } else { acknowledged.max(seen[i]) };
                    let version = read(store, &key("grow", i), way, &mut buffer);
                    let version =
                        version.unwrap_or_else(|| panic!("{way:?}: key {i} is never deleted, but is not there"));
                    assert!(version >= least, "{way:?}: key {i} has version {version} after {least}");
                    seen[i] = seen[i].max(version);
                }
            });
        }
    });
    for (i, last) in acknowledged.iter().enumerate() {
        let found = store.get(&key("grow", i)).expect("get").expect("there");
        assert_eq!(version_of(&key("grow", i), &found), Some(last.load(Ordering::Relaxed)), "the last write stands");
    }
    assert_sound(&store);
}

/// During concurrent writes, `for_each` shows every key that stays, once, with a whole value.
pub fn for_each_under_writers_is_complete<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let count = case.plan.keys.min(1000);
    for i in 0..count {
        store.put(&key("stay", i), &versioned(&key("stay", i), 0, 30)).expect("put");
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..case.plan.threads - 1 {
            let (store, done, mut rng) = (&store, &done, case.rng(400 + writer as u64));
            scope.spawn(move || {
                let ends = EndsOnDrop(done);
                for i in 0..case.plan.thread_ops {
                    let stays = key("stay", rng.below(count));
                    store.put(&stays, &versioned(&stays, i as u64, rng.below(90))).expect("put");
                    // New keys make the table grow during the walk.
                    let new = key(&format!("new{writer}"), i);
                    store.put(&new, &versioned(&new, 1, 5)).expect("put");
                    if i % 2 == 0 {
                        assert!(store.delete(&new).expect("delete"));
                    }
                }
                drop(ends);
            });
        }
        loop {
            let last = done.load(Ordering::Acquire);
            let mut seen = BTreeSet::new();
            let walked = store.for_each(&mut |name, value| {
                assert!(version_of(name, value).is_some(), "{} has a torn value", show(name));
                assert!(seen.insert(name.to_vec()), "{} is shown twice", show(name));
                Visit::More
            });
            walked.expect("for_each");
            let missing = (0..count).find(|i| !seen.contains(&key("stay", *i)));
            assert_eq!(missing, None, "a key that stays is not shown");
            if last {
                break;
            }
        }
    });
    assert_sound(&store);
}

/// While several writers fill an empty store, readers find every key whose put has returned.
pub fn growth_under_readers_loses_nothing<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let each = case.plan.thread_ops * 2;
    let writers = case.plan.threads / 2;
    let counts: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..writers {
            let (store, counts, done) = (&store, &counts, &done);
            scope.spawn(move || {
                let ends = EndsOnDrop(done);
                for i in 0..each {
                    let name = key(&format!("g{writer}"), i);
                    assert!(
                        store.insert(&name, &versioned(&name, 1, i % 30), Lifetime::Forever).expect("insert"),
                        "each key is new"
                    );
                    counts[writer].store(i as u64 + 1, Ordering::Release);
                }
                drop(ends);
            });
        }
        for reader in 0..case.plan.threads - writers {
            let (store, counts, done, mut rng) = (&store, &counts, &done, case.rng(500 + reader as u64));
            scope.spawn(move || {
                let mut buffer = Vec::new();
                while !done.load(Ordering::Acquire) {
                    let writer = rng.below(writers);
                    let count = counts[writer].load(Ordering::Acquire) as usize;
                    if count == 0 {
                        thread::yield_now();
                        continue;
                    }
                    let name = key(&format!("g{writer}"), rng.below(count));
                    let way = Way::any(store, &mut rng);
                    let version = read(store, &name, way, &mut buffer);
                    assert_eq!(version, Some(1), "{way:?}: {} was put before it was read", show(&name));
                    assert!(!store.contains(&key("absent", rng.below(each))).expect("contains"));
                }
            });
        }
    });
    let pairs: Pairs = (0..writers)
        .flat_map(|writer| (0..each).map(move |i| (key(&format!("g{writer}"), i), i % 30)))
        .map(|(name, len)| (name.clone(), versioned(&name, 1, len)))
        .collect();
    assert_holds(&store, &pairs);
    assert_sound(&store);
}
