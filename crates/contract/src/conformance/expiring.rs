//! Expiry: an expired key is absent to every operation.
//!
//! The behaviours use only two times, long past and far ahead, so no test waits or depends on the
//! clock.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::data::key;
use super::{Case, Harness, Pairs, Stop, assert_holds, assert_sees, assert_sound};
use crate::{Change, Entry, Error, Expiry, Lifetime, Pair, Scan, ScanRange, Store, Swap, Visit};

/// A time long past.
pub(super) const PAST: Expiry = Expiry::at_millis(1);
/// The year 2286, and the last possible time.
pub(super) const FAR: [Expiry; 2] = [Expiry::at_millis(10_000_000_000_000), Expiry::at_millis(u64::MAX)];

/// Creates a store for these behaviours. Returns `None`, after checking the refusal, if the engine
/// has no expiry.
fn create<H: Harness>(case: &Case<H>) -> Option<H::S> {
    let store = case.create();
    if store.capabilities().expiry {
        return Some(store);
    }
    let refused = store.put_expiring(b"k", b"v", Some(FAR[0]));
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "no such capability, but {refused:?}");
    assert_holds(&store, &Pairs::new());
    None
}

/// A key that expired long ago, or at time 0, is absent to every reader.
pub fn expired_keys_are_absent_to_every_reader<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    for past in [PAST, Expiry::at_millis(0)] {
        for (name, expiry) in [(b"a", None), (b"b", Some(past)), (b"c", Some(FAR[0])), (b"d", Some(past))] {
            store.put_expiring(name, b"value", expiry).expect("put_expiring");
        }
        let mut buffer = b"left".to_vec();
        assert!(!store.get_into(b"b", &mut buffer).expect("get_into") && buffer.is_empty(), "get_into");
        assert_eq!(store.get(b"b").expect("get"), None);
        assert!(!store.contains(b"b").expect("contains"), "contains");
        assert_eq!(store.expiry(b"b").expect("expiry"), None);
        let mut hits = Vec::new();
        store.multi_get(&[b"a", b"b", b"c", b"d"], &mut |_, value| hits.push(value.is_some())).expect("multi_get");
        assert_eq!(hits, [true, false, true, false]);
        let value = b"value".to_vec();
        assert_sees(&store, &Pairs::from([(b"a".to_vec(), value.clone()), (b"c".to_vec(), value)]));
        if store.capabilities().scan {
            let mut seen = Vec::new();
            let limited = ScanRange::all().limit(2);
            let visit = &mut |name: &[u8], _: &[u8]| {
                seen.push(name.to_vec());
                Visit::More
            };
            assert_eq!(store.scan_each(&limited, visit).expect("scan_each"), 2);
            assert_eq!(seen, [b"a", b"c"], "expired keys do not use up a limit");
        }
    }
    assert_sound(&store);
}

/// An expired key is absent to every writer: insert writes, update does not, delete returns
/// `false`.
pub fn expired_keys_are_absent_to_every_writer<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let expire = || store.put_expiring(b"k", b"old", Some(PAST)).expect("put_expiring");
    let holds = |value: Option<&[u8]>| {
        assert_sees(&store, &value.map(|value| (b"k".to_vec(), value.to_vec())).into_iter().collect());
    };
    expire();
    assert!(!store.delete(b"k").expect("delete"), "delete of an expired key says that it was not there");
    holds(None);
    expire();
    assert!(!store.update(b"k", b"new", Lifetime::Forever).expect("update"), "update sees it absent");
    holds(None);
    expire();
    assert!(store.insert(b"k", b"new", Lifetime::Forever).expect("insert"), "insert sees it absent");
    holds(Some(b"new"));
    expire();
    let differs =
        store.compare_and_swap(b"k", Some(b"old"), Some(b"new"), Lifetime::Forever).expect("compare_and_swap");
    assert_eq!(differs, Swap::Differs(None));
    holds(None);
    assert_eq!(store.compare_and_swap(b"k", None, None, Lifetime::Forever).expect("compare_and_swap"), Swap::Done);
    holds(None);
    expire();
    assert_eq!(
        store.compare_and_swap(b"k", None, Some(b"new"), Lifetime::Forever).expect("compare_and_swap"),
        Swap::Done
    );
    holds(Some(b"new"));
    for (change, after) in [
        (Change::Keep, None),
        (Change::Delete, None),
        (Change::Put(b"made".to_vec(), Lifetime::Forever), Some(&b"made"[..])),
        (Change::Put(b"gone".to_vec(), Lifetime::Until(PAST)), None),
    ] {
        expire();
        let done = store.update_with(b"k", &mut |now, expiry| {
            assert_eq!((now, expiry), (None, None), "update_with sees it absent");
            change.clone()
        });
        done.expect("update_with");
        holds(after);
    }
    store.put(b"k", b"last").expect("put");
    assert_holds(&store, &Pairs::from([(b"k".to_vec(), b"last".to_vec())]));
    assert_sound(&store);
}

