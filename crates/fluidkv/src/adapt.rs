//! What the migration adapts to (FluidKV, VLDB 2024: the stages follow the workload; its code has three modes, chosen by one client's
//! share of writes).
//!
//! Measured, each a moving mean of which a quarter is renewed every [`TICK`]:
//! * W: bytes of log a second, and the share of writes among all operations;
//! * F: bytes of log that one worker flushes in a second, C: bytes that one compacts, both while they do it: the medium's bandwidth
//!   as far as this store can use it beside everything else that runs;
//! * A: bytes compacted for each byte of log. Log comes in whole segments: what is compacted in ticks without one counts with the next.
//!
//! The rule:
//! * **Workers**: W/F + A W/C of them are needed; so many and a half, rounded up, may work, at least one. All may while a memtable waits behind
//!   the one that is being flushed: then the DRAM budget is being used up.
//! * **Trigger of compactions**: as `buffer-percent` says while at least half of the operations are writes; at a quarter of that where most
//!   are reads; at twice that while a memtable waits, so that the bandwidth goes to flushes (`runs-max` bounds it).
//! * **Trigger of flushes**: a memtable is frozen at `memtable-bytes` of log, or in a small store at less (`Sizes::log_of_memtable`), or at its part of the DRAM budget, whichever
//!   comes first.
//! * Nobody writes: `migrate.rs`.
//!
//! Without workers nothing is measured: what a run does is the same each time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::inner::lock;

/// How often the means are renewed.
const TICK: Duration = Duration::from_millis(250);
/// Part of a mean that is renewed.
const RENEWED: f64 = 0.25;
/// Bytes a second that a flush is taken for until one was measured.
const UNMEASURED: f64 = 100e6;
/// Workers for each one that is needed.
const SPARE: f64 = 1.5;
/// Hundredths of the trigger of compactions: while a memtable waits, while writes prevail, while reads do.
const SCALES: [u64; 3] = [200, 100, 25];

/// What is read off once in a while.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading {
    /// Bytes of log ever written, about.
    pub(crate) logged: u64,
    /// Writes and reads ever, about.
    pub(crate) writes: u64,
    pub(crate) reads: u64,
    /// Memtables that wait for a flush or are being flushed.
    pub(crate) frozen: usize,
}

#[derive(Default)]
struct Means {
    read: Option<(Instant, Reading)>,
    /// Bytes compacted since the last reading that found new log.
    compacted: u64,
    write_rate: f64,
    write_share: f64,
    flush_rate: f64,
    /// Bytes of log a second of whole flushes, whoever took part.
    flush_bandwidth: f64,
    compaction_rate: f64,
    amplification: f64,
}

/// See the module.
pub(crate) struct Governor {
    workers: usize,
    means: Mutex<Means>,
    allowed: AtomicUsize,
    scale: AtomicU64,
}

fn renew(mean: &mut f64, new: f64) {
    *mean = if *mean == 0.0 { new } else { *mean * (1.0 - RENEWED) + new * RENEWED };
}

