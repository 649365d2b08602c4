//! Measures a get with and without checksums.
//!
//! `cargo run --release -p lodestore-fluidkv --example get_cost DIRECTORY [KEYS] [ROUNDS]
//! [SETTING...]` creates a store below DIRECTORY for values of 100 and of 1,000 bytes and removes
//! it. A setting is a value of `verify-reads`. Each round opens the store with each setting and
//! reads random keys. A row shows the median over the rounds, and the least, in nanoseconds of CPU
//! time: a get of a key in stable tables, of a key that a run hides, of an absent key, and of a key
//! in a memtable.

use std::path::Path;
use std::time::Duration;

use lodestore_contract::{Options, Store};
use lodestore_fluidkv::{FluidKv, FluidOptions};
use lodestore_media::PoolOptions;

const PHASES: [&str; 4] = ["stable", "runs", "absent", "memtable"];
/// Gets of one measurement.
const GET_COUNT: u64 = 300_000;

fn key(index: u64) -> Vec<u8> {
    format!("{:016x}", index.wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes()
}

/// Nanoseconds that this thread has run, as the scheduler counts them.
fn cpu_time() -> Duration {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with schedstat");
    Duration::from_nanos(counts.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds"))
}

fn options(setting: &str) -> FluidOptions {
    let pool = PoolOptions { capacity: 4 << 30, ..PoolOptions::default() };
    let mut named = Options::new();
    named.set("verify-reads", setting);
    FluidOptions::from_options(pool, &named).expect("options")
}

/// Nanoseconds of a get of random keys below `keys`, from key `first` on.
fn measure(store: &dyn Store, seed: u64, first: u64, keys: u64) -> f64 {
    let (mut state, mut value, mut found) = (seed | 1, Vec::new(), 0);
    let begin = cpu_time();
    for _ in 0..GET_COUNT {
        state = state.wrapping_mul(0xD129_42BA_56E7_7A85).wrapping_add(1);
        found += u64::from(store.get_into(&key(first + (state >> 33) % keys), &mut value).expect("get"));
    }
    let spent = cpu_time() - begin;
    assert!(found == 0 || found == GET_COUNT, "{found} of {GET_COUNT}");
    spent.as_nanos() as f64 / GET_COUNT as f64
}

fn round(at: &Path, setting: &str, keys: u64, value: &[u8], seed: u64, phases: &[usize]) -> Vec<f64> {
    let store = FluidKv::open(at, &options(setting)).expect("opened");
    let warm = |first: u64, keys: u64| {
        let mut value = Vec::new();
        (first..first + keys).for_each(|index| drop(store.get_into(&key(index), &mut value)));
    };
    let row = phases.iter().map(|phase| match phase {
        2 => {
            warm(1 << 40, keys / 8);
            measure(&store, seed, 1 << 40, keys)
        }
        3 => {
            (0..20_000).for_each(|index| store.put(&key(index), value).expect("put"));
            measure(&store, seed, 0, 20_000)
        }
        _ => {
            warm(0, keys);
            measure(&store, seed, 0, keys)
        }
    });
    row.collect()
}

fn main() {
    let mut words = std::env::args().skip(1);
    let directory = words.next().expect("a directory");
    let keys: u64 = words.next().map_or(1_000_000, |word| word.parse().expect("keys"));
    let rounds: u64 = words.next().map_or(7, |word| word.parse().expect("rounds"));
    let settings: Vec<String> = words.collect();
    for value_len in [100, 1000] {
        let at = Path::new(&directory).join(format!("get-cost-{value_len}"));
        let value = vec![7; value_len];
        let mut rows = vec![vec![Vec::new(); PHASES.len()]; settings.len()];
        {
            let store = FluidKv::create(&at, &options(&settings[0])).expect("created");
            (0..keys).for_each(|index| store.put(&key(index), &value).expect("put"));
            store.settle().expect("settled");
            store.close().expect("closed");
        }
        for seed in 0..rounds {
            for at_turn in 0..settings.len() {
                let turn = (at_turn + seed as usize) % settings.len();
                let times = round(&at, &settings[turn], keys, &value, seed, &[0, 2, 3]);
                [0, 2, 3].iter().zip(times).for_each(|(phase, time)| rows[turn][*phase].push(time));
            }
        }
        {
            // A fifth of all keys once more: it stays in runs, which each get asks before the
            // stable tables.
            let store = FluidKv::open(&at, &options(&settings[0])).expect("opened");
            (0..keys).filter(|index| index % 5 == 0).for_each(|index| store.put(&key(index), &value).expect("put"));
            store.close().expect("closed");
        }
        for seed in 0..rounds {
            for at_turn in 0..settings.len() {
                let turn = (at_turn + seed as usize) % settings.len();
                rows[turn][1].extend(round(&at, &settings[turn], keys, &value, seed, &[1]));
            }
        }
        for (setting, row) in settings.iter().zip(&mut rows) {
            print!("{value_len} bytes, {setting}:");
            for (phase, times) in PHASES.iter().zip(row) {
                times.sort_by(f64::total_cmp);
                print!(" {phase} {:.0} ({:.0})", times[times.len() / 2], times[0]);
            }
            println!();
        }
        std::fs::remove_dir_all(&at).expect("removed");
    }
}
