//! Every interleaving of small runs of the queue, by loom, and wrong orderings (mutants) that the
//! model must detect.
//!
//! The queue's source is compiled here with loom's atomics: once with its own orderings, and once
//! per mutant with one ordering weakened. A mutant that passed would show that the model is too
//! weak.

#![expect(clippy::duplicate_mod, reason = "the source of the library, compiled over the model checker's atomics")]

macro_rules! queue_over {
    ($name:ident, $filled:ident, $emptied:ident, $unlock:ident, $completed:ident) => {
        #[path = "../src"]
        #[expect(dead_code, reason = "each mutant needs a part of the library and one model")]
        mod $name {
            pub mod queue_sync {
                pub use loom::sync::atomic::{AtomicBool, AtomicU64};
                pub mod order {
                    pub use std::sync::atomic::Ordering;
                    pub const FILLED: Ordering = Ordering::$filled;
                    pub const EMPTIED: Ordering = Ordering::$emptied;
                    pub const UNLOCK: Ordering = Ordering::$unlock;
                    pub const COMPLETED: Ordering = Ordering::$completed;
                }
                pub struct Cell<T>(loom::cell::UnsafeCell<T>);
                impl<T> Cell<T> {
                    pub fn new(value: T) -> Self {
                        Self(loom::cell::UnsafeCell::new(value))
                    }
                    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
                        self.0.with_mut(f)
                    }
                }
                pub fn prefetch_write<T>(_: &T) {}
            }
            #[path = "queue.rs"]
            pub mod queue;

            use loom::sync::Arc;
            use loom::thread;
            use queue::Ring;

            struct Work(loom::cell::UnsafeCell<u64>);
            // SAFETY: the checker detects a race on this value (Inv 43).
            unsafe impl Sync for Work {}
            // SAFETY: a number belongs to no thread. Inv 43 orders its accesses.
            unsafe impl Send for Work {}

            /// Two producers, two consumers, a ring of two: order per producer, no loss, no
            /// duplicate.
            pub fn pushes_and_pops() {
                let ring = Arc::new(Ring::<u64>::with_capacity(2));
                let taken = Arc::new(std::sync::Mutex::new(Vec::new()));
                let take = |ring: &Ring<u64>, taken: &std::sync::Mutex<Vec<u64>>| {
                    if let Some(mut consumer) = ring.try_consume() {
                        let mut out = Vec::new();
                        let count = consumer.pop_batch(&mut out, 2);
                        taken.lock().unwrap().extend(out);
                        consumer.complete(count);
                    }
                };
                let producer = {
                    let (ring, taken) = (Arc::clone(&ring), Arc::clone(&taken));
                    thread::spawn(move || {
                        let pushed = u64::from(ring.try_push(10).is_ok());
                        take(&ring, &taken);
                        pushed
                    })
                };
                let mut pushed = Vec::new();
                for value in [20, 21] {
                    if ring.try_push(value).is_ok() {
                        pushed.push(value);
                    }
                    take(&ring, &taken);
                }
                let other = producer.join().unwrap();
                take(&ring, &taken);
                let taken = taken.lock().unwrap();
                assert_eq!(taken.iter().filter(|&&value| value == 10).count() as u64, other);
                let mine: Vec<_> = taken.iter().copied().filter(|&value| value >= 20).collect();
                assert_eq!(mine, pushed);
                assert_eq!(ring.completed(), ring.tail());
            }

            /// Slots are reused one after another: a producer of the next lap must not overtake the
            /// consumer.
            pub fn laps() {
                let ring = Arc::new(Ring::<u64>::with_capacity(2));
                for value in 0..2 {
                    ring.try_push(value).unwrap();
                }
                let producer = {
                    let ring = Arc::clone(&ring);
                    thread::spawn(move || ring.try_push(2).is_ok())
                };
                let mut out = Vec::new();
                ring.try_consume().unwrap().pop_batch(&mut out, 1);
                let pushed = producer.join().unwrap();
                ring.try_consume().unwrap().pop_batch(&mut out, 2);
                assert_eq!(out, if pushed { vec![0, 1, 2] } else { vec![0, 1] });
            }

            /// A thread that sees the ticket completed sees the effects of the consumer's work.
            pub fn tickets() {
                let ring = Arc::new(Ring::<u64>::with_capacity(2));
                let work = Arc::new(Work(loom::cell::UnsafeCell::new(0)));
                let ticket = ring.try_push(7).unwrap();
                let consumer = {
                    let (ring, work) = (Arc::clone(&ring), Arc::clone(&work));
                    thread::spawn(move || {
                        let mut consumer = ring.try_consume().unwrap();
                        let mut out = Vec::new();
                        let count = consumer.pop_batch(&mut out, 1);
                        // SAFETY: the checker rejects a run in which this races with the read below
                        // (Inv 43).
                        work.0.with_mut(|cell| unsafe { *cell = out[0] });
                        consumer.complete(count);
                    })
                };
                while ring.completed() < ticket {
                    thread::yield_now();
                }
                // SAFETY: read after the ticket was seen completed (Inv 43); the checker detects a
                // race.
                assert_eq!(work.0.with(|cell| unsafe { *cell }), 7);
                consumer.join().unwrap();
            }

            pub fn check(model: fn()) -> bool {
                let mut builder = loom::model::Builder::new();
                builder.preemption_bound = Some(3);
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| builder.check(model))).is_ok()
            }
        }
    };
}

queue_over!(right, Release, Release, Release, Release);
queue_over!(filled_relaxed, Relaxed, Release, Release, Release);
queue_over!(emptied_relaxed, Release, Relaxed, Release, Release);
queue_over!(unlock_relaxed, Release, Release, Relaxed, Release);
queue_over!(completed_relaxed, Release, Release, Release, Relaxed);

#[test]
fn the_queue_passes_every_interleaving() {
    assert!(right::check(right::pushes_and_pops));
    assert!(right::check(right::laps));
    assert!(right::check(right::tickets));
}

#[test]
fn a_slot_filled_without_release_order_is_caught() {
    assert!(!filled_relaxed::check(filled_relaxed::pushes_and_pops));
}

#[test]
fn a_slot_emptied_without_release_order_is_caught() {
    assert!(!emptied_relaxed::check(emptied_relaxed::laps));
}

#[test]
fn a_consumer_lock_released_without_release_order_is_caught() {
    assert!(!unlock_relaxed::check(unlock_relaxed::pushes_and_pops));
}

#[test]
fn completion_stored_without_release_order_is_caught() {
    assert!(!completed_relaxed::check(completed_relaxed::tickets));
}
