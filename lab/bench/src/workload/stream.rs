//! The streams of operations of the workloads.
//!
//! A stream is generated before the clock starts: eight bytes per operation, one stream per thread.
//! All randomness comes from the seed, the workload and the thread. All stores therefore receive
//! the same operations; a faster store may receive more.
//!
//! Each workload finds records 0..N live and leaves them live. The deletes of `delete` are put
//! back, and the inserts of `d` and `e` (numbers from N upwards) are removed, both outside the
//! timed part.

use crate::workload::Workload;
use crate::workload::dist::{Rng, Scrambled, Zipfian, strewn};
use crate::workload::keys::{Keys, Records};

/// Maximum scan length of workload `e`, as in YCSB.
const E_SCAN_PAIRS_MAX: u64 = 100;

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Get,
    /// A get of an absent key.
    Absent,
    Put,
    Update,
    Delete,
    Scan,
    ReadModifyWrite,
}

impl Kind {
    /// Returns whether it puts a new value.
    pub(crate) fn makes_value(self) -> bool {
        matches!(self, Self::Put | Self::Update | Self::ReadModifyWrite)
    }

    /// Returns whether it changes something.
    pub(crate) fn changes(self) -> bool {
        !matches!(self, Self::Get | Self::Absent | Self::Scan)
    }
}

/// An operation of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Op {
    /// Number of the record.
    pub(crate) record: u32,
    /// Number of records to scan.
    pub(crate) length: u16,
    /// The kind.
    pub(crate) kind: Kind,
}

impl Op {
    fn of(kind: Kind, record: u64) -> Self {
        Self { record: u32::try_from(record).expect("record numbers were checked with the arguments"), length: 0, kind }
    }
}

/// The common parameters of all streams of a run.
#[derive(Debug, Clone)]
pub(crate) struct Mix {
    /// Number of loaded records.
    pub(crate) records: u64,
    /// Operations of a workload, of all threads together.
    pub(crate) ops: u64,
    /// Length of a scan in workload `scan`.
    pub(crate) scan_length: u16,
    /// Serving threads.
    pub(crate) threads: usize,
    /// Seed.
    pub(crate) seed: u64,
    /// Number of earlier turns of the workload.
    pub(crate) before: u32,
}

impl Mix {
    /// Returns the streams of `workload`, one per thread.
    pub(crate) fn streams(&self, workload: Workload) -> Vec<Vec<Op>> {
        let mut streams = vec![Vec::new(); self.threads];
        self.fill(workload, &mut streams);
        streams
    }

    /// Allocates memory for the streams of every workload, of at least `least` operations. Touches
    /// it, so that its use does not look like memory of the store.
    pub(crate) fn room(&self, least: u64) -> Vec<Vec<Op>> {
        let most = self.most(least);
        (0..self.threads).map(|_| vec![Op { length: 1, ..Op::of(Kind::Get, 1) }; most]).collect()
    }

    /// Does the same for their keys.
    pub(crate) fn room_for_keys(&self, records: &Records, least: u64) -> Vec<Keys> {
        (0..self.threads).map(|_| Keys::room(records, self.most(least))).collect()
    }

    /// Returns the loaded record with the greatest key.
    pub(crate) fn greatest(&self, records: &Records) -> u32 {
        let (mut key, mut greatest, mut record) = (Vec::new(), Vec::new(), 0);
        for number in 0..u32::try_from(self.records).expect("record numbers were checked with the arguments") {
            records.key(number, &mut key);
            if key > greatest {
                greatest.clone_from(&key);
                record = number;
            }
        }
        record
    }

    /// Returns the maximum number of operations of a stream.
    fn most(&self, least: u64) -> usize {
        self.records.max(self.ops).max(least) as usize / self.threads + 1
    }

    /// Replaces `streams`, one per thread, by the streams of `workload`.
    pub(crate) fn fill(&self, workload: Workload, streams: &mut [Vec<Op>]) {
        assert_eq!(streams.len(), self.threads, "one stream a thread");
        match workload {
            Workload::Load => self.deal(Kind::Put, streams),
            Workload::Idle => streams.iter_mut().for_each(Vec::clear),
            Workload::Delete => {
                self.deal(Kind::Delete, streams);
                for (thread, stream) in streams.iter_mut().enumerate() {
                    self.rng(workload, thread).shuffle(stream);
                    stream.truncate(self.share(thread) as usize);
                }
            }
            _ => {
                let scrambled = Scrambled::new(self.records);
                let latest = Zipfian::new(self.records);
                streams
                    .iter_mut()
                    .enumerate()
                    .for_each(|(t, stream)| self.draw(workload, t, &scrambled, &latest, stream));
            }
        }
    }

