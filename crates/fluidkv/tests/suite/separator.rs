//! Values that a separator keeps outside the tables.

use std::collections::{BTreeMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::{counter, key, tiny};
use crate::toy::{LARGE, Toyed, full, inline, lock, refused};
use lodestore_contract::conformance::{Rng, seed};
use lodestore_contract::limits::VALUE_MAX;
use lodestore_contract::testing::HANG_TIMEOUT;
use lodestore_contract::{Batch, BatchOp, Direction, Durability, Error, Expiry, Store};
use lodestore_fluidkv::embedding::Replace;
use lodestore_fluidkv::{Compression, FluidOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::{ExtentKind, PoolOptions};

/// Maximum wait of a test for an expected event.
const PATIENCE: Duration = HANG_TIMEOUT;

/// Returns a value that names its key and version. Values of odd keys are large.
fn value(index: u64, version: u64) -> Vec<u8> {
    let mut value = format!("{index}/{version}/").into_bytes();
    let len = if is_large(index) { LARGE + (index % 300) as usize } else { value.len() + (index % 40) as usize };
    value.resize(len.max(value.len()), b'v');
    value
}

fn is_large(index: u64) -> bool {
    index % 2 == 1
}

fn fill(toyed: &Toyed, keys: u64, version: u64) {
    (0..keys).for_each(|index| toyed.put(&key(index), &value(index, version)));
}

#[track_caller]
fn assert_all(toyed: &Toyed, keys: u64, version: u64) {
    for index in 0..keys {
        assert_eq!(toyed.get(&key(index)), Some(value(index, version)), "key {index}");
    }
}

fn expected(keys: u64, version: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pairs: BTreeMap<_, _> = (0..keys).map(|index| (key(index), value(index, version))).collect();
    pairs.into_iter().collect()
}

#[test]
fn large_values_are_separated_at_the_flush_and_read_in_every_way() {
    for (workers, compression) in [(0, Compression::None), (2, Compression::Lz4)] {
        let scratch = Scratch::new();
        let toyed = Toyed::create(&scratch.store(), &FluidOptions { compression, ..tiny(workers) });
        fill(&toyed, 2000, 1);
        let before = toyed.store.snapshot().expect("snapshot");
        let soon = Some(Expiry::at_millis(u64::MAX / 2));
        toyed.try_put(b"expires", &[b'e'; 500], soon).expect("put");
        toyed.store.settle().expect("settled");
        for index in 0..2000 {
            assert_eq!(toyed.is_apart(&key(index)), is_large(index), "key {index}");
        }
        assert_all(&toyed, 2000, 1);
        assert_eq!(toyed.get(b"expires"), Some(vec![b'e'; 500]));
        assert!(toyed.is_apart(b"expires"));
        assert_eq!(toyed.store.expiry(b"expires").expect("expiry"), Some(soon), "it keeps its expiry");
        assert!(toyed.store.delete(b"expires").expect("delete"));
        fill(&toyed, 2000, 2);
        let after = toyed.store.snapshot().expect("snapshot");
        for (snapshot, version) in [(&before, 1), (&after, 2)] {
            assert_eq!(toyed.pairs(&**snapshot, Direction::Forward), expected(2000, version));
            let mut pairs = toyed.pairs(&**snapshot, Direction::Backward);
            pairs.reverse();
            assert_eq!(pairs, expected(2000, version));
        }
        drop((before, after));
        assert_eq!(toyed.toy.times_kept(), 1);
        toyed.assert_clean();
    }
}

#[test]
fn separated_values_survive_a_reopen_and_a_crash() {
    let scratch = Scratch::new();
    let mut toyed = Toyed::create(&scratch.store(), &tiny(0));
    fill(&toyed, 300, 1);
    toyed.store.close().expect("closed");
    assert_eq!(lock(&toyed.toy.kept).len(), 150, "a close flushes");
    for version in 2..6 {
        toyed = toyed.reopen(&scratch.store(), &tiny(0));
        assert_all(&toyed, 300, version - 1);
        fill(&toyed, 300, version);
        if version % 2 == 0 {
            // After a flush; the others crash before it.
            toyed.store.settle().expect("settled");
            assert!(toyed.is_apart(&key(1)));
        }
    }
    toyed = toyed.reopen(&scratch.store(), &tiny(2));
    toyed.store.settle().expect("settled");
    assert_all(&toyed, 300, 5);
    assert!((0..300).all(|index| toyed.is_apart(&key(index)) == is_large(index)));
    toyed.assert_clean();
}

#[test]
fn a_separator_that_fails_fails_the_flush_and_loses_nothing() {
    for (error, workers) in [(full as fn() -> Error, 0), (refused, 0), (full, 2), (refused, 2)] {
        let scratch = Scratch::new();
        let toyed = Toyed::create(&scratch.store(), &tiny(workers));
        toyed.toy.set_hook(move |_, values| values.map_or(Ok(()), |_| Err(error())));
        fill(&toyed, 300, 1);
        let settled = toyed.store.settle().expect_err("it cannot be flushed");
        assert_eq!(std::mem::discriminant(&settled), std::mem::discriminant(&error()), "{settled}");
        let mut refused = None;
        for version in 2..200 {
            let puts = || (0..300).try_for_each(|index| toyed.try_put(&key(index), &value(index, version), None));
            refused = refused.or_else(|| puts().err());
        }
        let refused = refused.expect("memtables are at their limit");
        assert_eq!(std::mem::discriminant(&refused), std::mem::discriminant(&error()), "{refused}");
        assert!((0..300).all(|index| toyed.get(&key(index)).is_some() && !toyed.is_apart(&key(index))));
        *lock(&toyed.toy.hook) = None;
        toyed.store.settle().expect("settled");
        assert!((0..300).all(|index| toyed.is_apart(&key(index)) == is_large(index)));
        fill(&toyed, 300, 200);
        toyed.store.settle().expect("settled");
        assert_all(&toyed, 300, 200);
        assert_eq!(toyed.toy.times_kept(), 1);
        toyed.assert_clean();
    }
}

/// The tables do not fit: the answers are kept for the next attempt.
#[test]
fn a_flush_without_space_for_its_tables_separates_once() {
    const KIND: ExtentKind = ExtentKind(ExtentKind::ENGINE.0 + 40);
    let scratch = Scratch::new();
    let pool = PoolOptions { capacity: 32 << 20, region_bytes: 16 << 20, ..PoolOptions::default() };
    let options = FluidOptions { pool, memtable_bytes: 512 << 10, ..tiny(0) };
    let toyed = Toyed::create(&scratch.store(), &options);
    fill(&toyed, 1000, 1);
    toyed.store.settle().expect("settled");
    fill(&toyed, 1000, 2);
    let calls = toyed.toy.calls.load(Ordering::Relaxed);
    let take = |bytes: u64| toyed.pool.allocator().alloc_extent(&toyed.pool, bytes, KIND).ok();
    let mut taken = Vec::new();
    for shift in (2..16).rev() {
        taken.extend(std::iter::from_fn(|| take(1 << 10 << shift)));
    }
    for _ in 0..3 {
        let settled = toyed.store.settle();
        assert!(matches!(settled, Err(Error::Full { .. })), "{settled:?}");
    }
    assert_eq!(toyed.toy.calls.load(Ordering::Relaxed), calls + 1);
    assert!(lock(&toyed.toy.died).is_empty(), "no flush has come to its end");
    taken.into_iter().for_each(|at| toyed.pool.allocator().free_extent(&toyed.pool, at));
    toyed.store.settle().expect("there is room");
    assert_eq!(toyed.toy.calls.load(Ordering::Relaxed), calls + 1);
    assert_eq!((toyed.toy.times_kept(), lock(&toyed.toy.died).len()), (1, 1000));
    assert_all(&toyed, 1000, 2);
    toyed.assert_clean();
}

#[test]
fn values_of_several_calls_are_not_handed_over_again_if_a_later_call_fails() {
    const KEYS: u64 = 70_000;
    let scratch = Scratch::new();
    let pool = PoolOptions { capacity: 1 << 30, region_bytes: 64 << 20, ..PoolOptions::default() };
    let options = FluidOptions { pool, workers: 0, ..FluidOptions::default() };
    let toyed = Toyed::create(&scratch.store(), &options);
    let large = |index: u64| format!("{index:0>100}").into_bytes();
    (0..KEYS).for_each(|index| toyed.put(&key(index), &large(index)));
    toyed.toy.set_hook(|_, values| match values {
        Some(values) if values.len() < 65_536 => Err(full()),
        _ => Ok(()),
    });
    for _ in 0..2 {
        let settled = toyed.store.settle();
        assert!(matches!(settled, Err(Error::Full { .. })), "{settled:?}");
    }
    assert_eq!(lock(&toyed.toy.kept).len(), 65_536);
    *lock(&toyed.toy.hook) = None;
    toyed.store.settle().expect("settled");
    assert_eq!(toyed.toy.times_kept(), 1);
    assert_eq!(lock(&toyed.toy.kept).len() as u64, KEYS);
    assert!((0..KEYS).all(|index| toyed.get(&key(index)) == Some(large(index)) && toyed.is_apart(&key(index))));
}

#[test]
fn a_separator_that_panics_poisons_the_store_and_loses_nothing() {
    for (workers, behind, closes) in
        [(0, false, false), (1, false, false), (0, true, false), (2, true, false), (0, false, true), (0, true, true)]
    {
        let scratch = Scratch::new();
        let toyed = Toyed::create(&scratch.store(), &tiny(workers));
        fill(&toyed, 300, 1);
        toyed.toy.set_hook(move |_, values| {
            assert!(values.is_none() != behind, "a toy breaks");
            Ok(())
        });
        // If no worker flushes, the caller of the settle or close gets the panic.
        let flush = || if closes { toyed.store.close() } else { toyed.store.settle() };
        let flushed = catch_unwind(AssertUnwindSafe(flush));
        assert!(!matches!(flushed, Ok(Ok(()))), "{workers}, {behind}, {closes}");
        let refused = toyed.pool.check();
        assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
        if !closes {
            let refused = toyed.try_put(b"key", b"value", None);
            assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
            assert_all(&toyed, 300, 1);
        }
        let toyed = toyed.reopen(&scratch.store(), &tiny(0));
        toyed.store.settle().expect("settled");
        assert_all(&toyed, 300, 1);
        toyed.assert_clean();
    }
}

#[test]
fn a_value_that_the_separator_declines_stays_in_place() {
    let scratch = Scratch::new();
    let toyed = Toyed::create(&scratch.store(), &tiny(0));
    *lock(&toyed.toy.stays) = Some(b"/1/".to_vec());
    fill(&toyed, 300, 1);
    toyed.store.settle().expect("settled");
    assert!((0..300).all(|index| !toyed.is_apart(&key(index))) && toyed.toy.calls.load(Ordering::Relaxed) > 0);
    assert_all(&toyed, 300, 1);
    // Of neighbours in one memtable, some are separated and others stay.
    (0..300).for_each(|index| toyed.put(&key(index), &value(index, 1 + index % 3)));
    toyed.store.settle().expect("settled");
    for index in 0..300 {
        assert_eq!(toyed.get(&key(index)), Some(value(index, 1 + index % 3)), "key {index}");
        assert_eq!(toyed.is_apart(&key(index)), is_large(index) && index % 3 != 0, "key {index}");
    }
}

/// The values are in FluidKV's own value log until the flush.
#[test]
fn values_of_the_value_log_are_separated_and_their_records_are_garbage() {
    let scratch = Scratch::new();
    let options = FluidOptions { value_threshold: 200, value_segment_bytes: 16 << 10, ..tiny(0) };
    let mut toyed = Toyed::create(&scratch.store(), &options);
    for version in 1..5 {
        fill(&toyed, 600, version);
        if version == 3 {
            toyed = toyed.reopen(&scratch.store(), &options);
        }
        toyed.store.settle().expect("settled");
        assert_all(&toyed, 600, version);
        assert!((0..600).all(|index| toyed.is_apart(&key(index)) == is_large(index)));
        toyed.assert_clean();
    }
    let stats = toyed.store.stats().engine_counters;
    assert!(stats["value_collected_segments"] > 0, "{stats:?}");
    assert_eq!(toyed.toy.times_kept(), 1);
}

#[test]
fn a_stored_value_may_be_sixteen_bytes_longer_than_a_value() {
    let scratch = Scratch::new();
    let toyed = Toyed::create(&scratch.store(), &tiny(0));
    let long = vec![0; VALUE_MAX + 17];
    let batch =
        |len: usize| Batch { ops: vec![BatchOp::Put { key: b"key".to_vec(), value: vec![0; len], expiry: None }] };
    for len in [VALUE_MAX + 16, VALUE_MAX + 17] {
        let is_right = |answer: Result<bool, Error>| match answer {
            Err(Error::Full { .. }) => len == VALUE_MAX + 16,
            Err(Error::ValueLength { len: told }) => len == VALUE_MAX + 17 && told == len,
            _ => false,
        };
        assert!(is_right(toyed.store.put(b"key", &long[..len]).map(|()| true)), "{len}");
        assert!(is_right(toyed.store.write(&batch(len)).map(|()| true)), "{len}");
    }
    let moves = [Replace { key: b"key", old: b"", new: &long }];
    assert!(matches!(toyed.store.replace(&moves), Err(Error::ValueLength { .. })));
}

/// The value of each key, and the numbers of all that were ever stored.
struct Model {
    rng: Rng,
    values: BTreeMap<u64, Vec<u8>>,
    /// Stored bytes whose `replace` was refused, and which were therefore never stored.
    unused: HashSet<Vec<u8>>,
}

impl Model {
    fn step(&mut self, toyed: &Toyed, version: u64) {
        let index = self.rng.below(150) as u64;
        match self.rng.below(20) {
            0..12 => {
                toyed.put(&key(index), &value(index, version));
                self.values.insert(index, value(index, version));
            }
            12..15 => {
                let there = toyed.store.delete(&key(index)).expect("delete");
                assert_eq!(there, self.values.remove(&index).is_some(), "key {index}");
            }
            _ => self.replace(toyed),
        }
    }

    /// Moves some separated values, as a collector does. Some moves have a wrong old value.
    fn replace(&mut self, toyed: &Toyed) {
        let keys: Vec<_> = (0..5).map(|_| self.rng.below(150) as u64).map(key).collect();
        let keys: Vec<_> = keys.into_iter().filter(|key| toyed.is_apart(key)).collect();
        let wrong = self.rng.below(4) == 0;
        let moves: Vec<_> = keys
            .iter()
            .map(|key| {
                let old = toyed.stored(key).expect("it is apart");
                let new = toyed.toy.keep(&toyed.toy.decode(&old));
                (key, if wrong { new.clone() } else { old }, new)
            })
            .collect();
        let asked: Vec<_> = moves.iter().map(|(key, old, new)| Replace { key, old, new }).collect();
        let replaced = toyed.store.replace(&asked).expect("replaced");
        for ((_, _, new), replaced) in moves.iter().zip(replaced) {
            if !replaced {
                self.unused.insert(new.clone());
            }
        }
    }

    /// With all flushed: each separated value that no key has any more has died once, and nothing
    /// else has.
    fn check(&self, toyed: &Toyed) {
        toyed.store.settle().expect("settled");
        let mut live = HashSet::new();
        for index in 0..150 {
            assert_eq!(toyed.get(&key(index)), self.values.get(&index).cloned(), "key {index}");
            live.extend(toyed.stored(&key(index)));
        }
        let all = lock(&toyed.toy.kept);
        let all = all.keys().map(|number| [&number.to_le_bytes()[..], &[1]].concat());
        let mut expected: Vec<_> =
            all.filter(|stored| !live.contains(stored) && !self.unused.contains(stored)).collect();
        let mut died: Vec<_> =
            lock(&toyed.toy.died).iter().filter(|stored| stored.last() == Some(&1)).cloned().collect();
        expected.sort_unstable();
        died.sort_unstable();
        assert_eq!(died, expected);
    }
}

#[test]
fn each_separated_version_that_is_overwritten_or_deleted_dies_once() {
    let seed = seed();
    println!("seed {seed:#x}");
    let file = || Scratch::within(env!("CARGO_TARGET_TMPDIR").as_ref());
    // On the file all threads share a log, and each write is a sync.
    for (workers, snapshots, scratch, steps) in [
        (0, false, Scratch::new(), 1500),
        (2, false, Scratch::new(), 1500),
        (2, true, Scratch::new(), 1500),
        (2, false, file(), 150),
    ] {
        let mut options = tiny(workers);
        if steps < 1000 {
            options.pool.durability = Durability::Power;
        }
        let toyed = Toyed::create(&scratch.store(), &options);
        let mut model = Model { rng: Rng::new(seed), values: BTreeMap::new(), unused: HashSet::new() };
        for round in 0..6 {
            let _snapshot = snapshots.then(|| toyed.store.snapshot().expect("snapshot"));
            (0..steps).for_each(|step| model.step(&toyed, round * steps + step + 1));
            model.check(&toyed);
        }
        assert!(lock(&toyed.toy.died).len() as u64 > steps / 3, "{workers} workers: much has died");
        assert_eq!(toyed.store.len().expect("len"), model.values.len() as u64);
        toyed.assert_clean();
    }
}

/// Answers may be moved once they are published, and not before.
#[test]
fn replace_finds_separated_values_once_they_are_published() {
    let scratch = Scratch::new();
    let toyed = Toyed::create(&scratch.store(), &tiny(0));
    // The first number that the toy assigns.
    let first = [&0u64.to_le_bytes()[..], &[1]].concat();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = std::sync::Arc::clone(&seen);
    toyed.toy.set_hook(move |store, values| {
        let moves = [Replace { key: b"key", old: &first, new: b"moved\0" }];
        lock(&told).push((values.is_some(), store.replace(&moves).expect("replace")));
        Ok(())
    });
    toyed.put(b"key", &[b'v'; 200]);
    toyed.store.settle().expect("settled");
    assert_eq!(lock(&seen)[..2], [(true, vec![false]), (false, vec![true])]);
    assert_eq!(toyed.get(b"key").as_deref(), Some(&b"moved"[..]));
    toyed.store.settle().expect("settled");
    assert_eq!(lock(&toyed.toy.died).len(), 1);
}

/// Writers have filled all memtables and wait for the flush. The flush replaces more than a
/// memtable holds before it continues.
#[test]
fn a_separator_may_replace_while_memtables_are_at_their_limit() {
    for workers in [0, 1, 2] {
        let scratch = Scratch::new();
        let toyed = Toyed::create(&scratch.store(), &tiny(workers));
        let moved: Vec<_> = (0..1000).map(|index| (key(1_000_000 + index), inline(&value(2 * index, 1)))).collect();
        moved.iter().for_each(|(key, stored)| toyed.store.put(key, stored).expect("put"));
        toyed.store.settle().expect("settled");
        let (send, ended) = std::sync::mpsc::channel();
        let first = std::sync::atomic::AtomicBool::new(true);
        let (keys, workers_there) = (moved.clone(), workers > 0);
        toyed.toy.set_hook(move |store, values| {
            if values.is_none() || !first.swap(false, Ordering::Relaxed) {
                return Ok(());
            }
            let (began, stopped) = (Instant::now(), || counter(store, "memtables") == 4);
            while workers_there && !stopped() {
                assert!(began.elapsed() < PATIENCE, "nobody fills the memtables");
                std::thread::sleep(Duration::from_millis(1));
            }
            for round in 0..20u8 {
                let at = |stored: &[u8], round: u8| {
                    let mark: &[u8] = if round == 0 { &[] } else { &[round] };
                    [mark, stored].concat()
                };
                let pairs: Vec<_> = keys.iter().map(|(_, stored)| (at(stored, round), at(stored, round + 1))).collect();
                let moves = keys.iter().zip(&pairs).map(|((key, _), (old, new))| Replace { key, old, new });
                let replaced = store.replace(&moves.collect::<Vec<_>>())?;
                assert!(replaced.iter().all(|replaced| *replaced), "round {round}");
            }
            send.send(()).expect("a receiver");
            Ok(())
        });
        fill(&toyed, 6000, 2);
        ended.recv_timeout(PATIENCE).expect("it came to its end");
        toyed.store.settle().expect("settled");
        assert_all(&toyed, 6000, 2);
        for (key, stored) in &moved {
            assert_eq!(toyed.stored(key), Some([&[20], &stored[..]].concat()));
        }
        toyed.assert_clean();
    }
}

#[test]
fn an_expired_value_is_reported_once_by_a_flush_or_a_compaction() {
    let scratch = Scratch::new();
    let toyed = Toyed::create(&scratch.store(), &tiny(0));
    let soon = Expiry::after(Duration::from_millis(200));
    let large = |index: u64| 4 * index + 1;
    for index in 0..20 {
        toyed.try_put(&key(large(index)), &value(large(index), 1), Some(soon)).expect("put");
    }
    toyed.store.settle().expect("settled");
    assert!(toyed.is_apart(&key(large(0))) || soon.is_past());
    while !soon.is_past() {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Half of the values are overwritten, and each has a new neighbour.
    (0..10).for_each(|index| toyed.put(&key(large(2 * index)), &value(large(2 * index), 2)));
    (0..20).for_each(|index| toyed.put(&key(4 * index), &value(4 * index, 2)));
    toyed.store.settle().expect("settled");
    toyed.store.settle().expect("settled");
    let died = lock(&toyed.toy.died).clone();
    let once: HashSet<_> = died.iter().cloned().collect();
    assert_eq!((died.len(), once.len()), (20, 20));
    (0..10).for_each(|index| assert_eq!(toyed.get(&key(large(2 * index))), Some(value(large(2 * index), 2))));
    toyed.assert_clean();
}
