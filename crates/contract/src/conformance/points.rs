//! Single keys: put, get, contains, insert, update, delete.

use super::check::show;
use super::data::{key, mixed_len};
use super::{Case, Harness, Pairs, assert_holds, assert_sound};
use crate::{Lifetime, Store};

/// A new store is empty to every reader.
pub fn a_fresh_store_is_empty<H: Harness>(case: &Case<H>) {
    let store = case.create();
    assert_eq!(store.get(b"k").expect("get"), None);
    assert!(!store.contains(b"k").expect("contains"));
    assert!(!store.delete(b"k").expect("delete"));
    assert_eq!(store.expiry(b"k").expect("expiry"), None);
    assert_holds(&store, &Pairs::new());
    assert_sound(&store);
}

/// A put is readable, and a second put replaces it. Other keys stay absent.
pub fn put_get_contains_and_overwrite<H: Harness>(case: &Case<H>) {
    let store = case.create();
    store.put(b"k", b"one").expect("put");
    assert_eq!(store.get(b"k").expect("get").as_deref(), Some(&b"one"[..]));
    assert!(store.contains(b"k").expect("contains"));
    assert!(!store.contains(b"j").expect("contains"));
    assert_eq!(store.expiry(b"k").expect("expiry"), Some(None), "there, and does not expire");
    for value in [&b"two, and longer"[..], b"3", b"two, and longer", b"two, and longer"] {
        store.put(b"k", value).expect("put over");
        assert_holds(&store, &Pairs::from([(b"k".to_vec(), value.to_vec())]));
    }
    assert_sound(&store);
}

/// Delete removes a key, reports whether it was present, and leaves its neighbours.
pub fn delete_says_whether_it_was_there<H: Harness>(case: &Case<H>) {
    let store = case.create();
    for name in [b"a", b"b", b"c"] {
        store.put(name, name).expect("put");
    }
    assert!(store.delete(b"b").expect("delete"), "it was there");
    assert!(!store.delete(b"b").expect("delete"), "it is there no more");
    assert!(!store.delete(b"never").expect("delete"), "it never was");
    let left = Pairs::from([(b"a".to_vec(), b"a".to_vec()), (b"c".to_vec(), b"c".to_vec())]);
    assert_holds(&store, &left);
    store.put(b"b", b"again").expect("put after delete");
    assert_eq!(store.get(b"b").expect("get").as_deref(), Some(&b"again"[..]));
    for name in [b"a", b"b", b"c"] {
        assert!(store.delete(name).expect("delete"));
    }
    assert_holds(&store, &Pairs::new());
    assert_sound(&store);
}

/// Insert writes only if the key is absent, and otherwise changes nothing.
pub fn insert_only_where_absent<H: Harness>(case: &Case<H>) {
    let store = case.create();
    assert!(store.insert(b"k", b"first", Lifetime::Forever).expect("insert"));
    assert!(!store.insert(b"k", b"second", Lifetime::Forever).expect("insert"));
    assert_eq!(store.get(b"k").expect("get").as_deref(), Some(&b"first"[..]));
    assert!(store.delete(b"k").expect("delete"));
    assert!(store.insert(b"k", b"third", Lifetime::Forever).expect("insert after delete"));
    assert_holds(&store, &Pairs::from([(b"k".to_vec(), b"third".to_vec())]));
    assert_sound(&store);
}

/// Update writes only if the key is present, and otherwise creates nothing.
pub fn update_only_where_present<H: Harness>(case: &Case<H>) {
    let store = case.create();
    assert!(!store.update(b"k", b"first", Lifetime::Forever).expect("update"));
    assert_holds(&store, &Pairs::new());
    store.put(b"k", b"put").expect("put");
    assert!(store.update(b"k", b"updated", Lifetime::Forever).expect("update"));
    assert_holds(&store, &Pairs::from([(b"k".to_vec(), b"updated".to_vec())]));
    assert!(store.delete(b"k").expect("delete"));
    assert!(!store.update(b"k", b"late", Lifetime::Forever).expect("update after delete"));
    assert_holds(&store, &Pairs::new());
    assert_sound(&store);
}

