//! Pauses of a store, and of the machine itself: how many were longer than 1, 10 and 50 ms, and the
//! maximum.
//!
//! From inside a call, a pause of the machine (its host or kernel runs something else) looks like a
//! pause of the store. Two threads without a store are therefore measured the same way:
//! * Before the run, on the idle machine, a thread only reads the clock for a moment.
//! * During the run, a thread sleeps for a millisecond at a time. A late wake-up counts as a pause.
//!   The thread needs almost no CPU time. A lack of processors also delays the thread, so it gives
//!   an upper bound on the machine's pauses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::procfs::{stolen_seconds, thread_cpu_seconds};

/// Pauses longer than these are counted, in ns.
pub(crate) const LONGER_THAN: [u64; 3] = [1_000_000, 10_000_000, 50_000_000];
/// Sleep time of the concurrent thread.
const SLEEP_TIME: Duration = Duration::from_millis(1);
/// Maximum time of reading the clock before the run.
pub(crate) const BEFORE_TIME_MAX: Duration = Duration::from_secs(5);

/// Pauses by their length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pauses {
    /// Number of pauses longer than each of [`LONGER_THAN`].
    pub(crate) longer: [u64; 3],
    /// Maximum, in ns.
    pub(crate) longest_ns: u64,
}

impl Pauses {
    /// Returns the pauses of a histogram of calls in ns, which has a precision of a thousandth.
    pub(crate) fn of(latency: &Histogram<u64>) -> Self {
        let longer = LONGER_THAN.map(|least| {
            latency
                .iter_recorded()
                .filter(|value| value.value_iterated_to() > least)
                .map(|value| value.count_at_value())
                .sum()
        });
        Self { longer, longest_ns: latency.max() }
    }

    /// Counts a pause of this length.
    pub(crate) fn note(&mut self, length: Duration) {
        let ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.longest_ns = self.longest_ns.max(ns);
        for (count, least) in self.longer.iter_mut().zip(LONGER_THAN) {
            *count += u64::from(ns > least);
        }
    }

    /// Returns the sum of both, as of one run.
    pub(crate) fn and(self, other: &Self) -> Self {
        Self {
            longer: std::array::from_fn(|at| self.longer[at] + other.longer[at]),
            longest_ns: self.longest_ns.max(other.longest_ns),
        }
    }
}

/// Pauses of the machine itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Pauses of a thread that read the clock while the machine was idle.
    pub(crate) before: Pauses,
    /// Duration of that, in seconds.
    pub(crate) before_s: f64,
    /// CPU time of that, in seconds: less if other processes ran.
    pub(crate) before_cpu_s: f64,
    /// Pauses of a thread concurrent with the run.
    pub(crate) beside: Pauses,
    /// CPU time that the host gave to other machines meanwhile, in seconds.
    pub(crate) stolen_s: f64,
}

impl Machine {
    /// Returns the sum of both, as of one run.
    pub(crate) fn and(self, other: &Self) -> Self {
        Self {
            before: self.before.and(&other.before),
            before_s: self.before_s + other.before_s,
            before_cpu_s: self.before_cpu_s + other.before_cpu_s,
            beside: self.beside.and(&other.beside),
            stolen_s: self.stolen_s + other.stolen_s,
        }
    }
}

/// Reads the clock for this long.
pub(crate) fn spin(length: Duration) -> Pauses {
    let (begun, mut pauses) = (Instant::now(), Pauses::default());
    let mut last = begun;
    while last - begun < length {
        let now = Instant::now();
        pauses.note(now - last);
        last = now;
    }
    pauses
}

/// Sleeps repeatedly until `stop`, and counts late wake-ups.
fn nap(stop: &AtomicBool) -> Pauses {
    let mut pauses = Pauses::default();
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        std::thread::sleep(SLEEP_TIME);
        pauses.note(begun.elapsed().saturating_sub(SLEEP_TIME));
    }
    pauses
}

/// Runs `work`, of about this length, and watches the machine before and during it.
pub(crate) fn beside<T>(length: Duration, work: impl FnOnce() -> T) -> (T, Machine) {
    let before_for = (length / 4).min(BEFORE_TIME_MAX);
    let cpu = thread_cpu_seconds();
    let before = spin(before_for);
    let before_cpu_s = thread_cpu_seconds() - cpu;
    let (stop, stolen) = (AtomicBool::new(false), stolen_seconds());
    let (done, beside) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| nap(&stop));
        let done = work();
        stop.store(true, Ordering::Relaxed);
        (done, watcher.join().expect("the watcher does nothing that panics"))
    });
    let stolen_s = stolen_seconds() - stolen;
    (done, Machine { before, before_s: before_for.as_secs_f64(), before_cpu_s, beside, stolen_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_counted_by_what_they_are_longer_than() {
        let mut pauses = Pauses::default();
        for ns in [10, 1_000_000, 1_000_001, 9_000_000, 11_000_000, 60_000_000] {
            pauses.note(Duration::from_nanos(ns));
        }
        assert_eq!(pauses, Pauses { longer: [4, 2, 1], longest_ns: 60_000_000 });
        assert_eq!(pauses.and(&pauses), Pauses { longer: [8, 4, 2], longest_ns: 60_000_000 });
    }

    #[test]
    fn a_histogram_tells_the_same_as_one_by_one() {
        let lengths = [500, 990_000, 1_010_000, 9_000_000, 11_000_000, 49_000_000, 51_000_000, 70_000_000];
        let (mut latency, mut pauses) = (Histogram::new_with_bounds(1, 1 << 40, 3).expect("bounds"), Pauses::default());
        for ns in lengths {
            latency.record(ns).expect("within the bounds");
            pauses.note(Duration::from_nanos(ns));
        }
        assert_eq!(Pauses::of(&latency).longer, pauses.longer);
        assert_eq!(pauses.longer, [6, 4, 2]);
    }

    #[test]
    fn the_machine_is_watched_before_and_beside_the_work() {
        let (done, machine) = beside(Duration::from_millis(80), || {
            std::thread::sleep(Duration::from_millis(40));
            7
        });
        assert_eq!(done, 7);
        assert!(machine.before.longest_ns > 0 && machine.beside.longest_ns > 0, "{machine:?}");
        assert!((machine.before_s - 0.02).abs() < 1e-9);
        // A concurrent thread has less than all of a processor, and never more than one.
        spin(Duration::from_millis(400));
        let (_, machine) = beside(Duration::from_millis(400), || ());
        assert!(machine.before_cpu_s > 0.0 && machine.before_cpu_s < 0.15, "{machine:?}");
    }
}
