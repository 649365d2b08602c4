//! Runs streams of operations against a target and times them.
//!
//! Throughput is the wall time from the first thread's start to the last one's end. Latency is sampled:
//! every n-th operation of each thread is timed on its own, because two clock reads cost about as much
//! as a fast operation's bookkeeping. In an open loop every operation is timed, from when it was due.
//!
//! Keys and operations are made before the clock starts. What runs in the timed part beside the store is the same for all of them: a value is made as it is
//! put, and every value that is read is looked at as it comes, for whether it belongs to its key.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lodestore_contract::{Error, Result};

use crate::keys::{Keys, Records};
use crate::measure::thread_cpu_seconds;
use crate::outcome::{LATENCY_MOST, Outcome, Timed, histogram};
use crate::pace::{Pace, Schedule, Waited, wait_until};
use crate::target::Target;
use crate::watch::Progress;
use crate::workload::{Kind, Op};

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
    /// Go through them again until so much time is over, where they can be; a thread ends within one more stretch of `latency_every` operations.
    pub(crate) least: Duration,
    /// When the operations are due, each of which is timed then; where there is none, each begins when the one before it is done.
    pub(crate) pace: Option<Pace>,
    /// Name of the serving threads, so that a profiler tells the workloads apart.
    pub(crate) name: &'static str,
}

/// The operations of a thread, and their keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream<'a> {
    ops: &'a [Op],
    keys: &'a Keys,
    /// The place of the first operation's key.
    first: usize,
}

impl<'a> Stream<'a> {
    /// All of these operations, of which these are the keys.
    pub(crate) fn new(ops: &'a [Op], keys: &'a Keys) -> Self {
        Self { ops, keys, first: 0 }
    }

    /// A part of it.
    pub(crate) fn part(self, range: Range<usize>) -> Self {
        Self { ops: &self.ops[range.clone()], first: self.first + range.start, ..self }
    }

    #[inline]
    fn key(self, at: usize) -> &'a [u8] {
        self.keys.at(self.first + at)
    }
}

/// State of one serving thread.
struct Server<'a> {
    target: &'a dyn Target,
    drive: &'a Drive,
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

/// What a wrong answer is reported as.
fn wrong(op: Op, what: &str) -> Error {
    Error::corrupt(format!("record {} of the bench", op.record), format!("{:?} {what}", op.kind))
}

/// Runs one stream on each thread, having made their keys.
///
/// # Errors
/// The first that the target met; a wrong or missing answer as [`Error::Corrupt`].
pub(crate) fn run(target: &dyn Target, streams: &[Vec<Op>], drive: &Drive) -> Result<Outcome> {
    let keys_of = |ops: &Vec<Op>| {
        let mut keys = Keys::default();
        keys.fill(&drive.records, ops.iter().map(|op| op.record));
        keys
    };
    let keys: Vec<_> = streams.iter().map(keys_of).collect();
    let streams: Vec<_> = streams.iter().zip(&keys).map(|(ops, keys)| Stream::new(ops, keys)).collect();
    run_watched(target, &streams, drive, &Progress::new(streams.len()))
}

