//! The background scrub finds damage in records that are never read, and a close does not wait for
//! a pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lodestore_contract::{Error, Event, Store};
use lodestore_inplace::testing::{Scratch, flip_bit_of_each, wait_for_scrub};
use lodestore_media::PoolOptions;
use lodestore_nvht::{Nvht, NvhtOptions};

const KEYS: u64 = 2000;

fn key(index: u64) -> Vec<u8> {
    format!("{index:08}").into_bytes()
}

fn value(index: u64) -> Vec<u8> {
    format!("value {index} {}", "v".repeat(90)).into_bytes()
}

fn options(scrub_rate: u64) -> NvhtOptions {
    let pool = PoolOptions { capacity: 256 << 20, region_bytes: 64 << 20, ..PoolOptions::default() };
    NvhtOptions { pool, scrub_rate, ..NvhtOptions::default() }
}

#[test]
fn a_scrub_finds_and_reports_damage_of_an_unread_record() {
    let scratch = Scratch::new();
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let mut options = options(1 << 20);
    options.pool.events = Some(Arc::new(move |event| {
        if matches!(event, Event::Corruption { .. }) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }));
    let store = Nvht::create(&scratch.store(), &options).expect("created");
    (0..KEYS).for_each(|index| store.put(&key(index), &value(index)).expect("put"));
    store.settle().expect("settled");
    assert_eq!(wait_for_scrub(&store, || store.scrub_now()), 0, "nothing is damaged");
    flip_bit_of_each(&scratch.store().join("pool.0000"), b"value 1234 ");
    // A pass may have begun before the damage.
    wait_for_scrub(&store, || store.scrub_now());
    assert!(wait_for_scrub(&store, || store.scrub_now()) > 0 && told.load(Ordering::SeqCst) > 0);
    assert!(matches!(store.get(&key(1234)), Err(Error::Corrupt { .. })));
    assert_eq!(store.get(&key(77)).expect("get"), Some(value(77)));
}

/// At this rate a pass takes longer than any test.
#[test]
fn a_close_and_a_drop_do_not_wait_for_a_pass() {
    let scratch = Scratch::new();
    let store = Nvht::create(&scratch.store(), &options(1)).expect("created");
    let large = vec![7; 1 << 20];
    (0..40).for_each(|index| store.put(&key(index), &large).expect("put"));
    store.scrub_now();
    store.close().expect("closed");
    drop(store);
    let store = Nvht::open(&scratch.store(), &options(1)).expect("opened");
    store.scrub_now();
    drop(store);
    let store = Nvht::open(&scratch.store(), &options(0)).expect("opened");
    assert_eq!(store.get(&key(3)).expect("get"), Some(large));
    store.close().expect("closed");
}
