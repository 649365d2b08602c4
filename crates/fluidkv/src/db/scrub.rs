//! The pieces of the background scrub ([`lodestore_contract::scrub`]): some entries of a memtable,
//! a table, a segment of the value log, and the pieces of a separator.
//!
//! A pass holds no view and no table between two pieces. A removed table is skipped, and a new
//! table waits for the next pass.

use std::ops::Bound;
use std::sync::{Arc, Weak};

use lodestore_contract::scrub::{Scrub, Scrubbed};
use lodestore_contract::{Event, Finding, FoundBy, VerifyReport};

use crate::db::open_store::Inner;
use crate::version::tables::TableHandle;

/// Receives the report of a piece; returns false to stop.
type Piece<'p> = &'p mut dyn FnMut(VerifyReport) -> bool;

impl Scrubbed for Inner {
    fn scrub(&self) -> &Scrub {
        &self.scrub
    }

    fn is_open(&self) -> bool {
        self.open.is_open()
    }

    fn verify_pieces(&self, piece: Piece<'_>) -> bool {
        let (generations, tables) = {
            let view = self.view.load();
            let generations: Vec<_> = view.memtables().map(|memtable| memtable.generation).collect();
            let sorted = view.ranges.list.iter().flat_map(|range| range.sorted());
            let tables: Vec<_> = sorted.flat_map(|sorted| &sorted.tables).map(Arc::downgrade).collect();
            (generations, tables)
        };
        let is_done = generations.iter().all(|generation| self.scrub_memtable(*generation, piece))
            && tables.iter().all(|table| self.scrub_table(table, piece))
            && self.scrub_values(piece);
        let Some(separator) = self.separator.as_ref().filter(|_| is_done) else { return is_done };
        let mut goes_on = true;
        separator.verify_pieces(&mut |report| {
            goes_on = piece(report);
            goes_on
        });
        goes_on
    }

    fn report_finding(&self, finding: &Finding) {
        let (place, what) = (finding.place.clone(), finding.what.clone());
        self.report(&Event::Corruption { found_by: FoundBy::Scrub, place, what });
    }
}

impl Inner {
    fn scrub_memtable(&self, generation: u64, piece: Piece<'_>) -> bool {
        let mut from: Bound<Vec<u8>> = Bound::Unbounded;
        loop {
            let mut report = VerifyReport::default();
            let last = {
                let Ok(_guard) = self.enter() else { return false };
                let view = self.view.load_full();
                let memtable = view.memtables().find(|memtable| memtable.generation == generation);
                memtable.and_then(|memtable| self.verify_entries(&view, memtable, from.as_ref(), &mut report))
            };
            if !piece(report) {
                return false;
            }
            let Some(last) = last else { return true };
            from = Bound::Excluded(last);
        }
    }

    fn scrub_table(&self, table: &Weak<TableHandle>, piece: Piece<'_>) -> bool {
        let mut report = VerifyReport::default();
        {
            let Ok(_guard) = self.enter() else { return false };
            let Some(table) = table.upgrade() else { return true };
            self.verify_table(&self.view.load_full(), &table, &mut report);
            // A table without any block checksums still has bytes.
            report.bytes = report.bytes.max(table.descriptor.bytes);
        }
        piece(report)
    }

    fn scrub_values(&self, piece: Piece<'_>) -> bool {
        let ids: Vec<_> = self.values.all().iter().map(|segment| segment.id).collect();
        ids.iter().all(|id| {
            let mut report = VerifyReport::default();
            {
                let Ok(_guard) = self.enter() else { return false };
                let Some(segment) = self.values.find(*id) else { return true };
                self.verify_segment(&segment, &mut report);
                report.bytes = report.bytes.max(segment.written());
            }
            piece(report)
        })
    }
}
