//! Counts and latencies of operations, the input of the dynamic adaption. Cheap enough for every
//! operation.
//!
//! Every [`SAMPLE_PERIOD_OPS`]-th operation is timed. Each thread counts in its own shard by plain
//! loads and stores, at about two nanoseconds per operation. Threads share a shard only if there
//! are more than [`SHARD_COUNT`]. Shared shards may lose counts, which does not matter for the
//! averages of the adaption. Exact counts must not use this module.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use lodestore_media::thread_slot;

/// Operations of a kind of which one is timed; a power of two.
pub const SAMPLE_PERIOD_OPS: u64 = 64;

/// Shards: threads that count without sharing.
pub const SHARD_COUNT: usize = 64;

/// Kinds of operations.
const KIND_COUNT: usize = 4;

/// The kinds of operations that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Get,
    Write,
    Scan,
    Backend,
}

#[derive(Default)]
struct Tally {
    count: AtomicU64,
    timed: AtomicU64,
    ns: AtomicU64,
}

impl Tally {
    #[inline]
    fn add(&self, timed: u64, ns: u64) {
        self.timed.store(self.timed.load(Relaxed) + timed, Relaxed);
        self.ns.store(self.ns.load(Relaxed) + ns, Relaxed);
    }
}

#[derive(Default)]
#[repr(align(128))]
struct Shard([Tally; KIND_COUNT]);

/// Count of one kind of operation since the start, and the total time of the timed ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Operations.
    pub count: u64,
    /// Operations that were timed.
    pub timed: u64,
    /// Total time of the timed operations, in nanoseconds.
    pub ns: u64,
}

impl Count {
    /// Returns the difference to `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            timed: self.timed.saturating_sub(earlier.timed),
            ns: self.ns.saturating_sub(earlier.ns),
        }
    }

    /// Returns the mean latency in nanoseconds, if any operation was timed.
    pub fn mean_ns(self) -> Option<f64> {
        (self.timed > 0).then(|| self.ns as f64 / self.timed as f64)
    }
}

/// All counts at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Gets.
    pub gets: Count,
    /// Puts, updates and deletes, on the serving side.
    pub writes: Count,
    /// Scans.
    pub scans: Count,
    /// Tree operations, on the backend's side.
    pub backend: Count,
}

impl Totals {
    /// Returns the difference to `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            gets: self.gets.since(earlier.gets),
            writes: self.writes.since(earlier.writes),
            scans: self.scans.since(earlier.scans),
            backend: self.backend.since(earlier.backend),
        }
    }
}

/// The counters of one store.
pub struct Sampler {
    shards: Box<[Shard]>,
}

impl Sampler {
    /// Creates a sampler. Unless `enabled`, it counts nothing at nearly no cost.
    pub fn new(enabled: bool) -> Self {
        let shards = if enabled { SHARD_COUNT } else { 0 };
        Self { shards: (0..shards).map(|_| Shard::default()).collect() }
    }

    /// Counts a get. The returned timer, if any, runs until it is dropped.
    #[inline]
    pub fn get(&self) -> Option<Timer<'_>> {
        self.start(Kind::Get)
    }

    /// Counts a put, update or delete; as [`Sampler::get`].
    #[inline]
    pub fn write(&self) -> Option<Timer<'_>> {
        self.start(Kind::Write)
    }

    /// Counts a scan; as [`Sampler::get`].
    #[inline]
    pub fn scan(&self) -> Option<Timer<'_>> {
        self.start(Kind::Scan)
    }

    /// Counts `count` gets without timing (a multi-get).
    #[inline]
    pub fn gets(&self, count: u64) {
        if let Some(tally) = self.tally(Kind::Get) {
            tally.count.store(tally.count.load(Relaxed) + count, Relaxed);
        }
    }

    /// Counts a batch of `count` tree operations that took `ns` together.
    #[inline]
    pub(crate) fn backend(&self, count: u64, ns: u64) {
        if let Some(tally) = self.tally(Kind::Backend) {
            tally.count.store(tally.count.load(Relaxed) + count, Relaxed);
            tally.add(count, ns);
        }
    }

    /// Returns whether the sampler counts.
    #[inline]
    pub fn enabled(&self) -> bool {
        !self.shards.is_empty()
    }

    /// Returns all counts. They are not of one instant: the threads continue.
    pub fn totals(&self) -> Totals {
        let sum = |kind: Kind| {
            self.shards.iter().map(|shard| &shard.0[kind as usize]).fold(Count::default(), |sum, tally| Count {
                count: sum.count + tally.count.load(Relaxed),
                timed: sum.timed + tally.timed.load(Relaxed),
                ns: sum.ns + tally.ns.load(Relaxed),
            })
        };
        Totals { gets: sum(Kind::Get), writes: sum(Kind::Write), scans: sum(Kind::Scan), backend: sum(Kind::Backend) }
    }

    #[inline]
    fn tally(&self, kind: Kind) -> Option<&Tally> {
        if self.shards.is_empty() {
            return None;
        }
        Some(&self.shards[thread_slot() % SHARD_COUNT].0[kind as usize])
    }

    #[inline]
    fn start(&self, kind: Kind) -> Option<Timer<'_>> {
        let tally = self.tally(kind)?;
        let count = tally.count.load(Relaxed) + 1;
        tally.count.store(count, Relaxed);
        (count % SAMPLE_PERIOD_OPS == 0).then(|| Timer { tally, start: Instant::now() })
    }
}

/// Times one operation, from creation to drop.
#[must_use = "it stops when it is dropped"]
pub struct Timer<'a> {
    tally: &'a Tally,
    start: Instant,
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.tally.add(1, self.start.elapsed().as_nanos() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_counted_and_one_in_64_is_timed() {
        let sampler = Sampler::new(true);
        let before = sampler.totals();
        let timers = (0..SAMPLE_PERIOD_OPS * 4).filter(|_| sampler.get().is_some()).count();
        drop(sampler.write());
        sampler.gets(10);
        sampler.backend(100, 5_000);
        let seen = sampler.totals().since(before);
        assert_eq!(timers, 4);
        assert_eq!((seen.gets.count, seen.gets.timed), (SAMPLE_PERIOD_OPS * 4 + 10, 4));
        assert_eq!((seen.writes.count, seen.writes.timed, seen.writes.mean_ns()), (1, 0, None));
        assert_eq!(seen.backend.mean_ns(), Some(50.0));
        assert_eq!(seen.scans, Count::default());
    }

    #[test]
    fn a_disabled_sampler_counts_nothing() {
        let sampler = Sampler::new(false);
        assert!((0..1000).all(|_| sampler.scan().is_none()));
        assert_eq!(sampler.totals(), Totals::default());
    }
}
