//! Reading and checking everything.

use std::collections::HashSet;

use lodestore_contract::{Progress, Result, VerifyReport};
use lodestore_inplace::note_finding;
use lodestore_media::NvPtr;

use crate::inner::Inner;
use crate::layout::{SegmentHeader, Superblock};
use crate::record::Record;
use crate::table::{AHEAD, Home, READ_AHEAD, Slot, Verdict, walk};

/// Positions of the tree that are compared with the index at once.
const CHUNK: usize = 1024;

impl Inner {
    /// Checks superblock, directories, segments, records, tree and allocator. The store may be in use meanwhile; what only shows
    /// in a comparison of two structures (keys of tree and index) is then not looked at.
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        drop(self.enter()?);
        let mut report = VerifyReport::default();
        let begun = (self.backend.enqueued(), self.backend.trees().len());
        let recovered = self.recovery.wait_done();
        if let Err(error) = &recovered {
            report.find("recovery", error.to_string());
        }
        match Superblock::load(&self.pool) {
            Ok(Some(shape)) if shape == self.table.shape => {}
            Ok(_) => report.find("hikv superblock", "it is not what the store was opened with"),
            Err(error) => note_finding(&mut report, &error),
        }
        let partitions = self.table.shape.partitions as usize;
        for partition in 0..partitions {
            progress(Progress { done: partition as u64, total: partitions as u64 + 1 });
            self.verify_partition(partition, &mut report)?;
        }
        if recovered.is_ok() {
            self.verify_tree(begun, &mut report)?;
        }
        self.logs.verify(&self.pool, &mut report);
        self.pool.allocator().verify(&self.pool, &mut report);
        progress(Progress { done: partitions as u64 + 1, total: partitions as u64 + 1 });
        Ok(report)
    }

    fn verify_partition(&self, partition: usize, report: &mut VerifyReport) -> Result<()> {
        let _guard = self.enter()?;
        let walked = walk(&self.table, &self.pool, partition, |home, slots| {
            let Home { segment, prefix, .. } = home;
            if let Err(error) = SegmentHeader::check(&self.pool, segment.at, partition, segment.depth, prefix) {
                note_finding(report, &error);
            }
            self.verify_segment(home, &slots, report);
            Ok(true)
        });
        if let Err(error) = walked {
            note_finding(report, &error);
        }
        Ok(())
    }

    /// See [`Engine::verify_pieces`](lodestore_inplace::Engine::verify_pieces): a piece is a
    /// partition.
    pub(crate) fn scrub_partitions(&self, piece: &mut dyn FnMut(VerifyReport) -> bool) {
        for partition in 0..self.table.shape.partitions as usize {
            let mut report = VerifyReport::default();
            if self.verify_partition(partition, &mut report).is_err() || !piece(report) {
                return;
            }
        }
    }

    fn verify_segment(&self, home: Home, slots: &[Slot], report: &mut VerifyReport) {
        let mut keys = HashSet::with_capacity(slots.len());
        for (index, slot) in slots.iter().enumerate() {
            if let Some(next) = slots.get(index + AHEAD) {
                self.pool.prefetch(next.entry.position().untagged(), READ_AHEAD);
            }
            let place = format!("segment {:?}", home.segment.at);
            let position = slot.entry.position();
            match self.table.judge(&self.pool, home, *slot) {
                Verdict::Free => {}
                Verdict::Damaged(error) => {
                    self.note_damage(&error);
                    note_finding(report, &error);
                }
                Verdict::BadRecord(_, error) => note_finding(report, &error),
                Verdict::Whole(record) => {
                    report.records += 1;
                    report.bytes += record.len() as u64;
                    if u64::from_le_bytes(record.own()) >> crate::store::GENERATION_SHIFT > self.generation() {
                        report.find(place, format!("record {position:?} is of an open that never was"));
                    } else if !keys.insert(record.key()) {
                        report.find(place, format!("two entries of one key, one names {position:?}"));
                    } else if (position.tag() != 0) != record.expiry().is_some() {
                        report.find(place, format!("the tag of {position:?} does not fit its record"));
                    }
                }
            }
        }
    }

    /// The tree's positions name records in the order of their keys, as many as the index has: as many only where nothing was written since
    /// `begun`, which is the operations enqueued then and the tree's length.
    fn verify_tree(&self, begun: (u64, usize), report: &mut VerifyReport) -> Result<()> {
        self.settle()?;
        let before = self.backend.trees().len();
        let records = &self.records;
        let mut last: Option<Vec<u8>> = None;
        let mut positions = Vec::with_capacity(CHUNK);
        let mut count = 0u64;
        loop {
            let _guard = self.enter()?;
            positions.clear();
            let from = last.as_deref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let end = self.backend.collect(records, from, lodestore_index::Direction::Forward, CHUNK, &mut positions);
            for position in &positions {
                count += 1;
                let position = NvPtr::from_raw(*position);
                match Record::read(&self.pool, position) {
                    Err(error) => note_finding(report, &error),
                    Ok(record) => {
                        if last.as_deref().is_some_and(|last| last >= record.key()) {
                            report.find(format!("tree at {position:?}"), "keys out of order");
                        }
                        last = Some(record.key().to_vec());
                    }
                }
            }
            if end || positions.is_empty() || count > before as u64 * 2 + CHUNK as u64 {
                break;
            }
        }
        drop(self.enter()?);
        // A record that is wrong may or may not have been so when the tree was built.
        let (least, most) = (report.records, report.records + report.findings.len() as u64);
        let now = (self.backend.enqueued(), self.backend.trees().len());
        let quiet = self.backend.stats().pending == 0 && now == begun;
        if quiet && !(least..=most).contains(&count) {
            report.find("tree", format!("it has {count} keys, the index {least}"));
        }
        Ok(())
    }

    fn generation(&self) -> u64 {
        self.pool.load_u64(crate::layout::generation_word(&self.pool))
    }
}
