//! The rate limit of full copies and of moves of keys.

use std::time::{Duration, Instant};

/// Limits a byte rate by sleeping.
pub(crate) struct RateLimit {
    rate: u64,
    begun: Instant,
    bytes: u64,
}

impl RateLimit {
    /// Creates a limit in bytes per second; 0 for no limit.
    pub(crate) fn new(rate: u64) -> Self {
        Self { rate, begun: Instant::now(), bytes: 0 }
    }

    /// Counts `bytes` and sleeps until they are within the rate, or until `stops`.
    pub(crate) fn throttle(&mut self, bytes: usize, stops: &mut dyn FnMut() -> bool) {
        self.bytes += bytes as u64;
        if self.rate == 0 {
            return;
        }
        let due = Duration::from_secs_f64(self.bytes as f64 / self.rate as f64);
        while let Some(left) = due.checked_sub(self.begun.elapsed()).filter(|_| !stops()) {
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}
