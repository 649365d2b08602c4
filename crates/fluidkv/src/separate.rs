//! Key-value separation at the flush (HashKV, ATC 2018, section 3), for an engine that stands on this one: values live in the log until their memtable is flushed; then
//! the large ones are handed to a [`Separator`], which keeps them in a place of its own, and the tables hold what it answers in their place. What is stored is never
//! interpreted here: telling a value from what stands for one is the separator's owner's.
//!
//! Persist order of a flush: what [`Separator::separate`] wrote, durable when that returns; the tables, **fence**; the manifest's record, **fence**; then
//! [`Separator::published`] and [`Separator::died`]. A crash before the manifest's record leaves the values in the log, and what the separator wrote for them is named by
//! nobody: the next open's flush hands them over anew.
//!
//! Invariants
//! 1. One flush at a time, the oldest memtable first, and values are separated before the flush looks at the ranges: a flush that is made anew, or fails and is
//!    tried again, takes what was answered before (`memtable/apart.rs`).
//! 2. Nothing is locked while the separator is called, and nobody waits for its thread but who waits for the flush. So it may read the store, and
//!    [`replace`](crate::FluidKv::replace), which never waits for a flush; any other write may, and must not be made.
//! 3. A stored value dies once: in the tables when a flush hides the newest version there, which the next flush finds hidden, or when a compaction leaves it out since it has
//!    expired, and no flush has hidden it meanwhile; in a memtable when another entry takes the place of one that `replace` wrote, or when its flush leaves it out.
//! 4. A panic of the separator poisons the store.

use std::ops::Bound;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use lodestore_contract::limits::{BATCH_OPS_MAX, check_batch, check_key, check_value};
use lodestore_contract::{Batch, BatchOp, Direction, Error, Event, PoisonReason, Result, VerifyReport};
use lodestore_media::Pool;

use crate::cursor::{MemtableCursor, Pair};
use crate::entry::{Payload, STORED_MAX};
use crate::flush::on_threads;
use crate::inner::{Inner, lock};
use crate::manifest::Key;
use crate::memtable::apart::Separated;
use crate::memtable::{Memtable, Records};
use crate::table::{Reads, Slot, hash};
use crate::tables::{How, Sorted};
use crate::value_log::record::Pointer;
use crate::view::{Known, Range, Ranges};

/// Most values of one call of [`Separator::separate`].
const TOGETHER: usize = 64 << 10;
/// Most stored values of one call of [`Separator::died`], and bytes of them that are copied for it.
const DEATHS: (usize, usize) = (256, 64 << 10);

/// A value that a flush hands over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Separable<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The value as it was written.
    pub value: &'a [u8],
}

/// Keeps values apart from the tables: see [`FluidKv::start_separating`](crate::FluidKv::start_separating) (HashKV, ATC 2018, section 3).
///
/// It is called on a worker's thread, or, with `workers` 0 and in `settle` and `close`, on the caller's; never before [`FluidKv::begin_workers`](crate::FluidKv::begin_workers). A
/// panic in it poisons the store. It may read the store and call [`FluidKv::replace`](crate::FluidKv::replace); no other write, nor `settle`, which may wait for this very
/// flush. While the store is being closed all of these answer [`Error::Closed`].
pub trait Separator: Send + Sync + 'static {
    /// Whether the live value of a key goes to [`separate`](Self::separate). Cheap: it is asked for each value of a memtable that is flushed.
    fn wants(&self, key: &[u8], value: &[u8]) -> bool;

    /// What the tables are to hold in the place of each of these values, in their order; `None`: the value itself. The keys ascend, and there are 65,536 at most: a memtable with
    /// more takes several calls. What it wrote is as durable as the store promises when it returns. One call at a time, under none of the store's locks; no value is handed over twice
    /// in one process once it was answered for.
    ///
    /// Until [`published`](Self::published) is called, nothing in the store names what it answered, and it must stay.
    ///
    /// # Errors
    /// Any: the flush fails with it, the values stay in the log, and it is asked again as the store does with failed flushes ([`Error::Full`] and [`Error::Io`] may pass).
    ///
    /// # Panics
    /// The store's own: for another number of answers than there are values, or one of more than 2^30 + 16 bytes.
    fn separate(&self, values: &[Separable<'_>]) -> Result<Vec<Option<Box<[u8]>>>>;

    /// All that [`separate`](Self::separate) answered is in the tables now, durably, and reads and [`FluidKv::replace`](crate::FluidKv::replace) find it. Called once behind each flush, before its
    /// [`died`](Self::died).
    fn published(&self) {}

    /// Whether the store may name anything that [`separate`](Self::separate) ever answered: where it does not, nobody is told what died. Asked once behind each flush, behind
    /// [`published`](Self::published).
    fn holds(&self) -> bool {
        true
    }

    /// A write has found no room in the pool, and all that could be flushed and compacted was: the separator gives back what it can of the capacity that it has taken beside
    /// the regions (`lodestore_media::Pool::take_beside`). Under none of the store's locks, by any number of threads; it may call
    /// [`FluidKv::replace`](crate::FluidKv::replace).
    ///
    /// # Errors
    /// What makes the write fail: [`Error::Poisoned`] and the like. That there is nothing to give back is none.
    fn make_room(&self) -> Result<()> {
        Ok(())
    }

    /// The store is being closed, and all that could be flushed was: behind this the pool says that this was a clean stop, whatever the durability. So what the separator wrote is to be durable
    /// when it returns.
    ///
    /// # Errors
    /// Any: the stop is none then.
    fn closing(&self) -> Result<()> {
        Ok(())
    }

    /// Verifies what the separator keeps, piece by piece, for a background scrub. Gives the report
    /// of each piece to `piece` under none of its own locks, and returns when `piece` says false.
    fn verify_pieces(&self, piece: &mut dyn FnMut(VerifyReport) -> bool) {
        let _ = piece;
    }

    /// These bytes were a key's newest stored value in the tables, and a flush, which is durable, has hidden them behind a newer version or a delete; or they were put by
    /// [`FluidKv::replace`](crate::FluidKv::replace) and overwritten before their flush; or they had expired, and a flush or a compaction has left them out. Some 256 at a time, in no order, one call at a time; each is told once. A snapshot or a scan may still show them. Not told is what
    /// has expired before its range is compacted, what cannot be read for damage, what stands in FluidKV's own value log, and, after a crash behind the flush, all that was not
    /// told by then.
    fn died(&self, stored: &[&[u8]]);
}

/// Poisons a store whose separator panics.
struct Unwinding<'a>(&'a Pool);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(PoisonReason::Panic, "the separator panicked");
        }
    }
}

