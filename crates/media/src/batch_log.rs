//! Redo logs for atomic writes of several words of the medium.
//!
//! An engine publishes a write of one key by one store. A batch publishes by many stores. A log
//! record is durable before the first of them; after a crash in between, the next open repeats all
//! of them. The record is physical: offsets, and the words to store there.
//!
//! ## Persist order of a batch
//! The engine holds the locks of everything the batch changes, from before 1 until `commit`
//! returned.
//! 1. the data that the new words will point to, by the engine; **fence 1**;
//! 2. the log record, whole, with its checksum; **fence 2: the batch is committed**;
//! 3. each word at its offset; flush; **fence 3**;
//! 4. the record's stamp becomes 0, which disarms it; flush; **fence 4**. The engine then releases
//!    its locks and retires the replaced records.
//!
//! A crash before fence 2 leaves a whole record or none: all or nothing. Between fence 2 and fence
//! 4 the record is whole. Repeating step 3 is harmless, because changing these words needs the
//! locks that the batch holds. After fence 4 nothing remains to be done.
//!
//! ## Opening
//! Replay runs before any request is served and before any repair. A killed process may have stored
//! without flushing. An open that is not settled therefore flushes the root words, all stamps and
//! all whole armed records; **fence**. Otherwise a later power failure could take back a
//! half-repeated record, or arm a record again whose words were written since. Then: the stores of
//! each armed, whole record; flush; **fence**; its stamp becomes 0; flush; **fence**. After a crash
//! in any of these steps the next open repeats them.
//!
//! ## Invariants
//! 1. At most one record of a log is armed, and only while a [`BatchTurn`] of it is in `commit`, or
//!    after a crash. A turn holds the log's lock.
//! 2. A stamp is never used twice, in any log. Each stamp begins with the pool header's sequence
//!    number, which each open raises durably before anything else, and contains the log's number. A
//!    record's checksum covers its stamp and its offset. A mixture of an old and a new record at
//!    the same offset is therefore never whole. This holds even if the old record belongs to
//!    another log that used the extent before.
//! 3. Only its turn accesses a record. Root words are stored under the log's lock and read by any
//!    thread.
//! 4. A turn is acquired before any of the engine's locks. No thread waits for a log while holding
//!    one of these locks.
//!
//! A log is one extent: created at first use, replaced by a larger one when a batch needs it, and
//! kept. Records begin at eight offsets of it in turn, to spread wear over cache lines (NVHT, JPDC
//! 2018, section 3).

mod record;

use std::sync::{Mutex, MutexGuard, TryLockError};

use lodestore_contract::{Error, PoisonReason, Result, VerifyReport};

use crate::alloc::ExtentKind;
use crate::mutex::lock;
use crate::nvptr::NvPtr;
use crate::planted;
use crate::pool::Pool;
use crate::region_layout::LINE_BYTES;
use crate::slot::thread_slot;

use record::{ArmedRecord, record_bytes};

/// Logs of a pool: the number of threads that can write batches concurrently.
const LOG_COUNT: usize = 8;
/// Offsets of an extent where records begin.
const HEAD_COUNT: u64 = 8;
/// Minimum and maximum extent of a log, in bytes; powers of two.
const CAPACITY_MIN: u64 = 1024;
const CAPACITY_MAX: u64 = 1 << 30;
/// Low bits of a root word: log2 of the capacity. They are free because an extent is line-aligned.
const ORDER_MASK: u64 = LINE_BYTES - 1;
/// Position of the check in an empty root word, and a bit that is always set in it.
const ROOT_CHECK_SHIFT: u32 = 8;
const ROOT_EMPTY_FLAG: u64 = 1 << 6;
/// A stamp consists of the header's sequence number, the log's number and a count. These are the
/// bits of the last two together, and of the count.
const STAMP_BITS: u32 = 36;
const COUNT_BITS: u32 = STAMP_BITS - LOG_COUNT.ilog2();

/// The new content of a batch's word or pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Eight bytes, at an 8-aligned offset.
    U64(u64),
    /// Sixteen bytes, first word first, at a 16-aligned offset.
    U128(u64, u64),
}

impl Word {
    /// Returns the bytes to store.
    pub fn bytes(self) -> usize {
        match self {
            Self::U64(_) => 8,
            Self::U128(..) => 16,
        }
    }
}

