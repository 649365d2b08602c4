//! A device's operation log: the newest operations of its group's sequence, in a separate store, as
//! a ring of slots.
//!
//! Persist order: an operation is durable in the log before it is in the device's store. The device
//! votes when both have it. `applied` in the device's record lags. After a crash all operations
//! after `applied` are replayed in order. The result is the same, because operations are
//! unconditional.
//!
//! Invariants
//! 1. The log holds a run of sequence numbers without holes. No operation after the durable
//!    `applied` leaves the log: no replay could apply it.
//! 2. An operation that does not fit is replaced by an entry without value (`Lacking`), stored at
//!    the latest before the next operation. A run therefore has no holes and shows what the device
//!    lacks.
//! 3. Only the device's processor appends; any thread may read.
//! 4. The mark of the device's store (`Store::set_mark`) is at least the durable `applied`, and the
//!    log of a whole device has every operation up to the mark. An older copy of the store has an
//!    earlier mark, and an older copy of the log ends before the mark. The store has every
//!    operation up to its mark, so a replay begins after the mark.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use lodestore_contract::{Error, Result, Store, Visit};

use crate::apply::is_refusal;
use crate::layout::{DEVICE_KEY, DeviceRecord};
use crate::lock;
use crate::operation::{Mutation, Operation};
use crate::places::Part;
use crate::planted::{self, Planted};

/// The durable `applied` is updated at least every this many operations.
const APPLIED_INTERVAL_OPS: u64 = 4096;

/// The contents of the log.
struct Run {
    /// Operations after the last entry that did not fit. The log stores entries for them before it
    /// accepts another operation.
    lacking: Vec<Operation>,
    /// Sequence number of the oldest entry.
    first: u64,
    /// Bytes of each entry, from the oldest on.
    sizes: VecDeque<u64>,
    bytes: u64,
    record: DeviceRecord,
}

impl Run {
    fn last(&self) -> u64 {
        self.first + self.sizes.len() as u64 - 1
    }
}

/// Maximum operations (a power of two) and bytes of a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogLimits {
    pub(crate) ops: u64,
    pub(crate) bytes: u64,
}

/// The log.
pub(crate) struct OpLog {
    store: Arc<dyn Store>,
    /// The device's store of pairs.
    pairs: Arc<dyn Store>,
    slots: u64,
    bytes_max: u64,
    run: Mutex<Run>,
    planted: Planted,
}

fn entry_key(slot: u64) -> [u8; 9] {
    key_of(b'o', slot)
}

fn value_key(slot: u64) -> [u8; 9] {
    key_of(b'v', slot)
}

fn key_of(kind: u8, slot: u64) -> [u8; 9] {
    let mut key = [kind; 9];
    key[1..].copy_from_slice(&slot.to_le_bytes());
    key
}

