//! The manifest: the tables, ranges and value segments of a store, as a log of changes.
//!
//! The manifest is a sequence of records in a chain of extents. One root word names the first
//! extent. The records are numbered without gaps. The first record is a checkpoint of the whole
//! state. Each later record is one atomic [`Edit`]. A record is stored and fenced before anything
//! relies on it. Records are written one after the other and never changed. When the edits are
//! several times as long as the state, and at each open, the state is checkpointed into a new
//! chain. The 8-byte store of the root word then switches to that chain.
//!
//! Persist order of an edit: the tables that it adds, fence, the record, fence. Only then do
//! readers see the new view, and only then may the extents of removed tables be retired.
//!
//! This module handles only bytes and state. [`state`] has the rules, [`codec`] the bytes of a
//! record's body, [`record`] the records and their replay. [`salvage`] reads a manifest with
//! damaged records. Only [`chain`] accesses a pool.

pub(crate) mod chain;
mod codec;
pub(crate) mod record;
pub(crate) mod salvage;
pub(crate) mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use lodestore_media::NvPtr;

use crate::values::{ValueChange, ValueExtent};

/// A key, owned.
pub(crate) type Key = Box<[u8]>;

/// A table: one immutable extent of sorted records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableDescriptor {
    /// Its extent, untagged.
    pub(crate) at: NvPtr,
    /// Bytes of the extent that the table uses.
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
    /// Returns whether a key could be in both.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

/// One atomic change of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Edit {
    /// A frozen memtable became tables: each named range gets a new newest run.
    Flush {
        /// The memtable's generation. Its logs, and the logs of all earlier generations, are no
        /// longer needed.
        generation: u64,
        /// The greatest sequence number in it.
        last_sequence: u64,
        /// The tables, each with its range. Tables of one range are in key order.
        added: Vec<(u64, Arc<TableDescriptor>)>,
        /// Changes of value segments by this edit.
        values: Vec<ValueChange>,
    },
    /// Tables of a range were merged into its stable ones.
    Compaction {
        /// The range.
        range_id: u64,
        /// Removed tables, of runs or stable, by identity.
        removed: Vec<u64>,
        /// New stable tables.
        added: Vec<Arc<TableDescriptor>>,
        /// Tables of runs that become stable without a rewrite, by identity.
        moved: Vec<u64>,
        /// Changes of value segments by this edit.
        values: Vec<ValueChange>,
    },
    /// A range becomes two. None of its tables may span the key.
    SplitRange {
        /// The range, which keeps the keys below `at`.
        range_id: u64,
        /// The first key of the new range.
        at: Key,
        /// The new range's number, which no range has.
        new_id: u64,
    },
    /// A range absorbs the next one.
    JoinRanges {
        /// The range that gets the keys of both.
        range_id: u64,
        /// The next range, which is removed.
        next_id: u64,
    },
    /// Value segments begin and end.
    Values {
        /// New segments.
        begun: Vec<ValueExtent>,
        /// Removed segments.
        ended: Vec<u64>,
    },
}