/// The redo logs of one engine on one pool. See the module.
pub struct BatchLogs {
    roots: NvPtr,
    kind: ExtentKind,
    logs: [Padded; LOG_COUNT],
    damage: Option<String>,
}

#[derive(Default)]
#[repr(align(128))]
struct Padded(Mutex<Log>);

/// The volatile state of a log.
#[derive(Default)]
struct Log {
    number: usize,
    /// The log's extent; null if it has none yet.
    at: NvPtr,
    capacity: u64,
    /// Head of the next record.
    head: u64,
    /// The last stamp used.
    stamp: u64,
    /// The root word or a record is damaged: the log is not used.
    is_damaged: bool,
    /// Buffer for the record being encoded.
    bytes: Vec<u8>,
}

/// The right to write one batch: exclusive use of a log until commit or drop.
#[must_use = "a batch is written only by its commit"]
pub struct BatchTurn<'a> {
    log: MutexGuard<'a, Log>,
    stores: usize,
}

impl BatchLogs {
    /// Bytes of the root words: eight aligned words.
    pub const ROOT_BYTES: u64 = LOG_COUNT as u64 * 8;
    /// Maximum stores of one batch.
    pub const STORES_MAX: usize = 1 << 20;

    /// Stores root words that name no log yet; they are durable after the caller's fence. Call it
    /// once, while the store is created.
    pub fn format(pool: &Pool, roots: NvPtr) {
        for number in 0..LOG_COUNT {
            pool.publish_u64(roots.add(number as u64 * 8), empty_root(pool, roots, number));
        }
        pool.flush(roots, Self::ROOT_BYTES as usize);
    }

    /// Reads the logs, replays armed batches and disarms them (see the module). Call it before any
    /// request is served and before any repair. `roots` is a 64-aligned range of
    /// [`Self::ROOT_BYTES`] bytes in the engine's root area. `settled` is
    /// [`OpenReport::settled`](crate::OpenReport::settled). A damaged log is left untouched; see
    /// [`Self::damage`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] if `roots` is not such a range; [`Error::Poisoned`] if a sync failed.
    pub fn open(pool: &Pool, roots: NvPtr, kind: ExtentKind, settled: bool) -> Result<Self> {
        if !pool.contains(roots, Self::ROOT_BYTES as usize) || !roots.raw().is_multiple_of(LINE_BYTES) {
            return Err(Error::corrupt(
                format!("batch logs at {roots:?}"),
                "the root words cannot be at this position",
            ));
        }
        let settled = settled || pool.has_fault(planted::BATCH_LOG_NOT_SETTLED);
        let first_stamp = pool.control().header.sequence << STAMP_BITS;
        let mut this = Self { roots, kind, logs: Default::default(), damage: None };
        if !settled {
            pool.flush(roots, Self::ROOT_BYTES as usize);
        }
        let (mut armed, mut extents) = (Vec::new(), Vec::new());
        for (number, log) in this.logs.iter_mut().enumerate() {
            let log = log.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            (log.number, log.stamp) = (number, first_stamp | (number as u64) << COUNT_BITS);
            let found = log.load_extent(pool, roots, kind).and_then(|()| log.check_sole_owner(&mut extents));
            let found = found.and_then(|()| log.find_armed(pool, settled));
            match found {
                Ok(found) => armed.extend(found),
                Err(error) => {
                    log.is_damaged = true;
                    this.damage.get_or_insert_with(|| {
                        format!(
                            "{error}, so a batch may be partly applied: export the store, and import the export into \
                             a new store"
                        )
                    });
                }
            }
        }
        if !settled {
            pool.fence();
        }
        redo(pool, armed)?;
        Ok(this)
    }

