//! Runs streams of operations against a target and times them.
//!
//! Throughput is the wall time from the first thread's start to the last one's end. Latency is
//! sampled: every n-th operation of each thread is timed separately, because two clock reads cost
//! about as much as a fast operation's bookkeeping. In an open loop every operation is timed, from
//! its due time.
//!
//! Keys and operations are generated before the clock starts. The additional work in the timed part
//! is the same for all stores: a value is generated when it is put, and every value that is read is
//! checked to belong to its key.

mod server;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lodestore_contract::{Error, Result};

use crate::run::outcome::{Counts, Outcome, histogram};
use crate::run::watch::Progress;
use crate::target::Target;
use crate::workload::keys::{KEY_BYTES_MAX, Keys, Records};
use crate::workload::open_loop::Pace;
use crate::workload::stream::{Kind, Op};
use server::Server;

/// Records per thread that are read back after a run.
const LOOKED_AT: usize = 256;

/// How to run.
#[derive(Debug, Clone)]
pub(crate) struct Drive {
    /// The records.
    pub(crate) records: Records,
    /// Time every n-th operation; 0 for none.
    pub(crate) latency_every: u32,
    /// Keys of one call, if gets are combined; 1 for single gets.
    pub(crate) gather: usize,
    /// Check the order of scanned keys as well.
    pub(crate) full: bool,
    /// Repeat the streams for this long, and time every operation (with empty streams: wait).
    /// `None`: run them once.
    pub(crate) lasting: Option<Duration>,
    /// Warm up: repeat the streams for this long, as they would be measured, until the next timed
    /// call.
    pub(crate) warm: Option<Duration>,
    /// Number of the run on this store, which each value contains.
    pub(crate) run: u8,
    /// The greatest key, at which a scan may end early; `None` if it is not known.
    pub(crate) greatest: Option<u32>,
    /// The due times of the operations, each of which is timed. `None`: each operation begins when
    /// the previous one is done.
    pub(crate) pace: Option<Pace>,
    /// Name of the serving threads, so that a profiler can distinguish the workloads.
    pub(crate) name: &'static str,
}

/// The operations of a thread, and their keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream<'a> {
    ops: &'a [Op],
    keys: &'a Keys,
    /// Index of the first operation's key.
    first: usize,
}

impl<'a> Stream<'a> {
    /// Creates a stream of these operations and their keys.
    pub(crate) fn new(ops: &'a [Op], keys: &'a Keys) -> Self {
        Self { ops, keys, first: 0 }
    }

    /// Returns a part of the stream.
    pub(crate) fn part(self, range: Range<usize>) -> Self {
        Self { ops: &self.ops[range.clone()], first: self.first + range.start, ..self }
    }

    #[inline]
    fn key(self, at: usize) -> &'a [u8] {
        self.keys.at(self.first + at)
    }
}

/// The driver's memory for each thread, touched before the store exists, so that it does not
/// look like memory of the store.
#[derive(Debug)]
pub(crate) struct Room {
    threads: Vec<Own>,
    /// Histograms for the results of runs.
    spare: Vec<Histogram<u64>>,
}

#[derive(Debug)]
struct Own {
    latency: Histogram<u64>,
    /// As long as the longest value.
    fresh: Vec<u8>,
    found: Vec<u8>,
    last: Vec<u8>,
}

impl Room {
    /// Creates the memory for `threads` threads.
    pub(crate) fn new(threads: usize, records: &Records) -> Self {
        let most = records.value_most();
        let own = || {
            let (mut found, mut last) = (vec![1; most], vec![1; KEY_BYTES_MAX]);
            found.clear();
            last.clear();
            Own { latency: histogram(), fresh: vec![1; most], found, last }
        };
        Self { threads: (0..threads).map(|_| own()).collect(), spare: vec![histogram(), histogram()] }
    }

    /// Returns an empty histogram.
    pub(crate) fn take(&mut self) -> Histogram<u64> {
        self.spare.pop().unwrap_or_else(histogram)
    }

    /// Returns an unused histogram to the spare ones.
    pub(crate) fn give_back(&mut self, mut latency: Histogram<u64>) {
        // Not `clear`, which keeps the maximum.
        latency.reset();
        self.spare.push(latency);
    }
}

/// Returns the prefix of the versions that a thread generates in a run.
fn first_version(thread: usize, drive: &Drive) -> u64 {
    (thread as u64) << 48 | u64::from(drive.run) << 40
}

