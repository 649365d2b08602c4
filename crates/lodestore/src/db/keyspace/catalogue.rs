//! The catalogue: the keyspaces of a store, and the used ids.
//!
//! The catalogue is a header and numbered slots, which are ordinary records of the store. They are
//! read by their keys, and therefore also in an engine without an order. A process reads them once,
//! and is the only one that changes them.
//!
//! Persist order. Each step is one put, durable before the next step begins: the catalogue syncs
//! the store after it if its durability is `interval`.
//!
//! * Create: 1. the header, with the next id raised; 2. the slot, live. A crash after 1 loses an
//!   id, and no keyspace exists. No crash gives an id to two names. The header counts the slots
//!   before step 2, so the slot after those is read too.
//! * Drop: 1. the slot, dead. A crash before leaves the keyspace with all of its records.
//! * Reclaim: 1. the records of the keyspace are deleted; 2. the slot, free. A crash before 2
//!   leaves the slot dead, and the next open continues.
//!
//! Slots are never deleted. An absent slot below the header's count is therefore damage, and so is
//! an absent header if slot 0 exists.
//!
//! A failed put may still have taken effect, unless it was refused for lack of space and the slot
//! reads as before. Its slot is in doubt: the slot's previous record is put again before any other
//! change of the catalogue. Therefore no name is in two slots, and no slot that may say *dropped*
//! belongs to a keyspace with writers.
//!
//! Damage of one slot hides the name in it. The other names are opened and dropped as usual. A name
//! that is not found is then an error, and so is the list of all names.

use std::collections::BTreeMap;
use std::sync::Arc;

use lodestore_contract::{Error, Result, Store};

use super::key::NAMED_ID_MIN;
use super::named::{NamedKeyspace, WritersBlocked};
use super::planted::{Fault, Planted};
use super::record::{Header, LOCATION, SlotRecord, header_key, slot_key};

/// Maximum bytes of a name.
pub(in crate::db) const NAME_BYTES_MAX: usize = 255;

/// A slot, with its number as its index.
enum Slot {
    Free,
    Live(Arc<NamedKeyspace>),
    Dead(u32),
    Damaged,
}

/// A dropped keyspace whose records are not all removed.
pub(in crate::db) struct Dead {
    pub(in crate::db) slot: usize,
    pub(in crate::db) id: u32,
}

/// The damage of a slot.
struct Damage {
    place: String,
    what: String,
}

/// The catalogue of an open store.
pub(in crate::db) struct Catalogue {
    store: Arc<dyn Store>,
    /// Whether a put is durable only after a sync.
    needs_sync: bool,
    /// Whether the header was written, or its write was started.
    has_header: bool,
    next_id: u32,
    slots: Vec<Slot>,
    /// The free slots.
    free_slots: Vec<usize>,
    /// The slots of the live keyspaces.
    by_name: BTreeMap<String, usize>,
    /// The first damage that was found.
    damage: Option<Damage>,
    /// A slot whose last put failed, and its intended record.
    in_doubt: Option<(usize, SlotRecord)>,
    planted: Planted,
}

impl Catalogue {
    /// Reads the catalogue.
    ///
    /// # Errors
    /// Errors of a read; [`Error::Corrupt`] if the header is damaged; [`Error::NewerFormat`].
    pub(in crate::db) fn load(store: Arc<dyn Store>, needs_sync: bool, planted: Planted) -> Result<Self> {
        let header = store.get(&header_key())?.map(|value| Header::decode(&value)).transpose()?;
        let mut catalogue = Self {
            store,
            needs_sync,
            has_header: header.is_some(),
            next_id: header.map_or(NAMED_ID_MIN, |header| header.next_id),
            slots: Vec::new(),
            free_slots: Vec::new(),
            by_name: BTreeMap::new(),
            damage: None,
            in_doubt: None,
            planted,
        };
        match header {
            Some(header) => catalogue.load_slots(header.slots)?,
            None if catalogue.store.contains(&slot_key(0))? => {
                return Err(Error::corrupt(LOCATION, "the header is missing"));
            }
            None => {}
        }
        Ok(catalogue)
    }

