//! FastStore (FluidKV, VLDB 2024): logs that each thread slot writes alone, under one ordered index in DRAM.
//!
//! Persist order of a write: its record, whole, with its checksum; flush; **fence: it is durable**; then its entry in the index,
//! which is what readers find it by, and the end mark behind it (`segment.rs`), which no fence waits for. So a read answers with nothing that a crash could take away.
//!
//! Invariants
//! 1. The index names the newest version of each key by number; writers of one key come one after the other (`locks.rs`).
//! 2. A tail is changed under its lock, by the threads of its slots. What stands before its end never changes.
//! 3. Where a snapshot may want the version that a write replaces, `older` names it before the index forgets it.
//! 4. The segments are freed when the last holder lets go of a memtable whose tables the manifest names, and never else.
//! 5. `segments` names a segment before the index names a record in it.
//!
//! With [`Reads::Verified`] a read compares the checksum of the record that it returns, and of each
//! record that it reads a key of where it returns none. So a record that changes on the medium
//! gives an error and no wrong value.

pub(crate) mod apart;
pub(crate) mod shared;

use std::cell::Cell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use lodestore_contract::{Error, Result};
use lodestore_index::{BPlusTree, Direction, KeyResolver};
use lodestore_media::{Mutant, NvPtr, Pool, thread_slot};

use self::apart::Apart;
use crate::dram::LOOK;
use crate::entry::batch::BatchRecord;
use crate::entry::{Entry, Frame, Op, Payload, encode_header};
use crate::inner::lock;
use crate::key_filter::KeyFilter;
use crate::layout::{KIND_LOG, LogCount, log_count_ranges, store_log_count};
use crate::reserve::Reserve;
use crate::segment::{
    SEGMENT_HEADER, SegmentHeader, capacity_for, end_hint, end_hint_at, end_mark, place, room_of, spare_at,
};
use crate::table::Reads;
use crate::value_log::Dead;

/// Logs of a memtable; threads beyond as many share them.
pub(crate) const TAILS: usize = 64;
/// Segments of a log that all threads share are this many times as long,
const SHARED_TIMES: u64 = 16;
/// but so many of them are in a memtable.
const SHARED_SEGMENTS: u64 = 16;
/// A segment for deletes, where space is scarce, is this part of another one at least.
const LEAST_PART: u64 = 16;
/// Most parts of what a memtable may take by which its index grows.
const STEPS: u64 = 16;
/// A segment has at most so many bytes for each byte of DRAM that its memtable may take.
const LOG_A_BYTE: u64 = 4;
/// Parts of the table of older versions.
const OLDER: usize = 16;
/// DRAM of one older version, about.
const OLDER_BYTES: u64 = 40;
/// Searches that meet a damaged record before it is reported. A search that a writer overtakes may
/// read a wrong slot.
const DAMAGED_SEARCHES_MAX: usize = 3;
/// Bytes of an entry that a descent asks for.
const FIRST_BYTES: usize = 64;
/// Bytes of a page of the medium.
const PAGE_BYTES: u64 = 4096;

/// Finds the key behind a position.
pub(crate) struct Records<'a>(pub(crate) &'a Pool);

impl<'a> Records<'a> {
    /// The entry at a position that the index named.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where none can be.
    #[inline]
    pub(crate) fn entry(&self, at: u64) -> Result<Entry<'a>> {
        let place = NvPtr::from_raw(at);
        let pool = self.0;
        Entry::read(|len| pool.bytes(place, len))
            .ok_or_else(|| Error::corrupt(format!("log entry at {place:?}"), "its lengths cannot be"))
    }
}

impl KeyResolver for Records<'_> {
    #[inline]
    fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T {
        // What was changed on the medium behind our back has no key: the read that follows tells.
        match self.entry(payload) {
            Ok(entry) => f(entry.key()),
            Err(_) => f(&[]),
        }
    }

    #[inline]
    fn prefetch(&self, payload: u64) {
        self.0.prefetch(NvPtr::from_raw(payload), FIRST_BYTES);
    }
}