/// An expiry far ahead is returned exactly, and the key is present.
pub fn later_expiry_is_told_and_harmless<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let hour = Expiry::after(Duration::from_secs(3600));
    for expiry in [FAR[0], FAR[1], hour] {
        store.put_expiring(b"k", b"v", Some(expiry)).expect("put_expiring");
        assert_eq!(store.expiry(b"k").expect("expiry"), Some(Some(expiry)));
        assert_holds(&store, &Pairs::from([(b"k".to_vec(), b"v".to_vec())]));
        assert!(!store.insert(b"k", b"w", Lifetime::Forever).expect("insert"), "it is there");
        assert_eq!(store.expiry(b"k").expect("expiry"), Some(Some(expiry)), "a refused insert leaves the expiry");
        store.update_with(b"k", &mut |_, _| Change::Keep).expect("update_with");
        assert_eq!(store.expiry(b"k").expect("expiry"), Some(Some(expiry)), "Keep leaves the expiry");
        let other = store.compare_and_swap(b"k", Some(b"x"), Some(b"y"), Lifetime::Forever).expect("compare_and_swap");
        assert_eq!(other, Swap::Differs(Some(b"v".to_vec())));
        assert_eq!(store.expiry(b"k").expect("expiry"), Some(Some(expiry)), "a failed swap leaves the expiry");
    }
    store.update_with(b"k", &mut |_, _| Change::Put(b"w".to_vec(), Lifetime::Until(FAR[0]))).expect("update_with");
    assert_eq!(store.expiry(b"k").expect("expiry"), Some(Some(FAR[0])), "update_with sets it");
    assert!(store.delete(b"k").expect("delete"), "it was there");
    assert_eq!(store.expiry(b"k").expect("expiry"), None);
    assert_sound(&store);
}

/// Every write without an expiry clears the key's expiry.
pub fn writes_clear_the_expiry<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let expiring = || store.put_expiring(b"k", b"v", Some(FAR[0])).expect("put_expiring");
    let cleared = |by: &str| assert_eq!(store.expiry(b"k").expect("expiry"), Some(None), "{by} clears the expiry");
    expiring();
    store.put(b"k", b"w").expect("put");
    cleared("put");
    expiring();
    store.put(b"k", b"v").expect("put of the same value");
    cleared("put of the same value");
    expiring();
    assert!(store.update(b"k", b"w", Lifetime::Forever).expect("update"));
    cleared("update");
    expiring();
    assert_eq!(
        store.compare_and_swap(b"k", Some(b"v"), Some(b"w"), Lifetime::Forever).expect("compare_and_swap"),
        Swap::Done
    );
    cleared("compare_and_swap");
    expiring();
    store.update_with(b"k", &mut |_, _| Change::Put(b"w".to_vec(), Lifetime::Forever)).expect("update_with");
    cleared("update_with");
    expiring();
    assert!(store.delete(b"k").expect("delete"));
    assert!(store.insert(b"k", b"w", Lifetime::Forever).expect("insert"));
    cleared("delete and insert");
}

