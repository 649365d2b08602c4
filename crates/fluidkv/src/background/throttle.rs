//! Backpressure: how fast writers may write while background work lags.
//!
//! Writers are slowed (throttled) before they are stopped (stalled). All throttled writers together
//! write at a set rate in bytes per second. Each write reserves its time on one shared clock and
//! waits until that time. Every writer waits a little, and none waits for a whole flush.
//!
//! Invariant: the clock never runs further ahead of real time than [`CLOCK_LEAD_MAX`], so no write
//! waits longer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum lead of the clock; any excess is dropped.
const CLOCK_LEAD_MAX: Duration = Duration::from_millis(10);
/// Longest wait that spins: sleeping would take longer than the wait.
const SPIN_WAIT_MAX: Duration = Duration::from_micros(60);
/// Shortest wait of a store whose writers sleep: shorter waits add up on the clock.
const SLEEP_WAIT_MIN: Duration = Duration::from_micros(300);
/// Lowest rate of throttled writers, in bytes per second.
const RATE_MIN: f64 = 1e6;

/// See the module.
pub(crate) struct Throttle {
    start: Instant,
    /// Nanoseconds per MiB: 0 for no limit, `u64::MAX` for stopped.
    ns_per_mib: AtomicU64,
    /// Nanoseconds from `start` to the next free time.
    next: AtomicU64,
    /// Whether short waits are combined into sleeps.
    sleeps: bool,
}

impl Throttle {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), ns_per_mib: AtomicU64::new(0), next: AtomicU64::new(0), sleeps: false }
    }

    /// Combines short waits into sleeps instead of spinning: for stores whose background work needs
    /// the processors.
    pub(crate) fn sleep(&mut self) {
        self.sleeps = true;
    }

    /// Limits writers to `rate` bytes per second; `None` removes the limit.
    pub(crate) fn limit(&self, rate: Option<f64>) {
        let ns = rate.map_or(0, |rate| (1e9 * f64::from(1u32 << 20) / rate.max(RATE_MIN)) as u64);
        self.ns_per_mib.store(ns, Ordering::Release);
    }

    pub(crate) fn stall(&self) {
        self.ns_per_mib.store(u64::MAX, Ordering::Release);
    }

    /// Returns whether writers are not limited.
    #[inline]
    pub(crate) fn is_unlimited(&self) -> bool {
        self.ns_per_mib.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.ns_per_mib.load(Ordering::Acquire) == u64::MAX
    }

    /// Reserves the time of a write of this many bytes. Returns how long the writer has to wait.
    fn reserve_time(&self, bytes: u64, now: u64) -> Duration {
        let rate = self.ns_per_mib.load(Ordering::Acquire);
        if rate == 0 || rate == u64::MAX {
            return Duration::ZERO;
        }
        let cost = ((u128::from(bytes) * u128::from(rate)) >> 20).min(CLOCK_LEAD_MAX.as_nanos()) as u64;
        let latest = now + CLOCK_LEAD_MAX.as_nanos() as u64;
        let reserved = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some((next.max(now) + cost).min(latest)));
        Duration::from_nanos(reserved.unwrap_or(now).saturating_sub(now))
    }

    /// Waits for the reserved time of a write of this many bytes. Returns the time waited.
    pub(crate) fn wait(&self, bytes: u64) -> Duration {
        let began = Instant::now();
        let wait = self.reserve_time(bytes, began.duration_since(self.start).as_nanos() as u64);
        if self.sleeps && wait < SLEEP_WAIT_MIN {
            return Duration::ZERO;
        }
        if wait > SPIN_WAIT_MAX {
            std::thread::sleep(wait);
        }
        while began.elapsed() < wait {
            std::hint::spin_loop();
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlimited_writers_do_not_wait() {
        let throttle = Throttle::new();
        assert!(throttle.is_unlimited());
        assert_eq!(throttle.reserve_time(1 << 30, 5), Duration::ZERO);
    }

    #[test]
    fn throttled_writers_share_the_rate() {
        let throttle = Throttle::new();
        throttle.limit(Some(f64::from(1 << 20)));
        // A KiB needs 977 microseconds; the first write starts at once, and each later one after
        // the writes before it.
        let waits: Vec<_> = (0..5).map(|_| throttle.reserve_time(1024, 0).as_micros()).collect();
        assert_eq!(waits, [0, 976, 1953, 2929, 3906]);
        assert_eq!(
            throttle.reserve_time(1024, 1_000_000_000),
            Duration::ZERO,
            "time that nobody used is not saved, nor owed"
        );
    }

    #[test]
    fn no_writer_waits_longer_than_the_maximum_lead() {
        let throttle = Throttle::new();
        throttle.limit(Some(1.0));
        for _ in 0..1000 {
            assert!(throttle.reserve_time(u64::MAX, 0) <= CLOCK_LEAD_MAX);
        }
    }

    #[test]
    fn a_stall_is_not_a_throttle() {
        let throttle = Throttle::new();
        throttle.stall();
        assert!(throttle.is_stalled() && !throttle.is_unlimited());
        throttle.limit(None);
        assert!(throttle.is_unlimited() && !throttle.is_stalled());
    }
}
