//! The open loop: operations are due at times that do not depend on the store, and a latency begins
//! when its operation was due.
//!
//! In a closed loop a thread asks again once it has its answer: while a store stalls it is asked
//! less, and the operations that would have waited are never measured (coordinated omission: G.
//! Tene, "How not to measure latency"; Schroeder, Wierman, Harchol-Balter, "Open versus closed: a
//! cautionary tale", NSDI 2006). Here each thread has a schedule of its own, as a connection has:
//! an answer that it waits for delays what is due on it, not what is due on the others. What is
//! late is done at once, so a store that cannot keep up has a queue that grows, and so do its
//! latencies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::args::Args;
use crate::run::phase::Phase;
use crate::workload::Workload;
use crate::workload::dist::Rng;

/// Rng stream of the first thread's arrivals.
const STREAM: u64 = 1 << 63;
/// What is left to wait where a thread stops sleeping and reads the clock instead: a sleep ends
/// some tens of microseconds late.
const SPIN: Duration = Duration::from_micros(200);
/// Longest sleep at a time, between two looks at whether the run is to end.
const NAP: Duration = Duration::from_millis(50);
/// The part of a schedule, at its end, in which every thread of a store that kept up has nothing
/// late to do at some time.
const END: f64 = 0.1;

/// How operations arrive in an open loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Arrivals {
    /// At equal distances.
    #[default]
    Even,
    /// At random, as from many users who know nothing of each other: the distances are exponential,
    /// and several come at once now and then.
    Poisson,
}

impl Arrivals {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Poisson => "poisson",
        }
    }
}

/// When operations are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Operations a second, of all threads together.
    pub(crate) rate: u64,
    /// Their distances.
    pub(crate) arrivals: Arrivals,
    /// Seed of what is random.
    pub(crate) seed: u64,
}

impl Pace {
    /// That of a workload; none where it runs at full speed, as the load always does.
    pub(crate) fn of(args: &Args, workload: Workload) -> Option<Self> {
        let rate = args.rate.filter(|_| workload != Workload::Load)?;
        Some(Self { rate, arrivals: args.arrivals, seed: args.seed })
    }

    /// How long it takes until so many operations were due.
    pub(crate) fn length(self, ops: u64) -> Duration {
        Duration::from_secs_f64(ops as f64 / self.rate as f64)
    }

    /// When the operations of one of so many threads are due, from the start on.
    pub(crate) fn schedule(self, thread: usize, threads: usize) -> Schedule {
        let rng = Rng::new(self.seed, STREAM | thread as u64);
        Schedule { pace: self, thread: thread as u64, threads: threads as u64, at: 0, ns: 0.0, rng }
    }
}

/// When the operations of a thread are due: without an end.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    pace: Pace,
    thread: u64,
    threads: u64,
    /// Operations so far.
    at: u64,
    /// When the last was due, of random arrivals.
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
    /// At its time.
    OnTime,
    /// It was past when the wait began.
    Late,
    /// The run is to end.
    Stopped,
}

/// Waits until then.
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
        if left > SPIN {
            std::thread::sleep((left - SPIN).min(NAP));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// What came of an open loop, in the results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OpenLoop {
    /// Operations a second asked for, of all threads together.
    pub(crate) asked_per_s: u64,
    /// Operations a second done, the median of the rounds.
    pub(crate) reached_per_s: f64,
    /// How they were due.
    pub(crate) arrivals: String,
    /// Whether each thread had nothing late to do at some time in the last tenth of its schedule,
    /// in every round: the queue did not grow.
    pub(crate) kept_up: bool,
    /// The longest in any round from when the last operation was due until all were done, in
    /// seconds.
    pub(crate) behind_s: f64,
}

impl OpenLoop {
    /// Operations a second of a phase. Its last operation takes as long as the others until the
    /// next would be due, so that a store which keeps up reaches what was asked, and no more but
    /// for chance where arrivals are random.
    pub(crate) fn rate(pace: Pace, phase: &Phase) -> f64 {
        phase.ops as f64 / phase.wall_s.max(phase.due_s + 1.0 / pace.rate as f64)
    }

    /// That of a workload's phases, which reached this rate.
    pub(crate) fn of(pace: Pace, phases: &[Phase], reached_per_s: f64) -> Self {
        let behind = |phase: &Phase| (phase.wall_s - phase.due_s).max(0.0);
        Self {
            asked_per_s: pace.rate,
            reached_per_s,
            arrivals: pace.arrivals.name().into(),
            kept_up: phases.iter().all(|phase| phase.late_for_s <= phase.due_s * END),
            behind_s: phases.iter().map(behind).fold(0.0, f64::max),
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
    use crate::run::cell;
    use crate::run::driver::{self, Drive};
    use crate::run::outcome::Outcome;
    use crate::run::target::{Account, Facts, Target};
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
        // No rounding adds up: a third of a second a million times.
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
            // The mean of so many has a deviation of a thousandth of it and three.
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

    /// A target that answers that nothing is there, some calls late, and notes when it was called.
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
        // Operation i was due after i ms, and none was done before 60: of 0 to 39 each lasted 20 at
        // least.
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
        assert_eq!((Pace::of(&paced, Workload::Load), Pace::of(&args(""), Workload::Get)), (None, None));
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
        // The second is due after 10 ms, and those after 20, 30 and 40 wait for it.
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
