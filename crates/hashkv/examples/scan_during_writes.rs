//! Measures scans while a writer runs: `scan_each`, the owned `scan`, and the `scan` of a snapshot.
//!
//! `cargo run -p lodestore-hashkv --example scan_during_writes DIRECTORY [PAIRS]` creates two
//! stores below DIRECTORY and removes them. Each round runs every scan once, first without and then
//! with a writer. The writer overwrites random keys and adds keys after the last one, without a
//! pause. A row shows medians: a scan's wall time, its CPU time, and the ratio of its CPU time to
//! that of `scan_each` in the same round. Other processes hardly change the ratio.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lodestore_contract::{ScanRange, Store, Visit};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_hashkv::{HashKv, HashKvOptions};
use lodestore_media::PoolOptions;

const ROUND_COUNT: usize = 11;
const SCANS: [&str; 3] = ["scan_each", "scan", "snapshot.scan"];
const VALUE: [u8; 64] = [7; 64];

fn key(index: u64) -> Vec<u8> {
    format!("key{index:012}").into_bytes()
}

/// Nanoseconds that this thread has run, as the scheduler counts them.
fn cpu_time() -> Duration {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with schedstat");
    Duration::from_nanos(counts.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds"))
}

/// The time of one scan.
#[derive(Clone, Copy)]
struct Times {
    wall: Duration,
    cpu: Duration,
}

/// Runs one kind of scan and returns its times.
fn time_scan(store: &dyn Store, kind: usize, pairs: u64) -> Times {
    let range = ScanRange::all().limit(pairs as usize);
    let (begun, cpu_begun) = (Instant::now(), cpu_time());
    let found = match kind {
        0 => store.scan_each(&range, &mut |_, _| Visit::More).expect("a scan"),
        1 => store.scan(&range).expect("a scan").fold(0, |count, entry| entry.map(|_| count + 1).expect("readable")),
        _ => {
            let snapshot = store.snapshot().expect("a snapshot");
            snapshot.scan(&range).expect("a scan").fold(0, |count, entry| entry.map(|_| count + 1).expect("readable"))
        }
    };
    assert_eq!(found as u64, pairs, "the scan shows as many pairs as were loaded");
    Times { wall: begun.elapsed(), cpu: cpu_time() - cpu_begun }
}

/// Writes until `ends` is set. Returns the number of puts.
fn write(store: &dyn Store, pairs: u64, ends: &AtomicBool, next: &AtomicU64) -> u64 {
    let mut puts = 0;
    while !ends.load(Ordering::Relaxed) {
        let added = next.fetch_add(1, Ordering::Relaxed);
        store.put(&key(pairs + added), &VALUE).expect("put");
        let overwritten = added.wrapping_mul(0x9E37_79B9_7F4A_7C15) % pairs;
        store.put(&key(overwritten), &VALUE).expect("put");
        puts += 2;
    }
    puts
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(engine: &str, store: &dyn Store, pairs: u64) {
    (0..pairs).for_each(|index| store.put(&key(index), &VALUE).expect("put"));
    store.settle().expect("settle");
    let next = AtomicU64::new(0);
    for writes in [false, true] {
        let mut rounds: Vec<[Times; SCANS.len()]> = Vec::new();
        let ends = AtomicBool::new(!writes);
        let puts = std::thread::scope(|scope| {
            let writer = scope.spawn(|| write(store, pairs, &ends, &next));
            rounds.extend((0..ROUND_COUNT).map(|_| std::array::from_fn(|kind| time_scan(store, kind, pairs))));
            ends.store(true, Ordering::Relaxed);
            writer.join().expect("a writer")
        });
        for (kind, scan) in SCANS.iter().enumerate() {
            let wall = median(rounds.iter().map(|round| round[kind].wall.as_secs_f64() * 1e3));
            let cpu = median(rounds.iter().map(|round| round[kind].cpu.as_secs_f64() * 1e3));
            let ratio = median(rounds.iter().map(|round| round[kind].cpu.as_secs_f64() / round[0].cpu.as_secs_f64()));
            println!("{engine:8} {puts:9} puts  {scan:14} wall {wall:8.1} ms  cpu {cpu:8.1} ms  {ratio:.2} x");
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let directory = args.next().expect("DIRECTORY [PAIRS]");
    let pairs = args.next().map_or(400_000, |pairs| pairs.parse().expect("a number of pairs"));
    let path = Path::new(&directory).join(format!("scan-during-writes-{}", std::process::id()));
    std::fs::create_dir(&path).expect("a directory of its own");
    let pool = PoolOptions { capacity: 4 << 30, ..PoolOptions::default() };
    let fluid = FluidOptions { pool: pool.clone(), ..FluidOptions::default() };
    measure("fluidkv", &FluidKv::create(&path.join("fluidkv"), &fluid).expect("a store"), pairs);
    let hash = HashKvOptions { index: FluidOptions { pool, ..FluidOptions::default() }, ..HashKvOptions::default() };
    measure("hashkv", &HashKv::create(&path.join("hashkv"), &hash).expect("a store"), pairs);
    std::fs::remove_dir_all(&path).expect("removed");
}
