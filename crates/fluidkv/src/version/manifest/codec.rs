//! The bytes of a record's body. Numbers are 8 bytes, lengths and counts 4, both little-endian.
//!
//! ```text
//! key        length, bytes
//! table      position, bytes, identity, items, tombstones, pointer bytes, min: key, max: key
//! checkpoint flushed generation, last sequence,
//!            ranges { id, lower: key, runs { tables }, stable tables },
//!            values { id, position, bytes, written, dead, sealed }, next value's id
//! flush      generation, last sequence, added { range, table }, news { id, dead, written, sealed }
//! compaction range, removed { identity }, added { table }, moved { identity }, news as in a flush
//! split      range, at: key, new id
//! join       range, next range
//! values     begun { id, position, bytes }, ended { id }
//! ```
//! A list `{ }` begins with its count. The values of a checkpoint are in the order of their ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use lodestore_contract::limits::KEY_MAX;
use lodestore_media::NvPtr;

use super::state::{ManifestState, RangeState, Run};
use super::{Edit, Key, TableDescriptor};
use crate::values::{ValueChange, ValueExtent, ValueUse};

/// The kind of a record. The numbers are part of the format and never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Checkpoint = 1,
    Flush = 2,
    Compaction = 3,
    SplitRange = 4,
    Values = 5,
    JoinRanges = 6,
}

impl Kind {
    pub(super) fn of(byte: u8) -> Option<Self> {
        [Self::Checkpoint, Self::Flush, Self::Compaction, Self::SplitRange, Self::Values, Self::JoinRanges]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// The bytes that a body is written to.
pub(super) struct Sink<'a>(pub(super) &'a mut Vec<u8>);

impl Sink<'_> {
    fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn len(&mut self, len: usize) {
        debug_assert!(u32::try_from(len).is_ok(), "a list of a state fits in memory, and memory in this");
        self.0.extend_from_slice(&(len as u32).to_le_bytes());
    }

    fn key(&mut self, key: &[u8]) {
        self.len(key.len());
        self.0.extend_from_slice(key);
    }

    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.len(items.len());
        items.iter().for_each(|item| each(self, item));
    }

    fn table(&mut self, table: &Arc<TableDescriptor>) {
        let numbers = [table.at.raw(), table.bytes, table.identity, table.items, table.tombstones, table.pointer_bytes];
        numbers.into_iter().for_each(|number| self.u64(number));
        self.key(&table.min);
        self.key(&table.max);
    }

    fn numbers(&mut self, numbers: impl IntoIterator<Item = u64>) {
        numbers.into_iter().for_each(|number| self.u64(number));
    }

    fn news(&mut self, changes: &[ValueChange]) {
        self.list(changes, |sink, change| sink.numbers([change.id, change.dead, change.written, change.sealed.into()]));
    }

    pub(super) fn state(&mut self, state: &ManifestState) {
        self.u64(state.flushed_generation());
        self.u64(state.last_sequence());
        self.list(state.ranges(), |sink, range| {
            sink.u64(range.id);
            sink.key(&range.lower);
            sink.list(&range.runs, |sink, run| sink.list(run, Self::table));
            sink.list(&range.stable, Self::table);
        });
        self.len(state.values().len());
        for (id, used) in state.values() {
            self.numbers([*id, used.at.raw(), used.bytes, used.written, used.dead, used.sealed.into()]);
        }
        self.u64(state.next_value());
    }

    pub(super) fn edit(&mut self, edit: &Edit) -> Kind {
        match edit {
            Edit::Flush { generation, last_sequence, added, values } => {
                self.u64(*generation);
                self.u64(*last_sequence);
                self.list(added, |sink, (range, table)| {
                    sink.u64(*range);
                    sink.table(table);
                });
                self.news(values);
                Kind::Flush
            }
            Edit::Compaction { range_id, removed, added, moved, values } => {
                self.u64(*range_id);
                self.list(removed, |sink, identity| sink.u64(*identity));
                self.list(added, Self::table);
                self.list(moved, |sink, identity| sink.u64(*identity));
                self.news(values);
                Kind::Compaction
            }
            Edit::SplitRange { range_id, at, new_id } => {
                self.u64(*range_id);
                self.key(at);
                self.u64(*new_id);
                Kind::SplitRange
            }
            Edit::JoinRanges { range_id, next_id } => {
                self.numbers([*range_id, *next_id]);
                Kind::JoinRanges
            }
            Edit::Values { begun, ended } => {
                self.list(begun, |sink, fresh| sink.numbers([fresh.id, fresh.at.raw(), fresh.bytes]));
                self.list(ended, |sink, id| sink.u64(*id));
                Kind::Values
            }
        }
    }
}

