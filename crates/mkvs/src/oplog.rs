//! A device's operation log: the newest operations of its group's sequence, in a store of its own, in a ring of slots.
//!
//! Persist order: an operation is durable in the log before the device's store has it, and is answered for when both have it. `applied` in the device's record
//! trails; after a crash all behind it is done again, in order. That ends where it ended before, since no operation asks what was there.
//!
//! Invariants
//! 1. The log holds a run of sequences without holes. Nothing leaves it that is behind the durable `applied`: that would be done by nobody again.
//! 2. Where there is no room for an operation, an entry of no value stands in its place, stored at the latest before the next one: a run has no holes, and says what the device lacks.
//! 3. One thread at a time appends, the one that is the device's processor; any may read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use lodestore_contract::{Error, Result, Store, Visit};

use crate::apply::is_refusal;
use crate::layout::{DEVICE_KEY, DeviceRecord};
use crate::lock;
use crate::operation::{Mutation, Operation};
use crate::planted::{Fault, Planted};

/// Operations behind which `applied` is stored at least.
const STEP: u64 = 4096;

/// What is in the log.
struct Run {
    /// Operations behind the last that there was no room for: the log says so, in their places, before it takes another one.
    lacking: Vec<Operation>,
    /// Sequence of the oldest.
    first: u64,
    /// Bytes of each, from the oldest on.
    sizes: VecDeque<u64>,
    bytes: u64,
    record: DeviceRecord,
}

impl Run {
    fn last(&self) -> u64 {
        self.first + self.sizes.len() as u64 - 1
    }
}

