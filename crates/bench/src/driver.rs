//! Runs streams of operations against a target and times them.
//!
//! Throughput is the wall time from the first thread's start to the last one's end. Latency is sampled:
//! every n-th operation of each thread is timed on its own, because two clock reads cost about as much
//! as a fast operation's bookkeeping. In an open loop every operation is timed, from when it was due. Every value read is checked as it comes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lodestore_contract::{Error, Result};

use crate::keys::Records;
use crate::measure::thread_cpu_seconds;
use crate::pace::{Pace, Schedule, wait_until};
use crate::target::Target;
use crate::watch::Progress;
use crate::workload::{Kind, Op};

/// Longest latency that is told apart, in ns: 100 s.
const LATENCY_MOST: u64 = 100_000_000_000;

/// How to run.
#[derive(Debug, Clone)]
pub(crate) struct Drive {
    /// The records.
    pub(crate) records: Records,
    /// Time every n-th operation; 0 for none.
    pub(crate) latency_every: u32,
    /// Keys of one call, where gets are gathered; 1 for single gets.
    pub(crate) gather: usize,
    /// Check the order of scanned keys as well.
    pub(crate) full: bool,
    /// Go through the streams again and again for this long, and time every operation (of empty streams: wait); once, where there is none.
    pub(crate) lasting: Option<Duration>,
    /// When the operations are due, each of which is timed then; where there is none, each begins when the one before it is done.
    pub(crate) pace: Option<Pace>,
    /// Name of the serving threads, so that a profiler tells the workloads apart.
    pub(crate) name: &'static str,
}

/// Timed calls of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Timed {
    calls: u64,
    ns: u64,
}

impl Timed {
    fn add(&mut self, calls: u64, ns: u64) {
        self.calls += calls;
        self.ns = self.ns.saturating_add(ns);
    }

    /// What one of them took; none where there were none.
    pub(crate) fn mean_ns(self) -> Option<f64> {
        (self.calls > 0).then(|| self.ns as f64 / self.calls as f64)
    }
}

/// What came of it, over all threads.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Operations acknowledged.
    pub(crate) ops: u64,
    /// First start to last end.
    pub(crate) wall: Duration,
    /// Processor time of the serving threads.
    pub(crate) cpu_s: f64,
    /// Sampled latencies, in ns.
    pub(crate) latency: Histogram<u64>,
    /// Sampled calls that only read.
    pub(crate) reads: Timed,
    /// Sampled calls that change something.
    pub(crate) writes: Timed,
    /// Pairs that scans visited.
    pub(crate) scanned: u64,
    /// Values given to the target.
    pub(crate) written: u64,
    /// When the last operation was due, from the first thread's start on; zero where none was.
    pub(crate) due: Duration,
}

/// State of one serving thread.
struct Server<'a> {
    target: &'a dyn Target,
    drive: &'a Drive,
    key: Vec<u8>,
    fresh: Vec<u8>,
    found: Vec<u8>,
    last: Vec<u8>,
    latency: Histogram<u64>,
    reads: Timed,
    writes: Timed,
    scanned: u64,
    /// Values made, in the low 48 bits, behind the thread's number.
    version: u64,
    /// When its last operation was due, from the start on.
    due: Duration,
    done: &'a AtomicU64,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MOST, 3).expect("constant bounds are valid")
}

/// What a wrong answer is reported as.
fn wrong(op: Op, what: &str) -> Error {
    Error::corrupt(format!("record {} of the bench", op.record), format!("{:?} {what}", op.kind))
}

impl Outcome {
    /// Nothing yet.
    pub(crate) fn none() -> Self {
        let (reads, writes) = (Timed::default(), Timed::default());
        let (wall, due) = (Duration::ZERO, Duration::ZERO);
        Self { ops: 0, wall, cpu_s: 0.0, latency: histogram(), reads, writes, scanned: 0, written: 0, due }
    }

    /// Adds what came of more of the same work, done behind this.
    pub(crate) fn absorb(&mut self, more: &Self) {
        self.wall += more.wall;
        self.take(more);
    }

    /// Adds all of it but how long it took.
    fn take(&mut self, more: &Self) {
        self.ops += more.ops;
        self.cpu_s += more.cpu_s;
        self.latency.add(&more.latency).expect("the bounds are the same");
        self.reads.add(more.reads.calls, more.reads.ns);
        self.writes.add(more.writes.calls, more.writes.ns);
        self.scanned += more.scanned;
        self.written += more.written;
        self.due = self.due.max(more.due);
    }
}

/// Runs one stream on each thread.
///
/// # Errors
/// The first that the target met; a wrong or missing answer as [`Error::Corrupt`].
pub(crate) fn run<S>(target: &dyn Target, streams: &[S], drive: &Drive) -> Result<Outcome>
where
    S: AsRef<[Op]> + Sync,
{
    run_watched(target, streams, drive, &Progress::new(streams.len()))
}

