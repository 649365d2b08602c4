//! Small DRAM budgets hold by the store's own statistics, on every medium, for all kinds of writes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lodestore_contract::{Batch, BatchOp, Durability, Error, Store};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

const MIB: u64 = 1 << 20;
/// The budgets, from the minimum of the option.
const BUDGETS: [u64; 4] = [MIB, 2 * MIB, 4 * MIB, 8 * MIB];

/// Returns a key by number, in no order.
fn key(number: u64) -> [u8; 16] {
    let mixed = (number ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (u128::from(number) << 64 | u128::from(mixed)).to_le_bytes()
}

fn options(budget: u64, durability: Durability) -> FluidOptions {
    let pool = PoolOptions { capacity: 1 << 30, region_bytes: 64 << 20, durability, ..PoolOptions::default() };
    FluidOptions { pool, dram_budget: budget, workers: 2, ..FluidOptions::default() }
}

fn put(number: u64, byte: u8) -> BatchOp {
    BatchOp::Put { key: key(number).to_vec(), value: vec![byte; 8], expiry: None }
}

/// Returns the DRAM that counts against the budget.
fn used(store: &FluidKv) -> u64 {
    let stats = store.stats();
    stats.dram_bytes - stats.dram_fixed_bytes
}

/// Returns the maximum DRAM while `work` runs, sampled continuously.
fn most_while(store: &FluidKv, work: impl FnOnce()) -> u64 {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = used(store);
            while !ended.load(Ordering::Acquire) {
                most = most.max(used(store));
                std::thread::yield_now();
            }
            most
        });
        work();
        ended.store(true, Ordering::Release);
        watch.join().expect("watched")
    })
}

fn fill(store: &FluidKv, threads: u64, keys: u64, len: usize) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                (0..keys / threads).for_each(|number| {
                    store.put(&key(number * threads + thread), &vec![number as u8; len]).expect("put");
                });
            });
        }
    });
}

/// Fills stores of each budget, with values of each length, by one thread and by four.
fn check(durability: Durability, on_file: bool, bytes: u64) {
    for budget in BUDGETS {
        for (len, times) in [(8, 1), (64, 2), (1000, 8)] {
            for threads in [1, 4] {
                let base = env!("CARGO_TARGET_TMPDIR").as_ref();
                let scratch = if on_file { Scratch::within(base) } else { Scratch::new() };
                let store = FluidKv::create(&scratch.store(), &options(budget, durability)).expect("a store");
                let keys = times * bytes / (len as u64 + 16) / 4 * 4;
                let most = most_while(&store, || fill(&store, threads, keys, len));
                let what = format!("{keys} values of {len} bytes by {threads} threads, budget {budget}");
                assert!(most <= budget, "{most} bytes of DRAM: {what}");
                assert_eq!(store.len().expect("len"), keys, "{what}");
            }
        }
    }
}

#[test]
fn budgets_hold_on_tmpfs() {
    check(Durability::Process, false, 6 * MIB);
}

#[test]
fn budgets_hold_on_files_where_all_threads_share_one_log() {
    check(Durability::Interval(Duration::from_millis(20)), true, 6 * MIB);
}

/// A sync per put would need minutes: batches fill as well, and make the index grow in steps.
#[test]
fn budgets_hold_where_each_write_waits_for_a_sync() {
    for (budget, threads) in [(MIB, 1), (MIB, 4), (2 * MIB, 4)] {
        let scratch = Scratch::within(env!("CARGO_TARGET_TMPDIR").as_ref());
        let store = FluidKv::create(&scratch.store(), &options(budget, Durability::Power)).expect("a store");
        let most = most_while(&store, || {
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let store = &store;
                    scope.spawn(move || {
                        for round in 0..160 / threads {
                            let mut batch = Batch::default();
                            let first = (round * threads + thread) * 500;
                            (first..first + 500).for_each(|number| batch.ops.push(put(number, 7)));
                            store.write(&batch).expect("written");
                        }
                    });
                }
            });
        });
        assert!(most <= budget, "{most} bytes of DRAM, {threads} threads, budget {budget}");
        assert_eq!(store.len().expect("len"), 80_000);
    }
}

