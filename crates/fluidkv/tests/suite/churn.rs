//! Small stores with random options, full or nearly full, written by several threads, closed or
//! dropped in between and opened again. No acknowledged write is lost, and the store can always be
//! opened. The store can always be emptied, except where values are separated: there a table may
//! need a longer extent than any free one.
//!
//! The seed of a failure is printed. `LODESTORE_SEED` sets the first seed, and `LODESTORE_TIMES`
//! the number of stores.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lodestore_contract::conformance::Rng;
use lodestore_contract::{Batch, BatchOp, Durability, Error, ScanRange, Store, Visit};
use lodestore_fluidkv::{Compression, FluidKv, FluidOptions};
use lodestore_inplace::testing::Scratch;
use lodestore_media::{PoolOptions, Prefault};

/// Default number of stores of a run.
const STORES: u64 = 12;
/// Number of opens of each store.
const OPENS: u64 = 3;
/// Operations of a thread between two checks of its keys.
const LOOK: u64 = 50;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn options(rng: &mut Rng, on_file: bool) -> FluidOptions {
    let interval = Durability::Interval(Duration::from_millis(20));
    let durability =
        if on_file { *rng.pick(&[Durability::Process, Durability::Power, interval]) } else { Durability::Process };
    let (capacity, chunk_bytes) = (*rng.pick(&[4, 8, 16]) << 20, *rng.pick(&[256, 1024, 4096, 16384]));
    let pool = PoolOptions {
        capacity,
        region_bytes: *rng.pick(&[1, 4, 16]) << 20,
        // Each range needs chunks of its own: with fewer than a thousand, deletes may not fit.
        chunk_bytes: chunk_bytes.min((capacity / 1024) as u32),
        durability,
        prefault: Prefault::None,
        ..PoolOptions::default()
    };
    FluidOptions {
        pool,
        dram_budget: *rng.pick(&[1, 2, 8, 256]) << 20,
        memtable_bytes: *rng.pick(&[64 << 10, 256 << 10, 64 << 20]),
        segment_bytes: *rng.pick(&[16 << 10, 64 << 10, 256 << 10]),
        table_bytes: *rng.pick(&[16 << 10, 64 << 10, 256 << 10]),
        range_bytes: *rng.pick(&[64 << 10, 256 << 10, 16 << 20]),
        runs_max: *rng.pick(&[1, 2, 8]),
        value_threshold: *rng.pick(&[0, 32, 600, 4096]),
        value_segment_bytes: *rng.pick(&[16 << 10, 64 << 10, 4 << 20]),
        value_garbage: *rng.pick(&[1, 30, 99]),
        compression: *rng.pick(&[Compression::None, Compression::Lz4]),
        workers: *rng.pick(&[0, 1, 2, 4]),
        ..FluidOptions::default()
    }
}

type Known = HashMap<u64, Option<Vec<u8>>>;

/// A thread that writes its own keys, and their expected values.
struct Writer {
    thread: u64,
    keys: u64,
    rng: Rng,
    known: Known,
    written: u64,
}

impl Writer {
    fn key(&self, key: u64) -> Vec<u8> {
        format!("{key:04}-{}", self.thread).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        self.written += 1;
        let len = match self.rng.below(12) {
            0 => 3000 + self.rng.below(9000),
            1..4 => 600 + self.rng.below(300),
            _ => self.rng.below(100),
        };
        let mut value = format!("{}-", self.written).into_bytes();
        value.resize(value.len() + len, b'q');
        value
    }

    /// Does one operation. Returns whether the store is still open. A refused operation has no
    /// effect.
    fn step(&mut self, store: &FluidKv) -> bool {
        let key = self.rng.below(self.keys as usize) as u64;
        let (keys, new) = match self.rng.below(8) {
            0..5 => (vec![key], Some(self.value())),
            5 | 6 => (vec![key], None),
            _ => ((0..=self.rng.below(6)).map(|more| (key + more as u64) % self.keys).collect(), Some(self.value())),
        };
        let outcome = match (&new, keys.len()) {
            (None, _) => store.delete(&self.key(key)).map(|_| ()),
            (Some(value), 1) => store.put(&self.key(key), value),
            (Some(value), _) => {
                let put = |key: &u64| BatchOp::Put { key: self.key(*key), value: value.clone(), expiry: None };
                store.write(&Batch { ops: keys.iter().map(put).collect() })
            }
        };
        match outcome {
            Ok(()) => self.known.extend(keys.into_iter().map(|key| (key, new.clone()))),
            Err(Error::Full { .. } | Error::DramBudget { .. }) => {}
            Err(Error::Closed) => return false,
            Err(error) => panic!("{error}"),
        }
        true
    }

