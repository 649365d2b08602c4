//! Ordered scans: bounds, prefixes, limits, direction, owned iterators, concurrent writers.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::check::{assert_order, scanned, show};
use super::data::{key, version_of, versioned};
use super::{Case, Harness, Pairs, assert_holds, assert_sound};
use crate::{Direction, Entry, Error, ScanRange, Store, Visit};

/// Creates a store for these behaviours, or returns `None` if the engine has no order.
fn create<H: Harness>(case: &Case<H>) -> Option<H::S> {
    let store = case.create();
    store.capabilities().scan.then_some(store)
}

/// An engine without order refuses scans and names an engine that has order. Other engines do not
/// refuse.
pub fn scan_without_order_names_another_engine<H: Harness>(case: &Case<H>) {
    let store = case.create();
    store.put(b"k", b"v").expect("put");
    let answers =
        [store.scan(&ScanRange::all()).err(), store.scan_each(&ScanRange::all(), &mut |_, _| Visit::More).err()];
    for error in answers {
        if store.capabilities().scan {
            assert!(error.is_none(), "the capability is named, but {error:?}");
            continue;
        }
        let Some(Error::Unsupported { engine, what, instead }) = error else { panic!("not Unsupported: {error:?}") };
        assert_eq!(engine, store.engine());
        assert!(what.contains("scan"), "what: {what}");
        let ordered = ["hikv", "fluidkv", "hashkv"];
        assert!(
            ordered.iter().any(|name| *name != engine && instead.contains(name)),
            "names no ordered engine: {instead}"
        );
    }
}

/// Returns the model's result for a range. Filters, because the map's own range panics on
/// inverted bounds.
pub(super) fn expected<'a>(pairs: &'a Pairs, range: &ScanRange) -> Vec<(&'a Vec<u8>, &'a Vec<u8>)> {
    let mut inside: Vec<_> = pairs.iter().filter(|(name, _)| range.contains(name)).collect();
    if range.direction == Direction::Backward {
        inside.reverse();
    }
    inside.truncate(range.limit);
    inside
}

fn assert_range<S: Store>(store: &S, pairs: &Pairs, range: &ScanRange) {
    let shown = format!("scan {range:?}");
    let shown = if shown.len() > 400 { "scan (long bounds)" } else { &shown };
    assert_order(shown, &scanned(store, range), expected(pairs, range).into_iter());
}

/// Keys of one to three letters from a few bytes, and both ends of the key space.
fn lattice() -> Pairs {
    let bytes = [0_u8, 1, b'a', b'b', 0xfe, 0xff];
    let mut pairs = Pairs::new();
    for a in bytes {
        pairs.insert(vec![a], vec![a]);
        for b in bytes {
            pairs.insert(vec![a, b], vec![a, b, a]);
            for c in [0, b'b', 0xff] {
                pairs.insert(vec![a, b, c], vec![c; usize::from(c)]);
            }
        }
    }
    pairs.insert(vec![b'a'; 300], b"longer than a node keeps".to_vec());
    pairs.insert(vec![0xff; 300], b"the last".to_vec());
    pairs
}

fn fill<S: Store>(store: &S, pairs: &Pairs) {
    for (name, value) in pairs {
        store.put(name, value).expect("put");
    }
}

/// Included, excluded and open bounds on both sides, at keys and between them, in both directions.
pub fn bounds_included_excluded_and_open<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let pairs = lattice();
    fill(&store, &pairs);
    let mut edges: Vec<Bound<Vec<u8>>> =
        vec![Bound::Unbounded, Bound::Included(Vec::new()), Bound::Excluded(Vec::new())];
    let points: [&[u8]; 11] = [
        &[0],
        &[0, 0],
        &[1, 1, 1],
        b"a",
        b"a\x01\x7f",
        b"ab",
        b"b",
        &[0xfe, 0xff, 0xff, 0xff],
        &[0xff],
        &[0xff; 3],
        &[0xff; 301],
    ];
    for point in points {
        edges.extend([Bound::Included(point.to_vec()), Bound::Excluded(point.to_vec())]);
    }
    for from in &edges {
        for to in &edges {
            for direction in [Direction::Forward, Direction::Backward] {
                let range = ScanRange { from: from.clone(), to: to.clone(), direction, limit: usize::MAX };
                assert_range(&store, &pairs, &range);
            }
        }
    }
    assert_sound(&store);
}

