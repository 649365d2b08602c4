//! DRAM stays within the budget for all kinds of writes. The only test of its process, since it
//! reads the process's own pages (RssAnon).

use std::sync::Mutex;

use lodestore_contract::{ScanRange, Store, Visit};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;

const BUDGET: u64 = 6 << 20;
/// DRAM of the test process other than the store, and freed memory that the allocator keeps.
const BESIDE: u64 = 4 << 20;
const KEYS: u64 = 400_000;
/// Serializes the tests, which share the process.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns the anonymous memory of this process, in bytes.
fn rss_anon() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the process's status");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a kernel that tells RssAnon");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Returns a key by number, in no order.
fn key(number: u64) -> [u8; 16] {
    let mixed = (number ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(number) << 64 | u128::from(mixed)).to_le_bytes()
}

#[test]
fn dram_stays_within_the_budget() {
    let _alone = ALONE.lock();
    let scratch = Scratch::new();
    let mut options = FluidOptions { dram_budget: BUDGET, ..FluidOptions::default() };
    options.pool.capacity = 1 << 30;
    options.pool.region_bytes = 64 << 20;
    let store = FluidKv::create(&scratch.store(), &options).expect("a store");
    let before = rss_anon();
    let mut most = 0;
    let mut look = |number: u64| {
        if number.is_multiple_of(1000) {
            most = most.max(rss_anon().saturating_sub(before));
        }
    };
    // A load; the same again, under a snapshot that needs every old version; deletes concurrent
    // with scans.
    for number in 0..KEYS {
        store.put(&key(number), &[number as u8; 8]).expect("put");
        look(number);
    }
    let snapshot = store.snapshot().expect("a snapshot");
    for number in 0..KEYS {
        store.put(&key(number), &[!number as u8; 8]).expect("put again");
        look(number);
    }
    assert_eq!(snapshot.get(&key(77)).expect("get"), Some(vec![77; 8]));
    drop(snapshot);
    for number in 0..KEYS {
        if number.is_multiple_of(2) {
            assert!(store.delete(&key(number)).expect("delete"));
        }
        if number.is_multiple_of(1000) {
            store.scan_each(&ScanRange::from(key(number)).limit(1000), &mut |_, _| Visit::More).expect("scan");
        }
        look(number);
    }
    assert_eq!(store.len().expect("len"), KEYS / 2);
    let limit = BUDGET + BUDGET / 10 + BESIDE;
    assert!(most <= limit, "{most} bytes of DRAM at the most, with a budget of {BUDGET}");
    println!("{most} bytes of DRAM at the most");
}

#[test]
fn the_smallest_budget_is_enough_to_work_with() {
    let _alone = ALONE.lock();
    let scratch = Scratch::new();
    let mut options = FluidOptions { dram_budget: 1 << 20, ..FluidOptions::default() };
    options.pool.capacity = 256 << 20;
    options.pool.region_bytes = 64 << 20;
    let store = FluidKv::create(&scratch.store(), &options).expect("a store");
    for number in 0..20_000u64 {
        store.put(&key(number), &[7; 64]).expect("put");
    }
    store.settle().expect("settled");
    assert_eq!(store.len().expect("len"), 20_000);
    let stats = store.stats();
    assert!(stats.dram_bytes <= 2 << 20, "{} bytes of DRAM by the store's own account", stats.dram_bytes);
}
