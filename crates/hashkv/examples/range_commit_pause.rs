//! Measures how long a commit with a range condition stops other writers.
//!
//! `cargo run --release -p lodestore-hashkv --example range_commit_pause DIRECTORY [PAIRS] [BYTES]`
//! creates a store below DIRECTORY and removes it. A writer puts keys outside of the range without
//! a pause while another thread commits batches whose condition is the whole range with its values.
//! A row shows the time of a commit and the longest put during it.

use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use lodestore_contract::{Batch, BatchOp, Condition, RangeCondition, Store};
use lodestore_hashkv::{HashKv, HashKvOptions};

const COMMIT_COUNT: usize = 11;

fn key(index: u64) -> Vec<u8> {
    format!("range/{index:012}").into_bytes()
}

fn measure(store: &HashKv, pairs: u64, value: &[u8]) {
    let conditions: Vec<_> = (0..pairs).map(|index| Condition::value(key(index), Some(value.into()))).collect();
    let keys = (0..pairs).map(key).collect();
    let range = RangeCondition { from: Bound::Included(key(0)), to: Bound::Excluded(key(pairs)), keys };
    let batch = Batch { ops: vec![BatchOp::Put { key: b"total".into(), value: value.into(), expiry: None }] };
    let (has_ended, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for index in 0u64.. {
                if has_ended.load(Ordering::Relaxed) {
                    break;
                }
                let begun = Instant::now();
                store.put(&(index % 1000).to_le_bytes(), b"other").expect("put");
                longest.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
            }
        });
        println!("| commit, ms | longest put, ms |\n|---|---|");
        for _ in 0..COMMIT_COUNT {
            longest.store(0, Ordering::Relaxed);
            let begun = Instant::now();
            let commit = store.write_if_ranges(&conditions, std::slice::from_ref(&range), &batch);
            let took = begun.elapsed();
            assert!(commit.expect("an outcome").is_done());
            let longest = longest.load(Ordering::Relaxed) as f64 / 1000.0;
            println!("| {:.1} | {longest:.1} |", took.as_secs_f64() * 1000.0);
        }
        has_ended.store(true, Ordering::Relaxed);
    });
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(dir) = arguments.first() else {
        eprintln!("usage: range_commit_pause DIRECTORY [PAIRS] [BYTES]");
        std::process::exit(2);
    };
    let number = |index: usize, default| arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (pairs, bytes) = (number(1, 10_000), number(2, 1024));
    let path = Path::new(dir).join(format!("range-commit-pause-{}", std::process::id()));
    let store = HashKv::create(&path, &HashKvOptions::default()).expect("a store");
    let value = vec![7; bytes as usize];
    (0..pairs).for_each(|index| store.put(&key(index), &value).expect("put"));
    store.settle().expect("settle");
    measure(&store, pairs, &value);
    store.close().expect("close");
    std::fs::remove_dir_all(&path).expect("removed");
}
