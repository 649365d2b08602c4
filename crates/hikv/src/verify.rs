//! Verification of the whole store.

use std::collections::HashSet;

use lodestore_contract::{Progress, Result, VerifyReport};
use lodestore_inplace::{PIECE_BYTES, note_finding};
use lodestore_media::NvPtr;

use crate::inner::Inner;
use crate::layout::{GENERATION_SHIFT, SegmentHeader, Superblock, generation_word};
use crate::record::Record;
use crate::table::{PREFETCH_BYTES, PREFETCH_RECORDS, PREFIX_COUNT, SegmentLocation, Slot, Verdict, walk_from};

/// Positions of the tree that are compared with the index at once.
const CHUNK_KEYS: usize = 1024;

impl Inner {
    /// Checks superblock, directories, segments, records, tree and allocator. The store may be in
    /// use. Then the comparison of keys between tree and index is skipped.
    pub(crate) fn verify_all(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
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
            self.verify_segments(partition, &mut |piece| {
                report.add(piece);
                true
            })?;
        }
        if recovered.is_ok() {
            self.verify_tree(begun, &mut report)?;
        }
        self.logs.verify(&self.pool, &mut report);
        self.pool.allocator().verify(&self.pool, &mut report);
        if report.is_clean() {
            // Damage found by the open may be invisible elsewhere, for example an older directory.
            self.report_first_damage(&mut report);
        }
        progress(Progress { done: partitions as u64 + 1, total: partitions as u64 + 1 });
        Ok(report)
    }

    /// See [`Engine::verify_partition`](lodestore_inplace::Engine::verify_partition): a piece is
    /// some segments.
    pub(crate) fn verify_segments(
        &self,
        partition: usize,
        piece: &mut dyn FnMut(VerifyReport) -> bool,
    ) -> Result<bool> {
        let mut from = 0;
        while from < PREFIX_COUNT {
            let mut report = VerifyReport::default();
            from = self.verify_piece(partition, from, &mut report)?;
            if !piece(report) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Verifies the segments from the prefix `from` on, up to [`PIECE_BYTES`] of index and records.
    /// Returns the prefix of the next segment.
    fn verify_piece(&self, partition: usize, from: u64, report: &mut VerifyReport) -> Result<u64> {
        let _guard = self.enter()?;
        let (mut next, mut index_bytes) = (PREFIX_COUNT, 0);
        let walked = walk_from(&self.table, &self.pool, (partition, from), |location, slots| {
            let SegmentLocation { segment, prefix, .. } = location;
            if let Err(error) = SegmentHeader::check(&self.pool, segment.at, partition, segment.depth, prefix) {
                note_finding(report, &error);
            }
            self.verify_segment(location, &slots, report);
            index_bytes += u64::from(self.table.shape.segment_bytes);
            next = location.end();
            Ok(report.bytes + index_bytes < PIECE_BYTES)
        });
        if let Err(error) = walked {
            note_finding(report, &error);
            next = PREFIX_COUNT;
        }
        Ok(next)
    }

    fn verify_segment(&self, location: SegmentLocation, slots: &[Slot], report: &mut VerifyReport) {
        let mut keys = HashSet::with_capacity(slots.len());
        for (index, slot) in slots.iter().enumerate() {
            if let Some(next) = slots.get(index + PREFETCH_RECORDS) {
                self.pool.prefetch(next.entry.position().untagged(), PREFETCH_BYTES);
            }
            let place = format!("segment {:?}", location.segment.at);
            let position = slot.entry.position();
            match self.table.judge(&self.pool, location, *slot) {
                Verdict::Free => {}
                Verdict::Damaged(error) => {
                    self.note_damage(&error);
                    note_finding(report, &error);
                }
                Verdict::BadRecord(_, error) => note_finding(report, &error),
                Verdict::Whole(record) => {
                    report.records += 1;
                    report.bytes += record.len() as u64;
                    if record.own() >> GENERATION_SHIFT > self.generation() {
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

    /// Checks that the tree's positions name records in key order, and as many as the index has.
    /// Compares the counts only if nothing was written since `begun`: the operations enqueued then
    /// and the tree's length.
    fn verify_tree(&self, begun: (u64, usize), report: &mut VerifyReport) -> Result<()> {
        self.wait_for_tree()?;
        let before = self.backend.trees().len();
        let records = &self.records;
        let mut last: Option<Vec<u8>> = None;
        let mut positions = Vec::with_capacity(CHUNK_KEYS);
        let mut count = 0u64;
        loop {
            let _guard = self.enter()?;
            positions.clear();
            let from = last.as_deref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let end =
                self.backend.collect(records, from, lodestore_index::Direction::Forward, CHUNK_KEYS, &mut positions);
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
            if end || positions.is_empty() || count > before as u64 * 2 + CHUNK_KEYS as u64 {
                break;
            }
        }
        drop(self.enter()?);
        // A damaged record may or may not have been damaged when the tree was built.
        let (least, most) = (report.records, report.records + report.findings.len() as u64);
        let now = (self.backend.enqueued(), self.backend.trees().len());
        let is_idle = self.backend.stats().pending == 0 && now == begun;
        if is_idle && !(least..=most).contains(&count) {
            report.find("tree", format!("it has {count} keys, the index {least}"));
        }
        Ok(())
    }

    fn generation(&self) -> u64 {
        self.pool.load_u64(generation_word(&self.pool))
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::Store;
    use lodestore_contract::testing::Scratch;
    use lodestore_inplace::Engine;
    use lodestore_media::PoolOptions;

    use super::*;
    use crate::{HiKv, HiKvOptions};

    const KEYS: u64 = 40_000;
    const VALUE_BYTES: u64 = 200;

    /// Guards must be released when a piece is reported, or `synchronize` would not return.
    #[test]
    fn a_partition_is_verified_in_pieces_and_a_closed_store_not_to_its_end() {
        let scratch = Scratch::new();
        let pool = PoolOptions { capacity: 128 << 20, region_bytes: 64 << 20, ..PoolOptions::default() };
        let options = HiKvOptions { pool, partitions: 1, scrub_rate: 0, ..HiKvOptions::default() };
        let store = HiKv::create(&scratch.store(), &options).expect("create");
        (0..KEYS).for_each(|key| store.put(&key.to_le_bytes(), &[7; VALUE_BYTES as usize]).expect("put"));
        let inner = store.inner();
        let (mut pieces, mut whole) = (0, VerifyReport::default());
        let is_whole = inner.verify_pieces(&mut |report| {
            inner.pool.epochs().synchronize();
            assert!(report.bytes < PIECE_BYTES + PIECE_BYTES / 4, "{} bytes", report.bytes);
            pieces += 1;
            whole.add(report);
            true
        });
        assert!(is_whole && whole.is_clean());
        assert_eq!(whole.records, KEYS);
        assert!(pieces >= KEYS * VALUE_BYTES / PIECE_BYTES, "{pieces} pieces");
        let mut seen = 0;
        let is_whole = inner.verify_pieces(&mut |_| {
            seen += 1;
            seen < 2
        });
        assert!(!is_whole && seen == 2);
        store.close().expect("close");
        assert!(!inner.verify_pieces(&mut |_| true));
    }
}