    fn check(&self, store: &FluidKv) {
        for (key, value) in &self.known {
            let found = store.get(&self.key(*key)).expect("get");
            assert_eq!(found.as_ref().map(Vec::len), value.as_ref().map(Vec::len), "{key} of {}", self.thread);
            assert!(found == *value, "{key} of {}", self.thread);
        }
    }

    fn work(&mut self, store: &FluidKv, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..LOOK {
                if !self.step(store) {
                    return;
                }
            }
            let key = self.rng.below(self.keys as usize) as u64;
            match store.get(&self.key(key)) {
                Ok(found) => assert!(found == *self.known.entry(key).or_default(), "{key} of {}", self.thread),
                Err(Error::Closed) => return,
                Err(error) => panic!("{error}"),
            }
            let range = ScanRange { limit: 100, ..ScanRange::all() };
            match store.scan_each(&range, &mut |_, _| Visit::More) {
                Ok(_) => {}
                Err(Error::Closed) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Deletes everything; a delete may first need a settle.
fn empty(store: &FluidKv) {
    let mut all = Vec::new();
    store
        .for_each(&mut |key, _| {
            all.push(key.to_vec());
            Visit::More
        })
        .expect("a walk");
    for key in all {
        store.delete(&key).unwrap_or_else(|error| panic!("a delete: {error}"));
    }
    store.settle().expect("settled");
    assert_eq!(store.len().expect("a count"), 0);
    store.put(b"again", b"there is room").expect("a put");
}

fn churn(seed: u64) {
    let mut rng = Rng::new(seed);
    let on_file = rng.below(3) == 0;
    let scratch = if on_file { Scratch::within(&std::env::temp_dir()) } else { Scratch::new() };
    let options = options(&mut rng, on_file);
    let mut store = match FluidKv::create(&scratch.store(), &options) {
        Ok(store) => store,
        // Some options are invalid together.
        Err(Error::InvalidOption { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let keys = *rng.pick(&[50, 400, 3000]);
    let writer =
        |thread| Writer { thread, keys, rng: Rng::new(seed ^ (thread + 1) << 32), known: Known::new(), written: 0 };
    let mut writers: Vec<Writer> = (0..=rng.below(6) as u64).map(writer).collect();
    for _ in 0..OPENS {
        let (closes, millis) = (rng.below(2) == 0, 50 + rng.below(300) as u64);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (store, stop) = (&store, &stop);
            writers.iter_mut().for_each(|writer| drop(scope.spawn(move || writer.work(store, stop))));
            std::thread::sleep(Duration::from_millis(millis));
            if closes {
                store.close().expect("a close");
            }
            stop.store(true, Ordering::Relaxed);
        });
        drop(store);
        store = FluidKv::open(&scratch.store(), &options).unwrap_or_else(|error| panic!("an open: {error}"));
        writers.iter().for_each(|writer| writer.check(&store));
        let live = writers.iter().flat_map(|writer| writer.known.values()).flatten().count();
        assert_eq!(store.len().expect("a count"), live as u64);
        let report = store.verify(&mut |_| ()).expect("verify");
        assert!(report.is_clean(), "{report:?}");
    }
    if options.value_threshold > 0 {
        empty(&store);
    }
    store.close().expect("closed");
}

#[test]
fn small_stores_written_by_threads_lose_nothing_open_again_and_can_be_emptied() {
    let first = number("LODESTORE_SEED");
    // With a seed, the default is one store.
    let times = number("LODESTORE_TIMES").unwrap_or(if first.is_some() { 1 } else { STORES });
    let first = first.unwrap_or(1);
    for seed in first..first + times {
        println!("LODESTORE_SEED={seed}");
        churn(seed);
    }
}
