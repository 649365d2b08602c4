//! Creating, opening, clean and unclean stops, closing.

use super::data::{key, mixed_len, version_of, versioned};
use super::{Case, Harness, Pairs, Rng, Stop, assert_holds, assert_sees, assert_sound};
use crate::{Change, Error, Lifetime, Result, ScanRange, Store, Visit};

/// Opening a path without a store is a typed error, and creates no store.
pub fn opening_where_nothing_is_says_so<H: Harness>(case: &Case<H>) {
    for _ in 0..2 {
        let opened = case.harness.open().err();
        assert!(matches!(opened, Some(Error::Missing { .. })), "{opened:?}");
    }
    drop(case.create());
}

/// Creating at the path of an existing store is refused, and that store is unchanged.
pub fn creating_where_a_store_is_is_refused<H: Harness>(case: &Case<H>) {
    let store = case.create();
    store.put(b"k", b"v").expect("put");
    case.stop(store, Stop::Clean);
    let created = case.harness.create(case.plan.capacity).err();
    assert!(matches!(created, Some(Error::Exists { .. })), "{created:?}");
    let store = case.harness.open().expect("open");
    assert_holds(&store, &Pairs::from([(b"k".to_vec(), b"v".to_vec())]));
}

/// A second opener is refused while the first handle is open. The first handle is unaffected.
pub fn a_second_opener_is_told_who_holds_it<H: Harness>(case: &Case<H>) {
    let mut store = case.create();
    for how in [Stop::Clean, Stop::Crash] {
        store.put(b"k", b"v").expect("put");
        let second = case.harness.open().err();
        let Some(Error::Locked { holder, .. }) = second else { panic!("not Locked: {second:?}") };
        assert!(!holder.is_empty(), "the holder is named");
        assert_holds(&store, &Pairs::from([(b"k".to_vec(), b"v".to_vec())]));
        store = case.reopen(store, how);
    }
    assert_sound(&store);
}

/// Fills `store` with pairs of mixed sizes, some overwritten, some deleted.
fn populate<H: Harness>(case: &Case<H>, store: &H::S, salt: u64, pairs: &mut Pairs) {
    let mut rng = case.rng(salt);
    for i in 0..case.plan.keys {
        let name = key("life", i);
        let value = versioned(&name, salt, mixed_len(&mut rng) / 2);
        store.put(&name, &value).expect("put");
        pairs.insert(name, value);
    }
    for i in 0..case.plan.keys {
        let name = key("life", i);
        match rng.below(4) {
            0 => {
                assert!(store.delete(&name).expect("delete"));
                pairs.remove(&name);
            }
            1 => {
                let value = versioned(&name, salt + 1, rng.below(100));
                assert!(store.update(&name, &value, Lifetime::Forever).expect("update"));
                pairs.insert(name, value);
            }
            _ => {}
        }
    }
}

fn reopening<H: Harness>(case: &Case<H>, how: Stop) {
    let mut store = case.create();
    let mut pairs = Pairs::new();
    for salt in [10, 20] {
        populate(case, &store, salt, &mut pairs);
        // Twice in a row: the second open sees the state that the first left, without a write
        // between.
        for _ in 0..2 {
            store = case.reopen(store, how);
            assert_sees(&store, &pairs);
            store.wait_recovered().expect("wait_recovered");
            assert_holds(&store, &pairs);
            assert_sound(&store);
        }
    }
    for name in pairs.keys() {
        assert!(store.delete(name).expect("delete"));
    }
    let store = case.reopen(store, how);
    assert_holds(&store, &Pairs::new());
    assert_sound(&store);
}

/// Pairs of many sizes, overwrites and deletes survive a clean stop, and the next one.
pub fn reopening_after_close_keeps_everything<H: Harness>(case: &Case<H>) {
    reopening(case, Stop::Clean);
}

/// Pairs of many sizes, overwrites and deletes survive a crash, and the next one.
pub fn reopening_after_a_crash_keeps_everything<H: Harness>(case: &Case<H>) {
    reopening(case, Stop::Crash);
}

/// A store that was never written opens again after either kind of stop.
pub fn reopening_an_empty_store<H: Harness>(case: &Case<H>) {
    let mut store = case.create();
    for how in [Stop::Crash, Stop::Clean, Stop::Clean, Stop::Crash] {
        store = case.reopen(store, how);
        assert_holds(&store, &Pairs::new());
        assert_sound(&store);
    }
    store.put(b"k", b"v").expect("put");
    assert_holds(&store, &Pairs::from([(b"k".to_vec(), b"v".to_vec())]));
}

/// Does one write of [`reopening_again_and_again`].
fn write_again<S: Store>(store: &S, rng: &mut Rng, round: u64, capacity: usize, pairs: &mut Pairs) {
    let name = key("again", rng.below(30));
    if rng.below(4) == 0 {
        assert_eq!(store.delete(&name).expect("delete"), pairs.remove(&name).is_some(), "round {round}");
    } else {
        // At most 30 values are live, under half the capacity. All rounds together write several
        // times the capacity.
        let value = versioned(&name, round, rng.below(capacity / 70));
        store.put(&name, &value).unwrap_or_else(|error| panic!("put in round {round}: {error}"));
        pairs.insert(name, value);
    }
}

/// Repeats a few writes and a stop of either kind: nothing is lost, and space does not leak.
pub fn reopening_again_and_again<H: Harness>(case: &Case<H>) {
    let capacity = case.plan.capacity_small;
    let mut store = case.create_sized(capacity);
    let mut rng = case.rng(11);
    let mut pairs = Pairs::new();
    for round in 0..24_u64 {
        for _ in 0..20 {
            write_again(&store, &mut rng, round, capacity as usize, &mut pairs);
        }
        store = case.reopen(store, *rng.pick(&[Stop::Clean, Stop::Crash]));
        assert_sees(&store, &pairs);
    }
    assert_sound(&store);
}

