//! Writes of single keys.
//!
//! Persist order, under the key's stripe:
//! * put of a new key: the record, and the home line's reach if the slot is in a later line;
//!   **fence 1**; the slot by one 8-byte swap; then the line's check counts the slot, in the same
//!   line; flush; **fence 2**.
//! * put over an old value: the record; **fence 1**; the slot by one 8-byte store; flush; **fence
//!   2**.
//! * delete: the slot is removed from the line's check, then becomes 0 by one 8-byte store to the
//!   same line; flush; **fence 1**.
//!
//! Then the stripe is freed, and a replaced or deleted record is retired, to be freed after its
//! readers end: its removal is durable.
//!
//! A crash before the slot's store leaves a record that no slot names: its space is free after
//! recovery. A crash between the store and its fence leaves the slot old or new; 8 bytes are never
//! torn. A reach that is too high only costs lookups. A put has two ordering points and a delete
//! has one, without a log: a single store publishes each.

use std::sync::atomic::Ordering;

use lodestore_contract::limits::{check_key, check_value};
use lodestore_contract::{Error, Expiry, Result};
use lodestore_inplace::{Decide, Engine, Quick, Step, Stored, When};
use lodestore_media::Mutant;

use crate::hash::Hashed;
use crate::inner::Inner;
use crate::line::{count_slot, raise_reach};
use crate::record::Record;
use crate::search::unvouched;
use crate::slot::{Named, SLOT_BYTES, Slot};
use crate::stripe::Held;
use crate::table::{FreeSlot, Hit, Table};

/// Result of a publication.
enum Published {
    /// The key was new: the keys under its stripe now, and whether its slot is far from its home.
    New(i32, bool),
    Replaced,
    /// There is no free slot. The record belongs to the caller again.
    NoFreeSlot(Stored),
    /// Refused. The record belongs to the caller again.
    Refused(Stored, Box<Error>),
}

/// Returns whether a reader finds the key of this slot.
///
/// # Errors
/// [`Error::Corrupt`].
#[inline]
pub(crate) fn is_live(old: Option<&Hit<'_>>) -> Result<bool> {
    let Some(hit) = old else { return Ok(false) };
    if !hit.is_bound {
        return Err(unvouched(hit.record_at));
    }
    hit.record.is_expired(hit.record_at).map(|expired| !expired)
}

impl Inner {
    /// Acquires the key's stripe. Returns it with the key's table. The caller holds a guard and no
    /// stripe.
    #[inline]
    fn lock_key(&self, hashed: Hashed, key: &[u8]) -> Quick<(Held<'_>, Table)> {
        let part = self.partition(hashed);
        part.table_for(hashed.fraction).prefetch(&self.pool, hashed.fraction);
        let mut held = self.stripes.lock(hashed.stripe());
        if self.changes.is_active() {
            held = self.record_change(hashed, key, held);
        }
        let table = part.table_for(hashed.fraction);
        if self.is_unsettled() {
            table.flush_window(&self.pool, hashed.fraction);
            self.pool.fence_checked()?;
        }
        Ok((held, table))
    }

    /// Records a key that is about to be written, for a copy of the store in progress. May wait for
    /// the copier, and then acquires the stripe again.
    #[cold]
    fn record_change<'a>(&'a self, hashed: Hashed, key: &[u8], mut held: Held<'a>) -> Held<'a> {
        if self.changes.is_crowded() {
            drop(held);
            self.changes.wait_for_copier();
            held = self.stripes.lock(hashed.stripe());
        }
        self.changes.record(key);
        held
    }

    pub(crate) fn try_put(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>, when: When) -> Quick<bool> {
        let _guard = self.enter_write()?;
        let hashed = self.hasher.hash(key);
        loop {
            let (held, table) = self.lock_key(hashed, key)?;
            // A record that is certainly needed is stored while the line is loaded. A record that
            // is probably needed is stored while the old record is loaded.
            let mut stored = None;
            if when == When::Always {
                stored = Some(self.store_with_fraction(hashed, key, value, expiry)?);
            } else if when == When::Present
                && let Some((_, slot)) = table.candidate(&self.pool, self.form, hashed)
            {
                self.pool.prefetch(self.form.record(slot), 64);
                stored = Some(self.store_with_fraction(hashed, key, value, expiry)?);
            }
            let old = match self.find(table, hashed, key) {
                Ok(old) => old,
                // The put adds a slot. The damage stays in place, to be reported for other keys
                // that it may have hit.
                Err(_) if when == When::Always => {
                    self.note_possible_duplicate();
                    None
                }
                Err(error) => return Err(self.give_back(stored, error)),
            };
            // A put replaces any old record.
            let present = match when {
                When::Always => true,
                When::Absent | When::Present => match is_live(old.as_ref()) {
                    Ok(present) => present,
                    Err(error) => return Err(self.give_back(stored, error)),
                },
            };
            if when == When::Absent && present || when == When::Present && !present {
                self.free_stored(stored);
                return Ok(false);
            }
            let record = match stored {
                Some(record) => record,
                None => self.store_with_fraction(hashed, key, value, expiry)?,
            };
            if self.publish_or_grow(hashed, held, table, old, record)? {
                break;
            }
        }
        self.pool.check()?;
        Ok(true)
    }