#[test]
fn memory_held_by_snapshots_counts() {
    for budget in [MIB, 4 * MIB] {
        let scratch = Scratch::new();
        let store = FluidKv::create(&scratch.store(), &options(budget, Durability::Process)).expect("a store");
        let mut snapshots = Vec::new();
        let mut refused = 0;
        let most = most_while(&store, || {
            for round in 0..12u8 {
                // Few keys, whose older versions the snapshots need, and many.
                for number in 0..30_000 {
                    let key = if number % 3 == 0 { key(number) } else { key(number % 7) };
                    refused += u64::from(store.put(&key, &[round; 8]).is_err());
                }
                match store.snapshot() {
                    Ok(snapshot) => snapshots.push((round, snapshot)),
                    Err(error) => assert!(matches!(error, Error::DramBudget { .. }), "{error}"),
                }
            }
        });
        assert!(most <= budget, "{most} bytes of DRAM with {} snapshots, budget {budget}", snapshots.len());
        assert!(snapshots.len() > 1, "there is room for some");
        for (round, snapshot) in &snapshots {
            if refused == 0 {
                assert_eq!(snapshot.get(&key(0)).expect("get"), Some(vec![*round; 8]));
            }
        }
        drop(snapshots);
        fill(&store, 1, 30_000, 8);
    }
}

#[test]
fn puts_are_refused_while_tables_use_up_the_budget() {
    let scratch = Scratch::new();
    let options = FluidOptions { table_bytes: 16 << 10, ..options(MIB, Durability::Process) };
    let store = FluidKv::create(&scratch.store(), &options).expect("a store");
    let (mut keys, mut outcome) = (0, Ok(()));
    let most = most_while(&store, || {
        while outcome.is_ok() && keys < 100_000 {
            outcome = store.put(&key(keys), &[1; 1000]);
            keys += 1;
        }
    });
    assert!(matches!(outcome, Err(Error::DramBudget { budget: MIB, .. })), "{outcome:?} behind {keys} keys");
    assert!(most <= MIB, "{most} bytes of DRAM");
    assert_eq!(store.get(&key(5)).expect("get"), Some(vec![1; 1000]));
    for number in 0..keys - 1 {
        assert!(store.delete(&key(number)).expect("deletes go on"));
    }
    fill(&store, 1, 1000, 1000);
}

#[test]
fn a_batch_that_exceeds_the_budget_is_refused_whole() {
    let scratch = Scratch::new();
    let store = FluidKv::create(&scratch.store(), &options(MIB, Durability::Process)).expect("a store");
    let mut batch = Batch::default();
    (0..20_000).for_each(|number| batch.ops.push(put(number, 1)));
    let outcome = store.write(&batch);
    assert!(matches!(outcome, Err(Error::DramBudget { .. })), "{outcome:?}");
    assert!(store.is_empty().expect("read"));
}

#[test]
fn a_budget_too_small_for_writes_is_refused_with_the_minimum() {
    let scratch = Scratch::new();
    let mut options = options(MIB, Durability::Process);
    (options.pool.capacity, options.pool.chunk_bytes) = (2 << 30, 128);
    let (name, why) = match FluidKv::create(&scratch.store(), &options).map(|_| ()) {
        Err(Error::InvalidOption { name, why, .. }) => (name, why),
        other => panic!("{other:?}"),
    };
    assert_eq!(name, "dram-budget");
    let least: u64 = why.split(' ').find_map(|word| word.parse().ok()).expect("it says the least");
    options.dram_budget = least;
    let store = FluidKv::create(&scratch.store(), &options).expect("the least is enough");
    store.put(b"key", b"value").expect("put");
}
