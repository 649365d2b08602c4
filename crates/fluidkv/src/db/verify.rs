//! Reads and verifies everything: the manifest by its state, every table, and every entry that a
//! memtable names.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use lodestore_contract::threads::lock;
use lodestore_contract::{Error, Progress, Result, VerifyReport};
use lodestore_media::NvPtr;

use crate::db::open_store::Inner;
use crate::layout::{KIND_LOG, KIND_MANIFEST, KIND_RESERVE, KIND_TABLE, KIND_VALUES};
use crate::memtable::Memtable;
use crate::sst::{Cursor, Reads, Slot, hash, verify};
use crate::values::record::{Pointer, Record, SEGMENT_HEADER_BYTES, check_segment, name_of as place_of_values};
use crate::values::segment::ValueSegment;
use crate::version::known::Known;
use crate::version::tables::{TableHandle, name_of};
use crate::version::view::View;
use crate::wal::entry::{POINTER_BYTES, Payload};

/// Number of positions read from a memtable at once.
const CHUNK_ENTRIES: usize = 256;

impl Inner {
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        let _guard = self.enter()?;
        let view: std::sync::Arc<View> = self.view.load_full();
        let mut report = VerifyReport::default();
        let tables: Vec<_> =
            view.ranges.list.iter().flat_map(|range| range.sorted().flat_map(|sorted| sorted.tables.iter())).collect();
        let values = self.values.all();
        let total = (tables.len() + view.frozen.len() + 1 + values.len()) as u64;
        let mut done = 0;
        progress(Progress { done, total });
        for memtable in view.memtables() {
            self.verify_memtable(&view, memtable, &mut report);
            done += 1;
            progress(Progress { done, total });
        }
        for table in tables {
            self.verify_table(&view, table, &mut report);
            done += 1;
            progress(Progress { done, total });
        }
        for segment in values.iter() {
            self.verify_segment(segment, &mut report);
            done += 1;
            progress(Progress { done, total });
        }
        self.pool.allocator().verify(&self.pool, &mut report);
        if self.options.workers == 0 && self.order.snapshots() == 0 {
            self.verify_extents(&view, &mut report);
            self.verify_counts(&view, &mut report);
        }
        Ok(report)
    }

    /// Checks that every extent of the engine's kinds has an owner. Only without background work:
    /// otherwise an extent may have just been allocated, or wait for its last reader.
    fn verify_extents(&self, view: &View, report: &mut VerifyReport) {
        let tables = view.ranges.list.iter().flat_map(|range| range.sorted().flat_map(|sorted| &sorted.tables));
        let mut owned: Vec<u64> = tables.map(|table| table.descriptor.at.raw()).collect();
        for memtable in view.memtables() {
            owned.extend(memtable.log.segments().iter().map(|segment| segment.at.raw()));
        }
        owned.extend(self.values.all().iter().map(|segment| segment.at.raw()));
        owned.extend(self.reserve.held().iter().map(|at| at.raw()));
        owned.extend(lock(&self.publisher).extents().map(|at| at.raw()));
        owned.sort_unstable();
        for kind in [KIND_TABLE, KIND_LOG, KIND_MANIFEST, KIND_RESERVE, KIND_VALUES] {
            for at in self.pool.allocator().extents_of(&self.pool, kind) {
                if owned.binary_search(&at.raw()).is_err() {
                    report.find(format!("extent at {at:?}"), format!("the extent has kind {} and no owner", kind.0));
                }
            }
        }
    }

    pub(crate) fn verify_table(&self, view: &View, table: &TableHandle, report: &mut VerifyReport) {
        let descriptor = &table.descriptor;
        if !self.pool.allocator().holds_extent(&self.pool, descriptor.at, descriptor.bytes, KIND_TABLE) {
            report.find(name_of(descriptor), "the extent table lacks the extent");
        }
        let verified = verify(table.bytes(), descriptor.identity, &mut |finding| find(report, finding));
        report.records += verified.items;
        report.bytes += verified.bytes;
        if descriptor.pointer_bytes > 0
            && let Ok(table) = table.table()
        {
            let mut cursor = Cursor::new(table, Reads::Trusted);
            // After an error the walk goes on, and reaches the table's end.
            while let Some(item) = cursor.next().transpose() {
                if let Ok(item) = item
                    && let Known::Pointer(pointer, _) = Known::of_item(&item)
                {
                    self.verify_pointer(view, item.key, pointer, report);
                }
            }
        }
    }

    /// Checks the record that a pointer names. The record of an older version may be freed with its
    /// segment.
    fn verify_pointer(&self, view: &View, key: &[u8], pointer: &[u8; POINTER_BYTES], report: &mut VerifyReport) {
        let decoded = Pointer::decode(pointer);
        let place =
            || format!("value of {} bytes at {}, byte {}", decoded.len, place_of_values(decoded.id), decoded.offset());
        let found = self.values.find(decoded.id).map(|segment| {
            let bytes = usize::try_from(segment.bytes).ok().and_then(|len| self.pool.bytes(segment.at, len));
            match bytes.and_then(|bytes| Record::read(bytes, segment.id, decoded.offset())) {
                Some(record) if record.key == key && record.pointer == decoded && record.is_whole() => Ok(record.len()),
                Some(record) if record.is_whole() => Err("another record is stored there"),
                _ => Err("the checksum differs"),
            }
        });
        match found {
            Some(Ok(bytes)) => report.bytes += bytes,
            // Its extent may have been reused while it was read.
            Some(Err(what)) if self.values.find(decoded.id).is_some() => report.find(place(), what),
            _ => {
                let slot = Slot::new();
                let known = view.find(key, hash(key), u64::MAX, self.lookup_options(), &slot);
                let is_newest = |known: Known<'_>| matches!(known, Known::Pointer(newest, _) if newest == pointer);
                if known.is_ok_and(|known| known.is_some_and(|known| is_newest(known) && known.is_live())) {
                    report.find(place(), "its segment is missing");
                }
            }
        }
    }

    /// Checks a segment, unless it is freed meanwhile: a segment retired before this view may be,
    /// and its space reused. A segment that is still known after the check was not freed before its
    /// end.
    pub(crate) fn verify_segment(&self, segment: &ValueSegment, report: &mut VerifyReport) {
        let mut own = VerifyReport::default();
        self.check_segment(segment, &mut own);
        if !own.is_clean() && self.values.find(segment.id).is_some() {
            report.findings.append(&mut own.findings);
        }
    }

    fn check_segment(&self, segment: &ValueSegment, report: &mut VerifyReport) {
        let place = || place_of_values(segment.id);
        if !self.pool.allocator().holds_extent(&self.pool, segment.at, segment.bytes, KIND_VALUES) {
            report.find(place(), "the extent table lacks the extent");
        }
        let head = self.pool.bytes(segment.at, SEGMENT_HEADER_BYTES as usize).unwrap_or_default();
        if let Err(error) = check_segment(head, segment.id, segment.bytes) {
            find(report, error);
        }
        let written = segment.written();
        let mut records = segment.records(&self.pool);
        records.by_ref().for_each(drop);
        if records.at < written {
            report.find(format!("{}, byte {}", place(), records.at), "a record is incomplete or damaged");
        }
    }

    /// Checks that no more bytes are counted dead than are dead. Only without background work.
    fn verify_counts(&self, view: &View, report: &mut VerifyReport) {
        for segment in self.values.all().iter().filter(|segment| !segment.ended.load(Ordering::Acquire)) {
            let Ok(live) = self.live_bytes(view, segment) else { return };
            let dead = segment.dead.load(Ordering::Relaxed);
            if SEGMENT_HEADER_BYTES + live + dead > segment.written() {
                let what =
                    format!("{live} bytes are live, and {dead} of {} bytes are counted as dead", segment.written());
                report.find(place_of_values(segment.id), what);
            }
        }
    }

    fn verify_memtable(&self, view: &View, memtable: &Memtable, report: &mut VerifyReport) {
        let mut from: Bound<Vec<u8>> = Bound::Unbounded;
        while let Some(last) = self.verify_entries(view, memtable, from.as_ref(), report) {
            from = Bound::Excluded(last);
        }
    }

    /// Checks some entries of a memtable from a key on. Returns the last key; `None` if these were
    /// the last entries.
    pub(crate) fn verify_entries(
        &self,
        view: &View,
        memtable: &Memtable,
        from: Bound<&Vec<u8>>,
        report: &mut VerifyReport,
    ) -> Option<Vec<u8>> {
        let mut chunk = Vec::with_capacity(CHUNK_ENTRIES);
        let from = from.map(Vec::as_slice);
        let collected = memtable.collect(from, lodestore_index::Direction::Forward, CHUNK_ENTRIES, &mut chunk);
        let all = collected.map_err(|error| find(report, error)).ok()?;
        let mut last = None;
        for at in chunk {
            match memtable.checked(at) {
                Some(entry) => {
                    report.records += 1;
                    report.bytes += entry.len() as u64;
                    last = Some(entry.key().to_vec());
                    if let Payload::Pointer(pointer) = entry.payload() {
                        self.verify_pointer(view, entry.key(), pointer, report);
                    }
                }
                None => report.find(format!("log entry at {:?}", NvPtr::from_raw(at)), "the checksum differs"),
            }
        }
        last.filter(|_| !all)
    }
}

fn find(report: &mut VerifyReport, finding: Error) {
    match finding {
        Error::Corrupt { place, what, .. } => report.find(place, what),
        other => report.find("table", other.to_string()),
    }
}
