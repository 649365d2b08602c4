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
//!
//! `put`, `change` and `delete` of `crates/inplace/src/write.rs` call these functions. The fences
//! are in `crates/inplace/src/base.rs`.

use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Expiry, Result};
use lodestore_inplace::{BoxedResult, Engine, Stored, Writes};

use crate::hash::Hashed;
use crate::line::{count_slot, raise_reach};
use crate::open_store::Inner;
use crate::planted;
use crate::slot::{Named, SLOT_BYTES, Slot};
use crate::stripe::{Held, Target};
use crate::table::{FreeSlot, Hit, Table};

/// A key whose stripe a writer holds.
type Locked<'a> = lodestore_inplace::Locked<'a, Inner>;

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

impl Writes for Inner {
    type Table = Table;
    /// The search for the key reads its lines.
    type Probe = ();

    #[inline]
    fn prefetch_index(&self, hash: Hashed) {
        self.partition(hash).table_for(hash.fraction).prefetch(&self.pool, hash.fraction);
    }

    #[inline]
    fn durable_table(&self, hash: Hashed) -> BoxedResult<Table> {
        let table = self.partition(hash).table_for(hash.fraction);
        if self.is_unsettled() {
            table.flush_window(&self.pool, hash.fraction);
            self.pool.fence_checked()?;
        }
        Ok(table)
    }

    #[inline]
    fn probe(&self, _locked: &Locked<'_>) {}

    #[inline]
    fn prefetch_old(&self, locked: &Locked<'_>, (): &()) -> bool {
        let candidate = locked.table.candidate(&self.pool, self.form, locked.target.hash);
        if let Some((_, slot)) = candidate {
            self.pool.prefetch(self.form.record(slot), 64);
        }
        candidate.is_some()
    }

    #[inline]
    fn store_held(&self, locked: &mut Locked<'_>, value: &[u8], expiry: Option<Expiry>) -> Result<Stored> {
        self.store_with_fraction(locked.target, value, expiry)
    }

    #[inline]
    fn find_old(&self, locked: &Locked<'_>, (): &()) -> Result<Option<Hit<'_>>> {
        self.find(locked.table, locked.target.hash, locked.target.key)
    }

    /// No slot can be identified as the key's. A put adds a slot. The damage stays in place, to be
    /// reported for other keys that it may have hit.
    #[cold]
    fn clear_damage(&self, _locked: &Locked<'_>, (): &(), _error: &Error, is_put: bool) -> bool {
        if is_put {
            self.note_possible_duplicate();
        }
        false
    }

    #[inline]
    fn publish(&self, locked: Locked<'_>, (): (), old: Option<Hit<'_>>, new: Stored) -> BoxedResult<bool> {
        let Locked { target: Target { hash, .. }, mut held, table } = locked;
        match self.publish_slot(hash, &mut held, table, old, new) {
            Published::Replaced => Ok(true),
            Published::New(keys, is_far) => {
                drop(held);
                self.grow_if_due(hash.partition, keys, is_far);
                Ok(true)
            }
            Published::NoFreeSlot(record) => {
                self.free_stored(Some(record));
                drop(held);
                self.grow_until_free(hash)?;
                Ok(false)
            }
            Published::Refused(record, error) => Err(self.discard_stored(Some(record), *error)),
        }
    }

    /// Frees the slot of a held key. The space of a record for which the slot does not vouch may be
    /// another's: it is free after the next recovery.
    #[inline]
    fn unlink(&self, locked: &mut Locked<'_>, found: &Hit<'_>) {
        let (record, len) = (found.record_at, found.record.len());
        if found.is_bound {
            self.pool.allocator().exclude_from_sweep(record, len);
        }
        self.free_held_slot(locked.table.salt, found.at, found.entry);
        if self.pool.has_fault(planted::REUSE_BEFORE_DURABLE) {
            self.pool.allocator().free(&self.pool, record, len);
        }
        self.persist(found.at, SLOT_BYTES);
        locked.held.count(-1);
        if found.is_bound && !self.pool.has_fault(planted::REUSE_BEFORE_DURABLE) {
            self.pool.epochs().retire(&self.pool, record, len);
        }
    }
}

impl Inner {
    /// Stores a record out of place. The record is durable after the next fence.
    #[inline]
    pub(crate) fn store_with_fraction(
        &self,
        Target { hash, key }: Target<'_>,
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<Stored> {
        let stored = self.store_record(hash.fraction, key, value, expiry)?;
        self.prefetch_length.note(stored.len);
        if stored.expires {
            self.expiring.store(true, Ordering::Relaxed);
        }
        Ok(stored)
    }

    /// Makes a stored record the value of its key. The caller holds the stripe.
    #[inline]
    fn publish_slot(
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
            let error =
                Error::corrupt(format!("slot of record {:?}", new.at), "the slot names a record whose place was free");
            return Published::Refused(new, error.into());
        }
        if let Err(error) = self.fence_before_publish() {
            return Published::Refused(new, error);
        }
        self.pool.allocator().exclude_from_sweep(record, len);
        self.pool.publish_u64(hit.at, slot.0);
        let early = self.pool.has_fault(planted::REUSE_BEFORE_DURABLE);
        if early {
            self.pool.allocator().free(&self.pool, record, len);
        }
        self.persist(hit.at, SLOT_BYTES);
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
        self.persist(hit.at, SLOT_BYTES);
        held.count(0);
        Published::Replaced
    }

    #[inline]
    fn publish_new(&self, hashed: Hashed, held: &mut Held<'_>, table: Table, new: Stored, slot: Slot) -> Published {
        if let Err(error) = self.check_budget() {
            return Published::Refused(new, error.into());
        }
        loop {
            let Some(free) = self.find_free(table, hashed.fraction) else { return Published::NoFreeSlot(new) };
            self.raise_reach(table, hashed.fraction, free);
            if let Err(error) = self.fence_before_publish() {
                return Published::Refused(new, error);
            }
            // A writer of another stripe may have claimed the slot.
            if self.pool.cas_u64(free.at, Slot::FREE.0, slot.0).is_ok() {
                count_slot(&self.pool, table.salt, free.at, slot);
                self.persist(free.at, SLOT_BYTES);
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
        self.pool.flush(at, 8);
    }
}
