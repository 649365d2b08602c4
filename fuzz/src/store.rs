//! Whole stores of any engine: created, damaged, opened, and read in every way.

use std::marker::PhantomData;
use std::sync::{Arc, LazyLock};

use lodestore_contract::{Batch, BatchOp, Error, Expiry, Lifetime, Result, ScanRange, Store, Visit};
use lodestore_media::sim::SimImage;
use lodestore_media::{OpenReport, Pool, PoolOptions, Prefault};

use super::damage::Base;
use super::media::{CHUNK, image, regions, spec};

/// Keys of the store to be damaged.
const KEYS: u32 = 120;
/// Keys that a batch overwrites, so that there is a batch log.
const BATCHED: u32 = 9;

/// The interface that the targets need in addition to the contract.
pub trait Engine: Store + Sized {
    /// Its name.
    const NAME: &'static str;
    /// Version of its format.
    const FORMAT: u32;

    /// Returns a store without threads, on a pool that was just created or opened.
    fn start(pool: Arc<Pool>, report: &OpenReport) -> Result<Self>;

    /// Removes expired pairs.
    fn sweep(&self) -> Result<u64>;
}

/// The targets of an engine.
pub struct Targets<E> {
    clean: LazyLock<Base>,
    killed: LazyLock<Base>,
    engine: PhantomData<fn() -> E>,
}

impl<E: Engine> Targets<E> {
    /// Returns the targets. Their stores are created on first use.
    pub const fn lazy() -> Self {
        Self {
            clean: LazyLock::new(|| make::<E>(true)),
            killed: LazyLock::new(|| make::<E>(false)),
            engine: PhantomData,
        }
    }

    /// Damages a store that was stopped cleanly.
    pub fn clean(&self, data: &[u8]) {
        live::<E>(self.clean.damaged(data));
    }

    /// Damages a store whose process was killed.
    pub fn killed(&self, data: &[u8]) {
        live::<E>(self.killed.damaged(data));
    }

    /// Returns the number of checksum kinds in the stores to be damaged.
    pub fn kinds(&self) -> usize {
        self.clean.kinds()
    }
}

/// Returns the options of the pools here.
pub fn pool_options() -> PoolOptions {
    PoolOptions {
        capacity: 1 << 20,
        region_bytes: 256 << 10,
        chunk_bytes: CHUNK,
        huge_pages: false,
        prefault: Prefault::None,
        ..PoolOptions::default()
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:04}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; number as usize % 7 * 100]
}

fn batch(numbers: impl Iterator<Item = u32>) -> Batch {
    let put = |number| BatchOp::Put { key: key(number), value: value(number), expiry: None };
    Batch { ops: numbers.map(put).collect() }
}

/// Creates a store that was stopped cleanly, or killed.
fn make<E: Engine>(clean: bool) -> Base {
    let (pool, report) = Pool::create_sim(&spec(true), E::NAME, E::FORMAT, pool_options()).expect("a pool");
    let store = E::start(Arc::clone(&pool), &report).expect("a store");
    for number in 0..KEYS {
        let expiry = (number % 10 == 3).then(|| Expiry::at_millis(u64::MAX / 2));
        store.put_expiring(&key(number), &value(number), expiry).expect("room");
        if number == KEYS / 2 {
            store.write(&batch(0..BATCHED)).expect("room for a batch");
        }
    }
    if clean {
        store.close().expect("closes");
    }
    Base::new(image(&pool), CHUNK)
}

/// Opens a damaged store twice and applies all kinds of operations. Nothing panics, and without
/// forged checksums no value is wrong.
fn live<E: Engine>((mut image, resealed): (SimImage, bool)) {
    for _again in 0..2 {
        let Ok((pool, report)) = Pool::open_sim(&image, E::NAME, E::FORMAT, pool_options()) else { return };
        pool.recorder().expect("simulated").set_recording(false);
        let Ok(store) = E::start(Arc::clone(&pool), &report) else { return };
        let _ = store.wait_recovered();
        judge(&store, !resealed);
        let _ = work(&store);
        let _ = store.close();
        drop(store);
        image = regions(&pool);
    }
}

fn judge(store: &impl Engine, honest: bool) {
    let mut seen = |name: &[u8], found: &[u8]| {
        let known = (0..KEYS + 3).find(|number| key(*number) == name);
        assert!(!honest || known.is_some_and(|number| value(number) == found), "a wrong value of {name:?}");
        Visit::More
    };
    let names: Vec<_> = (0..KEYS).map(key).collect();
    for name in &names {
        if let Ok(Some(found)) = store.get(name) {
            seen(name, &found);
        }
    }
    let names: Vec<_> = names.iter().map(Vec::as_slice).collect();
    let _ = store.multi_get(&names, &mut |at, found| {
        found.map(|found| seen(names[at], found));
    });
    let _ = store.scan_each(&ScanRange::all(), &mut seen);
    let _ = store.for_each(&mut seen);
    if let Ok(walk) = store.scan(&ScanRange::all()) {
        for entry in walk.take(4 * KEYS as usize).flatten() {
            seen(entry.key(), entry.value());
        }
    }
    let _ = store.verify(&mut |_| {});
    let _ = (store.len(), store.stats());
}

fn work(store: &impl Engine) -> Result<()> {
    for number in (0..KEYS).step_by(7) {
        match store.put(&key(number), &value(number)) {
            Err(Error::Corrupt { .. } | Error::Full { .. } | Error::IndexFull { .. } | Error::Poisoned { .. })
            | Ok(()) => {}
            Err(other) => return Err(other),
        }
        let _ = store.update(&key(number + 1), &value(number + 1), Lifetime::Forever);
        let _ = store.delete(&key(number + 2));
        let _ = store.insert(&key(number + 2), &value(number + 2), Lifetime::Forever);
        let _ = store.compare_and_swap(&key(number), Some(&value(number)), None, Lifetime::Forever);
        let _ = store.expiry(&key(number + 3));
        let _ = store.write(&batch(number..number + 3));
    }
    store.sweep().map(|_| ())
}