/// After a crash, gets are right directly after the open, before recovery ends.
pub fn gets_are_right_at_once_after_a_crash<H: Harness>(case: &Case<H>) {
    let mut store = case.create();
    let mut pairs = Pairs::new();
    populate(case, &store, 30, &mut pairs);
    for how in [Stop::Crash, Stop::Crash, Stop::Clean] {
        store = case.reopen(store, how);
        let mut buffer = Vec::new();
        for i in 0..case.plan.keys {
            let name = key("life", i);
            let there = store.get_into(&name, &mut buffer).expect("get_into");
            assert_eq!(there.then_some(&buffer), pairs.get(&name), "key {i} at once after the open");
        }
        assert!(!store.contains(b"never").expect("contains"));
    }
    store.wait_recovered().expect("wait_recovered");
    assert_holds(&store, &pairs);
}

/// Writes of every kind directly after a crash, during recovery, are kept and found.
pub fn writes_during_recovery_are_kept<H: Harness>(case: &Case<H>) {
    let mut store = case.create();
    let mut pairs = Pairs::new();
    populate(case, &store, 40, &mut pairs);
    for round in 0..3_usize {
        store = case.reopen(store, Stop::Crash);
        for i in (round..case.plan.keys).step_by(3) {
            let name = key("life", i);
            let value = versioned(&name, 50 + round as u64, i % 77);
            match i % 4 {
                0 => assert_eq!(store.delete(&name).expect("delete"), pairs.remove(&name).is_some()),
                1 if store.insert(&name, &value, Lifetime::Forever).expect("insert") => {
                    assert!(pairs.insert(name, value).is_none(), "insert where something is");
                }
                2 if store.update(&name, &value, Lifetime::Forever).expect("update") => {
                    assert!(pairs.insert(name, value).is_some(), "update where nothing is");
                }
                1 | 2 => {}
                _ => {
                    store.put(&name, &value).expect("put");
                    pairs.insert(name, value);
                }
            }
            let name = key(&format!("new{round}"), i);
            store.put(&name, b"made during recovery").expect("put");
            pairs.insert(name, b"made during recovery".to_vec());
        }
        store.wait_recovered().expect("wait_recovered");
        assert_holds(&store, &pairs);
        assert_sound(&store);
    }
    let store = case.reopen(store, Stop::Clean);
    assert_holds(&store, &pairs);
    assert!(
        pairs
            .iter()
            .filter(|(name, _)| name.starts_with(b"life"))
            .all(|(name, value)| version_of(name, value).is_some())
    );
}

fn assert_closed<T>(what: &str, answer: Result<T>) {
    let error = answer.err();
    assert!(matches!(error, Some(Error::Closed)), "{what} of a closed store: {error:?}");
}

/// Every operation of a closed store returns `Closed`; engine name and capabilities remain
/// available.
pub fn a_closed_store_says_closed<H: Harness>(case: &Case<H>) {
    let store = case.create();
    store.put(b"k", b"v").expect("put");
    let (engine, capabilities) = (store.engine(), store.capabilities());
    store.close().expect("close");
    assert_closed("get", store.get(b"k"));
    assert_closed("get_into", store.get_into(b"k", &mut Vec::new()));
    assert_closed("contains", store.contains(b"k"));
    assert_closed("multi_get", store.multi_get(&[b"k"], &mut |_, _| panic!("answered by a closed store")));
    assert_closed("expiry", store.expiry(b"k"));
    assert_closed("put", store.put(b"k", b"w"));
    assert_closed("put_expiring", store.put_expiring(b"k", b"w", None));
    assert_closed("insert", store.insert(b"new", b"w", Lifetime::Forever));
    assert_closed("update", store.update(b"k", b"w", Lifetime::Forever));
    assert_closed("delete", store.delete(b"k"));
    assert_closed("compare_and_swap", store.compare_and_swap(b"k", Some(b"v"), None, Lifetime::Forever));
    assert_closed("update_with", store.update_with(b"k", &mut |_, _| Change::Delete));
    assert_closed("for_each", store.for_each(&mut |_, _| Visit::More));
    assert_closed("len", store.len());
    assert_closed("is_empty", store.is_empty());
    assert_closed("sync", store.sync());
    assert_closed("verify", store.verify(&mut |_| {}));
    if capabilities.scan {
        assert_closed("scan", store.scan(&ScanRange::all()));
        assert_closed("scan_each", store.scan_each(&ScanRange::all(), &mut |_, _| Visit::More));
    }
    assert_eq!((store.engine(), store.capabilities(), store.stats().engine), (engine, capabilities, engine));
    drop(store);
    let store = case.harness.open().expect("open");
    assert_holds(&store, &Pairs::from([(b"k".to_vec(), b"v".to_vec())]));
}

/// Closing a closed store does nothing. The store can be opened again while the closed handle
/// exists.
pub fn closing_twice_is_no_error<H: Harness>(case: &Case<H>) {
    let store = case.create();
    store.put(b"k", b"v").expect("put");
    for _ in 0..3 {
        store.close().expect("close");
    }
    let again = case.harness.open().expect("a closed store holds no lock");
    store.close().expect("close of the old handle");
    again.put(b"k", b"w").expect("put");
    drop(store);
    assert_holds(&again, &Pairs::from([(b"k".to_vec(), b"w".to_vec())]));
    assert_sound(&again);
}
