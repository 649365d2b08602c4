//! Limits: keys of 1 B to 64 KiB, values of 0 B to 1 GiB, and sizes beyond.

use super::check::show;
use super::{Case, Harness, Pairs, Stop, assert_holds, assert_sound};
use crate::limits::{KEY_MAX, VALUE_MAX};
use crate::{Change, Error, Lifetime, Result, Store, Swap};

/// Keys of 1 B, of 64 KiB, and around the powers of two between, are kept.
pub fn keys_of_least_and_greatest_length<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let mut pairs = Pairs::new();
    let mut rng = case.rng(4);
    let around = (1..=16).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]);
    for len in around.filter(|len| *len <= KEY_MAX) {
        let name = rng.bytes(len);
        let value = len.to_string().into_bytes();
        store.put(&name, &value).unwrap_or_else(|error| panic!("put a key of {len} bytes: {error}"));
        pairs.insert(name, value);
    }
    // Two keys of maximum length that differ only in their last byte.
    for last in [0, 1] {
        let mut name = vec![b'z'; KEY_MAX];
        name[KEY_MAX - 1] = last;
        assert!(store.insert(&name, &[last], Lifetime::Forever).expect("insert"));
        pairs.insert(name, vec![last]);
    }
    assert_holds(&store, &pairs);
    let store = case.reopen(store, Stop::Crash);
    assert_holds(&store, &pairs);
    let store = case.reopen(store, Stop::Clean);
    assert_holds(&store, &pairs);
    for name in pairs.keys() {
        assert!(store.delete(name).expect("delete"), "a key of {} bytes is there", name.len());
    }
    assert_holds(&store, &Pairs::new());
    assert_sound(&store);
}

fn assert_key_refused<T: std::fmt::Debug>(what: &str, len: usize, answer: Result<T>) {
    assert!(
        matches!(answer, Err(Error::KeyLength { len: told, .. }) if told == len),
        "{what}, key of {len} bytes: {answer:?}"
    );
}

/// Keys of 0 B and of 64 KiB + 1 are refused by every operation, and nothing changes.
pub fn keys_beyond_the_limits_are_refused<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let before = Pairs::from([(b"k".to_vec(), b"v".to_vec())]);
    store.put(b"k", b"v").expect("put");
    for name in [Vec::new(), vec![b'k'; KEY_MAX + 1], vec![0; 4 * KEY_MAX]] {
        let (name, len) = (name.as_slice(), name.len());
        assert_key_refused("get", len, store.get(name));
        assert_key_refused("get_into", len, store.get_into(name, &mut Vec::new()));
        assert_key_refused("contains", len, store.contains(name));
        assert_key_refused("multi_get", len, store.multi_get(&[name], &mut |_, _| panic!("answered a refused key")));
        assert_key_refused("expiry", len, store.expiry(name));
        assert_key_refused("put", len, store.put(name, b"v"));
        assert_key_refused("put_expiring", len, store.put_expiring(name, b"v", None));
        assert_key_refused("insert", len, store.insert(name, b"v", Lifetime::Forever));
        assert_key_refused("update", len, store.update(name, b"v", Lifetime::Forever));
        assert_key_refused("delete", len, store.delete(name));
        assert_key_refused("compare_and_swap", len, store.compare_and_swap(name, None, Some(b"v"), Lifetime::Forever));
        assert_key_refused("update_with", len, store.update_with(name, &mut |_, _| panic!("ran for a refused key")));
        assert_holds(&store, &before);
    }
    assert_sound(&store);
}