/// The lifetimes, each with the resulting expiry of a key that had [`FAR`]`[0]`.
const LIFETIMES: [(Lifetime, Option<Expiry>); 3] =
    [(Lifetime::Forever, None), (Lifetime::Keep, Some(FAR[0])), (Lifetime::Until(FAR[1]), Some(FAR[1]))];

/// Returns the resulting expiry of a key that had none.
fn without_expiry(lifetime: Lifetime) -> Option<Expiry> {
    if lifetime == Lifetime::Until(FAR[1]) { Some(FAR[1]) } else { None }
}

/// Checks the value of key `k`, and its expiry.
fn assert_key<S: Store>(store: &S, value: &[u8], expiry: Option<Expiry>, what: &str) {
    assert_eq!(store.get(b"k").expect("get").as_deref(), Some(value), "the value after {what}");
    assert_eq!(store.expiry(b"k").expect("expiry"), Some(expiry), "the expiry after {what}");
}

/// Prepares key `k` for a write: with or without an expiry, or absent (outer `None`).
fn prepare<S: Store>(store: &S, expiry: Option<Option<Expiry>>) {
    match expiry {
        Some(expiry) => store.put_expiring(b"k", b"old", expiry).expect("put_expiring"),
        None => drop(store.delete(b"k").expect("delete")),
    }
}

/// Insert sets the expiry of `Until`. `Keep` sets none, also if an expired record is replaced.
pub fn insert_follows_its_lifetime<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    for (lifetime, _) in LIFETIMES {
        for before in [None, Some(Some(PAST))] {
            let what = format!("insert {lifetime:?} over {before:?}");
            prepare(&store, None);
            prepare(&store, before);
            assert!(store.insert(b"k", b"new", lifetime).expect("insert"), "{what}");
            assert_key(&store, b"new", without_expiry(lifetime), &what);
        }
        for before in [Some(FAR[0]), None] {
            prepare(&store, Some(before));
            assert!(!store.insert(b"k", b"new", lifetime).expect("insert"), "the key is present");
            assert_key(&store, b"old", before, &format!("a refused insert {lifetime:?}"));
        }
    }
    prepare(&store, None);
    assert!(store.insert(b"k", b"new", Lifetime::Until(PAST)).expect("insert"), "the key was absent");
    assert!(!store.contains(b"k").expect("contains"), "what is inserted has expired");
    assert_sound(&store);
}

/// Update removes, keeps and sets the expiry. An expired or absent key is not updated.
pub fn update_follows_its_lifetime<H: Harness>(case: &Case<H>) {
    let Some(mut store) = create(case) else { return };
    for (lifetime, after) in LIFETIMES {
        for (before, after) in [(Some(FAR[0]), after), (None, without_expiry(lifetime))] {
            prepare(&store, Some(before));
            // Shorter than, longer than, and as long as the old value.
            for value in [&b"n"[..], &[b'n'; 5000], b"new"] {
                prepare(&store, Some(before));
                assert!(store.update(b"k", value, lifetime).expect("update"), "the key is present");
                assert_key(&store, value, after, &format!("update {lifetime:?} over {before:?}"));
            }
        }
        for before in [None, Some(Some(PAST))] {
            prepare(&store, before);
            assert!(!store.update(b"k", b"new", lifetime).expect("update"), "update {lifetime:?} over {before:?}");
            assert_sees(&store, &Pairs::new());
        }
    }
    prepare(&store, Some(Some(FAR[0])));
    for how in [Stop::Clean, Stop::Crash] {
        assert!(store.update(b"k", b"kept", Lifetime::Keep).expect("update"), "the key is present");
        store = case.reopen(store, how);
        assert_key(&store, b"kept", Some(FAR[0]), &format!("a kept expiry and {how:?}"));
    }
    assert!(store.update(b"k", b"new", Lifetime::Until(PAST)).expect("update"), "the key was present");
    assert!(!store.contains(b"k").expect("contains"), "what is updated has expired");
    assert_sound(&store);
}

