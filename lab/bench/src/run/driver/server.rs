//! A serving thread: the loops over its stream, the requests to the target, and the checks of the
//! answers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lodestore_contract::Result;

use super::{Drive, Own, Part, Stream, first_version, wrong};
use crate::procfs::thread_cpu_seconds;
use crate::run::outcome::{Counts, LATENCY_NANOS_MAX};
use crate::run::watch::Progress;
use crate::target::Target;
use crate::workload::open_loop::{Schedule, Waited, wait_until};
use crate::workload::stream::{Kind, Op};

/// State of one serving thread.
pub(super) struct Server<'a> {
    target: &'a dyn Target,
    drive: &'a Drive,
    own: &'a mut Own,
    counts: Counts,
    /// The version in its last value: [`first_version`] plus a counter.
    version: u64,
    /// Due time of the last operation that did not begin late.
    on_time: Duration,
    done: &'a AtomicU64,
}

impl<'a> Server<'a> {
    pub(super) fn new(
        target: &'a dyn Target,
        drive: &'a Drive,
        at: usize,
        progress: &'a Progress,
        own: &'a mut Own,
    ) -> Self {
        own.latency.reset();
        Self {
            target,
            drive,
            own,
            counts: Counts::default(),
            version: first_version(at, drive),
            on_time: Duration::ZERO,
            done: progress.of(at),
        }
    }

    /// Serves a stream. In an open loop, `open` has the common start of all threads and the due
    /// times since then.
    pub(super) fn serve(
        &mut self,
        stream: Stream<'_>,
        stop: &AtomicBool,
        open: Option<(Instant, Schedule)>,
    ) -> Result<Part> {
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
        self.counts.cpu_s = thread_cpu_seconds() - cpu;
        self.counts.ops = self.done.load(Ordering::Relaxed);
        self.counts.late_for = self.counts.due.saturating_sub(self.on_time);
        Ok((start, end, self.counts))
    }

    /// Repeats `stream` until `length` is over, and times every operation. Waits for a call that
    /// lasts longer.
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

    /// Sends each operation when it is due, or at once if it is overdue, and times it from its due
    /// time.
    fn paced(&mut self, stream: Stream<'_>, stop: &AtomicBool, begun: Instant, schedule: Schedule) -> Result<()> {
        for ((at, op), due) in stream.ops.iter().enumerate().zip(schedule) {
            match wait_until(begun + due, stop) {
                Waited::OnTime => self.on_time = due,
                Waited::Late => {}
                Waited::Stopped => break,
            }
            self.serve_one(*op, stream.key(at))?;
            self.note_length(op.kind, begun.elapsed().saturating_sub(due));
            self.counts.due = due;
            self.done.store(at as u64 + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn singly(&mut self, stream: Stream<'_>, stop: &AtomicBool) -> Result<()> {
        let every = self.drive.latency_every;
        let begun = Instant::now();
        let (mut left, mut done) = (every, 0_u64);
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
                if stop.load(Ordering::Relaxed) || self.drive.warm.is_some_and(|length| end - begun >= length) {
                    return Ok(());
                }
            }
            let over = self.drive.warm.is_none_or(|length| begun.elapsed() >= length);
            if over || stream.ops.is_empty() || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }

    fn note_length(&mut self, kind: Kind, length: Duration) {
        let ns = u64::try_from(length.as_nanos()).unwrap_or(LATENCY_NANOS_MAX);
        self.own.latency.saturating_record(ns.max(1));
        let timed = if kind.changes() { &mut self.counts.writes } else { &mut self.counts.reads };
        timed.add(1, ns);
    }

    #[inline]
    fn serve_one(&mut self, op: Op, key: &[u8]) -> Result<()> {
        match op.kind {
            Kind::Get => self.get(op, key),
            Kind::Absent => match self.target.get(key, &mut self.own.found)? {
                false => Ok(()),
                true => Err(wrong(op, "found what was never put")),
            },
            Kind::Put => {
                let size = self.renew(key);
                self.target.put(key, &self.own.fresh[..size])
            }
            Kind::Update => self.update(op, key),
            Kind::Delete => match self.target.delete(key)? {
                true => {
                    self.counts.removed_bytes += (key.len() + self.drive.records.value_size_of(key)) as u64;
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

    /// Generates the next version of the key's value at the beginning of `fresh`, and returns its
    /// size.
    #[inline]
    fn renew(&mut self, key: &[u8]) -> usize {
        let size = self.drive.records.value_size_of(key);
        self.version += 1;
        self.counts.written_bytes += (key.len() + size) as u64;
        self.drive.records.value(key, self.version, &mut self.own.fresh[..size]);
        size
    }

    #[inline]
    fn get(&mut self, op: Op, key: &[u8]) -> Result<()> {
        if !self.target.get(key, &mut self.own.found)? {
            return Err(wrong(op, "found nothing"));
        }
        match self.drive.records.belongs(key, &self.own.found) {
            true => Ok(()),
            false => Err(wrong(op, "found a value that was never put there")),
        }
    }

    #[inline]
    fn update(&mut self, op: Op, key: &[u8]) -> Result<()> {
        let size = self.renew(key);
        match self.target.update(key, &self.own.fresh[..size])? {
            true => Ok(()),
            false => Err(wrong(op, "found nothing to update")),
        }
    }

    fn scan(&mut self, op: Op, from: &[u8]) -> Result<()> {
        let Self { target, drive, own: Own { found, last, .. }, counts, .. } = self;
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
        counts.scanned += visited as u64;
        if !good || seen != visited || !(1..=usize::from(op.length)).contains(&seen) {
            return Err(wrong(op, "saw a wrong pair, or too many or too few"));
        }
        if seen < usize::from(op.length) { self.short_scan(op, from) } else { Ok(()) }
    }

    /// Checks that a scan of fewer than `op.length` records reached the greatest loaded key.
    #[cold]
    fn short_scan(&mut self, op: Op, from: &[u8]) -> Result<()> {
        let Some(greatest) = self.drive.greatest else { return Ok(()) };
        let Own { found, last, .. } = &mut *self.own;
        // A full check has recorded the last key. Otherwise the scan is repeated.
        if !self.drive.full {
            let length = usize::from(op.length);
            let visited = self.target.scan(from, length, &mut |key, _| {
                last.clear();
                last.extend_from_slice(key);
            })?;
            // Inserts since the first scan may have completed the second scan, which then ends
            // before the greatest key.
            if visited == length {
                return Ok(());
            }
        }
        self.drive.records.key(greatest, found);
        if *last >= *found { Ok(()) } else { Err(wrong(op, "ended before its length, and before the last key")) }
    }

    fn gathered(&mut self, stream: Stream<'_>, stop: &AtomicBool) -> Result<()> {
        let (every, gather) = (self.drive.latency_every, self.drive.gather);
        let begun = Instant::now();
        let mut keys = Vec::with_capacity(gather);
        let (mut left, mut done) = (every, 0_u64);
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
                    if stop.load(Ordering::Relaxed) || self.drive.warm.is_some_and(|length| begun.elapsed() >= length) {
                        return Ok(());
                    }
                }
            }
            let over = self.drive.warm.is_none_or(|length| begun.elapsed() >= length);
            if over || stream.ops.is_empty() || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }

    /// Gets all of these keys; `op` belongs to the first.
    fn gather(&mut self, op: Op, keys: &[&[u8]]) -> Result<()> {
        let Self { target, drive, own: Own { found, .. }, .. } = self;
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
