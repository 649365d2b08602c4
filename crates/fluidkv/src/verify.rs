//! Reading and checking everything: the manifest by the state that it came to, every table, and every entry that a memtable names.

use std::ops::Bound;

use lodestore_contract::{Error, Progress, Result, VerifyReport};
use lodestore_media::NvPtr;

use crate::entry::Entry;
use crate::inner::{Inner, lock};
use crate::layout::{KIND_LOG, KIND_MANIFEST, KIND_RESERVE, KIND_TABLE};
use crate::memtable::Memtable;
use crate::table::verify;
use crate::tables::{TableHandle, place_of};
use crate::view::View;

/// Positions taken from a memtable at once.
const CHUNK: usize = 256;

impl Inner {
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        let _guard = self.enter()?;
        let view: std::sync::Arc<View> = self.view.load_full();
        let mut report = VerifyReport::default();
        let tables: Vec<_> =
            view.ranges.list.iter().flat_map(|range| range.sorted().flat_map(|sorted| sorted.tables.iter())).collect();
        let total = (tables.len() + view.frozen.len() + 1) as u64;
        let mut done = 0;
        progress(Progress { done, total });
        for memtable in view.memtables() {
            self.verify_memtable(memtable, &mut report);
            done += 1;
            progress(Progress { done, total });
        }
        for table in tables {
            self.verify_table(table, &mut report);
            done += 1;
            progress(Progress { done, total });
        }
        self.pool.allocator().verify(&self.pool, &mut report);
        if self.options.workers == 0 && self.order.snapshots() == 0 {
            self.verify_extents(&view, &mut report);
        }
        Ok(report)
    }

    /// Whether every extent of the engine's kinds is somebody's. Only where nothing works behind: else one may have been taken just now, or wait for its last
    /// reader.
    fn verify_extents(&self, view: &View, report: &mut VerifyReport) {
        let tables = view.ranges.list.iter().flat_map(|range| range.sorted().flat_map(|sorted| &sorted.tables));
        let logs = view.memtables().flat_map(|memtable| memtable.segments());
        let mut owned: Vec<u64> = tables.map(|table| table.descriptor.at.raw()).collect();
        owned.extend(logs.map(|segment| segment.at.raw()));
        owned.extend(self.reserve.held().iter().map(|at| at.raw()));
        owned.push(lock(&self.publisher).extent().raw());
        owned.sort_unstable();
        for kind in [KIND_TABLE, KIND_LOG, KIND_MANIFEST, KIND_RESERVE] {
            for at in self.pool.allocator().extents_of(&self.pool, kind) {
                if owned.binary_search(&at.raw()).is_err() {
                    report.find(format!("extent at {at:?}"), format!("it is of kind {} and nobody's", kind.0));
                }
            }
        }
    }

    fn verify_table(&self, table: &TableHandle, report: &mut VerifyReport) {
        let descriptor = &table.descriptor;
        if !self.pool.allocator().holds_extent(&self.pool, descriptor.at, descriptor.bytes, KIND_TABLE) {
            report.find(place_of(descriptor), "the extent table does not have its extent");
        }
        let verified = verify(table.bytes(), descriptor.identity, &mut |finding| find(report, finding));
        report.records += verified.items;
        report.bytes += verified.bytes;
    }

    fn verify_memtable(&self, memtable: &Memtable, report: &mut VerifyReport) {
        let mut from: Bound<Vec<u8>> = Bound::Unbounded;
        loop {
            let mut chunk = Vec::with_capacity(CHUNK);
            let bound = from.as_ref().map(Vec::as_slice);
            let all = memtable.collect(bound, lodestore_index::Direction::Forward, CHUNK, &mut chunk);
            // Those of the entries: what was appended before the walk came by.
            let segments = memtable.segments();
            let mut last = None;
            for at in chunk {
                let above = segments.partition_point(|segment| segment.at.raw() <= at);
                let entry = above.checked_sub(1).map(|index| segments[index]).and_then(|segment| {
                    let offset = at - segment.at.raw();
                    let rest = segment.capacity.checked_sub(offset)?;
                    let span = Entry::read(|len| self.pool.bytes(NvPtr::from_raw(at), len))?.len() as u64;
                    let bytes = self.pool.bytes(NvPtr::from_raw(at), span.min(rest) as usize)?;
                    Entry::checked(bytes, segment.frame, offset)
                });
                match entry {
                    Some(entry) => {
                        report.records += 1;
                        report.bytes += entry.len() as u64;
                        last = Some(entry.key().to_vec());
                    }
                    None => report.find(format!("log entry at {:?}", NvPtr::from_raw(at)), "its checksum fails"),
                }
            }
            match last {
                Some(last) if !all => from = Bound::Excluded(last),
                _ => return,
            }
        }
    }
}

fn find(report: &mut VerifyReport, finding: Error) {
    match finding {
        Error::Corrupt { place, what } => report.find(place, what),
        other => report.find("table", other.to_string()),
    }
}
