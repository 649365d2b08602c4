//! Background work of the server, on a separate thread.

use std::time::{Duration, Instant};

use crate::shared::Shared;

/// The period of the thread's checks for work and for a stop.
const CHECK_PERIOD: Duration = Duration::from_millis(50);

/// Shortest pause between two sweeps of orphans.
const SWEEP_PAUSE_MIN: Duration = Duration::from_secs(1);

/// A sweep pauses for this many times its own length.
const SWEEP_PAUSE_FACTOR: u32 = 20;

/// The period of samples of the store's used bytes, for their peak.
const PEAK_PERIOD: Duration = Duration::from_secs(1);

/// Works until the server stops.
pub(crate) fn run(shared: &Shared) {
    let mut next_sweep = Instant::now() + SWEEP_PAUSE_MIN;
    let mut next_sample = Instant::now();
    while !shared.is_stopping() {
        std::thread::sleep(CHECK_PERIOD);
        // A walk during the recovery of the store would wait for its end.
        if Instant::now() >= next_sweep && shared.db().stats().recovery.done {
            let begun = Instant::now();
            // A full or damaged store may refuse a sweep: the next one tries again.
            drop(shared.orphan_sweep().run());
            next_sweep = Instant::now() + SWEEP_PAUSE_MIN.max(begun.elapsed().saturating_mul(SWEEP_PAUSE_FACTOR));
        }
        if Instant::now() >= next_sample {
            shared.memory.note_used(shared.db().stats().space.live);
            next_sample = Instant::now() + PEAK_PERIOD;
        }
        shared.census.refresh(&shared.databases, shared.stop_flag());
    }
}
