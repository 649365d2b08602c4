//! The epoch protocol over loom: all interleavings, with the reorderings of C11, of one reader, one
//! writer and one more thread that advances the clock. Two mutants show that the model can detect a
//! failure.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// Loom's atomics, under the names that the protocol uses.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};

    pub(super) fn announce(seat: &AtomicU64, epoch: u64) {
        seat.store(epoch, Ordering::Relaxed);
        if !super::SKIP_FENCE.with(std::cell::Cell::get) {
            fence(Ordering::SeqCst);
        }
    }
}

#[expect(clippy::duplicate_mod, reason = "the same text over other atomics")]
#[path = "protocol.rs"]
mod protocol;

use protocol::{Clock, Seat};
use sync::{AtomicU64, Ordering};

std::thread_local! {
    /// The mutant without the fence after the announcement. Loom runs all its threads on the test's
    /// own thread.
    static SKIP_FENCE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

struct World<const GRACE: u64> {
    clock: Clock<GRACE>,
    seats: [Seat; 2],
    /// The linked record: 0, later 1.
    linked: AtomicU64,
    /// Freeing a record writes its cell, reading it reads the cell: loom reports the two if they
    /// are unordered.
    records: [UnsafeCell<u64>; 2],
}

/// Clock steps that the writer tries before it stops.
const ADVANCE_ATTEMPTS: usize = 3;

fn run<const GRACE: u64>() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let world = Arc::new(World::<GRACE> {
            clock: Clock::new(),
            seats: [Seat::new(), Seat::new()],
            linked: AtomicU64::new(0),
            records: [UnsafeCell::new(7), UnsafeCell::new(7)],
        });
        let reader = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.clock.pin(&world.seats[0]);
                let at = world.linked.load(Ordering::Acquire);
                // SAFETY: loom's cell checks that no write is concurrent (Inv 8), which is the
                // purpose of this test.
                world.records[at as usize].with(|record| assert_eq!(unsafe { *record }, 7));
                assert!(world.seats[0].announced().is_some());
                world.seats[0].unpin();
            })
        };
        let helper = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.clock.advance(|| world.seats.iter());
            })
        };
        world.linked.store(1, Ordering::Release);
        let stamp = world.clock.stamp();
        for _ in 0..ADVANCE_ATTEMPTS {
            if world.clock.is_expired(stamp) {
                // SAFETY: as above (Inv 8).
                world.records[0].with_mut(|record| unsafe { *record = 0 });
                break;
            }
            world.clock.advance(|| world.seats.iter());
        }
        reader.join().expect("the reader ends well");
        helper.join().expect("the helper ends well");
    });
}

fn is_caught(run: impl FnOnce() + std::panic::UnwindSafe) -> bool {
    std::panic::catch_unwind(run).is_err()
}

#[test]
fn no_record_is_freed_under_a_reader() {
    run::<2>();
}

#[test]
fn mutant_that_waits_one_epoch_only_is_caught() {
    assert!(is_caught(run::<1>), "the model does not see a record freed too early");
}

#[test]
fn mutant_without_the_fence_of_pin_is_caught() {
    SKIP_FENCE.set(true);
    let is_seen = is_caught(run::<2>);
    SKIP_FENCE.set(false);
    assert!(is_seen, "the model does not see the missing fence");
}
