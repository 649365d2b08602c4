//! The store's reports about itself: stats, sync, verify.

use super::data::{key, versioned};
use super::{Case, Harness, Pairs, Stop, assert_holds, assert_sound};
use crate::{Durability, Error, Stats, Store};

fn assert_sane(stats: &Stats, durability: Durability) {
    let space = stats.space;
    assert_eq!(stats.durability, durability, "the durability that was asked for");
    assert!(!stats.medium.is_empty(), "the medium is named");
    assert!(stats.dram_bytes > 0 && stats.dram_fixed_bytes <= stats.dram_bytes, "DRAM: {stats:?}");
    assert!(space.live + space.dead + space.free <= space.size, "live, dead and free fit the size: {space:?}");
    assert!(space.size <= space.capacity, "the size keeps to the capacity: {space:?}");
    assert!((0.0..=1.0).contains(&stats.recovery.share), "share: {stats:?}");
}

/// Keys, bytes and durability are consistent: empty, filled, after deletes and after reopening.
pub fn stats_add_up<H: Harness>(case: &Case<H>) {
    let mut store = case.create();
    let durability = case.harness.durability();
    let count = case.plan.keys as u64;
    let empty = store.stats();
    assert_sane(&empty, durability);
    assert_eq!((empty.keys, empty.space.capacity), (0, empty.space.capacity.max(case.plan.capacity)));
    let mut payload = 0;
    for i in 0..case.plan.keys {
        // Incompressible for any engine.
        let mut word = i as u64 + 1;
        let random = |_| {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (word >> 56) as u8
        };
        let value: Vec<u8> = (0..i % 300).map(random).collect();
        store.put(&key("stats", i), &value).expect("put");
        payload += value.len() as u64 + key("stats", i).len() as u64;
    }
    // `len` is exact; `stats` may lag behind unfinished background work.
    assert_eq!(store.len().expect("len"), count);
    let filled = store.stats();
    assert_sane(&filled, durability);
    let counts = !store.capabilities().estimates;
    assert!(filled.keys == count || !counts && filled.keys > 0, "{} keys of {count}", filled.keys);
    assert!(filled.space.live >= payload, "live {} bytes of {payload} put", filled.space.live);
    assert!(filled.bytes_written >= payload, "written {} bytes of {payload} put", filled.bytes_written);
    assert!(
        filled.dram_bytes >= empty.dram_bytes / 2,
        "DRAM: {} empty, {} filled",
        empty.dram_bytes,
        filled.dram_bytes
    );
    for i in (0..case.plan.keys).step_by(2) {
        assert!(store.delete(&key("stats", i)).expect("delete"));
    }
    for how in [None, Some(Stop::Crash), Some(Stop::Clean)] {
        if let Some(how) = how {
            store = case.reopen(store, how);
            store.wait_recovered().expect("wait_recovered");
        }
        assert_eq!(store.len().expect("len"), count / 2, "after {how:?}");
        let stats = store.stats();
        assert_sane(&stats, durability);
        assert!(stats.keys == count / 2 || !counts && stats.keys > 0, "{} keys, after {how:?}", stats.keys);
    }
    assert_sound(&store);
}

/// Once `wait_recovered` has returned, `stats` reports the recovery as done, complete and with all
/// keys.
pub fn stats_follow_recovery<H: Harness>(case: &Case<H>) {
    let mut store = case.create();
    for i in 0..case.plan.keys {
        store.put(&key("recovery", i), b"v").expect("put");
    }
    for how in [Stop::Crash, Stop::Clean] {
        store = case.reopen(store, how);
        assert_sane(&store.stats(), case.harness.durability());
        for _ in 0..2 {
            store.wait_recovered().expect("wait_recovered");
            let stats = store.stats();
            assert!(stats.recovery.done, "done after {how:?}");
            assert!((stats.recovery.share - 1.0).abs() < 1e-9, "share {} after {how:?}", stats.recovery.share);
            assert_eq!((stats.recovery.corrupt, stats.keys), (0, case.plan.keys as u64), "after {how:?}");
        }
    }
}

/// Overwriting the same keys with many times the capacity does not fill the store.
pub fn space_is_used_again<H: Harness>(case: &Case<H>) {
    let capacity = case.plan.capacity_small;
    let mut store = case.create_sized(capacity);
    let mut rng = case.rng(12);
    let mut pairs = Pairs::new();
    let mut written = 0;
    for round in 0.. {
        for i in 0..64 {
            let name = key("again", i);
            let value = versioned(&name, round, rng.below(16 << 10));
            written += value.len() as u64;
            store.put(&name, &value).unwrap_or_else(|error| panic!("put after {written} bytes of {capacity}: {error}"));
            pairs.insert(name, value);
        }
        if written > 3 * capacity {
            break;
        }
        if round == 4 {
            store = case.reopen(store, Stop::Crash);
        }
    }
    assert_holds(&store, &pairs);
    assert_sound(&store);
}

/// `sync` succeeds, or reports that the medium does not support it. The store continues in both
/// cases.
pub fn sync_keeps_the_store_going<H: Harness>(case: &Case<H>) {
    let store = case.create();
    let mut pairs = Pairs::new();
    for i in 0..5 {
        store.put(&key("sync", i), b"v").expect("put");
        pairs.insert(key("sync", i), b"v".to_vec());
        match store.sync() {
            Ok(()) => {}
            Err(Error::DurabilityRefused { .. }) if !case.harness.survives_power() => {}
            Err(error) => panic!("sync: {error}"),
        }
        assert_holds(&store, &pairs);
    }
    let store = case.reopen(store, Stop::Crash);
    assert_holds(&store, &pairs);
}

/// `verify` of a sound store counts every record, reports increasing progress to the end, and has
/// no findings.
pub fn verify_counts_records_and_tells_progress<H: Harness>(case: &Case<H>) {
    let mut store = case.create();
    for i in 0..case.plan.keys {
        store.put(&key("verify", i), &vec![9; i % 500]).expect("put");
    }
    for i in 0..case.plan.keys / 2 {
        assert!(store.delete(&key("verify", i)).expect("delete"));
    }
    for how in [None, Some(Stop::Crash), Some(Stop::Clean)] {
        if let Some(how) = how {
            store = case.reopen(store, how);
        }
        let (mut last, mut calls) = (0, 0);
        let report = store.verify(&mut |progress| {
            assert!(progress.done >= last && progress.done <= progress.total, "{progress:?} after {last}");
            (last, calls) = (progress.done, calls + 1);
        });
        let report = report.expect("verify");
        assert!(report.is_clean(), "{:?}", report.findings);
        assert!(calls > 0, "progress is told");
        let live = case.plan.keys - case.plan.keys / 2;
        let bytes: usize = (case.plan.keys / 2..case.plan.keys).map(|i| i % 500).sum();
        let all = report.records == live as u64 || store.capabilities().estimates && report.records > live as u64;
        assert!(all, "{} records checked of {live}, after {how:?}", report.records);
        assert!(report.bytes >= bytes as u64, "{} bytes checked, {bytes} in values", report.bytes);
    }
    assert_sound(&store);
}
