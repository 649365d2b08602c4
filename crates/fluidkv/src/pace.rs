//! Back-pressure: how fast writers may write while the work behind them is behind.
//!
//! Writers are slowed before they are stopped. Slowed, all of them together write as many bytes a second as they are given: each write takes its time
//! from one clock that they share, and waits for its turn on it. So they wait a little each, and none for a whole flush.
//!
//! Invariant: the clock never runs further ahead of the time than [`AHEAD`], so no write waits longer for its turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Furthest that the clock runs ahead; what is beyond is forgiven.
const AHEAD: Duration = Duration::from_millis(10);
/// Longest wait that is spent spinning: sleeping takes longer than it should.
const SPIN: Duration = Duration::from_micros(60);
/// Shortest wait of a store whose writers sleep: shorter ones are added up on the clock.
const NAP: Duration = Duration::from_micros(300);
/// The slowest that writers are made, in bytes a second.
const LEAST: f64 = 1e6;

/// See the module.
pub(crate) struct Pace {
    start: Instant,
    /// Nanoseconds for a MiB: 0 for as fast as they like, `u64::MAX` for not at all.
    ns_per_mib: AtomicU64,
    /// Nanoseconds from `start` to the next turn.
    next: AtomicU64,
    /// Short waits are put together, and slept.
    sleeps: bool,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), ns_per_mib: AtomicU64::new(0), next: AtomicU64::new(0), sleeps: false }
    }

    /// Has writers sleep together what they would wait for each by itself, spinning: where the work that they wait for needs the processors.
    pub(crate) fn sleep(&mut self) {
        self.sleeps = true;
    }

    /// Lets writers write so many bytes a second; none: as they like.
    pub(crate) fn limit(&self, rate: Option<f64>) {
        let ns = rate.map_or(0, |rate| (1e9 * f64::from(1u32 << 20) / rate.max(LEAST)) as u64);
        self.ns_per_mib.store(ns, Ordering::Release);
    }

    /// Lets writers write no more.
    pub(crate) fn stop(&self) {
        self.ns_per_mib.store(u64::MAX, Ordering::Release);
    }

    /// Whether writers write as they like.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.ns_per_mib.load(Ordering::Relaxed) == 0
    }

    /// Whether writers are to write no more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.ns_per_mib.load(Ordering::Acquire) == u64::MAX
    }

    /// Takes the time of a write of so many bytes; how long the writer has to wait for its turn.
    fn take(&self, bytes: u64, now: u64) -> Duration {
        let rate = self.ns_per_mib.load(Ordering::Acquire);
        if rate == 0 || rate == u64::MAX {
            return Duration::ZERO;
        }
        let cost = ((u128::from(bytes) * u128::from(rate)) >> 20).min(AHEAD.as_nanos()) as u64;
        let latest = now + AHEAD.as_nanos() as u64;
        let turn = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some((next.max(now) + cost).min(latest)));
        Duration::from_nanos(turn.unwrap_or(now).saturating_sub(now))
    }

    /// Waits for the turn of a write of so many bytes; how long that took.
    pub(crate) fn wait(&self, bytes: u64) -> Duration {
        let began = Instant::now();
        let wait = self.take(bytes, began.duration_since(self.start).as_nanos() as u64);
        if self.sleeps && wait < NAP {
            return Duration::ZERO;
        }
        if wait > SPIN {
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
    fn free_writers_wait_for_nothing() {
        let pace = Pace::new();
        assert!(pace.is_free());
        assert_eq!(pace.take(1 << 30, 5), Duration::ZERO);
    }

    #[test]
    fn slowed_writers_share_the_rate() {
        let pace = Pace::new();
        pace.limit(Some(f64::from(1 << 20)));
        // A KiB takes 977 microseconds; the first comes at once, and each later one behind those before.
        let waits: Vec<_> = (0..5).map(|_| pace.take(1024, 0).as_micros()).collect();
        assert_eq!(waits, [0, 976, 1953, 2929, 3906]);
        assert_eq!(pace.take(1024, 1_000_000_000), Duration::ZERO, "time that nobody used is not saved, nor owed");
    }

    #[test]
    fn nobody_waits_longer_than_the_clock_may_run_ahead() {
        let pace = Pace::new();
        pace.limit(Some(1.0));
        for _ in 0..1000 {
            assert!(pace.take(u64::MAX, 0) <= AHEAD);
        }
    }

    #[test]
    fn stopped_is_not_slowed() {
        let pace = Pace::new();
        pace.stop();
        assert!(pace.is_stopped() && !pace.is_free());
        pace.limit(None);
        assert!(pace.is_free() && !pace.is_stopped());
    }
}
