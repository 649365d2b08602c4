//! Key-value separation at the memtable flush (HashKV, ATC 2018, section 3), for an engine built on
//! this one. Values stay in the log until the flush of their memtable. The flush hands the large
//! ones to a [`Separator`], which keeps them in its own storage. The tables hold the separator's
//! answer instead of the value. This module never interprets stored bytes: the owner of the
//! separator distinguishes values from the answers that replace them.
//!
//! Persist order of a flush: the separator's writes, durable when [`Separator::separate`] returns;
//! the tables, **fence**; the manifest record, **fence**; then [`Separator::published`] and
//! [`Separator::died`]. After a crash before the manifest record the values are still in the log.
//! Nothing names the separator's copies, and the next open's flush hands the values over again.
//!
//! Invariants
//! 1. Flushes are serial, the oldest memtable first. Values are separated before the flush reads
//!    the ranges. A flush that is repeated, or retried after an error, reuses the earlier answers
//!    (`memtable/separation.rs`).
//! 2. No lock is held while the separator is called, and only a caller that waits for the flush
//!    waits for its thread. The separator may read the store and call
//!    [`replace`](crate::FluidKv::replace), which never waits for a flush. Other writes may wait,
//!    and are forbidden there.
//! 3. A stored value is reported dead once. For a value in the tables, the flush that hides the
//!    newest version there reports it. If a compaction drops the value as expired before that, the
//!    compaction does. For a value in a memtable, the entry that replaces an entry of `replace`
//!    reports it, or the flush of the memtable that drops it.
//! 4. A panic of the separator poisons the store.

use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use lodestore_contract::threads::lock;
use lodestore_contract::{Direction, Event, Result};
use lodestore_media::PoisonOnPanic;

use crate::background::flush::run_on_threads;
use crate::layout::STORED_MAX;
use crate::memtable::separation::Separated;
use crate::memtable::{Memtable, Records};
use crate::sst::{Reads, Slot, hash};
use crate::tree::Tree;
use crate::values::record::Pointer;
use crate::values::separator::{Expired, Separable, Separator};
use crate::version::cursor::{MemtableCursor, Pair};
use crate::version::known::Known;
use crate::version::range::{Range, Ranges};
use crate::version::tables::{LookupOptions, Sorted};
use crate::wal::entry::Payload;

/// Maximum number of values per call of [`Separator::separate`].
const VALUES_PER_CALL_MAX: usize = 64 << 10;
/// Maximum number of stored values per call of [`Separator::died`], and of their bytes copied for
/// one call.
const DEATHS_PER_CALL_MAX: (usize, usize) = (256, 64 << 10);
/// Cause of the poisoning if a call of the separator panics.
const PANIC_CAUSE: &str = "the separator panicked";

/// Collects stored values that died, for the separator.
struct DeathReports<'a> {
    separator: &'a dyn Separator,
    call_lock: &'a Mutex<()>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl<'a> DeathReports<'a> {
    fn new(separator: &'a dyn Separator, call_lock: &'a Mutex<()>) -> Self {
        Self { separator, call_lock, bytes: Vec::new(), ends: Vec::new() }
    }

    fn add(&mut self, stored: &[u8]) {
        if stored.len() > DEATHS_PER_CALL_MAX.1 {
            self.call(&[stored]);
            return;
        }
        if self.ends.len() == DEATHS_PER_CALL_MAX.0 || self.bytes.len() + stored.len() > DEATHS_PER_CALL_MAX.1 {
            self.report();
        }
        self.bytes.extend_from_slice(stored);
        self.ends.push(self.bytes.len());
    }

    fn report(&mut self) {
        let mut begin = 0;
        let stored: Vec<_> =
            self.ends.iter().map(|end| &self.bytes[std::mem::replace(&mut begin, *end)..*end]).collect();
        if !stored.is_empty() {
            self.call(&stored);
        }
        self.bytes.clear();
        self.ends.clear();
    }

    fn call(&self, stored: &[&[u8]]) {
        let _call_lock = lock(self.call_lock);
        self.separator.died(stored);
    }
}

impl Tree {
    /// Separates the values of a memtable before its flush, and returns the bytes that the tables
    /// hold instead. `None` without a separator.
    ///
    /// # Errors
    /// The separator's errors; [`lodestore_contract::Error::Corrupt`] if an entry is damaged.
    pub(crate) fn separate(&self, memtable: &Memtable) -> Result<Option<Separated>> {
        let Some(separator) = &self.separator else { return Ok(None) };
        let mut separated = memtable.separation.take_separated();
        let outcome = self.separate_rest(&**separator, memtable, &mut separated);
        if let Err(error) = outcome {
            memtable.separation.put_back(separated);
            return Err(error);
        }
        Ok(Some(separated))
    }

    fn separate_rest(&self, separator: &dyn Separator, memtable: &Memtable, separated: &mut Separated) -> Result<()> {
        let _poison_on_panic = PoisonOnPanic::new(&self.pool, PANIC_CAUSE);
        // Keeps the segments of the value log that are not retired yet.
        let _held = self.values.is_used().then(|| self.view.load_full());
        while !separated.is_complete {
            let from = separated.last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut cursor = MemtableCursor::checking(memtable, from);
            let (mut positions, mut values, mut last) = (Vec::new(), Vec::new(), None);
            while values.len() < VALUES_PER_CALL_MAX {
                let Some((at, pair)) = cursor.next_with_position()? else { break };
                last = Some(pair.key);
                if let Some(value) = self.separable(separator, &pair) {
                    positions.push(at);
                    values.push(Separable { key: pair.key, value });
                }
            }
            let stored = if values.is_empty() { Vec::new() } else { separator.separate(&values)? };
            assert_eq!(stored.len(), values.len(), "an answer for each value");
            for (at, stored) in positions.into_iter().zip(stored) {
                let Some(stored) = stored else { continue };
                assert!(stored.len() <= STORED_MAX, "what stands for a value is no longer than one");
                separated.add(at, &stored);
            }
            separated.is_complete = values.len() < VALUES_PER_CALL_MAX;
            separated.last = last.map(<[u8]>::to_vec).or_else(|| separated.last.take());
            memtable.separation.note_dram(separated.dram_bytes());
        }
        Ok(())
    }