/// Stored values that died, on their way to the separator.
struct Deaths<'a> {
    separator: &'a dyn Separator,
    turn: &'a Mutex<()>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl<'a> Deaths<'a> {
    fn new(separator: &'a dyn Separator, turn: &'a Mutex<()>) -> Self {
        Self { separator, turn, bytes: Vec::new(), ends: Vec::new() }
    }

    fn add(&mut self, stored: &[u8]) {
        if stored.len() > DEATHS.1 {
            self.call(&[stored]);
            return;
        }
        if self.ends.len() == DEATHS.0 || self.bytes.len() + stored.len() > DEATHS.1 {
            self.tell();
        }
        self.bytes.extend_from_slice(stored);
        self.ends.push(self.bytes.len());
    }

    fn tell(&mut self) {
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
        let _turn = lock(self.turn);
        self.separator.died(stored);
    }
}

/// Expired pairs that a flush or a merge left out of the tables.
#[derive(Debug, Default)]
pub(crate) struct Expired {
    /// Number of the pairs.
    keys: u64,
    /// Keys and stored values, for a separator.
    stored: Vec<(Key, Box<[u8]>)>,
}

impl Expired {
    /// Counts a pair.
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
    /// Refuses a value that is too long: with a separator, whose owner marks what it stores, one may be a little longer than the contract has it.
    pub(crate) fn check_value(&self, value: &[u8]) -> Result<()> {
        if self.separator.is_none() {
            return check_value(value);
        }
        if value.len() <= STORED_MAX { Ok(()) } else { Err(Error::ValueLength { len: value.len() }) }
    }

    /// As [`Self::check_value`], for a batch.
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

    /// What the tables are to hold for the values of a memtable that is about to be flushed; none where there is no separator.
    ///
    /// # Errors
    /// The separator's; [`Error::Corrupt`] where an entry is damaged.
    pub(crate) fn separate(&self, memtable: &Memtable) -> Result<Option<Separated>> {
        let Some(separator) = &self.separator else { return Ok(None) };
        let mut separated = memtable.apart.take();
        let outcome = self.separate_rest(&**separator, memtable, &mut separated);
        if let Err(error) = outcome {
            memtable.apart.give_back(separated);
            return Err(error);
        }
        Ok(Some(separated))
    }

    fn separate_rest(&self, separator: &dyn Separator, memtable: &Memtable, separated: &mut Separated) -> Result<()> {
        let _unwinding = Unwinding(&self.pool);
        // Keeps the segments of the value log that are not retired by now.
        let _held = self.values.is_used().then(|| self.view.load_full());
        while !separated.is_complete {
            let from = separated.last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut cursor = MemtableCursor::checking(memtable, from);
            let (mut places, mut values, mut last) = (Vec::new(), Vec::new(), None);
            while values.len() < TOGETHER {
                let Some((at, pair)) = cursor.next_placed()? else { break };
                last = Some(pair.key);
                if let Some(value) = self.separable(separator, &pair) {
                    places.push(at);
                    values.push(Separable { key: pair.key, value });
                }
            }
            let stored = if values.is_empty() { Vec::new() } else { separator.separate(&values)? };
            assert_eq!(stored.len(), values.len(), "an answer for each value");
            for (at, stored) in places.into_iter().zip(stored) {
                let Some(stored) = stored else { continue };
                assert!(stored.len() <= STORED_MAX, "what stands for a value is no longer than one");
                separated.add(at, &stored);
            }
            separated.is_complete = values.len() < TOGETHER;
            separated.last = last.map(<[u8]>::to_vec).or_else(|| separated.last.take());
            memtable.apart.note_dram(separated.dram_bytes());
        }
        Ok(())
    }