/// A swap applies its lifetime to the new value. A swap that differs leaves the expiry unchanged.
pub fn compare_and_swap_follows_its_lifetime<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let swap = |expected: Option<&[u8]>, new: Option<&[u8]>, lifetime| {
        store.compare_and_swap(b"k", expected, new, lifetime).expect("compare_and_swap")
    };
    for (lifetime, after) in LIFETIMES {
        for (before, after) in [(Some(FAR[0]), after), (None, without_expiry(lifetime))] {
            prepare(&store, Some(before));
            let differs = swap(Some(b"other"), Some(b"new"), lifetime);
            assert_eq!(differs, Swap::Differs(Some(b"old".to_vec())));
            assert_key(&store, b"old", before, "a swap that differs");
            assert_eq!(swap(Some(b"old"), Some(b"new"), lifetime), Swap::Done);
            assert_key(&store, b"new", after, &format!("swap {lifetime:?} over {before:?}"));
            assert_eq!(swap(Some(b"new"), None, lifetime), Swap::Done);
            assert_sees(&store, &Pairs::new());
        }
        for before in [None, Some(Some(PAST))] {
            prepare(&store, before);
            assert_eq!(swap(None, Some(b"new"), lifetime), Swap::Done);
            assert_key(&store, b"new", without_expiry(lifetime), &format!("swap {lifetime:?} over {before:?}"));
            prepare(&store, None);
        }
    }
    assert_sound(&store);
}

/// The lifetime in `Change::Put` removes, keeps and sets the expiry.
pub fn update_with_follows_its_lifetime<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    for (lifetime, after) in LIFETIMES {
        let absent = without_expiry(lifetime);
        let all = [(Some(Some(FAR[0])), after), (Some(None), absent), (Some(Some(PAST)), absent), (None, absent)];
        for (before, after) in all {
            prepare(&store, None);
            prepare(&store, before);
            let put = store.update_with(b"k", &mut |_, _| Change::Put(b"new".to_vec(), lifetime));
            put.expect("update_with");
            assert_key(&store, b"new", after, &format!("update_with {lifetime:?} over {before:?}"));
        }
    }
    assert_sound(&store);
}

/// The closure of `update_with` receives the current expiry, and none for an absent or expired key.
pub fn update_with_shows_the_expiry<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    for before in [Some(Some(FAR[0])), Some(Some(FAR[1])), Some(None), Some(Some(PAST)), None] {
        prepare(&store, before);
        let mut seen = None;
        let kept = store.update_with(b"k", &mut |value, expiry| {
            seen = Some((value.map(<[u8]>::to_vec), expiry));
            Change::Keep
        });
        kept.expect("update_with");
        let live = before.filter(|expiry| *expiry != Some(PAST));
        assert_eq!(seen, Some((live.map(|_| b"old".to_vec()), live.flatten())), "of a key with {before:?}");
        assert_eq!(store.expiry(b"k").expect("expiry"), live, "Change::Keep leaves the expiry");
    }
    assert_sound(&store);
}

/// A thread raises the expiry of a key while other threads write with `Keep`. A write that keeps an
/// expiry read before another write would restore an older expiry.
pub fn kept_expiries_never_go_back_under_race<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let (writers, each) = (case.plan.threads.max(2) - 1, case.plan.thread_ops / 4);
    let at = |raised: u64| Expiry::at_millis(FAR[0].millis() + raised);
    let expiry = || store.expiry(b"k").expect("expiry").flatten().expect("the key expires");
    store.put_expiring(b"k", b"first", Some(at(0))).expect("put_expiring");
    let start = Barrier::new(writers + 1);
    thread::scope(|scope| {
        let spawn = |writer| {
            let (store, start) = (&store, &start);
            scope.spawn(move || {
                start.wait();
                (0..each).for_each(|step| keep_expiry(store, &[writer as u8; 9], step));
            })
        };
        let running: Vec<_> = (0..writers).map(spawn).collect();
        start.wait();
        let mut raised = 0;
        while !running.iter().all(thread::ScopedJoinHandle::is_finished) {
            raised += 1;
            store.put_expiring(b"k", b"raised", Some(at(raised))).expect("put_expiring");
            thread::yield_now();
            assert_eq!(expiry(), at(raised), "only this thread changes the expiry");
        }
    });
    assert_sound(&store);
}

