//! The open loop: operations are due at times that do not depend on the store, and a latency begins
//! at the due time of its operation.
//!
//! In a closed loop a thread sends its next request after the reply. While a store stalls it
//! receives fewer requests, and the operations that would have waited are never measured
//! (coordinated omission: G. Tene, "How not to measure latency"; Schroeder, Wierman,
//! Harchol-Balter, "Open versus closed: a cautionary tale", NSDI 2006).
//!
//! Here each thread has its own schedule, as a connection has. A slow reply delays the operations
//! of its own thread only. Late operations are sent at once. A store that cannot keep up therefore
//! has a growing queue, and growing latencies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::workload::dist::Rng;

/// Rng stream of the first thread's arrivals.
const FIRST_STREAM_ID: u64 = 1 << 63;
/// Remaining wait at which a thread stops sleeping and reads the clock instead. A sleep ends some
/// tens of microseconds late.
const SPIN_TIME: Duration = Duration::from_micros(200);
/// Maximum sleep between two checks for the end of the run.
const SLEEP_TIME_MAX: Duration = Duration::from_millis(50);

/// How operations arrive in an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Arrivals {
    /// At equal intervals.
    #[default]
    Even,
    /// At random, as from many independent users: intervals are exponential, and several operations
    /// sometimes arrive at once.
    Poisson,
}

impl Arrivals {
    /// Returns its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Poisson => "poisson",
        }
    }
}

/// The due times of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Operations per second, of all threads together.
    pub(crate) rate: u64,
    /// Their intervals.
    pub(crate) arrivals: Arrivals,
    /// Seed of the random intervals.
    pub(crate) seed: u64,
}

impl Pace {
    /// Returns the time until `ops` operations were due.
    pub(crate) fn length(self, ops: u64) -> Duration {
        Duration::from_secs_f64(ops as f64 / self.rate as f64)
    }

    /// Returns the due times of the operations of one of `threads` threads, since the start.
    pub(crate) fn schedule(self, thread: usize, threads: usize) -> Schedule {
        let rng = Rng::new(self.seed, FIRST_STREAM_ID | thread as u64);
        Schedule { pace: self, thread: thread as u64, threads: threads as u64, at: 0, ns: 0.0, rng }
    }
}

/// The due times of a thread's operations, without an end.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    pace: Pace,
    thread: u64,
    threads: u64,
    /// Number of operations so far.
    at: u64,
    /// Due time of the last operation, for random arrivals.
    ns: f64,
    rng: Rng,
}

impl Iterator for Schedule {
    type Item = Duration;

    #[inline]
    fn next(&mut self) -> Option<Duration> {
        let ns = match self.pace.arrivals {
            Arrivals::Even => {
                let place = u128::from(self.thread) + u128::from(self.at) * u128::from(self.threads);
                self.at += 1;
                (place * 1_000_000_000 / u128::from(self.pace.rate)) as u64
            }
            Arrivals::Poisson => {
                let mean = self.threads as f64 * 1e9 / self.pace.rate as f64;
                self.ns -= (1.0 - self.rng.unit()).ln() * mean;
                self.ns as u64
            }
        };
        Some(Duration::from_nanos(ns))
    }
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// At the due time.
    OnTime,
    /// The due time had passed when the wait began.
    Late,
    /// The run must end.
    Stopped,
}

