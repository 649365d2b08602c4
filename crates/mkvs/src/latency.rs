//! How long reads take: the time that 95 of 100 stay below, followed as it goes; and how many of them may ask another device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Shortest time after which a second device is asked, in nanoseconds: a shorter one is less than waking a thread takes.
const LEAST: u64 = 20_000;
/// The first guess.
const FIRST: u64 = 1_000_000;
/// A step is this part of the estimate.
const STEP: u64 = 32;

/// The estimate. Each sample moves it a step up or a nineteenth of a step down, so that it comes to rest where one sample of twenty is longer. Racing threads
/// may lose a step.
pub(crate) struct Latency {
    nanos: AtomicU64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { nanos: AtomicU64::new(FIRST) }
    }
}

impl Latency {
    /// A read took this long.
    pub(crate) fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let nanos = self.nanos.load(Ordering::Relaxed);
        let step = (nanos / STEP).max(19);
        let next = if took > nanos { nanos.saturating_add(step) } else { nanos - step / 19 };
        self.nanos.store(next.max(LEAST), Ordering::Relaxed);
    }

    /// The time that 95 of 100 reads stay below.
    pub(crate) fn p95(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

/// What a second request costs of an allowance, to which each read adds its percent.
const COST: u64 = 100;
/// Second requests that may be saved up: enough for what chance brings together, too few to double the work of a bad second by what a calm hour left.
const SAVED_MOST: u64 = 100;

/// Second requests that devices may do: so many of a hundred reads, over any stretch of time, and [`SAVED_MOST`] more. One that finds its read answered is not done.
#[derive(Default)]
pub(crate) struct Allowance {
    saved: AtomicU64,
    spared: AtomicU64,
}

impl Allowance {
    /// One more read, of which so many of a hundred may ask again.
    pub(crate) fn earn(&self, percent: u32) {
        let more = |saved: u64| (saved < SAVED_MOST * COST).then(|| saved + u64::from(percent));
        let _ = self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Whether another device may be asked; if so, that is paid for.
    pub(crate) fn spend(&self) -> bool {
        self.saved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |saved| saved.checked_sub(COST)).is_ok()
    }

    /// A second request had nothing to do any more.
    pub(crate) fn give_back(&self) {
        self.spared.fetch_add(1, Ordering::Relaxed);
        self.saved.fetch_add(COST, Ordering::Relaxed);
    }

    /// Second requests that had nothing to do.
    pub(crate) fn spared(&self) -> u64 {
        self.spared.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_to_where_one_of_twenty_is_longer() {
        let latency = Latency::default();
        for round in 0..20_000_u64 {
            // 1 to 100 in an order without pattern, times 10 us.
            let sample = round.wrapping_mul(2_654_435_761) % 100 + 1;
            latency.note(Duration::from_micros(10 * sample));
        }
        let p95 = latency.p95().as_micros();
        assert!((850..=1000).contains(&p95), "{p95} us");
    }

    #[test]
    fn five_of_a_hundred_reads_ask_again_and_a_calm_time_saves_no_more_than_its_most() {
        let allowance = Allowance::default();
        let asked = (0..10_000).filter(|_| {
            allowance.earn(5);
            allowance.spend()
        });
        assert_eq!(asked.count(), 500);
        (0..1_000_000).for_each(|_| allowance.earn(5));
        assert_eq!((0..1000).filter(|_| allowance.spend()).count() as u64, SAVED_MOST);
        (0..1000).for_each(|_| allowance.earn(0));
        assert!(!allowance.spend());
        allowance.give_back();
        assert!(allowance.spend() && !allowance.spend());
    }

    #[test]
    fn it_never_falls_below_its_least() {
        let latency = Latency::default();
        (0..20_000).for_each(|_| latency.note(Duration::ZERO));
        assert_eq!(latency.p95(), Duration::from_nanos(LEAST));
    }
}
