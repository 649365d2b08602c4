//! Resolvers and a random generator for the tests.

use std::sync::{Arc, Mutex};

use lodestore_index::KeyResolver;

/// Records in memory. A payload is an index into the list. Counts the key reads.
#[derive(Default)]
pub struct Records {
    keys: Mutex<Vec<Arc<[u8]>>>,
    reads: std::sync::atomic::AtomicUsize,
}

impl Records {
    /// Adds a record and returns its payload.
    pub fn add(&self, key: &[u8]) -> u64 {
        let mut keys = self.keys.lock().unwrap();
        keys.push(Arc::from(key));
        keys.len() as u64 - 1
    }

    /// Returns the key of a record.
    pub fn key(&self, payload: u64) -> Arc<[u8]> {
        self.keys.lock().unwrap()[payload as usize].clone()
    }

    /// Replaces the key of a record.
    pub fn change(&self, payload: u64, key: &[u8]) {
        self.keys.lock().unwrap()[payload as usize] = Arc::from(key);
    }

    /// Returns how many keys were read through the resolver.
    pub fn reads(&self) -> usize {
        self.reads.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl KeyResolver for Records {
    fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T {
        self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        f(&self.key(payload))
    }
    fn prefetch(&self, _payload: u64) {}
}

/// Payloads that are their own keys: 16 hexadecimal digits.
pub struct Hex;

/// Returns the key of a number.
pub fn hex(n: u64) -> [u8; 16] {
    std::array::from_fn(|i| b"0123456789abcdef"[(n >> (60 - 4 * i)) as usize & 15])
}

impl KeyResolver for Hex {
    fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T {
        f(&hex(payload))
    }
    fn prefetch(&self, _payload: u64) {}
}

/// A small generator (splitmix64), so that a printed seed reproduces a run.
pub struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Creates a generator with the seed from LODESTORE_SEED, or from the clock, and prints the
    /// seed.
    pub fn seeded() -> Self {
        let clock =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
        let seed = std::env::var("LODESTORE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(clock);
        println!("LODESTORE_SEED={seed}");
        Self(seed)
    }
}

/// Spreads a number over 64 bits, one to one.
pub fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
