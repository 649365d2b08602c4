//! Expiry: a key whose moment has come is absent to everyone.
//!
//! Only two moments are used, long past and far ahead, so that no test waits or races the clock.

use std::time::Duration;

use super::data::key;
use super::{Case, Harness, Pairs, Stop, assert_holds, assert_sees, assert_sound};
use crate::{Change, Error, Expiry, ScanRange, Store, Swap, Visit};

/// Long past.
pub(super) const PAST: Expiry = Expiry::at_millis(1);
/// The year 2286, and the last moment there is.
pub(super) const FAR: [Expiry; 2] = [Expiry::at_millis(10_000_000_000_000), Expiry::at_millis(u64::MAX)];

/// A store for these behaviours; `None` (after a look at the refusal) where the engine has no expiry.
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

/// A key with an expiry long past, then one of 0, is absent to every reader.
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

/// To every writer an expired key is absent: insert does, update does not, delete says no.
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
    assert!(!store.update(b"k", b"new").expect("update"), "update sees it absent");
    holds(None);
    expire();
    assert!(store.insert(b"k", b"new").expect("insert"), "insert sees it absent");
    holds(Some(b"new"));
    expire();
    let differs = store.compare_and_swap(b"k", Some(b"old"), Some(b"new")).expect("compare_and_swap");
    assert_eq!(differs, Swap::Differs(None));
    holds(None);
    assert_eq!(store.compare_and_swap(b"k", None, None).expect("compare_and_swap"), Swap::Done);
    holds(None);
    expire();
    assert_eq!(store.compare_and_swap(b"k", None, Some(b"new")).expect("compare_and_swap"), Swap::Done);
    holds(Some(b"new"));
    for (change, after) in [
        (Change::Keep, None),
        (Change::Delete, None),
        (Change::Put(b"made".to_vec(), None), Some(&b"made"[..])),
        (Change::Put(b"gone".to_vec(), Some(PAST)), None),
    ] {
        expire();
        let done = store.update_with(b"k", &mut |now| {
            assert_eq!(now, None, "update_with sees it absent");
            change.clone()
        });
        done.expect("update_with");
        holds(after);
    }
    store.put(b"k", b"last").expect("put");
    assert_holds(&store, &Pairs::from([(b"k".to_vec(), b"last".to_vec())]));
    assert_sound(&store);
}

/// An expiry far ahead is told exactly, and the key is there until then.
pub fn later_expiry_is_told_and_harmless<H: Harness>(case: &Case<H>) {
    let Some(store) = create(case) else { return };
    let hour = Expiry::after(Duration::from_secs(3600));
    for expiry in [FAR[0], FAR[1], hour] {
        store.put_expiring(b"k", b"v", Some(expiry)).expect("put_expiring");
        assert_eq!(store.expiry(b"k").expect("expiry"), Some(Some(expiry)));
        assert_holds(&store, &Pairs::from([(b"k".to_vec(), b"v".to_vec())]));
        assert!(!store.insert(b"k", b"w").expect("insert"), "it is there");
        assert_eq!(store.expiry(b"k").expect("expiry"), Some(Some(expiry)), "a refused insert leaves the expiry");
        store.update_with(b"k", &mut |_| Change::Keep).expect("update_with");
        assert_eq!(store.expiry(b"k").expect("expiry"), Some(Some(expiry)), "Keep leaves the expiry");
        let other = store.compare_and_swap(b"k", Some(b"x"), Some(b"y")).expect("compare_and_swap");
        assert_eq!(other, Swap::Differs(Some(b"v".to_vec())));
        assert_eq!(store.expiry(b"k").expect("expiry"), Some(Some(expiry)), "a failed swap leaves the expiry");
    }
    store.update_with(b"k", &mut |_| Change::Put(b"w".to_vec(), Some(FAR[0]))).expect("update_with");
    assert_eq!(store.expiry(b"k").expect("expiry"), Some(Some(FAR[0])), "update_with sets it");
    assert!(store.delete(b"k").expect("delete"), "it was there");
    assert_eq!(store.expiry(b"k").expect("expiry"), None);
    assert_sound(&store);
}

/// Every write that names no expiry leaves the key without one.
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
    assert!(store.update(b"k", b"w").expect("update"));
    cleared("update");
    expiring();
    assert_eq!(store.compare_and_swap(b"k", Some(b"v"), Some(b"w")).expect("compare_and_swap"), Swap::Done);
    cleared("compare_and_swap");
    expiring();
    store.update_with(b"k", &mut |_| Change::Put(b"w".to_vec(), None)).expect("update_with");
    cleared("update_with");
    expiring();
    assert!(store.delete(b"k").expect("delete"));
    assert!(store.insert(b"k", b"w").expect("insert"));
    cleared("delete and insert");
}

/// Expiry, past and far, is the same after a clean stop and after a crash.
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