    /// Returns the damage that the open found in the logs. The engine calls [`Pool::poison`] with
    /// it once it may: the store is then readable but not writable.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Marks the logs' extents as in use in the allocator. Call it in the engine's walk after a
    /// crash, before `finish_recovery`. Does not wait for locks.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a root word or an extent word is damaged: space that seems free may be
    /// in use. All other extents are marked anyway.
    pub fn mark(&self, pool: &Pool) -> Result<()> {
        let _guard = pool.epochs().pin();
        let mut outcome = Ok(());
        for number in 0..LOG_COUNT {
            let marked = loop {
                let root = read_root(pool, self.roots, number);
                let extent = root.as_ref().ok().copied().flatten();
                let marked = root.and_then(|root| match root {
                    Some((at, _)) => pool.allocator().mark_extent(pool, at, self.kind).map(|_| ()),
                    None => Ok(()),
                });
                // An extent replaced meanwhile is free already, and its successor was created after
                // the open.
                let is_unchanged = matches!(read_root(pool, self.roots, number), Ok(now) if now == extent);
                if marked.is_ok() || is_unchanged || extent.is_none() {
                    break marked;
                }
            };
            outcome = outcome.and(marked);
        }
        outcome
    }

    /// Acquires a free log with space for this many stores and enlarges it if necessary. Waits if
    /// all logs are in use. The caller holds none of the engine's locks. A turn dropped without a
    /// commit changes nothing.
    ///
    /// # Errors
    /// [`Error::Full`] if the log does not fit, and nothing is changed; [`Error::Corrupt`] for a
    /// damaged log ([`Self::damage`]); [`Error::Poisoned`], [`Error::Closed`], [`Error::Io`].
    pub fn begin(&self, pool: &Pool, stores: usize) -> Result<BatchTurn<'_>> {
        pool.check()?;
        let mut log = self.free_log();
        let needed = record_bytes(stores.min(Self::STORES_MAX + 1));
        if stores > Self::STORES_MAX {
            return Err(Error::Full { needed, capacity: pool.options().capacity });
        }
        if log.is_damaged {
            return Err(Error::corrupt(format!("batch log {}", log.number), "the open found the log damaged"));
        }
        if log.capacity < needed {
            log.enlarge(pool, self.roots, self.kind, needed)?;
        }
        Ok(BatchTurn { log, stores })
    }

    fn free_log(&self) -> MutexGuard<'_, Log> {
        for log in &self.logs {
            match log.0.try_lock() {
                Ok(free) => return free,
                Err(TryLockError::Poisoned(free)) => return free.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        lock(&self.logs[thread_slot() % LOG_COUNT].0)
    }

    /// Adds a finding for each damaged root word and each extent that does not belong to its log
    /// alone. Does not wait for locks.
    pub fn verify(&self, pool: &Pool, report: &mut VerifyReport) {
        let _guard = pool.epochs().pin();
        let mut seen: Vec<NvPtr> = Vec::new();
        for number in 0..LOG_COUNT {
            let (at, capacity) = match read_root(pool, self.roots, number) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(error) => {
                    report.find(format!("batch log {number}"), error.to_string());
                    continue;
                }
            };
            let is_held = pool.allocator().holds_extent(pool, at, capacity, self.kind);
            let now = read_root(pool, self.roots, number);
            // An extent replaced meanwhile may be free already.
            if !is_held && matches!(now, Ok(Some(now)) if now == (at, capacity)) {
                report.find(format!("batch log {number}"), format!("the extent table lacks the log's extent {at:?}"));
            }
            if seen.contains(&at) {
                report.find(
                    format!("batch log {number}"),
                    format!("the log's extent {at:?} also belongs to another log"),
                );
            }
            seen.push(at);
        }
    }

    /// Returns the DRAM of the logs, in bytes. Excludes the buffer of a log that is in use.
    pub fn dram_bytes(&self) -> u64 {
        let buffers = self.logs.iter().filter_map(|log| Some(log.0.try_lock().ok()?.bytes.capacity()));
        size_of::<Self>() as u64 + buffers.sum::<usize>() as u64
    }

    /// Returns the bytes of the logs' extents whose root words are readable.
    pub fn medium_bytes(&self, pool: &Pool) -> u64 {
        (0..LOG_COUNT)
            .filter_map(|number| read_root(pool, self.roots, number).ok().flatten())
            .map(|(_, bytes)| bytes)
            .sum()
    }
}

/// Returns the root word of a log without an extent. The word is not 0, so that a zeroed word is
/// detected.
fn empty_root(pool: &Pool, roots: NvPtr, number: usize) -> u64 {
    let place = u64::from(pool.position_seed(roots.add(number as u64 * 8)));
    // The low bits encode no capacity.
    (place << ROOT_CHECK_SHIFT | ROOT_EMPTY_FLAG) & !ORDER_MASK
}

