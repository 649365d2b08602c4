//! Migration from FastStore (memtables) to BufferStore (runs) (FluidKV, PVLDB 2024): a frozen
//! memtable becomes one run in each range that it has keys of.
//!
//! Once the manifest has the flush, the memtable leaves the view, even if the splits that follow
//! fail. A memtable can therefore not be flushed twice.
//!
//! If a separator keeps values outside the tables (`background/separate.rs`), values are separated
//! first, once per memtable.
//!
//! The ranges are divided among the workers. Each worker streams its share straight from the index
//! into tables. The memtable is not copied.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use lodestore_contract::threads::{lock, start_helpers};
use lodestore_contract::{Error, Result};
use lodestore_media::{Quiet, own_work};

use crate::background::scheduler::Background;
use crate::background::table_writer::Output;
use crate::memtable::Memtable;
use crate::memtable::separation::Separated;
use crate::planted;
use crate::tree::counts::Counts;
use crate::values::Dead;
use crate::values::separator::Expired;
use crate::version::cursor::MemtableCursor;
use crate::version::known::Known;
use crate::version::manifest::Edit;
use crate::version::range::{Range, Ranges};
use crate::version::tables::TableHandle;

/// The tables of some ranges, by range, with the large and the stored values of the dropped pairs.
#[derive(Default)]
struct Runs {
    tables: Vec<(u64, Vec<Arc<TableHandle>>)>,
    dead: Dead,
    expired: Expired,
}

/// The input of a flush: a memtable, and the stored replacements of its values, if any.
type Source<'a> = (&'a Arc<Memtable>, Option<&'a Separated>);

impl Runs {
    /// Frees the tables, which the manifest will not name.
    fn free_tables(&self) {
        self.tables.iter().flat_map(|(_, tables)| tables).for_each(|table| table.set_removed());
    }
}

/// Runs a flush's work on up to this many threads, including the caller's. Returns each result.
pub(crate) fn run_on_threads<T: Send>(threads: usize, work: impl Fn() -> Result<T> + Sync) -> Vec<Result<T>> {
    std::thread::scope(|scope| {
        let other = || {
            own_work(|| {
                let _quiet = Quiet::begin();
                work()
            })
        };
        let others = start_helpers(scope, "lodestore-fluid-part", threads.saturating_sub(1), other);
        let mut parts = vec![work()];
        parts.extend(
            others.into_iter().map(|other| {
                other.join().unwrap_or_else(|_| Err(Error::Poisoned { cause: "a flush panicked".into() }))
            }),
        );
        parts
    })
}

impl Background {
    /// Flushes the oldest frozen memtable. Returns whether there was one. One thread flushes at a
    /// time.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Poisoned`], [`Error::Corrupt`]: the memtable stays frozen, and its
    /// logs stay.
    pub(crate) fn flush_oldest(&self) -> Result<bool> {
        let Some(memtable) = self.view.load().frozen.last().cloned() else { return Ok(false) };
        // A writer that still writes to it began before it was frozen.
        self.order.quiesce();
        if let Some(log) = self.group_log() {
            self.commit_all_pending(log)?;
        }
        let last_sequence = self.order.last();
        let began = Instant::now();
        let separated = self.separate(&memtable)?;
        let flushed = self.flush(&memtable, separated.as_ref(), (last_sequence, began));
        if let (Err(_), Some(separated)) = (&flushed, separated) {
            memtable.separation.put_back(separated);
        }
        let (before, expired, threads) = flushed?;
        self.report_hidden(&memtable, &before, threads);
        self.report_expired(&expired, &[]);
        Ok(true)
    }

    /// Builds a memtable's tables and applies the flush. Starts again if the ranges change
    /// meanwhile. Returns the ranges before the flush, the pairs that had expired by then, and the
    /// number of threads.
    fn flush(
        &self,
        memtable: &Arc<Memtable>,
        separated: Option<&Separated>,
        (last_sequence, mut began): (u64, Instant),
    ) -> Result<(Arc<Ranges>, Expired, usize)> {
        loop {
            let ranges = Arc::clone(&self.view.load().ranges);
            let threads = self.flush_threads(&ranges);
            let runs = self.build_runs((memtable, separated), &ranges, threads)?;
            if let Some((before, expired)) = self.publish_flush(memtable, &ranges, runs, last_sequence)? {
                self.scheduler.governor.note_flush(memtable.log_bytes(), began.elapsed(), threads);
                return Ok((before, expired, threads));
            }
            began = Instant::now();
        }
    }

    /// Flushes all memtables, including the active one. No thread writes to the store meanwhile.
    ///
    /// # Errors
    /// Same as [`Self::flush_oldest`], for the first memtable that fails: it and all newer ones
    /// stay in their logs.
    pub(crate) fn flush_all(&self) -> Result<()> {
        // First the memtables that wait, up to the maximum, then the active one.
        for _ in 0..2 {
            self.rotate();
            while self.flush_oldest()? {}
        }
        Ok(())
    }

