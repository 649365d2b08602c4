//! The rate of commands between two looks at their number.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shortest time between two looks that give a rate.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The number of commands at the last look, and the rate before it.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: Instant,
    commands: u64,
    per_second: u64,
}

/// A rate that is computed when it is asked for: the mean since the last look, which is at least a
/// second ago.
#[derive(Debug, Default)]
pub(super) struct Rate {
    last: Mutex<Option<Look>>,
}

impl Rate {
    /// Returns the commands a second. The first look returns 0.
    pub(super) fn look(&self, now: Instant, commands: u64) -> u64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let per_second = match *last {
            None => 0,
            Some(look) => {
                let elapsed = now.saturating_duration_since(look.at);
                if elapsed < INTERVAL_MIN {
                    return look.per_second;
                }
                (commands.saturating_sub(look.commands) as f64 / elapsed.as_secs_f64()).round() as u64
            }
        };
        *last = Some(Look { at: now, commands, per_second });
        per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_mean_since_the_last_look() {
        let (rate, start) = (Rate::default(), Instant::now());
        let look = |millis: u64, commands: u64| rate.look(start + Duration::from_millis(millis), commands);
        assert_eq!(look(0, 100), 0);
        assert_eq!(look(900, 1100), 0);
        assert_eq!(look(2000, 4100), 2000);
        assert_eq!(look(2999, 9100), 2000);
        assert_eq!(look(12_000, 4100), 0);
    }
}
