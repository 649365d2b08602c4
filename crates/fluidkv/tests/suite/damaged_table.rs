//! Damage to a table while its store is open: readers report it, and return the items before it.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{counter, key, tiny};
use lodestore_contract::{Direction, Error, Event, Lifetime, ScanRange, Store, Visit};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;

const KEYS: u64 = 1000;
const DAMAGED: u64 = 700;

fn ascending(index: u64) -> Vec<u8> {
    format!("{index:08}").into_bytes()
}

fn value(index: u64) -> Vec<u8> {
    format!("value {index} {}", "v".repeat(90)).into_bytes()
}

/// Changes a bit of each copy of these bytes in the store's first file.
fn harm(scratch: &Scratch, sought: &[u8]) {
    let path = scratch.store().join("pool.0000");
    let bytes = std::fs::read(&path).expect("its bytes");
    let file = OpenOptions::new().write(true).open(&path).expect("the store's file");
    let places: Vec<_> = bytes.windows(sought.len()).enumerate().filter(|(_, window)| *window == sought).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|(at, _)| file.write_all_at(&[bytes[*at] ^ 1], *at as u64).expect("written"));
}

/// Returns a store of one stable run of tables, of which one block is damaged, and its number of
/// damage reports.
fn damaged(scratch: &Scratch) -> (FluidKv, Arc<AtomicU64>) {
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let mut options = FluidOptions { range_bytes: 1 << 20, ..tiny(0) };
    options.pool.events = Some(Arc::new(move |event| {
        if matches!(event, Event::Corruption { .. }) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }));
    let store = FluidKv::create(&scratch.store(), &options).expect("created");
    (0..KEYS).for_each(|index| store.put(&ascending(index), &value(index)).expect("put"));
    store.settle().expect("settled");
    assert_eq!((counter(&store, "log_bytes"), counter(&store, "buffered_bytes")), (0, 0));
    harm(scratch, format!("value {DAMAGED} ").as_bytes());
    (store, told)
}

