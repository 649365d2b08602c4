//! The clock is set ahead and back: keys that expired meanwhile are absent or as before, and never
//! reported as damage.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{counter, key, value};
use lodestore_contract::{Direction, Error, Expiry, Lifetime, ScanRange, Store, Swap, Visit, set_clock_ahead};
use lodestore_hashkv::{HashKv, HashKvOptions};
use lodestore_inplace::testing::Scratch;

/// Keys, of which each third one expires.
const COUNT: usize = 600;

type Visitor<'v> = dyn FnMut(&[u8], &[u8]) -> Visit + 'v;

/// Exclusive access to the clock, which is the process's.
struct Clock(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Clock {
    fn ours() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        Self(TURN.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        set_clock_ahead(0);
    }
}

fn expires(index: usize) -> bool {
    index.is_multiple_of(3)
}

/// Options with tables so long that no compaction drops expired keys.
fn options() -> HashKvOptions {
    let mut options = common::tiny(8 << 20, 0);
    options.index.table_bytes = 1 << 20;
    options.index.range_bytes = 4 << 20;
    options
}

/// Creates a closed store in which expiring keys hold most live bytes of their segments.
fn closed() -> Scratch {
    let scratch = Scratch::new();
    let store = HashKv::create(&scratch.store(), &options()).expect("create");
    // Expiring values are flushed first, separately from the others.
    let expiry = Some(Expiry::after(Duration::from_secs(1000)));
    let expiring = || (0..COUNT).filter(|index| expires(*index));
    expiring().for_each(|index| store.put_expiring(&key(index), &value(index, 1, 1000), expiry).expect("put"));
    store.settle().expect("settle");
    others().for_each(|index| store.put(&key(index), &value(index, 1, 1000)).expect("put"));
    store.settle().expect("settle");
    store.close().expect("close");
    scratch
}

fn others() -> impl Iterator<Item = usize> {
    (0..COUNT).filter(|index| !expires(*index))
}

/// Checks that all read operations agree and none reports damage. Returns the number of expiring
/// keys found.
fn look(store: &HashKv, version: u32) -> usize {
    let mut there = Vec::new();
    for index in 0..COUNT {
        let wanted = value(index, if expires(index) { 1 } else { version }, 1000);
        let found = store.get(&key(index)).expect("get");
        assert!(found.is_none() && expires(index) || found == Some(wanted), "key {index}");
        there.extend(found.map(|value| (key(index), value)));
    }
    there.sort();
    let keys: Vec<_> = (0..COUNT).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut found = Vec::new();
    let mut each = |index: usize, value: Option<&[u8]>| found.extend(value.map(|value| (key(index), value.to_vec())));
    store.multi_get(&keys, &mut each).expect("multi_get");
    found.sort();
    assert_eq!(found, there);
    let pairs = |walked: &mut dyn FnMut(&mut Visitor<'_>) -> usize| {
        let mut shown = Vec::new();
        let count = walked(&mut |key, value| {
            shown.push((key.to_vec(), value.to_vec()));
            Visit::More
        });
        assert_eq!(count, shown.len());
        shown
    };
    let mut walked = pairs(&mut |visit| store.for_each(visit).expect("a walk") as usize);
    walked.sort();
    assert_eq!(walked, there);
    for limit in [1, 7, 100, usize::MAX] {
        for direction in [Direction::Forward, Direction::Backward] {
            let range = ScanRange { direction, ..ScanRange::all() }.limit(limit);
            let shown = pairs(&mut |visit| store.scan_each(&range, visit).expect("a scan"));
            let mut wanted = there.clone();
            if direction == Direction::Backward {
                wanted.reverse();
            }
            wanted.truncate(limit);
            assert_eq!(shown, wanted, "{direction:?}, {limit}");
            for scan in [store.scan(&range), store.snapshot().expect("a snapshot").scan(&range)] {
                let owned = scan.expect("a scan").map(|entry| entry.map(lodestore_contract::Entry::into_pair));
                assert_eq!(owned.collect::<Result<Vec<_>, Error>>().expect("pairs"), wanted, "{direction:?}, {limit}");
            }
        }
    }
    let report = store.verify(&mut |_| ()).expect("verify");
    assert!(report.is_clean(), "{:?}", report.findings);
    there.len() - others().count()
}

/// Overwrites the keys that do not expire, to reuse retired segments.
fn work(store: &HashKv, version: u32) {
    others().for_each(|index| store.put(&key(index), &value(index, version, 1000)).expect("put"));
}

fn named(store: &HashKv) -> usize {
    (0..COUNT).filter(|index| expires(*index) && store.contains(&key(*index)).expect("contains")).count()
}

/// Regression: keys with records overwritten by others were reported as damaged, and every scan
/// ended there.
#[test]
fn expired_keys_stay_absent_after_the_clock_is_set_back_if_their_space_was_reused() {
    let clock = Clock::ours();
    for reopens in [false, true] {
        let scratch = closed();
        set_clock_ahead(2_000_000);
        let open = || HashKv::open(&scratch.store(), &options()).expect("open");
        let mut store = open();
        assert_eq!(look(&store, 1), 0, "they have expired");
        work(&store, 2);
        if reopens {
            store.close().expect("close");
            drop(store);
            set_clock_ahead(0);
            store = open();
        }
        set_clock_ahead(0);
        let there = look(&store, 2);
        assert_eq!(named(&store), COUNT / 3, "their entries are there");
        assert!((1..COUNT / 3).contains(&there), "{there} have their records yet");
        let gone = (0..COUNT).find(|index| expires(*index) && store.get(&key(*index)).expect("get").is_none());
        let index = gone.expect("one of them");
        assert_eq!(store.snapshot().expect("a snapshot").get(&key(index)).expect("get"), None);
        assert_eq!(
            store.compare_and_swap(&key(index), None, Some(&value(index, 1, 1000)), Lifetime::Forever).expect("swap"),
            Swap::Done
        );
        assert_eq!(look(&store, 2), there + 1);
        // Flushes and collections continue, also in segments that are still counted for an earlier
        // use.
        (3..20).for_each(|version| work(&store, version));
        store.settle().expect("settle");
        assert!(look(&store, 19) > 0 && counter(&store, "values_collections") > 0);
        store.close().expect("close");
    }
    drop(clock);
}

#[test]
fn expired_keys_stay_absent_if_their_space_was_released() {
    let clock = Clock::ours();
    let scratch = closed();
    set_clock_ahead(2_000_000);
    let store = HashKv::open(&scratch.store(), &options()).expect("open");
    assert!(counter(&store, "values_segments_holes") > 0);
    store.close().expect("close");
    drop(store);
    set_clock_ahead(0);
    let store = HashKv::open(&scratch.store(), &options()).expect("open");
    let there = look(&store, 1);
    assert_eq!(named(&store), COUNT / 3, "their entries are there");
    assert!(there < COUNT / 3, "{there} have their records yet");
    drop(clock);
}

/// Damage to the value of an expiring key must not be taken for its expiry.
#[test]
fn damage_of_expiring_values_is_reported() {
    let clock = Clock::ours();
    let scratch = closed();
    let file = scratch.store().join("values.0000");
    let bytes = std::fs::read(&file).expect("a file");
    let damaged = key(0);
    for damages in 1..6 {
        let mut bytes = bytes.clone();
        let at = (0..bytes.len()).find(|at| bytes[*at..].starts_with(&damaged)).expect("its record");
        let segment = (at - 4096) / (16 << 10) * (16 << 10) + 4096;
        match damages {
            1 => bytes[at + 500] ^= 1,
            // The segment's header as well.
            2 => [at + 500, segment + 21].iter().for_each(|at| bytes[*at] ^= 1),
            3 => bytes[segment + 32..][..(16 << 10) - 32].fill(0),
            4 => {
                bytes[segment..][..32].fill(0);
                bytes[at + 500] ^= 1;
            }
            // Like freed space, but no clock was ever past the key's expiry.
            _ => bytes[segment..][..16 << 10].fill(0),
        }
        std::fs::write(&file, bytes).expect("written");
        let store = HashKv::open(&scratch.store(), &options()).expect("open");
        let found = store.get(&damaged);
        assert!(matches!(found, Err(Error::Corrupt { .. })), "{damages}: {found:?}");
        let walked = store.for_each(&mut |_, _| Visit::More);
        assert!(matches!(walked, Err(Error::Corrupt { .. })), "{damages}: {walked:?}");
        assert!(!store.verify(&mut |_| ()).expect("verify").is_clean());
        store.close().expect("close");
    }
    drop(clock);
}

/// A key that does not expire must not be taken for missing when its segment was reused.
#[test]
fn a_missing_record_without_an_expiry_is_damage() {
    let clock = Clock::ours();
    let scratch = closed();
    let file = scratch.store().join("values.0000");
    let mut bytes = std::fs::read(&file).expect("a file");
    let lost = key(1);
    let at = (0..bytes.len()).find(|at| bytes[*at..].starts_with(&lost)).expect("its record");
    let segment = (at - 4096) / (16 << 10) * (16 << 10) + 4096;
    bytes[segment..][..16 << 10].fill(0);
    std::fs::write(&file, bytes).expect("written");
    let store = HashKv::open(&scratch.store(), &options()).expect("open");
    let found = store.get(&lost);
    assert!(matches!(found, Err(Error::Corrupt { .. })), "{found:?}");
    let mut scan = store.scan(&ScanRange::all()).expect("a scan");
    assert!(scan.any(|entry| entry.is_err()));
    drop(clock);
}
