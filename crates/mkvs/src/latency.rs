//! How long reads take: the time that 95 of 100 stay below, followed as it goes.

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
    fn it_never_falls_below_its_least() {
        let latency = Latency::default();
        (0..20_000).for_each(|_| latency.note(Duration::ZERO));
        assert_eq!(latency.p95(), Duration::from_nanos(LEAST));
    }
}
