//! Space of a real pool: allocated, growing, read back after a clean stop, marked after a crash.

#[expect(dead_code, reason = "these tests use a part of it")]
mod common;

use std::collections::HashMap;
use std::fs;

use common::{TestDir, create, open, small};
use lodestore_contract::{Durability, Error, VerifyReport};
use lodestore_media::{ExtentKind, NvPtr, Pool, PoolOptions};

fn check(pool: &Pool) {
    let mut report = VerifyReport::default();
    pool.allocator().verify(pool, &mut report);
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[test]
fn a_pool_grows_to_its_capacity_and_no_further() {
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    let alloc = pool.allocator();
    let mut places = Vec::new();
    let full = loop {
        match alloc.alloc(&pool, 300) {
            Ok(at) => places.push(at),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Full { needed: 300, capacity: 4_194_304 }), "{full}");
    assert_eq!((pool.regions(), pool.space().size), (4, 4 << 20));
    assert!(places.len() as u64 * 304 > (4 << 20) * 9 / 10, "{}", places.len());
    check(&pool);
    places.iter().for_each(|at| alloc.free(&pool, *at, 300));
    assert_eq!(pool.space().live, 0);
    check(&pool);
}

fn fill(pool: &Pool) -> (Vec<NvPtr>, NvPtr) {
    let alloc = pool.allocator();
    let extent = alloc.alloc_extent(pool, 16 << 10, ExtentKind::ENGINE).expect("room");
    ((0..5000).map(|index| alloc.alloc(pool, 40 + index % 300).expect("room")).collect(), extent)
}

#[test]
fn a_clean_stop_reads_the_occupancy_back() {
    let power = PoolOptions { durability: Durability::Power, ..small() };
    for (dir, opts) in [(TestDir::shm(), small()), (TestDir::disk(), power)] {
        clean_stop(&dir, &opts);
    }
}

fn clean_stop(dir: &TestDir, opts: &PoolOptions) {
    let pool = create(dir, opts.clone());
    let (places, _) = fill(&pool);
    places[..100].iter().zip(0..).for_each(|(at, index)| pool.epochs().retire(&pool, *at, 40 + index % 300));
    pool.close(true).expect("closes");
    let before = (pool.allocator().live_records(), pool.allocator().live_bytes());
    drop(pool);
    let (pool, report) = open(dir, opts.clone());
    assert!(report.clean && !pool.allocator().is_recovering());
    assert_eq!((pool.allocator().live_records(), pool.allocator().live_bytes()), before);
    assert_eq!(before.0, 4900);
    check(&pool);
}

/// Regression: an older copy of the saved occupancy, at the same position, freed records that are
/// in use.
#[test]
fn the_occupancy_of_an_earlier_stop_does_not_count() {
    const MAGIC: &[u8] = b"lodeOCC2";
    let dir = TestDir::shm();
    let region = dir.store().join("pool.0000");
    let saved_at = |bytes: &[u8]| {
        let at = bytes.chunks(512).position(|chunk| chunk.starts_with(MAGIC)).expect("a saved occupancy") * 512;
        let words = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().expect("8 bytes")) as usize;
        at..at + 8 * (words + 2)
    };
    let mut pool = create(&dir, small());
    let mut by_place = HashMap::new();
    // One more record of the same slab for each stop, until two stops save to the same position.
    let (place, mut bytes, older) = loop {
        pool.allocator().alloc(&pool, 300).expect("room");
        pool.close(true).expect("closes");
        drop(pool);
        let bytes = fs::read(&region).expect("a region");
        let place = saved_at(&bytes);
        if let Some(older) = by_place.insert(place.start, bytes.clone()) {
            break (place, bytes, older);
        }
        pool = open(&dir, small()).0;
    };
    bytes[place.clone()].copy_from_slice(&older[place]);
    fs::write(&region, &bytes).expect("written");
    let (pool, report) = open(&dir, small());
    assert!(report.clean && pool.allocator().is_recovering(), "the engine marks what it reaches");
}

#[test]
fn after_a_crash_marked_records_stay() {
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    let (places, extent) = fill(&pool);
    pool.close(false).expect("closes");
    drop(pool);
    let (pool, report) = open(&dir, small());
    let alloc = pool.allocator();
    assert!(!report.clean && alloc.is_recovering());
    assert_eq!(alloc.mark_extent(&pool, extent, ExtentKind::ENGINE).expect("it is there"), 16 << 10);
    for (at, index) in places.iter().zip(0..).skip(1000) {
        alloc.mark(&pool, *at, 40 + index % 300).expect("it is there");
    }
    let swept = alloc.finish_recovery(&pool);
    assert_eq!((swept.records, alloc.is_recovering()), (4000, false));
    assert_eq!(pool.space().live, swept.live_bytes);
    check(&pool);
}

#[test]
fn guards_delay_the_reuse_of_retired_records() {
    let dir = TestDir::shm();
    let pool = create(&dir, small());
    let at = pool.allocator().alloc(&pool, 100).expect("room");
    pool.store(at, &[7; 100]);
    let guard = pool.epochs().pin();
    let bytes = pool.bytes(at, 100).expect("in the pool");
    pool.epochs().retire(&pool, at, 100);
    for _ in 0..1000 {
        let other = pool.allocator().alloc(&pool, 100).expect("room");
        pool.store(other, &[9; 100]);
        pool.epochs().retire(&pool, other, 100);
    }
    assert_eq!(bytes, [7; 100]);
    drop(guard);
    pool.epochs().synchronize();
    pool.epochs().reclaim(&pool);
    assert_eq!((pool.epochs().waiting_bytes(), pool.allocator().live_records()), (0, 0));
}

#[test]
fn counts_of_writes_survive_a_kill() {
    let dir = TestDir::shm();
    let pool = create(&dir, PoolOptions { emulate_dax: true, ..small() });
    let alloc = pool.allocator();
    let extent = alloc.alloc_extent(&pool, 64 << 10, ExtentKind::ENGINE).expect("room");
    alloc.note_written(&pool, extent, 5_000_000);
    for _ in 0..20_000 {
        let at = alloc.alloc(&pool, 1000).expect("room");
        alloc.free(&pool, at, 1000);
    }
    let before = alloc.wear(&pool);
    let written = 5_000_000 + (64 << 10) + 20_000 * alloc.rounded(1000);
    assert_eq!((before.bytes, before.hottest.first().map(|hottest| hottest.bytes)), (written, Some(before.max)));
    pool.close(false).expect("closes");
    drop(pool);
    let (pool, report) = open(&dir, small());
    let kept = pool.allocator().wear(&pool);
    assert!(!report.clean && kept.segments == before.segments);
    // Maximum loss: the writes that a thread's current slab of the one used class accumulates
    // before they are counted.
    let slab = 64 << 10;
    assert!(kept.bytes <= written && kept.bytes + 8 * slab >= written, "{} of {written}", kept.bytes);
}
