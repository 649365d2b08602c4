//! Damage to the last record of a log that a crash left.

use crate::common;
use crate::common::{counter, key, value};
use lodestore_contract::{Error, Result, Store};
use lodestore_hashkv::{HashKv, HashKvOptions, Mode};
use lodestore_inplace::testing::Scratch;

const COUNT: usize = 12;

fn options(mode: Mode, salvage: bool) -> HashKvOptions {
    let mut options = HashKvOptions { mode, ..common::tiny(8 << 20, 0) };
    options.index.pool.salvage = salvage;
    options
}

/// Flips two bits in the header of the record of this key in the log.
fn hurt(scratch: &Scratch, key: &[u8]) {
    let files = std::fs::read_dir(scratch.store()).expect("a store").map(|entry| entry.expect("a file").path());
    let holds = |bytes: &[u8]| bytes.windows(key.len()).position(|window| window == key);
    let mut places = files.filter_map(|path| {
        let bytes = std::fs::read(&path).expect("its bytes");
        holds(&bytes).map(|at| (path, bytes, at))
    });
    let (path, mut bytes, at) = places.next().expect("the record");
    assert!(places.next().is_none() && holds(&bytes[at + 1..]).is_none(), "it stands there once");
    bytes[at - 4] ^= 1;
    bytes[at - 8] ^= 2;
    std::fs::write(path, bytes).expect("written");
}

/// Regression: the record was missing, and neither the open nor `verify` reported the loss.
#[test]
fn a_damaged_last_record_is_reported_in_every_mode() {
    for mode in [Mode::Hash, Mode::Vlog, Mode::Nosep] {
        for len in [20, 3000] {
            let scratch = Scratch::new();
            let open = |salvage: bool| -> Result<HashKv> { HashKv::open(&scratch.store(), &options(mode, salvage)) };
            let store = HashKv::create(&scratch.store(), &options(mode, false)).expect("create");
            (0..COUNT).for_each(|index| store.put(&key(index), &value(index, 1, len)).expect("put"));
            assert_eq!(counter(&store, "flushes"), 0, "all of them are in the log");
            drop(store);
            hurt(&scratch, &key(COUNT - 1));
            let refused = open(false).err();
            assert!(matches!(&refused, Some(Error::Corrupt { what, .. }) if what.contains("salvage")), "{refused:?}");
            let store = open(true).expect("salvaged");
            let (recovery, left) = (store.stats().recovery, store.len().expect("len"));
            assert_eq!((left, recovery.corrupt, recovery.left_out), (COUNT as u64 - 1, 1, 1), "{mode:?}, {len} bytes");
        }
    }
}
