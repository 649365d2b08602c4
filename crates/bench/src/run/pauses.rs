//! Pauses: how many were longer than a millisecond, ten and fifty, and the longest; of a store, and
//! of the machine itself.
//!
//! A pause of the machine (its host runs another, the kernel runs something else) looks like a
//! pause of the store from inside a call. So two threads that use no store are measured the same
//! way: one that does nothing but read the clock, for a moment before the run while the machine is
//! idle; and one beside the run that sleeps for a millisecond at a time, and takes what it wakes
//! late for a pause. The second takes next to no processor time. It feels a lack of processors as
//! well, so it is a bound from above on what the machine did.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::run::procfs::{stolen_seconds, thread_cpu_seconds};

/// What a pause must be longer than to be counted, in ns.
pub(crate) const LONGER_THAN: [u64; 3] = [1_000_000, 10_000_000, 50_000_000];
/// How long the thread beside the run sleeps at a time.
const NAP: Duration = Duration::from_millis(1);
/// How long the clock is read before the run, at most.
pub(crate) const BEFORE_MOST: Duration = Duration::from_secs(5);

/// Pauses by their length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pauses {
    /// How many were longer than each of [`LONGER_THAN`].
    pub(crate) longer: [u64; 3],
    /// The longest, in ns.
    pub(crate) longest_ns: u64,
}

impl Pauses {
    /// Those of a histogram of calls, in ns, where a length is told to a thousandth of itself.
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

    /// Counts one of this length.
    pub(crate) fn note(&mut self, length: Duration) {
        let ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.longest_ns = self.longest_ns.max(ns);
        for (count, least) in self.longer.iter_mut().zip(LONGER_THAN) {
            *count += u64::from(ns > least);
        }
    }

    /// These and those, as of one run.
    pub(crate) fn and(self, other: &Self) -> Self {
        Self {
            longer: std::array::from_fn(|at| self.longer[at] + other.longer[at]),
            longest_ns: self.longest_ns.max(other.longest_ns),
        }
    }
}

/// What the machine did by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Of a thread that read the clock while the machine was idle.
    pub(crate) before: Pauses,
    /// How long it did, in seconds.
    pub(crate) before_s: f64,
    /// Processor time that this took, in seconds: less, where others ran.
    pub(crate) before_cpu_s: f64,
    /// Of a thread beside the run.
    pub(crate) beside: Pauses,
    /// Processor time that the host gave to others meanwhile, in seconds.
    pub(crate) stolen_s: f64,
}

impl Machine {
    /// This and that, as of one run.
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

/// Naps until `stop`, and counts how late it wakes.
fn nap(stop: &AtomicBool) -> Pauses {
    let mut pauses = Pauses::default();
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        std::thread::sleep(NAP);
        pauses.note(begun.elapsed().saturating_sub(NAP));
    }
    pauses
}

/// Does `work`, of about this length, and watches the machine before and beside it.
pub(crate) fn beside<T>(length: Duration, work: impl FnOnce() -> T) -> (T, Machine) {
    let before_for = (length / 4).min(BEFORE_MOST);
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
        // What runs beside others has less than all of a processor, and never more than one.
        spin(Duration::from_millis(400));
        let (_, machine) = beside(Duration::from_millis(400), || ());
        assert!(machine.before_cpu_s > 0.0 && machine.before_cpu_s < 0.15, "{machine:?}");
    }
}
