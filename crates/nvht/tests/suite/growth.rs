//! Tables that grow during other operations.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use crate::common::{Scratch, small_dax};
use lodestore_contract::{Store, Visit};
use lodestore_nvht::{HashKind, Nvht, NvhtOptions};

fn key(index: u32) -> [u8; 8] {
    u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

fn options() -> NvhtOptions {
    NvhtOptions { initial_capacity: 1, partitions: 2, ..small_dax() }
}

#[test]
fn every_key_is_found_at_every_size_and_tables_double() {
    for (hash, probe_length, load_percent) in
        [(HashKind::Murmur3, 112, 80), (HashKind::Xxh3, 14, 95), (HashKind::Murmur3, 7, 50), (HashKind::Xxh3, 448, 95)]
    {
        let scratch = Scratch::new();
        let shape = NvhtOptions { hash, probe_length, load_percent, ..options() };
        let store = Nvht::create(&scratch.store(), &shape).expect("create");
        for index in 0..20_000u32 {
            store.put(&key(index), &index.to_le_bytes()).expect("put");
            // A key put long ago, and the newest.
            for index in [index / 2, index] {
                assert_eq!(store.get(&key(index)).expect("get"), Some(index.to_le_bytes().to_vec()), "{index}");
            }
        }
        assert_eq!(store.len().expect("len"), 20_000);
        let counters = store.stats().engine_counters;
        assert!(counters["tables_grown"] >= 10, "{counters:?}");
        assert!(counters["slots"] >= 20_000, "{counters:?}");
        assert_eq!(store.verify(&mut |_| ()).expect("verify").findings, []);
    }
}

#[test]
fn a_growth_continues_after_a_kill() {
    let scratch = Scratch::new();
    let mut kept = 0;
    let mut store = Nvht::create(&scratch.store(), &options()).expect("create");
    // Reopened often enough to cover every stage of a growth, after clean stops and without.
    for index in 0..6000u32 {
        store.put(&key(index), &index.to_le_bytes()).expect("put");
        let growing = store.stats().engine_counters["tables_growing"] > 0;
        if index % 61 == 0 || growing && index % 3 == 0 {
            kept += u32::from(growing);
            if index % 2 == 0 {
                store.close().expect("close");
            }
            drop(store);
            store = Nvht::open(&scratch.store(), &options()).expect("open");
            assert_eq!(store.len().expect("len"), u64::from(index) + 1);
        }
    }
    assert!(kept > 20, "{kept} stops in a growth");
    for index in 0..6000u32 {
        assert_eq!(store.get(&key(index)).expect("get"), Some(index.to_le_bytes().to_vec()), "{index}");
    }
    assert_eq!(store.verify(&mut |_| ()).expect("verify").findings, []);
}

#[test]
fn readers_and_walks_miss_no_key_and_see_none_twice_while_tables_grow() {
    const STAYING: u32 = 500;
    const COMING: u32 = 60_000;
    let scratch = Scratch::new();
    let store = Nvht::create(&scratch.store(), &options()).expect("create");
    for index in 0..STAYING {
        store.put(&key(index), &index.to_le_bytes()).expect("put");
    }
    let (done, walks) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for index in STAYING..COMING {
                store.put(&key(index), &index.to_le_bytes()).expect("put");
                if index % 3 == 0 {
                    assert!(store.delete(&key(index)).expect("delete"), "{index}");
                }
                // Staying keys are overwritten, and stay.
                store.put(&key(index % STAYING), &(index % STAYING).to_le_bytes()).expect("put");
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                for index in 0..STAYING {
                    assert_eq!(store.get(&key(index)).expect("get"), Some(index.to_le_bytes().to_vec()), "{index}");
                }
            }
        });
        while !done.load(Ordering::Acquire) {
            let mut seen: HashMap<Vec<u8>, u32> = HashMap::new();
            store
                .for_each(&mut |key, _| {
                    *seen.entry(key.to_vec()).or_default() += 1;
                    Visit::More
                })
                .expect("walk");
            assert!(seen.values().all(|times| *times == 1), "no key twice");
            assert!((0..STAYING).all(|index| seen.contains_key(&key(index)[..])), "no staying key is missed");
            walks.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(store.stats().engine_counters["tables_grown"] >= 10);
    println!("{} walks", walks.load(Ordering::Relaxed));
    assert_eq!(store.verify(&mut |_| ()).expect("verify").findings, []);
}