/// Finds the key behind a position, with each record's checksum compared.
struct CheckedRecords<'a> {
    memtable: &'a Memtable,
    /// The position of a record whose checksum fails; 0: none.
    damaged: Cell<u64>,
}

impl<'a> CheckedRecords<'a> {
    fn new(memtable: &'a Memtable) -> Self {
        Self { memtable, damaged: Cell::new(0) }
    }

    /// Runs a search until it meets no damaged record.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if each of [`DAMAGED_SEARCHES_MAX`] searches meets one.
    fn search<T>(&self, mut search: impl FnMut(&Self) -> T) -> Result<T> {
        for _ in 0..DAMAGED_SEARCHES_MAX {
            self.damaged.set(0);
            let found = search(self);
            if self.damaged.get() == 0 {
                return Ok(found);
            }
        }
        Err(damaged(self.damaged.get()))
    }
}

impl KeyResolver for CheckedRecords<'_> {
    fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T {
        match self.memtable.checked(payload) {
            Some(entry) => f(entry.key()),
            None => {
                self.damaged.set(payload);
                f(&[])
            }
        }
    }

    fn prefetch(&self, payload: u64) {
        self.memtable.prefetch_entry(payload);
    }
}

/// The log of one thread slot.
#[derive(Default)]
#[repr(align(128))]
struct Tail(Mutex<Segment>);

/// The segment that is being written; none while it has no room.
#[derive(Default)]
struct Segment {
    at: NvPtr,
    /// Where records end, and the last one's end mark stands.
    room: u64,
    /// Where the header's spare copy stands.
    spare_at: u64,
    end: u64,
    /// The header, while its spare copy is not flushed: it is stored when the first record is durable.
    spare: Option<Box<SegmentHeader>>,
    /// The log count of the generation includes this segment.
    is_counted: bool,
    /// The next record behind this offset flushes what says of the records before it that they were
    /// durable.
    settle_at: u64,
    /// The number of the next segment of this log.
    next: u32,
    frame: Option<Frame>,
    /// The number of its last record, where the log is shared by all threads; 0: it has none.
    last: u64,
}

/// A segment of a memtable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    pub(crate) at: NvPtr,
    pub(crate) capacity: u64,
    pub(crate) frame: Frame,
}

/// What a new memtable is made with.
pub(crate) struct Make {
    pub(crate) generation: u64,
    /// The highest number given before it: its writes have higher ones.
    pub(crate) base: u64,
    /// Bytes of a log segment.
    pub(crate) segment_bytes: u64,
    /// Bytes of log, and of DRAM, at which it is full.
    pub(crate) limits: (u64, u64),
    /// What nonces are drawn from.
    pub(crate) seed: u64,
    /// Whether reads compare checksums.
    pub(crate) reads: Reads,
}

/// One memtable: see the module.
pub(crate) struct Memtable {
    pub(crate) generation: u64,
    pub(crate) tree: BPlusTree,
    keys: KeyFilter,
    pool: Arc<Pool>,
    base: u64,
    segment_bytes: u64,
    seed: u64,
    /// Whether all threads share one log.
    is_shared: bool,
    /// Whether its entries are of several logs with bases of their own, all older than any snapshot.
    replayed: bool,
    tails: Box<[Tail]>,
    /// By position.
    segments: ArcSwap<Vec<Written>>,
    reads: Reads,
    /// Segments with a durable record.
    durable_segments: Mutex<u64>,
    log_bytes: AtomicU64,
    /// Whether it should be frozen: looked at when a segment is begun.
    full: AtomicBool,
    /// Bytes of log, and of DRAM, at which it is.
    limits: (u64, u64),
    older: [Mutex<HashMap<u64, u64>>; OLDER],
    older_count: AtomicU64,
    dead: Mutex<Dead>,
    /// What is remembered for a separator.
    pub(crate) apart: Apart,
    flushed: AtomicBool,
}