/// Keys of any bytes, including zero and 255, are distinct and ordered as unsigned bytes.
pub fn binary_keys_are_opaque<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let mut pairs = Pairs::new();
    let mut names: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    for first in [0, 1, b'/', 0x7f, 0x80, 0xff] {
        for second in [0, 1, 0x7f, 0x80, 0xfe, 0xff] {
            names.push(vec![first, second]);
            names.push(vec![first, second, 0, 0, 0, 0, 0, 0, 0]);
            names.push(vec![first; 8 + usize::from(second)]);
        }
    }
    let mut rng = case.rng(1);
    names.extend((0..200).map(|i| rng.bytes(1 + i % 40)));
    for (i, name) in names.iter().enumerate() {
        let value = format!("{i} {}", show(name)).into_bytes();
        store.put(name, &value).expect("put");
        pairs.insert(name.clone(), value);
    }
    assert_holds(&store, &pairs);
    assert_sound(&store);
}

/// Keys that are prefixes of each other are different keys, each with its own value and end.
pub fn keys_that_begin_with_each_other_are_apart<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let mut pairs = Pairs::new();
    for byte in [0_u8, b'a', 0xff] {
        for len in (1..40).chain([63, 64, 65, 255, 256, 257]) {
            let name = vec![byte; len];
            let value = len.to_string().into_bytes();
            assert!(
                store.insert(&name, &value, Lifetime::Forever).expect("insert"),
                "{} is not there yet",
                show(&name)
            );
            pairs.insert(name, value);
        }
    }
    assert_holds(&store, &pairs);
    let some: Vec<_> = pairs.keys().filter(|name| name.len() % 3 == 0).cloned().collect();
    for name in some {
        assert!(store.delete(&name).expect("delete"), "{} is there", show(&name));
        pairs.remove(&name);
    }
    assert_holds(&store, &pairs);
    assert_sound(&store);
}

/// An empty value is present, and differs from an absent value.
pub fn empty_values_are_values<H: Harness>(case: &Case<H>) {
    let store = case.create();
    store.put(b"k", b"").expect("put");
    assert_holds(&store, &Pairs::from([(b"k".to_vec(), Vec::new())]));
    assert!(!store.insert(b"k", b"x", Lifetime::Forever).expect("insert"), "an empty value is present");
    assert!(store.update(b"k", b"x", Lifetime::Forever).expect("update"));
    assert!(store.update(b"k", b"", Lifetime::Forever).expect("update to empty"));
    assert_holds(&store, &Pairs::from([(b"k".to_vec(), Vec::new())]));
    assert!(store.delete(b"k").expect("delete"));
    assert!(store.insert(b"k", b"", Lifetime::Forever).expect("insert empty"));
    assert_holds(&store, &Pairs::from([(b"k".to_vec(), Vec::new())]));
    assert_sound(&store);
}

/// Many keys of mixed sizes through rounds of puts, overwrites and deletes: each keeps its own
/// value.
pub fn many_keys_stay_apart<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let mut rng = case.rng(2);
    let mut pairs = Pairs::new();
    for round in 0..3 {
        for i in 0..case.plan.keys {
            let name = key("many", i);
            if round > 0 && rng.below(3) == 0 {
                assert_eq!(store.delete(&name).expect("delete"), pairs.remove(&name).is_some(), "{}", show(&name));
            } else {
                let len = mixed_len(&mut rng) / 4;
                let value = rng.bytes(len);
                store.put(&name, &value).expect("put");
                pairs.insert(name, value);
            }
        }
        assert_holds(&store, &pairs);
    }
    for i in 0..case.plan.keys {
        let name = key("other", i);
        assert!(!store.contains(&name).expect("contains"), "{} was never put", show(&name));
    }
    assert_sound(&store);
}

/// Engine and capabilities are the same before and after work and reopening. Every optional
/// operation behaves as its capability states.
pub fn names_and_capabilities_are_steady<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let (engine, capabilities) = (store.engine(), store.capabilities());
    assert!(
        !engine.is_empty() && engine.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()),
        "{engine}"
    );
    assert_eq!(store.stats().engine, engine);
    store.put(b"k", b"v").expect("put");
    assert_eq!(store.scan(&crate::ScanRange::all()).is_ok(), capabilities.scan);
    assert_eq!(store.scan_each(&crate::ScanRange::all(), &mut |_, _| crate::Visit::More).is_ok(), capabilities.scan);
    assert_eq!(store.snapshot().is_ok(), capabilities.snapshot);
    let store = case.reopen(store, super::Stop::Clean);
    assert_eq!((store.engine(), store.capabilities()), (engine, capabilities));
}
