//! The state that every store of an in-place engine has, independent of its index.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use lodestore_contract::copy::Changes;
use lodestore_contract::scrub::Scrub;
use lodestore_contract::{EngineCounters, Error, Event, Expiry, FoundBy, Result, Stats};
use lodestore_media::{BatchLogs, Guard, NvPtr, OpenState, Pool, Quiet};

use crate::careful::CarefulMode;
use crate::record::{Head, OwnField, Record, record_len};
use crate::recovery_progress::Recovery;

/// Results of the hot paths, which fit two registers. A large result is copied in memory on return.
/// Such a copy cannot begin before the stores after the last fence are done: measured, some 150 ns
/// of each put.
pub type BoxedResult<T> = std::result::Result<T, Box<Error>>;

/// Shared state of an open store.
pub struct Base {
    /// The store's pool.
    pub pool: Arc<Pool>,
    /// Redo logs of batches.
    pub logs: BatchLogs,
    /// Progress of recovery.
    pub recovery: Recovery,
    /// Running batches, some of whose entries may not be stored yet.
    pub batches: AtomicU64,
    /// Some record may have an expiry: sweeps have work.
    pub expiring: AtomicBool,
    /// The store serves operations: false after a close, and in a forked process.
    pub open: OpenState,
    /// A killed process may have stored a word of the index without flushing it. While set, all
    /// data that is read is made durable before it is returned or used. The walk of the recovery
    /// clears it.
    pub unsettled: AtomicBool,
    /// Careful mode, and the first damage to the index.
    pub careful_mode: CarefulMode,
    /// Maximum DRAM for the store's structures, in bytes; 0: no limit.
    pub dram_budget: u64,
    /// The background scrub.
    pub scrub: Scrub,
    /// Keys that were written since a copy of the store began.
    pub changes: Changes,
}

/// A running operation. While it exists, no data that it accesses is reused, `close` waits, and
/// events are queued.
///
/// Must be declared before any lock is acquired: it is then dropped after them.
#[must_use = "nothing is protected once it is dropped"]
pub struct Operation<'a> {
    // Dropped in this order: an event sink must not hold up the epochs.
    _guard: Guard<'a>,
    _quiet: Quiet,
}

/// A record that is stored, but not yet fenced or named by the index.
pub struct Stored {
    /// Position of the record.
    pub at: NvPtr,
    /// Bytes of the record.
    pub len: usize,
    /// The record has an expiry.
    pub expires: bool,
    /// The record's checksum, for the entry that will name the record ([`Record::binding`]).
    pub binding: u32,
}

/// Counts a batch while it lives.
pub struct BatchInProgress<'a>(&'a AtomicU64);

impl<'a> BatchInProgress<'a> {
    /// Counts a new batch.
    pub fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for BatchInProgress<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Base {
    /// Creates the state of a store on `pool` whose open began at `opened`; the others as the
    /// fields.
    pub fn new(
        pool: Arc<Pool>,
        logs: BatchLogs,
        opened: Instant,
        unsettled: bool,
        careful_mode: CarefulMode,
        dram_budget: u64,
        scrub: Scrub,
    ) -> Self {
        let recovery = Recovery::new(opened);
        recovery.count_corrupt_places(pool.damage_at_open());
        Self {
            open: pool.new_state(),
            pool,
            logs,
            recovery,
            batches: AtomicU64::new(0),
            expiring: AtomicBool::new(false),
            unsettled: AtomicBool::new(unsettled),
            careful_mode,
            dram_budget,
            scrub,
            changes: Changes::default(),
        }
    }

    /// Returns the statistics of the store. The DRAM pair is the total, and the part that an empty
    /// store uses.
    pub fn stats(
        &self,
        engine: &'static str,
        keys: u64,
        (dram_bytes, dram_fixed_bytes): (u64, u64),
        engine_counters: EngineCounters,
    ) -> Stats {
        let pool = &self.pool;
        Stats {
            engine,
            medium: pool.medium_name(),
            durability: pool.durability(),
            keys,
            dram_bytes,
            dram_fixed_bytes,
            dram_budget_bytes: self.dram_budget,
            space: pool.space(),
            flushes: pool.flushes(),
            fences: pool.fences(),
            bytes_written: pool.bytes_written(),
            wear: pool.allocator().wear(pool),
            recovery: self.recovery.state(),
            engine_counters,
        }
    }

    /// Begins an operation.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::ForeignProcess`].
    #[inline]
    pub fn enter(&self) -> Result<Operation<'_>> {
        let operation = Operation { _guard: self.pool.epochs().pin(), _quiet: Quiet::begin() };
        if self.open.is_open() { Ok(operation) } else { Err(self.open.refusal()) }
    }