/// Returns the extent that a root word names, with its capacity.
///
/// # Errors
/// [`Error::Corrupt`] if the word names no possible extent.
fn read_root(pool: &Pool, roots: NvPtr, number: usize) -> Result<Option<(NvPtr, u64)>> {
    let word = pool.load_u64(roots.add(number as u64 * 8));
    if word == empty_root(pool, roots, number) {
        return Ok(None);
    }
    let at = NvPtr::from_raw(word & !ORDER_MASK);
    let capacity = 1u64 << (word & ORDER_MASK);
    let is_possible = (CAPACITY_MIN..=CAPACITY_MAX).contains(&capacity) && is_engine_range(pool, at, capacity as usize);
    if is_possible {
        return Ok(Some((at, capacity)));
    }
    Err(Error::corrupt(format!("batch log {number}"), format!("the log's root word {word:#x} names no extent")))
}

/// Returns whether a range can hold an engine's words: it is in the root area or among a region's
/// chunks.
fn is_engine_range(pool: &Pool, at: NvPtr, len: usize) -> bool {
    let root = pool.root();
    let offset = at.offset();
    let in_root = at.region() == root.region()
        && offset >= root.offset()
        && offset + len as u64 <= root.offset() + Pool::ROOT_BYTES;
    let in_chunks = || pool.layout(at.region()).is_some_and(|layout| offset >= layout.chunks_offset);
    pool.contains(at, len) && (in_root || in_chunks())
}

impl Log {
    fn head_bytes(&self) -> u64 {
        self.capacity / HEAD_COUNT
    }

    /// Sets the extent that the root word names.
    fn load_extent(&mut self, pool: &Pool, roots: NvPtr, kind: ExtentKind) -> Result<()> {
        let Some((at, capacity)) = read_root(pool, roots, self.number)? else { return Ok(()) };
        if !pool.allocator().holds_extent(pool, at, capacity, kind) {
            let place = format!("batch log {}", self.number);
            return Err(Error::corrupt(place, format!("the extent table lacks the log's extent {at:?}")));
        }
        (self.at, self.capacity) = (at, capacity);
        Ok(())
    }

    /// Refuses an extent that another log uses too, and adds it to `extents`.
    fn check_sole_owner(&self, extents: &mut Vec<NvPtr>) -> Result<()> {
        if self.at.is_null() {
            return Ok(());
        }
        if extents.contains(&self.at) {
            let place = format!("batch log {}", self.number);
            return Err(Error::corrupt(place, format!("the log's extent {:?} also belongs to another log", self.at)));
        }
        extents.push(self.at);
        Ok(())
    }

    /// Returns the armed, whole records. If the open is not settled, flushes them and all stamps.
    fn find_armed(&self, pool: &Pool, settled: bool) -> Result<Vec<ArmedRecord>> {
        let mut armed = Vec::new();
        if self.at.is_null() {
            return Ok(armed);
        }
        for head in 0..HEAD_COUNT {
            let begin = head * self.head_bytes();
            let at = self.at.add(begin);
            let found = record::read(pool, at, self.capacity - begin)?;
            if !settled {
                pool.flush(at, found.as_ref().map_or(8, |found| found.bytes));
            }
            armed.extend(found);
        }
        Ok(armed)
    }

    /// Replaces the extent by one that fits a record of this length.
    ///
    /// Persist order: the extent's word (by the allocator); its stamps, all 0; **fence**; the root
    /// word; flush; **fence**; the old extent is freed. Neither extent holds an armed record
    /// meanwhile.
    #[cold]
    fn enlarge(&mut self, pool: &Pool, roots: NvPtr, kind: ExtentKind, needed: u64) -> Result<()> {
        let capacity = needed.max(CAPACITY_MIN).max(u64::from(pool.options().chunk_bytes)).next_power_of_two();
        let at = pool.allocator().alloc_extent(pool, capacity, kind)?;
        for head in 0..HEAD_COUNT {
            let stamp = at.add(head * capacity / HEAD_COUNT);
            pool.publish_u64(stamp, 0);
            pool.flush(stamp, 8);
        }
        pool.fence();
        pool.check()?;
        let root = roots.add(self.number as u64 * 8);
        if !self.at.is_null() {
            pool.allocator().exclude_extent_from_sweep(self.at);
        }
        pool.publish_u64(root, at.raw() | u64::from(capacity.ilog2()));
        pool.flush(root, 8);
        pool.fence();
        pool.check()?;
        if !self.at.is_null() {
            pool.allocator().free_extent(pool, self.at);
        }
        (self.at, self.capacity, self.head) = (at, capacity, 0);
        Ok(())
    }