    /// Publishes a record and frees the stripe. If no slot is free, makes space and returns false:
    /// the write restarts.
    #[inline]
    fn publish_or_grow(
        &self,
        hashed: Hashed,
        mut held: Held<'_>,
        table: Table,
        old: Option<Hit<'_>>,
        record: Stored,
    ) -> Quick<bool> {
        match self.publish(hashed, &mut held, table, old, record) {
            Published::Replaced => Ok(true),
            Published::New(keys, is_far) => {
                drop(held);
                self.grow_if_due(hashed.partition, keys, is_far);
                Ok(true)
            }
            Published::NoFreeSlot(record) => {
                self.free_stored(Some(record));
                drop(held);
                self.grow_until_free(hashed)?;
                Ok(false)
            }
            Published::Refused(record, error) => Err(self.give_back(Some(record), *error)),
        }
    }

    pub(crate) fn try_change(&self, key: &[u8], decide: &mut Decide<'_, '_>) -> Quick<()> {
        let _guard = self.enter_write()?;
        let hashed = self.hasher.hash(key);
        loop {
            let (mut held, table) = self.lock_key(hashed, key)?;
            let old = self.find(table, hashed, key).inspect_err(|error| self.corrupt(error))?;
            let live = if is_live(old.as_ref())? { old.as_ref() } else { None };
            if let Some(hit) = live
                && self.options.verify_reads
            {
                hit.record.check(hit.record_at).inspect_err(|error| self.corrupt(error))?;
            }
            let (value, expiry) =
                match decide(live.map(|hit| hit.record.value()), live.and_then(|hit| hit.record.expiry())) {
                    Step::Keep => return Ok(()),
                    Step::Delete => {
                        if let Some(hit) = live {
                            self.unlink(table, hit, &mut held, Mutant::DeleteNotFlushed);
                        }
                        break;
                    }
                    Step::Put(value, expiry) => (value, expiry),
                };
            check_value(&value)?;
            let record = self.store_with_fraction(hashed, key, &value, expiry)?;
            if self.publish_or_grow(hashed, held, table, old, record)? {
                break;
            }
        }
        self.pool.check()?;
        Ok(())
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Quick<bool> {
        check_key(key)?;
        let _guard = self.enter_write()?;
        let hashed = self.hasher.hash(key);
        let (mut held, table) = self.lock_key(hashed, key)?;
        let deleted = match self.find(table, hashed, key) {
            // A damaged record is removed as well.
            Ok(Some(hit)) if !hit.is_bound || !hit.record.is_expired(hit.record_at).unwrap_or(false) => {
                self.unlink(table, &hit, &mut held, Mutant::DeleteNotFlushed);
                true
            }
            Ok(_) => false,
            Err(error) => return Err(self.give_back(None, error)),
        };
        drop(held);
        self.pool.check()?;
        Ok(deleted)
    }

    /// Removes the key whose record this slot names, if the slot is still the key's and the record
    /// has expired. Returns whether it did.
    pub(crate) fn remove_expired(&self, slot: Slot) -> Result<bool> {
        let _guard = self.enter_write()?;
        let record = Record::read(&self.pool, self.form.record(slot))?;
        let hashed = self.hasher.hash(record.key());
        let (mut held, table) = self.lock_key(hashed, record.key()).map_err(|error| *error)?;
        match self.find(table, hashed, record.key())? {
            Some(hit) if hit.slot == slot && hit.is_bound && hit.record.is_expired(hit.record_at)? => {
                self.unlink(table, &hit, &mut held, Mutant::SweepBeforeDurable);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Frees the slot of a held key. The space of a record for which the slot does not vouch may be
    /// another's: it is free after the next recovery.
    fn unlink(&self, table: Table, hit: &Hit<'_>, held: &mut Held<'_>, not_flushed: Mutant) {
        let (record, len) = (hit.record_at, hit.record.len());
        if hit.is_bound {
            self.pool.allocator().keep(record, len);
        }
        self.free_held_slot(table.salt, hit.at, hit.slot);
        if self.pool.mutant(Mutant::ReuseBeforeDurable) {
            self.pool.allocator().free(&self.pool, record, len);
        }
        self.persist(hit.at, SLOT_BYTES, not_flushed);
        held.count(-1);
        if hit.is_bound && !self.pool.mutant(Mutant::ReuseBeforeDurable) {
            self.pool.epochs().retire(&self.pool, record, len);
        }
    }

    /// Stores a record out of place. The record is durable after the next fence.
    #[inline]
    pub(crate) fn store_with_fraction(
        &self,
        hashed: Hashed,
        key: &[u8],
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<Stored> {
        let stored = self.store_record(hashed.fraction, key, value, expiry)?;
        self.prefetch_length.note(stored.len);
        if stored.expires {
            self.expiring.store(true, Ordering::Relaxed);
        }
        Ok(stored)
    }

    /// Makes a stored record the value of its key. The caller holds the stripe.
    #[inline]
    fn publish(
        &self,
        hashed: Hashed,
        held: &mut Held<'_>,
        table: Table,
        old: Option<Hit<'_>>,
        new: Stored,
    ) -> Published {
        let slot = self.slot_of(hashed, &new);
        let Some(hit) = old else { return self.publish_new(hashed, held, table, new, slot) };
        let (record, len) = (hit.record_at, hit.record.len());
        if !hit.is_bound {
            return self.publish_over_damage(&hit, held, new, slot);
        }
        if record == new.at {
            // A damaged slot names the space of the record that was just stored: its old space was
            // not kept.
            let error = Error::corrupt(format!("slot of record {:?}", new.at), "it names a place that was free");
            return Published::Refused(new, error.into());
        }
        if let Err(error) = self.fence_before_publish() {
            return Published::Refused(new, error);
        }
        self.pool.allocator().keep(record, len);
        self.pool.publish_u64(hit.at, slot.0);
        let early = self.pool.mutant(Mutant::ReuseBeforeDurable);
        if early {
            self.pool.allocator().free(&self.pool, record, len);
        }
        self.persist_published(hit.at, SLOT_BYTES, &new);
        held.count(0);
        if !early {
            self.pool.epochs().retire(&self.pool, record, len);
        }
        Published::Replaced
    }

    /// Returns the slot that names a stored record of a key.
    #[inline]
    pub(crate) fn slot_of(&self, hashed: Hashed, new: &Stored) -> Slot {
        let Stored { at, expires, binding, .. } = *new;
        self.form.slot(hashed.tag, Named { at, expires, binding })
    }

    /// Publishes over a slot that does not vouch for its record. The next recovery frees that
    /// record's space.
    #[cold]
    fn publish_over_damage(&self, hit: &Hit<'_>, held: &mut Held<'_>, new: Stored, slot: Slot) -> Published {
        if let Err(error) = self.fence_before_publish() {
            return Published::Refused(new, error);
        }
        self.pool.publish_u64(hit.at, slot.0);
        self.persist_published(hit.at, SLOT_BYTES, &new);
        held.count(0);
        Published::Replaced
    }

    #[inline]
    fn publish_new(&self, hashed: Hashed, held: &mut Held<'_>, table: Table, new: Stored, slot: Slot) -> Published {
        if let Err(error) = self.check_budget() {
            return Published::Refused(new, error.into());
        }
        loop {
            let Some(free) = table.find_free(&self.pool, hashed.fraction) else { return Published::NoFreeSlot(new) };
            self.raise_reach(table, hashed.fraction, free);
            if let Err(error) = self.fence_before_publish() {
                return Published::Refused(new, error);
            }
            // A writer of another stripe may have claimed the slot.
            if self.pool.cas_u64(free.at, Slot::FREE.0, slot.0).is_ok() {
                count_slot(&self.pool, table.salt, free.at, slot);
                self.persist_published(free.at, SLOT_BYTES, &new);
                held.count(1);
                return Published::New(held.keys(), self.is_far_from_home(free.distance));
            }
        }
    }

    /// Raises the home line's reach for a slot in a later line, before that slot is claimed.
    /// Flushes in any case: another writer may have raised the reach without making it durable yet.
    /// The caller fences.
    #[inline]
    pub(crate) fn raise_reach(&self, table: Table, fraction: u32, free: FreeSlot) {
        if free.distance > 0 {
            self.raise_reach_of(table, table.home(fraction), free.distance);
        }
    }

    pub(crate) fn raise_reach_of(&self, table: Table, home: u64, distance: u32) {
        let at = table.line(home);
        raise_reach(&self.pool, table.salt, at, distance);
        if !self.pool.mutant(Mutant::ReachNotFlushed) {
            self.pool.flush(at, 8);
        }
    }
}