/// The log.
pub(crate) struct OpLog {
    store: Arc<dyn Store>,
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
    /// An empty log of a new device.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn create(store: Arc<dyn Store>, slots: u64, bytes_max: u64, record: DeviceRecord) -> Result<Self> {
        store.put(DEVICE_KEY, &record.encode())?;
        let run = Run { lacking: Vec::new(), first: record.applied + 1, sizes: VecDeque::new(), bytes: 0, record };
        Ok(Self { store, slots, bytes_max, run: Mutex::new(run), planted: Planted::default() })
    }

    /// The log that a store holds. Where entries of it are damaged it is empty, and the device partial: nobody knows what it lacks.
    ///
    /// # Errors
    /// The store's; [`Error::Corrupt`], [`Error::Missing`] where the device says nothing of itself.
    pub(crate) fn open(store: Arc<dyn Store>, slots: u64, bytes_max: u64) -> Result<Self> {
        let said = store.get(DEVICE_KEY)?;
        let record =
            DeviceRecord::decode(&said.ok_or_else(|| Error::corrupt("operation log", "it has no device's record"))?)?;
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
        // Values that stand apart count with their own bytes.
        for at in 0..run.sizes.len() {
            if let Some(value) = store.get(&value_key((run.first + at as u64) & (slots - 1)))? {
                run.sizes[at] += value.len() as u64;
                run.bytes += value.len() as u64;
            }
        }
        Ok(Self { store, slots, bytes_max, run: Mutex::new(run), planted: Planted::default() })
    }

    /// The same log with a fault.
    pub(crate) fn planted(self, planted: Planted) -> Self {
        Self { planted, ..self }
    }

    /// The store that it stands in.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Sequences that it holds, from the first to the last; the last is first - 1 where it is empty.
    pub(crate) fn held(&self) -> (u64, u64) {
        let run = lock(&self.run);
        (run.first, run.last())
    }

    /// What the device says of itself, as it was last stored.
    pub(crate) fn record(&self) -> DeviceRecord {
        lock(&self.run).record
    }

    /// Stores what the device says of itself.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn set_record(&self, change: impl FnOnce(&mut DeviceRecord)) -> Result<()> {
        self.store_record(&mut lock(&self.run), change)
    }

    fn store_record(&self, run: &mut Run, change: impl FnOnce(&mut DeviceRecord)) -> Result<()> {
        let mut record = run.record;
        change(&mut record);
        if record != run.record {
            self.store.put(DEVICE_KEY, &record.encode())?;
            run.record = record;
        }
        Ok(())
    }

    /// Adds an operation, durably. All up to `applied` are in the device's store. Where it is refused the log will say that the device lacks it.
    ///
    /// # Errors
    /// The store's; [`Error::Full`] where even an empty log has no room for it.
    pub(crate) fn append(&self, operation: &Operation, applied: u64) -> Result<()> {
        let mut run = lock(&self.run);
        let added = self.add_lacking(&mut run, applied).and_then(|()| self.add(&mut run, operation, applied));
        if added.as_ref().is_err_and(is_refusal) {
            let (epoch, seq, key) = (operation.epoch, operation.seq, operation.key.clone());
            run.lacking.push(Operation { epoch, seq, key, mutation: Mutation::Lacking });
        }
        added
    }

    /// Says, in their places, what there was no room for.
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
        let applied = if self.planted.is(Fault::OpAppliedEarly) { operation.seq } else { applied };
        let is_said = !self.planted.is(Fault::OpEvictedEarly);
        if is_said && applied >= run.record.applied + STEP.min(self.slots / 4) {
            self.store_record(run, |record| record.applied = applied)?;
        }
        while run.sizes.len() as u64 >= self.slots || (run.bytes + bytes > self.bytes_max && !run.sizes.is_empty()) {
            // Where more have to go, the first one goes as well: a run has no holes.
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
            // What it was to take the place of is the oldest: before others go.
            self.store.delete(&entry_key(slot))?;
            if !self.evict(run, applied, None)? {
                return Err(error);
            }
        }
        run.sizes.push_back(bytes);
        run.bytes += bytes;
        Ok(())
    }

    /// Forgets what it has not said yet that the device lacks: another's log will tell it.
    pub(crate) fn forget_lacking(&self) {
        lock(&self.run).lacking.clear();
    }

    /// Puts an operation in the place of an entry that says that the device lacks it, now that it has it; other entries stay.
    ///
    /// # Errors
    /// The store's; where it has no room for it the entry stays.
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

    fn store_entry(&self, slot: u64, entry: &[u8], apart: Option<&[u8]>) -> Result<()> {
        if let Some(value) = apart {
            self.store.put(&value_key(slot), value)?;
        }
        self.store.put(&entry_key(slot), entry)
    }

    /// Lets the oldest go; false where there is none that may. What operation `next` takes the place of stays until then.
    fn evict(&self, run: &mut Run, applied: u64, next: Option<u64>) -> Result<bool> {
        let Some(bytes) = run.sizes.front().copied() else { return Ok(false) };
        if run.first > run.record.applied {
            if run.first > applied {
                return Ok(false);
            }
            if !self.planted.is(Fault::OpEvictedEarly) {
                self.store_record(run, |record| record.applied = applied)?;
            }
        }
        // An empty log does not say of which epoch its last operation was.
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

    /// Removes an entry of so many bytes, but for what the next one takes the place of.
    fn remove(&self, seq: u64, bytes: u64, is_replaced: bool) -> Result<()> {
        let slot = seq & (self.slots - 1);
        // An entry goes before its value: one without is damaged.
        let may_be_apart = bytes >= Operation::APART as u64;
        if !is_replaced || may_be_apart {
            self.store.delete(&entry_key(slot))?;
        }
        if may_be_apart {
            self.store.delete(&value_key(slot))?;
        }
        Ok(())
    }

    /// The operation of this sequence. `None` where the log does not hold it any more.
    ///
    /// # Errors
    /// The store's; [`Error::Corrupt`].
    pub(crate) fn read(&self, seq: u64) -> Result<Option<Operation>> {
        let slot = seq & (self.slots - 1);
        let Some(entry) = self.store.get(&entry_key(slot))? else { return Ok(None) };
        if Operation::seq_of(&entry)? != seq {
            return Ok(None);
        }
        let mut is_apart = false;
        let operation = Operation::decode(&entry, || {
            is_apart = true;
            self.store.get(&value_key(slot))
        });
        // The value may be that of who took the slot meanwhile: the entry goes before its value.
        if is_apart && self.store.get(&entry_key(slot))?.as_ref() != Some(&entry) {
            return Ok(None);
        }
        operation.map(Some)
    }

    /// Forgets all behind `last`, newest first, so that what is left is a run whatever stops it.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn truncate(&self, last: u64) -> Result<()> {
        let mut run = lock(&self.run);
        run.lacking.clear();
        self.store_record(&mut run, |record| record.applied = record.applied.min(last))?;
        while run.last() > last {
            let Some(bytes) = run.sizes.back().copied() else { break };
            self.remove(run.last(), bytes, false)?;
            run.sizes.pop_back();
            run.bytes -= bytes;
        }
        Ok(())
    }

    /// Forgets everything. Of a partial device, which has its log begun anew before it is used.
    ///
    /// # Errors
    /// The store's.
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
            // A walk does not say what is damaged: then each slot is emptied.
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

    /// An empty log goes on behind `applied`, whose epoch this is.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn begin(&self, applied: u64, epoch: u64) -> Result<()> {
        let mut run = lock(&self.run);
        debug_assert!(run.sizes.is_empty(), "it was cleared");
        self.store_record(&mut run, |record| (record.applied, record.epoch) = (applied, epoch))?;
        run.first = applied + 1;
        Ok(())
    }
}