    /// The value of a pair that is to be separated. What cannot be read from the value log stays there, which its own reads tell; what was retired there is hidden by
    /// a newer version.
    fn separable<'v>(&'v self, separator: &dyn Separator, pair: &Pair<'v>) -> Option<&'v [u8]> {
        let value = match pair.known {
            known if !known.is_live() => return None,
            Known::Value(value, _) => value,
            Known::Pointer(pointer, _) => {
                let segment = self.values.find(Pointer::decode(pointer).id)?;
                // Behind the load of the view that is held: that has a segment which is not ended by now.
                if segment.ended.load(Ordering::Acquire) {
                    return None;
                }
                self.values.read(pair.key, pointer, Reads::Verified).ok()?
            }
            Known::Deleted => return None,
        };
        separator.wants(pair.key, value).then_some(value)
    }

    /// Tells the separator, behind a flush that readers see, what that has hidden in the ranges as they were `before` it.
    pub(crate) fn tell_hidden(&self, memtable: &Memtable, before: &Ranges, threads: usize) {
        let Some(separator) = &self.separator else { return };
        let _unwinding = Unwinding(&self.pool);
        memtable.apart.note_dram(0);
        separator.published();
        if !separator.holds() {
            // Look-ups for each key that was written over, in tables that may be larger than the memory, for nobody.
            return;
        }
        let next = AtomicUsize::new(0);
        let moved = self.tell_overwritten(memtable, Deaths::new(&**separator, &self.telling));
        let parts = on_threads(threads, || {
            let _unwinding = Unwinding(&self.pool);
            let mut deaths = Deaths::new(&**separator, &self.telling);
            let walked = loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(range) = before.list.get(index) else { break Ok(()) };
                let walked = self.find_hidden(memtable, range, before.upper_of(index), &mut deaths);
                if walked.is_err() {
                    break walked;
                }
            };
            deaths.tell();
            walked
        });
        parts.into_iter().chain([moved]).filter_map(Result::err).for_each(|error| self.corrupt(&error));
    }

    /// Reports the expired pairs that a published flush or merge left out: their number as an
    /// event, and their stored values to the separator. The flush of one of the `newer` runs has
    /// reported the values that the run hides.
    pub(crate) fn tell_expired(&self, expired: &Expired, newer: &[Sorted]) {
        if expired.keys > 0 {
            self.tell(&Event::Swept { keys: expired.keys });
        }
        let Some(separator) = self.separator.as_ref().filter(|_| !expired.stored.is_empty()) else { return };
        let _unwinding = Unwinding(&self.pool);
        let mut deaths = Deaths::new(&**separator, &self.telling);
        let how = How { reads: self.reads, filtered: true };
        for (key, stored) in &expired.stored {
            // A count that is not told harms nothing.
            let is_there = |run: &Sorted| !matches!(run.get(key, hash(key), how, &Slot::new()), Ok(None));
            if !newer.iter().any(is_there) {
                deaths.add(stored);
            }
        }
        deaths.tell();
    }

    /// What the memtable's keys have hidden in a range.
    fn find_hidden(
        &self,
        memtable: &Memtable,
        range: &Range,
        upper: Option<&[u8]>,
        deaths: &mut Deaths<'_>,
    ) -> Result<()> {
        if range.sorted().all(|sorted| sorted.tables.is_empty()) {
            return Ok(());
        }
        let how = How { reads: self.reads, filtered: true };
        let mut cursor = MemtableCursor::new(memtable, u64::MAX, Bound::Included(&range.lower), Direction::Forward);
        let mut keys = Vec::new();
        loop {
            let next = cursor.next()?.filter(|pair| upper.is_none_or(|upper| pair.key < upper));
            keys.extend(next.as_ref().map(|pair| (pair.key, hash(pair.key))));
            if next.is_none() || keys.len() == crate::view::LOOKUPS {
                // If a damaged filter hides a dead value, its space waits for a collection.
                range.find_each(&keys, how, Reads::Trusted, &mut |_, known| match known {
                    Ok(Known::Value(stored, _)) => deaths.add(stored),
                    Ok(_) => {}
                    // A count that is not told harms nothing; the damage is told.
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

    /// What `replace` put into the memtable, and other entries took the place of there.
    fn tell_overwritten(&self, memtable: &Memtable, mut deaths: Deaths<'_>) -> Result<()> {
        let records = Records(&self.pool);
        for at in memtable.apart.take_moved() {
            let entry = records.entry(at)?;
            if let Payload::Value(stored) = entry.payload()
                && memtable.tree.get(&records, entry.key()) != Some(at)
            {
                deaths.add(stored);
            }
        }
        deaths.tell();
        Ok(())
    }
}
