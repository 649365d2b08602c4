//! Measures how fast a pool fills, so that its next region is created early enough. A writer at the
//! end of the last region waits for the next one, some hundred milliseconds.
//!
//! The numbers are estimates that affect only the length of that wait; data races between threads
//! are acceptable.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Divisor of the next region's length that gives the window over which the rate is measured.
const WINDOW_DIVISOR: u64 = 32;
/// Microseconds to create a MiB of a region, before the first measurement: a slow machine's value.
const CREATION_MICROS_PER_MIB: u64 = 2000;
/// Multiple of the creation time that is kept in free space.
const CREATION_TIME_FACTOR: u64 = 2;

/// The fill rate of one pool.
pub(crate) struct FillRate {
    start: Instant,
    /// Bytes of the next region.
    next_bytes: AtomicU64,
    /// Free bytes and microseconds at which the present window began.
    from_free: AtomicU64,
    from_us: AtomicU64,
    bytes_per_ms: AtomicU64,
    creation_micros_per_mib: AtomicU64,
}

impl FillRate {
    /// Creates the estimate for a pool whose next region has `next_bytes` bytes.
    pub(crate) fn new(next_bytes: u64) -> Self {
        Self {
            start: Instant::now(),
            next_bytes: AtomicU64::new(next_bytes),
            from_free: AtomicU64::new(0),
            from_us: AtomicU64::new(0),
            bytes_per_ms: AtomicU64::new(0),
            creation_micros_per_mib: AtomicU64::new(CREATION_MICROS_PER_MIB),
        }
    }

    /// Records that creating a region of `bytes` bytes took `took`.
    pub(crate) fn record_creation(&self, bytes: u64, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let per_mib = us.div_ceil((bytes >> 20).max(1));
        self.creation_micros_per_mib.store(per_mib, Ordering::Relaxed);
    }

    /// Records that the pool has grown, and the length of the next region.
    pub(crate) fn set_next_bytes(&self, next_bytes: u64) {
        self.next_bytes.store(next_bytes, Ordering::Relaxed);
    }

    /// Returns whether the next region should be in creation, with `free` free bytes.
    pub(crate) fn is_due(&self, free: u64) -> bool {
        let next = self.next_bytes.load(Ordering::Relaxed);
        if free < next / 2 {
            return true;
        }
        if free >= next {
            // Enough for a new window to begin.
            self.from_free.store(0, Ordering::Relaxed);
            return false;
        }
        let now = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.is_due_at(free, next, now)
    }

    fn is_due_at(&self, free: u64, next: u64, now_us: u64) -> bool {
        let from = self.from_free.load(Ordering::Relaxed);
        if from <= free {
            self.from_free.store(free, Ordering::Relaxed);
            self.from_us.store(now_us, Ordering::Relaxed);
        } else if from - free >= next / WINDOW_DIVISOR {
            let us = now_us.saturating_sub(self.from_us.load(Ordering::Relaxed)).max(1);
            self.bytes_per_ms.store((from - free).saturating_mul(1000) / us, Ordering::Relaxed);
            self.from_free.store(free, Ordering::Relaxed);
            self.from_us.store(now_us, Ordering::Relaxed);
        }
        let rate = self.bytes_per_ms.load(Ordering::Relaxed);
        let creation_micros = (next >> 20).max(1).saturating_mul(self.creation_micros_per_mib.load(Ordering::Relaxed));
        let needed = rate.saturating_mul(creation_micros) / 1000;
        free < needed.saturating_mul(CREATION_TIME_FACTOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_slow_writer_has_its_region_at_half_and_a_fast_one_early() {
        let slow = FillRate::new(256 * MIB);
        // A MiB in ten milliseconds: half a region lasts longer than the creation of the next one.
        let due = (1..128).find(|step| slow.is_due_at((256 - step) * MIB, 256 * MIB, step * 10_000));
        assert_eq!(due, None);
        assert!(slow.is_due(127 * MIB));
        let fast = FillRate::new(256 * MIB);
        let due = (1..200).find(|step| fast.is_due_at((256 - step) * MIB, 256 * MIB, step * 1000));
        assert!(due.is_some_and(|step| step < 20), "{due:?}");
    }

    #[test]
    fn a_region_that_is_created_quickly_is_created_later() {
        let rate = FillRate::new(256 * MIB);
        rate.record_creation(256 * MIB, Duration::from_millis(20));
        let due = (1..200).find(|step| rate.is_due_at((256 - step) * MIB, 256 * MIB, step * 1000));
        assert_eq!(due, None, "half a region is early enough");
    }

    #[test]
    fn the_next_region_is_due_at_half_of_its_length() {
        let rate = FillRate::new(32 * MIB);
        assert!(!rate.is_due(40 * MIB) && rate.is_due(15 * MIB));
        rate.set_next_bytes(100 * MIB);
        assert!(rate.is_due(40 * MIB));
    }
}
