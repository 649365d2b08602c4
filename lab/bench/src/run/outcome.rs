//! The result of a run of streams.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Maximum recorded latency, in ns: 100 s.
pub(crate) const LATENCY_NANOS_MAX: u64 = 100_000_000_000;

/// Timed calls of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Timed {
    calls: u64,
    ns: u64,
}

impl Timed {
    pub(crate) fn add(&mut self, calls: u64, ns: u64) {
        self.calls += calls;
        self.ns = self.ns.saturating_add(ns);
    }

    /// Returns their mean duration; `None` if there were none.
    pub(crate) fn mean_ns(self) -> Option<f64> {
        (self.calls > 0).then(|| self.ns as f64 / self.calls as f64)
    }
}

/// Counts of the threads of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counts {
    /// Operations acknowledged.
    pub(crate) ops: u64,
    /// CPU time of the serving threads.
    pub(crate) cpu_s: f64,
    /// Sampled calls that only read.
    pub(crate) reads: Timed,
    /// Sampled calls that change something.
    pub(crate) writes: Timed,
    /// Pairs that scans visited.
    pub(crate) scanned: u64,
    /// Bytes of the keys and values put.
    pub(crate) written_bytes: u64,
    /// Bytes of the keys and values deleted.
    pub(crate) removed_bytes: u64,
    /// Due time of the last operation, since the first thread's start; zero without due times.
    pub(crate) due: Duration,
    /// How long, up to that time, a thread was continuously late: the maximum of all threads.
    pub(crate) late_for: Duration,
}

impl Counts {
    /// Adds the counts of more threads, or of more of the same work.
    pub(crate) fn add(&mut self, more: &Self) {
        self.ops += more.ops;
        self.cpu_s += more.cpu_s;
        self.reads.add(more.reads.calls, more.reads.ns);
        self.writes.add(more.writes.calls, more.writes.ns);
        self.scanned += more.scanned;
        self.written_bytes += more.written_bytes;
        self.removed_bytes += more.removed_bytes;
        self.due = self.due.max(more.due);
        self.late_for = self.late_for.max(more.late_for);
    }
}

/// The result of a run, over all threads.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    /// Time from the first start to the last end.
    pub(crate) wall: Duration,
    /// Sampled latencies, in ns.
    pub(crate) latency: Histogram<u64>,
}

impl Outcome {
    /// Returns an empty result.
    pub(crate) fn none(latency: Histogram<u64>) -> Self {
        Self { counts: Counts::default(), wall: Duration::ZERO, latency }
    }

    /// Adds the result of more of the same work, done after this.
    pub(crate) fn absorb(&mut self, more: &Self) {
        self.wall += more.wall;
        self.counts.add(&more.counts);
        self.latency.add(&more.latency).expect("the bounds are the same");
    }
}

/// Returns an empty histogram for all recorded latencies, with touched memory.
pub(crate) fn histogram() -> Histogram<u64> {
    let mut empty = Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, 3).expect("constant bounds are valid");
    // Writes a zero to each count.
    empty.clear();
    empty
}