/// Returns the error for a wrong answer.
fn wrong(op: Op, what: &str) -> Error {
    Error::corrupt(format!("record {} of the bench", op.record), format!("{:?} {what}", op.kind))
}

/// Generates the keys, and runs one stream on each thread.
///
/// # Errors
/// The first error of the target; a wrong or missing answer as [`Error::Corrupt`].
pub(crate) fn run(target: &dyn Target, streams: &[Vec<Op>], drive: &Drive) -> Result<Outcome> {
    let keys_of = |ops: &Vec<Op>| Keys::of(&drive.records, ops.iter().map(|op| op.record));
    let keys: Vec<_> = streams.iter().map(keys_of).collect();
    let streams: Vec<_> = streams.iter().zip(&keys).map(|(ops, keys)| Stream::new(ops, keys)).collect();
    let mut room = Room::new(streams.len(), &drive.records);
    run_watched(target, &streams, drive, &Progress::new(streams.len()), &mut room)
}

/// Does the same as [`run`], with keys generated before, and reports to `progress`, which must
/// support as many threads as `room`.
///
/// # Errors
/// Those of [`run`].
pub(crate) fn run_watched(
    target: &dyn Target,
    streams: &[Stream<'_>],
    drive: &Drive,
    progress: &Progress,
    room: &mut Room,
) -> Result<Outcome> {
    let barrier = Barrier::new(streams.len());
    let (stop, begun, threads) = (AtomicBool::new(false), OnceLock::new(), streams.len());
    let (barrier, stop, begun) = (&barrier, &stop, &begun);
    let results: Vec<Result<Part>> = std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .zip(&mut room.threads)
            .enumerate()
            .map(|(at, (stream, own))| {
                let serve = move || {
                    let mut server = Server::new(target, drive, at, progress, own);
                    barrier.wait();
                    let schedule =
                        drive.pace.map(|pace| (*begun.get_or_init(Instant::now), pace.schedule(at, threads)));
                    server.serve(*stream, stop, schedule)
                };
                std::thread::Builder::new().name(drive.name.into()).spawn_scoped(scope, serve).expect("a thread starts")
            })
            .collect();
        assert_eq!(threads.len(), streams.len(), "there is room for each thread");
        threads.into_iter().map(|thread| thread.join().expect("a serving thread panicked")).collect()
    });
    merge(results, room)
}

/// Start and end of one thread, and its counts.
type Part = (Instant, Instant, Counts);