    /// Stores a record at the next head and returns its offset; durable after the caller's fence.
    fn store_record(&mut self, pool: &Pool, stores: &[(NvPtr, Word)]) -> NvPtr {
        let heads = record_bytes(stores.len()).div_ceil(self.head_bytes()).next_power_of_two();
        let first = self.head.next_multiple_of(heads) % HEAD_COUNT;
        self.head = (first + heads) % HEAD_COUNT;
        let at = self.at.add(first * self.head_bytes());
        self.stamp += 1;
        record::encode(&mut self.bytes, at, self.stamp, stores);
        assert!(first * self.head_bytes() + self.bytes.len() as u64 <= self.capacity, "the turn has the room");
        pool.store_and_flush(at, &[&self.bytes]);
        pool.allocator().note_written(pool, self.at, self.bytes.len() as u64);
        at
    }
}

/// Poisons the pool if its holder panics with a record armed: these words must not change before
/// the next open.
struct Armed<'a>(&'a Pool);

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(PoisonReason::Panic, "a panic in the middle of a batch");
        }
    }
}

impl BatchTurn<'_> {
    /// Makes all of these stores or none of them, across any crash: fences 2, 3 and 4 of the
    /// module. The caller has fenced the data that the words point to, and holds the locks of
    /// everything here. No offset occurs twice.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if a sync failed. A failure before fence 2 has stored no word. The next
    /// open may find the batch applied or not, so the data it points to must not be changed.
    ///
    /// # Panics
    /// If there are more stores than the turn was acquired for, or an offset is outside the pool or
    /// not aligned.
    pub fn commit(mut self, pool: &Pool, stores: &[(NvPtr, Word)]) -> Result<()> {
        assert!(stores.len() <= self.stores, "more stores than the turn was taken for");
        debug_assert!(stores.iter().all(|(at, word)| is_engine_range(pool, *at, word.bytes())));
        if stores.is_empty() {
            return pool.check();
        }
        let _armed = Armed(pool);
        let record = self.log.store_record(pool, stores);
        pool.fence_checked()?;
        publish(pool, stores);
        pool.fence_checked()?;
        pool.publish_u64(record, 0);
        pool.flush(record, 8);
        pool.fence_checked()
    }
}

/// Stores each word at its offset, then flushes each line once.
fn publish(pool: &Pool, stores: &[(NvPtr, Word)]) {
    for (at, word) in stores {
        match *word {
            Word::U64(word) => pool.publish_u64(*at, word),
            Word::U128(first, second) => {
                let mut now = pool.load_u128(*at);
                while let Err(found) = pool.cas_u128(*at, now, (first, second)) {
                    now = found;
                }
            }
        }
    }
    let mut last = NvPtr::NULL;
    for (at, word) in stores {
        let line = NvPtr::from_raw(at.raw() & !(LINE_BYTES - 1));
        if line != last {
            pool.flush(*at, word.bytes());
            last = line;
        }
    }
}

/// Replays armed records, oldest first, and disarms them.
///
/// # Errors
/// [`Error::Poisoned`] if a sync failed: the records stay armed for the next open.
fn redo(pool: &Pool, mut armed: Vec<ArmedRecord>) -> Result<()> {
    pool.check()?;
    if armed.is_empty() {
        return Ok(());
    }
    armed.sort_unstable_by_key(|found| found.stamp);
    for found in armed.iter().filter(|_| !pool.has_fault(planted::BATCH_REDO_SKIPPED)) {
        publish(pool, &found.stores);
    }
    pool.fence();
    // Only durable stores may be disarmed.
    pool.check()?;
    for found in &armed {
        pool.publish_u64(found.at, 0);
        pool.flush(found.at, 8);
    }
    pool.fence();
    pool.check()
}
