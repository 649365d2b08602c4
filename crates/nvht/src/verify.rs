//! Verification of the whole store.

use std::collections::HashSet;

use lodestore_contract::threads::lock;
use lodestore_contract::{Progress, Result, VerifyReport};
use lodestore_inplace::{PIECE_BYTES, note_finding, verify_index, verify_pool};

use crate::layout::CURSOR_MAX;
use crate::lookup::{broken_seal, damaged_line};
use crate::open_store::Inner;
use crate::partition::{check_stages, load_root};
use crate::record::Record;
use crate::stripe::{counted_keys, counted_writes};
use crate::table::PREFETCH_RECORDS;
use crate::walk::{FoundSlot, Piece, duplicate_slot};

impl Inner {
    /// Checks superblock, roots, tables, records, batch logs and allocator. The store may be in
    /// use.
    pub(crate) fn verify_all(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        if self.is_seal_broken {
            note_finding(&mut report, &broken_seal());
        }
        verify_index(self, self.shape, &mut report, progress)?;
        verify_pool(self, &mut report, progress);
        Ok(report)
    }

    /// See [`Engine::verify_partition`](lodestore_inplace::Engine::verify_partition): a piece is
    /// some ranges of a walk, each under its own guard.
    pub(crate) fn verify_ranges(&self, partition: usize, piece: &mut dyn FnMut(VerifyReport) -> bool) -> Result<bool> {
        let part = &self.partitions[partition];
        let mut report = VerifyReport::default();
        {
            // No growth begins or ends meanwhile.
            let _guard = self.enter()?;
            let _growing = lock(&part.growing);
            let root = load_root(&self.pool, &self.shape, partition);
            match root.and_then(|found| check_stages(&self.pool, partition, &found).map(|()| found)) {
                Ok(found) if (found.current, found.next, found.cursor) == part.words() => {}
                // An ended growth leaves its cursor here.
                Ok(found) if (found.current, found.next) == (part.words().0, 0) && !part.is_growing() => {}
                Ok(_) => report
                    .find(format!("root of partition {partition}"), "the root differs from that of the open store"),
                Err(error) => note_finding(&mut report, &error),
            }
        }
        let (mut from, mut is_clean) = (0, true);
        let begun = (counted_writes(&self.stripes, partition), counted_keys(&self.stripes, partition));
        let mut keys = 0;
        while from < CURSOR_MAX {
            if report.bytes >= PIECE_BYTES {
                is_clean &= report.is_clean();
                if !piece(std::mem::take(&mut report)) {
                    return Ok(false);
                }
            }
            let _guard = self.enter()?;
            let to = Self::range_end(part, from);
            let found = self.copy_range(partition, from, to, |_| true);
            self.verify_lines(partition, from, to, &mut report);
            keys += found.len() as u64;
            self.verify_range(partition, &found, &mut report);
            from = to;
        }
        let counted = self.keys_of(partition);
        let is_idle = begun == (counted_writes(&self.stripes, partition), counted_keys(&self.stripes, partition));
        if is_idle && is_clean && report.is_clean() && counted.is_some_and(|counted| counted != keys) {
            report.find(
                format!("partition {partition}"),
                format!("the partition counts {counted:?} keys and has {keys}"),
            );
        }
        Ok(piece(report))
    }

    fn verify_lines(&self, partition: usize, from: u64, to: u64, report: &mut VerifyReport) {
        let part = &self.partitions[partition];
        for Piece { table, from, to, .. } in Self::tables_of(part, from, to) {
            // The lines after the last home line are checked with the last range.
            let home = table.home((to - 1) as u32);
            let last = if home == table.lines - 1 { table.all_lines() - 1 } else { home };
            for line in table.home(from as u32)..=last {
                if self.is_damaged(table, line) {
                    let error = damaged_line(table.line(line));
                    self.careful_mode.note_damage(&error);
                    note_finding(report, &error);
                }
            }
        }
    }

    fn verify_range(&self, partition: usize, found: &[FoundSlot], report: &mut VerifyReport) {
        let mut keys = HashSet::with_capacity(found.len());
        for (index, found_slot) in found.iter().enumerate() {
            if let Some(next) = found.get(index + PREFETCH_RECORDS) {
                self.pool.prefetch(next.record_at, crate::table::PREFETCH_BYTES_MAX);
            }
            let at = found_slot.record_at;
            let place = format!("slot of record {at:?}");
            match Record::read(&self.pool, at).and_then(|record| record.check(at).map(|()| record)) {
                Err(error) => note_finding(report, &error),
                Ok(record) => {
                    report.records += 1;
                    report.bytes += record.len() as u64;
                    let hashed = self.hasher.hash(record.key());
                    if hashed.partition != partition || found_slot.fraction != Some(hashed.fraction) {
                        report.find(place, "the slot names the record of another key");
                    } else if found_slot.slot.tag() != hashed.tag {
                        report.find(
                            place,
                            "the tag of the slot is not that of the record's key, so the key is not found",
                        );
                    } else if found_slot.slot.expires() != record.expiry().is_some() {
                        report.find(place, "the expiry bit of the slot is not that of its record");
                    } else if !self.form.is_bound(found_slot.slot, record.binding()) {
                        report.find(place, "the checksum bits of the slot do not match its record");
                    } else if !keys.insert(record.key()) {
                        note_finding(report, &duplicate_slot(at));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::testing::Scratch;
    use lodestore_inplace::testing::check_verification_in_pieces;

    use crate::{Nvht, NvhtOptions};

    #[test]
    fn a_partition_is_verified_in_pieces_and_a_closed_store_not_to_its_end() {
        let scratch = Scratch::new();
        let options = NvhtOptions { partitions: 1, scrub_rate: 0, ..NvhtOptions::default() };
        check_verification_in_pieces(&Nvht::create(&scratch.store(), &options).expect("create"));
    }
}