/// A prefix selects the keys that begin with it. Tested with 255s, a whole key and an empty prefix
/// too.
pub fn prefixes_and_their_edges<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let pairs = lattice();
    fill(&store, &pairs);
    let prefixes: [&[u8]; 10] =
        [b"", b"a", b"aa", b"aaa", b"ab\xff", &[0], &[0xff], &[0xff, 0xff], &[0xfe, 0xff], b"nothing begins so"];
    for prefix in prefixes {
        let begin = pairs.keys().filter(|name| name.starts_with(prefix)).count();
        for range in
            [ScanRange::prefix(prefix), ScanRange::prefix(prefix).reverse(), ScanRange::prefix(prefix).limit(3)]
        {
            assert_range(&store, &pairs, &range);
            assert_eq!(scanned(&store, &range).len(), begin.min(range.limit), "keys that begin with {}", show(prefix));
        }
    }
    assert_sound(&store);
}

/// Limits of 0, 1 and more, from either end.
pub fn limits_of_none_one_and_some<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let pairs = lattice();
    fill(&store, &pairs);
    for limit in [0, 1, 2, 3, 63, 64, 65, pairs.len() - 1, pairs.len(), pairs.len() + 1, usize::MAX] {
        for range in [ScanRange::all(), ScanRange::from(b"a".to_vec()), ScanRange::all().to(b"ab".to_vec())] {
            assert_range(&store, &pairs, &range.clone().limit(limit));
            assert_range(&store, &pairs, &range.reverse().limit(limit));
        }
    }
    let visits = store.scan_each(&ScanRange::all().limit(0), &mut |_, _| panic!("visited beyond a limit of 0"));
    assert_eq!(visits.expect("scan_each"), 0);
}

/// Bounds that exclude everything, including inverted bounds, return nothing and are no error.
pub fn empty_ranges_are_empty<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let ranges = |point: &[u8]| {
        let point = point.to_vec();
        [
            ScanRange { from: Bound::Excluded(point.clone()), to: Bound::Excluded(point.clone()), ..ScanRange::all() },
            ScanRange { from: Bound::Included(point.clone()), to: Bound::Excluded(point.clone()), ..ScanRange::all() },
            ScanRange { from: Bound::Excluded(point.clone()), to: Bound::Included(point.clone()), ..ScanRange::all() },
            ScanRange { from: Bound::Included(b"z".to_vec()), to: Bound::Included(b"a".to_vec()), ..ScanRange::all() },
            ScanRange::from(b"z".to_vec()).to(point),
        ]
    };
    for filled in [false, true] {
        if filled {
            fill(&store, &lattice());
        }
        for range in ranges(b"b") {
            assert_eq!(scanned(&store, &range), [], "{range:?}");
            assert_eq!(scanned(&store, &range.clone().reverse()), [], "{range:?} backward");
        }
    }
    let one =
        ScanRange { from: Bound::Included(b"b".to_vec()), to: Bound::Included(b"b".to_vec()), ..ScanRange::all() };
    assert_eq!(scanned(&store, &one), [Entry::new(b"b", b"b")]);
}

/// `scan_each` ends when the visitor returns `Stop`, and counts that entry.
pub fn a_visitor_stops_a_scan<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let pairs = lattice();
    fill(&store, &pairs);
    for stop_at in [1, 2, 10, pairs.len()] {
        for range in [ScanRange::all(), ScanRange::all().reverse()] {
            let mut seen = 0;
            let count = store.scan_each(&range, &mut |_, _| {
                seen += 1;
                if seen == stop_at { Visit::Stop } else { Visit::More }
            });
            assert_eq!((count.expect("scan_each"), seen), (stop_at, stop_at));
        }
    }
}

/// Asserts that the entries of a walk are ordered, unique, and whole values of their keys. Returns
/// the keys.
fn assert_walk(entries: impl Iterator<Item = crate::Result<Entry>>, direction: Direction) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    for entry in entries {
        let entry = entry.unwrap_or_else(|error| panic!("scan: {error}"));
        assert!(version_of(entry.key(), entry.value()).is_some(), "a value that {} never had", show(entry.key()));
        if let Some(last) = names.last() {
            let right = if direction == Direction::Forward { **last < *entry.key() } else { **last > *entry.key() };
            assert!(right, "{} comes after {} ({direction:?})", show(entry.key()), show(last));
        }
        names.push(entry.key().to_vec());
    }
    names
}

