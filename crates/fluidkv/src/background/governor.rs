//! Adapts migration to the workload (FluidKV, PVLDB 2024: the stages follow the workload; the
//! paper's code has three modes, chosen by one client's share of writes).
//!
//! Measurements. Each is a moving mean, of which a new sample replaces a quarter:
//! * W: bytes of log per second, and the share of writes among all operations. Sampled every
//!   [`SAMPLE_INTERVAL`].
//! * F: bytes of log that one worker flushes per second. C: bytes that one worker compacts per
//!   second. Both count only the time of the work itself: they measure the medium's bandwidth that
//!   this store gets next to all other load. Sampled by each flush and compaction.
//! * A: bytes compacted per byte of log. Sampled every [`SAMPLE_INTERVAL`] that has new log. Log
//!   grows by whole segments: bytes compacted in ticks without a new segment count with the next
//!   one.
//!
//! Rules:
//! * **Workers**: W/F + A W/C workers are needed. At most 1.5 times as many may work, rounded up,
//!   and at least one. All workers may work while a memtable waits in addition to the one that is
//!   being flushed: the DRAM budget is being used up.
//! * **Compaction trigger**: `buffer-percent` while at least half of the operations are writes, and
//!   a quarter of that while most are reads. Twice that while a memtable waits, so that flushes get
//!   the bandwidth (`runs-max` bounds the trigger).
//! * **Flush trigger**: a memtable is frozen at `memtable-bytes` of log, or at its share of the
//!   DRAM budget if that is reached first. In a small store the limit of the log is lower
//!   (`Sizes::memtable_log_bytes`).
//! * No writes at all: see `background/mod.rs`.
//!
//! Without workers nothing is measured, so that each run of a program behaves the same.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lodestore_contract::threads::lock;

/// Interval between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
/// Share of a mean that a new sample replaces.
const SAMPLE_RATIO: f64 = 0.25;
/// Flush bandwidth assumed before the first flush, in bytes per second.
const FLUSH_BANDWIDTH_DEFAULT: f64 = 100e6;
/// Allowed workers per needed worker.
const SPARE_WORKERS_FACTOR: f64 = 1.5;
/// Factors of the compaction trigger, in percent: while a memtable waits, while writes prevail,
/// while reads prevail.
const SCALES: [u64; 3] = [200, 100, 25];

/// A sample of the store's counters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    /// Total bytes of log, approximately.
    pub(crate) logged: u64,
    /// Total writes and reads, approximately.
    pub(crate) writes: u64,
    pub(crate) reads: u64,
    /// Memtables that wait for a flush or are being flushed.
    pub(crate) frozen: usize,
}

#[derive(Default)]
struct Means {
    read: Option<(Instant, Sample)>,
    /// Bytes compacted since the last sample that had new log.
    compacted: u64,
    write_rate: f64,
    write_share: f64,
    flush_rate: f64,
    /// Bytes of log per second of whole flushes, for all of a flush's threads together.
    flush_bandwidth: f64,
    compaction_rate: f64,
    amplification: f64,
}

/// Decides how many workers may work and when ranges are compacted. See the module.
pub(crate) struct Governor {
    workers: usize,
    means: Mutex<Means>,
    allowed: AtomicUsize,
    scale: AtomicU64,
}

fn renew(mean: &mut f64, new: f64) {
    *mean = if *mean == 0.0 { new } else { *mean * (1.0 - SAMPLE_RATIO) + new * SAMPLE_RATIO };
}

impl Governor {
    /// Creates a governor for a store with this many workers.
    pub(crate) fn new(workers: usize) -> Self {
        let allowed = AtomicUsize::new(workers.max(1));
        Self { workers, means: Mutex::default(), allowed, scale: AtomicU64::new(SCALES[1]) }
    }

    /// Returns how many workers may work at a time.
    pub(crate) fn allowed(&self) -> usize {
        self.allowed.load(Ordering::Relaxed)
    }

    /// Returns the factor by which the compaction trigger is multiplied.
    pub(crate) fn trigger(&self) -> f64 {
        self.scale.load(Ordering::Relaxed) as f64 / 100.0
    }

    /// Records a flush of `bytes` of log by this many worker threads.
    pub(crate) fn note_flush(&self, bytes: u64, took: Duration, by: usize) {
        if self.workers > 0 && !took.is_zero() {
            let bandwidth = bytes as f64 / took.as_secs_f64();
            let mut means = lock(&self.means);
            renew(&mut means.flush_rate, bandwidth / by.max(1) as f64);
            renew(&mut means.flush_bandwidth, bandwidth);
        }
    }

    /// Returns the flush bandwidth in bytes of log per second. Before the first flush, returns the
    /// bandwidth of a slow disk.
    pub(crate) fn flush_bandwidth(&self) -> f64 {
        let measured = lock(&self.means).flush_bandwidth;
        if measured > 0.0 { measured } else { FLUSH_BANDWIDTH_DEFAULT }
    }

    /// Records a compaction and the bytes that it wrote.
    pub(crate) fn note_compaction(&self, bytes: u64, took: Duration) {
        if self.workers > 0 && bytes > 0 && !took.is_zero() {
            let mut means = lock(&self.means);
            means.compacted += bytes;
            renew(&mut means.compaction_rate, bytes as f64 / took.as_secs_f64());
        }
    }

