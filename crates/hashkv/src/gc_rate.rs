//! Rate limit of background collections.

use std::time::{Duration, Instant};

/// Maximum wait. Bytes that a flush has collected itself must not stop the background thread for
/// minutes.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Computes how long the background thread must wait to keep collections to a rate. Bytes that
/// flushes collect themselves count, but never make a flush wait.
#[derive(Debug)]
pub(crate) struct GcRateLimit {
    /// Bytes per second; 0: no limit.
    rate: u64,
    /// Bytes at the last call.
    seen: u64,
    /// Time at which the bytes seen conform to the rate.
    due: Instant,
}

impl GcRateLimit {
    pub(crate) fn new(rate: u64, now: Instant) -> Self {
        Self { rate, seen: 0, due: now }
    }

    /// Returns how long to wait from `now` on, with `bytes` read and written since the open.
    pub(crate) fn wait(&mut self, bytes: u64, now: Instant) -> Duration {
        let new = bytes.saturating_sub(self.seen);
        self.seen = bytes;
        if self.rate == 0 {
            return Duration::ZERO;
        }
        // Idle time is not saved up: no burst follows a pause.
        let cost = Duration::from_secs_f64(new as f64 / self.rate as f64);
        self.due = (self.due.max(now) + cost).min(now + WAIT_MAX);
        self.due - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn collections_keep_their_rate_and_accumulate_no_credit() {
        let begin = Instant::now();
        let mut limit = GcRateLimit::new(MIB, begin);
        assert_eq!(limit.wait(2 * MIB, begin), Duration::from_secs(2));
        assert_eq!(limit.wait(2 * MIB, begin + Duration::from_secs(2)), Duration::ZERO, "what is paid is paid");
        let later = begin + Duration::from_secs(60);
        assert_eq!(limit.wait(3 * MIB, later), Duration::from_secs(1), "a minute's rest saves nothing up");
        assert_eq!(limit.wait(4 * MIB, later), Duration::from_secs(2), "what others did meanwhile counts");
    }

    /// A flush that does not fit collects at any rate.
    #[test]
    fn collections_by_flushes_delay_the_background_thread_by_at_most_ten_seconds() {
        let begin = Instant::now();
        let mut limit = GcRateLimit::new(MIB, begin);
        let longest = Duration::from_secs(10);
        assert_eq!(limit.wait(u64::MAX, begin), longest);
        let mut limit = GcRateLimit::new(MIB, begin);
        for turn in 1..100 {
            assert_eq!(limit.wait(turn * 600 * MIB, begin), longest);
        }
        assert_eq!(limit.wait(99 * 600 * MIB, begin + longest), Duration::ZERO, "nothing is owed behind it");
    }

    #[test]
    fn without_a_rate_there_is_no_wait() {
        let now = Instant::now();
        assert_eq!(GcRateLimit::new(0, now).wait(1 << 40, now), Duration::ZERO);
    }
}
