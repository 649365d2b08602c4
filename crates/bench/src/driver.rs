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
use crate::pace::{Pace, Schedule, Waited, wait_until};
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
    /// Bytes of the keys and values given to the target.
    pub(crate) written_bytes: u64,
    /// Bytes of the keys and values that it was told to delete.
    pub(crate) removed_bytes: u64,
    /// When the last operation was due, from the first thread's start on; zero where none was.
    pub(crate) due: Duration,
    /// For how long up to then a thread had something late to do without an end: the longest of any thread.
    pub(crate) late_for: Duration,
}

/// State of one serving thread.
struct Server<'a> {
    target: &'a dyn Target,
    drive: &'a Drive,
    key: Vec<u8>,
    /// As long as any value.
    fresh: Vec<u8>,
    found: Vec<u8>,
    last: Vec<u8>,
    latency: Histogram<u64>,
    reads: Timed,
    writes: Timed,
    scanned: u64,
    written_bytes: u64,
    removed_bytes: u64,
    /// Values made, in the low 48 bits, behind the thread's number.
    version: u64,
    /// When its last operation was due, from the start on.
    due: Duration,
    /// When the last was due that it did not begin late.
    on_time: Duration,
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
        let (wall, due, late_for) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let (latency, written_bytes, removed_bytes) = (histogram(), 0, 0);
        Self {
            ops: 0,
            wall,
            cpu_s: 0.0,
            latency,
            reads,
            writes,
            scanned: 0,
            written_bytes,
            removed_bytes,
            due,
            late_for,
        }
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
        self.written_bytes += more.written_bytes;
        self.removed_bytes += more.removed_bytes;
        self.due = self.due.max(more.due);
        self.late_for = self.late_for.max(more.late_for);
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
            key: Vec::new(),
            fresh: vec![0; drive.records.value_most()],
            found: Vec::with_capacity(drive.records.value_most()),
            last: Vec::new(),
            latency: histogram(),
            reads: Timed::default(),
            writes: Timed::default(),
            scanned: 0,
            written_bytes: 0,
            removed_bytes: 0,
            version: (at as u64) << 48,
            due: Duration::ZERO,
            on_time: Duration::ZERO,
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
        let Self { reads, writes, scanned, written_bytes, removed_bytes, due, .. } = *self;
        let (wall, late_for) = (end - start, due.saturating_sub(self.on_time));
        let outcome =
            Outcome { ops, wall, cpu_s, latency, reads, writes, scanned, written_bytes, removed_bytes, due, late_for };
        Ok((start, end, outcome))
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
            match wait_until(begun + due, stop) {
                Waited::OnTime => self.on_time = due,
                Waited::Late => {}
                Waited::Stopped => break,
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
                let size = self.renew();
                self.target.put(&self.key, &self.fresh[..size])
            }
            Kind::Update => self.update(op),
            Kind::Delete => match self.target.delete(&self.key)? {
                true => {
                    self.removed_bytes += (self.key.len() + self.drive.records.value_size_of(&self.key)) as u64;
                    Ok(())
                }
                false => Err(wrong(op, "found nothing to delete")),
            },
            Kind::Scan => self.scan(op),
            Kind::ReadModifyWrite => {
                self.get(op)?;
                self.update(op)
            }
        }
    }

    /// Makes another version of the key's value at the beginning of `fresh`; its size.
    #[inline]
    fn renew(&mut self) -> usize {
        let size = self.drive.records.value_size_of(&self.key);
        self.version += 1;
        self.written_bytes += (self.key.len() + size) as u64;
        self.drive.records.value(&self.key, self.version, &mut self.fresh[..size]);
        size
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
        let size = self.renew();
        match self.target.update(&self.key, &self.fresh[..size])? {
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
        let mut left = every;
        let mut keys = vec![Vec::new(); self.drive.gather];
        let mut done = 0;
        for ops in stream.chunks(self.drive.gather) {
            left = left.wrapping_sub(1);
            let start = (left == 0).then(Instant::now);
            self.gather(ops, &mut keys[..ops.len()])?;
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

    fn gather(&mut self, ops: &[Op], keys: &mut [Vec<u8>]) -> Result<()> {
        for (op, key) in ops.iter().zip(keys.iter_mut()) {
            self.drive.records.key(op.record, key);
        }
        let Self { target, drive, found, .. } = self;
        let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;
    use crate::workload::Workload;
    use crate::{cell, peers};

    #[test]
    fn bytes_are_counted_as_they_are_put_and_deleted() {
        let args = parsed("--records 3000 --ops 1000 --threads 2 --key-size 8..40 --value-size facebook --check full");
        let target = peers::open("btreemap", std::path::Path::new(""), &peers::Asked::default()).expect("a map");
        let (mix, drive) = (cell::mix(&args), cell::drive(&args));
        let ran = |workload| run(&*target, &mix.streams(workload), &drive).expect("it runs");
        let held = || {
            let mut bytes = 0;
            target.scan(&[], usize::MAX, &mut |key, value| bytes += (key.len() + value.len()) as u64).expect("a scan");
            bytes
        };
        let loaded = ran(Workload::Load);
        assert_eq!((loaded.written_bytes, loaded.removed_bytes), (held(), 0));
        assert_eq!(loaded.written_bytes, drive.records.bytes(0..3000));
        let updated = ran(Workload::Update);
        assert!(updated.written_bytes > 0 && held() == loaded.written_bytes, "an update keeps the size");
        let inserted = ran(Workload::D);
        assert_eq!(held(), loaded.written_bytes + inserted.written_bytes);
        let deleted = ran(Workload::Delete);
        assert_eq!(deleted.ops, 1000);
        assert_eq!(held(), loaded.written_bytes + inserted.written_bytes - deleted.removed_bytes);
        let gathered = Drive { gather: 16, ..drive.clone() };
        run(&*target, &[vec![Op { record: 3000, length: 0, kind: Kind::Get }; 20]], &gathered)
            .expect("it was put by d");
    }
}