/// Regression: the error came before pairs that had been found before it.
#[test]
fn a_scan_shows_the_pairs_before_damage_then_the_damage_then_nothing() {
    for direction in [Direction::Forward, Direction::Backward] {
        let scratch = Scratch::new();
        let (store, told) = damaged(&scratch);
        let range = ScanRange { direction, ..ScanRange::all() };
        let mut scan = store.scan(&range).expect("scan");
        let before: Vec<_> = scan.by_ref().map_while(Result::ok).map(lodestore_contract::Entry::into_pair).collect();
        assert_eq!(told.load(Ordering::SeqCst), 1);
        assert!(scan.next().is_none(), "behind the damage");
        let mut expected: Vec<_> = (0..KEYS).map(|index| (ascending(index), value(index))).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let keys = before.len();
        expected.truncate(keys);
        assert!(before == expected, "{keys} pairs before it, {direction:?}");
        let (least, most) = if direction == Direction::Forward { (680, 700) } else { (280, 299) };
        assert!((least..=most).contains(&keys), "{keys} pairs: all but those of its block");
        let after = store.scan(&range).expect("scan").filter(Result::is_err).count();
        assert_eq!(after, 1, "each scan says so once");
    }
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the pairs that a walk over all shows, and whether it reports damage.
fn walked(store: &FluidKv) -> (Pairs, bool) {
    let mut pairs = Vec::new();
    let outcome = store.for_each(&mut |key, value| {
        pairs.push((key.to_vec(), value.to_vec()));
        Visit::More
    });
    assert!(matches!(outcome, Ok(_) | Err(Error::Corrupt { .. })), "{outcome:?}");
    pairs.sort();
    (pairs, outcome.is_err())
}

/// Regression: the rest of its range was lost, too.
#[test]
fn a_walk_over_all_leaves_out_the_keys_of_a_damaged_block_and_no_others() {
    let scratch = Scratch::new();
    let (store, _) = damaged(&scratch);
    // Some keys are also in a memtable: new ones, overwritten ones, and deletes.
    store.put(b"99999999", b"behind all").expect("put");
    store.put(&ascending(900), b"another").expect("put");
    assert!(store.delete(&ascending(901)).expect("delete"));
    let readable = (0..KEYS)
        .filter_map(|index| store.get(&ascending(index)).ok().flatten().map(|value| (ascending(index), value)));
    let mut expected: Vec<_> = readable.collect();
    // A get needs only its own item: of these keys one is deleted, and the item of one is damaged.
    assert_eq!(expected.len() as u64, KEYS - 2);
    expected.push((b"99999999".to_vec(), b"behind all".to_vec()));
    let (pairs, is_told) = walked(&store);
    let left_out: Vec<_> = expected.iter().filter(|pair| !pairs.contains(pair)).collect();
    assert!(is_told && pairs.iter().all(|pair| expected.contains(pair)), "{} pairs", pairs.len());
    let of_block = (ascending(DAMAGED - 20), ascending(DAMAGED + 20));
    let near = left_out.iter().all(|(key, _)| (&of_block.0..&of_block.1).contains(&key));
    assert!(near && left_out.len() < 20, "{} pairs are left out", left_out.len());
    let mut visited = 0;
    let stopped = store.for_each(&mut |_, _| {
        visited += 1;
        if visited == 800 { Visit::Stop } else { Visit::More }
    });
    assert_eq!((stopped.expect("it was told to stop behind the damage"), visited), (800, 800));
}

/// A damaged block of a run hides older versions of its keys: they must not be shown instead.
#[test]
fn a_walk_over_all_shows_no_older_version_of_damaged_keys() {
    let scratch = Scratch::new();
    let (store, _) = damaged(&scratch);
    // Writes all keys again into a run, without reads of the damaged data.
    store.close().expect("closed");
    drop(store);
    let options = FluidOptions { range_bytes: 1 << 20, buffer_percent: 1000, ..tiny(0) };
    let store = FluidKv::open(&scratch.store(), &options).expect("opened");
    (0..KEYS).for_each(|index| store.put(&ascending(index), &[b"new ", &value(index)[..]].concat()).expect("put"));
    store.close().expect("closed");
    drop(store);
    let store = FluidKv::open(&scratch.store(), &options).expect("opened");
    assert!(counter(&store, "buffered_bytes") > 0 && counter(&store, "log_bytes") == 0);
    harm(&scratch, b"new value 500 ");
    let (pairs, is_told) = walked(&store);
    assert!(is_told && (980..KEYS as usize).contains(&pairs.len()), "{} pairs", pairs.len());
    assert!(pairs.iter().all(|(_, value)| value.starts_with(b"new ")), "an older version is shown");
}

#[test]
fn every_read_of_damage_fails_and_reports_it() {
    let scratch = Scratch::new();
    let (store, told) = damaged(&scratch);
    let snapshot = store.snapshot().expect("snapshot");
    let damaged = ascending(DAMAGED);
    let is_corrupt = |error: Option<Error>| matches!(error, Some(Error::Corrupt { .. }));
    assert!(is_corrupt(store.get(&damaged).err()));
    assert!(is_corrupt(store.contains(&damaged).err()));
    assert!(is_corrupt(store.multi_get(&[b"absent", &damaged], &mut |_, _| ()).err()));
    assert!(is_corrupt(snapshot.get(&damaged).err()));
    assert!(is_corrupt(store.insert(&damaged, b"v", Lifetime::Forever).err()));
    assert_eq!(told.load(Ordering::SeqCst), 5);
    assert_eq!(store.get(&key(3)).expect("get"), None, "none of these keys");
    assert_eq!(store.get(&ascending(3)).expect("get"), Some(value(3)));
    store.put(&damaged, b"a new value").expect("a put reads nothing");
    assert_eq!(store.get(&damaged).expect("get"), Some(b"a new value".to_vec()));
}