/// Waits until `due`.
#[inline]
pub(crate) fn wait_until(due: Instant, stop: &AtomicBool) -> Waited {
    let mut waited = Waited::Late;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Waited::Stopped;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return waited;
        }
        waited = Waited::OnTime;
        if left > SPIN_TIME {
            std::thread::sleep((left - SPIN_TIME).min(SLEEP_TIME_MAX));
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU64;

    use lodestore_contract::{Error, Result};

    use crate::args::parsed;
    use crate::report::open_loop::OpenLoop;
    use crate::run::cell;
    use crate::run::driver::{self, Drive};
    use crate::run::outcome::Outcome;
    use crate::run::phase::Phase;
    use crate::target::{Account, Facts, Target};
    use crate::workload::Workload;
    use crate::workload::stream::{Kind, Op};

    const SEED: u64 = 20_170_712;

    fn pace(rate: u64, arrivals: Arrivals) -> Pace {
        Pace { rate, arrivals, seed: SEED }
    }

    #[test]
    fn even_arrivals_of_all_threads_together_are_a_period_apart() {
        for threads in [1, 3, 4] {
            let schedule = |thread| pace(1000, Arrivals::Even).schedule(thread, threads).take(100);
            let mut all: Vec<_> = (0..threads).flat_map(schedule).collect();
            all.sort_unstable();
            let should: Vec<_> = (0..all.len() as u64).map(Duration::from_millis).collect();
            assert_eq!(all, should, "{threads} threads");
        }
        // No rounding accumulates: a third of a second, a million times.
        let last = pace(3, Arrivals::Even).schedule(0, 1).nth(1_000_000).expect("there is no end");
        assert_eq!(last, Duration::from_nanos(333_333_333_333_333));
    }

    #[test]
    fn a_schedule_is_as_long_as_its_operations_take() {
        for arrivals in [Arrivals::Even, Arrivals::Poisson] {
            let pace = pace(2000, arrivals);
            let last = pace.schedule(0, 1).nth(99_999).expect("there is no end").as_secs_f64();
            assert!((last / pace.length(100_000).as_secs_f64() - 1.0).abs() < 0.016, "{arrivals:?}: {last}");
        }
    }

    #[test]
    fn random_arrivals_have_the_rate_and_exponential_distances() {
        let (threads, draws) = (4, 100_000);
        let dues: Vec<Vec<Duration>> = (0..threads)
            .map(|thread| pace(1_000_000, Arrivals::Poisson).schedule(thread, threads).take(draws).collect())
            .collect();
        let mean = 4000.0;
        for due in &dues {
            assert!(due.windows(2).all(|two| two[0] <= two[1]), "seed {SEED}");
            let length = due[draws - 1].as_nanos() as f64 / draws as f64;
            // The mean of this many has a deviation of 0.3 %.
            assert!((length / mean - 1.0).abs() < 0.016, "seed {SEED}: {length} for {mean}");
            let gaps = due.windows(2).map(|two| (two[1] - two[0]).as_nanos() as f64);
            let longer = gaps.filter(|gap| *gap > 3.0 * mean).count() as f64 / draws as f64;
            // e^-3, with a deviation of 0.0007.
            assert!((longer - 0.0498).abs() < 0.0035, "seed {SEED}: {longer}");
        }
        assert_ne!(dues[0], dues[1], "each thread has its own");
        let again = pace(1_000_000, Arrivals::Poisson).schedule(0, threads).take(draws);
        assert_eq!(again.collect::<Vec<_>>(), dues[0]);
    }

    /// A target without keys. Some of its calls are late, and it records the times of the calls.
    struct Slow {
        stalls: fn(u64) -> Duration,
        calls: AtomicU64,
        when: Mutex<Vec<Instant>>,
    }

    impl Slow {
        fn new(stalls: fn(u64) -> Duration) -> Self {
            Self { stalls, calls: AtomicU64::new(0), when: Mutex::new(Vec::new()) }
        }
    }

    impl Target for Slow {
        fn facts(&self) -> Facts {
            Facts::default()
        }
        fn account(&self) -> Account {
            Account::default()
        }
        fn get(&self, _: &[u8], _: &mut Vec<u8>) -> Result<bool> {
            self.when.lock().expect("no panic").push(Instant::now());
            std::thread::sleep((self.stalls)(self.calls.fetch_add(1, Ordering::Relaxed)));
            Ok(false)
        }
        fn multi_get(&self, _: &[&[u8]], _: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
            Ok(())
        }
        fn put(&self, _: &[u8], _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn update(&self, _: &[u8], _: &[u8]) -> Result<bool> {
            Ok(false)
        }
        fn delete(&self, _: &[u8]) -> Result<bool> {
            Ok(false)
        }
        fn scan(&self, _: &[u8], _: usize, _: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
            Ok(0)
        }
        fn catch_up(&self) -> Result<()> {
            Ok(())
        }
        fn settle(&self) -> Result<()> {
            Ok(())
        }
        fn close(&self) -> Result<()> {
            Ok(())
        }
    }

    fn paced(target: &Slow, rate: u64, threads: usize, ops: usize) -> Outcome {
        let streams = vec![vec![Op { record: 1, length: 0, kind: Kind::Absent }; ops]; threads];
        let drive = Drive { pace: Some(pace(rate, Arrivals::Even)), ..cell::drive(&parsed("--latency-every 0")) };
        driver::run(target, &streams, &drive).expect("it ran")
    }

    #[test]
    fn what_waits_behind_a_stall_is_late_from_when_it_was_due() {
        let target = Slow::new(|call| Duration::from_millis(if call == 0 { 60 } else { 0 }));
        let outcome = paced(&target, 1000, 1, 100);
        assert_eq!((outcome.counts.ops, outcome.latency.len()), (100, 100), "each is timed");
        // Operation i was due after i ms, and none was done before 60. Each of 0 to 39 lasted at
        // least 20.
        let late = outcome.latency.count_between(19_900_000, u64::MAX);
        assert!(late >= 40, "{late}");
    }

    #[test]
    fn a_rate_is_taken_by_workloads_that_have_one_and_said_again() {
        let args = |words: &str| parsed(&format!("--engine btreemap {words}"));
        for words in [
            "--rate 1000 --workloads get,multiget",
            "--rate 1000 --workloads overload",
            "--rate 1000 --workloads get,idle",
            "--rate 1000 --workloads load",
            "--sweep rate=1000,2000 --workloads load",
            "--rate 0 --workloads get",
            "--rate 1000",
        ] {
            let refused = args(words).check();
            assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{words}: {refused:?}");
        }
        let paced = args("--rate 1000 --arrivals poisson --workloads load,get,a");
        paced.check().expect("they can be run");
        assert!(paced.command(&paced.workloads).contains(" --rate 1000 --arrivals poisson "));
        assert!(!paced.command(&[Workload::Load]).contains("--rate"), "the load runs at full speed");
        assert_eq!((paced.pace(Workload::Load), args("").pace(Workload::Get)), (None, None));
        let swept = args("--sweep rate=1000,2000 --workloads get");
        swept.check().expect("they can be run");
        let rates: Vec<_> = swept.variants().expect("variants").iter().map(|variant| variant.args.rate).collect();
        assert_eq!(rates, [Some(1000), Some(2000)]);
    }

    #[test]
    fn nothing_is_asked_before_it_is_due() {
        let target = Slow::new(|_| Duration::ZERO);
        let before = Instant::now();
        let outcome = paced(&target, 1000, 2, 25);
        let mut when = target.when.lock().expect("no panic").clone();
        when.sort_unstable();
        for (place, at) in when.iter().enumerate() {
            assert!(*at - before >= Duration::from_millis(place as u64), "call {place}");
        }
        assert_eq!(outcome.counts.due, Duration::from_millis(49));
        assert!(outcome.wall >= outcome.counts.due, "{:?}", outcome.wall);
    }

    #[test]
    fn a_store_that_is_asked_for_too_much_could_not_keep_up() {
        let target = Slow::new(|_| Duration::from_millis(1));
        let outcome = paced(&target, 100_000, 1, 50);
        assert_eq!(outcome.counts.late_for, outcome.counts.due, "it was late from the start");
        let phase = |wall_s, late_for_s| Phase { wall_s, due_s: 10.0, late_for_s, ops: 50, ..Phase::default() };
        let (good, bad) = (phase(10.2, 0.9), phase(10.1, 1.1));
        let told = |phases: &[Phase]| OpenLoop::of(pace(100_000, Arrivals::Even), phases, 1.0);
        assert!(told(&[good.clone(), good.clone()]).kept_up, "a pause at the end is none of a queue that grows");
        let mixed = told(&[good, bad]);
        assert!(!mixed.kept_up && (mixed.behind_s - 0.2).abs() < 1e-9, "one round is enough");
    }

    #[test]
    fn a_thread_has_caught_up_when_it_waits_again() {
        let stop = AtomicBool::new(false);
        let now = Instant::now();
        assert_eq!(wait_until(now, &stop), Waited::Late);
        assert_eq!(wait_until(now + Duration::from_millis(500), &stop), Waited::OnTime);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(wait_until(now + Duration::from_secs(3600), &stop), Waited::Stopped);
        let waits = paced(&Slow::new(|_| Duration::ZERO), 2, 1, 2);
        assert_eq!((waits.counts.due, waits.counts.late_for), (Duration::from_millis(500), Duration::ZERO));
        // The second is due after 10 ms, and the operations due after 20, 30 and 40 ms wait for it.
        let late = paced(&Slow::new(|call| Duration::from_millis(if call == 1 { 60 } else { 0 })), 100, 1, 5);
        assert!(late.counts.late_for >= Duration::from_millis(30), "{:?}", late.counts.late_for);
    }
    #[test]
    fn a_store_that_keeps_up_reaches_what_was_asked_and_no_more() {
        // The last of 6 was due a second after the first.
        let rate = |wall_s, ops| {
            let phase = Phase { wall_s, due_s: 1.0, ops, ..Phase::default() };
            OpenLoop::rate(pace(5, Arrivals::Even), &phase)
        };
        assert!((rate(1.001, 6) - 5.0).abs() < 1e-9 && (rate(1.2, 6) - 5.0).abs() < 1e-9);
        assert!((rate(3.0, 6) - 2.0).abs() < 1e-9, "this one did not");
    }
}
