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
//!    (`memtable/apart.rs`).
//! 2. No lock is held while the separator is called, and only a caller that waits for the flush
//!    waits for its thread. The separator may read the store and call
//!    [`replace`](crate::FluidKv::replace), which never waits for a flush. Other writes may wait,
//!    and are forbidden there.
//! 3. A stored value dies once. In the tables it dies when a flush hides the newest version there;
//!    the next flush finds it hidden. A value also dies there when a compaction drops it as expired
//!    and no flush has hidden it meanwhile. In a memtable it dies when another entry replaces one
//!    that `replace` wrote, or when its flush drops it.
//! 4. A panic of the separator poisons the store.

use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use lodestore_contract::limits::{BATCH_OPS_MAX, check_batch, check_key, check_value};
use lodestore_contract::{Batch, BatchOp, Direction, Error, Event, PoisonReason, Result, VerifyReport};
use lodestore_media::Pool;

use crate::cursor::{MemtableCursor, Pair};
use crate::entry::{Payload, STORED_MAX};
use crate::flush::run_on_threads;
use crate::inner::Inner;
use crate::locks::lock;
use crate::manifest::Key;
use crate::memtable::apart::Separated;
use crate::memtable::{Memtable, Records};
use crate::table::{Reads, Slot, hash};
use crate::tables::{LookupOptions, Sorted};
use crate::value_log::record::Pointer;
use crate::view::{Known, Range, Ranges};

/// Maximum number of values per call of [`Separator::separate`].
const VALUES_PER_CALL_MAX: usize = 64 << 10;
/// Maximum number of stored values per call of [`Separator::died`], and of their bytes copied for
/// one call.
const DEATHS_PER_CALL_MAX: (usize, usize) = (256, 64 << 10);

/// A value that a flush hands to the separator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Separable<'a> {
    /// The key of the value.
    pub key: &'a [u8],
    /// The value as it was written.
    pub value: &'a [u8],
}

/// Keeps values separated from the tables: see
/// [`FluidKv::start_separating`](crate::FluidKv::start_separating) (HashKV, ATC 2018, section 3).
///
/// Called on a worker's thread, or on the caller's with `workers` 0 and in `settle` and `close`.
/// Never called before [`FluidKv::begin_workers`](crate::FluidKv::begin_workers). A panic in it
/// poisons the store. Reads of the store and [`FluidKv::replace`](crate::FluidKv::replace) are
/// allowed. Other writes and `settle` are forbidden: they may wait for this same flush. While the
/// store closes, all of these return [`Error::Closed`].
pub trait Separator: Send + Sync + 'static {
    /// Returns whether the live value of a key goes to [`separate`](Self::separate). Must be cheap:
    /// called for each value of a memtable that is flushed.
    fn wants(&self, key: &[u8], value: &[u8]) -> bool;

    /// Returns the bytes that the tables hold instead of each value, in the order of `values`;
    /// `None` keeps the value itself. The keys ascend. A call has at most 65,536 values; a larger
    /// memtable needs several calls. On return, the separator's writes are as durable as the store
    /// promises. Calls are serial and hold none of the store's locks. A value that was answered for
    /// is not handed over again in the same process.
    ///
    /// Until [`published`](Self::published) is called, nothing in the store names the answers, and
    /// the separator must keep them.
    ///
    /// # Errors
    /// Any error fails the flush, and the values stay in the log. The store retries it as it does
    /// failed flushes ([`Error::Full`] and [`Error::Io`] may pass).
    ///
    /// # Panics The store panics if the answers are not as many as the values, or if an answer is
    /// longer than 2^30 + 16 bytes.
    fn separate(&self, values: &[Separable<'_>]) -> Result<Vec<Option<Box<[u8]>>>>;

    /// Called once after each flush, before its [`died`](Self::died). All answers of
    /// [`separate`](Self::separate) are now durable in the tables, and visible to reads and
    /// [`FluidKv::replace`](crate::FluidKv::replace).
    fn published(&self) {}

    /// Returns whether the store may name any answer of [`separate`](Self::separate). If not,
    /// [`died`](Self::died) is not called. Called once after each flush, after
    /// [`published`](Self::published).
    fn holds(&self) -> bool {
        true
    }

    /// Frees capacity that the separator uses outside the regions
    /// (`lodestore_media::Pool::take_beside`). Called when a write does not fit in the pool after
    /// all possible flushes and compactions. Holds none of the store's locks; any number of threads
    /// may call it. Calls of [`FluidKv::replace`](crate::FluidKv::replace) are allowed.
    ///
    /// # Errors
    /// Errors that make the write fail: [`Error::Poisoned`] and the like. Having nothing to free is
    /// not an error.
    fn make_room(&self) -> Result<()> {
        Ok(())
    }

    /// Makes all writes of the separator durable before it returns. Called while the store closes,
    /// after all possible flushes. After this the pool records a clean stop, whatever the
    /// durability.
    ///
    /// # Errors
    /// Any error makes the stop unclean.
    fn closing(&self) -> Result<()> {
        Ok(())
    }

    /// Verifies the separator's data piece by piece, for a background scrub. Calls `piece` with the
    /// report of each piece, holding none of its own locks, and returns when `piece` returns false.
    fn verify_pieces(&self, piece: &mut dyn FnMut(VerifyReport) -> bool) {
        let _ = piece;
    }

    /// Reports stored values that no longer belong to a key. A value dies in one of these ways:
    /// * A durable flush hid it, the newest stored value of a key in the tables, under a newer
    ///   version or a delete.
    /// * [`FluidKv::replace`](crate::FluidKv::replace) put it, and another write replaced it before
    ///   its flush.
    /// * The value expired, and a flush or a compaction dropped it.
    ///
    /// A call has up to about 256 values, in no order. Calls are serial, and each value is reported
    /// once. A snapshot or a scan may still show the values. Not reported: values that expire
    /// before their range is compacted, values unreadable because of damage, values in FluidKV's
    /// own value log. After a crash following the flush, values not reported by then are not
    /// reported either.
    fn died(&self, stored: &[&[u8]]);
}

/// Poisons the store if the separator panics.
struct PoisonOnPanic<'a>(&'a Pool);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(PoisonReason::Panic, "the separator panicked");
        }
    }
}

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

