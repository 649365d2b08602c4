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

use std::sync::atomic::Ordering;

use lodestore_contract::{Commit, Error, Expiry, Result};
use lodestore_inplace::{BatchInProgress, Batches, BoxedResult, Engine, ItemOf, RequiredOf, Stored};
use lodestore_media::{NvPtr, Word};

use crate::hash::Hashed;
use crate::layout::LINE_SLOTS;
use crate::line::{count_slot, free_slot};
use crate::open_store::Inner;
use crate::slot::{SLOT_BYTES, Slot};
use crate::stripe::{Held, Target};
use crate::table::Table;

type Item<'b> = ItemOf<'b, Inner>;
type Required<'c> = RequiredOf<'c, Inner>;

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

impl Batches for Inner {
    fn try_batch(&self, items: &mut [Item<'_>], required: &[Required<'_>]) -> BoxedResult<Commit> {
        let _guard = self.enter_write()?;
        if items.is_empty() {
            let _held = self.hold_all(items, required);
            return Ok(self.check_conditions(required)?);
        }
        for of_partition in items.chunk_by(|a, b| a.target.hash.partition == b.target.hash.partition) {
            let is_new = |last: &&Item<'_>| last.put.is_some() && self.is_probably_absent(last.target.hash);
            let new = of_partition.iter().filter(is_new).count();
            if new > LINE_SLOTS {
                match self.grow_for_batch(of_partition[0].target.hash.partition, new as u64) {
                    // The existing space may suffice; a key without a slot is handled below.
                    Ok(()) | Err(Error::Full { .. } | Error::IndexFull { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let mut stores = items.len();
        loop {
            let turn = self.logs.begin(&self.pool, stores)?;
            self.store_records(items)?;
            let counted = BatchInProgress::new(&self.batches);
            let (mut held, index) = self.hold_all(items, required);
            let checked = self.check_conditions(required);
            if !matches!(checked, Ok(Commit::Done)) {
                drop((held, counted, turn));
                self.free_records(items);
                return Ok(checked?);
            }
            let mut plan = Plan::default();
            let planned = self.plan(items, &index, &mut plan);
            let fits = plan.stores.len() <= stores;
            let planned = planned.and(if fits { Ok(()) } else { Err(PlanError::LogTooSmall(plan.stores.len())) });
            match planned.and_then(|()| self.fence_before_publish().map_err(|error| PlanError::Refused(*error))) {
                Ok(()) => {}
                Err(refused) => {
                    plan.reserved
                        .iter()
                        .for_each(|reserved| free_slot(&self.pool, reserved.salt, reserved.at, reserved.slot));
                    drop((held, counted, turn));
                    self.free_records(items);
                    match refused {
                        PlanError::NoFreeSlot(hashed) => self.double_for_batch(hashed, items.len() as u64)?,
                        PlanError::LogTooSmall(needed) => stores = needed,
                        PlanError::Refused(error) => return Err(error.into()),
                    }
                    continue;
                }
            }
            plan.old.iter().for_each(|(at, len)| self.pool.allocator().exclude_from_sweep(*at, *len));
            turn.commit(&self.pool, &plan.stores)?;
            for reserved in &plan.emptied {
                self.free_held_slot(reserved.salt, reserved.at, reserved.slot);
                self.pool.flush(reserved.at, SLOT_BYTES);
            }
            if items.iter().filter_map(|item| item.stored.as_ref()).any(|new| new.expires) {
                // A sweep may have run since the record was stored.
                self.expiring.store(true, Ordering::Relaxed);
            }
            plan.counts.iter().for_each(|(stripe, keys)| held[*stripe].count(*keys));
            let keys_now: Vec<i32> = held.iter().map(|held| held.keys()).collect();
            drop((held, counted));
            plan.old.iter().for_each(|(at, len)| self.pool.epochs().retire(&self.pool, *at, *len));
            for (last, stripe) in items.iter().zip(index) {
                self.grow_if_due(last.target.hash.partition, keys_now[stripe], false);
            }
            self.pool.check()?;
            return Ok(Commit::Done);
        }
    }

    fn store_unheld(&self, target: Target<'_>, value: &[u8], expiry: Option<Expiry>) -> Result<Stored> {
        self.store_with_fraction(target, value, expiry)
    }
}

impl Inner {
    /// Returns whether no slot with the key's tag exists within its reach.
    fn is_probably_absent(&self, hashed: Hashed) -> bool {
        self.partition(hashed).table_for(hashed.fraction).candidate(&self.pool, self.form, hashed).is_none()
    }

    /// Acquires the stripes of all keys of the batch and of its conditions, in ascending order.
    /// Returns the stripes, and for each key of the batch the index of its stripe.
    fn hold_all(&self, items: &[Item<'_>], required: &[Required<'_>]) -> (Vec<Held<'_>>, Vec<usize>) {
        let keys = || items.iter().map(|last| last.target.hash).chain(required.iter().map(|(target, _)| target.hash));
        let mut stripes: Vec<_> = keys().map(Hashed::stripe).collect();
        stripes.sort_unstable();
        stripes.dedup();
        if self.changes.is_crowded() {
            self.changes.wait_for_copier();
        }
        let held = stripes.iter().map(|stripe| self.stripes.lock(*stripe)).collect();
        if self.changes.is_active() {
            items.iter().for_each(|last| self.changes.record(last.target.key));
        }
        let index =
            items.iter().map(|last| stripes.partition_point(|other| *other < last.target.hash.stripe())).collect();
        if self.is_unsettled() {
            for hashed in keys() {
                self.partition(hashed).table_for(hashed.fraction).flush_window(&self.pool, hashed.fraction);
            }
            self.pool.fence();
        }
        (held, index)
    }

    /// Finds the slot of each key, and reserves one for each new key.
    fn plan(&self, items: &[Item<'_>], index: &[usize], plan: &mut Plan) -> Result<(), PlanError> {
        for (last, stripe) in items.iter().zip(index) {
            let stored = &last.stored;
            let table = self.partition(last.target.hash).table_for(last.target.hash.fraction);
            let old = match self.find(table, last.target.hash, last.target.key) {
                Ok(old) => old,
                // As a put of one key: the damage stays in place.
                Err(_) if stored.is_some() => {
                    self.note_possible_duplicate();
                    None
                }
                Err(error) => {
                    self.report_corruption(&error);
                    return Err(PlanError::Refused(error));
                }
            };
            let slot = stored.as_ref().map(|new| self.slot_of(last.target.hash, new));
            match (old, slot) {
                (Some(hit), slot) => {
                    if hit.is_bound && stored.as_ref().is_some_and(|new| new.at == hit.record_at) {
                        let place = format!("slot of record {:?}", hit.record_at);
                        return Err(PlanError::Refused(Error::corrupt(
                            place,
                            "the slot names a record whose place was free",
                        )));
                    }
                    let reserved = self.form.reserved(last.target.hash.tag);
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
                    let at = self.reserve(table, last.target.hash, plan)?;
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
            let Some(free) = self.find_free(table, hashed.fraction) else {
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