    /// Reads `count` slots, and the next one if it exists.
    fn load_slots(&mut self, count: u32) -> Result<()> {
        let mut ids = BTreeMap::new();
        let last = if self.planted.has(Fault::LastSlotNotRead) { count.saturating_sub(1) } else { count };
        for number in 0..=last {
            match self.load_slot(number, &mut ids) {
                Ok(None) if number == count => {}
                Ok(Some(slot)) => self.slots.push(slot),
                Ok(None) => self.note_damage(LOCATION.into(), format!("slot {number} is missing")),
                Err(Error::Corrupt { place, what, .. }) => self.note_damage(place, what),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn note_damage(&mut self, place: String, what: String) {
        self.slots.push(Slot::Damaged);
        self.damage.get_or_insert(Damage { place, what });
    }

    /// Reads a slot. `ids` has the previous slots by their ids.
    fn load_slot(&mut self, number: u32, ids: &mut BTreeMap<u32, usize>) -> Result<Option<Slot>> {
        let Some(value) = self.store.get(&slot_key(number))? else { return Ok(None) };
        let index = number as usize;
        let (id, name) = match SlotRecord::decode(number, &value)? {
            SlotRecord::Free => {
                self.free_slots.push(index);
                return Ok(Some(Slot::Free));
            }
            SlotRecord::Live { id, name } => (id, Some(name)),
            SlotRecord::Dead { .. } if self.planted.has(Fault::DeadFreedByOpen) => {
                self.free_slots.push(index);
                return Ok(Some(Slot::Free));
            }
            SlotRecord::Dead { id, .. } => (id, None),
        };
        if !(NAMED_ID_MIN..self.next_id).contains(&id) {
            return Err(Error::corrupt(LOCATION, format!("slot {number} has id {id}, which was never assigned")));
        }
        let same_name = name.as_ref().and_then(|name| self.by_name.get(name));
        if let Some(first) = ids.insert(id, index).or(same_name.copied()) {
            // Either slot may be the damaged one.
            self.slots[first] = Slot::Damaged;
            self.by_name.retain(|_, slot| *slot != first);
            return Err(Error::corrupt(LOCATION, format!("slots {first} and {number} have the same name or id")));
        }
        Ok(Some(name.map_or(Slot::Dead(id), |name| {
            self.by_name.insert(name.clone(), index);
            Slot::Live(Arc::new(NamedKeyspace::new(id, name)))
        })))
    }

    /// Returns whether the store has, or may have, records of other keyspaces than the default one.
    pub(in crate::db) fn has_records(&self) -> bool {
        self.has_header
    }

    /// Returns the names of the keyspaces, sorted.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a slot is damaged.
    pub(in crate::db) fn names(&self) -> Result<Vec<String>> {
        self.check_whole()?;
        Ok(self.by_name.keys().cloned().collect())
    }

    fn check_whole(&self) -> Result<()> {
        match &self.damage {
            None => Ok(()),
            Some(Damage { place, what }) => Err(Error::corrupt(place.clone(), what.clone())),
        }
    }

    /// Returns the keyspace of this name; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::KeyspaceName`]; [`Error::Corrupt`] if the name may be in a damaged slot.
    fn find(&self, name: &str) -> Result<Option<(usize, Arc<NamedKeyspace>)>> {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            return Err(Error::KeyspaceName { len: name.len() });
        }
        match self.by_name.get(name).map(|slot| (*slot, &self.slots[*slot])) {
            Some((slot, Slot::Live(named))) => Ok(Some((slot, Arc::clone(named)))),
            _ => self.check_whole().map(|()| None),
        }
    }

    /// Puts a slot in doubt again.
    ///
    /// # Errors
    ///
    /// Errors of a write. The slot stays in doubt.
    fn restore_slot(&mut self) -> Result<()> {
        let Some((slot, record)) = self.in_doubt.clone() else { return Ok(()) };
        self.put_slot(slot, &record)?;
        self.in_doubt = None;
        if slot == self.slots.len() {
            self.slots.push(Slot::Free);
            self.free_slots.push(slot);
        }
        Ok(())
    }

    /// Returns the keyspace of this name. Creates the keyspace if there is none.
    ///
    /// # Errors
    /// [`Error::KeyspaceName`]; [`Error::KeyspacesExhausted`]; [`Error::Corrupt`] if the name may
    /// be in a damaged slot; those of a write, after which the next open may find the keyspace.
    pub(in crate::db) fn open_or_create(&mut self, name: &str) -> Result<Arc<NamedKeyspace>> {
        if let Some((slot, named)) = self.find(name)? {
            if self.in_doubt.as_ref().is_some_and(|(doubtful, _)| *doubtful == slot) {
                self.restore_slot()?;
            }
            return Ok(named);
        }
        self.restore_slot()?;
        let id = self.next_id;
        let next_id = id.checked_add(1).ok_or(Error::KeyspacesExhausted)?;
        let id =
            if self.planted.has(Fault::DeadIdReused) { self.dead().first().map_or(id, |dead| dead.id) } else { id };
        let slot = self.free_slots.last().copied().unwrap_or(self.slots.len());
        if self.planted.has(Fault::SlotBeforeHeader) {
            self.put_slot(slot, &SlotRecord::Live { id, name: name.into() })?;
        }
        let header = Header { next_id, slots: self.slots.len() as u32 };
        if !(self.has_header && self.planted.has(Fault::HeaderNotRaised)) {
            self.has_header = true;
            self.put(&header_key(), &header.encode())?;
        }
        // From now on the id is used, even if the next put fails.
        self.next_id = next_id;
        self.in_doubt = Some((slot, SlotRecord::Free));
        if let Err(error) = self.put_slot(slot, &SlotRecord::Live { id, name: name.into() }) {
            if self.is_refused_and_unchanged(&error, slot, &SlotRecord::Free) {
                self.in_doubt = None;
            }
            return Err(error);
        }
        self.in_doubt = None;
        let named = Arc::new(NamedKeyspace::new(id, name.into()));
        self.free_slots.pop();
        self.set_slot(slot, Slot::Live(Arc::clone(&named)));
        self.by_name.insert(name.into(), slot);
        Ok(named)
    }

    /// Returns the keyspace of this name, to be dropped.
    ///
    /// # Errors
    /// [`Error::KeyspaceName`]; [`Error::Corrupt`] if the name may be in a damaged slot.
    pub(in crate::db) fn find_named(&self, name: &str) -> Result<Option<Arc<NamedKeyspace>>> {
        Ok(self.find(name)?.map(|(_, named)| named))
    }

    /// Drops a keyspace whose writers are blocked. Returns whether it still existed.
    ///
    /// # Errors
    ///
    /// As [`Self::open_or_create`]. After an error the keyspace still exists. If its slot cannot be
    /// restored, its handles return [`Error::KeyspaceDropped`] permanently, and the next handle of
    /// the name restores the slot.
    pub(in crate::db) fn drop_named(
        &mut self,
        named: &Arc<NamedKeyspace>,
        blocked: &WritersBlocked<'_>,
    ) -> Result<bool> {
        let (name, id) = (named.name(), named.id());
        let slot = match self.find(name)? {
            Some((slot, found)) if Arc::ptr_eq(&found, named) => slot,
            _ => return Ok(false),
        };
        self.restore_slot()?;
        let is_left_out = self.planted.has(Fault::DropNotWritten);
        let put = if is_left_out { Ok(()) } else { self.put_slot(slot, &SlotRecord::Dead { id, name: name.into() }) };
        if let Err(error) = put {
            let before = SlotRecord::Live { id, name: name.into() };
            if self.is_refused_and_unchanged(&error, slot, &before) {
                return Err(error);
            }
            self.in_doubt = Some((slot, before));
            if self.restore_slot().is_err() {
                // An open that finds the drop would lose a write that is acknowledged now.
                named.mark_dropped(blocked);
                self.set_slot(slot, Slot::Live(Arc::new(NamedKeyspace::new(id, name.into()))));
            }
            return Err(error);
        }
        named.mark_dropped(blocked);
        self.by_name.remove(name);
        self.set_slot(slot, Slot::Dead(id));
        Ok(true)
    }

    /// Returns the dropped keyspaces whose records are not all removed.
    pub(in crate::db) fn dead(&self) -> Vec<Dead> {
        let dead = |(slot, state): (usize, &Slot)| match state {
            Slot::Dead(id) => Some(Dead { slot, id: *id }),
            _ => None,
        };
        self.slots.iter().enumerate().filter_map(dead).collect()
    }

    /// Frees the slot of a dropped keyspace. Its records are removed.
    ///
    /// # Errors
    /// Errors of a write.
    pub(in crate::db) fn free_slot(&mut self, dead: &Dead) -> Result<()> {
        self.sync()?;
        self.restore_slot()?;
        self.put_slot(dead.slot, &SlotRecord::Free)?;
        if dead.id + 1 == self.next_id && self.planted.has(Fault::IdReused) {
            self.next_id = dead.id;
        }
        self.set_slot(dead.slot, Slot::Free);
        self.free_slots.push(dead.slot);
        Ok(())
    }

    fn set_slot(&mut self, slot: usize, state: Slot) {
        if slot == self.slots.len() { self.slots.push(state) } else { self.slots[slot] = state }
    }

    /// Returns whether `error` refused a put of a slot for lack of space, and the slot has its
    /// previous record. A sync after the put may be refused as well, so the slot is read.
    fn is_refused_and_unchanged(&self, error: &Error, slot: usize, before: &SlotRecord) -> bool {
        let is_before = |found: Option<Vec<u8>>| match found {
            Some(found) => found == before.encode(),
            None => *before == SlotRecord::Free,
        };
        error.is_for_space() && self.store.get(&slot_key(slot as u32)).is_ok_and(is_before)
    }

    fn put_slot(&self, slot: usize, record: &SlotRecord) -> Result<()> {
        self.put(&slot_key(slot as u32), &record.encode())
    }

    /// Puts a record. The record is durable afterwards.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.put(key, value)?;
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        let is_needed = self.needs_sync && !self.planted.has(Fault::SyncLeftOut);
        if is_needed { self.store.sync() } else { Ok(()) }
    }
}
