//! The manifest: what tables, ranges and value segments there are, as a log of changes.
//!
//! It lives in a chain of extents, the first of which one root word names: records, numbered without holes. The first is
//! a checkpoint, the whole state; each later one is one atomic [`Edit`]. A record is stored and fenced before
//! anything that relies on it, one after the other, and never changed. When the changes are several times the state, and at each open, it is checkpointed into a
//! new chain, and the root word is set to that: this one 8-byte store is the change-over.
//!
//! Persist order of an edit: the tables it adds, fence, the record, fence; only then is the view that it makes shown to
//! readers, and only then may the extents of what it removes be retired.
//!
//! This module is bytes and state alone: [`state`] has the rules, [`codec`] the bytes of a record's body, [`record`] the
//! records and their replay, [`salvage`] what is left of them where some are damaged. [`chain`] alone touches a pool.

pub(crate) mod chain;
mod codec;
pub(crate) mod record;
pub(crate) mod salvage;
pub(crate) mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use lodestore_media::NvPtr;

/// A key, owned.
pub(crate) type Key = Box<[u8]>;

/// A table: one immutable extent of sorted records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableDescriptor {
    /// Its extent, untagged.
    pub(crate) at: NvPtr,
    /// Bytes of it that the table takes.
    pub(crate) bytes: u64,
    /// A number that no other table has or had.
    pub(crate) identity: u64,
    /// Keys in it, tombstones included; at least 1.
    pub(crate) items: u64,
    /// Tombstones among them.
    pub(crate) tombstones: u64,
    /// Bytes of large values that its records point to.
    pub(crate) pointer_bytes: u64,
    /// Its least key.
    pub(crate) min: Key,
    /// Its greatest key.
    pub(crate) max: Key,
}

impl TableDescriptor {
    /// Whether some key could stand in both.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

/// What is known of a segment of the value log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueUse {
    /// Its extent, untagged.
    pub(crate) at: NvPtr,
    /// Bytes of it that the segment takes.
    pub(crate) bytes: u64,
    /// Its records reach as far at least; just as far where it is sealed.
    pub(crate) written: u64,
    /// Bytes of records that nothing names any more, as far as they were counted.
    pub(crate) dead: u64,
    /// Nothing will be written to it any more.
    pub(crate) sealed: bool,
}

/// News of a segment of the value log. One that is no more is passed over: a merge may come upon a pointer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueChange {
    pub(crate) id: u64,
    /// Bytes that are dead beside those counted before.
    pub(crate) dead: u64,
    /// Its records reach as far at least.
    pub(crate) written: u64,
    /// Nothing is written to it any more.
    pub(crate) sealed: bool,
}

/// A new segment of the value log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueExtent {
    /// Its number, above all that were ever given.
    pub(crate) id: u64,
    pub(crate) at: NvPtr,
    pub(crate) bytes: u64,
}

/// One atomic change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Edit {
    /// A frozen memtable became tables: in each range that it names, a new newest run.
    Flush {
        /// The memtable's generation. Logs of it and of all before it are of no more use.
        generation: u64,
        /// The greatest sequence in it.
        last_sequence: u64,
        /// The tables, each with its range; those of one range in key order.
        added: Vec<(u64, Arc<TableDescriptor>)>,
        /// What became known of value segments with it.
        values: Vec<ValueChange>,
    },
    /// Tables of a range were merged into its stable ones.
    Compaction {
        /// The range.
        range_id: u64,
        /// Tables, of buffer runs or stable, that are no more; by identity.
        removed: Vec<u64>,
        /// New stable tables.
        added: Vec<Arc<TableDescriptor>>,
        /// Tables of buffer runs that become stable as they are; by identity.
        moved: Vec<u64>,
        /// What became known of value segments with it.
        values: Vec<ValueChange>,
    },
    /// A range becomes two. No table of it may reach across the key.
    SplitRange {
        /// The range, which keeps the keys below.
        range_id: u64,
        /// The first key of the new range.
        at: Key,
        /// The new range's number, which no range has.
        new_id: u64,
    },
    /// A range takes in the one behind it.
    JoinRanges {
        /// The range, which has the keys of both from now on.
        range_id: u64,
        /// The one right behind it, which is no more.
        next_id: u64,
    },
    /// Segments of the value log begin and end.
    Values {
        /// New ones.
        begun: Vec<ValueExtent>,
        /// Those that are no more.
        ended: Vec<u64>,
    },
}