/// Expired pairs that a flush or a merge dropped.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    keys: u64,
    /// Keys and stored values for the separator.
    stored: Vec<(Key, Box<[u8]>)>,
}

impl Expired {
    pub(crate) fn count(&mut self) {
        self.keys += 1;
    }

    /// Keeps a stored value for the separator.
    pub(crate) fn add(&mut self, key: &[u8], stored: &[u8]) {
        self.stored.push((key.into(), stored.into()));
    }

    pub(crate) fn merge(&mut self, mut other: Self) {
        self.keys += other.keys;
        self.stored.append(&mut other.stored);
    }
}

impl Inner {
    /// Rejects a value that is too long. With a separator the limit is slightly above the
    /// contract's, since the owner marks stored values.
    pub(crate) fn check_value(&self, value: &[u8]) -> Result<()> {
        if self.separator.is_none() {
            return check_value(value);
        }
        if value.len() <= STORED_MAX { Ok(()) } else { Err(Error::ValueLength { len: value.len() }) }
    }

    pub(crate) fn check_batch(&self, batch: &Batch) -> Result<()> {
        if self.separator.is_none() {
            return check_batch(batch);
        }
        if batch.ops.len() > BATCH_OPS_MAX {
            return Err(Error::BatchLength { ops: batch.ops.len() });
        }
        batch.ops.iter().try_for_each(|op| match op {
            BatchOp::Put { key, value, .. } => check_key(key).and_then(|()| self.check_value(value)),
            BatchOp::Delete { key } => check_key(key),
        })
    }

    /// Separates the values of a memtable before its flush, and returns the bytes that the tables
    /// hold instead. `None` without a separator.
    ///
    /// # Errors
    /// The separator's errors; [`Error::Corrupt`] if an entry is damaged.
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
        let _poison_on_panic = PoisonOnPanic(&self.pool);
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
        let _poison_on_panic = PoisonOnPanic(&self.pool);
        memtable.separation.note_dram(0);
        separator.published();
        if !separator.holds() {
            // Skips lookups of each overwritten key in tables that may be larger than memory.
            return;
        }
        let next = AtomicUsize::new(0);
        let moved = self.report_overwritten(memtable, DeathReports::new(&**separator, &self.death_reports));
        let parts = run_on_threads(threads, || {
            let _poison_on_panic = PoisonOnPanic(&self.pool);
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
        parts.into_iter().chain([moved]).filter_map(Result::err).for_each(|error| self.corrupt(&error));
    }

    /// Reports the expired pairs that a published flush or merge dropped: their number as an event,
    /// and their stored values to the separator. The flush of a `newer` run has already reported
    /// the values that the run hides.
    pub(crate) fn report_expired(&self, expired: &Expired, newer: &[Sorted]) {
        if expired.keys > 0 {
            self.report(&Event::Swept { keys: expired.keys });
        }
        let Some(separator) = self.separator.as_ref().filter(|_| !expired.stored.is_empty()) else { return };
        let _poison_on_panic = PoisonOnPanic(&self.pool);
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
            if next.is_none() || keys.len() == crate::view::LOOKUP_KEYS {
                // If a damaged filter hides a dead value, its space waits for a garbage collection.
                range.find_each(&keys, how, Reads::Trusted, &mut |_, known| match known {
                    Ok(Known::Value(stored, _)) => deaths.add(stored),
                    Ok(_) => {}
                    // An unreported value only leaves dead bytes uncounted. The damage itself is
                    // reported.
                    Err(error) => self.corrupt(&error),
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
                && memtable.tree.get(&records, entry.key()) != Some(at)
            {
                deaths.add(stored);
            }
        }
        deaths.report();
        Ok(())
    }
}
