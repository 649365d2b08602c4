//! Measures a durable record: non-temporal stores compared with stores and write-backs, at random
//! offsets.
//!
//! `cargo run --release -p lodestore-media --example record_cost -- DIR [BYTES [STEP]]`; DIR is on
//! the medium to be measured, STEP is the alignment of the records (16).
#![expect(clippy::print_stdout, reason = "an example that prints a table")]

use std::path::PathBuf;

use lodestore_media::{NvPtr, Pool, PoolOptions};

const OPS: usize = 200_000;
const ROUND_COUNT: usize = 9;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().unwrap_or_else(|| "/dev/shm".into())).join("lodestore-record-cost");
    let bytes = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1 << 30);
    let step = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(16);
    let opts = PoolOptions { capacity: bytes, region_bytes: bytes, emulate_dax: true, ..PoolOptions::default() };
    let (pool, _) = Pool::create(&dir, "example", 1, opts).expect("a new store");
    println!(
        "{} in {bytes} bytes, flushed by {}; ns a record, median (least)",
        pool.medium_name(),
        lodestore_media::flush_instruction()
    );
    println!("{:>6} {:>22} {:>22}", "bytes", "store_and_flush+fence", "store+flush+fence");
    let source = vec![7u8; 4096];
    for len in [64, 128, 256, 280, 296, 304, 320, 512, 1024, 4096] {
        let durable_record = |pool: &Pool, at: NvPtr| {
            pool.store_and_flush(at, &[&source[..24], &source[24..len]]);
            pool.fence();
        };
        let plain_record = |pool: &Pool, at: NvPtr| {
            pool.store(at, &source[..24]);
            pool.store(at.add(24), &source[24..len]);
            pool.flush(at, len);
            pool.fence();
        };
        // Interleaved, so that a busy machine disturbs both alike.
        let (mut durable, mut flushed) = (Vec::new(), Vec::new());
        for round in 0..ROUND_COUNT {
            durable.push(cost(&pool, step, round, durable_record));
            flushed.push(cost(&pool, step, round + ROUND_COUNT, plain_record));
        }
        println!("{len:>6} {:>22} {:>22}", spread(durable), spread(flushed));
    }
    drop(pool);
    std::fs::remove_dir_all(&dir).expect("removed");
}

fn cost(pool: &Pool, step: u64, seed: usize, write: impl Fn(&Pool, NvPtr)) -> u64 {
    let layout = pool.layout(0).expect("region 0");
    let (base, room) = (layout.chunks_offset, (layout.usable_bytes() - 8192) / step);
    let mut state = seed as u64;
    let start = cpu_ns();
    for _ in 0..OPS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        write(pool, NvPtr::new(0, base + (state >> 20) % room * step));
    }
    (cpu_ns() - start) / OPS as u64
}

/// Returns the nanoseconds that this thread ran, without the time of other threads on a busy
/// machine.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells the time that a thread ran");
    text.split_whitespace().next().and_then(|first| first.parse().ok()).expect("a number")
}

/// Returns median and minimum.
fn spread(mut values: Vec<u64>) -> String {
    values.sort_unstable();
    format!("{} ({})", values[values.len() / 2], values[0])
}
