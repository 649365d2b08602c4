//! Verification of the whole store.

use std::collections::HashSet;

use lodestore_contract::{Progress, Result, VerifyReport};
use lodestore_inplace::{PIECE_BYTES, lock, note_finding};

use crate::inner::Inner;
use crate::layout::{CURSOR_MAX, Superblock};
use crate::partition::{check_stages, load_root};
use crate::record::Record;
use crate::search::{broken_seal, damaged_line};
use crate::stripe::{counted_keys, counted_writes};
use crate::table::PREFETCH_RECORDS;
use crate::walk::{FoundSlot, Piece, duplicate_slot};

impl Inner {
    /// Checks superblock, roots, tables, records, batch logs and allocator. The store may be in
    /// use.
    pub(crate) fn verify_all(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        drop(self.enter()?);
        let mut report = VerifyReport::default();
        if let Err(error) = self.recovery.wait_done() {
            report.find("recovery", error.to_string());
        }
        if self.is_seal_broken() {
            note_finding(&mut report, &broken_seal());
        }
        match Superblock::load(&self.pool) {
            Ok(Some(shape)) if shape == self.shape => {}
            Ok(_) => report.find("nvht superblock", "it is not what the store was opened with"),
            Err(error) => note_finding(&mut report, &error),
        }
        let total = self.partitions.len() as u64 + 1;
        for (done, partition) in (0..total).zip(0..self.partitions.len()) {
            progress(Progress { done, total });
            self.verify_ranges(partition, &mut |piece| {
                report.add(piece);
                true
            })?;
        }
        self.logs.verify(&self.pool, &mut report);
        self.pool.allocator().verify(&self.pool, &mut report);
        progress(Progress { done: total, total });
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
                Ok(_) => report.find(format!("root of partition {partition}"), "it is not what the store works with"),
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
            report.find(format!("partition {partition}"), format!("it counts {counted:?} keys and has {keys}"));
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
                    self.note_damaged_line();
                    note_finding(report, &damaged_line(table.line(line)));
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
                        report.find(place, "it names the record of another key");
                    } else if found_slot.slot.tag() != hashed.tag {
                        report.find(place, "its tag is not that of the record's key, which is not found");
                    } else if found_slot.slot.expires() != record.expiry().is_some() {
                        report.find(place, "its expiry bit is not that of its record");
                    } else if !self.form.is_bound(found_slot.slot, record.binding()) {
                        report.find(place, "it does not vouch for this record");
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
    use lodestore_contract::Store;
    use lodestore_contract::testing::Scratch;
    use lodestore_inplace::Engine;
    use lodestore_media::PoolOptions;

    use super::*;
    use crate::{Nvht, NvhtOptions};

    const KEYS: u64 = 40_000;
    const VALUE_BYTES: u64 = 200;

    /// Guards must be released when a piece is reported, or `synchronize` would not return.
    #[test]
    fn a_partition_is_verified_in_pieces_and_a_closed_store_not_to_its_end() {
        let scratch = Scratch::new();
        let pool = PoolOptions { capacity: 128 << 20, region_bytes: 64 << 20, ..PoolOptions::default() };
        let options = NvhtOptions { pool, partitions: 1, scrub_rate: 0, ..NvhtOptions::default() };
        let store = Nvht::create(&scratch.store(), &options).expect("create");
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
