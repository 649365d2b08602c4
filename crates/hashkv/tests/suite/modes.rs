//! Modes and their common behaviour: successive opens in different modes, direct I/O, expiry in a
//! full store, and space returned to the file system.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use crate::common;
use crate::common::{counter, key, value};
use lodestore_contract::conformance::{Pairs, Rng, assert_holds, assert_sound, seed};
use lodestore_contract::{Error, Expiry, Store};
use lodestore_hashkv::{HashKv, HashKvOptions, Mode};
use lodestore_inplace::testing::Scratch;

/// Capacity of a store in bytes.
const CAPACITY: u64 = 8 << 20;
/// Bytes of a value.
const LARGE: usize = 1000;

fn tiny(mode: Mode) -> HashKvOptions {
    HashKvOptions { mode, ..common::tiny(CAPACITY, 0) }
}

#[test]
fn a_store_may_be_opened_in_another_mode_each_time() {
    let (scratch, mut model) = (Scratch::new(), Pairs::new());
    let modes = [Mode::Hash, Mode::Vlog, Mode::Nosep, Mode::Hash, Mode::Nosep, Mode::Vlog, Mode::Hash];
    drop(HashKv::create(&scratch.store(), &tiny(modes[0])).expect("create"));
    for (turn, mode) in modes.into_iter().enumerate() {
        let store = HashKv::open(&scratch.store(), &tiny(mode)).expect("open");
        assert_holds(&store, &model);
        for index in 0..900 {
            // Keys of this round, some of every earlier round, and some deletes.
            let (key, version) = (key(index % 600 + 100 * turn), (turn * 2 + index / 600) as u32);
            if index % 7 == turn {
                assert_eq!(store.delete(&key).expect("delete"), model.remove(&key).is_some());
                continue;
            }
            let value = value(index, version, [LARGE, 20, 3 * LARGE][index % 3]);
            store.put(&key, &value).expect("put");
            model.insert(key, value);
        }
        assert_holds(&store, &model);
        let separated = counter(&store, "values_separated");
        assert_eq!(separated > 0, mode != Mode::Nosep, "{mode:?} has separated {separated} values");
        // Half of the stops are clean.
        if turn % 2 == 0 {
            store.settle().expect("settle");
            assert_holds(&store, &model);
            store.close().expect("close");
        } else {
            assert_sound(&store);
        }
    }
    let store = HashKv::open(&scratch.store(), &tiny(Mode::Hash)).expect("open");
    assert_holds(&store, &model);
    assert_sound(&store);
}

/// A circular log has its values in key order. Regression: written to groups, nearly each value
/// needed its own block.
#[test]
fn a_log_on_a_store_that_was_split_into_groups_writes_its_values_together() {
    let (scratch, mut model) = (Scratch::new(), Pairs::new());
    let (mut rng, keys) = (Rng::new(seed()), 1000);
    let mut write = |store: &HashKv, version: u32, count: usize| {
        for _ in 0..count {
            let index = rng.below(keys);
            let (key, value) = (key(index), value(index, version, LARGE));
            store.put(&key, &value).expect("put");
            model.insert(key, value);
        }
        assert_holds(store, &model);
    };
    let store = HashKv::create(&scratch.store(), &tiny(Mode::Hash)).expect("create");
    (0..12).for_each(|version| write(&store, version, keys));
    store.settle().expect("settle");
    assert!(counter(&store, "values_groups") >= 2, "{:?}", store.stats().engine_counters);
    store.close().expect("close");
    drop(store);
    let store = HashKv::open(&scratch.store(), &tiny(Mode::Vlog)).expect("open");
    write(&store, 12, 1000);
    let (written, bytes) = (counter(&store, "values_written_bytes"), counter(&store, "values_separated_bytes"));
    let moved = counter(&store, "values_moved_bytes");
    assert!(
        bytes > 200_000 && written < (bytes + moved) * 3 / 2,
        "{written} bytes are written for {bytes} and {moved}"
    );
}

/// Support for O_DIRECT depends on the file system: tmpfs has it on newer systems.
#[test]
fn direct_io_is_done_or_refused_as_an_option_and_leaves_no_store() {
    let on_file = Scratch::within(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")));
    for scratch in [Scratch::new(), on_file] {
        let direct = HashKvOptions { direct: true, ..tiny(Mode::Hash) };
        let model: Pairs = (0..300).map(|index| (key(index), value(index, 1, LARGE))).collect();
        let write = |store: &HashKv| {
            model.iter().for_each(|(key, value)| store.put(key, value).expect("put"));
            store.settle().expect("settle");
            assert_holds(store, &model);
        };
        match HashKv::create(&scratch.store(), &direct) {
            Ok(store) => write(&store),
            Err(Error::InvalidOption { name, .. }) => {
                assert_eq!(name, "direct");
                write(&HashKv::create(&scratch.store(), &tiny(Mode::Hash)).expect("nothing was left there"));
                let refused = HashKv::open(&scratch.store(), &direct).map(drop);
                assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{refused:?}");
            }
            Err(error) => panic!("{error}"),
        }
        // In either case the next open may use no direct I/O.
        let store = HashKv::open(&scratch.store(), &tiny(Mode::Hash)).expect("open");
        assert_holds(&store, &model);
    }
}

/// Puts values that expire `millis` milliseconds from now, until the store is full. Returns the
/// number of keys; `None` if some have expired meanwhile.
fn full_of_expiring(store: &HashKv, millis: u64) -> Option<usize> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_millis() as u64;
    let expiry = Some(Expiry::at_millis(now + millis));
    let most = 4 * CAPACITY as usize / LARGE;
    let count =
        (0..most).take_while(|index| match store.put_expiring(&key(*index), &value(*index, 1, LARGE), expiry) {
            Ok(()) => true,
            Err(Error::Full { .. }) => false,
            Err(error) => panic!("{error}"),
        });
    let count = count.count();
    (count < most && store.get(&key(0)).expect("get").is_some()).then_some(count)
}

