//! Measures the longest pauses of puts while tables grow, compared with the machine's own pauses.
//!
//! `cargo run --release -p lodestore-nvht --example pauses -- DIR [RECORDS]` creates a store in
//! DIR/pauses, and removes it. The store has RECORDS records (10000000) of 16 + 64 bytes. Every put
//! is timed. The longest step of growth comes from the store's own statistics. The longest gap of
//! an empty loop of the same duration shows the share of the machine.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lodestore_contract::{Durability, Store};
use lodestore_media::PoolOptions;
use lodestore_nvht::{Nvht, NvhtOptions};

/// The longest pause, and the number of pauses over a millisecond.
#[derive(Default)]
struct Pauses {
    longest: Duration,
    over_1_ms: u32,
}

impl Pauses {
    fn note(&mut self, took: Duration) {
        self.longest = self.longest.max(took);
        self.over_1_ms += u32::from(took > Duration::from_millis(1));
    }
}

fn empty_loop(length: Duration) -> Pauses {
    let (mut pauses, start) = (Pauses::default(), Instant::now());
    let mut last = start;
    while last - start < length {
        let now = Instant::now();
        pauses.note(now - last);
        last = now;
    }
    pauses
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("usage: pauses DIR [RECORDS]")?).join("pauses");
    let records: u64 = args.next().map_or(Ok(10_000_000), |text| text.parse())?;
    // A single region, allocated before: the speed of allocating memory is not measured.
    let bytes = (records * 160).next_multiple_of(1 << 30).max(1 << 30);
    let pool = PoolOptions {
        capacity: bytes,
        region_bytes: bytes,
        durability: Durability::Power,
        emulate_dax: true,
        ..PoolOptions::default()
    };
    let store = Nvht::create(&dir, &NvhtOptions { pool, ..NvhtOptions::default() })?;
    let (mut pauses, start) = (Pauses::default(), Instant::now());
    for index in 0..records {
        let key = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let begun = Instant::now();
        store.put(format!("{key:016x}").as_bytes(), &[index as u8; 64])?;
        pauses.note(begun.elapsed());
    }
    let took = start.elapsed();
    let counters = store.stats().engine_counters;
    drop(store);
    std::fs::remove_dir_all(&dir)?;
    let idle = empty_loop(took);
    println!("{records} puts in {:.1} s, two persists each", took.as_secs_f64());
    println!(
        "steps of growing: {}, {:.1} us each, {} over 1 ms, the longest {:.3} ms; tables doubled: {}",
        counters["growth_steps"],
        counters["growth_steps_ns"] as f64 / 1e3 / counters["growth_steps"].max(1) as f64,
        counters["growth_long_steps"],
        counters["growth_longest_step_ns"] as f64 / 1e6,
        counters["tables_grown"]
    );
    println!("puts: the longest {:.3} ms, {} over 1 ms", pauses.longest.as_secs_f64() * 1e3, pauses.over_1_ms);
    println!(
        "an empty loop as long: the longest gap {:.3} ms, {} over 1 ms",
        idle.longest.as_secs_f64() * 1e3,
        idle.over_1_ms
    );
    Ok(())
}