/// Writes `value` to key `k` by one of the writes that keep the expiry.
fn keep_expiry<S: Store>(store: &S, value: &[u8], step: usize) {
    match step % 3 {
        0 => assert!(store.update(b"k", value, Lifetime::Keep).expect("update"), "the key is present"),
        1 => {
            let put = store.update_with(b"k", &mut |_, _| Change::Put(value.to_vec(), Lifetime::Keep));
            put.expect("update_with");
        }
        _ => {
            let now = store.get(b"k").expect("get");
            let swap = store.compare_and_swap(b"k", now.as_deref(), Some(value), Lifetime::Keep);
            swap.expect("compare_and_swap");
        }
    }
}

/// Keys with their expiries.
type Expiries = BTreeMap<Vec<u8>, Option<Expiry>>;

/// Returns the expiries that `for_each_pair` shows.
fn shown_by_for_each<S: Store>(store: &S) -> Expiries {
    let mut shown = Expiries::new();
    let count = store.for_each_pair(&mut |pair: Pair<'_>| {
        assert!(shown.insert(pair.key.to_vec(), pair.expiry).is_none(), "for_each_pair visits a key twice");
        Visit::More
    });
    assert_eq!(count.expect("for_each_pair"), shown.len() as u64, "for_each_pair counts its visits");
    shown
}

/// Returns the expiries that a scan shows.
fn shown_by(scan: crate::Result<Scan>) -> Expiries {
    let pair = |entry: crate::Result<Entry>| {
        let entry = entry.expect("an entry");
        (entry.key().to_vec(), entry.expiry())
    };
    scan.expect("scan").map(pair).collect()
}

/// Every walk shows each key with its expiry, for long and short values, also after reopening.
pub fn walks_report_the_expiry<H: Harness>(case: &Case<H>) {
    let Some(mut store) = create(case) else { return };
    let long = vec![7; 5000];
    let mut expected = Expiries::new();
    for i in 0..case.plan.keys.min(600) {
        let expiry =
            [None, Some(FAR[0]), Some(PAST), Some(FAR[1]), Some(Expiry::at_millis(FAR[0].millis() + 1))][i % 5];
        let value: &[u8] = if i.is_multiple_of(7) { &long } else { b"v" };
        store.put_expiring(&key("walked", i), value, expiry).expect("put_expiring");
        if expiry != Some(PAST) {
            expected.insert(key("walked", i), expiry);
        }
    }
    for stop in [None, Some(Stop::Clean), Some(Stop::Crash)] {
        if let Some(how) = stop {
            store = case.reopen(store, how);
        }
        assert_eq!(shown_by_for_each(&store), expected, "for_each_pair after {stop:?}");
        if store.capabilities().scan {
            assert_eq!(shown_by(store.scan(&ScanRange::all())), expected, "scan after {stop:?}");
            let backward = ScanRange::all().reverse();
            assert_eq!(shown_by(store.scan(&backward)), expected, "backward scan after {stop:?}");
        }
    }
    assert_sound(&store);
}

/// Threads write pairs whose values name their expiries. No concurrent walk shows the value of one
/// write with the expiry of another.
pub fn walks_pair_values_with_their_own_expiry<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let (keys, stop) = (20, AtomicBool::new(false));
    let write = |i: usize, step: u64| {
        let millis = FAR[0].millis() + step;
        store.put_expiring(&key("paired", i), &millis.to_le_bytes(), Some(Expiry::at_millis(millis))).expect("put");
    };
    let check = |pair: Pair<'_>| {
        let named = Expiry::at_millis(u64::from_le_bytes(pair.value.try_into().expect("8 bytes")));
        assert_eq!(pair.expiry, Some(named), "of {}", pair.key.escape_ascii());
    };
    (0..keys).for_each(|i| write(i, 0));
    thread::scope(|scope| {
        let ends = super::threads::EndsOnDrop(&stop);
        scope.spawn(|| {
            let mut step = 0;
            while !stop.load(Ordering::Acquire) {
                step += 1;
                (0..keys).for_each(|i| write(i, step));
            }
        });
        for _ in 0..case.plan.thread_ops / 20 {
            let walked = store.for_each_pair(&mut |pair| {
                check(pair);
                Visit::More
            });
            assert_eq!(walked.expect("for_each_pair"), keys as u64);
            if store.capabilities().scan {
                let scan = store.scan(&ScanRange::all()).expect("scan");
                scan.for_each(|entry| check(entry.expect("an entry").pair()));
            }
            thread::yield_now();
        }
        drop(ends);
    });
    assert_sound(&store);
}

