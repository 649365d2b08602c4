//! Damage to a log while its store is open: bits that change behind its back.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use lodestore_contract::{Error, Store};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

const KEY: &[u8] = b"damaged-key";
const VALUE: &[u8] = b"the right value";

fn options() -> FluidOptions {
    FluidOptions {
        pool: PoolOptions { capacity: 16 << 20, region_bytes: 16 << 20, ..PoolOptions::default() },
        memtable_bytes: 64 << 10,
        segment_bytes: 16 << 10,
        workers: 0,
        ..FluidOptions::default()
    }
}

/// Flips a bit of the byte at `offset` from where the entry's key begins in the store's first file.
fn flip(scratch: &Scratch, offset: i64, bit: u8) {
    let path = scratch.store().join("pool.0000");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("the store's file");
    let bytes = std::fs::read(&path).expect("its bytes");
    let sought = [KEY, VALUE].concat();
    let at = bytes.windows(sought.len()).position(|window| window == sought).expect("the entry");
    let at = at as u64;
    let at = at.checked_add_signed(offset).expect("inside the file");
    let byte = bytes[at as usize] ^ 1 << bit;
    file.write_all_at(&[byte], at).expect("written");
}

/// It was copied into a table, under a fresh checksum.
#[test]
fn a_damaged_entry_is_not_flushed_and_a_restart_mends_it() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &options()).expect("create");
    store.put(KEY, VALUE).expect("put");
    flip(&scratch, KEY.len() as i64, 0);
    let settled = store.settle();
    assert!(matches!(settled, Err(Error::Corrupt { .. })), "{settled:?}");
    assert!(!store.verify(&mut |_| ()).expect("verify").is_clean());
    drop(store);
    let store = FluidKv::open(&scratch.store(), &options()).expect("open");
    assert_eq!(store.get(KEY).expect("get").as_deref(), Some(VALUE));
    store.settle().expect("settle");
    assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
}

/// Writers were told that the store was full.
#[test]
fn a_flush_that_meets_damage_is_told_as_damage() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &options()).expect("create");
    store.put(KEY, VALUE).expect("put");
    // In the header: its length of the key.
    flip(&scratch, -8, 1);
    let settled = store.settle();
    assert!(matches!(settled, Err(Error::Corrupt { .. })), "{settled:?}");
    let refused = (0..20_000u64).find_map(|number| store.put(&number.to_le_bytes(), &[7; 40]).err());
    assert!(matches!(refused, Some(Error::Corrupt { .. }) | None), "{refused:?}");
}

/// It said that the entry of another key was damaged, and no more.
#[test]
fn writes_that_wait_for_a_damaged_memtable_are_told_why_and_what_to_do() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &options()).expect("create");
    store.put(KEY, VALUE).expect("put");
    flip(&scratch, KEY.len() as i64, 0);
    let mut written = 0u64;
    let refused = loop {
        match store.put(&written.to_le_bytes(), &[7; 40]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100_000, "memtables wait for their flush");
    };
    let text = refused.to_string();
    assert!(matches!(refused, Error::Corrupt { .. }) && text.contains("no more is written"), "{text}");
    assert!(text.contains("open the store again") && text.contains("salvage"), "{text}");
    assert!(matches!(store.delete(&0u64.to_le_bytes()), Err(Error::Corrupt { .. })), "deletes wait as well");
    assert!(
        (0..written).all(|number| store.get(&number.to_le_bytes()).is_ok_and(|found| found.is_some())),
        "reads go on"
    );
    assert!(matches!(store.close(), Err(Error::Corrupt { .. })));
    drop(store);
    let store = FluidKv::open(&scratch.store(), &options()).expect("open");
    assert_eq!(store.len().expect("len"), written + 1);
    store.put(b"more", b"value").expect("it takes writes again");
    store.close().expect("close");
}

/// It answered that all was well.
#[test]
fn a_close_that_meets_damage_says_so_and_a_restart_mends_it() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &options()).expect("create");
    store.put(KEY, VALUE).expect("put");
    flip(&scratch, KEY.len() as i64, 0);
    let closed = store.close();
    assert!(matches!(closed, Err(Error::Corrupt { .. })), "{closed:?}");
    assert!(matches!(store.get(KEY), Err(Error::Closed)), "it is closed all the same");
    store.close().expect("twice is no error");
    drop(store);
    let store = FluidKv::open(&scratch.store(), &options()).expect("open");
    assert_eq!(store.get(KEY).expect("get").as_deref(), Some(VALUE));
    store.close().expect("close");
}
