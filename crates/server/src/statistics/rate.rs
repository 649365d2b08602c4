//! The rate of a counter between two samples.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shortest time between two samples that determine a rate.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The value of the counter at the last sample, and the rate before the sample.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    total: u64,
    per_second: f64,
}

/// A rate that is computed when it is read: the mean since the last sample, which is at least a
/// second ago.
#[derive(Debug, Default)]
pub(super) struct Rate {
    last: Mutex<Option<Sample>>,
}

impl Rate {
    /// Returns the increase a second of a counter, or 0 at the first call.
    pub(super) fn sample(&self, now: Instant, total: u64) -> f64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let per_second = match *last {
            None => 0.0,
            Some(sample) => {
                let elapsed = now.saturating_duration_since(sample.at);
                if elapsed < INTERVAL_MIN {
                    return sample.per_second;
                }
                total.saturating_sub(sample.total) as f64 / elapsed.as_secs_f64()
            }
        };
        *last = Some(Sample { at: now, total, per_second });
        per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_mean_since_the_last_sample() {
        let (rate, start) = (Rate::default(), Instant::now());
        let sample = |millis: u64, total: u64| rate.sample(start + Duration::from_millis(millis), total);
        assert_eq!(sample(0, 100), 0.0);
        assert_eq!(sample(900, 1100), 0.0);
        assert_eq!(sample(2000, 4100), 2000.0);
        assert_eq!(sample(2999, 9100), 2000.0);
        assert_eq!(sample(6000, 4101), 0.25);
        // `CONFIG RESETSTAT` sets counters to 0.
        assert_eq!(sample(12_000, 0), 0.0);
    }
}