impl Governor {
    /// One for a store with so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        let allowed = AtomicUsize::new(workers.max(1));
        Self { workers, means: Mutex::default(), allowed, scale: AtomicU64::new(SCALES[1]) }
    }

    /// Workers that may work at a time.
    pub(crate) fn allowed(&self) -> usize {
        self.allowed.load(Ordering::Relaxed)
    }

    /// What the trigger of compactions is multiplied with.
    pub(crate) fn trigger(&self) -> f64 {
        self.scale.load(Ordering::Relaxed) as f64 / 100.0
    }

    /// Takes note of a flush of so many bytes of log by so many workers.
    pub(crate) fn note_flush(&self, bytes: u64, took: Duration, by: usize) {
        if self.workers > 0 && !took.is_zero() {
            let bandwidth = bytes as f64 / took.as_secs_f64();
            let mut means = lock(&self.means);
            renew(&mut means.flush_rate, bandwidth / by.max(1) as f64);
            renew(&mut means.flush_bandwidth, bandwidth);
        }
    }

    /// Bytes of log a second that flushes take; before the first one, what a slow disk takes.
    pub(crate) fn flush_bandwidth(&self) -> f64 {
        let measured = lock(&self.means).flush_bandwidth;
        if measured > 0.0 { measured } else { UNMEASURED }
    }

    /// Takes note of a compaction that wrote so many bytes.
    pub(crate) fn note_compaction(&self, bytes: u64, took: Duration) {
        if self.workers > 0 && bytes > 0 && !took.is_zero() {
            let mut means = lock(&self.means);
            means.compacted += bytes;
            renew(&mut means.compaction_rate, bytes as f64 / took.as_secs_f64());
        }
    }

    /// Renews the means and what follows from them, where it is time; by any worker.
    pub(crate) fn tick(&self, now: Instant, reading: impl FnOnce() -> Reading) {
        let mut means = lock(&self.means);
        let elapsed = means.read.map_or(Duration::MAX, |(then, _)| now.saturating_duration_since(then));
        if elapsed < TICK {
            return;
        }
        let reading = reading();
        if let Some((_, before)) = means.read {
            means.renew(&before, &reading, elapsed.as_secs_f64());
        }
        means.read = Some((now, reading));
        let waits = reading.frozen > 1;
        let allowed = if waits { self.workers } else { (means.needed() * SPARE).ceil() as usize };
        self.allowed.store(allowed.clamp(1, self.workers.max(1)), Ordering::Relaxed);
        let scale = match (waits, means.write_share >= 0.5) {
            (true, _) => SCALES[0],
            (false, true) => SCALES[1],
            (false, false) => SCALES[2],
        };
        self.scale.store(scale, Ordering::Relaxed);
    }

    /// Bytes of log a second, bytes that a worker flushes and compacts in one, writes in a thousand operations, and bytes compacted for a hundred of log.
    pub(crate) fn rates(&self) -> [u64; 5] {
        let means = lock(&self.means);
        let (share, amplification) = (means.write_share * 1000.0, means.amplification * 100.0);
        [means.write_rate, means.flush_rate, means.compaction_rate, share, amplification].map(|mean| mean as u64)
    }
}

impl Means {
    fn renew(&mut self, before: &Reading, now: &Reading, seconds: f64) {
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

    /// Workers that keep up with the writers.
    fn needed(&self) -> f64 {
        let part = |bytes: f64, rate: f64| if rate > 0.0 { bytes / rate } else { 0.0 };
        part(self.write_rate, self.flush_rate) + part(self.write_rate * self.amplification, self.compaction_rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A governor that saw so many bytes of log, writes and reads in each of ten seconds, and flushes of 100 MB in a second.
    fn after(workers: usize, logged: u64, writes: u64, reads: u64, frozen: usize) -> Governor {
        let governor = Governor::new(workers);
        let start = Instant::now();
        for second in 0..10u32 {
            governor.note_flush(100_000_000, SECOND, 1);
            governor.note_compaction(50_000_000, SECOND);
            let so_far = |count: u64| count * u64::from(second);
            let reading = Reading { logged: so_far(logged), writes: so_far(writes), reads: so_far(reads), frozen };
            governor.tick(start + SECOND * second, || reading);
        }
        governor
    }

    #[test]
    fn workers_follow_the_rate_of_writes() {
        assert_eq!(after(8, 1_000_000, 1000, 0, 0).allowed(), 2, "nearly idle, one of them compacts all the time");
        // 2 to flush, 1 for what is compacted meanwhile: three, and half as many again.
        assert_eq!(after(8, 200_000_000, 1000, 0, 0).allowed(), 5);
        assert_eq!(after(2, 200_000_000, 1000, 0, 0).allowed(), 2, "there are no more");
    }

    #[test]
    fn all_work_where_a_memtable_waits() {
        assert_eq!(after(8, 1_000_000, 1000, 0, 2).allowed(), 8);
    }

    #[test]
    fn the_trigger_follows_the_share_of_writes() {
        assert_eq!(after(2, 1_000_000, 1000, 10, 0).trigger(), 1.0);
        assert_eq!(after(2, 1_000_000, 10, 1000, 0).trigger(), 0.25);
        assert_eq!(after(2, 1_000_000, 10, 1000, 2).trigger(), 2.0, "a memtable waits");
    }

    /// Where writers are slow a segment of log lasts for several ticks. What was compacted in those without a new one was forgotten.
    #[test]
    fn what_is_compacted_between_two_segments_of_log_counts() {
        let governor = Governor::new(2);
        let start = Instant::now();
        for second in 0..40u32 {
            governor.note_compaction(50_000_000, SECOND);
            let logged = u64::from(second / 4) * 100_000_000;
            governor.tick(start + SECOND * second, || Reading { logged, writes: logged, ..Reading::default() });
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