    /// Returns the number of threads of a flush into these ranges.
    fn flush_threads(&self, ranges: &Ranges) -> usize {
        let free = self.options.workers.saturating_sub(self.scheduler.compacting());
        free.min(self.scheduler.governor.allowed()).min(ranges.list.len()).max(1)
    }

    /// Builds the memtable's tables, by range, on this many threads.
    fn build_runs(&self, source: Source<'_>, ranges: &Ranges, threads: usize) -> Result<Runs> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<Runs> {
            let mut runs = Runs::default();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(range) = ranges.list.get(index) else { return Ok(runs) };
                let made = self.build_run(source, range, ranges.upper_of(index));
                let (tables, dead, expired) = made.inspect_err(|_| runs.free_tables())?;
                runs.dead.merge(&dead);
                runs.expired.merge(expired);
                if !tables.is_empty() {
                    runs.tables.push((range.id, tables));
                }
            }
        };
        let mut runs = Runs::default();
        let mut outcome = Ok(());
        for part in run_on_threads(threads, work) {
            match part {
                Ok(part) => {
                    runs.tables.extend(part.tables);
                    runs.dead.merge(&part.dead);
                    runs.expired.merge(part.expired);
                }
                Err(error) => outcome = Err(error),
            }
        }
        if outcome.is_err() {
            runs.free_tables();
        }
        outcome.map(|()| runs)
    }

    fn build_run(
        &self,
        (memtable, separated): Source<'_>,
        range: &Range,
        upper: Option<&[u8]>,
    ) -> Result<(Vec<Arc<TableHandle>>, Dead, Expired)> {
        let bottom = range.sorted().all(|sorted| sorted.tables.is_empty());
        let mut cursor = MemtableCursor::checking(memtable, Bound::Included(&range.lower));
        let mut replacements = separated.map(|separated| separated.from(memtable, &range.lower));
        let mut moved = Dead::default();
        let mut output = Output::new(self, &self.sizes.table, &range.cuts, bottom);
        while let Some((at, mut pair)) = cursor.next_with_position()? {
            if upper.is_some_and(|upper| pair.key >= upper) {
                break;
            }
            if let Some(stored) = replacements.as_mut().and_then(|replacements| replacements.stored_of(at)) {
                if let Known::Pointer(pointer, _) = pair.known {
                    moved.add(pair.key, pointer);
                }
                pair.known = Known::Value(stored, pair.known.expiry());
            }
            output.add(&pair)?;
        }
        let (tables, mut dead, expired) = output.finish()?;
        dead.merge(&moved);
        Ok((tables, dead, expired))
    }

    /// Applies the flush. Returns the ranges before it and the expired pairs, or `None` if the
    /// ranges have changed so that the tables do not fit.
    fn publish_flush(
        &self,
        memtable: &Arc<Memtable>,
        ranges: &Ranges,
        runs: Runs,
        last_sequence: u64,
    ) -> Result<Option<(Arc<Ranges>, Expired)>> {
        let mut publisher = lock(&self.publisher);
        let now = publisher.ranges();
        let same = now.list.len() == ranges.list.len()
            && now.list.iter().zip(&ranges.list).all(|(now, then)| now.id == then.id && now.lower == then.lower);
        let Runs { tables: runs, dead, expired } = runs;
        let fresh: Vec<_> = runs.iter().flat_map(|(_, tables)| tables.iter().cloned()).collect();
        if !same {
            fresh.iter().for_each(|table| table.set_removed());
            return Ok(None);
        }
        let added =
            runs.iter().flat_map(|(range, tables)| tables.iter().map(|table| (*range, Arc::clone(&table.descriptor))));
        if self.pool.has_fault(planted::LOG_FREED_EARLY) {
            memtable.log.overwrite();
        }
        let mut values = memtable.dead().changes();
        values.extend(dead.changes());
        values.extend(self.values.unsealed_changes());
        let edit = Edit::Flush { generation: memtable.generation, last_sequence, added: added.collect(), values };
        let bytes: u64 = fresh.iter().map(|table| table.descriptor.bytes).sum();
        self.view.load().active.log.flush_ends();
        let applied = publisher.apply(&self.pool, &edit, fresh.clone());
        if let Err(error) = applied {
            if !matches!(error, Error::Poisoned { .. }) {
                fresh.iter().for_each(|table| table.set_removed());
            }
            return Err(error);
        }
        self.values.note_dead(&dead);
        if let Edit::Flush { values, .. } = &edit {
            self.values.mark_recorded(values);
        }
        Counts::add(&self.counts.flushes, 1);
        Counts::add(&self.counts.flushed_bytes, bytes);
        let view = self.view.load_full();
        let frozen: Vec<_> = view.frozen.iter().filter(|other| !Arc::ptr_eq(other, memtable)).cloned().collect();
        let count = frozen.len();
        // This memtable needs no free space any more. The splits take that into account.
        self.reserve.note_flushed(memtable.log_bytes());
        let split = self.split_and_publish(&mut publisher, None, Some(frozen));
        self.scheduler.set_frozen(count);
        drop(publisher);
        memtable.set_flushed();
        split.map(|()| Some((now, expired)))
    }
}

#[cfg(test)]
mod tests;