impl Memtable {
    /// Bytes of log at which it is full.
    pub(crate) fn log_limit(&self) -> u64 {
        self.limits.0
    }

    pub(crate) fn new(pool: &Arc<Pool>, make: &Make) -> Self {
        let is_shared = pool.syncs_pages();
        // A shared log is synced wherever a segment ends.
        let most = (make.limits.0 / SHARED_SEGMENTS).max(make.segment_bytes);
        let wanted = if is_shared { most.min(SHARED_TIMES * make.segment_bytes) } else { make.segment_bytes };
        Self {
            is_shared,
            generation: make.generation,
            tree: BPlusTree::with_chunks((make.limits.1 / STEPS) as usize),
            // At most an eighth of what the memtable may take.
            keys: KeyFilter::new(make.limits.0.min(2 * make.limits.1)),
            pool: Arc::clone(pool),
            base: make.base,
            segment_bytes: wanted.min(LOG_A_BYTE * make.limits.1),
            seed: make.seed,
            replayed: false,
            tails: (0..if is_shared { 1 } else { TAILS }).map(|_| Tail::default()).collect(),
            segments: ArcSwap::default(),
            reads: make.reads,
            durable_segments: Mutex::new(0),
            log_bytes: AtomicU64::new(0),
            full: AtomicBool::new(false),
            limits: make.limits,
            older: Default::default(),
            older_count: AtomicU64::new(0),
            dead: Mutex::default(),
            apart: Apart::default(),
            flushed: AtomicBool::new(false),
        }
    }

    /// One for what is replayed from these segments.
    pub(crate) fn replayed(pool: &Arc<Pool>, make: &Make, mut segments: Vec<Written>) -> Self {
        let mut this = Self::new(pool, make);
        this.replayed = true;
        this.log_bytes = AtomicU64::new(segments.iter().map(|segment| segment.capacity).sum());
        segments.sort_unstable_by_key(|segment| segment.at.raw());
        this.segments = ArcSwap::from_pointee(segments);
        this
    }

    /// Bytes of log, and of DRAM, at which it is frozen.
    #[cfg(test)]
    pub(crate) fn limits(&self) -> (u64, u64) {
        self.limits
    }