/// A snapshot reports the expiries of its moment, by gets and by scans.
pub fn snapshots_keep_their_expiries<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    if !store.capabilities().snapshot {
        return;
    }
    let mut expected = Expiries::new();
    for i in 0..100 {
        let expiry = [None, Some(FAR[0]), Some(FAR[1])][i % 3];
        store.put_expiring(&key("seen", i), b"before", expiry).expect("put_expiring");
        expected.insert(key("seen", i), expiry);
    }
    store.put_expiring(b"past", b"before", Some(PAST)).expect("put_expiring");
    let view = store.snapshot().expect("snapshot");
    for i in 0..100 {
        store.put_expiring(&key("seen", i), b"after", Some(FAR[i % 2])).expect("put_expiring");
    }
    for (name, expiry) in &expected {
        let found = view.get_with_expiry(name).expect("get_with_expiry");
        assert_eq!(found, Some((b"before".to_vec(), *expiry)), "of {}", name.escape_ascii());
        assert_eq!(view.get(name).expect("get"), Some(b"before".to_vec()));
    }
    assert_eq!(view.get_with_expiry(b"past").expect("get_with_expiry"), None, "an expired key is absent");
    if store.capabilities().scan {
        assert_eq!(shown_by(view.scan(&ScanRange::all())), expected);
    }
}

/// Past and far expiries survive a clean stop and a crash.
pub fn expiry_survives_reopening<H: Harness>(case: &Case<H>) {
    let Some(mut store) = create(case) else { return };
    let mut pairs = Pairs::new();
    let count = case.plan.keys / 4;
    let expiry_of = |i: usize| [None, Some(PAST), Some(FAR[0]), Some(FAR[1])][i % 4];
    for i in 0..count {
        let name = key("expiring", i);
        store.put_expiring(&name, b"v", expiry_of(i)).expect("put_expiring");
        if expiry_of(i) != Some(PAST) {
            pairs.insert(name, b"v".to_vec());
        }
    }
    for how in [Stop::Clean, Stop::Crash, Stop::Clean] {
        store = case.reopen(store, how);
        assert_sees(&store, &pairs);
        for i in 0..count {
            let expected = if expiry_of(i) == Some(PAST) { None } else { Some(expiry_of(i)) };
            assert_eq!(store.expiry(&key("expiring", i)).expect("expiry"), expected, "after {how:?}");
        }
    }
    assert_sound(&store);
}

/// `len` may count expired keys until they are swept, but no others, and never too few.
pub fn expired_keys_may_linger_in_len_only<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    for i in 0..100 {
        store.put_expiring(&key("len", i), b"v", (i % 2 == 0).then_some(PAST)).expect("put_expiring");
    }
    let len = store.len().expect("len");
    assert!((50..=100).contains(&len), "len {len} of 50 live and 50 expired");
    assert_eq!(store.for_each(&mut |_, _| Visit::More).expect("for_each"), 50, "for_each counts live keys only");
    for i in (0..100).step_by(2) {
        store.put(&key("len", i), b"v").expect("put");
    }
    assert_eq!(store.len().expect("len"), 100, "a key that came back counts once");
    for i in 0..100 {
        assert!(store.delete(&key("len", i)).expect("delete"));
    }
    assert_holds(&store, &Pairs::new());
    assert_sound(&store);
}