impl TableDescriptor {
    /// Returns its bytes in a record, as [`Sink::table`] writes them.
    pub(crate) fn described(&self) -> u64 {
        (6 * 8 + 4 + self.min.len() + 4 + self.max.len()) as u64
    }
}

/// Returns the bytes of a range in a checkpoint. `lower`: bytes of its lower key. `runs`: number of
/// its runs. `tables`: bytes of its tables.
pub(crate) fn range_bytes(lower: u64, runs: u64, tables: u64) -> u64 {
    8 + 4 + lower + 4 + 4 * runs + 4 + tables
}

/// Returns the bytes of a checkpoint's body, as [`Sink::state`] writes it, given the bytes of its
/// ranges and the number of its value segments.
pub(super) fn state_bytes(ranges: u64, values: u64) -> u64 {
    2 * 8 + 4 + ranges + 4 + 6 * 8 * values + 8
}

/// The bytes that a body is read from. Each part is `None` if the bytes end before it does.
pub(super) struct Source<'a>(pub(super) &'a [u8]);

impl<'a> Source<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn len(&mut self) -> Option<usize> {
        self.array().map(|bytes| u32::from_le_bytes(bytes) as usize)
    }

    fn key(&mut self) -> Option<Key> {
        let len = self.len().filter(|len| *len <= KEY_MAX)?;
        let (key, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(key.into())
    }

    /// Allocates memory as items are read, not by the count, which may be damaged.
    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.len().filter(|count| *count <= self.0.len())?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(each(self)?);
        }
        Some(items)
    }

    fn table(&mut self) -> Option<Arc<TableDescriptor>> {
        Some(Arc::new(TableDescriptor {
            at: NvPtr::from_raw(self.u64()?),
            bytes: self.u64()?,
            identity: self.u64()?,
            items: self.u64()?,
            tombstones: self.u64()?,
            pointer_bytes: self.u64()?,
            min: self.key()?,
            max: self.key()?,
        }))
    }

    fn run(&mut self) -> Option<Run> {
        self.list(Self::table)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.u64()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn values(&mut self) -> Option<(u64, ValueUse)> {
        let id = self.u64()?;
        let (at, bytes) = (NvPtr::from_raw(self.u64()?), self.u64()?);
        Some((id, ValueUse { at, bytes, written: self.u64()?, dead: self.u64()?, sealed: self.flag()? }))
    }

    fn change(&mut self) -> Option<ValueChange> {
        Some(ValueChange { id: self.u64()?, dead: self.u64()?, written: self.u64()?, sealed: self.flag()? })
    }

    fn extent(&mut self) -> Option<ValueExtent> {
        Some(ValueExtent { id: self.u64()?, at: NvPtr::from_raw(self.u64()?), bytes: self.u64()? })
    }

    fn range(&mut self) -> Option<RangeState> {
        Some(RangeState { id: self.u64()?, lower: self.key()?, runs: self.list(Self::run)?, stable: self.run()? })
    }

    /// Returns the item if only padding is left.
    fn ends<T>(&self, item: T) -> Option<T> {
        (self.0.len() < 8 && self.0.iter().all(|byte| *byte == 0)).then_some(item)
    }

    /// Reads a checkpoint's body. Returns `None` if it is not a checkpoint, or breaks a rule of the
    /// state.
    pub(super) fn state(mut self) -> Option<ManifestState> {
        let (generation, sequence) = (self.u64()?, self.u64()?);
        let ranges = self.list(Self::range)?;
        let listed = self.list(Self::values)?;
        let values: BTreeMap<u64, ValueUse> = listed.iter().copied().collect();
        let in_order = listed.is_sorted_by(|(a, _), (b, _)| a < b);
        let values = (values, self.u64()?);
        let state = ManifestState::from_parts(generation, sequence, ranges, values).ok().filter(|_| in_order)?;
        self.ends(state)
    }

    /// Reads an edit's body.
    pub(super) fn edit(mut self, kind: Kind) -> Option<Edit> {
        let edit = match kind {
            Kind::Checkpoint => return None,
            Kind::Flush => Edit::Flush {
                generation: self.u64()?,
                last_sequence: self.u64()?,
                added: self.list(|source| Some((source.u64()?, source.table()?)))?,
                values: self.list(Self::change)?,
            },
            Kind::Compaction => Edit::Compaction {
                range_id: self.u64()?,
                removed: self.list(Self::u64)?,
                added: self.run()?,
                moved: self.list(Self::u64)?,
                values: self.list(Self::change)?,
            },
            Kind::SplitRange => Edit::SplitRange { range_id: self.u64()?, at: self.key()?, new_id: self.u64()? },
            Kind::JoinRanges => Edit::JoinRanges { range_id: self.u64()?, next_id: self.u64()? },
            Kind::Values => Edit::Values { begun: self.list(Self::extent)?, ended: self.list(Self::u64)? },
        };
        self.ends(edit)
    }
}