/// As [`run`], with keys made before, and tells `progress`, which has room for as many threads, what is done.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_watched(
    target: &dyn Target,
    streams: &[Stream<'_>],
    drive: &Drive,
    progress: &Progress,
) -> Result<Outcome> {
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
                    server.serve(*stream, stop, schedule)
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
    fn serve(&mut self, stream: Stream<'_>, stop: &AtomicBool, open: Option<(Instant, Schedule)>) -> Result<Part> {
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
    fn lasting(&mut self, stream: Stream<'_>, stop: &AtomicBool, length: Duration) -> Result<()> {
        let begun = Instant::now();
        if stream.ops.is_empty() {
            std::thread::sleep(length);
        }
        let mut last = begun;
        for (done, (at, op)) in stream.ops.iter().enumerate().cycle().enumerate() {
            self.serve_one(*op, stream.key(at))?;
            self.done.store(done as u64 + 1, Ordering::Relaxed);
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
    fn paced(&mut self, stream: Stream<'_>, stop: &AtomicBool, begun: Instant, schedule: Schedule) -> Result<()> {
        for ((at, op), due) in stream.ops.iter().enumerate().zip(schedule) {
            match wait_until(begun + due, stop) {
                Waited::OnTime => self.on_time = due,
                Waited::Late => {}
                Waited::Stopped => break,
            }
            self.serve_one(*op, stream.key(at))?;
            self.note_length(op.kind, begun.elapsed().saturating_sub(due));
            self.due = due;
            self.done.store(at as u64 + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn singly(&mut self, stream: Stream<'_>, stop: &AtomicBool) -> Result<()> {
        let every = self.drive.latency_every;
        let begun = Instant::now();
        let (mut left, mut done, mut again) = (every, 0_u64, false);
        loop {
            for (at, op) in stream.ops.iter().enumerate() {
                done += 1;
                left = left.wrapping_sub(1);
                if left != 0 {
                    self.serve_one(*op, stream.key(at))?;
                    self.done.store(done, Ordering::Relaxed);
                    continue;
                }
                left = every;
                let start = Instant::now();
                self.serve_one(*op, stream.key(at))?;
                let end = Instant::now();
                self.note_length(op.kind, end - start);
                self.done.store(done, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) || (again && end - begun >= self.drive.least) {
                    return Ok(());
                }
            }
            if stream.ops.is_empty() || stop.load(Ordering::Relaxed) || begun.elapsed() >= self.drive.least {
                return Ok(());
            }
            again = true;
        }
    }

    fn note_length(&mut self, kind: Kind, length: Duration) {
        let ns = u64::try_from(length.as_nanos()).unwrap_or(LATENCY_MOST);
        self.latency.saturating_record(ns.max(1));
        let timed = if kind.changes() { &mut self.writes } else { &mut self.reads };
        timed.add(1, ns);
    }

    #[inline]
    fn serve_one(&mut self, op: Op, key: &[u8]) -> Result<()> {
        match op.kind {
            Kind::Get => self.get(op, key),
            Kind::Absent => match self.target.get(key, &mut self.found)? {
                false => Ok(()),
                true => Err(wrong(op, "found what was never put")),
            },
            Kind::Put => {
                let size = self.renew(key);
                self.target.put(key, &self.fresh[..size])
            }
            Kind::Update => self.update(op, key),
            Kind::Delete => match self.target.delete(key)? {
                true => {
                    self.removed_bytes += (key.len() + self.drive.records.value_size_of(key)) as u64;
                    Ok(())
                }
                false => Err(wrong(op, "found nothing to delete")),
            },
            Kind::Scan => self.scan(op, key),
            Kind::ReadModifyWrite => {
                self.get(op, key)?;
                self.update(op, key)
            }
        }
    }

    /// Makes another version of the key's value at the beginning of `fresh`; its size.
    #[inline]
    fn renew(&mut self, key: &[u8]) -> usize {
        let size = self.drive.records.value_size_of(key);
        self.version += 1;
        self.written_bytes += (key.len() + size) as u64;
        self.drive.records.value(key, self.version, &mut self.fresh[..size]);
        size
    }

    #[inline]
    fn get(&mut self, op: Op, key: &[u8]) -> Result<()> {
        if !self.target.get(key, &mut self.found)? {
            return Err(wrong(op, "found nothing"));
        }
        match self.drive.records.belongs(key, &self.found) {
            true => Ok(()),
            false => Err(wrong(op, "found a value that was never put there")),
        }
    }

    #[inline]
    fn update(&mut self, op: Op, key: &[u8]) -> Result<()> {
        let size = self.renew(key);
        match self.target.update(key, &self.fresh[..size])? {
            true => Ok(()),
            false => Err(wrong(op, "found nothing to update")),
        }
    }

    fn scan(&mut self, op: Op, from: &[u8]) -> Result<()> {
        let Self { target, drive, found, last, scanned, .. } = self;
        let (mut good, mut seen) = (true, 0_usize);
        let visited = target.scan(from, usize::from(op.length), &mut |key, value| {
            found.clear();
            found.extend_from_slice(value);
            good &= drive.records.belongs(key, found) && (seen > 0 || key == from);
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

    fn gathered(&mut self, stream: Stream<'_>, stop: &AtomicBool) -> Result<()> {
        let (every, gather) = (self.drive.latency_every, self.drive.gather);
        let begun = Instant::now();
        let mut keys = Vec::with_capacity(gather);
        let (mut left, mut done, mut again) = (every, 0_u64, false);
        loop {
            for (chunk, ops) in stream.ops.chunks(gather).enumerate() {
                left = left.wrapping_sub(1);
                let start = (left == 0).then(Instant::now);
                keys.clear();
                keys.extend((0..ops.len()).map(|at| stream.key(chunk * gather + at)));
                self.gather(ops[0], &keys)?;
                done += ops.len() as u64;
                self.done.store(done, Ordering::Relaxed);
                if let Some(start) = start {
                    left = every;
                    self.note_length(Kind::Get, start.elapsed());
                    if stop.load(Ordering::Relaxed) || (again && begun.elapsed() >= self.drive.least) {
                        return Ok(());
                    }
                }
            }
            if stream.ops.is_empty() || stop.load(Ordering::Relaxed) || begun.elapsed() >= self.drive.least {
                return Ok(());
            }
            again = true;
        }
    }

    /// Gets all of these keys, of which the first is that of `op`.
    fn gather(&mut self, op: Op, keys: &[&[u8]]) -> Result<()> {
        let Self { target, drive, found, .. } = self;
        let mut good = 0;
        target.multi_get(keys, &mut |at, value| {
            let Some(value) = value else { return };
            found.clear();
            found.extend_from_slice(value);
            good += usize::from(drive.records.belongs(keys[at], found));
        })?;
        match good == keys.len() {
            true => Ok(()),
            false => Err(wrong(op, "was gathered with others, and some were missing or wrong")),
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
    #[test]
    fn streams_that_can_go_on_do_until_their_time_is_over() {
        let args = parsed("--records 500 --ops 300 --threads 2 --latency-every 4 --check full");
        let target = peers::open("btreemap", std::path::Path::new(""), &peers::Asked::default()).expect("a map");
        let (mix, drive) = (cell::mix(&args), cell::drive(&args));
        run(&*target, &mix.streams(Workload::Load), &drive).expect("it loads");
        for gather in [1, 16] {
            let ran = |least| {
                let drive = Drive { gather, least, ..drive.clone() };
                run(&*target, &mix.streams(Workload::Get), &drive).expect("it runs")
            };
            assert_eq!(ran(Duration::ZERO).ops, 300, "once");
            let longer = ran(Duration::from_millis(20));
            assert!(longer.ops > 300 && longer.wall >= Duration::from_millis(20), "{longer:?}");
        }
    }
}
