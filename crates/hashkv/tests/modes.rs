//! Modes, and what they have in common: a store in each mode after another, direct I/O, and space that the file system has again.

mod common;

use std::os::unix::fs::MetadataExt;

use common::{counter, key, value};
use lodestore_contract::conformance::{Pairs, assert_holds, assert_sound};
use lodestore_contract::{Error, Store};
use lodestore_hashkv::{HashKv, HashKvOptions, Mode};
use lodestore_inplace::testing::Scratch;

/// Bytes of a store.
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
            // Those of each turn, and some of every one before; some go.
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

/// Whether a file system takes O_DIRECT is its own affair: tmpfs does on newer systems.
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
        // Either way the next open may do without.
        let store = HashKv::open(&scratch.store(), &tiny(Mode::Hash)).expect("open");
        assert_holds(&store, &model);
    }
}

/// Bytes of blocks that the file system has given the file of values.
fn blocks(scratch: &Scratch) -> u64 {
    std::fs::metadata(scratch.store().join("values.0000")).expect("the file").blocks() * 512
}

#[test]
fn the_file_system_has_the_space_of_deleted_values_again() {
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
