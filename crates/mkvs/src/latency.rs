//! Read latency: a running estimate of the 95th percentile, and the allowance of hedged reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Minimum wait before a second device is queried, in nanoseconds. Less would be shorter than
/// waking a thread.
const HEDGE_DELAY_MIN_NANOS: u64 = 20_000;
/// The initial estimate, in nanoseconds.
const INITIAL_ESTIMATE_NANOS: u64 = 1_000_000;
/// A step is the estimate divided by this.
const STEP_DIVISOR: u64 = 32;

/// The estimate. Each sample moves it up by a step, or down by a nineteenth of a step. The estimate
/// converges where one sample in twenty is longer. Concurrent threads may lose a step.
pub(crate) struct Latency {
    nanos: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { nanos: AtomicU64::new(INITIAL_ESTIMATE_NANOS) }
    }
}

impl Latency {
    /// Records the duration of a read.
    pub(crate) fn record(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let nanos = self.nanos.load(Ordering::Relaxed);
        let step = (nanos / STEP_DIVISOR).max(19);
        let next = if took > nanos { nanos.saturating_add(step) } else { nanos - step / 19 };
        self.nanos.store(next.max(HEDGE_DELAY_MIN_NANOS), Ordering::Relaxed);
    }

    /// Returns the 95th percentile of read latency.
    pub(crate) fn p95(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

/// Cost of a second request. Each read adds its percentage to the allowance.
const HEDGE_COST_PERCENT: u64 = 100;
/// Maximum number of saved second requests: enough for random bursts, too few to double the load in
/// a bad second after a calm hour.
const SAVED_HEDGES_MAX: u64 = 100;

/// The allowance of second requests: a percentage of the reads over any period, plus at most
/// [`SAVED_HEDGES_MAX`]. A request whose read is already answered is refunded.
#[derive(Default)]
pub(crate) struct Allowance {
    saved: AtomicU64,
    refunded: AtomicU64,
}

impl Allowance {
    /// Adds the share of one read, in percent.
    pub(crate) fn earn(&self, percent: u32) {
        let more = |saved: u64| (saved < SAVED_HEDGES_MAX * HEDGE_COST_PERCENT).then(|| saved + u64::from(percent));
        let _ = self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Takes one second request from the allowance. Returns false if it is exhausted.
    pub(crate) fn spend(&self) -> bool {
        self.saved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| saved.checked_sub(HEDGE_COST_PERCENT))
            .is_ok()
    }

    /// Refunds a second request that had nothing left to do.
    pub(crate) fn refund(&self) {
        self.refunded.fetch_add(1, Ordering::Relaxed);
        self.saved.fetch_add(HEDGE_COST_PERCENT, Ordering::Relaxed);
    }

    /// Returns the number of refunded second requests.
    pub(crate) fn refunded(&self) -> u64 {
        self.refunded.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_converges_to_the_95th_percentile() {
        let latency = Latency::default();
        for round in 0..20_000_u64 {
            // 1 to 100 in a scattered order, times 10 us.
            let sample = round.wrapping_mul(2_654_435_761) % 100 + 1;
            latency.record(Duration::from_micros(10 * sample));
        }
        let p95 = latency.p95().as_micros();
        assert!((850..=1000).contains(&p95), "{p95} us");
    }

    #[test]
    fn five_percent_of_reads_are_hedged_and_idle_time_saves_at_most_the_maximum() {
        let allowance = Allowance::default();
        let asked = (0..10_000).filter(|_| {
            allowance.earn(5);
            allowance.spend()
        });
        assert_eq!(asked.count(), 500);
        (0..1_000_000).for_each(|_| allowance.earn(5));
        assert_eq!((0..1000).filter(|_| allowance.spend()).count() as u64, SAVED_HEDGES_MAX);
        (0..1000).for_each(|_| allowance.earn(0));
        assert!(!allowance.spend());
        allowance.refund();
        assert!(allowance.spend() && !allowance.spend());
    }

    #[test]
    fn the_estimate_never_falls_below_its_minimum() {
        let latency = Latency::default();
        (0..20_000).for_each(|_| latency.record(Duration::ZERO));
        assert_eq!(latency.p95(), Duration::from_nanos(HEDGE_DELAY_MIN_NANOS));
    }
}
