//! Batches: all of their writes or none.
//!
//! Persist order, under the stripes of all keys of the batch and of its conditions, acquired in
//! ascending order. If a condition is not met, the records are freed and nothing else is done.
//! * The records of all puts, and the reaches that new slots need; **fence 1**.
//! * As in the log of `media`: the log record with every slot's new word, flush, **fence 2**, which
//!   is the commit. The slots, flush, **fence 3**. The log record's end, flush, **fence 4**.
//!
//! Then the slots of deleted keys become free; the next fence of any thread makes that durable. The
//! stripes are freed, and replaced records are retired.
//!
//! A slot for a new key is first reserved, by a word that names nothing: otherwise a writer of
//! another stripe could claim it. **The slot of a deleted key also stays reserved until the log
//! record has ended**: the log stores reserved, not free. If the slot were free before, a writer of
//! another stripe could claim it. After a crash before fence 4 the next open would redo the batch
//! over that writer's key. Before fence 2 only reservations are changed. A refused batch frees them
//! and has changed nothing; recovery frees reservations that a crash leaves.
//!
//! A reserved slot has the tag of its key. The check of its line (`line.rs`) therefore counts it as
//! the key's slot, and does not change when the batch publishes. Reservations are flushed before
//! fence 1: a redo then finds lines whose checks count them.
//!
//! Readers see a batch as one step. From before the first slot is published until the last stripe
//! is free, `Base::batches` is not 0. A reader of a key whose stripe is held acquires the stripe
//! then and reads again.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use lodestore_contract::limits::{check_batch, check_conditions};
use lodestore_contract::{Batch, BatchOp, Commit, Condition, Error, Expiry, Result};
use lodestore_inplace::{Counted, Engine, Quick, Stored};
use lodestore_media::{Mutant, NvPtr, Word};

use crate::hash::Hashed;
use crate::inner::Inner;
use crate::layout::LINE_SLOTS;
use crate::line::{count_slot, free_slot};
use crate::slot::{SLOT_BYTES, Slot};
use crate::stripe::Held;
use crate::table::{Hit, Table};
use crate::write::is_live;

/// A value with its expiry, if the key is put; else it is deleted.
type Put<'b> = Option<(&'b [u8], Option<Expiry>)>;

/// A condition, and the hash of its key.
type Required<'c> = (Hashed, &'c Condition);

/// The final operation of a batch on a key.
struct Final<'b> {
    key: &'b [u8],
    hashed: Hashed,
    put: Put<'b>,
}

/// The stores of a batch, and the work after them.
#[derive(Default)]
struct Plan {
    stores: Vec<(NvPtr, Word)>,
    /// Slots reserved for new keys.
    reserved: Vec<ReservedSlot>,
    /// Slots of deleted keys, reserved until the batch is over.
    emptied: Vec<ReservedSlot>,
    /// Replaced and deleted records.
    old: Vec<(NvPtr, usize)>,
    /// For each change of a slot: the index of its stripe, and the number of keys that it adds.
    counts: Vec<(usize, i32)>,
}

/// A slot that a batch reserves.
#[derive(Clone, Copy)]
struct ReservedSlot {
    at: NvPtr,
    slot: Slot,
    /// The salt of its table.
    salt: u64,
}

/// The reason why a batch could not be planned.
enum PlanError {
    /// No free slot for this key.
    NoFreeSlot(Hashed),
    /// The log was requested for fewer stores than needed.
    LogTooSmall(usize),
    Refused(Error),
}

/// Returns the last operation of the batch on each of its keys, in the order of the stripes.
fn finals<'b>(inner: &Inner, batch: &'b Batch) -> Vec<Final<'b>> {
    let mut last: BTreeMap<&[u8], Put<'b>> = BTreeMap::new();
    for op in &batch.ops {
        match op {
            BatchOp::Put { key, value, expiry } => last.insert(key, Some((value, *expiry))),
            BatchOp::Delete { key } => last.insert(key, None),
        };
    }
    let mut finals: Vec<_> =
        last.into_iter().map(|(key, put)| Final { key, hashed: inner.hasher.hash(key), put }).collect();
    finals.sort_by_key(|last| (last.hashed.partition, last.hashed.fraction));
    finals
}

impl Inner {
    /// Applies all of `batch` if all conditions are met, otherwise nothing.
    pub(crate) fn write_batch(&self, conditions: &[Condition], batch: &Batch) -> Result<Commit> {
        check_batch(batch)?;
        check_conditions(conditions)?;
        let finals = finals(self, batch);
        let required: Vec<Required<'_>> =
            conditions.iter().map(|condition| (self.hasher.hash(&condition.key), condition)).collect();
        match self.try_batch(&finals, &required) {
            Ok(commit) => Ok(commit),
            Err(error) => {
                let outcome = self.second_try(*error, || self.try_batch(&finals, &required));
                let check = || self.try_batch(&[], &required).map_err(|error| *error);
                outcome.or_else(|error| Commit::after_refusal(error, check))
            }
        }
    }

