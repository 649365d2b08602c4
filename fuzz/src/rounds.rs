//! Runs a target without libFuzzer: bytes of a seeded generator, and mutations of earlier inputs.
//!
//! `LODESTORE_FUZZ_SECONDS` is the time of each target. Without it, a target runs a fixed number of
//! inputs. `LODESTORE_FUZZ_SEED` chooses other bytes. A failure prints its input.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Earlier inputs that mutations begin with.
const POOL_MAX: usize = 256;

/// Longest input in bytes.
const INPUT_BYTES_MAX: usize = 2048;

/// A generator of numbers: SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        // The remainder is below `bound`.
        (self.next() % bound.max(1) as u64) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Returns an input: new bytes, or a mutation of an earlier input.
fn input(numbers: &mut Numbers, pool: &[Vec<u8>]) -> Vec<u8> {
    let length = 1 << numbers.below(11);
    if pool.is_empty() || numbers.below(2) == 0 {
        let count = 1 + numbers.below(length);
        return numbers.bytes(count);
    }
    let mut data = pool[numbers.below(pool.len())].clone();
    for _ in 0..=numbers.below(6) {
        let at = numbers.below(data.len());
        match numbers.below(5) {
            0 => data[at] = numbers.next() as u8,
            1 => data[at] ^= 1 << numbers.below(8),
            2 => drop(data.drain(at..data.len().min(at + numbers.below(32)))),
            3 => {
                let count = numbers.below(32);
                let inserted = numbers.bytes(count);
                data.splice(at..at, inserted);
            }
            _ => {
                let other = &pool[numbers.below(pool.len())];
                let from = numbers.below(other.len());
                let piece = other[from..other.len().min(from + numbers.below(256))].to_vec();
                data.splice(at..at, piece);
            }
        }
        if data.is_empty() {
            data.push(0);
        }
    }
    data.truncate(INPUT_BYTES_MAX);
    data
}

/// Runs a target on `count` inputs, or for the time that the environment names.
pub fn run(name: &str, count: u64, mut target: impl FnMut(&[u8])) {
    let seconds = variable("LODESTORE_FUZZ_SECONDS").map(Duration::from_secs);
    let mut numbers = Numbers(variable("LODESTORE_FUZZ_SEED").unwrap_or(1));
    let mut pool: Vec<Vec<u8>> = Vec::new();
    let (begun, mut runs) = (Instant::now(), 0_u64);
    while seconds.map_or(runs < count, |seconds| begun.elapsed() < seconds) {
        let data = input(&mut numbers, &pool);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(&data))) {
            println!("target {name}, run {runs}, bytes {data:?}");
            resume_unwind(panic);
        }
        if pool.len() < POOL_MAX {
            pool.push(data);
        } else if numbers.below(8) == 0 {
            let place = numbers.below(POOL_MAX);
            pool[place] = data;
        }
        runs += 1;
    }
    println!("target {name}: {runs} inputs in {} s", begun.elapsed().as_secs());
}