#[test]
fn deleted_keys_stay_deleted_when_tables_grow() {
    let scratch = Scratch::new();
    let store = Nvht::create(&scratch.store(), &options()).expect("create");
    for index in 0..3000u32 {
        store.put(&key(index), b"old").expect("put");
    }
    for index in 0..3000u32 {
        assert!(store.delete(&key(index)).expect("delete"));
    }
    for index in 3000..30_000u32 {
        store.put(&key(index), b"new").expect("put");
    }
    assert!((0..3000).all(|index| !store.contains(&key(index)).expect("contains")), "none of 3000");
    assert_eq!(store.len().expect("len"), 27_000);
}

#[test]
fn a_key_put_where_others_were_deleted_is_found_once() {
    let scratch = Scratch::new();
    let options = NvhtOptions { probe_length: 112, load_percent: 95, ..options() };
    let store = Nvht::create(&scratch.store(), &options).expect("create");
    for index in 0..3000u32 {
        store.put(&key(index), b"first").expect("put");
    }
    for index in (0..3000u32).step_by(2) {
        assert!(store.delete(&key(index)).expect("delete"));
    }
    for index in 0..3000u32 {
        store.put(&key(index), b"second").expect("put");
    }
    assert_eq!(store.len().expect("len"), 3000);
    for index in 0..3000u32 {
        assert!(store.delete(&key(index)).expect("delete"));
        assert!(!store.contains(&key(index)).expect("contains"), "{index}: an older copy came up");
    }
}

#[test]
fn the_shortest_probes_hold_thousands_of_keys_in_tables_of_bounded_length() {
    let scratch = Scratch::new();
    let options = NvhtOptions { probe_length: 7, load_percent: 95, partitions: 1, initial_capacity: 1, ..options() };
    let store = Nvht::create(&scratch.store(), &options).expect("create");
    // A table is doubled for lack of a free slot long before its load limit.
    for index in 0..5000u32 {
        store.put(&key(index), &index.to_le_bytes()).expect("put");
    }
    for index in 0..5000u32 {
        assert_eq!(store.get(&key(index)).expect("get"), Some(index.to_le_bytes().to_vec()));
    }
    let slots = store.stats().engine_counters["slots"];
    assert!(slots < 5000 * 64, "{slots} slots");
}

#[test]
fn a_table_grows_at_its_load_factor_after_a_clean_stop_too() {
    let scratch = Scratch::new();
    let options = NvhtOptions { initial_capacity: 40_000, partitions: 1, load_percent: 50, ..options() };
    let mut store = Nvht::create(&scratch.store(), &options).expect("create");
    let slots = store.stats().engine_counters["slots"];
    let mut index = 0;
    while store.stats().engine_counters["tables_growing"] == 0 {
        store.put(&key(index), b"value").expect("put");
        index += 1;
        if index == 10_000 {
            store.close().expect("close");
            drop(store);
            store = Nvht::open(&scratch.store(), &options).expect("open");
        }
        assert!(u64::from(index) * 100 < slots * 56, "not growing at {index} of {slots}");
    }
    assert!(u64::from(index) * 100 >= slots * 50, "growing at {index} of {slots}");
}

#[test]
fn a_put_does_a_step_and_not_a_whole_growth() {
    for hash_seed in 1..=3 {
        check_steps_of_puts(hash_seed);
    }
}

/// Fills a table at a load at which probes trigger its growth. The seed is fixed: a table can grow
/// without the warning of a long probe, and then a put waits for many steps. About one random seed
/// in 150 has such a put.
fn check_steps_of_puts(hash_seed: u64) {
    let scratch = Scratch::new();
    let shape = NvhtOptions { initial_capacity: 40_000, partitions: 1, load_percent: 95, ..options() };
    let store = Nvht::create(&scratch.store(), &NvhtOptions { hash_seed: Some(hash_seed), ..shape }).expect("create");
    let steps = || store.stats().engine_counters["growth_steps"];
    for index in 0..100_000 {
        let before = steps();
        store.put(&key(index), b"value").expect("put");
        let done = steps() - before;
        assert!(done <= 1, "{done} steps in put {index}, hash seed {hash_seed}");
    }
    assert!(steps() > 300, "hash seed {hash_seed}");
}
