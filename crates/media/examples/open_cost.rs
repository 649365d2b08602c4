//! Measures the pool's part of an open: opens a store and leaves it as after a kill, several times.
//!
//! `cargo run --release -p lodestore-media --example open_cost -- STORE [TIMES]`; STORE is a closed
//! store of any engine. Its next open recovers as after a kill.
#![expect(clippy::print_stdout, reason = "an example that prints times")]

use std::path::PathBuf;
use std::time::Instant;

use lodestore_media::{Pool, PoolOptions};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().expect("the directory of a store"));
    let times = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(7);
    let found = Pool::inspect(&dir).expect("a store");
    println!("{} region(s) of {} bytes, chunks of {}", found.regions, found.region_bytes, found.chunk_bytes);
    for _ in 0..times {
        let start = Instant::now();
        let opts = PoolOptions::default();
        let (pool, report) = Pool::open(&dir, &found.engine, found.engine_format, opts).expect("opens");
        let took = start.elapsed();
        let dram = pool.allocator().dram_bytes();
        let start = Instant::now();
        // Not a clean stop: the next open finds the store as after a kill.
        pool.close(false).expect("closes");
        drop(pool);
        println!(
            "opened in {:.2} ms (clean before: {}), {dram} bytes of DRAM, closed in {:.2} ms",
            took.as_secs_f64() * 1e3,
            report.clean,
            start.elapsed().as_secs_f64() * 1e3
        );
    }
}
