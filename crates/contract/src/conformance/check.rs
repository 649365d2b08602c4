//! Comparisons of a whole store with the expected state.

use std::collections::BTreeMap;

use crate::{Entry, ScanRange, Store, Visit};

/// The pairs that a store should hold.
pub type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// Formats a key or value for a message: short, and readable if it is text.
pub(super) fn show(bytes: &[u8]) -> String {
    let head = bytes[..bytes.len().min(24)].escape_ascii();
    if bytes.len() <= 24 { format!("\"{head}\"") } else { format!("\"{head}\".. of {} bytes", bytes.len()) }
}

/// Asserts that every reader sees exactly `pairs`, and that `len` counts them.
///
/// # Panics
/// If a reader does not.
pub fn assert_holds<S: Store>(store: &S, pairs: &Pairs) {
    assert_sees(store, pairs);
    assert_eq!(store.len().expect("len"), pairs.len() as u64, "len");
    assert_eq!(store.is_empty().expect("is_empty"), pairs.is_empty(), "is_empty");
}

/// Asserts that every reader except `len` sees exactly `pairs`.
///
/// # Panics
/// If a reader does not.
pub fn assert_sees<S: Store>(store: &S, pairs: &Pairs) {
    for (key, value) in pairs {
        let found = store.get(key).unwrap_or_else(|error| panic!("get {}: {error}", show(key)));
        assert_same("get", key, found.as_deref(), value);
        assert!(store.contains(key).expect("contains"), "contains {}", show(key));
    }
    assert_multi_get(store, pairs);
    let mut visited = Pairs::new();
    let count = store.for_each(&mut |key, value| {
        assert!(visited.insert(key.to_vec(), value.to_vec()).is_none(), "for_each visits {} twice", show(key));
        Visit::More
    });
    assert_eq!(count.expect("for_each"), visited.len() as u64, "for_each counts what it visits");
    assert_pairs("for_each", visited, pairs);
    if store.capabilities().scan {
        let forward = scanned(store, &ScanRange::all());
        assert_order("scan", &forward, pairs.iter());
        let backward = scanned(store, &ScanRange::all().reverse());
        assert_order("scan backward", &backward, pairs.iter().rev());
    }
}

/// Asserts that `multi_get` of all keys returns all of them.
fn assert_multi_get<S: Store>(store: &S, pairs: &Pairs) {
    let keys: Vec<&[u8]> = pairs.keys().map(Vec::as_slice).collect();
    let mut next = 0;
    let read = store.multi_get(&keys, &mut |index, value| {
        assert_eq!(index, next, "multi_get goes in order");
        assert_same("multi_get", keys[index], value, &pairs[keys[index]]);
        next += 1;
    });
    read.expect("multi_get");
    assert_eq!(next, keys.len(), "multi_get answers each index");
}

/// Asserts that a found value is the expected value.
pub(super) fn assert_same(reader: &str, key: &[u8], found: Option<&[u8]>, expected: &[u8]) {
    match found {
        None => panic!("{reader} {}: nothing, should be {}", show(key), show(expected)),
        Some(found) => {
            assert!(found == expected, "{reader} {}: {}, should be {}", show(key), show(found), show(expected))
        }
    }
}

fn assert_pairs(reader: &str, found: Pairs, expected: &Pairs) {
    let missing: Vec<_> = expected.keys().filter(|key| !found.contains_key(*key)).map(|key| show(key)).collect();
    assert!(missing.is_empty(), "{reader} misses {} of {} keys, as {}", missing.len(), expected.len(), missing[0]);
    for (key, value) in &found {
        let expected = expected.get(key).unwrap_or_else(|| panic!("{reader} shows {}, which is not there", show(key)));
        assert_same(reader, key, Some(value), expected);
    }
}

/// Returns the result of `scan` for a range, which must equal the result of `scan_each`.
pub(super) fn scanned<S: Store>(store: &S, range: &ScanRange) -> Vec<Entry> {
    let owned: Vec<Entry> =
        store.scan(range).expect("scan").map(|entry| entry.unwrap_or_else(|error| panic!("scan: {error}"))).collect();
    let mut visited = Vec::new();
    let count = store.scan_each(range, &mut |key, value| {
        visited.push(Entry::new(key, value));
        Visit::More
    });
    assert_eq!(count.expect("scan_each"), visited.len(), "scan_each counts what it visits");
    assert_order("scan against scan_each", &owned, visited.iter().map(|entry| (entry.key(), entry.value())));
    owned
}

/// Asserts that `found` equals `expected`, in this order.
pub(super) fn assert_order<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    reader: &str,
    found: &[Entry],
    expected: impl ExactSizeIterator<Item = (K, V)>,
) {
    let len = expected.len();
    for (at, (key, value)) in expected.enumerate() {
        let (key, value) = (key.as_ref(), value.as_ref());
        let entry = found.get(at).unwrap_or_else(|| panic!("{reader} ends after {at} of {len}, before {}", show(key)));
        assert!(entry.key() == key, "{reader} at {at}: key {}, should be {}", show(entry.key()), show(key));
        assert_same(reader, key, Some(entry.value()), value);
    }
    assert!(
        found.len() == len,
        "{reader} goes on after {len} entries, with {}",
        show(found[len.min(found.len() - 1)].key())
    );
}

/// Asserts that `verify` has no findings.
///
/// # Panics
/// If there are findings.
pub fn assert_sound<S: Store>(store: &S) {
    store.wait_recovered().unwrap_or_else(|error| panic!("wait_recovered: {error}"));
    let report = store.verify(&mut |_| {}).unwrap_or_else(|error| panic!("verify: {error}"));
    assert!(report.is_clean(), "verify finds {} wrong, first {:?}", report.findings.len(), report.findings[0]);
}