/// As [`run`], and tells `progress`, which has room for as many threads, what is done.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_watched<S>(target: &dyn Target, streams: &[S], drive: &Drive, progress: &Progress) -> Result<Outcome>
where
    S: AsRef<[Op]> + Sync,
{
    let barrier = Barrier::new(streams.len());
    let (stop, begun, threads) = (AtomicBool::new(false), OnceLock::new(), streams.len());
    let (barrier, stop, begun) = (&barrier, &stop, &begun);
    let results: Vec<Result<Part>> = std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .enumerate()
            .map(|(at, stream)| {
                let serve = move || {
                    let mut server = Server::new(target, drive, at, progress);
                    barrier.wait();
                    let schedule =
                        drive.pace.map(|pace| (*begun.get_or_init(Instant::now), pace.schedule(at, threads)));
                    server.serve(stream.as_ref(), stop, schedule)
                };
                std::thread::Builder::new().name(drive.name.into()).spawn_scoped(scope, serve).expect("a thread starts")
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a serving thread panicked")).collect()
    });
    merge(results)
}

/// What one thread did, and when.
type Part = (Instant, Instant, Outcome);

fn merge(results: Vec<Result<Part>>) -> Result<Outcome> {
    let mut all = Outcome::none();
    let mut span: Option<(Instant, Instant)> = None;
    for result in results {
        let (start, end, part) = result?;
        all.take(&part);
        span = Some(span.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
    }
    all.wall = span.map_or(Duration::ZERO, |(first, last)| last - first);
    Ok(all)
}

impl<'a> Server<'a> {
    fn new(target: &'a dyn Target, drive: &'a Drive, at: usize, progress: &'a Progress) -> Self {
        Self {
            target,
            drive,
            key: vec![0; drive.records.key_size()],
            fresh: vec![0; drive.records.value_size()],
            found: Vec::with_capacity(drive.records.value_size()),
            last: Vec::new(),
            latency: histogram(),
            reads: Timed::default(),
            writes: Timed::default(),
            scanned: 0,
            version: (at as u64) << 48,
            due: Duration::ZERO,
            done: progress.of(at),
        }
    }

    /// Serves a stream: in an open loop, from the start that all threads have and when its operations are due from then on.
    fn serve(&mut self, stream: &[Op], stop: &AtomicBool, open: Option<(Instant, Schedule)>) -> Result<Part> {
        let cpu = thread_cpu_seconds();
        let start = open.as_ref().map_or_else(Instant::now, |(begun, _)| *begun);
        let served = match (open, self.drive.lasting) {
            (Some((_, schedule)), _) => self.paced(stream, stop, start, schedule),
            (None, Some(length)) => self.lasting(stream, stop, length),
            (None, None) if self.drive.gather > 1 => self.gathered(stream, stop),
            (None, None) => self.singly(stream, stop),
        };
        let end = Instant::now();
        if let Err(error) = served {
            stop.store(true, Ordering::Relaxed);
            return Err(error);
        }
        let cpu_s = thread_cpu_seconds() - cpu;
        let latency = std::mem::replace(&mut self.latency, histogram());
        let ops = self.done.load(Ordering::Relaxed);
        let written = self.version & ((1 << 48) - 1);
        let Self { reads, writes, scanned, due, .. } = *self;
        Ok((start, end, Outcome { ops, wall: end - start, cpu_s, latency, reads, writes, scanned, written, due }))
    }

    /// Goes through `stream` again and again until `length` is over, and times every operation. A call that lasts longer than that is waited for.
    fn lasting(&mut self, stream: &[Op], stop: &AtomicBool, length: Duration) -> Result<()> {
        let begun = Instant::now();
        if stream.is_empty() {
            std::thread::sleep(length);
        }
        let mut last = begun;
        for (at, op) in stream.iter().cycle().enumerate() {
            self.serve_one(*op)?;
            self.done.store(at as u64 + 1, Ordering::Relaxed);
            let now = Instant::now();
            self.note_length(op.kind, now - last);
            last = now;
            if now - begun >= length || stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    /// Asks for each operation when it is due, or at once where that is past, and times it from then.
    fn paced(&mut self, stream: &[Op], stop: &AtomicBool, begun: Instant, schedule: Schedule) -> Result<()> {
        for ((at, op), due) in stream.iter().enumerate().zip(schedule) {
            if !wait_until(begun + due, stop) {
                break;
            }
            self.serve_one(*op)?;
            self.note_length(op.kind, begun.elapsed().saturating_sub(due));
            self.due = due;
            self.done.store(at as u64 + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn singly(&mut self, stream: &[Op], stop: &AtomicBool) -> Result<()> {
        let every = self.drive.latency_every;
        let mut left = every;
        for (at, op) in stream.iter().enumerate() {
            left = left.wrapping_sub(1);
            if left != 0 {
                self.serve_one(*op)?;
                self.done.store(at as u64 + 1, Ordering::Relaxed);
                continue;
            }
            left = every;
            let start = Instant::now();
            self.serve_one(*op)?;
            self.note_length(op.kind, start.elapsed());
            self.done.store(at as u64 + 1, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    fn note_length(&mut self, kind: Kind, length: Duration) {
        let ns = u64::try_from(length.as_nanos()).unwrap_or(LATENCY_MOST);
        self.latency.saturating_record(ns.max(1));
        let timed = if kind.changes() { &mut self.writes } else { &mut self.reads };
        timed.add(1, ns);
    }

    #[inline]
    fn serve_one(&mut self, op: Op) -> Result<()> {
        self.drive.records.key(op.record, &mut self.key);
        match op.kind {
            Kind::Get => self.get(op),
            Kind::Absent => match self.target.get(&self.key, &mut self.found)? {
                false => Ok(()),
                true => Err(wrong(op, "found what was never put")),
            },
            Kind::Put => {
                self.renew();
                self.target.put(&self.key, &self.fresh)
            }
            Kind::Update => self.update(op),
            Kind::Delete => match self.target.delete(&self.key)? {
                true => Ok(()),
                false => Err(wrong(op, "found nothing to delete")),
            },
            Kind::Scan => self.scan(op),
            Kind::ReadModifyWrite => {
                self.get(op)?;
                self.update(op)
            }
        }
    }

    #[inline]
    fn renew(&mut self) {
        self.version += 1;
        self.drive.records.value(&self.key, self.version, &mut self.fresh);
    }

    #[inline]
    fn get(&mut self, op: Op) -> Result<()> {
        if !self.target.get(&self.key, &mut self.found)? {
            return Err(wrong(op, "found nothing"));
        }
        match self.drive.records.belongs(&self.key, &self.found) {
            true => Ok(()),
            false => Err(wrong(op, "found a value that was never put there")),
        }
    }

    #[inline]
    fn update(&mut self, op: Op) -> Result<()> {
        self.renew();
        match self.target.update(&self.key, &self.fresh)? {
            true => Ok(()),
            false => Err(wrong(op, "found nothing to update")),
        }
    }

    fn scan(&mut self, op: Op) -> Result<()> {
        let Self { target, drive, key: from, found, last, scanned, .. } = self;
        let (mut good, mut seen) = (true, 0_usize);
        let visited = target.scan(from, usize::from(op.length), &mut |key, value| {
            found.clear();
            found.extend_from_slice(value);
            good &= drive.records.belongs(key, found) && (seen > 0 || key == from.as_slice());
            if drive.full {
                good &= seen == 0 || key > last.as_slice();
                last.clear();
                last.extend_from_slice(key);
            }
            seen += 1;
        })?;
        *scanned += visited as u64;
        match good && seen == visited && (1..=usize::from(op.length)).contains(&seen) {
            true => Ok(()),
            false => Err(wrong(op, "saw a wrong pair, or too many or too few")),
        }
    }

    fn gathered(&mut self, stream: &[Op], stop: &AtomicBool) -> Result<()> {
        let every = self.drive.latency_every;
        let size = self.drive.records.key_size();
        let mut left = every;
        let mut keys = vec![0; size * self.drive.gather];
        let mut done = 0;
        for ops in stream.chunks(self.drive.gather) {
            left = left.wrapping_sub(1);
            let start = (left == 0).then(Instant::now);
            self.gather(ops, &mut keys[..size * ops.len()])?;
            done += ops.len() as u64;
            self.done.store(done, Ordering::Relaxed);
            if let Some(start) = start {
                left = every;
                self.note_length(Kind::Get, start.elapsed());
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn gather(&mut self, ops: &[Op], keys: &mut [u8]) -> Result<()> {
        let size = self.drive.records.key_size();
        for (op, key) in ops.iter().zip(keys.chunks_mut(size)) {
            self.drive.records.key(op.record, key);
        }
        let Self { target, drive, found, .. } = self;
        let slices: Vec<&[u8]> = keys.chunks(size).collect();
        let mut good = 0;
        target.multi_get(&slices, &mut |at, value| {
            let Some(value) = value else { return };
            found.clear();
            found.extend_from_slice(value);
            good += usize::from(drive.records.belongs(slices[at], found));
        })?;
        match good == ops.len() {
            true => Ok(()),
            false => Err(wrong(ops[0], "was gathered with others, and some were missing or wrong")),
        }
    }
}
