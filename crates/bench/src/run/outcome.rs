//! What came of a run of streams.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest latency that is told apart, in ns: 100 s.
pub(crate) const LATENCY_MOST: u64 = 100_000_000_000;

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

    /// What one of them took; none where there were none.
    pub(crate) fn mean_ns(self) -> Option<f64> {
        (self.calls > 0).then(|| self.ns as f64 / self.calls as f64)
    }
}

/// What the threads of a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counts {
    /// Operations acknowledged.
    pub(crate) ops: u64,
    /// Processor time of the serving threads.
    pub(crate) cpu_s: f64,
    /// Sampled calls that only read.
    pub(crate) reads: Timed,
    /// Sampled calls that change something.
    pub(crate) writes: Timed,
    /// Pairs that scans visited.
    pub(crate) scanned: u64,
    /// Bytes of the keys and values given to the target.
    pub(crate) written_bytes: u64,
    /// Bytes of the keys and values that it was told to delete.
    pub(crate) removed_bytes: u64,
    /// When the last operation was due, from the first thread's start on; zero where none was.
    pub(crate) due: Duration,
    /// For how long up to then a thread had something late to do without an end: the longest of any
    /// thread.
    pub(crate) late_for: Duration,
}

impl Counts {
    /// Adds those of more threads, or of more of the same work.
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

/// What came of a run, over all threads.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    /// First start to last end.
    pub(crate) wall: Duration,
    /// Sampled latencies, in ns.
    pub(crate) latency: Histogram<u64>,
}

impl Outcome {
    /// Nothing yet.
    pub(crate) fn none(latency: Histogram<u64>) -> Self {
        Self { counts: Counts::default(), wall: Duration::ZERO, latency }
    }

    /// Adds what came of more of the same work, done behind this.
    pub(crate) fn absorb(&mut self, more: &Self) {
        self.wall += more.wall;
        self.counts.add(&more.counts);
        self.latency.add(&more.latency).expect("the bounds are the same");
    }
}

/// An empty histogram, of any latency that is told apart, whose memory is touched.
pub(crate) fn histogram() -> Histogram<u64> {
    let mut empty = Histogram::new_with_bounds(1, LATENCY_MOST, 3).expect("constant bounds are valid");
    // Writes a zero over each count.
    empty.clear();
    empty
}
