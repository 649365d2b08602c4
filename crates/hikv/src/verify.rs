//! Verification of the whole store.

use std::collections::HashSet;

use lodestore_contract::{Progress, Result, VerifyReport};
use lodestore_inplace::{PIECE_BYTES, note_finding, verify_index, verify_pool};
use lodestore_media::NvPtr;

use crate::layout::{GENERATION_SHIFT, SegmentHeader, generation_word};
use crate::open_store::Inner;
use crate::record::Record;
use crate::table::{PREFETCH_BYTES, PREFETCH_RECORDS, SegmentLocation, Slot, Verdict};
use crate::walk::{PREFIX_COUNT, walk_from};

/// Positions of the tree that are compared with the index at once.
const CHUNK_KEYS: usize = 1024;

impl Inner {
    /// Checks superblock, directories, segments, records, tree and allocator. The store may be in
    /// use. Then the comparison of keys between tree and index is skipped.
    pub(crate) fn verify_all(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        let begun = (self.backend.enqueued(), self.backend.trees().len());
        if verify_index(self, self.table.shape, &mut report, progress)? {
            self.verify_tree(begun, &mut report)?;
        }
        verify_pool(self, &mut report, progress);
        if report.is_clean() {
            // Damage found by the open may be invisible elsewhere, for example an older directory.
            self.report_first_damage(&mut report);
        }
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
        if from == 0
            && let Err(error) = self.table.check_directory(&self.pool, partition)
        {
            note_finding(report, &error);
        }
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
                    self.careful_mode.note_damage(&error);
                    note_finding(report, &error);
                }
                Verdict::BadRecord(_, error) => note_finding(report, &error),
                Verdict::Whole(record) => {
                    report.records += 1;
                    report.bytes += record.len() as u64;
                    if record.own() >> GENERATION_SHIFT > self.generation() {
                        report.find(place, format!("record {position:?} names an open that never happened"));
                    } else if !keys.insert(record.key()) {
                        report.find(place, format!("two entries have the same key; one of them names {position:?}"));
                    } else if (position.tag() != 0) != record.expiry().is_some() {
                        report.find(place, format!("the tag of {position:?} does not match its record"));
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
                self.backend.read_range(records, from, lodestore_index::Direction::Forward, CHUNK_KEYS, &mut positions);
            for position in &positions {
                count += 1;
                let position = NvPtr::from_raw(*position);
                match Record::read(&self.pool, position) {
                    Err(error) => note_finding(report, &error),
                    Ok(record) => {
                        if last.as_deref().is_some_and(|last| last >= record.key()) {
                            report.find(format!("tree at {position:?}"), "the keys are out of order");
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
            report.find("tree", format!("the tree has {count} keys, and the index has {least}"));
        }
        Ok(())
    }

    fn generation(&self) -> u64 {
        self.pool.load_u64(generation_word(&self.pool))
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::testing::Scratch;
    use lodestore_inplace::testing::check_verification_in_pieces;

    use crate::{HiKv, HiKvOptions};

    #[test]
    fn a_partition_is_verified_in_pieces_and_a_closed_store_not_to_its_end() {
        let scratch = Scratch::new();
        let options = HiKvOptions { partitions: 1, scrub_rate: 0, ..HiKvOptions::default() };
        check_verification_in_pieces(&HiKv::create(&scratch.store(), &options).expect("create"));
    }
}