    fn try_batch(&self, finals: &[Final<'_>], required: &[Required<'_>]) -> Quick<Commit> {
        let _guard = self.enter_write()?;
        if finals.is_empty() {
            let _held = self.hold_all(finals, required);
            return Ok(self.check_conditions(required)?);
        }
        for of_partition in finals.chunk_by(|a, b| a.hashed.partition == b.hashed.partition) {
            let is_new = |last: &&Final<'_>| last.put.is_some() && self.is_probably_absent(last.hashed);
            let new = of_partition.iter().filter(is_new).count();
            if new > LINE_SLOTS {
                match self.grow_for_batch(of_partition[0].hashed.partition, new as u64) {
                    // The existing space may suffice; a key without a slot is handled below.
                    Ok(()) | Err(Error::Full { .. } | Error::IndexFull { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let mut stores = finals.len();
        loop {
            let turn = self.logs.begin(&self.pool, stores)?;
            let records = self.store_records(finals)?;
            let counted = Counted::new(&self.batches);
            let (mut held, index) = self.hold_all(finals, required);
            let checked = self.check_conditions(required);
            if !matches!(checked, Ok(Commit::Done)) {
                drop((held, counted, turn));
                records.into_iter().for_each(|stored| self.free_stored(stored));
                return Ok(checked?);
            }
            let mut plan = Plan::default();
            let planned = self.plan(finals, &records, &index, &mut plan);
            let fits = plan.stores.len() <= stores;
            let planned = planned.and(if fits { Ok(()) } else { Err(PlanError::LogTooSmall(plan.stores.len())) });
            match planned.and_then(|()| self.fence_before_publish().map_err(|error| PlanError::Refused(*error))) {
                Ok(()) => {}
                Err(refused) => {
                    plan.reserved
                        .iter()
                        .for_each(|reserved| free_slot(&self.pool, reserved.salt, reserved.at, reserved.slot));
                    drop((held, counted, turn));
                    records.into_iter().for_each(|stored| self.free_stored(stored));
                    match refused {
                        PlanError::NoFreeSlot(hashed) => self.double_for_batch(hashed, finals.len() as u64)?,
                        PlanError::LogTooSmall(needed) => stores = needed,
                        PlanError::Refused(error) => return Err(error.into()),
                    }
                    continue;
                }
            }
            plan.old.iter().for_each(|(at, len)| self.pool.allocator().keep(*at, *len));
            turn.commit(&self.pool, &plan.stores)?;
            for reserved in &plan.emptied {
                self.free_held_slot(reserved.salt, reserved.at, reserved.slot);
                self.pool.flush(reserved.at, SLOT_BYTES);
            }
            if records.iter().flatten().any(|new| new.expires) {
                // A sweep may have run since the record was stored.
                self.expiring.store(true, Ordering::Relaxed);
            }
            plan.counts.iter().for_each(|(stripe, keys)| held[*stripe].count(*keys));
            let keys_now: Vec<i32> = held.iter().map(|held| held.keys()).collect();
            drop((held, counted));
            plan.old.iter().for_each(|(at, len)| self.pool.epochs().retire(&self.pool, *at, *len));
            for (last, stripe) in finals.iter().zip(index) {
                self.grow_if_due(last.hashed.partition, keys_now[stripe], false);
            }
            self.pool.check()?;
            return Ok(Commit::Done);
        }
    }

    /// Returns whether no slot with the key's tag exists within its reach.
    fn is_probably_absent(&self, hashed: Hashed) -> bool {
        self.partition(hashed).table_for(hashed.fraction).candidate(&self.pool, self.form, hashed).is_none()
    }

    /// Stores the records of all puts, or none.
    fn store_records(&self, finals: &[Final<'_>]) -> Result<Vec<Option<Stored>>> {
        let mut records = Vec::with_capacity(finals.len());
        for last in finals {
            let stored = last.put.map(|(value, expiry)| self.store_with_fraction(last.hashed, last.key, value, expiry));
            match stored.transpose() {
                Ok(stored) => records.push(stored),
                Err(error) => {
                    records.into_iter().for_each(|stored| self.free_stored(stored));
                    return Err(error);
                }
            }
        }
        Ok(records)
    }

    /// Checks conditions whose stripes are held.
    fn check_conditions(&self, required: &[Required<'_>]) -> Result<Commit> {
        for (index, (hashed, condition)) in required.iter().enumerate() {
            let live = self.find_live(*hashed, &condition.key, self.options.verify_reads)?;
            let (value, expiry) = live.map_or((None, None), |hit| (Some(hit.record.value()), hit.record.expiry()));
            if !condition.is_met(value, expiry) && !self.pool.mutant(Mutant::ConditionIgnored) {
                return Ok(Commit::Unmet(index));
            }
        }
        Ok(Commit::Done)
    }

    /// Finds the live record of a key whose stripe is held.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn find_live(&self, hashed: Hashed, key: &[u8], verifies: bool) -> Result<Option<Hit<'_>>> {
        let table = self.partition(hashed).table_for(hashed.fraction);
        let found = self.find(table, hashed, key).inspect_err(|error| self.corrupt(error))?;
        let live = if is_live(found.as_ref())? { found } else { None };
        if let Some(hit) = live.as_ref().filter(|_| verifies) {
            hit.record.check(hit.record_at).inspect_err(|error| self.corrupt(error))?;
        }
        Ok(live)
    }

    /// Acquires the stripes of all keys of the batch and of its conditions, in ascending order.
    /// Returns the stripes, and for each key of the batch the index of its stripe.
    fn hold_all(&self, finals: &[Final<'_>], required: &[Required<'_>]) -> (Vec<Held<'_>>, Vec<usize>) {
        let keys = || finals.iter().map(|last| last.hashed).chain(required.iter().map(|(hashed, _)| *hashed));
        let mut stripes: Vec<_> = keys().map(Hashed::stripe).collect();
        stripes.sort_unstable();
        stripes.dedup();
        if self.changes.is_crowded() {
            self.changes.wait_for_copier();
        }
        let held = stripes.iter().map(|stripe| self.stripes.lock(*stripe)).collect();
        if self.changes.is_active() {
            finals.iter().for_each(|last| self.changes.record(last.key));
        }
        let index = finals.iter().map(|last| stripes.partition_point(|other| *other < last.hashed.stripe())).collect();
        if self.is_unsettled() {
            for hashed in keys() {
                self.partition(hashed).table_for(hashed.fraction).flush_window(&self.pool, hashed.fraction);
            }
            self.pool.fence();
        }
        (held, index)
    }

    /// Finds the slot of each key, and reserves one for each new key.
    fn plan(
        &self,
        finals: &[Final<'_>],
        records: &[Option<Stored>],
        index: &[usize],
        plan: &mut Plan,
    ) -> Result<(), PlanError> {
        for ((last, stored), stripe) in finals.iter().zip(records).zip(index) {
            let table = self.partition(last.hashed).table_for(last.hashed.fraction);
            let old = match self.find(table, last.hashed, last.key) {
                Ok(old) => old,
                // As a put of one key: the damage stays in place.
                Err(_) if stored.is_some() => {
                    self.note_possible_duplicate();
                    None
                }
                Err(error) => {
                    self.corrupt(&error);
                    return Err(PlanError::Refused(error));
                }
            };
            let slot = stored.as_ref().map(|new| self.slot_of(last.hashed, new));
            match (old, slot) {
                (Some(hit), slot) => {
                    if hit.is_bound && stored.as_ref().is_some_and(|new| new.at == hit.record_at) {
                        let place = format!("slot of record {:?}", hit.record_at);
                        return Err(PlanError::Refused(Error::corrupt(place, "it names a place that was free")));
                    }
                    let reserved = self.form.reserved(last.hashed.tag);
                    plan.stores.push((hit.at, Word::U64(slot.unwrap_or(reserved).0)));
                    if slot.is_none() {
                        plan.emptied.push(ReservedSlot { at: hit.at, slot: reserved, salt: table.salt });
                    }
                    if hit.is_bound {
                        plan.old.push((hit.record_at, hit.record.len()));
                    }
                    plan.counts.push((*stripe, if slot.is_some() { 0 } else { -1 }));
                }
                (None, Some(slot)) => {
                    let at = self.reserve(table, last.hashed, plan)?;
                    plan.stores.push((at, Word::U64(slot.0)));
                    plan.counts.push((*stripe, 1));
                }
                (None, None) => {}
            }
        }
        Ok(())
    }

    fn reserve(&self, table: Table, hashed: Hashed, plan: &mut Plan) -> Result<NvPtr, PlanError> {
        self.check_budget().map_err(PlanError::Refused)?;
        loop {
            let Some(free) = table.find_free(&self.pool, hashed.fraction) else {
                return Err(PlanError::NoFreeSlot(hashed));
            };
            let slot = self.form.reserved(hashed.tag);
            if self.pool.cas_u64(free.at, Slot::FREE.0, slot.0).is_ok() {
                count_slot(&self.pool, table.salt, free.at, slot);
                // Fence 1 makes the line durable, and thereby the free of this slot by another
                // writer. Otherwise a redo of the log would store over a slot that the line's check
                // still counts.
                self.pool.flush(free.at, SLOT_BYTES);
                plan.reserved.push(ReservedSlot { at: free.at, slot, salt: table.salt });
                self.raise_reach(table, hashed.fraction, free);
                return Ok(free.at);
            }
        }
    }
}
