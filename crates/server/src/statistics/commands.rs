//! Calls and times of each command.
//!
//! Each event loop has separate counters and is their only writer. A count is therefore a load and
//! a store without a locked instruction. Readers add the counters of all loops.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::command_specs::table::COMMANDS;

/// Buckets of a histogram for each power of 2.
const SUB_BUCKET_COUNT: usize = 4;

/// Buckets of a histogram: nanoseconds from 1 to `2^36`, or 69 seconds.
const BUCKET_COUNT: usize = SUB_BUCKET_COUNT * 36;

/// The counters of one command in one event loop.
#[derive(Debug)]
struct CommandCounters {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    buckets: [AtomicU64; BUCKET_COUNT],
}

/// The counters of one event loop, by the index of the command in the table.
#[derive(Debug)]
pub(crate) struct LoopCounters {
    commands: Vec<CommandCounters>,
}

/// The counters of one command, of all event loops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandTotals {
    pub(crate) calls: u64,
    pub(crate) nanoseconds: u64,
    /// Calls that were refused before they ran.
    pub(crate) rejected: u64,
    /// Calls that ran and failed.
    pub(crate) failed: u64,
    buckets: [u64; BUCKET_COUNT],
}

impl Default for CommandTotals {
    fn default() -> Self {
        Self { calls: 0, nanoseconds: 0, rejected: 0, failed: 0, buckets: [0; BUCKET_COUNT] }
    }
}

/// Adds to a counter of this thread.
fn add(counter: &AtomicU64, number: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(number), Ordering::Relaxed);
}

/// Returns the bucket of a time.
fn bucket_of(nanoseconds: u64) -> usize {
    let value = nanoseconds.max(1);
    let power = value.ilog2() as usize;
    // The two bits after the leading one choose the sub-bucket.
    let sub = if power >= 2 { (value >> (power - 2)) as usize & (SUB_BUCKET_COUNT - 1) } else { 0 };
    (power * SUB_BUCKET_COUNT + sub).min(BUCKET_COUNT - 1)
}

/// Returns the greatest time of a bucket in nanoseconds.
fn bucket_end(bucket: usize) -> u64 {
    let (power, sub) = (bucket / SUB_BUCKET_COUNT, bucket % SUB_BUCKET_COUNT);
    let base = 1_u64 << power;
    if power < 2 {
        return base * 2 - 1;
    }
    base + (base >> 2) * (sub as u64 + 1)
}

impl LoopCounters {
    pub(crate) fn new() -> Self {
        let counters = || CommandCounters {
            calls: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKET_COUNT],
        };
        Self { commands: COMMANDS.iter().map(|_| counters()).collect() }
    }

    /// Counts `calls` calls of a command with the total time `elapsed`.
    pub(crate) fn count_calls(&self, command: usize, calls: u64, elapsed: Duration) {
        if calls == 0 {
            return;
        }
        let counters = &self.commands[command];
        let nanoseconds = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        add(&counters.calls, calls);
        add(&counters.nanoseconds, nanoseconds);
        add(&counters.buckets[bucket_of(nanoseconds / calls)], calls);
    }

    /// Counts a call that was refused before it ran.
    pub(crate) fn count_rejected(&self, command: usize) {
        add(&self.commands[command].rejected, 1);
    }

    /// Counts a call that ran and failed.
    pub(crate) fn count_failed(&self, command: usize) {
        add(&self.commands[command].failed, 1);
    }

    pub(crate) fn add_to(&self, command: usize, totals: &mut CommandTotals) {
        let counters = &self.commands[command];
        totals.calls += counters.calls.load(Ordering::Relaxed);
        totals.nanoseconds += counters.nanoseconds.load(Ordering::Relaxed);
        totals.rejected += counters.rejected.load(Ordering::Relaxed);
        totals.failed += counters.failed.load(Ordering::Relaxed);
        for (total, bucket) in totals.buckets.iter_mut().zip(&counters.buckets) {
            *total += bucket.load(Ordering::Relaxed);
        }
    }

    /// Sets all counters to 0. A call that the loop counts at the same time may stay.
    pub(crate) fn reset(&self) {
        for counters in &self.commands {
            let single = [&counters.calls, &counters.nanoseconds, &counters.rejected, &counters.failed];
            single.into_iter().chain(&counters.buckets).for_each(|counter| counter.store(0, Ordering::Relaxed));
        }
    }
}

impl CommandTotals {
    /// Whether the command was never called.
    pub(crate) fn is_unused(&self) -> bool {
        self.calls + self.rejected == 0
    }

    /// Returns the microseconds that this share of the calls did not exceed.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let wanted = self.calls as f64 * percent / 100.0;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen > 0 && seen as f64 >= wanted {
                return bucket_end(bucket) as f64 / 1000.0;
            }
        }
        0.0
    }

    /// Returns the filled buckets: the longest time of the bucket in nanoseconds, and its calls.
    pub(crate) fn filled_buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, count)| **count > 0).map(|(bucket, count)| (bucket_end(bucket), *count))
    }

    /// Returns the calls by their time: for each power of 2 in nanoseconds its seconds, and the
    /// calls between the power before and this one. Infinity is the last bound.
    pub(crate) fn by_power(&self, powers: std::ops::RangeInclusive<usize>) -> Vec<(f64, u64)> {
        let mut start = 0;
        let mut count_to = |end: usize| {
            let calls = self.buckets.get(start..end).unwrap_or_default().iter().sum();
            start = end;
            calls
        };
        let mut result: Vec<(f64, u64)> =
            powers.map(|power| ((1_u64 << power) as f64 / 1e9, count_to(power * SUB_BUCKET_COUNT))).collect();
        result.push((f64::INFINITY, count_to(BUCKET_COUNT)));
        result
    }

    /// Returns powers of 2 in microseconds with the number of calls that were not longer. Powers
    /// without calls are omitted, as in Redis.
    pub(crate) fn cumulative(&self) -> Vec<(u64, u64)> {
        let mut result: Vec<(u64, u64)> = Vec::new();
        let mut sum = 0;
        for (bucket, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            sum += count;
            let microseconds = bucket_end(bucket).div_ceil(1000).next_power_of_two();
            match result.last_mut() {
                Some(last) if last.0 == microseconds => last.1 = sum,
                _ => result.push((microseconds, sum)),
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_after_its_times() {
        for time in [1, 2, 3, 4, 5, 7, 8, 1000, 1023, 1024, 123_456, 1 << 35] {
            let bucket = bucket_of(time);
            assert!(bucket_end(bucket) >= time, "{time}");
            assert!(bucket == 0 || bucket_end(bucket - 1) <= time.max(2), "{time}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKET_COUNT - 1);
    }

    #[test]
    fn the_counters_of_loops_are_added() {
        let (first, second) = (LoopCounters::new(), LoopCounters::new());
        first.count_calls(0, 3, Duration::from_micros(3));
        second.count_calls(0, 1, Duration::from_micros(100));
        second.count_failed(0);
        let mut totals = CommandTotals::default();
        first.add_to(0, &mut totals);
        second.add_to(0, &mut totals);
        assert_eq!((totals.calls, totals.nanoseconds, totals.failed), (4, 103_000, 1));
        assert!(totals.percentile(50.0) < 2.0);
        assert!(totals.percentile(99.0) >= 100.0);
        assert_eq!(totals.cumulative(), [(2, 3), (128, 4)]);
    }
}
