//! Tests of flushes with a separator, step by step.

use std::sync::atomic::AtomicU64;

use lodestore_contract::Store;
use lodestore_inplace::testing::Scratch;
use lodestore_media::{Pool, PoolOptions};

use super::*;
use crate::background::Rotation;
use crate::values::separator::{Separable, Separator};
use crate::{ENGINE, FORMAT, FluidKv, FluidOptions};

/// Stores an `s` for each value of 50 bytes or more, and counts calls.
#[derive(Default)]
struct Counting {
    values: AtomicU64,
    published: AtomicU64,
    died: AtomicU64,
}

impl Separator for Counting {
    fn wants(&self, _key: &[u8], value: &[u8]) -> bool {
        value.len() >= 50
    }

    fn separate(&self, values: &[Separable<'_>]) -> Result<Vec<Option<Box<[u8]>>>> {
        self.values.fetch_add(values.len() as u64, Ordering::Relaxed);
        Ok(values.iter().map(|_| Some(b"s".as_slice().into())).collect())
    }

    fn published(&self) {
        self.published.fetch_add(1, Ordering::Relaxed);
    }

    fn died(&self, stored: &[&[u8]]) {
        self.died.fetch_add(stored.len() as u64, Ordering::Relaxed);
    }
}

fn created(scratch: &Scratch) -> (FluidKv, Arc<Counting>) {
    let options = FluidOptions {
        pool: PoolOptions { capacity: 64 << 20, region_bytes: 16 << 20, ..PoolOptions::default() },
        memtable_bytes: 1 << 20,
        segment_bytes: 16 << 10,
        table_bytes: 16 << 10,
        range_bytes: 64 << 10,
        workers: 0,
        ..FluidOptions::default()
    };
    let (pool, report) = Pool::create(&scratch.store(), ENGINE, FORMAT, options.pool.clone()).expect("a pool");
    let counting = Arc::new(Counting::default());
    let store = FluidKv::start_separating(pool, &report, &options, Arc::clone(&counting) as _).expect("a store");
    (store, counting)
}

fn key(index: u64) -> Vec<u8> {
    format!("{index:08}").into_bytes()
}

fn fill(store: &FluidKv, keys: std::ops::Range<u64>, len: usize) {
    keys.for_each(|index| store.put(&key(index), &vec![index as u8; len]).expect("put"));
}

/// The ranges are split between the building of the tables and the manifest's record.
#[test]
fn a_repeated_flush_separates_no_value_twice_and_reports_each_death_once() {
    let scratch = Scratch::new();
    let (store, counting) = created(&scratch);
    let inner = &store.running.inner;
    let stale = Arc::clone(&inner.view.load().ranges);
    fill(&store, 0..6000, 40);
    store.settle().expect("settled");
    assert!(inner.view.load().ranges.list.len() > stale.list.len());
    fill(&store, 1000..3000, 60);
    assert_eq!(inner.rotate(), Rotation::Done);
    let counts = || [&counting.values, &counting.published, &counting.died].map(|count| count.load(Ordering::Relaxed));
    let before = counts();
    let memtable = Arc::clone(&inner.view.load().frozen[0]);
    let separated = inner.separate(&memtable).expect("separated").expect("there is a separator");
    let runs = inner.build_runs((&memtable, Some(&separated)), &stale, 1).expect("tables");
    let published = inner.publish_flush(&memtable, &stale, runs, inner.order.last()).expect("no failure");
    assert!(published.is_none(), "the tables fit no range");
    assert!(inner.dram().0 > 0 && memtable.separation.take_separated().last.is_none(), "the flush has it");
    memtable.separation.put_back(separated);
    drop(memtable);
    assert_eq!(counts(), [before[0] + 2000, before[1], before[2]]);
    assert!(inner.flush_oldest().expect("flushed"));
    assert_eq!(counts(), [before[0] + 2000, before[1] + 1, before[2] + 2000]);
    for index in 0..6000 {
        let expected = if (1000..3000).contains(&index) { b"s".to_vec() } else { vec![index as u8; 40] };
        assert_eq!(store.get(&key(index)).expect("get"), Some(expected), "key {index}");
    }
    assert!(store.verify(&mut |_| ()).expect("verify").is_clean());
}

#[test]
fn separated_values_count_as_dram_until_the_flush_ends() {
    let scratch = Scratch::new();
    let (store, _) = created(&scratch);
    let inner = &store.running.inner;
    fill(&store, 0..1000, 60);
    let moves: Vec<_> = (0..1000).map(key).collect();
    let (old, new): (Vec<_>, Vec<_>) = (0..1000).map(|index| (vec![index as u8; 60], vec![index as u8; 61])).unzip();
    let moves: Vec<_> =
        (0..1000).map(|at| crate::embedding::Replace { key: &moves[at], old: &old[at], new: &new[at] }).collect();
    let before = inner.view.load().active.dram_bytes();
    assert!(store.replace(&moves).expect("replaced").iter().all(|replaced| *replaced));
    let memtable = Arc::clone(&inner.view.load().active);
    let moved = memtable.dram_bytes();
    assert!(moved >= before + 8000);
    assert_eq!(inner.rotate(), Rotation::Done);
    let separated = inner.separate(&memtable).expect("separated").expect("there is a separator");
    assert!(memtable.dram_bytes() >= moved + 17_000);
    memtable.separation.put_back(separated);
    assert!(inner.flush_oldest().expect("flushed"));
    assert_eq!(memtable.dram_bytes(), before);
}
