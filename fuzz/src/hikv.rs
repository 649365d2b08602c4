//! Targets of `hikv`: superblock, directories, segments, records and sorted runs, in whole stores.

use std::sync::{Arc, LazyLock};

use lodestore_contract::{Error, Expiry, Result, ScanRange, Store, Visit};
use lodestore_hikv::{Backends, ENGINE, FORMAT, HiKv, HiKvOptions};
use lodestore_media::sim::SimImage;
use lodestore_media::{Pool, PoolOptions, Prefault};

use crate::damage::Base;
use crate::media::{CHUNK, image, regions, spec};

/// Keys of the store that is damaged.
const KEYS: u32 = 120;

fn options() -> HiKvOptions {
    static BASE: LazyLock<HiKvOptions> = LazyLock::new(HiKvOptions::default);
    HiKvOptions {
        pool: PoolOptions {
            capacity: 1 << 20,
            region_bytes: 256 << 10,
            chunk_bytes: CHUNK,
            huge_pages: false,
            prefault: Prefault::None,
            ..PoolOptions::default()
        },
        partitions: 2,
        segment_bytes: 512,
        hash_seed: Some(7),
        queues: 1,
        queue_len: 16,
        backends: Backends::Fixed(0),
        recovery_threads: 0,
        sweep_ms: 0,
        ..BASE.clone()
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:04}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; number as usize % 7 * 100]
}

fn make(clean: bool) -> Base {
    let (pool, report) = Pool::create_sim(&spec(true), ENGINE, FORMAT, options().pool).expect("a pool");
    let store = HiKv::start(Arc::clone(&pool), &report, &options()).expect("a store");
    for number in 0..KEYS {
        let expiry = (number % 10 == 3).then(|| Expiry::at_millis(u64::MAX / 2));
        store.put_expiring(&key(number), &value(number), expiry).expect("room");
    }
    if clean {
        store.close().expect("closes");
    }
    Base::new(image(&pool), CHUNK)
}

static CLEAN: LazyLock<Base> = LazyLock::new(|| make(true));
static KILLED: LazyLock<Base> = LazyLock::new(|| make(false));

/// A store that was stopped cleanly.
pub fn clean(data: &[u8]) {
    let (image, resealed) = CLEAN.damaged(data);
    live(image, !resealed);
}

/// A store whose process was killed.
pub fn killed(data: &[u8]) {
    let (image, resealed) = KILLED.damaged(data);
    live(image, !resealed);
}

/// Opens it twice and does a bit of everything. Nothing panics; and where no checksum was forged, no value is wrong.
fn live(mut image: SimImage, honest: bool) {
    for _again in 0..2 {
        let Ok((pool, report)) = Pool::open_sim(&image, ENGINE, FORMAT, options().pool) else { return };
        pool.recorder().expect("simulated").set_recording(false);
        let Ok(store) = HiKv::start(Arc::clone(&pool), &report, &options()) else { return };
        let _ = store.wait_recovered();
        judge(&store, honest);
        let _ = work(&store);
        let _ = store.close();
        drop(store);
        image = regions(&pool);
    }
}

fn judge(store: &HiKv, honest: bool) {
    let mut seen = |name: &[u8], found: &[u8]| {
        let known = (0..KEYS + 3).find(|number| key(*number) == name);
        assert!(!honest || known.is_some_and(|number| value(number) == found), "a wrong value of {name:?}");
        Visit::More
    };
    for number in 0..KEYS {
        if let Ok(Some(found)) = store.get(&key(number)) {
            seen(&key(number), &found);
        }
    }
    let _ = store.scan_each(&ScanRange::all(), &mut seen);
    let _ = store.for_each(&mut seen);
    if let Ok(walk) = store.scan(&ScanRange::all()) {
        for entry in walk.take(4 * KEYS as usize).flatten() {
            seen(&entry.key, &entry.value);
        }
    }
    let _ = store.verify(&mut |_| {});
    let _ = (store.len(), store.stats());
}

fn work(store: &HiKv) -> Result<()> {
    for number in (0..KEYS).step_by(7) {
        match store.put(&key(number), &value(number)) {
            Err(Error::Corrupt { .. } | Error::Full { .. } | Error::IndexFull { .. } | Error::Poisoned { .. })
            | Ok(()) => {}
            Err(other) => return Err(other),
        }
        let _ = store.update(&key(number + 1), &value(number + 1));
        let _ = store.delete(&key(number + 2));
        let _ = store.insert(&key(number + 2), &value(number + 2));
        let _ = store.compare_and_swap(&key(number), Some(&value(number)), None);
        let _ = store.expiry(&key(number + 3));
    }
    store.sweep_expired().map(|_| ())
}

/// Kinds of checksums in the stores that are damaged.
pub fn kinds() -> usize {
    CLEAN.kinds()
}