    /// Begins a write.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::ForeignProcess`], [`Error::Poisoned`].
    #[inline]
    pub fn enter_write(&self) -> Result<Operation<'_>> {
        let operation = self.enter()?;
        self.pool.check()?;
        Ok(operation)
    }

    /// Returns whether data may be read that is not durable although no writer is active.
    #[inline]
    pub fn is_unsettled(&self) -> bool {
        self.unsettled.load(Ordering::Acquire)
    }

    /// Returns whether a miss has to be checked.
    #[inline]
    pub fn is_careful(&self) -> bool {
        self.careful_mode.is_on()
    }

    /// Reports an event to the owner's event sink, after the thread's current operation.
    pub fn report(&self, event: &Event) {
        self.pool.report_event(event);
    }

    /// Reports the error to the owner if it is corruption.
    #[cold]
    pub fn report_corruption(&self, error: &Error) {
        if let Error::Corrupt { place, what, .. } = error {
            self.report(&Event::Corruption { found_by: FoundBy::Read, place: place.clone(), what: what.clone() });
        }
    }

    /// Records damage to the index that the open or the walk found, and reports it: as an event,
    /// and in the number of damaged places.
    #[cold]
    pub fn count_damage(&self, error: &Error) {
        self.report_corruption(error);
        self.recovery.count_corrupt();
        self.careful_mode.note_damage(error);
    }

    /// Stores a record out of place. The record is durable after the next fence.
    ///
    /// # Errors
    /// [`Error::Full`] and other errors of growing the pool.
    #[inline(always)]
    pub fn store_record<O: OwnField>(
        &self,
        own: O,
        key: &[u8],
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<Stored> {
        let expires = expiry.is_some();
        let len = record_len::<O>(key.len(), value.len(), expires);
        let at = self.pool.allocator().alloc(&self.pool, len)?;
        assert!(at.tag() == 0 && !at.is_null(), "the allocator hands out aligned places");
        let head = Head::new(&self.pool, at, own, key, value, expiry);
        self.pool.store_and_flush(at, &[head.as_bytes(), key, value]);
        Ok(Stored { at, len, expires, binding: head.binding() })
    }

    /// Frees a record that will not be published.
    #[cold]
    pub fn free_stored(&self, stored: Option<Stored>) {
        if let Some(stored) = stored {
            self.pool.allocator().free(&self.pool, stored.at, stored.len);
        }
    }

    /// Frees a record that will not be published, and returns the error.
    #[cold]
    pub fn discard_stored(&self, stored: Option<Stored>, error: Error) -> Box<Error> {
        self.report_corruption(&error);
        self.free_stored(stored);
        Box::new(error)
    }

    /// Ends the recovery's walk over the whole index, which found records at `damaged` damaged.
    pub fn end_walk<O: OwnField>(&self, damaged: impl IntoIterator<Item = NvPtr>) {
        // The thread that walked a part flushed and fenced it. If a sync failed, readers continue
        // to make the data that they return durable.
        if self.pool.check().is_ok() {
            self.unsettled.store(false, Ordering::Release);
        }
        self.careful_mode.end();
        for record in damaged {
            self.recovery.count_left_out(1);
            self.keep_damaged::<O>(record);
        }
    }

    /// Frees the space that the walk did not mark. If an extent of the index could not be marked,
    /// old space is not freed: the store grows instead.
    pub fn free_unmarked(&self) {
        if self.pool.allocator().is_recovering() && !self.recovery.is_unsure() {
            self.pool.allocator().finish_recovery(&self.pool);
        }
    }

    /// Marks the space of a damaged record, to prevent its reuse under the entry that names it.
    /// Intact records are marked before: a wrong position cannot take their space.
    fn keep_damaged<O: OwnField>(&self, at: NvPtr) {
        let (pool, header) = (&self.pool, Record::<O>::HEADER);
        if pool.allocator().is_recovering() {
            let len = Record::<O>::read(pool, at).map_or(header, |record| record.len());
            if pool.allocator().mark(pool, at.untagged(), len).is_err() {
                // The record's length may be damaged.
                let _ = pool.allocator().mark(pool, at.untagged(), header);
            }
        }
    }

    /// The fence between a record and the entry that names it.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if this fence or an earlier one failed: the record must not be
    /// published.
    #[inline]
    pub fn fence_before_publish(&self) -> BoxedResult<()> {
        Ok(self.pool.fence_checked()?)
    }

    /// Flushes `len` bytes of the index and fences.
    #[inline]
    #[track_caller]
    pub fn persist(&self, at: NvPtr, len: usize) {
        self.pool.flush(at, len);
        self.pool.fence();
    }
}

/// Returns a seed that cannot be guessed: clients cannot choose colliding keys.
pub fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
