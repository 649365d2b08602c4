//! Tests of the space that logs leave while the medium has space left.

use std::sync::Barrier;

use lodestore_inplace::testing::Scratch;
use lodestore_media::PoolOptions;

use crate::layout::KIND_LOG;
use crate::{FluidKv, FluidOptions};

/// Creates a store of 8 MiB that grows by 1 MiB, without workers.
fn created(scratch: &Scratch) -> FluidKv {
    let pool = PoolOptions { capacity: 8 << 20, region_bytes: 1 << 20, ..PoolOptions::default() };
    let options = FluidOptions { pool, workers: 0, ..FluidOptions::default() };
    FluidKv::create(&scratch.store(), &options).expect("create")
}

/// Regression: the space for the log itself, and for its flush, was not counted while the medium
/// had space left. A batch of a tenth of the capacity then left a store in which no delete fitted.
#[test]
fn a_log_is_handed_out_only_if_the_space_for_its_flush_is_left() {
    for bytes in [16 << 10, 256 << 10, 820 << 10, 1400 << 10, 3 << 20] {
        let scratch = Scratch::new();
        let store = created(&scratch);
        let inner = &store.running.inner;
        let (pool, reserve) = (&inner.pool, &inner.reserve);
        let mut count = 0;
        while reserve.alloc_for_put(pool, bytes, KIND_LOG).is_ok() {
            count += 1;
            let free = pool.space().free + reserve.held_bytes() + pool.room_on_medium();
            let needed = reserve.needed_bytes();
            assert!(needed <= free, "log {count} of {bytes} bytes: {needed} bytes are needed, {free} are free");
        }
        assert!(count > 0 || bytes > 2 << 20, "no log of {bytes} bytes fits");
    }
}

/// Regression: while the medium had space left, no lock was held from the check of a log until the
/// log was counted, so that several threads used the same space.
#[test]
fn logs_that_several_threads_begin_leave_the_space_for_their_flushes() {
    const THREADS: usize = 4;
    const BYTES: u64 = 820 << 10;
    for _ in 0..20 {
        let scratch = Scratch::new();
        let store = created(&scratch);
        let inner = &store.running.inner;
        let (pool, reserve) = (&inner.pool, &inner.reserve);
        let start = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    while reserve.alloc_for_put(pool, BYTES, KIND_LOG).is_ok() {}
                });
            }
        });
        let free = pool.space().free + reserve.held_bytes() + pool.room_on_medium();
        let needed = reserve.needed_bytes();
        assert!(needed <= free, "{needed} bytes are needed, {free} are free");
    }
}

/// Regression: a log that did not fit kept the space that it had gathered, and a shorter log was
/// refused for it.
#[test]
fn a_short_log_fits_after_a_long_one_was_refused() {
    let scratch = Scratch::new();
    let store = created(&scratch);
    let inner = &store.running.inner;
    let (pool, reserve) = (&inner.pool, &inner.reserve);
    assert!(reserve.alloc_for_put(pool, 6 << 20, KIND_LOG).is_err(), "its flush does not fit");
    assert!(reserve.held_bytes() < 1 << 20, "{} bytes are held", reserve.held_bytes());
    reserve.alloc_for_put(pool, 256 << 10, KIND_LOG).expect("a short log fits");
}