impl OpLog {
    /// Creates the empty log of a new device in `store`. `pairs` is the device's store.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn create(
        store: Arc<dyn Store>,
        pairs: Arc<dyn Store>,
        limits: LogLimits,
        record: DeviceRecord,
    ) -> Result<Self> {
        store.put(DEVICE_KEY, &record.encode())?;
        let run = Run { lacking: Vec::new(), first: record.applied + 1, sizes: VecDeque::new(), bytes: 0, record };
        Ok(Self::of_run(store, pairs, limits, run))
    }

    fn of_run(store: Arc<dyn Store>, pairs: Arc<dyn Store>, limits: LogLimits, run: Run) -> Self {
        let LogLimits { ops: slots, bytes: bytes_max } = limits;
        Self { store, pairs, slots, bytes_max, run: Mutex::new(run), planted: Planted::default() }
    }

    /// Opens the log in `store`. `pairs` is the device's store. If entries are damaged or
    /// missing, the log is empty and the device partial: the missing operations are unknown.
    ///
    /// # Errors
    /// Errors of the store; [`Error::Corrupt`] if the store has no device record or a damaged one.
    pub(crate) fn open(store: Arc<dyn Store>, pairs: Arc<dyn Store>, limits: LogLimits) -> Result<Self> {
        let stored = store.get(DEVICE_KEY)?;
        let missing = || Error::corrupt("operation log", "the operation log has no record of its device");
        let record = DeviceRecord::decode(&stored.ok_or_else(missing)?)?;
        let mut found = Vec::new();
        let mut is_damaged = false;
        let walked = store.for_each(&mut |key, value| {
            if key.first() == Some(&b'o') && key.len() == 9 {
                match Operation::seq_of(value) {
                    Ok(seq) => found.push((seq, value.len() as u64)),
                    Err(_) => is_damaged = true,
                }
            }
            Visit::More
        });
        match walked {
            Ok(_) => {}
            Err(Error::Corrupt { .. }) => is_damaged = true,
            Err(other) => return Err(other),
        }
        found.sort_unstable();
        let holes = found.windows(2).any(|pair| pair[0].0 + 1 != pair[1].0);
        let first = found.first().map_or(record.applied + 1, |(seq, _)| *seq);
        let lacks = first > record.applied + 1 || found.last().is_some_and(|(seq, _)| *seq < record.applied);
        let (slots_run, mut record) = (found, record);
        let mut run = if is_damaged || holes || lacks {
            record.is_partial = true;
            Run { lacking: Vec::new(), first: record.applied + 1, sizes: VecDeque::new(), bytes: 0, record }
        } else {
            let sizes: VecDeque<u64> = slots_run.iter().map(|(_, size)| *size).collect();
            Run { lacking: Vec::new(), first, bytes: sizes.iter().sum(), sizes, record }
        };
        // Separated values add their own bytes.
        for at in 0..run.sizes.len() {
            if let Some(value) = store.get(&value_key((run.first + at as u64) & (limits.ops - 1)))? {
                run.sizes[at] += value.len() as u64;
                run.bytes += value.len() as u64;
            }
        }
        Ok(Self::of_run(store, pairs, limits, run))
    }

    /// Returns the log with a planted fault.
    pub(crate) fn planted(self, planted: Planted) -> Self {
        Self { planted, ..self }
    }

    /// Returns the store of the log.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the first and the last sequence number held; the last is first - 1 in an empty log.
    pub(crate) fn bounds(&self) -> (u64, u64) {
        let run = lock(&self.run);
        (run.first, run.last())
    }

    /// Returns the device's record as last stored.
    pub(crate) fn record(&self) -> DeviceRecord {
        lock(&self.run).record
    }

    /// Changes the device's record, durably.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn set_record(&self, change: impl FnOnce(&mut DeviceRecord)) -> Result<()> {
        self.store_record(&mut lock(&self.run), change)
    }

    fn store_record(&self, run: &mut Run, change: impl FnOnce(&mut DeviceRecord)) -> Result<()> {
        let mut record = run.record;
        change(&mut record);
        if record == run.record {
            return Ok(());
        }
        let marks = self.mark().filter(|_| !self.planted.has_fault(planted::APPLIED_NOT_MARKED));
        if marks.is_some_and(|mark| mark < record.applied) {
            self.pairs.set_mark(record.applied)?;
        }
        self.store.put(DEVICE_KEY, &record.encode())?;
        run.record = record;
        Ok(())
    }

    /// Lowers the mark of the device's store to `last`, if it is later. The device is partial.
    fn lower_mark(&self, last: u64) -> Result<()> {
        if self.mark().is_some_and(|mark| mark > last) { self.pairs.set_mark(last) } else { Ok(()) }
    }

    /// Returns the mark of the device's store: the store has every operation up to it. `None` if
    /// the store's engine has no marks.
    pub(crate) fn mark(&self) -> Option<u64> {
        self.pairs.mark()
    }

    /// Returns which of the device's two stores is an older copy, if any (invariant 4).
    pub(crate) fn find_older(&self) -> Option<Part> {
        let run = lock(&self.run);
        match self.mark()? {
            // A log that lost entries, or is being replaced, says so itself.
            _ if run.record.is_partial => None,
            mark if mark < run.record.applied => Some(Part::Device),
            mark if mark > run.last() => Some(Part::Log),
            _ => None,
        }
    }

    /// Appends an operation, durably. All operations up to `applied` are in the device's store. If
    /// the append is refused, the log will record that the device lacks the operation.
    ///
    /// # Errors
    /// Errors of the store; [`Error::Full`] if the operation does not even fit an empty log.
    pub(crate) fn append(&self, operation: &Operation, applied: u64) -> Result<()> {
        let mut run = lock(&self.run);
        let added = self.add_lacking(&mut run, applied).and_then(|()| self.add(&mut run, operation, applied));
        if added.as_ref().is_err_and(is_refusal) {
            let (epoch, seq, key) = (operation.epoch, operation.seq, operation.key.clone());
            run.lacking.push(Operation { epoch, seq, key, mutation: Mutation::Lacking });
        }
        added
    }

    /// Stores the pending `Lacking` entries.
    fn add_lacking(&self, run: &mut Run, applied: u64) -> Result<()> {
        while let Some(lacking) = run.lacking.first().cloned() {
            self.add(run, &lacking, applied)?;
            run.lacking.remove(0);
        }
        Ok(())
    }

    fn add(&self, run: &mut Run, operation: &Operation, applied: u64) -> Result<()> {
        debug_assert!(operation.seq == run.last() + 1 && applied < operation.seq, "a run without holes");
        let (entry, value) = operation.encode();
        let bytes = (entry.len() + value.map_or(0, <[u8]>::len)) as u64;
        let applied = if self.planted.has_fault(planted::OP_APPLIED_EARLY) { operation.seq } else { applied };
        let is_applied_recorded = !self.planted.has_fault(planted::OP_EVICTED_EARLY);
        if is_applied_recorded && applied >= run.record.applied + APPLIED_INTERVAL_OPS.min(self.slots / 4) {
            self.store_record(run, |record| record.applied = applied)?;
        }
        while run.sizes.len() as u64 >= self.slots || (run.bytes + bytes > self.bytes_max && !run.sizes.is_empty()) {
            // If several entries must leave, the oldest is removed now too: a run has no holes.
            let left = run.bytes - run.sizes.front().copied().unwrap_or(0);
            let is_last = left + bytes <= self.bytes_max;
            if !self.evict(run, applied, Some(operation.seq).filter(|_| is_last))? {
                break;
            }
        }
        if run.sizes.len() as u64 >= self.slots {
            return Err(Error::Full { needed: bytes, capacity: self.bytes_max });
        }
        let slot = operation.seq & (self.slots - 1);
        while let Err(error) = self.store_entry(slot, &entry, value) {
            if !matches!(error, Error::Full { .. }) {
                return Err(error);
            }
            // The entry in this slot is the oldest: it is removed before others.
            self.store.delete(&entry_key(slot))?;
            if !self.evict(run, applied, None)? {
                return Err(error);
            }
        }
        run.sizes.push_back(bytes);
        run.bytes += bytes;
        Ok(())
    }

    /// Drops the pending `Lacking` entries: the operations will come from another log.
    pub(crate) fn forget_lacking(&self) {
        lock(&self.run).lacking.clear();
    }

    /// Replaces a `Lacking` entry by its operation, after the device has applied it. Other entries
    /// stay.
    ///
    /// # Errors
    /// Errors of the store. If the operation does not fit, the entry stays.
    pub(crate) fn fill(&self, operation: &Operation) -> Result<()> {
        if self.read(operation.seq)?.is_none_or(|entry| entry.mutation != Mutation::Lacking) {
            return Ok(());
        }
        let mut run = lock(&self.run);
        let (entry, value) = operation.encode();
        match self.store_entry(operation.seq & (self.slots - 1), &entry, value) {
            Ok(()) => {
                let bytes = (entry.len() + value.map_or(0, <[u8]>::len)) as u64;
                let at = (operation.seq - run.first) as usize;
                run.bytes = run.bytes + bytes - run.sizes[at];
                run.sizes[at] = bytes;
                Ok(())
            }
            Err(error) if is_refusal(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn store_entry(&self, slot: u64, entry: &[u8], value: Option<&[u8]>) -> Result<()> {
        if let Some(value) = value {
            self.store.put(&value_key(slot), value)?;
        }
        self.store.put(&entry_key(slot), entry)
    }

    /// Removes the oldest entry. Returns false if no entry may leave. The entry in the slot of
    /// operation `next` is overwritten later instead of deleted.
    fn evict(&self, run: &mut Run, applied: u64, next: Option<u64>) -> Result<bool> {
        let Some(bytes) = run.sizes.front().copied() else { return Ok(false) };
        if run.first > run.record.applied {
            if run.first > applied {
                return Ok(false);
            }
            if !self.planted.has_fault(planted::OP_EVICTED_EARLY) {
                self.store_record(run, |record| record.applied = applied)?;
            }
        }
        // An empty log does not contain the epoch of its last operation.
        if run.sizes.len() == 1
            && let Some(entry) = self.store.get(&entry_key(run.first & (self.slots - 1)))?
        {
            let epoch = Operation::epoch_of(&entry)?;
            self.store_record(run, |record| record.epoch = epoch)?;
        }
        self.remove(run.first, bytes, Some(run.first + self.slots) == next)?;
        run.sizes.pop_front();
        (run.first, run.bytes) = (run.first + 1, run.bytes - bytes);
        Ok(true)
    }

    /// Removes an entry of `bytes` bytes, unless the next entry overwrites it.
    fn remove(&self, seq: u64, bytes: u64, is_replaced: bool) -> Result<()> {
        let slot = seq & (self.slots - 1);
        // An entry is removed before its value: an entry without its value is damaged.
        let may_be_separate = bytes >= Operation::SEPARATE_VALUE_BYTES_MIN as u64;
        if !is_replaced || may_be_separate {
            self.store.delete(&entry_key(slot))?;
        }
        if may_be_separate {
            self.store.delete(&value_key(slot))?;
        }
        Ok(())
    }

    /// Returns the operation with this sequence number, or `None` if the log no longer holds it.
    ///
    /// # Errors
    /// Errors of the store; [`Error::Corrupt`].
    pub(crate) fn read(&self, seq: u64) -> Result<Option<Operation>> {
        let slot = seq & (self.slots - 1);
        let Some(entry) = self.store.get(&entry_key(slot))? else { return Ok(None) };
        if Operation::seq_of(&entry)? != seq {
            return Ok(None);
        }
        let mut is_separate = false;
        let operation = Operation::decode(&entry, || {
            is_separate = true;
            self.store.get(&value_key(slot))
        });
        // The value may belong to a later operation in the same slot: an entry is removed before
        // its value.
        if is_separate && self.store.get(&entry_key(slot))?.as_ref() != Some(&entry) {
            return Ok(None);
        }
        operation.map(Some)
    }

    /// Removes all operations after `last`, newest first: after an interruption the rest is still a
    /// run.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn truncate(&self, last: u64) -> Result<()> {
        let mut run = lock(&self.run);
        run.lacking.clear();
        self.store_record(&mut run, |record| record.applied = record.applied.min(last))?;
        self.lower_mark(last)?;
        while run.last() > last {
            let Some(bytes) = run.sizes.back().copied() else { break };
            self.remove(run.last(), bytes, false)?;
            run.sizes.pop_back();
            run.bytes -= bytes;
        }
        Ok(())
    }

    /// Removes all operations. The device is partial, and its log is started again before it is
    /// used.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn clear(&self) -> Result<()> {
        let mut run = lock(&self.run);
        debug_assert!(run.record.is_partial, "what it lacks is not in its log any more");
        let mut keys = Vec::new();
        let walked = self.store.for_each(&mut |key, _| {
            if key != DEVICE_KEY {
                keys.push(key.to_vec());
            }
            Visit::More
        });
        match walked {
            Ok(_) => {}
            // A walk does not name damaged keys: every slot is deleted.
            Err(Error::Corrupt { .. }) => {
                keys = (0..self.slots).flat_map(|slot| [entry_key(slot).to_vec(), value_key(slot).to_vec()]).collect();
            }
            Err(other) => return Err(other),
        }
        keys.sort_unstable();
        for key in keys {
            self.store.delete(&key)?;
        }
        (run.first, run.bytes) = (run.first + run.sizes.len() as u64, 0);
        run.sizes.clear();
        run.lacking.clear();
        Ok(())
    }

    /// Starts an empty log after operation `applied`, which belongs to `epoch`.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) fn begin(&self, applied: u64, epoch: u64) -> Result<()> {
        let mut run = lock(&self.run);
        debug_assert!(run.sizes.is_empty(), "it was cleared");
        self.store_record(&mut run, |record| (record.applied, record.epoch) = (applied, epoch))?;
        run.first = applied + 1;
        self.lower_mark(applied)
    }
}
