//! A thread that observes a run: the maximum DRAM of the process, and for a timeline the progress
//! of a store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::procfs::Processes;
use crate::target::{Gauges, Target};

/// Interval of reading the anonymous memory.
const READ_INTERVAL: Duration = Duration::from_millis(20);
/// Checks per sample of a timeline: a sample every 100 ms.
const SAMPLE_READ_COUNT: u32 = 5;

/// Progress of one serving thread, on a separate cache line.
#[derive(Default)]
#[repr(align(128))]
struct Done(AtomicU64);

/// Operations that each serving thread of one run has done so far.
pub(crate) struct Progress {
    done: Vec<Done>,
    /// Number of times the watcher has read the memory and the operations. Tests wait for it.
    looks: AtomicU64,
}

impl Progress {
    /// Creates counters for this many threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self { done: (0..threads).map(|_| Done::default()).collect(), looks: AtomicU64::new(0) }
    }

    /// Returns the counter of a thread.
    pub(crate) fn of(&self, thread: usize) -> &AtomicU64 {
        &self.done[thread].0
    }

    fn all(&self) -> u64 {
        self.done.iter().map(|done| done.0.load(Ordering::Relaxed)).sum()
    }
}

/// The state at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Seconds since the store was created.
    pub(crate) at_s: f64,
    /// Operations of the workload done so far.
    pub(crate) ops: u64,
    /// Growth of anonymous memory since the store was empty.
    pub(crate) rss_anon_bytes: u64,
    /// The store's own count of its DRAM, including the fixed part.
    pub(crate) dram_bytes: Option<u64>,
    pub(crate) medium_bytes: u64,
    pub(crate) bytes_written: u64,
    pub(crate) table_flushes: Option<u64>,
    pub(crate) compactions: Option<u64>,
    /// Adaptive values.
    pub(crate) gauges: Gauges,
}

/// The samples of one workload of one store in one round.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    pub(crate) store: String,
    pub(crate) round: usize,
    pub(crate) workload: String,
    pub(crate) samples: Vec<Sample>,
}

/// The watched objects, and reference values.
pub(crate) struct Watch<'a> {
    pub(crate) target: &'a dyn Target,
    pub(crate) progress: &'a Progress,
    /// Creation time of the store.
    pub(crate) begun: Instant,
    /// Anonymous memory with the store still empty.
    pub(crate) rss_empty: u64,
    /// The processes whose memory counts.
    pub(crate) processes: Processes,
    /// Whether samples are recorded.
    pub(crate) timeline: bool,
}

/// The observations.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Maximum anonymous memory above that of the empty store, sampled every 20 ms.
    pub(crate) peak_rss_bytes: u64,
    pub(crate) samples: Vec<Sample>,
}

impl Watch<'_> {
    /// Runs `work` and watches it. The first sample is from its beginning, the last from its end.
    pub(crate) fn over<T>(&self, work: impl FnOnce() -> T) -> (T, Seen) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| self.look_until(&stop));
            let done = work();
            stop.store(true, Ordering::Relaxed);
            watcher.thread().unpark();
            (done, watcher.join().expect("the watcher only reads"))
        })
    }

    fn look_until(&self, stop: &AtomicBool) -> Seen {
        let (mut seen, mut looks, mut next) = (Seen::default(), 0, Instant::now());
        loop {
            // Read before the check, so that the last check is after the end.
            let last = stop.load(Ordering::Relaxed);
            let rss = self.processes.rss_anon().saturating_sub(self.rss_empty);
            seen.peak_rss_bytes = seen.peak_rss_bytes.max(rss);
            if self.timeline && (last || looks % SAMPLE_READ_COUNT == 0) {
                seen.samples.push(self.sample(rss));
            }
            if last {
                return seen;
            }
            looks += 1;
            self.progress.looks.store(looks.into(), Ordering::Release);
            next += READ_INTERVAL;
            while !stop.load(Ordering::Relaxed) && Instant::now() < next {
                std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
            }
        }
    }

    fn sample(&self, rss_anon_bytes: u64) -> Sample {
        let account = self.target.account();
        Sample {
            at_s: self.begun.elapsed().as_secs_f64(),
            ops: self.progress.all(),
            rss_anon_bytes,
            dram_bytes: account.dram_bytes.map(|bytes| bytes + account.dram_fixed_bytes),
            medium_bytes: account.medium_used_bytes,
            bytes_written: account.bytes_written,
            table_flushes: account.table_flushes,
            compactions: account.compactions,
            gauges: account.gauges,
        }
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::testing::{HANG_TIMEOUT, runs_alone};

    use super::*;
    use crate::peers;

    /// Waits until the watcher has looked `count` more times.
    fn wait_for_looks(progress: &Progress, count: u64) {
        let (begun, goal) = (Instant::now(), progress.looks.load(Ordering::Acquire) + count);
        while progress.looks.load(Ordering::Acquire) < goal {
            assert!(begun.elapsed() < HANG_TIMEOUT, "nobody watches");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn watch(timeline: bool, work: impl FnOnce(&Progress)) -> Seen {
        let target = peers::open("btreemap", std::path::Path::new(""), &peers::Asked::default()).expect("a map");
        let progress = Progress::new(2);
        let (processes, begun) = (Processes::of(&*target), Instant::now());
        let watch = Watch {
            target: &*target,
            progress: &progress,
            begun,
            rss_empty: processes.rss_anon(),
            processes,
            timeline,
        };
        watch.over(|| work(&progress)).1
    }

    #[test]
    fn the_first_sample_is_from_the_beginning_and_the_last_from_the_end() {
        let seen = watch(true, |progress| {
            // The first sample, and one more.
            wait_for_looks(progress, u64::from(SAMPLE_READ_COUNT) + 1);
            progress.of(0).store(40, Ordering::Relaxed);
            progress.of(1).store(2, Ordering::Relaxed);
        });
        let (first, last) = (seen.samples[0], seen.samples[seen.samples.len() - 1]);
        assert_eq!((first.ops, last.ops), (0, 42));
        assert!(seen.samples.len() >= 3 && seen.samples.windows(2).all(|two| two[0].at_s <= two[1].at_s));
    }

    #[test]
    fn the_most_memory_is_seen_even_when_it_is_given_back() {
        if !runs_alone("run::watch::tests::the_most_memory_is_seen_even_when_it_is_given_back") {
            return;
        }
        let seen = watch(false, |progress| {
            let held = vec![1_u8; 96 << 20];
            // The first of these looks may have begun before the allocation.
            wait_for_looks(progress, 2);
            assert_eq!(held[95 << 20], 1);
        });
        assert!(seen.peak_rss_bytes >= 64 << 20, "{}", seen.peak_rss_bytes);
        assert!(seen.samples.is_empty());
    }
}