    /// Replaces `streams` by streams that read each record once.
    pub(crate) fn fill_with_reads_of_all(&self, streams: &mut [Vec<Op>]) {
        self.deal(Kind::Get, streams);
    }

    /// Replaces the streams of `workload` by the operations that restore records 0..N after it.
    pub(crate) fn undo(workload: Workload, streams: &mut [Vec<Op>]) {
        for stream in streams {
            match workload {
                Workload::Delete => stream.iter_mut().for_each(|op| op.kind = Kind::Put),
                Workload::D | Workload::E => {
                    stream.retain(|op| op.kind == Kind::Put);
                    stream.iter_mut().for_each(|op| op.kind = Kind::Delete);
                }
                _ => stream.clear(),
            }
        }
    }

    /// Returns how many operations of thread `thread`'s load belong to the first `records` records.
    pub(crate) fn loaded_by(&self, thread: usize, records: u64) -> usize {
        records.saturating_sub(thread as u64).div_ceil(self.threads as u64) as usize
    }

    /// Returns the number of operations of a thread.
    fn share(&self, thread: usize) -> u64 {
        let (threads, thread) = (self.threads as u64, thread as u64);
        self.ops / threads + u64::from(thread < self.ops % threads)
    }

    /// Distributes the records to the threads in rotation.
    fn deal(&self, kind: Kind, streams: &mut [Vec<Op>]) {
        for (thread, stream) in streams.iter_mut().enumerate() {
            stream.clear();
            stream.extend((thread as u64..self.records).step_by(self.threads).map(|record| Op::of(kind, record)));
        }
    }

    fn rng(&self, workload: Workload, thread: usize) -> Rng {
        Rng::new(self.seed, u64::from(self.before) << 48 | (workload as u64) << 32 | thread as u64)
    }

    fn draw(&self, workload: Workload, thread: usize, scrambled: &Scrambled, latest: &Zipfian, stream: &mut Vec<Op>) {
        let mut rng = self.rng(workload, thread);
        let mut inserted = 0;
        let (threads, t) = (self.threads as u64, thread as u64);
        let uniform = self.records;
        let mut op = || {
            let dice = rng.below(100);
            match workload {
                Workload::Get | Workload::Multiget => Op::of(Kind::Get, rng.below(uniform)),
                // After the records, so that none of their keys is used.
                Workload::Absent => Op::of(Kind::Absent, self.records + rng.below(uniform)),
                Workload::Overload | Workload::Overwrite => Op::of(Kind::Put, rng.below(uniform)),
                Workload::Zipfput => Op::of(Kind::Put, strewn(latest.draw(&mut rng), uniform)),
                Workload::Update => Op::of(Kind::Update, rng.below(uniform)),
                Workload::Scan => Op { length: self.scan_length, ..Op::of(Kind::Scan, rng.below(uniform)) },
                Workload::D | Workload::E if dice < 5 => {
                    inserted += 1;
                    Op::of(Kind::Put, self.records + t + (inserted - 1) * threads)
                }
                Workload::D => Op::of(Kind::Get, self.latest(latest.draw(&mut rng), inserted, t)),
                Workload::E => {
                    let length = 1 + rng.below(E_SCAN_PAIRS_MAX) as u16;
                    Op { length, ..Op::of(Kind::Scan, scrambled.draw(&mut rng)) }
                }
                Workload::A if dice < 50 => Op::of(Kind::Update, scrambled.draw(&mut rng)),
                Workload::B if dice < 5 => Op::of(Kind::Update, scrambled.draw(&mut rng)),
                Workload::F if dice < 50 => Op::of(Kind::ReadModifyWrite, scrambled.draw(&mut rng)),
                _ => Op::of(Kind::Get, scrambled.draw(&mut rng)),
            }
        };
        stream.clear();
        stream.extend((0..self.share(thread)).map(|_| op()));
    }