    /// Returns the value of a pair that is to be separated. A value that cannot be read stays in
    /// the value log, whose own reads report the damage. A value retired there is hidden by a newer
    /// version.
    fn separable<'v>(&'v self, separator: &dyn Separator, pair: &Pair<'v>) -> Option<&'v [u8]> {
        let value = match pair.known {
            known if !known.is_live() => return None,
            Known::Value(value, _) => value,
            Known::Pointer(pointer, _) => {
                let segment = self.values.find(Pointer::decode(pointer).id)?;
                // This load follows the load of the held view: the view has each segment that is
                // not ended by now.
                if segment.ended.load(Ordering::Acquire) {
                    return None;
                }
                self.values.read(pair.key, pointer, Reads::Verified).ok()?
            }
            Known::Deleted => return None,
        };
        separator.wants(pair.key, value).then_some(value)
    }

    /// Reports to the separator the stored values that a published flush has hidden in the ranges
    /// `before` it.
    pub(crate) fn report_hidden(&self, memtable: &Memtable, before: &Ranges, threads: usize) {
        let Some(separator) = &self.separator else { return };
        let _poison_on_panic = PoisonOnPanic::new(&self.pool, PANIC_CAUSE);
        memtable.separation.note_dram(0);
        separator.published();
        if !separator.holds() {
            // Skips lookups of each overwritten key in tables that may be larger than memory.
            return;
        }
        let next = AtomicUsize::new(0);
        let moved = self.report_overwritten(memtable, DeathReports::new(&**separator, &self.death_reports));
        let parts = run_on_threads(threads, || {
            let _poison_on_panic = PoisonOnPanic::new(&self.pool, PANIC_CAUSE);
            let mut deaths = DeathReports::new(&**separator, &self.death_reports);
            let walked = loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(range) = before.list.get(index) else { break Ok(()) };
                let walked = self.report_hidden_in(memtable, range, before.upper_of(index), &mut deaths);
                if walked.is_err() {
                    break walked;
                }
            };
            deaths.report();
            walked
        });
        parts.into_iter().chain([moved]).filter_map(Result::err).for_each(|error| self.report_corruption(&error));
    }

    /// Reports the expired pairs that a published flush or merge dropped: their number as an event,
    /// and their stored values to the separator. The flush of a `newer` run has already reported
    /// the values that the run hides.
    pub(crate) fn report_expired(&self, expired: &Expired, newer: &[Sorted]) {
        if expired.keys > 0 {
            self.report(&Event::Swept { keys: expired.keys });
        }
        let Some(separator) = self.separator.as_ref().filter(|_| !expired.stored.is_empty()) else { return };
        let _poison_on_panic = PoisonOnPanic::new(&self.pool, PANIC_CAUSE);
        let mut deaths = DeathReports::new(&**separator, &self.death_reports);
        let how = LookupOptions { reads: self.reads, filtered: true };
        for (key, stored) in &expired.stored {
            // An unreported value only leaves dead bytes uncounted.
            let is_there = |run: &Sorted| !matches!(run.get(key, hash(key), how, &Slot::new()), Ok(None));
            if !newer.iter().any(is_there) {
                deaths.add(stored);
            }
        }
        deaths.report();
    }

    /// Reports the stored values that the memtable's keys have hidden in a range.
    fn report_hidden_in(
        &self,
        memtable: &Memtable,
        range: &Range,
        upper: Option<&[u8]>,
        deaths: &mut DeathReports<'_>,
    ) -> Result<()> {
        if range.sorted().all(|sorted| sorted.tables.is_empty()) {
            return Ok(());
        }
        let how = LookupOptions { reads: self.reads, filtered: true };
        let mut cursor = MemtableCursor::new(memtable, u64::MAX, Bound::Included(&range.lower), Direction::Forward);
        let mut keys = Vec::new();
        loop {
            let next = cursor.next()?.filter(|pair| upper.is_none_or(|upper| pair.key < upper));
            keys.extend(next.as_ref().map(|pair| (pair.key, hash(pair.key))));
            if next.is_none() || keys.len() == crate::version::range::LOOKUP_KEYS {
                // If a damaged filter hides a dead value, its space waits for a garbage collection.
                range.find_each(&keys, how, Reads::Trusted, &mut |_, known| match known {
                    Ok(Known::Value(stored, _)) => deaths.add(stored),
                    Ok(_) => {}
                    // An unreported value only leaves dead bytes uncounted. The damage itself is
                    // reported.
                    Err(error) => self.report_corruption(&error),
                });
                keys.clear();
            }
            if next.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Reports values that `replace` put into the memtable and that other entries there replaced.
    fn report_overwritten(&self, memtable: &Memtable, mut deaths: DeathReports<'_>) -> Result<()> {
        let records = Records(&self.pool);
        for at in memtable.separation.take_moved() {
            let entry = records.entry(at)?;
            if let Payload::Value(stored) = entry.payload()
                && memtable.index.get(&records, entry.key()) != Some(at)
            {
                deaths.add(stored);
            }
        }
        deaths.report();
        Ok(())
    }
}
