//! More threads than slots: the others share one, and the results are still correct. In a test file
//! of its own, because it uses every slot of the process.

#[expect(dead_code, reason = "these tests use a part of it")]
mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use common::{TestDir, create, open, small};
use lodestore_contract::Durability;
use lodestore_media::{MAX_SLOTS, NvPtr, Pool, PoolOptions, thread_slot};

/// Threads in addition to those with an exclusive slot.
const MORE: usize = 24;

/// Runs `work` on enough threads that `MORE` of them share a slot; all have their slots before the
/// first begins.
fn on_all(work: impl Fn(usize) + Sync) {
    let all = MAX_SLOTS + MORE;
    let (barrier, sharing) = (Barrier::new(all), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..all {
            let (work, barrier, sharing) = (&work, &barrier, &sharing);
            let spawned = std::thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, move || {
                sharing.fetch_add(usize::from(thread_slot() == MAX_SLOTS), Ordering::Relaxed);
                barrier.wait();
                work(thread);
                // No slot is freed before all are done.
                barrier.wait();
            });
            spawned.expect("a thread");
        }
    });
    assert!(sharing.into_inner() >= MORE);
}

fn works(pool: &Arc<Pool>, rounds: usize) {
    let record = 64;
    let linked: Vec<NvPtr> = (0..8).map(|_| pool.allocator().alloc(pool, record).expect("room")).collect();
    for (at, cell) in linked.iter().zip(0u64..) {
        pool.store(*at, &[0x11; 64]);
        pool.publish_u64(pool.root().add(cell * 16), at.raw());
    }
    let (flushes, bytes) = (pool.flushes(), pool.bytes_written());
    let written = AtomicUsize::new(0);
    on_all(|thread| {
        for round in 0..rounds {
            let cell = pool.root().add((thread + round) as u64 % 8 * 16);
            let outer = pool.epochs().pin();
            let guard = pool.epochs().pin();
            let old = NvPtr::from_raw(pool.load_u64(cell));
            let seen = pool.bytes(old, record).expect("in the pool")[0];
            assert!(seen == 0x11, "a record that a guard protects was used again: {seen:#x}");
            drop(outer);
            let new = pool.allocator().alloc(pool, record).expect("room");
            assert!(new != old, "handed out while it is seen");
            // A thread that sees the record between these two stores reads a record that was freed
            // too early.
            pool.store(new, &[0x22; 64]);
            pool.store(new, &[0x11; 64]);
            pool.flush(new, record);
            pool.fence();
            written.fetch_add(record, Ordering::Relaxed);
            if pool.cas_u128(cell, (old.raw(), 0), (new.raw(), 0)).is_ok() {
                pool.epochs().retire(pool, old, record);
            } else {
                pool.allocator().free(pool, new, record);
            }
            drop(guard);
        }
    });
    if pool.persists() {
        assert!(pool.flushes() > flushes);
    }
    assert!(pool.bytes_written() - bytes >= written.into_inner() as u64, "no count is lost");
    pool.epochs().synchronize();
    pool.epochs().reclaim(pool);
    pool.epochs().reclaim(pool);
    assert_eq!(pool.epochs().waiting_bytes(), 0, "the clock goes on");
}

#[test]
fn threads_without_a_slot_of_their_own_work_like_the_others() {
    let power = PoolOptions { durability: Durability::Power, ..small() };
    let room =
        |options: PoolOptions| PoolOptions { capacity: 64 << 20, region_bytes: 16 << 20, chunk_bytes: 4096, ..options };
    let dir = TestDir::shm();
    works(&create(&dir, room(small())), 200);
    assert!(!open(&dir, small()).1.clean);
    let dir = TestDir::shm();
    works(&create(&dir, room(PoolOptions { emulate_dax: true, ..power.clone() })), 100);
    let dir = TestDir::disk();
    works(&create(&dir, room(power)), 2);
}