/// Regression: expired keys stayed in tables that were never compacted. Their segments counted as
/// live, and the store was full until the next open.
#[test]
fn a_store_full_of_expired_values_accepts_as_many_again() {
    for mode in [Mode::Hash, Mode::Vlog, Mode::Nosep] {
        let full = [2, 8, 32].into_iter().find_map(|seconds| {
            let scratch = Scratch::new();
            let store = HashKv::create(&scratch.store(), &tiny(mode)).expect("create");
            let count = full_of_expiring(&store, seconds * 1000)?;
            Some((scratch, store, count))
        });
        let (_scratch, store, count) = full.expect("it is full before the first has expired");
        while store.get(&key(0)).expect("get").is_some() {
            std::thread::sleep(Duration::from_millis(100));
        }
        let mut model = Pairs::new();
        for index in 0..count * 3 / 4 {
            let (key, value) = (key(count + index), value(index, 2, LARGE));
            store.put(&key, &value).unwrap_or_else(|error| panic!("{mode:?}, {index} of {count}: {error}"));
            model.insert(key, value);
        }
        assert_holds(&store, &model);
        assert_sound(&store);
    }
}

/// Regression: an open reused generation numbers to which pointers to expired values referred. When
/// these were overwritten, live values of the new uses counted as dead, and were not moved.
#[test]
fn a_store_full_of_expired_values_has_space_after_an_open_and_loses_nothing() {
    for mode in [Mode::Hash, Mode::Vlog] {
        let full = [2, 8, 32].into_iter().find_map(|seconds| {
            let scratch = Scratch::new();
            let store = HashKv::create(&scratch.store(), &tiny(mode)).expect("create");
            let count = full_of_expiring(&store, seconds * 1000)?;
            Some((scratch, store, count))
        });
        let (scratch, store, count) = full.expect("it is full before the first has expired");
        assert!(count * LARGE > CAPACITY as usize / 3, "{count} values fill it");
        while store.get(&key(0)).expect("get").is_some() {
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(store);
        let store = HashKv::open(&scratch.store(), &tiny(mode)).expect("open");
        let mut model = Pairs::new();
        for index in 0..count * 3 / 4 {
            let (key, value) = (key(2 * index), value(index, 2, LARGE));
            store.put(&key, &value).unwrap_or_else(|error| panic!("{mode:?}, {index} of {count}: {error}"));
            model.insert(key, value);
        }
        assert_holds(&store, &model);
        assert_sound(&store);
        drop(store);
        let store = HashKv::open(&scratch.store(), &tiny(mode)).expect("open");
        store.settle().expect("settle");
        assert_holds(&store, &model);
    }
}

/// Returns the bytes of blocks that the file system has allocated to the values file.
fn blocks(scratch: &Scratch) -> u64 {
    std::fs::metadata(scratch.store().join("values.0000")).expect("the file").blocks() * 512
}

#[test]
fn the_space_of_deleted_values_returns_to_the_file_system() {
    let on_file = Scratch::within(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")));
    for (scratch, mode) in [(Scratch::new(), Mode::Hash), (Scratch::new(), Mode::Vlog), (on_file, Mode::Hash)] {
        let store = HashKv::create(&scratch.store(), &tiny(mode)).expect("create");
        let mut model = Pairs::new();
        (0..4000).for_each(|index| store.put(&key(index), &value(index, 1, LARGE)).expect("put"));
        store.settle().expect("settle");
        let before = blocks(&scratch);
        assert!(before > 4 << 20, "{mode:?}: {before} bytes of blocks for 4,000 values");
        (0..4000).for_each(|index| assert!(store.delete(&key(index)).expect("delete")));
        for index in 0..100 {
            store.put(&key(index), &value(index, 2, LARGE)).expect("put");
            model.insert(key(index), value(index, 2, LARGE));
        }
        store.settle().expect("settle");
        let after = blocks(&scratch);
        println!("{mode:?}: {before} bytes of blocks, then {after}");
        assert!(after < before / 2, "{mode:?}: {after} bytes of blocks are left of {before}");
        assert_holds(&store, &model);
    }
}

/// Regression: the LSM allocated regions for replayed logs before the file's share of the capacity
/// was known. A full store grew with each open.
#[test]
fn a_full_store_does_not_outgrow_its_capacity_when_it_is_opened_repeatedly() {
    let scratch = Scratch::new();
    let options = |workers| HashKvOptions { mode: Mode::Hash, ..common::tiny(CAPACITY, workers) };
    let mut next = 0;
    for round in 0..12 {
        let workers = round % 3;
        let open = if round == 0 { HashKv::create } else { HashKv::open };
        let store = open(&scratch.store(), &options(workers)).expect("open");
        // Values for the file and for the index, and overwrites, until neither fits.
        for len in [LARGE, 200, 3 * LARGE, 60] {
            while store.put(&key(next % 5000), &value(next, round as u32, len)).is_ok() {
                next += 1;
                if next % 4000 == 0 {
                    break;
                }
            }
            next += 1;
        }
        let space = store.stats().space;
        assert!(space.size <= CAPACITY + 8192, "round {round}: {} bytes of {CAPACITY}", space.size);
        assert_sound(&store);
        if round % 2 == 0 {
            store.close().expect("close");
        }
    }
}