fn merge(results: Vec<Result<Part>>, room: &mut Room) -> Result<Outcome> {
    let mut all = Outcome::none(room.take());
    let mut span: Option<(Instant, Instant)> = None;
    for (result, own) in results.into_iter().zip(&room.threads) {
        let (start, end, counts) = result?;
        all.counts.add(&counts);
        all.latency.add(&own.latency).expect("the bounds are the same");
        span = Some(span.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
    }
    all.wall = span.map_or(Duration::ZERO, |(first, last)| last - first);
    Ok(all)
}

/// Checks that records hold the last values that these streams, run completely, put, and that
/// deleted records are absent. Checks the [`LOOKED_AT`] records that each thread changed last.
/// Skips values that another thread put in the same run, and values without a version.
///
/// # Errors
/// Errors of the target; an outdated, deleted or missing value as [`Error::Corrupt`].
pub(crate) fn check_newest(target: &dyn Target, streams: &[Stream<'_>], drive: &Drive) -> Result<()> {
    let mut found = Vec::new();
    for (thread, stream) in streams.iter().enumerate() {
        let changes = || stream.ops.iter().enumerate().rev().filter(|(_, op)| op.kind.changes());
        let first = first_version(thread, drive);
        let mut version = first + stream.ops.iter().filter(|op| op.kind.makes_value()).count() as u64;
        let mut seen = HashSet::with_capacity(LOOKED_AT);
        for (at, op) in changes() {
            if seen.insert(op.record) {
                let key = stream.key(at);
                let there = target.get(key, &mut found)?;
                let is = drive.records.version(&found).unwrap_or(version);
                let of_another = || is >> 48 != thread as u64 && (is >> 40) as u8 == drive.run;
                match op.kind {
                    Kind::Delete if there => return Err(wrong(*op, "was acknowledged, and the record is there")),
                    Kind::Delete => {}
                    _ if !there || !drive.records.belongs(key, &found) => {
                        return Err(wrong(*op, "left nothing, or something else"));
                    }
                    _ if is != version && !of_another() => {
                        return Err(wrong(*op, "was acknowledged, and an older value is there"));
                    }
                    _ => {}
                }
            }
            if seen.len() == LOOKED_AT {
                break;
            }
            version -= u64::from(op.kind.makes_value());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;
    use crate::peers;
    use crate::run::cell;
    use crate::run::outcome::LATENCY_NANOS_MAX;
    use crate::workload::Workload;

    #[test]
    fn the_longest_of_a_run_is_none_of_a_run_before_it() {
        let args = parsed("--records 300 --ops 100 --threads 1 --latency-every 1");
        let target = map();
        let (mix, drive) = (cell::mix(&args), cell::drive(&args));
        let ops = mix.streams(Workload::Load);
        let keys = Keys::of(&drive.records, ops[0].iter().map(|op| op.record));
        let mut room = Room::new(1, &drive.records);
        room.threads[0].latency.record(LATENCY_NANOS_MAX / 2).expect("in bounds");
        let mut spare = [room.take(), room.take()];
        spare.iter_mut().for_each(|spare| spare.record(LATENCY_NANOS_MAX / 2).expect("in bounds"));
        spare.into_iter().for_each(|spare| room.give_back(spare));
        let ran = run_watched(&*target, &[Stream::new(&ops[0], &keys)], &drive, &Progress::new(1), &mut room);
        let latency = ran.expect("it runs").latency;
        assert!(
            latency.len() == 300 && latency.max() < LATENCY_NANOS_MAX / 4,
            "{} of {}",
            latency.max(),
            latency.len()
        );
    }

    #[test]
    fn bytes_are_counted_as_they_are_put_and_deleted() {
        let args = parsed("--records 3000 --ops 1000 --threads 2 --key-size 8..40 --value-size facebook --check full");
        let target = map();
        let (mix, drive) = (cell::mix(&args), cell::drive(&args));
        let ran = |workload| run(&*target, &mix.streams(workload), &drive).expect("it runs");
        let held = || {
            let mut bytes = 0;
            target.scan(&[], usize::MAX, &mut |key, value| bytes += (key.len() + value.len()) as u64).expect("a scan");
            bytes
        };
        let loaded = ran(Workload::Load);
        assert_eq!((loaded.counts.written_bytes, loaded.counts.removed_bytes), (held(), 0));
        assert_eq!(loaded.counts.written_bytes, drive.records.bytes(0..3000));
        let updated = ran(Workload::Update);
        assert!(updated.counts.written_bytes > 0 && held() == loaded.counts.written_bytes, "an update keeps the size");
        let inserted = ran(Workload::D);
        assert_eq!(held(), loaded.counts.written_bytes + inserted.counts.written_bytes);
        let deleted = ran(Workload::Delete);
        assert_eq!(deleted.counts.ops, 1000);
        assert_eq!(held(), loaded.counts.written_bytes + inserted.counts.written_bytes - deleted.counts.removed_bytes);
        let gathered = Drive { gather: 16, ..drive.clone() };
        run(&*target, &[vec![Op { record: 3000, length: 0, kind: Kind::Get }; 20]], &gathered)
            .expect("it was put by d");
    }
    /// A map that acknowledges updates and deletes without doing them, and ends each scan after one
    /// pair.
    struct Liar(Box<dyn Target>);

    impl Target for Liar {
        fn facts(&self) -> crate::target::Facts {
            self.0.facts()
        }
        fn account(&self) -> crate::target::Account {
            self.0.account()
        }
        fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
            self.0.get(key, value)
        }
        fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
            self.0.multi_get(keys, each)
        }
        fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
            self.0.put(key, value)
        }
        fn update(&self, key: &[u8], _: &[u8]) -> Result<bool> {
            self.0.get(key, &mut Vec::new())
        }
        fn delete(&self, key: &[u8]) -> Result<bool> {
            self.0.get(key, &mut Vec::new())
        }
        fn scan(&self, from: &[u8], _: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
            self.0.scan(from, 1, each)
        }
        fn catch_up(&self) -> Result<()> {
            Ok(())
        }
        fn settle(&self) -> Result<()> {
            Ok(())
        }
        fn close(&self) -> Result<()> {
            Ok(())
        }
    }

    /// A map that receives the records after each scan, as if by another thread.
    struct Growing(Box<dyn Target>, Vec<(Vec<u8>, Vec<u8>)>);

    impl Target for Growing {
        fn facts(&self) -> crate::target::Facts {
            self.0.facts()
        }
        fn account(&self) -> crate::target::Account {
            self.0.account()
        }
        fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
            self.0.get(key, value)
        }
        fn multi_get(&self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
            self.0.multi_get(keys, each)
        }
        fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
            self.0.put(key, value)
        }
        fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
            self.0.update(key, value)
        }
        fn delete(&self, key: &[u8]) -> Result<bool> {
            self.0.delete(key)
        }
        fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
            let visited = self.0.scan(from, limit, each)?;
            for (key, value) in &self.1 {
                self.0.put(key, value)?;
            }
            Ok(visited)
        }
        fn catch_up(&self) -> Result<()> {
            Ok(())
        }
        fn settle(&self) -> Result<()> {
            Ok(())
        }
        fn close(&self) -> Result<()> {
            Ok(())
        }
    }

    fn map() -> Box<dyn Target> {
        peers::open("btreemap", std::path::Path::new(""), &peers::Asked::default()).expect("a map")
    }

    #[test]
    fn a_store_that_forgets_updates_or_ends_scans_early_is_found_out() {
        let args = parsed("--records 900 --ops 300 --threads 3 --scan-length 7");
        let mix = cell::mix(&args);
        let drive = Drive { greatest: Some(mix.greatest(&cell::records(&args))), ..cell::drive(&args) };
        let newest = |target: &dyn Target, workload, run| {
            let drive = Drive { run, ..drive.clone() };
            let ops = mix.streams(workload);
            super::run(target, &ops, &drive)?;
            let keys: Vec<_> = ops.iter().map(|ops| Keys::of(&drive.records, ops.iter().map(|op| op.record))).collect();
            let streams: Vec<_> = ops.iter().zip(&keys).map(|(ops, keys)| Stream::new(ops, keys)).collect();
            check_newest(target, &streams, &drive)
        };
        let (honest, liar) = (map(), Liar(map()));
        let all = [Workload::Load, Workload::Update, Workload::A, Workload::F, Workload::Zipfput, Workload::Delete];
        for (run, workload) in (0..).zip(all) {
            newest(&*honest, workload, run).unwrap_or_else(|error| panic!("{workload:?}: {error}"));
            let lies = newest(&liar, workload, run);
            assert_eq!(lies.is_err(), !matches!(workload, Workload::Load | Workload::Zipfput), "{workload:?}");
        }
        run(&*honest, &mix.streams(Workload::Load), &drive).expect("what was deleted comes back");
        run(&*honest, &mix.streams(Workload::Scan), &drive).expect("scans near the end are short");
        run(&liar, &mix.streams(Workload::Scan), &drive).expect_err("they all are");
    }

    #[test]
    fn inserts_behind_a_short_scan_do_not_make_it_wrong() {
        let args = parsed("--records 90 --ops 1 --scan-length 7");
        let mix = cell::mix(&args);
        let made = Drive { greatest: Some(mix.greatest(&cell::records(&args))), ..cell::drive(&args) };
        let record = |number| {
            let mut key = Vec::new();
            made.records.key(number, &mut key);
            let mut value = vec![0; made.records.value_size_of(&key)];
            made.records.value(&key, 1, &mut value);
            (key, value)
        };
        let mut keys: Vec<_> = (0..90).map(|number| (record(number).0, number)).collect();
        keys.sort_unstable();
        // The last of five keys from here on is the greatest loaded key.
        let from = keys[85].1;
        for full in [false, true] {
            let target = Growing(map(), (90..5_000).map(record).collect());
            run(&target, &mix.streams(Workload::Load), &made).expect("it loads");
            let drive = Drive { full, ..made.clone() };
            run(&target, &[vec![Op { record: from, length: 7, kind: Kind::Scan }]], &drive)
                .expect("the scan was whole");
        }
    }

    #[test]
    fn what_warms_up_goes_on_until_its_time_is_over() {
        let args = parsed("--records 500 --ops 300 --threads 2 --latency-every 4 --check full");
        let (target, mix, drive) = (map(), cell::mix(&args), cell::drive(&args));
        run(&*target, &mix.streams(Workload::Load), &drive).expect("it loads");
        for gather in [1, 16] {
            let ran = |warm| {
                let drive = Drive { gather, warm, ..drive.clone() };
                run(&*target, &mix.streams(Workload::Get), &drive).expect("it runs")
            };
            assert_eq!(ran(None).counts.ops, 300, "once");
            let longer = ran(Some(Duration::from_millis(20)));
            assert!(longer.counts.ops > 300 && longer.wall >= Duration::from_millis(20), "{longer:?}");
        }
    }
}
