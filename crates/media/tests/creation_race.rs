//! Several threads create a pool in the same directory: one pool results, and no failing creation
//! removes the files of a successful one.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use lodestore_contract::testing::Scratch;
use lodestore_contract::{Durability, Error, Result};
use lodestore_media::{Pool, PoolOptions};

const ROUNDS: usize = 60;
const CAPACITY_BYTES: u64 = 1 << 20;

fn small() -> PoolOptions {
    PoolOptions { capacity: CAPACITY_BYTES, region_bytes: CAPACITY_BYTES, chunk_bytes: 4096, ..PoolOptions::default() }
}

fn try_create(path: &Path, options: PoolOptions) -> Result<Arc<Pool>> {
    Pool::create(path, "test", 1, options).map(|(pool, _)| pool)
}

/// Checks that the open pool is the one in its directory.
fn assert_is_in_place(pool: Arc<Pool>, dir: &Scratch) {
    pool.publish_u64(pool.root(), 7);
    pool.mark_created().expect("marked");
    pool.close(true).expect("closes");
    drop(pool);
    let (pool, _) = Pool::open(&dir.store(), "test", 1, small()).expect("the pool is there");
    assert_eq!(pool.load_u64(pool.root()), 7);
}

#[test]
fn one_of_many_concurrent_creations_succeeds_and_its_pool_is_in_the_directory() {
    for _ in 0..ROUNDS {
        let dir = Scratch::new();
        let (path, barrier) = (dir.store(), Barrier::new(4));
        let race = || {
            barrier.wait();
            try_create(&path, small())
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(race)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let (created, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
        for refused in refused {
            assert!(matches!(refused, Err(Error::Locked { .. } | Error::Exists { .. })), "{refused:?}");
        }
        let mut created = created.into_iter().flatten();
        let pool = created.next().expect("one creation succeeds");
        assert!(created.next().is_none(), "two creations of one pool");
        assert_is_in_place(pool, &dir);
    }
}

#[test]
fn a_creation_that_fails_removes_nothing_of_another_that_succeeds() {
    if !Path::new("/dev/shm").is_dir() {
        println!("not tried: no tmpfs, whose pools cannot survive a power failure");
        return;
    }
    for _ in 0..ROUNDS {
        let dir = Scratch::new();
        let (path, stop) = (dir.store(), AtomicBool::new(false));
        let fail = || {
            while !stop.load(Ordering::Relaxed) {
                let refused = try_create(&path, PoolOptions { durability: Durability::Power, ..small() });
                assert!(refused.is_err(), "tmpfs does not survive a power failure");
            }
        };
        let pool = std::thread::scope(|scope| {
            scope.spawn(fail);
            scope.spawn(fail);
            let pool = loop {
                match try_create(&path, small()) {
                    Ok(pool) => break pool,
                    Err(Error::Locked { .. }) => std::thread::yield_now(),
                    Err(refused) => {
                        stop.store(true, Ordering::Relaxed);
                        panic!("{refused:?}");
                    }
                }
            };
            std::thread::sleep(std::time::Duration::from_millis(1));
            stop.store(true, Ordering::Relaxed);
            pool
        });
        assert_is_in_place(pool, &dir);
    }
}

#[test]
fn a_creation_that_fails_late_removes_its_own_pool_and_none_that_was_opened_meanwhile() {
    let dir = Scratch::new();
    let path = dir.store();
    let pool = try_create(&path, small()).expect("a pool");
    pool.mark_created().expect("marked");
    let created = pool.created_in(&path);
    created.remove();
    assert!(path.join("pool.0000").exists(), "an open pool stays");
    drop(pool);
    let other = try_create(&dir.path().join("other"), small()).expect("another pool").created_in(&path);
    other.remove();
    assert!(path.join("pool.0000").exists(), "another pool stays");
    let (opened, _) = Pool::open(&path, "test", 1, small()).expect("opens");
    drop(opened);
    created.remove();
    assert!(path.join("pool.0000").exists(), "a pool that was opened again stays");

    let path = dir.path().join("own");
    let pool = try_create(&path, small()).expect("a pool");
    pool.mark_created().expect("marked");
    let created = pool.created_in(&path);
    drop(pool);
    created.remove();
    assert!(!path.exists());
}
