//! The queue with threads: order, no loss, no duplicate, full and empty queues, completion.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use lodestore_index::queue::Ring;

#[test]
fn slots_of_56_byte_values_are_one_line() {
    let ring = Ring::<[u64; 7]>::with_capacity(4096);
    assert_eq!(ring.capacity(), 4096);
    assert!(ring.dram_bytes() < 4096 * 64 + 1024);
}

#[test]
fn a_full_queue_returns_the_value_and_accepts_it_after_a_pop() {
    let ring = Ring::with_capacity(4);
    for value in 0..4 {
        assert_eq!(ring.try_push(value), Ok(value + 1));
    }
    assert_eq!(ring.try_push(4), Err(4));
    let mut out = Vec::new();
    let mut consumer = ring.try_consume().expect("nobody else consumes");
    assert!(ring.try_consume().is_none());
    assert_eq!(consumer.pop_batch(&mut out, 3), 3);
    assert_eq!((ring.popped(), ring.completed(), ring.len()), (3, 0, 1));
    consumer.complete(2);
    consumer.complete(1);
    assert_eq!(ring.completed(), 3);
    drop(consumer);
    assert_eq!(ring.try_push(4), Ok(5));
    ring.try_consume().expect("given back").pop_batch(&mut out, usize::MAX);
    assert_eq!(out, [0, 1, 2, 3, 4]);
    assert!(ring.is_empty());
}

#[test]
fn values_left_in_the_queue_are_dropped_once() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let ring = Ring::with_capacity(8);
    for _ in 0..5 {
        assert!(ring.try_push(Counted(Arc::clone(&drops))).is_ok());
    }
    let mut out = Vec::new();
    ring.try_consume().expect("nobody else consumes").pop_batch(&mut out, 2);
    drop(ring);
    assert_eq!(drops.load(Ordering::Relaxed), 3);
    drop(out);
    assert_eq!(drops.load(Ordering::Relaxed), 5);
}

#[test]
fn each_producers_order_is_kept_when_consumers_alternate() {
    const PRODUCERS: u64 = 3;
    let each: u64 = if cfg!(miri) { 50 } else { 20_000 };
    let ring = Ring::with_capacity(64);
    let seen = std::sync::Mutex::new(vec![0_u64; PRODUCERS as usize]);
    let help = |ring: &Ring<(u64, u64)>| {
        let Some(mut consumer) = ring.try_consume() else { return false };
        let mut out = Vec::new();
        let count = consumer.pop_batch(&mut out, 16);
        let mut seen = seen.lock().expect("no test thread panicked");
        for (producer, value) in out {
            assert_eq!(seen[producer as usize], value, "producer {producer}");
            seen[producer as usize] += 1;
        }
        consumer.complete(count);
        count > 0
    };
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (ring, help) = (&ring, &help);
            scope.spawn(move || {
                for value in 0..each {
                    let mut item = (producer, value);
                    while let Err(back) = ring.try_push(item) {
                        item = back;
                        if !help(ring) {
                            thread::yield_now();
                        }
                    }
                }
            });
        }
        scope.spawn(|| {
            while ring.completed() < PRODUCERS * each {
                if !help(&ring) {
                    thread::yield_now();
                }
            }
        });
    });
    assert_eq!(*seen.lock().expect("no test thread panicked"), vec![each; PRODUCERS as usize]);
    assert_eq!((ring.tail(), ring.popped(), ring.completed()), (3 * each, 3 * each, 3 * each));
}