    /// Returns the record that thread `t` inserted `back` inserts ago, or the loaded record that
    /// far back.
    fn latest(&self, back: u64, inserted: u64, t: u64) -> u64 {
        if back < inserted {
            self.records + t + (inserted - 1 - back) * self.threads as u64
        } else {
            (self.records - 1).saturating_sub(back - inserted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const MIX: Mix = Mix { records: 10_000, ops: 100_001, scan_length: 50, threads: 3, seed: 42, before: 0 };

    fn share(streams: &[Vec<Op>], kind: Kind) -> f64 {
        let all: usize = streams.iter().map(Vec::len).sum();
        let those = streams.iter().flatten().filter(|op| op.kind == kind).count();
        those as f64 / all as f64
    }

    #[test]
    fn the_ycsb_mixes_have_their_shares() {
        for (workload, kind, should) in [
            (Workload::A, Kind::Update, 0.5),
            (Workload::A, Kind::Get, 0.5),
            (Workload::B, Kind::Update, 0.05),
            (Workload::B, Kind::Get, 0.95),
            (Workload::C, Kind::Get, 1.0),
            (Workload::D, Kind::Put, 0.05),
            (Workload::D, Kind::Get, 0.95),
            (Workload::E, Kind::Put, 0.05),
            (Workload::E, Kind::Scan, 0.95),
            (Workload::Absent, Kind::Absent, 1.0),
            (Workload::Overload, Kind::Put, 1.0),
            (Workload::Overwrite, Kind::Put, 1.0),
            (Workload::Zipfput, Kind::Put, 1.0),
            (Workload::Update, Kind::Update, 1.0),
            (Workload::F, Kind::ReadModifyWrite, 0.5),
            (Workload::F, Kind::Get, 0.5),
        ] {
            let is = share(&MIX.streams(workload), kind);
            assert!((is - should).abs() < 0.006, "{workload:?} {kind:?}: {is} for {should}");
        }
    }

    #[test]
    fn a_workload_has_all_its_operations_spread_over_the_threads() {
        for workload in [Workload::Get, Workload::A, Workload::E, Workload::Scan, Workload::Overload] {
            let lengths: Vec<_> = MIX.streams(workload).iter().map(Vec::len).collect();
            assert_eq!(lengths, [33_334, 33_334, 33_333]);
        }
    }

    #[test]
    fn load_and_delete_touch_each_record_once() {
        for workload in [Workload::Load, Workload::Delete] {
            let streams = MIX.streams(workload);
            let touched: HashSet<_> = streams.iter().flatten().map(|op| op.record).collect();
            assert_eq!(touched.len(), 10_000);
            assert_eq!(streams.iter().map(Vec::len).sum::<usize>(), 10_000);
        }
    }

    #[test]
    fn threads_insert_different_records_and_read_only_what_is_there() {
        let streams = MIX.streams(Workload::D);
        let mut inserted = HashSet::new();
        for stream in &streams {
            let mut own = HashSet::new();
            for op in stream {
                match op.kind {
                    Kind::Put => assert!(op.record >= 10_000 && own.insert(op.record)),
                    _ => assert!(op.record < 10_000 || own.contains(&op.record), "{op:?}"),
                }
            }
            assert!(own.iter().all(|record| inserted.insert(*record)), "two threads insert one record");
        }
    }

    #[test]
    fn a_part_of_the_load_is_of_the_first_records() {
        let streams = MIX.streams(Workload::Load);
        for records in [0, 1, 2, 3, 4, 9_998, 10_000] {
            let part = |t: usize| streams[t][..MIX.loaded_by(t, records)].iter().map(|op| u64::from(op.record));
            let mut loaded: Vec<_> = (0..3).flat_map(part).collect();
            loaded.sort_unstable();
            assert_eq!(loaded, (0..records).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_overwrite_puts_records_that_are_there_all_over() {
        let streams = MIX.streams(Workload::Overwrite);
        let touched: HashSet<_> = streams.iter().flatten().map(|op| op.record).collect();
        assert!(touched.iter().all(|record| *record < 10_000));
        // With 10 puts per record, one record in 22,000 is missed.
        assert!(touched.len() > 9_950, "{}", touched.len());
        let mut streams = streams;
        Mix::undo(Workload::Overwrite, &mut streams);
        assert!(streams.concat().is_empty(), "there is nothing to undo");
    }

    #[test]
    fn each_phase_of_zipfian_puts_has_the_same_hot_records_in_another_order() {
        let often = |before: u32| {
            let mut seen = vec![0_u32; 10_000];
            let streams = Mix { before, ..MIX }.streams(Workload::Zipfput);
            streams.iter().flatten().for_each(|op| seen[op.record as usize] += 1);
            let hottest = (0..seen.len()).max_by_key(|record| seen[*record]).expect("records");
            (hottest, f64::from(seen[hottest]) / 100_001.0, streams)
        };
        let (first, second) = (often(0), often(1));
        // 1 / 10.2 of all draws: the sum of 1 / r^0.99 over 10,000 ranks.
        assert!((0.093..0.103).contains(&first.1) && (0.093..0.103).contains(&second.1), "{} {}", first.1, second.1);
        assert_eq!(first.0, second.0);
        assert_ne!(first.2, second.2);
        let all = first.2.iter().flatten();
        assert!(all.clone().all(|op| op.record < 10_000 && op.kind == Kind::Put), "each is there already");
    }

    #[test]
    fn what_is_absent_was_never_put() {
        let streams = MIX.streams(Workload::Absent);
        let asked: HashSet<_> = streams.iter().flatten().map(|op| op.record).collect();
        assert!(asked.iter().all(|record| (10_000..20_000).contains(record)) && asked.len() > 9_950);
    }

    #[test]
    fn the_latest_records_are_read_most() {
        let mix = Mix { threads: 1, ..MIX };
        let mut inserted = 0_u64;
        let (mut near, mut reads) = (0_u64, 0_u64);
        for op in &mix.streams(Workload::D)[0] {
            match op.kind {
                Kind::Put => inserted += 1,
                _ => {
                    reads += 1;
                    near += u64::from(u64::from(op.record) + 10 >= 10_000 + inserted);
                }
            }
        }
        let share = near as f64 / reads as f64;
        // zeta(10, 0.99) / zeta(10_000, 0.99)
        assert!((0.26..0.34).contains(&share), "{share}");
    }

    #[test]
    fn scans_of_e_are_of_1_to_100_records() {
        let lengths: HashSet<_> =
            MIX.streams(Workload::E).iter().flatten().filter(|op| op.kind == Kind::Scan).map(|op| op.length).collect();
        assert_eq!(lengths.len(), 100);
        assert!(lengths.contains(&1) && lengths.contains(&100));
    }

    #[test]
    fn one_seed_gives_one_stream() {
        for workload in [Workload::Get, Workload::F, Workload::Delete] {
            assert_eq!(MIX.streams(workload), MIX.streams(workload));
            assert_ne!(MIX.streams(workload), Mix { seed: 43, ..MIX }.streams(workload));
            assert_ne!(MIX.streams(workload), Mix { before: 1, ..MIX }.streams(workload), "the second turn is another");
        }
    }

    #[test]
    fn idle_threads_do_nothing() {
        let streams = MIX.streams(Workload::Idle);
        assert!(streams.concat().is_empty() && streams.len() == 3);
    }

    #[test]
    fn what_a_workload_changes_is_undone() {
        let undone = |workload| {
            let mut streams = MIX.streams(workload);
            Mix::undo(workload, &mut streams);
            streams.concat()
        };
        let back = undone(Workload::Delete);
        assert_eq!(back.len(), 10_000);
        assert!(back.iter().all(|op| op.kind == Kind::Put));
        let back = undone(Workload::E);
        assert!(back.iter().all(|op| op.kind == Kind::Delete && op.record >= 10_000));
        let inserts = MIX.streams(Workload::E).concat().iter().filter(|op| op.kind == Kind::Put).count();
        assert_eq!(back.len(), inserts);
        assert!(undone(Workload::A).is_empty());
    }

    #[test]
    fn fewer_deletes_than_records_delete_as_many() {
        let mix = Mix { ops: 100, ..MIX };
        let touched: HashSet<_> = mix.streams(Workload::Delete).concat().iter().map(|op| op.record).collect();
        assert_eq!(touched.len(), 100);
    }
}