    /// Asks for what a write of a key of this hash will change.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.keys.prefetch(hash);
    }

    /// Appends one write and makes it the newest version of its key, durable when this returns; where the one stands that it takes the place
    /// of here. With the stripe of the key held. Deletes may take of the reserve. `keep`: a snapshot may want what is replaced.
    ///
    /// # Errors
    /// [`Error::Full`]; [`Error::Poisoned`] where a sync failed.
    #[inline]
    pub(crate) fn append(
        &self,
        op: &Op<'_>,
        hash: u64,
        (number, keep): (u64, bool),
        reserve: &Reserve,
    ) -> Result<Option<u64>> {
        let len = op.entry_len();
        let mut segment = lock(&self.tails[thread_slot() % TAILS].0);
        loop {
            if let (Some(slot), Some(frame)) = (place(segment.end, len, segment.room), segment.frame) {
                let Some(header) = encode_header(frame, slot, number, true, op) else {
                    return Err(out_of_reach());
                };
                if segment.end > segment.settle_at {
                    self.settle_records(&mut segment);
                }
                let at = segment.at.add(slot.at);
                if self.pool.mutant(Mutant::RecordNotFlushed) {
                    self.pool.store(at, &[header.as_bytes(), op.key, op.payload.bytes()].concat());
                } else {
                    self.pool.store_durable(at, &[header.as_bytes(), op.key, op.payload.bytes()]);
                }
                let fence = || {
                    if !self.pool.mutant(Mutant::NoFenceBeforePublish) {
                        self.pool.fence();
                    }
                    self.pool.check()
                };
                let (before, end) = (segment.end, slot.at + len as u64);
                let old =
                    self.publish_behind(op.key, hash, (at.raw(), keep), || fence().map(|()| segment.end = end))?;
                self.mark_end(&mut segment);
                self.look_behind(before, end);
                return Ok(old);
            }
            let deletes = op.payload == Payload::Tombstone;
            self.begin_segment(&mut segment, len as u64, reserve, deletes)?;
        }
    }

    /// Appends a batch as one record; the positions of its operations.
    ///
    /// # Errors
    /// As [`Self::append`]; `spare`: it makes room, and may take of the reserve.
    pub(crate) fn append_batch(&self, ops: &[Op<'_>], number: u64, reserve: &Reserve, spare: bool) -> Result<Vec<u64>> {
        let full = || Error::Full { needed: u64::MAX, capacity: self.pool.options().capacity };
        let len = BatchRecord::len_of(ops).ok_or_else(full)?;
        let mut segment = lock(&self.tails[thread_slot() % TAILS].0);
        loop {
            if let (Some(slot), Some(frame)) = (place(segment.end, len, segment.room), segment.frame) {
                let record = BatchRecord::encode(frame, slot, number, true, ops).ok_or_else(out_of_reach)?;
                if segment.end > segment.settle_at {
                    self.settle_records(&mut segment);
                }
                self.pool.store_durable(segment.at.add(slot.at), &record.parts());
                if !self.pool.mutant(Mutant::BatchNotLogged) {
                    self.pool.fence();
                }
                self.pool.check()?;
                segment.end = slot.at + len as u64;
                self.mark_end(&mut segment);
                return Ok(record.places().map(|place| segment.at.add(place).raw()).collect());
            }
            let deletes = spare || ops.iter().all(|op| op.payload == Payload::Tombstone);
            self.begin_segment(&mut segment, len as u64, reserve, deletes)?;
        }
    }

    /// Gives a log a fresh segment in which a record of this length has room. Its header becomes durable with the first record: without
    /// a whole header nothing in it was answered for.
    #[cold]
    fn begin_segment(&self, segment: &mut Segment, len: u64, reserve: &Reserve, deletes: bool) -> Result<()> {
        if !self.is_shared {
            // The fence of the new extent makes them durable.
            self.flush_end(segment);
        }
        let least = capacity_for(len).max(self.segment_bytes / LEAST_PART);
        let chunks = |bytes: u64| bytes.next_multiple_of(u64::from(self.pool.options().chunk_bytes));
        let (least, wanted) = (chunks(least), chunks(least.max(self.segment_bytes)));
        let (at, capacity) = if deletes {
            reserve.alloc_log_for_delete(&self.pool, (least, wanted))?
        } else {
            (reserve.alloc_for_put(&self.pool, wanted, KIND_LOG)?, wanted)
        };
        let nonce = xxhash_rust::xxh3::xxh3_64_with_seed(&at.raw().to_le_bytes(), self.seed ^ self.generation << 20);
        let frame = Frame { nonce, base: self.base };
        let slot = if self.is_shared { 0 } else { (thread_slot() % TAILS) as u16 };
        let header = SegmentHeader {
            generation: self.generation,
            slot,
            number: segment.next,
            frame,
            capacity,
            previous_end: segment.end,
        };
        if self.is_shared {
            self.pool.store_parts(at, &[&header.encode()]);
        } else {
            self.pool.store_durable(at, &[&header.encode()]);
        }
        self.add_segment(Written { at, capacity, frame });
        let log = self.log_bytes.fetch_add(capacity, Ordering::Relaxed) + capacity;
        if log >= self.limits.0 {
            self.full.store(true, Ordering::Relaxed);
        }
        self.look();
        *segment = Segment {
            at,
            room: room_of(capacity),
            spare_at: spare_at(capacity),
            end: SEGMENT_HEADER as u64,
            spare: Some(Box::new(header)),
            is_counted: false,
            settle_at: SEGMENT_HEADER as u64,
            next: segment.next + 1,
            frame: Some(frame),
            last: 0,
        };
        Ok(())
    }

    fn add_segment(&self, segment: Written) {
        self.segments.rcu(|segments| {
            let place = segments.partition_point(|other| other.at.raw() < segment.at.raw());
            let (before, after) = segments.split_at(place);
            [before, &[segment], after].concat()
        });
    }

    /// Stores and flushes the spare copy of a header behind the first record, which is durable; it
    /// is made durable with the next one. The log count of the generation likewise. Returns the
    /// ranges, which a shared log flushes with its group.
    #[cold]
    fn store_spare(&self, segment: &mut Segment) -> Option<[(NvPtr, usize); 3]> {
        let copy = segment.spare.take()?.copy();
        let at = segment.at.add(segment.spare_at);
        self.count_segment(segment);
        let [first, second] = log_count_ranges(&self.pool, self.generation);
        let ranges = [(at, copy.len()), first, second];
        if self.is_shared {
            self.pool.store_parts(at, &[&copy]);
        } else {
            self.pool.store_durable(at, &[&copy]);
            ranges[1..].iter().for_each(|(at, len)| self.pool.flush(*at, *len));
        }
        Some(ranges)
    }

    /// Flushes the end hint of the records before, and what [`Self::store_spare`] stores after the
    /// first one. The next record's fence makes them durable. Done for the second record that ends
    /// in each page: a page of the log that is lost after a power failure is missed then.
    #[cold]
    fn settle_records(&self, segment: &mut Segment) {
        self.store_spare(segment);
        let hint_at = segment.at.add(end_hint_at(segment.end, segment.spare_at));
        self.pool.flush(hint_at, size_of::<u64>());
        let start = segment.at.offset();
        segment.settle_at = (start + segment.end).next_multiple_of(PAGE_BYTES) - start;
    }

    /// Adds a segment whose first record is durable to the log count of the generation, once.
    fn count_segment(&self, segment: &mut Segment) {
        if !std::mem::replace(&mut segment.is_counted, true) {
            let mut segments = lock(&self.durable_segments);
            *segments += 1;
            store_log_count(&self.pool, LogCount { generation: self.generation, segments: *segments });
        }
    }

    /// Says behind the last record of a log that it is durable, with all before it, so that damage to it is not taken for a record that was cut off.
    /// Not flushed: what a power failure takes of it was no promise.
    #[inline]
    fn mark_end(&self, segment: &mut Segment) {
        if let Some(frame) = segment.frame {
            let mark = end_mark(frame, segment.end);
            self.pool.publish_u64(segment.at.add(segment.end), mark);
            let hint_at = segment.at.add(end_hint_at(segment.end, segment.spare_at));
            self.pool.publish_u64(hint_at, end_hint(mark, segment.end));
            if segment.spare.is_some() {
                self.store_early_spare(segment);
            }
        }
    }

    /// Stores the spare copy of a header and the log count as soon as the first record is durable,
    /// without a flush: [`Self::store_spare`] makes them durable.
    #[cold]
    fn store_early_spare(&self, segment: &mut Segment) {
        if let Some(header) = &segment.spare {
            self.pool.store_parts(segment.at.add(segment.spare_at), &[&header.copy()]);
        }
        self.count_segment(segment);
    }

    /// Flushes the last end mark and end hint of each log, when the memtable is frozen: no later
    /// record of these logs makes them durable. The caller's next fence does. Leaves out logs that
    /// are being written, and shared ones, whose groups sync whole pages.
    pub(crate) fn flush_ends(&self) {
        if self.is_shared {
            return;
        }
        for segment in self.tails.iter().filter_map(|tail| tail.0.try_lock().ok()) {
            self.flush_end(&segment);
        }
    }

    /// Flushes the end mark and the end hint of a segment. The caller's next fence makes them
    /// durable.
    fn flush_end(&self, segment: &Segment) {
        if segment.frame.is_some() && segment.end > SEGMENT_HEADER as u64 {
            self.pool.flush(segment.at.add(segment.end), size_of::<u64>());
            let hint_at = segment.at.add(end_hint_at(segment.end, segment.spare_at));
            self.pool.flush(hint_at, size_of::<u64>());
        }
    }

    /// Looks whether its DRAM is used up.
    #[cold]
    pub(crate) fn look(&self) {
        if !self.has_dram(0) {
            self.full.store(true, Ordering::Relaxed);
        }
    }

    /// Looks where a log has come so much further that it is worth it.
    #[inline]
    fn look_behind(&self, before: u64, end: u64) {
        if before / LOOK != end / LOOK {
            self.look();
        }
    }

    /// Whether it may take so much more DRAM.
    pub(crate) fn has_dram(&self, more: u64) -> bool {
        self.dram_bytes() + more < self.limits.1
    }

    /// Makes `at` the newest version of `key`, whose hash is given; where the one stands that it takes the place of here. With the stripe of the key held.
    /// `keep`: a snapshot may want what is replaced.
    #[inline]
    pub(crate) fn publish(&self, key: &[u8], hash: u64, at: u64, keep: bool) -> Option<u64> {
        self.publish_behind(key, hash, (at, keep), || Ok::<_, Infallible>(())).unwrap_or_else(|never| match never {})
    }

    /// As [`Self::publish`], behind what is called `before` while the index's memory is on its way.
    #[inline]
    fn publish_behind<E>(
        &self,
        key: &[u8],
        hash: u64,
        (at, keep): (u64, bool),
        before: impl FnOnce() -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        let records = Records(&self.pool);
        if keep && let Some(old) = self.tree.get(&records, key) {
            lock(&self.older[Self::part_of(at)]).insert(at, old);
            self.older_count.fetch_add(1, Ordering::Relaxed);
        }
        self.tree.insert_after(&records, (key, at), || {
            before()?;
            self.keys.add(hash);
            Ok(())
        })
    }

    /// Counts large values that entries here no longer name.
    pub(crate) fn note_dead(&self, dead: &Dead) {
        lock(&self.dead).merge(dead);
    }

    /// Large values that entries here no longer name.
    pub(crate) fn dead(&self) -> Dead {
        lock(&self.dead).clone()
    }

    fn part_of(at: u64) -> usize {
        (at >> 3) as usize % OLDER
    }

    /// Asks for the entry at a position.
    #[inline]
    pub(crate) fn prefetch_entry(&self, at: u64) {
        Records(&self.pool).prefetch(at);
    }

    /// Whether it may have a key of this hash; if not, it has none.
    #[inline]
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        self.keys.may_have(hash)
    }

    /// The newest version of a key up to a number.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn find(&self, key: &[u8], hash: u64, number: u64) -> Result<Option<Entry<'_>>> {
        if !self.may_have(hash) {
            return Ok(None);
        }
        match self.tree.get(&Records(&self.pool), key) {
            Some(at) => self.version_of(key, at, number),
            None if self.reads == Reads::Trusted => Ok(None),
            None => self.find_checked(key, number),
        }
    }

    /// [`Self::find`] of a key that the index does not have, by the keys of whole records alone.
    #[cold]
    #[inline(never)]
    fn find_checked(&self, key: &[u8], number: u64) -> Result<Option<Entry<'_>>> {
        match CheckedRecords::new(self).search(|records| self.tree.get(records, key))? {
            Some(at) => self.version_of(key, at, number),
            None => Ok(None),
        }
    }

    /// [`Self::version`] of this key.
    #[inline]
    fn version_of(&self, key: &[u8], at: u64, number: u64) -> Result<Option<Entry<'_>>> {
        match self.version(at, number)? {
            Some(entry) if *entry.key() != *key => Err(damaged(at)),
            found => Ok(found),
        }
    }

    /// The version up to a number of the key whose newest one is at `at`.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn version(&self, at: u64, number: u64) -> Result<Option<Entry<'_>>> {
        let mut entry = self.entry(at)?;
        let mut at = at;
        while self.is_newer(&entry, number) {
            #[cfg(test)]
            visits::add();
            let Some(older) = lock(&self.older[Self::part_of(at)]).get(&at).copied() else { return Ok(None) };
            at = older;
            entry = self.entry(at)?;
        }
        Ok(Some(entry))
    }

    /// The entry at a position that the index named.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub(crate) fn entry(&self, at: u64) -> Result<Entry<'_>> {
        match self.reads {
            Reads::Trusted => Records(&self.pool).entry(at),
            Reads::Verified => self.checked(at).ok_or_else(|| damaged(at)),
        }
    }

    /// Whether a snapshot at `number` does not show this version. `u64::MAX` shows every version.
    #[inline]
    pub(crate) fn is_newer(&self, entry: &Entry<'_>, number: u64) -> bool {
        number != u64::MAX && !self.replayed && entry.sequence(self.base) > number
    }

    /// Adds the positions of keys from `from` on, in order, at most `max`; whether that was all there are.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: a record that says where the first of them is was damaged.
    pub(crate) fn collect(
        &self,
        from: Bound<&[u8]>,
        direction: Direction,
        max: usize,
        out: &mut Vec<u64>,
    ) -> Result<bool> {
        if from == Bound::Unbounded || self.reads == Reads::Trusted {
            return Ok(self.tree.collect(&Records(&self.pool), from, direction, max, out));
        }
        let before = out.len();
        CheckedRecords::new(self).search(|records| {
            out.truncate(before);
            self.tree.collect(records, from, direction, max, out)
        })
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// Whether it is as large as it may be.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Bytes of its segments.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn dram_bytes(&self) -> u64 {
        let fixed = size_of::<Self>() + size_of_val(&*self.tails);
        (fixed + self.keys.dram_bytes() + self.tree.dram_bytes()) as u64
            + self.older_count.load(Ordering::Relaxed) * OLDER_BYTES
            + self.apart.dram_bytes()
    }

    /// Says that its tables are durable and named: its logs go with its last holder.
    pub(crate) fn set_flushed(&self) {
        self.flushed.store(true, Ordering::Release);
    }

    /// Uses its logs' space for something else: a planted fault.
    pub(crate) fn spoil(&self) {
        for segment in self.segments.load().iter() {
            self.pool.zero(segment.at, segment.capacity as usize);
            self.pool.flush(segment.at, segment.capacity as usize);
            self.pool.fence();
        }
    }

    /// The entry at a position, with its checksum compared. None where it is not whole.
    #[inline]
    pub(crate) fn checked(&self, at: u64) -> Option<Entry<'_>> {
        let segment = {
            let segments = self.segments.load();
            let above = segments.partition_point(|segment| segment.at.raw() <= at);
            *segments.get(above.checked_sub(1)?)?
        };
        let offset = at - segment.at.raw();
        let rest = segment.capacity.checked_sub(offset)?;
        Entry::checked(self.pool.bytes(NvPtr::from_raw(at), rest as usize)?, segment.frame, offset)
    }

    /// Its segments by position.
    pub(crate) fn segments(&self) -> Arc<Vec<Written>> {
        self.segments.load_full()
    }
}

#[cold]
pub(crate) fn damaged(at: u64) -> Error {
    let what = "its checksum fails: restore the store from a copy, or open it with `salvage` to continue without it";
    Error::corrupt(format!("log entry at {:?}", NvPtr::from_raw(at)), what)
}

#[cold]
fn out_of_reach() -> Error {
    Error::corrupt("log", "a number or a length is out of its segment's reach")
}

impl Drop for Memtable {
    fn drop(&mut self) {
        if self.flushed.load(Ordering::Acquire) && !self.pool.is_foreign() {
            for segment in self.segments.load().iter() {
                self.pool.allocator().free_extent(&self.pool, segment.at);
            }
        }
    }
}

/// Counts the versions that a thread reads, so that a test can bound the work of a scan.
#[cfg(test)]
pub(crate) mod visits {
    use std::cell::Cell;

    thread_local! {
        static VISITS: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn add() {
        VISITS.set(VISITS.get() + 1);
    }

    pub(crate) fn count() -> u64 {
        VISITS.get()
    }
}