/// An owned scan continues in another thread while its keys are overwritten and deleted, and other
/// keys are added.
pub fn an_owned_scan_moves_and_outlives_writes<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let count = case.plan.keys;
    for i in 0..count {
        store.put(&key("owned", i), &versioned(&key("owned", i), 1, i % 100)).expect("put");
    }
    for (direction, range) in
        [(Direction::Forward, ScanRange::all()), (Direction::Backward, ScanRange::prefix(b"owned/").reverse())]
    {
        let mut scan = store.scan(&range).expect("scan");
        let first = scan.next().expect("an entry").expect("scan");
        for i in 0..count {
            let name = key("owned", i);
            match i % 5 {
                0 => drop(store.delete(&name).expect("delete")),
                1 => store.put(&name, &versioned(&name, 2, 300)).expect("put"),
                _ => {}
            }
            store.put(&key("zother", i), &versioned(&key("zother", i), 3, 10)).expect("put");
        }
        let chained = std::iter::once(Ok(first)).chain(scan);
        let seen = thread::scope(|scope| scope.spawn(move || assert_walk(chained, direction)).join());
        let seen = seen.unwrap_or_else(|payload| std::panic::resume_unwind(payload));
        let steady = seen.iter().filter(|name| (0..count).any(|i| i % 5 > 1 && **name == key("owned", i))).count();
        assert_eq!(steady, (0..count).filter(|i| i % 5 > 1).count(), "keys that nobody touched ({direction:?})");
        for i in (0..count).step_by(5) {
            store.put(&key("owned", i), &versioned(&key("owned", i), 4, 0)).expect("put");
        }
    }
    assert_sound(&store);
}

/// An owned scan whose store is dropped continues or ends with an error; its entries are right.
pub fn an_owned_scan_outlives_its_store<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    for i in 0..500 {
        store.put(&key("outlive", i), &versioned(&key("outlive", i), 1, 20)).expect("put");
    }
    let mut scan = store.scan(&ScanRange::all()).expect("scan");
    let first = scan.next().expect("an entry").expect("scan");
    assert_eq!(first.key(), key("outlive", 0));
    store.close().expect("close");
    drop(store);
    let seen = assert_walk(scan.map_while(|entry| entry.ok().map(Ok)), Direction::Forward);
    assert!(seen.len() < 500);
}

/// A scan contains every write, and reflects every delete, that returned before it started.
pub fn scans_follow_writes_at_once<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let mut rng = case.rng(8);
    let mut pairs = Pairs::new();
    for round in 0..case.plan.keys {
        let name = key("follow", rng.below(60));
        if rng.below(3) == 0 {
            assert_eq!(store.delete(&name).expect("delete"), pairs.remove(&name).is_some());
        } else {
            let value = round.to_string().into_bytes();
            store.put(&name, &value).expect("put");
            pairs.insert(name.clone(), value);
        }
        let at = rng.below(60);
        let around = ScanRange::from(key("follow", at)).limit(1 + rng.below(5));
        assert_range(&store, &pairs, &if rng.below(2) == 0 { around } else { around.reverse() });
        assert_range(&store, &pairs, &ScanRange::prefix(&name));
    }
    assert_holds(&store, &pairs);
    assert_sound(&store);
}

/// While writers insert, overwrite and delete, each scan is ordered and has no duplicate key. A
/// scan has every key that was written before it began and is never deleted.
pub fn scans_under_writers_are_ordered_and_complete<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let inserts = case.plan.thread_ops;
    let (inserted, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let ends_at_last = crate::conformance::threads::EndsOnDrop(&done);
        for writer in 1..case.plan.threads.max(3) {
            let (store, inserted, done, mut rng) = (&store, &inserted, &done, case.rng(9 + writer as u64));
            scope.spawn(move || {
                let ends = (writer == 1).then_some(crate::conformance::threads::EndsOnDrop(done));
                for i in 0..inserts {
                    if writer == 1 {
                        // Kept keys, in an order that splits leaves everywhere.
                        let name = key("kept", i.wrapping_mul(7919) % inserts);
                        store.put(&name, &versioned(&name, 1, i % 60)).expect("put");
                        inserted.store(i + 1, Ordering::Release);
                    } else if done.load(Ordering::Acquire) {
                        break;
                    } else {
                        let name = key(&format!("churn{writer}"), rng.below(200));
                        match rng.below(3) {
                            0 => drop(store.delete(&name).expect("delete")),
                            _ => store.put(&name, &versioned(&name, i as u64, i % 200)).expect("put"),
                        }
                    }
                }
                drop(ends);
            });
        }
        let mut rounds = 0;
        loop {
            let last = done.load(Ordering::Acquire);
            let before = inserted.load(Ordering::Acquire);
            let direction = if rounds % 2 == 0 { Direction::Forward } else { Direction::Backward };
            let range = ScanRange { direction, ..ScanRange::all() };
            let seen = assert_walk(store.scan(&range).expect("scan"), direction);
            let kept: std::collections::BTreeSet<_> =
                seen.into_iter().filter(|name| name.starts_with(b"kept/")).collect();
            for i in 0..before {
                let name = key("kept", i.wrapping_mul(7919) % inserts);
                assert!(
                    kept.contains(&name),
                    "scan {rounds} misses {}, put before it began ({direction:?})",
                    show(&name)
                );
            }
            rounds += 1;
            if last {
                break;
            }
        }
        drop(ends_at_last);
    });
    assert_sound(&store);
}
