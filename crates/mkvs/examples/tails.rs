//! Read latency tails with devices that stall. MKVS (Micromachines 2019) argues only with unstable
//! devices, and shows no tail.
//!
//! `cargo run --release -p lodestore-mkvs --example tails [SECONDS] [DEVICES] [US]`: one group of
//! DEVICES (3) devices, each with its own thread. A read sleeps US (100) microseconds on a device,
//! 1 in 100 reads 20 times as long. Each device pauses for 2 ms every 200 ms. The rows `steady`
//! have neither slow reads nor pauses, and show the machine's own noise. Requests arrive as a
//! Poisson process, whether earlier ones are done or not. The load is 20, 40 and 60 percent of the
//! devices' capacity with each request executed once. A latency starts when its request was due.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::Matrix;
use common::faulty::{Fault, Touch};
use lodestore_contract::Store;
use lodestore_contract::conformance::{Harness, Rng};
use lodestore_mkvs::{Filtering, Inline, Mkvs, Reads};

const SLOW_READ_FACTOR: u32 = 20;
const PAUSE: Duration = Duration::from_millis(2);
const PERIOD: Duration = Duration::from_millis(200);
const KEYS: usize = 1000;
const CLIENT_THREADS: usize = 96;

fn key(i: usize) -> Vec<u8> {
    format!("key{i:04}").into_bytes()
}

/// The setup: the number of devices, the duration of a read, and whether the devices stall.
#[derive(Clone, Copy)]
struct Setup {
    devices: usize,
    base: Duration,
    stalls: bool,
}

/// The behaviour of a device. If it stalls, a share of operations is slow, and it pauses now and
/// then.
fn unstable(index: usize, setup: Setup, begun: Instant, work: Arc<AtomicU64>) -> impl Fn(Touch, &[u8]) -> Fault {
    let rng = Mutex::new(Rng::new(index as u64 + 1));
    move |touch, _| {
        if touch == Touch::Write {
            return Fault::None;
        }
        work.fetch_add(1, Ordering::Relaxed);
        if !setup.stalls {
            return Fault::Slow(setup.base);
        }
        // Each device pauses at different times.
        let phase = (begun.elapsed() + PERIOD * index as u32 / 3).as_micros() % PERIOD.as_micros();
        let pause = PAUSE.saturating_sub(Duration::from_micros(phase as u64));
        let slow = rng.lock().expect("the generator").below(100) == 0;
        Fault::Slow(pause + if slow { setup.base * SLOW_READ_FACTOR } else { setup.base })
    }
}

fn make(reads: Reads, setup: Setup) -> (Matrix, Mkvs, Arc<AtomicU64>) {
    let (matrix, switches) = common::switched::switched("tails", setup.devices);
    let matrix = matrix.with(|options| {
        options.inline = Inline::Off;
        options.filter = Filtering::Off;
        options.reads = reads;
    });
    let store = matrix.create(64 << 20).expect("create");
    for i in 0..KEYS {
        store.put(&key(i), b"value").expect("put");
    }
    let (begun, work) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    for (index, switch) in switches.stores.iter().enumerate() {
        switch.set(unstable(index, setup, begun, Arc::clone(&work)));
    }
    (matrix, store, work)
}

/// Returns the latencies of requests at `rate` per second, in microseconds, ascending.
fn run(store: &Mkvs, rate: f64, seconds: f64) -> Vec<u64> {
    let mut rng = Rng::new(7);
    let mut due = Vec::new();
    let mut at = 0.0;
    while at < seconds {
        at -= (1.0 - rng.below(1 << 30) as f64 / (1_u64 << 30) as f64).ln() / rate;
        due.push(Duration::from_secs_f64(at));
    }
    let (next, begun) = (AtomicUsize::new(0), Instant::now());
    let taken: Mutex<Vec<u64>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..CLIENT_THREADS {
            scope.spawn(|| {
                let mut own = Vec::new();
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    let Some(due) = due.get(turn) else { break };
                    std::thread::sleep(due.saturating_sub(begun.elapsed()));
                    assert!(store.get(&key(turn * 7919 % KEYS)).expect("get").is_some());
                    own.push((begun.elapsed() - *due).as_micros() as u64);
                }
                taken.lock().expect("latencies").extend(own);
            });
        }
    });
    let mut taken = taken.into_inner().expect("latencies");
    taken.sort_unstable();
    taken
}

/// Runs a setup, and prints its row.
fn row(load: f64, name: &str, reads: Reads, setup: Setup, rate: f64, seconds: f64) {
    let (_place, store, work) = make(reads, setup);
    run(&store, rate, 0.5);
    let before = work.load(Ordering::Relaxed);
    let taken = run(&store, rate, seconds);
    std::thread::sleep(Duration::from_millis(100));
    let work = (work.load(Ordering::Relaxed) - before) as f64 / taken.len() as f64;
    let at = |share: f64| taken[((taken.len() - 1) as f64 * share) as usize];
    let mean = taken.iter().sum::<u64>() / taken.len() as u64;
    let (p50, p99, p999) = (at(0.5), at(0.99), at(0.999));
    println!("| {load} | {name} | {rate:.0} | {mean} | {p50} | {p99} | {p999} | {work:.3} |");
}

fn main() {
    let number = |at: usize| std::env::args().nth(at).and_then(|text| text.parse::<f64>().ok());
    let (seconds, devices) = (number(1).unwrap_or(5.0), number(2).map_or(3, |devices| devices as usize));
    let setup = Setup { devices, base: Duration::from_micros(number(3).unwrap_or(100.0) as u64), stalls: true };
    // The mean time of a read on one device of this machine, including the lateness of its sleep.
    let (_place, store, _) = make(Reads::Single, Setup { devices: 1, ..setup });
    let begun = Instant::now();
    (0..2000).for_each(|i| drop(store.get(&key(i % KEYS)).expect("get")));
    let service = begun.elapsed() / 2000;
    drop(store);
    println!("a read takes a device {} us, mean", service.as_micros());
    println!("| load | reads | requests/s | mean us | p50 | p99 | p99.9 | device work a request |");
    println!("|---|---|---|---|---|---|---|---|");
    for load in [0.2, 0.4, 0.6] {
        let rate = load * devices as f64 / service.as_secs_f64();
        row(load, "steady, single", Reads::Single, Setup { stalls: false, ..setup }, rate, seconds);
        row(load, "single", Reads::Single, setup, rate, seconds);
        row(load, "race-all", Reads::RaceAll, setup, rate, seconds);
        row(load, "hedged", Reads::Hedged, setup, rate, seconds);
    }
}