    /// Takes a sample and renews the decisions if [`SAMPLE_INTERVAL`] has passed. Any worker may
    /// call this.
    pub(crate) fn tick(&self, now: Instant, sample: impl FnOnce() -> Sample) {
        let mut means = lock(&self.means);
        let elapsed = means.read.map_or(Duration::MAX, |(then, _)| now.saturating_duration_since(then));
        if elapsed < SAMPLE_INTERVAL {
            return;
        }
        let sample = sample();
        if let Some((_, before)) = means.read {
            means.renew(&before, &sample, elapsed.as_secs_f64());
        }
        means.read = Some((now, sample));
        let waits = sample.frozen > 1;
        let allowed = if waits { self.workers } else { (means.needed() * SPARE_WORKERS_FACTOR).ceil() as usize };
        self.allowed.store(allowed.clamp(1, self.workers.max(1)), Ordering::Relaxed);
        let scale = match (waits, means.write_share >= 0.5) {
            (true, _) => SCALES[0],
            (false, true) => SCALES[1],
            (false, false) => SCALES[2],
        };
        self.scale.store(scale, Ordering::Relaxed);
    }

    /// Returns five rates. Per second: bytes of log, bytes that a worker flushes, bytes that a
    /// worker compacts. Then writes per 1000 operations, and bytes compacted per 100 bytes of log.
    pub(crate) fn rates(&self) -> [u64; 5] {
        let means = lock(&self.means);
        let (share, amplification) = (means.write_share * 1000.0, means.amplification * 100.0);
        [means.write_rate, means.flush_rate, means.compaction_rate, share, amplification].map(|mean| mean as u64)
    }
}

impl Means {
    fn renew(&mut self, before: &Sample, now: &Sample, seconds: f64) {
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let logged = since(now.logged, before.logged);
        renew(&mut self.write_rate, logged / seconds);
        let (writes, reads) = (since(now.writes, before.writes), since(now.reads, before.reads));
        if writes + reads > 0.0 {
            renew(&mut self.write_share, writes / (writes + reads));
        }
        if logged > 0.0 {
            let compacted = std::mem::take(&mut self.compacted) as f64;
            renew(&mut self.amplification, compacted / logged);
        }
    }

    /// Returns how many workers keep up with the writers.
    fn needed(&self) -> f64 {
        let part = |bytes: f64, rate: f64| if rate > 0.0 { bytes / rate } else { 0.0 };
        part(self.write_rate, self.flush_rate) + part(self.write_rate * self.amplification, self.compaction_rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE_TIME: Duration = Duration::from_secs(1);

    /// Returns a governor after ten seconds. Each second has these bytes of log, writes and reads,
    /// a flush of 100 MB and a compaction of 50 MB.
    fn after(workers: usize, logged: u64, writes: u64, reads: u64, frozen: usize) -> Governor {
        let governor = Governor::new(workers);
        let start = Instant::now();
        for second in 0..10u32 {
            governor.note_flush(100_000_000, SAMPLE_TIME, 1);
            governor.note_compaction(50_000_000, SAMPLE_TIME);
            let so_far = |count: u64| count * u64::from(second);
            let sample = Sample { logged: so_far(logged), writes: so_far(writes), reads: so_far(reads), frozen };
            governor.tick(start + SAMPLE_TIME * second, || sample);
        }
        governor
    }

    #[test]
    fn workers_follow_the_rate_of_writes() {
        assert_eq!(after(8, 1_000_000, 1000, 0, 0).allowed(), 2, "nearly idle, one of them compacts all the time");
        // Two workers for flushes and one for compactions; 1.5 times three, rounded up.
        assert_eq!(after(8, 200_000_000, 1000, 0, 0).allowed(), 5);
        assert_eq!(after(2, 200_000_000, 1000, 0, 0).allowed(), 2, "there are no more");
    }

    #[test]
    fn all_workers_run_while_a_memtable_waits() {
        assert_eq!(after(8, 1_000_000, 1000, 0, 2).allowed(), 8);
    }

    #[test]
    fn the_trigger_follows_the_share_of_writes() {
        assert_eq!(after(2, 1_000_000, 1000, 10, 0).trigger(), 1.0);
        assert_eq!(after(2, 1_000_000, 10, 1000, 0).trigger(), 0.25);
        assert_eq!(after(2, 1_000_000, 10, 1000, 2).trigger(), 2.0, "a memtable waits");
    }

    /// Regression: compactions in ticks without a new log segment were not counted. With slow
    /// writers one segment lasts for several ticks.
    #[test]
    fn compactions_between_two_log_segments_count() {
        let governor = Governor::new(2);
        let start = Instant::now();
        for second in 0..40u32 {
            governor.note_compaction(50_000_000, SAMPLE_TIME);
            let logged = u64::from(second / 4) * 100_000_000;
            governor.tick(start + SAMPLE_TIME * second, || Sample { logged, writes: logged, ..Sample::default() });
        }
        let percent = governor.rates()[4];
        assert!((190..=210).contains(&percent), "{percent}: four compactions of 50 MB for each 100 MB of log");
    }

    #[test]
    fn without_workers_nothing_is_measured() {
        let governor = after(0, 1_000_000, 0, 0, 0);
        assert_eq!(governor.rates()[1..3], [0, 0]);
    }
}