/// Values of many sizes, up to the plan's largest (64 MiB by default), through overwriting,
/// reopening and deleting.
pub fn values_of_all_sizes<H: Harness>(case: &Case<H>) {
    let largest = case.plan.value_max;
    let mut sizes = vec![0, 1, 7, 8, 9, 255, 256, 257, 4095, 4096, 4097, 65_535, 65_536, (1 << 20) - 1, 1 << 20];
    sizes.retain(|size| *size < largest);
    sizes.push(largest);
    // Space for the largest value twice (the old value is kept until the new one is written), and
    // for rounding.
    let store = case.create_sized(case.plan.capacity.max(largest as u64 * 4 + (16 << 20)));
    let mut rng = case.rng(5);
    let mut pairs = Pairs::new();
    for size in &sizes {
        let (name, value) = (format!("size {size}").into_bytes(), rng.bytes(*size));
        store.put(&name, &value).unwrap_or_else(|error| panic!("put {size} bytes: {error}"));
        pairs.insert(name, value);
    }
    assert_holds(&store, &pairs);
    let name = format!("size {largest}").into_bytes();
    let value = rng.bytes(largest);
    store.put(&name, &value).expect("put over the largest");
    pairs.insert(name, value);
    let store = case.reopen(store, Stop::Crash);
    assert_holds(&store, &pairs);
    let store = case.reopen(store, Stop::Clean);
    assert_holds(&store, &pairs);
    for name in pairs.keys() {
        assert!(store.delete(name).expect("delete"), "{}", show(name));
    }
    assert_holds(&store, &Pairs::new());
    assert_sound(&store);
}

fn assert_value_refused<T: std::fmt::Debug>(what: &str, answer: Result<T>) {
    assert!(matches!(answer, Err(Error::ValueLength { len }) if len == VALUE_MAX + 1), "{what}: {answer:?}");
}

/// Values of 1 GiB + 1 are refused by every writer, by length alone, and nothing changes.
pub fn values_beyond_the_limit_are_refused<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let before = Pairs::from([(b"k".to_vec(), b"v".to_vec())]);
    store.put(b"k", b"v").expect("put");
    // Untouched zeroed memory uses no pages.
    let mut huge = vec![0; VALUE_MAX + 1];
    assert_value_refused("put", store.put(b"k", &huge));
    assert_value_refused("put of a new key", store.put(b"new", &huge));
    assert_value_refused("put_expiring", store.put_expiring(b"k", &huge, None));
    assert_value_refused("insert", store.insert(b"new", &huge, Lifetime::Forever));
    assert_value_refused("update", store.update(b"k", &huge, Lifetime::Forever));
    assert_value_refused("compare_and_swap", store.compare_and_swap(b"k", Some(b"v"), Some(&huge), Lifetime::Forever));
    for name in [b"k", b"n"] {
        let answer = store.update_with(name, &mut |_, _| Change::Put(std::mem::take(&mut huge), Lifetime::Forever));
        assert_value_refused("update_with", answer);
        huge = vec![0; VALUE_MAX + 1];
    }
    let differs = store.compare_and_swap(b"k", Some(&huge), Some(b"w"), Lifetime::Forever);
    assert!(
        matches!(differs, Ok(Swap::Differs(Some(_))) | Err(Error::ValueLength { .. })),
        "no value can be that long"
    );
    assert_holds(&store, &before);
    assert_sound(&store);
}

/// A key grows and shrinks through all sizes: its value is always the newest.
pub fn a_key_changes_size_often<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let mut rng = case.rng(6);
    let mut value = Vec::new();
    for round in 0..case.plan.keys / 4 {
        let power = rng.below(17);
        value = rng.bytes(rng.clone().below(1 << power));
        store
            .put(b"changing", &value)
            .unwrap_or_else(|error| panic!("put {} bytes in round {round}: {error}", value.len()));
        assert_eq!(store.get(b"changing").expect("get").as_deref(), Some(value.as_slice()), "round {round}");
    }
    assert_holds(&store, &Pairs::from([(b"changing".to_vec(), value)]));
    assert_sound(&store);
}

/// A value of 1 GiB, the maximum. Not among [`behaviours`](super::behaviours), because it needs 3
/// GiB of medium and as much memory. Does nothing unless `LODESTORE_LARGE` is set.
pub fn value_of_a_gib<H: Harness>(case: &Case<H>) {
    if std::env::var_os("LODESTORE_LARGE").is_none() {
        return;
    }
    let store = case.create_sized(4 << 30);
    let mut value = vec![0; VALUE_MAX];
    let mut rng = case.rng(18);
    for page in value.chunks_exact_mut(4096) {
        page[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
    }
    value[VALUE_MAX - 1] = 1;
    store.put(b"longest", &value).expect("put");
    let store = case.reopen(store, Stop::Crash);
    let mut found = Vec::new();
    assert!(store.get_into(b"longest", &mut found).expect("get_into"));
    assert!(found == value, "1 GiB comes back as it was");
    assert_sound(&store);
}
